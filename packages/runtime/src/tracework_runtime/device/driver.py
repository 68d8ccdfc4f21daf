"""The CUDA driver through ctypes: load a cubin, launch a function, say what went wrong."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import statistics
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from tracework_runtime import _torch
from tracework_runtime.device.copies import COPIES, ENTRY
from tracework_runtime.elf import is_whole
from tracework_runtime.errors import LaunchError

__all__ = ["CudaDriver", "DriverGraph", "driver"]

_CAPTURE_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: a kernel's module may be loaded while recording
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_FREE_ON_LAUNCH = 1  # CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_SHARED_WITHOUT_ASKING = 48 * 1024
_SHARED_OF_THE_DRIVER = 1024
NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
OTHER_CONTEXT = 400  # CUDA_ERROR_INVALID_HANDLE: the thread has the context of another device


class CudaDriver:
    """The few driver calls that launching takes.

    `launch_address` is where cuLaunchKernelEx lies, which csrc/launcher.c calls, `graph_address` cuGraphLaunch's, for csrc/replay.c.
    """

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise LaunchError(f"cannot load the CUDA driver: {error}", advice="install the NVIDIA driver") from error
        self._library = library
        self.launch_address = ctypes.cast(library.cuLaunchKernelEx, ctypes.c_void_p).value
        self.graph_address = ctypes.cast(library.cuGraphLaunch, ctypes.c_void_p).value or 0
        library.cuStreamBeginCapture_v2.argtypes = [ctypes.c_void_p, ctypes.c_int]
        library.cuStreamEndCapture.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        library.cuGraphInstantiateWithFlags.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
        library.cuGraphDestroy.argtypes = [ctypes.c_void_p]
        library.cuGraphExecDestroy.argtypes = [ctypes.c_void_p]
        library.cuGraphLaunch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        library.cuModuleLoadData.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        library.cuModuleGetFunction.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]
        library.cuFuncSetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
        library.cuDevicePrimaryCtxRetain.argtypes = [ctypes.c_void_p, ctypes.c_int]
        library.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]
        self._copies: dict[int, tuple[int, int, int]] = {}
        self._contexts: dict[int, int] = {}
        self.current_stream = _torch.current_raw_stream

    def make_current(self, device: int) -> None:
        """Gives the calling thread the context that torch uses on a device.

        A thread has none until a call of the CUDA runtime needs one; memory from torch's cache needs none.
        """
        context = self._contexts.get(device)
        if context is None:
            handle, found = ctypes.c_int(), ctypes.c_void_p()
            self.check(self._library.cuDeviceGet(ctypes.byref(handle), device), f"finding device {device}")
            self.check(self._library.cuDevicePrimaryCtxRetain(ctypes.byref(found), handle), f"using device {device}")
            assert found.value is not None
            context = self._contexts[device] = found.value
        self.check(self._library.cuCtxSetCurrent(context), f"using device {device}")

    @contextlib.contextmanager
    def on(self, device: int) -> Iterator[None]:
        """A device as the thread's current one, with its context."""
        with torch.cuda.device(device):
            self.make_current(device)
            yield

    def load(self, code: bytes, symbol: str, shared: int, device: int) -> int:
        """The function of a cubin on a device; the module stays loaded. Raises LaunchError."""
        if not is_whole(code):
            raise LaunchError(f"loading {symbol}: a part of a binary")
        with self.on(device):
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self.check(self._library.cuModuleLoadData(ctypes.byref(module), code), f"loading {symbol}")
            found = self._library.cuModuleGetFunction(ctypes.byref(function), module, symbol.encode())
            self.check(found, f"finding {symbol}")
            if shared > _SHARED_WITHOUT_ASKING:
                asked = self._library.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared)
                self.check(asked, f"asking for {shared} bytes of shared memory for {symbol}")
        assert function.value is not None
        return function.value

    def copies(self, device: int) -> tuple[int, int, int]:
        """Where cuMemcpyAsync, cuLaunchKernel and the kernel for many small copies lie; 0 where a device is too old for the last."""
        found = self._copies.get(device)
        if found is None:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            with self.on(device):
                if self._library.cuModuleLoadData(ctypes.byref(module), COPIES.encode()) == 0:
                    self.check(
                        self._library.cuModuleGetFunction(ctypes.byref(function), module, ENTRY.encode()), f"finding {ENTRY}"
                    )
            copy, launch = (
                ctypes.cast(f, ctypes.c_void_p).value for f in (self._library.cuMemcpyAsync, self._library.cuLaunchKernel)
            )
            found = self._copies[device] = copy or 0, launch or 0, function.value or 0
        return found

    def new_stream(self, device: int) -> torch.cuda.Stream:
        """A stream that is nobody else's, as torch's own may be; it is never destroyed."""
        with self.on(device):
            stream = ctypes.c_void_p()
            self.check(self._library.cuStreamCreate(ctypes.byref(stream), _NON_BLOCKING), "making a stream")
        return torch.cuda.ExternalStream(stream.value or 0, torch.device("cuda", device))

    @contextlib.contextmanager
    def recording(self, stream: int) -> Iterator[DriverGraph]:
        """Records what is launched on a stream in the block. The graph is there behind the block."""
        made = DriverGraph(self._library)
        self.check(self._library.cuStreamBeginCapture_v2(stream, _CAPTURE_RELAXED), "recording a CUDA graph")
        graph = ctypes.c_void_p()
        try:
            yield made
        except BaseException:
            self._library.cuStreamEndCapture(stream, ctypes.byref(graph))
            self._library.cuGraphDestroy(graph)
            raise
        self.check(self._library.cuStreamEndCapture(stream, ctypes.byref(graph)), "recording a CUDA graph")
        executable = ctypes.c_void_p()
        try:
            found = self._library.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, _FREE_ON_LAUNCH)
            self.check(found, "instantiating a CUDA graph")
        finally:
            self._library.cuGraphDestroy(graph)
        made.own(executable.value or 0)

    def check(self, status: int, doing: str) -> None:
        """Raise LaunchError for a status other than success."""
        if status == 0:
            return
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(status, ctypes.byref(text))
        reason = text.value.decode() if text.value else "unknown error"
        raise LaunchError(f"CUDA error {status} while {doing}: {reason}", advice="run with CUDA_LAUNCH_BLOCKING=1")

    def most_shared(self, device: int) -> int:
        """Bytes of shared memory that a block can have: a multiprocessor's, less what the driver keeps of it."""
        return int(torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor) - _SHARED_OF_THE_DRIVER

    def microseconds(self, runs: Sequence[Callable[[], None]], rounds: int, device: int) -> list[float]:
        """Median time of each of `runs` on the device's current stream: in turns, so that a clock that changes is no one's, and each with
        nothing of its data in the L2 cache, as other kernels leave it."""
        with torch.cuda.device(device):
            cached = torch.cuda.get_device_properties(device).L2_cache_size
            others = torch.empty(2 * cached, dtype=torch.uint8, device="cuda")
            spans: list[list[tuple[Any, Any]]] = [[] for _ in runs]
            for _ in range(rounds):
                for run, known in zip(runs, spans, strict=True):
                    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                    others.zero_()
                    start.record()
                    run()
                    end.record()
                    known.append((start, end))
            torch.cuda.current_stream().synchronize()
            return [1000 * statistics.median(start.elapsed_time(end) for start, end in known) for known in spans]

    def capturing(self) -> bool:
        """Whether the current stream is being recorded into a graph."""
        return torch.cuda.is_current_stream_capturing()


class DriverGraph:
    """A recorded graph that can be launched: `handle` is its CUgraphExec."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.handle = 0

    def own(self, handle: int) -> None:
        """Takes the executable graph, which is destroyed with this object."""
        self.handle = handle
        weakref.finalize(self, self._library.cuGraphExecDestroy, handle).atexit = False


@functools.cache
def driver() -> CudaDriver:
    """The process's driver."""
    return CudaDriver()

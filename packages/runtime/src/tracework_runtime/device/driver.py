"""The CUDA driver through ctypes: load a cubin, launch a function, say what went wrong."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

import torch

from tracework_runtime import _torch
from tracework_runtime.elf import is_whole
from tracework_runtime.errors import LaunchError

__all__ = ["CudaDriver", "driver"]

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_SHARED_WITHOUT_ASKING = 48 * 1024
NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
OTHER_CONTEXT = 400  # CUDA_ERROR_INVALID_HANDLE: the thread has the context of another device


class CudaDriver:
    """The few driver calls that launching takes.

    `launch_address` is where cuLaunchKernelEx lies, which csrc/launcher.c calls.
    """

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise LaunchError(f"cannot load the CUDA driver: {error}", advice="install the NVIDIA driver") from error
        self._library = library
        self.launch_address = ctypes.cast(library.cuLaunchKernelEx, ctypes.c_void_p).value
        library.cuModuleLoadData.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        library.cuModuleGetFunction.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]
        library.cuFuncSetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
        library.cuDevicePrimaryCtxRetain.argtypes = [ctypes.c_void_p, ctypes.c_int]
        library.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]
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

    def check(self, status: int, doing: str) -> None:
        """Raise LaunchError for a status other than success."""
        if status == 0:
            return
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(status, ctypes.byref(text))
        reason = text.value.decode() if text.value else "unknown error"
        raise LaunchError(f"CUDA error {status} while {doing}: {reason}", advice="run with CUDA_LAUNCH_BLOCKING=1")

    def milliseconds(self, run: Any, repeat: int, device: int) -> float:
        """Mean time of `run()` on the device's current stream."""
        with torch.cuda.device(device):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            run()
            start.record()
            for _ in range(repeat):
                run()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) / repeat

    def capturing(self) -> bool:
        """Whether the current stream is being recorded into a graph."""
        return torch.cuda.is_current_stream_capturing()


@functools.cache
def driver() -> CudaDriver:
    """The process's driver."""
    return CudaDriver()

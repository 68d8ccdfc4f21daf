"""GraphEngine: how a call is recorded, timed and accounted for on a GPU. Tests put a slow double in its place."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch

from tracework_runtime import _torch
from tracework_runtime.cudagraph.arena import Arena
from tracework_runtime.device.driver import NO_CONTEXT, OTHER_CONTEXT, driver

__all__ = ["GraphEngine", "Recorded"]

Inputs = list[Any]
Call = Callable[[Inputs], tuple[Any, ...]]


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A recorded call.

    graph: what keeps it alive. handle: its CUgraphExec, where the driver can launch it as it is; else `replay` launches it.
    outputs: tensors over memory that each replay writes. bytes: by which the memory of recordings grew.
    """

    graph: Any
    outputs: tuple[Any, ...]
    bytes: int = 0
    handle: int = 0
    replay: Callable[[], None] | None = None


class GraphEngine:
    """CUDA graphs by the driver, and through torch where random numbers are drawn. Only one thread at a time records."""

    device_type = "cuda"

    capturing = staticmethod(torch.cuda.is_current_stream_capturing)
    """Whether somebody else is recording right now."""
    stream = staticmethod(_torch.current_raw_stream)
    """The handle of a device's current stream."""
    current_device = staticmethod(_torch.current_gpu)
    """Which device's stream is the current one."""

    def __init__(self) -> None:
        self._streams: dict[tuple[int, int], torch.cuda.Stream] = {}

    def copies(self, device: int) -> tuple[int, int, int]:
        """Where cuMemcpyAsync, cuLaunchKernel and the kernel for many copies lie."""
        return driver().copies(device)

    @property
    def graph_address(self) -> int:
        """Where cuGraphLaunch lies."""
        return driver().graph_address

    def record(self, call: Call, inputs: Inputs, device: int, stream: int, draws: bool, keeps: bool) -> Recorded:
        """A call as a recording that is replayed on `stream`; nothing has run yet.

        draws: it may draw random numbers. keeps: it says what it returns, so that the rest can be memory that recordings share.
        """
        # Libraries keep memory for a stream, which all recordings made on it share: their replays are in turn on another one.
        side = self._streams.get((device, stream))
        if side is None:
            side = self._streams[device, stream] = driver().new_stream(device)
        make = _by_torch if draws else _by_driver
        with torch.cuda.device(device):
            torch.cuda.synchronize()
            torch.cuda.empty_cache()  # the recording cannot use what is free outside of its pools
            before = torch.cuda.memory_reserved(device)
            try:
                with torch.cuda.stream(side):
                    # other allocators do not say what a pool consists of
                    arena = Arena.entered(device, stream) if keeps and torch.cuda.get_allocator_backend() == "native" else None
                    had = arena.bytes if arena else 0
                    recorded = make(call, list(inputs), device, side.cuda_stream, arena)
                    if arena and arena.holds(recorded.outputs):
                        del recorded
                        recorded = make(call, inputs, device, side.cuda_stream, None)
            except BaseException:
                with torch.cuda.stream(side):
                    _recover()
                raise
            grown = torch.cuda.memory_reserved(device) - before
            return dataclasses.replace(recorded, bytes=max(grown - (arena.bytes - had if arena else 0), 0))

    def on(self, device: int) -> Any:
        """A block with another current device."""
        return torch.cuda.device(device)

    def give_context(self, status: int, device: int) -> bool:
        """Whether a copy that failed may be tried again: the thread had no context yet, or another device's."""
        if status not in (NO_CONTEXT, OTHER_CONTEXT):
            return False
        driver().make_current(device)
        return True

    def check(self, status: int) -> None:
        """Raises LaunchError for a copy that failed."""
        driver().check(status, "copying an input of a CUDA graph")

    def memory(self, device: int) -> int:
        """Bytes that the device has."""
        return _total_memory(device)

    def free(self, device: int) -> int:
        """Bytes of it that nobody has."""
        return torch.cuda.mem_get_info(device)[0]

    def time(self, call: Callable[[], Any], device: int) -> tuple[Any, float, float]:
        """(what a call gives, seconds of the host, seconds of the device); waits for the device."""
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        stream = torch.cuda.current_stream(device)
        begin.record(stream)
        started = time.perf_counter()
        found = call()
        host = time.perf_counter() - started
        end.record(stream)
        end.synchronize()
        return found, host, begin.elapsed_time(end) / 1000


def _by_driver(call: Call, inputs: Inputs, device: int, stream: int, arena: Arena | None) -> Recorded:
    """torch would refuse random numbers to other threads as long as it records: it records its generators with the rest."""
    pool = arena.pool if arena else torch.cuda.graph_pool_handle()
    with contextlib.ExitStack() as after_error, contextlib.ExitStack() as block:
        pools = _pools(device, arena, after_error)
        _torch.enter_pool(device, pool)
        pools.append(pool)
        block.callback(_torch.leave_pool, device, pool)
        graph = block.enter_context(driver().recording(stream))
        if arena:
            block.enter_context(arena.keeping(pools))
        outputs = call(inputs)
        block.close()
        after_error.pop_all()
    weakref.finalize(graph, _give_back, device, arena, pools).atexit = False
    return Recorded(graph, outputs, handle=graph.handle)


def _by_torch(call: Call, inputs: Inputs, device: int, stream: int, arena: Arena | None) -> Recorded:
    """The graph asks the generator at each replay how far it is, and sets it forward."""
    graph = torch.cuda.CUDAGraph()
    with contextlib.ExitStack() as after_error:
        pools = _pools(device, arena, after_error)
        graph.capture_begin(pool=arena.pool if arena else None, capture_error_mode="relaxed")
        try:
            with arena.keeping(pools) if arena else contextlib.nullcontext():
                outputs = call(inputs)
        except BaseException:
            with contextlib.suppress(RuntimeError):
                graph.capture_end()
            raise
        graph.capture_end()
        after_error.pop_all()
    weakref.finalize(graph, _give_back, device, arena, pools).atexit = False
    return Recorded(graph, outputs, replay=graph.replay)


def _pools(device: int, arena: Arena | None, after_error: contextlib.ExitStack) -> list[tuple[int, int]]:
    """The pools of a recording, given back with it or after an error."""
    pools: list[tuple[int, int]] = []
    after_error.callback(_give_back, device, arena, pools)
    return pools


def _give_back(device: int, arena: Arena | None, pools: list[tuple[int, int]]) -> None:
    if arena:
        arena.leave()
    for pool in pools:
        _torch.release_pool(device, pool)


def _recover() -> None:
    """A recording that ends well: after one that did not torch takes its generator of random numbers to be recorded still."""
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(capture_error_mode="relaxed")
    torch.zeros(1, device="cuda")
    graph.capture_end()


@functools.cache
def _total_memory(device: int) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)

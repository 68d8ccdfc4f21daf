"""A double of a GPU's graphs: what is recorded runs again on a CPU, in the memory that was recorded."""

import contextlib
import ctypes

import torch
from tracework_runtime.cudagraph.engine import Recorded

HOST = """
def call(args):
    w, x = args
    args.clear()
    return (w * x, w + x)
"""

COPY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p)


@COPY
def copy(to, source, size, stream):
    ctypes.memmove(to, source, size)
    return 0


KERNEL = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)


@KERNEL
def copies(function, blocks, rows, grid_z, threads, block_y, block_z, shared, stream, parameters, extra):
    """The kernel for many copies, by its parameter."""
    table = ctypes.cast(parameters[0], ctypes.POINTER(ctypes.c_uint64))
    for to, source, size in (table[3 * row : 3 * row + 3] for row in range(rows)):
        assert (grid_z, threads, block_y, block_z) == (1, 256, 1, 1) and blocks * threads * 16 >= max(size, 8)
        if size:
            ctypes.memmove(to, source, size)
        else:
            ctypes.c_uint64.from_address(to).value = source
    return 0


ADDRESSES = tuple(ctypes.cast(function, ctypes.c_void_p).value for function in (copy, copies))


def flat(tensor):
    """The tensor's memory from its first element to its last without a reference to it, as a graph has it."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0
    if not reach:
        return torch.empty(0, dtype=tensor.dtype)
    raw = (ctypes.c_char * (reach * tensor.element_size())).from_address(tensor.data_ptr())
    return torch.frombuffer(raw, dtype=tensor.dtype)


def memory(tensor):
    """The same with its sizes and strides."""
    return flat(tensor).as_strided(tensor.shape, tensor.stride())


class SlowEngine:
    """host, device: seconds that every plain call takes; replay: of each replay, or of both; kernel: 0 where copies are made one by one.

    size: bytes of the device, all of them free."""

    device_type = "cpu"
    graph_address = 0

    def __init__(self, host=1.0, device=0.5, replay=0.1, size=1 << 40, kernel=1):
        self.recorded = self.replayed = 0
        self.plain_times, self.size = (host, device), size
        self.replay_times = replay if isinstance(replay, tuple) else (replay, replay)
        self.current_stream, self.kernel = 7, kernel

    def capturing(self):
        return False

    def stream(self, device):
        return self.current_stream

    def current_device(self):
        return 0

    def on(self, device):
        return contextlib.nullcontext()

    def copies(self, device):
        return (*ADDRESSES, self.kernel)

    def memory(self, device):
        return self.size

    def free(self, device):
        return self.size

    def time(self, call, device):
        replayed = self.replayed
        found = call()
        return (found, *(self.plain_times if replayed == self.replayed else self.replay_times))

    def record(self, call, inputs, device, stream, draws, keeps):
        self.recorded += 1
        tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
        before = [(flat(x), flat(x).clone()) for x in tensors]
        kept = [memory(x) if isinstance(x, torch.Tensor) else x for x in inputs]
        outputs = call(list(inputs))
        for now, value in before:  # nothing runs while it is recorded
            now.copy_(value)
        del tensors
        theirs = {x.untyped_storage().data_ptr() for x in inputs if isinstance(x, torch.Tensor)}
        own = [isinstance(o, torch.Tensor) and o.untyped_storage().data_ptr() not in theirs for o in outputs]
        places = [memory(o) if mine else None for o, mine in zip(outputs, own, strict=True)]
        for place in places:
            if place is not None:
                flat(place).fill_(99)

        def replay():
            self.replayed += 1
            for place, new in zip(places, call(list(kept)), strict=True):
                if place is not None:
                    flat(place).copy_(flat(new))

        return Recorded(replay, outputs, replay=replay)

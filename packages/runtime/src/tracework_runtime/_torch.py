"""The only file of this package that touches private torch names."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload

from tracework_runtime._C import Settings

__all__ = [
    "OpOverload",
    "EXCHANGE_API",
    "convolution_plus",
    "convolution_then",
    "copy_each",
    "current_gpu",
    "current_raw_stream",
    "dispatch_mode_count",
    "empty_strided_cpu",
    "empty_strided_cuda",
    "enter_pool",
    "get_address_function",
    "keep_busy",
    "leave_pool",
    "library_settings",
    "openmp_library",
    "pack_convolution",
    "part_of_store",
    "pool_parts",
    "profiler_enabled",
    "release",
    "release_pool",
    "set_versions",
    "storage_count",
    "storage_count_place",
    "store_of_ranks",
    "tensor_of_handle",
    "tensor_place",
]

EXCHANGE_API: Any = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
"""A capsule of DLPack's C functions for tensors; None in a torch that has none."""


def _raw_stream_getter() -> Callable[[int], int]:
    getter = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if getter is not None:
        return getter
    return lambda device: torch.cuda.current_stream(device).cuda_stream


current_raw_stream = _raw_stream_getter()

# The current GPU's index, without torch.cuda's check that CUDA is initialised.
current_gpu: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)


def _allocator(name: str, device: str) -> Callable[..., torch.Tensor]:
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    fast = getattr(guards, name, None)
    if fast is not None:
        return fast
    return lambda sizes, strides, dtype: torch.empty_strided(sizes, strides, dtype=dtype, device=device)


# torch's C entry points for strided allocation (sizes, strides, dtype): a third of torch.empty_strided's cost.
empty_strided_cpu = _allocator("_empty_strided_cpu", "cpu")
empty_strided_cuda = _allocator("_empty_strided_cuda", "cuda")


# (tensors, versions): how often autograd has seen each of them written to.
set_versions: Callable[[tuple[torch.Tensor, ...], tuple[int, ...]], None] = torch._C._autograd._unsafe_set_version_counter


_KERNEL_SETTINGS: tuple[Callable[[], Any], ...] = (
    torch._C._get_deterministic_algorithms,
    torch._C._get_cudnn_enabled,
    torch._C._get_cudnn_benchmark,
    torch._C._get_cudnn_deterministic,
    torch._C._get_cublas_allow_fp16_accumulation,
    torch._C._get_cublas_allow_fp16_reduced_precision_reduction,
    torch._C._get_cublas_allow_bf16_reduced_precision_reduction,
)


def _newer_settings() -> tuple[Any, ...]:
    """With precisions in the newer words, which take five times as long: the older have none for what is set."""
    precisions = tuple(torch._C._get_fp32_precision_getter("cuda", kind) for kind in ("matmul", "conv", "rnn"))
    return (*precisions, *[read() for read in _KERNEL_SETTINGS])


# How many modes of Python's dispatch are active, and whether a profiler is.
dispatch_mode_count: Callable[[], int] = torch._C._len_torch_dispatch_stack
mkldnn_enabled: Callable[[], bool] = torch._C._get_mkldnn_enabled
half_accumulation: Callable[[], bool] = torch._C._get_cublas_allow_fp16_accumulation
profiler_enabled: Callable[[], bool] = torch._C._autograd._profiler_enabled


def release() -> str:
    """The release of torch, which a program's file names."""
    return str(torch.__version__)


def keep_busy(cycles: int) -> None:
    """The current stream of the GPU waits for so many of its cycles."""
    torch.cuda._sleep(cycles)


def enter_pool(device: int, pool: tuple[int, int]) -> None:
    """From now on this thread's memory on a GPU comes from a pool, until it leaves it; release_pool() gives it back, once for each entry."""
    torch._C._cuda_beginAllocateCurrentThreadToPool(device, pool)


def leave_pool(device: int, pool: tuple[int, int]) -> None:
    """Ends that."""
    torch._C._cuda_endAllocateToPool(device, pool)


def release_pool(device: int, pool: tuple[int, int]) -> None:
    """Nobody takes memory from a pool any more: what of it is free is anybody's, and the rest when it is freed."""
    torch._C._cuda_releasePool(device, pool)


@functools.cache
def _snapshots_take_references() -> bool:
    """Whether a snapshot of memory gives up a reference that it does not have to each number that it is given, as before torch 2.15."""
    number = int("1" * 15)  # of its own: with no more references it would be freed
    given = number, number, False
    before = sys.getrefcount(number)
    torch._C._cuda_memorySnapshot(given)
    taken = before - sys.getrefcount(number)
    for _ in range(taken):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(number))
    return taken > 0


def pool_parts(pool: tuple[int, int]) -> list[tuple[int, int]]:
    """(address, bytes) of what torch has of the device for a pool."""
    if _snapshots_take_references():
        for number in (*pool, False):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(number))
    found = torch.cuda.memory_snapshot(pool, include_traces=False)
    return [(int(part["address"]), int(part["total_size"])) for part in found if tuple(part["segment_pool_id"]) == pool]


# The settings by which torch's kernels for a GPU choose what they compute, and how, when they are launched.
library_settings: Callable[[], tuple[Any, ...]] = Settings(
    (torch._C._get_cublas_allow_tf32, torch._C._get_cudnn_allow_tf32, *_KERNEL_SETTINGS), _newer_settings
)


def tensor_place() -> int:
    """How many bytes behind the address of a Python tensor its tensor of C++ lies, which has the address of the implementation; 0 where that
    does not show."""
    probes = [torch.empty(2, device="cpu"), torch.nn.Parameter(torch.empty(1, device="cpu")), torch.empty(3, device="cpu")[1:]]
    for place in range(16, 48, 8):
        if all(ctypes.c_uint64.from_address(id(probe) + place).value == probe._cdata for probe in probes):
            return place
    return 0


# A capsule of a tensor of torch's C interface, which is taken -> that tensor.
tensor_of_handle: Callable[[Any], torch.Tensor] = torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr


def get_address_function() -> int:
    """Where aoti_torch_get_data_ptr lies: of torch's interface for C, stable from version to version; 0 where it is missing."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        return ctypes.cast(ctypes.CDLL(str(library)).aoti_torch_get_data_ptr, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0


def openmp_library() -> Path | None:
    """The OpenMP runtime that torch itself loaded, so that kernels share its thread pool."""
    root = Path(torch.__file__).parent
    for folder in (root / "lib", root.parent / "torch.libs"):
        found = sorted(folder.glob("libgomp*.so*"))
        if found:
            return found[0]
    return None


# How many tensors and Python objects hold a storage, by its handle.
storage_count: Callable[[int], int] = torch._C._storage_Use_Count


def storage_count_place() -> int:
    """How many bytes behind a storage's handle that lies, in 32 bits; -1 where it does not show."""
    tensor = torch.empty(4, device="cpu")
    storage = tensor.untyped_storage()
    handle, views, places = int(storage._cdata), [], {8, 12, 16}
    for _ in range(4):
        count = storage_count(handle)
        places = {place for place in places if ctypes.c_uint32.from_address(handle + place).value == count}
        views.append(tensor.view(2, 2))
    return places.pop() if len(places) == 1 else -1


def copy_each(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copies tensors of one dtype, in few kernels on a GPU."""
    torch._foreach_copy_(targets, sources)


def convolution_then(*args: Any) -> torch.Tensor:
    """The CPU library's convolution with an activation: x, packed weight, bias, settings, activation, its numbers, its variant."""
    return torch.ops.mkldnn._convolution_pointwise.default(*args)


def convolution_plus(*args: Any) -> torch.Tensor:
    """The same plus a second tensor."""
    return torch.ops.mkldnn._convolution_pointwise.binary(*args)


def pack_convolution(*args: Any) -> torch.Tensor:
    """Weights in the layout that the CPU library's convolution likes best."""
    return torch.ops.mkldnn._reorder_convolution_weight(*args)


def linear_then(*args: Any) -> torch.Tensor:
    """The CPU library's linear layer with an activation: rows, packed weight, bias, activation, its numbers, its variant."""
    return torch.ops.mkldnn._linear_pointwise.default(*args)


def pack_linear(*args: Any) -> torch.Tensor:
    """Weights in the layout that the CPU library's linear layer likes best."""
    return torch.ops.mkldnn._reorder_linear_weight(*args)


def packed_address(packed: torch.Tensor) -> int:
    """Where weights in a layout of the CPU library lie."""
    return int(torch.ops.mkldnn.data_ptr(packed))


def packed_nbytes(packed: torch.Tensor) -> int:
    """Bytes of weights in a layout of the CPU library."""
    return int(torch.ops.mkldnn._nbytes(packed))


def store_of_ranks() -> Any:
    """The store of torch.distributed, where it is initialised with several ranks; else None."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.distributed_c10d._get_default_store() if distributed.get_world_size() > 1 else None


def rank_and_size() -> tuple[int, int]:
    """Of this process, among all ranks of torch.distributed, which is initialised."""
    distributed = sys.modules["torch.distributed"]
    return distributed.get_rank(), distributed.get_world_size()


def part_of_store(store: Any, prefix: str) -> Any:
    """The keys of a store that begin so. Where the store can have one, over a connection of its own, which no other thread's wait holds up."""
    distributed = sys.modules["torch.distributed"]
    try:
        store = store.clone()
    except (AttributeError, NotImplementedError, RuntimeError):
        pass
    return distributed.PrefixStore(prefix, store)

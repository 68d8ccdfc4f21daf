"""The only file of this package that touches private torch names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

__all__ = [
    "convolution_plus",
    "convolution_then",
    "current_gpu",
    "current_raw_stream",
    "dispatch_mode_count",
    "empty_strided_cpu",
    "empty_strided_cuda",
    "library_settings",
    "openmp_library",
    "pack_convolution",
    "profiler_enabled",
    "set_versions",
    "storage_references",
]


def _raw_stream_getter() -> Callable[[int], int]:
    getter = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if getter is not None:
        return getter  # type: ignore[no-any-return]
    return lambda device: torch.cuda.current_stream(device).cuda_stream


current_raw_stream = _raw_stream_getter()

# The current GPU's index, without torch.cuda's check that CUDA is initialised.
current_gpu: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)


def _allocator(name: str, device: str) -> Callable[..., torch.Tensor]:
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    fast = getattr(guards, name, None)
    if fast is not None:
        return fast  # type: ignore[no-any-return]
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


def library_settings() -> tuple[Any, ...]:
    """The settings by which torch's kernels for a GPU choose what they compute, and how, when they are launched."""
    try:
        precisions: tuple[Any, ...] = torch._C._get_cublas_allow_tf32(), torch._C._get_cudnn_allow_tf32()
    except RuntimeError:  # the older words have none for what is set; the newer take five times as long
        precisions = tuple(torch._C._get_fp32_precision_getter("cuda", kind) for kind in ("matmul", "conv", "rnn"))
    return (*precisions, *[read() for read in _KERNEL_SETTINGS])


# How many modes of Python's dispatch are active, and whether a profiler is.
dispatch_mode_count: Callable[[], int] = torch._C._len_torch_dispatch_stack
profiler_enabled: Callable[[], bool] = torch._C._autograd._profiler_enabled


def openmp_library() -> Path | None:
    """The OpenMP runtime that torch itself loaded, so that kernels share its thread pool."""
    root = Path(torch.__file__).parent
    for folder in (root / "lib", root.parent / "torch.libs"):
        found = sorted(folder.glob("libgomp*.so*"))
        if found:
            return found[0]
    return None


def storage_references(tensor: torch.Tensor) -> int:
    """How many tensors and Python objects hold the memory of a tensor; this call's own reference not counted."""
    storage = tensor.untyped_storage()
    return int(torch._C._storage_Use_Count(storage._cdata)) - 1


def convolution_then(*args: Any) -> torch.Tensor:
    """The CPU library's convolution with an activation: x, packed weight, bias, settings, activation, its numbers, its variant."""
    return torch.ops.mkldnn._convolution_pointwise.default(*args)  # type: ignore[no-any-return]


def convolution_plus(*args: Any) -> torch.Tensor:
    """The same plus a second tensor."""
    return torch.ops.mkldnn._convolution_pointwise.binary(*args)  # type: ignore[no-any-return]


def pack_convolution(*args: Any) -> torch.Tensor:
    """Weights in the layout that the CPU library's convolution likes best."""
    return torch.ops.mkldnn._reorder_convolution_weight(*args)  # type: ignore[no-any-return]

"""NVIDIA GPUs: compute capability, size, streams."""

from __future__ import annotations

import functools
from typing import Any

import torch

__all__ = ["DEFAULT_CAPABILITY", "MOST_SHARED", "CudaDevice", "capability", "identity"]

# What kernels are compiled for where no GPU is present: Hopper.
DEFAULT_CAPABILITY = 90
MOST_SHARED = {n: size << 10 for n, size in {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99}.items()}
"""Compute capability -> bytes of shared memory that a block may take; those that kernels can be built for without such a GPU."""


@functools.cache
def capability(index: int = 0) -> int:
    """Compute capability as one number, 90 for 9.0; DEFAULT_CAPABILITY without a GPU."""
    if not torch.cuda.is_available():
        return DEFAULT_CAPABILITY
    major, minor = torch.cuda.get_device_capability(index)
    return major * 10 + minor


@functools.cache
def properties(index: int = 0) -> dict[str, Any]:
    """Facts of one GPU; those of an H200 where there is none."""
    if not torch.cuda.is_available():
        return {"name": "none", "multiprocessors": 132, "memory": 0, "capability": DEFAULT_CAPABILITY}
    facts = torch.cuda.get_device_properties(index)
    return {
        "name": facts.name,
        "multiprocessors": facts.multi_processor_count,
        "memory": facts.total_memory,
        "capability": capability(index),
    }


def identity(index: int = 0) -> str:
    """What generated code depends on: an H100 and an H200 differ in their memory alone, which decides what is fused and cut how."""
    return f"{properties(index)['name']} sm_{capability(index)} x{properties(index)['multiprocessors']}"


class CudaDevice:
    """The row of DEVICES for "cuda"."""

    type = "cuda"

    def available(self) -> bool:
        """Whether torch sees a GPU."""
        return torch.cuda.is_available()

    def identity(self) -> str:
        """Name, compute capability and number of multiprocessors of the current GPU."""
        return identity(torch.cuda.current_device() if self.available() else 0)

    def properties(self) -> dict[str, Any]:
        """Facts of the current GPU."""
        return properties(torch.cuda.current_device() if self.available() else 0)

    def synchronize(self) -> None:
        """Wait for the current GPU."""
        torch.cuda.synchronize()

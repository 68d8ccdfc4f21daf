"""torch's C functions for matrix products into memory that is there (torch/csrc/inductor/aoti_torch/c/shim.h), where it has them.

They run the library's kernel, without what torch's dispatcher does before: nothing of a profiler or of a mode for each operator. Where
somebody looks (`watched`), the host program's text is run.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import torch

from tracework_runtime import _torch
from tracework_runtime._C import set_tensor_functions

__all__ = ["MOST_DIMENSIONS", "address", "dtype_code"]

MOST_DIMENSIONS = 3
"""Of an operand, as in csrc/program.c."""


@functools.cache
def _library(device_type: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / f"libtorch_{device_type}.so"))
    except OSError:
        return None


def _address(device_type: str, name: str) -> int:
    found = getattr(_library(device_type), name, None)
    return ctypes.cast(found, ctypes.c_void_p).value or 0 if found is not None else 0


def watched() -> bool:
    """Whether a mode or a profiler is told of each operator that torch runs."""
    return _torch.dispatch_mode_count() > 0 or _torch.profiler_enabled()


_MADE = _address("cpu", "aoti_torch_create_tensor_from_blob"), _address("cpu", "aoti_torch_delete_tensor_object")
set_tensor_functions(*_MADE, watched)


@functools.cache
def address(device_type: str, function: str) -> int:
    """Of "mm_out" and so on for a kind of device; 0 where torch does not have it."""
    return _address(device_type, f"aoti_torch_{device_type}_{function}") if all(_MADE) else 0


@functools.cache
def dtype_code(dtype: str) -> int | None:
    """The number of a dtype for these functions, None where there is none."""
    found = getattr(_library("cpu"), f"aoti_torch_dtype_{dtype}", None)
    return int(found()) if found is not None else None


@functools.cache
def device_code(device_type: str) -> int:
    """The number of a kind of device for these functions."""
    return int(getattr(_library("cpu"), f"aoti_torch_device_type_{device_type}")())

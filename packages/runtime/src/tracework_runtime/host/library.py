"""torch's C functions for library calls (torch/csrc/inductor/aoti_torch/c/shim.h and generated/), where it has them.

They run the library's kernel, without what torch's dispatcher does before: nothing of a profiler or of a mode for each operator. Where
somebody looks (`watched`), the host program's text is run.
"""

from __future__ import annotations

import ctypes
import enum
import functools
from pathlib import Path

import torch

from tracework_runtime import _torch
from tracework_runtime._C import set_tensor_functions

__all__ = ["ARGUMENT_KINDS", "MOST_DIMENSIONS", "address", "device_code", "dtype_code"]

MOST_DIMENSIONS = 8
"""Of a tensor, as in csrc/library.c."""


class _Kind(enum.IntEnum):
    """Of an argument, as in csrc/library.c."""

    TENSOR = 0
    OPTIONAL_TENSOR = 1
    NOTHING = 2
    INTEGER = 3
    INTEGERS = 4
    BOOLS = 5
    REAL = 6
    OPTIONAL_REAL = 7
    OPTIONAL_INTEGERS = 8
    NO_INTEGERS = 9


ARGUMENT_KINDS = {
    "tensor": _Kind.TENSOR,
    "tensor?": _Kind.OPTIONAL_TENSOR,
    "nothing": _Kind.NOTHING,
    "int": _Kind.INTEGER,
    "ints": _Kind.INTEGERS,
    "bools": _Kind.BOOLS,
    "float": _Kind.REAL,
    "float?": _Kind.OPTIONAL_REAL,
    "ints?": _Kind.OPTIONAL_INTEGERS,
    "no ints": _Kind.NO_INTEGERS,
}
"""How the types of a schema are written in a line."""


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


_ON_TENSORS = (
    "create_tensor_from_blob delete_tensor_object new_tensor_handle get_dim get_sizes get_strides get_storage_offset get_dtype "
    "get_device_type get_device_index get_data_ptr"
).split()
"""In the order of csrc/library.c."""
_FOUND = tuple(_address("cpu", f"aoti_torch_{name}") for name in _ON_TENSORS)
set_tensor_functions(_FOUND, watched, _torch.tensor_of_handle)


@functools.cache
def address(device_type: str, function: str) -> int:
    """Of "mm_out" and so on for a kind of device; 0 where torch does not have it."""
    return _address(device_type, f"aoti_torch_{device_type}_{function}") if all(_FOUND) else 0


@functools.cache
def dtype_code(dtype: str) -> int | None:
    """The number of a dtype for these functions, None where there is none."""
    found = getattr(_library("cpu"), f"aoti_torch_dtype_{dtype}", None)
    return int(found()) if found is not None else None


@functools.cache
def device_code(device_type: str) -> int:
    """The number of a kind of device for these functions."""
    return int(getattr(_library("cpu"), f"aoti_torch_device_type_{device_type}")())

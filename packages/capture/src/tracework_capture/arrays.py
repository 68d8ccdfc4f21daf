"""NumPy's arrays as tensors over their memory: which dtypes both have, and which arrays torch takes."""

from typing import Any

import numpy
import torch
from numpy._core import multiarray
from numpy._core._multiarray_umath import _array_converter as CONVERTER

__all__ = ["CONVERTER", "DTYPES", "array_errors", "array_number", "as_view", "multiarray", "tensor_of_array"]

_NAMES = "bool int8 int16 int32 int64 uint8 float16 float32 float64 complex64 complex128"
DTYPES: dict[Any, torch.dtype] = {numpy.dtype(n): getattr(torch, n) for n in _NAMES.split()}
"""dtype of NumPy -> torch's, for arrays in a graph."""


def tensor_of_array(array: Any) -> torch.Tensor | None:
    """A tensor over the memory of the array; None when torch has none such (other dtypes or byte orders, read-only memory)."""
    if array.dtype not in DTYPES or not array.flags.writeable:
        return None
    if any(stride < 0 or stride % array.itemsize for stride in array.strides):
        return None
    return torch.from_numpy(array)


def array_number(tensor: torch.Tensor) -> Any:
    """The number of NumPy that a tensor of no dims holds."""
    return tensor.numpy()[()]


def as_view(array: Any, flips: list[int], writeable: bool | None) -> Any:
    """The new array, with these dims the other way round, and read-only unless it may be written to (None: with a warning)."""
    view = array[tuple(slice(None, None, -1 if dim in flips else 1) for dim in range(array.ndim))] if flips else array
    if writeable is None:
        view.flags._warn_on_write = True
    else:
        view.flags.writeable = writeable
    return view


def array_errors() -> bool:
    """Whether floating-point errors are to raise or to call something, which graphs do not do."""
    return not {"raise", "call", "log"}.isdisjoint(numpy.geterr().values())

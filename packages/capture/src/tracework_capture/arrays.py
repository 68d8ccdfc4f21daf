"""NumPy's arrays as tensors over their memory: which dtypes both have, and which arrays torch takes."""

from typing import Any

import numpy
import torch

__all__ = ["DTYPES", "array_errors", "array_number", "tensor_of_array"]

_NAMES = "bool int8 int16 int32 int64 uint8 float16 float32 float64"
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


def array_errors() -> bool:
    """Whether floating-point errors are to raise or to call something, which graphs do not do."""
    return not {"raise", "call", "log"}.isdisjoint(numpy.geterr().values())

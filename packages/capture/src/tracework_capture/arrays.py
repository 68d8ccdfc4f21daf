"""NumPy's arrays as tensors over their memory: which dtypes both have, and which arrays torch takes."""

import functools
from collections.abc import Callable
from typing import Any

import numpy
import torch
from numpy._core import multiarray
from numpy._core._multiarray_umath import _array_converter as CONVERTER

__all__ = [
    "CONVERTER",
    "DTYPES",
    "NUMPY_DTYPES",
    "array_errors",
    "array_number",
    "as_view",
    "backwards",
    "multiarray",
    "numpy",
    "tensor_maker",
    "tensor_of_array",
]

_NAMES = "bool int8 int16 int32 int64 uint8 float16 float32 float64 complex64 complex128"
DTYPES: dict[Any, torch.dtype] = {numpy.dtype(n): getattr(torch, n) for n in _NAMES.split()}
"""dtype of NumPy -> torch's, for arrays in a graph."""
NUMPY_DTYPES: dict[torch.dtype, Any] = {of_torch: of_numpy for of_numpy, of_torch in DTYPES.items()}
"""And back."""


def tensor_of_array(array: Any, flips: tuple[int, ...] = (), writeable: bool = True) -> torch.Tensor | None:
    """A tensor over the memory of the array, with the dims that run backwards, `flips`, in the order of the memory.

    None when torch has none such (other dtypes or byte orders), when other dims run backwards, or when it may be written to and should
    not, or the other way round. What is read-only is so for the caller to heed.
    """
    if array.dtype not in DTYPES or array.flags.writeable is not writeable:
        return None
    itemsize = array.itemsize
    for dim, stride in enumerate(array.strides):
        if stride % itemsize or (stride < 0) is not (dim in flips):
            return None
    if flips:
        array = array[tuple(slice(None, None, -1 if dim in flips else 1) for dim in range(array.ndim))]
    return torch.from_numpy(array if writeable else numpy.asarray(_Writeable(array)))


def backwards(array: Any) -> tuple[int, ...]:
    """The dims of the array with negative strides."""
    return tuple([dim for dim, stride in enumerate(array.strides) if stride < 0])


class _Writeable:
    """The memory of a read-only array, for torch, which has no read-only tensors and warns of them."""

    def __init__(self, array: Any) -> None:
        facts = array.__array_interface__
        self.array, self.__array_interface__ = array, facts | {"data": (facts["data"][0], False)}


@functools.cache
def tensor_maker(flips: tuple[int, ...], writeable: bool) -> Callable[[Any], torch.Tensor | None]:
    """tensor_of_array for arrays of this kind."""
    ordinary = not flips and writeable
    return tensor_of_array if ordinary else functools.partial(tensor_of_array, flips=flips, writeable=writeable)


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

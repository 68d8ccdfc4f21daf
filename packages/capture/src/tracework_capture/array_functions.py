"""wrap_numpy: a function of arrays as a function of tensors. In a graph the arrays are the tensors, on any device and with history."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy
import torch

from ._torch.functions import tree_map_only
from .errors import ControlMisuse


def across(value: Any) -> Any:
    """A tensor as an array over its memory, an array or a number of NumPy as a tensor."""
    return value.numpy() if isinstance(value, torch.Tensor) else torch.as_tensor(value)


def wrap_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy arrays as one of tensors, which also compiles for GPUs and gives gradients.

    Tensors in the arguments, and arrays and numbers of NumPy in the result, may lie in containers that torch.utils._pytree knows. Plain
    Python calls NumPy itself, which takes tensors on the CPU without history only. Raises ControlMisuse for what cannot be called.
    """
    if not callable(function):
        raise ControlMisuse(f"wrap_numpy() takes a function, not {function!r}.")

    @functools.wraps(function)
    def of_tensors(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map_only(torch.Tensor, across, (args, kwargs))
        return tree_map_only((numpy.ndarray, numpy.generic), across, function(*args, **kwargs))

    return of_tensors

"""Types of which each object is wholly known by its value."""

from __future__ import annotations

import enum
from fractions import Fraction
from typing import Any

import numpy
import torch
import torch.nn.attention
from torch.torch_version import TorchVersion

_NUMPY_KINDS = "bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
NUMPY_NUMBERS = frozenset(getattr(numpy, name) for name in _NUMPY_KINDS.split())
"""The classes of NumPy's numbers."""

NUMPY_DTYPES = frozenset(type(numpy.dtype(kind)) for kind in NUMPY_NUMBERS)
"""The classes of their dtypes."""

TORCH_ENUMS = frozenset({torch.nn.attention.SDPBackend, torch.nn.functional.ScalingType, torch.nn.functional.SwizzleType}) | (
    frozenset({torch.distributed.ReduceOp.RedOpType}) if torch.distributed.is_available() else frozenset()
)
"""Those of torch's C++ code that its functions take, whose members are made by pybind11, not by enum."""

ATOM_TYPES = (NUMPY_NUMBERS | NUMPY_DTYPES | TORCH_ENUMS) | frozenset(
    {
        int,
        float,
        bool,
        str,
        bytes,
        complex,
        type(None),
        type(Ellipsis),
        type(NotImplemented),
        Fraction,
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
        TorchVersion,
    }
)
"""Types whose instances are constants; enum members are, too."""


def is_atom(obj: Any) -> bool:
    """Whether the object is a constant."""
    return type(obj) in ATOM_TYPES or issubclass(type(obj), enum.Enum)

"""ONNX_ROWS: prim, or ATen kernel -> the function that writes it in ONNX; what rows share: values, refusals, the decorator.

A row is called with the Writer, the spec of the result (a tuple for several) and the node's arguments, tensors as Values. It gives the
names of its results, or raises Refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tracework_primops import OPS, TensorSpec

from ..errors import TraceworkError


class Refused(TraceworkError):
    """A call that is not written in ONNX; the text is the reason."""


@dataclass(frozen=True)
class Value:
    """A tensor in a model that is being written."""

    name: str
    spec: TensorSpec

    @property
    def dtype(self) -> torch.dtype:
        return self.spec.dtype

    @property
    def sizes(self) -> tuple[Any, ...]:
        return self.spec.sizes

    @property
    def ndim(self) -> int:
        return len(self.spec.sizes)


Row = Callable[..., Any]
ONNX_ROWS: dict[Any, Row] = {}
OWN_DTYPES: set[Any] = set()
"""Whose rows take every dtype as it is; for the others narrow dtypes are widened."""


def row(*targets: Any, own_dtypes: bool = False) -> Callable[[Row], Row]:
    """Files a function under names of prims and ATen overloads."""

    def file(function: Row) -> Row:
        for target in targets:
            key = OPS[target] if isinstance(target, str) else target
            assert key not in ONNX_ROWS, f"ONNX_ROWS: a second row for {key}"
            ONNX_ROWS[key] = function
            if own_dtypes:
                OWN_DTYPES.add(key)
        return function

    return file


def number(size: Any, what: str) -> int:
    """A size that ONNX takes as an attribute, which is written once for all calls. Raises Refused for a symbol."""
    if isinstance(size, int):
        return int(size)
    raise Refused(f"{what} is {size}, and ONNX takes a number there")

"""Which operator a captured graph calls that eager does not, or the other way round: both are seen call by call."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import fx

from .. import _torch

CLOSE = 1e-6
"""How far apart sums may be that are called the same, relative to that of the magnitudes: kernels that add in another order."""
_NOT_THE_USERS = ("torch", "tracework")


@dataclasses.dataclass(frozen=True)
class Call:
    """operator: its name. facts: a Fact for each tensor in its result, and what else is in it. place: the user's line."""

    operator: str
    facts: tuple[Any, ...]
    place: str

    def same(self, other: Call) -> bool:
        """Whether the other is the same operator with the same result."""
        if self.operator != other.operator or len(self.facts) != len(other.facts):
            return False
        pairs = zip(self.facts, other.facts, strict=True)
        return all(a.alike(b) if isinstance(a, Fact) else a == b for a, b in pairs)


class Fact(NamedTuple):
    """Of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    total: float
    magnitude: float

    def alike(self, other: Any) -> bool:
        """Whether the other may be of the same numbers."""
        if not isinstance(other, Fact) or self[:2] != other[:2]:
            return False
        off = CLOSE * (abs(self.magnitude) if math.isfinite(self.magnitude) else 0.0)
        return all(a == b or abs(a - b) <= off or (a != a and b != b) for a, b in zip(self[2:], other[2:], strict=True))


class Calls:
    """The calls of operators of one run. place: where the program is, at a call."""

    def __init__(self) -> None:
        self.known: list[Call] = []

    @contextmanager
    def seen(self, place: Callable[[], str]) -> Iterator[None]:
        """All calls in this block are kept."""
        with _torch.seeing_operators(lambda operator, result: self.known.append(Call(str(operator), _facts(result), place()))):
            yield

    def backend(self, gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        """A backend that runs captured graphs as they are, and sees their calls."""

        def call(*inputs: Any) -> Any:
            walk = _Walk(gm)
            with self.seen(lambda: walk.place):
                return walk.run(*inputs)

        return call


class _Walk(fx.Interpreter):
    place = ""

    def run_node(self, n: fx.Node) -> Any:
        self.place = str(n.meta.get("stack") or "")
        return super().run_node(n)


def _facts(result: Any) -> tuple[Any, ...]:
    values = result if isinstance(result, (tuple, list)) else (result,)
    return tuple(_fact(v) for v in values)


def _fact(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value if isinstance(value, (bool, int, float, str, type(None))) else type(value).__name__
    if value.is_meta or value.layout is not torch.strided:
        return type(value).__name__
    wide = value.detach().abs().double() if value.is_complex() else value.detach().double()
    return Fact(tuple(value.shape), value.dtype, wide.sum().item(), wide.abs().sum().item())


def users_place() -> str:
    """The innermost line that runs which is neither torch's nor this package's."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0].partition("_")[0] in _NOT_THE_USERS:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}" if frame is not None else ""


def first_difference(captured: Sequence[Call], eager: Sequence[Call]) -> str:
    """The first call of the graphs that eager does not do in this order; else the first of eager's that is in no graph. Empty where neither is:
    what runs between graphs, eager alone does, and many of its calls may be in none."""
    position = 0
    for mine in captured:
        found = next((n for n in range(position, len(eager)) if mine.same(eager[n])), None)
        if found is None:
            where = f" where eager has {eager[position].operator} from {eager[position].place}" if position < len(eager) else ""
            return f"{mine.operator} from {mine.place or 'a line that is not known'}{where}"
        position = found + 1
    missing = next((e for e in eager[position:]), None)
    return f"nothing after which eager has {missing.operator} from {missing.place}" if missing is not None else ""


__all__ = ["Call", "Calls", "first_difference", "users_place"]

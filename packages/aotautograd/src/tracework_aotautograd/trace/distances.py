"""Which values of a recorded graph depend on the last two of their indices by the difference of these alone, as a relative position bias does.

What is asked of a value is its shift: by how much its elements grow where both indices grow by one; None where that is not known to be the same
everywhere. A value that has neither index has no shift, whatever it is computed from. Only int64 has another shift than 0: narrower integers wrap
around, and floats are rounded, to one side here and to the other there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from tracework_primops import FakeTensor

from .. import _torch

__all__ = ["is_of_distances"]

aten = torch.ops.aten
Dims = frozenset[int]
_SIGNS: dict[object, tuple[int, int]] = {aten.add.Tensor: (1, 1), aten.sub.Tensor: (1, -1)}
"""What the operands of a sum count; those of rsub the other way round."""


def is_of_distances(node: fx.Node) -> bool:
    """Whether a value of at least two dims is the same along each diagonal of the last two."""
    value = node.meta["val"]
    return _Shifts().of(node, frozenset((value.ndim - 2, value.ndim - 1))) == 0


class _Shifts:
    def __init__(self) -> None:
        self.known: dict[tuple[fx.Node, Dims], int | None] = {}

    def of(self, arg: Any, dims: Dims) -> int | None:
        """The shift of an argument along these dims."""
        if not isinstance(arg, fx.Node):
            return 0
        value = arg.meta["val"]
        if not isinstance(value, FakeTensor) or value.is_symbolic:
            return None
        dims = frozenset(d for d in dims if 0 <= d < value.ndim and value.shape[d] != 1)
        if not dims:
            return 0
        if arg.op != "call_function" or not isinstance(arg.target, _torch.OpOverload):
            return None
        if (arg, dims) not in self.known:
            self.known[arg, dims] = self._of_call(arg, dims)
        return self.known[arg, dims]

    def _of_call(self, node: fx.Node, dims: Dims) -> int | None:
        rule = RULES.get(node.target)
        if rule is not None:
            return rule(self, node, dims)
        if not node.all_input_nodes and node.target in EQUAL:
            return 0
        if torch.Tag.pointwise not in node.target.tags or _torch.draws(node.target):  # type: ignore[union-attr]
            return None
        return 0 if not any(s != 0 for s in self.operands(node, dims)) else None

    def operands(self, node: fx.Node, dims: Dims) -> list[int | None]:
        """The shifts of what a call broadcasts."""
        ndim = node.meta["val"].ndim

        def shift(arg: Any) -> int | None:
            if not isinstance(arg, fx.Node):
                return 0
            value = arg.meta["val"]
            more = ndim - value.ndim if isinstance(value, torch.Tensor) else 0
            return self.of(arg, frozenset(d - more for d in dims))

        return [shift(arg) for arg in node.args]


RULES: dict[Any, Callable[[_Shifts, fx.Node, Dims], int | None]] = {}
EQUAL = frozenset({aten.full.default, aten.ones.default, aten.zeros.default, aten.scalar_tensor.default})
"""Calls that make elements which are all the same."""


def _rule(*targets: Any) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        RULES.update(dict.fromkeys(targets, function))
        return function

    return register


def _is_exact(node: fx.Node) -> bool:
    """Whether sums of what a call gives are those of its numbers."""
    return node.meta["val"].dtype is torch.int64  # type: ignore[no-any-return]


@_rule(aten.arange.default, aten.arange.start, aten.arange.start_step)
def arange(shifts: _Shifts, node: fx.Node, dims: Dims) -> int | None:
    step = node.args[2] if len(node.args) > 2 else 1
    return step if isinstance(step, int) and _is_exact(node) else None


@_rule(aten.add.Tensor, aten.sub.Tensor, aten.rsub.Scalar)
def linear(shifts: _Shifts, node: fx.Node, dims: Dims) -> int | None:
    first, second = shifts.operands(node, dims)[:2]
    if first is None or second is None:
        return None
    if not first and not second:
        return 0
    if len(node.args) != 2 or node.kwargs or not _is_exact(node):
        return None
    signs = _SIGNS.get(node.target, (-1, 1))
    return signs[0] * first + signs[1] * second


@_rule(aten.neg.default)
def neg(shifts: _Shifts, node: fx.Node, dims: Dims) -> int | None:
    shift = shifts.of(node.args[0], dims)
    return None if shift is None else -shift


@_rule(*(getattr(aten, name).Tensor for name in ("eq", "ne", "lt", "le", "gt", "ge")))
def compared(shifts: _Shifts, node: fx.Node, dims: Dims) -> int | None:
    first, second = shifts.operands(node, dims)
    return 0 if first is not None and first == second else None


@_rule(aten.clone.default, aten.detach.default, aten.expand.default, aten._to_copy.default)
def same_places(shifts: _Shifts, node: fx.Node, dims: Dims) -> int | None:
    shift = shifts.operands(node, dims)[0]
    return shift if not shift or _is_exact(node) else None


@_rule(aten.full_like.default, aten.zeros_like.default, aten.ones_like.default)
def alike(shifts: _Shifts, node: fx.Node, dims: Dims) -> int | None:
    return 0


@_rule(aten.permute.default)
def permute(shifts: _Shifts, node: fx.Node, dims: Dims) -> int | None:
    arguments: tuple[Any, ...] = node.args
    source, order = arguments
    return shifts.of(source, frozenset(order[d] % len(order) for d in dims))


@_rule(aten.transpose.int)
def transpose(shifts: _Shifts, node: fx.Node, dims: Dims) -> int | None:
    ndim = node.meta["val"].ndim
    a, b = (d % ndim for d in node.args[1:])  # type: ignore[operator]
    return shifts.of(node.args[0], frozenset({a: b, b: a}.get(d, d) for d in dims))


@_rule(aten.unsqueeze.default)
def unsqueeze(shifts: _Shifts, node: fx.Node, dims: Dims) -> int | None:
    place = node.args[1] % node.meta["val"].ndim  # type: ignore[operator]
    return shifts.of(node.args[0], frozenset(d - (d > place) for d in dims if d != place))


@_rule(aten.view.default, aten._unsafe_view.default, aten.squeeze.dim, aten.squeeze.default)
def view(shifts: _Shifts, node: fx.Node, dims: Dims) -> int | None:
    """Where dims of size 1 come or go, or others than these are split or merged before them."""
    source, own, given = node.args[0], node.meta["val"].shape, node.args[0].meta["val"].shape  # type: ignore[union-attr]
    found = set()
    for dim in dims:
        behind = own[dim + 1 :].numel()
        places = [d for d, n in enumerate(given) if n == own[dim] and n != 1 and given[d + 1 :].numel() == behind]
        if not places:
            return None
        found.add(places[0])
    return shifts.of(source, frozenset(found))


@_rule(aten.embedding.default)
def embedding(shifts: _Shifts, node: fx.Node, dims: Dims) -> int | None:
    indices = node.args[1]
    if node.meta["val"].ndim - 1 in dims:
        return None
    return 0 if shifts.of(indices, dims) == 0 else None


@_rule(aten.index.Tensor)
def index(shifts: _Shifts, node: fx.Node, dims: Dims) -> int | None:
    arguments: tuple[Any, ...] = node.args
    indices = arguments[1]
    given = [n for n, x in enumerate(indices) if x is not None]
    if given != list(range(given[0], given[-1] + 1)):
        return None
    parts = [indices[n] for n in given]
    if any(x.meta["val"].dtype is torch.bool for x in parts):
        return None
    ndim = max(x.meta["val"].ndim for x in parts)
    inside = frozenset(d - given[0] for d in dims)
    if not all(0 <= d < ndim for d in inside):
        return None
    moved = [shifts.of(x, frozenset(d - (ndim - x.meta["val"].ndim) for d in inside)) for x in parts]
    return 0 if all(shift == 0 for shift in moved) else None

"""Convolutions of CPU inference get weights in the library's own layout, with the normalisation after them folded in.

The library lays weights out anew at each call, which costs as much as a small convolution. Here what is made of static inputs alone
(weights, and the scale and shift of a batch norm in evaluation) becomes a function of these inputs, `make`, which the runtime calls
again only when the bytes of an input have changed (runtime/packed.py). Nothing is assumed to be constant.

What follows the convolution is computed inside the library's kernel where that gives eager's values: a residual sum, and the
activations of ACTIVATIONS. relu and clamps are not among them: the library's lose NaNs.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tracework_primops import Kind, Op, PrimGraph, Tag

from .. import _torch
from ..ir.buffer import FOLDED
from ..lowering.layout import ImageLayouts
from .static_values import MAX_TEXT, Derivation, erase_with_operands, static_inputs

PACKED = Op(
    "packed_convolution",
    "packed_convolution(x, other, sources, make, activation, label, *settings)",
    (),
    1,
    Kind.LIBRARY,
    frozenset({Tag.COMPUTE}),
    "the convolution of x with what make(*sources) gives, plus other, and an activation",
    "conv",
)
"""Made by this pass alone, and lowered by lowering/conv.py; never called."""


def pack_convolutions(graph: PrimGraph) -> PrimGraph:
    """The graph with packed convolutions; the same object where there are none."""
    images = ImageLayouts(graph.graph, graph.role)
    if not images.active or not _torch.has_packed_convolutions():
        return graph
    static = static_inputs(graph)
    names = {n.name for n in graph.calls if n.target is not PACKED and images.gains(n) and n.meta["spec"].dtype == torch.float32}
    copy = graph.copy()
    for node in [n for n in copy.calls if n.name in names]:
        _rewrite(copy.graph, node, static)
    return copy


@dataclasses.dataclass
class Folded:
    """A convolution and what is folded into it so far: values are text over the sources."""

    end: Any
    scale: str | None
    shift: str | None


def _rewrite(graph: Any, node: Any, static: set[str]) -> None:
    x, weight, bias, *settings = node.args
    derived = Derivation(static)
    made = derived.text(weight)
    shift = derived.text(bias) if bias is not None else None
    if made is None or (bias is not None and shift is None):
        return
    folded = _fold(node, derived, Folded(node, None, shift))
    make = f"({made}, {folded.scale}, {folded.shift})"
    if len(make) > MAX_TEXT:
        return
    other, end = _residual(folded.end)
    activation, end = _activation(end) if other is None else ("none", end)
    with graph.inserting_before(end):
        args = (x, other, tuple(derived.sources), make, activation, node.name, *settings)
        new = graph.call_function(PACKED, args)
    new.meta.update(end.meta)
    new.meta[FOLDED] = tuple(str(each.meta["origin"]) for each in (node, folded.end) if each.meta.get("origin"))
    end.replace_all_uses_with(new)
    erase_with_operands(end)


def _fold(node: Any, derived: Derivation, folded: Folded) -> Folded:
    """Follows per-channel sums and products."""
    channels = node.meta["spec"].sizes[1]
    while len(folded.end.users) == 1:
        user = next(iter(folded.end.users))
        rule = AFFINE.get(getattr(user.target, "name", None) or "")
        if rule is None or not isinstance(user.target, Op) or not _alike(user, node):
            break
        first, second = user.args[:2]
        other = second if first is folded.end else first
        if other is folded.end or (other is first and user.target.name == "sub"):
            break
        operand = _per_channel(other, channels, derived)
        if operand is None:
            break
        folded = rule(dataclasses.replace(folded, end=user), operand)
    return folded


def _sum(sign: str) -> Callable[[Folded, str], Folded]:
    def fold(f: Folded, operand: str) -> Folded:
        shift = f"{f.shift} {sign} {operand}" if f.shift is not None else f"{sign}{operand}"
        return dataclasses.replace(f, shift=f"({shift})")

    return fold


def _product(f: Folded, operand: str) -> Folded:
    scale = operand if f.scale is None else f"({f.scale} * {operand})"
    return dataclasses.replace(f, scale=scale, shift=None if f.shift is None else f"({f.shift} * {operand})")


AFFINE: Mapping[str, Callable[[Folded, str], Folded]] = {"add": _sum("+"), "sub": _sum("-"), "mul": _product}


def _per_channel(value: Any, channels: Any, derived: Derivation) -> str | None:
    """The text of a vector with one element per channel, or with one for all."""
    spec = value.meta.get("spec") if hasattr(value, "users") else None
    sizes = getattr(spec, "sizes", None)
    if spec is None or sizes is None or spec.dtype != torch.float32:
        return None
    if tuple(sizes) not in ((1, channels, 1, 1), (channels, 1, 1)):
        return None
    text = derived.text(value)
    return f"{text}.reshape(-1)" if text is not None else None


def _alike(a: Any, b: Any) -> bool:
    a, b = a.meta["spec"], b.meta["spec"]
    return a.sizes == b.sizes and a.dtype == b.dtype


def _residual(end: Any) -> tuple[Any, Any]:
    """(what is added to the result, the sum), or (None, end)."""
    if len(end.users) == 1:
        user = next(iter(end.users))
        if _is(user, "add") and all(hasattr(a, "users") for a in user.args[:2]):
            others = [a for a in user.args[:2] if a is not end]
            if len(others) == 1 and _alike(others[0], end) and _alike(user, end):
                return others[0], user
    return None, end


def _activation(end: Any) -> tuple[str, Any]:
    """(name for the library, last node) of the activation that follows, or ("none", end)."""
    for name, match in ACTIVATIONS.items():
        found = match(end)
        if found is not None and _alike(found, end):
            return name, found
    return "none", end


def _is(node: Any, name: str, *operands: Any) -> bool:
    """Whether this is the prim `name`, with these operands in some order."""
    if not isinstance(node.target, Op) or node.target.name != name:
        return False
    return not operands or tuple(node.args[:2]) in (operands, operands[::-1])


def _user(node: Any, name: str, *operands: Any) -> Any:
    """The user of that kind, if the node has one."""
    return next((u for u in node.users if _is(u, name, *operands)), None)


def _hardswish(y: Any) -> Any:
    """y * min(max(y + 3, 0), 6) / 6."""
    node, steps = _user(y, "add", y, 3), [("maximum", 0), ("minimum", 6)]
    for name, number in steps:
        node = _only(node, name, node, number)
    product = _only(node, "mul", y, node)
    if product is None or len(y.users) != 2:
        return None
    found = _only(product, "div", product, 6)
    return found if found is not None and found.args[0] is product else None


def _swish(y: Any) -> Any:
    """y * sigmoid(y)."""
    gate = _user(y, "sigmoid")
    return _only(gate, "mul", y, gate) if len(y.users) == 2 else None


def _only(node: Any, name: str, *operands: Any) -> Any:
    """The only user of a node, if it is of that kind."""
    return _user(node, name, *operands) if node is not None and len(node.users) == 1 else None


ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {"hardswish": _hardswish, "swish": _swish}
"""Name of the library's activation -> the last node of its pattern, from the node that it is applied to."""


__all__ = ["ACTIVATIONS", "AFFINE", "PACKED", "pack_convolutions"]

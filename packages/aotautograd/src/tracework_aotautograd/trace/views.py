"""Views: what each view op is called, and how a write through the view becomes a new value of what it views.

A rule of WRITE_THROUGH takes (emit, parent node, new view node, step) and returns the node of the parent's new value. `emit(op, *args)` adds
an op to the graph. What is viewed through an op without a row is written with as_strided_scatter, from the strides of the fakes.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from ..errors import FunctionalizationError
from ..signature import ViewStep

aten = torch.ops.aten
Emit = Callable[..., Node]
Rule = Callable[[Emit, Node, Node, ViewStep], Node]

# Views of everything, unchanged: no node is made for them.
IDENTITY_VIEWS = frozenset({aten.detach.default, aten.alias.default, aten.lift_fresh.default})

# Views that only set a bit which most kernels resolve and some refuse: in the graph they compute the value.
PHYSICAL: dict[Any, Any] = {aten._conj.default: aten._conj_physical.default, aten._neg_view.default: aten.neg.default}

WRITE_THROUGH: dict[Any, Rule] = {}


def _sizes(node: Node) -> list[Any]:
    return list(node.meta["val"].shape)


def _rule(*targets: Any) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        WRITE_THROUGH.update(dict.fromkeys(targets, function))
        return function

    return register


def _argument(step: ViewStep, position: int, name: str, default: Any) -> Any:
    if position < len(step.args):
        return step.args[position]
    return dict(step.kwargs).get(name, default)


@_rule(aten.detach.default, aten.alias.default, aten.lift_fresh.default)
def identity(emit: Emit, parent: Node, new: Node, step: ViewStep) -> Node:
    """The view is the whole."""
    return new


@_rule(
    aten.view.default,
    aten._unsafe_view.default,
    aten._reshape_alias.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
)
def reshaped(emit: Emit, parent: Node, new: Node, step: ViewStep) -> Node:
    """Same elements in another shape."""
    from_spec = new.meta["val"]
    if not from_spec.is_contiguous():
        new = emit(aten.clone.default, new, memory_format=torch.contiguous_format)
    return emit(aten.view.default, new, _sizes(parent))


@_rule(aten.permute.default)
def permute(emit: Emit, parent: Node, new: Node, step: ViewStep) -> Node:
    """Apply the inverse permutation."""
    dims = [d % len(step.args[0]) for d in step.args[0]]
    return emit(aten.permute.default, new, [dims.index(i) for i in range(len(dims))])


@_rule(aten.t.default, aten.transpose.int)
def swap(emit: Emit, parent: Node, new: Node, step: ViewStep) -> Node:
    """A swap is its own inverse."""
    return emit(step.target, new, *step.args)


@_rule(aten.expand.default)
def expand(emit: Emit, parent: Node, new: Node, step: ViewStep) -> Node:
    """Only an expand that repeats nothing can be written through."""
    if new.meta["val"].numel() != parent.meta["val"].numel():
        raise FunctionalizationError(
            "a write to part of an expand, which shows each element several times, has no mutation-free form"
        )
    return emit(aten.view.default, emit(aten.clone.default, new, memory_format=torch.contiguous_format), _sizes(parent))


@_rule(aten.slice.Tensor)
def slice_(emit: Emit, parent: Node, new: Node, step: ViewStep) -> Node:
    """Put the slice back."""
    defaults = (("dim", 0), ("start", None), ("end", None), ("step", 1))
    place = [_argument(step, i, name, default) for i, (name, default) in enumerate(defaults)]
    return emit(aten.slice_scatter.default, parent, new, *place)


@_rule(aten.select.int)
def select(emit: Emit, parent: Node, new: Node, step: ViewStep) -> Node:
    """Put the selected row back."""
    return emit(aten.select_scatter.default, parent, new, *step.args)


@_rule(aten._conj.default, aten._neg_view.default)
def negated(emit: Emit, parent: Node, new: Node, step: ViewStep) -> Node:
    """Conjugating and negating undo themselves."""
    return emit(PHYSICAL[step.target], new)


@_rule(aten.diagonal.default)
def diagonal(emit: Emit, parent: Node, new: Node, step: ViewStep) -> Node:
    """Put the diagonal back."""
    defaults = (("offset", 0), ("dim1", 0), ("dim2", 1))
    place = [_argument(step, i, name, default) for i, (name, default) in enumerate(defaults)]
    return emit(aten.diagonal_scatter.default, parent, new, *place)


@_rule(aten.unbind.int)
def unbind(emit: Emit, parent: Node, new: Node, step: ViewStep) -> Node:
    """Put row `index` back."""
    return emit(aten.select_scatter.default, parent, new, _argument(step, 0, "dim", 0), step.index)


@_rule(aten.split.Tensor)
def split(emit: Emit, parent: Node, new: Node, step: ViewStep) -> Node:
    """Put piece `index` back."""
    dim = _argument(step, 1, "dim", 0)
    start = step.args[0] * (step.index or 0)
    return emit(aten.slice_scatter.default, parent, new, dim, start, start + _sizes(new)[dim])


@_rule(aten.split_with_sizes.default)
def split_with_sizes(emit: Emit, parent: Node, new: Node, step: ViewStep) -> Node:
    """Put piece `index` back."""
    dim = _argument(step, 1, "dim", 0)
    start = sum(step.args[0][: step.index])
    return emit(aten.slice_scatter.default, parent, new, dim, start, start + _sizes(new)[dim])


@_rule(aten.view.dtype)
def bitcast(emit: Emit, parent: Node, new: Node, step: ViewStep) -> Node:
    """Read the bits as the parent's dtype again."""
    return emit(aten.view.dtype, new, parent.meta["val"].dtype)


@_rule(aten.view_as_real.default)
def view_as_real(emit: Emit, parent: Node, new: Node, step: ViewStep) -> Node:
    """Pairs back to complex numbers."""
    return emit(aten.view_as_complex.default, new)


@_rule(aten.view_as_complex.default)
def view_as_complex(emit: Emit, parent: Node, new: Node, step: ViewStep) -> Node:
    """Complex numbers back to pairs."""
    return emit(aten.view_as_real.default, new)


def by_strides(emit: Emit, whole: Node, new: Node, view: torch.Tensor) -> Node:
    """The last resort: scatter by the strides of the view into the memory behind it, which begins where `whole` does."""
    return emit(aten.as_strided_scatter.default, whole, new, list(view.shape), list(view.stride()), view.storage_offset())

"""Indices of tensors that are not known while tracing.

Symbolic ints: torch asks an index for its number, so these dims are selected one by one, which keeps them open.

Masks that say the same: `x[y > 0]` and `z[y > 0]` compute the mask twice, and have sizes that are equal because the masks are. The second
one is taken for the first, whose number of True ones the graph has a symbol for.

Ints out of the data of a tensor, `x[i]` and `x[i:]` of an `i` without dims, of which torch asks the number: the graph gathers the one row in
place of the view of it that plain Python has, which nobody can tell while neither is written to, and not both leave the graph
(graph/replaced.py); so it does with the rows between such places, where sizes may depend on data. What is stored at such a place is put
there by an index of one place.
"""

from __future__ import annotations

import operator
from typing import Any, cast

import torch
from torch import fx

from ...graph.constant_data import known_tensor
from ...graph.replaced import may_be_replaced, note_replaced, settle_replaced
from ..number.deferred import place_here
from ..number.symint import SymNumber, size_value
from ..plain.ranges import SliceValue
from ..plain.sequence import NONE, TupleValue
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractTensor, is_plain_tensor
from ..protocol.value import Frame, Value, is_none
from .dtypes import as_kind


def select_symbolic(frame: Frame, tensor: Any, key: Value) -> tuple[Any, Value | None]:
    """What `key` indexes once the symbolic ints in it are applied, and the rest of the key, None where nothing is left."""
    items = key.all_items(frame) if type(key) is TupleValue else [key]
    places = [place for place, item in enumerate(items) if isinstance(item, SymNumber)]
    dims = dims_of_items(items, tensor.example.ndim) if places else None
    if dims is None:
        return tensor, key
    for place in reversed(places):
        tensor = frame.graph.call_method(frame, "select", (tensor, ConstantValue(dims[place]), items[place]))
    rest = [item for item in items if not isinstance(item, SymNumber)]
    return tensor, TupleValue(rest) if rest else None


def dims_of_items(items: list[Value], ndim: int) -> list[int] | None:
    """The dim that each item of an index begins at; None for an index that torch refuses."""
    taken = [dims_taken(item) for item in items]
    left = ndim - sum(n for n in taken if n is not None)
    if left < 0 or taken.count(None) > 1:
        return None
    widths = [left if n is None else n for n in taken]
    return [sum(widths[:place]) for place in range(len(items))]


def dims_taken(item: Value) -> int | None:
    """How many dims of the tensor an item of an index stands for; None for `...`."""
    if isinstance(item, AbstractTensor):
        return item.example.ndim if item.example.dtype in (torch.bool, torch.uint8) else 1
    if item.is_constant() and (item.constant() is None or type(item.constant()) is bool):
        return 0
    return None if item.is_constant() and item.constant() is Ellipsis else 1


# --- masks --------------------------------------------------------------------------------------------------------------------

NAMES = "lt le gt ge eq ne logical_not logical_and logical_or logical_xor isnan isinf isfinite".split()
COMPARISONS = {
    **{getattr(torch, name): name for name in NAMES},
    **{getattr(operator, name): name for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    **{getattr(operator, name): name for name in ("and_", "or_", "xor", "invert")},
    **{name: name for name in NAMES},
}
"""Function, or method, of tensors whose results follow from the elements of its arguments -> its name."""
CONSTANTS = (bool, int, float, type(None))


def first_such(frame: Frame, mask: AbstractTensor) -> AbstractTensor:
    """The mask that the program used first among those that say the same; the mask itself where it is the first."""
    if frame.modes.transforms or frame.recording.selecting or mask.example.dtype is not torch.bool or mask.example.requires_grad:
        return mask
    found = meaning(mask.node)
    if found is None or found is mask.node:
        return mask
    first = frame.queries.masks.setdefault(found, mask)
    return first if first.node is not None and is_unwritten(first.node) else mask


def meaning(node: fx.Node) -> Any:
    """What the mask is computed from, equal for equal ones; a node that is no question about tensors stands for itself. None where one of
    the tensors was written to."""
    if not is_unwritten(node):
        return None
    name = COMPARISONS.get(node.target) if node.op in ("call_function", "call_method") and not node.kwargs else None
    if name is None:
        return node
    parts = [meaning(arg) if isinstance(arg, fx.Node) else (type(arg), repr(arg)) for arg in node.args]
    known = all(isinstance(arg, (fx.Node, *CONSTANTS)) for arg in node.args)
    return (name, *parts) if known and None not in parts else None


def is_unwritten(node: fx.Node) -> bool:
    """Whether the node is a tensor that nothing was written to since the graph began."""
    example: Any = node.meta.get("example_value")
    return isinstance(example, torch.Tensor) and cast(Any, example).storage.version == 0 and not node.meta.get("moved")


# --- ints out of data ---------------------------------------------------------------------------------------------------------

SIGNED = (torch.int64, torch.int32, torch.int16, torch.int8)
ALL = SliceValue(NONE, NONE, NONE)


def is_place(frame: Frame, item: Value) -> bool:
    """Whether an item of an index is an int that only the data knows."""
    if not is_plain_tensor(item) or item.example.ndim or item.example.dtype not in SIGNED:
        return False
    return known_tensor(item.node) is None


def may_select(frame: Frame, tensor: AbstractTensor, where: tuple[str, int, str, int]) -> bool:
    """Whether rows of the tensor may be chosen by data here."""
    modes = frame.modes
    watched = modes.transforms or modes.function_modes or modes.subclass_functions_off or frame.recording.selecting
    return not watched and where not in frame.plan.learnt.not_selected and is_plain_tensor(tensor)


def places_of(
    frame: Frame, tensor: AbstractTensor, items: list[Any]
) -> tuple[list[int], list[int], tuple[str, int, str, int]] | None:
    """Where in the index of a tensor such ints are, and the dim that each item begins at; None where the graph is to break."""
    places = [at for at, item in enumerate(items) if is_place(frame, item)]
    where = place_here(frame)
    if not places or not may_select(frame, tensor, where):
        return None
    if any(t.example.device.type != "cpu" for t in (tensor, *(items[at] for at in places))):  # others do not raise IndexError
        return None
    dims = dims_of_items(items, tensor.example.ndim)
    return None if dims is None else (places, dims, where)


def one_place(frame: Frame, item: Any) -> Value:
    """The index as a tensor of one int."""
    return frame.graph.call_method(frame, "unsqueeze", (as_kind(frame, item, torch.int64), ConstantValue(0)))


def select_by_data(frame: Frame, tensor: AbstractTensor, key: Value) -> tuple[Value | None, ...]:
    """What `key` indexes once the ints of data in it are applied, and the rest of the key, None where nothing is left."""
    items = key.all_items(frame) if type(key) is TupleValue else [key]
    found = places_of(frame, tensor, items)
    if found is None or not may_be_replaced(tensor, with_history=True):
        return tensor, key
    places, dims, where = found
    taken = [at for at, item in enumerate(items) if at in places or is_int_inside(item, tensor, dims[at])]
    row: Any = tensor
    for at in reversed(taken):
        dim, place = ConstantValue(dims[at]), items[at]
        if at in places:
            index = TupleValue([*[ALL] * dims[at], one_place(frame, place)])
            row, place = frame.graph.call(frame, operator.getitem, (row, index)), ConstantValue(0)
        row = frame.graph.call_method(frame, "select", (row, dim, place))
    left = [stride for dim, stride in enumerate(tensor.example.stride()) if dim not in {dims[at] for at in taken}]
    if list(map(str, row.example.stride())) != list(map(str, left)):
        frame.break_graph("dynamic_output_shape", "a view at a place that data says, which lies in memory otherwise than a copy")
    note_replaced(frame, where, tensor, tensor, row)
    row.stored_back = len(taken) == len(items) and is_of_augmented_assignment(frame)
    rest = [item for at, item in enumerate(items) if at not in taken]
    return row, TupleValue(rest) if rest else None


def slice_by_data(frame: Frame, tensor: AbstractTensor, key: Value) -> tuple[Any, Value | None]:
    """What `key` slices once its bounds that only the data knows are applied, and the rest of the key, where the others are."""
    items = key.all_items(frame) if type(key) is TupleValue else [key]
    places = [at for at, item in enumerate(items) if is_symbolic_slice(frame, item)]
    where = place_here(frame)
    if not places or not may_select(frame, tensor, where) or not frame.fake_mode.allow_unbacked:
        return tensor, key
    dims = dims_of_items(items, tensor.example.ndim)
    if dims is None or not may_be_replaced(tensor, with_history=True):
        return tensor, key
    rows = tensor
    for at in places:
        rows = rows_between(frame, rows, dims[at], *cast(SliceValue, items[at]).parts[:2])
    if list(map(str, rows.example.stride())) != list(map(str, tensor.example.stride())):
        frame.break_graph("dynamic_output_shape", "a slice that data says, which lies in memory otherwise than a copy")
    note_replaced(frame, where, tensor, tensor, rows)
    return rows, TupleValue([ALL if at in places else item for at, item in enumerate(items)])


def rows_between(frame: Frame, tensor: AbstractTensor, dim: int, start: Value, stop: Value) -> AbstractTensor:
    """A copy of the slice of a tensor from `start` to `stop` along a dim."""
    call, length = frame.graph.call, size_value(frame, tensor.example.shape[dim])
    device = {"device": ConstantValue(tensor.example.device)}
    at = call(frame, torch.arange, (length,), device)
    chosen = None
    for bound, compare in ((start, torch.ge), (stop, torch.lt)):
        if is_none(bound):
            continue
        if isinstance(bound, SymNumber) or not isinstance(bound, AbstractTensor):
            bound = call(frame, torch.full, (TupleValue([]), bound), {"dtype": ConstantValue(torch.int64), **device})
        bound = call(frame, torch.where, (call(frame, torch.lt, (bound, 0)), call(frame, torch.add, (bound, length)), bound))
        found = call(frame, compare, (at, bound))
        chosen = found if chosen is None else call(frame, torch.logical_and, (chosen, found))
    index = frame.graph.call_method(frame, "squeeze", (call(frame, torch.nonzero, (chosen,)), 1))
    return cast(AbstractTensor, call(frame, torch.index_select, (tensor, dim, index)))


def is_symbolic_slice(frame: Frame, item: Value) -> bool:
    """Whether it is a slice without a step, one of whose bounds only the data knows."""
    if not isinstance(item, SliceValue) or not is_none(item.parts[2]):
        return False
    known = [is_none(part) or is_int(part) or isinstance(part, SymNumber) for part in item.parts[:2]]
    open_ = [is_place(frame, part) or is_out_of_data(frame, part) for part in item.parts[:2]]
    return any(open_) and all(a or b for a, b in zip(known, open_))


def is_out_of_data(frame: Frame, value: Value) -> bool:
    """Whether it is an int without a value, read from a tensor."""
    return isinstance(value, SymNumber) and not all(map(frame.symbols.has_hint, value.expr.free_symbols))


def is_of_augmented_assignment(frame: Frame) -> bool:
    """Whether an item is read by `x[i] += y`, which nobody else gets, and which stores it back."""
    before = frame.instructions[max(frame.current.index - 2, 0) : frame.current.index]
    return [i.opname for i in before] == ["COPY", "COPY"]


def is_int_inside(item: Value, tensor: AbstractTensor, dim: int) -> bool:
    """Whether it is a constant that is surely a place in this dim."""
    size = tensor.example.shape[dim] if is_int(item) else None
    return type(size) is int and -size <= item.constant() < size


def store_by_data(frame: Frame, tensor: AbstractTensor, key: Value, value: Any) -> bool:
    """Whether tensor[key] = value was done, at places that are ints of data."""
    items = key.all_items(frame) if type(key) is TupleValue else [key]
    found = places_of(frame, tensor, items)
    if found is None or not isinstance(value, AbstractTensor) and not value.is_constant():
        return False
    places, dims, _ = found
    if isinstance(value, AbstractTensor) and value.stored_back:
        settle_replaced(frame, value)
    others = [item for at, item in enumerate(items) if at not in places]
    if places[-1] - places[0] >= len(places) or not all(is_basic(item) for item in others):
        return False
    if isinstance(value, AbstractTensor):
        if value.example.is_complex() and not tensor.example.is_complex():
            return False
        value = frame.graph.call_method(frame, "clone", (as_kind(frame, value, tensor.example.dtype),))  # may be a part of it
        after = tensor.example.ndim - dims[places[-1]] - 1  # dims that the place has behind it, as the value has them
        after += sum(is_none(item) for item in items[places[-1] + 1 :])
        after -= sum(is_int(item) for item in items[places[-1] + 1 :])
        if value.example.ndim >= after:
            value = frame.graph.call_method(frame, "unsqueeze", (value, ConstantValue(value.example.ndim - after)))
    index = TupleValue([one_place(frame, item) if at in places else item for at, item in enumerate(items)])
    frame.graph.call(frame, operator.setitem, (tensor, index, value))
    return True


def is_int(item: Value) -> bool:
    return item.is_constant() and type(item.constant()) is int


def is_basic(item: Value) -> bool:
    """Whether an item of an index gives a view."""
    return isinstance(item, SliceValue) or is_none(item) or is_int(item) or item.is_constant() and item.constant() is Ellipsis

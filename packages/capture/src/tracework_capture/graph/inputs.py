"""Existing tensors as graph inputs: their guards, which of their sizes become symbols, and nodes that compute with sizes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import fx
from tracework_primops import Condition
from tracework_primops.fake.convert import scaled_strides

from ..dims import SMALLEST, DimMarks, DimRange, marks_of
from ..errors import ControlMisuse, DynamicDimError
from ..formulas import INT_BITS
from ..guards.guard import TensorFacts
from ..options import CaptureOptions
from ..plan import Again, Learnt
from ..shapes import DeclaredShapes, path_of
from ..sources import ArrayTensor, Const, DictItem, Item, Local, Source, TensorSize, TensorStride

if TYPE_CHECKING:
    from ..hook.history import History
    from ..values.protocol.value import Frame


@dataclass(eq=False)
class Inputs:
    """What is open of the graph's inputs, and what was seen of them for later captures.

    shapes: what the compile call declares. surely_changing: the source of what a call that broke the graph gave."""

    options: CaptureOptions
    history: History
    shapes: DeclaredShapes | None
    surely_changing: Source | None
    numbers: dict[Source, Any] = field(default_factory=dict)
    """Source of a number -> its symbol."""
    shapes_seen: dict[str, tuple[int, ...]] = field(default_factory=dict)
    gaps_seen: dict[str, dict[int, int]] = field(default_factory=dict)
    """Strides that are no products of sizes."""
    strict_dims: list[tuple[Any, Any, int | None, str]] = field(default_factory=list)
    """Symbols that must stay open: symbol, source, dim, how that was said."""
    guesses: dict[str, frozenset[int]] = field(default_factory=dict)
    guessed_dims: dict[Any, tuple[Any, int]] = field(default_factory=dict)
    """Symbol -> the source and dim that were opened on a guess."""
    groups: dict[str, Any] = field(default_factory=dict)
    """Name of a group of equal sizes -> its first symbol."""
    marks: dict[Source, DimMarks] = field(default_factory=dict)
    """Those of parts of tensors, which the whole has."""
    specialised: dict[fx.Node, set[str]] = field(default_factory=dict)
    """Inputs whose data was taken as it is -> where to note a write (graph.specialised)."""

    def changes(self, source: Any, value: Any) -> bool:
        """Whether the number (or the text) at `source` had another value before, or will have: what item() gave, say. Remembers it."""
        changed = self.history.number_changed(str(source), value)
        return changed or source == self.surely_changing or (self.options.dynamic is True and is_number_argument(source, value))


def is_number_argument(source: Any, value: Any) -> bool:
    """Whether it is a number among the arguments of the captured frame; 0 and 1 are seldom amounts."""
    while isinstance(source, (Item, DictItem)):
        source = source.base
    return type(source) is Local and (type(value) is float or (type(value) is int and value not in (0, 1)))


LAYOUT, STATED = "layout of an input", "torch._check"  # origins of conditions that are no decisions of the program


def lift_tensor(frame: Frame, tensor: torch.Tensor, source: Source, role: str) -> fx.Node:
    """The placeholder of an existing tensor, with its guard; made once per tensor."""
    node: fx.Node | None = frame.graph.placeholder_of(tensor)
    if node is not None:
        known = node.meta["binding"].source
        if known != source:  # a part of a tensor of a wrapper subclass, of another one or passed by itself, too
            frame.guard("IDENTITY" if type(known) is Const else "SAME", source, tensor if type(known) is Const else known)
        return node
    if tensor.requires_grad and tensor._is_view():
        try:
            _ = tensor.grad_fn
        except RuntimeError as error:  # one of several views of memory that was written to since
            frame.break_graph("fake_failed", f"{source}: {error}")
    if marks_of(tensor).static_address == "guarded":
        frame.guard("DATA_PTR", source, tensor.data_ptr())
    sizes, strides = open_layout(frame, tensor, source, role)
    return frame.graph.tensor_input(tensor, source, role, sizes=sizes, strides=strides)


def open_layout(frame: Frame, tensor: torch.Tensor, source: Source, role: str) -> tuple[Any, Any]:
    """Guards what is fixed of an existing tensor; its sizes and strides with symbols, or None for both where all are fixed."""
    dims = dynamic_dims(frame, tensor, source, role)
    gaps = changed_gaps(frame, tensor, source, role)
    facts = TensorFacts.of(tensor, dynamic=dims)
    if not dims and not gaps:
        frame.guard("TENSOR", source, facts)
        return None, None
    sizes = [size_symbol(frame, tensor, source, d) if d in dims else n for d, n in enumerate(tensor.shape)]
    symbols = {d: frame.graph.size_input(TensorStride(source, d), tensor.stride(d), SMALLEST, None) for d in sorted(gaps)}
    strides = scaled_strides(tuple(tensor.shape), tensor.stride(), sizes, symbols.get)
    for size in sizes:
        frame.graph.size_node(size)
    frame.guard("TENSOR", source, replace(facts, strides=fixed_strides(frame, tensor, source, sizes, strides, symbols)))
    return sizes, strides


def fixed_strides(
    frame: Frame, tensor: torch.Tensor, source: Source, sizes: Any, strides: Any, symbols: dict[int, Any]
) -> tuple[int | None, ...]:
    """Strides that do not depend on sizes; of the others the relation to the sizes, and to the strides that are symbols, becomes a condition."""
    known: list[int | None] = []
    for dim, (size, stride) in enumerate(zip(sizes, strides)):
        known.append(stride if isinstance(stride, int) else None)
        if known[dim] is None and size != 1 and dim not in symbols:
            actual = frame.symbols.new(tensor.stride(dim), TensorStride(source, dim), 0, None)
            frame.symbols.assume(Condition.compare("==", actual, stride), LAYOUT)
    return tuple(known)


def changed_gaps(frame: Frame, tensor: torch.Tensor, source: Source, role: str) -> frozenset[int]:
    """Dims whose stride is no product of sizes and was another one before, as that of a part of memory that grows: they become symbols."""
    if frame.options.dynamic is False or not frame.options.allows_symbolic_sizes or tensor.layout is not torch.strided:
        return frozenset()
    if frame.plan.learnt.fixed_sizes:
        return frozenset()
    if role in ("parameter", "buffer") or type(tensor) is not torch.Tensor:
        return frozenset()
    found: list[int] = []
    scaled_strides(tuple(tensor.shape), tensor.stride(), tuple(tensor.shape), found.append)
    gaps = {dim: tensor.stride(dim) for dim in found if tensor.shape[dim] > 1 and tensor.stride(dim) > 1}
    if gaps:
        frame.inputs.gaps_seen[str(source)] = gaps
    before = frame.history.gaps.get(str(source), {})
    changed = frozenset(dim for dim, stride in gaps.items() if before.get(dim, stride) != stride)
    return changed - marks_at(frame, tensor, source).static if changed else changed


LEADING = 2  # batch and length, which change independently: when one of them did, both open


def guessed_dims(learnt: Learnt, tensor: torch.Tensor, key: Any, changed: frozenset[int]) -> frozenset[int]:
    """Leading dims of tokens, masks, signals and sequences of features that may change as another leading one did, and the batch of
    signals, images and videos whose sizes behind it did.

    The length of a sequence is its last dim where the program fixes the one before: there are the channels.
    """
    features = tensor.is_floating_point() or tensor.is_complex()
    free = [d for d in range(tensor.dim()) if (key, d) not in learnt.fixed_dims]
    leading = free[:LEADING]
    if tensor.dim() in ((LEADING, LEADING + 1) if features else (LEADING,)) and not changed.isdisjoint(leading):
        return frozenset(leading) - changed
    return frozenset(free[:1]) & {0} - changed if features and changed and tensor.dim() > LEADING else frozenset()


def check_guesses(frame: Frame) -> None:
    """Raises Again when the program fixes a size that was opened on a guess (it meets a weight): it stays a number."""
    ranges = ((frame.symbols.ranges[symbol], place) for symbol, place in frame.inputs.guessed_dims.items())
    fixed = frozenset(place for (low, high), place in ranges if low is not None and low == high)
    if fixed:
        raise Again("guess_fixed", Learnt(fixed_dims=fixed))


def dynamic_dims(frame: Frame, tensor: torch.Tensor, source: Source, role: str) -> frozenset[int]:
    """Which dims of an input become symbols: those that are marked, and those that changed, or all, unless they are static."""
    marks, shape, key = marks_at(frame, tensor, source), tuple(tensor.shape), str(source)
    if not frame.options.allows_symbolic_sizes or tensor.layout is not torch.strided:
        return frozenset()
    if frame.plan.learnt.fixed_sizes and not marks.strict:
        frame.inputs.shapes_seen[key] = shape
        return frozenset()
    if role in ("parameter", "buffer") or type(tensor) is not torch.Tensor:
        if marks.strict:
            kind = role if role in ("parameter", "buffer") else type(tensor).__name__
            refuse_dim(
                source,
                min(marks.strict),
                marks.how(min(marks.strict)),
                f"it is a {kind}, whose sizes are always fixed",
                "pass a plain tensor as an argument",
            )
        return frozenset()
    history: History = frame.history
    chosen = frame.options.chosen_dims(key, shape)
    changed = frozenset(range(len(shape))) if frame.options.dynamic else frozenset()
    if frame.options.dynamic is None:
        changed = history.changed_dims(key, shape)
        frame.inputs.guesses[key] = guessed_dims(frame.plan.learnt, tensor, key, changed)
        changed |= frame.inputs.guesses[key]
    frame.inputs.shapes_seen[key] = shape
    wanted = ((changed | marks.maybe | chosen) - marks.static - frame.options.fixed_dims(key, shape)) | marks.strict
    return frozenset(d for d in wanted if shape[d] >= SMALLEST)


def marks_at(frame: Frame, tensor: torch.Tensor, source: Source) -> DimMarks:
    """The marks of a tensor, and what the compile call declared of its shape. Raises ControlMisuse for another shape."""
    marks = frame.inputs.marks.get(source) or marks_of(tensor)
    if frame.options.unbacked_sources:
        marks = replace(marks, unbacked=marks.unbacked | frame.options.unbacked_dims(str(source), tuple(tensor.shape)))
    if frame.inputs.shapes is None:
        return marks
    declared = declared_of(frame.inputs.shapes, path_of(source), tensor.dim())
    if type(declared) is not tuple or len(declared) != tensor.dim():
        raise ControlMisuse(
            f"shapes_spec declares {source} as {declared}, but it is a tensor of {tensor.dim()} dims. Correct one."
        )
    ranges = {}
    for dim, (entry, size) in enumerate(zip(declared, tensor.shape)):
        check_entry(entry, size, f"dim {dim} of {source}")
        if isinstance(entry, DimRange) and size >= SMALLEST:
            ranges[dim] = entry
    dynamic = marks.dynamic | ranges.keys()
    fixed = frozenset(range(tensor.dim())) - dynamic - marks.maybe - marks.unbacked
    declared_dims = frozenset(ranges) - marks.dynamic
    return replace(marks, dynamic=dynamic, static=marks.static | fixed, declared=declared_dims, ranges={**ranges, **marks.ranges})


def declared_of(shapes: DeclaredShapes, path: Any, count: int) -> Any:
    """What is declared of a tensor of so many dims: all of its shape, or some dims by their numbers."""
    if path is None or path in shapes:
        return shapes.get(path, (None,) * count)
    by_key = {at[-1]: entry for at, entry in shapes.items() if at[:-1] == path}
    if all(type(dim) is int and 0 <= dim < count and type(entry) is not tuple for dim, entry in by_key.items()):
        return tuple(by_key.get(dim) for dim in range(count))
    return by_key


def check_entry(entry: Any, value: int, what: str) -> None:
    """Raises ControlMisuse when a number is not what is declared of it."""
    low, high = (entry.lower, entry.upper) if isinstance(entry, DimRange) else (entry, entry)
    if (low is not None and value < low) or (high is not None and value > high):
        wanted = entry if type(entry) is int else f"from {'any' if low is None else low} to {'any' if high is None else high}"
        raise ControlMisuse(f"shapes_spec declares {what} as {wanted}, but it is {value}. Correct the declaration or the call.")


def refuse_dim(source: Source, dim: int | None, how: str, why: str, cure: str) -> NoReturn:
    """Raises DynamicDimError."""
    what = str(source) if dim is None else f"dim {dim} of {source}"
    raise DynamicDimError(f"{what} is {how}, but {why}\n  try: {cure}")


def size_symbol(frame: Frame, tensor: torch.Tensor, source: Source, dim: int) -> Any:
    """A symbol for one size, in the range that it is marked with; dims marked as one group share it, and a guard says so."""
    size, marks = int(tensor.shape[dim]), marks_at(frame, tensor, source)
    limits = marks.ranges.get(dim, DimRange())
    symbol = frame.graph.size_input(TensorSize(source, dim), size, max(SMALLEST, limits.lower or 0), limits.upper)
    if dim in frame.inputs.guesses.get(str(source), ()):
        frame.inputs.guessed_dims[symbol] = (str(source), dim)
    if dim in marks.strict:
        frame.inputs.strict_dims.append((symbol, source, dim, marks.how(dim)))
    return in_group(frame, symbol, limits, f"dim {dim} of {source}")


def in_group(frame: Frame, symbol: Any, limits: DimRange, what: str) -> Any:
    """The first symbol of the group, or this one; a guard says that they are the same. Raises ControlMisuse when they differ now."""
    first = symbol if limits.group is None else frame.inputs.groups.setdefault(limits.group, symbol)
    if first is not symbol:
        values = frame.symbols.hint(symbol), frame.symbols.hint(first)
        if values[0] != values[1]:
            raise ControlMisuse(f"{what} is {values[0]}, but the other sizes of group {limits.group!r} are {values[1]}.")
        frame.symbols.assume(Condition.compare("==", symbol, first), f"{GROUP} {limits.group!r}")
    return first


GROUP = "group of sizes"


def mark_stated_conditions(symbols: Any, here: str) -> None:
    """Conditions recorded at this place come from a torch._check."""
    symbols.conditions[:] = [replace(c, origin=f"{STATED}, {here}") if c.origin == here else c for c in symbols.conditions]


def check_strict_dims(frame: Frame) -> None:
    """Marked sizes stayed open. Raises DynamicDimError that says where one was fixed, or decided on."""
    for symbol, source, dim, how in frame.inputs.strict_dims:
        low, high = frame.symbols.ranges[symbol]
        for recorded in frame.symbols.conditions:
            if symbol not in recorded.condition.free_symbols or recorded.origin.startswith((GROUP, LAYOUT, STATED)):
                continue
            if low is not None and low == high:
                less = "maybe_mark_dynamic" if how.startswith("marked") else f"declare it as None or {low}"
                why = f"the program fixes it to {low}: {recorded}"
                refuse_dim(source, dim, how, why, f"{less}, or make the program work for other sizes")
            if how == "marked unbacked":
                cure = "say what holds with torch._check(...) or mark_unbacked(min=..., max=...)"
                refuse_dim(source, dim, how, f"the program decides on it: {recorded}", cure)


def lift_number(frame: Any, value: int, source: Source) -> Any:
    """A symbol for an int that had another value in an earlier capture, else None."""
    if frame.options.dynamic is False:
        return None
    declared = None if frame.inputs.shapes is None else frame.inputs.shapes.get(path_of(source))
    if frame.inputs.shapes is not None:
        check_entry(declared, value, str(source))
        chosen = isinstance(declared, DimRange)
    else:
        chosen = frame.inputs.changes(source, value) or frame.options.chosen_number(str(source), value)
    if not chosen or not frame.options.allows_symbolic_sizes or value.bit_length() > INT_BITS:
        return None
    if source not in frame.inputs.numbers:
        if held_by_static_module(frame, source):
            return None
        limits = declared or DimRange()
        frame.guard("TYPE", source, int)
        symbol = symbolic_int(frame, value, source, limits)
        if declared is not None:
            frame.inputs.strict_dims.append((symbol, source, None, "declared in shapes_spec"))
        frame.inputs.numbers[source] = in_group(frame, symbol, limits, str(source))
    return frame.inputs.numbers[source]


def symbolic_int(frame: Frame, value: int, source: Source, limits: DimRange = DimRange()) -> Any:  # noqa: B008  # it is frozen
    """The symbol of an int that may be any number, an input of the graph; one for each source."""
    symbol = frame.inputs.numbers.get(source)
    if symbol is None:
        symbol = frame.inputs.numbers[source] = frame.graph.size_input(source, value, limits.lower, limits.upper, number=True)
        frame.graph.unspecialised_numbers.add(symbol)
    return symbol


def held_by_static_module(frame: Frame, source: Source) -> bool:
    """Whether the number is an attribute of an instance of a class that is marked with mark_static."""
    holders = [value for value in frame.memory.memo.values() if value.source == source.base] if source.base is not None else []
    return any(getattr(value.python_type(), "_dynamo_marked_static", False) for value in holders)


def distinct_inputs(frame: Frame) -> tuple[Any, ...]:
    """Sources of the tensor inputs, which must stay different objects."""
    roles = ("size", "float", "computed", "rng")
    held = [b.source for b in frame.graph.inputs if b.role not in roles and type(b.source) is not Const]
    return tuple(dict.fromkeys(source.base if isinstance(source, ArrayTensor) else source for source in held))

"""Numbers, texts and lists out of the data of tensors that Python makes when the graph has run: what item(), int(), bool() and tolist() give
where the program passes it on, keeps it, counts with it, shows or returns it.

What needs such a value while tracing captures the frame again, and the graph then breaks where the program asked for the data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import torch

from ... import _torch
from ...errors import BreakGraph, NotPlain
from ...plan import Again, Learnt
from ...signals import let_through
from ..protocol.constant import ConstantValue, plain
from ..protocol.kinds import AbstractTensor, is_plain_tensor
from ..protocol.make import make
from ..protocol.value import READ_AT_ONCE, Emitter, Frame, Value
from .floats import ARITHMETIC, DataFloat
from .number import largest
from .symint import SymNumber

Place: TypeAlias = tuple[str, int, str, int]
"""The file, first line and name of a code object, and an instruction in it."""
Places: TypeAlias = frozenset[Place]
Writer: TypeAlias = Callable[[Emitter], str]
"""Gives the expression of an object."""
MOST = 2**512
"""Ints up to this one are floats, too, also where some are multiplied."""
OF_KIND = {
    int: (-(2**63), -1, 0, 2**63 - 1),
    bool: (False, True),
    float: (float("nan"), float("-inf"), -0.5, 0.0, 1e300),
    str: ("", "{x}"),
    list: ([], [-0.5]),
}
"""Values of each kind, by which it is asked what a format takes."""
ZERO = {int: 0, float: 0.0, bool: False}


class DeferredValue(Value):
    """`write(emit)` is the expression of the object, of class `cls`. `places`: where the program asked for data. An int is never farther from
    0 than `most`."""

    def __init__(self, kind: type, write: Writer, places: Places, most: int = 2**63) -> None:
        super().__init__(None)
        self.cls = kind
        self.write = write
        self.places = places
        self.most = most

    is_deferred = True

    def is_number(self) -> bool:
        return self.cls in ZERO

    def describe(self) -> str:
        return f"{self.cls.__name__} out of the data of a tensor"

    def needed(self, frame: Frame, *_: Any) -> NoReturn:
        """Something asks for the object itself."""
        if self.places - frame.plan.learnt.read_while_tracing:
            raise Again("number_needed", Learnt(read_while_tracing=frozenset(self.places)))
        frame.break_graph("tensor_to_python", f"{self.describe()} is needed while tracing")

    def negated(self) -> DeferredValue:
        """not self"""
        return DeferredValue(bool, lambda emit: f"(not {emit.load(self)})", self.places)

    def unary(self, frame: Frame, op: str) -> Value:
        if op == "~" or self.cls not in ZERO:
            return self.needed(frame)
        return self.computed_from(type(+ZERO[self.cls]), [self], op + "{}", self.most)

    def computed_from(self, kind: type, operands: list[Value], pattern: str, most: int = 0) -> DeferredValue:
        """The value of an expression of these operands."""
        return DeferredValue(kind, lambda emit: f"({pattern.format(*map(emit.load, operands))})", places_of(operands), most)

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        op = op.rstrip("=")
        pair = [other, self] if reverse else [self, other]
        if op == "+" and self.cls is str is other.python_type():
            return self.computed_from(str, pair, "{} + {}")
        if self.cls not in ZERO or not other.is_number():
            return self.needed(frame)
        kinds = [type(+ZERO[value.python_type()]) for value in pair]
        kind, most = float if float in kinds else int, largest(op, *map(magnitude, pair))
        if op in ARITHMETIC and most <= MOST:
            return self.computed_from(kind, pair, f"{{}} {op} {{}}", most)
        if op in ("/", "//", "%") and not reverse and is_not_zero(frame, other):
            return self.computed_from(float if op == "/" else kind, pair, f"{{}} {op} {{}}", most)
        return self.needed(frame)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__round__" and not kwargs:
            return rounded(self, args) or self.needed(frame)
        conversion = {"__int__": int, "__index__": int, "__float__": float}.get(name)
        if args or kwargs or conversion is None or self.cls not in (int, bool, conversion):
            return self.needed(frame)
        return DeferredValue(conversion, lambda emit: f"{emit.const(conversion)}({emit.load(self)})", self.places, self.most)

    def reload(self, emit: Emitter) -> str:
        return self.write(emit)


for _name in (
    *("truth", "compare", "hash_key", "getattr", "setattr", "delattr", "call", "contains", "as_graph_arg"),
    *("getitem", "setitem", "delitem", "iterate", "length", "try_specialise"),
):
    setattr(DeferredValue, _name, DeferredValue.needed)


class DeferredList(DeferredValue):
    """What tolist() gives of a tensor of this shape, whose items are of class `item_class`; None for shapes that are open."""

    def __init__(self, write: Writer, places: Places, shape: tuple[int, ...] | None, item_class: type) -> None:
        super().__init__(list, write, places)
        self.shape, self.item_class = shape, item_class
        self.items_read: list[Value] | None = None

    def items(self, frame: Frame) -> list[Value]:
        """Each item as a value: nothing was written to the list."""
        if self.shape is None or self.shape[0] > READ_AT_ONCE:
            return self.needed(frame)
        if self.items_read is None:
            self.items_read = [self.item(place, self.shape[1:]) for place in range(self.shape[0])]
        return self.items_read

    def item(self, place: int, left: tuple[int, ...]) -> DeferredValue:
        """The item at a place, which is a list of this shape, or a number."""

        def write(emit: Emitter) -> str:
            return f"{emit.load(self)}[{place}]"

        return (
            DeferredList(write, self.places, left, self.item_class)
            if left
            else DeferredValue(self.item_class, write, self.places)
        )

    def length(self, frame: Frame) -> Value:
        return ConstantValue(len(self.items(frame)))

    def truth(self, frame: Frame) -> bool:
        return bool(self.items(frame))

    def iterate(self, frame: Frame) -> Value:
        return make.iterator(self.items(frame))

    def getitem(self, frame: Frame, key: Value) -> Value:
        items, place = self.items(frame), key.constant() if key.is_constant() else None
        return items[place] if type(place) is int and -len(items) <= place < len(items) else self.needed(frame)


def magnitude(value: Value) -> int:
    """What an int is not farther from 0 than; 0 for floats, of which arithmetic raises nothing."""
    if value.python_type() is float:
        return 0
    if isinstance(value, DeferredValue):
        return value.most
    return abs(value.constant()) if value.is_constant() else 2**63


def is_not_zero(frame: Frame, value: Value) -> bool:
    """Whether it is a known number other than 0, or a size that is guarded not to be."""
    if isinstance(value, SymNumber):
        return value.truth(frame)
    return value.is_constant() and bool(value.constant()) and magnitude(value) <= MOST


def rounded(value: Value, args: list[Value]) -> DeferredValue | None:
    """round(value, digits) where that is a float of a float, whatever it is; else None."""
    digits = args[0].constant() if len(args) == 1 and args[0].is_constant() else None
    if value.python_type() is not float or type(digits) is not int or not 0 <= digits <= 300:
        return None
    return DeferredValue(float, lambda emit: f"{emit.const(round)}({emit.load(value)}, {digits})", places_of([value]))


def deferred_sum(total: Value, numbers: list[Value]) -> DeferredValue:
    """sum(numbers, total) of floats and other numbers."""
    values = [total, *numbers]

    def write(emit: Emitter) -> str:
        return f"{emit.const(sum)}([{', '.join(map(emit.load, numbers))}], {emit.load(total)})"

    return DeferredValue(float, write, places_of(values))


def places_of(values: list[Value]) -> Places:
    """Where the program asked for the data in these values."""
    return frozenset().union(*(value.places for value in values if isinstance(value, DeferredValue)))


def place_here(frame: Frame) -> Place:
    """What `Learnt.read_while_tracing` has the instruction under that the frame is at."""
    return frame.code.co_filename, frame.code.co_firstlineno, frame.code.co_name, frame.current.index


def copy_for_deferred(frame: Frame, tensor: AbstractTensor) -> Writer:
    """Writes the expression of a tensor that holds what this one does now: what is written to it later is not in the copy."""
    alone = frame.graph.compute(frame, torch.detach, (tensor,))
    node = frame.graph.compute(frame, torch.clone, (alone,)).node

    def write(emit: Emitter) -> str:
        if node.meta.get("moved"):
            raise BreakGraph("cannot_rebuild", "what a tensor holds inside of a function that has a graph of its own")
        return emit.graph_output(node)

    return write


def read_deferred(frame: Frame, tensor: AbstractTensor, name: str) -> DeferredValue | None:
    """What a method of a tensor (item, tolist, ...) reads from it, known when the graph has run; None where it is asked for at once."""
    kind = kind_of(tensor.example, name)
    place = place_here(frame)
    refused = (
        frame.modes.transforms or frame.recording.selecting or frame.modes.function_modes or frame.modes.subclass_functions_off
    )
    if kind is None or refused or not is_plain_tensor(tensor) or place in frame.plan.learnt.read_while_tracing:
        return None
    load = copy_for_deferred(frame, tensor)

    def write(emit: Emitter) -> str:
        read = torch.Tensor.tolist if kind is list else _torch.modes.item
        found = f"{emit.const(read)}({load(emit)})"
        return found if kind is list else f"{emit.const(kind)}({found})"

    places = frozenset((place,))
    if kind is list:
        shape = tuple(tensor.example.shape)
        fixed = all(type(size) is int for size in shape)
        return DeferredList(write, places, shape if fixed else None, kind_held(tensor.example.dtype))
    return DeferredValue(kind, write, places)


def kind_of(example: Any, name: str) -> type | None:
    """The class of what a method gives for all data; None where it raises for some, or is not modelled."""
    if name == "tolist" and example.ndim:
        return list
    if type(example.numel()) is not int or example.numel() != 1 or example.dtype.is_complex or example.device.type == "meta":
        return None
    held = kind_held(example.dtype)
    if name in ("__bool__", "is_nonzero"):
        return bool
    asked = {"item": held, "tolist": held, "__float__": float, "__int__": int, "__index__": int}.get(name)
    return None if asked is int and held is float else asked


def kind_held(dtype: torch.dtype) -> type:
    """The class of Python's numbers that a tensor of this dtype holds."""
    return bool if dtype is torch.bool else complex if dtype.is_complex else float if dtype.is_floating_point else int


def is_shown(value: Value) -> bool:
    """Whether it is a number or a text that is known when the graph has run, or holds one."""
    return isinstance(value, (DeferredValue, DataFloat))


def is_written(value: Value) -> bool:
    """Whether its text is known: it is a constant, or a tuple of some."""
    if value.is_constant():
        return True
    try:
        return value.python_type() in (tuple, torch.Size) and type(plain(value)) is value.python_type()
    except NotPlain:
        return False


def deferred_text(values: list[Value], fn: Callable[..., Any], write: Writer) -> DeferredValue | None:
    """A text that fn makes of the values, written when the graph has run; None where a value is not of a kind that is known here, or fn
    may raise."""
    if not any(map(is_shown, values)) or not all(is_written(v) or is_shown(v) and v.python_type() in OF_KIND for v in values):
        return None
    for turn in range(max(map(len, OF_KIND.values()))):
        given = [stand_in(v.python_type(), turn) if is_shown(v) else plain(v) for v in values]
        try:
            fn(*given)
        except Exception as error:
            let_through(error)
            return None
    return DeferredValue(str, write, places_of(values))


def stand_in(kind: type, turn: int) -> Any:
    """One of the objects of a class."""
    known = OF_KIND[kind]
    return known[turn % len(known)]


def deferred_percent(pattern: str, values: list[Value]) -> DeferredValue | None:
    """pattern % values, of which some are known when the graph has run; None for others."""
    return deferred_text(
        values,
        lambda *given: pattern % given,
        lambda emit: f"({emit.literal(pattern)} % ({''.join(emit.load(v) + ', ' for v in values)}))",
    )


def deferred_format(pattern: str, args: list[Value], kwargs: dict[str, Value]) -> DeferredValue | None:
    """pattern.format(*args, **kwargs) of such values; None for others."""
    names, values = tuple(kwargs), [*args, *kwargs.values()]

    def fill(*given: Any) -> str:
        return pattern.format(*given[: len(args)], **dict(zip(names, given[len(args) :])))

    def write(emit: Emitter) -> str:
        parts = [emit.load(v) for v in args] + [f"{name}={emit.load(v)}" for name, v in kwargs.items()]
        return f"{emit.literal(pattern)}.format({', '.join(parts)})"

    return deferred_text(values, fill, write)


def deferred_repr(frame: Frame, value: DeferredValue, fn: Callable[..., Any], *rest: Any) -> Value:
    """fn(value, *rest), a text: str, repr or format with a specification."""
    extra = "".join(f", {part!r}" for part in rest)
    found = deferred_text([value], lambda given: fn(given, *rest), lambda emit: f"{emit.const(fn)}({emit.load(value)}{extra})")
    return found or value.needed(frame)


def deferred_join(parts: list[Value]) -> DeferredValue:
    """The parts of a text, one after another, of which some are written when the graph has run."""
    return DeferredValue(str, lambda emit: f"''.join([{', '.join(map(emit.load, parts))}])", places_of(parts))

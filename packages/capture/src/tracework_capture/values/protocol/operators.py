"""Operators: the protocol of binary, comparison and unary operators between values, and of special methods that are called by name."""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable
from typing import Any

from ... import _C
from ...errors import NotPlain
from ...graph.replaced import identity_observed
from ...guards.classes import lookup_class, resolution_order
from ...sources import Const, Source
from .arguments import positional_limits
from .binding import ATOMS, FIELD, OF_OBJECT
from .constant import ConstantValue, fold, fold_literal, force_plain, plain
from .kinds import AbstractInstance, AbstractTuple
from .registry import Registry
from .special_methods import (
    BY_COMPARE_METHOD,
    BY_INPLACE_METHOD,
    BY_METHOD,
    BY_REFLECTED_METHOD,
    BY_UNARY_METHOD,
    OPERATIONS,
    REFLECTED,
    SPECIAL,
)
from .unspecialised import UnspecialisedConstant
from .value import Frame, SymbolicRaise, Value, builtin_part

READ = (types.GetSetDescriptorType, types.MemberDescriptorType, FIELD)
"""Descriptors of built-in types that give what an object holds, which may be called, where others bind a method."""


def binary(frame: Frame, op: str, left: Value, right: Value) -> Value:
    """left op right, by Python's protocol. op may end in `=` for the in-place form."""
    symbol = op[:-1] if op.endswith("=") else op
    if right.is_deferred and left.is_number():
        found = right.binary(frame, symbol, left, reverse=True)
        if found is not None:
            return found
    left_type, right_type = left.python_type(), right.python_type()
    # what has no in-place form gives way to an object on the right that answers first; errors name the operator
    reflected = f"__r{SPECIAL[symbol]}__"
    in_place = op != symbol and (not isinstance(right, AbstractInstance) or hasattr(left_type, f"__i{SPECIAL[symbol]}__"))
    if in_place and not gives_way(left_type, right, reflected):
        found = with_builtin_part(frame, left.binary, op, right)
        if found is not None:
            return found
    for value, other, reverse in order_of_operands(left, right, reflected):
        found = with_builtin_part(frame, value.binary, symbol, other, reverse)
        if found is not None:
            return found
    for sequence, count in ((left, right), (right, left)) if symbol == "*" else ():
        if issubclass(sequence.python_type(), REPEATED) and hasattr(count.python_type(), "__index__"):
            return binary(frame, op, sequence, index_of(frame, [count], {}))
    hint = HINT if op == ">>" and is_known(left) and left.real() is print else ""
    return frame.raise_new(TypeError, unsupported(op, left_type, right_type) + hint)


def is_atomic(part: Value) -> bool:
    """Whether the built-in part of an instance is an int, a float, a str or bytes."""
    return part.python_type() in ATOMS


def operand_of(value: Value) -> Value:
    """What an operator of a built-in type sees of its other operand: of an instance of a subclass of int, float, str or bytes, that."""
    return value if value.part is None or not is_atomic(value.part) else value.part


def past_its_class(frame: Frame, value: Value, operation: Callable[..., Any], *args: Any) -> Any:
    """operation(frame, *args) with the built-in part of an instance in its place. Breaks for a TypeError, which names the class."""
    try:
        return operation(frame, *args)
    except SymbolicRaise as raised:
        if issubclass(raised.value.python_type(), TypeError):
            frame.break_graph("operation_unknown", f"an error about {value.describe()}")
        raise


def with_builtin_part(
    frame: Frame, operation: Callable[..., Value | None], symbol: str, other: Value, *reverse: Any
) -> Value | None:
    """value.binary or value.compare, which see the number or text that an instance of a subclass is."""
    value: Value = operation.__self__  # type: ignore[attr-defined]
    given = other if isinstance(value, AbstractInstance) else operand_of(other)
    if given is other or symbol == "%" and value.python_type() in (str, bytes):  # which asks for its text
        return operation(frame, symbol, other, *reverse)
    found: Value | None = past_its_class(frame, other, operation, symbol, given, *reverse)
    if found is not None or reverse == (True,) or not issubclass(given.python_type(), (int, float)):
        return found
    if value.is_number() and given.is_number() and not (issubclass(value.python_type(), int) and given.python_type() is float):
        # a number that is not known yet computes with one that is
        return given.binary(frame, symbol, value, reverse=True) if reverse else given.compare(frame, REFLECTED[symbol], value)
    if value.python_type() is complex:
        return frame.break_graph("operation_unknown", f"{symbol} of a complex number and {other.describe()}")
    return None


def order_of_operands(left: Value, right: Value, reflected: str) -> list[tuple[Value, Value, bool]]:
    """(the operand whose method is asked, the other one, whether it is the reflected method), one after the other."""
    left_type, right_type = left.python_type(), right.python_type()
    if right_type is left_type and isinstance(left, AbstractInstance):  # which has refused it already
        return [(left, right, False)]
    right_first = (
        right_type is not left_type
        and left_type in resolution_order(right_type)  # registering with an ABC does not count
        and lookup_class(left_type, reflected)[0] is not lookup_class(right_type, reflected)[0]
    )
    right_first = right_first or gives_way(left_type, right, reflected)
    return [(right, left, True), (left, right, False)] if right_first else [(left, right, False), (right, left, True)]


def gives_way(left: type, right: Value, reflected: str) -> bool:
    """Whether C's operator of a built-in type leaves the answer to an instance of a subclass of int or float that reflects it itself: an
    int knows no float, and sequences are repeated where no number answers."""
    part = right.part
    if part is None or part.python_type() not in (int, float):
        return False
    leaves = issubclass(left, int) and part.python_type() is float or issubclass(left, REPEATED) and reflected == "__rmul__"
    return leaves and lookup_class(right.python_type(), reflected)[0] is not lookup_class(part.python_type(), reflected)[0]


HINT = '. Did you mean "print(<message>, file=<output_stream>)"?'
"""What CPython says where print is written to a stream as in Python 2."""
SEQUENCES = (list, tuple, collections.deque)
"""Types that C joins and repeats when no number can."""
REPEATED = (str, bytes, bytearray, *SEQUENCES)


def unsupported(op: str, left: type, right: type) -> str:
    """What CPython says of an operator that neither of two types has."""
    kind = next((kind for kind in SEQUENCES if issubclass(left, kind)), None)
    if op == "+" and kind is not None:
        return f'can only concatenate {kind.__name__} (not "{_C.type_name(right)}") to {kind.__name__}'
    if op in ("*", "*=") and (kind is not None or issubclass(right, SEQUENCES)):
        return f"can't multiply sequence by non-int of type '{_C.type_name(right if kind is not None else left)}'"
    shown = "** or pow()" if op == "**" else op
    return f"unsupported operand type(s) for {shown}: '{_C.type_name(left)}' and '{_C.type_name(right)}'"


def compare(frame: Frame, op: str, left: Value, right: Value) -> Value:
    """left op right for the six comparisons."""
    left_type, right_type = left.python_type(), right.python_type()
    tries = [(left, op, right), (right, REFLECTED[op], left)]
    if right_type is not left_type and left_type in resolution_order(right_type):
        tries.reverse()
    for value, symbol, other in tries:
        found = with_builtin_part(frame, value.compare, symbol, other)
        if found is not None:
            return found
    if op in ("==", "!="):
        return ConstantValue(same(frame, left, right) == (op == "=="))
    return frame.raise_new(
        TypeError,
        f"'{op}' not supported between instances of '{_C.type_name(left_type)}' and '{_C.type_name(right_type)}'",
    )


def same(frame: Frame, left: Value, right: Value) -> bool:
    """left is right"""
    answer = left.same_object(right)
    if answer is None:
        identity_observed(frame, left, right)
        return frame.break_graph("operation_unknown", f"identity of {left.describe()} and {right.describe()}")
    if not answer:
        distinguish(frame, left, right)
    elif left is not right:
        hold_as_one(frame, left, right)
    return answer


def place_of(value: Value) -> Source | None:
    """Where an existing object was found."""
    place: Source | None = value.place if value.source is None else value.source
    return place


def hold_as_one(frame: Frame, left: Value, right: Value) -> None:
    """Two constants, or tuples, are one object, which the guards of their values do not say: a guard."""
    places = [place for place in map(place_of, (left, right)) if place is not None]
    if not isinstance(left, (ConstantValue, AbstractTuple)) or isinstance(left, ConstantValue) and left.is_single():
        return
    if len(places) == 2:
        frame.guard("SAME", *places)
    elif places:
        frame.guard("IDENTITY", places[0], left.obj)


def is_known(value: Value) -> bool:
    """Whether it is guarded which object a value is."""
    if not value.by_identity:
        return False
    try:
        value.real()
    except LookupError:
        return False
    return True


def distinguish(frame: Frame, left: Value, right: Value) -> None:
    """Two existing objects are different ones, which a later call need not have: a guard, where their types do not say so."""
    first, second = places = place_of(left), place_of(right)
    pair = frozenset(places)
    if left.python_type() is not right.python_type() or pair in frame.queries.distinguished:
        return
    are_constants = isinstance(left, ConstantValue) and isinstance(right, ConstantValue)
    if isinstance(left, ConstantValue) and are_constants and (left.is_single() or left.obj == left.obj and left.obj != right.obj):
        return
    if None in pair:
        if are_constants and first is not second:
            place, other = (first, right) if second is None else (second, left)
            frame.guard("NOT_IDENTITY", place, other.obj)
        return
    frame.queries.distinguished.add(pair)
    if are_constants or not all(type(place) is Const or is_known(value) for place, value in zip(places, (left, right))):
        frame.guard("DISTINCT", first, places)


def equal(frame: Frame, left: Value, right: Value) -> bool:
    """Identity or equality, as containers ask it."""
    if left is right or left.same_object(right):
        return True
    return compare(frame, "==", left, right).truth(frame)


MOST_COMPARED = 16  # keys
COMPARED_KEYS = (int, str, type(None))
"""Classes of keys that an int is compared with, or is none of."""


def is_open_int(item: Value) -> bool:
    """Whether it is an int that may be another one at the next call."""
    return item.python_type() is int and not item.is_constant()


def is_none_of(frame: Frame, item: Value, keys: list[Value]) -> bool:
    """Whether an open int is none of the keys of a dict or set, as comparing it with each of them tells: its hash would hold for one int."""
    if len(keys) > MOST_COMPARED or not all(key.is_constant() and type(key.constant()) in COMPARED_KEYS for key in keys):
        return False
    return not any(type(key.constant()) is int and equal(frame, item, key) for key in keys)


def compare_sequences(frame: Frame, op: str, left: list[Value], right: list[Value]) -> Value:
    """Lexicographic comparison of two lists of values."""
    if op in ("==", "!="):
        same_items = len(left) == len(right) and all(equal(frame, a, b) for a, b in zip(left, right))
        return ConstantValue(same_items == (op == "=="))
    for a, b in zip(left, right):
        if not equal(frame, a, b):
            return compare(frame, op, a, b)
    return fold_literal(
        frame, {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[op], len(left), len(right)
    )


# --- special methods called by name ----------------------------------------------------------------------------------

NOT_IMPLEMENTED = ConstantValue(NotImplemented)
NONE = ConstantValue(None)


def none_of(result: None) -> Value:
    return NONE


def is_operation(name: str) -> bool:
    """Whether a special method stands for an operation that values have."""
    of_values = name in DUNDERS and name not in ("__hash__", "__repr__", "__str__")
    return of_values or any(name in table for table in OPERATIONS)


def takes(name: str, count: int) -> bool:
    """Whether a special method by that name takes so many arguments."""
    if name in BY_UNARY_METHOD:
        return count == 0
    if name in DUNDERS:
        least, most = positional_limits(DUNDERS[name], 2)
        return least <= count <= most
    return count == 1


def call_dunder(frame: Frame, self: Value, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """self.__name__(*args) for values of built-in types, through the operation it stands for; what is no method is read, and called."""
    if isinstance(lookup_class(self.python_type(), name)[0], READ):
        return self.getattr(frame, name).call(frame, args, kwargs)
    if kwargs or not takes(name, len(args)):
        return frame.break_graph("call_unknown", f"{self.python_type().__name__}.{name} with these arguments")
    for table, reverse in ((BY_METHOD, False), (BY_REFLECTED_METHOD, True), (BY_INPLACE_METHOD, False)):
        if name in table:
            return answered(frame, self.binary, table[name], args[0], *([reverse] if reverse else []))
    if name in ("__eq__", "__ne__") and lookup_class(self.python_type(), "__eq__")[1] is object:
        return OF_OBJECT[name](frame, self, *args)
    if name in BY_COMPARE_METHOD:
        return answered(frame, self.compare, BY_COMPARE_METHOD[name], args[0])
    if name in BY_UNARY_METHOD:
        return self.unary(frame, BY_UNARY_METHOD[name])
    handler = DUNDERS.get(name)
    if handler is None:
        return frame.break_graph("call_unknown", f"{self.python_type().__name__}.{name}")
    return handler(frame, self, *args)


def answered(frame: Frame, operation: Callable[..., Value | None], symbol: str, other: Value, *reverse: Any) -> Value:
    """What value.binary or value.compare gives to who calls its special method. An operand that need not be fixed for operators, which then
    ask it in turn, is fixed here."""
    found = with_builtin_part(frame, operation, symbol, other, *reverse)
    part = operand_of(other)
    if found is None and isinstance(part, UnspecialisedConstant):
        found = with_builtin_part(frame, operation, symbol, part.known(), *reverse)
    return NOT_IMPLEMENTED if found is None else found


DUNDERS: Registry[str, Callable[..., Value]] = Registry("DUNDERS")
"""Special method -> what it gives, of (frame, self, *args)."""
DUNDERS.add(
    {
        "__len__": lambda frame, self: self.length(frame),
        "__getitem__": lambda frame, self, key: self.getitem(frame, key),
        "__setitem__": lambda frame, self, key, value: none_of(self.setitem(frame, key, value)),
        "__delitem__": lambda frame, self, key: none_of(self.delitem(frame, key)),
        "__contains__": lambda frame, self, item: self.contains(frame, item),
        "__iter__": lambda frame, self: self.iterate(frame),
        "__bool__": lambda frame, self: ConstantValue(self.truth(frame)),
        "__next__": lambda frame, self: next_or_stop(frame, self),
        "__init__": lambda frame, self, *args: NONE,
        "__hash__": lambda frame, self: frame.break_graph("call_unknown", "hash of a container"),
        "__repr__": lambda frame, self: text_of(frame, self, repr),
        "__str__": lambda frame, self: text_of(frame, self, str),
        "__getattribute__": lambda frame, self, name: self.getattr(frame, force_plain(frame, name)),
        "__setattr__": lambda frame, self, name, value: none_of(self.setattr(frame, force_plain(frame, name), value)),
    }
)


def next_or_stop(frame: Frame, iterator: Value) -> Value:
    """next(iterator) with StopIteration."""
    item = iterator.next_value(frame)
    return frame.raise_new(StopIteration) if item is None else item


def text_of(frame: Frame, value: Value, fn: Callable[..., Any]) -> Value:
    """str(value) or repr(value)."""
    try:
        return ConstantValue(fn(plain(value)))
    except NotPlain:
        pass
    return fold(frame, fn, [value])


def index_of(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """operator.index"""
    value = args[0]
    if value.is_constant() or not hasattr(value.python_type(), "__index__"):
        return fold(frame, operator.index, args)
    if issubclass(value.python_type(), int):  # CPython takes it as it is, whatever its __index__ says
        return builtin_part(value)
    found = value.call_method(frame, "__index__", [], {})
    if found.python_type() is not int:
        return frame.break_graph("builtin_unsupported", "__index__ that does not give an int")
    return found

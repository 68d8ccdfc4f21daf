"""Functions that are operators by another name (operator.*, math.*, abs, round, min, max, sum, pow, divmod)."""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Callable
from typing import Any

from ... import _C
from ...bytecode.facts import VERSION
from ...guards.classes import defines
from ...guards.kinds import COMPARE_FUNCTIONS
from ..number.deferred import DeferredValue, deferred_sum, rounded
from ..number.float_formulas import called, computed_by_python, extremum_of_inputs
from ..number.floats import DataFloat, FloatValue, extremum_of_data, plus_lost
from ..number.numpy_ints import NumpyInt
from ..number.size_floats import SizeFloat, extremum_of_floats, fixed_size, function_of
from ..number.symint import SymNumber, extremum_of_sizes
from ..protocol.calls import CALLS, Handler, call, calls
from ..protocol.constant import BINARY_FUNCTIONS, UNARY_FUNCTIONS, ConstantValue, fold, force_plain, implemented
from ..protocol.iteration import iterate, iterate_all
from ..protocol.kinds import AbstractInstance, AbstractTensor
from ..protocol.operators import (
    binary,
    compare,
    equal,
    index_of,
    is_atomic,
    none_of,
    operand_of,
    order_of_operands,
    same,
    unsupported,
)
from ..protocol.registry import Registry
from ..protocol.unspecialised import UnspecialisedConstant
from ..protocol.value import Frame, SymbolicRaise, Value, is_none
from .iterators import PartialBuiltin
from .sequence import TupleValue

EXTREMA: Registry[str, Callable[[Frame, str, list[Value]], Value | None]] = Registry("EXTREMA")
"""Kind of values -> min (op is <) or max (op is >) of such and numbers, of (frame, op, items); None where comparisons tell."""
DIVMOD: Registry[type[Value], Callable[[Frame, Value, Value], list[Value]]] = Registry("DIVMOD")
"""Kind of values -> divmod(left, right) where one of them is such, of (frame, left, right)."""


def numbers(frame: Frame, args: list[Value]) -> bool:
    """True when some argument is not a constant, so the value protocol must decide."""
    return any(not a.is_constant() for a in args)


def operator_row(symbol: str) -> Handler:
    """A handler for operator.add and its like."""
    return lambda frame, args, kwargs: binary(frame, symbol, args[0], args[1])


def compare_row(symbol: str) -> Handler:
    return lambda frame, args, kwargs: compare(frame, symbol, args[0], args[1])


def unary_row(symbol: str) -> Handler:
    return lambda frame, args, kwargs: args[0].unary(frame, symbol)


@call(abs, operator.abs)
def abs_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return special_or_fold(frame, abs, "__abs__", args, kwargs)


def special_or_fold(frame: Frame, fn: Callable[..., Any], name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """fn on constants; else the special method of the first argument."""
    if not args:
        return fold(frame, fn, args, kwargs)
    args = [args[0].known() if isinstance(args[0], UnspecialisedConstant) else args[0], *args[1:]]
    if not numbers(frame, args):
        return fold(frame, fn, args, kwargs)
    return args[0].call_method(frame, name, list(args[1:]), kwargs)


def round_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    kind = args[0].python_type() if args else float
    if not defines(kind, "__round__"):
        return frame.raise_new(TypeError, f"type {_C.type_name(kind)} doesn't define __round__ method")
    late = rounded(args[0], args[1:]) if args and type(args[0]) is DataFloat and not kwargs else None
    return late or special_or_fold(frame, round, "__round__", args, kwargs)


def extremum(op: str, fn: Callable[..., Any]) -> Handler:
    """min or max."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        key, default = kwargs.get("key"), kwargs.get("default")
        if not args or not {"key", "default"}.issuperset(kwargs) or default is not None and len(args) > 1:
            return fold(frame, fn, args, kwargs)  # an error
        key = None if is_none(key) else key
        if key is not None and len(args) == 1:  # the key of each item is asked for before the next one
            iterator, items, keys = iterate(frame, args[0]), [], []
            while (item := iterator.next_value(frame)) is not None:
                items.append(item)
                keys.append(key.call(frame, [item], {}))
        else:
            items = iterate_all(frame, args[0]) if len(args) == 1 else list(args)
            keys = items if key is None else [key.call(frame, [item], {}) for item in items]
        if not items:
            return default if default is not None else fold(frame, fn, [TupleValue([])], {})
        found = None if key is not None else symbolic_extremum(frame, op, fn, items)
        if found is not None:
            return found
        best, best_key = items[0], keys[0]
        for item, item_key in zip(items[1:], keys[1:]):
            if compare(frame, op, item_key, best_key).truth(frame):
                best, best_key = item, item_key
        return best

    return handler


def symbolic_extremum(frame: Frame, op: str, fn: Callable[..., Any], items: list[Value]) -> Value | None:
    """min or max of numbers and tensors of which some are not known; None where comparisons tell."""
    if any(isinstance(i, DataFloat) for i in items):
        found = extremum_of_data(frame, compare, op, items)
        if found is not None:
            return found
    if any(isinstance(i, (SymNumber, SizeFloat)) for i in items):
        found = extremum_of_floats(frame, fn, items) or extremum_of_sizes(frame, fn, items)
        if found is not None:
            return found
    found = extremum_of_inputs(frame, fn, items)
    if found is None and any(i.is_chosen_by_data for i in items):
        found = EXTREMA["tensor"](frame, op, items)
    return found


JOINED: dict[type, tuple[str, str]] = {str: ("strings", "''"), bytes: ("bytes", "b''"), bytearray: ("bytearray", "b''")}


def sum_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """sum(iterable, start): numbers first, as C adds them, then whatever comes, by its own addition."""
    total = args[1] if len(args) > 1 else kwargs.get("start", ConstantValue(0))
    for kind, (name, empty) in JOINED.items():
        if issubclass(total.python_type(), kind):
            return frame.raise_new(TypeError, f"sum() can't sum {name} [use {empty}.join(seq) instead]")
    items = iterate(frame, args[0])
    item = items.next_value(frame)
    if total.python_type() is int:
        while item is not None:
            kind = item.python_type()
            total, item = binary(frame, "+", total, item), items.next_value(frame)
            if kind is not int and kind is not bool:
                break
    if total.python_type() is float and VERSION >= (3, 12):
        numbers = []
        while item is not None and item.python_type() in (float, int, bool):
            numbers.append(item)
            item = items.next_value(frame)
        total = sum_of_floats(frame, total, numbers)
    while item is not None:
        total, item = binary(frame, "+", total, item), items.next_value(frame)
        frame.progress.iterate(frame)
    return total


def sum_of_floats(frame: Frame, total: Value, numbers: list[Value]) -> Value:
    """total + ... of a float and numbers: from 3.12 on what rounding takes from each float is added at the end (Neumaier)."""
    if not numbers:
        return total
    if any(isinstance(value, DeferredValue) for value in (total, *numbers)):
        return deferred_sum(total, numbers)
    if all(value.is_constant() for value in (total, *numbers)):
        return ConstantValue(sum([value.constant() for value in numbers], total.constant()))
    total = fixed_size(frame, total)
    lost: Value = ConstantValue(0.0)
    for number in numbers:
        number = fixed_size(frame, number)
        before, total = total, binary(frame, "+", total, number)
        if number.python_type() is not float:
            continue
        # exact for any two floats, whichever is larger (Knuth); not finite where the sum is not
        back = binary(frame, "-", total, before)
        part = binary(frame, "-", before, binary(frame, "-", total, back))
        lost = binary(frame, "+", lost, binary(frame, "+", part, binary(frame, "-", number, back)))
    return plus_lost(frame, total, lost)


def pow_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) == 2 and not kwargs and numbers(frame, args):
        return binary(frame, "**", args[0], args[1])
    found = called(frame, "pow", args) if len(args) == 3 and not kwargs else None
    return fold(frame, pow, args, kwargs) if found is None else found


def divmod_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if all(a.is_constant() for a in args):
        return fold(frame, divmod, args)
    if any(isinstance(a, FloatValue) for a in args):
        parts = [computed_by_python(frame, f"divmod({{}}, {{}})[{place}]", *args) for place in (0, 1)]
        return fold(frame, divmod, args) if None in parts else TupleValue(parts)
    known = [a for a in args if a.is_constant() or a.python_type() is int or isinstance(a, NumpyInt)]
    if any(isinstance(a, AbstractInstance) and (a.part is None or is_atomic(a.part)) for a in args):
        return divmod_of_objects(frame, *args)
    for kind, rule in DIVMOD.items():
        if any(isinstance(a, kind) for a in args):
            return TupleValue(rule(frame, *args))
    others = [a for a in args if a not in known]
    if others:
        if any(hasattr(a.python_type(), "__divmod__") for a in others) or not all(a.is_number() for a in known):
            return frame.break_graph("call_unknown", "divmod of objects")
        frame.raise_new(TypeError, unsupported("divmod()", *(a.python_type() for a in args)))
    return TupleValue([binary(frame, "//", *args), binary(frame, "%", *args)])


def divmod_of_objects(frame: Frame, left: Value, right: Value) -> Value:
    """Objects of the program's classes have methods for it or refuse; what is built in refuses them."""
    for value, other, reverse in order_of_operands(left, right, "__rdivmod__"):
        if isinstance(value, AbstractInstance):
            found = implemented(value.special(frame, "__rdivmod__" if reverse else "__divmod__", [other]))
            if found is not None:
                return found
        elif value.is_number() and not reverse and operand_of(other).is_number():
            return divmod_(frame, [value, operand_of(other)], {})
    return frame.raise_new(TypeError, unsupported("divmod()", left.python_type(), right.python_type()))


def prod(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    total, items = kwargs.get("start", ConstantValue(1)), iterate(frame, args[0])
    while (item := items.next_value(frame)) is not None:
        total = binary(frame, "*", total, item)
        frame.progress.iterate(frame)
    return total


def math_row(fn: Callable[..., Any]) -> Handler:
    """math.fn: on a tensor it reads data; on a size the size is specialised (sqrt of a symbol becomes a guard on it)."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if any(isinstance(a, AbstractTensor) for a in (*args, *kwargs.values())):
            return frame.break_graph("tensor_to_python", f"math.{fn.__name__} of a tensor")
        made = None if kwargs else function_of(frame, fn, args)
        if made is not None:
            return made
        if fn in (math.ceil, math.floor, math.trunc):
            return special_or_fold(frame, fn, f"__{fn.__name__}__", args, kwargs)
        return fold(frame, fn, args, kwargs)

    return handler


def itemgetter_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    def get(frame: Frame, inner: list[Value], _: dict[str, Value]) -> Value:
        found = [inner[0].getitem(frame, key) for key in args]
        return found[0] if len(args) == 1 else TupleValue(found)

    return PartialBuiltin(operator.itemgetter, get, args)


def attrgetter_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    names = [force_plain(frame, a) for a in args]

    def get(frame: Frame, inner: list[Value], _: dict[str, Value]) -> Value:
        found = [functools.reduce(lambda value, part: value.getattr(frame, part), name.split("."), inner[0]) for name in names]
        return found[0] if len(names) == 1 else TupleValue(found)

    return PartialBuiltin(operator.attrgetter, get, args)


def length_hint(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """operator.length_hint: len() where the class has it; what a __length_hint__ gives is left to Python."""
    cls = args[0].python_type()
    if defines(cls, "__len__"):
        try:
            return args[0].length(frame)
        except SymbolicRaise:
            frame.break_graph("call_unknown", f"length_hint of a {cls.__name__} whose len() raises")
    if defines(cls, "__length_hint__"):
        return frame.break_graph("call_unknown", f"{cls.__name__}.__length_hint__")
    default = args[1] if len(args) > 1 else ConstantValue(0)
    return default if default.python_type() is int else frame.break_graph("call_unknown", "length_hint with another default")


def methodcaller_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    name = force_plain(frame, args[0])

    def call(frame: Frame, inner: list[Value], _: dict[str, Value]) -> Value:
        return inner[0].call_method(frame, name, args[1:], dict(kwargs))

    made = PartialBuiltin(operator.methodcaller, call, args)
    made.kwargs = kwargs
    return made


calls(
    {
        round: round_,
        min: extremum("<", min),
        max: extremum(">", max),
        sum: sum_,
        pow: pow_,
        divmod: divmod_,
        operator.not_: lambda frame, args, kwargs: ConstantValue(not args[0].truth(frame)),
        operator.truth: lambda frame, args, kwargs: ConstantValue(args[0].truth(frame)),
        operator.is_: lambda frame, args, kwargs: ConstantValue(same(frame, *args)),
        operator.is_not: lambda frame, args, kwargs: ConstantValue(not same(frame, *args)),
        operator.contains: lambda frame, args, kwargs: args[0].contains(frame, args[1]),
        operator.getitem: lambda frame, args, kwargs: args[0].getitem(frame, args[1]),
        operator.setitem: lambda frame, args, kwargs: none_of(args[0].setitem(frame, args[1], args[2])),
        operator.delitem: lambda frame, args, kwargs: none_of(args[0].delitem(frame, args[1])),
        operator.index: index_of,
        operator.length_hint: length_hint,
        operator.itemgetter: itemgetter_row,
        operator.attrgetter: attrgetter_row,
        operator.methodcaller: methodcaller_row,
        operator.concat: operator_row("+"),
        operator.iconcat: operator_row("+="),
        operator.countOf: lambda frame, args, kwargs: ConstantValue(
            sum(equal(frame, i, args[1]) for i in iterate_all(frame, args[0]))
        ),
        math.prod: prod,
    }
)
for _row, _functions in ((operator_row, BINARY_FUNCTIONS), (compare_row, COMPARE_FUNCTIONS), (unary_row, UNARY_FUNCTIONS)):
    calls({_function: _row(_symbol) for _symbol, _function in _functions.items()})
for _name in dir(math):
    _fn = getattr(math, _name)
    if builtins.callable(_fn) and _fn not in CALLS and not _name.startswith("_"):
        call(_fn)(math_row(_fn))

"""Operators: the protocol of binary, comparison and unary operators between values, and the functions that are operators by
another name (operator.*, math.*, abs, round, min, max, sum, pow, divmod)."""

from __future__ import annotations

import builtins
import collections
import math
import operator
import types

import torch

from ... import _C
from ...bytecode.facts import VERSION
from ...graph.replaced import identity_is_asked
from ...guards.classes import defines, lookup_class, resolution_order
from ...sources import Const
from ..arrays.array import ArrayValue
from ..arrays.ufuncs import divmod_ as numpy_divmod
from ..number.float_formulas import called, computed_by_python
from ..number.floats import DataFloat
from ..number.late_values import LateValue, is_number, late_sum, rounded
from ..objects.instance import ObjectValue, implemented, is_atomic, operand_of, past_its_class
from ..plain.sequence import TupleValue
from .arguments import positional_limits
from .binding import FIELD
from .calls import CALLS, call, calls
from .constant import ConstantValue, NotPlain, fold, fold_literal, force_plain, plain
from .iteration import iterate, iterate_all
from .open_constant import OpenConstant
from .value import SymbolicRaise, builtin_part

REFLECTED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
SPECIAL = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "truediv",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "@": "matmul",
    "<<": "lshift",
    ">>": "rshift",
    "&": "and",
    "^": "xor",
    "|": "or",
}
"""Operator symbol -> stem of its special method."""
COMPARE_SPECIAL = {"==": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}
UNARY_SPECIAL = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}
BY_METHOD = {f"__{stem}__": symbol for symbol, stem in SPECIAL.items()}
BY_REFLECTED_METHOD = {f"__r{stem}__": symbol for symbol, stem in SPECIAL.items()}
BY_INPLACE_METHOD = {f"__i{stem}__": symbol + "=" for symbol, stem in SPECIAL.items()}
BY_COMPARE_METHOD = {name: symbol for symbol, name in COMPARE_SPECIAL.items()}
BY_UNARY_METHOD = {name: symbol for symbol, name in UNARY_SPECIAL.items()}
READ = (types.GetSetDescriptorType, types.MemberDescriptorType, FIELD)
"""Descriptors of built-in types that give what an object holds, which may be called, where others bind a method."""
OPERATIONS = (BY_METHOD, BY_REFLECTED_METHOD, BY_INPLACE_METHOD, BY_COMPARE_METHOD, BY_UNARY_METHOD)


def binary(frame, op, left, right):
    """left op right, by Python's protocol. op may end in `=` for the in-place form."""
    symbol = op[:-1] if op.endswith("=") else op
    if isinstance(right, LateValue) and is_number(left):
        return right.binary(frame, symbol, left, reverse=True)
    left_type, right_type = left.python_type(), right.python_type()
    # what has no in-place form gives way to an object on the right that answers first; errors name the operator
    if op != symbol and (not isinstance(right, ObjectValue) or hasattr(left_type, f"__i{SPECIAL[symbol]}__")):
        found = asked(frame, left.binary, op, right)
        if found is not None:
            return found
    for value, other, reverse in order_of_operands(left, right, f"__r{SPECIAL[symbol]}__"):
        found = asked(frame, value.binary, symbol, other, reverse)
        if found is not None:
            return found
    for sequence, count in ((left, right), (right, left)) if symbol == "*" else ():
        if issubclass(sequence.python_type(), (str, bytes, bytearray, *SEQUENCES)) and hasattr(count.python_type(), "__index__"):
            return binary(frame, op, sequence, index_of(frame, [count], {}))
    hint = HINT if op == ">>" and is_known(left) and left.real() is print else ""
    return frame.raise_new(TypeError, unsupported(op, left_type, right_type) + hint)


def asked(frame, operation, symbol, other, *reverse):
    """value.binary or value.compare, which see the number or text that an instance of a subclass is."""
    value = operation.__self__
    given = other if isinstance(value, ObjectValue) else operand_of(other)
    if given is other or symbol == "%" and value.python_type() in (str, bytes):  # which asks for its text
        return operation(frame, symbol, other, *reverse)
    return past_its_class(frame, other, operation, symbol, given, *reverse)


def order_of_operands(left, right, reflected):
    """(the operand whose method is asked, the other one, whether it is the reflected method), one after the other."""
    left_type, right_type = left.python_type(), right.python_type()
    if right_type is left_type and isinstance(left, ObjectValue):  # which has refused it already
        return [(left, right, False)]
    right_first = (
        right_type is not left_type
        and left_type in resolution_order(right_type)  # registering with an ABC does not count
        and lookup_class(left_type, reflected)[0] is not lookup_class(right_type, reflected)[0]
    )
    return [(right, left, True), (left, right, False)] if right_first else [(left, right, False), (right, left, True)]


HINT = '. Did you mean "print(<message>, file=<output_stream>)"?'
"""What CPython says where print is written to a stream as in Python 2."""
SEQUENCES = (list, tuple, collections.deque)
"""Types that C joins and repeats when no number can."""


def unsupported(op, left, right):
    """What CPython says of an operator that neither of two types has."""
    kind = next((kind for kind in SEQUENCES if issubclass(left, kind)), None)
    if op == "+" and kind is not None:
        return f'can only concatenate {kind.__name__} (not "{_C.type_name(right)}") to {kind.__name__}'
    if op in ("*", "*=") and (kind is not None or issubclass(right, SEQUENCES)):
        return f"can't multiply sequence by non-int of type '{_C.type_name(right if kind is not None else left)}'"
    shown = "** or pow()" if op == "**" else op
    return f"unsupported operand type(s) for {shown}: '{_C.type_name(left)}' and '{_C.type_name(right)}'"


def compare(frame, op, left, right):
    """left op right for the six comparisons."""
    left_type, right_type = left.python_type(), right.python_type()
    tries = [(left, op, right), (right, REFLECTED[op], left)]
    if right_type is not left_type and left_type in resolution_order(right_type):
        tries.reverse()
    for value, symbol, other in tries:
        found = asked(frame, value.compare, symbol, other)
        if found is not None:
            return found
    if op in ("==", "!="):
        return ConstantValue(same(frame, left, right) == (op == "=="))
    return frame.raise_new(
        TypeError,
        f"'{op}' not supported between instances of '{_C.type_name(left_type)}' and '{_C.type_name(right_type)}'",
    )


def same(frame, left, right):
    """left is right"""
    answer = left.same_object(right)
    if answer is None:
        identity_is_asked(frame.root, left, right)
        return frame.break_graph("operation_unknown", f"identity of {left.describe()} and {right.describe()}")
    if not answer:
        tell_apart(frame, left, right)
    elif left is not right:
        hold_as_one(frame, left, right)
    return answer


def place_of(value):
    """Where an existing object was found."""
    return value.place if value.source is None else value.source


def hold_as_one(frame, left, right):
    """Two constants, or tuples, are one object, which the guards of their values do not say: a guard."""
    places = [place for place in map(place_of, (left, right)) if place is not None]
    if not isinstance(left, (ConstantValue, TupleValue)) or isinstance(left, ConstantValue) and left.is_single():
        return
    if len(places) == 2:
        frame.guard("SAME", *places)
    elif places:
        frame.guard("IDENTITY", places[0], left.obj)


def is_known(value):
    """Whether it is guarded which object a value is."""
    if not getattr(value, "by_identity", True):
        return False
    try:
        value.real()
    except LookupError:
        return False
    return True


def tell_apart(frame, left, right):
    """Two existing objects are different ones, which a later call need not have: a guard, where their types do not say so."""
    first, second = places = place_of(left), place_of(right)
    pair = frozenset(places)
    if left.python_type() is not right.python_type() or pair in frame.root.told_apart:
        return
    are_constants = isinstance(left, ConstantValue) and isinstance(right, ConstantValue)
    if are_constants and (left.is_single() or left.obj == left.obj and left.obj != right.obj):
        return
    if None in pair:
        if are_constants and first is not second:
            place, other = (first, right) if second is None else (second, left)
            frame.guard("NOT_IDENTITY", place, other.obj)
        return
    frame.root.told_apart.add(pair)
    if are_constants or not all(type(place) is Const or is_known(value) for place, value in zip(places, (left, right))):
        frame.guard("DISTINCT", first, places)


def equal(frame, left, right):
    """Identity or equality, as containers ask it."""
    if left is right or left.same_object(right):
        return True
    return compare(frame, "==", left, right).truth(frame)


def compare_sequences(frame, op, left, right):
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


def none_of(result):
    return NONE


def is_operation(name):
    """Whether a special method stands for an operation that values have."""
    of_values = name in DUNDERS and name not in ("__hash__", "__repr__", "__str__")
    return of_values or any(name in table for table in OPERATIONS)


def takes(name, count):
    """Whether a special method by that name takes so many arguments."""
    if name in BY_UNARY_METHOD:
        return count == 0
    if name in DUNDERS:
        least, most = positional_limits(DUNDERS[name], 2)
        return least <= count <= most
    return count == 1


def call_dunder(frame, self, name, args, kwargs):
    """self.__name__(*args) for values of built-in types, through the operation it stands for; what is no method is read, and called."""
    if isinstance(lookup_class(self.python_type(), name)[0], READ):
        return self.getattr(frame, name).call(frame, args, kwargs)
    if kwargs or not takes(name, len(args)):
        return frame.break_graph("call_unknown", f"{self.python_type().__name__}.{name} with these arguments")
    for table, reverse in ((BY_METHOD, False), (BY_REFLECTED_METHOD, True), (BY_INPLACE_METHOD, False)):
        if name in table:
            return answered(frame, self.binary, table[name], args[0], *([reverse] if reverse else []))
    if name in BY_COMPARE_METHOD:
        return answered(frame, self.compare, BY_COMPARE_METHOD[name], args[0])
    if name in BY_UNARY_METHOD:
        return self.unary(frame, BY_UNARY_METHOD[name])
    handler = DUNDERS.get(name)
    if handler is None:
        return frame.break_graph("call_unknown", f"{self.python_type().__name__}.{name}")
    return handler(frame, self, *args)


def answered(frame, operation, symbol, other, *reverse):
    """What value.binary or value.compare gives to who calls its special method. An operand that need not be fixed for operators, which then
    ask it in turn, is fixed here."""
    found = asked(frame, operation, symbol, other, *reverse)
    part = operand_of(other)
    if found is None and isinstance(part, OpenConstant):
        found = asked(frame, operation, symbol, part.known(), *reverse)
    return NOT_IMPLEMENTED if found is None else found


DUNDERS = {
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
    "__reversed__": lambda frame, self: reversed_value(frame, self),
    "__getattribute__": lambda frame, self, name: self.getattr(frame, force_plain(frame, name)),
    "__setattr__": lambda frame, self, name, value: none_of(self.setattr(frame, force_plain(frame, name), value)),
}


def reversed_value(frame, self):
    from ..plain.rows_iteration import reversed_

    return reversed_(frame, [self], {})


def next_or_stop(frame, iterator):
    """next(iterator) with StopIteration."""
    item = iterator.next_value(frame)
    return frame.raise_new(StopIteration) if item is None else item


def text_of(frame, value, fn):
    """str(value) or repr(value)."""
    try:
        return ConstantValue(fn(plain(value)))
    except NotPlain:
        pass
    return fold(frame, fn, [value])


# --- functions -------------------------------------------------------------------------------------------------------


def numbers(frame, args):
    """True when some argument is not a constant, so the value protocol must decide."""
    return any(not a.is_constant() for a in args)


def operator_row(symbol):
    """A handler for operator.add and its like."""
    return lambda frame, args, kwargs: binary(frame, symbol, args[0], args[1])


def inplace_row(symbol):
    return lambda frame, args, kwargs: binary(frame, symbol + "=", args[0], args[1])


def compare_row(symbol):
    return lambda frame, args, kwargs: compare(frame, symbol, args[0], args[1])


def index_of(frame, args, kwargs):
    from ..number.symint import SymNumber

    value = args[0]
    if isinstance(value, SymNumber):
        return value
    if value.is_constant() or not hasattr(value.python_type(), "__index__"):
        return fold(frame, operator.index, args)
    if issubclass(value.python_type(), int):  # CPython takes it as it is, whatever its __index__ says
        return builtin_part(value)
    found = value.call_method(frame, "__index__", [], {})
    if found.python_type() is not int:
        return frame.break_graph("builtin_unsupported", "__index__ that does not give an int")
    return found


def abs_(frame, args, kwargs):
    return special_or_fold(frame, abs, "__abs__", args, kwargs)


def special_or_fold(frame, fn, name, args, kwargs):
    """fn on constants; else the special method of the first argument."""
    if not args:
        return fold(frame, fn, args, kwargs)
    args = [args[0].known() if isinstance(args[0], OpenConstant) else args[0], *args[1:]]
    if not numbers(frame, args):
        return fold(frame, fn, args, kwargs)
    from ..number.floats import FloatValue
    from ..number.size_floats import SizeFloat
    from ..number.symint import SymNumber

    if isinstance(args[0], (SymNumber, SizeFloat)) or type(args[0]) is FloatValue:
        return args[0].special(frame, fn, name, args[1:])
    return args[0].call_method(frame, name, list(args[1:]), kwargs)


def round_(frame, args, kwargs):
    kind = args[0].python_type() if args else float
    if not defines(kind, "__round__"):
        return frame.raise_new(TypeError, f"type {_C.type_name(kind)} doesn't define __round__ method")
    late = rounded(args[0], args[1:]) if args and type(args[0]) is DataFloat and not kwargs else None
    return late or special_or_fold(frame, round, "__round__", args, kwargs)


def extremum(op, fn):
    """min or max."""

    def handler(frame, args, kwargs):
        from ..plain.sequence import TupleValue

        key, default = kwargs.get("key"), kwargs.get("default")
        if not args or not {"key", "default"}.issuperset(kwargs) or default is not None and len(args) > 1:
            return fold(frame, fn, args, kwargs)  # an error
        use_key = key is not None and not (key.is_constant() and key.constant() is None)
        if use_key and len(args) == 1:  # the key of each item is asked for before the next one
            iterator, items, keys = iterate(frame, args[0]), [], []
            while (item := iterator.next_value(frame)) is not None:
                items.append(item)
                keys.append(key.call(frame, [item], {}))
        else:
            items = iterate_all(frame, args[0]) if len(args) == 1 else list(args)
            keys = [key.call(frame, [item], {}) for item in items] if use_key else items
        if not items:
            return default if default is not None else fold(frame, fn, [TupleValue([])], {})
        from ..number.float_formulas import extremum_of_inputs
        from ..number.floats import extremum_of_data
        from ..number.size_floats import SizeFloat, extremum_of_floats
        from ..number.symint import SymNumber, extremum_of_sizes
        from ..torch.extrema import ChosenNumber, extremum_of_tensors
        from ..torch.tensor import TensorValue

        if not use_key and any(isinstance(i, DataFloat) for i in items):
            found = extremum_of_data(frame, compare, op, items)
            if found is not None:
                return found
        if not use_key and any(isinstance(i, (SymNumber, SizeFloat)) for i in items):
            found = extremum_of_floats(frame, fn, items) or extremum_of_sizes(frame, fn, items)
            if found is not None:
                return found
        found = None if use_key else extremum_of_inputs(frame, fn, items)
        if found is None and not use_key and any(isinstance(i, (TensorValue, ChosenNumber)) for i in items):
            found = extremum_of_tensors(frame, op, items)
        if found is not None:
            return found
        best, best_key = items[0], keys[0]
        for item, item_key in zip(items[1:], keys[1:]):
            if compare(frame, op, item_key, best_key).truth(frame):
                best, best_key = item, item_key
        return best

    return handler


JOINED = {str: ("strings", "''"), bytes: ("bytes", "b''"), bytearray: ("bytearray", "b''")}


def sum_(frame, args, kwargs):
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
        frame.root.turn(frame)
    return total


def sum_of_floats(frame, total, numbers):
    """total + ... of a float and numbers: from 3.12 on what rounding takes from each float is added at the end (Neumaier)."""
    from ..number.floats import fixed_size, plus_lost

    if not numbers:
        return total
    if any(isinstance(value, LateValue) for value in (total, *numbers)):
        return late_sum(total, numbers)
    if all(value.is_constant() for value in (total, *numbers)):
        return ConstantValue(sum([value.constant() for value in numbers], total.constant()))
    total = fixed_size(frame, total)
    lost = ConstantValue(0.0)
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


def pow_(frame, args, kwargs):
    if len(args) == 2 and not kwargs and numbers(frame, args):
        return binary(frame, "**", args[0], args[1])
    found = called(frame, "pow", args) if len(args) == 3 and not kwargs else None
    return fold(frame, pow, args, kwargs) if found is None else found


def all_of(frame, value):
    return iterate_all(frame, value)


def divmod_(frame, args, kwargs):
    from ..number.floats import FloatValue
    from ..number.numpy_ints import NumpyInt
    from ..plain.sequence import TupleValue

    if all(a.is_constant() for a in args):
        return fold(frame, divmod, args)
    if any(isinstance(a, FloatValue) for a in args):
        parts = [computed_by_python(frame, f"divmod({{}}, {{}})[{place}]", *args) for place in (0, 1)]
        return fold(frame, divmod, args) if None in parts else TupleValue(parts)
    known = [a for a in args if a.is_constant() or a.python_type() is int or isinstance(a, NumpyInt)]
    if any(type(a) is ObjectValue and (a.part is None or is_atomic(a.part)) for a in args):
        return divmod_of_objects(frame, *args)
    if any(isinstance(a, ArrayValue) for a in args):
        return TupleValue(numpy_divmod(frame, *args))
    if any(hasattr(a.python_type(), "__divmod__") for a in args if a not in known):
        return frame.break_graph("call_unknown", "divmod of objects")
    if any(issubclass(a.python_type(), torch.Tensor) for a in args):
        left, right = (a.python_type().__name__ for a in args)
        frame.raise_new(TypeError, f"unsupported operand type(s) for divmod(): '{left}' and '{right}'")
    return TupleValue([binary(frame, "//", *args), binary(frame, "%", *args)])


def divmod_of_objects(frame, left, right):
    """Objects of the program's classes have methods for it or refuse; what is built in refuses them."""
    for value, other, reverse in order_of_operands(left, right, "__rdivmod__"):
        if isinstance(value, ObjectValue):
            found = implemented(value.special(frame, "__rdivmod__" if reverse else "__divmod__", [other]))
            if found is not None:
                return found
    return frame.raise_new(TypeError, unsupported("divmod()", left.python_type(), right.python_type()))


def not_(frame, args, kwargs):
    return ConstantValue(not args[0].truth(frame))


def prod(frame, args, kwargs):
    total, items = kwargs.get("start", ConstantValue(1)), iterate(frame, args[0])
    while (item := items.next_value(frame)) is not None:
        total = binary(frame, "*", total, item)
        frame.root.turn(frame)
    return total


def math_row(fn):
    """math.fn: on a tensor it reads data; on a size the size is specialised (sqrt of a symbol becomes a guard on it)."""

    def handler(frame, args, kwargs):
        from ..number.size_floats import function_of
        from ..torch.tensor import TensorValue

        if any(isinstance(a, TensorValue) for a in (*args, *kwargs.values())):
            return frame.break_graph("tensor_to_python", f"math.{fn.__name__} of a tensor")
        made = None if kwargs else function_of(frame, fn, args)
        if made is not None:
            return made
        if fn in (math.ceil, math.floor, math.trunc):
            return special_or_fold(frame, fn, f"__{fn.__name__}__", args, kwargs)
        return fold(frame, fn, args, kwargs)

    return handler


def itemgetter_row(frame, args, kwargs):
    from ..plain.iterators import PartialBuiltin

    keys = list(args)

    def get(frame, inner, _):
        from ..plain.sequence import TupleValue

        found = [inner[0].getitem(frame, k) for k in keys]
        return found[0] if len(keys) == 1 else TupleValue(found)

    return PartialBuiltin(operator.itemgetter, get, args)


def attrgetter_row(frame, args, kwargs):
    from ..plain.iterators import PartialBuiltin

    names = [force_plain(frame, a) for a in args]

    def get(frame, inner, _):
        from ..plain.sequence import TupleValue

        found = []
        for name in names:
            value = inner[0]
            for part in name.split("."):
                value = value.getattr(frame, part)
            found.append(value)
        return found[0] if len(names) == 1 else TupleValue(found)

    return PartialBuiltin(operator.attrgetter, get, args)


def length_hint(frame, args, kwargs):
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


def methodcaller_row(frame, args, kwargs):
    from ..plain.iterators import PartialBuiltin

    name, given = force_plain(frame, args[0]), list(args[1:])

    def call(frame, inner, _):
        return inner[0].call_method(frame, name, list(given), dict(kwargs))

    return PartialBuiltin(operator.methodcaller, call, args, kwargs)


ROWS = {
    abs: abs_,
    round: round_,
    min: extremum("<", min),
    max: extremum(">", max),
    sum: sum_,
    pow: pow_,
    divmod: divmod_,
    operator.not_: not_,
    operator.truth: lambda frame, args, kwargs: ConstantValue(args[0].truth(frame)),
    operator.is_: lambda frame, args, kwargs: ConstantValue(same(frame, *args)),
    operator.is_not: lambda frame, args, kwargs: ConstantValue(not same(frame, *args)),
    operator.contains: lambda frame, args, kwargs: args[0].contains(frame, args[1]),
    operator.getitem: lambda frame, args, kwargs: args[0].getitem(frame, args[1]),
    operator.setitem: lambda frame, args, kwargs: none_of(args[0].setitem(frame, args[1], args[2])),
    operator.delitem: lambda frame, args, kwargs: none_of(args[0].delitem(frame, args[1])),
    operator.neg: lambda frame, args, kwargs: args[0].unary(frame, "-"),
    operator.pos: lambda frame, args, kwargs: args[0].unary(frame, "+"),
    operator.invert: lambda frame, args, kwargs: args[0].unary(frame, "~"),
    operator.index: index_of,
    operator.abs: abs_,
    operator.length_hint: length_hint,
    operator.itemgetter: itemgetter_row,
    operator.attrgetter: attrgetter_row,
    operator.methodcaller: methodcaller_row,
    operator.concat: operator_row("+"),
    operator.iconcat: inplace_row("+"),
    operator.countOf: lambda frame, args, kwargs: ConstantValue(sum(equal(frame, i, args[1]) for i in all_of(frame, args[0]))),
    math.prod: prod,
}
calls(ROWS)
for _symbol, _stem in SPECIAL.items():
    call(getattr(operator, {"and": "and_", "or": "or_"}.get(_stem, _stem)))(operator_row(_symbol))
    call(getattr(operator, "i" + _stem))(inplace_row(_symbol))
for _symbol, _name in COMPARE_SPECIAL.items():
    call(getattr(operator, _name.strip("_")))(compare_row(_symbol))
for _name in dir(math):
    _fn = getattr(math, _name)
    if builtins.callable(_fn) and _fn not in CALLS and not _name.startswith("_"):
        call(_fn)(math_row(_fn))

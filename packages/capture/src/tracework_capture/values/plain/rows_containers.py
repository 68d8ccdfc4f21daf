"""len, the constructors of containers and numbers, str, repr, format, range, slice."""

from __future__ import annotations

import collections
import functools
import inspect
import os
import sys
import types

import torch

from ...atoms import NUMPY_NUMBERS
from ...graph.known import known_tensor
from ...guards.classes import lookup_class
from ..arrays.array import ArrayValue
from ..number.floats import FloatValue, float_of
from ..number.late_values import LateValue, late_joined, late_shown, read_late
from ..number.numpy_ints import NumpyInt
from ..number.size_floats import SizeFloat
from ..number.symint import SymNumber
from ..objects.enum_member import EnumMember
from ..objects.function import BoundMethodValue, FunctionValue, NewFunctionValue
from ..objects.instance import ObjectValue, is_atomic, operand_of
from ..objects.namespace import NamespaceValue
from ..objects.partial import partial_, partial_call
from ..objects.rows_attributes import text
from ..protocol.arguments import call_row
from ..protocol.binding import ATOMS
from ..protocol.calls import calls
from ..protocol.constant import ConstantValue, NotPlain, fold, fold_plain, force_plain, plain
from ..protocol.iteration import each_of, iterate_all
from ..protocol.operators import binary
from ..protocol.value import SymbolicRaise, Value
from ..torch.tensor import TensorValue
from ..torch.texts_of_data import format_of_number, number_for, text_of_data
from .instance_dict import InstanceDictValue
from .iterators import PartialBuiltin
from .mapping import METHODS as DICT_METHODS
from .mapping import DictValue, factory_of
from .proxy import proxy_row
from .ranges import RangeValue, SliceValue, as_place
from .sequence import DequeValue, ListValue, TupleValue
from .sets import SetValue, made_set
from .text import OpenText, joined_text, known_text, text_of_size, text_of_sizes
from .text_codecs import break_for_own_codec

NONE = ConstantValue(None)


def len_(frame, args, kwargs):
    return args[0].length(frame)


def list_(frame, args, kwargs):
    return ListValue(iterate_all(frame, args[0], asks_length=True) if args else [])


def tuple_(frame, args, kwargs):
    if args and type(args[0]) is TupleValue and args[0].cls is tuple:
        return args[0]
    return TupleValue(iterate_all(frame, args[0], asks_length=True) if args else [])


def dict_(frame, args, kwargs):
    made = DictValue()
    call_row(frame, made, "update", DICT_METHODS["update"], args, kwargs)
    return made


def ordered_dict(frame, args, kwargs):
    made = DictValue(cls=collections.OrderedDict)
    call_row(frame, made, "update", DICT_METHODS["update"], args, kwargs)
    return made


def defaultdict_(frame, args, kwargs):
    factory = factory_of(frame, args[0]) if args else None
    made = DictValue(cls=collections.defaultdict, default_factory=factory)
    call_row(frame, made, "update", DICT_METHODS["update"], args[1:], kwargs)
    return made


def count_elements(frame, args, kwargs):
    """The loop of collections.Counter that C has."""
    counts = args[0]
    for item in each_of(frame, args[1]):
        before = counts.call_method(frame, "get", [item, ConstantValue(0)], {})
        counts.setitem(frame, item, binary(frame, "+", before, ConstantValue(1)))
    return NONE


def deque_(frame, args, kwargs):
    given = dict(zip(("iterable", "maxlen"), args)) | kwargs
    if len(given) < len(args) + len(kwargs) or not given.keys() <= {"iterable", "maxlen"}:
        return fold(frame, collections.deque, args, kwargs)  # an error
    limit = force_plain(frame, given.get("maxlen", NONE))
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        return fold(frame, collections.deque, [ConstantValue(()), given["maxlen"]])  # an error
    items = iterate_all(frame, given["iterable"]) if "iterable" in given else []
    return DequeValue(items if limit is None else items[len(items) - limit if len(items) > limit else 0 :], maxlen=limit)


def set_(frame, args, kwargs):
    return set_made_of(frame, set, args, kwargs)


def set_made_of(frame, cls, args, kwargs):
    """cls(iterable)"""
    if len(args) > 1 or kwargs:
        return fold(frame, cls, args, kwargs)  # an error
    if not args:
        return SetValue(frame, [], cls=cls)
    return made_set(frame, cls, args[0])


def frozenset_(frame, args, kwargs):
    return set_made_of(frame, frozenset, args, kwargs)


def range_(frame, args, kwargs):
    bounds = [force_plain(frame, as_place(frame, a)) for a in args]
    try:
        return RangeValue(range(*bounds))
    except (TypeError, ValueError) as error:
        return frame.raise_new(type(error), *error.args)


def slice_(frame, args, kwargs):
    if not 1 <= len(args) <= 3 or kwargs:
        return fold(frame, slice, args, kwargs)  # an error
    parts = list(args)
    if len(parts) == 1:
        parts = [NONE, parts[0], NONE]
    return SliceValue(*(parts + [NONE] * (3 - len(parts))))


def number(cls):
    """int, float, complex."""

    def handler(frame, args, kwargs):
        if len(args) != 1 or kwargs:
            return fold(frame, cls, args, kwargs)
        value = args[0]
        if isinstance(value, TensorValue):
            return value.call_method(frame, f"__{cls.__name__}__", [], {})
        if isinstance(value, SymNumber) and cls is int:
            return value
        if isinstance(value, FloatValue) and cls is float:
            return value.as_float()
        if isinstance(value, SymNumber) and cls is float:
            return float_of(frame, value)
        if isinstance(value, SizeFloat) and not value.known and cls is int:
            return value.whole(frame, "trunc")
        name = f"__{cls.__name__}__"
        if not value.is_constant() and not isinstance(value, SymNumber) and hasattr(value.python_type(), name):
            found = value.call_method(frame, name, [], {})
            known = found.python_type() is cls or isinstance(found, SymNumber)
            return found if known else frame.break_graph("builtin_unsupported", f"{name} that does not give {cls.__name__}")
        return fold(frame, cls, args, kwargs)

    return handler


def bool_(frame, args, kwargs):
    if len(args) != 1 or kwargs:
        return fold(frame, bool, args, kwargs)
    data = args[0].tensor if isinstance(args[0], ArrayValue) and not args[0].example.ndim else args[0]
    if type(data) is TensorValue and known_tensor(data.node) is None:
        late = read_late(frame, data, "__bool__")
        if late is not None:
            return late
    return ConstantValue(args[0].truth(frame))


def str_(frame, args, kwargs):
    if len(args) == 1 and not kwargs:
        return shown(frame, args[0], "__str__", str)
    if set(kwargs) == {"object"} and not args:
        return shown(frame, kwargs["object"], "__str__", str)
    return coded(str)(frame, args, kwargs)


def coded(cls):
    """str or bytes of an object, an encoding and an error handler."""

    def row(frame, args, kwargs):
        break_for_own_codec(frame, args[1:], kwargs)
        return fold(frame, cls, args, kwargs)

    return row


def shown_object(frame, value, name, fn):
    """str(value) or repr(value) as the class of an instance says; None where neither it nor the built-in part says."""
    static, owner = lookup_class(value.python_type(), name)
    if isinstance(value, EnumMember) and owner is not object and not isinstance(static, types.FunctionType):
        return value.call_native(frame, name, [], {})
    if value.part is not None and owner in ATOMS and not isinstance(static, types.FunctionType):
        return shown(frame, value.part, name, fn)
    if not isinstance(static, types.FunctionType):
        static, _ = lookup_class(value.python_type(), "__repr__")
        name = "__repr__"
    if isinstance(static, types.FunctionType):
        found = value.call_method(frame, name, [], {})
        if not issubclass(found.python_type(), str):
            frame.break_graph("operation_unknown", f"{name} of {value.describe()} gives no text")
        return found
    if value.part is not None and (is_atomic(value.part) or isinstance(value.part, TupleValue)):
        return shown(frame, value.part, name, fn)
    if value.part is not None and lookup_class(value.python_type(), "__repr__")[0] is not object.__repr__:
        return frame.break_graph("value_not_known", f"text of {value.describe()}")
    return None


def shown(frame, value, name, fn):
    """str(value) or repr(value): constants now, user classes by their own method."""
    from ..objects.exception import ExceptionValue

    if isinstance(value, ExceptionValue):
        return value.shown(frame, fn)
    if isinstance(value, OpenText) and fn is str:
        return value
    if isinstance(value, NamespaceValue):  # its names may change, and its loader and spec are asked
        return frame.break_graph("value_not_known", f"text of {value.describe()}")
    if isinstance(value, LateValue):
        return value if fn is str is value.python_type() else late_shown(frame, value, fn)
    found = shown_object(frame, value, name, fn) if isinstance(value, ObjectValue) else None
    if found is not None:
        return found
    if isinstance(value, NumpyInt) and is_open_number(value):  # which plain() fixes
        return text_of_size(frame, fn, value)
    try:
        return ConstantValue(fold_plain(frame, fn, plain(value)))
    except NotPlain:
        pass
    if is_open_number(value):
        return text_of_size(frame, fn, value)
    if isinstance(value, TupleValue) and value.cls in (tuple, torch.Size) and all_sizes(value):
        known = all(frame.symbols.has_hint(item.expr) for item in value.items if isinstance(item, SymNumber))
        return text_of_sizes(frame, fn, value) if known else SizesText(fn, value)
    if isinstance(value, (TensorValue, ArrayValue)):  # what it holds is another call's data, also where the tensor is known
        return text_of_data(frame, value, fn) or text(frame, value, fn)
    try:
        return ConstantValue(fold_plain(frame, fn, value.real()))
    except LookupError:
        return shown_items(frame, value) or text(frame, value, fn)


BRACKETS = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}")}


def shown_items(frame, value):
    """The text of a list, tuple or dict, whose items' texts their classes make; dots inside of its own. None for other values."""
    if not isinstance(value, (ListValue, TupleValue, DictValue)) or value.python_type() not in BRACKETS:
        return None
    opened, closed = BRACKETS[value.python_type()]
    if any(outer is value for outer in frame.root.shown):
        return ConstantValue(f"{opened}...{closed}")
    frame.root.shown.append(value)
    try:
        items = value.all_items(frame)
        parts = list(texts_between(frame, value, items))
    finally:
        frame.root.shown.pop()
    if [held for *_, held in rows_of(value, value.all_items(frame))] != [held for *_, held in rows_of(value, items)]:
        return frame.break_graph("value_not_known", f"text of {value.describe()}, which changes while it is written")
    parts = [ConstantValue(opened), *parts, ConstantValue(",)" if value.python_type() is tuple and len(items) == 1 else closed)]
    if all(map(known_text, parts)):
        return joined_text(parts)
    return late_joined(parts) if all(known_text(part) or isinstance(part, LateValue) for part in parts) else None


def rows_of(value, items):
    """Each item of a list or tuple as a row of one, each of a dict as key and value."""
    return items if isinstance(value, DictValue) else [(item,) for item in items]


def texts_between(frame, value, items):
    """The texts that stand between the brackets."""
    for number, row in enumerate(rows_of(value, items)):
        if number:
            yield ConstantValue(", ")
        for place, part in enumerate(row):
            if place:
                yield ConstantValue(": ")
            yield shown(frame, part, "__repr__", repr)


def is_open_number(value):
    """Whether the value is a number that is not fixed."""
    if isinstance(value, NumpyInt):
        return not value.is_constant()
    return isinstance(value, SymNumber) or (isinstance(value, FloatValue) and not value.known)


def all_sizes(value):
    """True for a tuple of numbers, some of them symbols."""
    return all(isinstance(item, SymNumber) or (type(item) is ConstantValue and type(item.obj) is int) for item in value.items)


class SizesText(Value):
    """The text of sizes that depend on data, written when the graph has run: messages of checks that hold never ask for it."""

    def __init__(self, fn, sizes):
        super().__init__(None)
        self.fn = fn
        self.sizes = sizes

    def python_type(self):
        return str

    def describe(self):
        return f"text of {self.sizes.describe()}"

    def as_plain(self):
        raise NotPlain(self)

    def compare(self, frame, op, other):
        return frame.break_graph("value_not_known", self.describe())

    def reload(self, emit):
        return f"{emit.const(self.fn)}({emit.load(self.sizes)})"


def repr_(frame, args, kwargs):
    return shown(frame, args[0], "__repr__", repr)


def format_(frame, args, kwargs):
    spec = force_plain(frame, args[1]) if len(args) > 1 else ""
    args = [number_for(frame, args[0]), *args[1:]]
    if isinstance(args[0], ObjectValue) and isinstance(lookup_class(args[0].python_type(), "__format__")[0], types.FunctionType):
        found = args[0].special(frame, "__format__", [ConstantValue(spec)])
        if found.python_type() is str:
            return found
        return frame.raise_new(TypeError, f"__format__ must return a str, not {found.python_type().__name__}")
    if isinstance(args[0], EnumMember) and lookup_class(args[0].python_type(), "__format__")[1] is not object:
        return args[0].call_native(frame, "__format__", [ConstantValue(spec)], {})
    if spec == "" and args[0].python_type() not in NUMPY_NUMBERS:  # of which str() is shorter
        return str_(frame, [args[0]], {})
    if is_open_number(args[0]):
        return text_of_size(frame, format, args[0], spec)
    if isinstance(args[0], LateValue):
        return late_shown(frame, args[0], format, spec)
    late = format_of_number(frame, args[0], spec) if type(args[0]) is ArrayValue and args[0].scalar else None
    return late or fold(frame, format, [operand_of(args[0]), *args[1:]])


def folded(fn):
    return lambda frame, args, kwargs: fold(frame, fn, args, kwargs)


def attributes_given(frame, function):
    """(name, value) of what the program set on a function, on the function of a method, or on an object that is called."""
    function = function.function if isinstance(function, BoundMethodValue) else function
    if isinstance(function, ObjectValue):
        held = InstanceDictValue(function).snapshot(frame).all_items(frame) if hasattr(function.cls, "__dict__") else []
        return [(name.constant(), value) for name, value in held]
    if not isinstance(function, FunctionValue):
        kind = function.python_type()
        if kind is types.FunctionType and not vars(function.real()) or not kind.__dictoffset__:
            return []
        # of a class, or a classmethod, all that is in its __dict__ would be copied
        return frame.break_graph("builtin_unsupported", f"functools.update_wrapper from a {kind.__name__}")
    names = function.attributes if isinstance(function, NewFunctionValue) else vars(function.function)
    return [(name, function.getattr(frame, name)) for name in names]


def arguments_of(frame, function, args, kwargs):
    """The arguments of a call of a Python function by their names, without the defaults."""
    try:
        return inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError as error:
        return frame.break_graph("builtin_unsupported", f"functools.{function.__name__}: {error}")


def update_wrapper(frame, args, kwargs):
    """functools.update_wrapper of a function or an object of a class of the program."""
    given = arguments_of(frame, functools.update_wrapper, args, kwargs)
    wrapper, wrapped = given["wrapper"], given["wrapped"]
    assigned = force_plain(frame, given["assigned"]) if "assigned" in given else functools.WRAPPER_ASSIGNMENTS
    updated = force_plain(frame, given["updated"]) if "updated" in given else functools.WRAPPER_UPDATES
    if not isinstance(wrapper, (FunctionValue, ObjectValue)) or {*updated} - {"__dict__"}:
        return frame.break_graph("builtin_unsupported", f"functools.update_wrapper of {wrapper.describe()}")
    for name in assigned:
        try:
            found = wrapped.getattr(frame, name)
        except SymbolicRaise as raised:
            if not issubclass(raised.value.python_type(), AttributeError):
                raise
            continue  # a partial has no name
        wrapper.setattr(frame, name, found)
    for name, value in attributes_given(frame, wrapped) if updated else ():
        if isinstance(wrapper, ObjectValue):  # past its __setattr__
            wrapper.getattr(frame, "__dict__").setitem(frame, ConstantValue(name), value)
        else:
            wrapper.setattr(frame, name, value)
    wrapper.setattr(frame, "__wrapped__", wrapped)
    return wrapper


def wraps_(frame, args, kwargs):
    """functools.wraps"""
    given = arguments_of(frame, functools.wraps, args, kwargs)
    return PartialBuiltin(functools.partial, lambda frame, inner, others: update_wrapper(frame, inner, given | others))


def method_type(frame, args, kwargs):
    from ..objects.function import BoundMethodValue

    return BoundMethodValue(args[0], args[1])


def namespace(frame, args, kwargs):
    from ..objects.construction import init_namespace

    made = ObjectValue(types.SimpleNamespace)
    init_namespace(frame, made, args, kwargs)
    return made


def fspath(frame, args, kwargs):
    """os.fspath(path)"""
    if args[0].python_type() in (str, bytes):
        return args[0]
    method, _ = lookup_class(args[0].python_type(), "__fspath__")
    if isinstance(args[0], ObjectValue) and isinstance(method, types.FunctionType):
        return args[0].call_method(frame, "__fspath__", [], {})
    return frame.break_graph("builtin_unsupported", f"os.fspath of {args[0].describe()}")


PATHS_IN_C = [f for f in (os.path.normpath, getattr(os.path, "splitroot", None)) if isinstance(f, types.BuiltinFunctionType)]
"""Functions of texts of os.path that newer Pythons have in C."""
ROWS = {
    len: len_,
    list: list_,
    tuple: tuple_,
    dict: dict_,
    collections.OrderedDict: ordered_dict,
    collections.defaultdict: defaultdict_,
    collections.deque: deque_,
    collections._count_elements: count_elements,
    set: set_,
    frozenset: frozenset_,
    range: range_,
    slice: slice_,
    int: number(int),
    float: number(float),
    complex: number(complex),
    bool: bool_,
    str: str_,
    repr: repr_,
    format: format_,
    functools.partial: partial_,
    functools.partial.__call__: partial_call,
    functools.update_wrapper: update_wrapper,
    functools.wraps: wraps_,
    types.SimpleNamespace: namespace,
    types.MethodType: method_type,
    bytes: coded(bytes),
    os.fspath: fspath,
    sys.intern: folded(sys.intern),
    **{function: folded(function) for function in PATHS_IN_C},
    chr: folded(chr),
    ord: folded(ord),
    hex: folded(hex),
    bin: folded(bin),
    oct: folded(oct),
    ascii: folded(ascii),
    types.MappingProxyType: proxy_row,
    str.maketrans: folded(str.maketrans),
    bytes.maketrans: folded(bytes.maketrans),
}
calls(ROWS)

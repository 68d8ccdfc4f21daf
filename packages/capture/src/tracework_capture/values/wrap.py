"""WRAP: Python type -> how an object of it becomes a Value and which guards that takes.

An object is wrapped once per capture: `frame.root.memo` finds the value again by identity, whatever the path.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import inspect
import operator
import re
import threading
import types
import typing
from fractions import Fraction

import numpy
import torch

from .. import _C
from .._torch import patched_by_torch_compile, program_of_triton_operator
from ..atoms import ATOM_TYPES
from ..guards.access import goes_over, plain_part
from ..guards.classes import lookup_class, meet
from ..guards.kinds import REFERENCES, items_in_order, members_of
from ..marks import mark_of
from ..sources import (
    Attr,
    CellContents,
    ClassAttr,
    Closure,
    Const,
    DefaultArg,
    DictItem,
    DictValueAt,
    Global,
    InstanceAttr,
    Item,
    ItemAhead,
    KwDefaultArg,
    Local,
    Member,
    PartItem,
    PlainPart,
)
from .arrays.array import wrap_array
from .arrays.code import wrap_dispatcher
from .arrays.ufuncs import wrap_ufunc
from .number.floats import changing_float
from .number.numpy_ints import NUMPY_INTS, changing_numpy_int
from .number.open_fraction import changing_fraction
from .number.symint import size_value
from .objects.controls import marked_value
from .objects.enum_member import EnumMember
from .objects.exception import ExistingException
from .objects.function import BoundMethodValue, FunctionValue
from .objects.instance import ObjectValue
from .objects.namespace import NamespaceValue
from .objects.partial import PARTS, PartialValue
from .objects.remembered import RememberingFunction
from .objects.row_value import FOREIGN_FUNCTIONS, CFunctionValue, RowValue, is_bound
from .objects.thread_local import ThreadLocalValue
from .objects.weak_reference import WeakReference
from .plain import dict_views, sequence_methods  # noqa: F401  # fill tables
from .plain.iterators import NATIVE_ITERATORS, OVER_SEQUENCES, ExistingIterator, ExistingSequenceIterator
from .plain.mapping import DictValue
from .plain.proxy import wrap_proxy
from .plain.ranges import RangeValue, SliceValue
from .plain.sequence import DequeValue, ListValue, Pending, TupleValue, is_record, pending_items
from .plain.text import changing_text
from .protocol.binding import ATOMS, CONTAINERS, BoundBuiltin, native_base
from .protocol.calls import CALLS, function_name, handler_of_function, row_of
from .protocol.constant import ConstantValue
from .protocol.record_keys import record_key
from .protocol.user_keys import has_user_key
from .torch.context import ErrorRegion
from .torch.foreign_tensor import foreign_tensor, why_foreign
from .torch.graph_functions import is_graph_function
from .torch.regions.flex_attention import wrap_higher_order
from .torch.regions.triton_kernel import existing_kernel
from .torch.subclass import existing_subclass_tensor, is_traced
from .torch.tensor import existing_tensor

# --- existing objects --------------------------------------------------------------------------------------------------


def wrap(frame, obj, source):
    """The value of an existing object; installs its guards."""
    kind = type(obj)
    refuse_unhashable(frame, kind)
    if kind in ATOM_TYPES:
        return wrap_atom(frame, obj, source)
    inside = function_inside(obj, source) if kind is types.FunctionType else None
    if inside is not None:
        return frame.wrap(*inside)
    memo = frame.root.memo
    found = memo.get(id(obj))
    if found is not None:
        return found
    row = WRAP.get(kind) or row_of_subclass(kind)
    value = row(frame, obj, source)
    memo[id(obj)] = value
    frame.root.keep.append(obj)
    return value


def refuse_unhashable(frame, cls):
    """Classes are keys of tables."""
    if type(cls).__hash__ is None:
        frame.break_graph("unhashable_value", f"the class {cls.__qualname__}, which its metaclass makes unhashable")


def wrap_atom(frame, obj, source):
    """Constants, guarded by value. They are rebuilt as constants, so they keep no source, but know where they were found."""
    found = source is not None and type(source) is not Const
    if found:
        if obj is None:
            frame.guard("IS_NONE", source)
        elif type(obj) not in COMPARED_BY_VALUE:
            opened = OPEN_CONSTANTS.get(type(obj)) if isinstance(source, CHANGING) else None
            changed = opened(frame, obj, source) if opened is not None else None
            if changed is not None:
                return changed
            frame.guard("CONSTANT", source, obj)
        else:
            text = type(obj) is str and isinstance(source, CHANGING)
            changed = changing_text(frame, obj, source) if text else dynamic_number(frame, obj, source)
            if changed is not None:
                return changed
            frame.guard("CONSTANT", source, obj)
    return ConstantValue(obj, place=source if found else None)


OPEN_CONSTANTS = {
    **dict.fromkeys((numpy.float64, numpy.float32), changing_float),
    **dict.fromkeys(NUMPY_INTS, changing_numpy_int),
    Fraction: changing_fraction,
}
"""How NumPy's numbers and fractions that change become inputs."""
COMPARED_BY_VALUE = (int, str, bytes, bool, float, complex)


def dynamic_number(frame, obj, source):
    """A size symbol for an int argument, an input for a float, that changed between calls; None when it stays a constant."""
    if type(obj) is float and isinstance(source, CHANGING):
        return changing_float(frame, obj, source)
    if type(obj) is not int or not isinstance(source, CHANGING):
        return None
    lift = getattr(frame.root, "dynamic_number", None)
    return None if lift is None else lift(frame, obj, source)


CHANGING = (
    Local,
    Global,
    Closure,
    Attr,
    Member,
    ClassAttr,
    InstanceAttr,
    DictItem,
    Item,
    ItemAhead,
    PartItem,
    PlainPart,
    CellContents,
    DefaultArg,
    KwDefaultArg,
)
"""Where an int may be a counter or a size."""


def row_of_subclass(kind):
    """The row for a type that has none of its own."""
    for base, row in SUBCLASS_ROWS:
        if issubclass(kind, base):
            return row
    return wrap_object


def wrap_cell(frame, obj, source):
    guard_type(frame, obj, source)
    return frame.existing_cell(obj, Attr(source, "cell_contents"), source)


def guard_type(frame, obj, source):
    frame.guard("TYPE", source, type(obj))


def wrap_list(frame, obj, source):
    guard_type(frame, obj, source)
    return ListValue(pending_items(obj, source), source)


def wrap_tuple(frame, obj, source):
    guard_type(frame, obj, source)
    frame.guard("LENGTH", source, len(obj))
    return TupleValue(pending_items(obj, source), source, type(obj), obj)


def wrap_deque(frame, obj, source):
    guard_type(frame, obj, source)
    return DequeValue(pending_items(obj, source), source, maxlen=guarded_maxlen(frame, obj, source))


def guarded_maxlen(frame, obj, source):
    """The most items that an existing deque, or an instance of a subclass, keeps; None where there is no limit."""
    kind = type(obj)
    if any(lookup_class(kind, name)[0] is not getattr(collections.deque, name) for name in ("maxlen", "__getattribute__")):
        return frame.break_graph(
            "value_not_known", f"maxlen of a deque of the class {kind.__name__}, which reads it in its own way"
        )
    frame.guard("IS_NONE" if obj.maxlen is None else "CONSTANT", Attr(source, "maxlen"), obj.maxlen)
    return obj.maxlen


def wrap_dict(frame, obj, source):
    if any(table == id(obj) for table, _ in frame.root.globals_written):
        frame.break_graph("side_effect_unknown", "a dict is looked at after functions that have it as their globals wrote to it")
    guard_type(frame, obj, source)
    has_an_order(frame, obj)
    factory = None
    if type(obj) is collections.defaultdict and obj.default_factory is not None:
        factory = frame.wrap(obj.default_factory, Attr(source, "default_factory"))
    return DictValue(source, type(obj), obj, factory)


def has_an_order(frame, obj):
    """Breaks where dict's own methods took keys out of an OrderedDict, whose order still has them."""
    try:
        items_in_order(obj)
    except KeyError:
        frame.break_graph("operation_unknown", "an OrderedDict that dict's own methods changed")


def wrap_set(frame, obj, source, cls=None):
    guard_type(frame, obj, source)
    if any(record_key(member) is not None for member in obj):
        frame.break_graph("unhashable_value", "a set of objects that compare by their fields")
    frame.guard("SET_MEMBERS", source, members_of(obj))
    from .plain.sets import SetValue

    made = SetValue(frame, [frame.wrap(m, Const(m)) for m in obj], source, cls or type(obj), order=obj)
    if any(map(has_user_key, made.members)):
        frame.break_graph("unhashable_value", "a set that is there, of objects that define equality themselves")
    return made


def wrap_range(frame, obj, source):
    frame.guard("CONSTANT_RANGE", source, (obj.start, obj.stop, obj.step))
    return RangeValue(obj, source)


def wrap_slice(frame, obj, source):
    guard_type(frame, obj, source)
    return SliceValue(*(frame.wrap(getattr(obj, n), Attr(source, n)) for n in ("start", "stop", "step")), source=source)


def wrap_class(frame, obj, source):
    refuse_unhashable(frame, obj)
    from .objects.class_value import ClassValue

    frame.guard("IDENTITY", source, obj)
    meet(obj)
    return ClassValue(obj, source)


def wrap_enum_member(frame, obj, source):
    frame.guard("IDENTITY", source, obj)
    return EnumMember(obj)


def function_inside(obj, source):
    """(the function that one of torch.compile's wrappers stands for, where it is), None for other functions. The wrapper has no value of
    its own, which would lead to another object than the wrapper."""
    patched = patched_by_torch_compile(obj)
    if patched is not None:
        return patched, Attr(source, "__wrapped__")
    if source is not None and COMPILED_OF in obj.__dict__ and obj.__dict__.get("_torchdynamo_wrapper_id") == id(obj):
        return obj.__dict__[COMPILED_OF], Attr(source, COMPILED_OF)
    return None


def wrap_function(frame, obj, source):
    from .torch.functions import TorchFunctionValue

    mark = mark_of(obj)
    if mark is not None and function_name(obj) not in CALLS:
        return marked_value(frame, obj, source, mark)
    handler = handler_of_function(obj)
    if handler is not None:
        frame.guard("IDENTITY", source, obj)
        return RowValue(obj, handler, source)
    if is_graph_function(obj):
        frame.guard("IDENTITY", source, obj)
        return TorchFunctionValue(obj, source)
    if is_made_anew(source) and _C.runs_its_code(obj):
        frame.guard("CODE", source, obj.__code__)
        return FunctionValue(obj, source, by_identity=False)
    frame.guard("IDENTITY", source, obj)
    return FunctionValue(obj, source)


MADE_ANEW = (
    Local,
    Closure,
    Attr,
    Member,
    InstanceAttr,
    DictItem,
    DictValueAt,
    Item,
    ItemAhead,
    PartItem,
    CellContents,
    DefaultArg,
    KwDefaultArg,
)
"""Where a program may put a function that it makes for each call."""


def is_made_anew(source):
    """Whether a function there may be another one in each call; not in classes, globals and functions that are known by identity."""
    return isinstance(source, MADE_ANEW) and type(source.base) is not Const


COMPILED_OF = "_torchdynamo_inline"
"""Where what torch.compile made of a function keeps the function; wrappers around it have the attribute, too, but another id."""


def wrap_scripted(frame, obj, source):
    """What torch.jit.script made of a function is traced as the function, where that means the same. What torch.jit.trace recorded, which
    has no name, is another program than the function that it came from."""
    known = vars(obj)
    function = known.get(COMPILED_OF) if "__name__" in known else None
    if type(function) is not types.FunctionType or not OTHERWISE_IN_SCRIPT.isdisjoint(function.__code__.co_names):
        return row_of_subclass(type(obj))(frame, obj, source)
    frame.guard("IDENTITY", source, obj)
    inner = FunctionValue(function, Const(function, function.__qualname__))
    return RowValue(obj, inner.call, source)


OTHERWISE_IN_SCRIPT = frozenset({"is_scripting", "print"})
"""Names of what answers otherwise in a scripted function, or writes past Python's files."""


def wrap_builtin(frame, obj, source):
    """C functions, method descriptors, and callables of torch."""
    from .torch.functions import TorchFunctionValue

    if is_bound(obj) and not isinstance(source, Const):
        return wrap_builtin_method(frame, obj, source)
    mark = mark_of(obj)
    if mark is not None:
        return marked_value(frame, obj, source, mark)
    frame.guard("IDENTITY", source, obj)
    row = row_of(obj)
    if row is not None:
        return RowValue(obj, row.handler, source)
    if is_graph_function(obj):
        return triton_program(frame, obj) or TorchFunctionValue(obj, source)
    return CFunctionValue(obj, source)


def wrap_builtin_method(frame, obj, source):
    """x.view, out.append: known by its name, on an owner that is known as any other object."""
    guard_type(frame, obj, source)
    frame.guard("CONSTANT", Attr(source, "__name__"), obj.__name__)
    from .protocol.binding import BoundBuiltin

    method = BoundBuiltin(frame.wrap(obj.__self__, Attr(source, "__self__")), obj.__name__)
    method.source = source
    return method


def wrap_custom_operator(frame, obj, source):
    """What torch.library.custom_op gives: its calls are calls of the operator."""
    from .torch.functions import CustomOperatorValue

    frame.guard("IDENTITY", source, obj)
    return triton_program(frame, obj) or CustomOperatorValue(obj, source)


def triton_program(frame, operator):
    """The function of a torch.library.triton_op, which is traced into; None for other operators and those with a backward of their own."""
    program = program_of_triton_operator(operator)
    return None if program is None else frame.wrap(program, Const(program, program.__qualname__))


def wrap_method(frame, obj, source):
    guard_type(frame, obj, source)
    if isinstance(source, Const):
        function, owner = Const(obj.__func__), Const(obj.__self__)
    else:
        function, owner = Attr(source, "__func__"), Attr(source, "__self__")
    owner_value = frame.wrap(obj.__self__, owner)
    if isinstance(owner_value, ErrorRegion):
        return BoundBuiltin(owner_value, obj.__func__.__name__)
    return BoundMethodValue(frame.wrap(obj.__func__, function), owner_value, source)


def wrap_partial(frame, obj, source):
    guard_type(frame, obj, source)
    return PartialValue([frame.wrap(getattr(obj, name), Attr(source, name)) for name in PARTS], obj, source)


def wrap_getter(frame, obj, source):
    """operator.itemgetter(...) and its like, which nobody can change."""
    frame.guard("IDENTITY", source, obj)
    make, given = obj.__reduce__()
    named = make.keywords if type(make) is functools.partial else {}
    given = [*make.args, *given] if named else given
    args, kwargs = [frame.wrap(a, Const(a)) for a in given], {name: frame.wrap(a, Const(a)) for name, a in named.items()}
    value = CALLS[type(obj)].handler(frame, args, kwargs)
    value.source = source
    return value


def wrap_known(frame, obj, source):
    """Immutable objects that are known by identity (code objects, properties, signatures)."""
    frame.guard("IDENTITY", source, obj)
    return ConstantValue(obj, source)


def wrap_equal(frame, obj, source):
    """Immutable objects of which equal ones do the same (patterns, the limits of a dtype)."""
    frame.guard("CONSTANT", source, obj)
    return ConstantValue(obj, source)


ALIASES = (types.GenericAlias, types.UnionType)


def wrap_alias(frame, obj, source):
    """A generic alias or a union, which is made anew wherever it is written."""
    guard_alias(frame, obj, source)
    return ConstantValue(obj, source)


def guard_alias(frame, obj, source):
    """Its parts one by one: int | str equals str | int."""
    guard_type(frame, obj, source)
    arguments = Attr(source, "__args__")
    frame.guard("LENGTH", arguments, len(obj.__args__))
    parts = [(Item(arguments, place), part) for place, part in enumerate(obj.__args__)]
    if type(obj) is types.GenericAlias:
        parts += [(Attr(source, name), getattr(obj, name)) for name in ("__origin__", "__unpacked__")]
    for place, part in parts:
        if type(part) in ALIASES:
            guard_alias(frame, part, place)
        else:
            frame.guard("CONSTANT" if type(part) in ATOM_TYPES else "IDENTITY", place, part)


def wrap_match(frame, obj, source):
    """What a pattern found while tracing is a constant; one that the program brings is another object in each call."""
    return ConstantValue(obj, source) if type(source) is Const else wrap_object(frame, obj, source)


def wrap_weakref(frame, obj, source):
    guard_type(frame, obj, source)
    return WeakReference(obj, source)


def wrap_cached(frame, obj, source):
    if is_made_anew(source) and type(getattr(obj, "__wrapped__", None)) is types.FunctionType:
        guard_type(frame, obj, source)
        return RememberingFunction(obj, source, by_identity=False)
    frame.guard("IDENTITY", source, obj)
    return RememberingFunction(obj, source)


def wrap_tensor(frame, obj, source):
    why = why_foreign(obj)
    return existing_tensor(frame, obj, source) if why is None else foreign_tensor(frame, obj, source, why)


def wrap_tensor_subclass(frame, obj, source):
    cls = type(obj)
    if cls.__torch_function__ is torch._C._disabled_torch_function_impl and (
        cls.__torch_dispatch__ is torch.Tensor.__torch_dispatch__ or issubclass(cls, (torch.nn.Parameter, torch.nn.Buffer))
    ):
        return wrap_tensor(frame, obj, source)
    if is_traced(cls):
        return existing_subclass_tensor(frame, obj, source)
    return foreign_tensor(frame, obj, source, ("tensor_subclass", f"a {cls.__name__}"))


def wrap_module(frame, obj, source):
    from .torch.module import ModuleValue

    guard_type(frame, obj, source)
    return ModuleValue(type(obj), obj, source)


def wrap_namespace(frame, obj, source):
    if type(obj).__getattribute__ is not types.ModuleType.__getattribute__:  # looking into it runs code of the user
        return wrap_object(frame, obj, source)
    frame.guard("IDENTITY", source, obj)
    guard_type(frame, obj, source)
    return NamespaceValue(obj, source)


def wrap_container_subclass(frame, obj, source):
    """An instance of a user's subclass of a built-in container."""
    kind = type(obj)
    if is_record(kind) or issubclass(kind, tuple) and kind.__module__ == "torch.return_types":
        return wrap_tuple(frame, obj, source)
    guard_type(frame, obj, source)
    native = native_base(kind)
    if issubclass(native, dict):
        has_an_order(frame, obj)
        part = DictValue(source, native, obj)
        if native is collections.defaultdict:
            place = collections.defaultdict.default_factory
            factory = frame.wrap(place.__get__(obj), Member(source, place))
            part.default_factory = None if factory.is_constant() else factory
    elif native in (list, tuple, collections.deque):
        if native is tuple:
            frame.guard("LENGTH", source, tuple.__len__(obj))
        items = [Pending(item, PartItem(source, i)) for i, item in enumerate(native.__iter__(obj))]
        if native is collections.deque:
            if lookup_class(kind, "__len__")[1] is not native:  # which a guard would call
                frame.break_graph("value_not_known", f"a deque of the class {kind.__name__}, which has its own length")
            part = DequeValue(items, source, maxlen=guarded_maxlen(frame, obj, source))
        else:
            part = {list: ListValue, tuple: TupleValue}[native](items, source)
    else:
        if any(lookup_class(kind, name)[1] is not native for name in ("__iter__", "__len__", "__contains__", "copy")):
            frame.break_graph("iterator_unsupported", f"a set of the class {kind.__name__}, which goes over it in its own way")
        part = wrap_set(frame, obj, source, native)
    return ObjectValue(kind, obj, source, part)


def wrap_atom_subclass(frame, obj, source):
    """An instance of a user's subclass of int, float, str or bytes."""
    guard_type(frame, obj, source)
    meet(type(obj))
    return ObjectValue(type(obj), obj, source, frame.wrap(plain_part(obj), PlainPart(source)))


def wrap_symint(frame, obj, source):
    return size_value(frame, obj)


def iterator_to_ask(frame, obj, source):
    """The value of an existing iterator that can be asked here; else None."""
    if type(obj) in OVER_SEQUENCES and type(source) is not Const:
        try:
            goes_over(obj)
        except LookupError:
            return None
        return ExistingSequenceIterator(obj, source)
    return frame.root.services.unstarted_generator(frame, obj, source)


def wrap_object(frame, obj, source):
    """Everything else: an instance known by its type, read attribute by attribute."""
    from .torch.context import existing_context

    if issubclass(type(obj), BaseException):
        guard_type(frame, obj, source)
        return ExistingException(obj, source)
    if type(obj).__name__ in FOREIGN_FUNCTIONS:
        return wrap_builtin(frame, obj, source)
    if type(obj) in NATIVE_ITERATORS:
        guard_type(frame, obj, source)
        return iterator_to_ask(frame, obj, source) or ExistingIterator(obj, source)
    made = existing_context(frame, obj, source) or existing_kernel(frame, obj, source)
    if made is not None:
        return made
    guard_type(frame, obj, source)
    meet(type(obj))
    return (ThreadLocalValue if type(obj) is threading.local else ObjectValue)(type(obj), obj, source)


# --- tables --------------------------------------------------------------------------------------------------------------

WRAP = {
    list: wrap_list,
    tuple: wrap_tuple,
    torch.Size: wrap_tuple,
    collections.deque: wrap_deque,
    dict: wrap_dict,
    collections.OrderedDict: wrap_dict,
    collections.defaultdict: wrap_dict,
    types.MappingProxyType: wrap_proxy,
    set: wrap_set,
    frozenset: wrap_set,
    range: wrap_range,
    slice: wrap_slice,
    re.Match: wrap_match,
    **dict.fromkeys(REFERENCES, wrap_weakref),
    functools._lru_cache_wrapper: wrap_cached,
    types.FunctionType: wrap_function,
    types.CellType: wrap_cell,
    types.BuiltinFunctionType: wrap_builtin,
    types.MethodDescriptorType: wrap_builtin,
    types.WrapperDescriptorType: wrap_builtin,
    types.MethodWrapperType: wrap_builtin,
    types.ClassMethodDescriptorType: wrap_builtin,
    types.MethodType: wrap_method,
    functools.partial: wrap_partial,
    **dict.fromkeys((operator.attrgetter, operator.itemgetter, operator.methodcaller), wrap_getter),
    types.ModuleType: wrap_namespace,
    torch.Tensor: wrap_tensor,
    torch.nn.Parameter: wrap_tensor,
    torch.SymInt: wrap_symint,
    torch.jit.ScriptFunction: wrap_scripted,
    numpy.ufunc: wrap_ufunc,
    type(numpy.prod): wrap_dispatcher,
    numpy.ndarray: wrap_array,
    torch._ops.OpOverload: wrap_builtin,
    torch._ops.OpOverloadPacket: wrap_builtin,
    **dict.fromkeys((re.Pattern, torch.finfo, torch.iinfo), wrap_equal),
    **dict.fromkeys(ALIASES, wrap_alias),
    **{
        t: wrap_known
        for t in (
            types.CodeType,
            inspect.Signature,
            inspect.Parameter,
            dataclasses.Field,
            property,
            types.GetSetDescriptorType,
            types.MemberDescriptorType,
            typing.TypeVar,
            type(typing.Any),
            type(typing.Optional[int]),  # noqa: UP045
            type(dataclasses.MISSING),
            classmethod,
            staticmethod,
            numpy.finfo,
            numpy.iinfo,
        )
    },
}
SUBCLASS_ROWS = (
    (enum.Enum, wrap_enum_member),
    (type, wrap_class),
    (torch.nn.Module, wrap_module),
    (torch.Tensor, wrap_tensor_subclass),
    (types.ModuleType, wrap_namespace),
    (torch._ops.OpOverload, wrap_builtin),
    (torch._ops.HigherOrderOperator, wrap_higher_order),
    (torch._library.custom_ops.CustomOpDef, wrap_custom_operator),
    (CONTAINERS, wrap_container_subclass),
    (ATOMS, wrap_atom_subclass),
)

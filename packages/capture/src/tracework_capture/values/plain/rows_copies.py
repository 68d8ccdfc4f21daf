"""copy.copy and copy.deepcopy: new containers, instances, modules and tensors from those that are there."""

from __future__ import annotations

import collections
import copy
import copyreg
import marshal
import pickle
import types
import weakref

import torch

from ..objects.class_value import ClassValue, class_value, new_object
from ..objects.instance import ObjectValue, is_atomic
from ..protocol.binding import function_value, native_base, python_new
from ..protocol.calls import breaks, calls
from ..protocol.constant import ConstantValue
from ..protocol.iteration import iterate_all
from ..protocol.program_code import check_frame_hooks
from ..torch.leaf_changes import PLAIN
from ..torch.module import ModuleValue, is_none
from ..torch.parameter import parameter_row
from ..torch.tensor import TensorValue
from .instance_dict import InstanceDictValue
from .mapping import DictValue, dict_of
from .sequence import NONE, ListValue, SequenceValue, TupleValue
from .sets import SetValue

COPIED_AS_THEMSELVES = (types.FunctionType, types.BuiltinFunctionType, property, range, weakref.ref)
"""Beside constants and classes; so are tuples by copy.copy."""


def is_its_own_copy(value):
    return value.is_constant() or isinstance(value, ClassValue) or value.python_type() in COPIED_AS_THEMSELVES


def copy_(frame, args, kwargs):
    value = args[0]
    if is_its_own_copy(value) or isinstance(value, TupleValue):
        return value

    if isinstance(value, InstanceDictValue):
        return value.snapshot(frame)
    hook = getattr(value.python_type(), "__copy__", None)
    if isinstance(hook, types.FunctionType):
        return value.call_method(frame, "__copy__", [], {})
    if value.python_type() in copyreg.dispatch_table:
        return frame.break_graph("builtin_unsupported", f"copy of {value.describe()}")
    if isinstance(value, DictValue) and has_attributes(value):  # an OrderedDict has some, too
        return frame.break_graph("builtin_unsupported", f"copy of {value.describe()} with attributes")
    if isinstance(value, (SequenceValue, DictValue, SetValue)):
        return value.call_method(frame, "copy", [], {})
    return copy_object(frame, value, lambda v: v)


def copy_of_subclass(frame, value):
    """value.copy() of an instance of a subclass of OrderedDict, defaultdict or deque: the class is called."""
    native, cls = native_base(value.cls), class_value(frame, value.cls)
    if native is collections.OrderedDict:
        made = cls.call(frame, [], {})
        for key in value.part.unpack(frame):
            made.setitem(frame, key, value.getitem(frame, key))
        return made
    if native is collections.defaultdict:
        return cls.call(frame, [value.part.default_factory or NONE, value], {})
    maxlen = value.part.getattr(frame, "maxlen")
    return cls.call(frame, [value] if is_none(maxlen) else [value, maxlen], {})


OWN_COPIES = ("__copy__", "__deepcopy__", "__getnewargs__", "__getnewargs_ex__", "__setstate__", "__slots__")
LIKE_OBJECT = ("__reduce__", "__reduce_ex__", *(("__getstate__",) if hasattr(object, "__getstate__") else ()))


REDUCED_AS_OBJECTS = (object, int, float, str, bytes, complex, list, dict)
"""Built-in classes of whose subclasses an instance is copied as one of a class of the program: __new__ with the number or text, fields, items."""


def copied_its_own_way(cls):
    """Whether a copy of an instance is more than a new one with the same fields and items."""
    native = native_base(cls)
    if native not in REDUCED_AS_OBJECTS or cls in copyreg.dispatch_table or not cls.__dictoffset__:
        return True
    names = (*OWN_COPIES, *LIKE_OBJECT)
    own = [n for n in names if getattr(cls, n, None) is not getattr(native, n, None)]
    return bool(own) or hasattr(cls, "__getattr__") or not hasattr(object, "__getstate__") and hasattr(cls, "__getstate__")


def has_a_state(cls):
    """Whether an instance is copied by __getstate__ and __setstate__ of Python, in the way of nn.Module."""
    own = set(OWN_COPIES) - {"__setstate__"}
    others = [n for n in own if hasattr(cls, n)] + [
        n for n in ("__reduce__", "__reduce_ex__") if getattr(cls, n) is not getattr(object, n)
    ]
    found = getattr(cls, "__getattr__", torch.nn.Module.__getattr__) is not torch.nn.Module.__getattr__
    states = (getattr(cls, n, None) for n in ("__getstate__", "__setstate__"))
    if others or found or cls in copyreg.dispatch_table or python_new(cls) is not None:
        return False
    return all(isinstance(state, types.FunctionType) for state in states)


def new_like(frame, value):
    """cls.__new__(cls), with the number or the text that the instance `value` of cls is one of."""
    given = [class_value(frame, value.cls), *([value.part] if value.part is not None and is_atomic(value.part) else [])]
    new = python_new(value.cls)
    if new is None:
        return ObjectValue(value.cls) if value.part is None else new_object(frame, given, {})
    made = function_value(frame, new).call(frame, given, {})
    if type(made) is not ObjectValue or made.cls is not value.cls:
        return frame.break_graph("builtin_unsupported", f"copy of {value.describe()}, whose __new__ gives something else")
    return made


def copy_object(frame, value, copy_field):
    """A new instance with the same fields, number or text, and items."""
    kind = type(value)
    if kind is ModuleValue:
        check_frame_hooks(frame.root, value)
    if kind in (ObjectValue, ModuleValue) and value.part is None and has_a_state(value.cls):
        state, made = value.call_method(frame, "__getstate__", [], {}), ObjectValue(value.cls)
        made.call_method(frame, "__setstate__", [copy_field(state)], {})
        return made
    if kind is not ObjectValue or copied_its_own_way(value.cls):
        return frame.break_graph("builtin_unsupported", f"copy of {value.describe()}")
    made = new_like(frame, value)
    fields = InstanceDictValue(value)
    if value.cls.__getattribute__ is not object.__getattribute__:  # copy asks it for both dicts
        fields = value.getattr(frame, "__dict__")
        own = isinstance(fields, InstanceDictValue) and fields.owner is value
        if not own or not isinstance(made.getattr(frame, "__dict__"), InstanceDictValue):
            return frame.break_graph("builtin_unsupported", f"copy of {value.describe()}, whose __dict__ is not its own")
    for key, found in fields.snapshot(frame).all_items(frame):
        made.set_field(frame, key.constant(), copy_field(found))
    for item in iterate_all(frame, value) if isinstance(value.part, ListValue) else ():
        made.call_method(frame, "append", [copy_field(item)], {})
    for pair in iterate_all(frame, value.call_method(frame, "items", [], {})) if isinstance(value.part, DictValue) else ():
        made.setitem(frame, *map(copy_field, pair.unpack(frame)))
    return made


def deepcopy_(frame, args, kwargs):
    if len(args) > 1 or kwargs:
        return frame.break_graph("builtin_unsupported", "copy.deepcopy with a memo")
    return deep(frame, args[0], {})


def deep(frame, value, memo):
    """copy.deepcopy of simple structures; `memo` keeps what was shared shared, and alive what its keys are the ids of."""
    if id(value) not in memo:
        if isinstance(value, TensorValue) and value.python_type() is torch.Tensor:
            storage = value.example.storage
            if id(storage) in memo:
                return frame.break_graph("builtin_unsupported", "copy.deepcopy of tensors that share memory")
            memo[id(storage)] = storage, NONE
        memo[id(value)] = value, deep_unshared(frame, value, lambda v: deep(frame, v, memo))
    return memo[id(value)][1]


def deep_unshared(frame, value, again):
    """One level; `again` copies a part."""
    if is_its_own_copy(value):
        return value
    if value.python_type() in copyreg.dispatch_table:
        return frame.break_graph("builtin_unsupported", f"copy.deepcopy of {value.describe()}")
    if isinstance(value, TensorValue):
        return deep_tensor(frame, value)
    if isinstance(value, SequenceValue):
        return value.sliced([again(i) for i in value.all_items(frame)])
    if isinstance(value, InstanceDictValue):
        value = value.snapshot(frame)
    if isinstance(value, DictValue) and value.cls is dict:
        return dict_of(frame, [(k, again(v)) for k, v in value.all_items(frame)])
    if isinstance(value, SetValue) and value.python_type() is set and all(v.is_constant() for v in value.unpack(frame)):
        return value.call_method(frame, "copy", [], {})
    if isinstance(value, DictValue) and value.cls is collections.OrderedDict and not has_attributes(value):
        made = value.call_method(frame, "copy", [], {})
        for key, found in value.all_items(frame):
            made.store(frame, key, again(found))
        return made
    hook = getattr(value.python_type(), "__deepcopy__", None)
    if isinstance(hook, types.FunctionType):
        return value.call_method(frame, "__deepcopy__", [dict_of(frame, [])], {})
    return copy_object(frame, value, again)


def has_attributes(value):
    return bool(value.attributes or getattr(value.obj, "__dict__", None))


def fills_its_memory(tensor):
    """Whether a dense tensor is all that its memory has room for, which a copy has as well."""
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.itemsize


def deep_tensor(frame, value):
    """copy.deepcopy of a parameter, or of another leaf that fills its memory and has nothing else to it."""
    from tracework_primops.broadcasting import is_dense  # primops is imported when the first graph is made

    if frame.root.function_modes:
        return frame.break_graph("function_mode", "copy.deepcopy of a tensor")
    example, kind = value.example, value.python_type()
    spec, asks = example.spec, example.requires_grad
    if kind not in PLAIN or asks and not value.is_leaf() or frame.root.transforms or value.hooks or value.versions:
        return frame.break_graph("builtin_unsupported", f"copy.deepcopy of {value.describe()}, which is no plain leaf")
    made = frame.graph.call_method(frame, "clone", (frame.graph.call(frame, getattr, (value, "data")),))
    if kind is torch.nn.Parameter:
        return parameter_row(frame, [made, ConstantValue(asks)], {})
    whole = is_dense(spec.sizes, spec.strides) and not example._is_view() and not (type(spec.offset) is int and spec.offset)
    first = example.storage.first  # of what was resized there is more
    whole = whole and (first is None or tuple(first.sizes) == tuple(spec.sizes))
    if whole and value.obj is not None:
        whole = fills_its_memory(value.obj)
        frame.guard("RELATION", value.source, (fills_its_memory, (value.source,)))
    if has_attributes(value) or not whole or not is_none(value.getattr(frame, "grad")):
        return frame.break_graph("builtin_unsupported", f"copy.deepcopy of {value.describe()}, with more than its data")
    return made.call_method(frame, "requires_grad_", [], {}) if asks else made


SERIALIZING = (pickle.dumps, pickle.dump, pickle.loads, pickle.load, marshal.dumps, marshal.dump, marshal.loads, marshal.load)
calls({copy.copy: copy_, copy.deepcopy: deepcopy_})
breaks("serialization", memoryview)
for _fn in SERIALIZING:
    breaks("serialization", _fn, within=_fn.__module__.lstrip("_"))

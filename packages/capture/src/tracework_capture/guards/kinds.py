"""GUARD_KINDS: what each kind of guard checks natively, the same check in Python, and what it says when it fails.

A kind's native leaf is a name in _C.LEAVES; `native` turns the payload into what the leaf wants. `check` is the definition: the
native leaf must agree with it.
"""

import abc
import collections
import locale
import math
import operator
import sys
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from .. import _C, _torch
from ..arrays import array_errors
from ..errors import GuardBuildError
from ..sources import Const, DictItem, text_of
from ..weakly_held import held
from .finalizers import acts, dies_unseen
from .guard import GuardSet, TensorFacts


def same_constant(value: Any, wanted: Any) -> bool:
    """Exact type and value: 1, 1.0 and True differ, nan equals nan, -0.0 differs from 0.0; tuples item by item."""
    if value is wanted:
        return True
    if type(value) is not type(wanted):
        return False
    if type(value) is float:
        return (math.isnan(value) and math.isnan(wanted)) or (
            value == wanted and math.copysign(1, value) == math.copysign(1, wanted)
        )
    if type(value) is complex:
        return same_constant(value.real, wanted.real) and same_constant(value.imag, wanted.imag)
    if isinstance(value, numpy.generic):
        return bool(value.tobytes() == wanted.tobytes())
    if type(value) is tuple:
        return len(value) == len(wanted) and all(map(same_constant, value, wanted))
    return bool(value == wanted)


def tensor_sizes(value: Any, facts: TensorFacts) -> tuple[int, ...] | None:
    """The sizes of a tensor that fits the facts, None when it does not: the slow way, through attributes."""
    if type(value) is not facts.type or value.dtype != facts.dtype or value.requires_grad != facts.requires_grad:
        return None
    if value.device != facts.device or (facts.layout is not None and value.layout != facts.layout):
        return None
    if facts.dispatch_keys and _torch.tensors.dispatch_keys(value) != facts.dispatch_keys:
        return None
    sizes = tuple(value.shape)
    if len(sizes) != len(facts.sizes) or any(want is not None and want != n for n, want in zip(sizes, facts.sizes)):
        return None
    if facts.strides is not None and value.layout is torch.strided:
        for size, stride, want in zip(sizes, value.stride(), facts.strides):
            if size > 1 and want is not None and stride != want:
                return None
    return sizes


def items_in_order(value: Any) -> tuple[tuple[Any, Any], ...]:
    """The items of a dict, past what its class overrides; an OrderedDict keeps their order beside the table of the dict."""
    kind = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
    return tuple(kind.items(value) if isinstance(value, kind) else value.items())


def data_of(tensor: torch.Tensor) -> bytes:
    """The payload of DATA: the elements of a tensor on the CPU, in the order of its dims."""
    return tensor.numpy().tobytes()


def _has_data(value: Any, data: bytes) -> bool:
    return type(value) is torch.Tensor and value.device.type == "cpu" and data_of(value) == data


def _data_text(value: Any, data: bytes) -> str:
    if type(value) is not torch.Tensor or value.device.type != "cpu":
        return f"is {short(value)}"
    then = numpy.frombuffer(data, value.numpy().dtype).tolist()
    return f"holds {value.flatten().tolist()}, held {then}"


REFERENCES = (weakref.ref, weakref.KeyedRef)
ATOMS = (type(None), bool, int, float, complex, str, bytes, *REFERENCES)
"""Types of objects that hold no others alive."""


class ReferenceTo(weakref.ref):  # type: ignore[type-arg]
    """Equals the weak references to an object that a dict has as keys, and holds no callback of theirs."""

    __slots__ = ()


def weak_key(key: Any) -> Any:
    """What guards hold of a key of a dict: what may die weakly, unless others may equal it, and so what weak references refer to."""
    if type(key) in REFERENCES:
        target = key()
        return key if target is None else ReferenceTo(target)
    cls: Any = type(key)
    return held(key) if cls.__eq__ is object.__eq__ else key


def _same_key(key: Any, wanted: Any) -> bool:
    if type(wanted) is _C.WeakKey:
        return key is not None and key is wanted()
    return same_constant(key, wanted)


def _keys(value: Any, keys: Any) -> bool:
    now = items_in_order(value)
    return len(now) == len(keys) and all(_same_key(key, wanted) for (key, _), wanted in zip(now, keys))


def _length(value: Any) -> int:
    """The length of a container, whatever a subclass says."""
    if isinstance(value, tuple):
        return tuple.__len__(value)
    if isinstance(value, list):
        return list.__len__(value)
    return len(value)


def _has_key(value: Any, key: Any) -> bool:
    if type(key) is _C.WeakKey and (key := key()) is None:
        return False
    return dict.__contains__(value, key) if isinstance(value, dict) else key in value


def _has_attribute(value: Any, name: str) -> bool:
    return hasattr(value, name)


def _code(value: Any, code: Any) -> bool:
    return isinstance(value, types.FunctionType) and value.__code__ is code and _C.runs_its_code(value)


def members_of(value: Any) -> tuple[Any, ...]:
    """The payload of SET_MEMBERS: in the order that the set has them in, which depends on how it came about."""
    return tuple(map(held, _going_over(value)))


def _going_over(value: Any) -> Any:
    """An iterator over a set, past what its class may have in the place of that."""
    return frozenset.__iter__(value) if isinstance(value, frozenset) else set.__iter__(value)


def _members(value: Any, members: Any) -> bool:
    if not isinstance(value, (set, frozenset)):
        return False
    there = tuple(_going_over(value))
    return len(there) == len(members) and all(map(_same_key, there, members))


def _range(value: Any, bounds: tuple[int, int, int]) -> bool:
    return type(value) is range and (value.start, value.stop, value.step) == bounds


TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": operator.contains,
}
"""What a TEXT guard may ask of a str; its payload is (name, operand, answer)."""


def _text(value: Any, test: tuple[str, str, bool]) -> bool:
    return type(value) is str and TEXT_TESTS[test[0]](value, test[1]) is test[2]


COMPARE_FUNCTIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""Comparison -> its function. An ORDER guard asks one of a float; its payload is (name, number, answer)."""


def _order(value: Any, test: tuple[str, float, bool]) -> bool:
    return type(value) is float and COMPARE_FUNCTIONS[test[0]](value, test[1]) is test[2]


def short(value: Any) -> str:
    """Text of a value of the program, of which no code runs."""
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return f"a {value.dtype} tensor of shape {tuple(value.shape)} on {value.device}"
    try:
        text = text_of(value)
    except ValueError:  # an int too long to be written
        text = f"a {type(value).__qualname__} without a repr"
    return text if len(text) <= 100 else text[:97] + "..."


def _tensor_text(value: Any, facts: TensorFacts) -> str:
    """Which fact differs."""
    if type(value) is not facts.type:
        return f"is a {type(value).__name__}, was a {facts.type.__name__}"
    pairs = [(name, getattr(value, name), getattr(facts, name)) for name in ("dtype", "device", "requires_grad", "layout")]
    for name, now, then in pairs:
        if then is not None and now != then:
            return f"has {name} {now}, had {then}"
    sizes = tuple(value.shape)
    if len(sizes) != len(facts.sizes):
        return f"has {len(sizes)} dims, had {len(facts.sizes)}"
    for dim, (now, then) in enumerate(zip(sizes, facts.sizes)):
        if then is not None and now != then:
            return f"has size {now} in dim {dim}, had {then}"
    return f"has strides {tuple(value.stride())}, had {facts.strides}"


def _pair(value: Any, payload: Any) -> str:
    return f"is {short(value)}, was {short(payload)}"


@dataclass(frozen=True)
class GuardKind:
    """One row. `native` is None where the payload goes to the leaf as it is."""

    leaf: str
    check: Callable[[Any, Any], bool]
    text: Callable[[Any, Any], str] = _pair
    native: Callable[[Any], Any] | None = None


def _python_leaf(check: Callable[[Any, Any], bool]) -> Callable[[Any], Any]:
    return lambda payload: lambda value: check(value, payload)


def _not_subclass(kind: Any) -> Callable[[Any], bool]:
    """The check in native programs: asks again only when some class was registered with an abstract one."""
    asked: Any = None

    def holds(cls: Any) -> bool:
        nonlocal asked
        now = abc.get_cache_token()
        if now != asked and not issubclass(kind, cls):
            asked = now
        return bool(now == asked)

    return holds


GUARD_KINDS: dict[str, GuardKind] = {
    "TYPE": GuardKind("TYPE", lambda v, p: type(v) is p, lambda v, p: f"has type {type(v).__qualname__}, had {p.__qualname__}"),
    "IDENTITY": GuardKind("IDENTITY", lambda v, p: v is p, lambda v, p: f"is another object: {short(v)}, was {short(p)}"),
    "NOT_IDENTITY": GuardKind("NOT_IDENTITY", lambda v, p: v is not p, lambda v, p: f"is now {short(p)}"),
    "IS_NONE": GuardKind("IDENTITY", lambda v, p: v is None, lambda v, p: f"is {short(v)}, was None", lambda p: None),
    "NOT_NONE": GuardKind("NOT_IDENTITY", lambda v, p: v is not None, lambda v, p: "is None, was not", lambda p: None),
    "CONSTANT": GuardKind("CONSTANT", same_constant),
    "STATE": GuardKind("CONSTANT", same_constant),
    "TENSOR": GuardKind("TENSOR", lambda v, p: tensor_sizes(v, p) is not None, _tensor_text),
    "DATA": GuardKind("DATA", _has_data, _data_text, lambda p: (p, lambda value: _has_data(value, p))),
    "LENGTH": GuardKind("LENGTH", lambda v, p: _length(v) == p, lambda v, p: f"has length {_length(v)}, had {p}"),
    "DICT_KEYS": GuardKind("DICT_KEYS", _keys, lambda v, p: f"has keys {short(tuple(v))}, had {short(p)}", tuple),
    "DICT_HAS": GuardKind("HAS_KEY", _has_key, lambda v, p: f"lacks key {short(p)}"),
    "DICT_LACKS": GuardKind("LACKS_KEY", lambda v, p: not _has_key(v, p), lambda v, p: f"now has key {short(p)}"),
    "TRUTH": GuardKind("TRUTH", lambda v, p: bool(v) is p, lambda v, p: f"is {bool(v)} as a condition, was {p}"),
    "HAS_ATTR": GuardKind("HAS_ATTR", _has_attribute, lambda v, p: f"lacks attribute {p}"),
    "LACKS_ATTR": GuardKind("LACKS_ATTR", lambda v, p: not _has_attribute(v, p), lambda v, p: f"now has attribute {p}"),
    "CODE": GuardKind("FUNCTION_CODE", _code, lambda v, p: f"runs other code than {p.co_qualname}"),
    "SET_MEMBERS": GuardKind("PYTHON", _members, native=_python_leaf(_members)),
    "TEXT": GuardKind("PYTHON", _text, lambda v, p: f"is {short(v)}: {p[0]} {p[1]!r} was {p[2]}", _python_leaf(_text)),
    "ORDER": GuardKind("PYTHON", _order, lambda v, p: f"is {short(v)}: {p[0]} {p[1]!r} was {p[2]}", _python_leaf(_order)),
    "NOT_SUBCLASS": GuardKind(
        "PYTHON",
        lambda v, p: not issubclass(p, v),
        lambda v, p: f"has {p.__qualname__} among its subclasses now",
        _not_subclass,
    ),
    "DATA_PTR": GuardKind(
        "PYTHON",
        lambda v, p: v.data_ptr() == p,
        lambda v, p: "lies at another address",
        _python_leaf(lambda v, p: v.data_ptr() == p),
    ),
    "DIES_UNSEEN": GuardKind(
        "DIES_UNSEEN",
        dies_unseen,
        lambda v, p: f"holds what somebody notices the death of{'' if p in (None, True) else f', at {p}'}",
        lambda p: (p, acts),
    ),
    "CONSTANT_RANGE": GuardKind("PYTHON", _range, native=_python_leaf(_range)),
    "CLASSES": GuardKind(
        "PYTHON", lambda v, p: p.hold(), lambda v, p: f"{p.changed()} was changed on its class", lambda p: p.native()
    ),
    "PREDICATE": GuardKind(
        "PYTHON", lambda v, p: bool(p(v)), lambda v, p: f"is {short(v)}: {getattr(p, '__doc__', None) or p} is false"
    ),
}
"""Three more kinds are about values of several sources and are handled by the program itself: SAME (payload: the other source),
DISTINCT (payload: tuple of sources, all different objects) and RELATION (payload: what is true of the values, at most MOST_RELATED
sources)."""

MOST_RELATED = 8  # TW_RELATION_LIMIT


def current_locale() -> str:
    """The locale of every category, as C names them."""
    return locale.setlocale(locale.LC_ALL)


STATES: dict[str, Callable[[], Any]] = {
    "grad_mode": torch.is_grad_enabled,
    "inference_mode": torch.is_inference_mode_enabled,
    "default_dtype": torch.get_default_dtype,
    "num_threads": torch.get_num_threads,
    "deterministic": _torch.settings.deterministic_state,
    "deterministic_warn_only": torch.is_deterministic_algorithms_warn_only_enabled,
    "any_autocast": _torch.settings.any_autocast,
    "autocast": _torch.settings.autocast_state,
    "function_modes": _torch.modes.all_function_mode_count,
    "users_function_modes": _torch.modes.users_function_modes,
    "torch_functions_off_for": _torch.modes.torch_functions_off_for,
    "dispatch_modes": _torch.modes.dispatch_mode_count,
    "jit_trace": _torch.modes.under_jit_trace,
    "transform_level": _torch.autograd.transform_level,
    "default_device": _torch.modes.default_device,
    "cuda_device": _torch.modes.cuda_device,
    "cuda_initialized": torch.cuda.is_initialized,
    "distributed": _torch.distributed.distributed_is_initialized,
    "default_group": _torch.distributed.default_group,
    "handlers_of_distributed": _torch.distributed.handlers_of_distributed,
    "onnx_export": _torch.modes.under_onnx_export,
    "fx_tracing": _torch.modes.under_fx_tracing,
    **{name: read for name, (read, _) in _torch.settings.FLAGS.items()},
    "numpy_errors": array_errors,
    "saved_tensor_hooks": _torch.autograd.any_saved_tensor_hooks,
    "recursion_limit": sys.getrecursionlimit,
    "locale": current_locale,
}
"""Interpreter-wide torch state: name -> how to read it."""

NATIVE_STATES: dict[str, Callable[[], Any]] = STATES | {"function_modes": _torch.modes.function_mode_count}
"""The same for the native program, which never runs while modes are set aside."""

ALWAYS_GUARDED = (
    "grad_mode",
    "inference_mode",
    "default_dtype",
    "num_threads",
    "deterministic",
    "any_autocast",
    "function_modes",
    "dispatch_modes",
    "jit_trace",
)


def record_ambient(guards: GuardSet) -> None:
    """Guards the state that any graph depends on, as it is now."""
    for name in ALWAYS_GUARDED:
        guards.state(name, STATES[name]())
    guards.record("CONSTANT", DictItem(Const(_torch.autograd.FORWARD_AD, "torch.autograd.forward_ad"), "_current_level"), -1)
    if _torch.settings.deterministic_state():
        for name in ("deterministic_warn_only", "deterministic_fill_uninitialized_memory"):
            guards.state(name, STATES[name]())
    if _torch.settings.any_autocast():
        guards.state("autocast", STATES["autocast"]())
    if _torch.modes.all_function_mode_count():
        guards.state("default_device", STATES["default_device"]())


def kind_of(name: str) -> GuardKind:
    """The row of a kind; GuardBuildError names what is known."""
    row = GUARD_KINDS.get(name)
    if row is None:
        raise GuardBuildError(
            f"guard kind {name!r} is not in GUARD_KINDS; known: {', '.join(sorted(GUARD_KINDS))}, SAME, DISTINCT, RELATION"
        )
    return row

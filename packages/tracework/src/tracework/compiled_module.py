"""A compiled nn.Module that is the same module to its user.

The compiled module is an object of a subclass of the user's class that shares the original's `__dict__`: parameters, buffers,
submodules, hooks, the training flag and user attributes are the same objects under the same names, so `state_dict()` keys do not
change, and what is set on one is seen on the other. Only `__call__` and `forward` differ, and the attributes of torch.compile's own result
(`_orig_mod` and the like), which stay with it. Pickling and copying rebuild it around the original.
"""

from __future__ import annotations

import copy
import functools
import inspect
import types
import weakref
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import torch
import tracework_capture as capture
from torch.nn.modules.lazy import LazyModuleMixin

from .errors import MixedDevices

ARGUMENTS = "__tracework_arguments__"
"""Where a compiled function has the arguments that made it."""
Recompile = Callable[[torch.nn.Module, dict[str, Any]], torch.nn.Module]


@dataclass(frozen=True)
class Compiled:
    """What a compiled module's class remembers: the module, its compiled call, its compiled `forward` alone, which runs no hooks, the
    arguments that made it, what compiles a function with these, and what compiles the module ahead of its calls."""

    original: torch.nn.Module
    call: Callable[..., Any]
    forward: Callable[..., Any]
    arguments: dict[str, Any]
    recompile: Recompile
    compiler: Callable[[Callable[..., Any]], Callable[..., Any]]
    ahead: Callable[[torch.nn.Module, dict[str, Any], Any], Any]
    own: dict[str, Any] = field(default_factory=dict)
    """What was set of the attributes that the original has not."""


def _rebuild(recompile: Recompile, original: torch.nn.Module, arguments: dict[str, Any]) -> torch.nn.Module:
    return recompile(original, arguments)


class _OfTheTwin:
    """An attribute of what torch.compile gives: the original has it not, also not where it is set on the compiled module."""

    def __init__(self, default: Callable[[Any], Any]) -> None:
        self._default = default
        self.__doc__ = default.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, twin: Any, owner: type) -> Any:
        if twin is None:
            return self
        own = twin._tracework.own
        return own[self._name] if self._name in own else self._default(twin)

    def __set__(self, twin: Any, value: Any) -> None:
        twin._tracework.own[self._name] = value

    def __delete__(self, twin: Any) -> None:
        twin._tracework.own.pop(self._name, None)


_shared_dict: Any = torch.nn.Module.__dict__["__dict__"]


class _Attributes(dict[str, Any]):
    """`__dict__` of a compiled module at one time: the original's and its own; what is written goes to where it belongs."""

    def __init__(self, twin: CompiledModule) -> None:
        self._shared: dict[str, Any] = _shared_dict.__get__(twin)
        self._twin = twin
        super().__init__(self._shared)
        super().update(twin._tracework.own)

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        if _is_of_the_twin(name):
            setattr(self._twin, name, value)
        else:
            self._shared[name] = value

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        if _is_of_the_twin(name):
            delattr(self._twin, name)
        else:
            del self._shared[name]

    pop: Any = MutableMapping.pop
    popitem: Any = MutableMapping.popitem
    clear: Any = MutableMapping.clear
    update: Any = MutableMapping.update
    setdefault: Any = MutableMapping.setdefault

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]  # as dict's, whose | makes another
        self.update(other)
        return self

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _is_of_the_twin(name: str) -> bool:
    return isinstance(getattr(CompiledModule, name, None), _OfTheTwin)


class CompiledModule:
    """Mixed in before the user's class; `_tracework` is set on the class made for one compiled module."""

    _tracework: Compiled

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Another module, that the user's code makes with `type(self)(...)`: it is not compiled, and of the user's class."""
        _set_type(self, type(self._tracework.original))
        self.__init__(*args, **kwargs)  # type: ignore[misc]  # the user's class has another

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if capture.under_fx_tracing():  # torch.fx knows the modules below its root, of which the original is none
            return super().__call__(*args, **kwargs)  # type: ignore[misc]  # the user's class comes next
        return self._tracework.call(*args, **kwargs)

    def _replicate_for_data_parallel(self) -> Any:
        return self._tracework.original._replicate_for_data_parallel()

    @property
    def __class__(self) -> Any:
        """The user's class: what the module's code makes of its own class, or a parametrization puts in its place, is the user's."""
        return type(self._tracework.original)

    @__class__.setter
    def __class__(self, kind: type) -> None:
        state = self._tracework
        state.original.__class__ = kind
        _set_type(self, _twin_type(state))

    @property
    def __dict__(self) -> Any:
        return _Attributes(self)

    @__dict__.setter
    def __dict__(self, attributes: dict[str, Any]) -> None:
        _shared_dict.__set__(self, attributes._shared if isinstance(attributes, _Attributes) else attributes)

    @_OfTheTwin
    def _orig_mod(self) -> torch.nn.Module:
        """The uncompiled module, under the name that torch.compile's users know."""
        return self._tracework.original

    @_OfTheTwin
    def dynamo_ctx(self) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """What compiles another method of the module, under the name that libraries know."""
        return self._tracework.compiler

    @_OfTheTwin
    def _torchdynamo_orig_callable(self) -> torch.nn.Module:
        """The same for torch.compiler.disable, and torch.compile, which follow it where the next one is the object's own."""
        return self._tracework.original

    @_OfTheTwin
    def aot_compile(self) -> Callable[[Any], Any]:
        """Compiles the module ahead of its calls, for a pair (args, kwargs), under the name that torch.compile has for functions."""
        return functools.partial(self._tracework.ahead, self._tracework.original, self._tracework.arguments)

    @_OfTheTwin
    def _torchdynamo_wrapper_id(self) -> int:
        return id(self)

    def __setattr__(self, name: str, value: Any) -> None:
        """`_orig_mod` set, as by what takes containers off a compiled module: another module is compiled in its place."""
        if name == "_orig_mod" and value is not self._tracework.original:
            other = self._tracework.recompile(value, self._tracework.arguments)
            self.__dict__ = other.__dict__
            _set_type(self, type(other))
            value = self._tracework.original
        if _is_of_the_twin(name):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        state = self._tracework
        return _rebuild, (state.recompile, state.original, state.arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.nn.Module:
        state = self._tracework
        return state.recompile(copy.deepcopy(state.original, memo), dict(state.arguments))

    def __copy__(self) -> torch.nn.Module:
        state = self._tracework
        return state.recompile(copy.copy(state.original), dict(state.arguments))


_codes: dict[int, tuple[weakref.ref[Any], dict[tuple[str, str], types.CodeType]]] = {}
"""By the id of what is compiled: the codes of its entry functions. What is compiled for them lives as long as it, so that a program may
compile it anew for each call."""


def _code_for(owner: Any, code: types.CodeType, name: str, qualname: str) -> types.CodeType:
    """This code under its own names, the same one each time for one owner."""
    key = id(owner)
    known = _codes.get(key)
    if known is None or known[0]() is not owner:
        try:
            known = weakref.ref(owner, lambda dead: _codes.pop(key, None) if _codes.get(key, (None,))[0] is dead else None), {}
        except TypeError:  # its class has slots only
            return code.replace(co_name=name, co_qualname=qualname)
        _codes[key] = known
    return known[1].setdefault((name, qualname), code.replace(co_name=name, co_qualname=qualname))


def entry_function(self: Any, method: str = "__call__") -> Callable[..., Any]:
    """A function of its own for one compiled module or callable, so that its entries are not mixed with those of others.

    `self` is its name of the module in sources and messages, as the module's own methods have it. It calls `method`: `_call_impl` for a
    module compiled in place, whose `__call__` comes back here.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return self(*args, **kwargs)

    def call_in_place(*args: Any, **kwargs: Any) -> Any:
        return self._call_impl(*args, **kwargs)

    def call_forward(*args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    function = {"__call__": call, "_call_impl": call_in_place, "forward": call_forward}[method]
    kind = type(self)  # what messages name is the user's class
    name, shown = ("forward", "forward") if method == "forward" else ("call", "__call__")
    owner = self
    while isinstance(owner, functools.partial):  # which programs make where they compile it
        owner = owner.func
    owner = getattr(owner, "__func__", owner)
    code = _code_for(owner, function.__code__, f"{name}_{kind.__name__}", f"{kind.__qualname__}.{shown}")
    fresh = types.FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)
    fresh.__doc__ = getattr(type(self), "forward", self).__doc__
    if method == "forward":
        setattr(fresh, capture.BESIDE, True)
    forward = inspect.unwrap(getattr(self, "forward", self))
    written = getattr(getattr(forward, "__func__", forward), "__code__", None)
    if written is not None:
        fresh.__tracework_place__ = f"{written.co_filename}:{written.co_firstlineno}"  # type: ignore[attr-defined]  # a mark on a function
    return fresh


_TRANSFORMS = frozenset(made.__code__.co_filename for made in vars(torch.func).values() if isinstance(made, types.FunctionType))
"""Where the functions that torch.func gives (`vmap(f)`, `grad(f)`, ...) are written."""


def with_a_frame(function: Callable[..., Any]) -> Callable[..., Any]:
    """What capture can see: of a builtin or a partial, which have no frame of their own, and of what torch.func made of a function, which
    would be captured under the transform, a function that calls it."""
    if _is_transformed(function):
        return functools.update_wrapper(entry_function(function), function, updated=())
    return entry_function(function) if isinstance(function, (types.BuiltinFunctionType, functools.partial)) else function


def _is_transformed(function: Any) -> bool:
    """Whether it, or what it wraps, is made by torch.func."""
    while isinstance(function, types.FunctionType):
        if function.__code__.co_filename in _TRANSFORMS:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def _compiled_forward(forward: Any) -> Any:
    """`forward` of a compiled module, called directly, with the signature of the original."""

    @functools.wraps(forward)
    def compiled_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._tracework.forward(*args, **kwargs)

    return compiled_forward


def wrap_module(
    module: torch.nn.Module,
    compiler: Callable[..., Any],
    arguments: dict[str, Any],
    recompile: Recompile,
    ahead: Callable[[torch.nn.Module, dict[str, Any], Any], Any],
) -> torch.nn.Module:
    """The compiled twin of `module` (see the file's head); `compiler` compiles a function, `recompile(module, arguments)` makes another,
    `ahead(module, arguments, inputs)` compiles it for such inputs."""
    call, forward = (compiler(entry_function(module, method)) for method in ("__call__", "forward"))
    state = Compiled(module, call, forward, arguments, recompile, compiler, ahead)
    twin = object.__new__(_twin_type(state))
    _shared_dict.__set__(twin, module.__dict__)
    for compiled in (call, forward):  # its class, which holds them, dies when the collector has found it
        weakref.finalize(twin, capture.release, weakref.ref(compiled)).atexit = False
    return twin


def _set_type(obj: Any, kind: type) -> None:
    """Past `CompiledModule.__class__`."""
    object.__dict__["__class__"].__set__(obj, kind)


def _call_of_lazy_module(self: Any, *args: Any, **kwargs: Any) -> Any:
    """The first call makes the original a module of another class, and so its twin."""
    found = self._tracework.call(*args, **kwargs)
    if not isinstance(self._tracework.original, LazyModuleMixin):
        _set_type(self, _twin_type(self._tracework))
    return found


def _twin_type(state: Compiled) -> Any:
    kind: Any = type(state.original)
    body = {"_tracework": state, "__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    if isinstance(getattr(kind, "forward", None), types.FunctionType):
        body["forward"] = _compiled_forward(kind.forward)
    if issubclass(kind, LazyModuleMixin):
        body["__call__"] = _call_of_lazy_module
    return type(kind)(kind.__name__, (CompiledModule, kind), body)


def check_devices_of(module: torch.nn.Module) -> None:
    """Raises MixedDevices when parameters and buffers (except CPU scalars) are on devices that no graph is compiled for together.

    A graph may have tensors on the CPU and on several GPUs.
    """
    devices = {t.device for t in (*module.parameters(), *module.buffers()) if t.ndim or t.device.type != "cpu"}
    if len(devices) > 1 and not {d.type for d in devices} <= {"cpu", "cuda"}:
        raise MixedDevices(f"module {type(module).__name__}", map(str, devices))

"""Marks on functions: what a program, or a library, says about calls of a function in traced code.

Ours are kept here, by identity and weakly; those that torch.compile's own decorators left are read where they are, so that code
written for torch.compile means the same. Nothing is traced here: values/objects/controls.py says what a marked function does.
"""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from . import _torch
from .errors import ControlMisuse

MARKS = (
    "allow_in_graph",
    "assume_constant_result",
    "disallow_in_graph",
    "forbid_in_graph",
    "leaf_function",
    "nonstrict_trace",
    "substitute_in_graph",
)


@dataclass(frozen=True)
class Leaf:
    """A leaf function, what says which tensors it gives, and whether it writes to its arguments."""

    real: Any
    fake: Any
    writes: bool


@dataclass(frozen=True)
class Mark:
    """kind: one of MARKS. For substitute_in_graph: the function to trace, and whether the original may be run on constants; for
    leaf_function: a Leaf.
    """

    kind: str
    traceable: Any = None
    folds: bool = False


@dataclass(frozen=True)
class _Held:
    """A marked object and its mark; `target()` gives the object while it lives."""

    target: Callable[[], Any]
    mark: Mark


_marked: dict[int, _Held] = {}
_ATTRIBUTES = {"_dynamo_forbidden": Mark("forbid_in_graph"), "_dynamo_marked_constant": Mark("assume_constant_result")}


def mark_of(function: Any) -> Mark | None:
    """The mark of a function, ours or torch.compile's."""
    held = _marked.get(id(function))
    if held is not None and held.target() is function:
        return held.mark
    attributes = getattr(function, "__dict__", None)
    if attributes:
        for name, mark in _ATTRIBUTES.items():
            if name in attributes:
                return mark
    substitute = _torch.torch_compile.substitute_of_torch_compile(function)
    if substitute is not None:
        return Mark("substitute_in_graph", *substitute)
    kind = _torch.torch_compile.mark_of_torch_compile(function)
    if kind == "leaf_function":
        return Mark(kind, _leaf_of_torch_compile(function.__dict__))
    return None if kind is None else Mark(kind)


def _leaf_of_torch_compile(attributes: dict[str, Any]) -> Leaf:
    """Hooks on the gradients are left to plain Python, as writes are."""
    hooked = attributes.get("_torchdynamo_leaf_hook_fn") is not None
    writes = hooked or bool(attributes.get("_torchdynamo_leaf_mutates_args"))
    return Leaf(attributes["_torchdynamo_leaf_real_fn"], attributes["_torchdynamo_leaf_fake_fn"], writes)


def leaf_function(fn: Any = None, *, mutates_args: set[str] | None = None) -> Any:
    """A decorator: no backend traces `fn`, which runs itself, once for each call, and gives tensors; gradients flow through it.

    `@fn.register_fake` decorates the function that says, on tensors without data, which tensors `fn` gives, in which containers; what else
    it gives is what the fake gives. Arguments are those of nonstrict_trace. mutates_args: names of parameters that `fn` writes to: its
    calls break the graph then.
    """
    if fn is None:
        return functools.partial(leaf_function, mutates_args=mutates_args)
    parameters = inspect.signature(_checked(fn, "leaf_function")).parameters
    unknown = sorted({name.replace("[", ".").partition(".")[0] for name in mutates_args or ()} - set(parameters))
    if unknown:
        raise ControlMisuse(
            f"leaf_function(mutates_args=...) names {', '.join(unknown)}, no parameter of {fn.__qualname__}. Give some of"
            f" {', '.join(parameters)}."
        )

    @functools.wraps(fn)
    def leaf(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    def register_fake(fake: Any) -> Any:
        _keep(leaf, Mark("leaf_function", Leaf(fn, fake, bool(mutates_args))))
        return leaf

    _keep(leaf, Mark("leaf_function", Leaf(fn, None, bool(mutates_args))))
    leaf.register_fake = register_fake  # type: ignore[attr-defined]
    return leaf


def _keep(function: Any, mark: Mark) -> None:
    number = id(function)
    target: Callable[[], Any]
    try:
        target = weakref.ref(function, lambda dead: _marked.pop(number, None))
    except TypeError:
        target = lambda: function  # kept for good: few kinds of callables refuse weak references
    _marked[number] = _Held(target, mark)


def _checked(function: Any, control: str) -> Any:
    if isinstance(function, types.MethodType):
        raise ControlMisuse(
            f"{control}() takes a function, not the bound method {function.__qualname__}: a new one is made at each look-up. "
            f"Put @{control} on the function in the class."
        )
    if isinstance(function, type) or not callable(function):
        raise ControlMisuse(
            f"{control}() takes a function or another callable object, not {function!r}. Give it the function that is called."
        )
    return function


_Marked = TypeVar("_Marked")


class Marker(Protocol):
    """A decorator that gives back what it is given."""

    def __call__(self, fn: _Marked, /) -> _Marked: ...


def _marker(control: str, doc: str) -> Marker:
    def mark(fn: Any) -> Any:
        if isinstance(fn, (list, tuple)):
            return type(fn)(mark(each) for each in fn)
        if control == "allow_in_graph" and isinstance(fn, type):
            return fn
        known = mark_of(_checked(fn, control))
        if known is not None and known.kind != control:
            raise ControlMisuse(
                f"{fn!r} is marked with {known.kind} already; {control} would contradict it. Keep one of the two."
            )
        _keep(fn, Mark(control))
        return fn

    mark.__name__ = mark.__qualname__ = control
    mark.__doc__ = doc
    return mark


allow_in_graph = _marker(
    "allow_in_graph",
    """Calls of `fn` become nodes of the graph without being traced into; later stages trace through it. Gives `fn` back.

    Arguments and results are tensors, numbers, dtypes, devices, None, and lists and tuples of them. Takes a list of functions, too,
    and classes, for which it changes nothing: an autograd.Function is a part of the graph, what makes other objects is traced.
    """,
)
assume_constant_result = _marker(
    "assume_constant_result",
    """`fn` is called once while capturing, and what it gave then is taken for its result from then on. Gives `fn` back.""",
)
disallow_in_graph = _marker("disallow_in_graph", """Calls of `fn` break the graph. Gives `fn` back.""")
forbid_in_graph = _marker(
    "forbid_in_graph", """A call of `fn` in compiled code is an error when it is captured. Gives `fn` back."""
)
nonstrict_trace = _marker(
    "nonstrict_trace",
    """As allow_in_graph, for richer arguments and results: containers, modules, and classes known to torch.utils._pytree.

    Tensors that `fn` reaches by itself (globals, closures) are taken as constants. Gives `fn` back.
    """,
)


def substitute_in_graph(
    original_fn: Any, *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[Any], Any]:
    """A decorator: captured calls of `original_fn` trace the decorated function instead; plain Python calls the original.

    can_constant_fold_through: the original may be called while capturing when all arguments are constants.
    skip_signature_check: accept a function whose parameters differ from the original's.
    Raises ControlMisuse when the original has a substitute already or the parameters differ.
    """
    if not isinstance(original_fn, (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)):
        raise ControlMisuse(
            f"substitute_in_graph() takes a function, not {original_fn!r}. For a class, substitute the function that makes the object."
        )
    known = mark_of(original_fn)
    if known is not None:
        raise ControlMisuse(f"{original_fn!r} is marked with {known.kind} already. Remove that mark, or change its function.")

    def decorate(traceable_fn: Any) -> Any:
        if not isinstance(traceable_fn, types.FunctionType):
            raise ControlMisuse(f"substitute_in_graph(...) decorates a Python function, not {traceable_fn!r}.")
        if not skip_signature_check:
            _check_signatures(original_fn, traceable_fn)

        @functools.wraps(traceable_fn)
        def substitute(*args: Any, **kwargs: Any) -> Any:
            return original_fn(*args, **kwargs)

        mark = Mark("substitute_in_graph", traceable_fn, can_constant_fold_through)
        _keep(original_fn, mark)
        _keep(substitute, mark)
        return substitute

    return decorate


def _check_signatures(original: Any, traceable: Any) -> None:
    """Parameters must agree in names, kinds and defaults, as far as the original tells its own."""
    try:
        wanted = inspect.signature(original)
    except (ValueError, TypeError):
        return
    given = inspect.signature(traceable)
    if _shape(wanted) != _shape(given) and not _takes_anything(wanted) and not _takes_anything(given):
        raise ControlMisuse(
            f"{traceable.__qualname__}{given} is no substitute for {original.__name__}{wanted}: the parameters differ. Give it the "
            "same ones, or pass skip_signature_check=True."
        )


def _shape(signature: inspect.Signature) -> Any:
    named = [p for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    positional = [p.name for p in named if p.kind is not p.KEYWORD_ONLY]
    return positional, {p.name for p in named if p.kind is p.KEYWORD_ONLY}, {p.name: p.default for p in named}


def _takes_anything(signature: inspect.Signature) -> bool:
    return [p.kind.name for p in signature.parameters.values()] == ["VAR_POSITIONAL", "VAR_KEYWORD"]


def graph_break(message: str = "") -> None:
    """The graph ends here and another one starts after the call; under fullgraph=True this is an error."""


def skip_frame(message: str = "") -> None:
    """The function that calls this runs as plain Python, while what it calls is still captured."""


def step_unsupported(message: str = "") -> None:
    """The graph ends here and the rest of the function runs as plain Python, while what it calls is still captured."""

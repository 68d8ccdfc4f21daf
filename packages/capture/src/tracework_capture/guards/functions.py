"""Functions as other processes find and compare them: digests of their code, and the places in what decorators made of them."""

from __future__ import annotations

import functools
import hashlib
import re
import sys
import types
import weakref
from typing import Any

from .. import _torch
from ..marks import mark_of
from .paths import Changed, object_below, path_to
from .store import NotPortable

BREAKING = "disallow_in_graph"
"""The mark with which nothing is taken from a function while tracing."""


_code_digests: dict[int, tuple[weakref.ref[types.CodeType], str]] = {}


def digest_of_code(code: types.CodeType) -> str:
    """What a code object does and where it is: messages and tracebacks name its file and lines."""
    known = _code_digests.get(id(code))
    if known is not None and known[0]() is code:
        return known[1]
    key = id(code)
    parts = (
        *(
            code.co_code,
            code.co_linetable,
            code.co_exceptiontable,
            code.co_names,
            code.co_varnames,
            code.co_freevars,
            code.co_cellvars,
        ),
        *(code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_firstlineno),
        *(file_of(code.co_filename), code.co_qualname, [_constant_text(c) for c in code.co_consts]),
    )
    found = hashlib.sha256(repr(parts).encode()).hexdigest()
    _code_digests[key] = weakref.ref(code, lambda dead: _code_digests.pop(key, None)), found
    return found


def file_of(name: str) -> str:
    """The name of a file as another process has it: cells of a notebook are in a folder that is named after the process."""
    return _OF_KERNEL.sub("", name)


_OF_KERNEL = re.compile(r"(?<=[/\\]ipykernel_)\d+(?=[/\\][^/\\]*$)")


def _constant_text(constant: Any) -> str:
    """The same text in each process, whatever order it has the members of a set in."""
    kind = type(constant)
    if kind is types.CodeType:
        return digest_of_code(constant)
    if kind is tuple:
        return f"({', '.join(map(_constant_text, constant))})"
    if kind is frozenset:
        return f"{{{', '.join(sorted(map(_constant_text, constant)))}}}"
    return f"{kind.__name__} {constant!r}"


def digest_of_function(function: types.FunctionType) -> str:
    """The digest of its code. Its defaults and cells are guarded where they are read; marks of a program's own say what a capture makes
    of a call. Raises NotPortable for a function with one, but for that which breaks the graph."""
    mark = mark_of(function)
    if mark is not None and mark.kind != BREAKING:
        raise NotPortable(f"{function.__qualname__} is marked with {mark.kind}")
    return digest_of_code(function.__code__) if mark is None else f"{BREAKING} {digest_of_code(function.__code__)}"


def address_of_function(function: types.FunctionType) -> list[Any] | None:
    path = path_to(function, function.__module__, function.__qualname__) or _named_here(function)
    if path is not None:
        return ["function", *path, digest_of_function(function)]
    inside = _inside_of_decorated(function)
    return None if inside is None else ["decorated", *inside, digest_of_function(function)]


def _inside_of_decorated(function: types.FunctionType) -> tuple[str, str, list[str], str] | None:
    """The path that leads to what decorators made of the function, the free variables that lead from there to it, and what the decorators do."""
    module, name = function.__module__, function.__qualname__
    if type(module) is not str or type(name) is not str or "<locals>" in name:
        return None
    try:
        outer = object_below(module, name)
    except Changed:
        return None
    names: list[str] = []
    digests: list[str] = []
    while type(outer) in LAYERS and len(names) < _MOST_DECORATORS:
        held = functions_held(outer)
        inside = next((n for n, f in held.items() if f is function), None) or next(iter(held), None)
        if inside is None:
            return None
        names.append(inside)
        digests.append(digest_of_layer(outer))
        if (outer := held[inside]) is function:
            return module, name, names, hashlib.sha256(" ".join(digests).encode()).hexdigest()
    return None


_MOST_DECORATORS = 4
LAYERS: dict[type, str] = {
    types.FunctionType: "",
    functools._lru_cache_wrapper: "__wrapped__",
    functools.cached_property: "func",
    property: "fget",
    _torch.operators.CustomOpDef: "_abstract_fn",  # which torch.library.triton_op makes the operator of
}
"""What decorators make of a function, and where it is in that; in the free variables of one."""


def functions_held(layer: Any) -> dict[str, Any]:
    """What is held by one of LAYERS and is one, by name."""
    if type(layer) is not types.FunctionType:
        name = LAYERS[type(layer)]
        held = {name: getattr(layer, name)}
    else:
        cells = zip(layer.__code__.co_freevars, layer.__closure__ or ())
        held = {name: cell.cell_contents for name, cell in cells if cell != types.CellType()}
    return {name: value for name, value in held.items() if type(value) in LAYERS}


def digest_of_layer(layer: Any) -> str:
    """What a decorator made, without the function that it made it of. Raises NotPortable."""
    if type(layer) is functools._lru_cache_wrapper:
        return f"remembers {sorted(layer.cache_parameters().items())}"
    return digest_of_function(layer) if type(layer) is types.FunctionType else type(layer).__name__


def function_of_code(code: types.CodeType) -> types.FunctionType | None:
    """A function that runs the code and has an address."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) != code.co_filename:
            continue
        try:
            found = object_below(module.__name__, code.co_qualname)
        except Changed:
            continue
        for _ in range(_MOST_DECORATORS):
            if getattr(found, "__code__", None) is code:
                return found
            held = functions_held(found) if type(found) in LAYERS else {}
            found = next((f for f in held.values() if getattr(f, "__code__", None) is code), next(iter(held.values()), None))
    return None


def _named_here(function: types.FunctionType) -> tuple[str, str] | None:
    """The name that this package has for a function of torch's which is reached by no name of its own."""
    families = [getattr(_torch, name) for name in _torch.__all__]
    return next(((f.__name__, name) for f in families for name, known in vars(f).items() if known is function), None)

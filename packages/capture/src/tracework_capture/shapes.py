"""Shapes that a compile call declares: which sizes and ints of the arguments change, in which range, and which are one size.

A declaration maps names of parameters to shapes. Of a tensor: a list with one entry for each dim, or a dict
of the dims that have one. Of an int: the entry itself. Of a list
or tuple of values: a list of their declarations; of a dict: a dict. An entry is None (what it is in the call, compiled by itself), an int
(that number and no other), a name (any; entries of one name are one number), or a DimRange. Declarations of torch.compile, which are
objects of its own, mean the same. What is not declared is None.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .dims import DimRange
from .errors import ControlMisuse
from .sources import Attr, DictItem, InstanceAttr, Item, Local, ModuleEntry, PartItem

DeclaredShapes = Mapping[tuple[Any, ...], Any]
"""Path of an argument's part, from the name of a local -> its entry, or a tuple of entries for a tensor."""


def declared_shapes(declaration: Any, function: Callable[..., Any], through: bool = False) -> DeclaredShapes:
    """The paths of a declaration for calls of `function`; `through`: they come through a function of *args and **kwargs, as calls of what a
    decorator made do.

    Raises ControlMisuse for a name that is no parameter, or an entry of another kind.
    """
    parameters = inspect.signature(function).parameters
    around = None if through else _names_around(function)
    names, first = ("args", "kwargs") if through else around, around is not None and inspect.ismethod(function)
    places = {name: number + first for number, name in enumerate(parameters)}
    found: dict[tuple[Any, ...], Any] = {}
    for name, spec in _parameters_of(declaration, parameters):
        taken = parameters.get(name)
        if taken is None:
            raise ControlMisuse(f"shapes_spec names {name!r}, which is no parameter: they are {', '.join(parameters)}.")
        found.update(_paths(taken, places[name], spec, names))
        if around is not None:  # the decorator's own frame may run plainly
            found.update(_paths(taken, places[name], spec, None))
    return found


def _paths(
    taken: inspect.Parameter, place: int, spec: Any, through: tuple[str, str] | None
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for start, part, where in _starts(taken, place, spec, through):
        yield from _flat(start, part, where)


def _names_around(function: Callable[..., Any]) -> tuple[str, str] | None:
    """The names of *args and **kwargs of the function that a decorator put around this one; None where it is as it was written."""
    own = list(inspect.signature(function, follow_wrapped=False).parameters.values())
    if hasattr(function, "__wrapped__") and [p.kind for p in own] == [
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    ]:
        return own[0].name, own[1].name
    return None


def _starts(
    taken: inspect.Parameter, place: int, spec: Any, through: tuple[str, str] | None
) -> Iterator[tuple[tuple[Any, ...], Any, str]]:
    """(path, declaration, text for messages) of what a parameter takes; through: the names of the *args and **kwargs that it comes by."""
    name = taken.name
    if taken.kind is taken.VAR_POSITIONAL:
        for index, part in enumerate(spec):
            yield (through[0], place + index) if through else (name, index), part, f"{name}[{index}]"
    elif taken.kind is taken.VAR_KEYWORD:
        for key, part in spec.items():
            yield (through[1] if through else name, key), part, f"{name}[{key!r}]"
    else:
        yield (through[1], name) if through else (name,), spec, name
        if through and taken.kind is not taken.KEYWORD_ONLY:
            yield (through[0], place), spec, name


def _parameters_of(declaration: Any, parameters: Mapping[str, inspect.Parameter]) -> Iterator[tuple[str, Any]]:
    """(name of a parameter, what is declared of it); "*args" and "**kwargs" mean those of the function, whatever their names."""
    if getattr(declaration, "_assumptions", None):
        raise ControlMisuse("shapes_spec: assumptions are not supported; say them in the function with torch._check(...).")
    params = getattr(declaration, "_params", declaration)
    named = getattr(params, "_named_args", params)
    if not isinstance(named, Mapping):
        raise ControlMisuse(
            f"shapes_spec takes shapes by the names of parameters, not {declaration!r}. Write {{'x': ['batch', None]}}."
        )
    others = {"*args": getattr(params, "_varargs", None), "**kwargs": getattr(params, "_varkw", None)}
    kinds = {"*args": inspect.Parameter.VAR_POSITIONAL, "**kwargs": inspect.Parameter.VAR_KEYWORD}
    for name, spec in {**{key: part for key, part in others.items() if part}, **named}.items():
        own = next((p.name for p in parameters.values() if p.kind is kinds.get(name)), name)
        yield own, spec


def _flat(path: tuple[Any, ...], spec: Any, where: str) -> Iterator[tuple[tuple[Any, ...], Any]]:
    dims = getattr(spec, "_specs", spec)
    entries = getattr(spec, "_fields", None) or getattr(spec, "_entries", spec)
    if isinstance(entries, Mapping):
        for key, part in entries.items():
            yield from _flat((*path, key), part, f"{where}[{key!r}]")
    elif dims is spec and isinstance(entries, (list, tuple)) and (entries is not spec or any(_is_nested(e) for e in entries)):
        for index, part in enumerate(entries):
            yield from _flat((*path, index), part, f"{where}[{index}]")
    elif isinstance(dims, (list, tuple)):
        yield path, tuple(_entry(dim, where) for dim in dims)
    else:
        yield path, _entry(spec, where)


def _is_nested(spec: Any) -> bool:
    return isinstance(spec, (list, tuple, Mapping)) or any(hasattr(spec, name) for name in ("_specs", "_fields", "_entries"))


def _entry(entry: Any, where: str) -> Any:
    """None, an int or a DimRange."""
    if entry is None or type(entry) is int or isinstance(entry, DimRange):
        return entry
    if isinstance(entry, str):
        return DimRange(group=entry)
    if hasattr(entry, "sympy_sym"):  # torch.compile's variable; two of one name are two
        return DimRange(entry.min or None, entry.max, f"{entry.name}#{id(entry)}")
    if hasattr(entry, "node"):
        raise ControlMisuse(
            f"shapes_spec of {where}: {entry!r} is computed from other sizes. Give it a name of its own, and say in the function how it"
            " follows from them, with torch._check(...)."
        )
    raise ControlMisuse(f"shapes_spec of {where}: {entry!r} is no name, int, DimRange or None.")


def path_of(source: Any) -> tuple[Any, ...] | None:
    """The path of a source that starts at a local, else None."""
    if isinstance(source, Local):
        return (source.name,)
    part = {Item: "index", PartItem: "index", DictItem: "key", Attr: "name", InstanceAttr: "name", ModuleEntry: "name"}.get(
        type(source)
    )
    base = path_of(source.base) if part is not None else None
    return None if part is None or base is None else (*base, getattr(source, part))

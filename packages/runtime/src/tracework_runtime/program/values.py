"""Constants, and trees of arguments and results, as JSON data.

A tree is a list: its kind, then what the kind says. Leaves: ["constant", data], and others that a reader knows. Containers: ["tuple", trees],
["list", trees], ["dict", keys, trees], and ["object", class name, kind, field names, trees] for named tuples, dataclasses and dicts of a
class of their own. The class of an object is taken where it has been imported; otherwise another with the same names takes its place, so that
no source is needed.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

__all__ = ["NotData", "constant", "constant_of", "getter", "imported", "is_same", "maker", "object_kind", "parts_of", "tree"]

Data = Any
"""What JSON holds."""
Leaf = Callable[[Any, tuple[Any, ...]], Data | None]


class NotData(Exception):
    """A value that cannot be written as data."""


_PLAIN = (bool, int, str, type(None))
_NAMED = (torch.dtype, torch.layout, torch.memory_format)


def constant(value: Any) -> Data:
    """A constant as data. Raises NotData."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return {"float": value.hex()}
    if kind is complex:
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if kind in _NAMED:
        return {"torch": str(value).removeprefix("torch.")}
    if kind is torch.device:
        return {"device": str(value)}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind is slice:
        return {"slice": [constant(part) for part in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"ellipsis": None}
    if kind in (tuple, list, torch.Size, frozenset):
        items = sorted(value, key=repr) if kind is frozenset else value
        return {"size" if kind is torch.Size else kind.__name__: [constant(v) for v in items]}
    if kind is dict:
        return {"dict": [[constant(key), constant(part)] for key, part in value.items()]}
    raise NotData(f"a {kind.__module__}.{kind.__qualname__}")


_READERS: dict[str, Callable[[Any], Any]] = {
    "float": float.fromhex,
    "complex": lambda parts: complex(*map(float.fromhex, parts)),
    "torch": lambda name: getattr(torch, name),
    "device": torch.device,
    "bytes": bytes.fromhex,
    "slice": lambda parts: slice(*map(constant_of, parts)),
    "ellipsis": lambda nothing: Ellipsis,
    "tuple": lambda items: tuple(map(constant_of, items)),
    "list": lambda items: list(map(constant_of, items)),
    "size": torch.Size,
    "frozenset": lambda items: frozenset(map(constant_of, items)),
    "dict": lambda items: {constant_of(key): constant_of(part) for key, part in items},
}


def constant_of(data: Data) -> Any:
    """The inverse of `constant`."""
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    return _READERS[kind](content)


def is_same(value: Any, wanted: Any) -> bool:
    """Of one type and value: 1, 1.0 and True differ, nan equals nan, -0.0 differs from 0.0."""
    if type(value) is not type(wanted):
        return False
    if type(value) is float:
        both_nan = math.isnan(value) and math.isnan(wanted)
        return both_nan or (value == wanted and math.copysign(1, value) == math.copysign(1, wanted))
    if type(value) in (tuple, list):
        return len(value) == len(wanted) and all(map(is_same, value, wanted))
    return bool(value == wanted)


# --- trees ----------------------------------------------------------------------------------------------------------------


def tree(value: Any, leaf: Leaf, path: tuple[Any, ...] = ()) -> Data:
    """A value as a tree; `leaf(value, path)` gives the data of what is no constant or container, or None. Raises NotData."""
    if (found := leaf(value, path)) is not None:
        return found
    kind = type(value)
    if kind in (tuple, list):
        return [kind.__name__, [tree(part, leaf, (*path, place)) for place, part in enumerate(value)]]
    if kind is torch.Size:
        return ["size", [tree(part, leaf, (*path, place)) for place, part in enumerate(value)]]
    if kind is dict:
        return ["dict", [constant(key) for key in value], [tree(part, leaf, (*path, key)) for key, part in value.items()]]
    how = object_kind(value)
    if how is not None:
        parts = parts_of(value, how)
        trees = [tree(part, leaf, (*path, name)) for name, part in parts.items()]
        return ["object", f"{kind.__module__}:{kind.__qualname__}", how, [constant(name) for name in parts], trees]
    return ["constant", constant(value)]


def object_kind(value: Any) -> str | None:
    """How an object is taken apart, None where it is not."""
    if isinstance(value, tuple):
        return "namedtuple" if hasattr(value, "_fields") else "sequence" if hasattr(value, "n_fields") else None
    if isinstance(value, dict):
        return "mapping"
    return "dataclass" if dataclasses.is_dataclass(value) and not isinstance(value, type) else None


def parts_of(value: Any, how: str) -> dict[Any, Any]:
    """The parts of an object by name."""
    if how == "namedtuple":
        return dict(zip(value._fields, value))
    if how == "sequence":  # torch.return_types
        return dict(enumerate(value))
    if how == "mapping":
        return dict(value.items())
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


Make = Callable[[Any], Any]


def maker(data: Data, leaf: Callable[[Data], Make]) -> Make:
    """A function that makes the value of a tree; `leaf(data)` gives that of a leaf which is no constant. Raises ProgramFileError."""
    match data:
        case ["constant", content]:
            value = constant_of(content)
            return lambda scope: value
        case ["tuple" | "list" | "size" as kind, parts]:
            items, make = [maker(part, leaf) for part in parts], {"tuple": tuple, "list": list, "size": torch.Size}[kind]
            return lambda scope: make([item(scope) for item in items])
        case ["dict", keys, parts]:
            pairs = [(constant_of(key), maker(part, leaf)) for key, part in zip(keys, parts, strict=True)]
            return lambda scope: {key: part(scope) for key, part in pairs}
        case ["object", str(name), str(how), names, parts]:
            pairs = [(constant_of(n), maker(part, leaf)) for n, part in zip(names, parts, strict=True)]
            build = _builder(name, how, tuple(key for key, _ in pairs))
            return lambda scope: build({key: part(scope) for key, part in pairs})
        case _:
            return leaf(data)


def _builder(name: str, how: str, names: tuple[Any, ...]) -> Callable[[dict[Any, Any]], Any]:
    """What makes an object of a class, or of one like it, from its parts by name."""
    found: Any = imported(name)
    short = re.split("[.:]", name)[-1]
    match how:
        case "sequence":
            return lambda values: (found or tuple)(tuple(values.values()))
        case "namedtuple":
            made = found or collections.namedtuple(short, names)  # type: ignore[misc]  # names that are data
            return lambda values: made(*values.values())
        case "mapping":
            takes_names = found is not None and hasattr(found, "__dataclass_fields__")
            return lambda values: found(**values) if takes_names else (found or dict)(values)
        case _:
            kind: Any = found or dataclasses.make_dataclass(short, names)
            return lambda values: _with_fields(kind, values)


def _with_fields(kind: type, values: Mapping[str, Any]) -> Any:
    made: Any = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def imported(name: str) -> Any:
    """The class of this name, where its module has been imported; else None."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


def getter(path: Sequence[Any]) -> Callable[[Any], Any]:
    """A function that gives the part of nested containers at a path."""
    steps = tuple(path)

    def get(value: Any) -> Any:
        for step in steps:
            is_object = type(value) not in (tuple, list, dict) and isinstance(step, str) and not isinstance(value, dict)
            value = getattr(value, step) if is_object else value[step]
        return value

    return get

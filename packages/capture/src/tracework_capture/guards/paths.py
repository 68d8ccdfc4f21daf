"""What paths of names below modules lead to, with nothing of a program run."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import torch

from .. import _torch
from ..own_packages import PACKAGES
from .classes import attributes_of, find, module_of
from .store import NotPortable


class Changed(Exception):
    """What is stored does not hold in this process."""


OF_MODULE = "<class>"
"""In the place of a name: the class of the module."""


def address_of_module(module: types.ModuleType) -> list[Any] | None:
    if type(module) is _torch.operators.OpNamespace:
        return ["operators", module.name]
    name = vars(module).get("__name__")
    return ["module", name] if type(name) is str and sys.modules.get(name) is module else None


def address_of_namespace(names: dict[Any, Any]) -> list[Any] | None:
    """Of all modules, or of the names that one has."""
    if names is sys.modules:
        return ["modules", "sys"]
    # collections.abc is another module than it says
    for name in (names.get("__name__"), getattr(names.get("__spec__"), "name", None)):
        if type(name) is str and getattr(sys.modules.get(name), "__dict__", None) is names:
            return ["namespace", name]
    name = names.get("name")
    return (
        ["packets", name] if type(name) is str and name in vars(torch.ops) and vars(getattr(torch.ops, name)) is names else None
    )


def path_to_class(cls: type) -> tuple[str, str]:
    path = path_to(cls, module_of(cls), type.__dict__["__qualname__"].__get__(cls))
    if path is None:
        for name, known in vars(types).items():  # the types of Python have other names there
            if known is cls:
                return "types", name
        for name, known in _torch.operators.OF_CPP.items():
            if known is cls:
                return _torch.operators.__name__, name
        name = module_of(cls)
        if type(sys.modules.get(name)) is cls:  # a module's own, whose name led to it before the module took its own place
            return name, OF_MODULE
        raise NotPortable(f"class {cls.__qualname__} has no address")
    return path


def path_to(obj: Any, module: Any, name: Any, bare: bool = False) -> tuple[str, str] | None:
    """The two, where they lead to the object. bare: what a class has there, as it is."""
    if type(module) is not str or type(name) is not str or "<locals>" in name:
        return None
    try:
        return (module, name) if object_below(module, name, bare) is obj else None
    except Changed:
        return None


def object_below(module: str, path: str, bare: bool = False) -> Any:
    """What is at a path of names below a module, with nothing of the program run. Raises Changed."""
    found: Any = sys.modules.get(module)
    if found is None and module.partition(".")[0] in PACKAGES:
        found = importlib.import_module(module)
    if path == OF_MODULE:
        return type(found)
    for name in path.split("."):
        if issubclass(type(found), types.ModuleType):
            names = vars(found)
        elif issubclass(type(found), type):
            names = attributes_of(found)
        else:
            raise Changed(f"{module} has no {path}")
        if name not in names:
            found, owner = find(found, name) if issubclass(type(found), type) else (None, None)
            if owner is None:
                raise Changed(f"{module} has no {path}")
        else:
            found = names[name]
        if not bare and type(found) in (staticmethod, classmethod):
            found = found.__func__
    return found

"""Where the packages of this stack lie, and which modules are theirs: a program may give its own a name that begins like ours."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

PACKAGES = ("tracework", *(f"tracework_{stage}" for stage in ("capture", "aotautograd", "primops", "inductor", "runtime")))


def folders_of(package: str) -> list[str]:
    """Where a package lies, without importing it; nowhere when it is not installed."""
    found = importlib.util.find_spec(package)
    return [] if found is None else list(found.submodule_search_locations or ())


_ROOTS = tuple(os.path.realpath(folder) + os.sep for package in PACKAGES for folder in folders_of(package))


def is_own_file(filename: str) -> bool:
    """Whether code of this file is this stack's."""
    return os.path.realpath(filename).startswith(_ROOTS)


def is_own_module(name: Any) -> bool:
    """Whether the module of this name, as `__module__` of a class or a function has it, is of this stack."""
    file = getattr(sys.modules.get(name), "__file__", None) if type(name) is str else None
    return type(file) is str and is_own_file(file)

"""Work that is done when a module has been imported, however long that takes to come: nothing is imported for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Work = Callable[[ModuleType], None]


def after_import(name: str, work: Work) -> Callable[[], None]:
    """Calls work(module) now where the module `name` is imported, else right after its import, unless what is given back is called before."""
    finder = _Finder(name, work)
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        work(module)
    else:
        sys.meta_path.insert(0, finder)
    return finder.give_up


class _Finder:
    """Finds one module as the others do, with a loader that works on it afterwards."""

    def __init__(self, name: str, work: Work) -> None:
        self._name, self._work = name, work

    def give_up(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        others: list[Any] = sys.meta_path[
            sys.meta_path.index(self) + 1 :
        ]  # those before were asked, and would ask this one again
        found = (finder.find_spec(name, path, target) for finder in others)
        spec: ModuleSpec | None = next((spec for spec in found if spec is not None), None)
        loader: Any = spec and spec.loader
        if loader is None:
            return spec
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:
                self.give_up()
                self._work(module)

        loader.exec_module = exec_module
        return spec

"""Python modules, whose attributes are looked up in their namespace."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

from ... import _C
from ...code_origin import is_of_a_package, is_of_torch
from ...guards.classes import NO_ATTRIBUTE, defines, find, lookup_class, module_of
from ...signals import let_through
from ...sources import Attr, Const, DictItem
from ..plain.mapping import MISSING, touched_name, write_name
from ..protocol.constant import ConstantValue, called_there, placed_call, raise_python
from ..protocol.value import Frame, HeldValue, Value

_NO_HOOKS = (None, NO_ATTRIBUTE, types.ModuleType.__getattribute__, object.__getattribute__)


class NamespaceValue(HeldValue):
    """A Python module."""

    is_unique = True

    def real(self) -> Any:
        return self.obj

    def describe(self) -> str:
        return f"module {self.name()}"

    def name(self) -> str | None:
        """As it is in messages; a module need not have one."""
        return _C.instance_dict(self.obj).get("__name__")

    def own_text(self, frame: Frame, fn: Callable[[object], str]) -> Value | None:
        # its names may change, and its loader and spec are asked
        return frame.break_graph("value_not_known", f"text of {self.describe()}")

    def hash_key(self, frame: Frame) -> Any:
        return self.obj

    as_graph_arg = hash_key

    def getattr(self, frame: Frame, name: str) -> Value:
        touched: Value | None = touched_name(frame, self.obj.__dict__, name)
        if touched is not MISSING and (touched is not None or not hasattr(types.ModuleType, name)):
            return touched if touched is not None else self.no_attribute(frame, name)
        names = Const(self.obj.__dict__, str(self.name()))
        if frame.is_fixed and name in self.obj.__dict__:  # which nobody replaces
            return frame.wrap(self.obj.__dict__[name], Const(self.obj.__dict__[name], name))
        if name in self.obj.__dict__:
            return frame.wrap(self.obj.__dict__[name], DictItem(names, name))
        hook = self.obj.__dict__.get("__getattr__")
        if isinstance(hook, types.FunctionType) and not is_of_a_package(hook.__code__) and not hasattr(types.ModuleType, name):
            frame.guard("DICT_LACKS", names, name)
            return frame.wrap(hook, DictItem(names, "__getattr__")).call(frame, [ConstantValue(name)], {})
        try:
            found = (placed_call if self.asks_torch_alone(name) else called_there)(frame, getattr, self.obj, name)
        except AttributeError as error:
            frame.guard("DICT_LACKS", names, name)
            raise_python(frame, error)
        except Exception as error:  # code of the program, which is to run when its turn comes
            let_through(error)
            return frame.break_graph("attribute_unknown", f"{name} of {self.describe()} raised {type(error).__name__}")
        return frame.wrap(found, Attr(self.source, name))

    def asks_torch_alone(self, name: str) -> bool:
        """Whether what answers for an attribute that is not among the module's names is torch's, or Python's."""
        cls = type(self.obj)
        static, owner = find(cls, name)
        if owner is not None and module_of(type(static)).partition(".")[0] != "torch":
            return False
        hooks = [self.obj.__dict__.get("__getattr__"), *(find(cls, hook)[0] for hook in ("__getattr__", "__getattribute__"))]
        return all(hook in _NO_HOOKS or isinstance(hook, types.FunctionType) and is_of_torch(hook.__code__) for hook in hooks)

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        static, _ = lookup_class(type(self.obj), name)
        if defines(type(static), "__set__"):
            frame.wrap(static, Const(static, name)).call_method(frame, "__set__", [self, value], {})
        elif self.writes_itself("__setattr__", name):
            super().setattr(frame, name, value)
        else:
            write_name(frame, self.obj.__dict__, name, value)

    def delattr(self, frame: Frame, name: str) -> None:
        static, _ = lookup_class(type(self.obj), name)
        if defines(type(static), "__delete__") or self.writes_itself("__delattr__", name):
            return super().delattr(frame, name)
        found = touched_name(frame, self.obj.__dict__, name)
        if found is MISSING:
            there = name in self.obj.__dict__
            frame.guard("DICT_HAS" if there else "DICT_LACKS", Const(self.obj.__dict__, str(self.name())), name)
        else:
            there = found is not None
        if not there:
            frame.raise_new(AttributeError, f"'{type(self.obj).__name__}' object has no attribute '{name}'")
        write_name(frame, self.obj.__dict__, name, None)

    def writes_itself(self, hook: str, name: str) -> bool:
        """Whether something else than the dict of the module takes an attribute, or what is replayed later (a print) looks at it."""
        return (
            self.obj is sys
            or name == "__dict__"
            or lookup_class(type(self.obj), hook)[0] is not lookup_class(types.ModuleType, hook)[0]
        )

    def no_attribute(self, frame: Frame, name: str) -> NoReturn:
        called = "module" if self.name() is None else f"module '{self.name()}'"
        frame.raise_new(AttributeError, f"{called} has no attribute '{name}'")

"""Imports of modules that are loaded already, and of torch's; others break the graph."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys

from ...bytecode.code import Instruction
from ...sources import Const, DictItem
from ...values.protocol.value import Value
from ..frame import SymbolicFrame
from .table import opcode


@opcode("IMPORT_NAME")
def import_name(frame: SymbolicFrame, instruction: Instruction) -> None:
    """import name / from name import ..."""
    level_value, names_value = frame.pop_many(2)
    level, names = level_value.constant(), names_value.constant()
    name = instruction.value
    if level:
        package = frame.globals.get("__package__") or frame.globals.get("__name__", "").rpartition(".")[0]
        try:
            name = importlib.util.resolve_name("." * level + name, package)
        except ImportError as error:
            frame.raise_new(ImportError, *error.args)
    wanted = name if names or level else name.partition(".")[0]
    if name.startswith("torch."):
        load(name)
    module = sys.modules.get(name)
    if module is None or wanted not in sys.modules:
        frame.break_graph("import", name)
    frame.stack.append(module_value(frame, wanted))


def module_value(frame: SymbolicFrame, name: str) -> Value:
    """A module that is loaded; another may be put in its place."""
    return frame.wrap(sys.modules[name], DictItem(Const(sys.modules, "sys.modules"), name))


def load(name: str) -> None:
    """Imports a module of torch, as the program is about to: that does nothing which the program sees but that it is loaded."""
    with contextlib.suppress(ImportError):
        importlib.import_module(name)


@opcode("IMPORT_FROM")
def import_from(frame: SymbolicFrame, instruction: Instruction) -> None:
    """from module import name"""
    module = frame.stack[-1]
    real, name = module.real(), instruction.value
    if not hasattr(real, name):
        submodule = f"{real.__name__}.{name}"
        if submodule not in sys.modules:
            frame.break_graph("import", submodule)
        frame.stack.append(module_value(frame, submodule))
        return
    frame.stack.append(module.getattr(frame, name))


@opcode("IMPORT_STAR")
def import_star(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Only at module level."""
    frame.break_graph("import", "import *")

"""`tracework where NAME`: file:line of every rule for an op, opcode, type, guard kind, break id or option, from the tables."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# what is printed, module, table, and how a key of the table is written by a user
TABLES: tuple[tuple[str, str, str], ...] = (
    ("prim", "tracework_primops", "OPS"),
    ("shape rule", "tracework_primops.meta", "META"),
    ("eager reference", "tracework_primops.eager", "EAGER"),
    ("ATen shape rule", "tracework_primops.aten_meta", "ATEN_META"),
    ("decomposition", "tracework_primops.decomp", "DECOMPS"),
    ("lowering", "tracework_inductor.lowering", "LOWERINGS"),
    ("ONNX row", "tracework.onnx", "ONNX_ROWS"),
    ("scalar op", "tracework_inductor.ir.scalar_ops", "SCALAR_OPS"),
    ("C++ text", "tracework_inductor.codegen.cpp.text_rules", "CPP_TEXT"),
    ("Triton text", "tracework_inductor.codegen.triton.text_rules", "TRITON_TEXT"),
    ("opcode handler", "tracework_capture.interp.opcodes", "OPCODES"),
    ("value class", "tracework_capture.values.protocol.wraps", "WRAP"),
    ("call", "tracework_capture.values.protocol.calls", "CALLS"),
    ("guard kind", "tracework_capture.guards.kinds", "GUARD_KINDS"),
    ("break reason", "tracework_capture.errors", "BREAK_REASONS"),
    ("recompute rule", "tracework_aotautograd.partition.recompute", "RECOMPUTE"),
    ("option", "tracework.options", "OPTION_NAMES"),
    ("environment", "tracework.config", "ENVIRONMENT"),
    ("backend", "tracework.backends", "BACKENDS"),
)


def _names(key: Any) -> set[str]:
    """How a user may write a key: gather, aten.gather.default, aten.gather, prims.gather, dict, FOR_ITER."""
    text = str(key) if isinstance(key, str) or not hasattr(key, "__name__") else key.__name__
    names = {text, str(key)}
    packet = str(key).split(".")
    if len(packet) == 3 and packet[0] == "aten":
        names |= {packet[1], f"aten.{packet[1]}"}
    return names


def _line_with(path: Path, words: tuple[str, ...]) -> int | None:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if any(w in line for w in words):
            return number
    return None


def _place(row: Any, key: Any, module: Any) -> str:
    """The rule's own source; for a row that is data, the line of the table's module that names the key."""
    place = getattr(row, "place", None)
    if place is not None:
        return str(place)
    target = inspect.unwrap(row) if callable(row) else row
    code = getattr(target, "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    if inspect.isclass(target):
        return f"{inspect.getsourcefile(target)}:{inspect.getsourcelines(target)[1]}"
    path = Path(inspect.getsourcefile(module) or "")
    family = getattr(row, "family", None)
    if family:
        path = path.parent / "ops" / f"{family}.py"
    name = str(getattr(key, "__name__", key))
    line = _line_with(path, (f'"{name}(', f'"{name}"', f"{name}:"))
    return f"{path}:{line}" if line else str(path)


def _rows(table: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(table, Mapping):
        yield from table.items()
        return
    for row in table:
        yield (row[0], row[1]) if isinstance(row, tuple) and len(row) > 1 else (row, row)


def places(name: str) -> list[tuple[str, str]]:
    """(what, file:line) for every table that has a row for `name`."""
    found = []
    for what, module_name, table_name in TABLES:
        module = importlib.import_module(module_name)
        for key, row in _rows(getattr(module, table_name)):
            if name in _names(key):
                label = f"{what} {key}" if str(key) != name else what
                found.append((label, _place(row, key, module)))
    return found

"""`tracework where NAME`: file:line of every rule for an op, callable, opcode, type, guard kind, break id, option, from the tables, and of what
a keyword of Python or a term ("resume function") stands for."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .where_terms import OPERATORS_OF, SAME_TERMS, STATEMENTS, TERMS

# what is printed, module, table
TABLES: tuple[tuple[str, str, str], ...] = (
    ("prim", "tracework_primops", "OPS"),
    ("shape rule", "tracework_primops.meta", "META"),
    ("eager reference", "tracework_primops.eager", "EAGER"),
    ("ATen shape rule", "tracework_primops.aten_meta", "ATEN_META"),
    ("what eager refuses", "tracework_primops.aten_meta", "REFUSALS"),
    ("layout of eager's result", "tracework_primops.aten_meta", "LAYOUTS"),
    ("decomposition", "tracework_primops.decomp", "DECOMPS"),
    ("lowering", "tracework_inductor.lowering", "LOWERINGS"),
    ("no lowering", "tracework_inductor.lowering.not_lowered", "NOT_LOWERED"),
    ("ONNX row", "tracework.onnx", "ONNX_ROWS"),
    ("scalar op", "tracework_inductor.ir.scalar_ops", "SCALAR_OPS"),
    ("C++ text", "tracework_inductor.codegen.cpp.text_rules", "CPP_TEXT"),
    ("Triton text", "tracework_inductor.codegen.triton.text_rules", "TRITON_TEXT"),
    ("opcode handler", "tracework_capture.interp.opcodes", "OPCODES"),
    ("value class", "tracework_capture.values.protocol.wraps", "WRAP"),
    ("call", "tracework_capture.values.protocol.calls", "CALLS"),
    ("float that changes", "tracework_capture.polyfills.torch_numbers", "FORMS"),
    ("formula of a ufunc", "tracework_capture.values.arrays.ufuncs", "UFUNCS"),
    ("guard kind", "tracework_capture.guards.kinds", "GUARD_KINDS"),
    ("break reason", "tracework_capture.errors", "BREAK_REASONS"),
    ("recompute rule", "tracework_aotautograd.partition.recompute", "RECOMPUTE"),
    ("option", "tracework.options", "OPTION_NAMES"),
    ("environment", "tracework.config", "ENVIRONMENT"),
    ("backend", "tracework.backends", "BACKENDS"),
)
SPACES = (
    *("builtins", "functools", "itertools", "math", "operator", "collections", "copy", "random", "re", "weakref", "dataclasses"),
    *("contextlib", "inspect", "types", "typing", "warnings", "torch", "torch.Tensor", "torch.nn.functional", "torch.linalg"),
    *("torch.fft", "torch.special", "torch.func", "torch.autograd", "torch.nn", "torch.utils.checkpoint", "torch.compiler"),
    *("torch.random", "torch.cuda", "numpy", "numpy.ndarray", "numpy.linalg", "numpy.fft", "numpy.random"),
)
"""Where a callable is looked for that is written without its module."""
ROOTS = frozenset({"torch", "numpy", *sys.stdlib_module_names})
SHORT = {"np": "numpy", "F": "torch.nn.functional", "Tensor": "torch.Tensor"}
OPERATOR_SPACES = ("torch", "torch.Tensor", "torch.nn.functional", "torch.ops.aten", "aten")
FAMILIES = {"linalg": "torch.linalg", "special": "torch.special", "fft": "torch.fft"}


class Found(NamedTuple):
    """A rule that bears a name."""

    what: str
    """Which table has it, and the key where that is written otherwise."""
    place: str
    """file:line"""
    in_force: bool
    """Whether it decides on calls of the callable that the name stands for."""


def names_of(key: Any) -> set[str]:
    """How a user may write a key: gather, aten.gather.default, aten._softmax, softmax, prims.gather, dict, list.sort, FOR_ITER."""
    if isinstance(key, tuple):
        owner, name = key
        return {f"{n}.{name}" for n in names_of(owner)} | {name}
    if isinstance(key, types.CodeType):
        return {key.co_name, key.co_qualname}
    parts = str(key).split(".")
    if len(parts) == 3 and parts[0] == "aten":
        return _names_of_operator(parts[1]) | {str(key), f"torch.ops.{key}"}
    if isinstance(key, str):
        return {key, parts[-1]}
    names = {str(getattr(key, "__qualname__", key)), str(getattr(key, "__name__", key))}
    module = getattr(key, "__module__", None)
    return names | ({f"{module}.{n}" for n in names} if module else set())


def _names_of_operator(name: str) -> set[str]:
    """`_softmax` is the operator of torch.softmax, Tensor.softmax and F.softmax."""
    found: set[str] = set()
    for each in {name, name.strip("_"), name.removeprefix("native_")}:
        found |= {each, *(f"{space}.{each}" for space in OPERATOR_SPACES)}
        family, _, rest = each.partition("_")
        if rest and family in FAMILIES:
            found |= {rest, f"{FAMILIES[family]}.{rest}"}
    return found


def _line_with(path: Path, words: tuple[str, ...]) -> int | None:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if any(w in line for w in words):
            return number
    return None


def _place(row: Any, key: Any, module: Any) -> str:
    """The rule's own source; for a row that is data, the line of the table's module that names the key."""
    place = getattr(row, "place", None)
    if isinstance(place, str):
        return place
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


def _shown(key: Any, row: Any) -> str:
    """How a row is written."""
    return (
        f"{key.__module__}.{key.__qualname__}".removeprefix("builtins.")
        if isinstance(key, type)
        else str(getattr(row, "name", key))
    )


@functools.cache
def _index() -> dict[str, list[tuple[str, str, Callable[[], str]]]]:
    """Name -> (table, how its key is written, its place) of all rows that bear it."""
    importlib.import_module("tracework_capture.values")
    found: dict[str, list[tuple[str, str, Callable[[], str]]]] = {}
    for what, module_name, table_name in TABLES:
        module = importlib.import_module(module_name)
        for key, row in _rows(getattr(module, table_name)):
            told = f"{what} ({row})" if isinstance(row, str) else what  # why there is no rule
            entry = told, _shown(key, row), functools.partial(_place, row, key, module)
            for name in names_of(key):
                found.setdefault(name, []).append(entry)
    return found


def _object(name: str) -> Any:
    """The object of a dotted name of Python, torch or NumPy; None where there is none."""
    parts = name.split(".")
    if parts[0] not in ROOTS:
        return None
    for count in range(len(parts), 0, -1):
        try:
            return _inside(importlib.import_module(".".join(parts[:count])), parts[count:])
        except ImportError:
            continue
    return None


def _inside(space: Any, parts: list[str]) -> Any:
    try:
        return functools.reduce(getattr, parts, space)
    except AttributeError:
        return None


@functools.cache
def _spaces() -> dict[str, Any]:
    return {name: _object(name) for name in SPACES}


def _callables(name: str) -> dict[str, Any]:
    """Dotted name -> callable that a name stands for, each once."""
    parts = name.split(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that NumPy is about to change
        tried = [(name, _object(name))] if len(parts) > 1 else []
        tried += [(f"{space}.{name}".removeprefix("builtins."), _inside(obj, parts)) for space, obj in _spaces().items()]
    found: dict[int, tuple[str, Any]] = {}
    for each, obj in tried:
        if callable(obj):
            found.setdefault(id(obj), (each, obj))
    return dict(found.values())


def _of_term(name: str) -> list[Found]:
    """Where that is done what a keyword or term stands for, in any of its spellings: Resume-Functions."""
    opcodes = [(name, opcode) for opcode in STATEMENTS.get(name, ())]
    found = [Found(f"{what} {opcode}", place(), False) for _, opcode in opcodes for what, _, place in _index().get(opcode, ())]
    term = " ".join(name.lower().replace("-", " ").replace("_", " ").split())
    for spelling in dict.fromkeys((term, term.removesuffix("s"), term.removesuffix("es"))):
        spelling = SAME_TERMS.get(spelling, spelling)
        for address in TERMS.get(spelling, ()):
            found.append(Found(f"{spelling}: {address.rpartition('.')[2].replace(':', '.')}", _place_of_address(address), False))
    return list(dict.fromkeys(found))


def _place_of_address(address: str) -> str:
    """file:line of module or module:name."""
    module_name, _, name = address.partition(":")
    module = importlib.import_module(module_name)
    row = getattr(module, name) if name else None
    if callable(row):
        return _place(row, name, module)
    starts = (f"{name}:", f"{name} =")
    lines = inspect.getsource(module).splitlines() if name else []
    line = next((number for number, text in enumerate(lines, 1) if text.startswith(starts)), 1)
    return f"{inspect.getsourcefile(module)}:{line}"


def places(name: str) -> list[Found]:
    """Every rule for `name`: what becomes of calls of the callables of that name, the rows of the tables that bear it, what it is a term for."""
    policy = importlib.import_module("tracework_capture.values.policy")
    first, _, rest = name.partition(".")
    full = f"{SHORT.get(first, first)}.{rest}" if rest else name
    found, calls = [], set()
    for dotted, obj in _callables(full).items():
        rule = policy.rule_of(obj)
        calls.add(rule.place)
        reason = f" ({rule.reason})" if rule.reason else ""
        found.append(Found(f"call of {dotted}: {rule.policy.value}{reason}", rule.place, True))
        if (given := policy.rule_of_result(obj)) is not None:
            found.append(Found(f"call of what {dotted} gives: {given.policy.value}", given.place, True))
    out_of_place = full.rstrip("_")  # Tensor.sigmoid_ is sigmoid once its graph is functional
    space, _, last = out_of_place.rpartition(".")
    operators = OPERATORS_OF.get(last, ()) if space in ("", "torch", "torch.nn.functional") else ()
    spellings = dict.fromkeys((name, full, out_of_place, *(f"aten.{operator}" for operator in operators)))
    for what, shown, place in (row for spelling in spellings for row in _index().get(spelling, ())):
        if what == "call" and place() in calls:
            continue
        row = Found(what if shown == name else f"{what} {shown}", place(), False)
        found += [row] if row not in found else []
    return found + _of_term(name)

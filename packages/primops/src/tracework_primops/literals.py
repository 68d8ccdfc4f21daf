"""Plain data as text that reads back: numbers, texts, containers, dtypes, sizes, small tensors, and dataclasses, named tuples and enums of
classes that the reader is given.

    LoopKernel(name='kernel0', device=device('cpu'), axes=(Axis(x0, s0*4),), ...)

What a field has by default is left out. Symbols are written by name; `symbol_lines` declares them.
"""

from __future__ import annotations

import ast
import base64
import dataclasses
import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch

from ._torch import OpOverload
from .errors import ParseError
from .graph.text import PRINT_VALUE
from .spec import DTYPE_TEXT, TEXT_DTYPE, SizeSpec, TensorSpec
from .symbols import Condition, Expr, Size, Symbol, SymbolTable, symbol
from .symbols.expr import parse

WIDTH = 130
"""Characters of a line, as far as values can be broken."""
INDENT = "  "


def print_literal(value: Any, indent: str = "") -> str:
    """The text of a value, on several lines where it is long. Raises ParseError for what is no plain data."""
    parts = _parts(value)
    if parts is None:
        return _leaf(value)
    opening, items, closing = parts
    inside = indent + INDENT
    printed = [(label, print_literal(item, inside)) for label, item in items]
    line = opening + ", ".join(label + text for label, text in printed) + (closing if closing != ",)" or len(items) == 1 else ")")
    if len(indent) + len(line) <= WIDTH and "\n" not in line:
        return line
    return opening + "".join(f"\n{inside}{label}{text}," for label, text in printed) + f"\n{indent}{closing.lstrip(',')}"


def _parts(value: Any) -> tuple[str, list[tuple[str, Any]], str] | None:
    """How a value opens, what is in it with labels, and how it closes; None for one that is not broken."""
    cls = type(value)
    if isinstance(value, tuple) and hasattr(cls, "_fields"):
        return f"{cls.__name__}(", [("", item) for item in value], ")"
    if cls is tuple:
        return "(", [("", item) for item in value], ",)"
    if isinstance(value, slice):
        return "slice(", [("", value.start), ("", value.stop), ("", value.step)], ")"
    if cls is list:
        return "[", [("", item) for item in value], "]"
    if cls is frozenset:
        return "frozenset([", [("", item) for item in sorted(value, key=str)], "])"
    if isinstance(value, Mapping):
        return "{", [(f"{print_literal(k)}: ", item) for k, item in value.items()], "}"
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, enum.Enum)):
        return (
            f"{cls.__name__}(",
            [(f"{f.name}=", getattr(value, f.name)) for f in dataclasses.fields(value) if not _usual(value, f)],
            ")",
        )
    if isinstance(value, (TensorSpec, SizeSpec)):
        return f"{cls.__name__}(", [("", item) for item in value._key()], ")"
    return None


def _usual(value: Any, field: dataclasses.Field[Any]) -> bool:
    """Whether a field has what it has by default."""
    given = getattr(value, field.name)
    if field.default is not dataclasses.MISSING:
        return (
            type(given) is type(field.default)
            and isinstance(given, (bool, int, str, tuple, type(None)))
            and given == field.default
        )
    return (
        field.default_factory is not dataclasses.MISSING
        and isinstance(given, Mapping)
        and not given
        and not field.default_factory()
    )


def _leaf(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, Expr):
        return str(value)
    if isinstance(value, Condition):
        return f"Condition({value.op!r}, {value.expr})"
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, OpOverload):
        return f"overload({str(value)!r})"
    if type(value) in PRINT_VALUE:
        return PRINT_VALUE[type(value)](value)
    if isinstance(value, (bool, int, str, bytes, complex, type(None))):
        return repr(value)
    raise ParseError(f"{value!r} of {type(value).__name__} is no plain data")


def _tensor(value: torch.Tensor) -> str:
    data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    facts = f"dtype.{DTYPE_TEXT[value.dtype]}, {tuple(value.shape)}, {value.stride()}, device('{value.device}')"
    return f"tensor({facts}, {base64.b64encode(data).decode()!r})"


def _read_tensor(dtype: torch.dtype, sizes: Any, strides: Any, device: torch.device, text: str) -> torch.Tensor:
    data = bytearray(base64.b64decode(text))
    dense = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return torch.empty_strided(sizes, strides, dtype=dtype, device=device).copy_(dense.reshape(sizes))


def _overload(name: str) -> Any:
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


MAKERS: Mapping[str, Callable[..., Any]] = {
    "float": float,
    "device": torch.device,
    "frozenset": frozenset,
    "slice": slice,
    "tensor": _read_tensor,
    "overload": _overload,
    "Condition": Condition,
    "TensorSpec": TensorSpec,
    "SizeSpec": SizeSpec,
}


def parse_literal(text: str, classes: Iterable[type], names: Mapping[str, Size]) -> Any:
    """The value of a text. classes: those whose instances may be in it; names: symbols. Raises ParseError."""
    known = {cls.__name__: cls for cls in classes}
    try:
        return _Reader(known, names).value(ast.parse(text.strip(), mode="eval").body)
    except ParseError:
        raise
    except Exception as error:
        raise ParseError(f"cannot read `{text[:80]}`: {type(error).__name__}: {error}") from error


class _Reader:
    def __init__(self, classes: Mapping[str, type], names: Mapping[str, Size]) -> None:
        self.classes, self.names = classes, names

    def value(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Tuple):
            return tuple(map(self.value, node.elts))
        if isinstance(node, ast.List):
            return list(map(self.value, node.elts))
        if isinstance(node, ast.Dict):
            return {self.value(k): self.value(v) for k, v in zip(node.keys, node.values) if k is not None}
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return self._member(node.value.id, node.attr)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            made = self.classes.get(node.func.id) or MAKERS.get(node.func.id)
            if made is not None:
                return made(*map(self.value, node.args), **{str(k.arg): self.value(k.value) for k in node.keywords})
        if not any(isinstance(n, ast.Name) for n in ast.walk(node)):
            return ast.literal_eval(node)
        return parse(ast.unparse(node), self.names)

    def _member(self, space: str, name: str) -> Any:
        if space == "dtype":
            return TEXT_DTYPE[name]
        return self.classes[space][name] if space in self.classes else getattr(torch, name)  # type: ignore[index]  # of an enum


# symbols --------------------------------------------------------------------------------------------------------------------


def symbols_in(value: Any, found: set[Symbol] | None = None) -> set[Symbol]:
    """The symbols that a value names."""
    found = set() if found is None else found
    parts = _parts(value)
    if parts is not None:
        for _, item in parts[1]:
            symbols_in(item, found)
        for key in value if isinstance(value, Mapping) else ():
            symbols_in(key, found)
    elif isinstance(value, (Expr, Condition)):
        found |= value.free_symbols
    return found


def symbol_lines(symbols: Collection[Symbol], table: SymbolTable | None, count: int | None = None) -> list[str]:
    """A line for each symbol, and for each of the first `count` conditions that a table has on them. Raises ParseError where two have one
    name."""
    recorded = [] if table is None else table.conditions[:count]
    every = {*symbols, *(s for r in recorded for s in r.condition.free_symbols)}
    if len({s.name for s in every}) < len(every):
        raise ParseError("two symbols have one name")
    lines = []
    for s in sorted(every, key=lambda s: (len(s.name), s.name)):
        hint = f" hint {table.hint(s)}" if table is not None and table.has_hint(s) else ""
        lines.append(f"symbol {s.name} in {s.lower}..{s.upper}{hint}")
    return [*lines, *(f"condition {print_literal(r.condition)} of {r.origin!r}" for r in recorded)]


def read_symbols(lines: Iterable[str], with_table: bool) -> tuple[dict[str, Size], SymbolTable | None]:
    """The symbols of such lines by name, and a table with their hints and conditions."""
    names: dict[str, Size] = {}
    table = SymbolTable() if with_table else None
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "symbol":
            name, _, span = rest.partition(" in ")
            span, _, hint = span.partition(" hint ")
            low, _, high = span.partition("..")
            names[name] = made = symbol(name, None if low == "None" else int(low), None if high == "None" else int(high))
            if table is not None:
                table.adopt(made, int(hint) if hint else None)
        elif kind == "condition" and table is not None:
            condition, _, origin = rest.partition(" of ")
            table.assume(parse_literal(condition, (), names), ast.literal_eval(origin))
    return names, table


__all__ = ["parse_literal", "print_literal", "read_symbols", "symbol_lines", "symbols_in"]

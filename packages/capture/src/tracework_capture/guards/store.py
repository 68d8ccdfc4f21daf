"""Guards as text: JSON of a Program's guards, conditions and inputs, read again in this process or another one.

What is stored is what the guards say, so only what has a name or a value can be: constants, tensor facts, classes and functions of
importable modules, code by a digest of its bytecode. An identity of some instance means nothing elsewhere: such guards are left out
when `portable_only` asks for it, else storing them is an error that lists them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import sources
from ..errors import GuardBuildError
from ..signals import let_through
from ..sources import Source
from ..weakly_held import there
from . import shapes
from .access import Scope
from .classes import SealedLookups, find
from .guard import Guard, TensorFacts
from .program import Failure, Program, check_guard, program_of
from .report import explain_failure

FORMAT = 1
_PLAIN = (type(None), bool, int, str)
_TORCH_NAMES = (torch.dtype, torch.layout, torch.memory_format)
_OWNERS = ("torch", "torch._C._nn", "torch.nn.functional", "torch._C", "builtins", "math", "operator")


class NotPortable(GuardBuildError):
    """Guards that have no meaning outside of this process."""


# Payloads of stored CODE and CLASSES guards; their docstrings are what a failure says was expected.
@dataclass(frozen=True)
class CodeIs:
    """the function runs the code that was stored"""

    digest: str

    def __call__(self, value: Any) -> bool:
        return isinstance(value, types.FunctionType) and code_digest(value.__code__) == self.digest


@dataclass(frozen=True)
class LookupsAre:
    """the methods of the classes are those that were stored"""

    found: tuple[tuple[type, str, type | None, str], ...]
    orders: tuple[tuple[type, ...], ...]

    def __call__(self, value: Any) -> bool:
        looked_up = all(_lookup_facts(cls, name) == (owner, facts) for cls, name, owner, facts in self.found)
        return looked_up and all(order[0].__mro__ == order for order in self.orders)


def code_digest(code: types.CodeType) -> str:
    """What a code object does, whatever file and line it is at; constants that are code count by their digests."""
    constants = [code_digest(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    parts = (code.co_code.hex(), constants, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _lookup_facts(cls: type, name: str) -> tuple[type | None, str]:
    """(the class that has the name, what it is in words that another process gives, too)."""
    static, owner = find(cls, name)
    function = getattr(static, "__func__", static)
    if isinstance(function, types.FunctionType):
        return owner, code_digest(function.__code__)
    return owner, type(static).__qualname__


# --- values ------------------------------------------------------------------------------------------------------------------


def _named(obj: Any) -> str:
    """module:qualname of an importable object."""
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    for module in (getattr(obj, "__module__", None), *_OWNERS):
        if isinstance(module, str) and isinstance(name, str) and "<locals>" not in name:
            try:
                if _resolve(f"{module}:{name}") is obj:
                    return f"{module}:{name}"
            except (ImportError, AttributeError):
                continue
    for attribute, known in vars(types).items():  # the types of Python have other names there
        if known is obj:
            return f"types:{attribute}"
    raise NotPortable(f"{obj!r} has no importable name")


def _resolve(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _module_of_namespace(namespace: dict[str, Any]) -> str:
    name = namespace.get("__name__")
    if isinstance(name, str) and getattr(importlib.import_module(name), "__dict__", None) is namespace:
        return name
    raise NotPortable("a dict that is no module's namespace")


def _code_guard(payload: Any) -> Any:
    return CodeIs(code_digest(payload))


def _class_guard(payload: SealedLookups) -> Any:
    return LookupsAre(
        tuple((cls, name, *_lookup_facts(cls, name)) for cls, name in ((there(cls), name) for cls, name, *_ in payload.found)),
        tuple(tuple(map(there, order)) for _, order in payload.orders),
    )


_STORED_AS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "CODE": ("PREDICATE", _code_guard),
    "CLASSES": ("PREDICATE", _class_guard),
}
"""Kinds whose payload is an object of this process: the kind and payload that stand for them in the store."""

_DATA = {cls.__name__: cls for cls in (TensorFacts, CodeIs, LookupsAre)}
_SOURCES = {name: kind for name, kind in vars(sources).items() if isinstance(kind, type) and issubclass(kind, sources.Source)}


def _fields(value: Any) -> dict[str, Any]:
    """The fields of a source or payload by name, encoded."""
    names = ["value", "text"] if type(value) is sources.Const else [f.name for f in dataclasses.fields(value)]
    return {name: encode(getattr(value, name)) for name in names}


def encode(value: Any) -> Any:
    """JSON data of a payload, key or source. Raises NotPortable."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, Source):
        return {"source": kind.__name__, "fields": _fields(value)}
    if kind.__name__ in _DATA and kind is _DATA[kind.__name__]:
        return {"data": kind.__name__, "fields": _fields(value)}
    for test, tag, write in _WRITERS:
        if isinstance(value, test):
            return {tag: write(value)}
    return {"object": _named(value)}


_WRITERS: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
    (float, "float", float.hex),
    (complex, "complex", lambda v: [v.real.hex(), v.imag.hex()]),
    (bytes, "bytes", bytes.hex),
    (tuple, "tuple", lambda v: [encode(item) for item in v]),
    (list, "list", lambda v: [encode(item) for item in v]),
    (frozenset, "frozenset", lambda v: [encode(item) for item in sorted(v, key=repr)]),
    (_TORCH_NAMES, "torch", lambda v: str(v).removeprefix("torch.")),
    (torch.device, "device", str),
    (types.ModuleType, "module", lambda v: v.__name__),
    (dict, "namespace", _module_of_namespace),
)

_READERS: dict[str, Callable[[Any], Any]] = {
    "float": float.fromhex,
    "complex": lambda v: complex(float.fromhex(v[0]), float.fromhex(v[1])),
    "bytes": bytes.fromhex,
    "tuple": lambda v: tuple(decode(item) for item in v),
    "list": lambda v: [decode(item) for item in v],
    "frozenset": lambda v: frozenset(decode(item) for item in v),
    "torch": lambda v: getattr(torch, v),
    "device": torch.device,
    "module": importlib.import_module,
    "namespace": lambda v: importlib.import_module(v).__dict__,
    "object": _resolve,
}


def decode(data: Any) -> Any:
    """The inverse of encode. Imports what the data names; raises ImportError or AttributeError when it is not there."""
    if not isinstance(data, dict):
        return data
    for tag, table in (("source", _SOURCES), ("data", _DATA)):
        if tag in data:
            return table[data[tag]](**{name: decode(field) for name, field in data["fields"].items()})
    ((tag, content),) = data.items()
    return _READERS[tag](content)


# --- programs ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredExpression:
    """The text of a size expression; like an Expr it prints as the text that guards are compiled from."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class StoredCondition:
    """`expr op 0`"""

    op: str
    expr: StoredExpression

    def __str__(self) -> str:
        return f"{self.expr} {self.op} 0"


@dataclass(frozen=True)
class StoredRecord:
    """A condition and where in the user's program it was needed."""

    condition: StoredCondition
    origin: str

    def __str__(self) -> str:
        return f"{self.condition}  # {self.origin}" if self.origin else str(self.condition)


@dataclass(frozen=True)
class StoredGuards:
    """What was read: guards, conditions on symbols, where the symbols are, and the sources of the graph's inputs."""

    guards: tuple[Guard, ...]
    conditions: tuple[StoredRecord, ...]
    symbols: dict[str, Source]
    collect: tuple[Source, ...]

    def program(self, code: types.CodeType) -> Program:
        """A program for frames of `code`. Raises GuardBuildError when the code lacks what the guards look at."""
        return program_of(self.guards, self.collect, self.conditions, self.symbols, code)

    def failure(self, scope: Scope) -> str | None:
        """The first thing that does not hold for a frame, in words; None when all does."""
        for guard in self.guards:
            failed = check_guard(guard, scope)
            if failed is not None:
                return explain_failure(failed)
        try:
            failed_condition = shapes.first_failure(self.conditions, self.symbols, scope)
        except Exception as error:  # a size that cannot be read
            let_through(error)
            return explain_failure(Failure(None, error=error))
        return None if failed_condition is None else explain_failure(Failure(*failed_condition))


def dumps(program: Program, portable_only: bool = False) -> str:
    """The program's guards as JSON.

    portable_only: leave out guards that mean nothing in another process. Raises NotPortable, which lists them, otherwise.
    """
    kept, refused = [], []
    for guard in program.guards:
        kind, convert = _STORED_AS.get(guard.kind, (guard.kind, None))
        try:
            payload = encode(guard.payload if convert is None else convert(guard.payload))
            kept.append({"kind": kind, "source": encode(guard.source), "payload": payload, "origin": guard.origin})
        except NotPortable as error:
            refused.append(f"{guard}: {error}")
    if refused and not portable_only:
        raise NotPortable(
            "guards that mean nothing in another process (portable_only=True leaves them out):\n  " + "\n  ".join(refused)
        )
    conditions = [{"expr": str(r.condition.expr), "op": r.condition.op, "origin": r.origin} for r in program.conditions]
    symbols = {name: encode(source) for name, source in program.symbols.items()}
    collect = [encode(source) for source in _portable(program.collect, portable_only)]
    return json.dumps(
        {"format": FORMAT, "guards": kept, "conditions": conditions, "symbols": symbols, "collect": collect}, indent=1
    )


def _portable(collect: Sequence[Source], portable_only: bool) -> list[Source]:
    if not portable_only:
        return list(collect)
    kept = []
    for source in collect:
        try:
            encode(source)
        except NotPortable:
            continue
        kept.append(source)
    return kept


def loads(text: str) -> StoredGuards:
    """Reads what dumps wrote. Raises GuardBuildError for anything else, or for names that cannot be imported here."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise GuardBuildError(f"stored guards are JSON, and this is not: {error}. Store them anew with dump_guards().") from error
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise GuardBuildError(f"stored guards of format {found!r}; this version reads {FORMAT}. Store them anew.")
    try:
        guards = tuple(Guard(g["kind"], decode(g["source"]), decode(g["payload"]), g["origin"]) for g in data["guards"])
        symbols = {name: decode(source) for name, source in data["symbols"].items()}
        collect = tuple(decode(source) for source in data["collect"])
    except (ImportError, AttributeError) as error:
        raise GuardBuildError(f"stored guards name what is not there: {error}. Import it, or compile anew.") from error
    except (KeyError, TypeError, ValueError) as error:
        raise GuardBuildError(f"stored guards are damaged: {type(error).__name__}: {error}. Store them anew.") from error
    conditions = tuple(
        StoredRecord(StoredCondition(c["op"], StoredExpression(c["expr"])), c["origin"]) for c in data["conditions"]
    )
    return StoredGuards(guards, conditions, symbols, collect)

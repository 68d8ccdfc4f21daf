"""What tools/capture_diff.py writes: attempts, breaks, graphs, guards and code of one program, the same text in each process."""

from __future__ import annotations

import dis
import inspect
import logging
import os
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tracework_capture
import tracework_primops
from tracework_capture.hook import cache

__all__ = ["Recorder", "normalised"]

ROOT = Path(__file__).resolve().parent.parent
OWN = str(Path(tracework_capture.__file__).parent)
PATHS = (
    (re.compile(r"[^\s\"'(<]*/src/tracework_capture[/\w]*\.py(:\d+)?"), "tracework_capture"),
    (re.compile(r"\btracework_capture(\.\w+)+\.(?=\w)"), "tracework_capture."),
    (re.compile(re.escape(f"{ROOT}{os.sep}")), ""),
    (re.compile(r"[^\s\"'(<]*/(?=(site-packages|lib/python3\.\d+|packages)/)"), ""),
    (re.compile(r"\b0x[0-9a-f]{6,}\b|\b1[34]\d{13}\b"), "@"),
)
NUMBERED = re.compile(r"(?<=_at_)0x[0-9a-f]{6,}|(?<=<eval_with_key>\.)\d+")
"""Names of graphs and of their inputs. An address elsewhere may be of an object that another one has followed there: it gets no number."""
JUMPS = {*dis.hasjrel, *dis.hasjabs}


class Recorder(logging.Handler):
    """Watches capture and keeps what it does, as lines."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []
        self.callbacks: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        """A line of capture's logs: breaks, frames that run plainly, recompiles."""
        ids = [each.reason_id for each in record.args or () if hasattr(each, "reason_id")]
        self.lines.append(f"{record.name.removeprefix('tracework.')} {' '.join(ids)}: {record.getMessage()}")

    def watch(self) -> None:
        """Starts, for the rest of the process; each attempt has one FakeMode, and what replaces a frame goes through make_entry."""
        logger = logging.getLogger("tracework")
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        begin, make = tracework_primops.FakeMode.__init__, cache.make_entry
        signature = inspect.signature(make)

        def attempt(mode: Any, *args: Any, **kwargs: Any) -> None:
            self.lines.append("attempt")
            begin(mode, *args, **kwargs)

        def make_entry(*args: Any, **kwargs: Any) -> Any:
            self.entry(**signature.bind(*args, **kwargs).arguments)
            return make(*args, **kwargs)

        tracework_primops.FakeMode.__init__ = attempt  # type: ignore[method-assign, assignment]
        cache.make_entry = make_entry

    def compiled(self, function: Any, **options: Any) -> Any:
        """The function compiled by a backend that gives graphs back."""
        found = tracework_capture.optimize(lambda gm, inputs: gm.forward, observe=self.graph, **options)(function)
        self.callbacks.append(found.callback)
        return found

    def graph(self, stage: str, captured: Any) -> None:
        """A captured graph and the graphs in it."""
        self.lines.append(f"graph of {captured.origin}, {getattr(captured.stop, 'reason_id', 'returned')}")
        self.lines += [f"  input {each.name}: {each.role}{' static' * each.is_static} {each.source}" for each in captured.inputs]
        for name, part in captured.graph.named_modules():
            if hasattr(part, "graph"):
                self.lines += [f"  {name} {line}" for line in str(part.graph).splitlines() if line]
        for node in captured.graph.graph.find_nodes(op="placeholder"):
            self.lines.append(f"  {node.name} is {described(node.meta.get('example_value'))}")

    def entry(self, code: types.CodeType, guards: Any, collect: Any, table: Any, replacement: types.CodeType, **_: Any) -> None:
        """What will be run for a frame, and when."""
        self.lines.append(f"entry of {code.co_qualname} ({code.co_filename}:{code.co_firstlineno})")
        for each in guards:
            payload = shown(frozenset(each.payload) if each.kind == "SET_MEMBERS" else each.payload)
            self.lines.append(f"  guard {each.kind} {each.source} {payload}  # {each.origin}")
        self.lines += [f"  condition {each}" for each in getattr(table, "conditions", ())]
        self.lines += [f"  collects {each}" for each in collect]
        self.lines += listing(replacement, {id(code)})


def described(value: Any) -> str:
    """A tensor by its facts, anything else as it is shown."""
    if hasattr(value, "stride") and hasattr(value, "dtype"):
        return f"{type(value).__name__} {value.dtype} {tuple(value.shape)} {value.stride()} {value.requires_grad}"
    return f"{type(value).__name__} {shown(value)}"


def shown(value: Any) -> str:
    """One line for a value, the same in each process."""
    if type(value) in (set, frozenset):
        return f"{type(value).__name__}({', '.join(sorted(map(shown, value)))})"
    if type(value) in (tuple, list):
        return f"{type(value).__name__}({', '.join(map(shown, value))})"
    if type(value) in (types.CodeType, types.FunctionType, types.MethodType, types.BuiltinFunctionType):
        return f"<{type(value).__name__} {getattr(value, '__qualname__', None) or value.co_qualname}>"
    try:
        text = value.text() if type(value).__name__ == "TensorFacts" else repr(value)
    except Exception as error:  # the program's own
        text = f"{type(error).__name__}"
    return text if "\n" not in text and type(value) is not dict else f"<{type(value).__qualname__}>"  # globals, sys.modules


def listing(code: types.CodeType, seen: set[int]) -> Iterator[str]:
    """The instructions of a code object and of those that it holds, jumps by labels, lines counted from its first."""
    seen.add(id(code))
    read = dis.Bytecode(
        code.replace(co_consts=(None,) * len(code.co_consts))
    )  # it asks constants for their texts, which may raise
    instructions, covered = list(read), read.exception_entries  # type: ignore[attr-defined]
    jumps = {each.argval for each in instructions if each.opcode in JUMPS}
    targets = sorted(jumps | {offset for each in covered for offset in (each.start, each.end, each.target)})
    labels, line = {offset: f"L{number}" for number, offset in enumerate(targets)}, None
    yield f"  code {code.co_qualname} flags {code.co_flags} stack {code.co_stacksize} {code.co_varnames} {code.co_freevars}"
    for each in instructions:
        now = each.positions.lineno if each.positions else None
        place = f"{f'+{now - code.co_firstlineno}' if now and now != line else '':5}{labels.get(each.offset, ''):4}"
        line = now
        constant = shown(code.co_consts[each.arg or 0]) if each.opcode in dis.hasconst else ""
        argument = labels[each.argval] if each.opcode in JUMPS else constant or each.argrepr or each.arg
        yield f"    {place} {each.opname} {'' if argument is None else argument}".rstrip()
    for each in covered:
        end = labels.get(each.end, "end")
        yield f"    {labels[each.start]} to {end} handled at {labels[each.target]}, depth {each.depth}{' with lasti' * each.lasti}"
    for held in code.co_consts:
        inner = held.__code__ if type(held) is types.FunctionType else held
        if isinstance(inner, types.CodeType) and id(inner) not in seen and not inner.co_filename.startswith(OWN):
            yield from listing(inner, seen)


def normalised(text: str) -> str:
    """Paths relative, addresses left out, counters numbered."""
    for pattern, short in PATHS:
        text = pattern.sub(short, text)
    numbers: dict[str, str] = {}
    return NUMBERED.sub(lambda found: numbers.get(found[0]) or numbers.setdefault(found[0], f"@{len(numbers) + 1}"), text)

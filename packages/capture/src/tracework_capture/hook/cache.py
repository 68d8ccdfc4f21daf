"""Entries per code object: make, find, count, limit, reset. The entries themselves hang off the code objects, in C.

An entry keeps nothing of the program's alive: classes, functions, modules and instances are compared by address, and the entry dies
with the first of them. The limit of entries is announced once, loudly, with reasons and cure.
"""

import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from dis import Bytecode
from types import CodeType, FunctionType
from typing import Any

from .. import _C
from ..bytecode.resume import continues_a_loop
from ..contracts import Recompile
from ..errors import RecompileLimitError
from ..guards.access import Scope
from ..guards.guard import Guard
from ..guards.program import Program, build_program, guard_set, lean_programs
from ..guards.report import cure_of, recompile_reason, same_object_cure
from ..options import CaptureOptions
from ..sources import Source
from ..uncompiled import RecompileLimitWarning, forget_warned, report_uncompiled
from ..weakly_held import is_held
from .code_set import CodeSet

log = logging.getLogger("tracework.capture.recompiles")
_bytecode = logging.getLogger("tracework.capture.bytecode")


@dataclass
class EntryInfo:
    """What the Python side keeps with an entry: its program for reports, and the watchers of mortal objects."""

    program: Program
    detail: Any = None
    has_graph: bool = True
    watchers: list[Any] = field(default_factory=list)


_touched = CodeSet()
_announced = CodeSet()
_lock = threading.RLock()  # a destructor of the program may run while it is held, and be captured
_graphless = CodeSet()
_left_plain = CodeSet()
"""Codes that a callback told the evaluator to leave alone."""
_lost = CodeSet()
"""Codes that go on in a loop and whose entries a collection has taken."""


def _touch(code: CodeType) -> None:
    with _lock:
        _touched.add(code)


def make_entry(
    code: CodeType,
    guards: Iterable[Guard],
    collect: Sequence[Source],
    table: Any,
    replacement: CodeType,
    owner: Any,
    detail: Any = None,
    conditions: bool = True,
    has_graph: bool = True,
    dead_sources: list[str] | None = None,
) -> _C.Entry:
    """An entry for frames of `code`: `replacement` takes (__tw_inputs, *argument slots), the inputs are those of `collect`.

    owner: the callback the entry belongs to. detail: kept as entry.info.detail. conditions: whether those on sizes are checked. has_graph:
    whether a compiled graph is called. dead_sources: takes where the object was whose death ends the entry.
    Raises GuardBuildError.
    """
    program = build_program(guards, collect, code, table, conditions)
    return entry_of(code, program, replacement, owner, detail, has_graph, dead_sources)


def entry_of(
    code: CodeType,
    program: Program,
    replacement: CodeType,
    owner: Any,
    detail: Any = None,
    has_graph: bool = True,
    dead_sources: list[str] | None = None,
) -> _C.Entry:
    """The same, of guards that are built."""
    mortal, program.mortal = program.mortal, ()
    program.guards = tuple(guard_set(program.guards))
    program.labels = ()
    info = EntryInfo(program, detail, has_graph)
    if _bytecode.isEnabledFor(logging.DEBUG):
        _bytecode.debug("%s (%s:%d)\n%s", code.co_qualname, code.co_filename, code.co_firstlineno, Bytecode(replacement).dis())
    entry = _C.Entry(program.native, replacement, owner, info)
    _touch(code)
    remember = weakref.ref(code)
    if not has_graph:
        _graphless.add(code)
    constants = [(const(), "what it makes") for const in replacement.co_consts if type(const) is _C.WeakKey and is_held(const)]
    for target, place in {id(target): (target, str(source)) for target, source in (*constants, *mortal)}.values():
        # Entry is not weakly referenceable on purpose: the watcher finds it by identity of its info among the code's entries.
        info.watchers.append(weakref.ref(target, _Invalidate(remember, weakref.ref(info), place, dead_sources)))
    return entry


def remove(code: CodeType | None, chosen: Callable[[_C.Entry], bool]) -> bool:
    """Takes the chosen entries out of a code object, if that still lives; gives whether there were any."""
    if code is None or getattr(_C, "get_entries", None) is None:  # emptied modules: Python ends
        return False
    entries = _C.get_entries(code)
    kept = []
    for entry in entries:
        if chosen(entry):
            entry.dead = True
        else:
            entry.full = False
            kept.append(entry)
    _C.set_entries(code, tuple(kept))
    return len(kept) < len(entries)


class _Invalidate:
    """Called when a guarded object dies: drops its entry, and says where the object was."""

    def __init__(self, code: Any, info: Any, place: str = "", dead_sources: list[str] | None = None) -> None:
        self.code, self.info, self.place, self.dead_sources = code, info, place, dead_sources

    def __call__(self, dead: Any, remove: Callable[..., bool] = remove) -> None:  # at Python's end the module is empty
        info = self.info()
        if info is None or remove is None:  # None: Python ends and has emptied this module
            return
        if remove(self.code(), lambda entry: entry.info is info) and self.dead_sources is not None:
            self.dead_sources.append(self.place)


def release_unused() -> None:
    """Before a full collection: entries that served once and lead to no graph, which are cheap to make anew, go. They hold functions
    and classes that nothing else may hold, and the collector does not see into code objects. A round of a loop that is collected in
    loses what it goes on in once."""
    for code in _graphless:
        entries = _C.get_entries(code)
        kept = entries if code in _lost else tuple(entry for entry in entries if not _is_unused(entry))
        if len(kept) < len(entries):
            if continues_a_loop(code):
                _lost.add(code)
            _C.set_entries(code, kept)
        if all(map(calls_graph, kept)):
            _graphless.discard(code)


def calls_graph(entry: _C.Entry) -> bool:
    """Whether what the entry leads to calls a compiled graph."""
    return not isinstance(entry.info, EntryInfo) or entry.info.has_graph


def _is_unused(entry: _C.Entry) -> bool:
    return entry.hits <= 1 and not entry.full and not _leads_to_graph(entry)


def _leads_to_graph(entry: _C.Entry) -> bool:
    """Whether the entry, or one of a function that its code goes on in, calls a graph."""
    open_: list[_C.Entry] = [entry]
    seen: set[Any] = set()
    while open_:
        entry = open_.pop()
        if calls_graph(entry):
            return True
        held = [c.__code__ if type(c) is FunctionType else c for c in entry.code.co_consts]
        codes = {id(code): code for code in held if type(code) is CodeType}
        open_ += [further for key, code in codes.items() if key not in seen for further in _C.get_entries(code)]
        seen |= codes.keys()
    return False


gc.callbacks.append(_C.full_collection_callback(release_unused))


def build_lean_programs() -> None:
    """Gives each entry a program that checks only what tells the live entries of its code and owner apart."""
    with _lock:
        codes = list(_touched)
    for code in codes:
        by_owner: dict[int, list[_C.Entry]] = {}
        for entry in entries_of(code):
            if isinstance(entry.info, EntryInfo):
                by_owner.setdefault(id(entry.owner), []).append(entry)
        for entries in by_owner.values():
            programs = lean_programs([entry.info.program for entry in entries], code)
            for entry, program in zip(entries, programs):
                entry.lean = program


def install(code: CodeType, entry: _C.Entry) -> None:
    """Adds an entry by hand; the evaluator does it itself with an entry that the callback returns."""
    _touch(code)
    _C.add_entry(code, entry)


def entries_of(code: CodeType, owner: Any = None) -> tuple[_C.Entry, ...]:
    """The live entries, of one owner or of all."""
    return tuple(e for e in _C.get_entries(code) if not e.dead and (owner is None or e.owner is owner))


def skip(code: CodeType, recursive: bool = False) -> None:
    """Runs frames of `code` as plain Python from now on; recursive: everything they call, too."""
    _touch(code)
    _C.set_mark(code, _C.MARK_SKIP_RECURSIVE if recursive else _C.MARK_SKIP)


def left_plain(code: CodeType) -> None:
    """The evaluator leaves `code` alone from now on, because a callback said so."""
    _touch(code)
    _left_plain.add(code)


def try_again(reference: weakref.ref[CodeType] | None) -> None:
    """Frames of the code are asked about again: another call of optimize() wants it, with options under which it may be captured."""
    code = None if reference is None else reference()
    if code is not None and code in _left_plain:
        _left_plain.discard(code)
        _C.set_mark(code, _C.MARK_NONE)


def recompile_reasons(code: CodeType, scope: Scope, owner: Any = None) -> list[str]:
    """For each live entry why it does not serve this frame."""
    reasons = (recompile_reason(e.info.program, scope) for e in entries_of(code, owner) if isinstance(e.info, EntryInfo))
    return [reason or "all guards hold" for reason in reasons]


def fitting(code: CodeType, scope: Scope, owner: Any) -> _C.Entry | None:
    """A live entry whose guards hold for this frame."""
    for entry in entries_of(code, owner):
        if isinstance(entry.info, EntryInfo) and recompile_reason(entry.info.program, scope) is None:
            return entry
    return None


def at_limit(
    code: CodeType, scope: Scope, options: CaptureOptions, owner: Any, record: Any = None, dead_sources: Sequence[str] = ()
) -> bool:
    """Whether no further entry may be made. The first time this is so it is said aloud; later calls run entries or plain Python.

    dead_sources: where the objects were whose death has ended entries; these count, too.
    Raises RecompileLimitError when options.fail_on_limit or options.fullgraph is set. Logs the reasons of any recompile, and
    appends a Recompile to `record`.
    """
    entries = entries_of(code, owner)
    count, fails = len(entries) + len(dead_sources), options.fail_on_limit or options.fullgraph
    if count >= options.recompile_limit and not fails:
        _close(code, entries, owner)
    if count == 0 or (count >= options.recompile_limit and code in _announced and not fails):
        return count > 0
    reasons = recompile_reasons(code, scope, owner) + [f"{place} was an object that is gone" for place in dead_sources]
    if not reasons:  # what the entries were for has died meanwhile
        return False
    cures = _cures(code, scope, owner, dead_sources)
    if record is not None:
        record.append(Recompile(code.co_qualname, code.co_filename, code.co_firstlineno, tuple(reasons), tuple(cures)))
    cure = f"; cure: {cures[0]}" if cures else ""
    log.info("recompiling %s: %s%s", options.shown(code), reasons[0], cure)
    if count < options.recompile_limit:
        return False
    outcome = "another call does not fit" if fails else "other calls of it run as plain Python from now on"
    text = _limit_text(options.shown(code), options.recompile_limit, outcome, reasons, cures)
    if fails:
        raise RecompileLimitError(text)
    with _lock:
        is_new = code not in _announced
        _announced.add(code)
    if is_new:
        say_limit(text, code, options, reasons)
    return True


def say_limit(text: str, code: CodeType, options: CaptureOptions, reasons: Sequence[str]) -> None:
    """Warns that frames of the code run as plain Python from now on."""
    reason = "; ".join((f"{code.co_qualname} was compiled {options.recompile_limit} times, its recompile_limit", *reasons))
    report_uncompiled(reason, options.named(code), text=text, category=RecompileLimitWarning)


def _close(code: CodeType, entries: Sequence[_C.Entry], owner: Any) -> None:
    """Frames that no entry fits run as plain Python without a question; where all entries have died, a dead one stands for them."""
    entries = entries or [e for e in _C.get_entries(code) if e.owner is owner]
    if not entries:
        entries = [make_entry(code, (), (), None, code, owner)]
        entries[0].dead = True
        _C.set_entries(code, (*_C.get_entries(code), *entries))
    for entry in entries:
        entry.full = True


def _cures(code: CodeType, scope: Scope, owner: Any, dead_sources: Sequence[str]) -> list[str]:
    """What would have made the entries fit, without repetition."""
    found = [cure_of(e.info.program, scope) for e in entries_of(code, owner) if isinstance(e.info, EntryInfo)]
    return list(dict.fromkeys(cure for cure in [*found, *map(same_object_cure, dead_sources)] if cure is not None))


def _limit_text(function: str, limit: int, outcome: str, reasons: list[str], cures: list[str]) -> str:
    lines = [
        f"tracework compiled {function} {limit} times, its recompile_limit; {outcome}.",
        "what differed from each compiled version:",
    ]
    lines += [f"  {number}: {reason}" for number, reason in enumerate(reasons)]
    lines += [f"cure: {cure}" for cure in cures] + ["cure: raise recompile_limit, when each of these is wanted"]
    return "\n".join(lines)


def reset(code: CodeType | None = None) -> None:
    """Forgets entries and marks, of one code object or of all."""
    with _lock:
        codes = [code] if code is not None else list(_touched)
        _announced.clear()
        _left_plain.clear()
        forget_warned()
    for each in codes:
        _C.set_entries(each, ())
        _C.set_mark(each, _C.MARK_NONE)

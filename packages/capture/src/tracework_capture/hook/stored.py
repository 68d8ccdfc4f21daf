"""Entries that outlive the process: what was captured of a frame as plain data, and entries made of it again.

The key is of the frame's code and of the options. An entry is data of guards and their sources (guards.addresses), of the emitted code, and
the recipe of the graph's callable, which the backend's store makes again. It serves a frame of another process where all that it refers to
is the same there, and its guards, which are built anew, hold. What cannot be said in data makes an entry that is not stored, and a line in
the log. Stores give back only what they were given: the data is marshalled, as emitted code is.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import logging
import marshal
import operator
import types
import uuid
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .. import _C
from ..bytecode.resume import ResumePoint, original_code, point_of, resume_code
from ..contracts import ENTRIES, EntryStore
from ..errors import BreakGraph, GuardBuildError, SkipFrame
from ..graph.captured import Captured, refuse_results, with_history
from ..graph.captured_call import CapturedCall
from ..graph.changed_inputs import Draw, in_modes, with_changed_inputs
from ..guards import operators as _operators  # noqa: F401  # addresses asks it, and nothing is imported while a program is traced
from ..guards.access import Scope, fetch
from ..guards.functions import digest_of_code, file_of, function_of_code
from ..guards.guard import Guard
from ..guards.paths import Changed
from ..guards.portable import Asks, Reader, Writer
from ..guards.program import check_guard, program_of
from ..guards.remembered import Remembered
from ..guards.report import explain_failure, recompile_reason
from ..guards.store import NotPortable, StoredCondition, StoredExpression, StoredRecord
from ..options import CaptureOptions
from ..own_packages import is_own_file
from ..signals import let_through
from ..sources import Source
from ..watchers import is_watched
from . import cache
from .collector import paused_collection

if TYPE_CHECKING:
    from ..guards.program import Program
    from .history import History

log = logging.getLogger("tracework.capture.stored")
PROCESS = uuid.uuid4().hex
"""What this process stores it does not read again: after a reset it captures anew."""
MOST_ENTRIES = 32
"""Of one key, which all modules of a class have in common, and all optimizers; the latest stay. A program that goes through more of them
in turn finds none again."""
_FEW = 8
TRUSTED = 16
"""Calls of a frame in which nothing is looked for, since another process found nothing."""
FREE_OPTIONS = frozenset(
    {"settings", "observe", "around", "on_failure", "name", "recompile_limit", "fail_on_limit", "error_on_recompile"}
)
"""Fields of CaptureOptions that do not change what is captured; of what observes, the backend knows."""
REFUSED_OPTIONS = ("guard_filter_fn", "shapes")
"""Those with which nothing is stored."""
OPERATORS = ("torch", "operator", "_operator", "builtins", "math", "tracework_primops")
"""Where the functions come from that a stored entry's graph may call; ours have no state."""


# --- writing -----------------------------------------------------------------------------------------------------------------


def dumps(program: Program, captured: Captured, code: types.CodeType, scope: Scope, history: History) -> dict[str, Any]:
    """An entry as data. scope: of the frame that it was captured of. Raises NotPortable, which says what cannot be data."""
    call = captured.call
    if captured.only_now is not None:
        raise NotPortable(captured.only_now)
    if captured.checked or call is not None and call.recipe is None:
        raise NotPortable(call and call.refused or "the graph's callable is not made of data")
    operators = set() if captured.graph is None else check_operators(captured.graph.graph.graph)
    writer = Writer(functools.cache(functools.partial(tensor_places, program, scope)))
    writer.covers(code)
    for guard in program.guards:
        writer.meet(guard)
    guards = [writer.guard(guard) for guard in program.guards]
    conditions = [[str(r.condition.expr), r.condition.op, r.origin] for r in program.conditions]
    called = [writer.object(operator) for operator in sorted(operators, key=str)]
    emitted = code_data(writer, captured.code, code, None if call is None else call.called)
    for inlined in captured.inlined:
        if id(inlined) not in writer.codes and not is_own_file(inlined.co_filename):
            function = function_of_code(inlined)
            if function is None:
                raise NotPortable(f"the code of {inlined.co_qualname}, which was traced into, is not found again")
            called.append(writer.object(function))
    return writer.document(
        process=PROCESS,
        number=uuid.uuid4().hex,
        guards=guards,
        called=called,
        conditions=conditions,
        symbols={name: writer.source(source) for name, source in program.symbols.items()},
        collect=[writer.source(source) for source in program.collect],
        code=emitted,
        recipe=None if call is None else call.recipe,
        results=[]
        if call is None
        else [call.count, call.backend, call.changes, call.modes, call.due, draws_data(writer, call.draws)],
        raising=[_inner_code(writer, raising, code, None) for raising in captured.raising_codes],
        sizes=list(history.sizes.items()),
        gaps=[(name, list(gaps.items())) for name, gaps in history.gaps.items()],
        numbers=[(name, writer.value(value)) for name, value in history.numbers.items()],
    )


def draws_data(writer: Writer, draws: tuple[tuple[int, Any], ...]) -> list[Any]:
    """What draws inputs. Raises NotPortable for what no other process has."""
    if not all(type(draw) is Draw for _, draw in draws):
        raise NotPortable("the state of a generator is kept")
    return [
        [place, draw.how, *map(writer.value, (draw.function, draw.args, draw.named, draw.is_of_place))] for place, draw in draws
    ]


def tensor_places(program: Program, scope: Scope) -> dict[int, Source]:
    """Where guards find the program's tensors, by their ids."""
    found: dict[int, Source] = {}
    for source in (guard.source for guard in program.guards if guard.kind == "TENSOR"):
        try:
            found.setdefault(id(fetch(source, scope)), source)
        except Exception as error:
            let_through(error)
    return found


def check_operators(graph: torch.fx.Graph) -> set[Any]:
    """The operators that a graph calls by name. Raises NotPortable for functions that are not torch's, and for tensors in the graph."""
    operators: set[Any] = set()
    for node in graph.nodes:
        if node.op in ("get_attr", "call_module"):
            raise NotPortable(f"{node.target} is part of the graph")
        if node.op != "call_function":
            continue
        target = node.target
        namespace = getattr(target, "namespace", None)
        if isinstance(target, CapturedCall):
            for inner in target.graphs():
                operators |= check_operators(inner)
            continue
        if namespace is None and _module_of(target) not in OPERATORS:
            raise NotPortable(f"{target} is called, which is neither torch's own nor ours")
        if namespace is not None:
            operators.add(target)
        for value in (*node.args, *node.kwargs.values()):
            if callable(value) and not isinstance(value, (torch.fx.Node, type)):
                raise NotPortable(f"{target} is given a function")
    return operators


def _module_of(function: Any) -> str:
    owner = getattr(function, "__module__", None) or getattr(getattr(function, "__self__", None), "__module__", None) or ""
    if not owner and type(function) in (types.BuiltinFunctionType, types.MethodDescriptorType):
        owner = getattr(getattr(function, "__objclass__", None), "__module__", "torch")
    return str(owner).partition(".")[0]


def code_data(writer: Writer, code: types.CodeType, frame_code: types.CodeType, graph: Any) -> dict[str, Any]:
    """Emitted code: its constants apart, since those that are objects have addresses."""
    constants: list[Any] = []
    for constant in code.co_consts:
        if constant is graph and graph is not None:
            constants.append(["graph"])
        elif type(constant) is types.CodeType:
            constants.append(_inner_code(writer, constant, frame_code, graph))
        elif type(constant) is types.FunctionType and _is_found_again(constant.__code__, frame_code):
            constants.append(
                ["function", _inner_code(writer, constant.__code__, frame_code, graph), writer.value(constant.__globals__)]
            )
        elif type(constant) is _C.Scoped and constant.callback is None:  # another than the graph's refuses no results
            constants.append(["disabled", writer.value(constant.__wrapped__)])
        elif type(constant) is functools.partial and not constant.keywords:
            constants.append(["partial", writer.value(constant.func), writer.value(constant.args)])
        else:
            constants.append(["value", writer.value(constant)])
    bare = code.replace(co_consts=(None,) * len(constants))
    return {"code": marshal.dumps(bare), "constants": constants}


def _is_made_of(code: types.CodeType, frame_code: types.CodeType) -> bool:
    """Whether it is the frame's code, or what takes its arguments otherwise (graph.checks.plain_run)."""
    same = code.co_code == frame_code.co_code and len(code.co_consts) == len(frame_code.co_consts)
    return same and all(map(operator.is_, code.co_consts, frame_code.co_consts))


def _is_found_again(code: types.CodeType, frame_code: types.CodeType) -> bool:
    """Whether it is made of the frame's code, or goes on in it."""
    return _is_made_of(code, frame_code) or point_of(code) is not None and original_code(code) is original_code(frame_code)


def _inner_code(writer: Writer, code: types.CodeType, frame_code: types.CodeType, graph: Any) -> list[Any]:
    if _is_made_of(code, frame_code):
        return ["frame", *(getattr(code, name) for name in _TAKING)]
    point = point_of(code)
    if point is not None:
        if original_code(code) is not original_code(frame_code):
            raise NotPortable(f"a continuation of {code.co_qualname}, which is another function's")
        return ["resume", *(getattr(point, name) for name in _POINT)]
    return ["code", code_data(writer, code, frame_code, graph)]


_POINT = tuple(f.name for f in dataclasses.fields(ResumePoint))
_TAKING = ("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags")
"""What says how a code takes its arguments."""


# --- reading -----------------------------------------------------------------------------------------------------------------


def loads(data: dict[str, Any], code: types.CodeType, scope: Scope, store: EntryStore, owner: Any, history: History) -> _C.Entry:
    """The entry. Raises Changed where something is not as it was, GuardBuildError where a guard cannot be built."""
    reader = Reader(data, scope, history.answers)
    for number in data["called"]:
        reader.object(number)
    guards = guards_of(reader, data["guards"], scope)
    conditions = [StoredRecord(StoredCondition(op, StoredExpression(text)), origin) for text, op, origin in data["conditions"]]
    symbols = {name: reader.source(number) for name, number in data["symbols"].items()}
    program = program_of(guards, [reader.source(number) for number in data["collect"]], conditions, symbols, code)
    *results, drawn = data["results"] or [()]
    draws = tuple((place, Draw(how, *reader.values(given))) for place, how, *given in drawn)
    graph = None if data["recipe"] is None else graph_of(store, data["recipe"], draws, *results)
    replacement = code_of(reader, data["code"], code, graph)
    for raising in data["raising"]:
        cache.skip(_inner_code_of(reader, raising, code, graph))
    return cache.entry_of(code, program, replacement, owner, has_graph=graph is not None, dead_sources=history.dead_sources)


def guards_of(reader: Reader, rows: list[Any], scope: Scope) -> list[Guard]:
    """The guards. What a function of the program gives is asked for where those hold that do without it. Raises Changed."""
    guards, later = [], []
    for row in rows:
        try:
            guards.append(reader.guard(row))
        except Asks:
            later.append(row)
    failure = next((f for guard in guards if (f := check_guard(guard, scope)) is not None), None) if later else None
    if failure is not None:
        raise Changed(explain_failure(failure))
    reader.may_ask = True
    return guards + [reader.guard(row) for row in later]


def graph_of(store: EntryStore, recipe: Any, draws: Any, count: int, backend: str, changes: Any, modes: Any, due: Any) -> Any:
    """What generated code calls. Raises Changed where it cannot be made again."""
    call = store.restore(recipe)
    if call is None:
        raise Changed("what the graph was compiled to is gone")
    takes_list = getattr(call, "__tracework_list_call__", None)
    boxed = takes_list is not None or getattr(call, "__tracework_boxed__", False)
    call = with_history(in_modes(with_changed_inputs(takes_list or call, changes, boxed, draws), modes), due, count, backend)
    return _C.Scoped(call, None, count=count, refuse=functools.partial(refuse_results, backend, count))


def code_of(reader: Reader, data: dict[str, Any], frame_code: types.CodeType, graph: Any) -> types.CodeType:
    """The emitted code."""
    constants: list[Any] = []
    for kind, *given in data["constants"]:
        if kind == "graph":
            constants.append(graph)
        elif kind in ("frame", "resume", "code"):
            constants.append(_inner_code_of(reader, [kind, *given], frame_code, graph))
        elif kind == "function":
            inner = _inner_code_of(reader, given[0], frame_code, graph)
            constants.append(types.FunctionType(inner, reader.value(given[1]), inner.co_name))
        elif kind == "disabled":
            constants.append(_C.Scoped(reader.value(given[0]), None))
        elif kind == "partial":
            constants.append(functools.partial(reader.value(given[0]), *reader.value(given[1])))
        else:
            constants.append(reader.value(given[0]))
    bare: types.CodeType = marshal.loads(data["code"])
    file, here = bare.co_filename, frame_code.co_filename
    return bare.replace(co_consts=tuple(constants), co_filename=here if file_of(file) == file_of(here) else file)


def _inner_code_of(reader: Reader, data: list[Any], frame_code: types.CodeType, graph: Any) -> types.CodeType:
    kind, *given = data
    if kind == "resume":
        try:
            return resume_code(original_code(frame_code), ResumePoint(*given))
        except SkipFrame as why:
            raise Changed(str(why)) from why
    return frame_code.replace(**dict(zip(_TAKING, given))) if kind == "frame" else code_of(reader, given[0], frame_code, graph)


def remember_sizes(history: History, data: dict[str, Any]) -> None:
    """What was seen of sizes and numbers when the entry was made, so that those that change become symbols as they would have."""
    if history.sizes or history.gaps or history.numbers:
        return
    history.sizes = {name: list(sizes) for name, sizes in data["sizes"]}
    history.gaps = {name: {int(dim): stride for dim, stride in gaps} for name, gaps in data["gaps"]}
    history.numbers = {name: value for name, value in data["numbers"] if type(value) is not list}


# --- what is stored of a frame ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(eq=False)
class _Frame:
    """What other processes have stored of one code and is not installed yet."""

    code: weakref.ref[types.CodeType]
    key: str
    waiting: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    plain: dict[str, int] = dataclasses.field(default_factory=dict)
    """For calls in which another process found nothing to compile: how often they are still taken for such."""
    changed: set[str] = dataclasses.field(default_factory=set)
    """Numbers of entries that something has changed for."""


class _Nowhere:
    """An EntryStore that keeps nothing."""

    def get(self, key: str) -> bytes | None:
        return None

    def put(self, key: str, content: bytes) -> None:
        pass

    def missed(self) -> None:
        pass

    def restore(self, recipe: Any) -> None:
        return None


class StoredEntries:
    """What one callback has in the store of its backend. Without a store nothing is kept, and what would stand against it is found out."""

    def __init__(self, store: EntryStore = _Nowhere()) -> None:  # noqa: B008  # it has no state
        self._store = store
        self._frames: dict[int, _Frame] = {}

    @classmethod
    def of(cls, backend: Any) -> StoredEntries | None:
        """None where the backend keeps nothing."""
        store = getattr(backend, ENTRIES, None)
        return None if store is None else cls(store)

    def forget(self) -> None:
        """Start over."""
        self._frames.clear()

    def knows(self, code: types.CodeType, options: CaptureOptions) -> bool:
        """Whether something is stored that may serve the outermost frame."""
        try:
            frame = self._frame(code, options, True)
        except Exception as error:  # of what is no entry
            let_through(error)
            log.warning("stored entries of %s cannot be read", code.co_qualname, exc_info=True)
            return False
        return frame is not None and bool(frame.waiting)

    def missed(self) -> None:
        """A frame is to be captured."""
        self._store.missed()

    def _frame(self, code: types.CodeType, options: CaptureOptions, outermost: bool) -> _Frame | None:
        known = self._frames.get(id(code))
        if known is not None and known.code() is code:
            return known
        key = key_of(code, options, outermost)
        if key is None:
            return None
        of_others = [data for data in self._all(key) if data["process"] != PROCESS]
        waiting = [data for data in of_others if "plain" not in data]
        plain = {data["plain"]: TRUSTED for data in of_others if "plain" in data}
        made = self._frames[id(code)] = _Frame(weakref.ref(code), key, waiting, plain)
        return made

    def _all(self, key: str) -> list[dict[str, Any]]:
        found = self._store.get(key)
        return [] if found is None else marshal.loads(found)

    def _add(self, frame: _Frame, data: dict[str, Any]) -> None:
        """Beside what others, of this process too, have stored meanwhile; of what is not compiled, and of entries, the latest stay. Those of a
        program that was edited since are the last to be looked at, and the first to go."""
        found = [*self._all(frame.key), data]
        of_kind = [known for known in found if ("plain" in known) is ("plain" in data)]
        changed = [known for known in of_kind if known.get("number") in frame.changed]
        if len(of_kind) > MOST_ENTRIES:
            found.remove(changed[-1] if changed else of_kind[0])
        found.sort(key=lambda known: known.get("number") in frame.changed)
        self._store.put(frame.key, marshal.dumps(found))

    @paused_collection()
    def entry(
        self,
        code: types.CodeType,
        scope: Scope,
        holds: Callable[[_C.GuardProgram], bool],
        options: CaptureOptions,
        outermost: bool,
        history: History,
        owner: Any,
    ) -> _C.Entry | None:
        """A stored entry that serves the frame. holds: whether guards do for it. Whoever watches is to see a capture."""
        if is_watched():
            return None
        history.answers = {}
        try:
            frame = self._frame(code, options, outermost)
            for data in [] if frame is None else list(frame.waiting):
                try:
                    entry = loads(data, code, scope, self._store, owner, history)
                except (Changed, GuardBuildError, BreakGraph) as why:
                    if frame is not None:
                        frame.changed.add(data["number"])
                    log.debug("%s: a stored entry does not serve: %s", options.shown(code), str(why))
                    continue
                if holds(entry.program):
                    assert frame is not None
                    frame.waiting.remove(data)
                    remember_sizes(history, data)
                    history.answers = {}
                    for guard in entry.info.program.guards:
                        if guard.kind == "RELATION" and isinstance(guard.payload[0], Remembered):
                            guard.payload[0].was_asked()
                    log.info("%s: a stored entry serves", options.shown(code))
                    return entry
                if log.isEnabledFor(logging.DEBUG):
                    log.debug(
                        "%s: a stored entry does not serve: %s", options.shown(code), recompile_reason(entry.info.program, scope)
                    )
        except Exception as error:
            let_through(error)
            log.warning("stored entries of %s cannot be read", code.co_qualname, exc_info=True)
        return None

    def runs_plainly(self, code: types.CodeType, slots: dict[str, Any], options: CaptureOptions, outermost: bool) -> bool:
        """Whether another process found nothing to compile in calls like this one. That is believed for the first calls; by then one is looked
        at again, for the frame may compute something where an attribute or a global is another one now."""
        if is_watched():
            return False
        try:
            frame = self._frame(code, options, outermost)
            call = description_of(slots)
            left = 0 if frame is None else frame.plain.get(call, 0)
            if frame is not None and left:
                frame.plain[call] = left - 1
            return left > 0
        except Exception as error:
            let_through(error)
            log.warning("stored entries of %s cannot be read", code.co_qualname, exc_info=True)
            return False

    def keep_plain(self, code: types.CodeType, slots: dict[str, Any], options: CaptureOptions, outermost: bool) -> None:
        """Stores that there is nothing to compile in calls like this one."""
        try:
            frame = self._frame(code, options, outermost)
            call = description_of(slots)
            if frame is not None and not any(data.get("plain") == call for data in self._all(frame.key)):
                self._add(frame, {"process": PROCESS, "plain": call})
        except Exception as error:
            let_through(error)
            log.warning("%s is not stored", code.co_qualname, exc_info=True)

    @paused_collection()
    def keep(
        self,
        code: types.CodeType,
        scope: Scope,
        program: Program,
        captured: Captured,
        options: CaptureOptions,
        outermost: bool,
        history: History,
    ) -> str:
        """Stores an entry that was made; gives why not."""
        try:
            frame = self._frame(code, options, outermost)
            if frame is None:
                return "entries with a filter of guards, or with declared shapes, are not stored"
            data = dumps(program, captured, code, scope, history)
            self._add(frame, data)
            log.info("%s is stored", options.shown(code))
        except NotPortable as why:
            log.info("%s is not stored: %s", options.shown(code), str(why))  # a handler may keep what it is given
            return str(why)
        except Exception as error:
            let_through(error)
            log.warning("%s is not stored", code.co_qualname, exc_info=True)
            return f"{type(error).__name__}: {error}"
        return ""


def description_of(slots: dict[str, Any]) -> str:
    """What calls of a frame have in common that compute alike as a rule: classes of arguments, flags, and whether modules train."""
    return hashlib.sha256("\n".join(f"{name} {_kind(obj, 2)}" for name, obj in slots.items()).encode()).hexdigest()


def _kind(obj: Any, depth: int) -> str:
    cls = type(obj)
    if cls is bool or obj is None:
        return str(obj)
    if cls in (tuple, list) and depth:
        return f"{cls.__name__}({', '.join(dict.fromkeys(_kind(part, depth - 1) for part in obj[:_FEW]))})"
    if cls is dict and depth:
        return f"dict({', '.join(f'{key!r}: {_kind(part, depth - 1)}' for key, part in obj.items() if type(key) is str)})"
    name = type.__dict__["__qualname__"].__get__(cls)
    return f"{name} {_C.instance_dict(obj).get('training')}" if issubclass(cls, torch.nn.Module) else name


def key_of(code: types.CodeType, options: CaptureOptions, outermost: bool) -> str | None:
    """The key of a frame's entries; None where nothing is stored."""
    if any(getattr(options, name) is not None for name in REFUSED_OPTIONS):
        return None
    options = dataclasses.replace(options, places={file: file_of(place) for file, place in options.places.items()})
    facts = [
        (name, sorted(value, key=repr) if isinstance(value, frozenset) else value)
        for name in sorted(options.__dataclass_fields__)
        if name not in FREE_OPTIONS
        for value in (getattr(options, name),)
    ]
    return hashlib.sha256(repr((digest_of_code(code), outermost, facts)).encode()).hexdigest()

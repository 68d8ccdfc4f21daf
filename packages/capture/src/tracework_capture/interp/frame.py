"""SymbolicFrame: stack, locals, cells of one frame being interpreted; Attempt: what all frames of one attempt share."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from .. import _C
from ..bytecode.code import code_info
from ..bytecode.resume import original_place
from ..code_origin import is_of_torch
from ..errors import BreakGraph, SkipFrame, Unsupported, UserLocation
from ..graph.checks import Recording
from ..graph.mutations import MutationLog
from ..guards.guard import GuardSet
from ..own_packages import is_own_module
from ..polyfills import is_fixed, is_polyfill
from ..sources import Attr, Const, root
from ..values.objects.exception import ExceptionValue, argument_value
from ..values.objects.function import CellValue
from ..values.plain.results import wrap_constant
from ..values.protocol import wraps
from ..values.protocol.queries import Queries
from ..values.protocol.value import LazyValue, SymbolicRaise, Value
from ..values.torch.modes import Modes

if TYPE_CHECKING:
    import types
    from collections.abc import Iterator, Sequence

    from tracework_primops import FakeMode, SymbolTable

    from ..bytecode.code import Instruction
    from ..graph.builder import GraphBuilder
    from ..graph.inputs import Inputs
    from ..hook.history import History
    from ..options import CaptureOptions
    from ..plan import Plan
    from ..values.objects.function import FunctionValue
    from ..values.protocol.memory import Memory
    from .progress import Progress
    from .services import Services

_NEVER_CHANGING = frozenset({MappingProxyType, tuple, frozenset, range})
_ALWAYS_TRUE_ON_CONST = frozenset({"TYPE", "IDENTITY", "CONSTANT", "IS_NONE", "NOT_NONE"})


class _Null(Value):
    """The interpreter's NULL stack entry."""

    def python_type(self) -> type:
        return type(None)


class HandlerMark(_Null):
    """The entry of an except or finally block: what was being handled before it; knows what is being handled in it."""

    def __init__(self, exception: Value) -> None:
        super().__init__()
        self.handled = exception


NULL = _Null()


@dataclass(eq=False, slots=True)
class Attempt:
    """State of one attempt to capture one frame; that frame and everything inlined into it have it in common."""

    services: Services
    graph: GraphBuilder
    symbols: SymbolTable
    fake_mode: FakeMode
    options: CaptureOptions
    history: History
    plan: Plan
    progress: Progress
    memory: Memory
    inputs: Inputs
    guards: GuardSet = field(default_factory=GuardSet)
    mutations: MutationLog = field(default_factory=MutationLog)
    recording: Recording = field(default_factory=Recording)
    modes: Modes = field(default_factory=Modes)
    queries: Queries = field(default_factory=Queries)

    def __post_init__(self) -> None:
        self.fake_mode.recorder = self.recording.effects.note

    def end(self) -> None:
        """The attempt is over: drops the user's objects. Frames and values refer to each other."""
        self.memory.end()
        self.graph.end()
        self.mutations.end()
        self.fake_mode.forget_reals()


class SymbolicFrame(Attempt):
    """One frame of an attempt. Implements values.protocol.value.Frame."""

    __slots__: tuple[str, ...] = ("cells", "code", "current", "deferred", "function", "globals", "handled", "in_block", "info")
    __slots__ += (
        "instructions",
        "is_fixed",
        "is_polyfill",
        "keyword_names",
        "locals",
        "parent",
        "position",
        "raised_at",
        "result",
        "stack",
    )

    def __init__(
        self,
        attempt: Attempt,
        code: types.CodeType,
        globals_: dict[str, Any],
        local_values: Any,
        closure: Sequence[CellValue] = (),
        parent: SymbolicFrame | None = None,
    ) -> None:
        self.services = attempt.services
        self.graph = attempt.graph
        self.symbols = attempt.symbols
        self.fake_mode = attempt.fake_mode
        self.options = attempt.options
        self.history = attempt.history
        self.plan = attempt.plan
        self.progress = attempt.progress
        self.memory = attempt.memory
        self.inputs = attempt.inputs
        self.guards = attempt.guards
        self.mutations = attempt.mutations
        self.recording = attempt.recording
        self.modes = attempt.modes
        self.queries = attempt.queries
        self.info = code_info(code)
        self.code = code
        self.instructions = self.info.instructions
        self.globals = globals_
        self.is_fixed = is_fixed(globals_)
        self.is_polyfill = self.is_fixed and is_polyfill(globals_)
        self.locals = (
            local_values  # dict[str, Value]; of the captured frame hook.compile_frame's, which has the slots that nobody read
        )
        self.cells: dict[str, CellValue] = dict(zip(code.co_freevars, closure))
        self.parent = parent
        if parent is not None:
            self.memory.inlined[id(code)] = code
        self.in_block: bool = parent is not None and (parent.in_block or parent.current.handler is not None)
        self.stack: list[Value] = []
        self.position = 0
        self.current: Instruction = self.instructions[0]
        self.handled: list[Value] = []  # exceptions
        self.keyword_names: tuple[str, ...] = ()
        self.result: Value | None = None
        self.raised_at: int | None = None  # the byte where what is being raised again was raised first
        self.deferred = False
        self.function: FunctionValue | None = None

    def peek_local(self, name: str) -> Value:
        """A local, without wrapping (and guarding) an argument that nobody read."""
        unread = getattr(self.locals, "unread", None)
        held = unread(name) if unread is not None else None
        return LazyValue(*held) if held is not None else self.locals[name]

    def settle(self) -> None:
        """Wrap the deferred entries of the stack."""
        self.deferred = False
        self.stack[:] = [self.wrap(v.obj, v.source) if type(v) is LazyValue else v for v in self.stack]

    def forget(self) -> None:
        """The attempt is over: drops what this frame has of the user's objects."""
        self.guards = GuardSet()  # what was captured has the other
        for held in (self.locals, self.cells, self.stack, self.handled):
            held.clear()
        self.result, self.parent = None, None

    # --- stack -------------------------------------------------------------------------------------------------
    def push(self, value: Value) -> None:
        """Push."""
        self.stack.append(value)

    def pop(self) -> Value:
        """Pop."""
        return self.stack.pop()

    def pop_many(self, count: int) -> list[Value]:
        """The top `count` entries, deepest first."""
        if not count:
            return []
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    # --- the Frame protocol --------------------------------------------------------------------------------------
    def wrap(self, obj: object, source: Any) -> Value:
        """The Value of an existing object, one per object and capture; a second way to it must lead to the same object."""
        found = self.memory.memo.get(id(obj))
        if found is None:
            if type(obj) is _C.Scoped and obj.callback is not None and source is not None:
                return self.wrap(obj.__wrapped__, Attr(source, "__wrapped__"))  # it stands for the function it was made of
            return wraps.wrap(self, obj, source)
        self.same(found, obj, source)
        return found

    def same(self, found: Value, obj: object, source: Any) -> None:
        """Guard that `source` leads to the object of a value that is known."""
        first = found.source
        if source is None or source == first:
            return
        if type(source) is Const:  # it is met as itself, whatever led there first
            source, first = first, source
        if first is not None and type(first) is not Const:
            self.guards.record("SAME", source, first, self.user_location())
        elif source is not None and type(source) is not Const:
            self.guards.record("IDENTITY", source, obj, self.user_location())

    def constant(self, obj: object) -> Value:
        """The Value of a sourceless constant."""
        return wrap_constant(self, obj)

    def guard(self, kind: str, source: Any, payload: object = None) -> None:
        """Add a guard; facts about objects that the entry itself holds need none."""
        if type(source) is Const and (kind in _ALWAYS_TRUE_ON_CONST or type(source.value) in _NEVER_CHANGING):
            return
        self.guards.record(kind, source, payload, self.user_location())

    def inline(self, function: Value, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """Call a Python function under the trace policy."""
        return self.services.inline(self, function, list(args), kwargs)

    def break_graph(self, reason_id: str, detail: str = "") -> NoReturn:
        """Stop the graph before the current user instruction."""
        raise BreakGraph(reason_id, detail, self.location())

    def leave_plain(self, reason_id: str, detail: str) -> NoReturn:
        """What is called looks at the frame that calls it, which must be the program's own. Where this frame is inlined, the graph of
        its caller breaks, and it is met by itself."""
        if self.parent is not None:
            self.break_graph(reason_id, detail)
        if self.options.fullgraph:
            raise Unsupported(reason_id, detail, (self.location(),))
        raise SkipFrame(f"{detail} looks at the frame")

    def raise_user(self, exception: Value) -> NoReturn:
        """Raise an exception Value in the traced program."""
        raise SymbolicRaise(exception)

    def raise_new(self, exception_type: type[BaseException], *args: object) -> NoReturn:
        """Raise exception_type(*args) in the traced program."""
        raise SymbolicRaise(self.new_exception(exception_type, *args))

    def new_exception(self, exception_type: type[BaseException], *args: object) -> ExceptionValue:
        """exception_type(*args) of plain objects or Values."""
        return ExceptionValue(exception_type, [argument_value(self, a) for a in args])

    def handling(self) -> Value | None:
        """The exception that is being handled, here or in a caller."""
        return next((frame.handled[-1] for frame in self.callers() if frame.handled), None)

    def chain(self, exception: Value) -> None:
        """An exception is raised here: what is being handled becomes its context."""
        handled = self.handling()
        if hasattr(exception, "raise_during") and handled is not exception:
            exception.raise_during(handled)
        self.passes(exception)

    def passes(self, exception: Value) -> None:
        """An exception is raised here, or comes out of a call. What is traced in the place of a function of C is no frame."""
        if hasattr(exception, "passes") and not is_own_module(self.globals.get("__name__")):
            exception.passes(self)

    def log_effect(self, key: Any, write: Any) -> None:
        """Log a side effect to be emitted after the graph."""
        self.mutations.effect(key, write)

    def existing_cell(self, cell: types.CellType, contents: Any, source: Any) -> CellValue:
        """The CellValue of an existing cell, one per cell and capture; a second way to it must lead to the same cell."""
        found = self.memory.cells.get(id(cell))
        if found is None:
            if type(root(source)) is Const:
                source = Const(cell, str(source))
            found = self.memory.cells[id(cell)] = CellValue(cell, contents, source)
            self.memory.keep.append(cell)
        else:
            self.same(found, cell, source)
        return found

    # --- places ------------------------------------------------------------------------------------------------
    def callers(self) -> Iterator[SymbolicFrame]:
        """This frame and those that call it, the captured frame last."""
        frame: SymbolicFrame | None = self
        while frame is not None:
            yield frame
            frame = frame.parent

    def outermost(self) -> SymbolicFrame:
        """The captured frame."""
        *_, last = self.callers()
        return last

    def line(self) -> int:
        """Line of the current instruction."""
        return self.info.line(self.current)

    def offset(self) -> int:
        """The byte in the program's own code at which this frame is."""
        if self.raised_at is not None and self.parent is not None:  # no continuation has parents
            return self.raised_at
        return original_place(self.code, self.current).offset

    def location(self) -> UserLocation:
        """Where this frame is; a polyfill is where it is called."""
        if self.is_polyfill and self.parent is not None:
            return self.parent.location()
        line, _, column, end_column = self.info.position(self.current)
        code = self.code
        return UserLocation(code.co_filename, line or code.co_firstlineno, code.co_qualname, column, end_column)

    def locations(self) -> tuple[UserLocation, ...]:
        """The call stack, outermost first."""
        return tuple(frame.location() for frame in self.callers() if not frame.is_polyfill)[::-1]

    def user_location(self) -> str:
        """file:line in function, of the innermost frame that is neither torch's nor a polyfill's."""
        frame = self
        while frame.parent is not None and (frame.is_polyfill or is_of_torch(frame.code)):
            frame = frame.parent
        return f"{frame.options.place(frame.code, frame.info.line(frame.current))} in {frame.code.co_name}"

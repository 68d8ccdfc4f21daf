"""What the interpreter computes with: the Value base class and the Frame protocol that values are handed.

Rules
- A Value stands for one Python object of the user's program. Two reads of one object give the same Value: `frame.wrap`
  remembers by identity for the whole capture (`frame.memory.memo`).
- Values never import `interp`: all they need from it is a Frame, passed to each method.
- Anything that cannot be known while tracing calls `frame.break_graph(reason_id, detail)`. That is always safe: the capture
  restarts and stops before the user instruction that led here.
- An operation that raises in plain Python calls `frame.raise_new(KeyError, key)` or `frame.raise_user(value)`.
- Mutable objects carry `mutability`: EXISTING objects (they have a source) log their changes in `frame.mutations`; NEW
  objects (made in the traced program) just change, and are built in their final state by `reload` when they are needed.
- Generated code is Python source text. `reload(emit)` returns an expression; statements go through `emit.line(...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from ... import _C
from ...errors import BreakGraph, NotPlain, NotReal
from ...guards.classes import defines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import CodeType

    from tracework_primops import FakeMode, SymbolTable

    from ...bytecode.code import CodeInfo, Instruction
    from ...errors import UserLocation
    from ...graph.builder import GraphBuilder
    from ...graph.checks import Recording
    from ...graph.inputs import Inputs
    from ...graph.mutations import MutationLog
    from ...guards.guard import GuardSet
    from ...hook.history import History
    from ...interp.progress import Progress
    from ...interp.services import Services
    from ...options import CaptureOptions
    from ...plan import Plan
    from ..number.float_formulas import Formula
    from ..objects.function import CellValue
    from ..torch.modes import Modes
    from .kinds import AbstractException, AbstractTensor
    from .memory import Memory
    from .queries import Queries

READ_AT_ONCE = 256
"""Items of a container that may be read, and guarded, because something asks for all of it."""
EXISTING = "existing"
NEW = "new"


class SymbolicRaise(Exception):
    """The traced program raises `value` (an exception Value); unwinds through the traced handlers."""

    def __init__(self, value: Value, again: bool = False) -> None:
        super().__init__(value)
        self.value = value
        self.again = again  # raised before: what was being handled then stays its context


class Emitter(Protocol):
    """Writes the Python text that runs after the graph. Expressions are strings."""

    def load(self, value: Value) -> str:
        """The expression of a value; everything with an identity is built once and kept in a local variable."""

    def const(self, obj: object, hint: str = "c") -> str:
        """A name that refers to any Python object, held by the generated code's constants."""

    def known(self, obj: object, hint: str = "c") -> str:
        """The same for an object of the program's, which the generated code keeps alive only while it runs."""

    def source(self, source: Any) -> str:
        """The object at a source, as it was BEFORE the graph ran and before any replayed side effect."""

    def graph_output(self, node: Any) -> str:
        """The run-time result of an fx node; makes it an output of the graph."""

    def literal(self, obj: object) -> str:
        """The expression of a constant."""

    def is_built(self, value: Value) -> bool:
        """Whether an object was made for the value, or fetched."""

    def line(self, text: str) -> None:
        """Append one statement."""

    def temp(self, expression: str) -> str:
        """Assign to a fresh local variable and give its name."""


class Frame(Protocol):
    """What a Value may ask of the interpreter."""

    # of the attempt: all its frames have the same
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
    guards: GuardSet
    mutations: MutationLog
    recording: Recording
    modes: Modes
    queries: Queries
    # of this frame
    code: CodeType
    info: CodeInfo
    current: Instruction
    globals: dict[str, Any]
    is_fixed: bool  # whether nobody changes its globals and the modules that it reads
    is_polyfill: bool  # whether it runs Python of the package polyfills
    locals: Any  # dict[str, Value]; of the captured frame interp.breaks.LazyLocals, which has the slots that nobody has read
    cells: dict[str, CellValue]
    stack: list[Value]
    in_block: bool  # whether a caller is in a block that handles exceptions

    @property
    def instructions(self) -> Sequence[Instruction]:
        """Those of the code."""

    @property
    def parent(self) -> Frame | None:
        """The frame that calls this one, which is inlined; None for the captured frame."""

    def wrap(self, obj: object, source: Any) -> Value:
        """The Value of an existing object; installs its guards. One Value per object and capture."""

    def constant(self, obj: object) -> Value:
        """The Value of a constant or other sourceless immutable object made while tracing (values/plain/results.py)."""

    def guard(self, kind: str, source: Any, payload: object = None) -> None:
        """Add one guard (guards/kinds.py)."""

    def inline(self, function: Value, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """Call a Python function (values/objects/function.py FunctionValue) under the trace policy: inlined, put into the graph, or a break."""

    def break_graph(self, reason_id: str, detail: str = "") -> NoReturn:
        """Stop the graph before the current user instruction."""

    def raise_user(self, exception: Value) -> NoReturn:
        """Raise an exception Value in the traced program."""

    def raise_new(self, exception_type: type[BaseException], *args: object) -> NoReturn:
        """Raise `exception_type(*args)` in the traced program; args are plain Python objects."""

    def new_exception(self, exception_type: type[BaseException], *args: object) -> AbstractException:
        """An exception Value, exception_type(*args); args are plain Python objects or Values."""

    def callers(self) -> Iterator[Frame]:
        """This frame and those that call it, the captured frame last."""

    def outermost(self) -> Frame:
        """The captured frame."""

    def handling(self) -> Value | None:
        """The exception that is being handled, here or in a caller."""

    def passes(self, exception: Value) -> None:
        """An exception is raised here, or comes out of a call."""

    def leave_plain(self, reason_id: str, detail: str) -> NoReturn:
        """What is called looks at the frame that calls it: the graph of the caller breaks, or the captured frame runs as plain Python."""

    def line(self) -> int:
        """Line of the current instruction."""

    def offset(self) -> int:
        """The byte in the program's own code at which this frame is."""

    def location(self) -> UserLocation:
        """Where this frame is."""

    def locations(self) -> tuple[UserLocation, ...]:
        """The call stack, outermost first."""

    def user_location(self) -> str:
        """file:line in function, of the innermost user frame."""

    def log_effect(self, key: Any, write: Any) -> None:
        """Log a side effect that `mutations` has no form for: write(emit) emits its final state; a second one with the same key replaces the first."""

    def existing_cell(self, cell: Any, contents: Any, source: Any) -> CellValue:
        """The CellValue of an existing cell whose contents are at `source`."""


class Value:
    """One object of the traced program. Subclasses say what its type can do; what is left breaks the graph."""

    mutability: str | None = None
    constructor_text = False
    """Whether each run of the program makes another object, though all that is in it is known."""
    identity_source: Any = None
    """The source of the object itself that a constant without a source is, where `is` may tell it from the constant."""
    place: Any = None
    """Where a constant without a source was found, if it was."""
    root_step: int | None = None
    """Of an exception that was raised: the step of the captured frame where that was."""
    part: Value | None = None
    """The built-in object inside of an instance of a subclass of a built-in class."""
    is_holder = False
    """Whether it holds what held() gives as long as it lives, as containers and instances do: that is asked about lifetimes."""
    models_methods = False
    """Whether it does itself what a method of its class, however it was reached, is called for."""
    is_deferred = False
    """Whether Python makes it when the graph has run; then it answers before a number on its left."""
    is_unique = False
    """Whether no other Value stands for the same object, so that `is` is known."""
    is_chosen_by_data = False
    """Whether min() and max() choose it by data: a tensor, or one of such a choice."""
    by_identity = True
    """Whether real(), of what has it, says which object it is, not only what it does."""
    iterates_in_c = False
    """Whether going over it runs no code of the program."""
    is_known_elsewhere = False
    """Whether objects that the program did not make know of it, as the bases of a class do."""

    cls: Any
    """The object's type, where python_type() does not say it; of a class it is the class itself."""
    obj: Any
    """The object itself, of values that have it."""

    def __init__(self, source: Any = None) -> None:
        self.source = source

    # --- facts -------------------------------------------------------------------------------------------------
    def held(self) -> Iterable[Any]:
        """What is known to be in the object: items, attributes, contents."""
        return ()

    def python_type(self) -> type:
        """The object's type."""
        return self.cls

    def is_constant(self) -> bool:
        """True when the object is fully known (and immutable) while tracing; then `constant()` gives it."""
        return False

    def constant(self) -> Any:
        """The object itself, for constants."""
        raise NotImplementedError(f"{type(self).__name__} is not a constant")

    def as_plain(self) -> Any:
        """The object itself, or one that equals it, where all that is in it is known, else raises NotPlain."""
        raise NotPlain(self)

    def real(self) -> Any:
        """The existing object behind this value when its identity is known and guarded (function, class, module, instance), else raises LookupError."""
        raise NotReal(type(self).__name__)

    def hash_key(self, frame: Frame) -> Any:
        """A hashable that equals another's exactly when the two objects are equal as dict keys."""
        if self.is_constant():
            return self.constant()
        kind = self.python_type()
        if getattr(kind, "__hash__", None) is None:
            frame.raise_new(TypeError, f"unhashable type: '{_C.type_name(kind)}'")
        frame.break_graph("unhashable_value", self.describe())

    def truth(self, frame: Frame) -> bool:
        """bool(object). An object whose class says nothing about it is true."""
        if self.is_constant():
            return bool(self.constant())
        if not defines(self.python_type(), "__bool__", "__len__"):
            return True
        frame.break_graph("operation_unknown", f"bool() of {self.describe()}")

    def deferred_truth(self, frame: Frame) -> Value | None:
        """bool(object) of data that the graph computes, read when it has run; None where it is known, or is asked for at once."""
        return None

    def same_object(self, other: Value) -> bool | None:
        """`self is other`; None when not known."""
        if self is other or self.is_unique:
            return self is other
        if self.is_constant() and other.is_constant():
            return self.constant() is other.constant()
        if self.python_type() is not other.python_type():
            return False
        return None if self.is_constant() == other.is_constant() or self.python_type() in (int, float, bool) else False

    description: str | None = None

    def describe(self) -> str:
        """Short text for messages."""
        if self.description is not None:
            return self.description
        try:
            kind = self.python_type().__name__
        except AttributeError:  # only a call looks at it
            kind = type(self).__name__
        return f"{kind} from {self.source}" if self.source is not None else kind

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.describe()}>"

    def own_hash(self, frame: Frame) -> int | None:
        """hash(object) by a rule of the kind's own; None where the object itself is hashed."""
        return None

    def is_instance(self, classes: Any) -> bool | None:
        """What isinstance(object, classes) gives by a rule of the kind's own; None where the object, or its type, is asked."""
        return None

    def is_number(self) -> bool:
        """Whether it is a bool, an int or a float of Python, known or not."""
        return self.is_constant() and self.python_type() in (int, bool, float)

    @property
    def roots(self) -> frozenset[Any]:
        """Of a number: the inputs and sizes that it was computed from, with their values."""
        return frozenset()

    @property
    def input_formula(self) -> Formula | None:
        """Of a number: what it is of inputs, where Python can compute it from those alone."""
        return None

    def in_formula(self) -> Any:
        """What it is in a formula over sizes: an Expr, a FloatExpr, an int or a float; None for what can be no part of one."""
        known = self.constant() if self.is_constant() else None
        return known if type(known) in (int, float) else None

    def try_specialise(self, frame: Frame) -> bool:
        """Something needs the object itself: fixes it by guards, where that can be; whether it did."""
        return False

    def as_known(self, frame: Frame) -> Value:
        """A number that changes from call to call as the one of this call, for which alone the entry then holds; others as they are."""
        return self

    def unread(self) -> int:
        """How much of an existing container nobody has read yet."""
        return 0

    def all_items(self, frame: Frame) -> Sequence[Any]:
        """All items of a container, read."""
        raise NotImplementedError

    def read_rest(self, frame: Frame) -> bool:
        """Something asks for all that is in an existing container: reads the rest of it; whether there was any, and not too much."""
        if not 0 < self.unread() <= READ_AT_ONCE:
            return False
        self.all_items(frame)
        return True

    def native_attribute(self, frame: Frame, static: Any, name: str) -> Value | None:
        """What a slot or a getset of C gives, `static` in its class; None where it is not modelled."""
        return None

    def as_index(self, frame: Frame) -> Value:
        """What an index says in __index__; what is none, as it is."""
        return self

    def as_place(self, frame: Frame) -> Value:
        """The same for an index of one of Python's sequences: of a tensor whose data is known it is the number in it."""
        return self.as_index(frame)

    # --- operations --------------------------------------------------------------------------------------------
    def getattr(self, frame: Frame, name: str) -> Value:
        """object.name"""
        frame.break_graph("attribute_unknown", f"{self.describe()}.{name}")

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        """object.name = value"""
        frame.break_graph("operation_unknown", f"setting {self.describe()}.{name}")

    def delattr(self, frame: Frame, name: str) -> None:
        """del object.name"""
        frame.break_graph("operation_unknown", f"deleting {self.describe()}.{name}")

    def getitem(self, frame: Frame, key: Value) -> Value:
        """object[key]"""
        frame.break_graph("operation_unknown", f"an item of {self.describe()}")

    def setitem(self, frame: Frame, key: Value, value: Value) -> None:
        """object[key] = value"""
        frame.break_graph("operation_unknown", f"setting an item of {self.describe()}")

    def delitem(self, frame: Frame, key: Value) -> None:
        """del object[key]"""
        frame.break_graph("operation_unknown", f"deleting an item of {self.describe()}")

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """object(*args, **kwargs)"""
        frame.break_graph("call_unknown", self.describe())

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """object.name(*args, **kwargs), without building the bound method where a subclass knows better."""
        return self.getattr(frame, name).call(frame, args, kwargs)

    def is_fixed(self) -> bool:
        """Whether the items that iterate() goes over are those of now, whatever the program does meanwhile."""
        return False

    def iterate(self, frame: Frame) -> Value:
        """iter(object): a Value that has next_value."""
        frame.break_graph("iterator_unsupported", self.describe())

    def next_value(self, frame: Frame) -> Value | None:
        """For iterators: the next Value, or None when exhausted (a generator's return value is then `frame`-visible as `self.returned`)."""
        frame.break_graph("iterator_unsupported", self.describe())

    def unpack(self, frame: Frame) -> list[Value]:
        """list(object): all items."""
        iterator = self.iterate(frame)
        items = []
        while (item := iterator.next_value(frame)) is not None:
            items.append(item)
        return items

    def own_reversed(self, frame: Frame) -> Value | None:
        """reversed(object) where its class says what that is; None where it follows from its length and items."""
        return None

    def call_length_hint(self, frame: Frame) -> None:
        """What is asked of an iterable for which room is made, where the program's code sees that."""

    def length(self, frame: Frame) -> Value:
        """len(object)"""
        frame.break_graph("operation_unknown", f"len() of {self.describe()}")

    def contains(self, frame: Frame, item: Value) -> Value:
        """item in object, as a bool Value (or a tensor)."""
        frame.break_graph("operation_unknown", f"a search in {self.describe()}")

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        """`self op other` (or `other op self` when reverse). op is the symbol: + - * / // % ** @ << >> & | ^, with `=` appended
        for the in-place forms (only when not reverse). None means NotImplemented: the machine then tries the other operand,
        then the plain form of an in-place operator, then raises TypeError."""
        return None

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        """`self op other` for == != < <= > >=; None means NotImplemented (the machine tries the reflected operator on other)."""
        return None

    def unary(self, frame: Frame, op: str) -> Value:
        """op is one of - + ~"""
        frame.break_graph("operation_unknown", f"{op}{self.describe()}")

    # --- texts ---------------------------------------------------------------------------------------------------
    def own_text(self, frame: Frame, fn: Callable[[object], str]) -> Value | None:
        """str(object) or repr(object), as fn is, where its class says what that is; None where it follows from what the object holds."""
        return None

    def own_format(self, frame: Frame, spec: str) -> Value | None:
        """format(object, spec) where its class says what that is; else None."""
        return None

    def data_text(self, frame: Frame, fn: Callable[..., str], *rest: object) -> Value | None:
        """fn(object, *rest), str, repr or format, of data that the graph computes, written when it has run; None where that is not known."""
        return None

    def format_operand(self, frame: Frame) -> Value:
        """What format() takes it for: a tensor without dims for its number."""
        return self

    def as_operand(self, frame: Frame, tensors: list[AbstractTensor], op: str | None = None) -> Value:
        """What stands for a number in arithmetic with these tensors."""
        return self

    def conversion_operand(self, frame: Frame, kind: str | None) -> Value:
        """What `%` takes it for at a conversion of this letter, None where that is not known."""
        return self

    # --- leaving the trace ---------------------------------------------------------------------------------------
    def as_graph_arg(self, frame: Frame) -> Any:
        """What stands for this object as an argument of an fx node: Node, constant, or nested list/tuple/dict/slice of them."""
        if self.is_constant():
            return self.constant()
        frame.break_graph("not_a_graph_argument", self.describe())

    def reload(self, emit: Emitter) -> str:
        """Expression that rebuilds this object after the graph ran. Called through emit.load, at most once for a Value that
        is not a constant and has no source (those never get here). Immutable parts first: load items, return the display,
        e.g. `"[" + ", ".join(emit.load(i) for i in self.items) + "]"`."""
        raise BreakGraph("cannot_rebuild", self.describe())

    def replay(self, emit: Emitter) -> None:
        """Gives an existing container the contents that the program left in it; logged by mutations.contents()."""
        raise NotImplementedError(f"{type(self).__name__}.replay")

    def fill(self, emit: Emitter, name: str) -> None:
        """Second phase for objects that can be part of a cycle: `reload` gave the empty object, now in local `name`; emit the
        statements that fill it. Only called when `two_phase` is true."""

    two_phase = False
    filled_last = False
    """Whether it may be filled when all is built that is being built: nothing looks into it before."""

    def needs_reload_from_graph(self) -> bool:
        """True for values that must come out of the graph although they have a source (never, by default)."""
        return False


class HeldValue(Value):
    """One that has an object which is there while tracing."""

    def __init__(self, obj: Any, source: Any) -> None:
        super().__init__(source)
        self.obj = obj

    def python_type(self) -> type:
        return type(self.obj)


class LazyValue(HeldValue):
    """An argument of a continuation that was only put on the stack so far: wrapped (and guarded) when something looks at it."""


def builtin_part(value: Value) -> Value:
    """The built-in object inside of a value, or the value itself."""
    return value if value.part is None else value.part


def is_none(value: Value | None) -> bool:
    """Whether a value is None, or an argument that was not given."""
    return value is None or (value.is_constant() and value.constant() is None)

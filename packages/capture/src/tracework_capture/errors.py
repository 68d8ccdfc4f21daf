"""The CaptureError tree, and BREAK_REASONS: why capture stopped, and what to do about it.

The user's mistakes and what capture cannot do are CaptureError; BreakGraph, SkipFrame and plan.Again steer the interpreter
and never reach the user.
"""

import functools
import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BreakReason:
    """What happened, why capture cannot go on, and what the user can do."""

    what: str
    why: str
    cure: str


BREAK_REASONS: dict[str, BreakReason] = {
    "data_dependent_branch": BreakReason(
        "a branch depends on a tensor's data",
        "which way it goes is known only when the graph has run",
        "use torch.where or torch.cond, torch.while_loop for a loop, or move the branch out of the compiled function",
    ),
    "tensor_to_python": BreakReason(
        "a tensor's data becomes a Python value (item, tolist, int, float, bool)",
        "the value is known only when the graph has run",
        "keep it a tensor, compute it outside the compiled function, or, where nothing in Python depends on it, set the option"
        " unbacked, which a backend of your own needs register_backend(dynamic=True) for",
    ),
    "tensor_to_numpy": BreakReason(
        "a tensor becomes an array, or an array a tensor, in a way that graphs do not have",
        "arrays in a graph are tensors on the CPU without history, of a dtype that NumPy has, too",
        "call detach() and cpu() first; use torch.from_numpy, torch.tensor and Tensor.numpy without other arguments",
    ),
    "dynamic_output_shape": BreakReason(
        "an operator's output size depends on data",
        "sizes must be known, or be expressions of input sizes, while capturing",
        "use a form with a fixed size (torch.where with three arguments, masks), or set the option unbacked, which a backend of your own needs"
        " register_backend(dynamic=True) for",
    ),
    "unbacked_condition": BreakReason(
        "the program decides on a size that depends on data",
        "its value is known only when the graph runs",
        "state what holds with torch._check(...) before",
    ),
    "call_unknown": BreakReason(
        "a call of something that capture does not model",
        "it is C code or an object whose behaviour is unknown",
        "replace it by torch operations, call it outside the compiled function, or make a function of tensors around it a"
        " tracework.compiler.leaf_function or a torch.library.custom_op",
    ),
    "call_disabled": BreakReason(
        "a call of a function marked to run as plain Python",
        "the user, or the library, disabled compilation of it",
        "remove the mark, or call it outside the compiled function",
    ),
    "call_skipped": BreakReason(
        "a call into a module that is not captured",
        "TRACE_POLICY lists it as run plainly",
        "call it outside the compiled function",
    ),
    "attribute_unknown": BreakReason(
        "an attribute of an object that capture does not model",
        "reading it could run arbitrary code",
        "read it outside the compiled function and pass the value in",
    ),
    "operation_unknown": BreakReason(
        "an operation on values that capture does not model", "its result is not known", "rewrite it, or move it out"
    ),
    "opcode_unsupported": BreakReason(
        "a bytecode instruction without a handler",
        "this Python construct is not modelled yet",
        "rewrite the construct, or move it out",
    ),
    "print": BreakReason(
        "output, a warning or a log record that cannot be written after the graph",
        "it must happen in order, when the program runs, and with what it has then",
        "remove it, or write it before or after the call",
    ),
    "side_effect_unknown": BreakReason(
        "a change of an object that cannot be replayed",
        "code after the graph makes the changes of objects that were captured, and has no way to make this one",
        "make the change before or after the call, or return the new value instead",
    ),
    "exception": BreakReason(
        "an exception that leaves the captured part",
        "exceptions are raised by plain Python",
        "check the condition before the call",
    ),
    "long_loop": BreakReason(
        "a long loop without tensor operations",
        "capture interprets each iteration, plain Python is faster",
        "move it out of the compiled function, or compute its result once",
    ),
    "generator": BreakReason(
        "a generator or coroutine frame", "it is resumed from outside", "consume it inside the compiled function"
    ),
    "context_unknown": BreakReason(
        "a with-statement over a manager that capture does not model", "its enter and exit are unknown", "move it out"
    ),
    "checkpoint_effects": BreakReason(
        "a function under torch.utils.checkpoint changes something else than its result",
        "plain Python changes it a second time when the backward computes the result again, a graph would not",
        "move the change out of the function, or give it the new state and let it return the next one",
    ),
    "import": BreakReason("an import that runs code", "the module is not loaded yet", "import it at the top of the file"),
    "lock": BreakReason(
        "a lock is taken or released",
        "guards look at what it protects before the call, and a graph runs before what the program does to Python objects: it would be held at"
        " another time",
        "take the lock around the call of the compiled function",
    ),
    "packed_sequence": BreakReason(
        "a packed sequence is made, or padded again",
        "how many rows each step has is data, and decides the sizes of what follows",
        "pack outside of the compiled function, or keep the sequences padded and mask what is behind their ends",
    ),
    "serialization": BreakReason(
        "objects become bytes, or bytes objects, or the memory of an object is looked at",
        "what is written depends on all that an object holds and on code of its class; a graph runs before changes of objects are made",
        "do it before or after the call; copy.copy and copy.deepcopy of objects are captured",
    ),
    "random_state": BreakReason(
        "Python's or NumPy's random state is used", "each call must draw anew", "use torch's random functions"
    ),
    "value_not_known": BreakReason(
        "a value is needed while capturing that is known only when the program runs",
        "the operation is done once, by the compiler, and needs plain Python objects",
        "pass constants there, or move the operation out of the compiled function",
    ),
    "unhashable_value": BreakReason(
        "a value that capture cannot hash is a dict key or a set member",
        "which entry it finds is not known",
        "use strings, numbers, tuples of them, or objects whose __hash__ and __eq__ only compare, in tables that exist already or stay inside",
    ),
    "cannot_rebuild": BreakReason(
        "an object made in the captured part is needed after it and cannot be built again",
        "the code that follows the graph makes such objects from their parts, and this one has parts that it cannot reach",
        "do not keep the object over the end of the graph, or make it outside of the compiled function",
    ),
    "not_a_graph_argument": BreakReason(
        "an argument of a tensor operation that a graph cannot hold",
        "nodes take tensors, numbers, dtypes, devices, strings and containers of them",
        "take the tensors out of the object before the call",
    ),
    "fake_failed": BreakReason(
        "an operator could not be run on fake tensors",
        "eager refuses such arguments, or the operator's shape rule fails or is missing",
        "check the operator's arguments; register a fake implementation for a custom operator",
    ),
    "recursion": BreakReason(
        "a call nests too deeply to be inlined", "the limit of inlining was reached", "call it outside the compiled function"
    ),
    "explicit_step": BreakReason(
        "step_unsupported() was called",
        "the program asks for the rest of the function to run as plain Python",
        "remove the call",
    ),
    "argument_not_real": BreakReason(
        "a function that is run while capturing gets an argument that does not exist yet",
        "assume_constant_result calls the function at once, with the objects themselves",
        "call it with inputs of the compiled function or with constants",
    ),
    "explicit": BreakReason("graph_break() was called", "the program asks for it", "remove the call"),
    "builtin_unsupported": BreakReason(
        "a builtin called with values it is not modelled for",
        "the result would be unknown",
        "rewrite the call with torch functions",
    ),
    "iterator_unsupported": BreakReason(
        "an iterator that capture does not model",
        "its next value is unknown",
        "iterate over a list, tuple, dict, range or tensor",
    ),
    "loop_goes_on": BreakReason(
        "a loop goes on after a break inside of it",
        "its iterator exists already; every round is captured by itself",
        "remove the break inside the loop",
    ),
    "class_building": BreakReason(
        "a class statement that capture does not model",
        "its metaclass, its bases or what it holds can only be made by running it",
        "define the class outside",
    ),
    "tensor_subclass": BreakReason(
        "a tensor subclass that capture does not model", "its __torch_function__ may do anything", "pass a plain tensor"
    ),
    "torch_state": BreakReason(
        "a setting of torch is changed",
        "kernels look at it when they run, and a compiled graph runs them as a whole; default dtypes are no break but where results depend on"
        " them",
        "change it before the compiled function is called",
    ),
    "function_mode": BreakReason(
        "an operation under a TorchFunctionMode that capture does not model",
        "the mode's __torch_function__ is asked about it, and may do anything",
        "leave the mode around the operation",
    ),
    "tensor_layout": BreakReason(
        "a tensor that is not stored as a plain array of numbers",
        "graphs hold strided tensors only",
        "convert it with to_dense() before the call, or leave the code that uses it outside",
    ),
    "numpy_array": BreakReason(
        "NumPy does something with an array that functions of torch do not do in the same way",
        "arrays in a graph are tensors; CALLS and UFUNCS have what is computed as NumPy does, the rest runs as plain Python",
        "use the function that the detail names outside of the compiled code, or the torch function of that name on tensors",
    ),
    "autograd_function": BreakReason(
        "a custom autograd.Function that cannot be captured", "its backward is not known to the graph", "use a custom op"
    ),
    "hook": BreakReason(
        "a hook is registered or would run",
        "hooks run arbitrary code; those of a backward see gradients, in an order, that a compiled backward does not have",
        "register hooks outside, those of modules with register_full_backward_hook",
    ),
    "other": BreakReason("something capture does not model", "see the detail", "move it out of the compiled function"),
}


def page_of_reasons(programs: dict[str, str] | None = None, calls: dict[str, list[str]] | None = None) -> str:
    """BREAK_REASONS as a page of Markdown, with an example program and the calls that always break for it where there are any."""
    parts = []
    for reason, row in BREAK_REASONS.items():
        parts.append(f"## {reason}\n\nWhat: {row.what}.\n\nWhy: {row.why}.\n\nWhat to do: {row.cure}.\n")
        if calls and reason in calls:
            parts.append(f"So break calls of {', '.join(f'`{name}`' for name in calls[reason])}.\n")
        if programs and reason in programs:
            parts.append(f"```python\n{programs[reason]}```\n")
    return "\n".join(parts)


@dataclass(frozen=True)
class UserLocation:
    """A place in the user's source; columns count from 0, None when Python does not know them."""

    filename: str
    line: int
    function: str
    column: int | None = None
    end_column: int | None = None

    def __str__(self) -> str:
        return f"{self.filename}:{self.line} in {self.function}"


def excerpt(location: UserLocation) -> str:
    """The source line with a caret under the expression, or an empty text when the file is not to be had."""
    line = linecache.getline(location.filename, location.line).rstrip("\n")
    if not line.strip():
        return ""
    indent = len(line) - len(line.lstrip())
    start = location.column if location.column is not None else indent
    end = location.end_column if location.end_column is not None and location.end_column > start else start + 1
    end = min(max(end, start + 1), len(line))
    return f"    {line[indent:]}\n    {' ' * (start - indent)}{'^' * max(1, end - start)}"


# also those of an environment below this one
_FOLDERS = [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
STDLIB = tuple({os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")})
SITE = tuple(
    {os.path.realpath(path) + os.sep for path in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *_FOLDERS)}
)
"""Folders of Python's own library, and of installed packages."""


@functools.lru_cache(4096)
def is_installed_file(filename: str) -> bool:
    """Whether a file is of Python's own library or of an installed package."""
    return os.path.realpath(filename).startswith((*SITE, *STDLIB))


def _is_of_a_library(filename: str) -> bool:
    return filename.startswith("<frozen") or is_installed_file(filename)


def _unpickled(cls: type[BaseException], args: tuple[Any, ...], attributes: Mapping[str, Any]) -> BaseException:
    error = cls.__new__(cls, *args)
    vars(error).update(attributes)
    return error


class CaptureError(RuntimeError):
    """Root of what capture raises to the user."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """With message and attributes, whatever __init__ takes (primops' Pickled would bring that package when this one is imported), and of
        the class that is written here, where this one was made to be torch's as well."""
        known = (c for c in type(self).__mro__ if getattr(sys.modules.get(c.__module__), c.__name__, None) is c)
        return _unpickled, (next(known), self.args, dict(vars(self)))


class BackendError(CaptureError):
    """A backend raised on a graph. inner_exception: what it raised, which is the cause, too; backend_name: the backend in messages."""

    def __init__(self, backend_name: str, inner_exception: BaseException) -> None:
        self.backend_name = backend_name
        self.inner_exception = inner_exception
        super().__init__(
            f"the backend {backend_name} raised {type(inner_exception).__name__}: {inner_exception}\n"
            "  try: backend='eager' to see whether the graph is at fault, or TRACEWORK_SUPPRESS_ERRORS=1 to run it uncompiled"
        )


class InternalCaptureError(CaptureError):
    """Capture itself is wrong: please report it."""


class GuardBuildError(CaptureError):
    """A guard that cannot be checked: unknown kind, or a source that cannot be fetched."""


class RecompileLimitError(CaptureError):
    """The limit of entries per function was reached and options.fail_on_limit is set."""


class ControlMisuse(CaptureError, TypeError):
    """A control (allow_in_graph, mark_dynamic, set_stance, ...) was given something that it cannot be used on."""


class DynamicDimError(CaptureError):
    """A size that is marked with mark_dynamic or mark_unbacked cannot stay open."""


class OpaqueCallError(CaptureError):
    """A function that capture took as an opaque call does not do what it did when it was observed."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}\n  try: tracework.compiler.disallow_in_graph({name}), which leaves it to plain Python")


class StanceMisuse(ControlMisuse):
    """set_stance() where or how it cannot be used."""


class RecompileError(CaptureError):
    """The stance is fail_on_recompile and no entry fits the call."""


class ForbiddenCall(CaptureError):
    """Captured code calls a function that is marked with forbid_in_graph."""

    def __init__(self, name: str, location: "UserLocation") -> None:
        self.location = location
        text = f"{name} must not be called in compiled code: it is marked with forbid_in_graph"
        lines = [
            text,
            f"  at {location}",
            excerpt(location),
            "  try: call it outside of the compiled function, before or after it",
        ]
        super().__init__("\n".join(line for line in lines if line))


class BreakGraph(Exception):
    """Raised by values and handlers: the graph must stop before the current instruction."""

    def __init__(self, reason_id: str, detail: str = "", location: UserLocation | None = None) -> None:
        if reason_id not in BREAK_REASONS:
            detail, reason_id = f"{reason_id}: {detail}", "other"
        super().__init__(reason_id, detail)
        self.reason_id = reason_id
        self.detail = detail
        self.location = location
        self.created_at = -1
        """The step of the captured frame that made what cannot be taken over a break; -1 when that is not known."""
        self.stack: tuple[UserLocation, ...] = ()
        """Where the frames were, outermost first; empty until the interpreter has seen it."""
        self.is_error = False
        """Whether the program asked for an error where it breaks."""

    @property
    def reason(self) -> BreakReason:
        return BREAK_REASONS[self.reason_id]

    def __str__(self) -> str:
        return f"{self.reason.what}: {self.detail}" if self.detail else self.reason.what


class NotReal(BreakGraph, LookupError):
    """A value has no existing object behind it: a graph break where nobody asks with `except LookupError`."""

    def __init__(self, detail: str) -> None:
        super().__init__("operation_unknown", f"the object itself of {detail} is needed")


class NotPlain(Exception):
    """A value, or the part of it that is the argument, is not known entirely, so there is no Python object for it."""


class SkipFrame(Exception):
    """The whole frame must run as plain Python; not an error.

    stop: the break after which it could not be continued, if any. wanted: whether the program asked for it.
    """

    def __init__(self, detail: str = "", wanted: bool = False) -> None:
        super().__init__(detail)
        self.detail = detail
        self.wanted = wanted
        self.stop: Any = None


class SizesBurntIn(Exception):
    """What the backend made of a graph with symbols may hold for the present sizes only: capture the frame with these as constants."""


class Unsupported(CaptureError):
    """fullgraph=True and the function has a graph break; the text has file, line, source, reason and cure."""

    def __init__(self, reason_id: str, detail: str = "", stack: tuple[UserLocation, ...] = ()) -> None:
        self.reason_id = reason_id
        self.detail = detail
        self.stack = stack
        super().__init__(_unsupported_text(reason_id, detail, stack))

    @classmethod
    def from_break(cls, stop: BreakGraph, stack: tuple[UserLocation, ...] = ()) -> "Unsupported":
        places = stack or ((stop.location,) if stop.location else ())
        return cls(stop.reason_id, stop.detail, places)


def _unsupported_text(reason_id: str, detail: str, stack: tuple[UserLocation, ...]) -> str:
    allow = "or allow breaks here (fullgraph=False, error_on_graph_break(False))"
    return f"cannot be captured as one graph: {describe_break(reason_id, detail, stack, allow)}"


SHOWN_CALLERS = 8


def _callers(stack: tuple[UserLocation, ...]) -> list[str]:
    """The places that called the last one, innermost first, the first of the program's own with its source line."""
    own = next((place for place in reversed(stack) if not _is_of_a_library(place.filename)), stack[-1])
    callers = [f"  called from {place}" for place in reversed(stack[:-1])]
    shown = next((number for number, place in enumerate(reversed(stack[:-1])) if place is own), None)
    if shown is not None and own is not stack[-1]:
        callers[shown] = "\n".join(line for line in (callers[shown], excerpt(own)) if line)
    hidden = callers[SHOWN_CALLERS - 1 : -1]
    if len(hidden) > 1:
        kept = [callers[shown]] if shown is not None and callers[shown] in hidden and own is not stack[-1] else []
        callers[SHOWN_CALLERS - 1 : -1] = [f"  ... {len(hidden) - len(kept)} more callers", *kept]
    return callers


def describe_break(reason_id: str, detail: str, stack: tuple[UserLocation, ...], otherwise: str = "") -> str:
    """What a break is, in words: what happened, where with the source line, why, and what removes it."""
    reason = BREAK_REASONS.get(reason_id, BREAK_REASONS["other"])
    lines = [reason.what]
    if stack:
        lines += [f"  at {stack[-1]}", excerpt(stack[-1])]
        lines += _callers(stack)
    if detail:
        lines.append(f"  detail: {detail}")
    cure = f"{reason.cure}, {otherwise}" if otherwise else reason.cure
    lines += [f"  why: {reason.why}", f"  try: {cure}", f"  reason id: {reason_id} (tracework explain-break {reason_id})"]
    return "\n".join(line for line in lines if line)

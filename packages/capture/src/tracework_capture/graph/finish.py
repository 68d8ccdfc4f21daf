"""Stop recording: the CapturedGraph, the call of the backend, and the code that replaces the frame.

The replacement gets `__tw_inputs` (the values of the graph's placeholders, collected by the guards), calls the compiled graph,
replays side effects, and then returns the rebuilt result, or executes the breaking instruction in plain Python and calls a
continuation function with the live stack and locals.
"""

from __future__ import annotations

import functools
import operator
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from .. import _C, _torch
from ..atoms import ATOM_TYPES
from ..bytecode.code import CodeInfo
from ..bytecode.emit import CodeWriter
from ..bytecode.liveness import live_locals
from ..bytecode.resume import ResumePoint, original_code, resume_code
from ..contracts import RECIPE, REFUSED, TRIES_SYMBOLS, Break, CapturedGraph, Origin, Returned
from ..errors import ControlMisuse, SizesBurntIn, SkipFrame
from ..guards.access import Scope, fetch
from ..guards.kinds import same_constant
from ..signals import let_through
from ..sources import Const
from .captured import BackendFailed, Captured, GraphCall, name_of, refuse_results, with_history
from .changed_inputs import INPUT_CHANGES, PLAIN, around_of, in_modes, with_changed_inputs
from .checks import check_conditions, guarded_call, plainly_under_hooks, unused_that_may_raise
from .distributed import fix_sizes
from .replaced import check_replaced
from .settings import end_autocast, left, refuse_open_managers, settings_written
from .wrapped import Structure, Unwrap, is_wrapper, part_nodes
from .wrapper_context import Incomparable

if TYPE_CHECKING:
    from ..values.protocol.value import Frame


def finish(frame: Any, stop: Returned | Break, backend: Any, execute: Callable[..., Any], null: Any) -> Captured:
    """Emit the replacement of `frame`; `execute` writes the breaking instruction (interp.breaks)."""
    writer = CodeWriter(frame.code, frame.globals, frame.memory.new_classes)
    for index, binding in enumerate(frame.graph.inputs):
        writer.known_source(binding.source, f"__tw_inputs[{index}]")
    raising: list[types.CodeType] = []
    for value in list(frame.graph.wrapper_values.values()):
        value.replay_writes(frame)
    if isinstance(stop, Returned):
        refuse_open_managers(frame)
        end_autocast(frame)
        frame.mutations.replay(writer)
        keep_grad_mode(frame, writer)
        result = writer.load(frame.result)
        frame.mutations.replay_on_results(writer)
        keep_state(frame, writer)
        writer.line(f"return {result}")
    else:
        raising = leave(frame, writer, execute, null, stop.reason_id == "explicit_step")
    conditions = check_conditions(frame, writer)
    captured = make_graph(frame, stop, writer)
    frame.fake_mode.recorder = None
    started = time.perf_counter()
    call: list[str] = []
    given_back, graph = True, None
    if captured is not None:
        compiled, given_back = compiled_by(backend, frame, captured)
        text, writes_last, graph = graph_call(writer, frame, captured, compiled, name_of(backend))
        call = [f"__tw_out = {text}"]
        if not frame.options.whole:
            call = [*plainly_under_hooks(writer, frame), *guarded_call(writer, frame, text, conditions, writes_last)]
    seconds = {"backend": time.perf_counter() - started}
    code = writer.finish(call, frame.info.position(frame.current))
    collect = tuple(binding.source for binding in frame.graph.inputs)
    checked = bool(frame.recording.checks)
    return Captured(
        code,
        frame.guards,
        collect,
        captured,
        frame.symbols,
        stop,
        tuple(raising),
        checked,
        given_back,
        effects_of(frame),
        seconds,
        graph,
        tuple(frame.memory.inlined.values()),
        frame.memory.only_now,
    )


def effects_of(frame: Any) -> tuple[str, ...]:
    """What the replacement does to objects and settings that were there before, each in a few words."""
    modes = frame.modes
    left_changed = (
        ("leaves gradients switched", torch.is_grad_enabled() != modes.grad_at_start),
        ("goes on where an operator raises, which depends on data", frame.graph.goes_on),
        ("leaves settings of torch changed", any(_torch.settings.SETTINGS[n][0]() != v for n, v in modes.states_written.items())),
        ("is under, or leaves, a TorchFunctionMode", bool(modes.modes_at_start or modes.function_modes)),
    )
    scope = Scope({}, frame.globals)

    def is_as_before(owner: Any, name: str, value: Any) -> bool:
        """Whether an attribute ends with the constant that it has."""
        if owner.source is None or value.source is not None or not value.is_constant():
            return False
        try:
            held = _C.instance_dict(fetch(owner.source, scope))
        except Exception as error:  # what is read from an argument is not there
            let_through(error)
            return False
        return name in held and same_constant(held[name], value.constant())

    return (*frame.mutations.described(is_as_before), *(text for text, holds in left_changed if holds))


def keep_grad_mode(frame: Frame, writer: CodeWriter) -> None:
    """Grad mode that the traced program left changed: a compiled graph need not leave it so."""
    enabled = torch.is_grad_enabled()
    if enabled != frame.modes.grad_at_start:
        writer.line(f"{writer.const(_torch.modes.set_grad_enabled, 'set_grad')}({enabled})")


def keep_state(frame: Frame, writer: CodeWriter) -> None:
    """Settings that the traced program left changed, and the TorchFunctionModes that it left and entered: those that the frame is under
    see nothing of what the generated code did up to here."""
    if frame.modes.modes_at_start:
        writer.quietly(f"with {writer.const(_torch.modes.function_modes_aside, 'aside')}():")
    for _ in frame.modes.modes_at_start[modes_kept(frame) :]:
        writer.line(f"{writer.const(_torch.modes.pop_function_mode, 'pop_mode')}()")
    for name, value in frame.modes.states_written.items():
        read, write = _torch.settings.SETTINGS[name]
        if read() != value:
            writer.line(f"{writer.const(write, f'set_{name}')}({writer.const(read(), name)})")
    for mode in frame.modes.function_modes[modes_kept(frame) :]:
        writer.line(f"{writer.const(_torch.modes.push_function_mode, 'push_mode')}({writer.load(mode)})")


def modes_kept(frame: Frame) -> int:
    """How many of the TorchFunctionModes that the frame is under it is under at its end."""
    start, now = frame.modes.modes_at_start, frame.modes.function_modes
    return next((i for i, (old, new) in enumerate(zip(start, now)) if old is not new), min(len(start), len(now)))


# --- the graph ---------------------------------------------------------------------------------------------------------


def make_graph(frame: Frame, stop: Returned | Break, writer: CodeWriter) -> CapturedGraph | None:
    """The GraphModule with the outputs that the writer asked for; None when there is nothing to run."""
    builder = frame.graph
    outputs = tuple(writer.outputs)
    check_replaced(frame, outputs)
    if not outputs and not builder.calls and not builder.draws and not frame.options.whole:
        return None
    for node in unused_that_may_raise(builder.graph, outputs):
        example = node.meta["example_value"]
        if not isinstance(example, torch.Tensor):  # one of several results will do
            place = next(i for i, part in enumerate(example) if isinstance(part, torch.Tensor))
            example = example[place]
            node = builder.bare_node(operator.getitem, (node, place), example)
        if is_wrapper(type(example)):
            try:
                node = part_nodes(node, Structure.of(example))[0]
            except Incomparable:  # an embedding of which this process has some rows: what is no row was not asked for
                continue
            example = node.meta["example_value"]
        if example.requires_grad:
            node, example = builder.graph.call_method("detach", (node,)), example.detach()
            node.meta["example_value"] = node.meta["val"] = example
        outputs += (node,)
    builder.graph.output(outputs)
    output = next(iter(reversed(builder.graph.nodes)))
    output.meta["example_value"] = tuple(node.meta["example_value"] for node in outputs)
    module = fx.GraphModule(torch.nn.Module(), builder.graph, "CapturedGraph")
    module.meta["symbols"] = frame.symbols
    module.meta["fake_mode"] = frame.fake_mode
    code = frame.code
    origin = Origin(code.co_filename, code.co_firstlineno, code.co_qualname)
    module.meta["place"] = frame.options.named(code)
    if builder.masks is not None and frame.symbols.has_symbols and not frame.plan.learnt.fixed_sizes:
        module.meta[TRIES_SYMBOLS] = True
    return CapturedGraph(module, tuple(builder.inputs), frame.guards, frame.symbols, origin, stop, tuple(builder.example_inputs))


def compiled_by(backend: Any, frame: Frame, captured: CapturedGraph) -> tuple[Callable[..., Any], bool]:
    """What the backend makes of the graph, in the mode in which it will be entered, and whether that is the graph as it was.

    Raises BackendFailed; Again where it raises, and operators of DTensors have symbols for sizes, which their backward may not cope with; and
    SizesBurntIn where it is not known whether the backend keeps sizes open and it made something else of a graph with symbols, or raised."""
    graph, on_trial = captured.graph, frame.options.symbolic_sizes is None and bool(frame.symbols.ranges)
    before = graph.code
    try:
        with torch.set_grad_enabled(frame.modes.grad_at_start), settings_written(frame.modes.states_written):
            compiled = backend(graph, list(captured.example_inputs))
        if not callable(compiled):
            raise ControlMisuse(
                f"the backend {name_of(backend)} gave {compiled!r} for a graph, which cannot be called. Return a function that takes the"
                " graph's inputs and gives the tuple of its results, as the graph module's forward does."
            )
    except Exception as error:
        if on_trial:
            raise SizesBurntIn from error
        if TRIES_SYMBOLS in graph.meta:
            fix_sizes(frame)
        if frame.options.on_failure is None:
            raise BackendFailed(str(error)) from error
        return frame.options.on_failure(graph, error), True
    given_back = graph in (compiled, getattr(compiled, "__self__", None)) and graph.code == before
    if on_trial and not given_back:
        raise SizesBurntIn
    return compiled, given_back


def graph_call(
    writer: CodeWriter, frame: Frame, captured: CapturedGraph, compiled: Callable[..., Any], backend: str
) -> tuple[str, bool, GraphCall]:
    """The text that calls what the graph was compiled to, whether that writes to inputs after all that may raise, and what is called."""
    given = compiled
    writes_last = getattr(compiled, "__tracework_writes_last__", False)
    is_ours = writes_last or getattr(compiled, "__self__", None) is captured.graph
    boxed = getattr(compiled, "__tracework_boxed__", False)
    takes_list = getattr(compiled, "__tracework_list_call__", None)
    if takes_list is not None:
        compiled, boxed = takes_list, True
    roles = [PLAIN if b.name in frame.graph.aliased_inputs else b.role for b in frame.graph.inputs]
    changes = tuple((place, role) for place, role in enumerate(roles) if role in INPUT_CHANGES)
    draws = tuple((i, frame.graph.draws[b.name]) for i, b in enumerate(frame.graph.inputs) if b.role == "rng")
    modes = around_of(frame.modes)
    compiled = with_changed_inputs(compiled, changes, boxed, draws)
    if frame.graph.taken_apart:
        places = {binding.name: place for place, binding in enumerate(frame.graph.inputs)}
        apart = tuple((tuple(places[name] for name in names), unwrap) for names, unwrap in frame.graph.taken_apart)
        compiled = with_parts(compiled, apart, boxed)
    compiled = in_modes(compiled, modes)
    results = next(iter(reversed(captured.graph.graph.nodes))).args[0]
    count, due = len(results), () if is_ours else results_with_history(results)
    compiled = with_history(compiled, due, count, backend)
    refuse = functools.partial(refuse_results, backend, count)
    disabled = frame.services.call_disabled(compiled, count, refuse)
    called = writer.const(disabled, "graph")
    refused = "tensors of wrapper subclasses are taken apart" if frame.graph.taken_apart else ""
    recipe = None if refused else getattr(given, RECIPE, None)
    text = f"{called}(list(__tw_inputs))" if boxed else f"{called}(*__tw_inputs)"
    return (
        text,
        writes_last,
        GraphCall(disabled, recipe, count, backend, refused or getattr(given, REFUSED, ""), changes, modes, due, draws),
    )


def results_with_history(results: Sequence[fx.Node]) -> tuple[tuple[int, str, str], ...]:
    """Places, names and origins of the tensors that have a history in the program."""
    due = [(i, n) for i, n in enumerate(results) if getattr(n.meta["example_value"], "requires_grad", False)]
    return tuple((place, node.name, str(node.meta.get("stack"))) for place, node in due)


def with_parts(compiled: Any, apart: tuple[tuple[tuple[int, ...], Unwrap], ...], boxed: bool) -> Any:
    """Hands the parts of tensors of wrapper subclasses over, each at its place, where the tensor is given at all of them."""

    def call(*given: Any) -> Any:
        inputs = list(given[0] if boxed else given)
        for places, unwrap in apart:
            for place, part in zip(places, unwrap(inputs[places[0]]), strict=True):
                inputs[place] = part
        return compiled(inputs) if boxed else compiled(*inputs)

    return call


# --- leaving at a break --------------------------------------------------------------------------------------------------


def leave(
    frame: Any, writer: CodeWriter, execute: Callable[..., Any], null: Any, plain_rest: bool = False
) -> list[types.CodeType]:
    """Replay side effects, run the breaking instruction, call the continuation; gives the codes that must run as plain Python."""
    instruction = frame.current
    inside = torch.is_grad_enabled()
    entered = leave_contexts(frame)
    end_autocast(frame)
    stack = [entry_text(frame, writer, value, null) for value in frame.stack]
    values, held = live_values(frame, writer, null)
    local_texts = {name: writer.load(value) for name, value in values.items()}
    # cells in the order in which the compiler puts free variables, also those of the replacement
    cells = {name: writer.load(frame.cells[name]) for name in sorted(frame.cells)}
    frame.mutations.replay(writer)
    frame.mutations.replay_on_results(writer)
    keep_grad_mode(frame, writer)
    keep_state(frame, writer)
    for manager in entered:
        writer.line(f"{writer.const(_torch.modes.enter)}({writer.load(manager)})")
    if entered and frame.modes.function_modes:  # a mode may have kept a manager from switching
        writer.line(f"{writer.const(_torch.modes.set_grad_enabled, 'set_grad')}({inside})")
    leaving = _Leaving(frame, writer, local_texts, cells, held)
    if (
        frame.plan.ends_in_raise and instruction.value not in cells
    ):  # in the frame that goes on: tracebacks show it and its locals, where it is when it ends
        writer.forget_unused()
        writer.line("return " + leaving.continuation(start_of(frame, instruction), stack))
        return leaving.codes
    executed = execute(frame, writer, instruction, stack)
    handled = [text for text in stack if isinstance(text, Handled)]
    if handled:
        executed.lines = while_handling(writer, handled[-1], executed.lines)
    writer.forget_unused()
    raising = write_execution(leaving, executed, instruction, stack)
    if executed.leaves:
        return raising
    if executed.stores is not None:
        leaving.store(*executed.stores)
    following = instruction.index + 1
    if executed.condition is None and executed.stack[-1:] == ["__tw_r"] and frame.instructions[following].opname == "POP_TOP":
        del executed.stack[-1]  # nobody waits for what it gave, and it dies here
        following += 1
    if executed.condition is not None:
        writer.line(f"if {executed.condition}:")
        taken = executed.taken_index if executed.taken_index >= 0 else instruction.target
        writer.line("    return " + leaving.continuation(taken, executed.taken))
    writer.line("return " + leaving.continuation(following, executed.stack))
    return leaving.codes if plain_rest else raising


def start_of(frame: Any, instruction: Any) -> int:
    """The index from which an instruction can be run: that of a call, where what names its keywords is an instruction before it."""
    index: int = instruction.index
    while index and frame.instructions[index - 1].opname in ("KW_NAMES", "PRECALL"):
        index -= 1
    return index


class Handled(str):
    """Text of the exception that an except or finally block on the stack is handling."""


class Left(str):
    """Text of the tuple of items left of a loop that goes on after the break."""


def entry_text(frame: Any, writer: CodeWriter, value: Any, null: Any) -> str | None:
    """Text of an entry of the stack; None for NULL."""
    if value is null:
        return None
    if getattr(value, "is_alone", False) and value.in_loop and frame.current.in_loop and not _advances(frame, value):
        items = value.rest(writer)
        if items is not None:
            return Left(writer.temp(items))
    handled = getattr(value, "handled", None)
    return writer.load(value) if handled is None else Handled(writer.load(handled))


def _advances(frame: Any, iterator: Any) -> bool:
    """Whether the breaking instruction itself asks the iterator for an item."""
    return frame.stack[-1] is iterator and frame.current.opname == "FOR_ITER"


def while_handling(writer: CodeWriter, exception: str, lines: list[str]) -> list[str]:
    """The lines inside a handler of the exception, as the program has them: its traceback stays what it was."""
    error, traceback = writer.temp(exception), writer.temp(f"{exception}.__traceback__")
    handler = [f"{error}.__traceback__ = {traceback}", *lines]
    return ["try:", f"    raise {error}", f"except {writer.const(BaseException)}:", *("    " + line for line in handler)]


def leave_contexts(frame: Any) -> list[Any]:
    """Managers of torch that the frame is inside of: the graph leaves them again, plain Python enters them before it goes on."""
    entered = [ref.owner for ref in frame.stack if getattr(ref, "name", None) == "__exit__" and hasattr(ref.owner, "leave")]
    for manager in reversed(entered):
        manager.leave(frame, at_break=True)
        left(frame, manager)
    refuse_open_managers(frame)
    return entered


_KINDS: dict[type, str] = {Handled: "h", Left: "i"}


@dataclass
class _Leaving:
    """Texts of everything alive at a break; `held` are the locals that stay though nothing reads them."""

    frame: Any
    writer: CodeWriter
    local_texts: dict[str, str]
    cells: dict[str, str]
    held: set[str]
    codes: list[types.CodeType] = field(default_factory=list)

    def continuation(self, index: int, stack: list[str | None], raised: str | None = None) -> str:
        """What makes the evaluator go on in the continuation at `index`; only locals that live there are passed, and those held."""
        live = {*live_locals(self.frame.info, index), *first_argument(self.frame), *self.held}
        kept = {name: text for name, text in self.local_texts.items() if name in live}
        looping = self.frame.current.in_loop
        kinds = "".join("n" if text is None else _KINDS.get(type(text), "v") for text in stack)
        point = ResumePoint(index, kinds, tuple(kept), tuple(self.cells), raised is not None, looping)
        code = resume_code(self.frame.code, point)
        self.codes.append(code)
        function = self.function(code)
        args = [*kept.values(), *(text for text in stack if text is not None)]
        args += [raised] if raised else []
        return f"{self.writer.const(_C.go_on)}({function}, {self.writer.handed_over(args)})"

    def store(self, name: str, text: str) -> None:
        """A local is bound anew."""
        self.local_texts[name] = text
        self.held.add(name)

    def function(self, code: types.CodeType) -> str:
        """Text of the continuation function."""
        if not self.cells:
            return self.writer.function(code, self.frame.globals, "resume")
        make, held = self.writer.const(types.FunctionType, "FunctionType"), self.writer.const(code, "code")
        return f"{make}({held}, {self.writer.own_globals()}, None, None, ({', '.join(self.cells.values())},))"


def write_execution(leaving: _Leaving, executed: Any, instruction: Any, stack: list[str | None]) -> list[types.CodeType]:
    """The breaking instruction; its exceptions go to a frame that goes on inside of a try or with block, or that shows the program's locals
    in a traceback, where they are expected."""
    writer = leaving.writer
    if instruction.handler is None and not leaving.frame.plan.is_refused:
        for line in executed.lines:
            writer.line(line)
        return []
    lines = ["try:", *("    " + line for line in executed.lines or ["pass"])]
    # the frame itself may be a continuation that was handed an exception as __tw_raised
    lines += [f"except {writer.const(BaseException)} as __tw_error:"]
    if instruction.handler is None:  # the frame that goes on is the one that the traceback shows
        lines += ["    __tw_error.__traceback__ = __tw_error.__traceback__.tb_next"]
    lines += ["    __tw_escaped = __tw_error", "else:", "    __tw_escaped = None"]
    # outside the handler, or the error would become the context of what follows
    for line in [*lines, "if __tw_escaped is not None:"]:
        writer.line(line)
    call = leaving.continuation(instruction.index, stack, "__tw_escaped")
    writer.line("    return " + call)
    return leaving.codes[-1:]


def live_values(frame: Any, writer: CodeWriter, null: Any) -> tuple[dict[str, Any], set[str]]:
    """The locals that any continuation may read, and those that it holds because plain Python does: names of these."""
    instruction = frame.current
    live = set(live_locals(frame.info, instruction.index + 1)) | set(live_locals(frame.info, instruction.index))
    if instruction.target >= 0:
        live |= live_locals(frame.info, instruction.target) | live_locals(frame.info, instruction.target + 1)
    first = first_argument(frame)
    slots = frame.code.co_varnames  # in the order in which plain Python has them
    ordered = sorted(frame.locals, key=lambda name: (slots.index(name) if name in slots else len(slots), name))
    values = {name: value for name in (*first, *ordered) if (value := frame.peek_local(name)) is not null}
    stays = is_shown if frame.plan.ends_in_raise or frame.plan.is_refused else is_held
    held = {name for name, value in values.items() if name not in live and stays(writer, value)}
    return {name: value for name, value in values.items() if name in live or name in held or name in first}, held


def is_held(writer: CodeWriter, value: Any) -> bool:
    """Whether a local that nothing reads any more keeps its object alive: somebody may have a weak reference to it, or to what it
    holds. Numbers may go, and what plain Python code has not seen does not exist."""
    if value.is_known_elsewhere:
        return True
    if type(value.source) is Const or value.source is None and not writer.is_built(value):
        return False
    return value.python_type() not in ATOM_TYPES


def is_shown(writer: CodeWriter, value: Any) -> bool:
    """Whether a local that nothing reads any more is handed to a frame that a traceback will hold: those that are there anyway."""
    return (
        is_held(writer, value) or value.source is not None or value.is_constant() or issubclass(value.python_type(), torch.Tensor)
    )


def looks_for_its_argument(code: types.CodeType) -> bool:
    """Whether super is called without arguments, or kept. LOAD_SUPER_ATTR does so, too, where it was not specialised yet, though it has
    the arguments on the stack (3.12+)."""
    instructions = CodeInfo(code).instructions
    loaded = sum(i.opname == "LOAD_GLOBAL" and i.value == "super" for i in instructions)
    return bool(loaded > sum(i.opname == "LOAD_SUPER_ATTR" and i.arg & 2 for i in instructions))


def first_argument(frame: Any) -> tuple[str, ...]:
    """The local that super() without arguments looks for in the first slot of its frame; no instruction names it."""
    code = frame.code
    if "__class__" not in code.co_freevars or "super" not in code.co_names or not looks_for_its_argument(original_code(code)):
        return ()
    name = code.co_varnames[0] if code.co_varnames else ""
    if name not in frame.locals:
        raise SkipFrame("super() would not find the first argument after a break")
    return (name,)

"""One frame in, one cache entry out: interpret, stop where needed, emit, compile, and hand over guards and code."""

from __future__ import annotations

import logging
import sys
import time
import types
from dataclasses import replace
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle
from tracework_primops import FakeMode, SymbolTable

from .. import _C, _torch
from .._torch.modes import set_grad_mode
from ..bytecode.resume import is_inside_a_round, is_resume_code, result_slot
from ..code_origin import is_of_torch
from ..contracts import Break, Returned
from ..errors import BreakGraph, SkipFrame, Unsupported
from ..graph.builder import GraphBuilder
from ..graph.captured import Captured
from ..graph.checks import only_sets
from ..graph.finish import finish
from ..graph.inputs import Inputs, check_guesses, check_strict_dims, distinct_inputs
from ..graph.sizes import switches_modes
from ..graph.specialised import check_specialised
from ..guards.classes import ClassLookups, find, recorded_lookups
from ..guards.kinds import record_ambient
from ..interp.breaks import execute_text
from ..interp.frame import NULL, Attempt, SymbolicFrame
from ..interp.machine import StopHere, run
from ..interp.progress import Progress
from ..interp.services import Services
from ..options import CaptureOptions
from ..plan import Again, Done, Outcome, Plan, Retry, Stop, Stopped
from ..signals import defer_signal_errors
from ..sources import Ambient, Closure, ClosureCell, Const, Item, Local
from ..trace_policy import call_policy
from ..values.objects.class_statement import NewClassValue
from ..values.objects.function import CellValue
from ..values.protocol.finalizers import guard_arguments
from ..values.protocol.memory import Memory
from ..values.protocol.program_code import check_frame_hooks
from ..values.protocol.value import EXISTING, Frame, SymbolicRaise, Value
from ..values.torch.results import wrap_result
from ..watchers import tell
from .collector import paused_collection
from .frame_input import NOTHING, ONE_OPERATION, FrameInput, forget_frames
from .history import History
from .policy import is_module_call

log = logging.getLogger("tracework.capture.breaks")
attempts = logging.getLogger("tracework.capture.attempts")
SMALL_PIECE = 8  # operations between two breaks of one round of a loop from which on a graph is worth its call


@defer_signal_errors
@paused_collection()
def capture_frame(given: FrameInput, backend: Any, options: CaptureOptions, history: History, call_disabled: Any) -> Captured:
    """Capture a frame. Raises SkipFrame when it must run plainly, Unsupported under fullgraph."""
    functions_off_for = _torch.modes.torch_functions_off_for()
    # what is asked of tensors here is no call of the program, which its modes and classes of tensors would see
    with _torch.modes.function_modes_aside(), _torch.autograd.saved_tensor_hooks_aside(), _torch.modes.torch_functions_off():
        history.operations = 0
        return capture_in_attempts(given, backend, options, history, Services(call_policy, call_disabled, functions_off_for))


def capture_in_attempts(
    given: FrameInput, backend: Any, options: CaptureOptions, history: History, services: Services
) -> Captured:
    """Each attempt sets out from what those before it met and learnt."""
    plan = Plan(history.learnt, keeps_sizes=options.unbacked is not False, answers=history.answers)
    history.answers = {}
    while plan.attempts_left:
        outcome = outcome_of(given, plan, backend, options, history, services)
        match outcome:
            case Done(captured):
                return captured
            case Retry(plan, why):
                history.learnt |= plan.learnt
                attempts.debug("%s is captured again: %s", given.code.co_qualname, why)
            case Stopped(stop, is_small):
                refuse_break(given, options, stop)
                log.info("graph break in %s: %s (%s)", given.code.co_qualname, stop.reason, stop.stack[-1])
                if is_small:
                    raise not_continued("its loop breaks more than once in each round", stop)
                plan = plan.stopped(stop)
    raise SkipFrame("no attempt to capture the frame came to an end")


def outcome_of(
    given: FrameInput, plan: Plan, backend: Any, options: CaptureOptions, history: History, services: Services
) -> Outcome:
    """One attempt. Raises SkipFrame when the frame must run plainly."""
    frame = start(given, options, history, services, plan)
    handled = sys.exc_info()[1]
    before = plan.stop
    try:
        with _PreservedModes(frame):
            return Done(run_attempt(frame, backend))
    except Again as again:
        return Retry(plan.after(again), str(again))
    except BreakGraph as stopped:
        forget_frames(stopped, handled)
        if before is not None and 0 < stopped.created_at < before.step:
            earlier = replace(before, step=stopped.created_at)
            return Retry(plan.stopped(earlier), f"the graph must end before what was made at an earlier step ({stopped})")
        if before is not None:
            raise not_continued(f"{stopped} while leaving at an earlier break ({before.reason})", before) from stopped
        step = stopped.created_at if stopped.created_at > 0 else frame.progress.step
        stop = Stop(step, stopped, stopped.stack or frame.locations(), refused=is_refused(stopped))
    except SymbolicRaise as raised:
        forget_frames(raised, handled)
        at = raised.value.root_step  # handlers and exits run again, plainly
        step = frame.progress.step if at is None else at
        stop = Stop(step, BreakGraph("exception", raised.value.describe()), frame.locations(), raises=True)
    except SkipFrame as skip:
        raise (skip if before is None else not_continued(skip.detail, before)) from skip.__cause__
    except RecursionError as error:
        if before is not None:
            raise not_continued("calls nest too deeply to be inlined", before) from error
        stop = Stop(frame.progress.step, BreakGraph("recursion", "Python's own recursion limit"), frame.locations())
    finally:
        history.operations = max(history.operations, frame.graph.own_calls)
        for made in new_classes(frame):
            made.end()
        frame.end()
        frame.forget()
    return Stopped(stop, is_between_breaks(given.code, frame, stop.reason) and frame.graph.calls < SMALL_PIECE)


def refuse_break(given: FrameInput, options: CaptureOptions, stop: Stop) -> None:
    """Raises Unsupported where a break is an error, and SkipFrame for a frame that raises below one without anything to capture: that one
    runs plainly, and may handle the exception."""
    if options.fullgraph and stop.raises and not given.outermost:
        raise SkipFrame(str(stop.reason))
    if options.fullgraph or stop.reason.is_error:
        raise Unsupported.from_break(stop.reason, stop.stack) from stop.reason.__cause__


def is_refused(reason: BreakGraph) -> bool:
    """Whether the graph breaks at an operator that will raise, as its shape rule did; one without a rule may do what it likes."""
    failed = reason.__cause__ if reason.reason_id == "fake_failed" else None
    return isinstance(failed, (RuntimeError, TypeError, ValueError, IndexError)) and not isinstance(failed, NotImplementedError)


def is_between_breaks(code: types.CodeType, frame: SymbolicFrame, reason: BreakGraph) -> bool:
    """Whether both ends of the captured part are breaks in the same round of a loop."""
    same_round = frame.current.in_loop and frame.progress.iterations == 0
    return same_round and is_inside_a_round(code) and reason.reason_id != "loop_goes_on"


def not_continued(why: str, stop: Stop) -> SkipFrame:
    """The frame runs as plain Python because it cannot be continued after a break."""
    skip = SkipFrame(why)
    skip.stop = stop.as_break()
    return skip


def new_classes(frame: Frame) -> list[NewClassValue]:
    """The classes that the traced program made."""
    return [value for value in frame.memory.new_classes.values() if isinstance(value, NewClassValue)]


def start(given: FrameInput, options: CaptureOptions, history: History, services: Services, plan: Plan) -> SymbolicFrame:
    """The captured frame, at the start of one attempt."""
    symbols = SymbolTable()
    fake_mode = FakeMode(symbols, allow_unbacked=plan.keeps_sizes, unbacked_numbers=options.unbacked is True)
    graph = GraphBuilder(fake_mode, symbols, wrap_result)
    sees_tensors = (is_resume_code(given.code) and not options.keep_empty) or any(
        issubclass(type(obj), (torch.Tensor, torch.nn.Module)) for obj in given.slots.values()
    )
    may_be_small = not given.outermost and (is_resume_code(given.code) or is_of_torch(given.code))
    slot = result_slot(given.code)
    inputs = Inputs(
        options,
        history,
        options.shapes if given.outermost and not is_resume_code(given.code) else None,
        None if slot is None else Local(slot),
    )
    progress = Progress(sees_tensors, may_be_small)
    memory = Memory(given.globals, given.slots, given.with_finalizers)
    attempt = Attempt(services, graph, symbols, fake_mode, options, history, plan, progress, memory, inputs)
    code = given.code
    closure = [own_cell(memory, name, cell) for name, cell in zip(code.co_freevars, given.closure)]
    local_values = _LazyLocals(given.slots, names_of_parts(given, options))
    frame = SymbolicFrame(attempt, code, given.globals, local_values, closure)
    local_values.frame = frame
    return frame


def names_of_parts(given: FrameInput, options: CaptureOptions) -> dict[str, tuple[tuple[Any, str], ...]]:
    """What the user calls the items of `args` and `kwargs`, in frames that only pass them on to a module's forward."""
    if is_module_call(given.code):
        module = given.slots.get("self")
    elif given.code.co_filename in options.places:  # the code may stand for a module's call, and has that as a free variable
        cell = dict(zip(given.code.co_freevars, given.closure)).get("self")
        module = None if cell is None else cell.cell_contents
    else:
        return {}
    if not issubclass(type(module), torch.nn.Module) or "forward" in _C.instance_dict(module):
        return {}
    forward = getattr(find(type(module), "forward")[0], "__code__", None)
    if forward is None:
        return {}
    names = forward.co_varnames[1 : forward.co_argcount + forward.co_kwonlyargcount]
    return {
        "args": tuple(enumerate(names[: max(forward.co_argcount - 1, 0)])),
        "kwargs": tuple((name, name) for name in names),
    }


def own_cell(memory: Memory, name: str, cell: types.CellType) -> CellValue:
    """The CellValue of a free variable of the captured frame."""
    value = CellValue(cell, Closure(name), ClosureCell(name))
    memory.cells[id(cell)] = value
    return value


class _LazyLocals(dict[str, Any]):
    """The frame's locals; argument slots are wrapped (and so guarded) when they are first read."""

    def __init__(self, slots: dict[str, Any], parts: dict[str, tuple[tuple[Any, str], ...]]) -> None:
        super().__init__()
        self.slots = {name: (obj, Local(name, parts.get(name, ()))) for name, obj in slots.items()}
        self.frame: Any = None

    def clear(self) -> None:
        super().clear()
        self.slots.clear()
        self.frame = None

    def get(self, name: str, default: Any = None) -> Any:
        if name in self.slots:
            self[name] = self.frame.wrap(*self.slots.pop(name))
        return super().get(name, default)

    def take(self, name: str) -> tuple[Any, Any] | None:
        """(object, source) of a slot that nobody read yet, removed; None when it was read."""
        return self.slots.pop(name, None)

    def unread(self, name: str) -> tuple[Any, Any] | None:
        """(object, source) of a slot that nobody read yet; None when it was read."""
        return self.slots.get(name)

    def hold(self, name: str, obj: Any, source: Any) -> None:
        """Bind a name to an object that is wrapped when it is read."""
        super().pop(name, None)
        self.slots[name] = (obj, source)

    def pop(self, name: str, *default: Any) -> Any:
        self.get(name)
        return super().pop(name, *default)

    def __delitem__(self, name: str) -> None:
        self.get(name)
        super().__delitem__(name)

    def __setitem__(self, name: str, value: Value) -> None:
        self.slots.pop(name, None)
        super().__setitem__(name, value)

    def __contains__(self, name: object) -> bool:
        return name in self.slots or super().__contains__(name)

    def __getitem__(self, name: str) -> Value:
        self.get(name)
        value: Value = super().__getitem__(name)
        return value

    def __iter__(self) -> Any:
        return iter([*self.slots, *super().keys()])


class _PreservedModes:
    """Keeps torch's global modes as they are around an attempt: tracing sets them for real."""

    def __init__(self, frame: Frame) -> None:
        self.flags = frame.modes.states_written

    def __enter__(self) -> None:
        self.grad = torch.is_grad_enabled()
        self.autocast = _torch.settings.autocast_and_nesting()
        self.modes = _torch.modes.dispatch_mode_count()
        self.in_device_block = not _torch.modes.device_is_set_for_good()

    def __exit__(self, *exc: object) -> None:
        _torch.autograd.leave_dual_levels(-1)
        _torch.modes.leave_dispatch_modes(self.modes)  # leaving them may have failed, when the stack is full
        if torch.is_grad_enabled() != self.grad:
            set_grad_mode(self.grad)
        if _torch.settings.autocast_and_nesting() != self.autocast:
            _torch.settings.restore_autocast(self.autocast)
        if not self.in_device_block:
            _torch.modes.leave_blocks_of_devices()
        _torch.settings.write_settings(self.flags)


def run_attempt(frame: SymbolicFrame, backend: Any) -> Captured:
    """Interpret once and finish."""
    started, ended = time.perf_counter(), frame.plan.stop
    frame.modes.grad_at_start, frame.modes.autocast_at_start = torch.is_grad_enabled(), _torch.settings.autocast_state()
    record_ambient(frame.guards)
    wrap_function_modes(frame)
    stop: Returned | Break = Returned()
    lookups = ClassLookups()
    number = RemovableHandle.next_id  # programs see what number the next hook of theirs gets: those on fakes take none
    try:
        with recorded_lookups(lookups):
            run(frame)
    except StopHere:
        assert ended is not None
        stop = ended.as_break()
    except (BreakGraph, SymbolicRaise, SkipFrame, RecursionError):
        if keeps_data_sizes_tentatively(frame):
            raise Again("without_sizes") from None
        if frame.progress.unrolled and frame.current.in_loop and ended is None:
            raise Again("by_rounds") from None
        raise
    finally:
        RemovableHandle.next_id = number
    traced = time.perf_counter()
    check_guesses(frame)
    check_specialised(frame)
    check_frame_hooks(frame)
    if keeps_data_sizes_tentatively(frame) and (isinstance(stop, Break) or switches_modes(frame.graph.graph)):
        raise Again("without_sizes")
    if (
        not frame.graph.calls
        and not frame.options.keep_empty
        and (isinstance(stop, Returned) or not (frame.graph.met() or frame.progress.sees_tensors))
    ):
        if not (frame.graph.met() or frame.progress.sees_tensors):
            frame.history.traced_in_vain += frame.progress.idle
        raise SkipFrame(str(ended.reason) if ended is not None and ended.reason.reason_id == "long_loop" else NOTHING)
    if frame.graph.calls == 1 and isinstance(stop, Returned) and frame.progress.may_be_small and not frame.options.keep_empty:
        raise SkipFrame(ONE_OPERATION)
    if frame.graph.calls and isinstance(stop, Returned) and only_sets(frame.graph.graph) and not frame.options.keep_empty:
        raise SkipFrame(NOTHING)
    distinct_guards(frame)
    guard_arguments(frame, [frame.result] if isinstance(stop, Returned) and frame.result is not None else [])
    lookups = lookups.without([value.cls for value in new_classes(frame)])
    if lookups.found or lookups.orders:
        frame.guards.record("CLASSES", Const(None, "classes"), lookups.sealed())
    unfinished_generators(frame, stop)
    captured = finish(frame, stop, backend, execute_text, NULL)
    check_strict_dims(frame)
    for key, shape in frame.inputs.shapes_seen.items():
        frame.history.remember(key, shape)
    for key, gaps in frame.inputs.gaps_seen.items():
        frame.history.remember_gaps(key, gaps)
    captured.seconds["trace"] = traced - started
    captured.seconds["total"] = time.perf_counter() - started
    if captured.graph is not None:
        frame.options.observe("captured", captured.graph)
        tell("captured", captured.graph)
    return captured


def keeps_data_sizes_tentatively(frame: Frame) -> bool:
    """Whether the graph has sizes that depend on data, which are kept only where all of the frame goes into the graph."""
    return frame.options.unbacked is None and frame.fake_mode.reads > 0


def wrap_function_modes(frame: SymbolicFrame) -> None:
    """The TorchFunctionModes that the frame is under are asked while it is traced."""
    stack = Ambient("users_function_modes")
    modes = [frame.wrap(mode, Item(stack, i)) for i, mode in enumerate(_torch.modes.users_function_modes())]
    frame.modes.function_modes, frame.modes.modes_at_start = modes, tuple(modes)
    switch_functions_off(frame)


def switch_functions_off(frame: Frame) -> None:
    """The frame may run where calls of torch ask no classes of tensors, or no modes either."""
    off_for = frame.services.torch_functions_off_for
    if off_for == "nobody":
        return
    if frame.modes.function_modes:
        raise SkipFrame("torch functions are switched off around it, under a mode")
    frame.guards.state("torch_functions_off_for", off_for)
    frame.modes.subclass_functions_off, frame.modes.all_functions_off = 1, int(off_for == "all")


def unfinished_generators(frame: Frame, stop: Returned | Break) -> None:
    """Plain Python closes a generator that is dropped in the middle, which runs its finally and with blocks."""
    for generator in frame.memory.generators:
        if generator.is_left():
            if isinstance(stop, Break) or generator.source is not None:
                raise generator.alive()
            raise SkipFrame(f"{generator.frame.code.co_qualname} is left in the middle, inside a block that must be ended")


def distinct_guards(frame: Frame) -> None:
    """Input tensors that are different objects stay so, and so do objects of a type of which the program changes one."""
    changed = {value.python_type() for value in frame.mutations.keep if getattr(value, "mutability", None) is EXISTING}
    groups: dict[Any, list[Any]] = {}
    for value in {id(v): v for v in (*frame.memory.memo.values(), *frame.memory.cells.values())}.values():
        if value.mutability is EXISTING and value.source is not None and type(value.source) is not Const:
            if value.python_type() in changed:
                groups.setdefault(value.python_type(), []).append(value.source)
    for sources in (distinct_inputs(frame), *map(tuple, groups.values())):
        if len(sources) > 1:
            frame.guards.record("DISTINCT", sources[0], sources)

"""The front door: optimize, disable, run_only, reset, and the capture of one call without running it."""

from __future__ import annotations

import collections
import contextlib
import copy
import copyreg
import dataclasses
import functools
import inspect
import logging
import sys
import threading
import types
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from .. import _C, _torch
from ..bytecode.resume import code_that_raises, original_code
from ..code_origin import is_of_torch
from ..contracts import BESIDE, REPEATS_WRITES, SYMBOLIC_SIZES, Break, PlainFrame, Recompile, Stored
from ..errors import (
    BackendError,
    CaptureError,
    ControlMisuse,
    DynamicDimError,
    ForbiddenCall,
    InternalCaptureError,
    RecompileError,
    SizesBurntIn,
    SkipFrame,
    Unsupported,
    UserLocation,
)
from ..graph.captured import BackendFailed, Captured, name_of
from ..graph.module_data import forget_seen
from ..guards import store
from ..guards.access import Scope
from ..guards.filters import filter_guards
from ..options import CaptureOptions
from ..plan import Learnt
from ..signals import defer_signal_errors, let_through
from ..trace_policy import disabled_inside, is_disabled
from ..uncompiled import PLEASE_REPORT, report_uncompiled
from ..watchers import tell
from . import cache, dynamism
from . import stance as stances
from .code_set import CodeSet
from .dynamic_code import DynamicCode
from .frame_input import NOTHING, ONE_OPERATION, FrameInput, forget_frames
from .history import History
from .policy import (
    Outermost,
    counts_objects,
    frame_is_captured,
    is_module_call,
    replaced_builtin,
    runs_what_is_compiled,
    starts_watching,
)
from .stored import StoredEntries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..contracts import CapturedGraph
    from ..shapes import DeclaredShapes

log = logging.getLogger("tracework.capture.plain")
fallbacks = logging.getLogger("tracework.fallbacks")
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_EMPTY_LIMIT = 4  # captures of a frame in which nothing was found to compile, after which it is left alone
_WORK_LIMIT = 20_000  # instructions traced in such captures, after which it is
_WRAPPED_LIMIT = 32  # functions that are left alone under one wrapper, after which the wrapper is
_REMEMBERED = 1000
_PATIENCE = 60.0
_callbacks: weakref.WeakSet[Any] = weakref.WeakSet()
_resting: dict[int, tuple[weakref.ref[types.CodeType], weakref.ref[Any]]] = {}
"""By the id of a code: the callback that was compiled for it last, and whose wrappers are gone."""
_ALONE = 2  # references to an object that one attribute has, while they are counted
# As for functions: a copy is the same object, and a pickle holds the name. A deep copy of a bound method is bound to the copy of its object.
copyreg.pickle(_C.Scoped, lambda scoped: getattr(scoped, "__qualname__", repr(scoped)))  # type: ignore[arg-type, return-value]


def _capture_frame() -> Callable[..., Captured]:
    """What captures a frame: imported when something is first compiled, as the values and primops take longer than all else, and not
    later, when a program may have changed how Python imports; but for functions of which something is stored."""
    from .compile_frame import capture_frame

    return capture_frame


_Kept = TypeVar("_Kept")


class Record(collections.deque[_Kept]):
    """The last of what happened to a callback's frames; those who watch are told of each."""

    def __init__(self, event: str) -> None:
        super().__init__(maxlen=_REMEMBERED)
        self._event = event

    def append(self, what: _Kept) -> None:
        super().append(what)
        tell(self._event, what)


class FrameCallback:
    """What the evaluator asks for frames without a fitting entry; owns the entries that it makes."""

    def __init__(self, backend: Any, options: CaptureOptions, function: Any = None) -> None:
        self.stored = StoredEntries.of(backend)
        self._capture_frame: Callable[..., Captured] | None = None
        self.outermost = Outermost(function)
        cache.try_again(self.outermost.code)
        self.backend = backend
        self.given = options  # by which an equal call of optimize() finds it again
        place = getattr(function, "__tracework_place__", None)
        self.options = options if place is None else dataclasses.replace(options, places={function.__code__.co_filename: place})
        self.fixes_sizes = False  # whether what the backend makes of a graph may hold for the present sizes only
        # Codes are held weakly: an entry of a code holds this callback, and the collector does not see into code objects.
        self.histories: dict[int, tuple[weakref.ref[types.CodeType], History]] = {}
        self.empty: dict[tuple[Any, ...], int] = {}
        # wrappers by their code: the functions they hold -> why they run plainly
        self.left: dict[int, dict[tuple[Any, ...], str]] = {}
        self.small = CodeSet()
        self.dynamic_code = DynamicCode()
        self.siblings: dict[int, FrameCallback] = {}
        self.wrappers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.skipped = Record[PlainFrame]("plain")
        self.recompiles = Record[Recompile]("recompile")
        self.breaks = Record[Break]("break")
        self.kept = Record[Stored]("stored")
        self.compiling = threading.RLock()
        _callbacks.add(self)
        code = None if self.outermost.code is None else self.outermost.code()
        if self.stored is None or not (hasattr(function, BESIDE) or code is not None and self.stored.knows(code, self.options)):
            self.prepare()

    def prepare(self) -> Callable[..., Captured]:
        """What captures a frame, with all that it takes imported."""
        if self._capture_frame is None:
            self._capture_frame = _capture_frame()
            if self.stored is not None:
                self.stored.missed()
        return self._capture_frame

    def __call__(
        self, code: types.CodeType, names: dict[str, Any], globals_: dict[str, Any], builtins: Any, closure: Any, function: Any
    ) -> Any:
        with _torch.modes.function_modes_aside():
            try:
                answer = self.answer(code, names, globals_, closure, function)
            except Exception as error:
                _torch.torch_compile.also_torchs(error)
                entry = self.failing_entry(code, globals_, closure, error)
                if entry is None:
                    raise
                return entry
        if answer is _C.SKIP:
            cache.left_plain(code)
        return answer

    def failing_entry(self, code: types.CodeType, globals_: dict[str, Any], closure: Any, error: Exception) -> Any:
        """For a continuation inside of blocks that plain Python has entered: an entry for this call only, which raises the error there, so
        that the blocks end. None for other frames."""
        replacement = code_that_raises(code, globals_, closure, error)
        if replacement is None:
            return None
        entry = cache.make_entry(code, (), (), None, replacement, self)
        entry.dead = True
        return entry

    def answer(self, code: types.CodeType, names: dict[str, Any], globals_: dict[str, Any], closure: Any, function: Any) -> Any:
        """An entry for this frame, or what to do instead."""
        inside = disabled_inside(function)
        if inside is not None:
            if hasattr(inside, "__code__"):
                cache.skip(inside.__code__)
            return None  # not for good: all such wrappers share one code
        if code.co_name == "__torch_dispatch__" or runs_what_is_compiled(code):  # it runs below autograd, operator by operator
            cache.skip(code, recursive=True)
            return _C.SKIP
        if torch.compiler.is_exporting():
            return None  # what is exported are the operators of plain Python, as under torch.compile
        if code.co_flags & _GENERATORS or not frame_is_captured(code, globals_):
            return _C.SKIP
        if not self.options.fullgraph and (starts_watching(code) or counts_objects(code)):
            return _C.SKIP
        if is_disabled(function):
            cache.skip(code, recursive=True)
            return _C.SKIP
        if is_module_call(code) and _torch.modules.has_old_hooks(names.get("self")):
            if self.options.fullgraph:
                raise Unsupported("hook", f"{type(names['self']).__name__} has hooks of register_backward_hook")
            why = f"{type(names['self']).__name__} has hooks of register_backward_hook"
            report_uncompiled(why, self.options.named(written_code(code, names)), "use register_full_backward_hook")
            return _C.OFF  # they hang on the autograd node that comes last in plain code
        outermost = self.outermost.is_frame(code, names)
        if not outermost and (is_module_call(code) or code in self.small):
            return None  # not for good: they are captured where they are outermost
        left = self.left[id(code)].get(wrapped_functions(code, closure)) if id(code) in self.left else None
        if left is not None and not (outermost and left == ONE_OPERATION):
            return None  # not for good: others share the code
        watching = watcher_of_operators()
        if watching is not None:
            if outermost:
                place = self.options.named(written_code(code, names))
                report_uncompiled(f"it is called under {watching}", place, "compile the function around it")
            return None
        stance = stances.current()
        if stance.name == "fail_on_recompile":
            self.refuse(code, Scope.of_frame(code, names, globals_, closure))
        if stance.name == "eager_then_compile" and self.is_first(code):
            self.history(code).observe(names)
            return None
        with self.one_at_a_time() as waited:
            made = cache.fitting(code, Scope.of_frame(code, names, globals_, closure), self) if waited else None
            return made or self.new_entry(code, names, globals_, closure, outermost, stance)

    @contextlib.contextmanager
    def one_at_a_time(self) -> Iterator[bool]:
        """Threads that call the same function compile it one after the other; gives whether this one had to wait for another.

        Two that wait for each other, through the user's own code, go on after a while.
        """
        free = self.compiling.acquire(blocking=False)
        held = free or self.compiling.acquire(timeout=_PATIENCE)
        try:
            yield not free
        finally:
            if held:
                self.compiling.release()

    @defer_signal_errors
    def new_entry(
        self, code: types.CodeType, names: dict[str, Any], globals_: dict[str, Any], closure: Any, outermost: bool, stance: Any
    ) -> Any:
        """A new entry for this frame, or what to do instead."""
        if self.options.settings is not None:
            self.options = self.options.settings(self.options)
        replaced = replaced_builtin()
        if replaced is not None:
            return self.plain(code, f"the program has replaced builtins.{replaced}, which the compiler relies on", for_good=False)
        scope = Scope.of_frame(code, names, globals_, closure)
        if self.options.error_on_recompile and cache.entries_of(code, self):
            self.refuse(code, scope, "error_on_recompile is set", "mark sizes that change with mark_dynamic, or unset it")
        if cache.at_limit(code, scope, self.options, self, self.recompiles, self.history(code).dead_sources):
            return None
        if self.dynamic_code.at_limit(code, self.options):
            return _C.SKIP
        try:
            if stance.name == "aot_eager_then_compile" and self.is_first(code):
                entry = self.entry(code, names, globals_, closure, outermost, stance.first_backend)
                entry.dead = True  # the evaluator runs it for this call
                return entry
            return self.entry(code, names, globals_, closure, outermost)
        except SkipFrame as skipped:
            if self.options.fullgraph and outermost and skipped.detail not in (NOTHING, ONE_OPERATION):
                place = UserLocation(code.co_filename, code.co_firstlineno, code.co_qualname)
                raise Unsupported("other", skipped.detail, (place,)) from skipped
            if not (skipped.wanted or skipped.detail in (NOTHING, ONE_OPERATION)):
                self.report(code, f"{skipped.detail}, after {skipped.stop.text}" if skipped.stop else skipped.detail)
            answer = self.plain(code, skipped.detail, skipped.stop, held=wrapped_functions(code, closure))
            traced = outermost and skipped.detail == NOTHING and skipped.stop is None
            return (
                _C.OFF if traced and answer is None and self.options.fullgraph else answer
            )  # what it calls has no graph, either
        except (Unsupported, ForbiddenCall, ControlMisuse, DynamicDimError, BackendFailed) as error:
            if isinstance(error, BackendFailed):
                cause = error.__cause__
                assert cause is not None  # what the backend raised
                if isinstance(cause, CaptureError) or getattr(cause, "__tracework_error__", False):
                    raise cause from None
                raise BackendError(name_of(self.backend), cause) from cause
            raise
        except RecursionError:
            if self.options.fullgraph:
                raise
            self.report(code, "Python's recursion limit is near, and it runs as plain Python this time")
            return None
        except Exception as error:
            let_through(error)
            if self.options.fullgraph:
                raise InternalCaptureError(
                    f"{code.co_qualname} could not be captured: {type(error).__name__}: {error}"
                ) from error
            fallbacks.warning("capture of %s failed", code.co_qualname, exc_info=True)
            text = f"its capture failed ({type(error).__name__}: {error}) and it runs as plain Python"
            report_uncompiled(text, self.options.named(code), PLEASE_REPORT)
            return self.plain(code, f"{type(error).__name__}: {error}", held=wrapped_functions(code, closure))

    def report(self, code: types.CodeType, why: str) -> None:
        """Warns that the tensor operations of a frame that was given up run uncompiled, if it has any."""
        if self.history(code).operations:
            report_uncompiled(why, self.options.named(code))

    def wrap(self, function: Callable[..., Any], run_only: bool = False) -> Any:
        """The function with its frames going through this callback; when the last such wrapper dies, so do the entries.

        Raises ControlMisuse for what cannot be called.
        """
        if not callable(function):
            raise ControlMisuse(f"{function!r} cannot be called, and is not captured. Give a function, a method or an nn.Module.")
        wrapper = _C.Scoped(function, self, run_only=run_only)
        # by these two torch.compiler.disable, and torch.compile, find what was compiled
        wrapper._torchdynamo_orig_callable = function  # type: ignore[attr-defined]
        wrapper._torchdynamo_wrapper_id = id(wrapper)  # type: ignore[attr-defined]
        self.wrappers.add(wrapper)
        weakref.finalize(wrapper, _release_entries, weakref.ref(self)).atexit = False
        return wrapper

    def seen(self) -> list[tuple[types.CodeType, History]]:
        """The sizes and numbers that were seen, by code that still lives."""
        return [(code, history) for ref, history in list(self.histories.values()) if (code := ref()) is not None]

    def release_entries(self) -> None:
        """Drops the entries of this callback, which keep it alive, and with it graphs and kernels, as long as the code lives."""
        dynamism.remember(self.seen())
        for code, _ in list(self.histories.values()):
            cache.remove(code(), lambda entry: entry.owner is self)
        for sibling in list(self.siblings.values()):
            sibling.release_entries()

    def rest(self) -> bool:
        """Whether the entries stay for an equal call of optimize(), the last of one code, now that the last wrapper is gone. Where nobody else has
        the backend there can be none."""
        code = None if self.outermost.instance is not None or self.outermost.code is None else self.outermost.code()
        if code is None or sys.getrefcount(self.backend) <= _ALONE or not cache.entries_of(code, self):
            return False
        before = _resting.get(id(code), (None, None))[1]
        _resting[id(code)] = weakref.ref(code, functools.partial(_forget_resting, id(code))), weakref.ref(self)
        other = None if before is None else before()
        if other is not None and other is not self and not list(other.wrappers):
            other.release_entries()
        return True

    def refuse(
        self,
        code: types.CodeType,
        scope: Scope,
        why: str = "the stance is fail_on_recompile",
        cure: str = "warm it up with such a call before the stance is set, or set_stance('eager_on_recompile')",
    ) -> None:
        """Nothing may be compiled: raises RecompileError unless the frame has nothing that would be."""
        reasons = cache.recompile_reasons(code, scope, self)
        if not reasons and not any(isinstance(obj, (torch.Tensor, torch.nn.Module)) for obj in scope.names.values()):
            return
        lines = [f"{self.options.shown(code)} would be compiled, but {why}"]
        lines += [f"  entry {number} does not fit: {reason}" for number, reason in enumerate(reasons)]
        lines.append(f"  try: {cure}")
        raise RecompileError("\n".join(lines))

    def is_first(self, code: types.CodeType) -> bool:
        """Whether this is the first time that a stance which delays compilation meets the code."""
        history = self.history(code)
        first, history.delayed = not history.delayed, True
        return first and not cache.entries_of(code, self)

    def with_backend(self, backend: Any) -> FrameCallback:
        """The callback that does the same with another backend; it has entries of its own."""
        found = self.siblings.get(id(backend))
        if found is None:
            found = self.siblings[id(backend)] = FrameCallback(backend, self.options)
            found.outermost = self.outermost
        return found

    def entry(
        self,
        code: types.CodeType,
        names: dict[str, Any],
        globals_: dict[str, Any],
        closure: Any,
        outermost: bool,
        backend: Any = None,
    ) -> Any:
        """Capture the frame and make its entry."""
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        slots = {name: names[name] for name in code.co_varnames[:count] if name in names}
        history, stored = self.history(code), self.stored if backend is None else None
        if stored is not None and len(slots) == count:
            known = self.stored_entry(stored, code, names, slots, globals_, closure, outermost)
            if known is not None:
                self.kept.append(Stored(code.co_qualname, code.co_filename, code.co_firstlineno, loaded=True))
                return known
            if not self.options.fullgraph and stored.runs_plainly(code, slots, self.options, outermost):
                return self.plain(code, NOTHING, for_good=False)
        given = FrameInput(code, slots, globals_, closure, outermost)
        with self.options.around(code):
            try:
                captured = self.captured(given, backend or self.backend, history)
            except SkipFrame as skipped:
                if stored is not None and skipped.detail in (NOTHING, ONE_OPERATION) and len(slots) == count:
                    stored.keep_plain(code, slots, self.options, outermost)
                raise
        if isinstance(captured.stop, Break) and (captured.graph is not None or not is_of_torch(code)):
            self.breaks.append(captured.stop)
        for raising in captured.raising_codes:
            cache.skip(raising)
        guards, conditions = list(captured.guards), True
        if self.options.guard_filter_fn is not None:
            scope = Scope.of_frame(code, names, globals_, closure)
            guards, conditions = filter_guards(self.options.guard_filter_fn, guards, scope)
        detail = CHECKED if captured.checked else None
        entry = cache.make_entry(
            code,
            guards,
            captured.collect,
            captured.symbols,
            captured.code,
            self,
            detail,
            conditions=conditions,
            has_graph=captured.graph is not None,
            dead_sources=history.dead_sources,
        )
        if stored is not None:
            scope = Scope.of_frame(code, names, globals_, closure)
            why = stored.keep(code, scope, entry.info.program, captured, self.options, outermost, history)
            self.kept.append(Stored(code.co_qualname, code.co_filename, code.co_firstlineno, why=why))
        return entry

    def stored_entry(
        self,
        stored: StoredEntries,
        code: types.CodeType,
        names: dict[str, Any],
        slots: dict[str, Any],
        globals_: dict[str, Any],
        closure: Any,
        outermost: bool,
    ) -> Any:
        """What another process has stored for this frame, or None. Nothing here refers to the arguments any more when the frame is captured: who
        else does decides on guards."""
        scope, arguments = Scope.of_frame(code, names, globals_, closure), tuple(slots.values())

        def holds(program: Any) -> bool:
            return isinstance(program.run(arguments, globals_, closure), tuple)

        return stored.entry(code, scope, holds, self.options, outermost, self.history(code), self)

    def captured(self, given: FrameInput, backend: Any, history: History) -> Captured:
        """The frame captured, with sizes as constants from the time on when the backend has made something of a graph that may hold for
        the present ones only."""
        own, handled, capture_frame = backend is self.backend, sys.exc_info()[1], self.prepare()
        known = True if getattr(backend, SYMBOLIC_SIZES, False) else False if own and self.fixes_sizes else None
        options = self.options.with_writes(bool(getattr(backend, REPEATS_WRITES, False)))
        try:
            captured = capture_frame(given, backend, options.with_sizes(known), history, disabled_call)
        except SizesBurntIn as burnt:
            captured = None
            forget_frames(burnt, handled)
        if own and (captured is None or not captured.given_back):
            self.fixes_sizes = True
        return captured or capture_frame(given, backend, options.with_sizes(False), history, disabled_call)

    def history(self, code: types.CodeType) -> History:
        """Sizes seen for this code."""
        known = self.histories.get(id(code))
        if known is None or known[0]() is not code:
            owner = weakref.ref(self)
            kind = self.dynamic_code.kind(code) if original_code(code) is code else None  # continuations die with it
            ref = weakref.ref(code, functools.partial(_code_died, owner, id(code), kind))
            history = dynamism.new_history(
                code, lambda: cache.remove(ref(), lambda e: e.owner is owner() and relies_on_checks(e))
            )
            known = self.histories[id(code)] = (ref, history)
        return known[1]

    def plain(
        self, code: types.CodeType, why: str, stop: Break | None = None, for_good: bool = True, held: tuple[Any, ...] = ()
    ) -> Any:
        """Run this frame plainly; for good, unless there was merely nothing to capture in it this time. A wrapper's code only where it
        holds the same functions, as long as these are few."""
        log.info("%s runs as plain Python: %s", code.co_qualname, why)
        self.skipped.append(PlainFrame(code.co_qualname, why, stop, code.co_filename, code.co_firstlineno))
        if not for_good:
            return None
        if why in (NOTHING, ONE_OPERATION):
            key = (id(code), *held)
            seen = self.empty[key] = self.empty.get(key, 0) + 1
            if seen < _EMPTY_LIMIT and self.history(code).traced_in_vain < _WORK_LIMIT:
                return None
            if why == ONE_OPERATION and not held:
                self.small.add(code)
                return None
        if not held or len(self.left.get(id(code), ())) == _WRAPPED_LIMIT:
            return _C.SKIP
        self.left.setdefault(id(code), {})[held] = why
        return None

    def forget(self) -> None:
        """Start over."""
        self.histories.clear()
        self.empty.clear()
        self.left.clear()
        self.small.clear()
        self.dynamic_code = DynamicCode()
        if self.stored is not None:
            self.stored.forget()
        self.skipped.clear()
        self.recompiles.clear()
        self.breaks.clear()
        self.kept.clear()


_torch.torch_compile.hide_from_torch_compile(
    FrameCallback.__call__.__code__
)  # which may meet a frame that torch.compile's evaluator is to run


def written_code(code: types.CodeType, names: dict[str, Any]) -> types.CodeType:
    """The code itself, or for what torch does around a module's forward that of the forward."""
    forward = getattr(type(names.get("self")), "forward", None) if is_module_call(code) else None
    return getattr(forward, "__code__", code)


def watcher_of_operators() -> str | None:
    """What is running that eager operators are needed for: a transform, whose tensors have no storage to look at, or what sees each operator
    or carries something with what it computes."""
    if _torch.autograd.transform_level() is not None:
        return "a transform of torch.func"
    if _torch.modes.under_users_dispatch_mode():
        return "a TorchDispatchMode"
    if _torch.modes.under_jit_trace():
        return "torch.jit.trace"
    return "forward-mode AD" if _torch.autograd.forward_ad_is_on() else None


def wrapped_functions(code: types.CodeType, closure: tuple[types.CellType, ...] | None) -> tuple[Any, ...]:
    """The functions that a wrapper holds, as a decorator makes it for each of them from the same code; none for other code."""
    if not closure or not original_code(code).co_flags & inspect.CO_VARARGS:
        return ()
    held = [cell.cell_contents for cell in closure if cell != types.CellType()]
    return tuple([weakref.ref(function) for function in held if type(function) is types.FunctionType])


def _code_died(
    owner: weakref.ref[FrameCallback], key: int, kind: tuple[str, int] | None, dead: weakref.ref[types.CodeType]
) -> None:
    callback = owner()
    known = callback.histories.get(key) if callback is not None else None
    if callback is not None and known is not None and known[0] is dead:
        del callback.histories[key]
        if kind is not None:
            callback.dynamic_code.died(kind)


def release(compiled: weakref.ref[Any]) -> None:
    """For whoever wraps what optimize() gave for a function: nobody can call it through that wrapper any more, though it may not be dead yet."""
    wrapper = compiled()
    if wrapper is not None and isinstance(wrapper.callback, FrameCallback):
        wrapper.callback.wrappers.discard(wrapper)
        _release_entries(weakref.ref(wrapper.callback))


def _release_entries(callback: weakref.ref[FrameCallback]) -> None:
    """A wrapper died."""
    owner = callback()
    if owner is not None and not list(owner.wrappers) and not owner.rest():
        owner.release_entries()


def _forget_resting(key: int, code: weakref.ref[types.CodeType]) -> None:
    if key in _resting and _resting[key][0] is code:
        del _resting[key]


def _callback_of(backend: Any, options: CaptureOptions, function: Callable[..., Any]) -> FrameCallback:
    """The callback of an equal call before, made for the same code, with what it has compiled, as programs have that compile a function where they
    call it: `compile(f)(x)`. It is a new one where there is none, or where that one has all the entries that it may have."""
    outermost = Outermost(function)
    code = None if outermost.instance is not None or outermost.code is None else outermost.code()
    known, found = _resting.get(id(code), (None, None))
    callback = found() if known is not None and found is not None and known() is code else None
    if callback is None or callback.backend is not backend or callback.given != options:
        return FrameCallback(backend, options, function)
    full = code is not None and len(cache.entries_of(code, callback)) >= options.recompile_limit
    return FrameCallback(backend, options, function) if full else callback


CHECKED = "conditions on data are left to checks"


def relies_on_checks(entry: _C.Entry) -> bool:
    """Whether the entry looks at conditions on data when its graph has run."""
    return getattr(entry.info, "detail", None) == CHECKED


def disabled_call(called: Callable[..., Any], count: int = 0, refuse: Callable[[Any], Any] | None = None) -> Any:
    """A callable that runs with the hook off; results that are no tuple or list of `count` items, or more, go to refuse(results)."""
    return _C.Scoped(called, None, count=count, refuse=refuse)


def optimize(
    backend: Any,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    recompile_limit: int | None = None,
    guard_filter_fn: Any = None,
    observe: Any = None,
    name: str | None = None,
    dynamic_sources: Iterable[str] = (),
    static_sources: Iterable[str] = (),
    dynamic_values: Iterable[int] = (),
    unbacked_sources: Iterable[str] = (),
    unbacked: bool | None = False,
    shapes: DeclaredShapes | None = None,
    on_failure: Callable[[Any, Exception], Callable[..., Any]] | None = None,
    around: Callable[[types.CodeType], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    settings: Callable[[CaptureOptions], CaptureOptions] | None = None,
) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: the function runs with its frames captured and compiled by backend(gm, example_inputs). Raises ControlMisuse."""
    for names in (dynamic_sources, static_sources, unbacked_sources):
        if isinstance(names, str):
            raise ControlMisuse(f"sources are given as a list of names, not as {names!r}. Write [{names!r}].")
    if not callable(backend):
        raise ControlMisuse(
            f"optimize() takes a backend (graph_module, example_inputs) -> callable, not {backend!r}. tracework.compile(backend=...) knows"
            " backends by their names."
        )
    given: dict[str, Any] = {"fullgraph": fullgraph, "dynamic": dynamic, "guard_filter_fn": guard_filter_fn, "name": name}
    given.update(dynamic_sources=frozenset(dynamic_sources), static_sources=frozenset(static_sources))
    given.update(dynamic_values=frozenset(dynamic_values), unbacked_sources=frozenset(unbacked_sources))
    given.update(unbacked=unbacked, shapes=shapes, on_failure=on_failure, settings=settings, around=around)
    if recompile_limit is not None:
        given["recompile_limit"] = recompile_limit
    if observe is not None:
        given["observe"] = observe
    return functools.partial(_optimized, backend, CaptureOptions(**given))


def _optimized(backend: Any, options: CaptureOptions, function: Callable[..., Any]) -> Any:
    if type(function) is _C.Scoped and function.callback is not None:
        function = function.__wrapped__  # optimized before: the new options count
    scoped = _callback_of(backend, options, function).wrap(function)
    for attribute in functools.WRAPPER_ASSIGNMENTS:
        if hasattr(function, attribute):
            setattr(scoped, attribute, getattr(function, attribute))
    if isinstance(function, types.MethodType):
        scoped.__deepcopy__ = lambda memo: _optimized(backend, options, copy.deepcopy(function, memo))
    return scoped


def disable(function: Callable[..., Any], *, recursive: bool = True, reason: str | None = None) -> Any:
    """The function as plain Python; what it calls, too, unless recursive is false. In traced code a call of it breaks the graph."""
    if type(function) is _C.Scoped and function.callback is not None:
        function = function.__wrapped__
    if recursive:
        target: Any = _C.Scoped(function, None)
    else:
        target = function
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if code is not None:
            cache.skip(code)

    @functools.wraps(function)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    disabled.__tracework_disable__ = reason or True  # type: ignore[attr-defined]
    return disabled


def run_only(function: Any) -> Any:
    """The optimized function, using entries that exist and never making new ones."""
    callback = getattr(function, "callback", None)
    if not isinstance(callback, FrameCallback):
        raise CaptureError("run_only wants what optimize(...)(function) gave")
    return callback.wrap(function.__wrapped__, run_only=True)


def dump_guards(function: Callable[..., Any], portable_only: bool = False) -> list[str]:
    """The guards of a compiled function as JSON, one text for each of its entries, the most recently useful first.

    guards.store.loads reads one again, in any process. portable_only: leave out what means nothing in another process; otherwise that
    raises NotPortable. Raises CaptureError when `function` is not what optimize(...) gave for a Python function.
    """
    callback = getattr(function, "callback", None)
    code = getattr(getattr(function, "__wrapped__", None), "__code__", None)
    if not isinstance(callback, FrameCallback) or code is None:
        raise CaptureError("dump_guards wants what optimize(...) gave for a Python function")
    return [store.dumps(entry.info.program, portable_only) for entry in cache.entries_of(code, callback)]


def dump_dynamism() -> str:
    """Which sizes and numbers of which functions were seen to change, as JSON; load_dynamism() in a later run knows them at once."""
    for callback in list(_callbacks):
        dynamism.remember(callback.seen())
    return dynamism.known()


def reset() -> None:
    """Forget all entries, marks and seen sizes."""
    cache.reset()
    forget_seen()
    for callback in list(_callbacks):
        callback.forget()


def frame_of(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[FrameInput, types.FunctionType]:
    """The frame that function(*args, **kwargs) would run, and its Python function."""
    if isinstance(function, types.MethodType):
        return frame_of(function.__func__, (function.__self__, *args), kwargs)
    if not isinstance(function, types.FunctionType):
        call = getattr(type(function), "forward", None) or type(function).__dict__.get("__call__")
        if not isinstance(call, types.FunctionType):
            raise CaptureError(f"{function!r} is not a Python function, method or module: nothing to capture")
        return frame_of(call, (function, *args), kwargs)
    bound = inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    bound.apply_defaults()
    return FrameInput(function.__code__, dict(bound.arguments), function.__globals__, function.__closure__), function


def _run_graph(gm: Any, example_inputs: list[Any]) -> Any:
    return gm.forward


def capture(function: Callable[..., Any], *args: Any, dynamic: bool | None = None, **kwargs: Any) -> CapturedGraph:
    """The one graph of function(*args, **kwargs), without running it.

    Raises Unsupported where the graph would break, CaptureError when there is nothing to record.
    """
    given, _ = frame_of(function, args, kwargs)
    options = CaptureOptions(fullgraph=True, dynamic=dynamic)
    try:
        captured = _capture_frame()(given, _run_graph, options, History(Learnt(unchecked=True)), disabled_call)
    except SkipFrame as skipped:
        raise CaptureError(f"{given.code.co_qualname}: {skipped.detail}") from skipped
    assert captured.graph is not None
    return captured.graph

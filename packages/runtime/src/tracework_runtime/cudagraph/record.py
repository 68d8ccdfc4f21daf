"""One segment as CUDA graphs: warm up, record, replay.

Rules that keep it sound:

* an input is read, and written, in place where it lay at the same address before: parameters and buffers, caches, memory that other
  recordings handed out (a backward's saved values). At another address it is not replayed but recorded again; what moves before
  PAYBACK replays is copied in and, where the graph writes to it, back;
* memory that the caller still holds is never written to: a call whose outputs of last time are alive takes another recording, with
  outputs of its own, and where that is not enough, or too much for a loss beside all that was saved for a backward, they are handed out as
  copies from then on;
* a number that kernels read from memory, an int or a tensor of one number on the CPU, is written there before each replay; other ints tell
  calls apart, as sizes do;
* an output in the memory of an input is a view of the caller's input, as without a recording;
* what a recording hands out lies in a memory pool of its own, which no other replay writes to; what it needs only while it runs is shared
  by all recordings of a stream, on which replays are ordered (arena.py): a stream has recordings of its own;
* where library kernels are called there is a recording for each of the settings of torch that they look at;
* one thread at a time records or replays; a plain call waits for nobody;
* the number of recordings made is bounded by the number of calls, the memory of those that are alive by a share of the device;
* what cannot be recorded, or is measured not to win, runs plainly; an error while recording is a warning, once.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tracework_runtime import _torch, observe
from tracework_runtime._C import Front
from tracework_runtime.cudagraph.budget import BUDGET
from tracework_runtime.cudagraph.engine import GraphEngine, Inputs
from tracework_runtime.cudagraph.gate import Gate
from tracework_runtime.cudagraph.recording import Recording, can_be_copied, is_recorded_memory
from tracework_runtime.cudagraph.segment import Segment, Sizes, no_sizes
from tracework_runtime.cudagraph.step import STEPS
from tracework_runtime.errors import NotRecorded
from tracework_runtime.options import DEFAULT_OPTIONS, RuntimeOptions

__all__ = ["ADVICE", "GraphedFn"]

log = logging.getLogger("tracework.runtime.cudagraph")
FREE_RECORDINGS = 16
PAYBACK = 8
"""So many replays pay for one recording more than FREE_RECORDINGS."""
PATIENCE = 128
"""So many plain calls, too: what was a bad time for recordings may be over."""
ALTERNATES = 2
"""Recordings of one call that take turns while outputs are held, where nobody says where steps begin."""
MOST_ALTERNATES = 8
MOST_SIZES = 4096
LEAST_FREE = 0.25
"""Of a device's memory, beside a recording that nobody asked for."""
MOST_UNASKED = 8
"""Recordings of a function that nobody asked for, ever: each one waits for the device and empties the allocator's cache."""
Key = tuple[int, bool, Sizes, Any]
_LOCK = threading.RLock()
ENGINE = GraphEngine()


@dataclasses.dataclass(eq=False)
class Calls:
    """What is known of calls with the same sizes, on one stream.

    runs: plain ones so far. addresses: of the last one's inputs. moving: inputs that are copied. copied: outputs that are handed out as
    copies. unsettled: calls in turn that waited for addresses to stay. static: addresses of static inputs that were seen. elsewhere:
    inputs that were on another device once, as the seeds are that an attention kernel saves where it is not recorded.
    """

    recordings: list[Recording] = dataclasses.field(default_factory=list)
    gate: Gate = dataclasses.field(default_factory=Gate)
    runs: int = 0
    addresses: dict[int, int] = dataclasses.field(default_factory=dict)
    moving: set[int] = dataclasses.field(default_factory=set)
    copied: set[int] = dataclasses.field(default_factory=set)
    unsettled: int = 0
    static: set[int] = dataclasses.field(default_factory=set)
    elsewhere: set[int] = dataclasses.field(default_factory=set)
    refusal: str = ""
    front: Front | None = None
    """Of their function."""

    def drop(self, recording: Recording) -> None:
        """Gives a recording's memory back, but what the caller holds."""
        if recording in self.recordings:
            if self.front is not None:
                self.front.forget()
            self.recordings.remove(recording)
            BUDGET.remove(recording)
            recording.disown()


class GraphedFn:
    """Like the CompiledFn it wraps: `fn(list_of_inputs) -> tuple`.

    asked: whether the program asked for recordings (unasked.py); where not, the first `visible` outputs, or all, are handed out as copies.
    refusal: why nothing is recorded any more. made, replays, plain: how many recordings, replays and plain calls there were.
    in_parts: error of a recording -> what runs the function with recorded parts around what raised it, if that is known.
    """

    __tracework_boxed__ = True

    def __init__(
        self,
        compiled: Any,
        options: RuntimeOptions = DEFAULT_OPTIONS,
        engine: Any = None,
        asked: bool = True,
        visible: int | None = None,
    ) -> None:
        self.compiled, self.options, self.engine, self.asked = compiled, options, engine or ENGINE, asked
        self._copied = None if visible is None else frozenset(range(visible))
        self.artifact, self.check = compiled.artifact, compiled.check
        self.segment = Segment.of(compiled)
        self.calls: dict[tuple[Any, ...], Calls] = {}
        self.made = self.plain = self._slow_replays = 0
        self.refusal = ""
        self.in_parts: Callable[[BaseException], Callable[[Inputs], tuple[Any, ...]] | None] = lambda error: None
        self._warm = False
        self._told_limit = False  # in the log, once
        self._stream: int | None = None  # of the first recording; that of others that nobody asked for, too
        on_gpu = self.engine.capturing, self.engine.current_device, torch.is_inference_mode_enabled
        settings = _torch.library_settings if self.segment.library else None
        sizes = None if self.segment.sizes is no_sizes else self.segment.sizes
        self._front = Front(_LOCK.acquire, _LOCK.release, on_gpu, self.engine.stream, self.segment.device, settings, sizes)

    def __repr__(self) -> str:
        return f"<GraphedFn of {self.segment.name}>"

    @property
    def replays(self) -> int:
        """How many calls were replayed."""
        return self._slow_replays + self._front.count

    @property
    def recordings(self) -> list[Recording]:
        """Those that are alive."""
        return [recording for calls in self.calls.values() for recording in calls.recordings]

    def most_recordings(self) -> int:
        """How many may have been made by now."""
        return FREE_RECORDINGS + self.replays // PAYBACK + self.plain // PATIENCE

    def reasons(self) -> tuple[str, ...]:
        """Why calls run kernel by kernel."""
        found = [self.refusal, *(text for calls in self.calls.values() for text in (calls.refusal, calls.gate.refusal))]
        return tuple(dict.fromkeys(text for text in found if text))

    def __call__(self, inputs: Inputs) -> tuple[Any, ...]:
        found = self._front(inputs)
        if found is not None:
            return found
        if self.engine.capturing():
            return self._plain(inputs, "nested")
        if self.check is not None:
            self.check(inputs)
        if self.engine.current_device() == self.segment.device:
            return self._call(inputs)
        with self.engine.on(self.segment.device):
            return self._call(inputs)

    def _call(self, inputs: Inputs) -> tuple[Any, ...]:
        with _LOCK:
            stream = self.engine.stream(self.segment.device)
            key = self._key(inputs, stream)
            calls = self._calls_of(key)
            found = self._replayed(calls, inputs, stream)
            if isinstance(found, tuple):
                self._go_ahead(calls, key)
        if isinstance(found, tuple):
            return found
        if isinstance(found, Exception):
            self._tell(found)
            found = "refused"
        if found in FALLING_BACK and self.options.cudagraph_or_error:
            raise NotRecorded(f"{self!r}: {'; '.join(self.reasons()) or FALLING_BACK[found]}", advice=ADVICE)
        calls.runs += 1
        self.plain += 1
        self._warm = True
        return self._measured(calls, inputs) if found == "measured" else self._plain(inputs, found)

    def _key(self, inputs: Inputs, stream: int) -> Key:
        """What tells calls apart: stream, inference mode, sizes, settings that the library looks at."""
        settings = _torch.library_settings() if self.segment.library else None
        return stream, torch.is_inference_mode_enabled(), self.segment.sizes(inputs), settings

    def _calls_of(self, key: Key) -> Calls:
        calls = self.calls.get(key)
        if calls is None:
            if len(self.calls) >= MOST_SIZES:
                self.calls = {known: one for known, one in self.calls.items() if one.recordings}
            calls = self.calls[key] = Calls(front=self._front, gate=Gate(self.asked))
            calls.refusal = self._refusal(key[2])
        return calls

    def _go_ahead(self, calls: Calls, key: Key) -> None:
        """The next call may be replayed at once, if it is like this one."""
        stream, inference, sizes, settings = key
        proven = [r.replay for r in calls.recordings if r.is_plain and (not r.on_trial or self.options.cudagraph_or_error)]
        if proven and self.check is None:
            self._front.set(stream, inference, settings, sizes, tuple(proven))

    def _refusal(self, sizes: tuple[Any, ...]) -> str:
        """What speaks against recordings for these sizes."""
        listed, distinct = self.options.cudagraph_capture_sizes, tuple(dict.fromkeys(sizes))
        if listed is None or not sizes or distinct in listed or len(distinct) == 1 and distinct[0] in listed:
            return ""
        return f"sizes {distinct} are not among cudagraph_capture_sizes"

    def _plain(self, inputs: Inputs, why: str) -> tuple[Any, ...]:
        observe.add(f"cudagraph.plain.{why}")
        return self.segment.call(inputs)

    def _measured(self, calls: Calls, inputs: Inputs) -> tuple[Any, ...]:
        """A plain call that the gate hears of."""
        found, host, device = self.engine.time(lambda: self._plain(inputs, "measured"), self.segment.device)
        calls.gate.measured_plain(host, device)
        if calls.gate.refusal:
            log.info("%s is not recorded: %s", self.segment.name, calls.gate.refusal)
        return found

    def _replayed(self, calls: Calls, inputs: Inputs, stream: int) -> tuple[Any, ...] | str | Exception:
        """The outputs by a recording; why the call has to run plainly; or the error that recording met."""
        held = []
        for recording in calls.recordings:
            if recording.replay.matches(inputs):
                if recording.replay.free():
                    return self._replay(calls, recording, inputs, stream)
                held.append(recording)
        if self.refusal or calls.refusal or calls.gate.refusal:
            return "refused"
        if not self.asked and (held or self.made >= MOST_UNASKED or self._stream not in (None, stream)):
            return "held" if held else "limit"
        addresses = _Addresses(calls, self.segment, inputs, self.engine.device_type)
        warmup = self.options.cudagraph_warmup
        if calls.runs < warmup - self._warm:
            return "warmup"
        if warmup and not calls.gate.pays and not (self.options.cudagraph_or_error and calls.gate.plain is not None):
            return "measured"
        fixed = dict(held[-1].fixed) if held else addresses.policy()
        if isinstance(fixed, str):
            return fixed
        if self.made >= self.most_recordings():
            if not self._told_limit:
                self._told_limit = True
                log.warning(
                    "%s: %d recordings for %d replays, no more: %s",
                    self.segment.name,
                    self.made,
                    self.replays,
                    FALLING_BACK["limit"],
                )
            return "limit"
        if not self.asked:
            for recording in [one for one in calls.recordings if self._is_replaced(one, fixed)]:
                calls.drop(recording)
        dropped = held if self._copies_more(calls, held) else []
        recording_or_error = self._record(calls, inputs, fixed, stream)
        if not isinstance(recording_or_error, Recording):
            return recording_or_error
        for recording in dropped:
            calls.drop(recording)
        return self._replay(calls, recording_or_error, inputs, stream)

    def _is_replaced(self, recording: Recording, fixed: Mapping[int, int]) -> bool:
        """Whether one with these addresses does for its calls, too, or it was hardly ever replayed and reads no other weights: memory is dear."""
        if fixed.items() <= recording.fixed.items():
            return True
        same = all(recording.fixed.get(n) == fixed.get(n) for n in self.segment.static)
        return same and recording.replay.replays < PAYBACK and not recording.held_outputs()

    def _copies_more(self, calls: Calls, held: list[Recording]) -> bool:
        """Whether outputs are copied from now on, where the recordings that would do are all held."""
        kept = {n for recording in held if recording.replay.step < STEPS.number for n in recording.held_outputs()}
        most = MOST_ALTERNATES if STEPS.number else ALTERNATES
        if held and not kept and (len(held) >= most or held[-1].little_is_held()):
            kept = {n for recording in held for n in recording.held_outputs()}
        calls.copied |= kept
        return bool(kept)

    def _record(self, calls: Calls, inputs: Inputs, fixed: Mapping[int, int], stream: int) -> Recording | str | Exception:
        """A new recording, or why there is none: nothing has run then."""
        try:
            with observe.timed("cudagraph.record"):
                made = Recording(self.segment, self.engine, inputs, fixed, calls.copied if self.asked else self._copied, stream)
        except torch.OutOfMemoryError:
            calls.refusal = "no memory was left to record it"
            return "refused"
        except Exception as error:
            first: BaseException = error
            while first.__context__ is not None:
                first = first.__context__
            self.refusal = f"recording it failed: {first}"
            if (parts := self.in_parts(error)) is not None:
                self.segment = dataclasses.replace(self.segment, call=parts)
            for recording in list(calls.recordings):
                calls.drop(recording)
            return error
        self.made += 1
        if not self.asked and self.engine.free(self.segment.device) < LEAST_FREE * self.engine.memory(self.segment.device):
            made.disown()
            calls.refusal = f"less than {LEAST_FREE:.0%} of the device's memory is free"
            return "refused"
        share = self.options.cudagraph_memory_share
        if not BUDGET.add(made, lambda: share * self.engine.memory(self.segment.device), evicts=self.asked):
            made.disown()
            calls.refusal = f"a recording would keep {made.bytes >> 20} MiB, more than {share:.0%} of the device"
            return "refused"
        self._stream = stream
        log.info(
            "%s is recorded: %d MiB, %s",
            self.segment.name,
            made.bytes >> 20,
            "asked for" if self.asked else "as it waits for launches",
        )
        made.drop = _dropping(calls, made)
        if len(calls.recordings) >= MOST_ALTERNATES:
            calls.drop(min(calls.recordings, key=lambda one: one.used))
        calls.recordings.append(made)
        return made

    def _replay(self, calls: Calls, recording: Recording, inputs: Inputs, stream: int) -> tuple[Any, ...]:
        self._slow_replays += 1
        if not recording.on_trial or recording.replay.replays == 0 or self.options.cudagraph_or_error:  # the first one uploads it
            return recording.run(inputs, stream)
        found, host, device = self.engine.time(lambda: recording.run(inputs, stream), self.segment.device)
        recording.on_trial = not calls.gate.measured_replay(host, device)
        won = any(one is not recording and not one.on_trial for one in calls.recordings)
        if calls.gate.refusal and not self.asked and won:
            calls.gate.refusal = ""  # others win: it alone goes, and there are few tries
            calls.drop(recording)
        if calls.gate.refusal:
            log.info("%s is not recorded: %s", self.segment.name, calls.gate.refusal)
            for one in list(calls.recordings):
                calls.drop(one)
        return found

    def _tell(self, error: Exception) -> None:
        """The warning, once, that recording failed. Raises it in the mode that does not fall back."""
        if self.options.cudagraph_or_error:
            raise NotRecorded(f"{self!r}: {self.refusal}", advice=ADVICE) from error
        if not self.asked:
            log.info("%r runs kernel by kernel: %s", self, self.refusal)
            return
        warnings.warn(
            f"{self!r} cannot be recorded as a CUDA graph and runs kernel by kernel from now on: {self.refusal}\n{ADVICE}.",
            RuntimeWarning,
            stacklevel=4,
        )


ADVICE = "Compile what waits for the GPU apart, or without mode='reduce-overhead'"
FALLING_BACK = {
    "refused": "it is not recorded",
    "limit": "sizes or addresses change too often",
    "elsewhere": "an input is not on the GPU",
}
"""Why a call runs plainly, where that is no passing state."""


def _dropping(calls: Calls, recording: Recording) -> Callable[[], None]:
    """What drops a recording, and keeps neither alive."""
    owner, dropped = weakref.ref(calls), weakref.ref(recording)

    def drop() -> None:
        here, one = owner(), dropped()
        if here is not None and one is not None:
            here.drop(one)

    return drop


class _Addresses:
    """Where a call's inputs lie, compared with the calls before."""

    def __init__(self, calls: Calls, segment: Segment, inputs: Inputs, device: str) -> None:
        self._calls, self._static, self._inputs = calls, segment.static, inputs
        memory = {n: x for n, x in enumerate(inputs) if isinstance(x, torch.Tensor) and n not in segment.numbers}
        self._elsewhere = {n for n, x in memory.items() if x.device.type != device}
        calls.elsewhere |= self._elsewhere
        self._now = {n: x.data_ptr() for n, x in memory.items() if x.numel()}
        self._before, calls.addresses = calls.addresses, self._now
        combination = hash(tuple(address for n, address in self._now.items() if n in self._static))
        self._settled = combination in calls.static or not self._before
        if len(calls.static) >= MOST_SIZES:
            calls.static.clear()
        calls.static.add(combination)

    def policy(self) -> dict[int, int] | str:
        """The inputs that are read in place, with their addresses; or what speaks against a recording now."""
        calls, inputs = self._calls, self._inputs
        if self._elsewhere:
            return "elsewhere"
        recorded = {n for n in self._now if n not in self._static and is_recorded_memory(inputs[n])}
        same = {n for n, address in self._now.items() if self._before.get(n) == address}
        if calls.recordings:
            latest = calls.recordings[-1]
            moved = {n for n, address in latest.fixed.items() if self._now.get(n) != address} - self._static - recorded
            if latest.replay.replays < PAYBACK or calls.unsettled >= ALTERNATES:
                calls.moving |= moved
            elif moved - same:
                calls.unsettled += 1
                return "moved"
            calls.unsettled = 0
        if not self._settled:
            return "moved"
        stays = self._static | recorded | (same - calls.moving)
        fixed = {n: address for n, address in self._now.items() if n in stays}
        if any(n not in fixed for n in calls.elsewhere):  # it would be copied from wherever it is
            return "elsewhere"
        windows = [n for n in self._now if n not in fixed and not can_be_copied(inputs[n])]
        return "window" if windows else fixed

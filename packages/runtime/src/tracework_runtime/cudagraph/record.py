"""One compiled function as CUDA graphs: warm up, record, replay.

Rules that keep it sound:

* static inputs (parameters, buffers) are read at the address they had when recording; another address means another
  recording;
* an input that is memory of another recording is read in place as well (a backward's saved values);
* every other input is copied into memory that belongs to the recording;
* an output's memory belongs to the recording. It is handed out as it is as long as, at the next call, nobody holds
  it any more. Where somebody does, the memory is left to its holder: the call is recorded anew, and from then on
  this output is handed out as a copy;
* every recording has a memory pool of its own, so a replay cannot write to what another recording handed out;
* recordings are replayed on the caller's stream, in the caller's order;
* where library kernels are called there is a recording for each of the settings of torch that they look at;
* what cannot be recorded runs plainly: an error while recording is a warning, once, and no more recordings.
"""

from __future__ import annotations

import dataclasses
import logging
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch

from tracework_runtime import _torch, observe
from tracework_runtime.cudagraph.refusals import refusals
from tracework_runtime.options import DEFAULT_OPTIONS, RuntimeOptions

__all__ = ["GraphEngine", "GraphedFn", "cudagraph"]

log = logging.getLogger("tracework.runtime.cudagraph")
_MOST_RECORDINGS = 16
Inputs = list[Any]


class GraphEngine:
    """How a recording is made on a GPU; tests put a slow double in its place."""

    device_type = "cuda"

    def __init__(self) -> None:
        self._streams: dict[int, torch.cuda.Stream] = {}

    def record(self, call: Callable[[Inputs], tuple[Any, ...]], inputs: Inputs, device: int) -> tuple[Any, Any]:
        """(what replays, the outputs) of a call; nothing has run yet."""
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = torch.cuda.Stream(device)
        graph = torch.cuda.CUDAGraph()
        try:
            # relaxed: a kernel's module may be loaded while recording.
            with (
                torch.cuda.device(device),
                torch.cuda.graph(graph, stream=stream, capture_error_mode="relaxed"),
            ):
                outputs = call(inputs)
        except BaseException:
            del self._streams[device]
            self._recover(device)
            raise
        return graph.replay, outputs

    def _recover(self, device: int) -> None:
        """A recording that ends well: after one that did not torch takes its generator of random numbers to be recorded still."""
        with torch.cuda.device(device), torch.cuda.graph(torch.cuda.CUDAGraph(), stream=torch.cuda.Stream(device)):
            torch.zeros(1, device="cuda")

    def capturing(self) -> bool:
        """Whether somebody else is recording right now."""
        return torch.cuda.is_current_stream_capturing()


@dataclasses.dataclass
class Output:
    """One output of a recording.

    idle: references to its memory while nobody but the recording holds it; copied: handed out as a copy;
    borrowed: memory of a static input, which is handed out as it is.
    """

    value: Any
    idle: int = 0
    copied: bool = False
    borrowed: bool = False

    def hand_out(self) -> Any:
        """A tensor for the caller."""
        if not isinstance(self.value, torch.Tensor):
            return self.value
        # .data: a tensor of its own, whose version counter starts anew with each call.
        return self.value.clone() if self.copied else self.value.data

    def held(self) -> bool:
        """Whether the caller still has the memory handed out last."""
        if self.copied or self.borrowed or not isinstance(self.value, torch.Tensor):
            return False
        return _torch.storage_references(self.value) > self.idle


@dataclasses.dataclass
class Recording:
    """A recorded call: where it reads, what it copies, what it gives."""

    replay: Callable[[], None]
    fixed: tuple[tuple[int, int], ...]
    """(input, address) that must not change."""
    copies: tuple[tuple[int, torch.Tensor], ...]
    outputs: list[Output]
    disown: Callable[[], Any] = lambda: None
    """Takes the outputs' addresses off _POOL_MEMORY, once."""


# Addresses of outputs of recordings that are alive, with the number of recordings that own one there.
_POOL_MEMORY: dict[int, int] = {}


def _disown(addresses: list[int]) -> None:
    for address in addresses:
        if _POOL_MEMORY[address] == 1:
            del _POOL_MEMORY[address]
        else:
            _POOL_MEMORY[address] -= 1


class GraphedFn:
    """Like the CompiledFn it wraps: `fn(list_of_inputs) -> tuple`."""

    __tracework_boxed__ = True

    def __init__(self, compiled: Any, options: RuntimeOptions = DEFAULT_OPTIONS, engine: Any = None) -> None:
        self.compiled, self.options, self.engine = compiled, options, engine or GraphEngine()
        self.artifact = compiled.artifact
        self.check = compiled.check
        self.recordings: dict[tuple[Any, ...], Recording] = {}
        self.warm: dict[tuple[Any, ...], int] = {}
        self.made = 0
        self.refused = False
        names = [name for name in self.artifact.devices if name.startswith("cuda:")]
        self.device = int(names[0].partition(":")[2]) if names else 0

    def __call__(self, inputs: Inputs) -> tuple[Any, ...]:
        if self.engine.capturing():
            return self._plain(inputs, "nested")
        if self.check is not None:
            self.check(inputs)
        key = self._key(inputs)
        recording = self.recordings.get(key)
        if recording is None:
            return self._first(key, inputs)
        if any(inputs[n].data_ptr() != address for n, address in recording.fixed):
            self._drop(key)  # an optimizer or load_state_dict made new memory
            return self._first(key, inputs)
        held = [output for output in recording.outputs if output.held()]
        for output in held:
            output.copied = True
        if held:
            self._drop(key)
            return self._record_and_run(key, inputs, [o.copied for o in recording.outputs])
        return self._replay(recording, inputs)

    def _key(self, inputs: Inputs) -> tuple[Any, ...]:
        static = self.artifact.static_inputs
        sizes = tuple((x.shape if isinstance(x, torch.Tensor) else x) for n, x in enumerate(inputs) if n not in static)
        return (*sizes, *_torch.library_settings()) if self.artifact.externs else sizes

    def _plain(self, inputs: Inputs, why: str) -> tuple[Any, ...]:
        observe.add(f"cudagraph.plain.{why}")
        return self.compiled.unchecked(inputs)  # type: ignore[no-any-return]

    def _first(self, key: tuple[Any, ...], inputs: Inputs) -> tuple[Any, ...]:
        if self.refused:
            return self._plain(inputs, "refused")
        runs = self.warm.get(key, 0)
        self.warm[key] = runs + 1
        if runs < self.options.cudagraph_warmup:
            return self._plain(inputs, "warmup")
        if any(isinstance(x, torch.Tensor) and x.device.type != self.engine.device_type for x in inputs):
            return self._plain(inputs, "cpu input")
        if self.made >= _MOST_RECORDINGS:
            if self.made == _MOST_RECORDINGS:
                log.warning("%r: %d recordings made, no more: too many sizes or addresses", self.compiled, self.made)
                self.made += 1
            return self._plain(inputs, "limit")
        return self._record_and_run(key, inputs, None)

    def _record_and_run(self, key: tuple[Any, ...], inputs: Inputs, copied: list[bool] | None) -> tuple[Any, ...]:
        """The call by a new recording, or as it is where that cannot be made: nothing has run then."""
        try:
            recording = self._record(key, inputs, copied)
        except Exception as error:
            self.refused = True
            first: BaseException = error
            while first.__context__ is not None:
                first = first.__context__
            warnings.warn(
                f"{self.compiled!r} cannot be recorded as a CUDA graph and runs kernel by kernel from now on: {first}\n"
                "Compile what waits for the GPU apart, or without mode='reduce-overhead'.",
                RuntimeWarning,
                stacklevel=2,
            )
            return self._plain(inputs, "refused")
        return self._replay(recording, inputs)

    def _record(self, key: tuple[Any, ...], inputs: Inputs, copied: list[bool] | None) -> Recording:
        fixed, copies, mine = [], [], list(inputs)
        for n, value in enumerate(inputs):
            if not isinstance(value, torch.Tensor):
                continue
            if n in self.artifact.static_inputs or value.untyped_storage().data_ptr() in _POOL_MEMORY:
                fixed.append((n, value.data_ptr()))
                continue
            mine[n] = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=value.device)
            mine[n].copy_(value)
            copies.append((n, mine[n]))
        with observe.timed("cudagraph.record"):
            replay, outputs = self.engine.record(self.compiled.unchecked, list(mine), self.device)
        recording = Recording(replay, tuple(fixed), tuple(copies), self._outputs(outputs, mine, copied))
        owned = [
            output.value.untyped_storage().data_ptr()
            for output in recording.outputs
            if isinstance(output.value, torch.Tensor) and not output.copied and not output.borrowed
        ]
        for address in owned:
            _POOL_MEMORY[address] = _POOL_MEMORY.get(address, 0) + 1
        # Also when the whole function dies: its memory is then anybody's.
        recording.disown = finalizer = weakref.finalize(recording, _disown, owned)
        finalizer.atexit = False
        self.recordings[key] = recording
        self.made += copied is None
        return recording

    def _outputs(self, values: tuple[Any, ...], inputs: Inputs, copied: list[bool] | None) -> list[Output]:
        outputs = [Output(value) for value in values]
        del values
        memory: dict[int, int] = {}
        for output in outputs:
            if isinstance(output.value, torch.Tensor):
                address = output.value.untyped_storage().data_ptr()
                memory[address] = memory.get(address, 0) + 1
        own = {x.untyped_storage().data_ptr(): n for n, x in enumerate(inputs) if isinstance(x, torch.Tensor)}
        for n, output in enumerate(outputs):
            if not isinstance(output.value, torch.Tensor):
                continue
            address = output.value.untyped_storage().data_ptr()
            # Memory that is also an input's, or that several outputs share, has no simple owner.
            output.borrowed = own.get(address) in self.artifact.static_inputs
            shared = address in own or memory[address] > 1
            output.copied = not output.borrowed and (shared or bool(copied and copied[n]))
            output.idle = _torch.storage_references(output.value)
        return outputs

    def _drop(self, key: tuple[Any, ...]) -> None:
        self.recordings.pop(key).disown()

    def _replay(self, recording: Recording, inputs: Inputs) -> tuple[Any, ...]:
        for n, memory in recording.copies:
            memory.copy_(inputs[n])
        inputs.clear()
        recording.replay()
        return tuple(output.hand_out() for output in recording.outputs)


def cudagraph(compiled: Any, options: RuntimeOptions = DEFAULT_OPTIONS) -> Any:
    """The function as CUDA graphs, or itself with the reason logged where that would not be sound."""
    reasons = refusals(compiled.artifact)
    if reasons:
        log.info("%r is not recorded: %s", compiled, "; ".join(reasons))
        observe.add("cudagraph.refused")
        return compiled
    return GraphedFn(compiled, options)

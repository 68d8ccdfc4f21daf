"""Recording: one recorded call, with the memory that it copies to and hands out."""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import torch

from tracework_runtime import _torch
from tracework_runtime._C import Replay, set_count_place, set_get_address
from tracework_runtime.cudagraph.engine import Inputs, Recorded
from tracework_runtime.cudagraph.segment import Segment
from tracework_runtime.cudagraph.step import STEPS
from tracework_runtime.results import in_memory

__all__ = ["Recording", "can_be_copied", "is_recorded_memory"]

set_get_address(_torch.get_address_function(), _torch.tensor_place())
set_count_place(_torch.storage_count_place())
# Addresses of outputs of recordings that are alive, with the number of recordings that own one there.
_MEMORY: dict[int, int] = {}
_MUCH, _LITTLE = 16 << 20, 16
"""Of so many bytes, a part of one in so many is little."""
_OVER_MEMORY, _AS_IT_IS, _AS_OUTPUT, _AS_INPUT, _BY_FUNCTION = range(5)
"""How an output is handed out, as in csrc/replay.h."""
_COPIED_TOGETHER = frozenset(
    {
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    }
)
"""What torch has a kernel for that copies many tensors."""
_WINDOW, _SMALL = 4, 1 << 20
"""An input that reaches over so many times its elements, and over more bytes than are copied in about a microsecond, is not copied."""


def is_recorded_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor is an output that a recording handed out, or a view of one."""
    return tensor.untyped_storage().data_ptr() in _MEMORY


def _disown(addresses: Sequence[int]) -> None:
    for address in addresses:
        if _MEMORY[address] == 1:
            del _MEMORY[address]
        else:
            _MEMORY[address] -= 1


def _reach(tensor: torch.Tensor) -> int:
    """Elements from the first to the last."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill the memory that it reaches over, each once."""
    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()


def can_be_copied(tensor: torch.Tensor) -> bool:
    """Whether copying an input costs about what its elements cost, or next to nothing: a column of the tokens of a batch."""
    reach = _reach(tensor)
    return reach <= _WINDOW * tensor.numel() or reach * tensor.element_size() <= _SMALL


def _eight_bytes(number: torch.Tensor) -> torch.Tensor:
    """The number at the begin of memory that a replay writes whole."""
    return torch.zeros(1, dtype=torch.int64, device=number.device).view(number.dtype)[0].copy_(number)


@dataclasses.dataclass
class CopiedInput:
    """Memory of the recording that an input is copied to, and back from where the graph writes to it."""

    place: int
    memory: torch.Tensor
    written: bool
    dense: bool

    @classmethod
    def of(cls, place: int, value: torch.Tensor, written: bool) -> CopiedInput:
        """With the input's strides, and what lies between its elements."""
        flat = value.detach().as_strided((_reach(value),), (1,)).clone()
        return cls(place, flat.as_strided(value.shape, value.stride()), written, _is_dense(value))

    def row(self) -> tuple[int, int, int, bool, bool]:
        """For Replay."""
        memory = self.memory
        return self.place, memory.data_ptr(), _reach(memory) * memory.element_size(), self.written and self.dense, False


class Slot:
    """Memory that the graph writes outputs to. copied: these are handed out as copies."""

    def __init__(self, outputs: Sequence[int], values: Sequence[torch.Tensor], copied: bool) -> None:
        self.outputs, self.values, self.copied = outputs, values, copied
        self.storage = values[0].untyped_storage()
        self.address, self.bytes = self.storage.data_ptr(), self.storage.nbytes()
        self.is_dense = len(values) == 1 and not values[0].storage_offset() and _is_dense(values[0])
        """Whether it is one output, whose elements fill what it reaches over, from its memory's begin on."""

    def copies(self) -> list[torch.Tensor]:
        """The outputs in memory of their own, which they share as they do here."""
        first = self.values[0]
        mine = torch.empty(self.bytes, dtype=torch.uint8, device=first.device)
        mine.copy_(_window(self.storage, torch.uint8, 0, (self.bytes,), (1,)))
        memory = mine.untyped_storage()
        return [_window(memory, v.dtype, int(v.storage_offset()), v.shape, v.stride()) for v in self.values]


def _copies(slots: Sequence[Slot]) -> list[torch.Tensor]:
    """Those of dense outputs of one dtype, in few kernels."""
    values = [slot.values[0] for slot in slots]
    made = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device) for v in values]
    if values[0].dtype in _COPIED_TOGETHER:
        _torch.copy_each(made, values)
    else:
        for copy, value in zip(made, values, strict=True):
            copy.copy_(value)
    return made


def _window(
    storage: torch.UntypedStorage, dtype: torch.dtype, offset: int, sizes: Sequence[int], strides: Sequence[int]
) -> torch.Tensor:
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, tuple(sizes), tuple(strides))


@dataclasses.dataclass(frozen=True)
class Shown:
    """An output in the memory of an input: a view of the caller's."""

    place: int
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    bytes: int
    """Of its offset from the input's."""

    @classmethod
    def of(cls, value: torch.Tensor, place: int, given: torch.Tensor) -> Shown:
        """As the recorded call showed it."""
        offset = value.storage_offset() * value.element_size() - given.storage_offset() * given.element_size()
        return cls(place, value.dtype, tuple(value.shape), value.stride(), int(offset))

    def hand_out(self, inputs: Inputs) -> torch.Tensor:
        """For these inputs."""
        given: torch.Tensor = inputs[self.place]
        offset = (given.storage_offset() * given.element_size() + self.bytes) // self.dtype.itemsize
        if given.dtype == self.dtype:
            return given.as_strided(self.sizes, self.strides, offset).detach()
        return _window(given.untyped_storage(), self.dtype, offset, self.sizes, self.strides)


class Recording:
    """A recorded call: where it reads, what it copies, what it gives.

    fixed: input -> address that is read, and written, in place. bytes: of the device that it keeps. replay: runs it.
    is_plain: whether `replay` alone does all that a call takes.
    """

    def __init__(
        self,
        segment: Segment,
        engine: Any,
        inputs: Inputs,
        fixed: Mapping[int, int],
        copied_outputs: Set[int] | None,
        stream: int,
    ) -> None:
        """copied_outputs: those that are handed out as copies; None for all that lie in memory of the recording."""
        self.device, self.fixed, self._engine = segment.device, dict(fixed), engine
        self.drop: Callable[[], None] = lambda: None  # its owner's
        self.on_trial = True
        self._copies: list[CopiedInput] = []
        given = list(inputs)
        for place, value in enumerate(inputs):
            if place in segment.numbers:
                continue
            if isinstance(value, torch.Tensor) and value.numel() and place not in fixed:
                copy = CopiedInput.of(place, value, place in segment.written)
                self._copies.append(copy)
                given[place] = copy.memory
            elif isinstance(value, torch.Tensor) and place in segment.written:
                given[place] = value.data  # nobody writes to it while it is recorded: it has no new version
        device = torch.device(engine.device_type, segment.device)
        self._numbers = {place: _eight_bytes(in_memory(inputs[place], device)) for place in segment.numbers}
        for place, number in self._numbers.items():
            given[place] = number
        recorded: Recorded = engine.record(segment.call, list(given), segment.device, stream, segment.draws, segment.keeps)
        values, self._graph = list(recorded.outputs), recorded.graph
        self._same: list[tuple[int, int]] = []
        slots: list[Slot] = []
        outputs = self._sort(values, given, segment.constants, copied_outputs, slots)
        del values, given
        self._lent = [slot for slot in slots if not slot.copied]
        self._copied = [slot for slot in slots if slot.copied and not slot.is_dense]
        self._copied_together: dict[torch.dtype, list[Slot]] = {}
        for slot in slots:
            if slot.copied and slot.is_dense:
                self._copied_together.setdefault(slot.values[0].dtype, []).append(slot)
        self._own(recorded.bytes)
        self._backs = [copy for copy in self._copies if copy.written and not copy.dense]
        self.is_plain = not self._backs and not self._copied and not self._copied_together
        self.replay = Replay(
            torch.Tensor.data_ptr,
            engine.copies(segment.device),
            engine.graph_address,
            recorded.handle,
            recorded.replay or recorded.graph,
            _torch.storage_count,
            STEPS,
            tuple(self.fixed.items()),
            (
                *(copy.row() for copy in self._copies),
                *((place, number.data_ptr(), number.element_size(), False, True) for place, number in self._numbers.items()),
            ),
            tuple((slot.storage, int(slot.storage._cdata)) for slot in self._lent),
            outputs,
        )
        self.replay.step = STEPS.number
        self.replay.settle()

    def _sort(
        self, values: list[Any], given: Inputs, constants: frozenset[int], copied_outputs: Set[int] | None, slots: list[Slot]
    ) -> tuple[tuple[int, int, Any], ...]:
        """Says of each output how it is handed out, for Replay; finds the slots."""
        rows: list[tuple[int, int, Any]] = [(_AS_IT_IS, 0, None)] * len(values)
        inputs = {x.untyped_storage().data_ptr(): n for n, x in enumerate(given) if isinstance(x, torch.Tensor) and x.numel()}
        objects: dict[int, int] = {}
        memory: dict[int, list[int]] = {}
        for n, value in enumerate(values):
            if not isinstance(value, torch.Tensor):
                rows[n] = _AS_IT_IS, 0, value
                continue
            first = objects.setdefault(id(value), n)
            address = value.untyped_storage().data_ptr()
            if first != n:
                rows[n] = _AS_OUTPUT, first, None
            elif address in inputs:
                place = next((p for p, x in enumerate(given) if x is value), None)
                if place is None:
                    place = inputs[address]
                    rows[n] = _BY_FUNCTION, 0, Shown.of(value, place, given[place]).hand_out
                else:
                    rows[n] = _AS_INPUT, place, None
            elif not address or address in constants:
                rows[n] = _OVER_MEMORY, 0, value
            else:
                memory.setdefault(address, []).append(n)
        chosen = range(len(values)) if copied_outputs is None else copied_outputs
        copied = {n for outputs in memory.values() if any(n in chosen for n in outputs) for n in outputs}
        for outputs in memory.values():
            slots.append(Slot(outputs, [values[n] for n in outputs], outputs[0] in copied))
            for n in outputs:
                rows[n] = (_AS_IT_IS, 0, None) if n in copied else (_OVER_MEMORY, 0, values[n])
        self._same = [(n, first) for n, (way, first, _) in enumerate(rows) if way == _AS_OUTPUT and first in copied]
        return tuple(rows)

    def _own(self, grown: int) -> None:
        """Says whose memory the outputs are, and how much it is."""
        held = sum(slot.bytes for slot in (*self._lent, *self._copied, *itertools.chain(*self._copied_together.values())))
        self.bytes = max(held, grown) + sum(_reach(c.memory) * c.memory.element_size() for c in self._copies)
        addresses = [slot.address for slot in self._lent]
        for address in addresses:
            _MEMORY[address] = _MEMORY.get(address, 0) + 1
        # Also when the whole function dies: its memory is then anybody's.
        self.disown = weakref.finalize(self, _disown, addresses)
        self.disown.atexit = False

    def held_outputs(self) -> set[int]:
        """Outputs that the caller still has from the last replay."""
        return {n for place in self.replay.held() for n in self._lent[place].outputs}

    def little_is_held(self) -> bool:
        """Whether copies of what the caller still has cost little beside the memory of another recording."""
        held = sum(self._lent[place].bytes for place in self.replay.held())
        lent = sum(slot.bytes for slot in self._lent)
        return lent >= _MUCH and held * _LITTLE <= lent

    @property
    def used(self) -> int:
        """When it ran last."""
        return self.replay.used

    def run(self, inputs: Inputs, stream: int) -> tuple[Any, ...]:
        """Replays the call on the current stream, whose handle is `stream`; empties the list of inputs."""
        found = self.replay.run(inputs, stream)
        if isinstance(found, int):
            if not self._engine.give_context(found, self.device):
                self._engine.check(found)
            found = self.replay.run(inputs, stream)
            if isinstance(found, int):
                self._engine.check(found)
        assert isinstance(found, tuple)
        for copy in self._backs:
            with torch.no_grad():
                inputs[copy.place].data.copy_(copy.memory)
        if self._copied or self._copied_together:
            outputs = list(found)
            for together in self._copied_together.values():
                for slot, value in zip(together, _copies(together), strict=True):
                    outputs[slot.outputs[0]] = value
            for slot in self._copied:
                for n, value in zip(slot.outputs, slot.copies(), strict=True):
                    outputs[n] = value
            for n, first in self._same:
                outputs[n] = outputs[first]
            found = tuple(outputs)
        inputs.clear()
        return found

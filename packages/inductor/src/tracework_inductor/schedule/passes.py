"""Group to LoopKernel: members go to outer and inner passes, values go from pass to pass, axes are ordered and merged."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..ir.body import Axis, Instruction, LoopBody, Ref
from ..ir.handlers import Recorder, replay
from ..ir.index import Expr, Size, contiguous_strides, dot, product, simplify, variables_ranges
from ..ir.scalar_ops import ROUNDINGS, compute_dtype
from ..target import Capabilities
from .fusion_rules import reduction_index
from .group import Group, Member, mapping, variables
from .loop_order import order_and_merge
from .plan import LoopKernel, Pass, Scratch
from .unroll import unrolled


class KernelBuilder:
    """Builds one kernel."""

    def __init__(
        self, group: Group, buffers: Mapping[str, Any], needed: Callable[[str], bool], capabilities: Capabilities
    ) -> None:
        self.group = group
        self.buffers = buffers
        self.needed = needed
        self.capabilities = capabilities
        self.xs = variables("x", group.outer)
        self.rs = variables("r", group.inner)
        self.ranges = variables_ranges(group.outer, group.inner)
        self.recorders: dict[int, Recorder] = {}
        self.written: dict[str, tuple[str, int]] = {}
        """buffer -> (how: "reduction", "outer" or "full"; phase)."""
        self.values: dict[tuple[int, str], Ref] = {}
        self.defined: set[str] = set()
        self.scratch: dict[str, Scratch] = {}
        self.in_memory: set[str] = set()
        self.pending: dict[str, tuple[int, Size, torch.dtype]] = {}
        self.position = dot(self.rs, contiguous_strides(group.inner)) if group.inner else 0

    def build(self, name: str) -> LoopKernel:
        """The kernel."""
        for member in self.group.members:
            self._add(member)
        for buffer, (phase, index, dtype) in self.pending.items():
            recorder = self._recorder(phase)
            recorder.store(buffer, index, self._read_local(recorder, buffer, dtype))
        axes = tuple(Axis(v, s) for v, s in zip(self.xs, self.group.outer, strict=True))
        inner = tuple(Axis(v, s) for v, s in zip(self.rs, self.group.inner, strict=True))
        passes = []
        for phase in sorted(self.recorders):
            body = self.recorders[phase].finish()
            body = LoopBody(axes, inner if phase % 2 else (), self._simplified(body.instructions))
            if body.instructions:
                passes.append(Pass("inner" if phase % 2 else "outer", body))
        return self._kernel(name, axes, inner, passes)

    def _simplified(self, instructions: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
        short: dict[Any, Size] = {}

        def one(arg: Any) -> Any:
            if not isinstance(arg, Expr):
                return arg
            if arg not in short:
                short[arg] = arg if arg.as_affine() is not None else simplify(arg, self.ranges)
            return short[arg]

        return tuple(i._replace(args=tuple(one(a) for a in i.args)) for i in instructions)

    # phases

    def _phase(self, member: Member) -> int:
        full = member.level == "full" and bool(self.group.inner)
        lowest = 1 if full else 0
        for name in [*member.node.reads, *([member.node.mutates] if member.node.mutates else [])]:
            if name in self.written:
                how, phase = self.written[name]
                lowest = max(lowest, phase + 1 if how == "reduction" or (how == "full") != full else phase)
        if member.node.mutates is not None:
            lowest = max([lowest, *[p for p, r in self.recorders.items() if _loads(r, member.node.mutates)]])
        return lowest if (lowest % 2 == 1) == full else lowest + 1

    def _recorder(self, phase: int) -> Recorder:
        if phase not in self.recorders:
            self.recorders[phase] = Recorder()
        return self.recorders[phase]

    def _add(self, member: Member) -> None:
        phase = self._phase(member)
        recorder = self._recorder(phase)
        names = mapping(member, self.group.outer, self.group.inner)
        how = "full" if phase % 2 else "outer"

        def on_load(into: Recorder, buffer: str, index: Size, dtype: torch.dtype) -> Ref | None:
            return self._load(into, phase, buffer, dtype)

        def on_effect(into: Recorder, i: Instruction) -> bool:
            if i.op == "reduce":
                self._reduced(member, names, phase, i)
            elif i.op == "store":
                self._stored(how, phase, i)
                if self.needed(i.args[0]) or i.args[0] in self.in_memory:
                    into.emit("store", self._unrounded(into, i), None)
                return True
            return False

        replay(member.node.body, recorder, names, on_load, on_effect)

    def _reduced(self, member: Member, names: dict[Any, Size], phase: int, i: Instruction) -> None:
        buffer = i.args[0]
        self.written[buffer] = ("reduction", phase)
        if self.needed(buffer):
            index = simplify(reduction_index(member, names, self.buffers, buffer), self.ranges)
            self.pending[buffer] = (phase + 1, index, self.buffers[buffer].layout.in_loops.dtype)

    def _stored(self, how: str, phase: int, i: Instruction) -> None:
        buffer, _, value, mode = i.args[:4]
        if mode == "set":
            self.written[buffer] = (how, phase)
            self.values[phase, buffer] = value
            if how == "full" and not self.needed(buffer) and not self._fits(buffer):
                self.in_memory.add(buffer)

    def _unrounded(self, recorder: Recorder, store: Instruction) -> tuple[Any, ...]:
        """A store's arguments without a rounding to the buffer's dtype, which storing is anyway; who reads the value here still gets it."""
        buffer, index, value, mode, *mask = store.args
        made = recorder.instructions[value.position]
        if mode == "set" and made.op == ROUNDINGS.get(self.buffers[buffer].layout.in_loops.dtype):
            value = made.args[0]
        return buffer, index, value, mode, *mask

    def _fits(self, buffer: str) -> bool:
        count = product(self.group.inner)
        dtype = compute_dtype(self.buffers[buffer].layout.in_loops.dtype)
        return isinstance(count, int) and count * dtype.itemsize <= self.capabilities.row_scratch

    # values between members

    def _load(self, into: Recorder, phase: int, buffer: str, dtype: torch.dtype) -> Ref | None:
        if buffer not in self.written:
            return None
        value = self.values.get((phase, buffer))
        if value is not None:
            return value
        how, made = self.written[buffer]
        if how in ("reduction", "outer"):
            return self._read_local(into, buffer, dtype)
        if self.needed(buffer) or buffer in self.in_memory:
            return None
        return self._read_scratch(into, made, buffer)

    def _read_local(self, into: Recorder, buffer: str, dtype: torch.dtype) -> Ref:
        how, made = self.written[buffer]
        if how == "outer" and buffer not in self.defined:
            self.defined.add(buffer)
            self.recorders[made].define(buffer, self.values[made, buffer])
        return into.local(buffer, dtype)

    def _read_scratch(self, into: Recorder, made: int, buffer: str) -> Ref:
        dtype = compute_dtype(self.buffers[buffer].layout.in_loops.dtype)
        if buffer not in self.scratch:
            self.scratch[buffer] = Scratch(buffer, dtype, product(self.group.inner))
            self.recorders[made].scratch_store(buffer, self.position, self.values[made, buffer])
        return into.scratch_load(buffer, self.position, self.buffers[buffer].layout.in_loops.dtype)

    # the result

    def _kernel(self, name: str, axes: Any, inner: Any, passes: list[Pass]) -> LoopKernel:
        axes, inner, passes = order_and_merge(axes, inner, passes, self.buffers)
        if self.capabilities.unrolls:
            axes, passes = unrolled(axes, inner, passes)
        reads, writes, ordered = _used(passes)
        layouts = {b: self.buffers[b].layout.in_loops for b in ordered}
        symbols = _size_symbols(axes, inner, passes)
        nodes = [m.node for m in self.group.members]
        origins = tuple(dict.fromkeys(o for n in nodes for o in n.origins))
        return LoopKernel(
            name,
            nodes[0].device,
            axes,
            inner,
            tuple(passes),
            tuple(self.scratch.values()),
            tuple(ordered),
            layouts,
            symbols,
            frozenset(reads),
            frozenset(writes),
            origins,
            tuple(n.name for n in nodes),
            core=self.group.core,
        )


def _loads(recorder: Recorder, buffer: str) -> bool:
    return any(i.op == "load" and i.args[0] == buffer for i in recorder.instructions)


def _used(passes: list[Pass]) -> tuple[set[str], set[str], list[str]]:
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    for p in passes:
        for i in p.body.instructions:
            if i.op == "load":
                reads[i.args[0]] = None
            elif i.op == "store":
                writes[i.args[0]] = None
    return set(reads), set(writes), list({**reads, **writes})


def _size_symbols(axes: tuple[Axis, ...], inner: tuple[Axis, ...], passes: list[Pass]) -> tuple[Any, ...]:
    """Symbols that are neither loop variables nor indirect."""
    found: set[Any] = set()
    bound = {a.var for a in (*axes, *inner)}
    for a in (*axes, *inner):
        if isinstance(a.size, Expr):
            found |= a.size.free_symbols
    for p in passes:
        for i in p.body.instructions:
            if i.op == "indirect":
                bound.add(i.args[2])
            for arg in i.args:
                if isinstance(arg, Expr):
                    found |= arg.free_symbols
    return tuple(sorted(found - bound, key=str))

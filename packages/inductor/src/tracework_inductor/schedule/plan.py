"""KernelPlan: which loops form which kernel, in what order, in which memory. What renderers and wrappers read.

A LoopKernel runs, for each point of its outer `axes` (all independent of each other, in parallel if worth it), its
passes in order. An "outer" pass runs once a point; an "inner" pass runs over all `reduction_axes`. Values go from pass
to pass as `local(name)` (one a point: reduction results and defined values) and as scratch (one per inner
iteration, `kernel.scratch`, local to the point). A pointwise kernel has no reduction axes and one outer pass.
`load`s and `store`s of a pass never alias, except that a store may overwrite the very element loaded in the same
iteration (in-place memory reuse).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from ..autotune.record import Candidate, report
from ..ir.body import Axis, IndexCheck, LoopBody, Ref
from ..ir.buffer import Buffer, BufferLayout, BufferView, CoreNode, ExternNode, LoopNode
from ..ir.index import Expr, Size


@dataclasses.dataclass(frozen=True)
class Pass:
    """level: "outer" or "inner"; body: straight-line instructions."""

    level: str
    body: LoopBody


@dataclasses.dataclass(frozen=True)
class Scratch:
    """Values kept for one point of the outer axes: `size` elements (the product of the reduction axes)."""

    name: str
    dtype: torch.dtype
    size: Size


@dataclasses.dataclass(frozen=True)
class LoopKernel:
    """A fused loop nest."""

    name: str
    device: torch.device
    axes: tuple[Axis, ...]
    reduction_axes: tuple[Axis, ...]
    passes: tuple[Pass, ...]
    scratch: tuple[Scratch, ...]
    buffers: tuple[str, ...]
    """The buffers it takes, in argument order."""
    layouts: Mapping[str, BufferLayout]
    sizes: tuple[Any, ...]
    """Symbols it takes after the buffers, as int64."""
    reads: frozenset[str]
    writes: frozenset[str]
    origins: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    numbers: tuple[Any, ...] = ()
    """Symbols that it reads from memory, an int64 each; it takes their addresses between buffers and sizes."""
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Block sizes, as Candidate.config has them; empty for the renderer's first guess."""
    core: str = ""
    """What writes it other than as loops: "tiles" (schedule/matrix_product.py)."""

    def text(self) -> str:
        """Axes and passes."""
        lines = [f"{self.name}: {self.core or 'loops'} over {_axes(self.axes)}"]
        if self.reduction_axes:
            lines[0] += f", inner {_axes(self.reduction_axes)}"
        lines += [f"  reads {', '.join(sorted(self.reads))} writes {', '.join(sorted(self.writes))}"]
        for p in self.passes:
            lines.append(f"  {p.level}:")
            lines += ["    " + line for line in p.body.text().splitlines()]
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class ExternKernel:
    """A library call."""

    node: ExternNode

    @property
    def name(self) -> str:
        """Of the node."""
        return self.node.name

    @property
    def device(self) -> torch.device:
        """Of the node."""
        return self.node.device

    @property
    def reads(self) -> frozenset[str]:
        """Of the node."""
        return self.node.reads

    @property
    def writes(self) -> frozenset[str]:
        """Of the node."""
        return self.node.writes

    def text(self) -> str:
        """One line."""
        note = f"  # {self.node.reason}" if self.node.reason else ""
        outputs = ", ".join(str(o) for o in self.node.outputs)
        return f"{self.name}: {outputs} = {self.node.target}({', '.join(map(str, self.node.args))}){note}"


@dataclasses.dataclass(frozen=True)
class CoreKernel:
    """A kernel that a core writes."""

    node: CoreNode
    layouts: Mapping[str, BufferLayout]
    """Of the buffers it takes, in argument order."""
    sizes: tuple[Any, ...]
    """Symbols it takes after the buffers, as int64."""
    passes: tuple[Pass, ...] = ()

    @property
    def name(self) -> str:
        """Of the node."""
        return self.node.name

    @property
    def device(self) -> torch.device:
        """Of the node."""
        return self.node.device

    @property
    def buffers(self) -> tuple[str, ...]:
        """In argument order."""
        return tuple(self.layouts)

    @property
    def reads(self) -> frozenset[str]:
        """Of the node."""
        return self.node.reads

    @property
    def writes(self) -> frozenset[str]:
        """Of the node."""
        return self.node.writes

    @property
    def origins(self) -> tuple[str, ...]:
        """Of the node."""
        return self.node.origins

    def text(self) -> str:
        """One line, and the bodies among its facts."""
        bodies = [f"\n{fact.text()}" for _, fact in self.node.facts if isinstance(fact, LoopBody)]
        facts = ", ".join(f"{k}={v}" for k, v in self.node.facts if not isinstance(v, LoopBody))
        results, operands = (", ".join(map(_view, views)) for views in (self.node.results, self.node.operands))
        return f"{self.name}: {results} = {self.node.core}({operands}) with {facts}" + "".join(bodies)


@dataclasses.dataclass(frozen=True)
class KernelBatch:
    """Loop kernels without sizes, none of which writes what another touches, in one launch. Takes the buffers of each, one after the other; or,
    where is_table, the parts are rows of one table (schedule/tables.py), which it takes."""

    name: str
    parts: tuple[LoopKernel, ...]
    sizes: tuple[Any, ...] = ()
    is_table: bool = False

    @property
    def device(self) -> torch.device:
        """Of all parts."""
        return self.parts[0].device

    @property
    def buffers(self) -> tuple[str, ...]:
        """In argument order; what several parts read is there several times."""
        return tuple(b for p in self.parts for b in p.buffers)

    @property
    def passes(self) -> tuple[Pass, ...]:
        """Of all parts."""
        return tuple(one for p in self.parts for one in p.passes)

    @property
    def reads(self) -> frozenset[str]:
        """Of all parts."""
        return frozenset().union(*(p.reads for p in self.parts))

    @property
    def writes(self) -> frozenset[str]:
        """Of all parts."""
        return frozenset().union(*(p.writes for p in self.parts))

    @property
    def origins(self) -> tuple[str, ...]:
        """Of all parts."""
        return tuple(dict.fromkeys(o for p in self.parts for o in p.origins))

    def text(self) -> str:
        """The parts' texts."""
        parts = "\n".join(p.text() for p in self.parts)
        return f"{self.name}: one launch of {len(self.parts)}\n" + "\n".join("  " + line for line in parts.splitlines())


Kernel = LoopKernel | CoreKernel | KernelBatch | ExternKernel


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A fusion that was not made, and why."""

    first: str
    second: str
    rule: str
    reason: str


@dataclasses.dataclass(frozen=True)
class MemoryStep:
    """What happens to memory around one kernel.

    allocate: buffers made before it; reuse: (new, old) pairs, new takes old's memory; free: buffers dropped after it.
    """

    allocate: tuple[str, ...] = ()
    reuse: tuple[tuple[str, str], ...] = ()
    free: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Workspace:
    """Memory that one call takes as a whole: its bytes, and where buffers lie in it."""

    size: int = 0
    offsets: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """One step per kernel; buffers of the workspace are allocated and freed by nobody."""

    steps: tuple[MemoryStep, ...]
    peak_bytes: int
    workspace: Workspace = Workspace()


@dataclasses.dataclass(frozen=True)
class Output:
    """A graph output: a view of a buffer, or a size, or a constant (None or a number)."""

    buffer: str | None
    sizes: tuple[Size, ...] = ()
    strides: tuple[Size, ...] = ()
    offset: Size = 0
    value: Any = None


@dataclasses.dataclass(frozen=True)
class Program:
    """A lowered graph: buffers, nodes and outputs; what the schedule starts from."""

    inputs: tuple[str, ...]
    """Names of the graph's inputs in order: buffers or size symbols."""
    size_inputs: Mapping[str, Any]
    buffers: Mapping[str, Buffer]
    nodes: tuple[Any, ...]
    outputs: tuple[Output, ...]
    constants: Mapping[str, Any]
    symbols: Any
    mutated: Mapping[str, str]
    role: str = "inference"
    static_inputs: frozenset[int] = frozenset()
    fallbacks: tuple[tuple[str, str], ...] = ()
    products: Mapping[str, tuple[LoopNode, ...]] = dataclasses.field(default_factory=dict)
    """Library call -> loops that compute the same buffer from what is not in memory yet, and of which a core can write the product."""
    pieces: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    """The first of several library calls that compute such a buffer -> the other nodes that do, which go where the call goes."""


@dataclasses.dataclass(frozen=True)
class KernelPlan:
    """Kernels in launch order with their memory."""

    program: Program
    kernels: tuple[Kernel, ...]
    memory: MemoryPlan
    refusals: tuple[Refusal, ...]
    choices: Mapping[str, tuple[Candidate, ...]] = dataclasses.field(default_factory=dict)
    """Kernel -> the candidates that were looked at, the one that it is first."""

    def text(self) -> str:
        """The whole plan, readable."""
        lines = [f"plan: {len(self.kernels)} kernels, peak {self.memory.peak_bytes} bytes"]
        if self.memory.workspace.size:
            places = ", ".join(f"{name} at {offset}" for name, offset in self.memory.workspace.offsets.items())
            lines.append(f"  workspace of {self.memory.workspace.size} bytes: {places}")
        for kernel, step in zip(self.kernels, self.memory.steps, strict=True):
            lines += [f"  allocate {', '.join(step.allocate)}"] if step.allocate else []
            lines += [f"  reuse {old} as {new}" for new, old in step.reuse]
            lines += ["  " + line for line in kernel.text().splitlines()]
            lines += ["    " + line for line in report(self.choices.get(kernel.name, ()))]
            lines += [f"  free {', '.join(step.free)}"] if step.free else []
        lines += [f"refused {r.first} + {r.second}: {r.rule}: {r.reason}" for r in self.refusals]
        return "\n".join(lines)


def core_kernel(node: CoreNode, buffers: Mapping[str, Buffer]) -> CoreKernel:
    """The kernel of a node: its buffers in the order of the operands, then the results, each once."""
    views = [view for view in (*node.operands, *node.results) if view is not None]
    extents = [e for view in views for e in (*view.sizes, *view.strides, view.offset)]
    symbols = {symbol for e in extents if isinstance(e, Expr) for symbol in e.free_symbols}
    for _, fact in node.facts:
        symbols |= fact.sizes() if isinstance(fact, LoopBody) else set()
    layouts = {view.buffer: buffers[view.buffer].layout for view in views}
    return CoreKernel(node, layouts, tuple(sorted(symbols, key=str)))


def index_checks(kernel: LoopKernel | CoreKernel | KernelBatch) -> tuple[IndexCheck, ...]:
    """The checks that a kernel makes, each once, in the order of its passes."""
    bodies = [p.body for p in kernel.passes]
    if isinstance(kernel, CoreKernel):
        bodies = [fact for _, fact in kernel.node.facts if isinstance(fact, LoopBody)]
    return tuple(dict.fromkeys(check for body in bodies for check in body.checks()))


def _view(view: BufferView | None) -> str:
    if view is None:
        return "None"
    return f"{view.buffer}[{', '.join(map(str, view.sizes))} by {', '.join(map(str, view.strides))} from {view.offset}]"


def _axes(axes: tuple[Axis, ...]) -> str:
    return " ".join(f"{a.var}<{a.size}" for a in axes) or "one point"


__all__ = [
    "Axis",
    "CoreKernel",
    "ExternKernel",
    "Kernel",
    "KernelBatch",
    "KernelPlan",
    "LoopBody",
    "LoopKernel",
    "MemoryPlan",
    "MemoryStep",
    "Output",
    "Pass",
    "Program",
    "Ref",
    "Refusal",
    "Scratch",
    "Workspace",
    "core_kernel",
    "index_checks",
]

"""What each slot of a traced graph means: inputs, outputs, saved values, tangents."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple


class InputKind(Enum):
    """What the caller passes in one slot."""

    TENSOR = "tensor"
    SIZE = "size"  # a Python int whose value is a symbol of the graph
    CONSTANT = "constant"  # a number or None that the trace has baked in; checked at each call


class Mutation(Enum):
    """How an input's data changes during the call."""

    NONE = "none"
    IN_GRAPH = "in_graph"  # autograd does not see it: a trailing aten.copy_ in the graph
    BY_WRAPPER = "by_wrapper"  # autograd sees it: the new value is a graph output, copied back outside
    SHARED = "shared"  # autograd does not see it: the graph writes to a SharedMemory that the input is a part of


class OutputKind(Enum):
    """How the caller's output is made."""

    FRESH = "fresh"  # a graph output, as it is
    ALIAS = "alias"  # a graph output, shown through a view: in eager it is a view of what nobody has
    INPUT = "input"  # the same object as an input
    INPUT_VIEW = "input_view"  # a view of an input, made again at run time
    OUTPUT = "output"  # the same object as an earlier output
    BASE_VIEW = "base_view"  # a view of a graph output (which several outputs share)
    OUTPUT_VIEW = "output_view"  # a view of another output that is a view itself
    SIZE = "size"  # an int computed by the graph
    CONSTANT = "constant"  # None, a number, ...: known at compile time


@dataclass(frozen=True)
class InputInfo:
    """One placeholder of the captured graph."""

    name: str
    kind: InputKind
    is_static: bool = False
    is_parameter: bool = False
    requires_grad: bool = False
    mutation: Mutation = Mutation.NONE
    constant: Any = None
    newer: int = 0  # versions that a call adds: none where it is written behind autograd's back, as by `x.data.add_(1)`

    @property
    def versions(self) -> int | None:
        """All that a call adds, with that of the copy outside of the graph; None where it does not write."""
        if self.mutation is Mutation.NONE and not self.newer:
            return None
        return self.newer + (self.mutation is Mutation.BY_WRAPPER)


@dataclass(frozen=True)
class SharedMemory:
    """Memory of which several inputs show parts that overlap, and that is written to: the graph takes all that they show as one row.

    parts: slots of the inputs, and how many elements behind the begin of the row each of them begins. length: of the row, in elements.
    """

    parts: tuple[tuple[int, int], ...]
    length: int


@dataclass(frozen=True)
class ViewStep:
    """One view op between a base and an output: `target(base, *args, **kwargs)`, then `[index]` when it gives a list: of those, `call` says
    which come from one.

    Args may hold SizeSlot in place of a symbolic size. `tracked`: gradients were on, so that they go through it. `data`: it is
    `tensor.data`, which counts writes apart from the tensor, and this is how many there were.
    """

    target: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()
    index: int | None = None
    tracked: bool = True
    data: int | None = None
    call: str | None = None


@dataclass(frozen=True)
class SizeSlot:
    """A size that the graph computes: position among the graph's outputs."""

    slot: int


@dataclass(frozen=True)
class OutputInfo:
    """One output of the captured graph: `slot` counts graph outputs, inputs or captured outputs, as `kind` says."""

    kind: OutputKind
    slot: int = -1
    steps: tuple[ViewStep, ...] = ()
    requires_grad: bool = False
    constant: Any = None


def base_of(info: OutputInfo, write_backs: Mapping[int, int]) -> int | None:
    """The graph output that a view is made from, None where that is an input which has its value before the graph runs. write_backs:
    input slot -> graph output slot."""
    return info.slot if info.kind is OutputKind.BASE_VIEW else write_backs.get(info.slot)


@dataclass(frozen=True)
class TakenView:
    """A view among the caller's outputs that other results are computed from: the wrapper makes it before the components that take it.

    slot: the graph output that it stands in for; info: how it is made. Where it is made from a graph output, that comes before it.
    """

    slot: int
    info: OutputInfo


class Slots(NamedTuple):
    """Those of graph outputs, and of inputs."""

    results: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()


@dataclass(frozen=True)
class TangentInfo:
    """The tangent of a graph output that requires grad: the layout the backward was compiled for.

    kept: whose memory eager keeps for the backward of this one, so that writing to it is an error. linked: which tensors eager keeps with
    their history, so that `detach_` of one is an error.
    runs_once: whether eager keeps anything for it, which is gone after a backward that does not retain the graph.
    """

    slot: int
    dtype: Any
    device: Any
    sizes: tuple[Any, ...]
    order: tuple[int, ...] | None  # dims from outermost to innermost; None for row-major
    kept: Slots = Slots()
    linked: Slots = Slots()
    runs_once: bool = True


@dataclass(frozen=True)
class Component:
    """What one autograd node ties together: places in `Signature.tangents`, slots of the inputs that get gradients, and slots of the
    graph outputs that do, which earlier components give. `of_one_operator`: eager, too, has one node for what it gives."""

    tangents: tuple[int, ...]
    inputs: tuple[int, ...]
    results: tuple[int, ...] = ()
    of_one_operator: bool = False


@dataclass(frozen=True)
class Repeated:
    """What a checkpoint writes to an input, which its backward writes again where it computes that anew.

    slot: of the input; tangents: those behind whose gradients the checkpoint is, as the bits of a number. value: the slot of the graph output
    that the input moves towards by `number`, as running statistics do; None where `number` is added. times: in how many checkpoints it is.
    """

    slot: int
    tangents: int
    number: float
    value: int | None
    times: int


@dataclass(frozen=True)
class Signature:
    """The whole calling convention.

    graph_outputs of the forward (before saved values): fresh outputs and bases, then values written back by the wrapper,
    then sizes. `write_backs` pairs (input slot, graph output slot). `components`: several where results have nothing in common, or are
    computed from results; what one takes from others they give before it.
    `views`: results that are none of a component, which components take as well. `constants`: tensors appended to the caller's inputs.
    `output_versions` pairs (graph output slot, how often the program wrote to it). `hooked`: slots of leaves with hooks of their own, in
    the order in which eager's backward comes to them, where they are several. `places` has (input slot, the storage offset that it
    was traced with, period) for those where the graph depends on it: it holds for offsets that are a multiple of the period away.
    `shared`: what the graph takes between the caller's inputs and the constants. `repeated`: in the program's order; all are of the first
    component then.
    """

    inputs: tuple[InputInfo, ...]
    outputs: tuple[OutputInfo, ...]
    number_of_graph_outputs: int
    write_backs: tuple[tuple[int, int], ...] = ()
    tangents: tuple[TangentInfo, ...] = ()
    components: tuple[Component, ...] = ()
    constants: tuple[Any, ...] = ()
    views: tuple[TakenView, ...] = ()
    output_versions: tuple[tuple[int, int], ...] = ()
    hooked: tuple[int, ...] = ()
    places: tuple[tuple[int, int, int], ...] = ()
    shared: tuple[SharedMemory, ...] = ()
    repeated: tuple[Repeated, ...] = ()

    @property
    def mutated_in_graph(self) -> frozenset[int]:
        """Places of the graph's inputs that the graph itself writes to."""
        rows = range(len(self.inputs), len(self.inputs) + len(self.shared))
        return frozenset(i for i, info in enumerate(self.inputs) if info.mutation is Mutation.IN_GRAPH) | frozenset(rows)

    @property
    def changed_unseen(self) -> frozenset[int]:
        """Input slots whose memory the graph gives another value, behind autograd's back."""
        return frozenset(i for i, info in enumerate(self.inputs) if info.mutation in (Mutation.IN_GRAPH, Mutation.SHARED))

    @property
    def newer_versions(self) -> tuple[tuple[int, int], ...]:
        """(input slot, versions) of inputs that have new ones afterwards, beside those that are written outside of the graph."""
        infos = enumerate(self.inputs)
        return tuple((i, info.newer) for i, info in infos if info.newer and info.mutation is not Mutation.BY_WRAPPER)

    @property
    def static_inputs(self) -> frozenset[int]:
        """Input slots whose tensors keep their identity between calls; constants included."""
        first = len(self.inputs) + len(self.shared)
        lifted = range(first, first + len(self.constants))
        return frozenset(i for i, info in enumerate(self.inputs) if info.is_static) | frozenset(lifted)

    def text(self) -> str:
        """One line per slot."""
        rows = [f"in  {i}: {x.name} {x.kind.value} {x.mutation.value}" for i, x in enumerate(self.inputs)]
        rows += [f"out {i}: {x.kind.value} {x.slot}" for i, x in enumerate(self.outputs)]
        rows += [f"tangent of {t.slot}: {t.order or 'row-major'}" for t in self.tangents]
        rows += [f"shared by {', '.join(str(slot) for slot, _ in memory.parts)}: {memory.length}" for memory in self.shared]
        rows += [f"component: tangents {c.tangents}, inputs {c.inputs}, results {c.results}" for c in self.components]
        return "\n".join(rows)


@dataclass(frozen=True)
class Reads:
    """What a component's gradients are computed from. inputs: slots of the inputs whose values they depend on; kept: slots of those that
    running the graph again takes; taken: places of the results that the component takes; own: of its own results among its tangents.
    """

    inputs: frozenset[int]
    kept: frozenset[int]
    taken: tuple[int, ...]
    own: tuple[int, ...]


@dataclass(frozen=True)
class StageFacts:
    """A stage of a backward takes values by their numbers, and gives the gradients in these places.

    Numbers: what the backward takes has the first ones, and what stages hand on the next, in order. lent: which of its gradients may have
    memory that later stages read.
    """

    takes: tuple[int, ...]
    gradients: tuple[int, ...]
    lent: tuple[int, ...]


@dataclass(frozen=True)
class BackwardFacts:
    """What the autograd node of a component is told of its backward. Tangents are bits of a number.

    saved: the places of the saved tensors that it takes; ways: for each of them what is asked of it before it is kept ("", ".detach()" or
    ".data"); kept_result: which of them is the component's own result; watched: slots of inputs that are computed from anew where they have
    other memory; reaching: for each gradient the tangents that it is computed from; shared: for each tangent those that share history with
    it; readers: for each saved tensor the tangents whose gradients read it, none where all tangents share their history; unsaved_results,
    unsaved_inputs: pairs of the slot of what eager keeps and the partition does not, and the tangents whose backward reads that; stages: of
    the backward, where it has several.
    """

    component: Component
    reads: Reads
    saved: tuple[int, ...]
    ways: tuple[str, ...]
    kept_result: int | None
    watched: tuple[int, ...]
    reaching: tuple[int, ...]
    shared: tuple[int, ...]
    readers: tuple[int, ...]
    unsaved_results: tuple[tuple[int, int], ...]
    unsaved_inputs: tuple[tuple[int, int], ...]
    stages: tuple[StageFacts, ...] = ()


@dataclass(frozen=True)
class TrainingFacts:
    """What the wrapper around a forward and its backwards is told of them.

    saved: how many sizes and tensors the forward gives behind its graph outputs; constant_results: places of graph outputs without
    gradients; devices: those on which it draws random numbers.
    """

    signature: Signature
    saved: tuple[int, int]
    constant_results: tuple[int, ...]
    devices: tuple[Any, ...]
    backwards: tuple[BackwardFacts, ...]

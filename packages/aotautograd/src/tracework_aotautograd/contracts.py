"""The types between aotautograd and its neighbours: GraphSpec and GraphCompiler below, FunctionalProgram as its product."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch.fx as fx

from .signature import Component, Signature, StageFacts

Compiled = Callable[[list[Any]], Sequence[Any]]
Report = Callable[[str, str], None]
"""Told (reason, place) where a graph, or a part of one, runs uncompiled; the place is "file:line ..." or empty, for all of the graph."""


@dataclass(frozen=True)
class GraphSpec:
    """What a graph compiler is told about a graph.

    role: "inference", "forward" or "backward". static_inputs, mutated_inputs: placeholder positions. symbols: the SymbolTable
    or None. fake_mode: the FakeMode of the values in node.meta["val"]. visible: how many outputs, from the first, the program gets to see;
    None for all.
    """

    role: str
    static_inputs: frozenset[int] = frozenset()
    mutated_inputs: frozenset[int] = frozenset()
    symbols: Any = None
    fake_mode: Any = None
    visible: int | None = None


class GraphCompiler(Protocol):
    """Compiles one functional ATen graph; the result takes one list, which it may empty, and returns a tuple.

    What raises in it does so before the trailing writes to inputs: a caller may then do the same in another way.
    """

    def __call__(self, gm: fx.GraphModule, spec: GraphSpec) -> Compiled: ...


@dataclass(frozen=True)
class JointProgram:
    """Forward and backward in one graph.

    Placeholders: the captured inputs, lifted constants, then tangents. Outputs: the forward's graph outputs, then for each
    of signature.components one gradient for each of its inputs and results. Nodes carry meta["phase"] "forward" or "backward".
    `replay` (trace/replay.py) runs the captured graph again, for gradients of gradients.

    Checkpoints: a captured node may carry meta["recompute"] = "must" or "prefer" and meta["recompute_region"] = any hashable
    value that the nodes of one checkpoint share; the nodes made from it carry both. The min_cut partitioner keeps no value
    inside a region of "must" but random numbers, and inside one of "prefer" none but those and results of matrix products and
    convolutions; what a region gives to the rest of the graph may be kept, and is not computed again from within another region.
    meta["recompute_reads"] may be a tuple, the same one on all nodes of a checkpoint, of other nodes' "example_value": the tensors whose
    versions the backward checks, as eager does with the arguments of a checkpoint. meta["recompute_levels"] has a pair for each
    checkpoint that a node is in, the innermost first: a value of its own, and whether the backward runs all of the function again, as
    reentrant ones do. What that writes to inputs it writes again then, and else what comes before the last value that eager keeps.
    Nodes of the backward carry the region of the node
    that they differentiate as meta["differentiates"].
    """

    graph: fx.GraphModule
    signature: Signature
    fake_mode: Any
    symbols: Any
    replay: Any


@dataclass(frozen=True)
class Stage:
    """A part of a backward: gives gradients, and behind them what later stages take."""

    graph: fx.GraphModule
    spec: GraphSpec
    facts: StageFacts


@dataclass(frozen=True)
class Backward:
    """The backward of one component: takes saved sizes, the saved tensors in these places, the component's tangents; gives gradients.

    stages: the same one after the other, where there are several.
    """

    graph: fx.GraphModule
    spec: GraphSpec
    component: Component
    saved: tuple[int, ...]
    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True)
class Kept:
    """What a forward keeps for its backward under a memory budget below 1, in bytes beside inputs that are kept as they are.

    whole: what it would keep without a budget. again: how many operators are computed again for it. time: the predicted time of a step over
    that without a budget.
    """

    budget: float
    whole: int
    bytes: int
    again: int
    time: float

    @property
    def limit(self) -> int:
        """The bytes that the budget allows."""
        return int(self.budget * self.whole)

    def text(self) -> str:
        """A line."""
        limit = f"of {self.whole:,} bytes for the backward {self.limit:,} may be kept and {self.bytes:,} are"
        price = f"{self.again} operators run again, a step takes {self.time:.2f} times as long (predicted)"
        return f"memory_budget={self.budget:g}: {limit}{'' if self.bytes <= self.limit else ', the fewest possible'}; {price}"


@dataclass(frozen=True)
class FunctionalProgram:
    """Forward and backwards apart, one backward for each component of the signature.

    The forward returns its graph outputs, then saved sizes, then saved tensors. `saved` counts them as (sizes, tensors). `joint`: the graph
    that they were cut from. `kept`: what a memory budget came to, if there is one.
    """

    forward: fx.GraphModule
    backwards: tuple[Backward, ...]
    signature: Signature
    saved: tuple[int, int]
    forward_spec: GraphSpec
    joint: fx.GraphModule
    kept: Kept | None = None

    def text(self) -> str:
        """Signature, joint graph, forward and backwards as text."""
        parts = ["# signature", self.signature.text(), "# joint", str(self.joint.graph), "# forward", str(self.forward.graph)]
        for backward in self.backwards:
            parts += ["# backward", str(backward.graph.graph)]
        return "\n".join(parts)

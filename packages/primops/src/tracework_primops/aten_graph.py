"""aten_graph(): the ATen ops of a function of tensors as a graph that decompose() takes; needs nothing but fakes.

For functions without writes and gradients: aotautograd's tracer turns writes into values and adds the backward.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from .errors import PrimError
from .fake import FakeMode, FakeTensor
from .fx_nodes import add_node

LIFTS = frozenset((torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default))


def aten_graph(function: Callable[..., Any], *inputs: torch.Tensor) -> torch.fx.GraphModule:
    """What `function` does to tensors like these, op by op. Nothing is computed; sizes are fixed to those of the inputs.

    Raises PrimError where the function writes to a tensor, uses one that is not among its arguments, or looks at data.
    """
    mode = FakeMode()
    recorder = Recorder()
    fakes = [mode.from_real(t.detach()) for t in inputs]
    for i, fake in enumerate(fakes):
        recorder.placeholder(f"x{i}", fake)
    with torch.no_grad(), mode:
        mode.recorder = recorder
        try:
            results = function(*fakes)
        finally:
            mode.recorder = None
    results = tuple(results) if isinstance(results, (tuple, list)) else (results,)
    recorder.graph.output(tuple(map(recorder.node_of, results)))
    return torch.fx.GraphModule({}, recorder.graph)


class Recorder:
    """Told each op after its fakes are known; `_nodes` also keeps the fakes alive, so that identities stay theirs."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        self._nodes: dict[int, tuple[torch.fx.Node, Any]] = {}

    def placeholder(self, name: str, fake: FakeTensor) -> None:
        self._bind(self.graph.placeholder(name), fake)

    def __call__(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if func._schema.is_mutable:
            raise PrimError(f"{func} writes to a tensor, which aten_graph() has no form for; trace_joint() of aotautograd has")
        if func in LIFTS and args[0].__class__ is not FakeTensor:
            func, args, kwargs = _number(args[0]), ([], args[0].item()), {"dtype": out.dtype, "device": out.device}
        node = add_node(self.graph, "call_function", func, self.node_of(tuple(args)), self.node_of(kwargs))
        self._bind(node, out)

    def _bind(self, node: torch.fx.Node, value: Any) -> None:
        node.meta["val"] = value
        if isinstance(value, (tuple, list)):
            for i, item in enumerate(value):
                self._bind(add_node(self.graph, "call_function", operator.getitem, (node, i)), item)
        elif isinstance(value, FakeTensor):
            self._nodes[id(value)] = node, value

    def node_of(self, value: Any) -> Any:
        """Arguments and results, with nodes in place of fakes."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self._nodes:
                raise PrimError(f"a tensor of sizes {list(value.shape)} is not among the arguments of the function; make it one")
            return self._nodes[id(value)][0]
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.node_of, value))
        return {k: self.node_of(v) for k, v in value.items()} if isinstance(value, dict) else value


def _number(tensor: torch.Tensor) -> Any:
    if tensor.ndim:
        raise PrimError(f"a tensor of sizes {list(tensor.shape)} made from data inside of the function; make it an argument")
    return torch.ops.aten.full.default

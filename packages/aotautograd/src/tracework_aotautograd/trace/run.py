"""Runs a captured graph on fakes while a Recorder listens, node by node, so that each op knows the user's line."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ..errors import Refusal, UsageError
from ..nodes import function_of
from .read_again import ReadAgain
from .replay import GradientsOf, raises_if_differentiated
from .tracer import Recorder

aten = torch.ops.aten
SHARING = {"unsafe_chunk": aten.chunk, "unsafe_split": aten.split, "unsafe_split_with_sizes": aten.split_with_sizes}
"""Functions whose results lie in their argument's memory, which neither their schemas nor autograd say -> those that give known views."""
MARKS = ("recompute", "recompute_region", "recompute_levels")  # contracts.py says what they mean


def run_captured(
    gm: fx.GraphModule, inputs: Sequence[Any], recorder: Recorder, instead: Callable[[fx.Node, Any], Any] | None = None
) -> tuple[Any, ...]:
    """The captured graph's outputs on these fakes. instead: asked for what is to be a node's result, in the place of what it gave."""
    values: dict[fx.Node, Any] = {}
    waiting = iter(inputs)
    reads = ReadAgain()
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(waiting)
        elif node.op == "output":
            recorder.marks = {}
            out = _resolve(node.args[0], values)
            return tuple(out) if isinstance(out, (tuple, list)) else (out,)
        else:
            recorder.at(origin_of(node), {k: node.meta[k] for k in MARKS if k in node.meta}, reads.of(node))
            with recorder.saving():
                values[node] = _run_node(gm, node, values, recorder)
                if instead is not None:
                    values[node] = instead(node, values[node])
        reads.made(node, values[node])
    raise UsageError("the captured graph has no output node")


def origin_of(node: fx.Node) -> str:
    """ "file:line in function, op" of a captured node."""
    stack = node.meta.get("stack") or node.meta.get("stack_trace") or ""
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return f"{stack} {target}".strip()


def _run_node(gm: fx.GraphModule, node: fx.Node, values: dict[fx.Node, Any], recorder: Recorder) -> Any:
    if node.op == "get_attr":
        attribute: Any = operator.attrgetter(str(node.target))(gm)
        return recorder.constant(attribute) if isinstance(attribute, torch.Tensor) else attribute
    args, kwargs = _resolve(node.args, values), _resolve(node.kwargs, values)
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if (known := SHARING.get(name.partition(".")[0])) is not None:
        pieces = tuple(known(*args, **{"self" if k == "input" else k: v for k, v in kwargs.items()}))
        recorder.pieces += [(cell := recorder.cell(piece), cell.root.writes, recorder.origin) for piece in pieces]
        return pieces
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    if node.op == "call_module":
        module = gm.get_submodule(str(node.target))
        state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return torch.func.functional_call(module, {k: recorder.constant(v) for k, v in state.items()}, args, kwargs)
    if isinstance(node.target, GradientsOf):
        recorder.keeps_former = recorder.keeps_former or node.target.reads_former_values
        gradients = node.target.run(args, lambda graph, values: run_captured(graph, values, recorder), recorder.inside)
        if raises_if_differentiated(gradients):
            raise Refusal("a backward inside is differentiable once", recorder.origin)
        return gradients
    out = kwargs.get("out")
    if out is None:
        return function_of(node)(*args, **kwargs)
    roots = [recorder.cell(t).root for t in ((out,) if isinstance(out, torch.Tensor) else out)]
    before = [root.writes for root in roots]
    found = function_of(node)(*args, **kwargs)
    if any(root.writes == count for root, count in zip(roots, before, strict=True)):
        raise Refusal("a composite function of torch that does not write to an out= of another class", recorder.origin)
    return found


def _resolve(arg: Any, values: dict[fx.Node, Any]) -> Any:
    return fx.map_arg(arg, values.__getitem__)

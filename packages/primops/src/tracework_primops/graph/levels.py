"""Which nodes are legal at which level."""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
import torch.fx

from .._torch import OpOverload
from ..op import OPS, Op

Check = Callable[[torch.fx.Node], str | None]


def _captured(node: torch.fx.Node) -> str | None:
    if node.op == "get_attr":
        return "parameters and buffers are inputs at this level"
    return None


def _functional(node: torch.fx.Node) -> str | None:
    if node.op in ("placeholder", "output"):
        return None
    if node.op != "call_function":
        return f"{node.op} is not allowed"
    if isinstance(node.target, OpOverload):
        return _writes_only_inputs(node)
    return None if node.target in _PLAIN_CALLS else f"{node.target} is not an ATen overload"


def _writes_only_inputs(node: torch.fx.Node) -> str | None:
    if not node.target._schema.is_mutable:
        return None
    if node.target is torch.ops.aten.copy_.default and node.args[0].op == "placeholder":
        return None
    return "only aten.copy_ into an input may write"


def several_results(output: torch.fx.Node) -> str | None:
    """What is wrong with an output node that gives a result of several values as one; None when nothing is."""
    given = output.args[0] if isinstance(output.args[0], (tuple, list)) else (output.args[0],)
    pair = next((n for n in given if isinstance(n, torch.fx.Node) and isinstance(n.meta.get("spec"), (tuple, list))), None)
    if pair is None:
        return None
    return f"it gives %{pair.name}, which is {len(pair.meta['spec'])} values: give getitem(%{pair.name}, 0) and so on"


def _prim(node: torch.fx.Node) -> str | None:
    if node.op == "output":
        return several_results(node)
    if node.op not in ("placeholder", "call_function"):
        return f"{node.op} is not allowed"
    if "spec" not in node.meta:
        return "meta['spec'] is missing"
    if node.op == "placeholder" or node.target is operator.getitem:
        return None
    if isinstance(node.target, Op):
        return _prim_call(node, node.target)
    return None if isinstance(node.target, OpOverload) else f"{node.target} is neither a prim nor an ATen overload"


def _prim_call(node: torch.fx.Node, op: Op) -> str | None:
    if OPS.get(op.name) is not op:
        return f"{op} is not in OPS"
    if node.kwargs or len(node.args) != len(op.args):
        return f"prims take all arguments by position: {op.signature}"
    return None


_PLAIN_CALLS = frozenset(
    getattr(operator, name) for name in "getitem add sub mul floordiv mod neg truediv pow eq ne lt le gt ge and_ or_".split()
) | {torch.sym_max, torch.sym_min, torch.sym_float, torch.sym_int, torch.sym_not}

# level -> what must hold of each node: None, or what is wrong
LEVELS: dict[str, Check] = {"captured": _captured, "functional": _functional, "prim": _prim}

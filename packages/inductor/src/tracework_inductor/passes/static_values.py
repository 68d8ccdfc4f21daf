"""Values of a graph that are made of static inputs alone (parameters and buffers), as text that makes them anew.

What is computed of them is kept from call to call, until the bytes of an input have changed (tracework_runtime.packed).
"""

import dataclasses
from typing import Any

import torch
from tracework_primops import Kind, Op, PrimGraph, Tag
from tracework_primops.op import RULES

from ..lowering.layout import is_dense, is_static

MAX_TEXT = 4000
"""Characters of a make function; a longer one is computed by kernels, at each call."""


def static_inputs(graph: PrimGraph) -> set[str]:
    """Names of the inputs that what is kept may be made of."""
    return {i.name for i in graph.inputs if i.is_static and not i.is_mutated and _usable(i.spec)}


def _usable(spec: Any) -> bool:
    """A tensor whose bytes are one block, of a known length."""
    if not hasattr(spec, "strides") or spec.device.type != "cpu" or not is_static((*spec.sizes, *spec.strides)):
        return False
    return spec.dtype.is_floating_point and 0 not in spec.sizes and is_dense(spec.sizes, spec.strides)


@dataclasses.dataclass
class Derivation:
    """The text of a function of static inputs, as it is written."""

    static: set[str]
    sources: list[Any] = dataclasses.field(default_factory=list)

    def text(self, node: Any) -> str | None:
        """An expression of this node's value over a0, a1, ...; None if it depends on anything else."""
        if node.op == "placeholder":
            if node.name not in self.static:
                return None
            if node not in self.sources:
                self.sources.append(node)
            return f"a{self.sources.index(node)}"
        target = node.target
        if not isinstance(target, Op) or target.kind not in DERIVED_KINDS or target.tags & {Tag.RANDOM, Tag.MUTATES}:
            return None
        args = [self._argument(a) for a in node.args]
        return None if None in args else f"{_name(target)}({', '.join(map(str, args))})"

    def _argument(self, arg: Any) -> str | None:
        if hasattr(arg, "users"):
            return self.text(arg)
        if isinstance(arg, (tuple, list)):
            items = [self._argument(a) for a in arg]
            return None if None in items else f"({''.join(f'{i}, ' for i in items)})"
        return repr(arg) if arg is None or isinstance(arg, (bool, int, float, str, torch.dtype)) and arg == arg else None


def _name(op: Op) -> str:
    """What a prim is called by: by the function of torch that is its eager rule, so that who loads an artifact can do without prims."""
    rule: Any = RULES["eager"][op]
    name = getattr(rule, "__name__", "")
    return f"torch.{name}" if getattr(torch, name, None) is rule else f"prims.{op.name}"


DERIVED_KINDS = frozenset({Kind.POINTWISE, Kind.VIEW, Kind.REDUCTION})


def erase_with_operands(node: Any) -> None:
    """Removes a node and what only it needed."""
    if node.op != "call_function" or node.users:
        return
    operands = node.all_input_nodes
    node.graph.erase_node(node)
    for operand in operands:
        erase_with_operands(operand)


__all__ = ["MAX_TEXT", "Derivation", "erase_with_operands", "static_inputs"]

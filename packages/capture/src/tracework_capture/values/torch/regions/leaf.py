"""Calls of functions that leaf_function marks: an operator that runs the function itself; its fake says what it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ....errors import ControlMisuse
from ....graph.builder import examples, graph_argument
from ....graph.leaf_operators import leaf_operator
from ....graph.opaque_operators import ResultFacts
from ...objects.controls import MARKED
from ...protocol.constant import literal
from .cond import is_fixed
from .nonstrict import Parts, Target, together

if TYPE_CHECKING:
    from ....marks import Leaf
    from ...protocol.value import Frame, Value

__all__ = ["call_leaf"]


def call_leaf(frame: Frame, leaf: Leaf, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """One node for leaf.real(*args, **kwargs)."""
    name = getattr(leaf.real, "__qualname__", "leaf")
    if leaf.fake is None:
        raise ControlMisuse(
            f"{name} is a leaf function without a fake, which says what it gives. Write one with @{name}.register_fake."
        )
    if leaf.writes or frame.modes.transforms:
        frame.break_graph("call_disabled", f"leaf function {name}, which writes to its arguments or is under a transform")
    parts = Parts(frame, leaf.real)
    positional = [parts.take(a) for a in args]
    keywords = {k: parts.take(v) for k, v in kwargs.items()}
    fake, real = (Target(f, positional, keywords, parts.modules) for f in (leaf.fake, leaf.real))
    given = tuple(graph_argument(frame, leaf) for leaf in parts.leaves)
    found = frame.graph.run_on_fakes(frame, fake.as_function(), given, {}, "call_function")
    tensors = [t for t in found if isinstance(t, torch.Tensor)]
    fakes = examples(given)
    if not tensors or not all(isinstance(t, torch.Tensor) and is_fixed(t) for t in (*tensors, *fakes)):
        frame.break_graph("call_disabled", f"leaf function {name}, which takes or gives sizes that are symbols, or no tensor")
    places = [i for i, t in enumerate(found) if isinstance(t, torch.Tensor)]

    def run(*leaves: torch.Tensor) -> list[Any]:
        flat = real.run(leaves)
        return [flat[i] for i in places]

    operator, is_recorded = leaf_operator(name, run, name, fakes, tuple(map(ResultFacts.of, tensors)))
    made = frame.graph.call(frame, operator, given)
    results = iter(made.unpack(frame) if len(tensors) + is_recorded > 1 else [made])
    return together(frame, fake.result, iter([next(results) if i in places else literal(frame, t) for i, t in enumerate(found)]))


MARKED["leaf_function"] = lambda obj, mark, frame, args, kwargs: call_leaf(frame, mark.traceable, args, kwargs)

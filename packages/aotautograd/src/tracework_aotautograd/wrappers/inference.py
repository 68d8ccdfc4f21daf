"""The callable around a graph without a backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..signature import Signature
from .outputs import is_plain, make_outputs


def wrap_inference(call: Callable[[list[Any]], Any], signature: Signature) -> Callable[..., tuple[Any, ...]]:
    """args -> the caller's outputs. Inputs that the graph wrote to get a new version, as autograd expects of a write."""
    constants = signature.constants
    written = sorted(signature.mutated_in_graph)
    if is_plain(signature) and not written and not constants:

        def plain(*args: Any) -> tuple[Any, ...]:
            return call(list(args))

        return plain

    def full(*args: Any) -> tuple[Any, ...]:
        with torch.no_grad():
            graph_outputs = call([*args, *constants])
        for slot in written:
            torch.autograd.graph.increment_version(args[slot])
        return make_outputs(signature, args, graph_outputs)

    return full



"""The callable around a graph without a backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import _torch
from ..signature import Signature
from ..trace.shared import row_of
from .outputs import is_plain, output_maker


def records_history(signature: Signature) -> bool:
    """Whether library calls in the graph would record a history, in the mode that is on now."""
    return torch.is_grad_enabled() and any(info.requires_grad for info in signature.inputs)


def wrap_inference(call: Callable[[list[Any]], Any], signature: Signature, records: bool) -> Callable[..., tuple[Any, ...]]:
    """args -> the caller's outputs. Inputs that the graph wrote to get a new version, as autograd expects of a write."""
    constants, shared = signature.constants, signature.shared
    versions = signature.output_versions
    newer = dict.fromkeys(sorted(signature.mutated_in_graph), 0) | dict(signature.newer_versions)
    make = output_maker(signature)
    run = _without_history(call) if records else call
    run = _torch.counting_writes(run, newer)
    if is_plain(signature) and not constants and not versions and not shared:

        def plain(*args: Any) -> tuple[Any, ...]:
            return run(list(args))

        # For a caller that has the inputs in a list of its own: the same without this function.
        plain.__tracework_list_call__ = _innermost(run)  # type: ignore[attr-defined]  # a mark on a function
        return plain

    def full(*args: Any) -> tuple[Any, ...]:
        graph_outputs = run([*args, *[row_of(memory, args) for memory in shared], *constants])
        _torch.set_versions([graph_outputs[slot] for slot, _ in versions], [version for _, version in versions])
        return make(args, graph_outputs)

    return full


def _innermost(call: Any) -> Any:
    """The function behind a loaded artifact, which saves a call; else what was given."""
    inner = getattr(call, "call", None)
    return inner if callable(inner) and getattr(call, "__tracework_boxed__", False) else call


def _without_history(call: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Library calls inside would record a history that the program does not have."""

    def run(inputs: list[Any]) -> Any:
        with torch.no_grad():
            return call(inputs)

    return run

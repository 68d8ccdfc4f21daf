"""torch.utils.checkpoint: the function is traced, and its nodes say by meta["recompute"] that the backward computes them again.

"must": all but what cannot be computed twice (random numbers). "prefer": the program chose some operators that are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import checkpoint as torch_checkpoint

from ...._torch.autograd import call_of_checkpointed
from ....sources import Const
from ...protocol.calls import call
from ...protocol.constant import force_plain
from ...protocol.region import Region
from ...protocol.value import Frame, Value
from ..context import set_grad
from ..tensor import TensorValue

UNMARKED = vars(torch_checkpoint.checkpoint)["__wrapped__"]
OWN_OPTIONS = {"preserve_rng_state", *UNMARKED.__kwdefaults__}


@call(torch_checkpoint.checkpoint)
def checkpoint_row(frame: Frame, args: list[Any], kwargs: dict[str, Value]) -> Value:
    """torch.utils.checkpoint.checkpoint(function, *args, **kwargs); without a function its own code makes the decorator."""
    function = args[0] if args else kwargs.get("function")
    if function is None or function.python_type() is type(None):
        return frame.wrap(UNMARKED, Const(UNMARKED, "checkpoint")).call(frame, args, kwargs)
    options = {k: v for k, v in kwargs.items() if k in OWN_OPTIONS}
    given = {k: v for k, v in kwargs.items() if k not in OWN_OPTIONS and (args or k != "function")}
    return checkpointed(frame, function, args[1:], given, options)


@call(call_of_checkpointed)
def call_of_decorated(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What the decorator's functions call: (function, args, kwargs, *, options)"""
    function, positional, named = args
    given = {key.constant(): named.getitem(frame, key) for key in named.call_method(frame, "keys", [], {}).unpack(frame)}
    return checkpointed(frame, function, positional.unpack(frame), given, kwargs)


def checkpointed(
    frame: Frame, function: Value, args: Sequence[Value], kwargs: dict[str, Value], options: dict[str, Any]
) -> Value:
    """The call of a function whose nodes are computed again in the backward."""
    reentrant = force_plain(frame, options["use_reentrant"]) if "use_reentrant" in options else None
    if kwargs and reentrant is not False:
        frame.raise_new(ValueError, "Unexpected keyword arguments: " + ",".join(kwargs))
    how = recompute_mark(frame, options.get("context_fn"))
    cut_off = reentrant is not False and torch.is_grad_enabled() and not any(requires_grad(a) for a in args)
    if cut_off:  # CheckpointFunction.apply: no argument asks for a gradient, so nothing inside gets one
        set_grad(frame, False)
    reads = tuple(a.example for a in args if isinstance(a, TensorValue))  # the backward refuses others than they were
    region = Region(frame, function, *args, *kwargs.values())
    with frame.recording.effects.normalizing() as statistics:
        found = function.call(frame, list(args), kwargs)
    if torch.is_grad_enabled() and (changed := what_changed(frame, region, statistics, how)):
        return frame.break_graph("checkpoint_effects", f"the function {changed}")
    if cut_off:
        set_grad(frame, True)
    nodes = region.nodes()
    keeps_states = force_plain(frame, options["preserve_rng_state"]) if "preserve_rng_state" in options else True
    if torch.is_grad_enabled() and not keeps_states and any(node.meta.get("draws") for node in nodes):
        return frame.break_graph(
            "checkpoint_effects", "the function draws random numbers, others in the backward: preserve_rng_state=False"
        )
    name = f"{nodes[0].name} {len(nodes[0].meta.get('recompute_levels', ()))}" if nodes else ""
    for node in nodes:
        node.meta.setdefault("recompute", how)
        node.meta.setdefault("recompute_region", nodes[0].name)
        node.meta["recompute_reads"] = reads  # one in another's is computed anew with what it reads
        node.meta["recompute_levels"] = (*node.meta.get("recompute_levels", ()), (name, reentrant is not False))
    return found


def what_changed(frame: Frame, region: Region, statistics: set[Any], how: str) -> str:
    """Words for the break, or an empty text where there is nothing but writes to inputs that the backward repeats."""
    written = region.written() | statistics
    if not written or region.changes_objects():
        return region.what_changed() or ("updates statistics" if statistics else "")
    fakes = (n.meta.get("example_value") for n in frame.graph.graph.nodes if n.op == "placeholder")
    inputs = [x for x in fakes if isinstance(x, torch.Tensor) and not x.requires_grad and x.layout is torch.strided]
    is_known = written <= {x.storage for x in inputs} and how == "must"  # a policy may keep what updates statistics
    return "" if frame.options.repeats_writes and is_known else "writes to tensors that it did not make"


def requires_grad(value: Value) -> bool:
    return isinstance(value, TensorValue) and value.example.requires_grad


def recompute_mark(frame: Frame, context_fn: Value | None) -> Any:
    """What the given contexts ask for: none, or those of selective checkpoints; others may do anything."""
    if context_fn is None or context_fn.python_type() is type(None):
        return "must"
    if python_function(context_fn) is torch_checkpoint.noop_context_fn:
        return "must"
    if isinstance(context_fn.call(frame, [], {}), SelectiveContexts):
        return "prefer"
    return frame.break_graph("context_unknown", "context_fn of torch.utils.checkpoint")


class SelectiveContexts(Value):
    """What create_selective_checkpoint_contexts gives: for checkpoint alone."""

    cls = tuple


@call(torch_checkpoint.create_selective_checkpoint_contexts)
def selective_contexts_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.utils.checkpoint.create_selective_checkpoint_contexts(policy, ...)"""
    return SelectiveContexts()


def python_function(value: Value) -> Any:
    """The function behind a value, or None."""
    try:
        return value.real() if value is not None else None
    except LookupError:
        return None

"""The autograd.Function that ties forward and backward, and the callable around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..contracts import FunctionalProgram
from ..signature import TangentInfo
from .outputs import make_outputs

Call = Callable[[list[Any]], Any]


def coerce(tangent: Any, info: TangentInfo, like: tuple[int, ...]) -> torch.Tensor:
    """A tangent in the layout that the backward was compiled for; zeros for an undefined one."""
    if tangent is None:
        tangent = torch.zeros(like, dtype=info.dtype, device=info.device)
    elif tangent.is_neg() or tangent.is_conj():
        tangent = tangent.resolve_conj().resolve_neg()
    if info.order is None:
        return tangent.contiguous()
    ordered = tangent.permute(info.order)
    if ordered.is_contiguous():
        return tangent
    back = [info.order.index(d) for d in range(len(info.order))]
    return ordered.contiguous().permute(back)


def wrap_autograd(
    program: FunctionalProgram, forward: Call, backward: Call, again: Callable[..., Any], read_again: frozenset[int]
) -> Callable[..., tuple[Any, ...]]:
    """args -> the caller's outputs, differentiable to any order.

    again(inputs, tangents): the gradients as differentiable functions of both; used when the backward is itself recorded.
    read_again: input slots that `again` reads; those that the forward writes to are kept as they were.
    """
    signature = program.signature
    count = signature.number_of_graph_outputs
    size_count, _ = program.saved
    dirty = [slot for slot, _ in signature.write_backs]
    differentiable = {t.slot for t in signature.tangents}
    written = sorted(signature.mutated_in_graph)
    kept = sorted(read_again & {*written, *dirty})
    constants = signature.constants
    inputs_count = len(signature.inputs)
    grad_positions = signature.grad_inputs

    class CompiledFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> tuple[Any, ...]:
            originals = args
            if kept:
                originals = tuple(a.clone() if i in kept else a for i, a in enumerate(args))
            values = forward([*args, *constants])
            outputs = list(values[:count])
            for slot, output in signature.write_backs:
                args[slot].copy_(outputs[output])
                outputs[output] = args[slot]
            ctx.sizes = values[count : count + size_count]
            ctx.save_for_backward(*values[count + size_count :])
            ctx.originals = originals
            ctx.shapes = [outputs[t.slot].shape for t in signature.tangents]
            ctx.set_materialize_grads(False)
            if dirty:
                ctx.mark_dirty(*[args[i] for i in dirty])
            plain = [o for i, o in enumerate(outputs) if i not in differentiable and isinstance(o, torch.Tensor)]
            if plain:
                ctx.mark_non_differentiable(*plain)
            return tuple(outputs)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
            tangents = [
                coerce(grads[info.slot], info, shape) for info, shape in zip(signature.tangents, ctx.shapes, strict=True)
            ]
            if torch.is_grad_enabled():
                found = again([*ctx.originals, *constants], tangents)
            else:
                found = backward([*ctx.sizes, *ctx.saved_tensors, *tangents])
            results: list[Any] = [None] * inputs_count
            for position, grad in zip(grad_positions, found, strict=True):
                results[position] = grad
            return tuple(results)

    apply = CompiledFunction.apply

    def call(*args: Any) -> tuple[Any, ...]:
        graph_outputs = apply(*args)
        for slot in written:
            torch.autograd.graph.increment_version(args[slot])
        return make_outputs(signature, args, graph_outputs)

    return call



"""The autograd.Function that ties forward and backward, and the callable around it.

Order of a call: inputs whose old value the gradient needs and that get a new one outside the graph are replaced by clones; the forward runs
inside the Function; new values are copied to the inputs, seen by autograd; outputs are made. What the Function saves: the values that the
partition chose, by save_for_backward; and, for gradients of gradients, those inputs that gradients depend on, with their versions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import _torch
from ..contracts import FunctionalProgram
from ..errors import UsageError
from ..signature import TangentInfo
from .outputs import compile_function, output_maker
from .random_state import States, drawing_again, random_devices, states_of

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


@dataclass(eq=False, slots=True)
class Originals:
    """The inputs of one call, kept for gradients of gradients; `unlinked`: kept ones whose history a clone has lost."""

    inputs: tuple[Any, ...]
    versions: tuple[tuple[int, int], ...]
    unlinked: tuple[int, ...]
    random: States

    def checked(self, names: Sequence[str]) -> tuple[Any, ...]:
        """The inputs, when nobody wrote to them since."""
        for slot, version in self.versions:
            if self.inputs[slot]._version != version:
                raise RuntimeError(
                    f"one of the variables needed for gradient computation has been modified by an inplace operation: input "
                    f"{names[slot]} of a compiled graph is at version {self.inputs[slot]._version}; expected version {version}"
                )
        for slot in self.unlinked:
            raise UsageError(
                f"a gradient of a gradient through input {names[slot]}, which the graph writes to without recording it"
            )
        return self.inputs


class Keeper:
    """Makes the Originals of a call: which inputs to keep, which of them as clones."""

    def __init__(self, program: FunctionalProgram, read_again: frozenset[int]) -> None:
        infos = program.signature.inputs
        in_graph = program.signature.mutated_in_graph
        tensors = [i for i in sorted(read_again) if i < len(infos)]
        self._cloned = frozenset(i for i in tensors if i in in_graph)
        self._random = random_devices(program.forward.graph)
        self._unlinked = tuple(i for i in sorted(self._cloned) if infos[i].requires_grad)
        self._checked = tuple(
            i for i in tensors if not infos[i].is_static and i not in self._cloned and infos[i].kind.value == "tensor"
        )
        kept = {*tensors, *(i for i, info in enumerate(infos) if info.kind.value != "tensor")}
        items = (f"a[{i}].clone()" if i in self._cloned else f"a[{i}]" if i in kept else "None" for i in range(len(infos)))
        self._pick = compile_function("pick", "a", [f"    return ({''.join(f'{x}, ' for x in items)})"], {})
        if not self._cloned and len(kept) == len(infos):
            self._pick = lambda args: args

    def __call__(self, args: tuple[Any, ...]) -> Originals:
        versions = tuple([(i, args[i]._version) for i in self._checked])
        return Originals(self._pick(args), versions, self._unlinked, states_of(self._random))


def wrap_autograd(
    program: FunctionalProgram, forward: Call, backward: Call, again: Callable[..., Any], read_again: frozenset[int]
) -> Callable[..., tuple[Any, ...]]:
    """args -> the caller's outputs, differentiable to any order.

    again(inputs, tangents): the gradients as differentiable functions of both; used when the backward is itself recorded.
    read_again: input slots that `again` reads.
    """
    signature = program.signature
    written, quiet = signature.newer_versions, signature.quiet
    forward = _torch.keeping_versions(forward, quiet) if quiet else forward
    function = _function(program, forward, backward, again, Keeper(program, read_again))
    apply, make = _torch.direct_apply(function), output_maker(signature)
    write_backs = signature.write_backs
    cloned = [slot for slot, _ in write_backs if slot in read_again]
    records = torch.is_grad_enabled()

    def plain(*args: Any) -> tuple[Any, ...]:
        return make(args, apply(*args))

    def full(*args: Any) -> tuple[Any, ...]:
        given = list(args)
        with torch.enable_grad():
            for slot in cloned:
                given[slot] = args[slot].clone()
            graph_outputs = apply(*given)
            for slot, output in write_backs:
                args[slot].copy_(graph_outputs[output])
        for slot in written:
            _torch.new_version(args[slot])
        return make(args, graph_outputs)

    return full if write_backs or written or not records else plain


def _function(program: FunctionalProgram, forward: Call, backward: Call, again: Callable[..., Any], keep: Keeper) -> Any:
    signature = program.signature
    constants = signature.constants
    count = signature.number_of_graph_outputs
    size_count, _ = program.saved
    split = count + size_count
    tangent_infos = signature.tangents
    plain = _not_differentiable(program)
    names = [info.name for info in signature.inputs]
    spread = _spread(signature.grad_inputs, len(signature.inputs))

    static = [info.sizes for info in tangent_infos]
    shapes_vary = not all(isinstance(n, int) for sizes in static for n in sizes)

    class CompiledFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> tuple[Any, ...]:
            ctx.originals = keep(args)
            values = forward([*args, *constants])
            ctx.set_materialize_grads(False)
            if shapes_vary:
                ctx.shapes = [values[info.slot].shape for info in tangent_infos]
            if size_count:
                ctx.sizes = values[count:split]
            if len(values) > split:
                ctx.save_for_backward(*values[split:])
            if plain:
                ctx.mark_non_differentiable(*[values[i] for i in plain])
            return tuple(values[:count])

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
            shapes = ctx.shapes if shapes_vary else static
            tangents = [coerce(grads[i.slot], i, shape) for i, shape in zip(tangent_infos, shapes, strict=True)]
            saved = ctx.saved_tensors  # read in any case: it is what says that the graph has been freed
            if torch.is_grad_enabled():
                if ctx.originals is None:
                    raise RuntimeError(
                        "Trying to backward through the graph a second time; pass retain_graph=True the first time"
                    )
                with drawing_again(ctx.originals.random):
                    return spread(again([*ctx.originals.checked(names), *constants], tangents))
            if not _torch.graph_is_kept():
                ctx.originals = None
            sizes = ctx.sizes if size_count else ()
            return spread(backward([*sizes, *saved, *tangents]))

    return CompiledFunction


def _not_differentiable(program: FunctionalProgram) -> tuple[int, ...]:
    differentiable = {t.slot for t in program.signature.tangents}
    outputs = next(iter(reversed(program.forward.graph.nodes))).args[0][: program.signature.number_of_graph_outputs]
    tensors = [i for i, o in enumerate(outputs) if isinstance(getattr(o, "meta", {}).get("val"), torch.Tensor)]
    return tuple(i for i in tensors if i not in differentiable)


def _spread(slots: Sequence[int], count: int) -> Callable[[Any], tuple[Any, ...]]:
    """Gradients to their places among the inputs."""
    places = {slot: position for position, slot in enumerate(slots)}
    items = "".join(f"g[{places[i]}], " if i in places else "None, " for i in range(count))
    return compile_function("spread", "g", [f"    return ({items})"], {})

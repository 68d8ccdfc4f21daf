"""The autograd.Function that ties forward and backward, and the callable around it.

Order of a call: inputs whose old value the gradient needs and that get a new one outside the graph are replaced by clones; the forward runs
inside the Function; new values are copied to the inputs, seen by autograd; outputs are made. What the Function saves: the values that the
partition chose, by save_for_backward; and, for gradients of gradients, those inputs that gradients depend on, with their versions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import fx

from .. import _torch
from ..contracts import FunctionalProgram
from ..errors import UsageError
from ..signature import TangentInfo
from .outputs import compile_function, is_plain, output_maker
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


Kept = tuple[tuple[Any, ...], tuple[int, ...], States]  # inputs, versions of the checked ones, random number generators


class Keeper:
    """What a call keeps for gradients of gradients, in as few steps as can be: `keep(args)` gives a Kept."""

    def __init__(self, program: FunctionalProgram, read_again: frozenset[int]) -> None:
        infos = program.signature.inputs
        self._names = [info.name for info in infos]
        tensors = [i for i in sorted(read_again) if i < len(infos)]
        mutated = program.signature.mutated_in_graph
        cloned = dict.fromkeys(i for i in tensors if i in mutated)
        self._unlinked = tuple(i for i in cloned if infos[i].requires_grad)  # a clone has lost their history
        self._checked = tuple(
            i for i in tensors if not infos[i].is_static and i not in cloned and infos[i].kind.value == "tensor"
        )
        kept = {*tensors, *(i for i, info in enumerate(infos) if info.kind.value != "tensor")}
        self.keep = self._function(kept, cloned, random_devices(program.forward.graph))

    def _function(self, kept: set[int], cloned: Collection[int], devices: Any) -> Callable[[Any], Kept]:
        count = len(self._names)
        items = (f"a[{i}].clone()" if i in cloned else f"a[{i}]" if i in kept else "None" for i in range(count))
        inputs = "a" if len(kept) == count and not cloned else f"({''.join(f'{x}, ' for x in items)})"
        versions = f"({''.join(f'a[{i}]._version, ' for i in self._checked)})"
        states = "states_of(devices)" if devices else "()"
        scope = {"states_of": states_of, "devices": devices}
        return compile_function("keep", "a", [f"    return {inputs}, {versions}, {states}"], scope)

    def checked(self, kept: Kept) -> tuple[Any, ...]:
        """The inputs, when nobody wrote to them since."""
        inputs, versions, _ = kept
        for slot, version in zip(self._checked, versions, strict=True):
            if inputs[slot]._version != version:
                raise RuntimeError(
                    f"one of the variables needed for gradient computation has been modified by an inplace operation: input "
                    f"{self._names[slot]} of a compiled graph is at version {inputs[slot]._version}; expected version {version}"
                )
        for slot in self._unlinked:
            raise UsageError(
                f"a gradient of a gradient through input {self._names[slot]}, which the graph writes to without recording it"
            )
        return inputs


def wrap_autograd(
    program: FunctionalProgram, forward: Call, backward: Call, again: Callable[..., Any], read_again: frozenset[int]
) -> Callable[..., tuple[Any, ...]]:
    """args -> the caller's outputs, differentiable to any order.

    again(inputs, tangents): the gradients as differentiable functions of both; used when the backward is itself recorded.
    read_again: input slots that `again` reads.
    """
    signature = program.signature
    written = signature.newer_versions
    # counted once the Function has saved what it needs: what it saves of an input that is written is then refused, as eager does
    forward = _torch.counting_writes(forward, dict.fromkeys(sorted(signature.mutated_in_graph), 0))
    function = _function(program, forward, backward, again, Keeper(program, read_again))
    apply = _torch.direct_apply(function, _apart(signature.tangents))
    make = output_maker(signature)
    write_backs = signature.write_backs
    cloned = [slot for slot, _ in write_backs if slot in read_again]
    unreached = _unreached(program)
    records = torch.is_grad_enabled()

    def plain(*args: Any) -> tuple[Any, ...]:
        return make(args, apply(*args))

    if is_plain(signature) and not write_backs and not written and not unreached and records:
        return apply  # type: ignore[no-any-return]

    def full(*args: Any) -> tuple[Any, ...]:
        given = list(args)
        with torch.enable_grad():
            for slot in unreached:
                given[slot] = args[slot].detach()
            for slot in cloned:
                given[slot] = args[slot].clone()
            graph_outputs = apply(*given)
            for slot, output in write_backs:
                args[slot].copy_(graph_outputs[output])
        _torch.add_versions(args, written)
        return make(args, graph_outputs)

    return full if write_backs or written or unreached or not records else plain


def _unreached(program: FunctionalProgram) -> list[int]:
    """Input slots that no result's history leads to: the engine would go on behind them, to hooks that see no gradient in eager."""
    assert program.backward is not None
    gradients = next(iter(reversed(program.backward.graph.nodes))).args[0]
    slots = [slot for slot, node in zip(program.signature.grad_inputs, gradients, strict=True) if node is None]
    return slots if len(slots) < len(gradients) else []


def _apart(tangents: Sequence[TangentInfo]) -> list[int]:
    """Results that get an autograd node of their own: all of several; torch's operator for it does not take complex ones."""
    return [info.slot for info in tangents if not info.dtype.is_complex] if len(tangents) > 1 else []


def _forward(program: FunctionalProgram, forward: Call, keep: Callable[[Any], Kept], keeps_saved: bool) -> Callable[..., Any]:
    """CompiledFunction.forward: only the steps that this program needs."""
    signature = program.signature
    count, sizes = signature.number_of_graph_outputs, program.saved[0]
    split, saves = count + sizes, bool(program.saved[1])
    constant = _not_differentiable(program)
    inputs = "[*args, *constants]" if signature.constants else "list(args)"
    lines = ["ctx.originals = keep(args)", f"values = run({inputs})", "ctx.set_materialize_grads(False)"]
    if views := " or ".join(f"values[{info.slot}]._is_view()" for info in signature.tangents):
        # memory taken over from another value, say; autograd refuses writes to a view that comes out of a Function
        lines.append(f"if {views}: values = [v.detach() if i in results and v._is_view() else v for i, v in enumerate(values)]")
    if signature.output_versions:
        slots, versions = zip(*signature.output_versions, strict=True)
        lines.append(f"set_versions([{', '.join(f'values[{slot}]' for slot in slots)}], {versions})")
    if _shapes_vary(program):
        lines.append(f"ctx.shapes = [{', '.join(f'values[{info.slot}].shape' for info in signature.tangents)}]")
    if sizes:
        lines.append(f"ctx.sizes = values[{count}:{split}]")
    if keeps_saved:
        lines.append("ctx.kept = None")
    if saves:
        # an input that is a leaf would be read back with what `.data = other` gave it meanwhile, of other sizes or another dtype
        outputs = next(iter(reversed(program.forward.graph.nodes))).args[0][split:]
        given = [f"values[{i}]{'.detach()' if n.op == 'placeholder' else ''}" for i, n in enumerate(outputs, split)]
        lines.append(f"ctx.save_for_backward({', '.join(given)})")
    if constant:
        lines.append(f"ctx.mark_non_differentiable({', '.join(f'values[{i}]' for i in constant)})")
    lines.append(f"return tuple(values[:{count}])" if sizes or saves else "return tuple(values)")
    results = frozenset(info.slot for info in signature.tangents)
    scope = {"keep": keep, "run": forward, "constants": signature.constants, "results": results}
    scope["set_versions"] = _torch.set_versions
    return compile_function("forward", "ctx, *args", [f"    {line}" for line in lines], scope)


def _shapes_vary(program: FunctionalProgram) -> bool:
    return not all(isinstance(n, int) for info in program.signature.tangents for n in info.sizes)


def _function(program: FunctionalProgram, forward: Call, backward: Call, again: Callable[..., Any], keeper: Keeper) -> Any:
    signature = program.signature
    constants = signature.constants
    has_sizes, saves = map(bool, program.saved)
    tangent_infos = signature.tangents
    spread = _spread(signature.grad_inputs, len(signature.inputs))
    static = [info.sizes for info in tangent_infos]
    shapes_vary = _shapes_vary(program)
    tangents_of = _tangents_of(program)
    reaching = _reaching(program, tangents_of)
    later = LaterBackwards(program, tangents_of)
    run = _forward(program, forward, keeper.keep, later.possible)

    class CompiledFunction(torch.autograd.Function):
        forward = staticmethod(run)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
            shapes = ctx.shapes if shapes_vary else static
            tangents = [coerce(grads[i.slot], i, shape) for i, shape in zip(tangent_infos, shapes, strict=True)]
            undefined = [n for n, i in enumerate(tangent_infos) if grads[i.slot] is None]
            # read even when not used: reading raises where the graph has been freed
            saved = later.saved(ctx, undefined) if later.possible else ctx.saved_tensors if saves else ()
            if torch.is_grad_enabled():
                if ctx.originals is None:
                    raise RuntimeError(
                        "Trying to backward through the graph a second time; pass retain_graph=True the first time"
                    )
                with drawing_again(ctx.originals[2]):
                    found = again([*keeper.checked(ctx.originals), *constants], tangents)
                    return spread(_defined(found, reaching, undefined) if undefined else found)
            if not _torch.graph_is_kept():
                ctx.originals = None
                if undefined and later.possible:
                    later.keep(ctx, saved, undefined)
            given = [*(ctx.sizes if has_sizes else ()), *saved, *tangents]
            ctx.maybe_clear_saved_tensors()  # unless the graph is kept: the backward gives each one back after its last use
            del saved, tangents
            found = backward(given)
            return spread(_defined(found, reaching, undefined) if undefined else found)

    return CompiledFunction


def _tangents_of(program: FunctionalProgram) -> dict[fx.Node, int]:
    """For each node of the backward the tangents that it is computed from, as the bits of a number."""
    assert program.backward is not None
    nodes = list(program.backward.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    count = len(program.signature.tangents)
    found = {node: 1 << place for place, node in enumerate(placeholders[len(placeholders) - count :])}
    for node in nodes:
        found[node] = found.get(node, 0)
        for given in node.all_input_nodes:
            found[node] |= found.get(given, 0)
    return found


def _reaching(program: FunctionalProgram, found: dict[fx.Node, int]) -> list[int]:
    """For each gradient the tangents that it is computed from."""
    assert program.backward is not None
    return [found.get(result, 0) for result in next(iter(reversed(program.backward.graph.nodes))).args[0]]


class LaterBackwards:
    """Results of one graph whose histories are apart, as two losses: the backward of one leaves the other's in place, as in eager.

    They are apart where the backward does nothing with both tangents but add up the gradients of inputs. What was saved is kept then
    until the others had their turn; a result that had it, or shares history with one, raises as a graph that was freed does.
    """

    def __init__(self, program: FunctionalProgram, found: dict[fx.Node, int]) -> None:
        assert program.backward is not None
        nodes = list(program.backward.graph.nodes)
        count = len(program.signature.tangents)
        shared = [0] * count  # for each tangent those that share history with it
        adds_up: set[fx.Node] = set()
        for node in reversed(nodes):
            if node.op == "output" or node.target is torch.ops.aten.add.Tensor and adds_up.issuperset(node.users):
                adds_up.add(node)
            mask = 0 if node in adds_up else found[node]
            for place in range(count):
                shared[place] |= mask if mask >> place & 1 else 0
        self._shared = shared
        self._all = (1 << count) - 1
        self.possible = any(mask != self._all for mask in shared)
        self._readers = self._readers_of_saved(program, nodes, found) if self.possible else []

    @staticmethod
    def _readers_of_saved(program: FunctionalProgram, nodes: Sequence[fx.Node], found: dict[fx.Node, int]) -> list[int]:
        """For each saved tensor the tangents whose gradients read it."""
        readers = dict.fromkeys(nodes, 0)
        for node in reversed(nodes):
            mask = found[node] if node.op != "output" else 0
            for given in node.all_input_nodes:
                if not found[given]:
                    readers[given] |= mask or readers[node]
        sizes, saved = program.saved
        return [readers[n] for n in nodes if n.op == "placeholder"][sizes : sizes + saved]

    def _given(self, undefined: Sequence[int]) -> int:
        return self._all & ~sum(1 << place for place in undefined)

    def saved(self, ctx: Any, undefined: Sequence[int]) -> tuple[Any, ...]:
        """What the forward saved. Raises as autograd does where it is gone, or was written to."""
        if ctx.kept is None:
            return ctx.saved_tensors  # type: ignore[no-any-return]
        tensors, versions, freed = ctx.kept
        given = self._given(undefined)
        if given & freed:
            raise RuntimeError("Trying to backward through the graph a second time; pass retain_graph=True the first time")
        for tensor, version, readers in zip(tensors, versions, self._readers, strict=True):
            if readers & given and tensor._version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"a {tensor.dtype} tensor of shape {tuple(tensor.shape)} that a compiled graph saved"
                )
        return tensors  # type: ignore[no-any-return]

    def keep(self, ctx: Any, saved: tuple[Any, ...], undefined: Sequence[int]) -> None:
        """Keeps what was saved while a result that is apart from all that had their turn has not had it."""
        freed = ctx.kept[2] if ctx.kept is not None else 0
        given = self._given(undefined)
        for place, mask in enumerate(self._shared):
            freed |= mask if given >> place & 1 else 0
        versions = ctx.kept[1] if ctx.kept is not None else tuple(t._version for t in saved)
        ctx.kept = None if freed == self._all else (saved, versions, freed)


def _defined(gradients: Sequence[Any], reaching: Sequence[int], undefined: Sequence[int]) -> list[Any]:
    """The gradients, None where all that a gradient would come from is undefined: an optimizer passes over such parameters."""
    missing = sum(1 << place for place in undefined)
    return [None if bits and not bits & ~missing else gradient for gradient, bits in zip(gradients, reaching, strict=True)]


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

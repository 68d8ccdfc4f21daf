"""The autograd.Function that ties forward and backward, and the callable around it.

Order of a call: inputs whose old value the gradient needs and that get a new one outside the graph are replaced by clones; the forward runs
inside the Function; new values are copied to the inputs, seen by autograd; outputs are made. What the Function saves: the values that the
partition chose, by save_for_backward; and, for gradients of gradients, those inputs that gradients depend on, with their versions.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import _torch
from ..signature import BackwardFacts, InputKind, Reads, Signature, TakenView, TangentInfo, TrainingFacts, base_of
from ..trace.replay import FormerValue
from ..trace.shared import row_of
from .checkpoints import write_again
from .outputs import aliased, compile_function, is_plain, make_views, output_maker
from .random_state import States, drawing_again, states_of
from .stages import Chain, Give, defined

Call = Callable[[list[Any]], Any]


def coerce(tangent: Any, info: TangentInfo, like: tuple[int, ...]) -> torch.Tensor:
    """A tangent in the layout that the backward was compiled for; zeros for an undefined one, and for one of zeros without memory."""
    if tangent is None or tangent._is_zerotensor():
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


def copy_in_place_of(tensor: torch.Tensor) -> torch.Tensor:
    """A clone with the strides that the graph was compiled for, which clone() gives only to what fills its memory."""
    copy = tensor.clone()
    if copy.stride() == tensor.stride() or not tensor.numel():
        return copy
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.as_strided((reach,), (1,)).clone().as_strided(tensor.shape, tensor.stride(), 0)


Ref = weakref.ref[torch.Tensor]
# inputs read again, versions of the checked ones, random generators, counters of inputs that the graph writes to, those with a history
# of their own, what checkpoints write to
Kept = tuple[
    tuple[Any, ...], tuple[int, ...], States, tuple[tuple[torch.Tensor, int], ...], tuple[Ref, ...], tuple[torch.Tensor, ...]
]


class Keeper:
    """What a call keeps for gradients of gradients, in as few steps as can be: `keep(args)` gives a Kept, with None for other inputs.

    watched: slots of inputs whose versions it keeps as well, for gradients that are computed from something else; linked: of those that
    have to keep their history. Behind the inputs `args` may have those that get new values outside, themselves where the inputs are clones.
    """

    def __init__(self, facts: TrainingFacts, reads: Reads, watched: Collection[int], linked: Collection[int]) -> None:
        self._infos = infos = facts.signature.inputs
        self._repeated = facts.signature.repeated
        mutated = facts.signature.changed_unseen
        tensors = [i for i, info in enumerate(infos) if info.kind is InputKind.TENSOR]
        needed = [i for i in tensors if i in reads.inputs]
        copies = dict.fromkeys((i for i in tensors if i not in reads.kept), "None")
        # by the call, which is not over when versions are read
        self._written = {i: newer for i in watched if (newer := infos[i].versions) is not None}
        watched = [i for i in watched if i not in self._written]
        targets = {slot: len(infos) + number for number, (slot, _) in enumerate(facts.signature.write_backs)}
        others = [i for i in needed if infos[i].requires_grad and not infos[i].is_parameter and i not in targets]
        self._linked = [*linked, *(i for i in others if i not in linked)]
        self._counted = [i for i in watched if i in copies]  # whose memory nothing is computed from
        copies |= {i: f"counter_of(a[{i}])[0]" for i in self._counted}
        # an input that gets what the graph computes would have its own history keep it
        copies |= {i: f"a[{i}].detach()" for i, _ in facts.signature.write_backs if i in reads.kept and i not in needed}
        copies |= {i: f"copy(a[{i}])" for i in needed if i in mutated}
        self._rows = {
            place: memory
            for place, memory in enumerate(facts.signature.shared)
            if any(slot in reads.kept for slot, _ in memory.parts)
        }
        for place, memory in self._rows.items():
            shown = {slot: f"a[{slot}].size(), a[{slot}].stride(), {begin}" for slot, begin in memory.parts}
            copies |= {slot: f"row_{place}.as_strided({part})" for slot, part in shown.items()}
        # leaves, which a clone is no part of
        self._former = tuple(i for i in needed if i in mutated and infos[i].requires_grad)
        copies |= {i: f"({copies[i]}, a[{i}])" for i in self._former}
        self._checked = tuple(
            i for i in tensors if i in watched or i in reads.inputs and not infos[i].is_static and i not in mutated
        )
        self.keep = self._function(copies, targets, facts.devices)

    def _function(self, copies: Mapping[int, str], targets: Mapping[int, int], devices: Any) -> Callable[[Any], Kept]:
        items = "".join(f"{copies.get(i, f'a[{i}]')}, " for i in range(len(self._infos)))
        versions = f"({''.join(f'a[{i}]._version, ' for i in self._checked)})"
        states = "states_of(devices)" if devices else "()"
        pairs = [(f"a[{targets.get(i, i)}]", self._infos[i].is_static) for i in self._written]
        counters = "".join(f"({x}, {x}._version), " if static else f"counter_of({x}), " for x, static in pairs)
        refs = [f"ref(a[{targets[i]}])" if i in targets else f"ref(a[{i}]) if not a[{i}].is_leaf else gone" for i in self._linked]
        scope = {**SAVING, "states_of": states_of, "devices": devices, "copy": copy_in_place_of, "gone": lambda: None}
        scope |= {"rows": self._rows, "row_of": row_of}
        values = [
            f"({items})" if copies or targets else "a",
            versions,
            states,
            f"({counters})",
            f"({''.join(f'{x}, ' for x in refs)})",
            f"({''.join(f'a[{write.slot}], ' for write in self._repeated)})",
        ]
        rows = [f"    row_{place} = row_of(rows[{place}], a).clone()" for place in self._rows]
        return compile_function("keep", "a", [*rows, f"    return {', '.join(values)}"], scope)

    def checked(self, kept: Kept) -> list[Any]:
        """The inputs, when nobody wrote to those that are needed since, and all have their histories."""
        self.check(kept, self._checked)
        _check_linked(kept[4], [1] * len(kept[4]), 0)
        inputs: list[Any] = [None if i in self._counted else x for i, x in enumerate(kept[0])]
        for slot in self._former:
            inputs[slot] = FormerValue.apply(*inputs[slot])
        return [_recorded(x, info.requires_grad) for x, info in zip(inputs, self._infos, strict=True)]

    def check(self, kept: Kept, slots: Collection[int]) -> None:
        """Raises where somebody wrote to one of these inputs since."""
        inputs, versions, _, counters, *_ = kept
        found = [(slot, inputs[slot]._version, version) for slot, version in zip(self._checked, versions, strict=True)]
        for (slot, newer), (counter, before) in zip(self._written.items(), counters, strict=True):
            found.append((slot, counter._version, before + newer))
        for slot, version, expected in found:
            if slot in slots and version != expected:
                raise _modified(f"input {self._infos[slot].name}", version, expected)


def _recorded(value: Any, requires_grad: bool) -> Any:
    """An input as it was when the graph ran: whether it requires grad may have been changed since."""
    if not isinstance(value, torch.Tensor) or value.requires_grad == requires_grad:
        return value
    return value.detach().requires_grad_(requires_grad)


@dataclass(frozen=True)
class Gradients:
    """A component's backward: compiled, and as `again(inputs, results, tangents)`, which is differentiable itself: inputs of the captured
    graph, then results that the component takes and its own, and tangents.

    with_other_data: the gradients where `.data = other` gave an input other memory since, of the inputs that are watched and what `run` takes.
    """

    run: Call
    again: Callable[..., Any]
    with_other_data: Callable[..., Any]


def wrap_autograd(facts: TrainingFacts, forward: Call, gradients: Sequence[Gradients]) -> Callable[..., tuple[Any, ...]]:
    """args -> the caller's outputs, differentiable to any order."""
    signature = facts.signature
    # counted once the Functions have saved what they need: what they save of an input that is written is then refused, as eager does
    forward = _torch.counting_writes(forward, dict.fromkeys(sorted(signature.mutated_in_graph), 0))
    leads = len(gradients) == 1 and bool(signature.components[0].inputs)
    # a Function of all inputs may get clones of those, and detached ones
    apart = {*dict(signature.write_backs), *(_unreached(signature) if leads else ())}
    alone = (
        leads
        and not (signature.views or signature.hooked or facts.backwards[0].stages)
        and all(apart.isdisjoint(info.kept.inputs) for info in signature.tangents)
    )
    # for gradients of gradients the results are what their own formulas read, so that nothing may come between
    own = {signature.tangents[one.component.tangents[place]].slot for one in facts.backwards for place in one.reads.own}
    records = torch.is_grad_enabled()
    views = aliased(signature) - own if records else frozenset()  # made where gradients are off they would have no history
    apply = _one_node(facts, forward, *gradients) if alone else _several_nodes(facts, forward, gradients, views)
    make = output_maker(signature, aliased(signature) - views if alone else aliased(signature))
    write_backs = signature.write_backs
    targets = [slot for slot, _ in write_backs]
    cloned = [
        slot for slot in targets if any(slot in one.reads.inputs for one in facts.backwards) or _read_behind(signature, slot)
    ]
    written = signature.newer_versions if alone else ()
    unreached = _unreached(signature) if alone else []

    def plain(*args: Any) -> tuple[Any, ...]:
        return make(args, apply(*args))

    if is_plain(signature) and not write_backs and not written and not unreached and records:
        return apply

    def full(*args: Any) -> tuple[Any, ...]:
        given = list(args)
        with torch.enable_grad():
            for slot in unreached:
                given[slot] = args[slot].detach()
            for slot in cloned:
                given[slot] = copy_in_place_of(args[slot])
            if alone:
                graph_outputs = apply(*given)
                for slot, output in write_backs:
                    write_back(args[slot], graph_outputs[output], signature.inputs[slot].newer)
            else:
                graph_outputs = apply(*given, *[args[slot] for slot in targets])
        _torch.add_versions(args, written)
        return make(args, graph_outputs)

    return full if write_backs or written or unreached or not records else plain


def write_back(tensor: torch.Tensor, value: torch.Tensor, newer: int) -> torch.Tensor:
    """Gives an input its new value, and as many more versions."""
    tensor.copy_(value)
    if newer:
        _torch.add_versions((tensor,), ((0, newer),))
    return tensor


def _read_behind(signature: Signature, slot: int) -> bool:
    """Whether a component is computed from an input as it was which a component before it gives its new value."""
    output = dict(signature.write_backs)[slot]
    gives = [any(signature.tangents[place].slot == output for place in c.tangents) for c in signature.components]
    return any(slot in c.inputs for c in signature.components[gives.index(True) + 1 :])


def _unreached(signature: Signature) -> list[int]:
    """Input slots that no result's history leads to: the engine would go on behind them, to hooks that see no gradient in eager."""
    reached = signature.components[0].inputs
    return [i for i, info in enumerate(signature.inputs) if info.requires_grad and i not in reached]


def _apart(part: _Part) -> list[int]:
    """Which of a node's results get a node of their own: all of several operators; torch's operator for it does not take complex ones."""
    if len(part.tangents) == 1 or part.component.of_one_operator:
        return []
    return [place for place, info in enumerate(part.tangents) if not info.dtype.is_complex]


def _one_node(facts: TrainingFacts, forward: Call, gradients: Gradients) -> Callable[..., tuple[Any, ...]]:
    """The forward inside of the Function whose backward the component has; all results are the Function's."""
    signature = facts.signature
    part = _Part(facts, facts.backwards[0], gradients)
    lines = ["ctx.originals = keep(args)", *_values(signature), *part.saving()]
    if constant := facts.constant_results:
        lines.append(f"ctx.mark_non_differentiable({', '.join(f'values[{i}]' for i in constant)})")
    count = signature.number_of_graph_outputs
    lines.append(f"return tuple(values[:{count}])" if any(facts.saved) else "return tuple(values)")
    scope = {"keep": part.keeper.keep, **SAVING, **_scope(signature, forward)}
    run = compile_function("forward", "ctx, *args", [f"    {line}" for line in lines], scope)
    slots = [info.slot for info in part.tangents]
    function = part.function(run, slots, part.all_at_once(_spread(part.component.inputs, len(signature.inputs))))
    return _torch.direct_apply(function, [slots[place] for place in _apart(part)])


def _several_nodes(
    facts: TrainingFacts, forward: Call, gradients: Sequence[Gradients], viewed: Collection[int]
) -> Callable[..., tuple[Any, ...]]:
    """The forward first, then for each component a Function from its inputs, and results of those before it, to its results.

    Behind the inputs it takes those that get new values outside: they get them behind the component that gives them. viewed: the graph
    outputs that are shown through views, to the components that take them, too.
    """
    signature = facts.signature
    lines = [*_values(signature), "return values"]
    run = compile_function("forward", "args", [f"    {line}" for line in lines], _scope(signature, forward))
    nodes = []
    for one, of_it in zip(facts.backwards, gradients, strict=True):
        part = _Part(facts, one, of_it)
        results = "".join(f"values[{info.slot}], " for info in part.tangents)
        lines = ["ctx.originals = originals", *part.saving()]
        inputs, taken, slots = part.component.inputs, part.component.results, [info.slot for info in part.tangents]
        if one.reads.taken:
            lines.append(f"ctx.taken = ({''.join(f'given[{len(inputs) + place}], ' for place in one.reads.taken)})")
            lines.append("ctx.edges = [edge_of(tensor) for tensor in ctx.taken]")
        lines.append(f"return ({results})")
        arguments = "ctx, values, originals, given, *args" if one.stages else "ctx, values, originals, *given"
        made = compile_function("forward", arguments, [f"    {line}" for line in lines], {**SAVING})
        begins = () if inputs or taken else (torch.empty(0, requires_grad=True),)  # history that leads to nowhere

        def spread(found: Any, last: tuple[None, ...] = (None,) * len(begins)) -> tuple[Any, ...]:
            return (None, None, *found, *last)

        if one.stages:
            chain = Chain(
                [stage.gradients for stage in one.stages], one.reaching, signature.tangents[part.component.tangents[0]].device
            )
            function = part.function(made, range(len(slots)), chain.first)
            apply_one = chain.applied(_torch.direct_apply(function, _apart(part)))
        else:
            function = part.function(made, range(len(slots)), part.all_at_once(spread))
            apply_one = _torch.direct_apply(function, _apart(part))
        nodes.append((part.keeper.keep, apply_one, _hooked_last(signature, inputs), inputs, taken, slots, begins))
    count, places = signature.number_of_graph_outputs, len(signature.inputs)
    first, behind = _views_in_order(signature)
    targets = {output: (number, slot) for number, (slot, output) in enumerate(signature.write_backs)}
    written = [[(output, *targets[output]) for output in slots if output in targets] for *_, slots, _ in nodes]
    without_history = [slot for slot in viewed if all(slot != info.slot for info in signature.tangents)]

    def apply(*args: Any) -> tuple[Any, ...]:
        originals = [keep(args) for keep, *_ in nodes]
        args, to_write = args[:places], args[places:]
        with torch.no_grad():
            values = run(args)
        _torch.add_versions(args, signature.newer_versions)
        graph_outputs, now = list(values[:count]), [*args]
        for slot in without_history:
            graph_outputs[slot] = _torch.alias(graph_outputs[slot])
        make_views(first, now, graph_outputs)
        for original, (_, node, hooked, inputs, taken, slots, begins), outputs, views in zip(
            originals, nodes, written, behind, strict=True
        ):
            given = [*[args[i] for i in inputs], *[graph_outputs[i] for i in taken]]
            for place in hooked:
                given[place] = _torch.with_own_node(given[place])
            for slot, result in zip(slots, node(values, original, *given, *begins), strict=True):
                graph_outputs[slot] = _torch.alias(result) if slot in viewed else result
            for output, number, slot in outputs:
                tensor = write_back(to_write[number], graph_outputs[output], signature.inputs[slot].newer)
                now[slot] = graph_outputs[output] = tensor
            make_views(views, now, graph_outputs)
        return tuple(graph_outputs)

    return apply


def _hooked_last(signature: Signature, inputs: Sequence[int]) -> list[int]:
    """Places of leaves with hooks among a component's inputs, those last that a backward comes to first: the engine runs the latest node
    first, and what follows a node of their own is theirs alone. Leaves that follow one node come in no order."""
    return [inputs.index(slot) for slot in reversed(signature.hooked) if slot in inputs]


def _views_in_order(signature: Signature) -> tuple[list[TakenView], list[list[TakenView]]]:
    """The views that components take: those that can be made before all, and behind each component."""
    there: set[int] = set()
    write_backs = dict(signature.write_backs)

    def ready() -> list[TakenView]:
        found = []
        for view in signature.views:  # a view of a view is behind it
            base = base_of(view.info, write_backs)
            if view.slot not in there and (base is None or base in there):
                there.add(view.slot)
                found.append(view)
        return found

    first, behind = ready(), []
    for component in signature.components:
        there.update(signature.tangents[place].slot for place in component.tangents)
        behind.append(ready())
    return first, behind


def _values(signature: Signature) -> list[str]:
    """Lines that run the forward on `args`: only the steps that this signature needs."""
    rows = "*[row_of(memory, args) for memory in shared], " if signature.shared else ""
    given = f"[*args, {rows}*constants]" if rows or signature.constants else "list(args)"
    lines = [f"values = run({given})"]
    if views := " or ".join(f"values[{info.slot}]._is_view()" for info in signature.tangents):
        # memory taken over from another value, say; autograd refuses writes to a view that comes out of a Function
        lines.append(f"if {views}: values = [v.detach() if i in results and v._is_view() else v for i, v in enumerate(values)]")
    if signature.output_versions:
        slots, versions = zip(*signature.output_versions, strict=True)
        lines.append(f"set_versions([{', '.join(f'values[{slot}]' for slot in slots)}], {versions})")
    return lines


def _scope(signature: Signature, forward: Call) -> dict[str, Any]:
    results = frozenset(info.slot for info in signature.tangents)
    rows = {"row_of": row_of, "shared": signature.shared}
    return {"run": forward, "constants": signature.constants, "results": results, "set_versions": _torch.set_versions, **rows}


def counter_of(result: torch.Tensor) -> tuple[torch.Tensor, int]:
    """What counts the writes to a result and to all that share its memory, without keeping that, and how many there were."""
    counter = result.detach()
    counter.data = NO_MEMORY
    return counter, counter._version


NO_MEMORY = torch.empty(0, device="cpu")
# what lines of _Part.saving call
SAVING = {
    "hooks": _torch.saved_tensor_hooks,
    "ref": weakref.ref,
    "counter_of": counter_of,
    "edge_of": _torch.edge_of,
}


def readers(tangents: Sequence[TangentInfo], slots: Callable[[TangentInfo], Collection[int]]) -> dict[int, int]:
    """Slot -> the tangents that have it, as the bits of a number."""
    found: dict[int, int] = {}
    for place, info in enumerate(tangents):
        for slot in slots(info):
            found[slot] = found.get(slot, 0) | 1 << place
    return found


class _Part:
    """A component: what its Function keeps, and the Function."""

    def __init__(self, facts: TrainingFacts, backward: BackwardFacts, gradients: Gradients) -> None:
        self.component = backward.component
        self.tangents = [facts.signature.tangents[place] for place in self.component.tangents]
        self._facts, self._backward = facts, backward
        self._gradients = gradients
        self._static = [info.sizes for info in self.tangents]
        self._shapes_vary = not all(isinstance(n, int) for sizes in self._static for n in sizes)
        self._once = sum(1 << place for place, info in enumerate(self.tangents) if info.runs_once)
        self._later = LaterBackwards(backward.shared, backward.readers, self._once)
        self._watched_results, self._watched_inputs = dict(backward.unsaved_results), dict(backward.unsaved_inputs)
        self._linked_results = readers(self.tangents, lambda info: info.linked[0])
        self._linked_inputs = readers(self.tangents, lambda info: info.linked[1])
        self.keeper = Keeper(facts, backward.reads, self._watched_inputs, self._linked_inputs)

    def saving(self) -> list[str]:
        """Lines that keep for the backward what it needs of `values`, which the forward gave."""
        backward, tangents = self._backward, self.tangents
        count, sizes = self._facts.signature.number_of_graph_outputs, self._facts.saved[0]
        lines = ["ctx.set_materialize_grads(False)"]
        if self._shapes_vary:
            lines.append(f"ctx.shapes = [{', '.join(f'values[{info.slot}].shape' for info in tangents)}]")
        if sizes:
            lines.append(f"ctx.sizes = values[{count}:{count + sizes}]")
        if self._later.possible:
            lines.append("ctx.kept = None")
        if backward.saved:
            places = [count + sizes + place for place in backward.saved]
            given = [f"values[{i}]{way}" for i, way in zip(places, backward.ways, strict=True)]
            if backward.kept_result is not None:
                given[backward.kept_result] = f"values[{tangents[0].slot}]"
            lines.append(f"ctx.save_for_backward({', '.join(given)})")
        if repeated := self._facts.signature.repeated:
            values = "".join(f"values[{w.value}], " for w in repeated if w.value is not None)
            lines.append(f"ctx.repeated = (ctx.originals[5], ({values}))")
        if self._watched_results:
            lines.append(f"ctx.counters = ({''.join(f'counter_of(values[{slot}]), ' for slot in self._watched_results)})")
        if self._linked_results:
            lines.append(f"ctx.linked = ({''.join(f'ref(values[{slot}]), ' for slot in self._linked_results)})")
        own = [tangents[place].slot for place in backward.reads.own]
        if own and backward.kept_result is None:
            lines.append(f"ctx.own = [{', '.join(f'(ref(values[{slot}]), values[{slot}]._version)' for slot in own)}]")
        if backward.watched:  # under hooks, backward reads what they give back
            lines.append("inputs = ctx.originals[0]")
            lines.append(f"ctx.places = None if hooks() else [{', '.join(f'inputs[{i}].data_ptr()' for i in backward.watched)}]")
        return lines

    def all_at_once(self, spread: Callable[[Any], tuple[Any, ...]]) -> Give:
        """Gives all gradients, to the places that `spread` puts them to."""
        reaching = self._backward.reaching

        def give(found: Any, undefined: Sequence[int]) -> tuple[Any, ...]:
            return spread(defined(found, reaching, undefined) if undefined else found)

        return give

    def function(self, run: Callable[..., Any], places: Sequence[int], give: Give) -> Any:
        """The Function that `run` is the forward of. places: those of the component's results among the Function's; give: from what was
        computed, and the tangents that were undefined, the gradients in the places of its arguments."""
        facts = self._backward
        has_sizes, saves = bool(self._facts.saved[0]), bool(facts.saved)
        tangent_infos, shapes_vary, static = self.tangents, self._shapes_vary, self._static
        backward_run, again, keeper, later = self._gradients.run, self._gradients.again, self.keeper, self._later
        reads, counts = facts.reads, (len(self.component.results), len(self.tangents))
        readers, once = [*self._watched_results.values()], bool(self._once)
        input_readers = self._watched_inputs
        linked, linked_inputs = [*self._linked_results.values()], [*self._linked_inputs.values()]
        kept_result, watched = facts.kept_result, facts.watched
        with_other_data = self._gradients.with_other_data
        repeated = self._facts.signature.repeated

        class CompiledFunction(torch.autograd.Function):
            forward = staticmethod(run)

            @staticmethod
            @_torch.untraced_by_torch_compile
            def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
                shapes = ctx.shapes if shapes_vary else static
                given = [grads[place] for place in places]
                tangents = [coerce(g, i, shape) for g, i, shape in zip(given, tangent_infos, shapes, strict=True)]
                undefined = [n for n, g in enumerate(given) if g is None]
                saved = ()
                if saves or once:  # read even when not used: reading raises where the graph has been freed
                    saved = later.saved(ctx, undefined) if later.possible else ctx.saved_tensors
                missing = sum(1 << place for place in undefined)
                if repeated:
                    tensors, values = ctx.repeated
                    write_again(repeated, tensors, values, missing)
                if readers:
                    _check_counters(ctx.counters, readers, missing)
                if input_readers and ctx.originals is not None:
                    keeper.check(ctx.originals, [slot for slot, places in input_readers.items() if places & ~missing])
                if linked:
                    _check_linked(ctx.linked, linked, missing)
                if linked_inputs and ctx.originals is not None:
                    _check_linked(ctx.originals[4], linked_inputs, missing)
                if torch.is_grad_enabled():
                    if ctx.originals is None:
                        raise RuntimeError(
                            "Trying to backward through the graph a second time; pass retain_graph=True the first time"
                        )
                    with drawing_again(ctx.originals[2]):
                        taken = _with_history(ctx, reads.taken, counts[0])
                        own = [saved[kept_result]] if kept_result is not None else _alive(ctx, reads.own, counts[1])
                        return give(again(keeper.checked(ctx.originals), [*taken, *own], tangents), undefined)
                compute = backward_run
                if watched and ctx.originals is not None and ctx.places:
                    inputs = [ctx.originals[0][place] for place in watched]
                    if not _in_place(inputs, ctx.places, saved):
                        compute = functools.partial(with_other_data, inputs)
                    del inputs
                if not _torch.graph_is_kept():
                    if once:
                        ctx.originals = ctx.taken = None
                    if undefined and later.possible:
                        later.keep(ctx, saved, undefined)
                given = [*(ctx.sizes if has_sizes else ()), *saved, *tangents]
                ctx.maybe_clear_saved_tensors()  # unless the graph is kept: the backward gives each one back after its last use
                del saved, tangents
                return give(compute(given), undefined)

        return CompiledFunction


class LaterBackwards:
    """Results of one component whose histories are apart, as two losses that are returned with their sum: the backward of one leaves
    the other's in place, as in eager.

    They are apart where the backward does nothing with both tangents but add up the gradients of inputs. What was saved is kept then
    until the others had their turn; a result that had it, or shares history with one, raises as a graph that was freed does. shared, readers:
    as BackwardFacts has them; once: the tangents that run once.
    """

    def __init__(self, shared: Sequence[int], readers: Sequence[int], once: int) -> None:
        self._shared, self._readers = shared, readers
        self._all, self._once = (1 << len(shared)) - 1, once
        self.possible = any(mask != self._all for mask in shared)

    def _given(self, undefined: Sequence[int]) -> int:
        return self._all & ~sum(1 << place for place in undefined)

    def saved(self, ctx: Any, undefined: Sequence[int]) -> tuple[Any, ...]:
        """What the forward saved. Raises as autograd does where it is gone, or was written to."""
        if ctx.kept is None:
            return ctx.saved_tensors
        tensors, versions, freed = ctx.kept
        given = self._given(undefined)
        if given & freed & self._once:
            raise RuntimeError("Trying to backward through the graph a second time; pass retain_graph=True the first time")
        for tensor, version, readers in zip(tensors, versions, self._readers, strict=True):
            if readers & given and tensor._version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"a {tensor.dtype} tensor of shape {tuple(tensor.shape)} that a compiled graph saved"
                )
        return tensors

    def keep(self, ctx: Any, saved: tuple[Any, ...], undefined: Sequence[int]) -> None:
        """Keeps what was saved while a result that is apart from all that had their turn has not had it."""
        freed = ctx.kept[2] if ctx.kept is not None else 0
        given = self._given(undefined)
        for place, mask in enumerate(self._shared):
            freed |= mask if given >> place & 1 else 0
        versions = ctx.kept[1] if ctx.kept is not None else tuple(t._version for t in saved)
        ctx.kept = None if saved and freed == self._all else (saved, versions, freed)


def _with_history(ctx: Any, places: Sequence[int], count: int) -> list[Any]:
    """The results that a component takes, those in these places, where their history is still the one that it took them with."""
    results: list[Any] = [None] * count
    for number, place in enumerate(places):
        tensor = ctx.taken[number]
        if _torch.edge_of(tensor) == ctx.edges[number]:
            results[place] = tensor
    return results


def _check_counters(counters: Sequence[tuple[torch.Tensor, int]], readers: Sequence[int], missing: int) -> None:
    """Raises where a result was written to that eager keeps for a backward which runs, whatever the partition chose to keep instead.
    readers: for each counter the places of the tangents that have such a backward, as bits; missing: those that are undefined."""
    for (counter, version), places in zip(counters, readers, strict=True):
        if places & ~missing and counter._version != version:
            raise _modified("a result", counter._version, version)


def _check_linked(references: Sequence[Ref], readers: Sequence[int], missing: int) -> None:
    """Raises where a tensor that eager keeps with its history has lost that. Behind those with readers may be others."""
    for reference, places in zip(references, readers, strict=False):
        if places & ~missing and (tensor := reference()) is not None and tensor.grad_fn is None:
            raise RuntimeError(
                "Trying to use a saved tensor that has been detached in-place: an input or result of a compiled graph"
            )


def _modified(what: str, version: int, expected: int) -> RuntimeError:
    return RuntimeError(
        f"one of the variables needed for gradient computation has been modified by an inplace operation: {what} of a compiled graph is at "
        f"version {version}; expected version {expected}"
    )


def _alive(ctx: Any, places: Sequence[int], count: int) -> list[Any]:
    """A component's own results, those in these places, which somebody still has as they were."""
    results: list[Any] = [None] * count
    for number, place in enumerate(places):
        reference, version = ctx.own[number]
        tensor = reference()
        if tensor is not None and tensor._version == version and tensor.grad_fn is not None:
            results[place] = tensor
    return results


def _in_place(inputs: Sequence[torch.Tensor], addresses: Sequence[int], saved: Sequence[Any]) -> bool:
    """Whether inputs have the memory that they had, at these addresses; or the same storage, as a saved tensor shows: FSDP frees the memory
    of parameters after a forward, and fills it again, elsewhere, for the backward."""
    moved = [tensor for tensor, address in zip(inputs, addresses, strict=True) if tensor.data_ptr() != address]
    if not moved:
        return True
    kept = {(_torch.storage_of(t), t.storage_offset()) for t in saved if isinstance(t, torch.Tensor)}
    return all((_torch.storage_of(tensor), tensor.storage_offset()) in kept for tensor in moved)


def _spread(slots: Sequence[int], count: int) -> Callable[[Any], tuple[Any, ...]]:
    """Gradients to their places among the inputs."""
    places = {slot: position for position, slot in enumerate(slots)}
    items = "".join(f"g[{places[i]}], " if i in places else "None, " for i in range(count))
    return compile_function("spread", "g", [f"    return ({items})"], {})

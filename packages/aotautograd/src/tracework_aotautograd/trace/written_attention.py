"""Attention that a program wrote out and that is trained, as one operator: its backward is the operator's, which computes scores again.

What is found is what back ends find in a graph without a backward (written_attention.py of primops): a product, steps on its elements, a softmax
and a product. It is looked for when a captured node has run whose last operator is such a second product, in what was recorded until then; the
node's result is computed by the operator then, and nobody reads the products. Where somebody does, as is seen at the end of the forward, or
where it is not sure that gradients go through all steps as eager's, as behind a write in place, the products stay.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from tracework_primops import (
    FakeTensor,
    PrimError,
    attention_of_bodies,
    copy_node,
    decompose,
    run_passes,
    with_laid_out_gradient,
)
from tracework_primops.attention import NAN, NAN_SCORES, ZERO
from tracework_primops.spec import TensorSpec
from tracework_primops.symbols import Size
from tracework_primops.written_attention import WrittenAttention, are_moved, parts_of, pays, written_attention
from tracework_primops.written_bodies import AXES, MOST_CALLS, Read, StepBodies

from .. import _torch
from ..nodes import ancestors, function_of, operand_of
from ..partition.split import has_effect
from .distances import is_of_distances
from .memory import Root
from .tracer import Recorder

__all__ = ["AsOneOperator"]

aten = torch.ops.aten
log = logging.getLogger("tracework.aotautograd.attention")
PRODUCTS = frozenset({aten.bmm.default, aten.baddbmm.default})
HIGHEST = frozenset({aten.amax.default, aten.max.dim})
ORDERED = frozenset({aten.view.default, aten._unsafe_view.default, aten.clone.default, aten.reshape.default})
"""Calls that give the same elements in the same order."""
PLACED = frozenset(
    {*ORDERED, aten.permute.default, aten.transpose.int, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.default}
)
"""Calls that give the elements of the second product another place."""

GATHERS = frozenset({aten.embedding.default, aten.index.Tensor})
LINEAR = frozenset(
    {
        *GATHERS,
        *ORDERED,
        *PLACED,
        aten.expand.default,
        aten._to_copy.default,
        aten.add.Tensor,
        aten.sub.Tensor,
        aten.mul.Tensor,
        aten.neg.default,
    }
)
"""Calls that a bias by distances may be made by from a table; a gather's gradients are sums."""


class AsOneOperator:
    """Of one trace. devices: types of those with a kernel; stay: names of captured nodes whose attention stays written out; reasons: told why
    attention that is found stays so."""

    def __init__(self, recorder: Recorder, devices: Collection[str], stay: Collection[str], reasons: list[str]) -> None:
        self.recorder, self.devices, self.stay, self.reasons = recorder, devices, stay, reasons
        self.found: dict[str, _Attention] = {}

    def __call__(self, node: fx.Node, result: Any) -> Any:
        """What a captured node gives that gave `result`: the same values, by the operator if it is attention."""
        if not isinstance(result, FakeTensor) or result.device.type not in self.devices or not result.requires_grad:
            return result
        last = self._last_product(result)
        if last is None:
            return result
        try:
            if node.name in self.stay:
                raise _Stays("scores or weights are read by others, or operands have hooks or are written to")
            with _torch.without_modes():
                found = _Attention(self.recorder, last)
            made = found.result(result)
        except PrimError as error:
            log.debug("attention stays written out: %s", error)
            return result
        except _Stays as stays:
            if stays.reason:
                reason = f"{stays.reason} ({self.recorder.origin})"
                log.debug("attention computes all scores: %s", reason)
                self.reasons.append(reason)
            return result
        self.found[node.name] = found
        return made

    def _last_product(self, result: FakeTensor) -> fx.Node | None:
        """The product that the captured node has just computed its result by, if its first operand may be weights."""
        cell = self.recorder.memory.find(result)
        if cell is None or cell.root.slot is not None:
            return None
        *_, last = _back(cell.node, PLACED)
        if last.target is not aten.bmm.default or not self.recorder.is_of_this_node(last):
            return None
        weights = operand_of(last).meta["val"]
        count = _elements(weights)
        return last if count is not None and are_moved(count, weights.dtype) else None

    def read_by_others(self, outputs: Sequence[Any]) -> frozenset[str]:
        """Captured nodes between whose products somebody reads a value, or the gradient of one; or what is kept was written to since, and
        eager keeps a copy."""
        if not self.found:
            return frozenset()
        memory = self.recorder.memory
        cells = [memory.find(x) for x in outputs if isinstance(x, FakeTensor)]
        cells += [cell for cell in memory.inputs() if cell.root.writes]
        effects = [node for node in self.recorder.graph.nodes if has_effect(node)]
        live = ancestors([*effects, *(memory.read(cell) for cell in cells if cell is not None)])
        return frozenset(
            name
            for name, found in self.found.items()
            if not live.isdisjoint(found.between)
            or any(_has_hooks(x) for n in (*found.between, *found.passed) for x in _tensors(n))
            or any(root.writes for root in found.kept)
        )


class _Stays(Exception):
    """Products stay as they are written; with a reason if they are attention all the same."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class _Attention:
    """Attention whose second product is `last`. between: what is computed from the first product on; passed: other calls whose results get
    no gradients, or others than eager's; kept: memory that the operator keeps for its backward where eager keeps a copy."""

    def __init__(self, recorder: Recorder, last: fx.Node) -> None:
        self.recorder, self.last = recorder, last
        self.between = self._between()
        self.passed: list[fx.Node] = []
        self.kept: list[Root] = []
        self.given: dict[Any, fx.Node] = {}
        self.found = self._found()
        if not pays(self.found):
            raise _Stays
        self._check_gradients()
        self.bodies = StepBodies(self.found)

    # --- what is recorded ---------------------------------------------------------------------------------------------
    def _between(self) -> list[fx.Node]:
        """The calls between the products that depend on the first one, with it."""
        weights = operand_of(self.last)
        count = _elements(weights.meta["val"])
        firsts: set[fx.Node] = set()
        seen: set[fx.Node] = set()
        waiting = [weights]
        while waiting:
            node = waiting.pop()
            if node in seen or node.op != "call_function" or not _has_elements(node, count):
                continue
            seen.add(node)
            if node.target in PRODUCTS:
                firsts.add(node)
            waiting += (
                node.all_input_nodes[:1]
                if node.target is aten.baddbmm.default
                else []
                if node in firsts
                else node.all_input_nodes
            )
        if not firsts:
            raise _Stays
        depends = set(firsts)
        needed: list[fx.Node] = []
        node = min(firsts)
        while node is not self.last:
            if node in firsts or not depends.isdisjoint(node.all_input_nodes):
                depends.add(node)
                needed.append(node)
            node = node.next
        behind = {weights}
        for node in reversed(needed):
            if node in behind:
                behind.update(node.all_input_nodes)
        return [node for node in needed if node in behind]

    def _found(self) -> WrittenAttention:
        """What the matcher finds in these calls as prims. given: its placeholders -> what they stand for."""
        graph = fx.Graph()
        made: dict[fx.Node, fx.Node] = {}
        calls = [*self.between, self.last]
        read = [n for n in dict.fromkeys(n for node in calls for n in node.all_input_nodes) if n not in self.between]
        sums = [n for n in read if self._is_sum(n)]
        self.passed += sums
        read += [n for node in sums for n in node.all_input_nodes if n not in read]
        read = [n for n in read if n not in sums]
        constants = dict.fromkeys(c for n in read for c in _constants(n))
        leaves = [n for n in read if n not in constants]
        for node in leaves:
            made[node] = graph.placeholder(node.name)
            made[node].meta.update(node.meta)
        for node in (*sorted({*constants, *sums}), *calls):
            made[node] = copy_node(graph, node, made.__getitem__)
        graph.output((made[self.last],))
        is_softmax = any(n.target in (aten._softmax.default, aten.exp.default) for n in self.between)
        draws = any(isinstance(n.target, _torch.OpOverload) and _torch.draws(n.target) for n in self.between)
        if is_softmax and draws:
            raise _Stays("dropout draws eager's numbers for all weights")
        try:
            prim_graph = run_passes(decompose(fx.GraphModule({}, graph)))
        except PrimError as error:
            raise _Stays from error
        (last,) = prim_graph.outputs
        found = written_attention(last)
        if found is None:
            raise _Stays
        self.given = dict(zip(prim_graph.placeholders, leaves, strict=True))
        return replace(found, steps=tuple(part for step in found.steps for part in parts_of(step)))

    def _is_sum(self, node: fx.Node) -> bool:
        """Whether what is added to scores is a sum itself, of a bias with gradients and a mask without, say: parts are read by other axes."""
        value = node.meta["val"]
        is_added = node.target is aten.add.Tensor and len(node.args) == 2 and not node.kwargs and len(node.all_input_nodes) == 2
        return is_added and value.requires_grad and self._is_unwritten(value) and self._differentiates(node)

    # --- gradients ----------------------------------------------------------------------------------------------------
    def _check_gradients(self) -> None:
        """Raises where gradients do not go through all calls as eager's: some are no part of the history, or a function of the user says
        what they are."""
        found = self.found
        read = ancestors([found.query, found.key, found.value, *(s.tensor for s in found.steps if s.tensor is not None)])
        for prim, leaf in self.given.items():
            fake = self.recorder.memory.present(leaf)
            if not isinstance(fake, FakeTensor) or not fake.requires_grad:
                continue
            if not self._is_unwritten(fake):
                raise _Stays("an operand with gradients was written to in place")
            if prim not in read:  # baddbmm times 0
                raise _Stays("gradients that are 0 go to what is not read")
        for node in (*self.between, self.last):
            if any(x.dtype.is_floating_point and not self._is_unwritten(x) for x in _tensors(node)):
                raise _Stays("scores or weights were written to in place")
        highest: set[fx.Node] = set()
        count = _elements(operand_of(self.last).meta["val"])
        for node in self.between:
            is_of_highest = not _has_elements(node, count) and not highest.isdisjoint(node.all_input_nodes)
            if node.target in HIGHEST or is_of_highest:
                highest.add(node)  # its gradients cancel
            elif not self._differentiates(node):
                raise _Stays("gradients of scores are others than those of its products and steps")
        if not self._differentiates(self.last):
            raise _Stays("gradients of weights are others than those of its products and steps")

    def _differentiates(self, node: fx.Node) -> bool:
        """Whether the history of what a call gives is that call, and goes on with that of what it reads; as far as what was not written to
        can tell."""
        if node in self.recorder.untracked:
            return False
        values = [x for x in _tensors(node) if x.dtype.is_floating_point and self._is_unwritten(x)]
        given = [x for n in node.all_input_nodes for x in _tensors(n) if x.requires_grad and self._is_unwritten(x)]
        for value in values:
            if isinstance(value.grad_fn, torch.autograd.function.BackwardCFunction):
                return False
            following = [] if value.grad_fn is None else value.grad_fn.next_functions
            if not all(any(_begins(edge, x) for edge in following) for x in given):
                return False
        return True

    def _is_unwritten(self, value: FakeTensor) -> bool:
        cell = self.recorder.memory.find(value)
        return cell is not None and not cell.root.writes

    def _present(self, node: fx.Node) -> FakeTensor:
        """The fake that a node is the present value of, with its history."""
        fake = self.recorder.memory.present(node)
        if fake is None:
            raise _Stays("an operand was written to since")
        return fake  # type: ignore[return-value]

    # --- operands -----------------------------------------------------------------------------------------------------
    def _value(self, node: Any, made: dict[Any, Any] | None = None) -> Any:
        """What a prim gives, computed from present values."""
        made = {} if made is None else made
        if node not in made:
            if node in self.given:
                made[node] = self._present(self.given[node])
            else:
                args = fx.map_arg(node.args, lambda n: self._value(n, made))
                made[node] = node.target(*args, **node.kwargs)
        return made[node]

    def _operands(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value of (batch, heads, length, width), keys and values maybe of fewer heads."""
        _, heads, queries, keys = self.found.sizes
        given = (self.found.query, queries, False), (self.found.key, keys, True), (self.found.value, keys, False)
        q, k, v = (self._operand(*of, once=True) for of in given)
        if q.size(1) != heads or k.size(1) != v.size(1):
            q, k, v = (self._operand(*of, once=False) for of in given)
        return q, k.to(q.dtype), v.to(q.dtype)

    def _operand(self, prim: Any, length: Size, turned: bool, once: bool) -> torch.Tensor:
        """An operand of a product where it lies before it is copied for that; once: heads that stand several times, one after the other, once.
        turned: its last two axes are."""
        batch, heads, *_ = self.found.sizes
        operand = self._value(prim)
        shape: tuple[Any, ...] = (batch, heads, length, operand.size(1) if turned else operand.size(2))
        source = None
        passed: list[fx.Node] = []
        above: list[fx.Node] = []
        for node, is_turned in self._copied(self.given.get(prim), turned):
            value = node.meta["val"]
            if self._is_of_input(value) and not self._is_of_input(operand):
                break  # eager keeps the copy, and the caller may write to what it was made from
            if node.target is aten.expand.default and value.ndim == 5:
                own = operand_of(node).meta["val"].shape
                is_whole = (value.shape[0], value.shape[1] * value.shape[2], *value.shape[3:]) == shape
                if once and is_whole and not is_turned and own == (*value.shape[:2], 1, *value.shape[3:]):
                    heads_once = self._present(operand_of(node))
                    if not self._is_of_input(heads_once) or self._is_of_input(operand):
                        self._keep(heads_once, operand, [*above, node])
                        return self._with_gradient(operand, heads_once).squeeze(2)
            if not is_turned and value.shape == shape and value.dtype == operand.dtype:
                source, passed = node, list(above)
            above.append(node)
        if source is not None:
            present = self._present(source)
            self._keep(present, operand, passed)
            return self._with_gradient(operand, present)
        operand = self._with_gradient(operand)
        return (operand.transpose(1, 2) if turned else operand).reshape(shape)

    def _keep(self, source: FakeTensor, operand: FakeTensor, passed: Sequence[fx.Node]) -> None:
        """Notes that the operator keeps what an operand is made from by these calls."""
        self.passed += passed
        root = self.recorder.cell(source).root
        if root is not self.recorder.cell(operand).root:
            self.kept.append(root)

    def _is_of_input(self, value: torch.Tensor) -> bool:
        """Whether the caller owns the memory of a value."""
        cell = self.recorder.memory.find(value)
        return cell is not None and cell.root.slot is not None

    def _copied(self, node: fx.Node | None, turned: bool) -> Iterator[tuple[fx.Node, bool]]:
        """A node and what it is made of, as far as calls keep the order of elements, repeat them, or turn the last two axes, with whether these
        are turned."""
        while node is not None and node.op == "call_function":
            value = node.meta["val"]
            if not isinstance(value, FakeTensor) or value.is_symbolic or not self._is_unwritten(value):
                return
            yield node, turned
            source = node.args[0]
            if not isinstance(source, fx.Node) or not self._differentiates(node):
                return
            if node.target is aten.transpose.int or node.target is aten.permute.default:
                order = list(range(value.ndim))
                swapped = [*order[:-2], order[-1], order[-2]]
                if _order(node) not in (order, swapped):
                    return
                turned = turned is not (_order(node) == swapped)
            elif node.target is aten.expand.default:
                own = source.meta["val"].shape
                if own != value.shape and (turned or len(own) != 5):
                    return
            elif node.target not in ORDERED and node.target is not aten._to_copy.default or turned and _merges_last(node):
                return
            node = source
        if node is not None and isinstance(node.meta["val"], FakeTensor) and self._is_unwritten(node.meta["val"]):
            yield node, turned

    def _with_gradient(self, operand: torch.Tensor, source: torch.Tensor | None = None) -> torch.Tensor:
        """An operand of a product whose gradient lies in memory as eager's; or what it is made from by views and copies."""
        if not operand.requires_grad:
            return operand if source is None else source
        if source is operand:
            source = None
        with self.recorder.apart():
            grad = torch.empty_like(operand, memory_format=torch.contiguous_format)
            if source is not None:
                (grad,) = torch.autograd.grad(operand, source, grad, retain_graph=True)
        order = sorted(range(grad.ndim), key=grad.stride().__getitem__, reverse=True)
        return with_laid_out_gradient(operand if source is None else source, order)

    def _pass_bias(self, node: fx.Node) -> None:
        """Notes the calls between a table and a bias by distances, whose elements get gradients of their whole diagonals, or none: these come
        to the table as eager's where each call gives them on as they are, or times what is the same along diagonals."""
        waiting = [node]
        while waiting:
            n = waiting.pop()
            value = n.meta["val"]
            if n.op != "call_function" or not value.requires_grad or n in self.passed:
                continue
            if n.target not in LINEAR or not self._is_unwritten(value) or not self._differentiates(n):
                raise _Stays("gradients of a bias by distances are seen for each query and key")
            self.passed.append(n)
            waiting += [] if n.target in GATHERS else n.all_input_nodes

    # --- the operator -------------------------------------------------------------------------------------------------
    def result(self, written: FakeTensor) -> torch.Tensor:
        """What the captured node gives, by the operator."""
        captured, trained = self._captured()
        specs = [TensorSpec(x.dtype, x.device, tuple(x.shape)) for x in captured]
        with _torch.without_modes():
            score, keep, slope, factors = self.bodies.bodies(specs, trained)
        q, k, v = self._operands()
        own = [(of.place, of.axes, of.factor) for of in factors]
        out, _, _ = attention_of_bodies(q, k, v, captured, (), (), score, keep, slope, own, 1.0, (), self._empty())
        value = out.reshape(self.last.meta["val"].shape).contiguous()
        cell = self.recorder.cell(written)
        for node in reversed([n for n in _back(cell.node, PLACED) if n is not self.last]):
            value = function_of(node)(value, *node.args[1:], **node.kwargs)
        if value.shape != written.shape or value.stride() != written.stride() or value.dtype != written.dtype:
            raise _Stays("its result lies otherwise in memory")
        return value

    def _empty(self) -> str:
        """What a row gives whose scores are all -inf. In eager, its gradients are NaN until they come to where a number has replaced scores,
        and 0 from there on: where something is added before or after, it depends on the data what they are for that, and for the products."""
        kinds = [s.kind for s in self.found.steps]
        fills = [s for s in self.found.steps if s.kind == "fill"]
        hides = any(s.number == -math.inf for s in fills)
        if not all(s.number == -math.inf or abs(s.number) <= torch.finfo(s.dtype).max for s in fills):
            raise _Stays("infinity takes the place of scores")
        if self.found.zeroed:
            if not any(node.target is aten._safe_softmax.default for node in self.between):
                raise _Stays("rows that see nothing are 0 with gradients that are NaN")
            return ZERO
        if "add" not in kinds:
            return NAN if hides else ZERO
        if hides or "fill" in kinds and "add" in kinds[kinds.index("fill") :]:
            raise _Stays("rows that see nothing have gradients that depend on what hides them")
        return NAN_SCORES

    def _captured(self) -> tuple[list[torch.Tensor], dict[Read, str]]:
        """What bodies read, and the axes of what has gradients. Eager keeps no sum's operands for the backward, so that anybody may write to
        them until then: the operator keeps copies of what the caller, or a later call, could write to."""
        captured, trained = [], {}
        for read in self.bodies.read:
            node, views = read
            given = self._value(node)
            if not given.requires_grad:
                given = _copied_once(given) if self._is_of_input(given) else self.recorder.apart_from_writes(given)
            for n, sizes in enumerate(views):
                given = given.reshape(sizes) if n else given.expand(sizes)
            given = given.reshape((1,) * (4 - given.ndim) + tuple(given.shape))
            if given.requires_grad:
                given, trained[read] = self._of_axes(node, given)
                given = given.clone()
            captured.append(given)
        return captured, trained

    def _of_axes(self, node: Any, given: torch.Tensor) -> tuple[torch.Tensor, str]:
        """What is read of a tensor of four axes with gradients, and its axes."""
        axes = "".join(axis for axis, n in zip(AXES, given.shape, strict=True) if n != 1)
        if "i" in axes and "j" in axes:
            if node not in self.given or not is_of_distances(self.given[node]):
                raise _Stays("what is added to scores has gradients for each query and key")
            self._pass_bias(self.given[node])
            # From the lowest distance on: those of the first query from all keys, then those of others from the first key.
            given = torch.cat([given[:, :, :1].flip(3), given[:, :, 1:, :1].transpose(2, 3)], 3)
            axes = axes.replace("ij", "d")
        kept = {*axes, *("j" if axis == "d" else axis for axis in axes)}
        return given.squeeze(tuple(d for d, axis in enumerate(AXES) if axis not in kept)), axes


def _copied_once(x: torch.Tensor) -> torch.Tensor:
    """A copy, in which elements that an expand shows several times lie once."""
    own = x
    for dim, stride in enumerate(x.stride()):
        own = own.narrow(dim, 0, 1) if stride == 0 and x.size(dim) > 1 else own
    return own.clone().expand(x.shape)


def _has_hooks(value: FakeTensor) -> bool:
    return bool(value._backward_hooks) or value.retains_grad


def _begins(edge: tuple[Any, int], value: FakeTensor) -> bool:
    """Whether an edge of the history leads to that of a value."""
    if value.grad_fn is None:
        return getattr(edge[0], "variable", None) is value
    return edge == (value.grad_fn, value.output_nr)


def _back(node: fx.Node, through: Collection[Any]) -> Iterator[fx.Node]:
    """A node, and what it is made of as far as such calls go."""
    yield node
    while node.op == "call_function" and node.target in through:
        node = operand_of(node)
        yield node


def _tensors(node: fx.Node) -> list[FakeTensor]:
    value = node.meta["val"]
    return [x for x in (value if isinstance(value, (tuple, list)) else (value,)) if isinstance(x, FakeTensor)]


def _elements(value: FakeTensor) -> int | None:
    """How many there are, None where that is no number."""
    return None if value.is_symbolic else math.prod(value.shape)


def _has_elements(node: fx.Node, count: int | None) -> bool:
    return any(_elements(x) == count for x in _tensors(node))


def _order(node: fx.Node) -> list[int]:
    """The axes of what a transpose or a permute reads, as its result has them."""
    order = list(range(node.meta["val"].ndim))
    arguments: tuple[Any, ...] = node.args
    if node.target is aten.permute.default:
        return [dim % len(order) for dim in arguments[1]]
    a, b = (dim % len(order) for dim in arguments[1:])
    order[a], order[b] = b, a
    return order


def _merges_last(node: fx.Node) -> bool:
    """Whether a call that keeps the order of elements changes the last two axes."""
    return bool(node.meta["val"].shape[-2:] != operand_of(node).meta["val"].shape[-2:])


def _constants(node: fx.Node) -> list[fx.Node]:
    """A node with all that it is made of, if these are few calls that read nothing; else nothing."""
    found: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        n = waiting.pop()
        if n in found:
            continue
        found.add(n)
        if n.op != "call_function" or not isinstance(n.target, _torch.OpOverload) or _torch.draws(n.target):
            return []
        if len(found) > MOST_CALLS or not isinstance(n.meta["val"], FakeTensor) or n.meta["val"].requires_grad:
            return []
        waiting += n.all_input_nodes
    return list(found)

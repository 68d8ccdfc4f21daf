"""trace(): captured graph -> one ATen graph, forward only or forward and backward, and what its slots mean.

Reads top to bottom: inputs become fakes, the graph runs on them, inputs written to and outputs are classified, gradients are asked of the
autograd engine over the fakes, and the graph's outputs are put in order.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from tracework_primops import FakeMode, FakeTensor, PrimError

from .. import _torch
from .._torch import edge_of
from ..contracts import JointProgram
from ..errors import BehindAHook, FunctionalizationError, Refusal
from ..partition.split import needed_for
from ..signature import (
    Component,
    InputInfo,
    InputKind,
    Mutation,
    OutputInfo,
    OutputKind,
    Repeated,
    SharedMemory,
    Signature,
    SizeSlot,
    Slots,
    TakenView,
    TangentInfo,
    ViewStep,
    base_of,
)
from .attention import ALL_SCORES, with_attention
from .components import components, sources_of
from .cuts import Edge, behind, find_cuts, gradients_at, made_at, order_of_arrival, passed
from .masks import without_constant_masks
from .memory import Cell, Former, Root, dense_order, same_layout
from .repeats import in_order, tangents_behind
from .replay import GradientsOf, Replay
from .run import run_captured
from .shared import overlaps, shared_memory
from .tracer import BACKWARD, Recorder
from .views import PHYSICAL
from .written_attention import AsOneOperator

aten = torch.ops.aten

SHOWN = OutputKind.FRESH, OutputKind.ALIAS, OutputKind.BASE_VIEW
"""The kinds of results that are made from graph outputs."""

REFUSED_VIEWS = (
    "A view was created in no_grad mode",
    "is a view and its base or another view of its base has been modified inplace",
)
"""In what autograd says where it says no more of a view; eager says it where the view is used, if at all."""


@dataclass(eq=False)
class _GraphOutput:
    """One output of the forward graph: the fake that autograd differentiates and the node of its value."""

    fake: Any
    node: Any


@dataclass(frozen=True)
class Needs:
    """What a trace does where another one has found that it has to. bases: what a result is a view of is a graph output, also where the
    view alone could be one, so that the history can be cut there. former_values: the backward of a checkpoint reads what that computed,
    also where it was written over since. written_out: the captured nodes whose attention stays written out, since others read its scores.
    shared: inputs that show parts of one memory, since one of them is written to."""

    bases: bool = False
    former_values: bool = False
    written_out: frozenset[str] = frozenset()
    shared: tuple[SharedMemory, ...] = ()


class _Another(Exception):
    """This trace fails, one with these needs may not."""

    def __init__(self, needs: Needs) -> None:
        self.needs = needs


class Trace:
    """One trace; `run` gives the JointProgram."""

    def __init__(
        self,
        gm: fx.GraphModule,
        inputs: Sequence[Any],
        with_backward: bool,
        needs: Needs = Needs(),
        attention: Collection[str] = (),
        trained_attention: Collection[str] = (),
    ) -> None:
        reasons = gm.meta.setdefault(ALL_SCORES, [])  # the graphs made of it share the list
        self.gm = with_attention(without_constant_masks(gm), attention)
        self.examples = list(inputs)
        self.symbols = gm.meta.get("symbols")
        self.mode = FakeMode(self.symbols)
        self.recorder = Recorder(self.mode, needs.former_values)
        self.recorder.in_checkpoints = [] if with_backward else None
        self.last_kept: dict[Any, int] = {}
        """Checkpoint -> the place of the captured node that made the last value which eager keeps of it."""
        self.with_backward, self.needs = with_backward, needs
        self.attention = AsOneOperator(self.recorder, trained_attention, needs.written_out, reasons)
        self.infos: list[InputInfo] = []
        self.leaves: list[Any] = []  # what gradients are taken of
        self.values: list[Any] = []  # what the captured graph is run on
        self.histories: list[Any] = []  # their autograd nodes before it runs
        self.versions: list[int] = []  # and their versions
        self.known: list[Any] = []  # the captured fakes, or what stands for those
        self.graph_outputs: list[_GraphOutput] = []
        self.write_backs: dict[int, int] = {}  # input slot -> the graph output that is copied there outside
        self.hooked: tuple[int, ...] = ()  # leaves with hooks, as the signature has them
        self.replay = Replay(self.gm, _torch.Modes.now(), former_values=needs.former_values)

    def run(self) -> JointProgram:
        """The whole trace."""
        with _torch.tracing_state():
            try:
                self._inputs()
                with self.mode:
                    self.mode.recorder = self.recorder
                    return self._finish(self._outputs())
            except PrimError as error:
                raise Refusal(f"{type(error).__name__}: {error}", self.recorder.origin) from error
            except RuntimeError as error:  # autograd says no more of some views, which eager may give all the same
                if not any(words in str(error) for words in REFUSED_VIEWS):
                    raise
                raise Refusal(f"{type(error).__name__}: {error}", self.recorder.origin) from error
            finally:
                self.mode.recorder = None
                self.mode.forget_reals()

    def _outputs(self) -> tuple[Any, ...]:
        try:
            outputs = run_captured(self.gm, self.values, self.recorder, self.attention)
        except FunctionalizationError as refusal:
            raise FunctionalizationError(refusal.reason, refusal.origin or self.recorder.origin) from refusal
        except (RuntimeError, NotImplementedError) as error:  # an op looked for data that fakes do not have, or eager fails too
            raise Refusal(f"{type(error).__name__}: {error}", self.recorder.origin) from error
        if read := self.attention.read_by_others(outputs):
            raise _Another(replace(self.needs, written_out=self.needs.written_out | read))
        return outputs

    # --- inputs -------------------------------------------------------------------------------------------------------
    def _inputs(self) -> None:
        storages: dict[int, Any] = {}
        placeholders = [n for n in self.gm.graph.nodes if n.op == "placeholder"]
        if len(placeholders) != len(self.examples):
            raise Refusal(f"the graph takes {len(placeholders)} inputs, {len(self.examples)} were given")
        rows = {slot: memory for memory in self.needs.shared for slot, _ in memory.parts}
        for slot, (node, example) in enumerate(zip(placeholders, self.examples, strict=True)):
            self._input(slot, node, example, storages, rows.get(slot))
        for memory in self.needs.shared:
            self._shared(memory)
        self.histories = [getattr(value, "grad_fn", None) for value in self.values]
        self.versions = [getattr(value, "_version", 0) for value in self.values]

    def _shared(self, memory: SharedMemory) -> None:
        """The row that inputs show parts of, as one more input."""
        slots = [slot for slot, _ in memory.parts]
        spec = self.leaves[slots[0]].spec
        row = self.mode.make(spec.replace(sizes=(memory.length,), strides=(1,), offset=0))
        place = sum(1 for node in self.recorder.graph.nodes if node.op == "placeholder")
        self.recorder.placeholder(f"memory_of_{self.infos[slots[0]].name}", row, place)
        cell = self.recorder.cell
        self.recorder.memory.share([cell(self.values[slot]) for slot in slots], cell(row), [begin for _, begin in memory.parts])

    def _input(
        self, slot: int, node: fx.Node, example: Any, storages: dict[int, Any], memory: SharedMemory | None = None
    ) -> None:
        binding = node.meta.get("binding")
        static = bool(getattr(binding, "is_static", False))
        known = node.meta.get("example_value", example)
        self.known.append(known)
        if isinstance(known, torch.SymInt):
            self.infos.append(InputInfo(node.name, InputKind.SIZE))
            self.recorder.placeholder(node.name, known, slot)
            self.values.append(known)
            self.leaves.append(None)
            return
        if isinstance(example, (tuple, list)):
            raise Refusal(f"input {node.name} is several values")
        if not isinstance(example, torch.Tensor):
            self.infos.append(InputInfo(node.name, InputKind.CONSTANT, constant=example))
            self.recorder.placeholder(node.name, example, slot)
            self.values.append(example)
            self.leaves.append(None)
            return
        requires_grad = self.with_backward and example.requires_grad
        is_parameter = isinstance(example, torch.nn.Parameter)
        self.infos.append(InputInfo(node.name, InputKind.TENSOR, static, is_parameter, example.requires_grad))
        leaf = self._fake(example, known, storages, requires_grad, slot, memory)
        value = leaf
        if requires_grad and not example.is_leaf:
            with torch.enable_grad():  # the graph may begin where gradients are off, and switch them on
                value = aten.clone.default(leaf)  # so that the program may write to it, as it may in eager
            value.storage, value.spec = leaf.storage, leaf.spec
        self.recorder.placeholder(node.name, value, slot)
        self.leaves.append(leaf)
        self.values.append(value)

    def _fake(
        self,
        example: torch.Tensor,
        known: Any,
        storages: dict[int, Any],
        requires_grad: bool,
        slot: int,
        memory: SharedMemory | None,
    ) -> FakeTensor:
        """A fake of this trace's own with the captured one's sizes; inputs over one storage share one. Where the parts of shared memory
        begin is counted from where that does."""
        if not isinstance(known, FakeTensor):
            known = self.mode.from_real(example.detach())
        key = id(known.storage) if memory is None else id(memory)
        spec = known.spec if memory is None else known.spec.replace(offset=dict(memory.parts)[slot])
        fake = self.mode.make(spec, storages.get(key), requires_grad)
        storages.setdefault(key, fake.storage)
        return fake

    # --- after the forward --------------------------------------------------------------------------------------------
    def _finish(self, outputs: tuple[Any, ...]) -> JointProgram:
        recorder = self.recorder
        self._check_leaves(outputs)
        self._check_pieces(outputs)
        written = self._written_inputs()
        roots = [c.root for c in (self._cell(o) for o in outputs) if c is not None]
        shared = {id(r) for r in roots if sum(r is other for other in roots) > 1}
        infos = []
        seen: dict[int, int] = {}
        for position, output in enumerate(outputs):
            infos.append(self._classify(output, position, seen, shared))
        versions = self._output_versions(outputs, infos)
        self._write_back(written, outputs)
        shown = {info.slot for info in infos if info.requires_grad and info.kind in SHOWN}
        shown.update(self.write_backs.values())
        inside = frozenset(slot for slot, x in enumerate(self.values) if any(x is made for made in recorder.inside.values()))
        self.replay = replace(self.replay, written=tuple(self.write_backs), inside=inside)
        candidates = self._candidates(outputs, infos)
        tangents, parts, views = self._backward(shown, outputs, candidates) if self.with_backward else ((), [], {})
        for position, view in views.items():
            infos[position] = OutputInfo(OutputKind.FRESH, view.slot, requires_grad=True)
        infos = self._views_of_views(outputs, infos, views)
        repeated = self._repeated([part for part, _ in parts], [gradients for _, gradients in parts], tangents)
        forward_nodes = [o.node for o in self.graph_outputs]
        recorder.graph.output((*forward_nodes, *(gradient for _, gradients in parts for gradient in gradients)))
        signature = Signature(
            tuple(self.infos),
            tuple(infos),
            len(forward_nodes),
            tuple(self.write_backs.items()),
            tangents,
            tuple(component for component, _ in parts),
            tuple(recorder.constants),
            tuple(views.values()),
            versions,
            self.hooked,
            tuple([(slot, *place) for slot, place in recorder.memory.places.items()]),
            self.needs.shared,
            repeated,
        )
        gm = _torch.graph_module(recorder.graph)
        self._check_counters(signature)
        return JointProgram(gm, signature, self.mode, self.symbols, self.replay)

    def _cell(self, value: Any) -> Cell | None:
        return self.recorder.memory.find(value) if isinstance(value, FakeTensor) else None

    def _check_pieces(self, outputs: tuple[Any, ...]) -> None:
        """What `unsafe_split` and its like give is made of views here. Eager's are none to autograd: nobody may see a difference, which
        lies in what a write does to them, and in which write a backward notices."""
        cells = [cell for output in outputs if (cell := self._cell(output)) is not None]
        given = {id(cell) for cell in cells}
        for cell in cells:
            while (cell := cell.parent) is not None:
                given.add(id(cell))
        seen = {id(cell.root) for cell in cells}
        for piece, writes, origin in self.recorder.pieces:
            is_kept = self.with_backward and (piece.root.slot is not None or id(piece.root) in seen)
            if id(piece) in given or piece.root.writes != writes or is_kept:
                reason = (
                    "views that nobody knows to be some are given back or written to; split and chunk give such that are known"
                )
                raise Refusal(reason, origin)

    def _check_leaves(self, outputs: tuple[Any, ...]) -> None:
        """A leaf made inside that the caller gets, with another output that depends on it, asks for gradients that would have to come
        out of the graph.

        One that outputs only depend on is out of everybody's reach: nobody sees what would accumulate there. But where no input asks for
        gradients, the compiled graph is no node of autograd, and its outputs have no history. And hooks inside of
        what the caller gets would not change what hooks and gradients outside see.
        """
        inputs = {id(v) for v in (*self.values, *self.leaves)}
        given = [o for o in outputs if isinstance(o, FakeTensor)]
        if any(o._backward_hooks for o in (*given, *self.values) if isinstance(o, FakeTensor)):
            raise Refusal("a hook of a result of the graph", self.recorder.origin)
        given += [base for o in given if isinstance(base := o._base, FakeTensor)]
        made = {id(o) for o in given if o.is_leaf and o.requires_grad and id(o) not in inputs}
        shown = any(o._is_view() and id(o._base) in made for o in given)
        history = any(_has_history(o) for o in given) and not any(info.requires_grad for info in self.infos)
        if history or made and (shown or not made.isdisjoint(map(id, _leaves_below(given)))):
            raise Refusal("a tensor made in the graph is asked for its gradient", self.recorder.origin)

    def _written_inputs(self) -> dict[int, Cell]:
        """Input slots whose memory was written. Where that is memory of other inputs, too, another trace knows it."""
        written = {}
        for slot, value in enumerate(self.values):
            cell = self._cell(value)
            if cell is not None and cell.root.writes:
                written[slot] = cell
        if not written:
            return written
        meeting = overlaps(self.examples, self.known, written)
        rows = [shared_memory(found, self.examples) for found in meeting]
        shared = tuple(row for row in rows if row is not None)
        refused = [group for group, row in zip(meeting, rows, strict=True) if row is None]
        if refused or self.needs.shared and shared != self.needs.shared:
            names = ", ".join(self.infos[each.slot].name for each in [*refused, *meeting][0])
            raise Refusal(f"inputs {names} share memory and one of them is written to")
        if shared != self.needs.shared:
            raise _Another(replace(self.needs, shared=shared))
        return written

    def _check_counters(self, signature: Signature) -> None:
        """Raises where a backward keeps an input while another one is written to that counts versions together with it: in eager it may
        raise, which depends on what was first."""
        kept = {slot for info in signature.tangents for slot in info.kept.inputs}
        written = [slot for slot, info in enumerate(self.infos) if info.newer]
        for slot in kept:
            for other in written:
                if slot != other and _torch.counts_with(self.examples[slot], self.examples[other]):
                    names = f"{self.infos[slot].name} and {self.infos[other].name}"
                    raise Refusal(f"inputs {names} share memory, one is kept for the backward and the other is written to")

    def _classify(self, output: Any, position: int, seen: dict[int, int], shared: set[int]) -> OutputInfo:
        if isinstance(output, torch.SymInt):
            return OutputInfo(OutputKind.SIZE, self._add(None, self.recorder.size_node(output)))
        if not isinstance(output, FakeTensor):
            if isinstance(output, torch.Tensor):
                output = self.recorder.constant(output)
            else:
                return OutputInfo(OutputKind.CONSTANT, constant=output)
        if id(output) in seen:
            return OutputInfo(OutputKind.OUTPUT, seen[id(output)])
        seen[id(output)] = position
        cell = self.recorder.cell(output)
        needs_grad = _has_history(output)
        for slot, value in enumerate(self.values):
            if value is output:
                return OutputInfo(OutputKind.INPUT, slot, requires_grad=needs_grad)
        if cell.root.slot is None:
            self._check_layout(cell.root)
        else:
            self._check_views(output, cell)
            steps = self._steps(cell)
            if not output.is_inference():
                steps = tuple(s if s.data is None else replace(s, data=output._version) for s in steps)
            return OutputInfo(OutputKind.INPUT_VIEW, self._input_of(cell), steps, needs_grad)
        is_view = cell.parent is not None
        # of one out of several that an op gives, autograd refuses writes
        is_piece = is_view and needs_grad and any(step.index is not None for step in self.recorder.memory.steps(cell))
        untracked = _untracked(output) and output._base is cell.root.fake
        is_lazy = any(step.target in PHYSICAL for step in self.recorder.memory.steps(cell))  # it says is_conj or is_neg
        shows_base = self.needs.bases and needs_grad and cell.root.fake is not None and _has_history(cell.root.fake)
        if is_view and (id(cell.root) in shared or dense_order(output) is None or is_piece or is_lazy or untracked or shows_base):
            self._check_views(output, cell)
            steps, base = self.recorder.memory.steps(cell), cell.root.fake  # none of what turned in place
            if base is not None and output._base is base and _has_history(base) and not all(step.tracked for step in steps):
                self.replay = replace(self.replay, untracked=(*self.replay.untracked, position))
            return OutputInfo(OutputKind.BASE_VIEW, self._base(cell), self._steps(cell), needs_grad or untracked)
        if id(cell.root) in shared:
            return OutputInfo(OutputKind.BASE_VIEW, self._base(cell), (), needs_grad)
        kind = OutputKind.ALIAS if output._is_view() else OutputKind.FRESH
        return OutputInfo(kind, self._add(output, self.recorder.memory.read(cell)), requires_grad=needs_grad)

    def _input_of(self, cell: Cell) -> int:
        slot = self.recorder.memory.input_of(cell)
        if slot is None:  # as_strided of what only memory behind several inputs shows
            raise Refusal("a result shows memory that no input does", self.recorder.origin)
        return slot

    def _check_layout(self, root: Root) -> None:
        """What is written to memory with gaps is computed without them."""
        made = root.fake
        if root.writes and made is not None and made.spec.numel() != 0 and not same_layout(root.node.meta["val"], made):
            raise Refusal("a write to memory with gaps that the graph has made and gives back", self.recorder.origin)

    def _check_views(self, output: FakeTensor, cell: Cell) -> None:
        """Made again outside, the views have gradients of their own: one that an autograd.Function gives its view is not among them, nor
        one of what was written to a view that autograd takes for a tensor of its own."""
        own_history = "a detached view that is a result of the graph got a history of its own"
        if _has_history(output) and cell.step is not None and not output._is_view():
            raise Refusal(own_history, self.recorder.origin)
        parent = cell.parent
        while parent is not None:
            if parent.fake._backward_hooks:
                raise Refusal("a hook of what a result of the graph is a view of", self.recorder.origin)
            parent = parent.parent
        node, made = output.grad_fn, cell.root.fake if cell.root.slot is None else None
        begins = {*self.histories} if made is None else {made.grad_fn}
        while node is not None and node not in begins:
            if isinstance(node, torch.autograd.function.BackwardCFunction):
                raise Refusal("an autograd.Function gives a view that is a result of the graph", self.recorder.origin)
            node = node.next_functions[0][0] if node.next_functions else None
        steps = self.recorder.memory.steps(cell)
        is_tracked = all(step.tracked for step in steps)  # to one made under no_grad no history leads
        is_apart = any(step.target is aten.detach.default for step in steps)
        if (is_apart if made is None else is_tracked and node is None) and _has_history(output):
            raise Refusal(own_history, self.recorder.origin)

    def _steps(self, cell: Cell) -> tuple[ViewStep, ...]:
        """View steps with symbolic sizes as graph outputs."""

        def slotted(arg: Any) -> Any:
            if isinstance(arg, torch.SymInt):
                return SizeSlot(self._add(None, self.recorder.size_node(arg)))
            return type(arg)(map(slotted, arg)) if isinstance(arg, (list, tuple)) else arg

        return tuple(replace(s, args=slotted(s.args)) for s in self.recorder.memory.steps(cell))

    def _base(self, cell: Cell) -> int:
        root = cell.root
        if root.fake is None:
            raise Refusal("an output shows memory whose sizes the graph changed in place", self.recorder.origin)
        for slot, made in enumerate(self.graph_outputs):
            if made.fake is root.fake:
                return slot
        return self._add(root.fake, root.node)

    def _add(self, fake: Any, node: Any) -> int:
        self.graph_outputs.append(_GraphOutput(fake, node))
        return len(self.graph_outputs) - 1

    def _output_versions(self, outputs: tuple[Any, ...], infos: list[OutputInfo]) -> tuple[tuple[int, int], ...]:
        fakes = [(slot, o.fake) for slot, o in enumerate(self.graph_outputs) if isinstance(o.fake, FakeTensor)]
        # torch.ones and its like give another tensor than the one that they made, with a version of its own
        shown = [(i.slot, o) for o, i in zip(outputs, infos, strict=True) if i.kind is OutputKind.BASE_VIEW]
        fakes += [(slot, o._base if o._is_view() else o) for slot, o in shown]
        versions: dict[int, int] = {}
        for slot, fake in fakes:
            versions[slot] = 0 if fake.is_inference() else max(fake._version, versions.get(slot, 0))
        return tuple((slot, version) for slot, version in versions.items() if version)

    def _write_back(self, written: dict[int, Cell], outputs: tuple[Any, ...]) -> None:
        """Inputs written to: a copy_ at the end of the graph, or an output copied back where autograd has to see it."""
        captured, recorded = ([n for n in graph.nodes if n.op == "placeholder"] for graph in (self.gm.graph, self.recorder.graph))
        copied: set[int] = set()
        for slot, cell in written.items():
            value = self.recorder.memory.read(cell)
            is_shared = cell.root.is_shared
            if self.with_backward and self.values[slot].requires_grad and self.values[slot].grad_fn is not self.histories[slot]:
                if is_shared:
                    raise Refusal(f"a write that is recorded to input {self.infos[slot].name}, which shares memory with another")
                self._check_siblings(slot, cell, outputs)
                self.write_backs[slot] = self._add(self.values[slot], value)
                self.infos[slot] = replace(self.infos[slot], mutation=Mutation.BY_WRAPPER)
                continue
            may_be_view = not self.examples[slot].is_leaf and not captured[slot].meta.get("never_a_view")
            if self.infos[slot].requires_grad and may_be_view:  # which gets another node of its own by that
                raise Refusal("a write that is not recorded to an input with a history", self.recorder.origin)
            self.infos[slot] = replace(self.infos[slot], mutation=Mutation.SHARED if is_shared else Mutation.IN_GRAPH)
            place = cell.root.slot if is_shared and cell.root.slot is not None else slot
            if place in copied:
                continue
            copied.add(place)
            placeholder = recorded[place]
            node = self.recorder.node(
                aten.copy_.default, (placeholder, cell.root.node if is_shared else value), {}, placeholder.meta["val"]
            )
            node.meta["write_back"] = place
        for slot, value in enumerate(self.values):
            newer = getattr(value, "_version", 0) - self.versions[slot]
            if self.infos[slot].mutation is Mutation.BY_WRAPPER:
                newer = max(newer - 1, 0)  # its copy_ is one
            self.infos[slot] = replace(self.infos[slot], newer=newer)

    def _check_siblings(self, slot: int, cell: Cell, outputs: tuple[Any, ...]) -> None:
        """Raises for an input that is a view itself where others see its new value through views that were there before: autograd gives
        those the history of its base then, in which it has no part."""
        older = any(found.is_older and found.root is cell.root for o in outputs if (found := self._cell(o)) is not None)
        if self.examples[slot]._is_view() and (older or cell.root.read_through_older):
            raise Refusal("a write to an input that is a view and has views, which are read afterwards", self.recorder.origin)

    # --- the backward -------------------------------------------------------------------------------------------------
    def _backward(
        self, shown: set[int], results: tuple[Any, ...], candidates: dict[Edge, tuple[int, OutputInfo]]
    ) -> tuple[tuple[TangentInfo, ...], list[tuple[Component, list[fx.Node]]], dict[int, TakenView]]:
        """Of the graph outputs whose history somebody gets: of others (a base of detached views) it may be gone. With the views that
        components take, by their places among the caller's outputs."""
        recorder = self.recorder
        outputs = [(slot, self.graph_outputs[slot]) for slot in sorted(shown)]
        differentiable = [(slot, o) for slot, o in outputs if isinstance(o.fake, FakeTensor) and _has_history(o.fake)]
        differentiable.sort(key=lambda found: made_at(found[1].fake))
        wanted = {slot: self.leaves[slot] for slot, info in enumerate(self.infos) if info.requires_grad}
        if not differentiable or not wanted:
            return (), [], {}
        recorder.phase = BACKWARD
        ends = {node for node in self.histories if node is not None} | {node for node, _ in recorder.inside}
        # before there are more: what nodes have saved comes out of them as views
        fresh, views_there = recorder.memory.fresh(), recorder.memory.views()
        passing = {edge_of(c.fake) for c in views_there if _has_history(c.fake) and not c.fake._backward_hooks}
        kept = self._kept([edge_of(o.fake)[0] for _, o in differentiable])
        made: list[tuple[TangentInfo, Any, fx.Node]] = []
        before, roots = len(self.graph_outputs), len(differentiable)
        idle: set[Edge] = set()
        apart = True
        while True:
            cuts, hidden = (
                self._cuts([o for _, o in differentiable], ends, candidates, fresh, passing, idle) if apart else (set(), [])
            )
            hidden.sort(key=lambda found: made_at(found[0]))
            differentiable += [(self._add(fake, node), _GraphOutput(fake, node)) for fake, node in hidden]
            made += [self._tangent(slot, output) for slot, output in differentiable[len(made) :]]
            views = self._taken_views(results, {edge: found for edge, found in candidates.items() if edge in cuts})
            parts, nothing = self._components(differentiable, made, wanted, cuts, [*views.values()])
            if parts is not None:
                break
            apart, idle = bool(nothing), idle | nothing
            # what differentiates gradients can rarely run uncompiled, and gradients between gradients are rarely asked for
            if not apart and not any(isinstance(node.target, GradientsOf) for node in self.gm.graph.nodes):
                raise Refusal(
                    "results that are computed from others, with gradients that do not come apart there", recorder.origin
                )
            self._undo([node for _, _, node in made[roots:]])
            del differentiable[roots:], made[roots:], self.graph_outputs[before:]
        fakes = [*(o.fake for _, o in differentiable), *(self.graph_outputs[view.slot].fake for view in views.values())]
        self.replay = self.replay.finding(self.values, results, fakes, ends)
        rewritten = (i for i, o in enumerate(self.graph_outputs) if isinstance(o.fake, FakeTensor) and o.fake._version)
        self.replay = replace(self.replay, rewritten=frozenset(rewritten))
        self._check_cuts(results, cuts)
        infos = []
        for (info, _, _), (_, output) in zip(made, differentiable, strict=True):
            formulas = [kept[node] for node in behind(edge_of(output.fake), cuts, ends) if node in kept]
            memory, tensors = (_merged([formula[part] for formula in formulas]) for part in (0, 1))
            infos.append(replace(info, kept=memory, linked=tensors, runs_once=bool(formulas)))
        return tuple(infos), parts, views

    def _repeated(
        self, parts: Sequence[Component], gradients: Sequence[Sequence[Any]], tangents: Sequence[TangentInfo]
    ) -> tuple[Repeated, ...]:
        """What checkpoints write to inputs and the backward writes again."""
        writes = in_order([w for w in self.recorder.in_checkpoints or () if w.times(self.last_kept)])
        if not writes or not parts:
            return ()
        if any(node.target is torch.autograd.grad for node in self.gm.graph.nodes):
            raise Refusal("a checkpoint that writes to inputs, with its backward in the same graph")
        nodes = list(self.recorder.graph.nodes)
        last = [n for n in nodes if n.op == "placeholder" and n.meta["phase"] == BACKWARD]
        sources = sources_of(nodes, last)
        found = []
        for write in writes:
            behind = [tangents_behind(write.region, needed_for(of_it, set()), sources) for of_it in gradients]
            if not any(behind):
                continue
            if len(parts) > 1:
                raise Refusal("a checkpoint that writes to inputs, with results that have nothing in common")
            value = None if write.value is None else self._add(write.value.meta["val"], write.value)
            found.append(Repeated(write.slot, behind[0], write.number, value, write.times(self.last_kept)))
        return tuple(found)

    def _undo(self, tangents: Collection[fx.Node]) -> None:
        """Takes out of the graph what an attempt at the gradients put there, and these tangents."""
        graph = self.recorder.graph
        for node in reversed(graph.nodes):
            if node.meta["phase"] == BACKWARD and not node.users and not isinstance(node.meta["val"], torch.SymInt):
                if node.op == "call_function" or node in tangents:
                    graph.erase_node(node)

    def _kept(self, starts: Collection[Any]) -> dict[Any, tuple[Slots, Slots]]:
        """For the autograd nodes behind these that keep anything whose memory that is, and which tensors with a history of their own;
        no outputs that are copied to an input, which the caller has instead."""
        written = self.write_backs.values()
        results = [(Slots(results=(slot,)), o.fake) for slot, o in enumerate(self.graph_outputs) if slot not in written]
        inputs = [(Slots(inputs=(slot,)), value) for slot, value in enumerate(self.values)]
        known = [(slots, x) for slots, x in (*results, *inputs) if isinstance(x, FakeTensor) and not x.is_inference()]
        memory: dict[int, list[Slots]] = {}
        for slots, fake in known:
            memory.setdefault(id(fake.storage), []).append(slots)
        fixed = {id(value) for value, info in zip(self.values, self.infos, strict=True) if info.is_parameter}
        tensors = {id(x): slots for slots, x in known if x.requires_grad and not x._is_view() and id(x) not in fixed}
        found = {}
        for node in dict.fromkeys((*starts, *(node for node, _ in passed(starts)))):
            try:
                saved = _torch.saved_by(node)
            except RuntimeError as error:  # as the backward does
                if self.recorder.checkpoint_of(node) is not None and not self.needs.former_values:
                    raise _Another(replace(self.needs, former_values=True)) from error
                raise Refusal(f"the backward of this graph fails: {error}", self.recorder.origin) from error
            if self.recorder.in_checkpoints and any(isinstance(x, FakeTensor) for x in saved):  # numbers are kept apart
                place, level = self.recorder.begin_of(node)
                self.last_kept[level] = max(place, self.last_kept.get(level, -1))
            if saved or node.name() == "CopySlices":  # which is gone after a backward, too
                shown = self._kept_for(node, saved)
                linked = [tensors[id(t)] for t in shown if id(t) in tensors and t.grad_fn is not node]
                found[node] = _merged([slots for t in shown for slots in memory.get(id(t.storage), ())]), _merged(linked)
        return found

    def _kept_for(self, node: Any, saved: Collection[Any]) -> list[FakeTensor]:
        """What eager keeps for an autograd node: in a checkpoint the arguments of that."""
        fakes = [t for t in saved if isinstance(t, FakeTensor)]
        reads = self.recorder.checkpoint_of(node)
        if reads is None or not fakes:
            return fakes
        if any(t._version != version for t, version in reads):
            raise Refusal("the backward of this graph fails: an argument of a checkpoint is written to", self.recorder.origin)
        return [t for t, _ in reads]

    def _candidates(self, results: tuple[Any, ...], infos: list[OutputInfo]) -> dict[Edge, tuple[int, OutputInfo]]:
        """Views among the results, and their places, that may be made before what is computed from them: their history is that of their
        steps, those behind one that was made under no_grad."""
        found = {}
        for position, (result, info) in enumerate(zip(results, infos, strict=True)):
            if info.kind not in (OutputKind.INPUT_VIEW, OutputKind.BASE_VIEW) or not _has_history(result):
                continue
            begin, steps = self.recorder.cell(result), 0
            while begin.step is not None and begin.parent is not None and begin.step.tracked:
                begin, steps = begin.parent, steps + 1
            if _leads_to(begin.fake, result, steps):
                found[edge_of(result)] = position, info
        return found

    def _taken_views(self, results: tuple[Any, ...], chosen: dict[Edge, tuple[int, OutputInfo]]) -> dict[int, TakenView]:
        """The views that components take, each made from another of them where it is a view of that."""
        views: dict[int, TakenView] = {}
        slots: dict[int, tuple[int, int]] = {}  # id of a view's cell -> its slot, the number of its steps
        for position, info in sorted(chosen.values(), key=lambda found: len(found[1].steps)):
            cell = self.recorder.cell(results[position])
            parent = self._parent(cell, slots)
            if parent is not None:
                base, count = slots[id(parent)]
                info = replace(info, kind=OutputKind.BASE_VIEW, slot=base, steps=info.steps[count:])
            slot = self._add(cell.fake, self.recorder.memory.read(cell))
            slots[id(cell)] = slot, len(chosen[edge_of(cell.fake)][1].steps)
            views[position] = TakenView(slot, info)
        return views

    def _views_of_views(self, results: tuple[Any, ...], infos: list[OutputInfo], taken: dict[int, TakenView]) -> list[OutputInfo]:
        """A view of a result that is a view is made from that: gradients with respect to it are asked for, and its base is that where one
        was detached in the graph."""
        kinds = (OutputKind.INPUT_VIEW, OutputKind.BASE_VIEW)
        made = [p for p, info in enumerate(infos) if info.kind in kinds and info.steps or p in taken]
        places = {id(self.recorder.cell(results[position])): position for position in made}
        found = [*infos]
        for position in made:
            parent = self._parent(self.recorder.cell(results[position]), places) if position not in taken else None
            if parent is not None:
                steps = infos[position].steps[len(self.recorder.memory.steps(parent)) :]
                found[position] = replace(infos[position], kind=OutputKind.OUTPUT_VIEW, slot=places[id(parent)], steps=steps)
        return found

    def _parent(self, cell: Cell, among: Collection[int]) -> Cell | None:
        """The nearest of these cells that a cell is a view of, where its history leads there: after a write it leads to the base."""
        parent, steps = cell.parent, 1
        while parent is not None and id(parent) not in among:
            parent, steps = parent.parent, steps + 1
        if parent is None:
            return None
        is_base = cell.fake._base is parent.fake and not cell.fake.requires_grad
        return parent if is_base or _leads_to(parent.fake, cell.fake, steps) else None

    def _cuts(
        self,
        outputs: list[_GraphOutput],
        ends: set[Any],
        candidates: dict[Edge, tuple[int, OutputInfo]],
        fresh: list[Cell],
        passing: set[Edge],
        idle: set[Edge],
    ) -> tuple[set[Edge], list[tuple[Any, Any]]]:
        """Where the history is cut, and the values there that become results, with their nodes. Inside at none with hooks: they see all
        that comes to it. At none that is `idle`: no gradient comes to it. passing: the edges of views in the forward."""
        if len(outputs) < 2 and not candidates:
            return set(), []
        memory = self.recorder.memory
        shared = Counter(o.node for o in outputs)
        cuttable = {edge_of(o.fake) for o in outputs if o.node.op != "placeholder" and shared[o.node] == 1} - idle
        shown = {id(cell.root) for o in outputs if (cell := memory.find(o.fake)) is not None}

        def made() -> dict[Edge, Any]:
            found: dict[Edge, Any] = {edge_of(former): former for former in memory.former}
            for cell in fresh:
                can_show = id(cell.root) not in shown or cell.parent is None and not self.needs.bases
                if can_show and _has_history(cell.fake) and not cell.fake._backward_hooks:
                    found[edge_of(cell.fake)] = cell.fake
            return {edge: value for edge, value in found.items() if edge not in idle}

        roots = {edge_of(o.fake) for o in outputs}
        bases = {edge: base_of(info, self.write_backs) for edge, (_, info) in candidates.items() if edge not in roots}
        views = {edge: None if base is None else edge_of(self.graph_outputs[base].fake) for edge, base in bases.items()}
        views = {edge: base for edge, base in views.items() if edge not in idle and (base is None or base in cuttable)}
        passing = passing - {*roots, *views}
        inputs = zip(self.leaves, self.values, self.examples, strict=True)  # of what has a history the nodes are among the ends
        hooked = [leaf for leaf, value, x in inputs if leaf is value and isinstance(x, torch.Tensor) and x._backward_hooks]
        with self.recorder.apart():  # a leaf is asked for its node by way of a view
            begins = ends.union(torch.autograd.graph.get_gradient_edge(leaf).node for leaf in hooked if leaf.requires_grad)
        edges, hidden = find_cuts([o.fake for o in outputs], cuttable, begins, passing, made, views)
        if any((cell := self._cell(value)) is not None and id(cell.root) in shown for value in hidden):
            raise _Another(replace(self.needs, bases=True))
        return edges, [
            (value, value.node if isinstance(value, Former) else memory.read(self.recorder.cell(value))) for value in hidden
        ]

    def _check_cuts(self, results: tuple[Any, ...], cuts: set[Edge]) -> None:
        """Raises where the history of a result goes past another without a cut at it, which another trace may have."""
        inputs = {id(value) for value in self.values}
        shown = [r for r in results if isinstance(r, FakeTensor) and id(r) not in inputs and _has_history(r)]
        places = {edge_of(value) for value in (*shown, *(self.values[slot] for slot in self.write_backs))}
        cells = [cell for r in shown if (cell := self._cell(r)) is not None]
        can_show = not self.needs.bases and any(cell.parent is not None and cell.root.slot is None for cell in cells)
        if can_show and places & passed({node for node, _ in places}) - cuts:
            raise _Another(replace(self.needs, bases=True))
        if places & passed({node for node, _ in places}) - cuts and any(
            c.fake._backward_hooks for c in self.recorder.memory.fresh()
        ):
            raise BehindAHook("results that are computed from others share history with them at a hook", self.recorder.origin)

    def _tangent(self, slot: int, output: _GraphOutput) -> tuple[TangentInfo, Any, fx.Node]:
        spec = output.fake.spec
        spec = spec if dense_order(output.fake) is not None else spec.replace(strides=None)
        fake = self.mode.make(spec.replace(offset=0))
        node = self.recorder.tangent(f"tangent_{slot}", fake)
        return TangentInfo(slot, spec.dtype, spec.device, spec.sizes, _order(fake)), fake, node

    def _components(
        self,
        outputs: list[tuple[int, _GraphOutput]],
        made: list[tuple[TangentInfo, Any, fx.Node]],
        wanted: dict[int, Any],
        cuts: set[Edge],
        views: list[TakenView],
    ) -> tuple[list[tuple[Component, list[fx.Node]]] | None, set[Edge]]:
        """The gradients, by component. At a cut the engine goes on with the tangent of the result instead of what comes to it. None where
        they do not come apart at the cuts, with those to which nothing comes."""
        tangents = [fake for _, fake, _ in made]
        edges = [edge_of(o.fake) for _, o in outputs]
        roots = [place for place, edge in enumerate(edges) if edge not in cuts]
        flowing = [place for place, edge in enumerate(edges) if edge in cuts]
        inside = self.recorder.inside
        instead: dict[Edge, Any] = dict.fromkeys(inside)
        instead |= {edges[place]: tangents[place] for place in flowing}
        taken = {view.slot: edge_of(self.graph_outputs[view.slot].fake) for view in views}
        instead |= dict.fromkeys(taken.values())
        targets = [[leaf, *(e for e, x in inside.items() if x is self.values[slot])] for slot, leaf in wanted.items()]
        hooked = {
            slot: leaf for slot, leaf in wanted.items() if leaf is self.values[slot] and _torch.has_hooks(self.examples[slot])
        }
        try:
            with _torch.without_autocast(), _torch.as_in_losses(self.gm.graph), order_of_arrival(hooked) as order:
                grads = gradients_at(
                    [*targets, *([edges[place]] for place in flowing), *([edge] for edge in taken.values())],
                    [edges[place] for place in roots],
                    [tangents[place] for place in roots],
                    instead,
                    functools.partial(_torch.gradients, retain_graph=bool(cuts)),
                )
        except (RuntimeError, ValueError) as error:  # eager raises this when its backward runs, if it ever does
            raise Refusal(f"the backward of this graph fails: {error}", self.recorder.origin) from error
        self.hooked = tuple(order) if len(order) > 1 else ()
        arrived, at_views = grads[len(targets) : len(targets) + len(flowing)], grads[len(targets) + len(flowing) :]
        if nothing := {edges[place] for place, gradient in zip(flowing, arrived, strict=True) if gradient is None}:
            return None, nothing
        gradients = {slot: self._gradient(gradient) for slot, gradient in zip(wanted, grads[: len(targets)], strict=True)}
        flows = {outputs[place][0]: self._gradient(gradient) for place, gradient in zip(flowing, arrived, strict=True)}
        flows |= {slot: self._gradient(gradient) for slot, gradient in zip(taken, at_views, strict=True) if gradient is not None}
        bases = {view.slot: base_of(view.info, self.write_backs) for view in views}
        nodes = {info.slot: node for info, _, node in made}
        times = {slot: made_at(o.fake) for slot, o in outputs}
        return components(self.recorder.graph, nodes, gradients, flows, bases, times, self.recorder.emit), set()

    def _gradient(self, grad: Any) -> Any:
        if grad is None:
            return None
        node = self.recorder.to_node(grad)
        if dense_order(grad) is None:
            node = self.recorder.emit(aten.clone.default, node, memory_format=torch.contiguous_format)
        return node


def _leaves_below(fakes: list[FakeTensor]) -> list[torch.Tensor]:
    """What a backward from these would accumulate gradients into."""
    waiting: list[Any] = [fake.grad_fn for fake in fakes if _has_history(fake)]
    seen, leaves = set(), []
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        waiting.extend(following for following, _ in node.next_functions)
    return leaves


def _has_history(fake: torch.Tensor) -> bool:
    """A view made under no_grad says that it requires grad, and has nothing to differentiate."""
    return fake.requires_grad and fake.grad_fn is not None


def _untracked(fake: torch.Tensor) -> bool:
    """Such a view, of something that has."""
    base = fake._base
    return base is not None and _has_history(base) and fake.requires_grad and fake.grad_fn is None


def _merged(found: Collection[Slots]) -> Slots:
    return Slots(*(tuple(sorted({slot for slots in found for slot in slots[side]})) for side in (0, 1)))


def _leads_to(base: torch.Tensor, view: FakeTensor, steps: int) -> bool:
    """Whether the history of a view that so many steps made begins with theirs, and goes on with that of its base: of one made under
    no_grad there is none."""
    edge = edge_of(view)
    for _ in range(steps):
        if edge[0] is None or not edge[0].next_functions:
            return False
        edge = edge[0].next_functions[0]
        if edge == edge_of(base) or getattr(edge[0], "variable", None) is base:
            return True
    return False


def _order(fake: FakeTensor) -> tuple[int, ...] | None:
    return None if fake.is_contiguous() else dense_order(fake)


def trace_joint(
    gm: fx.GraphModule, inputs: Sequence[Any], attention: Collection[str] = (), trained_attention: Collection[str] = ()
) -> JointProgram:
    """Forward and backward of a captured graph (or any fx graph of torch calls) in one ATen graph.

    inputs: real tensors, ints, None, one for each placeholder; attention, trained_attention: as AotOptions has them. Raises Refusal where the
    graph cannot be put into functional form.
    """
    return _traced(lambda needs: Trace(gm, inputs, True, needs, attention, trained_attention))


def trace_inference(gm: fx.GraphModule, inputs: Sequence[Any], attention: Collection[str] = ()) -> JointProgram:
    """The same without a backward."""
    return _traced(lambda needs: Trace(gm, inputs, False, needs, attention))


def _traced(trace: Callable[[Needs], Trace]) -> JointProgram:
    needs = Needs()
    while True:
        try:
            return trace(needs).run()
        except _Another as another:
            needs = another.needs

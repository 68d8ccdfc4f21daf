"""GuardSet + what the graph needs as inputs + conditions on sizes -> one native program, and the same program in Python.

The native program is a tree: guards with a common path share its accessors, values that are inputs of the graph are kept on the way.
What fails most comes first: arguments of the frame, then torch's state, then the rest. Conditions and identities come after the walk, and
last what runs code of the program, which it would only run where all else holds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch

from .. import _C, _torch
from ..errors import GuardBuildError
from ..signals import let_through
from ..sources import Ambient, Local, Source, TensorSize, root
from ..weakly_held import held, is_held, there
from . import shapes
from .access import Scope, fetch, steps_of
from .guard import Guard, GuardSet, TensorFacts, payload_key
from .kinds import kind_of, tensor_sizes

ACCESSOR = {name: number for number, name in enumerate(_C.ACCESSORS)}
LEAF = {name: number for number, name in enumerate(_C.LEAVES)}
CONDITION, SAME, DISTINCT, RELATION = range(4)


@dataclass(frozen=True)
class Failure:
    """The first guard that does not hold: a Guard, or a RecordedCondition; `value` is what was found, `error` why nothing was.

    Of a DISTINCT guard the value is the two sources that are the same object.
    """

    guard: Any
    value: Any = None
    error: Exception | None = None


@dataclass
class Program:
    """A built program. `labels` are the guards by the numbers that the native program reports, `mortal` what it cannot outlive."""

    native: _C.GuardProgram
    guards: tuple[Guard, ...]
    collect: tuple[Source, ...]
    conditions: tuple[Any, ...]
    symbols: dict[str, Source]
    labels: tuple[Any, ...]
    mortal: tuple[tuple[Any, Source], ...] = field(default=())

    def run(self, scope: Scope) -> tuple[Any, ...] | Failure:
        """The same check in Python: the inputs, or the first failure."""
        last = [guard for guard in self.guards if runs_program(guard)]
        for guard in self.guards:
            failure = None if guard in last else check_guard(guard, scope)
            if failure is not None:
                return failure
        try:
            failed = shapes.first_failure(self.conditions, self.symbols, scope)
            if failed is not None:
                return Failure(*failed)
            found = tuple(fetch(source, scope) for source in self.collect)
        except Exception as error:
            let_through(error)
            return Failure(None, error=error.with_traceback(None))
        return next((failure for guard in last if (failure := check_guard(guard, scope)) is not None), found)

    def text(self) -> str:
        """Guards, conditions and inputs, one a line."""
        lines = [str(guard) for guard in self.guards] + [f"CONDITION {condition}" for condition in self.conditions]
        return "\n".join(lines + [f"INPUT {i} {source}" for i, source in enumerate(self.collect)])


def runs_program(guard: Guard) -> bool:
    """Whether the guard calls a function of the program."""
    return guard.kind == "RELATION" and getattr(guard.payload[0], "runs_program", False)


def check_guard(guard: Guard, scope: Scope) -> Failure | None:
    """One guard in Python."""
    try:
        value = fetch(guard.source, scope)
        if guard.kind == "SAME":
            return None if value is fetch(guard.payload, scope) else Failure(guard, value)
        if guard.kind == "DISTINCT":
            objects = [fetch(source, scope) for source in guard.payload]
            seen: dict[int, Source] = {}
            for found, source in zip(objects, guard.payload):
                if (first := seen.setdefault(id(found), source)) is not source:
                    return Failure(guard, (first, source))
            return None
        if guard.kind == "RELATION":
            holds, sources = guard.payload
            values = tuple(fetch(source, scope) for source in sources)
            return None if holds(*values) else Failure(guard, values)
        if not is_held(guard.payload):
            return Failure(guard, value)
        return None if kind_of(guard.kind).check(value, there(guard.payload)) else Failure(guard, value)
    except Exception as error:
        let_through(error)
        return Failure(guard, error=error.with_traceback(None))


COMPARED_BY_IDENTITY = ("TYPE", "IDENTITY", "NOT_IDENTITY", "CODE")


def build_program(
    guards: Iterable[Guard], collect: Sequence[Source], code: CodeType, table: Any = None, with_conditions: bool = True
) -> Program:
    """Builds the native program for frames of `code`.

    collect: the sources of the graph's inputs, in order. table: the SymbolTable whose symbols have a Source as origin; its
    conditions are part of the program unless with_conditions is false.
    Raises GuardBuildError when a guard or source has no native form.
    """
    ordered = tuple(sorted(guards, key=_urgency))
    symbols = shapes.symbol_sources(table) if table is not None else {}
    conditions = shapes.relevant_conditions(table, symbols) if table is not None and with_conditions else []
    used = shapes.names_in(conditions)
    return _Builder(ordered, tuple(collect), tuple(conditions), {n: s for n, s in symbols.items() if n in used}, code).build()


def program_of(
    guards: Iterable[Guard], collect: Sequence[Source], conditions: Sequence[Any], symbols: dict[str, Source], code: CodeType
) -> Program:
    """A program of parts that were stored."""
    return _Builder(tuple(sorted(guards, key=_urgency)), tuple(collect), tuple(conditions), symbols, code).build()


def lean_programs(programs: Sequence[Program], code: CodeType) -> list[_C.GuardProgram | None]:
    """For each program one that checks only what not all of them check; None where it needs an object that is dead."""
    facts = [{guard.key for guard in p.guards} | {str(c) for c in p.conditions} for p in programs]
    common = frozenset.intersection(*map(frozenset, facts)) if facts else frozenset()
    return [_lean(program, common, code) for program in programs]


def _lean(program: Program, common: Any, code: CodeType) -> _C.GuardProgram | None:
    guards = []
    for guard in program.guards:
        if guard.key in common:
            continue
        if not is_held(guard.payload):
            return None
        guards.append(guard)
    conditions = tuple(c for c in program.conditions if str(c) not in common)
    used = shapes.names_in(conditions)
    symbols = {name: source for name, source in program.symbols.items() if name in used}
    return _Builder(tuple(guards), program.collect, conditions, symbols, code).build().native


def _urgency(guard: Guard) -> int:
    start = root(guard.source)
    return 0 if isinstance(start, Local) else 1 if isinstance(start, Ambient) else 2


class _Builder:
    """Collects nodes, leaves and checks as rows, then makes the native program."""

    def __init__(
        self,
        guards: tuple[Guard, ...],
        collect: tuple[Source, ...],
        conditions: tuple[Any, ...],
        symbols: dict[str, Source],
        code: CodeType,
    ) -> None:
        self.guards, self.collect, self.conditions, self.symbols, self.code = guards, collect, conditions, symbols, code
        self.labels: list[Any] = []
        self.nodes: list[list[Any]] = []  # [accessor, parent, key, index, input, reg, slot, guard]
        self.node_of_step: dict[Any, int] = {}
        self.node_of_source: dict[Source, int] = {}
        self.leaves: list[tuple[int, int, Any, int]] = []
        self.checks: list[tuple[int, tuple[int, ...], int, Any]] = []
        self.slot_of: dict[Source, int] = {}
        self.tensor_slots: dict[Source, dict[int, int]] = {}
        self.reg_count = 0
        self.mortal: dict[int, tuple[Any, Source]] = {}

    def build(self) -> Program:
        self.plan_slots()
        for guard in self.guards:
            self.add_guard(guard)
        self.label("inputs")
        input_slots = tuple(self.place_input(i, source) for i, source in enumerate(self.collect))
        self.place_sizes()
        for recorded in self.conditions:
            program = shapes.compile_condition(recorded.condition, lambda name: self.slot_of[self.symbols[name]])
            self.checks.append((CONDITION, program, self.label(recorded), None))
        self.checks.sort(key=lambda check: getattr(check[3], "runs_program", False))
        leaves = tuple(sorted(self.leaves, key=lambda row: row[0]))
        native = _C.GuardProgram(
            tuple(map(tuple, self.nodes)), leaves, tuple(self.checks), input_slots, self.reg_count, len(self.slot_of)
        )
        return Program(
            native, self.guards, self.collect, self.conditions, self.symbols, tuple(self.labels), tuple(self.mortal.values())
        )

    def label(self, what: Any) -> int:
        self.labels.append(what)
        return len(self.labels) - 1

    # --- sizes ---

    def plan_slots(self) -> None:
        """Every size that a condition reads or the graph takes gets an integer slot, filled by its tensor's guard if it has one."""
        guarded = {guard.source for guard in self.guards if guard.kind == "TENSOR"}
        wanted = [*self.symbols.values(), *(source for source in self.collect if isinstance(source, TensorSize))]
        for source in wanted:
            if source in self.slot_of:
                continue
            slot = self.slot_of[source] = len(self.slot_of)
            if isinstance(source, TensorSize) and source.base in guarded:
                self.tensor_slots.setdefault(source.base, {})[source.dim] = slot

    def place_sizes(self) -> None:
        """Slots that no tensor guard fills are filled by a node of their own."""
        for source, slot in self.slot_of.items():
            if isinstance(source, TensorSize) and source.dim in self.tensor_slots.get(source.base, {}):
                continue
            self.nodes[self.own_node(source, "slot")][6] = slot

    def place_input(self, number: int, source: Source) -> int:
        """Where input `number` comes from: a slot, or a node (then -1)."""
        if source in self.slot_of:
            return self.slot_of[source]
        self.nodes[self.own_node(source, "input")][4] = number
        return -1

    # --- nodes ---

    def node(self, source: Source) -> int:
        """The node of a source, made with those above it."""
        known = self.node_of_source.get(source)
        if known is not None:
            return known
        parent = -1 if source.base is None else self.node(source.base)
        for accessor, key, index in steps_of(source, self.code):
            parent = self.step(parent, accessor, self.ends_with(key, source) if accessor == "CONST" else key, index)
        self.node_of_source[source] = parent
        return parent

    def step(self, parent: int, accessor: str, key: Any, index: int) -> int:
        shared = (parent, accessor, payload_key(key), index)
        found = self.node_of_step.get(shared)
        if found is None:
            found = self.node_of_step[shared] = len(self.nodes)
            self.nodes.append([ACCESSOR[accessor], parent, key, index, -1, -1, -1, max(0, len(self.labels) - 1)])
        return found

    def own_node(self, source: Source, purpose: str) -> int:
        """The node of a source, doubled when it already serves another input or slot."""
        number = self.node(source)
        column = {"input": 4, "slot": 6}[purpose]
        if self.nodes[number][column] >= 0:
            row = list(self.nodes[number])
            row[4] = row[5] = row[6] = -1
            self.nodes.append(row)
            return len(self.nodes) - 1
        return number

    # --- guards ---

    def add_guard(self, guard: Guard) -> None:
        number = self.label(guard)
        if guard.kind in ("SAME", "DISTINCT"):
            sources = (guard.source, guard.payload) if guard.kind == "SAME" else tuple(guard.payload)
            registers = tuple(self.register(source) for source in sources)
            self.checks.append((SAME if guard.kind == "SAME" else DISTINCT, registers, number, None))
            return
        if guard.kind == "RELATION":
            holds, sources = guard.payload
            self.checks.append((RELATION, tuple(self.register(source) for source in sources), number, holds))
            return
        node = self.node(guard.source)
        leaf, payload = self.native_leaf(guard)
        self.leaves.append((node, LEAF[leaf], payload, number))

    def register(self, source: Source) -> int:
        row: Any = self.nodes[self.node(source)]
        if row[5] < 0:
            row[5] = self.reg_count
            self.reg_count += 1
        return int(row[5])

    def native_leaf(self, guard: Guard) -> tuple[str, Any]:
        row = kind_of(guard.kind)
        if guard.kind == "TENSOR":
            self.ends_with(guard.payload.type_held, guard.source)
            return "TENSOR", tensor_payload(guard.payload, self.tensor_slots.get(guard.source))
        if guard.kind == "NOT_IDENTITY":
            return row.leaf, held(guard.payload)
        if guard.kind in COMPARED_BY_IDENTITY:
            return row.leaf, self.ends_with(held(guard.payload), guard.source)
        if guard.kind == "CLASSES":
            for cls in guard.payload.classes():
                self.ends_with(cls, guard.source)
        if guard.kind == "CONSTANT" and isinstance(guard.payload, torch.Tensor):
            raise GuardBuildError(f"a tensor is no constant: {guard}")
        return row.leaf, guard.payload if row.native is None else row.native(guard.payload)

    def ends_with(self, holder: Any, source: Source) -> Any:
        """The program ends with what is held weakly here."""
        target = holder() if type(holder) is _C.WeakKey else None
        if target is not None:
            self.mortal.setdefault(id(target), (target, source))
        return holder


def tensor_payload(facts: TensorFacts, slots: dict[int, int] | None) -> tuple[Any, ...]:
    """What tensor_leaf.c wants; dtypes, devices and layouts that DLPack does not carry go the slow way."""
    code, bits = _torch.tensors.DLPACK_DTYPES.get(facts.dtype, (-1, 0))
    device = _torch.tensors.DLPACK_DEVICES.get(facts.device.type)
    if device is None or facts.is_conj or facts.is_neg or (facts.layout is not None and facts.layout is not torch.strided):
        code, device = -1, 0
    sizes = tuple(-1 if n is None else n for n in facts.sizes)
    strides = None if facts.strides is None else tuple(-1 if n is None else n for n in facts.strides)
    targets = None if not slots else tuple(slots.get(d, -1) for d in range(len(sizes)))
    return (
        facts.type_held,
        code,
        bits,
        device,
        facts.device.index or 0,
        facts.requires_grad,
        sizes,
        strides,
        targets,
        lambda value: tensor_sizes(value, facts),
    )


def guard_set(guards: Iterable[Guard]) -> GuardSet:
    """Guards that hold weakly what may die: what an entry may keep for its reports."""
    return GuardSet(
        Guard(guard.kind, guard.source, held(guard.payload), guard.origin) if guard.kind in COMPARED_BY_IDENTITY else guard
        for guard in guards
    )

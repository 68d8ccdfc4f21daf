"""Reductions along rows in lanes: as many elements as there are lanes are computed at a time, and then combined with these.

The terms are stored before they are combined: g++ takes them from its registers, and knows vectors for whatever computes them. A reduction
of the vector loop itself would be combined at the end of each loop, one lane after the other, and one that is declared (a maximum that keeps
NaN) would lie in memory: its lanes would be loaded and stored at each step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from ...ir.body import Axis, Instruction, Ref
from ...ir.index import Size, symbol
from ...ir.scalar_ops import compute_dtype
from ...schedule.plan import Pass
from ..printer import c_index
from .blocks import CHAIN, Sum, lanes, whole_groups
from .parts import has_parts, in_parts
from .streams import NextRow, ask_for_row
from .text_rules import CPP_TYPES, REDUCTIONS, SIMD

if TYPE_CHECKING:
    from .kernel import CppKernel

WHOLE = frozenset({"float", "double", "int32_t", "int64_t"})
"""Types of lanes."""
COMBINED = {
    "sum": "tw_added",
    "dot": "tw_added",
    "max": "tw_largest",
    "min": "tw_least",
    "argmax": "tw_largest",
    "argmin": "tw_least",
}
"""What combines two lanes."""
POSITIONS = {"argmax": "max", "argmin": "min"}
"""The reduction whose place each of these looks for."""


@dataclasses.dataclass(frozen=True)
class Lanes:
    """A reduction in lanes: the variable of its result, the type of its elements, its kind, and how many lanes there are."""

    result: str
    type: str
    kind: str
    width: int

    @property
    def name(self) -> str:
        return f"{self.result}_lanes"

    @property
    def places(self) -> bool:
        return self.kind in POSITIONS

    @property
    def combined(self) -> str:
        return COMBINED[self.kind]

    @property
    def terms(self) -> str:
        return f"{self.result}_terms"

    @property
    def best(self) -> str:
        return f"tw_best<{self.type}, {self.combined}, {self.width}>"

    def start(self) -> str:
        """Of one lane."""
        return REDUCTIONS[POSITIONS.get(self.kind, self.kind)][0](self.type)

    def begin(self) -> str:
        """Declaration of the lanes."""
        if self.places:
            return f"{self.best} {self.name}({self.start()});"
        start = "{}" if self.start() == "0" else f"tw_lanes<{self.type}>::type{{}} + {self.start()}"
        return f"tw_lanes<{self.type}>::type {self.name} = {start};"

    def declared(self) -> list[str]:
        """Declarations of the terms."""
        texts = [f"{self.type} {self.terms}[{self.width}] __attribute__((aligned(64)));"]
        if self.places:
            texts.append(f"{self.best}::place {self.terms}_at[{self.width}] __attribute__((aligned(64)));")
        return texts

    def put(self, name: str) -> str:
        """The statement that combines the terms with the lanes called so."""
        if self.places:
            return f"{name}.put({self.terms}, {self.terms}_at);"
        terms = f"tw_lanes<{self.type}>::of<{self.combined}, {self.width}>({self.terms})"
        return f"{name} = {self.combined}::of({name}, {terms});"

    def total(self) -> str:
        """The statement after all elements."""
        return f"{self.result} = {f'{self.name}.total()' if self.places else self.total_of(self.name)};"

    def total_of(self, name: str) -> str:
        return f"tw_lanes<{self.type}>::total<{self.combined}>({name})"


def in_whole_lanes(p: Pass, reductions: list[Instruction], elements: Size) -> bool:
    """Whether all reductions of a pass over so many elements may be taken in lanes: sums of floats, and extremes. Places are counted in the
    size of what is compared."""
    if not all(_fits(i.args[1], _type(p, i.args[2])) for i in reductions):
        return False
    return bool(reductions) and (
        isinstance(elements, int) and elements < 2**31 or not any(i.args[1] in POSITIONS for i in reductions)
    )


def _fits(kind: str, element: str) -> bool:
    return kind in COMBINED and element in (("float", "double") if COMBINED[kind] == "tw_added" else WHOLE)


def _type(p: Pass, value: Ref) -> str:
    return CPP_TYPES[compute_dtype(dtype_of(p, value))]


def dtype_of(p: Pass, value: Ref) -> torch.dtype:
    """The type of a value that there is."""
    dtype = p.body.instructions[value.position].dtype
    assert dtype is not None
    return dtype


def row_in_lanes(
    k: CppKernel, p: Pass, reductions: list[Instruction], names: dict[str, str], ahead: Sequence[NextRow] = ()
) -> None:
    """All reductions of a pass: as many elements as there are lanes are computed at a time, and then combined with these. ahead: what is
    brought near of the next row meanwhile."""
    smallest = min((k.kernel.layouts[i.args[0]].dtype.itemsize for i in p.body.loads()), default=4)
    width = lanes(smallest, k.kernel.reduction_axes[-1].size)
    found = {i.args[0]: Lanes(names[i.args[0]], _type(p, i.args[2]), i.args[1], width) for i in reductions}
    sums = {name: Sum(s.name, f"tw_lanes<{s.type}>::type") for name, s in found.items() if s.combined == "tw_added"}
    for s in found.values():
        k.w.line(s.begin())
    blocks = k.open_blocks(p, sums, CHAIN * width)
    into = {name: blocks.sums[name].name if name in sums else s.name for name, s in found.items()}
    *outer, (last, *bounds) = blocks.inside
    for a in outer:
        k.loop(*a)
    begin, count = bounds or ("0", c_index(last.size))
    whole, at = whole_groups(begin, count, width), f"{last.var}v"
    k.w.open(f"for (int64_t {at} = {begin}; {at} < {whole}; {at} += {width})")
    ask_for_row(k, ahead, last, symbol(at, 0, None), str(width))
    for s in found.values():
        for text in s.declared():
            k.w.line(text)

    def begin_group() -> None:
        k.w.line(SIMD + k.bad_clause())
        k.loop(last, at, str(width))

    k.terms = f"{last.var}k"
    _body(k, p, {name: s.terms for name, s in found.items()}, last, width, begin_group)
    k.terms = ""
    for name, s in found.items():
        k.w.line(s.put(into[name]))
    k.w.close()
    if not isinstance(last.size, int) or last.size % width:
        rest = str(int(count) % width) if count.isdigit() else f"{count} % {width}"
        _rest(k, p, [(i, found[i.args[0]], into[i.args[0]]) for i in reductions], (last, whole, rest))
    for _ in outer:
        k.w.close()
    k.close_blocks(blocks)
    for s in found.values():
        k.w.line(s.total())


def _body(k: CppKernel, p: Pass, accumulators: dict[str, str], axis: Axis, width: int, begin: Callable[[], None]) -> None:
    """What a group of at most `width` elements computes, in a loop that `begin` opens."""
    if has_parts(p.body, axis):
        in_parts(k, p.body.instructions, accumulators, axis, width, begin)
        return
    begin()
    k.statements(p.body.instructions, accumulators)
    k.w.close()


def _rest(k: CppKernel, p: Pass, found: list[tuple[Instruction, Lanes, str]], loop: tuple[Axis, str, str]) -> None:
    """What is left of a row: places are looked for one by one, all else is a vector loop whose results one lane takes."""
    variables = [(i, s, into) for i, s, into in found if not s.places]
    for _, s, _ in variables:
        k.w.line(f"{s.type} {s.result}_rest = {s.start()};")
    accumulators = {i.args[0]: into if s.places else f"{s.result}_rest" for i, s, into in found}

    def begin() -> None:
        if len(variables) == len(found):
            k.w.line(SIMD + k.reduction_clauses([i for i, _, _ in found], accumulators) + k.bad_clause())
        k.loop(*loop)

    k.one_by_one = True
    _body(k, p, accumulators, loop[0], found[0][1].width, begin)
    k.one_by_one = False
    for _, s, into in variables:
        k.w.line(f"{into}[0] = {s.combined}::of(({s.type}){into}[0], {s.result}_rest);")

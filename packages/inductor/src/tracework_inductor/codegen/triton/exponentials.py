"""The sum of exponentials of what lies below a row's maximum, in the pass that finds the maximum.

A softmax reads a row for its largest value, and again for the sum of exp(value - largest). Where rows do not fit into registers the second
time comes from memory too. Instead each lane keeps the largest value it has seen, and the sum relative to that. What a thread loads at once is
one lane: it is scaled to a new largest value once, and many loads are under way for the registers of few accumulators.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ...ir.body import Instruction, LoopBody, Ref, axes_behind
from ...ir.handlers import drop_unused
from ...schedule.plan import LoopKernel, Pass
from .again import may_compute_again
from .moments import named_rows
from .shape import products_of
from .text_rules import HELD

__all__ = ["EXPONENTIALS", "Exponentials", "in_one_pass", "lane_of", "largest_of", "start_of", "together"]

EXPONENTIALS = {"largest": 0, "exponentials": 1}
"""Kinds of reductions, and their place: a row's largest value, and the sum of exp(value - largest) of finite ones; both of one value share
their accumulators."""
_LOAD = 16
"""Bytes that a thread loads at once."""
_LOG2_E = 1.4426950408889634


def power(difference: str) -> str:
    """exp of what is at most 0; what vanishes beside 1 may be 0."""
    return f"tl.exp2(({difference}) * {_LOG2_E})"


@dataclasses.dataclass(frozen=True)
class Exponentials:
    """Accumulators of a loop over a row; `label` makes their names unique. lane: elements that a thread loads at once."""

    label: str
    dtype: torch.dtype
    lane: int

    def start(self, whole: str = "") -> list[str]:
        """Lines before the loop."""
        shape = f"[XBLOCK, RBLOCK // {self.lane}]"
        return [
            f"{whole}top_{self.label} = tl.full({shape}, {start_of(self.dtype)}, {HELD[self.dtype]})",
            f"{whole}sum_{self.label} = tl.full({shape}, 0, {HELD[self.dtype]})",
        ]

    def inside(self, value: str, mask: str | None) -> list[str]:
        """Lines of the loop; mask: which elements are inside the row."""
        k = self.label
        inside = value if mask is None else f'tl.where({mask}, {value}, float("-inf"))'
        return [
            f"lane_{k} = tl.reshape({inside}, [XBLOCK, RBLOCK // {self.lane}, {self.lane}])",
            f"new_{k} = {_larger(f'top_{k}', f'tl.reduce(lane_{k}, 2, _max)')}",
            f"more_{k} = tl.sum({power(f'lane_{k} - new_{k}[:, :, None]')}, 2)",
            f"sum_{k} = sum_{k} * {power(f'top_{k} - new_{k}')} + more_{k}",
            f"top_{k} = new_{k}",
        ]

    def after_block(self) -> list[str]:
        """Lines that add a block of steps to those before, lane by lane."""
        k = self.label
        parts = (f"{whole}sum_{k} * {power(f'{whole}top_{k} - both_{k}')}" for whole in ("all_", ""))
        return [
            f"both_{k} = {_larger(f'all_top_{k}', f'top_{k}')}",
            f"all_sum_{k} = {' + '.join(parts)}",
            f"all_top_{k} = both_{k}",
        ]

    def after(self, whole: str = "") -> tuple[list[str], tuple[str, ...]]:
        """Lines after the loop, and the names of the largest value and the sum."""
        lines, name = named_rows(self.label)
        found = together(f"{whole}top_{self.label}", f"{whole}sum_{self.label}", name)
        return lines, found


def start_of(dtype: torch.dtype) -> str:
    """The largest value of nothing: finite, so that infinity is not subtracted from itself."""
    return repr(torch.finfo(dtype).min)


def together(top: str, total: str, name: Callable[[str], str]) -> tuple[str, str]:
    """Largest value and sum over dimension 1 of a tile of each; `name` gives a text a name."""
    largest = name(f"tl.reduce({top}, 1, _max)[:, None]")
    return largest, name(f"tl.sum({total} * {power(f'{top} - {largest}')}, 1)[:, None]")


def largest_of(top: str, total: str, dtype: torch.dtype) -> str:
    """Text of the largest value of a row, of which nothing may be finite, or which may have no larger one than accumulators start from."""
    return f'tl.where(({top} == {start_of(dtype)}) & ({total} == 0), float("-inf"), {top})'


def lane_of(itemsizes: Iterable[int], step: int) -> int:
    """Elements of a lane, for rows that are read from elements of such sizes, and so many elements a step."""
    return min(_LOAD // max(itemsizes, default=_LOAD), step)


def _larger(a: str, b: str) -> str:
    return f"tl.maximum({a}, {b}, propagate_nan=tl.PropagateNan.ALL)"


def in_one_pass(kernel: LoopKernel) -> LoopKernel:
    """The kernel with sums of exponentials taken in the pass of their maximum, where what that pass and the next one read is the same; else as
    it is. What the second pass keeps of each element is computed where it is read."""
    inner = [n for n, p in enumerate(kernel.passes) if p.level == "inner"]
    if products_of(kernel) or not may_compute_again(kernel):
        return kernel
    for first, second in zip(inner, inner[1:], strict=False):
        found = _joined(kernel, first, second)
        if found is not None:
            return in_one_pass(found)
    return kernel


def _joined(kernel: LoopKernel, first: int, second: int) -> LoopKernel | None:
    maxima, sums = kernel.passes[first].body, kernel.passes[second].body
    effects = [i for i in sums.instructions if i.dtype is None]
    reductions = [i for i in effects if i.op == "reduce"]
    if len(reductions) != 1 or reductions[0].args[1] != "sum" or any(i.op not in ("reduce", "scratch_store") for i in effects):
        return None
    if any(i.op == "indirect" for body in (maxima, sums) for i in body.instructions):
        return None
    (name, _, total), rows = reductions[0].args, set(sums.reduction_axes)
    exponential = sums.instructions[total.position]
    if exponential.op != "exp" or exponential.dtype != torch.float32:
        return None
    below = sums.instructions[exponential.args[0].position]
    if below.op != "sub" or axes_behind(sums, below.args[1]) & rows:
        return None
    value, shift = below.args
    largest = next(
        (i for i in maxima.instructions if i.op == "reduce" and i.args[1] == "max" and _equal(maxima, i.args[2], sums, value)),
        None,
    )
    read = {sums.instructions[n].args[0] for n in sums.behind(value.position) if sums.instructions[n].op == "load"}
    between = kernel.passes[first + 1 : second]
    if largest is None or any(i.args[0] in read for p in between for i in p.body.stores()):
        return None
    part, kept = f"{name}_below", {i.args[0]: i.args[2] for i in effects if i.op == "scratch_store"}
    place = {n: len(maxima.instructions) + k for k, n in enumerate(sorted(sums.behind(value.position)))}
    more = [_moved(sums.instructions[n], place) for n in place]
    both = ((largest.args[0], "largest"), (part, "exponentials"))
    more += [Instruction("reduce", (of, kind, Ref(place[value.position])), None) for of, kind in both]
    joined = drop_unused([*(_NOTHING if i is largest else i for i in maxima.instructions), *more])
    scaled = _scaled(sums, name, part, largest.args[0], shift, _dtype(maxima, largest), exponential.dtype)
    passes = [
        *kernel.passes[:first],
        dataclasses.replace(kernel.passes[first], body=dataclasses.replace(maxima, instructions=joined)),
        *between,
        Pass("outer", scaled),
        *(dataclasses.replace(p, body=_inlined(p.body, sums, kept)) for p in kernel.passes[second + 1 :]),
    ]
    scratch = tuple(s for s in kernel.scratch if s.name not in kept)
    return dataclasses.replace(kernel, passes=tuple(passes), scratch=scratch)


_NOTHING = Instruction("constant", ("0", torch.int64), torch.int64)


def _dtype(body: LoopBody, reduction: Instruction) -> torch.dtype | None:
    return body.instructions[reduction.args[2].position].dtype


def _moved(instruction: Instruction, place: dict[int, int]) -> Instruction:
    args = tuple(Ref(place[a.position]) if isinstance(a, Ref) else a for a in instruction.args)
    return instruction._replace(args=args)


def _equal(a: LoopBody, left: Ref, b: LoopBody, right: Ref) -> bool:
    """Whether two bodies compute the same number, if in types of which one holds the other's numbers."""

    def plain(body: LoopBody, ref: Ref) -> Ref:
        i = body.instructions[ref.position]
        if i.op != "to_dtype" or i.dtype not in (torch.float32, torch.float64):
            return ref
        narrow = body.instructions[i.args[0].position].dtype
        exact = narrow is not None and narrow.is_floating_point and narrow.itemsize <= i.dtype.itemsize
        return plain(body, i.args[0]) if exact else ref

    def equal(left: Any, right: Any) -> bool:
        if not isinstance(left, Ref) or not isinstance(right, Ref):
            return bool(left == right)
        i, j = a.instructions[left.position], b.instructions[right.position]
        same_kind = (i.op, i.dtype, len(i.args)) == (j.op, j.dtype, len(j.args)) and i.op not in ("scan", "argsort", "take_along")
        return same_kind and all(map(equal, i.args, j.args))

    return equal(plain(a, left), plain(b, right))


def _scaled(
    sums: LoopBody, name: str, part: str, largest: str, shift: Ref, of_largest: torch.dtype | None, dtype: torch.dtype | None
) -> LoopBody:
    """The outer pass that defines the sum of exp(value - shift): that relative to the largest value times exp(largest - shift). An infinite one
    has terms of the latter alone."""
    needed = sorted(sums.behind(shift.position))
    place = {n: k for k, n in enumerate(needed)}
    lines = [_moved(sums.instructions[n], place) for n in needed]

    def add(op: str, *args: Any, dtype: torch.dtype | None = dtype) -> Ref:
        lines.append(Instruction(op, args, dtype))
        return Ref(len(lines) - 1)

    top = add("local", largest, dtype=of_largest)
    if of_largest != dtype:
        top = add("to_dtype", top, dtype)
    factor = add("exp", add("sub", top, Ref(place[shift.position])))
    total = add("mul", add("local", part), factor)
    add("define", name, add("where", add("isinf", top, dtype=torch.bool), factor, total), dtype=None)
    return dataclasses.replace(sums, reduction_axes=(), instructions=tuple(lines))


def _inlined(body: LoopBody, source: LoopBody, kept: dict[str, Ref]) -> LoopBody:
    """A body that computes what it reads of each element, as `source` does."""
    if not any(i.op == "scratch_load" and i.args[0] in kept for i in body.instructions):
        return body
    values = [i for i in source.instructions if i.dtype is not None]
    place = dict(zip((n for n, i in enumerate(source.instructions) if i.dtype is not None), range(len(values)), strict=True))
    lines, moved = [_moved(i, place) for i in values], {}
    for n, i in enumerate(body.instructions):
        if i.op == "scratch_load" and i.args[0] in kept:
            moved[n] = place[kept[i.args[0]].position]
        else:
            moved[n] = len(lines)
            lines.append(_moved(i, moved))
    return dataclasses.replace(body, instructions=drop_unused(lines))

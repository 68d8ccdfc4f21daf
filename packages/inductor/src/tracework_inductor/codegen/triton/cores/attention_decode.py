"""Attention of a few queries over many keys, split over the keys.

One program takes every PARTS-th block of keys of one key head, for all rows that read this head: its query heads and their queries. Keys
and values are read once, where they lie; where the mask lets no row see a key, neither is read. A second function merges the parts in
their order, so that the result is the same in each run.
"""

from __future__ import annotations

import dataclasses
import math
import re

import torch

from ....ir.buffer import BufferView
from ....ir.index import Size, constant_product, same
from ....schedule.plan import CoreKernel
from ...renderer import KERNEL_NAME, RenderedKernel
from ..config import MULTIPROCESSORS, Config, power_of_two
from ..header import function_header, launch_record, source_text
from ..printer import IndexPrinter, PythonPrinter
from ..text_rules import POINTER

__all__ = ["most_rows", "render"]

LEAST_ROWS = 16
"""Rows of the smallest product that tensor cores compute."""
LOG2E = repr(math.log2(math.e))
MOST_ACCUMULATORS = 16384
"""Of one program: 128 registers a thread."""


def most_rows(width: int) -> int:
    """How many rows (query heads of one key head, times queries) a program can hold, for values of this width."""
    return MOST_ACCUMULATORS // power_of_two(width)


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a call computes, for whom text is written.

    query, result: (batch, key heads, query heads of each, queries, width); key, value: (batch, key heads, keys, width); mask: as the query
    with keys last, bool or what is added to the scores; None for none.
    """

    query: BufferView
    key: BufferView
    value: BufferView
    mask: BufferView | None
    result: BufferView
    causal: bool
    scale: float
    dtype: torch.dtype
    mask_dtype: torch.dtype | None
    pointers: dict[str, str]
    printer: IndexPrinter

    @property
    def heads(self) -> Size:
        """Key heads of all batches."""
        return self.key.sizes[0] * self.key.sizes[1]

    @property
    def keys(self) -> Size:
        """How many keys there are."""
        return self.key.sizes[2]

    @property
    def rows(self) -> int:
        """How many rows of scores belong to one key head."""
        return math.prod(int(s) for s in self.query.sizes[2:4])

    @property
    def widths(self) -> tuple[int, int]:
        """Of keys and of values."""
        return int(self.key.sizes[3]), int(self.value.sizes[3])

    def at(self, view: BufferView, axes: str, index: dict[str, str]) -> str:
        """Text of a position: of the axes, those that `index` has, with its names."""
        terms = [self.printer.operand(view.offset)] if not same(view.offset, 0) and "batch" in index else []
        for axis, stride, size in zip(axes.split(), view.strides, view.sizes, strict=True):
            if axis in index and not same(stride, 0) and not same(size, 1):
                terms.append(f"{index[axis]} * {self.printer.operand(stride)}")
        return " + ".join(terms) or f"{next(iter(index.values()))} * 0"

    def pointer(self, view: BufferView, axes: str) -> str:
        """Text of the address of a key head's first element."""
        return f"{self.pointers[view.buffer]} + ({self.at(view, axes, {'batch': 'batch', 'head': 'head'})})"


ROWS = "batch head member query width"
KEYS = "batch head key width"
SCORES = "batch head member query key"


def render(kernel: CoreKernel) -> RenderedKernel:
    """The Triton source, its signature and its launch record."""
    problem = _problem(kernel)
    config = _config(problem)
    return written(kernel, config, _parts(problem, config))


def written(
    kernel: CoreKernel, config: Config, parts: int, last: bool = False, reach: bool = False, precision: str = "ieee"
) -> RenderedKernel:
    """The same with a config and a number of parts, a power of two, that the caller chose."""
    problem, names = _problem(kernel), kernel.layouts
    sizes = [f"ks{n}" for n in range(len(kernel.sizes))]
    arguments = [f"p{n}" for n in range(len(names))]
    grid = PythonPrinter({s: f"ks{n}" for n, s in enumerate(kernel.sizes)}).text(problem.heads)
    functions, grids, workspace = [_attend(problem, config, parts, last, reach, precision)], [f"({grid}) * {parts}"], []
    if parts > 1:
        if not last:
            functions.append(_merge(problem, parts))
            grids.append(f"({grid}) * {problem.rows}")
        partial = f"({grid}) * {problem.rows * parts}"
        workspace = [f"{partial} * {problem.widths[1]}", partial, partial]
    if last and parts > 1:
        functions = [[f"counter = p{len(names) - 1}", *functions[0]]]
    scratch = [f"ws{n}" for n in range(len(workspace))]
    header = function_header(arguments, [*sizes, *scratch], config.constants, workspace=False)
    entries = [KERNEL_NAME + (f"_{n}" if n else "") for n in range(len(functions))]
    record = launch_record(
        entries=entries,
        grids=grids,
        configs=[config.record()],
        fits32=None,
        workspace=[{"dtype": "float32", "elements": elements} for elements in workspace],
        repeatable=True,
        kind=f"attention of {problem.rows} rows" + (f" split {parts}" if parts > 1 else ""),
        checks=False,
    )
    signature = tuple(POINTER[layout.dtype] for layout in names.values()) + ("i64",) * len(sizes)
    texts = [header + "".join(f"    {line}\n" for line in lines) for lines in functions]
    return RenderedKernel(source_text(texts, entries), signature, record)


def _problem(kernel: CoreKernel) -> Problem:
    query, key, value, mask = kernel.node.operands
    (result,) = kernel.node.results
    layouts = kernel.layouts
    return Problem(
        query,
        key,
        value,
        mask,
        result,
        **dict(kernel.node.facts),
        dtype=layouts[query.buffer].dtype,
        mask_dtype=layouts[mask.buffer].dtype if mask is not None else None,
        pointers={name: f"p{n}" for n, name in enumerate(layouts)},
        printer=IndexPrinter({s: f"ks{n}" for n, s in enumerate(kernel.sizes)}, {}),
    )


def _config(problem: Problem) -> Config:
    width = power_of_two(max(problem.widths))
    keys = max(16, min(128, (16384 // problem.dtype.itemsize) // width))
    return Config({"KBLOCK": keys}, 4, 3)


def _parts(problem: Problem, config: Config) -> int:
    """Into how many parts the keys are split: the device is filled, and each part has a block."""
    heads, keys = constant_product(problem.key.sizes[:2], 1), constant_product([problem.keys])
    blocks = -(-keys // config.constants["KBLOCK"])
    wanted = min(4 * MULTIPROCESSORS // max(heads, 1), blocks, 64)
    return 1 << max(wanted, 1).bit_length() - 1


def _attend(p: Problem, config: Config, parts: int, by_last: bool, reach: bool, precision: str) -> list[str]:
    rows, (width, out_width) = max(LEAST_ROWS, power_of_two(p.rows)), p.widths
    precision = f', input_precision="{precision}"' if p.dtype == torch.float32 else ""
    lines = [
        *_place("tl.program_id(0)" if parts == 1 else f"tl.program_id(0) // {parts}", p),
        f"part = tl.program_id(0) % {parts}",
        f"row = tl.arange(0, {rows})",
        f"real = row < {p.rows}",
        *_row(p),
        f"width = tl.arange(0, {power_of_two(width)})",
        f"place = tl.arange(0, {power_of_two(out_width)})",
        f"query_at = {p.pointer(p.query, ROWS)}",
        f"query_at += ({_of_row(p, p.query, ROWS)})[:, None] + ({p.at(p.query, ROWS, {'width': 'width'})})[None, :]",
        f"q = tl.load(query_at, {_and('real[:, None]', _inside('width', width))}, other=0)",
        f"key_at = {p.pointer(p.key, KEYS)} + ({p.at(p.key, KEYS, {'width': 'width'})})[None, :]",
        f"value_at = {p.pointer(p.value, KEYS)} + ({p.at(p.value, KEYS, {'width': 'place'})})[None, :]",
    ]
    if p.mask is not None:
        lines.append(f"mask_at = {p.pointer(p.mask, SCORES)}")
    lines += [
        f'highest = tl.full([{rows}], float("-inf"), tl.float32)',
        f"total = tl.zeros([{rows}], tl.float32)",
        f"sums = tl.zeros([{rows}, {power_of_two(out_width)}], tl.float32)",
    ]
    keep = _mask(p, config.constants["KBLOCK"])
    key_at, value_at = (f"({p.at(view, KEYS, {'key': 'key.to(tl.int64)'})})[:, None]" for view in (p.key, p.value))
    loop = [
        "key = first + tl.arange(0, KBLOCK)",
        *keep.before,
        f"k = tl.load(key_at + {key_at}{_masked(keep.seen, _inside('width', width))})",
        f"v = tl.load(value_at + {value_at}{_masked(keep.seen, _inside('place', out_width))})",
        f"s = tl.dot(q, tl.trans(k){precision}) * {p.scale!r}",
        *keep.after,
        "above = tl.maximum(highest, tl.max(s, 1))",
        'base = tl.where(above == float("-inf"), 0.0, above)',
        f"e = tl.exp2((s - base[:, None]) * {LOG2E})",
        f"kept = tl.exp2((highest - base) * {LOG2E})",
        "total = total * kept + tl.sum(e, 1)",
        f"sums = sums * kept[:, None] + tl.dot(e.to(v.dtype), v{precision})",
        "highest = above",
    ]
    last = min(p.query.sizes[3], p.keys) if p.causal and isinstance(p.keys, int) else p.keys
    begin, end = "part * KBLOCK", p.printer.text(last)
    if reach and (steps := _reach(p, config, parts)):
        lines += steps
        begin, end = "begin", "end"
    lines += [
        f"for first in range({begin}, {end}, {parts} * KBLOCK):",
        *(f"    {line}" for line in loop),
    ]
    stored = _and("real[:, None]", _inside("place", out_width))
    if parts == 1:
        return [
            *lines,
            f"out_at = {p.pointer(p.result, ROWS)}",
            f"out_at += ({_of_row(p, p.result, ROWS)})[:, None] + ({p.at(p.result, ROWS, {'width': 'place'})})[None, :]",
            f"tl.store(out_at, sums / tl.where(total == 0.0, 1.0, total)[:, None], {stored})",
        ]
    return [
        *lines,
        f"slot = (pair * {p.rows} + row) * {parts} + part",
        f"tl.store(ws0 + (slot * {out_width})[:, None] + place[None, :], sums, {stored})",
        "tl.store(ws1 + slot, highest, real)",
        "tl.store(ws2 + slot, total, real)",
        *([f"    {_renamed(line)}" if n > 2 else line for n, line in enumerate(_merge_last(p, parts))] if by_last else []),
    ]


def _renamed(line: str) -> str:
    return re.sub(r"(?<![.\w])(row|member|query|slot|highest|above|base|weight|total|out_at|place|sums)\b", r"last_\1", line)


def _reach(p: Problem, config: Config, parts: int) -> list[str]:
    """The first and the last block of a part that the mask shows anything of, where it is the same for all rows."""
    block = config.constants["KBLOCK"]
    alike = p.mask is not None and all(
        same(stride, 0) or same(size, 1) for stride, size in zip(p.mask.strides[2:4], p.mask.sizes[2:4], strict=True)
    )
    if not alike or not isinstance(p.keys, int) or p.causal:
        return []
    steps = power_of_two(-(-p.keys // (block * parts)))
    if steps < 2 or steps * block > 4096:
        return []
    nothing = "0" if p.mask_dtype == torch.bool else 'float("-inf")'
    keep = "shown" if p.mask_dtype == torch.bool else 'shown != float("-inf")'
    return [
        f"all = tl.arange(0, {steps} * KBLOCK)",
        "step = all // KBLOCK",
        f"of_all = (part + step * {parts}) * KBLOCK + all % KBLOCK",
        f"shown = tl.load(mask_at + {p.at(p.mask, SCORES, {'key': 'of_all'})}, of_all < {p.keys}, other={nothing})",
        f"begin = (part + tl.min(tl.where({keep}, step, {steps}), 0) * {parts}) * KBLOCK",
        f"end = (part + (tl.max(tl.where({keep}, step, -1), 0) + 1) * {parts}) * KBLOCK",
    ]


def _merge_last(p: Problem, parts: int) -> list[str]:
    rows, out_width = power_of_two(p.rows), p.widths[1]
    width = power_of_two(out_width)
    chunk = max(1, min(width, 8192 // (rows * parts)))
    real = None if rows == p.rows else f"(row < {p.rows})"
    inside = None if width == out_width else f"(place < {out_width})"
    two = _and(real and f"{real}[:, None]")
    three = _and(real and f"{real}[:, None, None]", inside and f"{inside}[None, None, :]")
    stored = _and(real and f"{real}[:, None]", inside and f"{inside}[None, :]")
    load = lambda at, mask, other: f'tl.load({at}{"" if mask == "None" else f", {mask}, other={other}"}, cache_modifier=".cg")'
    lowest = 'float("-inf")'
    return [
        "tl.debug_barrier()",
        'arrived = tl.atomic_add(counter + pair, 1, sem="acq_rel")',
        f"if arrived == {parts - 1}:",
        "tl.store(counter + pair, 0)",
        f"row = tl.arange(0, {rows})",
        *_row(p),
        f"slot = (pair * {p.rows} + row)[:, None] * {parts} + tl.arange(0, {parts})[None, :]",
        f"highest = {load('ws1 + slot', two, lowest)}",
        "above = tl.max(highest, 1)",
        'base = tl.where(above == float("-inf"), 0.0, above)',
        f"weight = tl.exp2((highest - base[:, None]) * {LOG2E})",
        f"total = tl.sum({load('ws2 + slot', two, '0')} * weight, 1)",
        "total = tl.where(total == 0.0, 1.0, total)",
        f"out_at = {p.pointer(p.result, ROWS)} + ({_of_row(p, p.result, ROWS)})[:, None]",
        f"for column in range(0, {out_width}, {chunk}):",
        f"    place = column + tl.arange(0, {chunk})",
        f"    sums = {load(f'ws0 + slot[:, :, None] * {out_width} + place[None, None, :]', three, '0')}",
        "    sums = tl.sum(sums * weight[:, :, None], 1) / total[:, None]",
        f"    tl.store(out_at + ({p.at(p.result, ROWS, {'width': 'place'})})[None, :], sums, {stored})",
    ]


@dataclasses.dataclass(frozen=True)
class Mask:
    """Which keys rows see. before: lines before keys are loaded, and `seen`, which of them to load; after: lines that change the scores."""

    before: list[str]
    seen: str | None
    after: list[str]


def _mask(p: Problem, block: int) -> Mask:
    whole = isinstance(p.keys, int) and p.keys % block == 0
    before, after = [] if whole else [f"within = key < {p.printer.text(p.keys)}"], []
    if p.causal:
        after.append('s = tl.where(key[None, :] <= query[:, None], s, float("-inf"))')
    if p.mask is None:
        if not whole:
            after.append('s = tl.where(within[None, :], s, float("-inf"))')
        return Mask(before, None if whole else "within[:, None]", after)
    alike = all(same(stride, 0) or same(size, 1) for stride, size in zip(p.mask.strides[2:4], p.mask.sizes[2:4], strict=True))
    within, row = None if whole else "within", "[None, :]"
    key_at = p.at(p.mask, SCORES, {"key": "key"})
    if not alike:
        within, row = _and("real[:, None]", None if whole else "within[None, :]"), ""
        key_at = f"({_of_row(p, p.mask, SCORES)})[:, None] + ({key_at})[None, :]"
    nothing = "0" if p.mask_dtype == torch.bool else 'float("-inf")'
    masked = f", {within}, other={nothing}" if within is not None else ""
    before.append(f"m = tl.load(mask_at + {key_at}{masked})")
    if p.mask_dtype == torch.bool:
        keep = "m"
        after.append(f's = tl.where(m{row}, s, float("-inf"))')
    else:
        keep = 'm != float("-inf")'
        after.append(f"s += m{row}.to(tl.float32)")
    before.append(f"seen = {keep}" if alike else f"seen = tl.max(({keep}).to(tl.int32), 0) > 0")
    return Mask(before, "seen[:, None]", after)


def _merge(p: Problem, parts: int) -> list[str]:
    out_width = p.widths[1]
    tile = _inside("place", out_width)
    return [
        *_place(f"tl.program_id(0) // {p.rows}", p),
        f"row = tl.program_id(0) % {p.rows}",
        *_row(p),
        f"part = tl.arange(0, {parts})",
        f"place = tl.arange(0, {power_of_two(out_width)})",
        f"slot = tl.program_id(0).to(tl.int64) * {parts} + part",
        "highest = tl.load(ws1 + slot)",
        "above = tl.max(highest, 0)",
        'base = tl.where(above == float("-inf"), 0.0, above)',
        f"weight = tl.exp2((highest - base) * {LOG2E})",
        "total = tl.sum(tl.load(ws2 + slot) * weight, 0)",
        f"sums = tl.load(ws0 + (slot * {out_width})[:, None] + place[None, :]{_masked(tile)})",
        "value = tl.sum(sums * weight[:, None], 0) / tl.where(total == 0.0, 1.0, total)",
        f"out_at = {p.pointer(p.result, ROWS)} + ({_of_row(p, p.result, ROWS)})",
        f"tl.store(out_at + ({p.at(p.result, ROWS, {'width': 'place'})})[None, :], value[None, :], {_and(tile)})",
    ]


def _place(pair: str, p: Problem) -> list[str]:
    """Which key head a program works for."""
    heads = p.printer.text(p.key.sizes[1])
    return [f"pair = ({pair}).to(tl.int64)", f"batch = pair // {heads}", f"head = pair % {heads}"]


def _row(p: Problem) -> list[str]:
    queries = p.printer.text(p.query.sizes[3])
    return [f"member = row // {queries}", f"query = row % {queries}"]


def _of_row(p: Problem, view: BufferView, axes: str) -> str:
    return p.at(view, axes, {"member": "member", "query": "query"})


def _inside(name: str, extent: int) -> str | None:
    """A mask over the lanes of a tile whose extent is no power of two."""
    return None if power_of_two(extent) == extent else f"({name} < {extent})[None, :]"


def _and(*masks: str | None) -> str:
    return " & ".join(m for m in masks if m is not None) or "None"


def _masked(*masks: str | None) -> str:
    """Arguments of a load under all of them."""
    both = _and(*masks)
    return "" if both == "None" else f", {both}, other=0"

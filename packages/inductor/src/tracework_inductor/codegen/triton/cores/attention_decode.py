"""Attention of a few queries over many keys, split over the keys.

A program takes one part of the keys of one key head, every n-th block of n parts, for all rows of scores of that head: its query heads and
their queries.
Keys and values are read once, where they lie; those that the mask hides from all rows are not. A second function merges the parts in their
order, so that the result is the same in each run.

Measured on an H200, bf16, key heads of 64 and 128, 512 to 32768 keys, one and eight batches: blocks of 64 keys, two warps and two to three
programs a multiprocessor were within 10 % of the best of 250 configs. Merging by the program that comes last was slower for more than four rows.
"""

from __future__ import annotations

import dataclasses
import math

import torch

from ....ir.buffer import BufferView
from ....ir.cores import LEAST_DOT, power_of_two
from ....ir.index import Size, constant_product, constant_size, same
from ....schedule.plan import CoreKernel
from ...renderer import KERNEL_NAME, RenderedKernel
from ..config import MULTIPROCESSORS, Config
from ..header import function_header, launch_record, source_text
from ..printer import IndexPrinter, PythonPrinter, fits_text
from ..text_rules import POINTER

__all__ = ["render", "written"]

ONE_BLOCK = 128
"""Keys up to which one program takes all: parts save less than the second function costs."""
MOST_MASK = 4096
"""Elements of the mask that a program looks at before it begins; loads of keys that wait for a mask that nobody read before take 1.4 times as
long."""
LOG2E = math.log2(math.e)

ROWS = "batch head member query width"
KEYS = "batch head key width"
SCORES = "batch head member query key"
LOWEST = 'float("-inf")'


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a call computes, for whom text is written.

    query, result: (batch, key heads, query heads of each, queries, width); key, value: (batch, key heads, keys, width); mask: what is added
    to the scores, as the query with keys last; highest: of the mask along the keys, which are one there; distance, written,
    zeroed, fill: as passes/fuse_attention.py says.
    """

    query: BufferView
    key: BufferView
    value: BufferView
    mask: BufferView | None
    highest: BufferView | None
    result: BufferView
    distance: float
    causal: bool
    scale: float
    written: bool
    zeroed: bool
    fill: float | None
    dtype: torch.dtype
    pointers: dict[str, str]
    printer: IndexPrinter

    @property
    def keys(self) -> Size:
        """How many keys there are."""
        return self.key.sizes[2]

    @property
    def rows(self) -> int:
        """How many rows of scores belong to one key head."""
        return math.prod(map(constant_size, self.query.sizes[2:4]))

    @property
    def widths(self) -> tuple[int, int]:
        """Of keys and of values."""
        return constant_size(self.key.sizes[3]), constant_size(self.value.sizes[3])

    @property
    def unit(self) -> float:
        """What scores are in the kernel, over what they are: powers of 2 are faster, and make a mask infinite that is the lowest number."""
        return 1.0 if self.written else LOG2E

    def weight(self, difference: str) -> str:
        """Text of the weight of a score, or of what is added up, by its distance from the highest."""
        return f"tl.exp2({difference})" if self.unit == LOG2E else f"tl.exp2(({difference}) * {LOG2E!r})"

    def average(self, sums: str, total: str) -> str:
        """Text of sums over their weights; of a row that sees nothing, these are 0."""
        return f"{sums} / {f'tl.where({total} == 0.0, 1.0, {total})' if self.zeroed else total}"

    @property
    def masks_alike(self) -> bool:
        """Whether all rows see the same keys."""
        assert self.mask is not None
        return all(same(t, 0) or same(s, 1) for t, s in zip(self.mask.strides[2:4], self.mask.sizes[2:4], strict=True))

    def at(self, view: BufferView, axes: str, **index: str) -> str:
        """Text of a position along some of the axes: those that `index` gives a name for."""
        terms = []
        for axis, stride, size in zip(axes.split(), view.strides, view.sizes, strict=True):
            if axis in index and not same(stride, 0) and not same(size, 1):
                terms.append(index[axis] if same(stride, 1) else f"{index[axis]} * {self.printer.operand(stride)}")
        return " + ".join(terms) or f"{next(iter(index.values()))} * 0"

    def pointer(self, view: BufferView, axes: str) -> str:
        """Text of the address of a key head's first element."""
        offset = [] if same(view.offset, 0) else [self.printer.operand(view.offset)]
        return " + ".join([self.pointers[view.buffer], *offset, f"({self.at(view, axes, batch='batch', head='head')})"])


def render(kernel: CoreKernel) -> RenderedKernel:
    """The Triton source, its signature and its launch record."""
    problem = _problem(kernel)
    config = _config(problem)
    return written(kernel, config, _parts(problem, config))


def written(kernel: CoreKernel, config: Config, parts: int) -> RenderedKernel:
    """The same with a config and a number of parts, a power of two, that the caller chose."""
    problem = _problem(kernel)
    sizes = {symbol: f"ks{n}" for n, symbol in enumerate(kernel.sizes)}
    heads = "(" + PythonPrinter(sizes).text(problem.key.sizes[0] * problem.key.sizes[1]) + ")"
    functions, grids, workspace = [_attend(problem, config, parts)], [f"{heads} * {parts}"], []
    if parts > 1:
        functions.append(_merge(problem, parts))
        grids.append(f"{heads} * {problem.rows}")
        rows = f"{heads} * {problem.rows * parts}"
        workspace = [f"{rows} * {problem.widths[1]}", rows, rows]
    scratch = [f"ws{n}" for n in range(len(workspace))]
    header = function_header([*problem.pointers.values()], [*sizes.values(), *scratch], [*config.constants], workspace=False)
    entries = [KERNEL_NAME + (f"_{n}" if n else "") for n in range(len(functions))]
    record = launch_record(
        entries=entries,
        grids=grids,
        configs=[config.record()],
        fits32=fits_text([layout.elements() for layout in kernel.layouts.values()], sizes) if sizes else None,
        workspace=[{"dtype": "float32", "elements": elements} for elements in workspace],
        repeatable=True,
        kind=f"attention of {problem.rows} rows" + (f" split {parts}" if parts > 1 else ""),
        checks=False,
    )
    signature = tuple(POINTER[layout.dtype] for layout in kernel.layouts.values()) + ("i64",) * len(sizes)
    texts = [header + "".join(f"    {line}\n" for line in lines) for lines in functions]
    return RenderedKernel(source_text(texts, entries), signature, record)


def _problem(kernel: CoreKernel) -> Problem:
    query, key, value, mask, highest = kernel.node.operands
    assert query is not None and key is not None and value is not None
    (result,) = kernel.node.results
    return Problem(
        query,
        key,
        value,
        mask,
        highest,
        result,
        **dict(kernel.node.facts),
        dtype=kernel.layouts[query.buffer].dtype,
        pointers={name: f"p{n}" for n, name in enumerate(kernel.layouts)},
        printer=IndexPrinter({symbol: f"ks{n}" for n, symbol in enumerate(kernel.sizes)}, {}),
    )


def _config(p: Problem) -> Config:
    width, rows = _tile(max(p.widths)), _tile(p.rows)
    if isinstance(p.keys, int) and p.keys <= ONE_BLOCK and width <= ONE_BLOCK:
        return Config({"KBLOCK": ONE_BLOCK}, 4 if rows <= 64 else 8, 1)
    few = rows == LEAST_DOT and p.dtype != torch.float32
    return Config(
        {"KBLOCK": max(LEAST_DOT, min(64, 16384 // (width * p.dtype.itemsize)))}, 2 if few else 4 if rows <= 64 else 8, 3
    )


def _parts(p: Problem, config: Config) -> int:
    """Into how many parts the keys are split: so that the device is filled, each part has a block, and looks at no more of a mask than it may."""
    heads, keys = constant_product(p.key.sizes[:2], 1), constant_product([p.keys])
    most = min(3 * MULTIPROCESSORS // heads, -(-keys // config.constants["KBLOCK"]))
    least = power_of_two(-(-keys // MOST_MASK)) if p.mask is not None else 1
    return max(1 << max(most, 1).bit_length() - 1, least)


def _attend(p: Problem, config: Config, parts: int) -> list[str]:
    """The first function: scores, and what they weigh, of one part."""
    rows, (width, out_width) = _tile(p.rows), p.widths
    block = config.constants["KBLOCK"]
    precision = ', input_precision="tf32x3"' if p.dtype == torch.float32 else ""
    whole = isinstance(p.keys, int) and p.keys % block == 0
    within = None if whole else "within"
    begin, end = (
        "part * KBLOCK",
        p.printer.text(min(constant_size(p.query.sizes[3]), p.keys) if p.causal and isinstance(p.keys, int) else p.keys),
    )
    lines = [
        *_place("tl.program_id(0)" if parts == 1 else f"tl.program_id(0) // {parts}", p),
        f"part = tl.program_id(0) % {parts}",
        f"row = tl.arange(0, {rows})",
        f"real = row < {p.rows}",
        *_row(p),
        f"width = tl.arange(0, {_tile(width)})",
        f"place = tl.arange(0, {_tile(out_width)})",
        f"query_at = {p.pointer(p.query, ROWS)}",
        f"query_at += ({_of_row(p, p.query, ROWS)})[:, None] + ({p.at(p.query, ROWS, width='width')})[None, :]",
        f"q = {_load('query_at', 'real[:, None]', _lanes('width', width))}",
        f"key_at = {p.pointer(p.key, KEYS)} + ({p.at(p.key, KEYS, width='width')})[None, :]",
        f"value_at = {p.pointer(p.value, KEYS)} + ({p.at(p.value, KEYS, width='place')})[None, :]",
        f"highest = tl.full([{rows}], {LOWEST}, tl.float32)",
        f"total = tl.zeros([{rows}], tl.float32)",
        f"sums = tl.zeros([{rows}, {_tile(out_width)}], tl.float32)",
    ]
    seen, masking = within, [] if whole else [f"s = tl.where(within[None, :], s, {LOWEST})"]
    look: list[str] = []
    if p.mask is not None:
        lines += _before_mask(p)
        steps = power_of_two(-(-p.keys // (block * parts))) if isinstance(p.keys, int) else 1
        if steps > 1 and steps * block * (1 if p.masks_alike else rows) <= MOST_MASK:
            lines += _reach(p, steps, parts)
            begin, end = "begin", "end"
        look, seen = _look(p, "m", "seen", "key", within), "seen"
        added = f"m{'[None, :]' if p.masks_alike else ''}.to(tl.float32)"
        masked = f"s + {added}" if p.written else f"s + {added} * {LOG2E!r}"
        if p.fill is not None:
            masked = f"tl.where({added} == {p.fill!r}, {added}, {masked})"
        masking = [f"s = tl.where(seen[None, :], {masked}, {LOWEST})"]
    if p.causal:
        masking.append(f"s = tl.where(key[None, :] <= query[:, None], s, {LOWEST})")
    shown = None if seen is None else f"{seen}[:, None]"
    loop = [
        "key = first + tl.arange(0, KBLOCK)",
        *([] if whole else [f"within = key < {p.printer.text(p.keys)}"]),
        *look,
        f"k = {_load(f'key_at + ({_of_key(p, p.key)})[:, None]', shown, _lanes('width', width))}",
        f"v = {_load(f'value_at + ({_of_key(p, p.value)})[:, None]', shown, _lanes('place', out_width))}",
        f"s = tl.dot(q, tl.trans(k){precision}) * {p.scale * p.unit!r}",
        *masking,
        "above = tl.maximum(highest, tl.max(s, 1))",
        f"base = tl.where(above == {LOWEST}, 0.0, above)",
        f"e = {p.weight('s - base[:, None]')}",
        f"kept = {p.weight('highest - base')}",
        "total = total * kept + tl.sum(e, 1)",
        f"sums = sums * kept[:, None] + tl.dot(e.to(v.dtype), v{precision})",
        "highest = above",
    ]
    lines += [f"for first in range({begin}, {end}, {parts} * KBLOCK):", *(f"    {line}" for line in loop)]
    stored = _and("real[:, None]", _lanes("place", out_width))
    if parts == 1:
        return [
            *lines,
            f"out_at = {p.pointer(p.result, ROWS)}",
            f"out_at += ({_of_row(p, p.result, ROWS)})[:, None] + ({p.at(p.result, ROWS, width='place')})[None, :]",
            "total = total[:, None]",
            f"tl.store(out_at, {p.average('sums', 'total')}, {stored})",
        ]
    return [
        *lines,
        f"slot = (pair * {p.rows} + row) * {parts} + part",
        f"tl.store(ws0 + (slot * {out_width})[:, None] + place[None, :], sums, {stored})",
        "tl.store(ws1 + slot, highest, real)",
        "tl.store(ws2 + slot, total, real)",
    ]


def _before_mask(p: Problem) -> list[str]:
    """Where the mask is, and from where on down it hides."""
    assert p.mask is not None and p.highest is not None
    lines = [f"mask_at = {p.pointer(p.mask, SCORES)}", f"hidden_at = {p.pointer(p.highest, SCORES)}"]
    if p.masks_alike:
        return [*lines, f"hidden = tl.load(hidden_at).to(tl.float32) - {p.distance}"]
    lines.append(f"mask_at += ({_of_row(p, p.mask, SCORES)})[:, None]")
    load = _load(f"hidden_at + ({_of_row(p, p.highest, SCORES)})", "real")
    return [*lines, f"hidden = ({load}.to(tl.float32) - {p.distance})[:, None]"]


def _look(p: Problem, mask: str, seen: str, key: str, within: str | None) -> list[str]:
    """Lines that load the mask for a vector of keys, and say which keys any row sees. What is no number is seen."""
    assert p.mask is not None
    at = p.at(p.mask, SCORES, key=key)
    if p.masks_alike:
        shown = _and(f"(({mask}.to(tl.float32) < hidden) == 0)", within)
        return [f"{mask} = {_load(f'mask_at + {at}', within, other=LOWEST)}", f"{seen} = {shown}"]
    load = _load(f"mask_at + ({at})[None, :]", "real[:, None]", within and f"{within}[None, :]", other=LOWEST)
    shown = _and(f"(({mask}.to(tl.float32) < hidden) == 0)", "real[:, None]", within and f"{within}[None, :]")
    return [f"{mask} = {load}", f"{seen} = tl.max(({shown}).to(tl.int32), 0) > 0"]


def _reach(p: Problem, steps: int, parts: int) -> list[str]:
    """Lines that find the first and the last block of a part in which a key is seen."""
    return [
        f"step = tl.arange(0, {steps} * KBLOCK) // KBLOCK",
        f"of_part = (part + step * {parts}) * KBLOCK + tl.arange(0, {steps} * KBLOCK) % KBLOCK",
        f"of_keys = of_part < {p.printer.text(p.keys)}",
        *_look(p, "masks", "reached", "of_part", "of_keys"),
        f"begin = (part + tl.min(tl.where(reached, step, {steps}), 0) * {parts}) * KBLOCK",
        f"end = (part + (tl.max(tl.where(reached, step, -1), 0) + 1) * {parts}) * KBLOCK",
    ]


def _merge(p: Problem, parts: int) -> list[str]:
    """The second function: one row of the result from all parts."""
    out_width = p.widths[1]
    lanes = _lanes("place", out_width)
    return [
        *_place(f"tl.program_id(0) // {p.rows}", p),
        f"row = tl.program_id(0) % {p.rows}",
        *_row(p),
        f"place = tl.arange(0, {_tile(out_width)})",
        f"slot = tl.program_id(0).to(tl.int64) * {parts} + tl.arange(0, {parts})",
        "highest = tl.load(ws1 + slot)",
        "above = tl.max(highest, 0)",
        f"weight = {p.weight(f'highest - tl.where(above == {LOWEST}, 0.0, above)')}",
        "total = tl.sum(tl.load(ws2 + slot) * weight, 0)",
        f"sums = {_load(f'ws0 + (slot * {out_width})[:, None] + place[None, :]', lanes)}",
        f"value = {p.average('tl.sum(sums * weight[:, None], 0)', 'total')}",
        f"out_at = {p.pointer(p.result, ROWS)} + ({_of_row(p, p.result, ROWS)})",
        f"tl.store(out_at + ({p.at(p.result, ROWS, width='place')})[None, :], value[None, :], {_and(lanes)})",
    ]


def _place(pair: str, p: Problem) -> list[str]:
    """Which key head a program works for."""
    heads = p.printer.text(p.key.sizes[1])
    return [f"pair = ({pair}).to(tl.int64)", f"batch = pair // {heads}", f"head = pair % {heads}"]


def _row(p: Problem) -> list[str]:
    queries = p.printer.text(p.query.sizes[3])
    return [f"member = row // {queries}", f"query = row % {queries}"]


def _of_row(p: Problem, view: BufferView, axes: str) -> str:
    return p.at(view, axes, member="member", query="query")


def _of_key(p: Problem, view: BufferView) -> str:
    return p.at(view, KEYS, key="key.to(tl.int64)")


def _tile(extent: int) -> int:
    """How many lanes a tile has for that many."""
    return max(LEAST_DOT, power_of_two(extent))


def _lanes(name: str, extent: int) -> str | None:
    """A mask over the lanes of a tile, if some are too many."""
    return None if _tile(extent) == extent else f"({name} < {extent})[None, :]"


def _and(*masks: str | None) -> str:
    return " & ".join(m for m in masks if m is not None) or "None"


def _load(at: str, *masks: str | None, other: str = "0") -> str:
    """A load under all of the masks, if there are any."""
    mask = _and(*masks)
    return f"tl.load({at})" if mask == "None" else f"tl.load({at}, {mask}, other={other})"

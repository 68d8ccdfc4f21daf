"""Attention of a few queries over many keys on a CPU: keys and values are read once, where they lie, and no copy is made for heads that share them.

A thread takes the rows of scores of a key head: its query heads and their queries. It walks over blocks of keys with a running maximum and sum;
both products are those of few_rows.py. Blocks that the mask hides from all rows are not read.
"""

from __future__ import annotations

import math
from typing import Any

from ....ir.buffer import BufferView
from ....ir.index import Size, constant_product, constant_size, same
from ....schedule.plan import CoreKernel
from ...printer import c_index
from ...renderer import KERNEL_NAME, RenderedKernel
from .. import few_rows
from ..kernel import Writer
from ..text_rules import MEMORY_TYPES, SIMD

__all__ = ["render"]

KEYS = 128
"""Of a block."""
LOWEST = "-__builtin_inff()"
HEAD = r"""
#ifndef TW_ASK_FOR
#define TW_ASK_FOR
// Rows that are needed soon, near the second-level cache: without this a block of a cache of keys and values waits for memory twice.
template <class T> TW void tw_ask_for(const T* p, int64_t step, int64_t width, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < width; i += 64 / (int)sizeof(T)) __builtin_prefetch(p + r * step + i, 0, 2); }
#endif
"""


def render(kernel: CoreKernel, grain: int) -> RenderedKernel:
    """The text and its signature."""
    query, key, value, mask, highest = kernel.node.operands
    assert query is not None and key is not None and value is not None
    (result,) = kernel.node.results
    facts: dict[str, Any] = dict(kernel.node.facts)
    names = {buffer: f"p{n}" for n, buffer in enumerate(kernel.buffers)}
    batch, heads, members, queries, width = query.sizes
    keys, values = key.sizes[2], constant_size(value.sizes[3])
    rows, depth = math.prod(map(constant_size, (members, queries))), constant_size(width)
    w = Writer()
    line, open_, close = w.line, w.open, w.close

    def at(view: BufferView, *index: str) -> str:
        return _address(names[view.buffer], view, index)

    def kind(view: BufferView) -> str:
        return MEMORY_TYPES[kernel.layouts[view.buffer].dtype]

    each_row = f"for (int64_t r = 0; r < {rows}; ++r)"
    row = "batch", "head", f"r / {constant_size(queries)}", f"r % {constant_size(queries)}"
    end = c_index(keys) if not facts["causal"] else f"tw_imin({c_index(queries)}, {c_index(keys)})"
    line(f"const int64_t keys = {end};")
    if constant_product([batch, heads, rows, keys, depth]) > grain:
        line("#pragma omp parallel for collapse(2)")
    open_(f"for (int64_t batch = 0; batch < {c_index(batch)}; ++batch) for (int64_t head = 0; head < {c_index(heads)}; ++head)")
    line(f"{kind(query)} q[{rows * depth}];")
    line(f"float o[{rows * values}] __attribute__((aligned(64))), highest[{rows}], total[{rows}];")
    open_(each_row)
    line(f"highest[r] = {LOWEST}; total[r] = 0;")
    line(f"for (int64_t i = 0; i < {values}; ++i) o[r * {values} + i] = 0;")
    line(f"for (int64_t i = 0; i < {depth}; ++i) q[r * {depth} + i] = *({at(query, *row, 'i')});")
    close()
    masks = rows
    if mask is not None and highest is not None:
        masks = 1 if _one_for_all_rows(mask) and _one_for_all_rows(highest) else rows
        line(f"float hidden[{masks}];")
        line(f"for (int64_t r = 0; r < {masks}; ++r) hidden[r] = tw_get(*({at(highest, *row)})) - {float(facts['distance'])!r}f;")
    open_(f"for (int64_t first = 0; first < keys; first += {KEYS})")
    line(f"const int64_t count = tw_imin({KEYS}, keys - first);")
    of_values = at(value, "batch", "head", "first")
    if mask is not None:
        line(f"float m[{masks * KEYS}]; int seen = 0;")
        open_(f"for (int64_t r = 0; r < {masks}; ++r)")
        line(f"const {kind(mask)}* const from = {at(mask, *row, 'first')};")
        line(f"{SIMD} reduction(|:seen)")
        open_("for (int64_t j = 0; j < count; ++j)")
        line(f"const float a = tw_get(from[j * {c_index(mask.strides[4])}]);")
        line(f"m[r * {KEYS} + j] = a; seen |= !(a < hidden[r]);")
        close()
        close()
        line("if (!seen) continue;")
    if same(value.strides[3], 1):  # they come near while the scores are made
        line(f"tw_ask_for({of_values}, {c_index(value.strides[2])}, {values}, count);")
    line(f"float s[{rows * KEYS}] __attribute__((aligned(64)));")
    line(f"for (int64_t i = 0; i < {rows * KEYS}; ++i) s[i] = 0;")
    of_keys = _block(w, "k", key, kind(key), at(key, "batch", "head", "first"))
    line(f"tw_in_rows<{rows}, {kind(query)}, {kind(key)}>(q, {depth}, {of_keys}, {depth}, s, {KEYS}, count);")
    open_(each_row)
    line(f"float* const row = s + r * {KEYS};")
    line(f"float top = {LOWEST};")
    line(f"{SIMD} reduction(max:top)")
    open_("for (int64_t j = 0; j < count; ++j)")
    line(f"float c = row[j] * {float(facts['scale'])!r}f;")
    if mask is not None:
        fill = facts["fill"]
        line(f"const float a = m[{'j' if masks == 1 else f'r * {KEYS} + j'}];")
        line("c = c + a;" if fill is None else f"c = a == {float(fill)!r}f ? a : c + a;")
    if facts["causal"]:
        line(f"c = first + j <= {row[3]} ? c : {LOWEST};")
    line("row[j] = c; top = c > top ? c : top;")
    close()
    line(f"const float above = top > highest[r] ? top : highest[r], base = above == {LOWEST} ? 0 : above;")
    line("const float kept = tw_exp(highest[r] - base);")
    line("float sum = 0;")
    line(f"{SIMD} reduction(+:sum)")
    line("for (int64_t j = 0; j < count; ++j) { const float p = tw_exp(row[j] - base); row[j] = p; sum += p; }")
    line("total[r] = total[r] * kept + sum; highest[r] = above;")
    line(f"for (int64_t i = 0; i < {values}; ++i) o[r * {values} + i] *= kept;")
    close()
    of_values = _block(w, "v", value, kind(value), of_values)
    line(f"tw_in_columns<{rows}, {values}, float, {kind(value)}>(s, {KEYS}, 1, {of_values}, count, o, {values}, {values});")
    close()
    open_(each_row)
    zeroed = "total[r] == 0 ? 1 : " if facts["zeroed"] else ""
    line(f"const float sum = {zeroed}total[r];")
    line(f"for (int64_t i = 0; i < {values}; ++i) tw_put({at(result, *row, 'i')}, o[r * {values} + i] / sum);")
    close()
    close()
    parameters = [f"{MEMORY_TYPES[kernel.layouts[b].dtype]}* {n}" for b, n in names.items()]
    parameters += [f"int64_t {s}" for s in kernel.sizes]
    head = f'extern "C" void {KERNEL_NAME}({", ".join(parameters)}) {{'
    signature = ("*",) * len(names) + ("i64",) * len(kernel.sizes)
    return RenderedKernel("\n".join([few_rows.HEAD, HEAD, head, *w.lines, "}"]), signature)


def _one_for_all_rows(view: BufferView) -> bool:
    """Whether the heads of a group and their queries see the same elements."""
    return all(same(size, 1) or same(stride, 0) for size, stride in zip(view.sizes[2:4], view.strides[2:4], strict=True))


def _block(w: Writer, name: str, view: BufferView, kind: str, first: str) -> str:
    """Where a block of keys or values is whose elements lie side by side, and how far its rows are apart, as arguments of a call."""
    step, lane = view.strides[2:]
    if same(lane, 1) or same(view.sizes[3], 1):
        return f"{first}, {c_index(step)}"
    width = constant_size(view.sizes[3])
    w.line(f"{kind} {name}[{KEYS * width}];")
    w.line(f"for (int64_t j = 0; j < count; ++j) for (int64_t i = 0; i < {width}; ++i)")
    w.line(f"  {name}[j * {width} + i] = ({first})[j * {c_index(step)} + i * {c_index(lane)}];")
    return f"{name}, {width}"


def _address(pointer: str, view: BufferView, index: tuple[str, ...]) -> str:
    """Text of the address of an element, whose first positions these are."""
    terms = [] if same(view.offset, 0) else [c_index(view.offset)]
    sizes: tuple[Size, ...] = view.sizes
    for text, size, stride in zip(index, sizes, view.strides, strict=False):
        if not same(size, 1) and not same(stride, 0):
            terms.append(f"({text}) * {c_index(stride)}")
    return " + ".join([pointer, *terms])

"""Attention whose scores are changed and masked by a loop body, on a CPU, without all scores in memory.

A thread takes a block of queries and walks over blocks of keys: the scores of the two, what the body makes of them, a running maximum and
sum, and the products with the values all stay in its second-level cache. Keys and values are packed as they come, turned and in slivers of
SLIVER columns, so that each product runs over memory that lies side by side. What the mask hides from a whole block is not visited, and where
it hides nothing it is not evaluated: bounds (reach.py) say so, or the counts and indices of a BlockMask where bounds know too little. Halves
are floats from the time that they are packed, but pairs of bfloat16 stay these where the processor multiplies them; weights are then rounded to it
before they are multiplied, as the library's kernel rounds them.

The node's facts are those of the core for a GPU: `body` over (batch, head, query, key), which reads the score as `local("score")` and defines
"changed" and "keep"; `index`, its variables; `scale`; `blocks`, how many operands a BlockMask has; `extents`, queries and keys of a block of
it; `zeroed`, whether a row that sees nothing is 0, and not NaN. The other results are binary logarithms of the sums, and the highest scores.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from ....ir.body import Instruction, LoopBody, Ref, read_directly
from ....ir.buffer import BufferView
from ....ir.index import Size, constant_product, constant_size, same
from ....schedule.plan import CoreKernel, LoopKernel, Pass
from ...printer import c_index
from ...reach import Reach, Words, reach_of
from ...renderer import KERNEL_NAME, RenderedKernel
from ..kernel import CppKernel
from ..prefix import WIDE
from ..text_rules import MEMORY_TYPES, SIMD

__all__ = ["HEAD", "render"]

MOST_QUERIES = 64
"""Of a block."""
KEYS = 128
"""Of a block, in slivers."""
SLIVER = 32
"""Columns that are packed side by side: two vectors of 512 bits, or two times two of 256."""
PANEL = 8
"""Rows that a product computes together; blocks of queries are filled up to whole panels."""
WORDS = Words("tw_imax", "tw_imin", "tw_chosen")

HEAD = (
    WIDE
    + r"""
#ifndef TW_ATTENTION
#define TW_ATTENTION
TW int64_t tw_chosen(bool c, int64_t a, int64_t b) { return c ? a : b; }
#ifdef __AVX512F__
enum { tw_panel = 8 };
#else
enum { tw_panel = 4 };
#endif
// What operands are kept as: floats, or pairs of bfloat16 where the processor multiplies these, which takes half as long.
template <class T> struct tw_kept {
  typedef float type; enum { in_pairs = false };
  TW float* weights_in(float* scores, float*) { return scores; }
  TW void keep_weights(const float*, int64_t, float*) {} };
#if defined(__AVX512BF16__) && defined(__AVX512F__)
template <> struct tw_kept<tw_bf16> {
  typedef tw_bf16 type; enum { in_pairs = true };
  TW tw_bf16* weights_in(float*, tw_bf16* own) { return own; }
  TW void keep_weights(const float* s, int64_t count, tw_bf16* d) {
    _Pragma("omp simd")
    for (int64_t k = 0; k < count; ++k) tw_put(d + k, s[k]);
    if (count % 2) d[count].bits = 0; } };
#endif
// A panel of rows of C, two vectors wide: C = A @ B times the scale, or A @ B added to C. B lies in a sliver.
TW void tw_panel_product(int64_t depth, const float* a, int64_t la, const float* b, float* c, int64_t lc, float scale, bool add) {
  tw_vector x[tw_panel], y[tw_panel];
#pragma GCC unroll 8
  for (int i = 0; i < tw_panel; ++i) {
    x[i] = add ? *(const tw_loose*)(c + i * lc) : (tw_loose){};
    y[i] = add ? *(const tw_loose*)(c + i * lc + tw_width) : (tw_loose){}; }
  for (int64_t k = 0; k < depth; ++k) {
    const tw_vector v = *(const tw_loose*)(b + k * SLIVER), w = *(const tw_loose*)(b + k * SLIVER + tw_width);
#pragma GCC unroll 8
    for (int i = 0; i < tw_panel; ++i) {
      const tw_vector s = a[i * la + k] - (tw_vector){};
      x[i] = TW_MADD(s, v, x[i]); y[i] = TW_MADD(s, w, y[i]); } }
#pragma GCC unroll 8
  for (int i = 0; i < tw_panel; ++i) {
    *(tw_loose*)(c + i * lc) = add ? x[i] : x[i] * scale;
    *(tw_loose*)(c + i * lc + tw_width) = add ? y[i] : y[i] * scale; } }
#if defined(__AVX512BF16__) && defined(__AVX512F__)
TW void tw_panel_product(int64_t depth, const tw_bf16* a, int64_t la, const tw_bf16* b, float* c, int64_t lc, float scale, bool add) {
  typedef int32_t pair __attribute__((aligned(2), may_alias));
  typedef tw_words pairs __attribute__((aligned(2), may_alias));
  tw_vector x[tw_panel], y[tw_panel];
#pragma GCC unroll 8
  for (int i = 0; i < tw_panel; ++i) {
    x[i] = add ? *(const tw_loose*)(c + i * lc) : (tw_loose){};
    y[i] = add ? *(const tw_loose*)(c + i * lc + tw_width) : (tw_loose){}; }
  for (int64_t k = 0; k < depth; k += 2) {
    const tw_words v = *(const pairs*)(b + k * SLIVER), w = *(const pairs*)(b + k * SLIVER + 2 * tw_width);
#pragma GCC unroll 8
    for (int i = 0; i < tw_panel; ++i) {
      const tw_words s = *(const pair*)(a + i * la + k) - (tw_words){};
      __asm__("vdpbf16ps %1, %2, %0" : "+v"(x[i]) : "v"(v), "v"(s));
      __asm__("vdpbf16ps %1, %2, %0" : "+v"(y[i]) : "v"(w), "v"(s)); } }
#pragma GCC unroll 8
  for (int i = 0; i < tw_panel; ++i) {
    *(tw_loose*)(c + i * lc) = add ? x[i] : x[i] * scale;
    *(tw_loose*)(c + i * lc + tw_width) = add ? y[i] : y[i] * scale; } }
#endif
TW int tw_elements_of(const float*) { return 1; }
TW int tw_elements_of(const tw_bf16*) { return 2; }
// C = A @ B times the scale, or A @ B added to C: whole panels of rows; slivers of B, `lb` apart.
template <class P> static __attribute__((noinline)) void tw_block_product(int64_t rows, int64_t columns, int64_t depth, const P* a,
    int64_t la, const P* b, int64_t lb, float* c, int64_t lc, float scale, bool add) {
  for (int64_t j = 0; j < columns; j += SLIVER)
    for (int64_t t = 0; t < SLIVER; t += 2 * tw_width)
      for (int64_t i = 0; i < rows; i += tw_panel)
        tw_panel_product(depth, a + i * la, la, b + j / SLIVER * lb + t * tw_elements_of(b), c + i * lc + j + t, lc, scale, add); }
template <class T> TW void tw_row_of(const T* s, int64_t lane, int64_t width, float* d) {
  if (lane == 1) {
    _Pragma("omp simd")
    for (int64_t k = 0; k < width; ++k) d[k] = tw_get(s[k]); }
  else for (int64_t k = 0; k < width; ++k) d[k] = tw_get(s[k * lane]); }
TW void tw_row_of(const tw_bf16* s, int64_t lane, int64_t width, tw_bf16* d) {
  if (lane == 1) for (int64_t k = 0; k < width; ++k) d[k] = s[k];
  else for (int64_t k = 0; k < width; ++k) d[k] = s[k * lane];
  if (width % 2) d[width].bits = 0; }
// Rows as the columns of slivers, `step_of` apart.
template <class T, int W, int step_of> static void tw_pack_turned(const T* s, int64_t step, int64_t lane, int64_t rows, float* d) {
  for (int64_t j = 0; j < rows; j += SLIVER, d += step_of) {
    const int64_t count = tw_imin(SLIVER, rows - j);
    float plain[SLIVER * W] __attribute__((aligned(64)));
    for (int64_t i = 0; i < count; ++i) tw_row_of(s + (j + i) * step, lane, W, plain + i * W);
    tw_turn(plain, W, d, SLIVER, count, W); } }
template <class T, int W, int step_of> static void tw_pack_turned(const tw_bf16* s, int64_t step, int64_t lane, int64_t rows, tw_bf16* d) {
  enum { pairs = (W + 1) / 2 };
  for (int64_t j = 0; j < rows; j += SLIVER, d += step_of) {
    const int64_t count = tw_imin(SLIVER, rows - j);
    float plain[SLIVER * pairs] __attribute__((aligned(64))), turned[SLIVER * pairs] __attribute__((aligned(64)));
    for (int64_t i = 0; i < count; ++i) {
      tw_bf16 row[2 * pairs];
      tw_row_of(s + (j + i) * step, lane, W, row);
      __builtin_memcpy(plain + i * pairs, row, sizeof row); }
    tw_turn(plain, pairs, turned, SLIVER, count, pairs);
    __builtin_memcpy(d, turned, sizeof turned); } }
// Rows as the rows of slivers; columns that are missing are zeros.
template <class T, int W> static void tw_pack_straight(const T* s, int64_t step, int64_t lane, int64_t rows, int64_t depth, float* d) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < W; j += SLIVER) {
      const int64_t count = W - j < SLIVER ? W - j : SLIVER;
      float* to = d + j * depth + i * SLIVER;
      tw_row_of(s + i * step + j * lane, lane, count, to);
      for (int64_t k = count; k < SLIVER; ++k) to[k] = 0; } }
// The same with an element of the next row beside each; a row that is missing is zeros.
template <class T, int W> static void tw_pack_straight(const tw_bf16* s, int64_t step, int64_t lane, int64_t rows, int64_t depth, tw_bf16* d) {
  for (int64_t i = 0; i < rows; i += 2)
    for (int64_t j = 0; j < W; j += SLIVER) {
      const int64_t count = W - j < SLIVER ? W - j : SLIVER;
      tw_bf16 a[SLIVER + 1] = {}, b[SLIVER + 1] = {};
      uint32_t both[SLIVER];
      tw_row_of(s + i * step + j * lane, lane, count, a);
      if (i + 1 < rows) tw_row_of(s + (i + 1) * step + j * lane, lane, count, b);
      for (int64_t k = 0; k < SLIVER; ++k) both[k] = a[k].bits | (uint32_t)b[k].bits << 16;
      __builtin_memcpy(d + j * depth + i * SLIVER, both, sizeof both); } }
// exp of what is not positive, or NaN.
TW float tw_exp_down(float x) {
  float c = x < -87.3f ? -87.3f : x;
  float n = __builtin_nearbyintf(c * 1.44269504088896341f);
  float r = __builtin_fmaf(n, -0.693145751953125f, c); r = __builtin_fmaf(n, -1.42860682e-6f, r);
  float p = 0.0013950482443672013f; p = __builtin_fmaf(p, r, 0.008368887938559055f); p = __builtin_fmaf(p, r, 0.04166620597243309f);
  p = __builtin_fmaf(p, r, 0.166665181517601f); p = __builtin_fmaf(p, r, 0.5f); p = __builtin_fmaf(p, r * r, r) + 1.f;
  float y = p * tw_bits<float>((int32_t)((uint32_t)((int32_t)n + 127) << 23));
  return x < -87.3f ? 0.f : y; }
#endif
""".replace("SLIVER", str(SLIVER))
)
LOWEST = "-__builtin_inff()"


def render(kernel: CoreKernel, grain: int) -> RenderedKernel:
    """The text and its signature."""
    return _Attention(kernel, grain).rendered()


class _Attention:
    def __init__(self, kernel: CoreKernel, grain: int) -> None:
        facts = dict(kernel.node.facts)
        self.body: LoopBody = read_directly(facts["body"])
        self.index: tuple[Size, ...] = facts["index"]
        self.extents: tuple[int, ...] = facts["extents"]
        self.scale: float = facts["scale"]
        self.zeroed: bool = facts["zeroed"]
        self.q, self.k, self.v = (_there(view) for view in kernel.node.operands[:3])
        self.blocks = [_there(view) for view in kernel.node.operands[3 : 3 + facts["blocks"]]]
        self.out, self.logs, self.highest = kernel.node.results
        self.kernel = kernel
        self.grain = grain
        self.nest = _nest(kernel, self.body, grain)
        self.w = self.nest.w
        self.most = MOST_QUERIES
        self.defined = {i.args[0]: i.args[1] for i in self.body.instructions if i.op == "define"}

    def rendered(self) -> RenderedKernel:
        """The kernel."""
        nest, kernel = self.nest, self.kernel
        parameters = [f"{MEMORY_TYPES[kernel.layouts[b].dtype]}* {n}" for b, n in nest.names.items()]
        parameters += [f"int64_t {s}" for s in kernel.sizes]
        self._write()
        result = "int32_t" if nest.checks else "void"
        head = f'extern "C" {result} {KERNEL_NAME}({", ".join(parameters)}) {{'
        signature = ("*",) * len(nest.names) + ("i64",) * len(kernel.sizes)
        launch = (("result", "i32"),) if nest.checks else ()
        return RenderedKernel("\n".join([HEAD, head, *self.w.lines, "}"]), signature, launch)

    # sizes

    @property
    def widths(self) -> tuple[int, int]:
        """Of a key and of a value."""
        return constant_size(self.q.sizes[3]), constant_size(self.v.sizes[3])

    def _place(self, view: BufferView, *at: str) -> str:
        """Text of the address of an element, whose first positions these are."""
        terms = [c_index(view.offset)] if not same(view.offset, 0) else []
        for text, size, stride in zip(at, view.sizes, view.strides, strict=False):
            if not same(size, 1) and not same(stride, 0):
                terms.append(f"{text} * {c_index(stride)}")
        return " + ".join([self.nest.names[view.buffer], *terms])

    def _type(self, view: BufferView) -> str:
        return MEMORY_TYPES[self.kernel.layouts[view.buffer].dtype]

    # text

    def _write(self) -> None:
        line, open_, close = self.w.line, self.w.open, self.w.close
        batch, heads, queries, keys = (*self.q.sizes[:3], self.k.sizes[2])
        width, values = self.widths
        wide = -(-values // SLIVER) * SLIVER
        checks = self.nest.checks
        line(
            f"const int64_t queries = {c_index(queries)}, keys = {c_index(keys)}, blocks = (queries + {self.most - 1}) / {self.most};"
        )
        if checks:
            line("int wrong = 0;")
        line(f"const int64_t tasks = {c_index(batch)} * {c_index(heads)} * blocks;")
        if constant_product([batch, heads, queries, keys, width]) > self.grain:
            clause = " reduction(|:wrong)" if checks else ""
            line(f"#pragma omp parallel for schedule(dynamic){clause} if (tasks > 1)")
        open_("for (int64_t task = 0; task < tasks; ++task)")
        # Blocks that see most come first where later queries see more.
        fast, slow = ("blocks", c_index(heads)) if self._head_by_head() else (c_index(heads), "blocks")
        places = f"task % {fast}", f"task / {fast} % {slow}"
        block, head = places if self._head_by_head() else places[::-1]
        line(f"const int64_t block = blocks - 1 - {block}, head = {head}, batch = task / blocks / {c_index(heads)};")
        line(f"const int64_t group = head / {self._groups()};")
        line(f"const int64_t x_first = block * {self.most}, rows = tw_imin({self.most}, queries - x_first);")
        line(f"const int64_t x_last = x_first + rows - 1, panels = (rows + {PANEL - 1}) / {PANEL} * {PANEL};")
        for variable, text in zip(self.index[:2], ("batch", "head"), strict=True):
            self._variable(variable, text)
        for name, of, group in (("q", self.q, "head"), ("k", self.k, "group"), ("v", self.v, "group"), ("out", self.out, "head")):
            line(f"{self._type(of)}* const {name}_at = {self._place(of, 'batch', group)};")
        kinds = {self._type(of) for of in (self.q, self.k, self.v)}
        line(f"typedef tw_kept<{kinds.pop() if len(kinds) == 1 else 'float'}> kept; typedef kept::type element;")
        even = width + width % 2
        for name, size in (("q", self.most * even), ("k", KEYS * even), ("v", KEYS * wide)):
            line(f"element {name}[{size}] __attribute__((aligned(64)));")
        line(f"element own[kept::in_pairs ? {self.most * KEYS} : 1] __attribute__((aligned(64)));")
        sizes = {"s": self.most * KEYS, "o": self.most * wide, "highest": self.most, "total": self.most}
        for name, size in sizes.items():
            line(f"float {name}[{size}] __attribute__((aligned(64)));")
        line("element* const weights = kept::weights_in(s, own);")
        line(f"for (int64_t i = rows * {even}; i < panels * {even}; ++i) q[i] = element();")
        open_("for (int64_t i = 0; i < rows; ++i)")
        step, lane = (c_index(s) for s in self.q.strides[2:])
        line(f"tw_row_of(q_at + (x_first + i) * {step}, {lane}, {width}, q + i * {even});")
        close()
        line(f"for (int64_t i = 0; i < panels * {wide}; ++i) o[i] = 0;")
        line(f"for (int64_t i = 0; i < rows; ++i) highest[i] = {LOWEST}, total[i] = 0;")
        self._parts()
        self._step(width, values, wide)
        close()
        close()
        self._results(values, wide)
        close()
        if checks:
            line("return wrong;")

    def _head_by_head(self) -> bool:
        """Whether keys and values of a head are what stays in the cache from task to task, and not what heads share for a block of queries."""
        _, head, query, key = self.index
        read = [i.args[1].free_symbols for i in self.body.loads() if not isinstance(i.args[1], int)]
        return not any({query, key} <= of and head not in of for of in read)

    def _groups(self) -> int:
        """How many heads of queries share one of keys."""
        return constant_size(self.q.sizes[1]) // constant_size(self.k.sizes[1])

    def _variable(self, variable: Size, text: str) -> None:
        if not isinstance(variable, int):
            self.w.line(f"const int64_t {c_index(variable)} = {text};")

    def _step(self, width: int, values: int, wide: int) -> None:
        """What is done with a block of keys."""
        line, open_, close = self.w.line, self.w.open, self.w.close
        even = width + width % 2
        open_(f"for (int64_t first = begin; first < end; first += {KEYS})")
        line(f"const int64_t count = tw_imin({KEYS}, end - first);")
        for name, view in (("k", self.k), ("v", self.v)):
            at, lane = (c_index(s) for s in view.strides[2:])
            kind = self._type(view)
            more = f", {KEYS}" if name == "v" else ""
            pack = f"tw_pack_turned<{kind}, {width}, {even * SLIVER}>" if name == "k" else f"tw_pack_straight<{kind}, {values}>"
            line(f"{pack}({name}_at + first * {at}, {at}, {lane}, count{more}, {name});")
        line(f"tw_block_product(panels, count, {width}, q, {even}, k, {even * SLIVER}, s, {KEYS}, {self.scale!r}f, false);")
        if self.nest.checks:
            line("int bad = 0;")
        open_("for (int64_t i = 0; i < rows; ++i)")
        line(f"float* const row = s + i * {KEYS};")
        self._variable(self.index[2], "x_first + i")
        line(f"float top = {LOWEST};")
        unchanged = self.body.instructions[self.defined["changed"].position].op == "local"
        open_("if (masked)")
        self._changed(("changed", "keep"))
        close()
        open_("else")
        if unchanged:
            line(f"{SIMD} reduction(max:top)")
            line("for (int64_t j = 0; j < count; ++j) top = row[j] > top ? row[j] : top;")
        else:
            self._changed(("changed",))
        close()
        line(f"const float above = top > highest[i] ? top : highest[i], base = above == {LOWEST} ? 0 : above;")
        line("const float rest = tw_exp_down(highest[i] - base);")
        line("float sum = 0;")
        line(f"{SIMD} reduction(+:sum)")
        line("for (int64_t j = 0; j < count; ++j) { const float p = tw_exp_down(row[j] - base); row[j] = p; sum += p; }")
        line(f"kept::keep_weights(row, count, weights + i * {KEYS});")
        line("total[i] = total[i] * rest + sum;")
        line("highest[i] = above;")
        line(f"if (rest != 1) for (int64_t k = 0; k < {wide}; ++k) o[i * {wide} + k] *= rest;")
        close()
        line(f"tw_block_product(panels, {wide}, count, weights, {KEYS}, v, {KEYS * SLIVER}, o, {wide}, 1, true);")
        if self.nest.checks:
            line("wrong |= bad;")

    def _changed(self, names: Collection[str]) -> None:
        """The loop that changes the scores of a row, and hides some of them if "keep" is among what the body defines here."""
        w, nest = self.w, self.nest
        w.line(f"{SIMD} reduction(max:top){nest.bad_clause()}")
        w.open("for (int32_t j = 0; j < (int32_t)count; ++j)")
        self._variable(self.index[3], "first + j")
        w.line("const float score = row[j];")
        nest.locals["score"] = ("score", torch.float32)
        nest.statements(_behind(self.body, {n: self.defined[n] for n in names}), {})
        changed = nest.locals["changed"][0]
        text = f"{nest.locals['keep'][0]} ? {changed} : {LOWEST}" if "keep" in names else changed
        w.line(f"const float c = {text};")
        w.line("row[j] = c;")
        w.line("top = c > top ? c : top;")
        w.close()

    # loops

    def _parts(self) -> None:
        """Opens a loop over the parts of what the block of queries sees: keys from `begin` up to `end`, and whether they are `masked`."""
        count = 0

        def scalar(ref: Ref) -> str:
            nonlocal count
            name = f"limit{(count := count + 1)}"
            self.nest.statements(_behind(self.body, {name: ref}), {})
            return f"(int64_t){self.nest.locals[name][0]}"

        if self.nest.checks:
            self.w.line("int bad = 0;")
        ends, keep = ("x_first", "x_last"), self.defined["keep"]
        reach = reach_of(self.body, keep, self.index[3], self.index[2], ends, "keys", scalar, WORDS)
        if not reach.known and self.blocks and self.extents[0] % self.most == 0:
            self._by_blocks()
        else:
            self._by_bounds(reach)

    def _by_bounds(self, reach: Reach) -> None:
        """What is possible before what is certain, that, and what is possible behind it."""
        line = self.w.line
        low, high = reach.possible.low, reach.possible.high
        line(f"const int64_t low = {'0' if low is None else f'tw_imax({low}, 0)'};")
        line(f"const int64_t high = {'keys' if high is None else f'tw_imin({high}, keys)'};")
        sure, unsure = "high", "high"
        if reach.certain is not None:
            before, behind = reach.certain.low, reach.certain.high
            sure = "low" if before is None else f"tw_imin(tw_imax({before}, low), high)"
            # A sliver is not divided: its other part would be packed again.
            inner = f"sure + tw_imax({behind} - sure, 0) / {SLIVER} * {SLIVER}"
            unsure = "high" if behind is None else f"tw_imax(sure, tw_imin({inner}, high))"
        line(f"const int64_t sure = {sure};")
        line(f"const int64_t limits[] = {{low, sure, {unsure}, high}};")
        self.w.open("for (int64_t part = 0; part < 3; ++part)")
        line("const int64_t begin = limits[part], end = limits[part + 1];")
        line("const bool masked = part != 1;")

    def _by_blocks(self) -> None:
        """Partial blocks under the mask, then full ones."""
        line, (own, other) = self.w.line, self.extents
        at = "batch", "head", f"x_first / {own}"
        for n, name in ((0, "partial"), (2, "full")):
            count, listed = self.blocks[n : n + 2]
            line(f"const int64_t {name} = *({self._place(count, *at)});")
            line(f"const {self._type(listed)}* const {name}_at = {self._place(listed, *at)};")
        self.w.open("for (int64_t part = 0; part < partial + full; ++part)")
        line("const bool masked = part < partial;")
        places = (
            f"{name}_at[{n} * {c_index(self.blocks[b].strides[3])}]"
            for name, n, b in (("partial", "part", 1), ("full", "(part - partial)", 3))
        )
        line(f"const int64_t begin = (masked ? {' : '.join(places)}) * (int64_t){other}, end = tw_imin(begin + {other}, keys);")

    def _results(self, values: int, wide: int) -> None:
        line, open_, close = self.w.line, self.w.open, self.w.close
        open_("for (int64_t i = 0; i < rows; ++i)")
        line("const int64_t x = x_first + i;")
        zeroed = "total[i] == 0 ? 1 : " if self.zeroed else ""
        line(f"const float sum = {zeroed}total[i];")
        step, lane = (c_index(s) for s in self.out.strides[2:])
        line(SIMD)
        line(f"for (int64_t k = 0; k < {values}; ++k) tw_put(out_at + x * {step} + k * {lane}, o[i * {wide} + k] / sum);")
        line(f"*({self._place(self.logs, 'batch', 'head', 'x')}) = tw_log2(total[i]);")
        line(f"*({self._place(self.highest, 'batch', 'head', 'x')}) = highest[i];")
        close()


def _nest(kernel: CoreKernel, body: LoopBody, grain: int) -> CppKernel:
    """What writes the statements of the body."""
    return CppKernel(
        LoopKernel(
            kernel.name, kernel.device, body.axes, (), (Pass("outer", body),), (), kernel.buffers, kernel.layouts, kernel.sizes,
            kernel.reads, kernel.writes,
        ),
        grain,
    )  # fmt: skip


def _there(view: BufferView | None) -> BufferView:
    assert view is not None
    return view


def _behind(body: LoopBody, values: Mapping[str, Ref]) -> list[Instruction]:
    """What these values are computed from, computed positions of loads included, and then definitions of them."""
    kept = {ref.position for ref in values.values()}
    indirect = {i.args[2]: n for n, i in enumerate(body.instructions) if i.op == "indirect"}
    for n in range(max(kept), -1, -1):
        if n in kept:
            for arg in body.instructions[n].args:
                kept |= {arg.position} if isinstance(arg, Ref) else set()
                kept |= {indirect[s] for s in getattr(arg, "free_symbols", ()) if s in indirect}
    moved = {old: Ref(new) for new, old in enumerate(sorted(kept))}
    found = [body.instructions[n] for n in moved]
    found = [i._replace(args=tuple(moved[a.position] if isinstance(a, Ref) else a for a in i.args)) for i in found]
    return [*found, *(Instruction("define", (name, moved[ref.position]), None) for name, ref in values.items())]

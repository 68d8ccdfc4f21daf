"""Products of a few rows with a large matrix, which is read once, where it lies, at the speed of the memory.

A thread takes columns of the result. Where the elements of the large matrix lie side by side along its inner dimension, some columns that
lie far apart are added up together, each in vectors of its own, for all rows; where they lie side by side along the columns, the sums of a
block of columns stay in the first-level cache, and some of the matrix's rows are added to them together. Elements become floats as they are
read; two matrices of bfloat16 are multiplied in pairs where the processor does that. A row of bfloat16 that is whole multiples of one number
is multiplied with bytes as integers. A matrix whose elements are computed (four bits each, say) is computed a piece at a time. What follows
in the kernel runs over a block of the result while that is in the cache.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ...ir.body import Axis, Instruction, LoopBody, Ref, axes_behind
from ...ir.index import Expr, Size, constant_product, substitute
from ...schedule.plan import LoopKernel
from ..printer import c_index
from .prefix import WIDE
from .text_rules import MEMORY_TYPES, SIMD

if TYPE_CHECKING:
    from .kernel import CppKernel

__all__ = ["HEAD", "MOST_ROWS", "FewRows", "few_rows", "few_rows_nest", "large_matrices"]

MOST_ROWS = 8
"""Of the small matrix."""
READ = frozenset({torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.uint8})
"""Dtypes of elements that become floats as they are read."""
BLOCK = 480
"""The most columns of a block, where a column's elements lie side by side; a multiple of 32."""
ROW_BLOCK = 2048
"""Sums in the first-level cache where they do not: rows of the small matrix times columns of a block."""
PIECE = 256
"""Elements of a column that are computed at a time, where they are."""
COMPUTED = 12
"""Columns whose elements are: a multiple of most numbers of columns that are added up together."""

HEAD = (
    WIDE
    + r"""
#ifndef TW_FEW_ROWS
#define TW_FEW_ROWS
// Columns for a block of a task, of at most `most`: blocks of about one size, whole steps too.
TW int64_t tw_columns_of_block(int64_t task, int64_t most) {
  const int64_t blocks = (task + most - 1) / most;
  return ((task + blocks - 1) / blocks + 31) / 32 * 32; }
// What the small matrix's elements are kept as: floats, but a row alone as it is: less of the first-level cache, and made floats once.
template <bool one, class X> struct tw_small { typedef float type; };
template <class X> struct tw_small<true, X> { typedef X type; };
TW void tw_keep(const float* x, float* to) { *(tw_loose*)to = tw_wide(x); }
template <class X> TW void tw_keep(const X* x, float* to) { *(tw_loose*)to = tw_wide(x); }
template <class X> TW void tw_keep(const X* x, X* to) { __builtin_memcpy(to, x, tw_width * sizeof(X)); }
// What is read once, and not by each product that needs it.
TW tw_vector tw_in_register(tw_vector v) {
#ifdef __AVX2__
  __asm__("" : "+v"(v));
#endif
  return v; }
// Sums that are floats. A row of the small matrix is kept step by step, and is no multiple of a number. twice: whether two steps at a time are
// quicker.
template <class P> struct tw_in_floats {
  typedef tw_vector sum; enum { twice = 1 };
  TW tw_vector total(tw_vector s) { return s; }
  template <class X, class K> TW float keep_row(const X* x, int64_t count, K* to) {
    for (int64_t k = 0; k < count; k += P::step) P::keep(x + k, to + k);
    return 1; } };
// What a step multiplies: `step` elements of either matrix, of which the small one has M rows, or 3 and more. That is kept as `kept`, in an order
// of its own within a step.
template <class X, class W, int M> struct tw_pair : tw_in_floats<tw_pair<X, W, M>> {
  enum { bytes = tw_width * (int)sizeof(W), vectors = bytes >= 64 ? 1 : bytes >= 32 ? 2 : 4 };
  struct part { tw_vector v[vectors]; };
  typedef typename tw_small<M == 1, X>::type kept; typedef part x_part; typedef part w_part;
  enum { step = vectors * tw_width, sums = tw_width < 16 ? 8 : vectors == 1 ? 24 : 16 };
  static TW_INLINE void keep(const X* x, kept* to) { for (int i = 0; i < vectors; ++i) tw_keep(x + i * tw_width, to + i * tw_width); }
  static TW_INLINE part x(const kept* p) {
    part r;
#pragma GCC unroll 4
    for (int i = 0; i < vectors; ++i) r.v[i] = tw_in_register(tw_wide(p + i * tw_width));
    return r; }
  static TW_INLINE part w(const W* p) {
    part r;
#pragma GCC unroll 4
    for (int i = 0; i < vectors; ++i) r.v[i] = tw_wide(p + i * tw_width);
    return r; }
  static TW_INLINE tw_vector add(const part& x, const part& w, tw_vector s) {
#pragma GCC unroll 4
    for (int i = 0; i < vectors; ++i) s = TW_MADD(x.v[i], w.v[i], s);
    return s; } };
typedef tw_words tw_loose_words __attribute__((aligned(1), may_alias));
#if defined(__AVX512BF16__) && defined(__AVX512F__)
TW tw_vector tw_add_pairs(tw_words x, tw_words w, tw_vector s) {
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(s) : "v"(x), "v"(w));
  return s; }
template <int M> struct tw_pair<tw_bf16, tw_bf16, M> : tw_in_floats<tw_pair<tw_bf16, tw_bf16, M>> {
  typedef tw_bf16 kept; typedef tw_words x_part; typedef tw_words w_part;
  enum { vectors = 1, step = 2 * tw_width, sums = 24, twice = 0 };
  static TW_INLINE void keep(const tw_bf16* x, kept* to) { *(tw_loose_words*)to = *(const tw_loose_words*)x; }
  static TW_INLINE x_part x(const kept* p) { return *(const tw_loose_words*)p; }
  static TW_INLINE w_part w(const tw_bf16* p) { return *(const tw_loose_words*)p; }
  static TW_INLINE tw_vector add(x_part x, w_part w, tw_vector s) { return tw_add_pairs(x, w, s); } };
// Eight bits are exact in bfloat16: a word holds four of them, which become the pairs at even and at odd places. That takes longer than to make
// floats of them, and multiplying half as long.
template <class W, class V> struct tw_pair_of_bytes : tw_in_floats<tw_pair_of_bytes<W, V>> {
  typedef tw_bf16 kept; struct x_part { tw_words even, odd; }; typedef x_part w_part;
  typedef V words __attribute__((vector_size(64)));
  enum { vectors = 2, step = 4 * tw_width, sums = 16 };
  static TW_INLINE void keep(const tw_bf16* x, kept* to) {
    uint32_t* p = (uint32_t*)to;
    for (int i = 0; i < tw_width; ++i) {
      __builtin_memcpy(p + i, (const char*)x + 8 * i, 4);
      __builtin_memcpy(p + tw_width + i, (const char*)x + 8 * i + 4, 4); } }
  static TW_INLINE x_part x(const kept* p) { return {*(const tw_loose_words*)p, *(const tw_loose_words*)(p + 2 * tw_width)}; }
  static TW_INLINE tw_words pairs(words low, words high) {
    const tw_words a = (tw_words)__builtin_convertvector((tw_words)low, tw_vector);
    const tw_words b = (tw_words)__builtin_convertvector((tw_words)high, tw_vector);
    typedef uint32_t plain __attribute__((vector_size(64)));
    return (tw_words)((plain)a >> 16) | (b & (int32_t)0xffff0000); }
  static TW_INLINE w_part w(const W* p) {
    const words v = (words)*(const tw_loose_words*)p;
    return {pairs(v << 24 >> 24, v << 16 >> 24), pairs(v << 8 >> 24, v >> 24)}; }
  static TW_INLINE tw_vector add(x_part x, w_part w, tw_vector s) { return tw_add_pairs(x.odd, w.odd, tw_add_pairs(x.even, w.even, s)); } };
template <> struct tw_pair<tw_bf16, int8_t, 3> : tw_pair_of_bytes<int8_t, int32_t> {};
template <> struct tw_pair<tw_bf16, uint8_t, 3> : tw_pair_of_bytes<uint8_t, uint32_t> {};
#else
// Elements at even and at odd places.
template <int M> struct tw_pair<tw_bf16, tw_bf16, M> : tw_in_floats<tw_pair<tw_bf16, tw_bf16, M>> {
  typedef tw_bf16 kept; struct x_part { tw_vector even, odd; }; typedef x_part w_part;
  enum { vectors = 2, step = 2 * tw_width, sums = tw_width == 16 ? 16 : 8 };
  static TW_INLINE void keep(const tw_bf16* x, kept* to) { *(tw_loose_words*)to = *(const tw_loose_words*)x; }
  static TW_INLINE x_part x(const kept* p) {
    const tw_words v = *(const tw_loose_words*)p;
    return {(tw_vector)(v << 16), (tw_vector)(v & (int32_t)0xffff0000)}; }
  static TW_INLINE w_part w(const tw_bf16* p) { return x(p); }
  static TW_INLINE tw_vector add(x_part x, w_part w, tw_vector s) { return TW_MADD(x.odd, w.odd, TW_MADD(x.even, w.even, s)); } };
#endif
template <class A, class B> constexpr bool tw_same = false;
template <class A> constexpr bool tw_same<A, A> = true;
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#define TW_EXACT
// Eight bits times elements of x that are whole multiples of one power of two, less than 2 ** 29 of them: two parts of 15 bits, whose products
// are added up as integers, exactly and in half the instructions that floats take. A lane adds up fewer than 512 products of 22 bits.
template <class W> struct tw_pair_exact {
  typedef int32_t kept; struct x_part { tw_words high[2], low[2]; }; struct w_part { tw_words v[2]; }; struct sum { tw_words high, low; };
  enum { vectors = 2, step = 4 * tw_width, sums = 6, twice = 0 };
  static TW_INLINE x_part x(const kept* p) {
    const tw_loose_words* v = (const tw_loose_words*)p;
    return {{v[0], v[1]}, {v[2], v[3]}}; }
  static TW_INLINE w_part w(const W* p) {
    typedef uint8_t part __attribute__((vector_size(32), aligned(1), may_alias));
    w_part r;
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      if constexpr (tw_same<W, int8_t>) __asm__("vpmovsxbw %1, %0" : "=v"(r.v[i]) : "vm"(*(const part*)(p + 32 * i)));
      else __asm__("vpmovzxbw %1, %0" : "=v"(r.v[i]) : "vm"(*(const part*)(p + 32 * i))); }
    return r; }
  static TW_INLINE sum add(const x_part& x, const w_part& w, sum s) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      __asm__("vpdpwssd %2, %1, %0" : "+v"(s.high) : "v"(w.v[i]), "v"(x.high[i]));
      __asm__("vpdpwssd %2, %1, %0" : "+v"(s.low) : "v"(w.v[i]), "v"(x.low[i])); }
    return s; }
  static TW_INLINE tw_vector total(const sum& s) {
    return __builtin_convertvector(s.high, tw_vector) * 32768.0f + __builtin_convertvector(s.low, tw_vector); }
  // Keeps a row, and gives the power of two.
  static TW_INLINE float keep_row(const tw_bf16* x, int64_t count, kept* to) {
    int32_t largest = 0;
    for (int64_t k = 0; k < count; ++k) { const int32_t a = x[k].bits & 0x7fff; largest = a > largest ? a : largest; }
    const int32_t exponent = largest >> 7;
    const float scale = tw_bits<float>((uint32_t)(282 - exponent) << 23);
    for (int64_t k = 0; k < count; k += step) {
      int16_t* const parts = (int16_t*)(to + k);
      for (int i = 0; i < step; ++i) {
        const int32_t v = (int32_t)(tw_get(x[k + i]) * scale), high = (v + 16384) >> 15;
        parts[i] = high; parts[step + i] = v - high * 32768; } }
    return tw_bits<float>((uint32_t)(exponent - 28) << 23); } };
// Whether elements have such a power of two: all are 0 or no less than the largest over 2 ** 21, and neither it nor that is near the end of the
// floats.
TW bool tw_is_exact(const tw_bf16* x, int64_t depth) {
  uint16_t largest = 0, least = 0x7fff;
  for (int64_t k = 0; k < depth; ++k) {
    const uint16_t a = x[k].bits & 0x7fff, b = a == 0 ? 0x7fff : a;
    largest = a > largest ? a : largest; least = b < least ? b : least; }
  return largest >> 7 < 255 && largest >> 7 > 28 && least >> 7 > 0 && (largest >> 7) - (least >> 7) <= 21; }
#endif
typedef float tw_four __attribute__((vector_size(16)));
template <int N> struct tw_floats {
  typedef float type __attribute__((vector_size(N * 4)));
  typedef float half __attribute__((vector_size(N * 2)));
  struct halves { half a, b; };
  TW tw_four sums(type v) { const halves h = tw_bits<halves>(v); return tw_floats<N / 2>::sums(h.a + h.b); } };
template <> struct tw_floats<4> { TW tw_four sums(tw_four v) { return v; } };
// The sums of four vectors' elements.
TW tw_four tw_sums(tw_vector a, tw_vector b, tw_vector c, tw_vector d) {
  typedef tw_floats<tw_width> of;
  const tw_four p = of::sums(a), q = of::sums(b), r = of::sums(c), s = of::sums(d);
  const tw_four t = TW_SHUFFLE(p, q, 0, 4, 1, 5) + TW_SHUFFLE(p, q, 2, 6, 3, 7);
  const tw_four u = TW_SHUFFLE(r, s, 0, 4, 1, 5) + TW_SHUFFLE(r, s, 2, 6, 3, 7);
  return TW_SHUFFLE(t, u, 0, 1, 4, 5) + TW_SHUFFLE(t, u, 2, 3, 6, 7); }
template <class X, class W> static __attribute__((noinline)) float tw_rest_of_dot(const X* x, const W* w, int64_t count) {
  float sum = 0;
  for (int64_t k = 0; k < count; ++k) sum += tw_get(x[k]) * tw_get(w[k]);
  return sum; }
// to = x @ w.T over whole steps: M rows, N columns, whose elements lie side by side. Lines that come `ahead` elements later are asked for.
template <int M, int N, class P, class W>
TW void tw_dots(const typename P::kept* x, int64_t xm, const W* const (&w)[N], int64_t depth, int64_t ahead, float* to) {
  typename P::sum s[M][N];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 16
    for (int j = 0; j < N; ++j) s[i][j] = (typename P::sum){};
  const auto step = [&](int64_t k) __attribute__((always_inline)) {
    if constexpr (M == 1) {
      const typename P::x_part u = P::x(x + k);
#pragma GCC unroll 16
      for (int j = 0; j < N; ++j) {
        __builtin_prefetch(w[j] + k + ahead);
        s[0][j] = P::add(u, P::w(w[j] + k), s[0][j]); }
    } else {
      typename P::w_part v[N];
#pragma GCC unroll 16
      for (int j = 0; j < N; ++j) {
        __builtin_prefetch(w[j] + k + ahead, 0, 2);
        v[j] = P::w(w[j] + k); }
#pragma GCC unroll 16
      for (int i = 0; i < M; ++i) {
        const typename P::x_part u = P::x(x + i * xm + k);
#pragma GCC unroll 16
        for (int j = 0; j < N; ++j) s[i][j] = P::add(u, v[j], s[i][j]); } } };
  int64_t k = 0;
  if constexpr (M > 1 && P::twice)
    for (; k + 2 * P::step <= depth; k += 2 * P::step) { step(k); step(k + P::step); }
  for (; k < depth; k += P::step) step(k);
  const auto total = [&](int n) __attribute__((always_inline)) { return n < M * N ? P::total(s[n / N][n % N]) : (tw_vector){}; };
#pragma GCC unroll 16
  for (int n = 0; n < M * N; n += 4) *(tw_four*)(to + n) = tw_sums(total(n), total(n + 1), total(n + 2), total(n + 3)); }
// d += x @ w.T for any number of columns and elements: as many elements at a time as keep the rows of x in the caches next to the processor.
// There they are not a whole number of pages apart: lines of the first-level cache that are would take each other's place. The columns that are
// added up together are each at the head of a stretch of columns. Six streams without gaps were read at 42 GB/s by two cores of an EPYC 9004,
// four neighbours of 768 bfloat16 elements at 23, of 4096 at 33, and one stream at 29 to 37.
template <class pair, int M, class X, class W>
static __attribute__((noinline)) void tw_in_rows_of(const X* x, int64_t xm, const W* w, int64_t wn, int64_t depth, float* d, int64_t dm,
    int64_t columns) {
  typedef typename pair::kept kept;
  enum { most = 24576 / (M * (int)sizeof(kept)) / 64 * 64, ld = most + 64 / (int)sizeof(kept),
         room = pair::sums / M, N = room < 1 ? 1 : M <= 2 && pair::vectors < 4 || M == 1 ? (room < 6 ? room : 6) : room < 4 ? room : 4 };
  kept rows[M * ld] __attribute__((aligned(64)));
  const int64_t apart = (columns + N - 1) / N, pieces = (depth + most - 1) / most, piece = ((depth + pieces - 1) / pieces + 63) / 64 * 64;
  const int64_t ahead = pieces > 1 ? wn : 256 / (int)sizeof(W);  // the processor follows a stream itself, but not over gaps
  for (int64_t k = 0; k < depth; k += piece) {
    const int64_t count = tw_imin(piece, depth - k), whole = count / pair::step * pair::step;
    float unit[M];
    for (int64_t i = 0; i < M; ++i) unit[i] = pair::keep_row(x + i * xm + k, whole, rows + i * ld);
    for (int64_t j = 0; j < apart; ++j) {
      const W* from[N];
      float sums[(M * N + 3) / 4 * 4] __attribute__((aligned(16)));
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) from[n] = w + tw_imin(j + n * apart, columns - 1) * wn + k;
      tw_dots<M, N, pair>(rows, ld, from, whole, ahead, sums);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n)
        if (n == 0 || j + n * apart < columns)
#pragma GCC unroll 8
          for (int i = 0; i < M; ++i) d[i * dm + j + n * apart] += sums[i * N + n] * unit[i]; }
    if (whole < count)
      for (int64_t i = 0; i < M; ++i)
        for (int64_t j = 0; j < columns; ++j) d[i * dm + j] += tw_rest_of_dot(x + i * xm + k + whole, w + j * wn + k + whole, count - whole); } }
template <int M, class X, class W>
TW void tw_in_rows(const X* x, int64_t xm, const W* w, int64_t wn, int64_t depth, float* d, int64_t dm, int64_t columns) {
#ifdef TW_EXACT
  if constexpr (M == 1 && tw_same<X, tw_bf16> && (tw_same<W, int8_t> || tw_same<W, uint8_t>))
    if (tw_is_exact(x, depth)) return tw_in_rows_of<tw_pair_exact<W>, M>(x, xm, w, wn, depth, d, dm, columns);
#endif
  tw_in_rows_of<tw_pair<X, W, (M < 3 ? M : 3)>, M>(x, xm, w, wn, depth, d, dm, columns); }
// d += x @ w: N of w's rows, whose elements lie side by side.
template <int M, int N, class X, class W>
TW void tw_add_rows(const X* x, int64_t xm, int64_t xk, const W* w, int64_t wk, float* d, int64_t dm, int64_t columns) {
  float f[N][M];
#pragma GCC unroll 8
  for (int t = 0; t < N; ++t)
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) f[t][i] = tw_get(x[i * xm + t * xk]);
  enum { bytes = tw_width * (int)sizeof(W), vectors = bytes >= 64 ? 1 : 2, step = vectors * tw_width };
  int64_t j = 0;
  for (; j + step <= columns; j += step) {
    tw_vector v[N][vectors];
#pragma GCC unroll 8
    for (int t = 0; t < N; ++t) {
      __builtin_prefetch(w + (N + t) * wk + j);
#pragma GCC unroll 2
      for (int n = 0; n < vectors; ++n) v[t][n] = tw_wide(w + t * wk + j + n * tw_width); }
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
      for (int n = 0; n < vectors; ++n) {
        tw_vector s = *(const tw_loose*)(d + i * dm + j + n * tw_width);
#pragma GCC unroll 8
        for (int t = 0; t < N; ++t) s = TW_MADD(f[t][i] - (tw_vector){}, v[t][n], s);
        *(tw_loose*)(d + i * dm + j + n * tw_width) = s; } }
  for (; j < columns; ++j)
    for (int i = 0; i < M; ++i) {
      float s = d[i * dm + j];
      for (int t = 0; t < N; ++t) s += f[t][i] * tw_get(w[t * wk + j]);
      d[i * dm + j] = s; } }
// The same for any number of rows of w; sums of no more than 128 at a time.
template <int M, int C, class X, class W>
static __attribute__((noinline)) void tw_in_columns(const X* x, int64_t xm, int64_t xk, const W* w, int64_t wk, int64_t depth, float* d,
    int64_t dm, int64_t columns) {
  float part[M * C] __attribute__((aligned(64)));
  for (int64_t first = 0; first < depth; first += 128) {
    const int64_t last = tw_imin(first + 128, depth);
    for (int64_t i = 0; i < M; ++i) for (int64_t j = 0; j < columns; ++j) part[i * C + j] = 0;
    int64_t k = first;
    if (M == 1) for (; k + 8 <= last; k += 8) tw_add_rows<M, 8>(x + k * xk, xm, xk, w + k * wk, wk, part, C, columns);
    for (; k + 4 <= last; k += 4) tw_add_rows<M, 4>(x + k * xk, xm, xk, w + k * wk, wk, part, C, columns);
    for (; k < last; ++k) tw_add_rows<M, 1>(x + k * xk, xm, xk, w + k * wk, wk, part, C, columns);
    for (int64_t i = 0; i < M; ++i) for (int64_t j = 0; j < columns; ++j) d[i * dm + j] += part[i * C + j]; } }
#endif
""".replace("TW_INLINE", "inline __attribute__((always_inline))")
)


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Where the elements of a factor lie: its buffer, the index of the element, and the steps along the rows or columns and inside."""

    buffer: str
    index: Size
    outer: int
    inner: int


@dataclasses.dataclass(frozen=True)
class Dot:
    """One product of a kernel: what it is called, the small matrix, and the large one, or the value that is an element of it."""

    name: str
    small: Matrix
    large: Matrix | Ref

    @property
    def in_rows(self) -> bool:
        """Whether elements of a column lie side by side, or are computed."""
        return isinstance(self.large, Ref) or self.large.inner == 1


@dataclasses.dataclass(frozen=True)
class FewRows:
    """A kernel of such products: the axes around them, that of the rows unless there is one, that of the columns, and the inner ones."""

    batches: tuple[Axis, ...]
    rows: Axis | None
    columns: Axis
    inner: tuple[Axis, ...]
    dots: tuple[Dot, ...]

    @property
    def number(self) -> int:
        """Of rows."""
        return 1 if self.rows is None else extent([self.rows])

    @property
    def block(self) -> int:
        """Columns of a block."""
        block = BLOCK if all(dot.in_rows for dot in self.dots) else max(ROW_BLOCK // self.number // 32 * 32, 128)
        return min(block, -(-extent([self.columns]) // 32) * 32)


def few_rows(kernel: LoopKernel) -> FewRows | None:
    """The products of a kernel that has no others, and computes nothing else along their inner dimension."""
    if not kernel.passes or kernel.passes[0].level != "inner" or kernel.scratch:
        return None
    if any(p.level == "inner" for p in kernel.passes[1:]) or not kernel.axes:
        return None
    body, inner = kernel.passes[0].body, kernel.reduction_axes
    effects = [i for i in body.instructions if i.dtype is None and i.op != "indirect"]
    if not effects or any(i.op != "reduce" or i.args[1] != "dot" for i in effects):
        return None
    if any(i.op == "indirect" for i in body.instructions):
        return None
    if not all(isinstance(axis.size, int) for axis in (*kernel.axes, *inner)):
        return None
    axes: tuple[Axis | None, Axis] | None = None
    dots = []
    for i in effects:
        behind = [axes_behind(body, ref) for ref in i.args[2:4]]
        own = [[a for a in kernel.axes if a in behind[n] and a not in behind[1 - n]] for n in (0, 1)]
        large = int(extent(own[1]) >= extent(own[0]))
        if not own[large] or len(own[1 - large]) > 1 or extent(own[1 - large]) > MOST_ROWS:
            return None
        found = next(iter(own[1 - large]), None), own[large][-1]
        if axes not in (None, found):
            return None
        axes = found
        small = _matrix(body, i.args[3 - large], axes[0], inner)
        matrix = _matrix(body, i.args[2 + large], axes[1], inner)
        if matrix is None or 1 not in (matrix.outer, matrix.inner):
            matrix = i.args[2 + large] if _walks_inside(body, i.args[2 + large], axes[1], inner) else None
        if small is None or matrix is None:
            return None
        dots.append(Dot(i.args[0], small, matrix))
        if dots[-1].in_rows and small.inner != 1:
            return None
    assert axes is not None
    batches = tuple(a for a in kernel.axes if a not in axes)
    return FewRows(batches, *axes, inner, tuple(dots)) if extent(inner[1:]) <= PIECE else None


def large_matrices(kernel: LoopKernel) -> tuple[int, ...]:
    """The numbers of the buffers of such a kernel that are large matrices."""
    found = few_rows(kernel)
    matrices = {dot.large.buffer for dot in found.dots if isinstance(dot.large, Matrix)} if found is not None else ()
    return tuple(n for n, buffer in enumerate(kernel.buffers) if buffer in matrices)


def extent(axes: Sequence[Axis]) -> int:
    """Iterations of loops whose sizes are known."""
    return constant_product([axis.size for axis in axes])


def _matrix(body: LoopBody, ref: Ref, outer: Axis | None, inner: Sequence[Axis]) -> Matrix | None:
    """A factor that lies in memory, in steps."""
    i = body.instructions[ref.position]
    while i.op == "to_dtype" and i.args[1].is_floating_point:
        i = body.instructions[i.args[0].position]
    if i.op != "load" or i.args[2] is not None or i.dtype not in READ or not isinstance(i.args[1], Expr):
        return None
    index = i.args[1]
    over, step = 0 if outer is None else index.coefficient(outer.var), index.coefficient(inner[-1].var)
    if not isinstance(over, int) or not isinstance(step, int):
        return None
    if any(index.coefficient(axis.var) != step * extent(inner[n + 1 :]) for n, axis in enumerate(inner[:-1])):
        return None
    return Matrix(i.args[0], substitute(index, {a.var: 0 for a in (outer, *inner) if a is not None}), over, step)


def _walks_inside(body: LoopBody, ref: Ref, columns: Axis, inner: Sequence[Axis]) -> bool:
    """Whether what a computed element is made of changes along the inner dimension, and does not lie side by side along the columns."""
    loads = [body.instructions[n] for n in body.behind(ref.position) if body.instructions[n].op == "load"]
    variables = {axis.var for axis in inner}
    along = [i.args[1] for i in loads if isinstance(i.args[1], Expr) and i.args[1].free_symbols & variables]
    return bool(along) and all(i.coefficient(columns.var) != 1 for i in along)


def few_rows_nest(k: CppKernel, found: FewRows, parallel: bool, simd: bool) -> None:
    """Writes the nest. parallel: whether it is worth a second thread; simd: whether what follows is vectors."""
    line, open_, close = k.w.line, k.w.open, k.w.close
    rows, block = found.number, found.block
    columns, inner = found.columns, extent(found.inner)
    n, var = extent([columns]), columns.var
    line(f"const int64_t share = tw_columns_of_task({n}), step = tw_columns_of_block(share, {block});")
    if parallel:
        collapse = f" collapse({len(found.batches) + 1})" if found.batches else ""
        line(f"#pragma omp parallel for{collapse}{k.bad_clause()}")
    for a in found.batches:
        k.loop(a)
    open_(f"for (int64_t {var}s = 0; {var}s < {n}; {var}s += share)")
    line(f"const int64_t {var}e = tw_imin({var}s + share, {n});")
    open_(f"for (int64_t {var}b = {var}s; {var}b < {var}e; {var}b += step)")
    line(f"const int64_t count = tw_imin(step, {var}e - {var}b);")
    place = f"{found.rows.var} * {block} + {var}k" if found.rows is not None else f"{var}k"
    body = k.kernel.passes[0].body
    for number, dot in enumerate(found.dots):
        line(f"float d{number}[{rows * block}] __attribute__((aligned(64)));")
        line(f"for (int64_t i = 0; i < {rows * block}; ++i) d{number}[i] = 0;")
        small, large = dot.small, dot.large
        types = MEMORY_TYPES[k.kernel.layouts[small.buffer].dtype]
        first = f"&{k.names[small.buffer]}[{c_index(small.index)}], {small.outer}"
        if isinstance(large, Ref):
            _computed(k, body, large, found, (types, first), number)
        else:
            start = f"&{k.names[large.buffer]}[{c_index(large.index)} + {var}b * {large.outer}]"
            types += f", {MEMORY_TYPES[k.kernel.layouts[large.buffer].dtype]}"
            if dot.in_rows:
                line(f"tw_in_rows<{rows}, {types}>({first}, {start}, {large.outer}, {inner}, d{number}, {block}, count);")
            else:
                line(
                    f"tw_in_columns<{rows}, {block}, {types}>({first}, {small.inner}, {start}, {large.inner}, {inner}, d{number}, "
                    f"{block}, count);"
                )
        k.locals[dot.name] = (f"d{number}[{place}]", torch.float32)
    if found.rows is not None:
        k.loop(found.rows)
    if simd:
        line(SIMD + k.bad_clause())
    k.loop(columns, f"{var}b", "count")
    for p in k.kernel.passes[1:]:
        k.statements(p.body.instructions, {})
    for _ in range(2 + (found.rows is not None) + len(found.batches) + 1):
        close()


def _computed(k: CppKernel, body: LoopBody, value: Ref, found: FewRows, small: tuple[str, str], number: int) -> None:
    """Columns whose elements are computed, a piece of some of them at a time. Inner loops that are short are unrolled: conditions on them go."""
    line, open_, close = k.w.line, k.w.open, k.w.close
    columns, (first, *rest) = found.columns, found.inner
    types, (address, step) = small[0], small[1].rsplit(", ", 1)
    below = extent(rest)
    steps = max(PIECE // below, 1)
    open_(f"for (int64_t {first.var}b = 0; {first.var}b < {first.size}; {first.var}b += {steps})")
    line(f"const int64_t depth = tw_imin({steps}, {first.size} - {first.var}b);")
    open_(f"for (int64_t jb = 0; jb < count; jb += {COMPUTED})")
    line(f"const int64_t some = tw_imin({COMPUTED}, count - jb);")
    line(f"float piece[{COMPUTED * steps * below}] __attribute__((aligned(64)));")
    k.loop(columns, f"{columns.var}b + jb", "some")
    vector = max((n for n, axis in enumerate(found.inner) if extent([axis]) >= 16), default=0)
    place = f"{first.var}k"
    for n, axis in enumerate(found.inner):
        if n == vector:
            line(SIMD)
        if n == 0:
            k.loop(first, f"{first.var}b", "depth")
        else:
            k.loop(axis)
            place = f"({place}) * {axis.size} + {axis.var}"
    name = f"element{number}"
    behind = sorted(body.behind(value.position))
    moved = {old: Ref(new) for new, old in enumerate(behind)}
    computed = [body.instructions[n] for n in behind]
    computed = [i._replace(args=tuple(moved[a.position] if isinstance(a, Ref) else a for a in i.args)) for i in computed]
    k.statements([*computed, Instruction("define", (name, moved[value.position]), None)], {})
    line(f"piece[{columns.var}k * {steps * below} + {place}] = {k.locals[name][0]};")
    for _ in (columns, *found.inner):
        close()
    line(
        f"tw_in_rows<{found.number}, {types}, float>({address} + {first.var}b * {below}, {step}, piece, {steps * below}, depth * {below}, "
        f"d{number} + jb, {found.block}, some);"
    )
    close()
    close()

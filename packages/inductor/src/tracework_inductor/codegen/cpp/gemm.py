"""A matrix product of float32 for CPUs, in 256-bit vectors: C = A @ B + addend, any strides of A and B, rows of C contiguous.

The design is that of GotoBLAS (K. Goto, R. van de Geijn, ACM TOMS 34, 2008): A is packed in panels of ROWS rows, B in slivers of COLUMNS
columns that stay in the first-level cache while all panels of A stream past them, and the innermost loop keeps a ROWS x COLUMNS tile
of C in registers. Each element of C is summed by one thread, in an order that does not depend on the number of threads.
"""

from ..renderer import KERNEL_NAME, RenderedKernel

ROWS = 6
COLUMNS = 16
"""ROWS * COLUMNS / 8 accumulators, two vectors of B and one element of A: 15 of the 16 registers."""
DEPTH = 384
"""Rows of a sliver of B: 24 KiB of 32."""
BLOCK = 256 // ROWS * ROWS
"""Rows of A that are packed at once, at most: 378 KiB, which stay in the second-level cache of 512 or more."""
PACKING = 8
"""What packing an element takes, in multiplications."""
GROUP = 8
"""Panels that are packed together."""

_HEAD = r"""
#if defined(__FMA__) && !defined(__clang__)
#define TW_FMA(a, b, c) __builtin_ia32_vfmaddps256(a, b, c)
#elif defined(__clang__)
#define TW_FMA(a, b, c) __builtin_elementwise_fma(a, b, c)
#else
#define TW_FMA(a, b, c) ((a) * (b) + (c))
#endif
// Panels: ROWS rows of A side by side; rows that are missing are zeros. Eight floats are stored where six are meant, but at a panel's end.
static void tw_pack_rows(const float* a, int64_t ra, int64_t ca, int64_t rows, int64_t depth, float* out) {
  int64_t p = 0;
  if (ca == 1 && rows == ROWS) for (; p + 8 < depth; p += 8) tw_turn8(a + p, ra, out + p * ROWS, ROWS, ROWS);
  for (; p < depth; ++p)
    for (int64_t i = 0; i < ROWS; ++i) out[p * ROWS + i] = i < rows ? a[i * ra + p * ca] : 0.0f; }
// The same for several whole panels of rows that lie side by side in memory: each line of the cache is read once.
static void tw_pack_panels(const float* a, int64_t ca, int64_t panels, int64_t depth, float* out) {
  for (int64_t p = 0; p + 1 < depth; ++p)
    for (int64_t n = 0; n < panels; ++n) tw_store8(out + (n * depth + p) * ROWS, tw_load8(a + p * ca + n * ROWS));
  for (int64_t n = 0; n < panels; ++n)
    for (int64_t i = 0; i < ROWS; ++i) out[(n * depth + depth - 1) * ROWS + i] = a[(depth - 1) * ca + n * ROWS + i]; }
// One sliver: COLUMNS columns of B side by side.
static void tw_pack_columns(const float* b, int64_t rb, int64_t cb, int64_t columns, int64_t depth, float* out) {
  int64_t p = 0;
  if (columns == COLUMNS && cb == 1) {
    for (; p < depth; ++p) {
      __builtin_prefetch(b + (p + 16) * rb);
      for (int i = 0; i < COLUMNS; i += 8) tw_store8(out + p * COLUMNS + i, tw_load8(b + p * rb + i)); } }
  else if (columns == COLUMNS && rb == 1) {
    p = depth / 8 * 8;
    for (int i = 0; i < COLUMNS; i += 8)
      for (int64_t q = 0; q < p; q += 8) tw_turn8(b + q + i * cb, cb, out + q * COLUMNS + i, COLUMNS, 8); }
  for (; p < depth; ++p)
    for (int64_t i = 0; i < COLUMNS; ++i) out[p * COLUMNS + i] = i < columns ? b[p * rb + i * cb] : 0.0f; }
"""


def _tile() -> str:
    """The innermost loop. `add` is a tile that is added, its rows `lda` apart, or null."""
    rows = range(ROWS)
    lines = [
        "static __attribute__((noinline)) void tw_tile(int64_t depth, const float* a, const float* b, const float* add, int64_t lda,",
        "    float* c, int64_t ldc) {",
        f"  tw_v8 {', '.join(f'x{i} = {{}}, y{i} = {{}}' for i in rows)};",
        *(f"  __builtin_prefetch(c + {i} * ldc, 1);" for i in rows),
        "  for (int64_t k = 0; k < depth; ++k) {",
        "    const tw_v8 v = *(const tw_v8*)b, w = *(const tw_v8*)(b + 8);",
    ]
    for i in rows:
        lines.append(f"    {{ const float f = a[{i}]; const tw_v8 s = {{f, f, f, f, f, f, f, f}};")
        lines.append(f"      x{i} = TW_FMA(s, v, x{i}); y{i} = TW_FMA(s, w, y{i}); }}")
    lines += [f"    a += {ROWS}; b += {COLUMNS}; }}", "  if (add) {"]
    lines += [f"    x{i} += tw_load8(add + {i} * lda); y{i} += tw_load8(add + {i} * lda + 8);" for i in rows]
    lines.append("  }")
    lines += [f"  tw_store8(c + {i} * ldc, x{i}); tw_store8(c + {i} * ldc + 8, y{i});" for i in rows]
    return "\n".join([*lines, "}"])


_BODY = r"""
#ifdef _OPENMP
extern "C" int omp_get_max_threads(void);
TW int64_t tw_most_threads() { return omp_get_max_threads(); }
#else
TW int64_t tw_most_threads() { return 1; }
#endif
// A tile at the rim of C goes through a whole one.
static void tw_rim(int64_t depth, const float* a, const float* b, const float* add, int64_t lda, float* c, int64_t ldc,
    int64_t rows, int64_t columns) {
  float whole[ROWS * COLUMNS] = {};
  if (add) for (int64_t i = 0; i < rows; ++i) for (int64_t j = 0; j < columns; ++j) whole[i * COLUMNS + j] = add[i * lda + j];
  tw_tile(depth, a, b, add ? whole : 0, COLUMNS, whole, COLUMNS);
  for (int64_t i = 0; i < rows; ++i) for (int64_t j = 0; j < columns; ++j) c[i * ldc + j] = whole[i * COLUMNS + j]; }
// Rows first to last of C and as many columns, by one thread. `packed` has room for BLOCK rows, or as many as there are, of `most` elements.
static void tw_part(const float* a, int64_t ra, int64_t ca, const float* b, int64_t rb, int64_t cb, const float* add, int64_t lda,
    float* c, int64_t ldc, int64_t m, int64_t n, int64_t k, int64_t most, float* packed) {
  for (int64_t m0 = 0; m0 < m; m0 += BLOCK) {
    const int64_t rows = tw_imin(BLOCK, m - m0), panels = (rows + ROWS - 1) / ROWS;
    for (int64_t k0 = 0; k0 < k; k0 += most) {
      const int64_t depth = tw_imin(most, k - k0);
      for (int64_t i = 0; i < panels;) {
        const float* from = a + (m0 + i * ROWS) * ra + k0 * ca;
        float* to = packed + i * ROWS * depth;
        if (ra == 1 && (i + GROUP) * ROWS <= rows) { tw_pack_panels(from, ca, GROUP, depth, to); i += GROUP; }
        else { tw_pack_rows(from, ra, ca, tw_imin(ROWS, rows - i * ROWS), depth, to); ++i; } }
      for (int64_t j = 0; j < n; j += COLUMNS) {
        float sliver[DEPTH * COLUMNS] __attribute__((aligned(64)));
        const int64_t columns = tw_imin(COLUMNS, n - j);
        tw_pack_columns(b + k0 * rb + j * cb, rb, cb, columns, depth, sliver);
        // The next sliver comes near while this one is multiplied: as many lines of the cache as it is deep, some for each panel.
        const int64_t lines = j + 2 * COLUMNS <= n ? depth : 0, ahead = lines / panels + 1;
        const float* next = b + k0 * rb + (j + COLUMNS) * cb;
        for (int64_t i = 0; i < panels; ++i) {
          float* to = c + (m0 + i * ROWS) * ldc + j;
          const float* more = k0 ? to : add ? add + (m0 + i * ROWS) * lda + j : 0;
          for (int64_t q = i * ahead, e = tw_imin(q + ahead, lines); q < e; ++q)
            __builtin_prefetch(cb == 1 ? next + q * rb : next + q / COLUMNS * COLUMNS + q % COLUMNS * cb);
          const int64_t step = k0 ? ldc : lda, left = tw_imin(ROWS, rows - i * ROWS);
          if (left == ROWS && columns == COLUMNS) tw_tile(depth, packed + i * ROWS * depth, sliver, more, step, to, ldc);
          else tw_rim(depth, packed + i * ROWS * depth, sliver, more, step, to, ldc, left, columns); } } } } }
extern "C" int32_t KERNEL_NAME(const float* a, int64_t ra, int64_t ca, const float* b, int64_t rb, int64_t cb, const float* add,
    int64_t lda, float* c, int64_t ldc, int64_t m, int64_t n, int64_t k) {
  if (m == 0) return 0;
  const int64_t parts = (k + DEPTH - 1) / DEPTH, most = ((k + parts - 1) / parts + 7) / 8 * 8;
  // Each thread has a rectangle of C, and packs what it needs for itself: what another has packed comes from the cache of another core.
  const int64_t threads = m * n * k > 262144 ? tw_most_threads() : 1;
  int64_t height = 0, width = 0, least = 0;
  for (int64_t down = 1; down <= threads; ++down) if (threads % down == 0) {
    const int64_t across = threads / down, h = ((m + down - 1) / down + ROWS - 1) / ROWS * ROWS;
    const int64_t w = ((n + across - 1) / across + COLUMNS - 1) / COLUMNS * COLUMNS, work = h * w + PACKING * (h + w);
    if (!least || work < least) { height = h; width = w; least = work; } }
  const int64_t wide = (n + width - 1) / width, tasks = (m + height - 1) / height * wide, room = tw_imin(height, BLOCK) * most;
  float* packed = (float*)__builtin_malloc(tasks * room * sizeof(float));
  if (!packed) return 1;
  #pragma omp parallel for schedule(static) if(tasks > 1)
  for (int64_t task = 0; task < tasks; ++task) {
    const int64_t i = task / wide * height, j = task % wide * width;
    tw_part(a + i * ra, ra, ca, b + j * cb, rb, cb, add ? add + i * lda + j : 0, lda, c + i * ldc + j, ldc, tw_imin(height, m - i),
        tw_imin(width, n - j), k, most, packed + task * room); }
  __builtin_free(packed);
  return 0; }
"""


def _source() -> str:
    text = _HEAD + _tile() + _BODY
    for name, value in (
        ("ROWS", ROWS),
        ("COLUMNS", COLUMNS),
        ("DEPTH", DEPTH),
        ("BLOCK", BLOCK),
        ("GROUP", GROUP),
        ("PACKING", PACKING),
    ):
        text = text.replace(name, str(value))
    return text.replace("KERNEL_NAME", KERNEL_NAME)


GEMM_KERNEL = RenderedKernel(
    _source(), ("*", "i64", "i64", "*", "i64", "i64", "*", "i64", "*", "i64", "i64", "i64", "i64"), (("result", "i32"),)
)
"""A and its strides, B and its strides, the addend and the distance of its rows (0: one row for all), C and the distance of its rows,
and the sizes m, n, k. Gives 1 where there is no memory."""

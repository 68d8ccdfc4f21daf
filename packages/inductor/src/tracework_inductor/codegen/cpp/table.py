"""A KernelBatch as one function over a table: how many rows, then for each of them its addresses and, where it has an axis, its length.

The rows are cut into blocks of which each thread takes an equal share, whatever rows they belong to.
"""

from ...schedule.plan import KernelBatch
from ...schedule.tables import row_of
from ..renderer import KERNEL_NAME, RenderedKernel
from .kernel import CppKernel
from .peeling import invariants_first
from .text_rules import MEMORY_TYPES, SIMD

HEAD = r"""
#ifndef TW_TABLE
#define TW_TABLE
// Elements that stay together: whole lines of memory.
enum { tw_together = 512 };
TW int64_t tw_blocks(int64_t length) { return (length + tw_together - 1) / tw_together; }
// Calls f(row, first, count) for all of the rows, each of `width` numbers with the length as the last, by threads from `least` elements on.
template <class F> TW void tw_rows(const int64_t* table, int64_t width, int64_t least, F f) {
  const int64_t rows = table[0];
  int64_t blocks = 0;
  for (int64_t r = 0; r < rows; ++r) blocks += tw_blocks(table[(r + 1) * width]);
  #pragma omp parallel if(blocks * tw_together > least)
  {
    const int64_t begin = blocks * tw_thread() / tw_threads(), end = blocks * (tw_thread() + 1) / tw_threads();
    int64_t before = 0;
    for (int64_t r = 0; r < rows && before < end; ++r) {
      const int64_t length = table[(r + 1) * width], own = tw_blocks(length);
      const int64_t first = tw_imax(begin - before, 0) * tw_together, last = tw_imin((end - before) * tw_together, length);
      if (first < last) f(table + 1 + r * width, first, last - first);
      before += own;
    }
  }
}
#endif
"""


def render(batch: KernelBatch, grain: int) -> RenderedKernel:
    """The function. Grain: of elements of one operation, from which on threads share them."""
    row = row_of(batch.parts[0])
    assert row is not None, "a batch of a CPU is made of rows"
    kernel = CppKernel(row.kernel, grain)
    body, ahead = row.kernel.passes[0].body, 0
    if row.kernel.axes:
        body, ahead, _ = invariants_first(body, row.kernel.reads - row.kernel.writes)
    w = kernel.w
    w.open("const auto row = [](const int64_t* at, int64_t first, int64_t count)")
    for n, b in enumerate(row.kernel.buffers):
        pointer = f"{MEMORY_TYPES[row.kernel.layouts[b].dtype]}*"
        w.line(f"{pointer} {kernel.names[b]} = ({pointer})at[{n}];")

    def begin() -> None:
        if kernel.vectorises(row.kernel.passes):
            w.line(SIMD)
        kernel.loop(row.kernel.axes[0], "first", "count")

    kernel.statements(body.instructions, {}, loop=(ahead, begin) if row.kernel.axes else None)
    if row.kernel.axes:
        w.close()
    w.depth -= 1
    w.line("};")
    width = len(row.kernel.buffers) + 1
    w.line(f"tw_rows(table, {width}, {grain // kernel.cost()}, row);")
    head = f'extern "C" void {KERNEL_NAME}(const int64_t* table) {{'
    return RenderedKernel("\n".join([HEAD, head, *w.lines, "}"]), ("*",), (("table", True),))

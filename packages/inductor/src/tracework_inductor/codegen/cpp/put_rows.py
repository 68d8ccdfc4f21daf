"""Rows that go to places that are looked up, in their order: a thread writes those of the places that are its own, whatever rows these are.

Each place has one thread, and the rows that go there come in their order: the number of threads changes no bit. Threads that have columns of
all rows instead wait for one another's lines, and what the processor brings near for one of them is half the other's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...ir.body import LoopBody
from ...ir.index import Expr, Size, constant_product, floordiv, symbol
from ...schedule.plan import LoopKernel
from ..printer import c_index
from .ahead import next_rows, rows_looked_up_next, rows_under_way
from .streams import ask_for_row
from .text_rules import SIMD

if TYPE_CHECKING:
    from .kernel import CppKernel

__all__ = ["write_put_rows"]

LEAST_WORK = 128
"""Operations of a row, in the units of a kernel's cost: less is done by the time that a thread has found its rows."""
AT_ONCE = 256
"""Rows of which a thread finds its own before it goes through these."""


def _place_of_row(kernel: LoopKernel, body: LoopBody) -> tuple[Size, Size] | None:
    """A number that rows of one place have in common, in all results, and how many places there are; None where rows may overlap otherwise, or
    where a size is not known."""
    last, places = kernel.axes[-1], set[tuple[Size, Size]]()
    for i in body.stores():
        affine = i.args[1].as_affine() if isinstance(i.args[1], Expr) else None
        if affine is None or not isinstance(last.size, int):
            return None
        steps = {var: step for var, step in affine[1].items() if var != last.var}
        step = math.gcd(*steps.values())
        if step < last.size:
            return None
        terms: list[Size] = [var * (n // step) for var, n in steps.items()]
        elements = kernel.layouts[i.args[0]].elements()
        places.add((sum(terms[1:], terms[0]), floordiv(elements + step - 1, step)))
    return places.pop() if len(places) == 1 else None


def write_put_rows(k: CppKernel, body: LoopBody, ahead: int, large: bool) -> None:
    """The nest of such a kernel, the first instructions of whose body, `ahead` of them, are those of a row. large: worth a second thread."""
    *outer, axis, last = k.kernel.axes
    place = _place_of_row(k.kernel, body)
    shared = large and place is not None and constant_product([last.size]) * k.cost() >= LEAST_WORK

    def row(later: Expr | None) -> None:
        near = [*next_rows(k.kernel, body, later), *rows_looked_up_next(k, body, ahead, later)]
        ask_for_row(k, near, last)

        def begin() -> None:
            k.w.line(SIMD)
            k.loop(last)

        k.statements(body.instructions, {}, loop=(ahead, begin))
        k.w.close()

    if not shared:
        for a in (*outer, axis):
            k.loop(a)
        row(None)
        for _ in (*outer, axis):
            k.w.close()
        return
    first, size, found, later = f"{axis.var}b", c_index(axis.size), f"{axis.var}own", symbol(f"{axis.var}n", 0, None)
    assert place is not None
    k.w.line(f"#pragma omp parallel{k.bad_clause()}")
    k.w.open()
    k.w.line("const int64_t threads = tw_threads(), thread = tw_thread();")
    for a in outer:
        k.loop(a)
    k.w.open(f"for (int64_t {first} = 0; {first} < {size}; {first} += {AT_ONCE})")
    k.w.line(f"int64_t {found}[{AT_ONCE}], count = 0;")
    k.loop(axis, first, f"tw_imin({AT_ONCE}, {size} - {first})")
    k.statements(body.instructions[:ahead], {})
    k.w.line(f"{found}[count] = {axis.var}; count += tw_owner({c_index(place[0])}, {c_index(place[1])}, threads) == thread;")
    k.w.close()
    k.w.open(f"for (int64_t {axis.var}k = 0; {axis.var}k < count; ++{axis.var}k)")
    k.w.line(f"const int64_t {axis.var} = {found}[{axis.var}k];")
    k.w.line(f"const int64_t {later} = {found}[tw_imin({axis.var}k + {rows_under_way(k.kernel)}, count - 1)];")
    row(later)
    for _ in range(len(outer) + 3):
        k.w.close()

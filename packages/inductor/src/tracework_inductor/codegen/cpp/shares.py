"""Reductions of all elements to one, in parts that the threads share: the parts are the same for any number of threads, and so are the bits.

A part is a row of its own; what the parts have is combined in their order.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ...ir.body import Axis, Instruction
from ...ir.index import Expr, Size, constant_product, substitute, symbol
from ...ir.scalar_ops import compute_dtype
from ...schedule.plan import Pass
from .blocks import CHAIN
from .rows import POSITIONS, dtype_of
from .text_rules import CPP_TYPES, REDUCTIONS

if TYPE_CHECKING:
    from .kernel import CppKernel

__all__ = ["row_in_shares", "shares_of"]

MOST_SHARES = CHAIN
"""Results of parts that one accumulator adds up."""
WHOLE = 1024
"""Steps of an innermost axis that stay together: blocks of sums in lanes."""
ALLOWED = frozenset({"reduce", "store"})


@dataclasses.dataclass(frozen=True)
class Shares:
    """The axis that is cut, by its position among those reduced, and how many steps a part has; there are `count` parts."""

    position: int
    steps: int
    count: int


def shares_of(k: CppKernel, p: Pass) -> Shares | None:
    """How a pass over all elements is cut; None for one that is too small, or that something else than its reductions ties together."""
    kernel, axes = k.kernel, k.kernel.reduction_axes
    if p.level != "inner" or kernel.axes or kernel.scratch or k.past_caches or not k.vectorises([p]):
        return None
    reductions = [i for i in p.body.instructions if i.op == "reduce"]
    effects = {i.op for i in p.body.instructions if i.dtype is None}
    if not reductions or not effects <= ALLOWED or any(i.args[1] in POSITIONS for i in reductions):
        return None
    sizes = [a.size for a in axes if isinstance(a.size, int)]
    if len(sizes) != len(axes):
        return None
    position = next((n for n, size in enumerate(sizes) if size >= MOST_SHARES), sizes.index(max(sizes)))
    wanted = min(constant_product(sizes) * k.cost() // k.grain, MOST_SHARES, sizes[position])
    if wanted < 2:
        return None
    steps = -(-sizes[position] // wanted)
    if position == len(sizes) - 1:
        steps = -(-steps // WHOLE) * WHOLE
    count = -(-sizes[position] // steps)
    return Shares(position, steps, count) if count > 1 else None


def row_in_shares(k: CppKernel, p: Pass, shares: Shares) -> None:
    """Writes such a pass."""
    kernel, axes = k.kernel, list(k.kernel.reduction_axes)
    var, size = axes[shares.position]
    reductions = {i.args[0]: i for i in p.body.instructions if i.op == "reduce"}
    base = k.new_values()
    dtypes = {name: compute_dtype(dtype_of(p, i.args[2])) for name, i in reductions.items()}
    for n, dtype in enumerate(dtypes.values()):
        k.w.line(f"{CPP_TYPES[dtype]} {base}{n}s[{shares.count}];")
    first, steps = symbol(f"{var}p", 0, None), shares.steps
    left: Size = steps if size % steps == 0 else symbol(f"{var}e", 0, None)
    k.w.line(f"#pragma omp parallel for{k.bad_clause()}")
    k.w.open(f"for (int64_t share = 0; share < {shares.count}; ++share)")
    k.w.line(f"const int64_t {first} = share * {steps};")
    if left is not steps:
        k.w.line(f"const int64_t {left} = tw_imin({steps}, {size} - {first});")
    axes[shares.position] = Axis(var, left)
    places = {var: var + first}

    def moved(i: Instruction) -> Instruction:
        return i._replace(args=tuple(substitute(a, places) if isinstance(a, Expr) else a for a in i.args))

    body = dataclasses.replace(p.body, reduction_axes=tuple(axes), instructions=tuple(map(moved, p.body.instructions)))
    k.kernel = dataclasses.replace(kernel, reduction_axes=tuple(axes))
    k.row_pass(Pass(p.level, body))
    k.kernel = kernel
    for n, name in enumerate(reductions):
        k.w.line(f"{base}{n}s[share] = {k.locals[name][0]};")
    k.w.close()
    for n, (name, dtype) in enumerate(dtypes.items()):
        start, combined = REDUCTIONS[reductions[name].args[1]]
        result, kind = f"{base}{n}", CPP_TYPES[dtype]
        k.w.line(f"{kind} {result} = {start(kind)};")
        text = combined.format(acc=result, value=f"{result}s[share]")
        k.w.line(f"for (int64_t share = 0; share < {shares.count}; ++share) {result} = {text};")
        k.locals[name] = (result, dtype)

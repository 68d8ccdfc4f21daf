"""Index arithmetic: thin names over primops' integer expressions, plus what loops need of them.

A reshape maps indices group by group, so that `floor` and `mod` appear only where a reshape really mixes axes.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tracework_primops.symbols.expr import Expr, floordiv, maximum, minimum, mod, symbol
from tracework_primops.symbols.layout import same, same_all
from tracework_primops.symbols.ranges import simplify as _simplify

Size = int | Expr
INT32_LIMIT = 2**31 - 2**20
"""Up to here index arithmetic in 32 bits is enough; the loops of a kernel may go past the end by a block of their steps."""

__all__ = [
    "INT32_LIMIT",
    "Expr",
    "Size",
    "contiguous_strides",
    "dot",
    "flatten",
    "floordiv",
    "hint",
    "maximum",
    "minimum",
    "mod",
    "product",
    "refine",
    "reshape_index",
    "same",
    "same_all",
    "simplify",
    "stride",
    "substitute",
    "symbol",
    "unflatten",
]


def product(sizes: Iterable[Size]) -> Size:
    """The product; 1 for nothing."""
    result: Size = 1
    for s in sizes:
        result = result * s
    return result


def contiguous_strides(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """Row-major strides as torch gives them (a size 0 counts as 1)."""
    strides: list[Size] = []
    running: Size = 1
    for s in reversed(sizes):
        strides.append(running)
        running = running * (1 if isinstance(s, int) and s == 0 else s)
    return tuple(reversed(strides))


def is_contiguous(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Whether these are the strides that torch gives a new tensor."""
    return same_all(strides, contiguous_strides(sizes))


def dot(index: Sequence[Size], strides: Sequence[Size], offset: Size = 0) -> Size:
    """offset + sum(index * stride)."""
    result = offset
    for i, s in zip(index, strides, strict=True):
        result = result + i * s
    return result


def substitute(expr: Any, mapping: Mapping[Any, Size]) -> Size:
    """`expr` with symbols replaced at once."""
    return expr if isinstance(expr, int) else expr.substitute(mapping)


def simplify(expr: Size, ranges: Mapping[Any, tuple[Size, Size]]) -> Size:
    """Uses inclusive ranges of symbols to drop floors and mods."""
    try:
        return expr if isinstance(expr, int) else _simplify(expr, ranges)
    except ZeroDivisionError:  # by a size that is 0 in all calls of the graph: this is in a loop over nothing
        return expr


def hint(size: Size, symbols: Any) -> int:
    """A size in the example, of which `symbols`, the graph's SymbolTable, knows. Raises GuardOnUnbackedError for one that data decides."""
    return size if isinstance(size, int) else int(symbols.hint(size))


def constant_size(size: Size) -> int:
    """A size that is known to be a number. Raises TypeError for another."""
    if not isinstance(size, int):
        raise TypeError(f"the size {size} is no number")
    return size


def stride(expr: Size, var: Any) -> Size | None:
    """What one step of var adds; None when that is not constant."""
    return 0 if isinstance(expr, int) else expr.coefficient(var)


def flatten(index: Sequence[Size], sizes: Sequence[Size]) -> Size:
    """The row-major position of an index."""
    return dot(index, contiguous_strides(sizes))


def unflatten(position: Size, sizes: Sequence[Size]) -> list[Size]:
    """The index of a row-major position, with floors and mods."""
    index: list[Size] = []
    for s in reversed(sizes[1:]):
        index.append(mod(position, s))
        position = floordiv(position, s)
    return [position, *reversed(index)] if sizes else []


def _groups(old: Sequence[Size], new: Sequence[Size]) -> list[tuple[list[int], list[int]]]:
    """Splits both lists into smallest runs of equal product; one last run may hold what could not be matched."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        left: list[int] = []
        right: list[int] = []
        a: Size = 1
        b: Size = 1
        while True:
            if left and right and same(a, b):
                break
            grow_left = i < len(old) and (not left or (right and _smaller(a, b)))
            if grow_left:
                a = a * old[i]
                left.append(i)
                i += 1
            elif j < len(new):
                b = b * new[j]
                right.append(j)
                j += 1
            elif i < len(old):
                a = a * old[i]
                left.append(i)
                i += 1
            else:
                break
        groups.append((left, right))
    return groups


def _smaller(a: Size, b: Size) -> bool:
    """Whether a is surely the product that needs another factor."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    if isinstance(a, int):
        return True
    if isinstance(b, int):
        return False
    # both symbolic: the one that divides the other is smaller
    return not isinstance(b, int) and mod(b, a) is not None and _divides(a, b)


def _divides(a: Size, b: Size) -> bool:
    rest = mod(b, a)
    return isinstance(rest, int) and rest == 0


def reshape_index(old: Sequence[Size], new: Sequence[Size], index: Sequence[Size]) -> list[Size]:
    """The index into `old` sizes that element `index` of the `new` sizes has, both row-major."""
    result: list[Size] = [0] * len(old)
    if any(isinstance(s, int) and s == 0 for s in old):
        return result  # there is no element
    for left, right in _groups(old, new):
        if len(left) == 1 and len(right) == 1:
            result[left[0]] = index[right[0]]
            continue
        position = flatten([index[j] for j in right], [new[j] for j in right])
        left = [i for i in left if not same(old[i], 1)] or left[:1]
        for i, value in zip(left, unflatten(position, [old[i] for i in left]), strict=False):
            result[i] = value
    return result


def refine(a: Sequence[Size], b: Sequence[Size]) -> list[Size] | None:
    """Sizes of the coarsest axes of which both lists are merges (row-major); None when there are none."""
    result: list[Size] = []
    left, right = list(a), list(b)
    left.reverse()
    right.reverse()
    while left or right:
        if not left or not right:
            return result if all(same(rest, 1) for rest in (*left, *right)) else None
        x, y = left.pop(), right.pop()
        if same(x, y):
            if not same(x, 1):
                result.append(x)
        elif same(x, 1):
            right.append(y)
        elif same(y, 1):
            left.append(x)
        elif _divides(y, x):
            # rows of x split into (y, x / y)
            result.append(y)
            left.append(floordiv(x, y))
        elif _divides(x, y):
            result.append(x)
            right.append(floordiv(y, x))
        else:
            return None
    return result


def constant_product(sizes: Iterable[Size], otherwise: int = 8192) -> int:
    """The product, with symbols counted as `otherwise`."""
    return math.prod(s if isinstance(s, int) else otherwise for s in sizes)


def variables_ranges(outer: Sequence[Size], inner: Sequence[Size]) -> dict[Any, tuple[Size, Size]]:
    """Inclusive ranges of a kernel's loop variables x0.. and r0..."""
    ranges: dict[Any, tuple[Size, Size]] = {symbol(f"x{n}", 0, None): (0, s - 1) for n, s in enumerate(outer)}
    ranges.update({symbol(f"r{n}", 0, None): (0, s - 1) for n, s in enumerate(inner)})
    return ranges

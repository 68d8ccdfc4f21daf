"""Sizes of broadcast operands and the strides eager gives to elementwise results.

Sizes are `int | Expr`. Two sizes that are not structurally equal were proven or guarded equal by whoever produced the
ATen graph; a literal 1 is the only size that broadcasts (symbols for sizes start at 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from .symbols import active
from .symbols.expr import Expr, Size

SAMPLE_SIZE = 8191  # a symbol's stand-in when two symbolic strides are compared; strides nest, so order rarely depends on it


def broadcast_sizes(*shapes: Sequence[Size]) -> tuple[Size, ...]:
    """The NumPy rule over any number of size tuples."""
    first = shapes[0]
    if all(s == first for s in shapes[1:]):
        return tuple(first)
    ndim = max(len(s) for s in shapes)
    out: list[Size] = [1] * ndim
    for shape in shapes:
        lead = ndim - len(shape)
        for i, size in enumerate(shape):
            out[lead + i] = _joined(out[lead + i], size, shapes)
    return tuple(out)


def _joined(a: Size, b: Size, shapes: Sequence[Sequence[Size]]) -> Size:
    if a is b or a == b or (b.__class__ is int and b == 1):
        return a
    if a.__class__ is int and a == 1:
        return b
    if a.__class__ is int and b.__class__ is int:
        raise RuntimeError(f"sizes {', '.join(map(str, shapes))} do not broadcast")
    if active.table() is not None and not active.equal(a, b):
        if active.is_fixed_one(a):  # a difference of sizes may be 1, which sizes of inputs are not
            return b
        if active.is_fixed_one(b):
            return a
        raise RuntimeError(f"sizes {', '.join(map(str, shapes))} do not broadcast")
    return a if a.__class__ is int else b


def contiguous(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """Row-major strides; a size of 0 counts as 1, as in eager."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(sizes):
        strides.append(step)
        if type(size) is not int or size > 1:
            step = step * size
    return tuple(reversed(strides))


def magnitude(size: Size) -> int:
    """An int to order strides by."""
    return size if type(size) is int else _sampled(size)


@cache
def _sampled(size: Size) -> int:
    if not isinstance(size, Expr):
        return size
    try:
        value = size.substitute({s: SAMPLE_SIZE for s in size.free_symbols})
    except ZeroDivisionError:  # by a quotient that is not 0 for the sizes there are
        return SAMPLE_SIZE
    return value if isinstance(value, int) else SAMPLE_SIZE


def is_dense(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Non-overlapping and dense: some order of the dims is row-major."""
    return dense_order(sizes, strides) is not None


def dense_order(sizes: Sequence[Size], strides: Sequence[Size]) -> list[int] | None:
    """The dims from outermost to innermost if the layout is dense, else None. Dims of size 1 are left out."""
    dims = [i for i, s in enumerate(sizes) if not (s.__class__ is int and s == 1)]
    dims.sort(key=lambda i: (magnitude(strides[i]), magnitude(sizes[i])))
    expected: Size = 1
    for i in dims:
        if strides[i] != expected:
            return None
        expected = expected * sizes[i]
    return dims[::-1]


def is_contiguous(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Row-major, ignoring dims of size 1; a tensor without elements always is."""
    if 0 in sizes:
        return True
    expected: Size = 1
    for i in range(len(sizes) - 1, -1, -1):
        size = sizes[i]
        if size.__class__ is int and size == 1:
            continue
        if strides[i] != expected:
            return False
        expected = expected * size
    return True


def channels_last(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """Strides with dim 1 innermost."""
    inner = contiguous((*sizes[:1], *sizes[2:], sizes[1]))
    return (inner[0], inner[-1], *inner[1:-1])


def is_channels_last(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Dim 1 innermost, the rest row-major, ignoring dims of size 1."""
    if len(sizes) not in (4, 5):
        return False
    return is_contiguous((*sizes[:1], *sizes[2:], sizes[1]), (*strides[:1], *strides[2:], strides[1]))


def elementwise_strides(operands: Iterable[tuple[Sequence[Size], Sequence[Size]]], sizes: tuple[Size, ...]) -> tuple[Size, ...]:
    """Strides of an elementwise result over (sizes, strides) operands, as TensorIterator allocates it."""
    operands = list(operands)
    full = [strides for shape, strides in operands if shape == sizes]
    if len(full) == len(operands) and full:
        if all(is_contiguous(sizes, s) for s in full):
            return contiguous(sizes)
        if len(sizes) in (4, 5) and all(is_channels_last(sizes, s) for s in full):
            return channels_last(sizes)
        if all(s == full[0] for s in full[1:]) and is_dense(sizes, full[0]):
            return tuple(full[0])
    elif not any(len(shape) for shape, _ in operands):
        return contiguous(sizes)
    order = _iteration_order(operands, sizes)
    return strides_in_order(sizes, order)


def strides_in_order(sizes: Sequence[Size], order: Sequence[int]) -> tuple[Size, ...]:
    """Dense strides with `order` listing the dims from innermost to outermost; a size of 0 counts as 0 unless that is row-major."""
    if list(order) == list(range(len(sizes) - 1, -1, -1)):
        return contiguous(sizes)
    strides: list[Size] = [0] * len(sizes)
    step: Size = 1
    for dim in order:
        strides[dim] = step
        step = step * sizes[dim]
    return tuple(strides)


def _iteration_order(operands: list[tuple[Sequence[Size], Sequence[Size]]], sizes: tuple[Size, ...]) -> list[int]:
    """Dims innermost first, by a stable insertion sort on the operands' strides."""
    ndim = len(sizes)
    table = [_aligned_strides(shape, strides, sizes) for shape, strides in operands]
    lengths = [magnitude(s) for s in sizes]
    order = list(range(ndim - 1, -1, -1))
    for i in range(1, ndim):
        at = i
        for before in range(i - 1, -1, -1):
            verdict = _compare(order[before], order[at], table, lengths)
            if verdict > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif verdict < 0:
                break
    return order


def _aligned_strides(shape: Sequence[Size], strides: Sequence[Size], sizes: tuple[Size, ...]) -> list[int]:
    lead = len(sizes) - len(shape)
    out = [0] * lead
    for size, stride, full in zip(shape, strides, sizes[lead:], strict=True):
        broadcast = size.__class__ is int and size == 1 and not (full.__class__ is int and full == 1)
        out.append(0 if broadcast else magnitude(stride))
    return out


def _compare(inner: int, outer: int, table: list[list[int]], lengths: list[int]) -> int:
    """> 0 when `inner` should move outwards past `outer`."""
    for strides in table:
        a, b = strides[inner], strides[outer]
        if a == 0 or b == 0:
            continue
        if a != b:
            return -1 if a < b else 1
        if lengths[inner] > lengths[outer]:
            return 1
    return 0

"""Questions about sizes and strides that need no tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .expr import Size


def product(sizes: Iterable[Size]) -> Size:
    """The product of some sizes."""
    result: Size = 1
    for size in sizes:
        result = size * result
    return result


def contiguous_strides(sizes: tuple[Size, ...]) -> tuple[Size, ...]:
    """Row-major strides; a size of 0 counts as 1, as in torch."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(sizes):
        strides.append(step)
        step = step if type(size) is int and size < 1 else size * step
    return tuple(reversed(strides))


def is_contiguous(sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> bool:
    """Whether these strides are row-major, ignoring dimensions of size 1; an empty tensor always is."""
    expected: Size = 1
    for size, stride in zip(reversed(sizes), reversed(strides)):
        if type(size) is int and size == 0:
            return True
        if type(size) is int and size == 1:
            continue
        if stride != expected:
            return any(type(s) is int and s == 0 for s in sizes)
        expected = size * expected
    return True


def same(a: Size, b: Size) -> bool:
    """Structural equality of sizes; False when not known to be equal."""
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def same_all(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Element-wise `same`."""
    return len(a) == len(b) and all(map(same, a, b))

"""Which strides a new buffer gets."""

from collections.abc import Sequence

from ..ir.index import Expr, Size, contiguous_strides, same


def strides_equal(sizes: Sequence[Size], a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Equal where it matters: a stride of an axis with at most one element does not."""
    if any(isinstance(s, int) and s == 0 for s in sizes):
        return True
    return all(same(x, y) or (isinstance(s, int) and s <= 1) for s, x, y in zip(sizes, a, b, strict=True))


def dense_strides(sizes: Sequence[Size], wanted: Sequence[Size] | None) -> tuple[Size, ...]:
    """`wanted` if it is a dense layout of some axis order, else row-major."""
    plain = contiguous_strides(sizes)
    if wanted is None or strides_equal(sizes, wanted, plain):
        return plain if wanted is None else tuple(wanted)
    return tuple(wanted) if _is_dense(sizes, wanted) else plain


def _is_dense(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    left = [(s, t) for s, t in zip(sizes, strides, strict=True) if not same(s, 1)]
    if any(isinstance(s, int) and s == 0 for s, _ in left):
        return False
    expected: Size = 1
    while left:
        found = next((k for k, (_, t) in enumerate(left) if same(t, expected)), None)
        if found is None:
            return False
        expected = expected * left.pop(found)[0]
    return True


def is_static(sizes: Sequence[Size]) -> bool:
    """No symbols."""
    return not any(isinstance(s, Expr) for s in sizes)

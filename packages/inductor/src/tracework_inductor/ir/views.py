"""Index rewrites of views: how an index of the result becomes an index of the operand."""

from collections.abc import Callable, Sequence

from .index import Size, floordiv, product, reshape_index, same

IndexMap = Callable[[list[Size]], list[Size]]


def expand_map(old: Sequence[Size], new: Sequence[Size]) -> IndexMap:
    """Broadcasting: leading axes are dropped, axes of size 1 are read at 0."""
    lead = len(new) - len(old)
    fixed = [same(s, 1) and not same(n, 1) for s, n in zip(old, new[lead:], strict=True)]
    return lambda index: [0 if f else i for f, i in zip(fixed, index[lead:], strict=True)]


def permute_map(dims: Sequence[int]) -> IndexMap:
    """Result axis k is operand axis dims[k]."""
    position = {d: k for k, d in enumerate(dims)}
    return lambda index: [index[position[d]] for d in range(len(dims))]


def reshape_map(old: Sequence[Size], new: Sequence[Size]) -> IndexMap:
    """Row-major order is kept."""
    return lambda index: reshape_index(old, new, index)


def slice_map(dim: int, start: Size, step: int) -> IndexMap:
    """Element k of the result is element start + k * step."""
    return lambda index: [*index[:dim], start + index[dim] * step, *index[dim + 1 :]]


def flip_map(sizes: Sequence[Size], dims: Sequence[int]) -> IndexMap:
    """Reversed axes."""
    turned = set(dims)
    return lambda index: [sizes[d] - 1 - i if d in turned else i for d, i in enumerate(index)]


def squeeze_map(ndim: int, dims: Sequence[int]) -> IndexMap:
    """Dropped axes are read at 0."""
    gone = set(dims)

    def back(index: list[Size]) -> list[Size]:
        rest = iter(index)
        return [0 if d in gone else next(rest) for d in range(ndim)]

    return back


def unsqueeze_map(dim: int) -> IndexMap:
    """The new axis is ignored."""
    return lambda index: [*index[:dim], *index[dim + 1 :]]


def diagonal_map(ndim: int, offset: int, dim1: int, dim2: int) -> IndexMap:
    """The last axis of the result walks both axes."""

    def back(index: list[Size]) -> list[Size]:
        rest = iter(index[:-1])
        last = index[-1]
        at = {dim1: last + max(-offset, 0), dim2: last + max(offset, 0)}
        return [at[d] if d in at else next(rest) for d in range(ndim)]

    return back


def unfold_map(dim: int, step: int) -> IndexMap:
    """Windows: the last axis of the result walks inside one."""
    return lambda index: [*index[:dim], index[dim] * step + index[-1], *index[dim + 1 : -1]]


def reshape_strides(old: Sequence[Size], strides: Sequence[Size], new: Sequence[Size]) -> tuple[Size, ...] | None:
    """Strides of a reshape that needs no copy; None when there are none."""
    kept = [(s, t) for s, t in zip(old, strides, strict=True) if not same(s, 1)]
    result: list[Size] = [0] * len(new)
    k = len(kept) - 1
    j = len(new) - 1
    running: Size = 1
    while k >= 0:
        size, stride = kept[k]
        # grow a run of operand axes that lie one inside the other
        while k > 0 and same(kept[k - 1][1], kept[k][1] * kept[k][0]):
            k -= 1
            size = size * kept[k][0]
        k -= 1
        running = 1
        while j >= 0 and not same(running, size):
            grown = running * new[j]
            if not _fits(grown, size):
                return None
            result[j] = stride * running
            running = grown
            j -= 1
        if not same(running, size):
            return None
    while j >= 0:
        if not same(new[j], 1):
            return None
        result[j] = running
        j -= 1
    return tuple(result)


def _fits(part: Size, whole: Size) -> bool:
    if isinstance(part, int) and isinstance(whole, int):
        return part > 0 and whole % part == 0
    return part is whole or not isinstance(whole, int)


def size_of_slice(start: Size, end: Size, step: int) -> Size:
    """How many elements a slice with checked bounds has."""
    return floordiv(end - start + step - 1, step)


def numel_equal(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Whether two size lists surely hold equally many elements."""
    return same(product(a), product(b))

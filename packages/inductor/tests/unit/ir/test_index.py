"""Index arithmetic of views and shared axes."""

import itertools

import pytest
from tracework_inductor.ir.index import refine, reshape_index, symbol
from tracework_inductor.ir.views import reshape_strides


@pytest.mark.parametrize(
    ("old", "new"), [((4, 6), (24,)), ((24,), (4, 6)), ((2, 3, 4), (6, 4)), ((6, 4), (4, 6)), ((2, 1, 6), (4, 3)), ((8, 3), (2, 4, 3, 1))]
)  # fmt: skip
def test_reshape_keeps_row_major_order(old, new) -> None:
    variables = [symbol(f"i{n}", 0, None) for n in range(len(new))]
    back = reshape_index(old, new, variables)
    for number, index in enumerate(itertools.product(*map(range, new))):
        values = dict(zip(variables, index))
        at = [e if isinstance(e, int) else e.evaluate(values) for e in back]
        position = 0
        for i, s in zip(at, old):
            position = position * s + i
        assert position == number


def test_refine() -> None:
    assert refine([32, 16], [4, 8, 16]) == [4, 8, 16]
    assert refine([4, 1, 6], [24]) == [4, 6]
    assert refine([4, 6], [6, 4]) is None
    assert refine([4, 6], [4]) is None
    assert refine([], [3]) is None


def test_strides_of_reshapes() -> None:
    assert reshape_strides((4, 6), (6, 1), (2, 2, 6)) == (12, 6, 1)
    assert reshape_strides((4, 6), (1, 4), (24,)) is None
    assert reshape_strides((4, 1, 6), (6, 6, 1), (24,)) == (1,)

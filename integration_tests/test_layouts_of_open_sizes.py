"""Strides of results where sizes that are computed, or ints, are 1 for some of the sizes that a graph is open for."""

import pytest
import torch
import tracework

FUNCTIONS = {
    "a difference of sizes": lambda t, n: (t.diff(), t.diff().swapaxes(0, -1) + 1),
    "an int": lambda t, n: (
        t.new_full((n, 2), n / 3),
        torch.ones(3, n).t().fill_(n / 3),
        torch.ones(3, n).t().sin().fill_(n / 3),
    ),
    "both": lambda t, n: (t[:, n:] * t[:, :-n], torch.ones(n, 3).t().add(t[0, 0])),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_strides(function, backend):
    compiled = tracework.compile(function, backend=backend)
    for rows, columns, n in [(5, 4, 1), (5, 4, 1), (6, 7, 3), (3, 2, 1), (7, 5, 4), (8, 2, 1)]:
        t = torch.arange(float(rows * columns)).reshape(columns, rows).t()
        for expected, found in zip(function(t, n), compiled(t, n), strict=True):
            assert found.stride() == expected.stride()
            torch.testing.assert_close(found, expected)

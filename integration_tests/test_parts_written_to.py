"""Parts of a new tensor that are written to one after the other: the loops have conditions on outer and inner indices, and read elsewhere
where they hold. g++ 12 made wrong code of them with AVX-512, of a condition that an outer index is a number."""

import pytest
import torch
import tracework

SIZES = [(2, 12, 4), (3, 7, 16), (5, 4, 33)]


def overlapping(x):
    y = x * 2.0
    y = y.select_scatter(y.select(1, 3) * 2.0, 1, 3)
    y = y.select_scatter(torch.full_like(y.select(2, 0), 2.0), 2, 0)
    return x * 3.0, y.select_scatter(torch.full_like(y.select(0, 0), 3.0), 0, 0)


def shifted(x):
    y = x * 2.0
    y[:, 1:3] = y[:, 0:2].clone() + 1.0
    y[1, :, 2] = y[0, :, 1] * 3.0
    y[:, -1] = y[:, 1]
    return x * 3.0, y


@pytest.mark.parametrize("function", [overlapping, shifted])
def test_each_element_is_what_eager_writes(function):
    for sizes in SIZES:
        x = torch.arange(float(torch.Size(sizes).numel())).reshape(sizes)
        found = tracework.compile(function, fullgraph=True, dynamic=False)(x)
        assert all(map(torch.equal, found, function(x))), sizes


def test_kernels_of_both_kinds_in_one_graph(tmp_path):
    """Those that ask whether an index is a number are compiled apart from the others."""

    def f(x):
        pooled = torch.nn.functional.avg_pool1d(x, 3, 1, 1)
        return pooled.softmax(-1), overlapping(pooled)[1].cumsum(0)

    x = torch.rand(2, 12, 4)
    compiled = tracework.compile(f, fullgraph=True)
    found = compiled(x)
    tracework.save(compiled, tmp_path / "f.tw")
    for results in (found, tracework.load(tmp_path / "f.tw")(x)):
        for one, other in zip(results, f(x), strict=True):
            torch.testing.assert_close(one, other)

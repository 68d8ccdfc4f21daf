"""Strides of results where sizes that are computed, or ints, are 1 for some of the sizes that a graph is open for; results of equal inputs
are not copied; results are new to autograd, whatever wrote to them."""

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


def test_what_two_inputs_of_equal_sizes_give_is_not_copied():
    programs = []

    def observe(name, product):
        if name == "inductor":
            programs.append(product.host_source)

    compiled = tracework.compile(lambda x, y: (x + y, (x * y).sum(0)), observe=observe)
    for sizes in [(2, 3), (4, 5), (6, 7)]:
        x, y = torch.rand(sizes), torch.rand(sizes)
        torch.testing.assert_close(compiled(x, y), (x + y, (x * y).sum(0)))
    assert len(programs) == 2 and "s0" in programs[1]
    assert "= restride(" not in programs[1]


@pytest.mark.parametrize("inference", [False, True], ids=["recorded", "inference"])
def test_results_are_at_version_zero(inference):
    def function(x, y):
        product = x @ y.t()
        return product, product.relu() @ x, torch.ones(4).expand(3, 4)[:, : x.shape[0]] + 0, x.sin().cumsum(0)

    compiled = tracework.compile(function)
    with torch.inference_mode(inference):
        for sizes in [(2, 3), (4, 5), (3, 6)]:
            x, y = torch.rand(sizes), torch.rand(sizes)
            found = compiled(x, y)
            torch.testing.assert_close(found, function(x, y))
            assert inference or [t._version for t in found] == [0] * 4
            assert all(t.is_inference() == inference for t in found)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_random_results_are_at_version_zero(requires_grad):
    def function(x):
        drawn = torch.rand_like(x), torch.randn_like(x), torch.bernoulli(x.detach(), 0.5), torch.randperm(4), torch.rand(3)
        return *drawn, torch.normal(x.detach(), 1.0), x * drawn[0].view(-1)[0]

    found = tracework.compile(function)(torch.rand(4, 4, requires_grad=requires_grad))
    assert [t._version for t in found] == [0] * 7


def test_a_rotation_of_what_is_empty_for_all_sizes():
    def function(t):
        flat = t.reshape(-1)
        return flat.reshape(flat.size(0), -1).diagonal()[1:].roll(1, -1)

    compiled = tracework.compile(function)
    for sizes in ((2, 3, 4), (3, 2, 5), (4, 5, 3)):
        assert torch.equal(compiled(torch.ones(sizes)), function(torch.ones(sizes)))


PARTS = {
    "rows of what grows": lambda n: torch.randn(2, 3, n, 4)[:, :, :5],
    "all but one": lambda n: torch.randn(2, 3, n, 4)[:, :, :-1],
    "columns, transposed": lambda n: torch.randn(5, n)[:, :3].t(),
    "every so many": lambda n: torch.randn(4 * n)[::n],
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_strides_of_inputs_that_change(part):
    """Values, gradients, layouts, and writes to the input; the second graph serves all."""

    def read(x, w):
        return (x * w).relu().sum(-1), x.transpose(0, -1) * 2, (x * x).mean() * x.shape[0]

    def written(x, w):
        x.mul_(2).add_(w)
        return x.sum(-1)

    programs = []
    for function in (read, written):
        compiled = tracework.compile(function, observe=lambda name, product: programs.append(name))
        for n in range(6, 10):
            x, w = part(n), torch.randn(1, requires_grad=function is read)
            y = torch.empty_strided(x.shape, x.stride()).copy_(x)
            found, expected = compiled(x, w), function(y, w)
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(x, y)
            if function is read:
                assert [t.stride() for t in found] == [t.stride() for t in expected]
                gradients = [torch.autograd.grad(sum(t.sum() for t in result), w) for result in (found, expected)]
                torch.testing.assert_close(*gradients)
    assert programs.count("captured") == 4

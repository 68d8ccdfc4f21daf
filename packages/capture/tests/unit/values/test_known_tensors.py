"""Tensors made of plain numbers: their data steers sizes, slices and conditions without a break, until it is written to."""

import pytest
import torch
import tracework_capture as capture

X = torch.arange(6.0)


def sizes_and_slices(x):
    a = torch.tensor(3)
    return x[3 - a : 3 + a], x.new_zeros((torch.div(7, 2, rounding_mode="trunc"), 2)), x.view(a, -1), torch.clamp(x, 0, a * 2 - 1)


def conditions(x):
    limit = torch.tensor(2.5)
    if limit > 2:
        x = x + 1
    return x, int(limit), float(limit * 2), bool(limit == 2.5)


def numbers_alone(x):
    return x + torch.div(7, 2), torch.add(1, 2), torch.floor_divide(7, 2)


def parts(x):
    h, w = torch.tensor([2, 3]).tolist()
    both = torch.tensor([2, 3])
    return x.view(h, w), x.view(both[0], both[1]), torch.split(x, (both * 2 - both).min().item())


def written_in_place(x):
    a = torch.tensor(3)
    a += 1
    return x[:a]


def written_through_a_view(x):
    a = torch.tensor([2, 3])
    first = a[0]
    a[0] = 5
    return x[:first]


def written_by_out(x):
    a = torch.tensor(3)
    torch.add(a, 1, out=a)
    return x[:a]


@pytest.mark.parametrize(
    ("function", "graphs"),
    [
        (sizes_and_slices, 1),
        (conditions, 1),
        (numbers_alone, 1),
        (parts, 1),
        (written_in_place, None),
        (written_through_a_view, None),
        (written_by_out, None),
    ],
)
def test_known_data_steers_the_program(function, graphs):
    counted = []

    def backend(gm, example_inputs):
        counted.append(gm)
        return gm.forward

    capture.reset()
    compiled = capture.optimize(backend, fullgraph=graphs == 1)(function)
    expected, actual = function(X), compiled(X)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    assert graphs is None or len(counted) == graphs


def test_functions_that_refuse_numbers_alone_raise_as_they_do(caplog):
    def f(x, n):
        try:
            return x + torch.sum(n, dim=0)
        except TypeError as error:
            return str(error)

    assert capture.optimize(lambda gm, inputs: gm.forward)(f)(X, 3) == f(X, 3)
    assert not caplog.records  # no failure of capture

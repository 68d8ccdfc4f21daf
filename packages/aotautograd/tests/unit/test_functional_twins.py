"""Operators of users that write to arguments, inside a compiled graph."""

import pytest
import torch


@torch.library.custom_op("tracework_aot_tests::increased", mutates_args=("x",))
def increased(x: torch.Tensor, by: float = 1.0) -> None:
    x.add_(by)


@torch.library.custom_op("tracework_aot_tests::both", mutates_args=("a", "b"))
def both(a: torch.Tensor, b: torch.Tensor, *, times: int = 2) -> torch.Tensor:
    a.mul_(times)
    b.sub_(1)
    return a.sum()


@both.register_fake
def _(a, b, *, times=2):
    return a.new_empty(())


def an_intermediate(x):
    y = x * 2
    increased(y, 3.0)
    return (y * 2,)


def an_input(x):
    increased(x)
    return (x + 1,)


def views_and_a_result(x):
    y = x + 1
    other = y[0].clone()
    total = both(y.view(-1)[1:], other, times=3)
    return y, other, total


def strides_with_gaps(x):
    y = (x * 3).t()[1:]
    increased(y)
    return (y,)


@pytest.mark.parametrize("fn", [an_intermediate, an_input, views_and_a_result, strides_with_gaps], ids=lambda f: f.__name__)
def test_as_eager(fn, check):
    check(fn, torch.arange(6.0).reshape(2, 3))  # its runner refuses graphs with writes

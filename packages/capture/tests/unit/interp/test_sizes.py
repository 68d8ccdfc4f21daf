"""Sizes and numbers that change between calls become symbols; at most two captures."""

import pytest
import torch

pytest.importorskip("tracework_capture.values.wrap")

from interp_harness import Runner


def placeholders(captured):
    return [(b.role, str(b.source)) for b in captured.graph.inputs]


def test_second_size_becomes_a_symbol():
    def f(x, w):
        b, n = x.shape
        return (x @ w).reshape(b * 2, -1) * n + torch.arange(n).sum()

    runner = Runner()
    w = torch.randn(8, 4)
    f_eager = f
    for n in (5, 7, 9):
        w = torch.randn(n, 4)
        x = torch.randn(3, n)
        torch.testing.assert_close(runner.call(f, x, w), f_eager(x, w))
    assert ("size", "x.size(1)") not in placeholders(runner.graphs[0])
    assert ("size", "x.size(1)") in placeholders(runner.graphs[1])
    assert runner.graphs[1].symbols.conditions


def test_int_argument():
    def f(x, n):
        return x[:n] * n

    runner = Runner()
    x = torch.randn(10, 3)
    for n in (4, 6, 7):
        torch.testing.assert_close(runner.call(f, x, n), x[:n] * n)
    assert ("size", "n") in placeholders(runner.graphs[1])


def test_dynamic_true_at_once():
    def f(x):
        return x.sum(0) / x.shape[0], x.shape[0] + 1, x.view(x.shape[0] // 2, -1)

    runner = Runner(dynamic=True)
    x = torch.randn(6, 4)
    total, n, halves = runner.call(f, x)
    torch.testing.assert_close(total, x.sum(0) / 6)
    assert n == 7 and halves.shape == (3, 8)
    assert ("size", "x.size(0)") in placeholders(runner.graphs[0])

"""Places that are counted from the end by sizes that stay open: parts, rows and writes are eager's, with their gradients."""

import pytest
import torch
import tracework

pytestmark = pytest.mark.filterwarnings("error::tracework.UncompiledWarning")
SIZES = ((7, 3), (9, 4), (6, 5), (9, 2), (3, 3))
"""Columns of a tensor, and how many of them count."""


def written(write):
    """The program that writes to a copy of its tensor."""

    def program(x, n):
        x = x * 1
        write(x, n)
        return x

    return program


def rows(x, n):
    x[-n:, -n:] *= 2


def column(x, n):
    x[:, -n] = 7


def copied(x, n):
    x[:, -n:].copy_(x[:, :n].clone())


PROGRAMS = {
    "x[:, -n:]": lambda x, n: x[:, -n:] * 1,
    "x[:, :-n]": lambda x, n: x[:, :-n] * 1,
    "x[:, -n:-1]": lambda x, n: x[:, -n:-1] * 1,
    "x[:, -n - 1:-n]": lambda x, n: x[:, -n - 1 : -n] * 1,
    "x[:, -n::2]": lambda x, n: x[:, -n::2] * 1,
    "x[:, :-n:2]": lambda x, n: x[:, :-n:2] * 1,
    "x[:, 1:-n:3]": lambda x, n: x[:, 1:-n:3] * 1,
    "x[:, -n * 9:]": lambda x, n: x[:, -n * 9 :] * 1,
    "x[:, -n * 9:-1:2]": lambda x, n: x[:, -n * 9 : -1 : 2] * 1,
    "x[:, :n * 9]": lambda x, n: x[:, : n * 9] * 1,
    "x[:, n * 9:]": lambda x, n: x[:, n * 9 :] * 1,
    "x[:, -n]": lambda x, n: x[:, -n] * 1,
    "a view": lambda x, n: x[-n:, -n],
    "a part of a part": lambda x, n: x[:, -n:][:, -2:] * 1,
    "select": lambda x, n: x.select(-1, -n) * 1,
    "narrow": lambda x, n: x.narrow(1, -n, 2) * 1,
    "slice_scatter": lambda x, n: x.slice_scatter(x[:, :n] * 2, 1, -n, None),
    "select_scatter": lambda x, n: x.select_scatter(x[:, 0] * 2, 1, -n),
    "slice_copy": lambda x, n: torch.slice_copy(x, 1, -n),
    "select_copy": lambda x, n: torch.select_copy(x, 1, -n),
    "x[-n:, -n:] *= 2": written(rows),
    "x[:, -n] = 7": written(column),
    "x[:, -n:].copy_(...)": written(copied),
}
WITH_KERNELS = ("x[:, n * 9:]", "x[:, -n:]", "x[:, -n:].copy_(...)")


def check(program, backend):
    tracework.reset()
    compiled = tracework.compile(program, backend=backend, dynamic=True, fullgraph=True)
    for columns, n in SIZES:
        values = [torch.randn(columns + 1, columns, dtype=torch.float64, requires_grad=True)]
        values.append(values[0].detach().clone().requires_grad_())
        results = [run(x, n) for run, x in zip((program, compiled), values)]
        torch.testing.assert_close(results[1], results[0], rtol=0, atol=0, check_stride=True)
        assert results[1].storage_offset() == results[0].storage_offset()
        weights = torch.randn(results[0].shape, dtype=torch.float64)
        gradients = [torch.autograd.grad((result * weights).sum(), x)[0] for result, x in zip(results, values)]
        torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("name", PROGRAMS)
def test_prims(name):
    check(PROGRAMS[name], "aot_eager_decomp_partition")


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_kernels(name):
    check(PROGRAMS[name], "inductor")

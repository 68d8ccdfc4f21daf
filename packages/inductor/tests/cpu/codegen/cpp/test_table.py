"""One function for equal kernels: every element of every row is that of a kernel of its own, whoever computes it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import pytest
import torch
from prim_programs import check
from tracework_primops import prims
from tracework_runtime import load
from tracework_runtime.host.lines import Launch

LENGTHS = (2, 7, 15, 511, 512, 513, 1024, 3 * 512 + 7, 40_000, 5)
"""Around the blocks that stay together, and more than the threads leave to one of them."""


def tensors(dtype):
    torch.manual_seed(0)
    return [torch.randn(n).to(dtype) for n in LENGTHS]


def launches(artifact):
    """How many operands each launch has: a table's number of rows, the addresses and the lengths."""
    return [len(line.operands) for line in artifact.host_lines if isinstance(line, Launch)]


def updated(step, *xs):
    """Both halves of what is given are written, with a costly function of one number."""
    half = len(xs) // 2
    for x, y in zip(xs[:half], xs[half:], strict=True):
        moved = prims.sub(x, prims.div(y, prims.pow(step, 0.3)))
        prims.copy_into(y, prims.mul(y, 0.5))
        prims.copy_into(x, moved)
    return prims.neg(step)


def split(x):
    """Places within one tensor, of another dtype than the results."""
    return tuple(prims.convert(prims.lt(prims.slice(x, 0, n, 3 * n + 600, 1), 0.0), torch.uint8) for n in range(300, 305))


def every_second(x):
    return tuple(prims.exp(prims.slice(x, 0, n, 100 + 10 * n, 2)) for n in range(5))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_values(threads, dtype):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        artifact = check(lambda *xs: tuple(prims.exp(prims.neg(x)) for x in xs), *tensors(dtype))
    finally:
        torch.set_num_threads(before)
    assert launches(artifact) == [1 + 3 * len(LENGTHS)]


@pytest.mark.parametrize(
    ("program", "inputs"),
    [
        (updated, (torch.tensor(3.0), *tensors(torch.float32), *tensors(torch.float32))),
        (split, (torch.randn(2000),)),
        (every_second, (torch.randn(200),)),
        (lambda *xs: tuple(prims.sin(x) for x in xs), tuple(torch.tensor(float(n)) for n in range(6))),
    ],
    ids=["written", "places", "steps", "numbers"],
)
def test_values_of_other_rows(program, inputs):
    artifact = check(program, *inputs)
    assert max(launches(artifact)) > 10


def test_the_python_program_passes_the_same_table():
    xs = tensors(torch.float32)
    artifact = check(lambda *xs: tuple(prims.exp(x) for x in xs), *xs)
    ways = load(artifact), load(artifact.replace(host_lines=()))
    assert "in_table(" in artifact.host_source
    for ours, others in zip(*(way(list(xs)) for way in ways), strict=True):
        assert torch.equal(ours, others)

"""What is written to memory: not what a few elements of are looked up, however many others compute with what it is made of."""

import pytest
import torch
from prim_programs import build
from tracework_inductor import InductorOptions
from tracework_inductor.pipeline import plan_graph
from tracework_primops import TensorSpec, prims

ROWS, COLUMNS = 64, 1000


def negative_log_likelihood(x, target, dtype):
    """As cross entropy is made of."""
    x = prims.convert(x, torch.float32)
    shifted = prims.sub(x, prims.amax(x, (1,), True))
    total = prims.sum(prims.exp(shifted), (1,), True)
    y = prims.convert(prims.sub(shifted, prims.log(total)), dtype)
    return prims.neg(prims.gather(y, 1, target))


def is_written(graph, sizes=(ROWS, COLUMNS)) -> bool:
    """Whether kernels write anything of these sizes."""
    plan = plan_graph(graph, InductorOptions())
    layouts = {name: layout for kernel in plan.kernels for name, layout in kernel.layouts.items()}
    return any(layout.sizes == sizes for name, layout in layouts.items() if name not in plan.program.inputs)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_few_elements_are_computed_where_they_are_looked_up(device, dtype) -> None:
    for places, written in ((1, False), (900, True)):
        x = TensorSpec(dtype, torch.device(device), (ROWS, COLUMNS))
        target = TensorSpec(torch.int64, torch.device(device), (ROWS, places))
        graph = build(lambda x, target: negative_log_likelihood(x, target, dtype), [None, None], [x, target])
        assert is_written(graph) == written, places


CHANNELS = 8
OTHERS = {
    (1, CHANNELS, 1, 1): False,
    (1, 1, 1, COLUMNS): True,
    (1, CHANNELS, ROWS // CHANNELS, 1): True,
    (1, CHANNELS, ROWS // CHANNELS, COLUMNS): True,
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_read_of_few_elements_is_no_reason_to_write(other) -> None:
    """On a CPU a value with two users is written where it is made of two large buffers, or of rows and what norms of rows have beside them;
    statistics of channels are none."""

    def program(x, y):
        shared = prims.mul(x, y)
        return prims.sum(prims.sin(shared), (3,), True), prims.sum(prims.cos(shared), (1, 2), True)

    sizes = (1, CHANNELS, ROWS // CHANNELS, COLUMNS)
    specs = [TensorSpec(torch.float32, torch.device("cpu"), s) for s in (sizes, other)]
    assert is_written(build(program, [None, None], specs), sizes) == OTHERS[other]


PARTS = {
    "halves": ([(0, 500), (500, COLUMNS)], False),
    "with a gap": ([(10, 20), (900, COLUMNS)], False),
    "overlapping": ([(0, 501), (500, COLUMNS)], True),
    "one twice": ([(0, 500), (0, 500)], True),
}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", PARTS)
def test_parts_with_readers_of_their_own_are_computed_where_they_are_read(name, device) -> None:
    """Nothing is read or computed twice then."""
    bounds, written = PARTS[name]

    def program(x, y, z):
        shared = prims.add(prims.mul(x, y), z)
        return tuple(prims.sum(prims.slice(shared, 1, *pair, 1), (dim,), True) for dim, pair in enumerate((bounds * 2)[:2]))

    specs = [TensorSpec(torch.float32, torch.device(device), (ROWS, COLUMNS))] * 3
    assert is_written(build(program, [None, None, None], specs)) == written

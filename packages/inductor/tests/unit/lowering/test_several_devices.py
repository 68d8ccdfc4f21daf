"""Graphs over the CPU and several GPUs: each kernel reads and is launched on one device, copies lie between."""

import pytest
import torch
from prim_programs import build
from tracework_inductor import InductorOptions, compile_graph
from tracework_inductor.errors import InductorError
from tracework_primops import prims
from tracework_primops.op import PrimValue
from tracework_primops.spec import TensorSpec

FIRST, SECOND, CPU = torch.device("cuda", 0), torch.device("cuda", 1), torch.device("cpu")


def specs(*devices):
    return [TensorSpec(torch.float32, d, (64, 64)) for d in devices]


def test_kernels_are_launched_on_the_device_of_what_they_write():
    def program(x, y):
        there = prims.device_put(prims.exp(x), SECOND)
        return prims.add(prims.exp(y), there), prims.exp(x)

    artifact = compile_graph(build(program, [None, None], specs(FIRST, SECOND)), InductorOptions())
    assert artifact.devices == {"cuda:0", "cuda:1"}
    assert sorted(k.launch["device"] for k in artifact.kernels) == [0, 1]
    assert len({k.name for k in artifact.kernels}) == len(artifact.kernels), "equal text on another device is another kernel"
    assert "device('cuda:1')" in artifact.host_source


def test_one_gpu_is_not_named_by_its_kernels():
    artifact = compile_graph(build(prims.exp, [None], specs(SECOND)), InductorOptions())
    assert [dict(k.launch).get("device") for k in artifact.kernels] == [None]


def test_memory_of_another_device_is_not_read():
    def program(x, rows):
        return prims.index(x, (rows,))

    given = [*specs(FIRST), TensorSpec(torch.int64, CPU, (3,))]
    with pytest.raises(InductorError, match="memory of another device"):
        compile_graph(build(program, [None, None], given), InductorOptions())


def test_indices_on_the_cpu_are_brought_to_the_gpu():
    from tracework_primops.decomp.indexing import index, index_put

    def program(x, rows, value):
        assert isinstance(x, PrimValue)
        return index(x, (rows,)), index_put(x, (rows,), value)

    given = [*specs(FIRST), TensorSpec(torch.int64, CPU, (3,)), TensorSpec(torch.float32, CPU, ())]
    graph = build(program, [None] * 3, given)
    moved = [n for n in graph.calls if getattr(n.target, "name", "") == "device_put"]
    assert len(moved) == 3 and all(n.meta["spec"].device == FIRST for n in moved)
    assert compile_graph(graph, InductorOptions()).kernels

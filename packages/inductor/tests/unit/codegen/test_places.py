"""Which calls of the program a kernel or a library call computes."""

import pytest
import torch
from tracework_inductor import compile_graph, places
from tracework_primops import TensorSpec, prims

from ...prim_programs import build


def fused(x, y):
    return prims.mul(prims.cos(prims.mm(prims.sin(x), y)), x)


def realized(x, y):
    """What several kernels read."""
    e = prims.exp(x)
    return prims.sum(e, (0,), False), prims.sum(prims.tanh(e), (1,), False), y


def written(x, y):
    return prims.copy_into(x, prims.sin(y))


def scanned(x, y):
    return prims.cumsum(prims.sin(x), 1), y


def chosen(x, y):
    """Inside of a mask."""
    return prims.pad(prims.exp(x), ((0, 0), (0, 2)), 0.0), y


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("program", [fused, realized, written, scanned, chosen])
def test_every_call_is_a_kernels_or_a_library_calls(program, device):
    specs = [TensorSpec(torch.float32, torch.device(device), (8, 8), (8, 1))] * 2
    graph = build(program, [None] * 2, specs)
    for number, node in enumerate(n for n in graph.graph.nodes if n.op == "call_function"):
        node.meta["origin"] = f"/home/me/lib/model.py:{number + 1} in forward {node.target.name}"
    calls = places(graph)
    artifact = compile_graph(graph)
    assert all(text.startswith("lib/model.py:") for text in calls)
    assert {text for known in artifact.places.values() for text in known} == set(calls)
    assert artifact.places.keys() == {kernel.name for kernel in artifact.kernels} | artifact.externs
    for known in artifact.places.values():
        assert known and all(numbers == (calls.index(text),) for text, numbers in known.items())
    for kernel in artifact.kernels:
        assert f"# kernel {kernel.name} ({kernel.language})" in artifact.text()
        assert all(f"#   from {text}\n" in artifact.text() for text in artifact.places[kernel.name])


def test_what_is_fused_into_a_kernel_is_its():
    specs = [TensorSpec(torch.float32, torch.device("cpu"), (8, 8), (8, 1))] * 2
    graph = build(fused, [None] * 2, specs)
    for node in graph.graph.nodes:
        if node.op == "call_function":
            node.meta["origin"] = f"lib/model.py:1 in forward {node.target.name}"
    found = {name: [text.split()[-1] for text in known] for name, known in compile_graph(graph).places.items()}
    assert found == {"sin_0": ["sin"], "aten::mm": ["mm"], "cos_mul_0": ["cos", "mul"]}

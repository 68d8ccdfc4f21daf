"""What a report says of each kernel: stored with the artifact, small, and complete."""

import pytest
import torch
from tracework_inductor import compile_graph, places
from tracework_primops import TensorSpec, prims
from tracework_runtime import Artifact

from ...prim_programs import build


def program(x, y):
    return prims.sum(prims.mul(prims.cos(prims.mm(prims.sin(x), y)), x), (1,), False)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_each_kernel_has_lines_bytes_and_operations(device):
    graph = build(program, [None] * 2, [TensorSpec(torch.float32, torch.device(device), (8, 8), (8, 1))] * 2)
    for number, node in enumerate(n for n in graph.graph.nodes if n.op == "call_function"):
        node.meta["origin"] = f"/home/me/lib/model.py:{number + 1} in forward {node.target.name}"
    artifact = Artifact.from_bytes(compile_graph(graph).to_bytes())
    steps, calls = artifact.notes["steps"], places(graph)
    assert [step["kind"] for step in steps] == ["loops", "library", "loops"]
    assert [step["ops"] for step in steps] == ["sin", "mm", "cos mul sum"]
    assert [step["flops"] for step in steps] == [64, 2 * 8**3, 3 * 64]
    assert [step["bytes"] for step in steps] == [2 * 256, 3 * 256, 2 * 256 + 32]
    texts = [[calls[n] for at in step["origins"] for n in artifact.notes["origins"][at]] for step in steps]
    assert [[text.split()[-1] for text in each] for each in texts] == [["sin"], ["mm"], ["cos", "mul", "sum"]]
    assert all(step["key"] in artifact.places for step in steps)
    launched = [getattr(artifact.host_lines[n], "function", "") for step in steps for n in step["lines"]]
    assert [name for name in launched if name] == [kernel.name for kernel in artifact.kernels]
    assert artifact.notes["outputs"] == steps[-1]["writes"]
    assert artifact.notes["buffers"][steps[0]["writes"][0]] == ["float32", [8, 8], "computed", 256]


def test_refused_fusions_are_told_once_a_reason():
    def two(x, y):
        return prims.exp(x), prims.sum(prims.sin(y), (0,), False), prims.sum(prims.cos(y), (1,), False)

    graph = build(two, [None] * 2, [TensorSpec(torch.float32, torch.device("cpu"), n, (n[1], 1)) for n in ((4, 4), (64, 32))])
    refused = compile_graph(graph).notes["refused"]
    assert len({tuple(row[2:4]) for row in refused}) == len(refused)


def test_choices_between_numbers_are_no_operations():
    graph = build(
        lambda x, y: prims.exp(prims.cat([x, y], 1)),
        [None] * 2,
        [TensorSpec(torch.float32, torch.device("cpu"), (8, 8), (8, 1))] * 2,
    )
    (step,) = compile_graph(graph).notes["steps"]
    assert "where" in step["ops"] and step["flops"] == 128

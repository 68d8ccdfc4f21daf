"""A single number on the CPU may stand beside tensors of another device; kernels of that device cannot read it there."""

import torch
from tracework_primops import TensorSpec, prims
from tracework_primops.op import GraphBuilder, PrimValue

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")


def build(function, *devices):
    """Names of the prims that function makes of float64 numbers and float32 tensors."""
    graph = torch.fx.Graph()
    values = []
    for index, device in enumerate(devices):
        spec = TensorSpec(torch.float32, device, () if device is CPU else (3, 4))
        node = graph.placeholder(f"x{index}")
        node.meta["spec"] = spec
        values.append(PrimValue(spec, node))
    with GraphBuilder(graph):
        result = function(*values)
    assert result.device == (CUDA if CUDA in devices else CPU)
    return [n.target.name for n in graph.nodes if n.op == "call_function"]


def test_numbers_are_brought_to_the_device():
    assert build(prims.mul, CUDA, CPU) == ["device_put", "mul"]
    assert build(prims.mul, CPU, CUDA) == ["device_put", "mul"]
    assert build(prims.where, CUDA, CPU, CPU) == ["device_put", "device_put", "where"]


def test_one_device_needs_nothing():
    assert build(prims.mul, CUDA, CUDA) == ["mul"]
    assert build(prims.mul, CPU, CPU) == ["mul"]

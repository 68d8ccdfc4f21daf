"""What kernels are called, and what their heads say."""

import dataclasses
import keyword

import pytest
import torch
from tracework_inductor import compile_graph
from tracework_inductor.codegen.names import LENGTH
from tracework_primops import SymbolTable, TensorSpec, prims
from tracework_runtime import Artifact
from tracework_runtime.build import triton as build

from ...prim_programs import build as graph_of

DEVICES = ["cpu", "cuda:0"]


def compiled(program, origins, device="cpu", sizes=(8, 8), role="inference"):
    strides = (sizes[1], 1)
    graph = graph_of(program, [None] * 2, [TensorSpec(torch.float32, torch.device(device), sizes, strides)] * 2)
    calls = [n for n in graph.graph.nodes if n.op == "call_function"]
    for node, operator in zip(calls, origins, strict=True):
        node.meta["origin"] = operator
    return compile_graph(dataclasses.replace(graph, role=role))


def chain(x, y):
    return prims.exp(prims.add(x, y))


def two_sums(x, y):
    return prims.sum(x, (0,), False), prims.sum(y, (1,), False)


NAMES = {
    "operators in order": (chain, ["model.py:1 in f add", "model.py:2 in f exp"], "inference", ["add_exp_0"]),
    "of the backward": (chain, ["model.py:1 in f add", "model.py:2 in f exp"], "backward", ["add_exp_backward_0"]),
    "one operator": (chain, ["model.py:1 in f softmax"] * 2, "forward", ["softmax_0"]),
    "names of methods": (chain, ["model.py:1 in f __add__", "model.py:2 in f exp_"], "inference", ["add_exp_0"]),
    "unknown": (chain, ["", ""], "inference", ["loops_0"]),
    "no identifier": (chain, ["model.py:1 in <lambda>", "7"], "inference", ["loops_0"]),
    "numbers keep them apart": (two_sums, ["model.py:1 in f sum"] * 2, "inference", ["sum_0", "sum_1"]),
    "a limit": (chain, ["a" * LENGTH, "exp"], "inference", ["a" * LENGTH + "_and_1_more_0"]),
    "one that is too long": (chain, ["a" * (LENGTH + 1), "exp"], "inference", ["exp_0"]),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", NAMES)
def test_names(case, device):
    program, origins, role, expected = NAMES[case]
    assert [kernel.name for kernel in compiled(program, origins, device, role=role).kernels] == expected


@pytest.mark.parametrize("operator", ["sin", "max", "float32", "call", "torch", "kernel", *keyword.kwlist])
def test_no_name_is_taken_from_c_or_python(operator):
    (kernel,) = compiled(chain, [f"model.py:1 in f {operator}"] * 2).kernels
    assert kernel.name == f"{operator.lower()}_0" and not keyword.iskeyword(kernel.name)


@pytest.mark.parametrize("device", DEVICES)
def test_equal_kernels_are_one_under_any_name(device):
    first, second = (
        compiled(chain, [f"model.py:{n} in f {op}"] * 2, device).kernels[0] for n, op in enumerate(["add", "logaddexp"])
    )
    assert (first.name, second.name) == ("add_0", "logaddexp_0")
    if device == "cpu":
        assert first.source.replace("add_0", "logaddexp_0") == second.source
        return
    assert first.fingerprint == second.fingerprint and first.source == second.source
    requests = [
        build.request(k, e, k.launch["configs"][0], build.Variant(), 90) for k in (first, second) for e in k.launch["entries"]
    ]
    assert [r["symbol"] for r in requests] == ["add_0", "logaddexp_0"]
    assert len({build.content_key(r) for r in requests}) == 1


TRAFFIC = {
    "elementwise": (chain, 3 * 64 * 4, 2 * 64),
    "sums": (lambda x, y: prims.sum(prims.mul(x, y), (1,), False), (2 * 64 + 8) * 4, 2 * 64),
    "in place": (lambda x, y: prims.copy_into(x, prims.add(x, y)), 3 * 64 * 4, 64),
    "a part": (lambda x, y: prims.exp(prims.slice(x, 0, 2, 4, 1)), 2 * 16 * 4, 16),
    "windows": (lambda x, y: prims.exp(prims.unfold(x, 0, 4, 1)), (64 + 160) * 4, 160),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", TRAFFIC)
def test_bytes_and_operations(case, device):
    program, moved, flops = TRAFFIC[case]
    artifact = compiled(program, ["f"] * 2, device)
    (kernel,) = artifact.kernels
    (step,) = artifact.notes["steps"]
    assert (step["name"], step["bytes"], step["flops"]) == (kernel.name, moved, flops)
    assert f"#   bytes {moved}, flops {flops}\n" in artifact.text()
    assert Artifact.from_bytes(artifact.to_bytes()) == artifact


def test_bytes_of_open_sizes():
    n = SymbolTable().new(8, "n", 2, None)
    (step,) = compiled(chain, ["add", "exp"], sizes=(n, 8)).notes["steps"]
    assert [eval(step[name], {"n": 5, "s0": 5}) for name in ("bytes", "flops")] == [3 * 40 * 4, 80]

"""Inputs of one element on the CPU that a GPU reads: which are written into its memory, and which are copied as other memory is."""

import pytest
import torch
from prim_programs import build
from tracework_inductor import InductorOptions, compile_graph
from tracework_inductor.given_numbers import MOST, convert_on_gpu
from tracework_primops import prims
from tracework_primops.spec import TensorSpec
from tracework_runtime.cudagraph.refusals import refusals
from tracework_runtime.host.lines import Call, Launch, Number

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def graph_of(program, count=1, dtype=torch.float64):
    specs = [TensorSpec(torch.float32, CUDA, (7,)), *[TensorSpec(dtype, CPU, ())] * count]
    return build(program, [torch.empty(s.sizes, device="meta") for s in specs], specs)


def placed(number, dtype=torch.float32):
    return prims.device_put(prims.convert(number, dtype), CUDA)


def lines_of(graph):
    """What the host program does with memory of the CPU, and what speaks against a recording."""
    artifact = compile_graph(graph, InductorOptions())
    on_cpu = {kernel.name for kernel in artifact.kernels if kernel.language == "cpp"}
    found = []
    for line in artifact.host_lines:
        match line:
            case Number():
                found.append("written")
            case Launch(function) if function in on_cpu:
                found.append("kernel")
            case Call(operators=("prims::device_put",)):
                found.append("copied")
    return found, [reason.partition(":")[0] for reason in refusals(artifact)]


GIVEN = {
    "converted": lambda x, n: (prims.add(x, placed(n)),),
    "as it is": lambda x, n: (prims.mul(prims.convert(x, torch.float64), prims.device_put(n, CUDA)),),
    "twice": lambda x, n: (prims.add(x, placed(n)), prims.mul(prims.convert(x, torch.float16), placed(n, torch.float16))),
    "returned, too": lambda x, n: (prims.add(x, placed(n)), n),
    "everywhere": lambda x, n: (prims.clone(prims.expand(placed(n), (7,))), prims.neg(x)),
}


@pytest.mark.parametrize("name", GIVEN)
def test_given_numbers_are_written(name):
    assert lines_of(graph_of(GIVEN[name])) == (["written"], [])


COPIED = {
    "computed on the CPU": (lambda x, n: (prims.add(x, placed(prims.exp(n))),), ["copied", "kernel"]),
    "read on the CPU": (lambda x, n: (prims.add(x, placed(n)), prims.exp(n)), ["copied", "kernel"]),
    "given out": (lambda x, n: (prims.neg(x), placed(n)), ["copied", "kernel"]),
    "given out as a view": (lambda x, n: (prims.neg(x), prims.reshape(placed(n), (1,))), ["copied", "kernel"]),
    "written to": (
        lambda x, n: (prims.add(x, placed(n)), prims.copy_into(n, prims.exp(n))),
        ["copied", "kernel", "kernel"],
    ),
}


@pytest.mark.parametrize("name", COPIED)
def test_other_numbers_are_copied(name):
    program, expected = COPIED[name]
    found, reasons = lines_of(graph_of(program))
    assert sorted(found) == expected and reasons


def test_wide_numbers_are_copied():
    def program(x, n):
        return (prims.mul(prims.convert(x, torch.complex128), prims.device_put(n, CUDA)),)

    graph = graph_of(program, dtype=torch.complex128)
    found, _ = lines_of(graph)
    assert "copied" in found and "written" not in found


@pytest.mark.parametrize("converted", [False, True])
def test_many_numbers_are_sent_in_one_copy(converted):
    def program(x, *numbers):
        for n in numbers:
            x = prims.add(x, placed(n) if converted else prims.device_put(n, CUDA))
        return (x,)

    few, many = (graph_of(program, count, torch.float64 if converted else torch.float32) for count in (MOST, MOST + 1))
    assert (convert_on_gpu(few) is few) == (not converted) and lines_of(few) == (["written"] * MOST, [])
    assert convert_on_gpu(many) is many and lines_of(many)[0].count("copied") == 1

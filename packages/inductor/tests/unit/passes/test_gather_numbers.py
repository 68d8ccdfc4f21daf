"""Numbers on their way to a GPU: how many copies are left, and that the order of the graph stays one of dependencies."""

import pytest
import torch
from prim_programs import build
from tracework_inductor import InductorOptions, lower, schedule
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_inductor.passes.gather_numbers import gather_numbers
from tracework_primops import prims
from tracework_primops.passes.edits import is_prim
from tracework_primops.spec import TensorSpec

CUDA = torch.device("cuda", 0)


def graph_of(program, *where, dtype=torch.float32):
    """`where`: "n" for a number on the CPU, "v" for a vector on the GPU."""
    specs = [TensorSpec(dtype, torch.device("cpu"), ()) if w == "n" else TensorSpec(dtype, CUDA, (7,)) for w in where]
    return build(program, [torch.empty(s.sizes, device="meta") for s in specs], specs)


def copies(graph):
    graph.graph.lint()
    return [n.args[0].meta["spec"].sizes for n in graph.calls if is_prim(n, "device_put")]


def scaled(a, b, c, x):
    """Each number is used before the next one is computed."""
    y = prims.mul(x, prims.add(a, 1.0))
    z = prims.sub(y, prims.mul(b, 2.0))
    return y, prims.div(z, prims.sqrt(c))


def test_one_copy_is_left():
    graph = graph_of(scaled, "n", "n", "n", "v")
    assert copies(graph) == [(), (), ()]
    gathered = gather_numbers(graph)
    assert copies(gathered) == [(3,)]
    options = InductorOptions()
    plan = schedule(lower(gathered, options), options, TritonRenderer().capabilities)
    assert [k.device.type for k in plan.kernels] == ["cpu", "cuda", "cuda"]


def test_a_number_alone_is_left_alone():
    graph = graph_of(lambda a, x: (prims.mul(x, a),), "n", "v")
    assert gather_numbers(graph) is graph


def test_a_number_that_a_gpu_result_leads_to_is_not_waited_for():
    def program(a, b, x):
        first = prims.mul(x, a)
        back = prims.device_put(prims.sum(first, (0,), False), torch.device("cpu"))
        return prims.mul(prims.mul(x, prims.add(back, 1.0)), prims.neg(b))

    graph = graph_of(program, "n", "n", "v")
    left = copies(gather_numbers(graph))
    assert sorted(left) == [(), (), (2,)]  # back from the GPU, the one before it, and the two behind it


@pytest.mark.parametrize("between", ["write", "dtype"])
def test_what_must_not_be_gathered(between):
    def program(a, b, x):
        y = prims.mul(x, a)
        if between == "write":
            prims.copy_into(b, prims.add(b, 1.0))
            return y, prims.mul(x, b)
        return y, prims.mul(prims.convert(x, torch.float64), prims.convert(b, torch.float64))

    graph = graph_of(program, "n", "n", "v")
    assert gather_numbers(graph) is graph

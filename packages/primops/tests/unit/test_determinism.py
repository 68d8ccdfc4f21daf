"""What is left to eager's kernels while algorithms are to be deterministic."""

import pytest
import torch
from tracework_primops import DECOMPS, OPS, PrimValue, TensorSpec, aten_graph, decompose, deterministic_changes
from tracework_primops.decomp.determinism import SWITCHED

CHANGES = deterministic_changes()


def test_the_table_names_ops_that_have_rows():
    assert set(SWITCHED) <= {op._schema.name.partition("::")[2] for op in DECOMPS}


@pytest.mark.parametrize("op", CHANGES, ids=str)
def test_on_a_gpu_all_are_left(op):
    x = PrimValue(TensorSpec(torch.float32, torch.device("cuda", 0), (2, 3)), None)
    assert CHANGES[op](x) is NotImplemented


ON_CPU = {
    "put": (lambda x, i: x.put(i, x[:1]), ["aten.put.default"]),
    "max_unpool2d": (lambda x, i: torch.ops.aten.max_unpool2d(x[None], i[None], [1, 9]), ["aten.max_unpool2d.default"]),
    "scatter_add": (lambda x, i: x.scatter_add(0, i, x), []),
    "cumsum": (lambda x, i: x.cumsum(0), []),
}


@pytest.mark.parametrize("name", ON_CPU)
def test_on_a_cpu_those_are_left_for_which_eager_raises(name):
    function, expected = ON_CPU[name]
    graph = decompose(aten_graph(function, torch.ones(1, 3), torch.tensor([[0, 1, 1]])), changes=CHANGES)
    assert [str(n.target) for n in graph.calls if OPS.get(getattr(n.target, "name", "")) is not n.target] == expected

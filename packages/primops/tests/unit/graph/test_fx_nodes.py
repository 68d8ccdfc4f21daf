"""add_node and copy_node against torch.fx's own."""

import operator

import pytest
import torch
from tracework_primops import add_node, copy_node, prims

aten = torch.ops.aten
CALLS = [
    ("call_function", aten.add.Tensor),
    ("call_function", aten._softmax.default),
    ("call_function", prims.add),
    ("call_function", operator.getitem),
    ("call_function", torch.nn.functional.scaled_dot_product_attention),
    ("call_method", "view"),
    ("call_method", "__add__"),
]


@pytest.mark.parametrize("op, target", CALLS, ids=str)
def test_the_same_nodes_as_torch_makes(op, target):
    plain, ours = torch.fx.Graph(), torch.fx.Graph()
    for graph, add in ((plain, plain.create_node), (ours, lambda *a, **k: add_node(ours, *a, **k))):
        x = graph.placeholder("x")
        for i in range(3):
            add(op, target, (x, [i, x]), {"y": x})
        add(op, target, (), name="named")
    assert str(plain) == str(ours)
    (x,) = ours.find_nodes(op="placeholder")
    assert [list(n.users) for n in ours.nodes][0] == [n for n in ours.nodes if n.args] and len(x.users) == 3
    ours.output(())
    ours.lint()


def test_a_copy_has_arguments_names_and_its_own_meta():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    node = add_node(graph, "call_function", aten.sum.dim_IntList, (x, [1]), {"keepdim": True})
    node.meta["origin"] = "model.py:3"
    other, made = torch.fx.Graph(), {}
    for n in graph.nodes:
        made[n] = copy_node(other, n, made.__getitem__)
    assert str(other) == str(graph)
    made[node].meta["origin"] = "elsewhere"
    assert node.meta["origin"] == "model.py:3" and list(made[x].users) == [made[node]]

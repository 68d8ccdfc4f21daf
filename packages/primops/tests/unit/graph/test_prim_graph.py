"""PrimGraph: text round trip, fingerprint, verification, eager run."""

import operator

import pytest
import torch
import torch.fx
from tracework_primops import OPS, PrimGraph, SizeSpec, TensorSpec, VerifyError, parse_graph, symbol, verify

CPU = torch.device("cpu")
S = symbol("s0", 2)


def call(graph, target, args, spec, **kwargs):
    node = graph.create_node("call_function", target, args, kwargs)
    node.meta["spec"] = spec
    node.meta["origin"] = "model.py:3 in forward"
    return node


def f32(*sizes, **kwargs):
    return TensorSpec(torch.float32, CPU, sizes, **kwargs)


def example() -> PrimGraph:
    g = torch.fx.Graph()
    size = g.placeholder("s")
    size.meta["spec"] = SizeSpec(S)
    x = g.placeholder("x")
    x.meta["spec"] = f32(S, 3)
    e = call(g, OPS["exp"], (x,), f32(S, 3))
    v = call(g, OPS["var_mean"], (e, (1,), 0, True), (f32(S, 1), f32(S, 1)))
    c = call(g, OPS["convert"], (e, torch.float64), TensorSpec(torch.float64, CPU, (S, 3), (1, S), 4))
    r = call(g, OPS["reshape"], (e, (S * 3,)), f32(S * 3))
    m = call(g, OPS["mul"], (r, float("-inf")), f32(S * 3))
    i = call(g, operator.getitem, (v, 1), f32(S, 1))
    t = call(g, torch.ops.aten.sum.dim_IntList, (i, [0]), f32(1, 1), keepdim=True)
    g.output((t, e, None, c, m))
    return PrimGraph.from_fx(g, static_inputs={1})


def test_text_round_trip_and_fingerprint():
    graph = verify(example())
    again = verify(parse_graph(graph.text()))
    assert again.text() == graph.text()
    assert again.fingerprint() == graph.fingerprint() == graph.copy().fingerprint()
    assert again.inputs[1].is_static and not again.inputs[0].is_static


def test_names_do_not_change_the_fingerprint_but_numbers_do():
    graph = example()
    renamed = parse_graph(graph.text().replace("%exp", "%other"))
    changed = parse_graph(graph.text().replace("exp(", "exp2("))
    assert renamed.fingerprint() == graph.fingerprint() != changed.fingerprint()


def test_use_before_definition_is_refused_with_the_place():
    graph = example()
    nodes = list(graph.graph.nodes)
    nodes[3].prepend(nodes[2])
    nodes[2].prepend(nodes[3])
    with pytest.raises(VerifyError, match="before it is made"):
        verify(graph)


def test_missing_spec_is_refused():
    graph = example()
    del graph.calls[0].meta["spec"]
    with pytest.raises(VerifyError, match="spec"):
        verify(graph)


def test_a_result_of_several_values_is_no_output():
    text = """inference graph
%x: f32[3, 4] = input
%pair: (f32[4]; f32[4]) = var_mean(%x, (0,), 1, False)
return %x, %pair
"""
    with pytest.raises(VerifyError, match=r"%pair, which is 2 values: give getitem\(%pair, 0\)"):
        verify(parse_graph(text))

"""Functional graphs as text: a graph that is read back decomposes to the same prims."""

import pytest
import torch
import tracework_aotautograd as aotautograd
from tracework_aotautograd.text import parse_program, print_program
from tracework_primops import FakeMode, ParseError, SymbolTable, aten_graph, decompose, parse_graph


def test_round_trip():
    gm = aten_graph(
        lambda x, y: (*torch.var_mean(x @ y, 1), torch.topk(x, 2).values, x.clone().t()), torch.ones(3, 4), torch.ones(4, 5)
    )
    graph = aotautograd.functional_graph(gm)
    again, spec = aotautograd.functional_module(parse_graph(graph.text()))
    assert aotautograd.functional_graph(again, spec).text() == graph.text()
    assert decompose(again, spec=spec).text(origins=False) == decompose(gm).text(origins=False)


def test_symbols_stay():
    table = SymbolTable()
    mode = FakeMode(table)
    rows = table.new(5)
    x = mode.from_real(torch.ones(5, 3), sizes=(rows, 3), strides=(3, 1))
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    node.meta["val"] = x
    with mode:
        exp = graph.call_function(torch.ops.aten.exp.default, (node,))
        exp.meta["val"] = torch.ops.aten.exp.default(x)
    graph.output((exp,))
    spec = aotautograd.GraphSpec("forward", frozenset({0}), frozenset(), table, mode)
    text = aotautograd.functional_graph(torch.fx.GraphModule({}, graph), spec).text()
    assert text == (
        "forward graph\nsymbol s0 in 2..None hint 5\n%x: f32[s0, 3] = input static\n%exp_default: f32[s0, 3] = aten.exp.default(%x)\n"
        "return %exp_default\n"
    ).replace("exp_default", exp.name)
    module, again = aotautograd.functional_module(parse_graph(text))
    assert again.role == "forward" and again.static_inputs == {0}
    assert aotautograd.functional_graph(module, again).text() == text


def trained(x, w):
    y = torch.nn.functional.layer_norm(x @ w, (3,))
    return torch.relu(y)[:, 1:], y.detach().sum(), w.t()


def test_programs():
    seen = []
    gm = torch.fx.symbolic_trace(trained)
    inputs = [torch.randn(4, 3), torch.randn(3, 3, requires_grad=True)]
    aotautograd.aot_compile(
        gm, inputs, forward_compiler=lambda gm, spec: lambda args: gm(*args), observe=lambda stage, product: seen.append(product)
    )
    (program,) = seen
    text = print_program(program)
    again = parse_program(text)
    assert print_program(again) == text and again.signature == program.signature
    assert [b.component for b in again.backwards] == [b.component for b in program.backwards]
    assert again.forward_spec.visible == program.forward_spec.visible and again.saved == program.saved
    with pytest.raises(ParseError, match="not a functional program"):
        parse_program("inference graph")

"""Plans as text: what is read back is equal, and gives an equal artifact."""

import pytest
import torch
from prim_programs import build
from tracework_inductor import InductorOptions, compile_plan, plan_graph
from tracework_inductor.schedule.text import parse_plan, print_plan
from tracework_primops import Condition, ParseError, SymbolTable, TensorSpec, prims

CPU = torch.device("cpu")


def softmax(x, y):
    z = prims.exp(prims.sub(x, prims.amax(x, (1,), True)))
    return prims.div(z, prims.sum(z, (1,), True, None)), prims.mm(x, prims.permute(y, (1, 0)))


def gathered(x, y):
    return prims.mul(prims.index_select(x, 0, prims.full((2,), 1, torch.int64, CPU)), float("inf"))


@pytest.mark.parametrize("program", [softmax, gathered], ids=lambda p: p.__name__)
def test_round_trip(program):
    graph = build(program, [torch.ones(3, 5), torch.ones(4, 5)])
    options = InductorOptions()
    plan = plan_graph(graph, options)
    again = parse_plan(print_plan(plan))
    assert again == plan and print_plan(again) == print_plan(plan)
    assert compile_plan(graph, again, options).to_bytes() == compile_plan(graph, plan, options).to_bytes()


def test_symbols_and_what_is_known_of_them():
    table = SymbolTable()
    rows = table.new(6)
    table.guard(Condition.compare(">", rows, 4), "model.py:3 of f")
    graph = build(
        softmax,
        [torch.ones(6, 5), torch.ones(4, 5)],
        [TensorSpec(torch.float32, CPU, (rows, 5)), TensorSpec(torch.float32, CPU, (4, 5))],
    )
    graph = graph.replace(symbols=table)
    plan = plan_graph(graph, InductorOptions())
    again = parse_plan(print_plan(plan))
    assert print_plan(again) == print_plan(plan)
    assert again.program.symbols.conditions == table.conditions and again.program.symbols.hint(rows) == 6
    assert compile_plan(graph, again, InductorOptions()).to_bytes() == compile_plan(graph, plan, InductorOptions()).to_bytes()


def test_what_is_no_plan():
    with pytest.raises(ParseError, match="begins with"):
        parse_plan("inference graph\n")

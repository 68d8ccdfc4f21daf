"""What tracing found out about symbolic sizes. A difference of them may happen to be 1: it is broadcast, which fixes the sizes that it is a
difference of. Two of them may be equal: one is written for both."""

from types import SimpleNamespace

import pytest
import torch
import tracework_primops
from tracework_primops import FakeMode, SymbolTable
from tracework_primops.symbols.expr import Condition

CASES = {
    "last": lambda x, y: x[2:] + y,
    "first": lambda x, y: y * x[2:],
    "a number": lambda x, y: x[2:] + torch.ones(4),
    "expanded": lambda x, y: x[2:].expand(4) * 2,
    "expanded to a size": lambda x, y: x[2:].expand(y.shape[0]) - 1,
    "of matrices": lambda x, y: x.view(3, 1).expand(3, y.shape[0])[2:] + y.view(1, -1).expand(6, y.shape[0]),
    "selected": lambda x, y: torch.where(y > 0.5, x[2:], y),
    "added to a product": lambda x, y: torch.addmm(x[2:], x.view(3, 1), y.view(1, -1)),
    "a quotient": lambda x, y: x[1:].view(x.shape[0] // 2, 2) + y.view(-1, 1),
    "half of a size": lambda x, y: x[1:].clone().view(x[1:].shape[0] // 2, 2) + y.view(-1, 1),
    "a difference of two": lambda x, y: (y[x.shape[0] + 1 :] + x) * x,
    "strides of the rest": lambda x, y: (x[2:].view(1, -1) + y.view(-1, 1).t()).t() * 2,
}


def traced(function, inputs):
    """The graph of prims of a function over inputs whose sizes are symbols, and the conditions on them."""
    table = SymbolTable()
    mode = FakeMode(table)
    fakes = [mode.from_real(t, [table.new(s, "a size") for s in t.shape]) for t in inputs]
    graph = torch.fx.Graph()
    nodes = {}
    for fake in fakes:
        nodes[id(fake)] = graph.placeholder(f"x{len(nodes)}")
        nodes[id(fake)].meta["val"] = fake

    def record(func, args, kwargs, out):
        def node_of(a):
            return nodes.get(id(a), a) if isinstance(a, torch.Tensor) else a

        args, kwargs = torch.utils._pytree.tree_map(node_of, (args, kwargs))
        nodes[id(out)] = graph.call_function(func, tuple(args), kwargs)
        nodes[id(out)].meta["val"] = out
        kept.append(out)

    kept = []
    mode.recorder = record
    with mode:
        out = function(*fakes)
    graph.output((nodes[id(out)],))
    return tracework_primops.decompose(SimpleNamespace(graph=graph)), out, table


@pytest.mark.parametrize("name", CASES)
def test_is_broadcast_on_fakes_and_in_prims(name):
    inputs = torch.arange(3.0), torch.linspace(0, 1, 5)
    expected = CASES[name](*inputs)
    pg, out, table = traced(CASES[name], inputs)
    assert tuple(map(table.hint, out.spec.sizes)) == expected.shape
    assert tuple(map(table.hint, out.spec.strides)) == expected.stride()
    (got,) = pg.run(*inputs)
    torch.testing.assert_close(got, expected)


def test_what_is_not_one_stays_a_symbol():
    _, out, table = traced(CASES["last"], (torch.ones(7), torch.ones(5)))
    assert out.is_symbolic
    assert not table.numbers()


def test_of_equal_sizes_one_is_written():
    pg, out, table = traced(lambda x, y: y.exp() + x, (torch.ones(3, 5), torch.ones(3, 5)))
    first, second = (node.meta["spec"] for node in pg.graph.nodes if node.op == "placeholder")
    assert first.sizes == second.sizes and first.strides == second.strides
    assert all(node.meta["spec"].sizes == first.sizes for node in pg.graph.nodes if node.op == "call_function")
    assert len(table.equals()) == 2


def test_a_size_that_no_input_has_is_not_written_for_another():
    table = SymbolTable()
    one, other = table.new(3), table.new(3)
    table.guard(Condition.compare("==", one, other))
    ((written, instead),) = table.equals().items()
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = FakeMode(table).from_real(torch.ones(3), [written])
    graph.output((x,))
    pg = tracework_primops.decompose(SimpleNamespace(graph=graph))
    assert {written, instead} == {one, other}
    assert next(iter(pg.graph.nodes)).meta["spec"].sizes == (written,)

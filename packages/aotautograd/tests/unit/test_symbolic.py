"""Symbolic sizes: one compiled program for many sizes, saved sizes, tangents of any size, conditions recorded."""

import pytest
import torch
import tracework_aotautograd as aot
from tracework_primops import FakeMode, SymbolTable
from tracework_primops.symbols import Condition


def dynamic_graph(fn, example):
    """A captured graph of (rows, x): the first size of x is a symbol."""
    table = SymbolTable()
    mode = FakeMode(table)
    rows = table.new(example.shape[0], "x.size(0)", 2, None)
    graph = torch.fx.Graph()
    size, x = graph.placeholder("rows"), graph.placeholder("x")
    size.meta["example_value"] = table.to_symint(rows)
    x.meta["example_value"] = mode.from_real(example, sizes=(rows, *example.shape[1:]))
    graph.output(graph.call_function(lambda n, x: fn(x), (size, x)))
    gm = torch.fx.GraphModule({}, graph)
    gm.meta.update(symbols=table, fake_mode=mode)
    return gm, table


FUNCTIONS = {
    "pointwise": lambda x: ((x * x.shape[0]).sin(), x.shape[0] * 2),
    "reshapes": lambda x: (x.reshape(-1).cumsum(0), x.t().contiguous().view(4, -1)),
    "transposed": lambda x: ((x * 2).t(), x.exp().t().sum(0)),
    "expanded": lambda x: (x.sum(0, keepdim=True).expand(x.shape[0], 4) * x,),
    "softmax": lambda x: (torch.softmax(x @ x.t(), -1), torch.cat([x, x]).mean()),
    "slices": lambda x: (x[1:] * x[:-1], x.view(-1)[: x.shape[0]]),
    "a product that is written to": lambda x: (torch.einsum("btc,cd->btd", x.unsqueeze(1), x[:3].t()).add_(1.0),),
    "layer_norm": lambda x: (torch.nn.functional.layer_norm(x, (4,)),),
}


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_program_for_all_sizes(name, gradients, eager_runner, compare):
    fn = FUNCTIONS[name]
    torch.manual_seed(0)
    example = torch.randn(5, 4, dtype=torch.float64, requires_grad=gradients)
    gm, table = dynamic_graph(fn, example)
    call = aot.aot_compile(gm, [5, example], forward_compiler=eager_runner, options=aot.AotOptions(fallback=False))
    assert not table.conditions or name != "pointwise"
    for rows in (5, 7, 3):
        x = torch.randn(rows, 4, dtype=torch.float64, requires_grad=gradients)
        mine, theirs = call(rows, x), fn(x)
        compare[0](mine, theirs)
        if not gradients:
            continue
        tangents = [torch.randn_like(o) for o in theirs if isinstance(o, torch.Tensor)]
        first, expected = (
            torch.autograd.grad([o for o in out if isinstance(o, torch.Tensor)], x, tangents, create_graph=True)
            for out in (mine, theirs)
        )
        compare[1](first, expected)
        if expected[0].requires_grad:
            compare[1](torch.autograd.grad(first[0].square().sum(), x), torch.autograd.grad(expected[0].square().sum(), x))


def test_a_number_that_a_kernel_computes_from_sizes_fixes_them(eager_runner):
    example = torch.eye(5, 4, dtype=torch.float64)
    gm, table = dynamic_graph(lambda x: (torch.linalg.matrix_rank(x),), example)
    call = aot.aot_compile(gm, [5, example], forward_compiler=eager_runner, options=aot.AotOptions(fallback=False))
    assert [int(o) for o in call(5, example)] == [4]
    assert ["s0 == 5"] == [str(condition) for condition in table.conditions if "==" in str(condition)]


def test_backward_is_compiled_before_guards_are_made():
    roles = []

    def compiler(gm, spec):
        roles.append(spec.role)
        return lambda xs: gm(*xs)

    example = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    aot.aot_compile(dynamic_graph(FUNCTIONS["softmax"], example)[0], [5, example], forward_compiler=compiler)
    assert roles == ["forward", "backward", "backward"]  # two results that have only an input in common


def test_what_one_second_order_found_out_holds_for_all_of_them():
    """Guards exist by then: a condition that an earlier one recorded is not guarded for a later one either."""
    armed, calls = [], []

    def compiler(gm, spec):
        if not armed:
            return lambda xs: gm(*xs)
        (rows,) = table.symbols
        table.guard(Condition.compare("<", rows, 6))

        def run(xs):
            calls.append(xs)
            assert all(x < 6 for x in xs if isinstance(x, int))
            return gm(*xs)

        return run

    def fn(x):
        return (torch.softmax(x @ x.t(), -1).sum(0),)

    example = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    gm, table = dynamic_graph(fn, example)
    call = aot.aot_compile(gm, [5, example], forward_compiler=compiler, options=aot.AotOptions(fallback=False))
    armed.append(True)
    for rows, differentiable in [(5, False), (5, True), (9, True), (9, False)]:
        x = torch.randn(rows, 4, dtype=torch.float64, requires_grad=True)
        tangent = torch.randn(rows, dtype=torch.float64, requires_grad=differentiable)
        before = len(calls)
        mine, expected = (torch.autograd.grad(out, x, tangent, create_graph=True)[0] for out in (call(rows, x)[0], fn(x)[0]))
        assert (len(calls) > before) == (rows == 5)
        torch.testing.assert_close(mine, expected)

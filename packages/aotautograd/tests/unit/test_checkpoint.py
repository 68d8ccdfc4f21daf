"""Checkpoint marks and the memory budget: what is kept, what is computed again, and that gradients stay the same."""

import operator

import pytest
import torch
import tracework_aotautograd as aot
from torch import fx
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from tracework_aotautograd.partition import JointParts
from tracework_aotautograd.partition.cost import kept_bytes

BLOCKS = 3


def block(x, w):
    return torch.softmax(torch.sin(x @ w), -1) * x


def captured(mark, drop=0.0):
    """Blocks of four nodes, those of each marked as one checkpoint."""
    graph = fx.Graph()
    x, *weights = (graph.placeholder(f"x{i}") for i in range(1 + BLOCKS))
    for number, w in enumerate(weights):
        nodes = [graph.call_function(operator.matmul, (x, w))]
        nodes.append(graph.call_function(torch.sin, (nodes[-1],)))
        nodes.append(graph.call_function(F.dropout, (nodes[-1], drop)))
        nodes.append(graph.call_function(torch.softmax, (nodes[-1], -1)))
        nodes.append(graph.call_function(operator.mul, (nodes[-1], x)))
        x = nodes[-1]
        for node in nodes if mark else ():
            node.meta.update(recompute=mark, recompute_region=number)
    graph.output((x,))
    return fx.GraphModule({}, graph)


def inputs():
    torch.manual_seed(0)
    return [torch.randn(4, 4, dtype=torch.float64, requires_grad=True) for _ in range(1 + BLOCKS)]


def names(nodes):
    return [n.target._schema.name.split("::")[1] for n in nodes if n.op == "call_function" and n.target is not operator.getitem]


def saved(gm, **options):
    joint = aot.trace_joint(gm, inputs())
    parts = JointParts.of(joint)
    return [n for n in aot.PARTITIONERS["min_cut"](joint, parts, aot.AotOptions(**options)) if n.op != "placeholder"]


def check(gm, **options):
    """Values and gradients are eager's; returns the backward."""
    programs = []
    call = aot.aot_compile(
        gm,
        inputs(),
        forward_compiler=lambda gm, spec: lambda values: gm(*values),
        options=aot.AotOptions(fallback=False, **options),
        observe=lambda stage, program: programs.append(program),
    )
    results = []
    for run in (call, gm):
        leaves = inputs()
        torch.manual_seed(3)
        (out,) = run(*leaves)
        results.append((out, *torch.autograd.grad(out.square().sum(), leaves)))
    torch.testing.assert_close(*results)
    return programs[0].backwards[0].graph


def test_only_the_borders_of_checkpoints_are_kept():
    kept = saved(captured("must"))
    assert names(kept) == ["mul"] * (BLOCKS - 1)
    backward = check(captured("must"))
    assert names(backward.graph.nodes).count("mm") == 3 * BLOCKS  # each product again, and two for its gradients


def test_products_are_kept_where_the_program_chooses():
    assert set(names(saved(captured("prefer")))) == {"mul", "mm"}
    check(captured("prefer"))


def test_random_numbers_are_kept():
    kept = saved(captured("must", drop=0.5))
    assert len([n for n in kept if n.target is torch.ops.aten.bernoulli.p or "div" in n.name]) == BLOCKS
    check(captured("must", drop=0.5))


def test_a_block_is_computed_again_just_before_its_gradient():
    order = [n for n in check(captured("must")).graph.nodes if n.op == "call_function"]
    sines = [i for i, n in enumerate(order) if n.target is torch.ops.aten.sin.default]
    gradients = [i for i, n in enumerate(order) if n.target is torch.ops.aten._softmax_backward_data.default]
    assert len(sines) == BLOCKS and all(s < g for s, g in zip(sines, gradients, strict=True))
    assert all(g < s for g, s in zip(gradients, sines[1:], strict=False))


@pytest.mark.parametrize("budget", [0.0, 0.3, 0.6])
def test_kept_bytes_are_within_the_budget(budget):
    plain = captured(None)
    everything = sum(kept_bytes(n) for n in saved(plain))
    assert sum(kept_bytes(n) for n in saved(plain, memory_budget=budget)) <= budget * everything
    check(plain, memory_budget=budget)


def test_a_budget_outside_of_its_range_is_refused():
    with pytest.raises(aot.UsageError, match="from 0 to 1"):
        check(captured(None), memory_budget=1.5)


def ends_in_exp(mark, *after):
    """A checkpoint, results of what reads its result, and that."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    sin = graph.call_function(torch.sin, (x,))
    exp = graph.call_function(torch.exp, (sin,))
    for node in (sin, exp) if mark else ():
        node.meta.update(recompute="must", recompute_region=0)
    graph.output((exp, *(graph.call_function(fn, (exp,)) for fn in after)))
    return fx.GraphModule({}, graph)


@pytest.mark.parametrize("after", [(), (lambda y: y + 1,), (lambda y: y.view(-1),)], ids=["alone", "sum", "view"])
def test_the_result_of_a_checkpoint_may_be_written_before_its_backward(after):
    x = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    call = aot.aot_compile(ends_in_exp("must", *after), [x], forward_compiler=lambda gm, spec: lambda values: gm(*values))
    results, expected = call(x), torch.autograd.grad([r.sum() for r in ends_in_exp(None, *after)(x)], x)
    results[0].detach().mul_(2)
    torch.testing.assert_close(torch.autograd.grad([r.sum() for r in results], x), expected)


def tail(y):
    return y.add_(y.sum())


def untracked_tail(y):
    with torch.no_grad():
        return y.add_(1)


def part_of_tail(y):
    y[0].mul_(2)
    return y.view(-1)


@pytest.mark.parametrize("write", [tail, untracked_tail, part_of_tail])
def test_the_result_of_a_checkpoint_may_be_written_in_the_graph(write, eager_runner):
    def checkpointed(x):
        y = checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False)
        return (write(y),)

    x = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    gm = ends_in_exp("must", write)
    result = next(iter(reversed(gm.graph.nodes)))
    result.args = (result.args[0][1:],)
    call = aot.aot_compile(gm, [x], forward_compiler=eager_runner, options=aot.AotOptions(fallback=False))
    mine, theirs = call(x), checkpointed(x)
    torch.testing.assert_close(mine, theirs)
    for create_graph in (False, True):
        roots = [r.square().sum() for (r,) in (mine, theirs)]
        found = [torch.autograd.grad(root, x, create_graph=create_graph, retain_graph=True) for root in roots]
        torch.testing.assert_close(*found)
    torch.testing.assert_close(*[torch.autograd.grad(gradient.sum(), x) for (gradient,) in found])


def test_what_a_checkpoint_reads_may_not_be_written_in_the_graph(eager_runner):
    """Eager computes it again from what was written."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.mul, (x, 2))
    exp = graph.call_function(torch.exp, (graph.call_function(torch.sin, (y,)),))
    for node in (exp, *exp.all_input_nodes):
        node.meta.update(recompute="must", recompute_region=0)
    graph.call_function(tail, (exp,))
    graph.call_function(tail, (y,))
    graph.output((exp,))
    with pytest.raises(aot.Refusal, match="modified by an inplace operation"):
        aot.aot_compile(
            fx.GraphModule({}, graph),
            [torch.randn(4, requires_grad=True)],
            forward_compiler=eager_runner,
            options=aot.AotOptions(fallback=False),
        )


def test_the_result_of_a_checkpoint_that_a_formula_keeps_may_not():
    x = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    call = aot.aot_compile(ends_in_exp("must", torch.sin), [x], forward_compiler=lambda gm, spec: lambda values: gm(*values))
    first, second = call(x)
    first.detach().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(second.sum(), x)

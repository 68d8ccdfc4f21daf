"""flex_attention as one operator in traced graphs: what is one, what stays written out, and that nothing of the scores is kept."""

import math

import pytest
import torch
from torch.fx import Graph, GraphModule
from tracework_aotautograd import AotOptions, aot_compile
from tracework_aotautograd.trace.attention import with_attention
from tracework_primops import FakeMode, SymbolTable, TensorSpec, attended, attention_of_bodies

ONE = frozenset({"cpu"})
SIZES = 2, 4, 24, 8


def captured_graph(change, mask, *more, qkv=None):
    """A captured graph as capture makes it: scores, indices, what the functions do, `attended`."""
    graph, examples = Graph(), (qkv or [torch.randn(SIZES, requires_grad=True) for _ in range(3)]) + list(more)
    nodes = [graph.placeholder(f"x{n}") for n in range(len(examples))]
    for node, example in zip(nodes, examples):
        node.meta["example_value"] = example

    def call(function, *args):
        node = graph.call_function(function, args)
        node.meta["example_value"] = function(*torch.fx.map_arg(args, lambda n: n.meta["example_value"]))
        return node

    def product(q, k):
        return (q @ k.transpose(-1, -2)) * 0.25

    scores = call(product, *nodes[:2])
    shape = SIZES[0], SIZES[1], SIZES[2], SIZES[2]
    device = examples[0].device
    index = [
        call(lambda d=d, n=n: torch.arange(n, device=device).view([-1 if d == e else 1 for e in range(4)]))
        for d, n in enumerate(shape)
    ]
    changed, kept = call(change, scores, *index, *nodes[3:]), call(mask, *index)
    found = call(attended, *nodes[:3], scores, tuple(index), changed, kept, 0.25, (), ())
    graph.output(tuple(call(lambda t, n=n: t[n], found) for n in range(2)))
    return GraphModule({}, graph), examples


def run(graph, examples, devices):
    """Results, gradients, and the functional graphs."""
    seen = []
    options = AotOptions(attention=devices, fallback=False)

    def compiler(gm, spec):
        seen.append(gm)
        return lambda inputs: gm(*inputs)

    call = aot_compile(graph, examples, forward_compiler=compiler, options=options)
    results = call(*examples)
    gradients = torch.autograd.grad(results[0].sum() + (results[1] ** 2).sum(), [x for x in examples if x.requires_grad])
    return results, gradients, seen


def targets(graphs):
    return {str(n.target) for g in graphs for n in g.graph.nodes if "tracework." in str(n.target)}


def causal(b, h, i, j):
    return i >= j


def test_one_operator_with_its_gradients_and_no_scores_kept():
    graph, examples = captured_graph(lambda s, b, h, i, j: 5 * torch.tanh(s / 5), causal)
    wanted = run(graph, examples, frozenset())
    found = run(graph, examples, ONE)
    assert not targets(wanted[2])
    assert targets(found[2]) == {"tracework.attention.default", "tracework.attention_backward.default"}
    torch.testing.assert_close(found[:2], wanted[:2])
    scores = math.prod((*SIZES[:3], SIZES[2]))
    for gm in found[2]:
        made = [n.meta["val"] for n in gm.graph.nodes if n.op != "output"]
        assert not any(isinstance(x, torch.Tensor) and x.numel() >= scores for x in made)


@pytest.mark.parametrize("trained", [False, True])
def test_what_reads_a_captured_tensor_with_gradients_in_an_unknown_way_stays_written_out(trained):
    bias = torch.randn(SIZES[1], requires_grad=trained)
    graph, examples = captured_graph(lambda s, b, h, i, j, x: s + x[h], causal, bias)
    wanted, found = run(graph, examples, frozenset()), run(graph, examples, ONE)
    assert bool(targets(found[2])) is not trained
    torch.testing.assert_close(found[:2], wanted[:2])


def test_gradients_of_gradients():
    def second(devices):
        graph, examples = captured_graph(lambda s, b, h, i, j: 5 * torch.tanh(s / 5), causal)
        call = aot_compile(
            graph, examples, forward_compiler=lambda gm, spec: lambda inputs: gm(*inputs), options=AotOptions(attention=devices)
        )
        out, sums = call(*examples)
        first = torch.autograd.grad((out**2).sum() + (sums**2).sum(), examples, create_graph=True)
        return torch.autograd.grad(sum((g**2).sum() for g in first), examples)

    torch.manual_seed(0)
    wanted = second(frozenset())
    torch.manual_seed(0)
    torch.testing.assert_close(second(ONE), wanted, rtol=1e-4, atol=1e-4)  # in float32, through two sums of squares


def test_a_number_on_the_cpu_is_brought_to_the_operator():
    mode, other = FakeMode(SymbolTable()), torch.device("meta")
    qkv = [mode.make(TensorSpec(torch.float32, other, SIZES)) for _ in range(3)]
    number = mode.make(TensorSpec(torch.float32, torch.device("cpu"), ()))

    with mode:
        graph, _ = captured_graph(lambda s, b, h, i, j, x: s * x, causal, number, qkv=qkv)
    made = with_attention(graph, frozenset({"meta"}))
    (call,) = (n for n in made.graph.nodes if n.target is attention_of_bodies)
    tensors = call.args[3]
    assert [(n.target, n.args[1:]) for n in tensors if n.op == "call_method"] == [("to", (other,))]

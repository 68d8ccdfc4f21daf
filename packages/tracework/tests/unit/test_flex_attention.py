"""flex_attention from the program to the graphs of prims: when it is one operator, and what is compiled again."""

import pytest
import torch
import tracework_capture as capture
from torch.nn.attention.flex_attention import flex_attention
from tracework_aotautograd import AotOptions, aot_compile
from tracework_primops import decompose, prims

ATTENTION = {prims.attention, prims.attention_backward}


def compiled(program, **options):
    """The program, compiled to its functional graphs, and the graphs of prims of these."""
    graphs = []

    def compiler(gm, spec):
        graphs.append(decompose(gm))
        return lambda inputs: gm(*inputs)

    def backend(gm, inputs):
        return aot_compile(
            gm, inputs, forward_compiler=compiler, options=AotOptions(attention=frozenset({"cpu"}), fallback=False)
        )

    backend.__tracework_symbolic_sizes__ = True
    return capture.optimize(backend, fullgraph=True, **options)(program), graphs


def calls(graph):
    return [n for n in graph.calls if n.target in ATTENTION]


def test_without_gradients_a_captured_parameter_is_read_by_the_operator():
    bias = torch.nn.Parameter(torch.randn(4))

    def program(q, k, v):
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[h])

    call, graphs = compiled(torch.no_grad()(program))
    q, k, v = (torch.randn(2, 4, 12, 8) for _ in range(3))
    with torch.no_grad():
        torch.testing.assert_close(call(q, k, v), program(q, k, v))
    assert [len(calls(graph)) for graph in graphs] == [1]


@pytest.mark.parametrize("groups", [1, 2])
def test_all_sizes_symbolic(groups):
    """Of them, heads and widths are fixed, as under torch.compile; batch and lengths stay open."""
    slopes = torch.randn(8)

    def program(q, k, v):
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + slopes[h] * (i - j), enable_gqa=groups > 1)

    call, graphs = compiled(program, dynamic=True)
    for number, (batch, heads, queries, keys) in enumerate([(2, 4, 12, 9), (3, 4, 20, 31), (3, 8, 20, 31)]):
        q, k, v = (torch.randn(batch, h, n, 8) for h, n in ((heads, queries), (heads // groups, keys), (heads // groups, keys)))
        torch.testing.assert_close(call(q, k, v), program(q, k, v))
        assert len(graphs) == 1 + (number == 2) and len(calls(graphs[-1])) == 1
        if number == 0:
            (given,) = calls(graphs[0])
            sizes = given.args[0].meta["spec"].sizes
            assert [isinstance(n, int) for n in sizes] == [False, True, False, True] and sizes[1::2] == (4, 8)

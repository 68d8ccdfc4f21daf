"""flex_attention from the program to the graphs of prims: when it is one operator, and what is compiled again."""

import math
from collections import Counter

import pytest
import torch
import tracework_capture as capture
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from tracework_aotautograd import AotOptions, aot_compile
from tracework_primops import decompose, prims

ATTENTION = {prims.attention, prims.attention_backward, prims.attention_sums}


def compiled(program, attention=frozenset({"cpu"}), said=None, **options):
    """The program, compiled to its functional graphs, and the graphs of prims of these. said: gets why all scores are computed."""
    graphs = []

    def observe(stage, product):
        if stage == "attention" and said is not None:
            said.extend(product)

    def compiler(gm, spec):
        graphs.append(decompose(gm))
        return lambda inputs: gm(*inputs)

    def backend(gm, inputs):
        chosen = AotOptions(attention=attention, fallback=False)
        return aot_compile(gm, inputs, forward_compiler=compiler, options=chosen, observe=observe)

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


B, H, QUERIES, KEYS = 2, 4, 12, 9
CONTEXT = 16
BUCKETS = torch.tensor([0, 1, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5, 6])
# sizes of parameters; score function of (score, b, h, i, j, *parameters); whether it is one operator, with a sum for each of so many parameters
TRAINED = {
    "slopes": ([(H,)], lambda s, b, h, i, j, x: s + x[h] * (j - i), 1),
    "temperature": ([()], lambda s, b, h, i, j, x: s * x, 1),
    "temperatures": ([(H,)], lambda s, b, h, i, j, x: s * x[h].exp(), 1),
    "scales and slopes": ([(H,), (B, H)], lambda s, b, h, i, j, x, y: s * x[h] + y[b, h] * (j - i).abs(), 2),
    "one for both": ([(H,)], lambda s, b, h, i, j, x: s * x[h] + x[h] * (i - j), 2),
    "distances": ([(H, 2 * CONTEXT)], lambda s, b, h, i, j, x: s + x[h, i - j + CONTEXT], 1),
    "distances the other way": ([(2 * CONTEXT,)], lambda s, b, h, i, j, x: s + x[j - i + CONTEXT], 1),
    "near distances": ([(H, 9)], lambda s, b, h, i, j, x: s + x[h, (i - j).clamp(-4, 4) + 4], 1),
    "buckets": ([(H, 7)], lambda s, b, h, i, j, x: torch.where(i >= j, s + x[h, BUCKETS[(i - j).abs()]], s), 1),
    "distances, scaled": ([(2 * CONTEXT,), (H,)], lambda s, b, h, i, j, x, y: s + x[i - j + CONTEXT] * y[h], 2),
    "queries": ([(H, QUERIES)], lambda s, b, h, i, j, x: s + x[h, i].tanh(), 1),
    "keys": ([(B, KEYS)], lambda s, b, h, i, j, x: torch.tanh(s * x[b, j]), 1),
    "queries and keys": ([(QUERIES,), (KEYS,)], lambda s, b, h, i, j, x, y: s + x[i] * y[j], 2),
    "soft mask": ([(), ()], lambda s, b, h, i, j, x, y: s + torch.sigmoid((x - (i - j).abs()) * y).log(), 2),
    "written to no gradient": ([(H,)], lambda s, b, h, i, j, x: s + x.detach()[h], 0),
    "no score": ([(H,)], lambda s, b, h, i, j, x: x[h] * 1.0, 1),
    "all pairs": ([(QUERIES, KEYS)], lambda s, b, h, i, j, x: s + x[i, j], None),
    "sums of places": ([(CONTEXT * 2,)], lambda s, b, h, i, j, x: s + x[i + j], None),
    "by remainders": ([(3, 3)], lambda s, b, h, i, j, x: s + x[i % 3, j % 3], None),
}


def in_float64(function, q, k, v, *parameters):
    """All scores written out."""
    scores = q @ k.transpose(2, 3) * 0.3
    index = [torch.arange(n).view([-1 if d == e else 1 for e in range(4)]) for d, n in enumerate(scores.shape)]
    kept = torch.where(index[2] + 8 >= index[3], function(scores, *index, *parameters), -math.inf).expand(scores.shape)
    return kept.softmax(3) @ v, kept.logsumexp(3) / math.log(2)


@pytest.mark.parametrize("dynamic", [False, True], ids=["", "symbols"])
@pytest.mark.parametrize("name", TRAINED)
def test_captured_parameters(name, dynamic):
    """Values and gradients are those of float64; no value of forward or backward has as many elements as there are scores."""
    sizes, function, count = TRAINED[name]
    parameters = [torch.rand(size).add(0.5).requires_grad_() for size in sizes]
    blocks = create_block_mask(lambda b, h, i, j: i + 8 >= j, None, None, QUERIES, KEYS, device="cpu").as_tuple()

    def program(q, k, v):
        return torch.ops.higher_order.flex_attention(q, k, v, function, blocks, 0.3, {}, tuple(parameters), ())[:2]

    said = []
    call, graphs = compiled(program, said=said, dynamic=dynamic)
    given = [torch.randn(B, H, n, 8, requires_grad=True) for n in (QUERIES, KEYS, KEYS)]
    found, wide = call(*given), [x.detach().double().requires_grad_() for x in given + parameters]
    wanted = in_float64(function, *wide)
    gradients = [
        torch.autograd.grad(out.sin().sum() + (lse**2).sum(), of, materialize_grads=True, allow_unused=True)
        for (out, lse), of in ((found, given + parameters), (wanted, wide))
    ]
    for a, b in zip((*found, *gradients[0]), (*wanted, *gradients[1]), strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5 * b.abs().max().item())
    made = [n for graph in graphs for n in graph.calls]
    if count is None:
        assert not any(n.target in ATTENTION for n in made)
        assert len(said) == 1 and "read by query and key" in said[0]
        return
    assert not said
    counts = Counter(n.target for n in made if n.target in ATTENTION)
    assert counts == Counter({prims.attention: 1, prims.attention_backward: 1, prims.attention_sums: count})
    if not dynamic:
        specs = [s for n in made for s in (n.meta["spec"] if isinstance(n.meta["spec"], tuple) else (n.meta["spec"],))]
        assert all(math.prod(s.sizes) < B * H * QUERIES * KEYS for s in specs)


@pytest.mark.parametrize("one", [True, False], ids=["one operator", "written out"])
@pytest.mark.parametrize("groups", [1, 2])
def test_layouts_are_eagers(one, groups, monkeypatch):
    """Of the output and of gradients, which a GPU has."""
    monkeypatch.setattr("tracework_capture.values.torch.regions.flex_attention.TRAINED", frozenset({"cpu"}))
    plain = create_block_mask(lambda b, h, i, j: i >= j, None, None, QUERIES, QUERIES, device="cpu").as_tuple()

    def program(q, k, v):
        return torch.ops.higher_order.flex_attention(q, k, v, lambda s, b, h, i, j: s * 2, plain, 0.3, {})[0]

    call, graphs = compiled(program, frozenset({"cpu"}) if one else frozenset())
    q, v = (torch.randn(B, QUERIES, n, 8).transpose(1, 2).requires_grad_() for n in (H, H // groups))
    k = torch.randn(QUERIES, B, H // groups, 8).permute(1, 2, 0, 3).requires_grad_()
    outs = call(q, k, v), program(q, k, v)
    gradients = [torch.autograd.grad(out.sin().sum(), (q, k, v)) for out in outs]
    assert [len(calls(graph)) for graph in graphs] == ([1, 1] if one else [0, 0])
    torch.testing.assert_close(*([out, *of] for out, of in zip(outs, gradients)), check_stride=True)

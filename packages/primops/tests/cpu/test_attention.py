"""Attention as one operator: its bodies as texts, values and gradients against the same written out."""

import math

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask
from tracework_primops import FakeMode, PrimError, SymbolTable, attention_of_bodies, parse_graph, trace_bodies
from tracework_primops.attention import attended, operators, run_body

SLOPES, DOCUMENTS, PREFIXES = torch.linspace(0.1, 0.5, 4), torch.arange(20) // 6, torch.tensor([4, 9])


def everything(s, b, h, i, j, *captured):
    return b.new_ones((), dtype=torch.bool)


# score and mask functions of (score, b, h, i, j, *captured), and what they capture
CASES = {
    "plain": (lambda s, b, h, i, j: s, everything, []),
    "causal": (lambda s, b, h, i, j: s, lambda s, b, h, i, j: i >= j, []),
    "window": (lambda s, b, h, i, j: s, lambda s, b, h, i, j: (i >= j) & (i - j < 5), []),
    "alibi": (lambda s, b, h, i, j, x: s + x[h] * (j - i), everything, [SLOPES]),
    "soft-cap": (lambda s, b, h, i, j: 5 * torch.tanh(s / 5), lambda s, b, h, i, j: i >= j, []),
    "documents": (lambda s, b, h, i, j, x: s, lambda s, b, h, i, j, x: (x[i] == x[j]) & (i >= j), [DOCUMENTS]),
    "prefix": (lambda s, b, h, i, j, x: s, lambda s, b, h, i, j, x: (j < x[b]) | (i >= j), [PREFIXES]),
    "nothing at first": (lambda s, b, h, i, j: s * 2, lambda s, b, h, i, j: (i > 3) & (j < 17), []),
    "masked by scores": (lambda s, b, h, i, j: torch.where(i >= j, s, -math.inf), everything, []),
    "of no score": (lambda s, b, h, i, j: (i - j).float(), everything, []),
}


def bodies(score, keep, captured):
    mode = FakeMode(SymbolTable())
    return trace_bodies(score, keep, [mode.from_real(t) for t in captured], torch.float32, torch.device("cpu"), None)


def written_out(q, k, v, score, keep, captured, scale):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores = q @ k.transpose(-1, -2) * scale
    index = [torch.arange(n).view([-1 if d == e else 1 for e in range(4)]) for d, n in enumerate(scores.shape)]
    changed, mask = score(scores, *index, *captured), keep(scores, *index, *captured)
    return attended(q, k, v, scores, index, changed, mask, scale, (), ())


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    score, keep, captured = CASES[name]
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, heads, length, 8, requires_grad=True) for heads, length in ((4, 20), (2, 20), (2, 20)))
    found = attention_of_bodies(q, k, v, captured, [], [], *bodies(score, keep, captured), 0.3, [])
    wanted = written_out(q, k, v, score, keep, captured, 0.3)
    torch.testing.assert_close(found, wanted)
    tangents = torch.randn_like(wanted[0]), torch.randn_like(wanted[1])
    if name == "nothing at first":  # the sums of a row that sees nothing are -inf, of which eager's gradient is NaN
        tangents[1][:, :, :4] = 0
    sums = [sum((x * t).sum() for x, t in zip(of, tangents)) for of in (found, wanted)]
    found, wanted = (torch.autograd.grad(total, (q, k, v), allow_unused=True, materialize_grads=True) for total in sums)
    torch.testing.assert_close(found, wanted)


def test_a_body_holds_for_all_sizes_of_what_it_captures():
    mode = FakeMode(table := SymbolTable())
    length, added = table.new(9), table.new(3, number=True)
    captured = [mode.from_real(torch.zeros(9), sizes=[length], strides=[1]), table.to_symint(added)]
    text, *_ = trace_bodies(
        lambda s, b, h, i, j, x, n: s + x[i] + n,
        lambda s, b, h, i, j, x, n: i + n >= j,
        captured,
        torch.float32,
        torch.device("cpu"),
        table,
    )
    assert parse_graph(text).text() and "size s" in text
    for rows in (1, 6):
        scores, bias = torch.randn(1, 2, rows, 7), torch.randn(rows)
        torch.testing.assert_close(run_body(text, scores, [bias], [4]), scores + bias[:, None] + 4)


def test_what_looks_at_data_has_no_body():
    with pytest.raises(PrimError):
        bodies(lambda s, b, h, i, j: s * s.max().item(), everything, [])


def test_gradients_of_gradients():
    q, k, v = (torch.randn(1, 1, 3, 2, dtype=torch.float64, requires_grad=True) for _ in range(3))
    score, keep, captured = CASES["soft-cap"]
    texts = trace_bodies(score, keep, captured, torch.float64, torch.device("cpu"), None)

    def attend(q, k, v):
        return attention_of_bodies(q, k, v, captured, [], [], *texts, 0.3, [])[:2]

    assert torch.autograd.gradcheck(attend, (q, k, v)) and torch.autograd.gradgradcheck(attend, (q, k, v))


LENGTH = 7  # no other size or stride is a multiple of it


@pytest.mark.parametrize("lowest", [torch.finfo(torch.float32).min, torch.finfo(torch.bfloat16).min, -1e9])
def test_gradients_of_rows_hidden_by_a_low_number(lowest):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 20, 8, requires_grad=True) for _ in range(3))
    mask = torch.zeros(20, 20).index_fill(0, torch.tensor([3, 11]), lowest)

    def score(s, b, h, i, j, x):
        return s + x[i, j]

    found = attention_of_bodies(q, k, v, [mask], [], [], *bodies(score, lambda s, b, h, i, j, x: i < 40, [mask]), 0.3, [])[0]
    wanted = (q @ k.mT * 0.3 + mask).softmax(-1) @ v
    gradients = [torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (found, wanted)]
    torch.testing.assert_close((found, *gradients[0]), (wanted, *gradients[1]), rtol=0, atol=1e-5)


def heads(count, batch=2, length=LENGTH, width=8):
    return torch.randn(batch, count, length, width)


# of (batch, heads, length, width), by how many heads it has
LAYOUTS = {
    "plain": heads,
    "heads inside": lambda n: torch.randn(2, LENGTH, n, 8).transpose(1, 2),
    "one of three": lambda n: torch.randn(2, LENGTH, 3, n, 8)[:, :, 1].transpose(1, 2),
    "batch inside": lambda n: torch.randn(LENGTH, 2, n, 8).permute(1, 2, 0, 3),
    "width outside": lambda n: torch.randn(2, n, 8, LENGTH).transpose(2, 3),
    "one batch for all": lambda n: heads(n, batch=1).expand(2, -1, -1, -1),
    "one head for all": lambda n: heads(1).expand(-1, n, -1, -1),
    "of a batch of one": lambda n: torch.randn(1, LENGTH, n, 8).transpose(1, 2).expand(2, -1, -1, -1),
}
GROUPS = {"each head": (4, 4), "heads in groups": (4, 2), "one head of keys": (4, 1), "one head": (1, 1)}


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("keys", ["plain", "heads inside", "one head for all"])
@pytest.mark.parametrize("queries", LAYOUTS)
def test_strides_are_eagers(queries, keys, groups):
    """Of results and gradients, from the operator and from its rule for fakes."""
    own, others = GROUPS[groups]
    q, k, v = (LAYOUTS[n](count).requires_grad_() for n, count in ((queries, own), (keys, others), (queries, others)))
    blocks = create_block_mask(lambda b, h, i, j: i >= j, None, None, LENGTH, LENGTH, device="cpu").as_tuple()
    wanted = torch.ops.higher_order.flex_attention(q, k, v, lambda s, b, h, i, j: s, blocks, 0.3, {})
    score, keep, captured = CASES["causal"]
    texts = bodies(score, keep, captured)
    found = attention_of_bodies(q, k, v, captured, [], [], *texts, 0.3, [])
    gradients = [torch.autograd.grad(of[0].sum(), (q, k, v)) for of in (found, wanted)]
    torch.testing.assert_close((*found, *gradients[0]), (*wanted, *gradients[1]), check_stride=True)
    assert written_out(q, k, v, score, keep, captured, 0.3)[0].stride() == wanted[0].stride()
    mode = FakeMode(table := SymbolTable())
    length = table.new(LENGTH)

    def strides(x, sizes):
        return [n // LENGTH * length if n and n % LENGTH == 0 and length in sizes else n for n in x.stride()]

    for sizes in (lambda x: list(x.shape), lambda x: [*x.shape[:2], length, x.shape[3]]):
        fakes = [mode.from_real(x.detach(), sizes=sizes(x), strides=strides(x, sizes(x))) for x in (q, k, v)]
        with mode:
            out, logs, highest = operators().attention(*fakes, captured, [], [], *texts[:2], 0.3, [])
            made = operators().attention_backward(
                out, *fakes, logs, highest, logs, captured, [], [], *texts[::2], texts[1], 0.3, []
            )
        as_numbers = [tuple(map(table.hint, map(table.from_symint, x.stride()))) for x in (out, logs, highest, *made)]
        assert as_numbers == [x.stride() for x in (*wanted, *gradients[1])]


HEADS, QUERIES, KEYS = 4, 20, 13
# what is captured, with gradients; score function of (score, b, h, i, j, read), where read is what its own functions read of it; axes
TRAINED = {
    "a number": ((), lambda s, b, h, i, j, x: s * x, ""),
    "of each head": ((HEADS,), lambda s, b, h, i, j, x: s + x * (j - i), "h"),
    "of each batch": ((2,), lambda s, b, h, i, j, x: torch.tanh(s * x), "b"),
    "of each query": ((HEADS, QUERIES), lambda s, b, h, i, j, x: s * x.sigmoid(), "hi"),
    "of each key": ((2, KEYS), lambda s, b, h, i, j, x: s + x**2, "bj"),
    "of each key and head": ((2, HEADS, KEYS), lambda s, b, h, i, j, x: torch.where(i >= j, s + x, s * x), "bhj"),
    "of each distance": ((HEADS, QUERIES + KEYS - 1), lambda s, b, h, i, j, x: s + x, "hd"),
    "of each distance, for all": ((QUERIES + KEYS - 1,), lambda s, b, h, i, j, x: s * x, "d"),
}


def read(x, axes, index):
    b, h, i, j = index
    given = {"b": b, "h": h, "i": i, "j": j, "d": i - j + KEYS - 1}
    return x[tuple(given[axis] for axis in axes)] if axes else x


@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("name", TRAINED)
def test_captured_tensors_with_gradients(name, second):
    sizes, function, axes = TRAINED[name]
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, n, length, 8) for n, length in ((HEADS, QUERIES), (2, KEYS), (2, KEYS)))
    q, k, v, x = (t.double().requires_grad_() for t in (q, k, v, torch.rand(sizes)))
    mode = FakeMode(SymbolTable())
    texts = trace_bodies(
        function,
        lambda s, b, h, i, j, x: i >= j,
        [mode.from_real(x.detach())],
        torch.float64,
        torch.device("cpu"),
        None,
        {0: axes},
    )
    assert [of.along for of in texts.trained] == [{"j": "keys", "d": "distances"}.get(axes[-1:], "queries")]
    found = attention_of_bodies(q, k, v, [x], [], [], *texts, 0.3, [])
    wanted = written_out(
        q, k, v, lambda s, *index: function(s, *index, read(x, axes, index)), lambda s, b, h, i, j: i >= j, [], 0.3
    )
    torch.testing.assert_close(found, wanted)
    of = q, k, v, x
    tangents = torch.randn_like(wanted[0]), torch.randn_like(wanted[1])
    sums = [sum((a * t).sum() for a, t in zip(each, tangents)) for each in (found, wanted)]
    gradients = [torch.autograd.grad(total, of, create_graph=second) for total in sums]
    torch.testing.assert_close(*gradients)
    if second:
        torch.testing.assert_close(*(torch.autograd.grad(sum((g**2).sum() for g in each), of) for each in gradients))

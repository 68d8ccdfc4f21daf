"""flex_attention is part of the graph: scores and masks are what torch computes in eager mode (on a CPU it has no gradients)."""

import math

import pytest
import torch
import tracework
import tracework_primops
from torch.nn.attention.flex_attention import AuxRequest, and_masks, create_block_mask, create_mask, flex_attention
from training import BACKENDS

HEADS, LENGTH, WIDTH = 4, 128, 8


def tensors(kind=torch.float32, kv_heads=HEADS):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, h, LENGTH, WIDTH, dtype=kind) for h in (HEADS, kv_heads, kv_heads))
    return [q, k, v]


def reference(q, k, v, change=lambda s, b, h, i, j: s, mask=lambda b, h, i, j: i * 0 + j * 0 == 0, scale=None):
    """Attention with all scores at hand, written out."""
    groups = q.size(1) // k.size(1)
    k, v = (t.repeat_interleave(groups, 1) for t in (k, v))
    scores = (q.float() @ k.float().transpose(-2, -1)) * (scale or 1 / math.sqrt(q.size(-1)))
    b, h, i, j = (torch.arange(n).view([-1 if d == e else 1 for e in range(4)]) for d, n in enumerate(scores.shape))
    scores = torch.where(mask(b, h, i, j), change(scores, b, h, i, j), -math.inf)
    weights = torch.nan_to_num(torch.softmax(scores, -1))
    return weights.to(q.dtype) @ v, torch.logsumexp(scores, -1)


SLOPES = torch.linspace(0.1, 0.5, HEADS)
DOCUMENTS = torch.arange(LENGTH) // 50


def linear_bias(score, b, h, i, j):
    return score + SLOPES[h] * (j - i)


def capped(score, b, h, i, j):
    return 5 * torch.tanh(score / 5)


def causal(b, h, i, j):
    return i >= j


def document(b, h, i, j):
    return (DOCUMENTS[i] == DOCUMENTS[j]) & (i >= j)


def nothing_at_first(b, h, i, j):
    return (i > 3) & (j < 100)


@pytest.mark.parametrize("change", [linear_bias, capped], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_scores_are_changed(change, backend):
    inputs = tensors()
    compiled = tracework.compile(lambda q, k, v: flex_attention(q, k, v, score_mod=change), backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), reference(*inputs, change)[0])


@pytest.mark.parametrize("mask", [causal, document, nothing_at_first], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_masks_with_the_statistics(mask, backend):
    blocks, inputs = create_block_mask(mask, None, None, LENGTH, LENGTH, device="cpu"), tensors(kv_heads=2)

    def attend(q, k, v):
        out, aux = flex_attention(q, k, v, block_mask=blocks, enable_gqa=True, scale=0.3, return_aux=AuxRequest(lse=True))
        return out, aux.lse

    compiled = tracework.compile(attend, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), reference(*inputs, mask=mask, scale=0.3))


def test_a_mask_made_inside():
    def attend(q, k, v):
        blocks = create_block_mask(causal, None, None, q.shape[2], k.shape[2], device="cpu")
        return flex_attention(q, k, v, block_mask=blocks), blocks.kv_num_blocks, blocks.to_dense()

    inputs = tensors()
    out, count, dense = tracework.compile(attend, backend="aot_eager")(*inputs)
    torch.testing.assert_close(out, reference(*inputs, mask=causal)[0])
    blocks = create_block_mask(causal, None, None, LENGTH, LENGTH, device="cpu")
    assert torch.equal(count, blocks.kv_num_blocks) and torch.equal(dense, blocks.to_dense())


def test_masks_of_functions_that_are_made_inside_are_part_of_the_graph():
    def attend(q, k, v):
        near = and_masks(causal, lambda b, h, i, j: i - j < 9)
        blocks = create_block_mask(near, None, None, q.shape[2], k.shape[2], device="cpu")
        return flex_attention(q, k, v, block_mask=blocks), create_mask(near, 1, 1, 4, 4, device="cpu")

    inputs = tensors()
    out, dense = tracework.compile(attend, backend="aot_eager", fullgraph=True)(*inputs)
    torch.testing.assert_close(out, reference(*inputs, mask=lambda b, h, i, j: (i >= j) & (i - j < 9))[0])
    assert torch.equal(dense[0, 0], torch.ones(4, 4, dtype=torch.bool).tril())


def rows_summed(score, b, h, i, j):
    return score + torch.ones(HEADS, 3)[h].sum()


def other_promotion(score, b, h, i, j):
    return score + torch.tensor(1.0, dtype=torch.float64)


@pytest.mark.parametrize("change", [rows_summed, other_promotion], ids=lambda f: f.__name__)
def test_what_is_not_elementwise_is_refused(change):
    with pytest.raises(Exception, match="more than compute with single numbers"):
        tracework.compile(lambda q, k, v: flex_attention(q, k, v, score_mod=change), backend="eager", fullgraph=True)(*tensors())


def test_errors_are_those_of_torch():
    q, k, v = tensors()
    compiled = tracework.compile(lambda q, k: flex_attention(q, k, k), backend="eager")
    with pytest.raises(ValueError, match="enable_gqa"):
        compiled(q, k[:, :2])
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        compiled(q.requires_grad_(), k)


def test_autocast_casts_the_operands_and_nothing_inside():
    inputs = tensors()

    def attend(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return flex_attention(q, k, v, score_mod=capped)

    halves = [t.bfloat16() for t in inputs]
    out = tracework.compile(attend, backend="aot_eager", fullgraph=True)(*inputs)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out, reference(*halves, capped)[0])


@pytest.fixture
def one_operator(monkeypatch):
    """As on a GPU, but for the kernel: the operator's reference computes."""
    monkeypatch.setattr("tracework_inductor.lowering.attention.DEVICES", frozenset())
    monkeypatch.setattr("tracework_capture.values.torch.regions.flex_attention.TRAINED", frozenset({"cpu"}))


@pytest.mark.usefixtures("one_operator")
def test_one_operator_for_lengths_that_change():
    compiled = tracework.compile(
        lambda q, k, v: flex_attention(q, k, v, score_mod=linear_bias, return_aux=AuxRequest(lse=True)),
        dynamic=True,
        fullgraph=True,
    )
    for length in (LENGTH, 40, 77):
        inputs = [t[:, :, :length].contiguous() for t in tensors()]
        out, aux = compiled(*inputs)
        torch.testing.assert_close((out, aux.lse), reference(*inputs, linear_bias))


@pytest.mark.usefixtures("one_operator")
def test_a_block_mask_goes_with_the_operator(monkeypatch):
    seen = []
    plain = tracework_primops.attention.forward_reference
    monkeypatch.setitem(
        tracework_primops.op.RULES["eager"], tracework_primops.prims.attention, lambda *given: seen.append(given) or plain(*given)
    )
    blocks, inputs = create_block_mask(document, None, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=32), tensors()
    # A graph of its own: what another test compiled is still in the process's cache, with the plain rule.
    compiled = tracework.compile(
        lambda q, k, v: flex_attention(q, k, v, block_mask=blocks), fullgraph=True, options={"cache": False}
    )
    torch.testing.assert_close(compiled(*inputs), reference(*inputs, mask=document)[0])
    ((_, _, _, captured, tensors_of_blocks, *_, extents, _),) = seen
    assert [t.shape for t in captured] == [DOCUMENTS.shape] and tuple(extents) == (32, 32)
    wanted = [blocks.kv_num_blocks, blocks.kv_indices, blocks.full_kv_num_blocks, blocks.full_kv_indices]
    wanted += [blocks.q_num_blocks, blocks.q_indices, blocks.full_q_num_blocks, blocks.full_q_indices]
    assert all(map(torch.equal, tensors_of_blocks, wanted))

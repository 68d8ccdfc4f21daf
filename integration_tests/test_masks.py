"""Constant attention masks: proven away when they are open or causal, kept when they are neither or not constant."""

import pytest
import torch
import tracework

attention = torch.nn.functional.scaled_dot_product_attention


def causal(q, extra):
    place = torch.arange(q.shape[-2])
    return (place[None, :] <= place[:, None]).expand(q.shape[0], 1, -1, -1)


def causal_added(q, extra):
    return torch.full((q.shape[-2], q.shape[-2]), float("-inf"), dtype=q.dtype).triu(1)


def opened(q, extra):
    return torch.ones(1, q.shape[-2], q.shape[-2], dtype=torch.bool) | torch.zeros(q.shape[-2], dtype=torch.bool)


def banded(q, extra):
    place = torch.arange(q.shape[-2])
    return (place[None, :] <= place[:, None]) & (place[None, :] > place[:, None] - 2)


def from_input(q, extra):
    return extra.tril()


def written(q, extra):
    mask = torch.zeros(q.shape[-2], q.shape[-2], dtype=torch.bool)
    mask[:, 0] = True
    return mask


def random(q, extra):
    return torch.rand(q.shape[-2], q.shape[-2]) >= 0


@pytest.mark.parametrize(
    ("make", "mask", "is_causal"),
    [
        (causal, False, True),
        (causal_added, False, True),
        (opened, False, False),
        (banded, True, False),
        (from_input, True, False),
        (written, True, False),
        (random, True, False),
    ],
    ids=lambda v: getattr(v, "__name__", str(v)),
)
def test_masks(make, mask, is_causal):
    def f(q, extra):
        return attention(q, q, q, attn_mask=make(q, extra))

    graphs = []
    compiled = tracework.compile(f, backend="aot_eager", observe=lambda stage, gm: graphs.append((stage, gm)))
    q, extra = torch.randn(2, 1, 6, 4), torch.ones(6, 6, dtype=torch.bool)
    torch.testing.assert_close(compiled(q, extra), f(q, extra))
    graph = next(gm for stage, gm in graphs if stage == "aotautograd").graph
    call = next(n for n in graph.nodes if "flash_attention_for_cpu" in str(n.target))
    assert (call.kwargs.get("attn_mask") is not None) == mask
    assert (len(call.args) > 4 and call.args[4] or call.kwargs.get("is_causal", False)) == is_causal

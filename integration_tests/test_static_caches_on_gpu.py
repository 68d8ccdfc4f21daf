"""Tokens of a decoder with a static cache on a GPU: attention of one query over the cache, which gets its rows in place."""

import pytest
import torch
import torch.nn.functional as F
import tracework
from torch import nn

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

HEADS, KEY_HEADS, WIDTH, LENGTH, LAYERS = 8, 2, 64, 160, 2


class Layer(nn.Module):
    """Attention with grouped heads over a cache, and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(HEADS * WIDTH, HEADS * WIDTH, bias=False)
        self.kv = nn.Linear(HEADS * WIDTH, 2 * KEY_HEADS * WIDTH, bias=False)
        self.out = nn.Linear(HEADS * WIDTH, HEADS * WIDTH, bias=False)
        self.norm = nn.RMSNorm(HEADS * WIDTH)

    def forward(self, x, keys, values, at, mask):
        batch, tokens, _ = x.shape
        h = self.norm(x)
        q = self.q(h).view(batch, tokens, HEADS, WIDTH).transpose(1, 2)
        k, v = self.kv(h).view(batch, tokens, 2, KEY_HEADS, WIDTH).permute(2, 0, 3, 1, 4)
        keys.index_copy_(2, at, k)
        values.index_copy_(2, at, v)
        times = HEADS // KEY_HEADS
        k, v = (
            t[:, :, None].expand(batch, KEY_HEADS, times, LENGTH, WIDTH).reshape(batch, HEADS, LENGTH, WIDTH)
            for t in (keys, values)
        )
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + self.out(found.transpose(1, 2).reshape(batch, tokens, HEADS * WIDTH))


class Decoder(nn.Module):
    """Some layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x, cache, at):
        mask = (torch.arange(LENGTH, device=x.device) <= at[:, None])[None, None]
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            x = layer(x, keys, values, at, mask)
        return x


def empty_cache(batch, dtype):
    return [
        tuple(torch.zeros(batch, KEY_HEADS, LENGTH, WIDTH, dtype=dtype, device="cuda") for _ in range(2)) for _ in range(LAYERS)
    ]


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize(("dtype", "batch", "tokens"), [(torch.bfloat16, 1, 1), (torch.float16, 2, 3), (torch.float32, 1, 1)])
def test_tokens_and_caches(dtype, batch, tokens, mode):
    torch.manual_seed(0)
    model = Decoder().to("cuda", dtype).eval()
    exact = Decoder().to("cuda", torch.float64).eval()
    exact.load_state_dict(model.state_dict())
    compiled = tracework.compile(model, fullgraph=True, mode=mode)
    caches = [empty_cache(batch, t) for t in (dtype, dtype, torch.float64)]
    with torch.no_grad():
        for n in range(6):
            x = torch.randn(batch, tokens, HEADS * WIDTH, device="cuda", dtype=dtype)
            at = torch.arange(n * 20, n * 20 + tokens, device="cuda")
            ours, theirs, wanted = (f(x.to(c[0][0].dtype), c, at) for f, c in zip((compiled, model, exact), caches, strict=True))
            assert as_exact(ours, theirs, wanted)
    for layers in zip(*caches, strict=True):
        for ours, theirs, wanted in zip(*layers, strict=True):
            assert as_exact(ours, theirs, wanted)
            assert ours.abs().sum(-1).ne(0).sum() == batch * KEY_HEADS * tokens * 6


def as_exact(ours, theirs, wanted):
    """Whether the largest error is at most twice eager's and a rounding."""
    return (ours - wanted).abs().max() <= 2 * (theirs - wanted).abs().max() + torch.finfo(ours.dtype).eps

"""Tokens of a decoder with a cache on a GPU: attention of one query over the cache, which gets its rows in place or grows."""

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


def by_index(cache, at, new):
    cache.index_copy_(2, at, new)


def by_slice(cache, at, new):
    cache[:, :, at : at + new.shape[2]] = new


def by_narrow(cache, at, new):
    cache.narrow(2, at, new.shape[2]).copy_(new)


def of_one_tensor(cache, at, new):
    cache[0][:, at : at + new.shape[2]].copy_(new[0])


def fused(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, mask)


def grouped(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)


def of_products(q, k, v, mask):
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = (q @ k.mT * WIDTH**-0.5).masked_fill(~mask, torch.finfo(q.dtype).min)
    return scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ v


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("write", "attend"), [(by_index, grouped), (by_slice, of_products), (by_narrow, of_products), (of_one_tensor, grouped)]
)
def test_a_row_and_attention(write, attend, dtype, mode):
    """As the program has it, at positions that are numbers, too."""
    torch.manual_seed(0)

    def step(q, keys, values, k, v, at, mask):
        write(keys, at, k)
        write(values, at, v)
        return attend(q, keys, values, mask)

    compiled = tracework.compile(step, fullgraph=True, mode=mode)
    caches = [empty_cache(1, t)[0] for t in (dtype, dtype, torch.float64)]
    with torch.no_grad():
        for n in (3, 4, 5, 30, 31):
            q, k, v = (torch.randn(1, heads, 1, WIDTH, device="cuda", dtype=dtype) for heads in (HEADS, KEY_HEADS, KEY_HEADS))
            at = torch.tensor([n], device="cuda") if write is by_index else n
            mask = (torch.arange(LENGTH, device="cuda") <= n)[None, None, None]
            ours, theirs, wanted = (
                f(q.to(c[0].dtype), *c, k.to(c[0].dtype), v.to(c[0].dtype), at, mask)
                for f, c in zip((compiled, step, step), caches, strict=True)
            )
            assert as_exact(ours, theirs, wanted)
            assert all(torch.equal(a, b) for a, b in zip(caches[0], caches[1], strict=True))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("attend", [fused, of_products])
def test_a_cache_that_grows(attend, mode):
    """By one row each step: two compilations, whatever the mode."""
    torch.manual_seed(0)

    def step(q, keys, values, k, v):
        keys, values = torch.cat((keys, k), 2), torch.cat((values, v), 2)
        return attend(q, keys, values, torch.ones(1, 1, 1, keys.shape[2], dtype=torch.bool, device="cuda")), keys, values

    def run(f, dtype, rows):
        keys = values = torch.zeros(1, HEADS, 0, WIDTH, device="cuda", dtype=dtype)
        found = []
        for q, k, v in rows:
            out, keys, values = f(q.to(dtype), keys, values, k.to(dtype), v.to(dtype))
            found.append(out)
        return torch.stack(found)

    rows = [tuple(torch.randn(1, HEADS, 1, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(3)) for _ in range(40)]
    with torch.no_grad():
        ours, theirs, wanted = (
            run(f, dtype, rows)
            for f, dtype in (
                (tracework.compile(step, fullgraph=True, mode=mode), torch.bfloat16),
                (step, torch.bfloat16),
                (step, torch.float64),
            )
        )
    assert as_exact(ours, theirs, wanted)


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

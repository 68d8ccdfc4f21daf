"""Programs of attention of few queries, which calls one of torch's kernels or is written out, and their values in float64."""

import math

import torch
from prim_programs import build, overload, product, turned, weights
from tracework_primops import TensorSpec, prims
from tracework_primops.spec import SizeSpec

CUDA = torch.device("cuda", 0)
aten = torch.ops.aten
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
ROUNDING = {BF16: 2**-8, F16: 2**-11, F32: 2**-23}


def spec_of(t, device=CUDA):
    return TensorSpec(t.dtype, device, tuple(t.shape), tuple(t.stride()))


def attention(kernel, *, causal=False, scale=None, repeats=1, dropout=0.0):
    """A program of tensors q, k, v and a mask that calls one of torch's kernels, after its heads were repeated."""

    def program(q, k, v, mask=None):
        if repeats > 1:
            k, v = repeated(k, repeats), repeated(v, repeats)
        batch, heads, length, width = q.sizes[0], q.sizes[1], q.sizes[2], v.sizes[3]
        inner = TensorSpec(q.dtype, q.device, (batch, heads, length, width), (length * heads * width, width, heads * width, 1))
        rows = TensorSpec(torch.float32, q.device, (batch, heads, length))
        seed = TensorSpec(torch.int64, q.device, ())
        if mask is not None and mask.sizes != (batch, heads, length, k.sizes[2]):
            mask = prims.expand(mask, (batch, heads, length, k.sizes[2]))
        if kernel == "cpu":
            target = aten._scaled_dot_product_flash_attention_for_cpu.default
            return overload(target, (q, k, v, dropout, causal), inner, rows, scale=scale, attn_mask=mask)
        if kernel == "efficient":
            target, args = aten._scaled_dot_product_efficient_attention.default, (q, k, v, mask, False, dropout, causal)
            specs = [inner, rows, seed, seed]
        elif kernel == "flash":
            target, args = aten._scaled_dot_product_flash_attention.default, (q, k, v, dropout, causal)
            specs = [inner, rows, seed, seed, SizeSpec(1), SizeSpec(1), seed, seed, seed]
        else:
            target, args = aten._scaled_dot_product_cudnn_attention.default, (q, k, v, mask, False, dropout, causal)
            specs = [inner, rows, seed, seed, SizeSpec(1), SizeSpec(1), seed, seed, seed]
        return overload(target, args, *specs, scale=scale)

    return program


def repeated(x, times):
    batch, heads, length, width = x.sizes
    wide = prims.expand(prims.unsqueeze(x, 2), (batch, heads, times, length, width))
    return prims.reshape(wide, (batch, heads * times, length, width))


def exact(q, k, v, mask=None, causal=False, scale=None):
    """In float64; a row that sees nothing is 0."""
    times = q.shape[1] // k.shape[1]
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(times, 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores + mask.double()
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[2:], dtype=torch.bool).tril(), -math.inf)
    return torch.nan_to_num(scores.softmax(-1)) @ v


def keys(batch, heads, length, width, dtype, layout):
    """A cache: as it is made, the heads inside, or the begin of a longer one."""
    if layout == "heads inside":
        return torch.randn(batch, length, heads, width).to(dtype).transpose(1, 2)
    if layout == "longer":
        return torch.randn(batch, heads, length + 5, width).to(dtype)[:, :, :length]
    return torch.randn(batch, heads, length, width).to(dtype)


def mask_of(kind, batch, heads, queries, length, dtype):
    """What is added to scores: keys that are not filled yet, another prefix for each query, per head, with rows that see nothing."""
    if kind is None:
        return None
    sizes = {"filled": (batch, 1, 1, length), "queries": (batch, 1, queries, length), "heads": (1, heads, queries, length)}
    mask = torch.zeros(sizes.get(kind, (batch, 1, queries, length)))
    if kind == "filled":
        mask[..., length // 3 :] = -math.inf
    elif kind == "queries":
        mask.masked_fill_(torch.arange(length) > torch.arange(queries)[:, None] + length // 2, -math.inf)
    elif kind == "heads":
        mask += torch.randn(mask.shape)
    else:
        mask.fill_(-math.inf)
        mask[-1, :, -1, 7] = 0
    return mask.to(dtype)


# (dtype, batch, heads, key heads, queries, keys, width), mask, layout of the cache
PROBLEMS = [
    ((BF16, 1, 32, 8, 1, 300, 64), "filled", "plain"),
    ((BF16, 2, 4, 4, 1, 128, 64), None, "heads inside"),
    ((F16, 1, 14, 2, 1, 257, 64), "filled", "longer"),
    ((F16, 2, 6, 2, 2, 256, 128), "queries", "plain"),
    ((F32, 1, 4, 2, 8, 70, 80), "queries", "heads inside"),
    ((F32, 1, 4, 4, 3, 96, 96), "heads", "plain"),
    ((BF16, 1, 6, 1, 1, 64, 256), "filled", "plain"),
    ((F32, 2, 2, 1, 2, 140, 64), "nothing", "plain"),
    ((F32, 1, 3, 3, 1, 1, 64), None, "plain"),
    ((F32, 1, 2, 2, 5, 64, 128), "causal", "plain"),
    ((F32, 1, 128, 1, 1, 20, 256), "filled", "plain"),
]


def as_llama(q, k, v, mask):
    """Repeated heads, scaled scores, weights in float32."""
    k, v = repeated(k, 4), repeated(v, 4)
    scores = prims.convert(prims.add(prims.mul(product(q, turned(k)), 0.25), mask), F32)
    return prims.permute(product(prims.convert(weights(scores), q.dtype), v), (0, 2, 1, 3))


def as_t5(q, k, v, mask):
    """A bias of the position for each head beside the mask, no scale."""
    heads = prims.convert(prims.unsqueeze(prims.unsqueeze(prims.iota(8, 0, 1, torch.int64, q.device), 1), 2), q.dtype)
    bias = prims.add(prims.mul(heads, 0.125), mask)
    return product(weights(prims.add(product(q, turned(repeated(k, 4))), bias)), repeated(v, 4))


def filled(number, *, inverted=False, scaled="query"):
    def program(q, k, v, mask):
        """A mask that replaces scores, and a scale before."""
        k, v = repeated(k, 4), repeated(v, 4)
        if scaled == "query":
            q = prims.mul(q, 0.25)
        scores = product(q, turned(k)) if scaled != "key" else product(q, prims.mul(turned(k), 0.25))
        keep = prims.ge(mask, 0.0)
        scores = prims.where(prims.bitwise_not(keep), number, scores) if inverted else prims.where(keep, scores, number)
        return product(weights(scores), v)

    return program


def in_three_axes(q, k, v, mask):
    """Heads and batch in one axis, scores divided."""
    q, k, v = (prims.reshape(x, (x.sizes[0] * x.sizes[1], *x.sizes[2:])) for x in (q, repeated(k, 4), repeated(v, 4)))
    mask = prims.reshape(prims.expand(mask, (2, 8, 1, 70)), (16, 1, 70))
    scores = prims.add(prims.div(prims.bmm(q, turned(k)), 4.0), mask)
    return prims.bmm(weights(scores), v)


def zeroed(q, k, v, mask):
    """As the math form of torch: rows that are -inf throughout are 0."""
    k, v = repeated(k, 4), repeated(v, 4)
    scores = prims.add(product(prims.mul(q, 0.5), prims.mul(turned(k), 0.5)), mask)
    hidden = prims.all(prims.eq(scores, -math.inf), (3,), True)
    return product(prims.where(hidden, 0.0, weights(scores)), v)


def grouped(q, k, v, mask):
    """Heads of a group in an axis of their own."""
    batch, _, queries, width = q.sizes
    q = prims.reshape(q, (batch, 2, 4, queries, width))
    k, v = (prims.expand(prims.unsqueeze(x, 2), (batch, 2, 4, *x.sizes[2:])) for x in (k, v))
    return product(weights(prims.add(product(q, turned(k)), prims.unsqueeze(mask, 2))), v)


def masked_then_scaled(q, k, v, mask):
    """The mask is scaled with the scores, and another is subtracted."""
    k, v = repeated(k, 4), repeated(v, 4)
    scores = prims.mul(prims.add(mask, product(q, turned(k))), 0.5)
    return product(weights(prims.sub(scores, prims.mul(mask, 0.25))), v)


def filled_twice(q, k, v, mask):
    """By two masks, after one that is added."""
    k, v = repeated(k, 4), repeated(v, 4)
    scores = prims.add(product(q, turned(k)), prims.mul(mask, 0.5))
    scores = prims.where(prims.lt(mask, -1.0), -math.inf, scores)
    return product(weights(prims.where(prims.ge(mask, -2.0), prims.mul(scores, 2.0), -math.inf)), v)


def as_gpt2(q, k, v, mask):
    """Numbers in tensors: the scores are divided by one, and another replaces them."""
    k, v = repeated(k, 4), repeated(v, 4)

    def tensor(number):
        return prims.full((), number, q.dtype, q.device)

    scores = prims.div(product(q, turned(k)), tensor(4.0))
    return product(weights(prims.where(prims.ge(mask, 0.0), scores, prims.expand(tensor(-1e4), scores.sizes))), v)


LOWEST = torch.finfo(F32).min
WRITTEN = {
    "llama": (as_llama, BF16, 1, -math.inf),
    "llama, lowest": (as_llama, F32, 2, LOWEST),
    "t5": (as_t5, F32, 1, 0.0),
    "filled": (filled(-math.inf), F32, 1, -math.inf),
    "filled, inverted": (filled(-math.inf, inverted=True), F32, 2, -math.inf),
    "filled, finite": (filled(-1e9), F32, 1, -1.0),
    "filled, lowest": (filled(LOWEST, scaled="key"), F32, 1, -1.0),
    "three axes": (in_three_axes, F16, 1, -10000.0),
    "zeroed": (zeroed, F32, 1, -math.inf),
    "grouped": (grouped, F32, 3, -math.inf),
    "masked, then scaled": (masked_then_scaled, F32, 2, -3.0),
    "filled twice": (filled_twice, F32, 1, -5.0),
    "gpt2": (as_gpt2, F16, 2, -1.0),
}
"""A program, its dtype, how many queries, and what the mask holds for hidden keys."""


def written(case, hidden):
    """A program of WRITTEN, operands of which some or all keys of a batch are hidden, its results in float64, and how far values may be off."""
    program, dtype, queries, low = WRITTEN[case]
    torch.manual_seed(0)
    inputs = [torch.randn(2, heads, n, 16).to(dtype) for heads, n in ((8, queries), (2, 70), (2, 70))]
    mask = torch.zeros(2, 1, 1, 70)
    mask[:, ..., 50:] = low
    if hidden == "all":
        mask[1] = low
    inputs.append(mask.to(dtype))
    wide = [x.double() for x in inputs]
    (wanted,) = build(program, wide).run(*wide)
    return program, inputs, wanted, float(4 * ROUNDING[dtype] * inputs[2].abs().max())

"""Parts of programs around products, for tests of those that are loops or cores of ours."""

import torch
from tracework_primops import prims

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def turned(w):
    return prims.permute(w, (1, 0))


def linear(x, w):
    return prims.mm(x, turned(w))


def silu(x):
    return prims.mul(x, prims.sigmoid(x))


def normed(x, w):
    wide = prims.convert(x, F32)
    mean = prims.div(prims.sum(prims.mul(wide, wide), (1,), True), float(x.sizes[1]))
    return prims.mul(prims.convert(prims.mul(wide, prims.rsqrt(prims.add(mean, 1e-5))), x.dtype), w)


def layer_normed(x, w):
    var, mean = prims.var_mean(prims.convert(x, F32), (1,), 0, True)
    return prims.mul(prims.convert(prims.mul(prims.sub(x, mean), prims.rsqrt(prims.add(var, 1e-5))), x.dtype), w)


def dequantised(w, scale, dtype):
    return prims.mul(prims.convert(w, dtype), prims.unsqueeze(scale, 1))


def four_bits(p, scale, dtype):
    """Two neighbours in a byte, a scale for each group of a row."""
    (rows, groups), inner = scale.sizes, 2 * p.sizes[1]
    parts = (prims.bitwise_and(p, 15), prims.shift_right(p, 4))
    w = prims.reshape(prims.cat(tuple(prims.unsqueeze(v, 2) for v in parts), 2), (rows, groups, inner // groups))
    return prims.reshape(prims.mul(prims.sub(prims.convert(w, dtype), 8.0), prims.unsqueeze(scale, 2)), (rows, inner))


def four_bits_apart(p, scale, dtype):
    """The halves of a row in the halves of its bytes."""
    w = prims.cat((prims.bitwise_and(p, 15), prims.shift_right(p, 4)), 1)
    return prims.mul(prims.sub(prims.convert(w, dtype), 8.0), scale)


def in_float64(p, scale, dim):
    w = torch.stack((p & 15, p >> 4), dim).flatten(1).double() - 8
    return (w.unflatten(1, (scale.shape[1], -1)) * scale[..., None]).flatten(1)


def rotated(x, cos):
    """Each half of a row by the other one: other elements than the product's iteration writes."""
    half = x.sizes[1] // 2
    other = prims.cat((prims.neg(prims.slice(x, 1, half, 2 * half, 1)), prims.slice(x, 1, 0, half, 1)), 1)
    return prims.add(prims.mul(x, cos), other)


def matrix(*sizes, dtype=BF16):
    if not dtype.is_floating_point:
        return torch.randint(*((-127, 128) if dtype == torch.int8 else (0, 256)), sizes, dtype=dtype)
    return torch.randn(sizes).to(dtype)


def wide(inputs):
    return [x.double() if x.is_floating_point() else x for x in inputs]


def check(found, wanted, dtype, steps=4):
    """Within so many roundings to the dtype of the largest values that are added up."""
    error = (found.double() - wanted).abs().max() / wanted.abs().max()
    assert found.dtype == dtype and error <= steps * torch.finfo(dtype).eps, error

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


PROGRAMS = {
    "linear": (linear, lambda m: (matrix(m, 512), matrix(48, 512)), lambda x, w: x @ w.T, 1),
    "linear, float16": (linear, lambda m: (matrix(m, 96, dtype=F16), matrix(33, 96, dtype=F16)), lambda x, w: x @ w.T, 1),
    "linear, float32": (linear, lambda m: (matrix(m, 640, dtype=F32), matrix(20, 640, dtype=F32)), lambda x, w: x @ w.T, 1),
    "odd": (linear, lambda m: (matrix(m, 1153), matrix(19, 1153)), lambda x, w: x @ w.T, 1),
    "columns": (prims.mm, lambda m: (matrix(m, 768), matrix(768, 80)), torch.matmul, 1),
    "odd columns": (prims.mm, lambda m: (matrix(m, 301, dtype=F32), matrix(301, 77, dtype=F32)), torch.matmul, 4),
    "strided": (
        lambda x, w: linear(prims.slice(x, 1, 0, 256, 1), prims.slice(w, 1, 1, 513, 2)),
        lambda m: (matrix(m, 300), matrix(24, 520)),
        lambda x, w: x[:, :256] @ w[:, 1:513:2].T,
        1,
    ),
    "few columns": (
        lambda x, w: prims.mm(w, turned(x)), lambda m: (matrix(m, 320), matrix(40, 320)), lambda x, w: w @ x.T, 1,
    ),
    "bias": (
        lambda x, w, b: prims.relu(prims.addmm(b, x, turned(w))),
        lambda m: (matrix(m, 256), matrix(48, 256), matrix(48)),
        lambda x, w, b: torch.relu(x @ w.T + b),
        1,
    ),
    "bias, scaled": (
        lambda x, w, b: prims.addmm(b, x, turned(w), beta=0.5, alpha=2),
        lambda m: (matrix(m, 256, dtype=F32), matrix(48, 256, dtype=F32), matrix(m, 48, dtype=F32)),
        lambda x, w, b: 0.5 * b + 2 * (x @ w.T),
        2,
    ),
    "gate and up": (
        lambda x, g, u: prims.mul(silu(linear(x, g)), linear(x, u)),
        lambda m: (matrix(m, 256), matrix(40, 256), matrix(40, 256)),
        lambda x, g, u: torch.nn.functional.silu(x @ g.T) * (x @ u.T),
        1,
    ),
    "residual": (
        lambda x, w, h: prims.add(h, linear(x, w)),
        lambda m: (matrix(m, 512), matrix(40, 512), matrix(m, 40)),
        lambda x, w, h: h + x @ w.T,
        1,
    ),
    "norm": (
        lambda x, n, w: linear(normed(x, n), w),
        lambda m: (matrix(m, 512), matrix(512), matrix(40, 512)),
        lambda x, n, w: (x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-5) * n) @ w.T,
        3,
    ),
    "layer norm": (
        lambda x, n, w: linear(layer_normed(x, n), w),
        lambda m: (matrix(m, 320, dtype=F32), matrix(320, dtype=F32), matrix(40, 320, dtype=F32)),
        lambda x, n, w: (torch.nn.functional.layer_norm(x, x.shape[1:], eps=1e-5) * n) @ w.T,
        8,
    ),
    "int8": (
        lambda x, w, s: linear(x, dequantised(w, s, x.dtype)),
        lambda m: (matrix(m, 512), matrix(40, 512, dtype=torch.int8), matrix(40)),
        lambda x, w, s: x @ (w.double() * s[:, None]).T,
        3,  # the interpreter cuts off the bits that bfloat16 has not
    ),
    "int8, scale from a table": (
        lambda x, w, s, b: prims.addmm(b, x, prims.mul(turned(prims.mul(0.5, prims.convert(w, x.dtype))), s), beta=0.5, alpha=2),
        lambda m: (matrix(m, 256, dtype=F16), matrix(40, 256, dtype=torch.int8), matrix(1, 40, dtype=F16), matrix(40, dtype=F16)),
        lambda x, w, s, b: 0.5 * b + x @ (w.double() * s.T).T,
        3,
    ),
    "int8, zero point, few columns": (
        lambda x, w, s, z: prims.mm(prims.mul(prims.sub(prims.convert(w, x.dtype), z), s), turned(x)),
        lambda m: (matrix(m, 256), matrix(40, 256, dtype=torch.int8), matrix(40, 1), matrix(40, 1)),
        lambda x, w, s, z: ((w - z) * s) @ x.T,
        3,
    ),
    "int8, scale along the sum": (
        lambda x, w, s: linear(x, prims.mul(prims.convert(w, x.dtype), s)),
        lambda m: (matrix(m, 256, dtype=F32), matrix(40, 256, dtype=torch.int8), matrix(256, dtype=F32)),
        lambda x, w, s: x @ (w.double() * s).T,
        8,
    ),
    "int8 query, key and value": (
        lambda x, q, k, v, a, b, c: tuple(linear(x, dequantised(w, s, x.dtype)) for w, s in ((q, a), (k, b), (v, c))),
        lambda m: (
            matrix(m, 256), *(matrix(n, 256, dtype=torch.int8) for n in (48, 16, 16)), matrix(48), matrix(16), matrix(16),
        ),
        lambda x, q, k, v, a, b, c: tuple(x @ (w.double() * s[:, None]).T for w, s in ((q, a), (k, b), (v, c))),
        3,
    ),
    "int4": (
        lambda x, p, s: linear(x, four_bits(p, s, x.dtype)),
        lambda m: (matrix(m, 256), matrix(40, 128, dtype=torch.uint8), matrix(40, 4)),
        lambda x, p, s: x @ in_float64(p, s, -1).T,
        3,
    ),
    "int4, gate and up of a norm": (
        lambda x, n, p, q, s, t: (
            lambda h: prims.mul(silu(linear(h, four_bits(p, s, x.dtype))), linear(h, four_bits(q, t, x.dtype)))
        )(normed(x, n)),
        lambda m: (
            matrix(m, 256), matrix(256), matrix(40, 128, dtype=torch.uint8), matrix(40, 128, dtype=torch.uint8), matrix(40, 2), matrix(40, 2),
        ),
        lambda x, n, p, q, s, t: (
            lambda h: torch.nn.functional.silu(h @ in_float64(p, s, -1).T) * (h @ in_float64(q, t, -1).T)
        )(x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-5) * n),
        8,
    ),
    "int4, halves": (
        lambda x, p, s: linear(x, four_bits_apart(p, s, x.dtype)),
        lambda m: (matrix(m, 256, dtype=F16), matrix(40, 128, dtype=torch.uint8), matrix(40, 1, dtype=F16)),
        lambda x, p, s: x @ in_float64(p, s, 1).T,
        3,
    ),
    "vector": (
        lambda x, w: prims.relu(prims.mv(w, prims.reshape(prims.slice(x, 0, 0, 1, 1), (320,)))),
        lambda m: (matrix(m, 320), matrix(40, 320)),
        lambda x, w: torch.relu(w @ x[0]),
        1,
    ),
    "batches": (
        lambda x, w: prims.bmm(x, prims.permute(w, (0, 2, 1))),
        lambda m: (matrix(3, m, 128), matrix(3, 20, 128)),
        lambda x, w: x @ w.mT,
        1,
    ),
    "batches, columns, bias": (
        lambda x, w, b: prims.baddbmm(b, x, w, alpha=0.5),
        lambda m: (matrix(3, m, 128, dtype=F16), matrix(3, 128, 20, dtype=F16), matrix(3, 1, 20, dtype=F16)),
        lambda x, w, b: b + 0.5 * (x @ w),
        1,
    ),
    "batches of the same rows": (
        lambda x, w: prims.bmm(w, prims.expand(prims.permute(x, (1, 0)), (3, 64, x.sizes[0]))),
        lambda m: (matrix(m, 64), matrix(3, 20, 64)),
        lambda x, w: w @ x.T,
        1,
    ),
    "query, key and value": (
        lambda x, q, k, v: (rotated(linear(x, q), 2.0), rotated(linear(x, k), 2.0), linear(x, v)),
        lambda m: (matrix(m, 256), matrix(48, 256), matrix(16, 256), matrix(16, 256)),
        lambda x, q, k, v: (
            *(2 * y + torch.cat((-y[:, y.shape[1] // 2 :], y[:, : y.shape[1] // 2]), 1) for y in (x @ q.T, x @ k.T)),
            x @ v.T,
        ),
        1,
    ),
    "query and value with biases": (
        lambda x, q, a, k, v, b: (prims.addmm(a, x, turned(q)), linear(x, k), prims.addmm(b, x, turned(v))),
        lambda m: (matrix(m, 256), matrix(24, 256), matrix(24), matrix(16, 256), matrix(16, 256), matrix(16)),
        lambda x, q, a, k, v, b: (x @ q.T + a, x @ k.T, x @ v.T + b),
        1,
    ),
}  # fmt: skip
"""name -> (program, inputs for so many rows, the same in float64, roundings that it does)."""

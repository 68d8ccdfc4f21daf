"""Dtypes that eager's kernels refuse are refused while tracing, with eager's exception."""

import pytest
import torch
import torch.nn.functional as F
from tracework_primops import FakeMode

OPS = {
    "softmax": lambda t: t.softmax(-1),
    "log_softmax": lambda t: torch.log_softmax(t, -1),
    "softmax of another dtype": lambda t: t.softmax(-1, dtype=torch.float32),
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "elu": F.elu,
    "leaky_relu": F.leaky_relu,
    "relu": torch.relu,
    "relu in place": lambda t: t.clone().relu_(),
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "layer_norm": lambda t: F.layer_norm(t, (4,)),
    "batch_norm": lambda t: F.batch_norm(t, None, None, training=True),
    "mse_loss": lambda t: F.mse_loss(t, t),
    "mse_loss with a float": lambda t: F.mse_loss(t, t.float()),
    "var": lambda t: t.var(),
    "std_mean": lambda t: torch.std_mean(t, 0),
    "norm": lambda t: torch.linalg.vector_norm(t),
    "lerp": lambda t: torch.lerp(t, t, 0.5),
    "logaddexp": lambda t: torch.logaddexp(t, t),
    "abs": torch.abs,
    "neg": torch.neg,
    "floor": torch.floor,
    "round": torch.round,
    "round to decimals": lambda t: t.round(decimals=1),
    "a sum with half of it": lambda t: torch.add(t, t, alpha=0.5),
    "a difference with half of it": lambda t: torch.sub(t, 2, alpha=0.5),
    "where it is true": lambda t: torch.where(t, t, t),
    "hardtanh of bytes": lambda t: torch.nn.functional.hardtanh((t == 1).byte()),
    "upsample_nearest1d": lambda t: torch.nn.functional.interpolate(t[:, None], scale_factor=2),
    "bmm": lambda t: torch.bmm(t[None], t.t()[None]),
    "mv": lambda t: torch.mv(t, t[0]),
    "median": lambda t: t.median(),
    "argmax": lambda t: t.argmax(0),
    "argmax of all": torch.argmax,
    "max of all": torch.max,
    "topk": lambda t: t.topk(2),
    "max_pool2d": lambda t: F.max_pool2d(t[None, None], 2),
    "adaptive_avg_pool2d": lambda t: F.adaptive_avg_pool2d(t[None], 1),
    "sub": lambda t: t - t,
    "sub of a number": lambda t: t - 1,
    "sub of a bool": lambda t: t - True,
    "rsub": lambda t: 1 - t,
    "sub in place": lambda t: t.clone().sub_(t),
    "remainder": lambda t: t % (t * 0 + 3),
    "remainder of a number": lambda t: t % 3,
    "floor_divide": lambda t: t // (t + t),
    "div with a mode": lambda t: torch.div(t, t, rounding_mode="trunc"),
    "shift": lambda t: torch.bitwise_left_shift(t, t),
    "shift by a number": lambda t: torch.bitwise_left_shift(t, 1),
    "<<": lambda t: t << t,
    ">> a number": lambda t: t >> 1,
    "bitwise_and": lambda t: t & t,
    "bitwise_not": lambda t: ~t,
    "gcd": lambda t: torch.gcd(t, t),
    "comparison": lambda t: t > 0,
    "equality": lambda t: t == 0,
    "maximum": lambda t: torch.maximum(t, t),
    "amax": lambda t: t.amax(),
    "sort": lambda t: t.sort(),
    "clamp": lambda t: t.clamp(min=0),
    "trunc": torch.trunc,
    "sign": torch.sign,
    "erf": torch.erf,
    "atan2": lambda t: torch.atan2(t, t),
    "addcdiv": lambda t: torch.addcdiv(t, t, t),
    "addmm": lambda t: torch.addmm(t[:, 0], t, t.t()[:, :3]),
    "addmm of two dtypes": lambda t: torch.addmm(t[:, 0].float(), t, t.t()[:, :3]),
    "baddbmm": lambda t: torch.baddbmm(t[:, 0].float(), t[None], t.t()[None]),
    "addmv": lambda t: torch.addmv(t[:, 0].float(), t, t[0]),
    "sigmoid": torch.sigmoid,
    "sum": torch.sum,
    "cumsum": lambda t: t.cumsum(0),
}


def outcome(op, value):
    """The type of the exception, or the result's dtype."""
    try:
        return getattr(op(value), "dtype", None)
    except Exception as e:
        return type(e)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool, torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("sizes", [(3, 4), (0, 4)], ids=["full", "empty"])
@pytest.mark.parametrize("name", OPS)
def test_raises_what_eager_raises(name, sizes, dtype):
    value = torch.ones(sizes, dtype=dtype)
    expected = outcome(OPS[name], value)
    got = outcome(OPS[name], FakeMode().from_real(value))
    assert got is expected

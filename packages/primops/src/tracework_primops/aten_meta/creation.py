"""ATen rows: factories, copies and conversions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .. import _torch
from ..broadcasting import broadcast_sizes
from ..promotion import number_dtype
from ..spec import TensorSpec
from ..symbols.expr import Expr, floordiv
from .rows import HALVES, check_number, contiguous, fresh, row, same_layout, with_format


def _device(device, like=None):
    if device is None:
        return like.device if like is not None else torch.device("cpu")
    if device.__class__ is not torch.device:
        device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _new(sizes, dtype, device, memory_format=None):
    sizes = tuple(sizes)
    return TensorSpec(dtype or torch.get_default_dtype(), _device(device), sizes, with_format(sizes, memory_format), 0)


FACTORIES = "empty.memory_format zeros.default ones.default rand.default randn.default"


@row(*FACTORIES.split())
def factory(size, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None, generator=None):
    return _new(size, dtype, device, memory_format)


@row("empty_strided.default")
def empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
    return TensorSpec(dtype or torch.get_default_dtype(), _device(device), tuple(size), tuple(stride), 0)


def _check_filling(value: Any, dtype: torch.dtype, size: Sequence[Any]) -> None:
    """Of one element that is a half eager's own way to fill it takes every number."""
    if len(size) or dtype not in HALVES or value.__class__ is complex:
        check_number(value, dtype)


@row("full.default")
def full(size, value, *, dtype=None, layout=None, device=None, pin_memory=None):
    _check_filling(value, dtype or number_dtype(value), size)
    return _new(size, dtype or number_dtype(value), device)


@row("scalar_tensor.default")
def scalar_tensor(value, *, dtype=None, layout=None, device=None, pin_memory=None):
    _check_filling(value, dtype or torch.get_default_dtype(), ())
    return _new((), dtype, device)


@row("eye.default", "eye.m")
def eye(n, m=None, *, dtype=None, layout=None, device=None, pin_memory=None):
    m = n if m is None else m
    for name, size in (("n", n), ("m", m)):
        if size.__class__ is int and size < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {size}")
    return _new((n, m), dtype, device)


WINDOWS = "hann_window hamming_window blackman_window bartlett_window kaiser_window"


@row(
    *(
        f"{name}.{form}"
        for name in WINDOWS.split()
        for form in ("default", "periodic", "periodic_alpha", "periodic_alpha_beta", "beta")
    )
)
def window(length, *how, dtype=None, layout=None, device=None, pin_memory=None):
    """torch's own rules are decompositions that import its compiler."""
    if length.__class__ is int and length < 0:
        raise RuntimeError(f"a window requires a non-negative length, but got {length}")
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"a window expects floating point dtypes, but got {dtype}")
    return _new((length,), dtype, device)


LIKE = "empty_like zeros_like ones_like rand_like randn_like"


@row(*(f"{name}.default" for name in LIKE.split()))
def like(x, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None, generator=None):
    return TensorSpec(dtype or x.dtype, _device(device, x), x.sizes, with_format(x.sizes, memory_format, x), 0)


@row("full_like.default")
def full_like(x, value, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    check_number(value, dtype or x.dtype)
    return like(x, dtype=dtype, device=device, memory_format=memory_format)


@row("new_empty.default", "new_zeros.default", "new_ones.default")
def new(x, size, *, dtype=None, layout=None, device=None, pin_memory=None):
    return _new(size, dtype or x.dtype, _device(device, x))


@row("new_full.default")
def new_full(x, size, value, *, dtype=None, layout=None, device=None, pin_memory=None):
    _check_filling(value, dtype or x.dtype, size)
    return _new(size, dtype or x.dtype, _device(device, x))


@row("new_empty_strided.default")
def new_empty_strided(x, size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
    return TensorSpec(dtype or x.dtype, _device(device, x), tuple(size), tuple(stride), 0)


def _arange(start, end, step, dtype, device):
    numbers = (start, end, step)
    if dtype is None:
        dtype = torch.get_default_dtype() if any(isinstance(n, float) for n in numbers) else torch.int64
    if any(isinstance(n, Expr) for n in numbers) and not any(isinstance(n, float) for n in numbers):
        length = -floordiv(start - end, step)
    else:
        length = _arange_length(start, end, step, dtype is torch.int64)
    return _new((length,), dtype, device)


def _arange_length(start, end, step, of_int64):
    """The number of elements; doubles count those of other dtypes. Raises RuntimeError and ValueError as eager does."""
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if of_int64 and not _torch.ARANGE_COUNTS_BROKEN_STEPS:
        start, end, step = int(start), int(end), int(step)
        if step == 0:
            raise ValueError("step must be nonzero")
    if of_int64 and not any(isinstance(n, float) for n in (start, end, step)):
        return -((start - end) // step)
    return math.ceil((float(end) - float(start)) / step)


@row("arange.default")
def arange(end, *, dtype=None, layout=None, device=None, pin_memory=None):
    return _arange(0, end, 1, dtype, device)


@row("arange.start")
def arange_start(start, end, *, dtype=None, layout=None, device=None, pin_memory=None):
    return _arange(start, end, 1, dtype, device)


@row("arange.start_step")
def arange_start_step(start, end, step=1, *, dtype=None, layout=None, device=None, pin_memory=None):
    return _arange(start, end, step, dtype, device)


@row("clone.default")
def clone(x, *, memory_format=None):
    return TensorSpec(x.dtype, x.device, x.sizes, with_format(x.sizes, memory_format, x), 0)


@row("contiguous.default")
def contiguous_copy(x, *, memory_format=torch.contiguous_format):
    return TensorSpec(x.dtype, x.device, x.sizes, with_format(x.sizes, memory_format, x), 0)


@row("_to_copy.default")
def to_copy(x, *, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
    if x.__class__ is not TensorSpec:  # a number, which vmap makes a tensor of the dtype that it is computed with
        if dtype is None:
            raise TypeError("_to_copy of a number without a dtype")
        return _new((), dtype, device)
    where = _device(device, x)
    return TensorSpec(dtype or x.dtype, where, x.sizes, with_format(x.sizes, memory_format, x), 0)


@row("copy.default")
def copy(x, source, non_blocking=False):
    shape = broadcast_sizes(x.sizes, source.sizes)
    if len(shape) > len(x.sizes) or any(m.__class__ is int and m == 1 != n for m, n in zip(x.sizes, shape)):
        raise RuntimeError(f"copy_: output with shape {list(x.sizes)} doesn't match the broadcast shape {list(shape)}")
    return TensorSpec(x.dtype, x.device, x.sizes, same_layout(x), 0)


@row("zero.default")
def zero(x):
    return TensorSpec(x.dtype, x.device, x.sizes, same_layout(x), 0)


@row("bernoulli_.float", "bernoulli_.Tensor", "random_.default", "random_.from")
@row("bernoulli.Tensor")
def random_like(x, *rest, **options):
    return TensorSpec(x.dtype, x.device, x.sizes, same_layout(x), 0)


@row("bernoulli.default", "bernoulli.p")
def bernoulli(x, p=0.5, *, generator=None):
    return fresh(x, x.sizes)


@row("poisson.default")
def poisson(x, generator=None):
    return fresh(x, x.sizes)


@row("rrelu_with_noise.default")
def rrelu_with_noise(x, noise, lower=0.125, upper=1.0 / 3.0, training=False, generator=None):
    return fresh(x, x.sizes)


@row("rrelu_with_noise_functional.default")
def rrelu_with_noise_functional(x, noise, *rest, **options):
    return fresh(x, x.sizes), TensorSpec(noise.dtype, noise.device, noise.sizes, same_layout(noise), 0)


@row("normal.Tensor_float", "normal.Tensor_Tensor", "normal.float_Tensor")
def normal_of_tensors(mean, std=1.0, *, generator=None):
    """Row-major whatever the arguments are."""
    given = [t for t in (mean, std) if t.__class__ is TensorSpec]
    if not all(t.dtype.is_floating_point for t in given):
        return NotImplemented
    return fresh(given[0], broadcast_sizes(*[t.sizes for t in given]))


@row("uniform_.default", "uniform.default")
def uniform(x, low=0.0, high=1.0, *, generator=None):
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
    return random_like(x)


@row("normal_.default", "normal_functional.default")
def normal(x, mean=0.0, std=1.0, *, generator=None):
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    return random_like(x)


@row("exponential_.default", "exponential.default")
def exponential(x, lambd=1.0, *, generator=None):
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return random_like(x)


@row("cauchy_.default", "cauchy.default")
def cauchy(x, median=0.0, sigma=1.0, *, generator=None):
    if sigma <= 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    return _continuous("Cauchy", x)


@row("log_normal_.default", "log_normal.default")
def log_normal(x, mean=1.0, std=2.0, *, generator=None):
    if std <= 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    return _continuous("log_normal", x)


def _continuous(name, x):
    if not x.dtype.is_floating_point:
        raise RuntimeError(f"{name} distribution is a continuous probability distribution, but the dtype is {x.dtype}")
    return random_like(x)


@row("geometric_.default", "geometric.default")
def geometric(x, p, *, generator=None):
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    return random_like(x)


@row(
    "binomial.default",
    "_sample_dirichlet.default",
    "_standard_gamma.default",
    "_standard_gamma_grad.default",
    "_dirichlet_grad.default",
)
def of_first_argument(x, *rest, generator=None):
    """Row-major, in the sizes of the first argument, to which the caller has broadcast the others."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    return fresh(x, x.sizes)


@row("repeat.default")
def repeat(x, repeats):
    lead = len(repeats) - x.ndim
    if lead < 0:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    sizes = tuple(r * (x.sizes[i - lead] if i >= lead else 1) for i, r in enumerate(repeats))
    for size in sizes:
        if size.__class__ is int and size < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {size}: {list(sizes)}")
    return TensorSpec(x.dtype, x.device, sizes, contiguous(sizes), 0)


@row("multinomial.default")
def multinomial(x, num_samples, replacement=False, *, generator=None):
    if not x.dtype.is_floating_point:
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {x.dtype}")
    if x.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if x.sizes[-1].__class__ is int and x.sizes[-1] > 2**24:
        raise RuntimeError("number of categories cannot exceed 2^24")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and x.sizes[-1].__class__ is int and num_samples > x.sizes[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    sizes = (*x.sizes[:-1], num_samples)
    return TensorSpec(torch.int64, x.device, sizes, contiguous(sizes), 0)

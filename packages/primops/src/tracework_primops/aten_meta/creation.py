"""ATen rows: factories, copies and conversions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _torch
from ..broadcasting import broadcast_sizes
from ..promotion import number_dtype
from ..spec import TensorSpec
from ..symbols.expr import Expr, Size, floordiv
from .rows import HALVES, check, check_number, fresh, like_self, names, refuses, row, row_major, with_format


def _device(device: Any, like: TensorSpec | None = None) -> torch.device:
    if device is None:
        return like.device if like is not None else torch.device("cpu")
    if device.__class__ is not torch.device:
        device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _new(
    sizes: Sequence[Size], dtype: torch.dtype | None = None, device: Any = None, memory_format: Any = None, **others: Any
) -> TensorSpec:
    sizes = tuple(sizes)
    return TensorSpec(dtype or torch.get_default_dtype(), _device(device), sizes, with_format(sizes, memory_format), 0)


@row("empty.memory_format")
def empty(size: Sequence[Size], **options: Any) -> TensorSpec:
    return _new(size, **options)


@row("empty_strided.default")
def empty_strided(
    size: Sequence[Size], stride: Sequence[Size], *, dtype: torch.dtype | None = None, device: Any = None, **options: Any
) -> TensorSpec:
    """What is filled, where algorithms are to be deterministic, has these strides all the same; the prim that fills it has not."""
    return TensorSpec(dtype or torch.get_default_dtype(), _device(device), tuple(size), tuple(stride), 0)


@row("new_empty_strided.default")
def new_empty_strided(x: TensorSpec, size: Sequence[Size], stride: Sequence[Size], **options: Any) -> TensorSpec:
    return empty_strided(size, stride, dtype=options.get("dtype") or x.dtype, device=_device(options.get("device"), x))


def _check_filling(value: Any, dtype: torch.dtype, size: Sequence[Any]) -> None:
    """Of one element that is a half eager's own way to fill it takes every number."""
    if len(size) or dtype not in HALVES or value.__class__ is complex:
        check_number(value, dtype)


@refuses("full.default")
def full(size: Sequence[Size], value: Any, *, dtype: torch.dtype | None = None, **options: Any) -> None:
    _check_filling(value, dtype or number_dtype(value), size)


@refuses("scalar_tensor.default")
def scalar_tensor(value: Any, *, dtype: torch.dtype | None = None, **options: Any) -> None:
    _check_filling(value, dtype or torch.get_default_dtype(), ())


@refuses("eye.default", "eye.m")
def eye(n: Size, m: Size | None = None, **options: Any) -> None:
    check(not any(size.__class__ is int and size < 0 for size in (n, m)))


WINDOWS = "hann_window hamming_window blackman_window bartlett_window kaiser_window"


@row(*names(WINDOWS, "default", "periodic", "periodic_alpha", "periodic_alpha_beta", "beta"))
def window(length: int, *how: Any, dtype: torch.dtype | None = None, **options: Any) -> TensorSpec:
    """torch's own rules are decompositions that import its compiler."""
    check(length.__class__ is not int or length >= 0)
    check(dtype is None or dtype.is_floating_point or dtype.is_complex)
    return _new((length,), dtype, **options)


@row(*names("empty_like zeros_like ones_like rand_like randn_like clone", "default"))
def like(
    x: TensorSpec, *, dtype: torch.dtype | None = None, device: Any = None, memory_format: Any = None, **others: Any
) -> TensorSpec:
    return TensorSpec(dtype or x.dtype, _device(device, x), x.sizes, with_format(x.sizes, memory_format, x), 0)


@row("full_like.default")
def full_like(x: TensorSpec, value: Any, **options: Any) -> TensorSpec:
    check_number(value, options.get("dtype") or x.dtype)
    return like(x, **options)


@refuses("new_full.default")
def new_full(x: TensorSpec, size: Sequence[Size], value: Any, *, dtype: torch.dtype | None = None, **options: Any) -> None:
    _check_filling(value, dtype or x.dtype, size)


def _arange(start: Any, end: Any, step: Any, dtype: torch.dtype | None = None, **options: Any) -> TensorSpec:
    numbers = (start, end, step)
    if dtype is None:
        dtype = torch.get_default_dtype() if any(isinstance(n, float) for n in numbers) else torch.int64
    if any(isinstance(n, Expr) for n in numbers) and not any(isinstance(n, float) for n in numbers):
        length = -floordiv(start - end, step)
    else:
        length = _arange_length(start, end, step, dtype is torch.int64)
    return _new((length,), dtype, **options)


def _arange_length(start: Any, end: Any, step: Any, of_int64: bool) -> int:
    """The number of elements; doubles count those of other dtypes."""
    check(step != 0 and math.isfinite(start) and math.isfinite(end) and (end - start) * step >= 0)
    if of_int64 and not _torch.ARANGE_COUNTS_BROKEN_STEPS:
        start, end, step = int(start), int(end), int(step)
        check(step != 0, ValueError)
    if of_int64 and not any(isinstance(n, float) for n in (start, end, step)):
        return -((start - end) // step)
    return math.ceil((float(end) - float(start)) / step)


@row("arange.default")
def arange(end: Any, **options: Any) -> TensorSpec:
    return _arange(0, end, 1, **options)


@row("arange.start", "arange.start_step")
def arange_start(start: Any, end: Any, step: Any = 1, **options: Any) -> TensorSpec:
    return _arange(start, end, step, **options)


@row("contiguous.default")
def contiguous_copy(x: TensorSpec, *, memory_format: torch.memory_format = torch.contiguous_format) -> TensorSpec:
    return like(x, memory_format=memory_format)


@row("_to_copy.default")
def to_copy(x: TensorSpec, **options: Any) -> TensorSpec:
    if x.__class__ is TensorSpec:
        return like(x, **options)
    check(
        options.get("dtype") is not None, TypeError
    )  # of a number, which vmap makes a tensor of the dtype that it is computed with
    return _new((), **{**options, "memory_format": None})


@row("copy.default")
def copy(x: TensorSpec, source: TensorSpec, non_blocking: bool = False) -> TensorSpec:
    shape = broadcast_sizes(x.sizes, source.sizes)
    check(len(shape) == len(x.sizes) and not any(m.__class__ is int and m == 1 != n for m, n in zip(x.sizes, shape)))
    return like_self(x)


row("zero.default", *names("bernoulli_", "float", "Tensor"), *names("random_", "default", "from"), reads="self")(like_self)
row("bernoulli.Tensor", reads="self")(like_self)
row(*names("bernoulli", "default", "p"), *names("poisson rrelu_with_noise", "default"), reads="self")(row_major)


@row("rrelu_with_noise_functional.default")
def rrelu_with_noise_functional(x: TensorSpec, noise: TensorSpec, *rest: Any, **options: Any) -> tuple[Any, ...]:
    return fresh(x, x.sizes), like_self(noise)


@row("normal.Tensor_float", "normal.Tensor_Tensor", "normal.float_Tensor")
def normal_of_tensors(mean: Any, std: Any = 1.0, *, generator: torch.Generator | None = None) -> TensorSpec:
    """Row-major whatever the arguments are."""
    given = [t for t in (mean, std) if t.__class__ is TensorSpec]
    if not all(t.dtype.is_floating_point for t in given):
        return NotImplemented
    return fresh(given[0], broadcast_sizes(*[t.sizes for t in given]))


DISTRIBUTIONS: dict[str, tuple[bool, tuple[float, ...], Callable[..., bool]]] = {
    "uniform": (False, (0.0, 1.0), operator.le),
    "normal": (False, (0.0, 1.0), lambda mean, std: std >= 0),
    "exponential": (False, (1.0,), lambda lambd: lambd > 0),
    "cauchy": (True, (0.0, 1.0), lambda median, sigma: sigma > 0),
    "log_normal": (True, (1.0, 2.0), lambda mean, std: std > 0),
    "geometric": (False, (), lambda p: 0 < p < 1),
}
"""name -> whether only floating tensors are filled with it, parameters that are not given, what holds of all."""


def _fills(name: str, is_continuous: bool, defaults: tuple[Any, ...], holds: Callable[..., bool]) -> None:
    def rule(x: TensorSpec, *given: Any, generator: torch.Generator | None = None) -> TensorSpec:
        check(holds(*given, *defaults[len(given) :]))
        check(not is_continuous or x.dtype.is_floating_point)
        return like_self(x)

    row(f"{name}_.default", f"{name}_functional.default" if name == "normal" else f"{name}.default")(rule)


for _name, _facts in DISTRIBUTIONS.items():
    _fills(_name, *_facts)


@row(
    "binomial.default",
    "_sample_dirichlet.default",
    "_standard_gamma.default",
    "_standard_gamma_grad.default",
    "_dirichlet_grad.default",
)
def of_first_argument(x: TensorSpec, *rest: Any, generator: torch.Generator | None = None) -> TensorSpec:
    """Row-major, in the sizes of the first argument, to which the caller has broadcast the others."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    return fresh(x, x.sizes)


@row("repeat.default")
def repeat(x: TensorSpec, repeats: Sequence[Size]) -> TensorSpec:
    lead = len(repeats) - x.ndim
    check(lead >= 0)
    sizes = tuple(r * (x.sizes[i - lead] if i >= lead else 1) for i, r in enumerate(repeats))
    check(not any(size.__class__ is int and size < 0 for size in sizes))
    return fresh(x, sizes)


@row("multinomial.default", reads="self num_samples replacement")
def multinomial(x: TensorSpec, num_samples: int, replacement: bool) -> TensorSpec:
    check(x.dtype.is_floating_point and x.ndim in (1, 2) and num_samples > 0)
    categories = x.sizes[-1]
    check(categories.__class__ is not int or categories <= 2**24 and (replacement or num_samples <= categories))
    return fresh(x, (*x.sizes[:-1], num_samples), torch.int64)

"""List ops are their single form applied to each element; fused optimizers are written out per parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .._torch import OpOverload
from ..op import PrimValue, Scalar, prims
from ..promotion import compute_dtype
from . import memory, pointwise, reduction
from .table import DECOMPS, Operand, Rule, aten, decomposition, overloads_of, to

# --- lists

UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt "
    "sigmoid sign sin sinh sqrt tan tanh trunc"
)
# list op -> single op with two operands
BINARY: dict[str, Callable[..., PrimValue]] = {
    "add": pointwise.add,
    "sub": pointwise.sub,
    "mul": pointwise.mul,
    "div": pointwise.div,
    "pow": pointwise.pow,
    "maximum": pointwise.clamp_min,
    "minimum": pointwise.clamp_max,
    "clamp_min": pointwise.clamp_min,
    "clamp_max": pointwise.clamp_max,
}
TERNARY: dict[str, Callable[..., PrimValue]] = {"addcmul": pointwise.addcmul, "addcdiv": pointwise.addcdiv}


def _overload(name: str, overload: str) -> OpOverload | None:
    return getattr(getattr(aten, f"_foreach_{name}", None), overload, None)


def _file(name: str, overload: str, rule: Rule) -> None:
    found = _overload(name, overload)
    if found is not None:
        DECOMPS[found] = rule


def _each(single: Rule) -> Rule:
    return lambda xs: tuple([single(x) for x in xs])


def _with_list(single: Rule) -> Rule:
    return lambda xs, others, **options: tuple([single(x, y, **options) for x, y in zip(xs, others, strict=True)])


def _with_one(single: Rule) -> Rule:
    return lambda xs, other, **options: tuple([single(x, other, **options) for x in xs])


def _numbers(scalars: Operand | Sequence[Scalar], count: int) -> Iterator[Operand]:
    """One factor per element: a number for all, a list of numbers, or a 1-d tensor of them."""
    if scalars.__class__ is PrimValue:
        return iter([prims.select(scalars, 0, i) for i in range(count)])
    return iter(scalars if isinstance(scalars, Sequence) else [scalars] * count)


def _addc(single: Rule) -> Rule:
    def rule(
        xs: Sequence[PrimValue], lefts: Sequence[PrimValue], rights: Sequence[PrimValue], scalars: Operand | Sequence[Scalar] = 1
    ) -> Sequence[PrimValue]:
        factors = _numbers(scalars, len(xs))
        return tuple([_scaled_addc(single, x, a, b, next(factors)) for x, a, b in zip(xs, lefts, rights, strict=True)])

    return rule


def _scaled_addc(single: Rule, x: PrimValue, a: PrimValue, b: PrimValue, factor: Operand) -> PrimValue:
    if factor.__class__ is PrimValue:
        return single(x, prims.mul(a, to(factor, a.dtype)), b)
    return single(x, a, b, value=factor)


for _name in UNARY.split():
    _file(_name, "default", _each(DECOMPS[getattr(aten, _name).default]))
for _name, _single in BINARY.items():
    for _form, _maker in (("List", _with_list), ("ScalarList", _with_list), ("Scalar", _with_one), ("Tensor", _with_one)):
        _file(_name, _form, _maker(_single))
for _name, _single in TERNARY.items():
    for _form in ("Scalar", "ScalarList", "Tensor"):
        _file(_name, _form, _addc(_single))


def _powers(number: Scalar, exponents: Sequence[PrimValue]) -> tuple[PrimValue, ...]:
    return tuple([pointwise.pow(number, e) for e in exponents])


def _lerp(
    xs: Sequence[PrimValue], ends: Sequence[PrimValue], weight: float | Sequence[float | PrimValue]
) -> tuple[PrimValue, ...]:
    weights = weight if isinstance(weight, (list, tuple)) else [weight] * len(xs)
    return tuple([pointwise.lerp(x, e, w) for x, e, w in zip(xs, ends, weights, strict=True)])


def _norm(xs: Sequence[PrimValue], ord: float = 2, dtype: torch.dtype | None = None) -> tuple[PrimValue, ...]:
    found = [reduction.linalg_vector_norm(x, ord, None, False, dtype=dtype) for x in xs]
    return NotImplemented if any(f is NotImplemented for f in found) else tuple(found)


_file("pow", "ScalarAndTensor", _powers)
_file("max", "default", _each(reduction.max))
for _form in ("List", "Scalar", "ScalarList"):
    _file("lerp", _form, _lerp)
_file("norm", "Scalar", _norm)
_file("zero", "default", _each(lambda x: prims.full(x.sizes, 0, x.dtype, x.device)))
_file("clone", "default", lambda xs, *, memory_format=None: tuple([prims.clone(x) for x in xs]))
_file("copy", "default", lambda xs, sources, non_blocking=False: tuple([memory.copy(x, s) for x, s in zip(xs, sources)]))


# --- fused optimizers; all arithmetic in the parameters' computing dtype, bias corrections in float64 as the kernels do


def _number(value: PrimValue | float, dtype: torch.dtype) -> PrimValue | float:
    return to(value, dtype) if value.__class__ is PrimValue else value


def _gradient(
    grad: PrimValue, dtype: torch.dtype, maximize: bool, grad_scale: PrimValue | None, found_inf: PrimValue | None
) -> tuple[PrimValue, PrimValue]:
    """The gradient to apply, and what the kernel leaves in grads (unscaled, unless it does nothing at all)."""
    g = to(grad, dtype)
    left = grad
    if grad_scale is not None:
        g = prims.div(g, to(grad_scale, dtype))
        left = _kept_when_inf(found_inf, grad, to(g, grad.dtype))
    return (prims.neg(g) if maximize else g), left


def _kept_when_inf(found_inf: PrimValue | None, old: PrimValue, new: PrimValue) -> PrimValue:
    return new if found_inf is None else prims.where(prims.eq(prims.reshape(found_inf, ()), 1), old, new)


def _correction(beta: float, step: PrimValue) -> PrimValue:
    return prims.sub(1, prims.pow(beta, to(step, torch.float64)))


def _adam_step(
    p: PrimValue,
    g: PrimValue,
    m: PrimValue,
    v: PrimValue,
    largest: PrimValue | None,
    step: PrimValue,
    decoupled: bool,
    o: dict[str, Any],
) -> tuple[PrimValue, PrimValue, PrimValue, PrimValue | None]:
    """New parameter, first and second moment and largest second moment; operands are wide."""
    dtype, lr = p.dtype, o["lr"]
    if o["weight_decay"]:
        if decoupled:
            rate = prims.mul(_number(lr, dtype), o["weight_decay"]) if lr.__class__ is PrimValue else lr * o["weight_decay"]
            p = prims.sub(p, prims.mul(p, rate))
        else:
            g = prims.add(g, prims.mul(p, o["weight_decay"]))
    beta1, beta2 = o["beta1"], o["beta2"]
    m = prims.add(prims.mul(m, beta1), prims.mul(g, 1 - beta1))
    v = prims.add(prims.mul(v, beta2), prims.mul(prims.mul(g, g), 1 - beta2))
    largest = None if largest is None else prims.maximum(largest, v)
    lr64 = to(lr, torch.float64)
    step_size = to(prims.div(lr64, _correction(beta1, step)), dtype)
    root = to(prims.sqrt(_correction(beta2, step)), dtype)
    denominator = prims.add(prims.div(prims.sqrt(v if largest is None else largest), root), o["eps"])
    return prims.sub(p, prims.div(prims.mul(m, step_size), denominator)), m, v, largest


def _fused_adam(decoupled: bool) -> Rule:
    def rule(
        params: Sequence[PrimValue],
        grads: Sequence[PrimValue],
        first: Sequence[PrimValue],
        second: Sequence[PrimValue],
        largest: Sequence[PrimValue],
        steps: Sequence[PrimValue],
        *,
        amsgrad: bool,
        maximize: bool,
        grad_scale: PrimValue | None = None,
        found_inf: PrimValue | None = None,
        **options: Any,
    ) -> tuple[Sequence[PrimValue], ...]:
        out: list[list[PrimValue]] = [[], [], [], [], []]
        for i, p in enumerate(params):
            dtype = compute_dtype(p.dtype)
            old = [p, first[i], second[i], *([largest[i]] if amsgrad else [])]
            values = [to(t, dtype) for t in old]
            g, left = _gradient(grads[i], dtype, maximize, grad_scale, found_inf)
            new = _adam_step(values[0], g, values[1], values[2], values[3] if amsgrad else None, steps[i], decoupled, options)
            kept = [_kept_when_inf(found_inf, o, to(n, o.dtype)) for o, n in zip(old, new)]
            out[0].append(kept[0])
            out[1].append(left)
            for slot, value in zip(out[2:], kept[1:]):
                slot.append(value)
        if not amsgrad:
            out[4] = list(largest)
        return tuple(tuple(o) for o in out)

    return rule


decomposition(aten._fused_adam, aten._fused_adam.tensor_lr)(_fused_adam(False))
decomposition(aten._fused_adamw, aten._fused_adamw.tensor_lr)(_fused_adam(True))


@decomposition(aten._fused_sgd, aten._fused_sgd.tensor_lr)
def fused_sgd(
    params: Sequence[PrimValue],
    grads: Sequence[PrimValue],
    buffers: Sequence[PrimValue],
    *,
    weight_decay: float,
    momentum: float,
    lr: float | PrimValue,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: PrimValue | None = None,
    found_inf: PrimValue | None = None,
) -> tuple[Sequence[PrimValue], ...]:
    out: tuple[list[PrimValue], ...] = ([], [], [])
    for i, p in enumerate(params):
        dtype = compute_dtype(p.dtype)
        g, left = _gradient(grads[i], dtype, maximize, grad_scale, found_inf)
        y = to(p, dtype)
        if weight_decay:
            g = prims.add(g, prims.mul(y, weight_decay))
        if momentum:
            old = buffers[i]
            buffer = g if is_first_step else prims.add(prims.mul(to(old, dtype), momentum), prims.mul(g, 1 - dampening))
            out[2].append(_kept_when_inf(found_inf, old, to(buffer, old.dtype)))
            g = prims.add(g, prims.mul(buffer, momentum)) if nesterov else buffer
        new = prims.sub(y, prims.mul(g, _number(lr, dtype)))
        out[0].append(_kept_when_inf(found_inf, p, to(new, p.dtype)))
        out[1].append(left)
    return tuple(out[0]), tuple(out[1]), tuple(out[2]) if momentum else tuple(buffers)


@decomposition(*overloads_of("_fused_adagrad", "default"))
def fused_adagrad(
    params: Sequence[PrimValue],
    grads: Sequence[PrimValue],
    sums: Sequence[PrimValue],
    steps: Sequence[PrimValue],
    **options: Any,
) -> tuple[Sequence[PrimValue], ...]:
    return *fused_adagrad_tensor_lr(params, grads, sums, steps, **options), tuple(steps)


@decomposition(*overloads_of("_fused_adagrad", "tensor_lr"))
def fused_adagrad_tensor_lr(
    params: Sequence[PrimValue],
    grads: Sequence[PrimValue],
    sums: Sequence[PrimValue],
    steps: Sequence[PrimValue],
    *,
    lr: PrimValue,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: PrimValue | None = None,
    found_inf: PrimValue | None = None,
) -> tuple[Sequence[PrimValue], ...]:
    out: tuple[list[PrimValue], ...] = ([], [], [])
    for p, grad, old, step in zip(params, grads, sums, steps, strict=True):
        dtype = compute_dtype(p.dtype)
        g, left = _gradient(grad, dtype, maximize, grad_scale, found_inf)
        y = to(p, dtype)
        if weight_decay:
            g = prims.add(g, prims.mul(y, weight_decay))
        total = prims.add(to(old, dtype), prims.mul(g, g))
        decay = prims.add(prims.mul(prims.sub(to(step, torch.float64), 1), lr_decay), 1)
        lr64 = to(lr, torch.float64) if isinstance(lr, PrimValue) else prims.full((), lr, torch.float64, step.device)
        rate = to(prims.div(lr64, decay), dtype)
        new = prims.sub(y, prims.div(prims.mul(g, rate), prims.add(prims.sqrt(total), eps)))
        for slot, value in zip(
            out,
            (_kept_when_inf(found_inf, p, to(new, p.dtype)), left, _kept_when_inf(found_inf, old, to(total, old.dtype))),
            strict=True,
        ):
            slot.append(value)
    return tuple(out[0]), tuple(out[1]), tuple(out[2])

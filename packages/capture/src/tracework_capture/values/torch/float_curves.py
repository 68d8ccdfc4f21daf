"""Activations, sums of products and ranges whose numbers are floats that change, written in arithmetic that takes a tensor for a number.

FLOAT_CURVES: name of a function or method -> form(frame, name, args, kwargs), as the forms of float_operands are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import torch

from ... import _torch
from ..number.float_formulas import answer, computed_int
from ..number.floats import changes
from ..protocol.constant import ConstantValue, force_plain
from ..protocol.kinds import AbstractTensor
from ..protocol.operators import binary, compare
from .dtypes import EXACT, WIDE, as_kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol.value import Frame, Value


def call(frame: Frame, name: str, *args: Any, **kwargs: Any) -> AbstractTensor:
    """A method of tensors that gives one tensor."""
    return cast(AbstractTensor, frame.graph.call_method(frame, name, args, kwargs))


def where(frame: Frame, condition: AbstractTensor, first: Value, second: Value) -> AbstractTensor:
    return cast(AbstractTensor, frame.graph.call(frame, torch.where, (condition, first, second)))


def operand(frame: Frame, value: Any, tensor: AbstractTensor) -> Any:
    """A number, changing or not, as what stands for it in arithmetic with a tensor; a tensor and None are themselves."""
    return value.as_operand(frame, [tensor]) if changes(value) else value


def holds(frame: Frame, op: str, left: Value, right: Value) -> bool:
    """Whether Python finds this of two numbers, which is guarded where one of them changes."""
    found = compare(frame, op, left, right)
    return found is not None and found.truth(frame)


def is_factor(frame: Frame, number: Value) -> bool:
    """Whether it is finite and not 0."""
    found = answer(frame, "(isfinite({0}) and {0} != 0)", number) if changes(number) else None
    if found is None:
        known = force_plain(frame, number)
        return math.isfinite(known) and known != 0
    return found


def arguments(args: list[Value], kwargs: dict[str, Value], defaults: dict[str, Any]) -> list[Any] | None:
    """The arguments by the order of `defaults`, a dict; None where more is given, or one without a default is not."""
    given = dict(zip(defaults, args)) | kwargs
    if len(args) > len(defaults) or not given.keys() <= defaults.keys():
        return None
    found = [given.get(name, default if default is None else ConstantValue(default)) for name, default in defaults.items()]
    return None if None in found else found


def is_number(value: Value) -> bool:
    return changes(value) or (value.is_constant() and type(value.constant()) in (int, float))


def activation(**defaults: float | None) -> Callable[..., Any]:
    """A form of an elementwise curve body(frame, x, *numbers). Halves are computed with in float32 and rounded once, as eager does."""

    def add(body: Callable[..., Any]) -> Callable[..., Any]:
        def form(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
            given = arguments(args, kwargs, {"input": None, **defaults, "inplace": False})
            if given is None or not isinstance(given[0], AbstractTensor) or not all(map(is_number, given[1:-1])):
                return None
            x, kind = given[0], given[0].example.dtype
            if WIDE.get(kind, kind) not in (torch.float32, torch.float64) or given[-1].truth(frame):
                return None
            found = body(frame, as_kind(frame, x, WIDE.get(kind, kind)), *given[1:-1])
            return None if found is None else as_kind(frame, found, kind)

        return form

    return add


def below_zero(frame: Frame, x: AbstractTensor, scaled: AbstractTensor, factor: Value) -> AbstractTensor:
    """x, but expm1(scaled) * factor where it is not positive; nothing overflows where it is not taken."""
    low = call(frame, "le", x, ConstantValue(0))
    curve = call(frame, "expm1", where(frame, low, scaled, ConstantValue(0.0)))
    return where(frame, low, call(frame, "mul", curve, operand(frame, factor, x)), x)


@activation(alpha=1.0)
def elu(frame: Frame, x: AbstractTensor, alpha: Value) -> AbstractTensor | None:
    return below_zero(frame, x, x, alpha) if is_factor(frame, alpha) else None


@activation(alpha=1.0)
def celu(frame: Frame, x: AbstractTensor, alpha: Value) -> AbstractTensor | None:
    if not is_factor(frame, alpha):
        return None
    return below_zero(frame, x, call(frame, "div", x, operand(frame, alpha, x)), alpha)


@activation(beta=1.0, threshold=20.0)
def softplus(frame: Frame, x: AbstractTensor, beta: Value, threshold: Value) -> AbstractTensor | None:
    if not is_factor(frame, beta):
        return None
    scaled = call(frame, "mul", x, operand(frame, beta, x))
    linear = call(frame, "gt", scaled, operand(frame, threshold, x))
    curve = call(frame, "log1p", call(frame, "exp", where(frame, linear, ConstantValue(0.0), scaled)))
    return where(frame, linear, x, call(frame, "div", curve, operand(frame, beta, x)))


@activation(lambd=0.5)
def softshrink(frame: Frame, x: AbstractTensor, lambd: Value) -> AbstractTensor | None:
    if not (holds(frame, ">=", lambd, ConstantValue(0)) and holds(frame, "<=", lambd, ConstantValue(3e38))):
        return None
    high, low = operand(frame, lambd, x), operand(frame, lambd.unary(frame, "-"), x)
    inside = where(frame, call(frame, "isnan", x), x, call(frame, "mul", x, ConstantValue(0)))
    below = where(frame, call(frame, "lt", x, low), call(frame, "sub", x, low), inside)
    return where(frame, call(frame, "gt", x, high), call(frame, "sub", x, high), below)


@activation(lambd=0.5)
def hardshrink(frame: Frame, x: AbstractTensor, lambd: Value) -> AbstractTensor | None:
    if not holds(frame, "==", lambd, lambd):  # for a NaN, eager's vectorised and its plain code give other gradients
        return None
    high, low = operand(frame, lambd, x), operand(frame, lambd.unary(frame, "-"), x)
    inside = call(frame, "logical_and", call(frame, "ge", x, low), call(frame, "le", x, high))
    return where(frame, inside, ConstantValue(0.0), x)


@activation(threshold=None, value=None)
def threshold(frame: Frame, x: AbstractTensor, limit: Value, value: Value) -> AbstractTensor:
    return where(frame, call(frame, "le", x, operand(frame, limit, x)), operand(frame, value, x), x)


@activation(min_val=-1.0, max_val=1.0)
def hardtanh(frame: Frame, x: AbstractTensor, low: Value, high: Value) -> AbstractTensor | None:
    """Unlike clamp it has no gradient at its ends."""
    if not holds(frame, "<=", low, high):
        return None
    low, high = operand(frame, low, x), operand(frame, high, x)
    below = where(frame, call(frame, "ge", x, high), high, x)
    return where(frame, call(frame, "le", x, low), low, below)


def clamped(frame: Frame, end: str, x: AbstractTensor, bound: Value) -> Value:
    """clamp_min or clamp_max, after `end`; where it has no gradient at a bound that is a number, the bound is chosen in place of x."""
    name, number = f"clamp_{end}", operand(frame, bound, x)
    if not has_no_gradient_at(x, bound):
        return call(frame, name, x, number)
    inside = call(frame, "gt" if end == "min" else "lt", x, number)
    return where(frame, inside, x, call(frame, name, call(frame, "detach", x), number))


def clamped_in_place(frame: Frame, end: str, x: AbstractTensor, bound: Value) -> Value:
    """clamp_min_ or clamp_max_"""
    if has_no_gradient_at(x, bound):
        return call(frame, "copy_", x, clamped(frame, end, x, bound))
    return call(frame, f"clamp_{end}_", x, operand(frame, bound, x))


def has_no_gradient_at(x: AbstractTensor, bound: Value) -> bool:
    """Whether eager's clamp has no gradient where x is the bound, which one in a tensor has."""
    return _torch.BOUNDS_TAKE_GRADIENTS and changes(bound) and x.example.requires_grad and torch.is_grad_enabled()


def normalize(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    given = arguments(args, kwargs, {"input": None, "p": 2.0, "dim": 1, "eps": 1e-12})
    if given is None or not isinstance(given[0], AbstractTensor) or not changes(given[3]):
        return None
    x, p, dim, least = given
    norm = call(frame, "norm", x, p, dim, ConstantValue(True))
    return call(frame, "div", x, clamped(frame, "min", norm, least))


def is_exact(value: Value) -> TypeGuard[AbstractTensor]:
    return isinstance(value, AbstractTensor) and value.example.dtype in EXACT


def renorm(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Without a gradient, which would not be eager's where a norm is infinite."""
    given = arguments(args, kwargs, {"input": None, "p": None, "dim": None, "maxnorm": None})
    if given is None or not is_exact(given[0]) or not changes(given[3]) or not given[2].is_constant():
        return None
    x, p, dim, most = given
    if torch.is_grad_enabled() and x.example.requires_grad:
        return None
    if not holds(frame, ">=", most, ConstantValue(0)):
        return None
    ndim = x.example.ndim
    others = tuple(d for d in range(ndim) if d != dim.constant() % ndim)
    norm: Any = frame.graph.call(frame, torch.linalg.vector_norm, (x, p, others, True))
    most = operand(frame, most, norm)
    scale = call(frame, "div", most, call(frame, "add", norm, ConstantValue(1e-7)))
    scale = where(frame, call(frame, "gt", norm, most), scale, ConstantValue(1.0))
    return call(frame, "mul_" if name.endswith("_") else "mul", x, scale)


PRODUCTS = {"addmm": "mm", "addbmm": "bmm", "baddbmm": "bmm", "addmv": "mv", "addr": "outer"}


def added_product(frame: Frame, name: str, args: list[Any], kwargs: dict[str, Value]) -> Value | None:
    """beta * input + alpha * (first @ second); what is multiplied by 0 is not looked at."""
    beta, alpha = (kwargs.get(n, ConstantValue(1)) for n in ("beta", "alpha"))
    if len(args) != 3 or not kwargs.keys() <= {"beta", "alpha"} or not all(map(is_exact, args)):
        return None
    if not (is_factor(frame, beta) and is_factor(frame, alpha)):
        return None
    product: Any = call(frame, PRODUCTS[name.rstrip("_")], *args[1:])
    if name.startswith("addbmm"):
        product = call(frame, "sum", product, ConstantValue(0))
    product = call(frame, "mul", product, operand(frame, alpha, product))
    found: Any = call(frame, "add", call(frame, "mul", args[0], operand(frame, beta, args[0])), product)
    return call(frame, "copy_", args[0], found) if name.endswith("_") else found


def rsub(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """other - alpha * input"""
    given = arguments(args, kwargs, {"input": None, "other": None, "alpha": 1})
    if given is None or not is_exact(given[0]):
        return None
    x, other, alpha = given
    return frame.graph.call(frame, torch.rsub, (call(frame, "mul", x, operand(frame, alpha, x)), operand(frame, other, x)))


AS_USUAL = {"layout": (None, torch.strided), "requires_grad": (None, False), "pin_memory": (None, False), "device": (None,)}
"""What an argument is where it says nothing."""


def without_usual(kwargs: dict[str, Value]) -> dict[str, Value]:
    """The arguments that say something; a dtype of None is none."""
    usual = AS_USUAL | {"dtype": (None,)}
    return {k: v for k, v in kwargs.items() if k not in usual or not v.is_constant() or v.constant() not in usual[k]}


def arange(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """In double precision, as eager computes it; as many numbers as Python finds for each call."""
    kwargs = without_usual(kwargs)
    options = {key: kwargs.pop(key) for key in ("dtype", "device") if key in kwargs}
    dtype = options.pop("dtype", ConstantValue(torch.get_default_dtype()))
    places = ("end",) if len(args) == 1 and "end" not in kwargs else ("start", "end", "step")
    given = {"start": ConstantValue(0), "step": ConstantValue(1)} | dict(zip(places, args)) | kwargs
    if len(args) > len(places) or given.keys() != {"start", "end", "step"} or not all(map(is_number, given.values())):
        return None
    if dtype.constant() not in EXACT or dtype.constant().is_complex:
        return None
    start, end, step = (given[key] for key in ("start", "end", "step"))
    count = computed_int(frame, "ceil(({} - {}) / {})", end, start, step)
    if count is None:
        return None
    place: Any = frame.graph.call(frame, torch.arange, (count,), {"dtype": ConstantValue(torch.float64), **options})
    found: Any = call(frame, "mul", place, operand(frame, step, place))
    return as_kind(frame, call(frame, "add", found, operand(frame, start, place)), dtype.constant())


def linspace(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """From both ends to the middle, as eager computes it."""
    kwargs = without_usual(kwargs)
    options: dict[str, Any] = {"dtype": ConstantValue(torch.get_default_dtype())}
    options |= {key: kwargs.pop(key) for key in ("dtype", "device") if key in kwargs}
    given = arguments(args, kwargs, {"start": None, "end": None, "steps": None})
    if given is None or not all(map(is_number, given[:2])) or not given[2].is_constant():
        return None
    start, end, count = *given[:2], given[2].constant()
    if type(count) is not int or count < 2 or options["dtype"].constant() not in EXACT:
        return None
    place: Any = frame.graph.call(frame, torch.arange, (count,), options)
    step: Any = binary(frame, "/", binary(frame, "-", end, start), ConstantValue(count - 1))
    step, start, end = (operand(frame, v, place) for v in (step, start, end))
    up = call(frame, "add", call(frame, "mul", place, step), start)
    left = frame.graph.call(frame, torch.rsub, (place, count - 1))
    down = frame.graph.call(frame, torch.rsub, (call(frame, "mul", left, step), end))
    return where(frame, call(frame, "lt", place, count // 2), up, down)


FLOAT_CURVES = {
    "elu": elu,
    "celu": celu,
    "softplus": softplus,
    "softshrink": softshrink,
    "hardshrink": hardshrink,
    "threshold": threshold,
    "_threshold": threshold,
    "hardtanh": hardtanh,
    "normalize": normalize,
    "rsub": rsub,
    "arange": arange,
    "linspace": linspace,
    "renorm": renorm,
    "renorm_": renorm,
    **dict.fromkeys([n + end for n in PRODUCTS for end in ("", "_")], added_product),
}

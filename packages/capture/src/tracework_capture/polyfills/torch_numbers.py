"""Functions of torch that take a number, for floats that change from call to call: the same arithmetic with a tensor of one number.

Each is traced in place of the functions and methods whose names it has, by which it is told in its first argument. It gives NotImplemented
where a tensor would round otherwise than eager does with a number, or another operator's gradient would differ; the float is fixed then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, where

from .._torch.functions import BOUNDS_TAKE_GRADIENTS, foreach_gives_lists, nan_alone_is_no_bound
from . import folded

ORDERED = frozenset(kind for kind in vars(torch).values() if isinstance(kind, torch.dtype) and not kind.is_complex)
REAL = frozenset(kind for kind in ORDERED if kind.is_floating_point)
EXACT = frozenset((torch.float32, torch.float64, torch.complex64, torch.complex128))
"""Dtypes in which eager computes with as many digits as they store."""
WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
CURVED = frozenset((torch.float32, torch.float64, *WIDE))


class Form(NamedTuple):
    """What is traced where the argument `number` is the one float that changes, or any is where that is None, and the tensors `of` are of
    these dtypes."""

    function: Callable[..., Any]
    number: str | None
    dtypes: frozenset[torch.dtype]
    of: tuple[str, ...]

    @property
    def place(self) -> str:
        """file:line"""
        code = self.function.__code__
        return f"{code.co_filename}:{code.co_firstlineno}"


FORMS: dict[str, Form] = {}
"""By the names of functions and methods."""


def form(
    *names: str, number: str | None = None, dtypes: frozenset[torch.dtype] = REAL, of: tuple[str, ...] = ("input",)
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Files a form."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        FORMS.update(dict.fromkeys(names, Form(function, number, dtypes, of)))
        return function

    return add


def both(*names: str) -> list[str]:
    """The names, and those of the functions that write."""
    return [name + end for name in names for end in ("", "_")]


# --- what tracing knows of numbers (values/torch/float_forms.py), and what that is in eager mode ------------------------------------


def changes(value: object) -> bool:
    """Whether it is a float without a number that is known while tracing."""
    return type(value) is float


def as_tensor(number: float) -> Tensor:
    """A float that changes as a tensor of one number in double precision, another number as a tensor of its own kind."""
    return torch.full((), number, dtype=torch.float64)


def operand(value: Any, tensor: Tensor) -> Any:
    """A float that changes as what stands for it in arithmetic with a tensor; other numbers, tensors and None are themselves."""
    return as_tensor(value) if changes(value) else value


def in_dtype(number: float, dtype: torch.dtype) -> Tensor:
    """A float that changes as a tensor of one number of this dtype."""
    return torch.full((), number, dtype=dtype)


def is_factor(number: float) -> bool:
    """Whether it is finite and not 0."""
    return math.isfinite(number) and number != 0


def count_of(start: float, end: float, step: float) -> int | None:
    """How many numbers torch.arange gives; None where Python cannot compute it for each call."""
    return math.ceil((end - start) / step) if step else None


def are_numbers(*values: object) -> bool:
    return all(changes(value) or type(value) in (int, float) for value in values)


def as_kind(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in this dtype; itself when it has it."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


# --- bounds and choices ---------------------------------------------------------------------------------------------------------------


def has_no_gradient_at(x: Tensor, bound: Any) -> bool:
    """Whether eager's clamp has no gradient where x is the bound, which one in a tensor has."""
    return BOUNDS_TAKE_GRADIENTS and changes(bound) and x.requires_grad and torch.is_grad_enabled()


def clamped(end: str, x: Tensor, bound: Any) -> Tensor:
    """clamp_min or clamp_max, after `end`; where it has no gradient at a bound that is a number, the bound is chosen in place of x."""
    number, name = operand(bound, x), f"clamp_{end}"
    if not has_no_gradient_at(x, bound):
        return getattr(x, name)(number)  # type: ignore[no-any-return]
    inside = x.gt(number) if end == "min" else x.lt(number)
    return where(inside, x, getattr(x.detach(), name)(number))


@folded
def nan_is_no_bound() -> bool:
    return nan_alone_is_no_bound()


@form(*both("clamp", "clip", "clamp_min"), dtypes=ORDERED)
def clamp(name: str, input: Tensor, min: Any = None, max: Any = None) -> Any:
    """The lower bound first, so that the upper one wins as in eager."""
    found, bounds = input, [(end, bound) for end, bound in (("min", min), ("max", max)) if bound is not None]
    for end, bound in bounds:
        if not name.endswith("_"):
            found = clamped(end, found, bound)
        elif has_no_gradient_at(input, bound):
            input.copy_(clamped(end, input, bound))
        else:
            getattr(input, f"clamp_{end}_")(operand(bound, input))
    if name == "clamp" and len(bounds) == 1 and changes(bounds[0][1]) and nan_is_no_bound():
        number = operand(bounds[0][1], input)
        return where(number.ne(number), input.detach(), found)
    return found


@form(*both("clamp_max"), dtypes=ORDERED)
def clamp_max(name: str, input: Tensor, max: Any) -> Any:
    return clamp(name.replace("clamp_max", "clip"), input, None, max)


@form("where", of=())
def chosen(name: str, condition: Tensor, input: Any, other: Any) -> Any:
    tensors = [value for value in (input, other) if isinstance(value, Tensor)]
    if not tensors:  # two numbers, one of them a float, make a tensor of the default dtype
        first, second = as_tensor(input), as_tensor(other)
        return where(condition, first.to(torch.get_default_dtype()), second.to(torch.get_default_dtype()))
    if not tensors[0].dtype.is_floating_point:
        return NotImplemented
    return where(condition, operand(input, tensors[0]), operand(other, tensors[0]))


# --- numbers that are stored ------------------------------------------------------------------------------------------------------------


@form(*both("fill"), number="value")
def filled(name: str, input: Tensor, value: float) -> Tensor:
    number = in_dtype(value, input.dtype)
    return input.fill_(number) if name.endswith("_") else torch.fill(input, number)


@form(*both("masked_fill"), number="value")
def masked_fill(name: str, input: Tensor, mask: Tensor, value: float) -> Any:
    return getattr(input, name)(mask, in_dtype(value, input.dtype))


@form("full", "full_like", "new_full", "scalar_tensor", of=())
def made(name: str, *args: Any, **options: Any) -> Any:
    """Memory, then the number in it, not in place: the tensor was not written to."""
    *given, number = (*args, options.pop("fill_value")) if "fill_value" in options else args
    if not changes(number) or not {"size", "dtype", "device", "memory_format"}.issuperset(options):
        return NotImplemented
    if name == "new_full":
        memory = given[0].new_empty(*given[1:], **options)
    elif name == "scalar_tensor":
        memory = torch.empty((), **options)
    else:
        memory = (torch.empty if name == "full" else torch.empty_like)(*given, **options)
    return filled("fill", memory, number) if memory.dtype.is_floating_point else NotImplemented


@form("fill_diagonal_", number="fill_value")
def fill_diagonal(name: str, input: Tensor, fill_value: float) -> Any:
    """Of a matrix."""
    if input.ndim != 2:
        return NotImplemented
    input.diagonal().copy_(in_dtype(fill_value, input.dtype))
    return input


@form("pad", number="value")
def padded(name: str, input: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> Any:
    """Zeros, which the number takes the place of."""
    if mode != "constant":
        return NotImplemented
    inside, values = torch.ones_like(input, dtype=torch.bool), input.contiguous()
    return where(F.pad(inside, pad), F.pad(values, pad), in_dtype(value, input.dtype))


@form("constant_pad_nd", number="value")
def constant_pad(name: str, input: Tensor, pad: Sequence[int], value: float) -> Any:
    return padded(name, input, pad, "constant", value)


@form(*both("index_fill", "scatter"), number="value")
def at_indices(name: str, input: Tensor, dim: int, index: Any, value: float) -> Any:
    """The same with a tensor of the number at all places."""
    known = type(dim) is int and isinstance(index, Tensor) and input.ndim > 0 and index.ndim > 0
    if not known or not -input.ndim <= dim < input.ndim:
        return NotImplemented
    sizes = list(index.shape)
    if name.startswith("index_fill"):
        sizes = list(input.shape)
        sizes[dim] = index.shape[0]
    numbers = in_dtype(value, input.dtype).expand(tuple(sizes))
    return getattr(input, name.replace("index_fill", "index_copy"))(dim, index, numbers)


@form(*both("index_add"), number="alpha", dtypes=EXACT & REAL, of=("input", "source"))
def index_add(name: str, input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float) -> Any:
    if source.dtype != input.dtype:
        return NotImplemented
    return getattr(input, name)(dim, index, source.mul(operand(alpha, source)))


@form("searchsorted", number="number", of=("places",))
def searchsorted(name: str, places: Tensor, number: float, /, **options: Any) -> Any:
    return torch.searchsorted(places, in_dtype(number, places.dtype), **options)


@form("bucketize", number="number", of=("places",))
def bucketize(name: str, number: float, places: Tensor, /, **options: Any) -> Any:
    return torch.bucketize(in_dtype(number, places.dtype), places, **options)


# --- elementwise ------------------------------------------------------------------------------------------------------------------------


@form(*both("lerp"), number="weight", dtypes=EXACT)
def lerp(name: str, input: Tensor, end: Tensor, weight: float) -> Any:
    """Its tensors are of one dtype, the weight's too."""
    return getattr(input, name)(end, in_dtype(weight, input.dtype))


OF_TWO = (
    "copysign divide eq floor_divide fmod ge greater greater_equal gt le less less_equal lt multiply ne not_equal remainder true_divide"
    " xlogy special_xlogy special_xlog1py special_zeta"
)


@form(*both(*OF_TWO.split()), of=())
def of_two(name: str, input: Any, other: Any) -> Any:
    """An elementwise function of two, as which the operators of Python are written, too; the number is a tensor without dims."""
    tensor = other if changes(input) else input
    if changes(input) == changes(other) or not isinstance(tensor, Tensor) or tensor.dtype.is_complex:
        return NotImplemented
    first, second = operand(input, tensor), operand(other, tensor)
    if not isinstance(first, Tensor) or not isinstance(second, Tensor):
        return NotImplemented
    if name.endswith("_"):
        return getattr(first, name)(second)
    return getattr(torch.special if name.startswith("special_") else torch, name.removeprefix("special_"))(first, second)


@form("pow", of=())
def power(name: str, input: Any, exponent: Any) -> Any:
    tensor = input if isinstance(input, Tensor) else exponent
    exact = isinstance(tensor, Tensor) and tensor.dtype in EXACT
    if not exact or not all(isinstance(value, Tensor) or changes(value) for value in (input, exponent)):
        return NotImplemented
    return torch.pow(operand(input, tensor), operand(exponent, tensor))


@form("leaky_relu")
def leaky_relu(name: str, input: Tensor, negative_slope: Any = 0.01, inplace: bool = False) -> Any:
    if inplace:
        return NotImplemented
    positive, scaled = input.gt(0), input.mul(operand(negative_slope, input))
    return where(positive, input, scaled)


@form("rsub", dtypes=EXACT)
def rsub(name: str, input: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    return torch.rsub(input.mul(operand(alpha, input)), operand(other, input))


# --- activations: halves are computed with in float32 and rounded once, as eager does ---------------------------------------------------


@folded
def wide(dtype: torch.dtype) -> torch.dtype:
    return WIDE.get(dtype, dtype)


def widened(x: Tensor) -> Tensor:
    return as_kind(x, wide(x.dtype))


def below_zero(x: Tensor, scaled: Tensor, factor: Any) -> Tensor:
    """x, but expm1(scaled) * factor where it is not positive; nothing overflows where it is not taken."""
    low = x.le(0)
    curve = where(low, scaled, 0.0).expm1()
    return where(low, curve.mul(operand(factor, x)), x)


@form("elu", "celu", dtypes=CURVED)
def elu(name: str, input: Tensor, alpha: Any = 1.0, inplace: bool = False) -> Any:
    if inplace or not are_numbers(alpha) or not is_factor(alpha):
        return NotImplemented
    x = widened(input)
    return as_kind(below_zero(x, x.div(operand(alpha, x)) if name == "celu" else x, alpha), input.dtype)


@form("softplus", dtypes=CURVED)
def softplus(name: str, input: Tensor, beta: Any = 1.0, threshold: Any = 20.0) -> Any:
    if not are_numbers(beta, threshold) or not is_factor(beta):
        return NotImplemented
    x = widened(input)
    scaled = x.mul(operand(beta, x))
    linear = scaled.gt(operand(threshold, x))
    curve = where(linear, 0.0, scaled).exp().log1p()
    return as_kind(where(linear, x, curve.div(operand(beta, x))), input.dtype)


@form("softshrink", number="lambd", dtypes=CURVED)
def softshrink(name: str, input: Tensor, lambd: float = 0.5) -> Any:
    if not (lambd >= 0 and lambd <= 3e38):
        return NotImplemented
    x = widened(input)
    high, low = operand(lambd, x), operand(-lambd, x)
    inside = where(x.isnan(), x, x.mul(0))
    below = where(x.lt(low), x.sub(low), inside)
    return as_kind(where(x.gt(high), x.sub(high), below), input.dtype)


@form("hardshrink", number="lambd", dtypes=CURVED)
def hardshrink(name: str, input: Tensor, lambd: float = 0.5) -> Any:
    if lambd != lambd:  # for a NaN, eager's vectorised and its plain code give other gradients
        return NotImplemented
    x = widened(input)
    high, low = operand(lambd, x), operand(-lambd, x)
    return as_kind(where(x.ge(low).logical_and(x.le(high)), 0.0, x), input.dtype)


@form("threshold", "_threshold", "threshold_", dtypes=CURVED)
def threshold(name: str, input: Tensor, threshold: Any, value: Any, inplace: bool = False) -> Any:
    if inplace or not are_numbers(threshold, value):
        return NotImplemented
    x = widened(input)
    found = as_kind(where(x.le(operand(threshold, x)), operand(value, x), x), input.dtype)
    return input.copy_(found) if name.endswith("_") else found


@form("hardtanh", dtypes=CURVED)
def hardtanh(name: str, input: Tensor, min_val: Any = -1.0, max_val: Any = 1.0, inplace: bool = False) -> Any:
    """Unlike clamp it has no gradient at its ends."""
    if inplace or not are_numbers(min_val, max_val) or not min_val <= max_val:
        return NotImplemented
    x = widened(input)
    low, high = operand(min_val, x), operand(max_val, x)
    below = where(x.ge(high), high, x)
    return as_kind(where(x.le(low), low, below), input.dtype)


# --- norms and products -----------------------------------------------------------------------------------------------------------------


@form("normalize", number="eps", dtypes=REAL | EXACT)
def normalize(name: str, input: Tensor, p: Any = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    return input.div(clamped("min", input.norm(p, dim, True), eps))


@form(*both("renorm"), number="maxnorm", dtypes=EXACT)
def renorm(name: str, input: Tensor, p: Any, dim: int, maxnorm: float) -> Any:
    """Without a gradient, which would not be eager's where a norm is infinite."""
    if torch.is_grad_enabled() and input.requires_grad or not maxnorm >= 0:
        return NotImplemented
    others = tuple(d for d in range(input.ndim) if d != dim % input.ndim)
    norm = torch.linalg.vector_norm(input, p, others, True)
    most = operand(maxnorm, norm)
    scale = where(norm.gt(most), most.div(norm.add(1e-7)), 1.0)
    return input.mul_(scale) if name.endswith("_") else input.mul(scale)


PRODUCTS = {"addmm": "mm", "addbmm": "bmm", "baddbmm": "bmm", "addmv": "mv", "addr": "outer"}


@folded
def product_of(name: str) -> str:
    return PRODUCTS[name.rstrip("_")]


@form(*both(*PRODUCTS), dtypes=EXACT, of=("input", "first", "second"))
def added_product(name: str, input: Tensor, first: Tensor, second: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta * input + alpha * (first @ second); what is multiplied by 0 is not looked at."""
    if not is_factor(beta) or not is_factor(alpha):
        return NotImplemented
    product = getattr(first, product_of(name))(second)
    if name.startswith("addbmm"):
        product = product.sum(0)
    product = product.mul(operand(alpha, product))
    found = input.mul(operand(beta, input)).add(product)
    return input.copy_(found) if name.endswith("_") else found


@form("batch_norm", number="momentum", of=())
def batch_norm(
    name: str, input: Tensor, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float | None = None,
) -> Tensor:  # fmt: skip
    """The operator gives the batch's own statistics, which are averaged with the running ones here, in double precision as its kernel on
    the CPU does."""
    share, options = as_tensor(momentum), {} if eps is None else {"eps": eps}
    if not training or running_mean is None or running_var is None:
        return F.batch_norm(input, running_mean, running_var, weight, bias, bool(training), 0.0, **options)
    own = torch.zeros_like(running_mean), torch.zeros_like(running_var)
    found = F.batch_norm(input, own[0], own[1], weight, bias, training, 1.0, **options)
    rest = torch.rsub(share, 1.0)
    for new, old in zip(own, (running_mean, running_var)):
        parts = as_kind(new, torch.float64).mul(share), as_kind(old, torch.float64).mul(rest)
        old.data.copy_(parts[0].add(parts[1]))  # eager's does not count as a write
    return found


# --- ranges -----------------------------------------------------------------------------------------------------------------------------


def options_of_range(
    dtype: Any = None, device: Any = None, layout: Any = None, pin_memory: Any = None, requires_grad: Any = None
) -> dict[str, Any] | None:
    """The dtype, and the device where it is given; None where more is asked for."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if layout not in (None, torch.strided) or pin_memory or requires_grad or dtype not in EXACT:
        return None
    return {"dtype": dtype} if device is None else {"dtype": dtype, "device": device}


@form("arange", of=())
def arange(name: str, start: Any = 0, end: Any = None, step: Any = 1, **options: Any) -> Any:
    """In double precision, as eager computes it; as many numbers as Python finds for each call."""
    given = options_of_range(**options)
    start, end = (0, start) if end is None else (start, end)
    count = count_of(start, end, step) if are_numbers(start, end, step) else None
    if given is None or given["dtype"].is_complex or count is None:
        return NotImplemented
    place = torch.arange(count, **given | {"dtype": torch.float64})
    return as_kind(place.mul(operand(step, place)).add(operand(start, place)), given["dtype"])


@form("linspace", of=())
def linspace(name: str, start: Any, end: Any, steps: int, **options: Any) -> Any:
    """From both ends to the middle, as eager computes it."""
    given = options_of_range(**options)
    if given is None or not are_numbers(start, end) or type(steps) is not int or steps < 2:
        return NotImplemented
    place = torch.arange(steps, **given)
    step, first, last = (operand(value, place) for value in ((end - start) / (steps - 1), start, end))
    up = place.mul(step).add(first)
    down = torch.rsub(torch.rsub(place, steps - 1).mul(step), last)
    return where(place.lt(steps // 2), up, down)


@form("gradient")
def gradient(name: str, input: Tensor, spacing: Any, dim: Any = None, edge_order: int = 1) -> Any:
    """Of places that lie one number apart in each dim, in eager's order of operations."""
    dims = list(range(input.ndim)) if dim is None else [dim] if type(dim) is int else list(dim)
    dims = [d % input.ndim for d in dims]
    spacings = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    known = edge_order in (1, 2) and len(set(dims)) == len(dims) == len(spacings) and are_numbers(*spacings)
    if not known or any(input.shape[d] <= edge_order for d in dims):
        return NotImplemented
    found = []
    for apart, along in zip(spacings, dims):
        count = input.shape[along]
        parts = [input.narrow(along, place, 1) for place in (0, 1, count - 2, count - 1)]
        if edge_order == 1:
            first, last = parts[1] - parts[0], parts[3] - parts[2]
        else:
            first = -1.5 * parts[0] + 2 * parts[1] - 0.5 * input.narrow(along, 2, 1)
            last = 1.5 * parts[3] - 2 * parts[2] + 0.5 * input.narrow(along, count - 3, 1)
        between = input.narrow(along, 2, count - 2) - input.narrow(along, 0, count - 2)
        found.append(torch.cat([first / apart, between / apart / 2, last / apart], along))
    return tuple(found)


# --- lists and optimizers ---------------------------------------------------------------------------------------------------------------


EACH = {name: name for name in ("add", "sub", "mul", "div", "pow", "lerp", "clamp_min", "clamp_max")}
EACH |= {"maximum": "clamp_min", "minimum": "clamp_max"}  # with a number


@folded
def method_of(name: str) -> str:
    return EACH[name.removeprefix("_foreach_").rstrip("_")] + ("_" if name.endswith("_") else "")


@folded
def writers_give_lists() -> bool:
    return foreach_gives_lists()


@form(*both(*(f"_foreach_{name}" for name in EACH)), of=())
def each(name: str, tensors: Any, other: Any, /, *others: Any) -> Any:
    """The results of the method of each tensor, as eager computes them; of those that write the list."""
    if not isinstance(tensors, (list, tuple)) or not all(isinstance(tensor, Tensor) for tensor in tensors):
        return NotImplemented
    columns = [column if isinstance(column, (list, tuple)) else [column] * len(tensors) for column in (other, *others)]
    if any(len(column) != len(tensors) for column in columns):
        return NotImplemented
    made = [getattr(tensor, method_of(name))(*row) for tensor, *row in zip(tensors, *columns)]
    if name.endswith("_"):
        return tensors if writers_give_lists() else None
    return tuple(made)


STEPS = ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")


@form(*(name for name in STEPS if "tensor_lr" in getattr(torch.ops.aten, name).overloads()), number="lr", of=())
def fused_step(name: str, *args: Any, **options: Any) -> Any:
    """The step of an optimizer, whose learning rate may be a tensor."""
    options["lr"] = as_tensor(options["lr"])
    return getattr(torch, name)(*args, **options)

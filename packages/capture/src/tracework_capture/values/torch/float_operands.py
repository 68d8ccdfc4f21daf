"""Operators that take a number, for floats that change from call to call: the same arithmetic on a tensor of one number.

TENSOR_FORMS: name of a function or method -> form(frame, fn, operands, kwargs), which gives the result, or None where a tensor would round
otherwise than eager does with a number, or another operator's gradient would differ; the float is fixed then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard, cast

import torch
import torch.nn.functional as F

from ... import _torch
from ...polyfills.torch_functions import gradient_of_even
from ...sources import Const
from ..number.floats import changes, shown_to_hooks
from ..number.symint import size_value
from ..plain.sequence import NONE, SequenceValue, TupleValue
from ..protocol.constant import ConstantValue, plain
from ..protocol.kinds import AbstractTensor
from .dtypes import EXACT, as_kind, fits
from .float_curves import FLOAT_CURVES, call, clamped, clamped_in_place, operand, where
from .foreach import FOREACH_FORMS
from .number_calls import NUMBER_CALLS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol.value import Frame, Value


def tensor_form(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The result of a function or method of torch by this name where one of its arguments is a float that changes; else None."""
    form: Callable[..., Value | None] | None = TENSOR_FORMS.get(name)
    given = [*args, *kwargs.values()]
    if name in OF_LISTS:
        given += [item for value in given if isinstance(value, SequenceValue) for item in value.unpack(frame)]
    if form is None or "out" in kwargs or not any(map(changes, given)):
        return None
    largest = largest_number(given)
    if shown_to_hooks(frame) or not all(fits(frame, value, largest) for value in given if changes(value)):
        return None
    return form(frame, name, list(args), dict(kwargs))


OF_LISTS = frozenset(("gradient", *FOREACH_FORMS))
"""Functions whose form takes lists of numbers, too."""


def largest_number(given: list[Value]) -> float:
    """The largest that the tensors, or the dtype, among the arguments hold; eager refuses to store a larger one in them."""
    dtypes = {v.example.dtype if isinstance(v, AbstractTensor) else v.is_constant() and v.constant() for v in given}
    found = {d for d in dtypes if isinstance(d, torch.dtype) and d.is_floating_point} or {torch.get_default_dtype()}
    return min(torch.finfo(dtype).max for dtype in found)


def element(frame: Frame, value: Any, tensor: AbstractTensor) -> Value:
    """A number that is stored in a tensor."""
    return as_kind(frame, value.as_tensor(frame), tensor.example.dtype) if changes(value) and is_real(tensor) else value


def is_real(value: Value | None) -> TypeGuard[AbstractTensor]:
    return isinstance(value, AbstractTensor) and value.example.dtype.is_floating_point


def named(args: list[Value], kwargs: dict[Any, Any], *names: str) -> list[Any] | None:
    """The arguments by name, None for what is not given; nothing where more is given."""
    given = dict(zip(names, args)) | kwargs
    return [given.get(n) for n in names] if len(args) <= len(names) and given.keys() <= set(names) else None


def bounded(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> AbstractTensor | None:
    """clamp: the lower bound first, so that the upper one wins as in eager."""
    ends = {"clamp_min": ("min",), "clamp_max": ("max",)}.get(name.rstrip("_"), ("min", "max"))
    given = named(args, kwargs, "input", *ends)
    if given is None or not isinstance(given[0], AbstractTensor) or given[0].example.dtype.is_complex:
        return None
    found: Any = given[0]
    for end, bound in zip(ends, given[1:]):
        if bound is not None and bound is not NONE:
            clamp = clamped_in_place if name.endswith("_") else clamped
            found = clamp(frame, end, found, bound)
    (bound, *others) = [b for b in given[1:] if b is not None and b is not NONE] or [None]
    if name == "clamp" and not others and changes(bound) and _torch.nan_alone_is_no_bound():
        number = operand(frame, bound, given[0])
        return where(frame, call(frame, "ne", number, number), call(frame, "detach", given[0]), found)
    return given[0] if name.endswith("_") else found


def chosen(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """where(condition, input, other)"""
    given = named(args, kwargs, "condition", "input", "other")
    if given is None or any(v is None for v in given):
        return None
    tensors = [v for v in given[1:] if isinstance(v, AbstractTensor)]
    if not tensors:  # two numbers, one of them a float, make a tensor of the default dtype
        kind = ConstantValue(torch.get_default_dtype())
        made = [v.as_tensor(frame) if changes(v) else frame.graph.call(frame, torch.full, ((), v)) for v in given[1:]]
        return frame.graph.call(frame, torch.where, (given[0], *(call(frame, "to", m, kind) for m in made)))
    if not is_real(tensors[0]):
        return None
    return frame.graph.call(frame, torch.where, (given[0], *(operand(frame, v, tensors[0]) for v in given[1:])))


def filled(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """fill and masked_fill take the number as a tensor of any floating dtype."""
    names = ("input", "mask", "value") if name.startswith("masked") else ("input", "value")
    given = named(args, kwargs, *names)
    if given is None or not is_real(given[0]) or not changes(given[-1]):
        return None
    value = element(frame, given[-1], given[0])
    if names[1] == "mask" or name == "fill_":
        found = call(frame, name, *given[:-1], value)
        return given[0] if name.endswith("_") else found
    return frame.graph.call(frame, torch.fill, (given[0], value))


def made(empty: str, count: int) -> Callable[..., Any]:
    """full, full_like and new_full: memory, then the number in it. The number is argument number `count`."""

    def form(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        value = args.pop(count) if len(args) > count else kwargs.pop("fill_value", None)
        known = {"size", "dtype", "device", "input", "memory_format"}
        if value is None or not changes(value) or len(args) > count or not kwargs.keys() <= known:
            return None
        memory = (
            call(frame, empty, *args, **kwargs)
            if empty == "new_empty"
            else frame.graph.call(frame, getattr(torch, empty), args, kwargs)
        )
        return filled(frame, "fill", [memory, value], {})  # not in place: the tensor was not written to

    return form


def leaky(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """leaky_relu(x, slope)"""
    given = named(args, kwargs, "input", "negative_slope", "inplace")
    if given is None or not is_real(given[0]) or (given[2] is not None and given[2].truth(frame)):
        return None
    x = given[0]
    positive, scaled = call(frame, "gt", x, ConstantValue(0)), call(frame, "mul", x, operand(frame, given[1], x))
    return frame.graph.call(frame, torch.where, (positive, x, scaled))


def between(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """lerp(start, end, weight), whose tensors are of one dtype, the weight's too."""
    given = named(args, kwargs, "input", "end", "weight")
    if given is None or not isinstance(given[0], AbstractTensor) or given[0].example.dtype not in EXACT or not changes(given[2]):
        return None
    x = given[0]
    found = call(frame, name, x, given[1], as_kind(frame, given[2].as_tensor(frame), x.example.dtype))
    return x if name.endswith("_") else found


def power(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """pow(x, exponent)"""
    given = named(args, kwargs, "input", "exponent")
    if given is None or not all(isinstance(v, AbstractTensor) or changes(v) for v in given):
        return None
    tensor = next((v for v in given if isinstance(v, AbstractTensor)), None)
    if tensor is None or tensor.example.dtype not in EXACT:
        return None
    return frame.graph.call(frame, torch.pow, tuple(operand(frame, v, tensor) for v in given))


def normalized(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """F.batch_norm(input, ..., momentum): the operator gives the batch's own statistics, which are averaged with the running ones here, in
    double precision as its kernel on the CPU does."""
    given = named(args, kwargs, "input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    if given is None or not changes(given[6]) or sum(map(changes, given)) > 1:
        return None
    running, share = given[1:3], given[6].as_tensor(frame)
    eps = {"eps": given[7]} if given[7] is not None else {}
    training = given[5] is not None and given[5].truth(frame)
    if not training or not all(isinstance(t, AbstractTensor) for t in running):
        return frame.graph.call(frame, F.batch_norm, (*given[:5], ConstantValue(training), ConstantValue(0.0)), eps)
    own: list[Any] = [frame.graph.call(frame, torch.zeros_like, (t,)) for t in running]
    found = frame.graph.call(frame, F.batch_norm, (given[0], *own, *given[3:6], ConstantValue(1.0)), eps)
    rest: Any = frame.graph.call(frame, torch.rsub, (share, ConstantValue(1.0)))
    for new, old in zip(own, running):
        new, before = (call(frame, "mul", as_kind(frame, t, torch.float64), n) for t, n in ((new, share), (old, rest)))
        call(frame, "copy_", old.getattr(frame, "data"), call(frame, "add", new, before))  # eager's does not count as a write
    return found


def of_two(function: Callable[..., Any]) -> Callable[..., Any]:
    """An elementwise function of two, as which the operators of Python are written, too; the number is a tensor without dims."""

    def form(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        given = named(args, kwargs, "input", "other")
        if given is None or None in given or sum(map(changes, given)) != 1:
            return None
        tensor = next((v for v in given if isinstance(v, AbstractTensor)), None)
        if tensor is None or tensor.example.dtype.is_complex:
            return None
        operands: list[Any] = [operand(frame, v, tensor) for v in given]
        if not all(isinstance(v, AbstractTensor) for v in operands):
            return None
        if name.endswith("_"):
            call(frame, name, *operands)
            return cast(AbstractTensor, operands[0])
        return frame.graph.call(frame, function, tuple(operands))

    return form


OF_TWO = (
    "copysign divide eq floor_divide fmod ge greater greater_equal gt le less less_equal lt multiply ne not_equal remainder true_divide xlogy"
).split()


def diagonal_filled(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """x.fill_diagonal_(number) of a matrix"""
    given = named(args, kwargs, "input", "fill_value")
    if given is None or not is_real(given[0]) or not changes(given[1]) or given[0].example.ndim != len("ij"):
        return None
    call(frame, "copy_", call(frame, "diagonal", given[0]), element(frame, given[1], given[0]))
    return given[0]


def alone(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """scalar_tensor(number)"""
    return made("empty", 1)(frame, "full", [TupleValue([]), *args], kwargs) if len(args) == 1 else None


def padded(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """pad(x, widths, "constant", number): zeros, which the number takes the place of."""
    names = ("input", "pad", "value") if name == "constant_pad_nd" else ("input", "pad", "mode", "value")
    given = named(args, kwargs, *names)
    mode = given[2] if given is not None and len(names) > len(("input", "pad", "value")) else None
    if given is None or not is_real(given[0]) or not changes(given[-1]) or sum(map(changes, given)) > 1:
        return None
    if mode is not None and mode.constant() != "constant":
        return None
    x, widths = given[:2]
    inside = frame.graph.call(frame, torch.ones_like, (x,), {"dtype": ConstantValue(torch.bool)})
    there: Any
    there, zeros = (frame.graph.call(frame, F.pad, (t, widths)) for t in (inside, call(frame, "contiguous", x)))
    return where(frame, there, zeros, element(frame, given[-1], x))


def written(name: str) -> Callable[..., Any]:
    """The form of the method that writes, of an elementwise one of FLOAT_CURVES."""

    def form(frame: Frame, name_: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        found = FLOAT_CURVES[name](frame, name, args, kwargs) if args else None
        if found is None:
            return None
        call(frame, "copy_", args[0], found)
        return args[0]

    return form


def at_indices(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """index_fill and scatter with a number: the same with a tensor of it at all places."""
    fills = name.startswith("index_fill")
    given = named(args, kwargs, "input", "dim", "index", "value")
    if given is None or not is_real(given[0]) or not isinstance(given[2], AbstractTensor) or sum(map(changes, given)) > 1:
        return None
    x, dim, index = given[:3]
    known = dim.is_constant() and type(dim.constant()) is int and x.example.ndim > 0 and index.example.ndim > 0
    if not known or not changes(given[3]) or not -x.example.ndim <= dim.constant() < x.example.ndim:
        return None
    sizes = list(index.example.shape)
    if fills:
        sizes = list(x.example.shape)
        sizes[dim.constant()] = index.example.shape[0]
    value = call(frame, "expand", element(frame, given[3], x), TupleValue([size_value(frame, n) for n in sizes]))
    found = call(frame, name.replace("index_fill", "index_copy"), x, dim, index, value)
    return x if name.endswith("_") else found


def added_at(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """index_add(x, dim, index, source, alpha=number)"""
    given = named(args, kwargs, "input", "dim", "index", "source", "alpha")
    if given is None or not changes(given[4]) or not isinstance(given[3], AbstractTensor) or sum(map(changes, given)) > 1:
        return None
    x, source = given[0], given[3]
    if not is_real(x) or x.example.dtype not in EXACT or source.example.dtype != x.example.dtype:
        return None
    found = call(frame, name, x, *given[1:3], call(frame, "mul", source, operand(frame, given[4], source)))
    return x if name.endswith("_") else found


def found_in(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """searchsorted(sorted, number), bucketize(number, sorted)"""
    places = args[::-1] if name == "bucketize" else args
    if len(args) != len(("sorted", "number")) or not is_real(places[0]) or not changes(places[1]):
        return None
    if any(map(changes, kwargs.values())):
        return None
    found = [v if v is places[0] else element(frame, v, places[0]) for v in args]
    return frame.graph.call(frame, getattr(torch, name), tuple(found), kwargs)


def differences(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """torch.gradient(x, spacing=number), torch.gradient(x, spacing=[number, ...])"""
    given = named(args, kwargs, "input", "spacing", "dim", "edge_order")
    if given is None or not is_real(given[0]):
        return None
    x: Any
    order: Any
    x, spacing, dim, order = [NONE if value is None else value for value in given]
    dims = range(x.example.ndim) if dim is NONE else plain(dim)
    dims = [d % x.example.ndim for d in ([dims] if type(dims) is int else dims)]
    order = 1 if order is NONE else plain(order)
    if order not in (1, 2) or len(set(dims)) < len(dims) or any(x.example.shape[d] <= order for d in dims):
        return None
    spacings = spacing.unpack(frame) if isinstance(spacing, SequenceValue) else [spacing] * len(dims)
    if len(spacings) != len(dims) or not all(
        changes(s) or s.is_constant() and type(s.constant()) in (int, float) for s in spacings
    ):
        return None
    rest = [frame.constant(value) for value in (tuple(dims), order)]
    given = [x, TupleValue(spacings), *rest]
    return frame.wrap(gradient_of_even, Const(gradient_of_even, "gradient")).call(frame, given, {})


def fused_step(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Any]) -> Value | None:
    """The step of an optimizer, whose learning rate may be a tensor."""
    rate: Any = kwargs.get("lr")
    if not changes(rate) or sum(map(changes, [*args, *kwargs.values()])) > 1:
        return None
    return frame.graph.call(frame, getattr(torch, name), args, kwargs | {"lr": kwargs["lr"].as_tensor(frame)})


FUSED_STEPS = ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")


TENSOR_FORMS = {
    "batch_norm": normalized,
    **dict.fromkeys([n + end for n in ("clamp", "clip", "clamp_min", "clamp_max") for end in ("", "_")], bounded),
    **dict.fromkeys(("fill", "fill_", "masked_fill", "masked_fill_"), filled),
    "where": chosen,
    "full": made("empty", 1),
    "full_like": made("empty_like", 1),
    "new_full": made("new_empty", 2),
    "leaky_relu": leaky,
    "lerp": between,
    "lerp_": between,
    "pow": power,
    **{name + end: of_two(getattr(torch, name)) for name in OF_TWO for end in ("", "_")},
    **{f"special_{name}": of_two(getattr(torch.special, name)) for name in ("xlogy", "xlog1py", "zeta")},
    "gradient": differences,
    "fill_diagonal_": diagonal_filled,
    "scalar_tensor": alone,
    **dict.fromkeys(("pad", "constant_pad_nd"), padded),
    "threshold_": written("threshold"),
    **dict.fromkeys(("index_fill", "index_fill_", "scatter", "scatter_"), at_indices),
    **dict.fromkeys(("index_add", "index_add_"), added_at),
    **dict.fromkeys(("searchsorted", "bucketize"), found_in),
    **{n: fused_step for n in FUSED_STEPS if "tensor_lr" in getattr(torch.ops.aten, n).overloads()},
    **FLOAT_CURVES,
    **NUMBER_CALLS,
    **FOREACH_FORMS,
}

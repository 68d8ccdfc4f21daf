"""Plans for ops that a rule over specs cannot describe: constants, data-dependent results, real tensors let in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from .. import _torch
from .._torch import OpOverload
from ..errors import DataDependentError
from ..spec import TensorSpec
from ..symbols.expr import Symbol
from .dispatch import SPECIAL, Plan, check_within_memory, plan_of_rule
from .storage import FakeStorage
from .tensor import FakeTensor, make_fake, set_bits

if TYPE_CHECKING:
    from .mode import FakeMode

T = TypeVar("T")
aten = torch.ops.aten


def special(*names: str) -> Callable[[Plan], Plan]:
    """Registers a plan for these overloads, skipping those this torch does not have."""

    def register(plan: Plan) -> Plan:
        for name in names:
            packet, overload = name.split(".")
            found = getattr(getattr(aten, packet, None), overload, None)
            if found is not None:
                SPECIAL[found] = plan
        return plan

    return register


def _record(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], out: T) -> T:
    if mode.recorder is not None:
        mode.recorder(func, args, kwargs, out)
    return out


@special("lift_fresh.default", "lift.default")
def lift_fresh(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.tensor(data)`: a real tensor that nobody else has seen becomes fake, remembering its value."""
    tensor = args[0]
    if tensor.__class__ is FakeTensor:
        out = make_fake(mode, tensor.spec, tensor.storage)
        out.constant = tensor.constant
        return _record(mode, func, args, kwargs, out)
    out = mode.from_real(tensor)
    out.constant_tensor = tensor
    if tensor.ndim == 0 and tensor.device.type == "cpu":
        out.constant = tensor.item()
    return _record(mode, func, args, kwargs, out)


@special("_efficientzerotensor.default")
def efficient_zeros(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The tangent of a number under forward-mode AD stays real: torch takes it for a number, too, and reads it."""
    if not args[0] and _torch.in_dual_level():
        return torch.zeros((), dtype=kwargs.get("dtype"))
    return plan_of_rule(func)(mode, func, args, kwargs)


@special("as_strided.default")
def as_strided(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A view of any part of the memory, as far as it goes. Raises RuntimeError as eager does."""
    check_within_memory(mode, func, args, kwargs)
    return plan_of_rule(func)(mode, func, args, kwargs)


@special("lift_fresh_copy.default")
def lift_fresh_copy(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """As lift_fresh, into new memory."""
    tensor = args[0]
    source = tensor if tensor.__class__ is FakeTensor else mode.from_real(tensor)
    out = make_fake(mode, source.spec, FakeStorage())
    out.constant = source.constant
    if tensor.__class__ is not FakeTensor:
        out.constant_tensor = tensor
    return _record(mode, func, args, kwargs, out)


@special("_local_scalar_dense.default", "item.default")
def local_scalar(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`item()`: the constant if there is one, a new symbol if the mode allows it."""
    fake = args[0]
    if fake.constant is not None:
        return fake.constant
    if mode.allow_unbacked_numbers and not fake.spec.dtype.is_complex:
        mode.reads += 1
        out = mode.table.new_scalar(fake.spec.dtype)
        return _record(mode, func, args, kwargs, out)
    raise DataDependentError(func)


def _count_of(mode: FakeMode, func: OpOverload, mask: FakeTensor) -> Symbol:
    """How many elements are not zero: one symbol for all who ask before the mask is written to."""
    mode.reads += 1
    key = mask.storage.id, mask.storage.version, mask.spec
    if key not in mode.counts:
        mode.counts[key] = mode.table.new(None, f"{func}", lower=0, unbacked=True)
    return mode.counts[key]


@special("nonzero.default")
def nonzero(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """(number of non-zero elements, ndim), the first unknown."""
    if not mode.allow_unbacked:
        raise DataDependentError(func)
    spec = args[0].spec
    count = _count_of(mode, func, args[0])
    out = make_fake(mode, TensorSpec(torch.int64, spec.device, (count, spec.ndim), (1, count)), FakeStorage())
    return _record(mode, func, args, kwargs, out)


@special("masked_select.default", "repeat_interleave.Tensor")
def one_unknown_size(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A list of as many elements as the data say; of the indices' dtype where there are no other elements."""
    if kwargs.get("output_size") is not None or not mode.allow_unbacked:
        return plan_of_rule(func)(mode, func, args, kwargs)
    spec = args[0].spec
    if func is aten.masked_select.default and spec.sizes == args[1].spec.sizes:
        count = _count_of(mode, func, args[1])
    else:
        mode.reads += 1
        count = mode.table.new(None, f"{func}", lower=0, unbacked=True)
    out = make_fake(mode, TensorSpec(spec.dtype, spec.device, (count,)), FakeStorage())
    return _record(mode, func, args, kwargs, out)


@special("_unique2.default", "unique_consecutive.default", "unique_dim.default")
def unique(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """(distinct elements or slices, which of them each one is, how often each is there); what is not asked for is empty, but for slices."""
    named = dict(zip((a.name for a in func._schema.arguments), args)) | kwargs
    dim, spec = named.get("dim"), args[0].spec
    if not mode.allow_unbacked or dim not in (None, 0):
        raise DataDependentError(func)
    mode.reads += 1
    count = mode.table.new(None, f"{func}", lower=0, unbacked=True)
    always = func is aten.unique_dim.default
    inverse = spec.sizes if dim is None else spec.sizes[:1]
    results = [
        TensorSpec(spec.dtype, spec.device, (count,) if dim is None else (count, *spec.sizes[1:])),
        TensorSpec(torch.int64, spec.device, inverse if always or named.get("return_inverse") else (0,)),
        TensorSpec(torch.int64, spec.device, (count,) if always or named.get("return_counts") else (0,)),
    ]
    return _record(mode, func, args, kwargs, tuple(make_fake(mode, result, FakeStorage()) for result in results))


@special("bincount.default")
def bincount(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """As many counts as the largest number asks for."""
    named = dict(zip(("self", "weights", "minlength"), args)) | kwargs
    if not mode.allow_unbacked:
        raise DataDependentError(func)
    mode.reads += 1
    count = mode.table.new(None, f"{func}", lower=named.get("minlength", 0), unbacked=True)
    weights = named.get("weights")
    dtype = torch.int64 if weights is None else torch.float32 if weights.dtype is torch.float32 else torch.float64
    return _record(mode, func, args, kwargs, make_fake(mode, TensorSpec(dtype, args[0].spec.device, (count,)), FakeStorage()))


MASKS = (torch.bool, torch.uint8)


@special("index.Tensor")
def index(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Masks stand for the positions of what is not zero in them."""
    masked = mode.allow_unbacked and any(i is not None and i.dtype in MASKS for i in args[1])
    if not masked:
        return plan_of_rule(func)(mode, func, args, kwargs)
    positions: list[torch.Tensor | None] = []
    for i in args[1]:
        is_mask = i is not None and i.dtype in MASKS
        positions += aten.nonzero.default(i).unbind(1) if is_mask else [i]
    return aten.index.Tensor(args[0], positions)


@special("vdot.default", "dot.default")
def inner_product(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Lazily conjugated vectors are given to the kernels as they are in memory, and the result is conjugated where that is needed."""
    a, b = args
    flips = (not a.is_conj() and b.is_conj()) if func is aten.vdot.default else (a.is_conj() and b.is_conj())
    if flips:
        return aten.dot.default(a.conj() if a.is_conj() else a, b.conj()).conj()
    return plan_of_rule(func)(mode, func, args, kwargs)


@special("linalg_lu_solve.default")
def lu_solve(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """From the right it solves for the conjugate transpose, and turns that over lazily."""
    out = plan_of_rule(func)(mode, func, args, kwargs)
    if out.spec.dtype.is_complex and not kwargs.get("left", True) and 0 not in out.spec.sizes:
        set_bits(out, True, False)
    return out


@special("is_nonzero.default", "equal.default", "allclose.default")
def ask_data(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A truth value that depends on data."""
    if args[0].constant is not None and len(args) == 1:
        return bool(args[0].constant)
    raise DataDependentError(func)


@special("size.default", "stride.default", "numel.default", "storage_offset.default")
def plain_number(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Code of torch that cannot carry symbols asks for numbers: the symbols become fixed."""
    spec = args[0].spec
    name = func._schema.name.split("::")[1]
    values = {"size": spec.sizes, "stride": spec.strides, "numel": (spec.numel(),), "storage_offset": (spec.offset,)}[name]
    numbers = [v if v.__class__ is int else mode.table.fix(v) for v in values]
    return numbers if name in ("size", "stride") else numbers[0]

"""One ATen op on fakes: its row in ATEN_META, else its decomposition run on specs, else torch's own meta kernel.

A plan is made once per overload from its schema and called as plan(mode, func, args, kwargs). Aliasing comes from the
schema alone: results that alias an argument share its storage, written arguments get a new version and are returned as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from .. import _torch
from .._torch import OpOverload
from ..aten_meta import ATEN_META
from ..aten_meta.dtypes import check_dtypes, check_numbers
from ..aten_meta.rows import WHOLE, Refused
from ..errors import DataDependentError, FakeTensorError, MixedTensorError
from ..spec import TensorSpec
from ..symbols import active
from ..symbols.expr import Expr, Size
from .memo import STATIC, Key, Memo, Template, call_key
from .meta_kernel import OF_TORCH, meta_rule, refusal_of, run_meta_kernel
from .outputs import check_memory, fit_outputs, functional_twin, take_layout
from .rules import rule_of
from .storage import FakeStorage
from .tensor import FakeTensor, from_template, make_fake, set_bits

if TYPE_CHECKING:
    from .mode import FakeMode

log = logging.getLogger("tracework.primops.fake")

Plan = Callable[..., Any]
Rule = Callable[..., Any]
SPECIAL: dict[OpOverload, Plan] = {}  # overload -> plan, for ops that no rule over specs can describe
PLANS: dict[OpOverload, Plan] = {}
BIT_FLIPS = {_torch.lazy_conjugate: "conjugate", _torch.lazy_negative: "negative"}
RESIZING = frozenset(getattr(torch.ops.aten, name) for name in ("resize_", "resize_as_", "set_", "_resize_output_"))


def plan_for(func: OpOverload) -> Plan:
    """The plan of an overload, made on first use."""
    plan = PLANS[func] = SPECIAL.get(func) or plan_of_rule(func)
    return plan


def forget_plans() -> None:
    """After ATEN_META, SPECIAL or the decompositions changed."""
    PLANS.clear()
    plan_of_rule.cache_clear()
    STATIC.forget()


@cache
def plan_of_rule(func: OpOverload) -> Plan:
    """The plan that follows from the schema and a rule over specs."""
    if func not in ATEN_META and func not in WHOLE and _is_composite(func):
        return _run_composite
    rule = rule_of(func)
    written = [i for i, a in enumerate(func._schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    rule = rule or _rule_of_functional(func) or meta_rule(func)
    if written and all(func._schema.arguments[i].kwarg_only for i in written):
        return _out_plan(func, rule, [func._schema.arguments[i].name for i in written])
    if written:
        return _in_place_plan(func, rule, written)
    aliased = _aliased_argument(func)
    if aliased is not None:
        return _view_plan(func, rule, aliased)
    return _functional_plan(rule)


def _is_composite(func: OpOverload) -> bool:
    return _torch.has_kernel(func, "CompositeImplicitAutograd")


def _rule_of_functional(func: OpOverload) -> Rule | None:
    """`add_` is checked by the row of `add`."""
    name = func._schema.name.split("::")[1]
    namespace = getattr(torch.ops, func.namespace)
    if name.endswith("_") and not name.endswith("__") and not name.startswith("_foreach") and hasattr(namespace, name[:-1]):
        packet = getattr(namespace, name[:-1])
        twin = getattr(packet, func._overloadname, None)
        return rule_of(twin) if twin is not None else None
    return None


def _aliased_argument(func: OpOverload) -> int | None:
    if not any(r.alias_info is not None for r in func._schema.returns):
        return None
    for i, a in enumerate(func._schema.arguments):
        if a.alias_info is not None:
            return i
    return None


# plans -----------------------------------------------------------------------------------------


def _result(mode: FakeMode, func: OpOverload, rule: Rule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the rule says, with templates for specs; remembered for the next call with the same specs and numbers."""
    key = call_key(func, mode, FakeTensor, args, kwargs)
    if key is None:
        return _work_out(mode, func, rule, args, kwargs, None)
    found = STATIC.results.get(key) or mode.memo.results.get(key)
    return found[0] if found is not None else _work_out(mode, func, rule, args, kwargs, key)


def _work_out(
    mode: FakeMode, func: OpOverload, rule: Rule, args: tuple[Any, ...], kwargs: dict[str, Any], key: Key | None
) -> Any:
    plain, named = _plain(mode, func, args), _plain_dict(mode, func, kwargs)
    check_dtypes(func, plain)
    check_numbers(func, plain, named)
    if named.get("layout") not in (None, torch.strided):
        raise FakeTensorError(f"{func}: a tensor of layout {named['layout']} has no fake form; break the graph before it is made")
    outer = active.swap(mode.table)
    try:
        with nullcontext() if func.namespace in OF_TORCH else _torch.fake_context(DataSizes(mode, func)):
            result = rule(*plain, **named)
            if result is NotImplemented:
                result = run_meta_kernel(func, plain, named)
        result = _templates(mode.memo, result)
    except Refused as refused:
        raise refusal_of(func, plain, named, refused.error) from None
    finally:
        active.swap(outer)
    if key is not None and func.namespace == "aten":  # what is registered for others may change
        mode.memo.keep(key, result, (*plain, *named.values()))
    return result


class DataSizes:
    """What torch.library.get_ctx() gives the function that says what an operator of a library makes."""

    def __init__(self, mode: FakeMode, func: OpOverload) -> None:
        self.mode, self.func = mode, func

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> torch.SymInt:
        """A size between these that depends on data; limits that are symbols limit nothing. Raises DataDependentError where the mode allows
        none, ValueError for a negative limit."""
        low, high = (limit if type(limit) is int else None for limit in (min, max))
        if low is not None and low < 0:
            raise ValueError(f"{self.func}: new_dynamic_size(min={min}) expects 0 or more")
        if not self.mode.allow_unbacked:
            raise DataDependentError(self.func)
        self.mode.reads += 1
        table = self.mode.table
        return table.to_symint(table.new(None, f"{self.func}", lower=low or 0, upper=high, unbacked=True))

    def create_unbacked_symint(self, *, min: int = 2, max: int | None = None) -> torch.SymInt:
        """The older name."""
        return self.new_dynamic_size(min=min, max=max)


def _templates(memo: Memo, result: Any) -> Any:
    if result.__class__ is TensorSpec:
        return memo.template(result)
    if result.__class__ is tuple:
        return tuple([_templates(memo, r) for r in result])
    return [_templates(memo, r) for r in result] if result.__class__ is list else result


def _functional_plan(rule: Rule) -> Plan:
    def functional(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = _result(mode, func, rule, args, kwargs)
        out = _wrap(mode, result)
        if mode.recorder is not None:
            mode.recorder(func, args, kwargs, out)
        return out

    return functional


def _view_plan(func: OpOverload, rule: Rule, aliased: int) -> Plan:
    flips = func in BIT_FLIPS

    def view(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        base = args[aliased]
        # autograd conjugates the Python number of `x * 1j`
        if base.__class__ is not FakeTensor and not isinstance(base, torch.Tensor):
            return func(torch.tensor(base), *args[1:], **kwargs).resolve_conj()
        result = _result(mode, func, rule, args, kwargs)
        if base.__class__ is not FakeTensor:
            base = mode.from_real(base)
        if result.__class__ is Template:
            out: Any = from_template(mode, result, base.storage)
            if base.constant is not None:
                out.constant = base.constant
        else:
            out = [from_template(mode, template, base.storage) for template in result]
        if flips or base.has_bits:
            _carry_bits(func, base, out)
        if mode.recorder is not None:
            mode.recorder(func, args, kwargs, out)
        return out

    return view


def _carry_bits(func: OpOverload, base: FakeTensor, out: Any) -> None:
    """Views keep the lazy conjugate and negative bits of what they show; two view ops flip them."""
    conjugate = base.is_conj() is not (BIT_FLIPS.get(func) == "conjugate")
    negative = base.is_neg() is not (BIT_FLIPS.get(func) == "negative")
    for fake in out if isinstance(out, list) else (out,):
        set_bits(fake, conjugate, negative)


def check_within_memory(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """`as_strided` must not leave the memory of its tensor. Raises what FakeStorage.check_extent raises."""
    if args[0].__class__ is FakeTensor:
        x, sizes, strides, offset = (*_plain(mode, func, args), *_plain(mode, func, [kwargs.get("storage_offset")]))[:4]
        offset = x.offset if offset is None else offset
        negative = any(v.__class__ is int and v < 0 for v in (*sizes, *strides, offset))
        if len(sizes) == len(strides) and not negative:  # else the rule raises
            outer = active.swap(mode.table)
            try:
                args[0].storage.check_extent(x.dtype, sizes, strides, offset)
            finally:
                active.swap(outer)


def _same_elements(x: TensorSpec, sizes: Sequence[Size], strides: Sequence[Size], offset: Size | None = None) -> bool:
    """Whether x.as_strided(sizes, strides, offset) has each element of x where it is."""
    if tuple(sizes) != tuple(x.sizes) or offset not in (None, x.offset):
        return False
    return all(new == old or size == 1 for size, new, old in zip(sizes, strides, x.strides))


SPREADING = frozenset(
    f"aten::{n}_" for n in ("fill", "zero", "index_fill", "index_put", "masked_fill", "conj_physical", "threshold")
)
"""Ops that write to tensors of which several elements are one place in memory; fill_ does for numbers alone."""


def _check_written(name: str, target: Any) -> None:
    """Eager's demand on memory that is written to; of a list, eager has written to the tensors before the one that it refuses."""
    if target.__class__ is FakeTensor:
        check_memory(name, target)
    elif isinstance(target, (list, tuple)):
        for position, item in enumerate(target):
            try:
                _check_written(name, item)
            except RuntimeError as error:
                if position:
                    raise FakeTensorError(f"{error}, after writes to others") from error
                raise


def _check_items(
    mode: FakeMode, func: OpOverload, items: Sequence[FakeTensor], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raises where a foreach op would write floats to integers, as eager's op on each does; torch's meta kernels do not look."""
    if all(item.spec.dtype.is_floating_point or item.spec.dtype.is_complex for item in items):
        return
    twin = getattr(getattr(torch.ops.aten, func._schema.name.split("::")[1][:-1], None), func._overloadname, None)
    results = () if twin is None else run_meta_kernel(twin, _plain(mode, func, args), _plain_dict(mode, func, kwargs))
    for item, result in zip(items, results):
        if not torch.can_cast(result.dtype, item.spec.dtype):
            raise RuntimeError(f"{func}: result type {result.dtype} can't be cast to the desired output type {item.spec.dtype}")


def _in_place_plan(func: OpOverload, rule: Rule, written: list[int]) -> Plan:
    names = [a.name for a in func._schema.arguments]
    metadata = torch.Tag.inplace_view in func.tags
    fresh_results = len(func._schema.returns) > 0 and any(r.alias_info is None for r in func._schema.returns)
    returns = len(func._schema.returns)
    name = func._schema.name
    by_item = name.startswith("aten::_foreach_")  # eager's kernel is an in-place op on each, which counts
    spreads = name.replace("_foreach", "") in SPREADING and func is not torch.ops.aten.fill_.Tensor or func.namespace != "aten"

    def in_place(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if metadata:
            if func is torch.ops.aten.as_strided_.default and _same_elements(*_plain(mode, func, args)):
                # as pooling to one element does for channels-last: only strides of dims of one element differ
                take_layout(mode, args[0], _result(mode, func, rule, args, kwargs))
                return args[0]
            if func is torch.ops.aten.as_strided_.default:
                check_within_memory(mode, func, args, kwargs)
            return _view_in_place(mode, func, rule, args, kwargs)
        targets: list[Any] = [args[i] if i < len(args) else kwargs.get(names[i]) for i in written]
        if by_item:
            _check_items(mode, func, targets[0], args, kwargs)
        result = _result(mode, func, rule, args, kwargs)
        for target in targets:
            if not spreads:
                _check_written(name, target)
            _mark_written(target)
            if by_item:
                torch.autograd.graph.increment_version([t for t in target if not t.is_inference()])
        if fresh_results:
            out = _mixed_results(mode, func, result, targets)
        elif returns == 0:
            out = None
        elif returns == 1:
            out = targets[0]
            _check_target(mode, func, out, result)
        else:
            out = tuple(targets)
        if mode.recorder is not None:
            mode.recorder(func, args, kwargs, out)
        return out

    return in_place


def _out_plan(func: OpOverload, rule: Rule, names: list[str]) -> Plan:
    """`out=`: the results of the overload without it, and eager's demands on the tensors that they are written to."""
    twin = functional_twin(func, names)
    twin_rule = None if twin is None else rule_of(twin) or meta_rule(twin)

    def out_plan(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        targets = [kwargs[name] for name in names]
        inputs = kwargs if twin is None else {name: a for name, a in kwargs.items() if name not in names}
        _plain(mode, func, targets)  # fakes of this trace
        result = _result(mode, twin or func, twin_rule or rule, args, inputs)
        outer = active.swap(mode.table)
        try:
            fit_outputs(mode, func, args, targets, result)
        finally:
            active.swap(outer)
        for target in targets:
            _mark_written(target)
        out = targets[0] if len(func._schema.returns) == 1 else tuple(targets) if func._schema.returns else None
        if mode.recorder is not None:
            mode.recorder(func, args, kwargs, out)
        return out

    return out_plan


def _view_in_place(mode: FakeMode, func: OpOverload, rule: Rule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FakeTensor:
    """`x.t_()`: the same memory with other sizes and strides. The recorder is given a fake with the old ones in place of `x`."""
    target = args[0]
    if _keeps_sizes(func, args, kwargs):
        return target
    if func.overloadpacket in RESIZING or target.__class__ is not FakeTensor:
        raise FakeTensorError(f"{func}: changing the memory behind a tensor is not done on fakes; make a new tensor instead")
    template = _result(mode, func, rule, args, kwargs)
    before = make_fake(mode, target.spec, target.storage)
    take_layout(mode, target, template)
    if mode.recorder is not None:
        mode.recorder(func, (before, *args[1:]), kwargs, target)
    return target


def _keeps_sizes(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the tensor is to be resized to what it is, which keeps its strides too."""
    if kwargs or len(args) != 2 or args[0].__class__ is not FakeTensor or args[0].is_symbolic:
        return False
    if func is torch.ops.aten.resize_.default:
        return tuple(args[1]) == args[0].spec.sizes
    return (
        func is torch.ops.aten.resize_as_.default and args[1].__class__ is FakeTensor and args[1].spec.sizes == args[0].spec.sizes
    )


def _check_target(mode: FakeMode, func: OpOverload, target: Any, result: Any) -> None:
    if result.__class__ is not Template or target.__class__ is not FakeTensor:
        return
    expected, sizes, dtype = target.spec.sizes, result.spec.sizes, target.spec.dtype
    if result.spec.dtype is not dtype and not torch.can_cast(result.spec.dtype, dtype):
        raise RuntimeError(f"{func}: result type {result.spec.dtype} can't be cast to the desired output type {dtype}")
    if expected == sizes:
        return
    outer = active.swap(mode.table)
    try:
        fits = len(sizes) == len(expected) and all(active.equal(a, b) for a, b in zip(sizes, expected))
    finally:
        active.swap(outer)
    if not fits:
        raise RuntimeError(f"{func}: output with shape {list(expected)} doesn't match the broadcast shape {list(sizes)}")


def _mixed_results(mode: FakeMode, func: OpOverload, result: Any, targets: list[Any]) -> Any:
    """Some results are the written arguments, the others are new."""
    results = result if isinstance(result, (tuple, list)) else (result,)
    out, left = [], list(targets)
    for declared, spec in zip(func._schema.returns, results):
        out.append(left.pop(0) if declared.alias_info is not None else _wrap(mode, spec))
    return tuple(out) if len(func._schema.returns) > 1 else out[0]


def _mark_written(target: Any) -> None:
    if target.__class__ is FakeTensor:
        target.storage.version += 1
        target.constant = None
    elif isinstance(target, (list, tuple)):
        for item in target:
            _mark_written(item)


def _run_composite(mode: FakeMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A composite reaches us whole in inference mode: run its parts, which are recorded one by one."""
    with mode, _torch.no_torch_function():  # a function mode would be asked for the op once more, instead of its parts
        run = _torch.composite_of_cpp if _torch.has_kernel(func, "CompositeImplicitAutograd") else type(func).decompose
        result = run(func, *args, **kwargs)
    if result is NotImplemented:
        raise FakeTensorError(f"{func}: torch could not decompose this op; break the graph around it")
    return result


# arguments and results -------------------------------------------------------------------------

PLAIN = frozenset((int, float, bool, str, type(None), torch.dtype, torch.device, torch.memory_format, torch.layout, complex))


def _plain(mode: FakeMode, func: OpOverload, args: Iterable[Any]) -> list[Any]:
    """Arguments as rules see them: specs for tensors, Exprs for symbolic sizes."""
    out = []
    for a in args:
        cls = a.__class__
        if cls is FakeTensor:
            a = _spec_of(mode, func, a)
        elif cls not in PLAIN:
            a = _plain_one(mode, func, a)
        out.append(a)
    return out


def _plain_dict(mode: FakeMode, func: OpOverload, kwargs: dict[str, Any]) -> dict[str, Any]:
    return {k: a if a.__class__ in PLAIN else _plain_one(mode, func, a) for k, a in kwargs.items()}


def _spec_of(mode: FakeMode, func: OpOverload, fake: FakeTensor) -> TensorSpec:
    if fake.mode is not mode:
        raise MixedTensorError(func, two_traces=True)
    return fake.spec


def _plain_one(mode: FakeMode, func: OpOverload, a: Any) -> Any:
    if isinstance(a, (list, tuple)):
        return _plain(mode, func, a)
    if isinstance(a, torch.SymInt):
        return mode.table.from_symint(a) if mode.table is not None else int(a)
    if isinstance(a, torch.SymFloat):
        return float(a)
    if isinstance(a, torch.SymBool):
        return bool(a)
    if isinstance(a, FakeTensor):
        return _spec_of(mode, func, a)
    if isinstance(a, torch.Tensor):
        return real_argument(mode, func, a).spec
    return a


def real_argument(mode: FakeMode, func: OpOverload, tensor: torch.Tensor) -> FakeTensor:
    """A real tensor is let in when it is a 0-dim CPU number or already has a fake. Raises MixedTensorError otherwise."""
    if tensor.ndim == 0 and tensor.device.type == "cpu" or mode._converter.knows(tensor):
        return mode.from_real(tensor)
    raise MixedTensorError(func)


def _wrap(mode: FakeMode, result: Any) -> Any:
    if result.__class__ is Template:
        storage = FakeStorage()
        storage.first = result.spec
        return from_template(mode, result, storage)
    if result is None:
        return None
    if result.__class__ is tuple:
        return tuple([_wrap(mode, r) for r in result])
    if result.__class__ is list:
        return [_wrap(mode, r) for r in result]
    if isinstance(result, Expr):
        return mode.table.to_symint(result)
    return result

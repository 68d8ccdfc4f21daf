"""Ops that write to memory, and the ops that compute the same values without writing.

FUNCTIONAL_FORMS: overload -> rule(recorder, func, args, kwargs, out). A writing op without a row goes by its schema: `add_.Tensor` becomes
`add.Tensor`, `mm.out` becomes `mm`, `x` becomes `x_functional`, one of a user its functional twin; results that are not new are written
to the arguments in order.
"""

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from .. import _torch
from ..errors import FunctionalizationError
from .functional_twins import functional_twin
from .memory import dense_order

aten = torch.ops.aten
Rule = Callable[..., None]
FUNCTIONAL_FORMS: dict[Any, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for name in names:
            packet, _, overload = name.partition(".")
            FUNCTIONAL_FORMS[getattr(getattr(aten, packet), overload)] = function
        return function

    return register


@_rule("copy_.default")
def copy_(recorder: Any, func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """The new value is the source; a clone keeps the two memories apart where what fits it to the old value makes none."""
    source = recorder.to_node(args[1])
    given, old = source.meta["val"].spec, args[0].spec
    repeats_nothing = [n for n in given.sizes if n != 1] == [n for n in old.sizes if n != 1]
    if repeats_nothing and given.dtype == old.dtype:
        source = recorder.emit(aten.clone.default, source)
    recorder.write(args[0], source)


@_rule("zero_.default", "fill_.Scalar")
def fill_(recorder: Any, func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """A constant in the shape of the old value."""
    value = args[1] if len(args) > 1 else 0
    recorder.write(args[0], recorder.emit(aten.full_like.default, recorder.to_node(args[0]), value))


@_rule("fill_.Tensor")
def fill_tensor(recorder: Any, func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """The scalar tensor, expanded."""
    recorder.write(args[0], recorder.emit(aten.clone.default, recorder.to_node(args[1])))


@_rule("bernoulli_.float")
def bernoulli_(recorder: Any, func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """Numbers are drawn in the order of the memory that is written, and in row-major order by the form that makes its result."""
    order = dense_order(args[0])
    if order is None or order == tuple(range(len(order))):
        return by_schema(recorder, func, args, kwargs, out)
    tensor, probability, generator = bind(func, args, kwargs).values()
    value = recorder.emit(aten.permute.default, recorder.to_node(tensor), order)
    value = recorder.emit(aten.bernoulli.p, value, probability, generator=generator)
    recorder.write(tensor, recorder.emit(aten.permute.default, value, [order.index(d) for d in range(len(order))]))


@_rule("_index_put_impl_.default")
def index_put(recorder: Any, func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """index_put without the unsafe flag."""
    named = bind(func, args, kwargs)
    values = [recorder.to_node(named[k]) for k in ("self", "indices", "values")]
    recorder.write(args[0], recorder.emit(aten.index_put.default, *values, named.get("accumulate", False)))


@_rule("native_batch_norm.default", "_native_batch_norm_legit.default", "cudnn_batch_norm.default")
def batch_norm(recorder: Any, func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """These schemas do not say that running statistics are updated in place while training."""
    x, weight, bias, mean, variance, training, momentum, epsilon = bind(func, args, kwargs).values()
    updates = training and mean is not None
    target = aten._native_batch_norm_legit_functional.default if updates else aten.native_batch_norm.default
    results = [*out[:3], *(recorder.mode.make(t.spec) for t in (mean, variance) if updates)]
    unread = [*out[3:]]  # cudnn's workspace, and what it saves without training: the backward below reads neither
    if unread and not training:
        unread += results[1:]
        results[1:] = [recorder.mode.make(t.spec) for t in (mean, variance)]
    tensors = recorder.to_node((x, weight, bias, mean, variance))
    node = recorder.node(target, (*tensors, training, momentum, epsilon), {}, tuple(results))
    items = [recorder.emit(operator.getitem, node, index) for index in range(len(results))]
    for result, item in zip(results[:3], items, strict=False):
        recorder.bind_result(result, item)
    for empty in unread:
        shape = list(empty.shape)
        recorder.bind_result(empty, recorder.emit(aten.full.default, shape, 0, dtype=empty.dtype, device=empty.device))
    if updates:
        recorder.write(mean, items[3])
        recorder.write(variance, items[4])


@_rule("cudnn_batch_norm_backward.default")
def batch_norm_backward(recorder: Any, func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """The backward of the library's form, as the native one: the saved values are the same two."""
    x, grad, weight, mean, variance, saved_mean, saved_scale, epsilon = list(bind(func, args, kwargs).values())[:8]
    tensors = recorder.to_node((grad, x, weight, None, None, saved_mean, saved_scale))
    node = recorder.node(aten.native_batch_norm_backward.default, (*tensors, True, epsilon, [True, True, True]), {}, tuple(out))
    for index, result in enumerate(out):
        recorder.bind_result(result, recorder.emit(operator.getitem, node, index))


@_rule("native_batch_norm_backward.default")
def native_batch_norm_backward(recorder: Any, func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """While training the running statistics are not read; leaving them out keeps mutated inputs from being saved."""
    named = bind(func, args, kwargs)
    if named["train"]:
        named["running_mean"] = named["running_var"] = None
    node = recorder.node(func, recorder.to_node(tuple(named.values())), {}, tuple(out))
    for index, result in enumerate(out):
        if result is not None:
            recorder.bind_result(result, recorder.emit(operator.getitem, node, index))


@_rule("lift_fresh.default", "lift.default", "lift_fresh_copy.default")
def lift_fresh(recorder: Any, func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """`torch.tensor(data)`: a number is made in the graph, data become an input, cloned since the program may write to it."""
    tensor = args[0]
    if recorder.memory.find(tensor) is not None:
        recorder.bind_result(out, recorder.emit(aten.clone.default, recorder.to_node(tensor)))
    elif tensor.ndim == 0 and out.constant is not None and tensor.device.type == "cpu":
        recorder.bind_result(out, recorder.emit(aten.full.default, [], out.constant, dtype=out.dtype, device=out.device))
    else:
        constant = recorder.memory.read(recorder.cell(recorder.constant(tensor)))
        recorder.bind_result(out, recorder.emit(aten.clone.default, constant))


@_rule(
    "t_.default",
    "transpose_.default",
    "squeeze_.default",
    "squeeze_.dim",
    "squeeze_.dims",
    "unsqueeze_.default",
    "as_strided_.default",
)
def view_in_place(recorder: Any, func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """The tensor becomes a view of what it was; `args[0]` is a fake with the sizes that it had."""
    cell = recorder.cell(out)
    if cell.root.slot is not None:
        raise FunctionalizationError(f"{func} changes the sizes of memory that the caller sees", recorder.origin)
    if cell.parent is not None and out._is_view() and out.requires_grad:  # the engine replays views of fakes, without this change
        raise FunctionalizationError(f"{func} changes the sizes of a view that requires grad", recorder.origin)
    if out.requires_grad and recorder.memory.is_viewed(cell):
        raise FunctionalizationError(
            f"{func} changes the sizes of what others are views of, which requires grad", recorder.origin
        )
    packet = getattr(aten, func._schema.name.split("::")[1].removesuffix("_"))
    view = aten.transpose.int if packet is aten.transpose else getattr(packet, func._overloadname)
    recorder.view_in_place(cell, args[0], view, args[1:], kwargs)


@_rule("resize_.default", "set_.source_Storage", "set_.source_Tensor", "set_.source_Storage_storage_offset")
def refuse(recorder: Any, func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """These change what memory a tensor shows."""
    raise FunctionalizationError(f"{func} changes the memory behind a tensor", recorder.origin)


def bind(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Argument names to values, defaults filled in, in schema order."""
    bound: dict[str, Any] = {}
    for index, argument in enumerate(func._schema.arguments):
        if index < len(args):
            bound[argument.name] = args[index]
        elif argument.name in kwargs:
            bound[argument.name] = kwargs[argument.name]
        elif argument.has_default_value():
            bound[argument.name] = argument.default_value
    return bound


@cache
def functional_overload(func: Any) -> Any:
    """The overload that computes what `func` writes; raises FunctionalizationError when there is none."""
    namespace, name = func._schema.name.split("::")
    written = set(_torch.written_arguments(func._schema))
    wanted = [a.name for a in func._schema.arguments]
    if func._schema.overload_name.endswith("out") or "out" in written:
        wanted = [n for n in wanted if n not in written]
    stem = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    if name.startswith("__i") and name.endswith("__"):
        stem = "__" + name[3:]
    for candidate in (stem, f"{stem}_functional", name):
        packet = getattr(getattr(torch.ops, namespace), candidate, None)
        if packet is None:
            continue
        for overload in packet.overloads():
            target = getattr(packet, overload)
            names = [a.name for a in target._schema.arguments]
            if not _torch.written_arguments(target._schema) and names == wanted and _same_types(func, target):
                return target
    twin = None if namespace == "aten" else functional_twin(func)
    if twin is not None:
        return twin
    raise FunctionalizationError(f"{func} writes to its arguments and has no functional form")


def _same_types(func: Any, target: Any) -> bool:
    kinds = {a.name: str(a.type) for a in func._schema.arguments}
    return all(kinds[a.name] == str(a.type) for a in target._schema.arguments)


_READ_THEIR_RESULT = frozenset("exp exp2 expm1 tanh sigmoid sqrt rsqrt reciprocal tan elu selu celu cumprod".split())
"""Ops whose derivative is a smooth function of what they give."""


def _check_higher_orders(recorder: Any, func: Any, written: Any) -> None:
    """Raises where gradients of gradients would not see that a formula reads what it wrote: nothing else has the new value's history."""
    name = func._schema.name.removeprefix("aten::")
    if not name.endswith("_") or name[:-1] not in _READ_THEIR_RESULT or not (torch.is_grad_enabled() and written.requires_grad):
        return
    cell = recorder.cell(written)
    if cell.parent is not None or cell.root.slot is not None:
        raise FunctionalizationError(
            f"{func} writes what its derivative reads to a view or to an input with a history", recorder.origin
        )


def by_schema(recorder: Any, func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """The general rule: call the functional overload, bind what is new, write the rest to the arguments."""
    if torch.Tag.inplace_view in func.tags:
        return refuse(recorder, func, args, kwargs, out)
    target = functional_overload(func)
    named = bind(func, args, kwargs)
    written = _torch.written_arguments(func._schema)
    if isinstance(named[written[0]], torch.Tensor):
        _check_higher_orders(recorder, func, named[written[0]])
    if func._schema.name.startswith("aten::_foreach_") and _items_share_memory(recorder, named):
        if isinstance(named.get("scalars"), torch.Tensor):
            raise FunctionalizationError(f"{func} on items that share memory, with numbers in a tensor", recorder.origin)
        for index in range(len(named[written[0]])):
            item = {name: [value[index]] if isinstance(value, (list, tuple)) else value for name, value in named.items()}
            by_schema(recorder, func, (), item, None)
        return None
    positional, keywords = [], {}
    for argument in target._schema.arguments:
        value = recorder.to_node(named[argument.name])
        if argument.kwarg_only:
            keywords[argument.name] = value
        else:
            positional.append(value)
    node = recorder.emit(target, *positional, **keywords)
    single = len(target._schema.returns) == 1
    results = [node] if single else [recorder.emit(operator.getitem, node, i) for i in range(len(target._schema.returns))]
    new = sum(r.alias_info is None for r in func._schema.returns)
    fresh = (out,) if len(func._schema.returns) == 1 else tuple(out or ())
    for value, result in zip(fresh[:new], results[:new], strict=False):
        recorder.bind_result(value, result)
    for name, result in zip(written, results[new:], strict=True):
        _write(recorder, named[name], result)
    return None


def _items_share_memory(recorder: Any, named: dict[str, Any]) -> bool:
    """Whether an item of a list op shows memory that an item at another place shows: what is written first is read by the next."""
    places: dict[int, int] = {}
    lists = [v for v in named.values() if isinstance(v, (list, tuple)) and v and isinstance(v[0], torch.Tensor)]
    items = [(index, recorder.memory.find(item)) for values in lists for index, item in enumerate(values)]
    return any(cell is not None and places.setdefault(id(cell.root), index) != index for index, cell in items)


def _write(recorder: Any, value: Any, result: Any) -> None:
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            recorder.write(item, recorder.emit(operator.getitem, result, index))
    elif value is not None:
        recorder.write(value, result)

"""PrimGraph -> ONNX model: `why_not` says of a node why it cannot be written, `convert` writes a graph of nodes that can."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from tracework_primops import Op, PrimGraph, SizeSpec, Symbol, TensorSpec

from . import convolution, indexing, kernels, pointwise, products, reductions, views  # noqa: F401  (fill the table)
from .integers import count_large
from .reasons import UNWRITTEN
from .table import ONNX_ROWS, OWN_DTYPES, Refused, Value
from .writer import ELEMENT_TYPES, IR_VERSION, OPSET, USUAL, Traits, Writer

EMPTY = "it has no elements"
"""Why a call is not written whose result is nothing: engines differ in what they do with it."""


@dataclass(frozen=True)
class Model:
    """An ONNX model of a graph.

    Attributes:
        proto: the onnx.ModelProto.
        inputs: names of the inputs, one for each placeholder; None for one that nothing reads.
        orders: for each input, its dims in the order they have in memory: the model takes it so, and a dense tensor is not copied.
        outputs: names of the outputs.
        results: for each result of the graph the place in `outputs`; None for one that is no tensor, and -1 - i for the i-th placeholder.
        checked: whether the last output counts the values for which eager's kernels are asked: those that raise an error, or that the
            engine cannot compute with.
    """

    proto: Any
    inputs: tuple[str | None, ...]
    orders: tuple[tuple[int, ...], ...]
    outputs: tuple[str, ...]
    output_orders: tuple[tuple[int, ...], ...]
    results: tuple[int | None, ...]
    checked: bool


def memory_order(spec: TensorSpec) -> tuple[int, ...]:
    """Dims from the outermost to the innermost in memory, if it is dense; else as they are."""
    plain = tuple(range(spec.ndim))
    if spec.is_contiguous:
        return plain
    order: list[int] = []
    left = list(plain)
    step: Any = 1
    while left:
        found = next((d for d in reversed(left) if spec.strides[d] == step), None)
        if found is None:
            return plain
        left.remove(found)
        order.insert(0, found)
        step = step * spec.sizes[found]
    return tuple(order)


def is_dense(spec: TensorSpec) -> bool:
    """Whether the elements fill their memory, in whatever order."""
    order = memory_order(spec)
    ordered = TensorSpec(spec.dtype, spec.device, tuple(spec.sizes[d] for d in order), tuple(spec.strides[d] for d in order))
    return ordered.is_contiguous


def why_not(node: torch.fx.Node, writer: Writer) -> str | None:
    """Why a call cannot be written; None where it can. The writer is one whose nodes nobody keeps."""
    if node.target is operator.getitem:
        return None
    if isinstance(node.target, Op) and _is_empty(node.meta["spec"]):
        return EMPTY
    if node.target not in ONNX_ROWS:
        name = node.target.name if isinstance(node.target, Op) else str(node.target)
        return UNWRITTEN.get(name, "it is no prim and has no row of its own")
    try:
        _write(writer, node, _stand_in)
    except Refused as refused:
        return str(refused)
    return None


def _is_empty(spec: Any) -> bool:
    specs = spec if isinstance(spec, (tuple, list)) else [spec]
    return any(isinstance(s, TensorSpec) and 0 in [n for n in s.sizes if isinstance(n, int)] for s in specs)


def _stand_in(node: torch.fx.Node) -> Any:
    spec = node.meta["spec"]
    if isinstance(spec, (tuple, list)):
        return tuple(None if s is None else Value(f"{node.name}.{i}", s) for i, s in enumerate(spec))
    return Value(node.name, spec)


def _write(writer: Writer, node: torch.fx.Node, value_of: Callable[[torch.fx.Node], Any]) -> Any:
    """The Value, or tuple of Values, of a call, computed in a dtype that engines have."""
    spec = node.meta["spec"]
    own = node.target in OWN_DTYPES

    def argument(x: Any) -> Any:
        if isinstance(x, torch.fx.Node):
            value = value_of(x)
            if not isinstance(value, Value):
                raise Refused("it takes several values as one")
            return value if own else _widened(writer, value)
        if isinstance(x, (tuple, list)):
            return tuple(map(argument, x))
        if isinstance(x, dict):
            return {k: argument(v) for k, v in x.items()}
        return x

    args, kwargs = argument(node.args), argument(node.kwargs)
    specs = spec if own else _map_spec(lambda s: s.replace(dtype=writer.compute_dtype(s.dtype)), spec)
    names = ONNX_ROWS[node.target](writer, specs, *args, **kwargs)
    count_large(writer, node.target, specs, args)
    if isinstance(spec, (tuple, list)):
        return tuple(None if s is None or n is None else _narrowed(writer, n, s, w) for n, s, w in zip(names, spec, specs))
    return _narrowed(writer, names, spec, specs)


def _map_spec(change: Callable[[TensorSpec], TensorSpec], spec: Any) -> Any:
    if isinstance(spec, (tuple, list)):
        return tuple(_map_spec(change, s) for s in spec)
    return change(spec) if isinstance(spec, TensorSpec) else spec


def _widened(writer: Writer, value: Value) -> Value:
    wide = writer.compute_dtype(value.dtype)
    return value if wide is value.dtype else Value(writer.cast(value.name, wide), value.spec.replace(dtype=wide))


def _narrowed(writer: Writer, name: str, spec: TensorSpec, wide: TensorSpec) -> Value:
    return Value(name if wide.dtype is spec.dtype else writer.cast(name, spec.dtype), spec)


def convert(prims: PrimGraph, traits: Traits = USUAL, index_checks: bool = True) -> Model:
    """The model of a graph whose calls all can be written, for all sizes.

    Args:
        traits: of the engine.
        index_checks: count indices that are out of range, and integers that are divided by 0.

    Raises Refused for a call that cannot be written, naming it and the user's line.
    """
    writer = Writer(traits)
    writer.index_checks = index_checks
    values: dict[torch.fx.Node, Any] = {}
    inputs = [_read_input(writer, node, values) for node in prims.placeholders]
    for node in prims.calls:
        if node.target is operator.getitem:
            arguments: tuple[Any, ...] = node.args
            source, place = arguments
            values[node] = values[source][place]
            continue
        if node.target not in ONNX_ROWS:
            raise Refused(f"{node.target} ({node.meta.get('origin')}): {why_not(node, writer)}")
        try:
            values[node] = _write(writer, node, values.__getitem__)
        except Refused as refused:
            raise Refused(f"{node.target} ({node.meta.get('origin')}): {refused}") from refused
    return _finished(writer, prims, values, inputs)


def _read_input(writer: Writer, node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> tuple[Any, tuple[int, ...]]:
    """The input's description and the order of its dims; its sizes become known to the writer."""
    spec = node.meta["spec"]
    helper = writer.helper
    if isinstance(spec, SizeSpec):
        if isinstance(spec.expr, Symbol):
            writer.know(spec.expr, lambda: node.name)
        return helper.make_tensor_value_info(node.name, ELEMENT_TYPES[torch.int64], []), ()
    if not isinstance(spec, TensorSpec) or spec.dtype not in ELEMENT_TYPES:
        raise Refused(f"input {node.name} is {spec}")
    order = memory_order(spec)
    sizes = [spec.sizes[d] for d in order]
    name = node.name
    values[node] = Value(name, spec)
    if order != tuple(range(spec.ndim)):
        values[node] = Value(writer.op("Transpose", name, perm=[order.index(d) for d in range(spec.ndim)]), spec)
    for d, size in enumerate(sizes):
        if isinstance(size, Symbol):
            writer.know(size, functools.partial(_size_of, writer, name, d))
    return helper.make_tensor_value_info(name, ELEMENT_TYPES[spec.dtype], [_dim(s) for s in sizes]), order


def _size_of(writer: Writer, name: str, dim: int) -> str:
    return writer.op("Gather", writer.op("Shape", name), writer.constant(dim, torch.int64))


def _dim(size: Any) -> int | str:
    """A number, the name of a symbol, or a name of its own for what is computed: TVM takes a formula for one that it must solve."""
    return size if isinstance(size, int) else re.sub(r"\W+", "_", str(size))


def _live(nodes: list[Any], needed: set[str]) -> list[Any]:
    """The nodes that the outputs need, without last results that nobody reads: engines have kernels with fewer results."""
    kept = []
    for node in reversed(nodes):
        while node.output and node.output[-1] not in needed:
            del node.output[-1]
        if node.output:
            needed.update(node.input)
            kept.append(node)
    return kept[::-1]


def _as_output(writer: Writer, name: str, described: list[Any]) -> str:
    """The name, or another one of the same value where it is an input, a constant or an output already."""
    made = any(name in node.output for node in writer.nodes)
    return name if made and all(d.name != name for d in described) else writer.ops("Identity", 1, name)[0]


def _finished(writer: Writer, prims: PrimGraph, values: dict[torch.fx.Node, Any], inputs: list[Any]) -> Model:
    helper = writer.helper
    placeholders = prims.placeholders
    described: list[Any] = []
    orders: list[tuple[int, ...]] = []
    results: list[int | None] = []
    places: dict[torch.fx.Node, int] = {}
    for node in prims.outputs:
        if not isinstance(node, torch.fx.Node) or not isinstance(values.get(node), Value):
            results.append(-1 - placeholders.index(node) if node in placeholders else None)
            continue
        if node in placeholders:
            results.append(-1 - placeholders.index(node))
            continue
        if node not in places:
            value = values[node]
            order = memory_order(value.spec)
            name = writer.op("Transpose", value.name, perm=list(order)) if order != tuple(range(value.ndim)) else value.name
            name = _as_output(writer, name, described)
            places[node] = len(described)
            sizes = [_dim(value.sizes[d]) for d in order]
            described.append(helper.make_tensor_value_info(name, ELEMENT_TYPES[value.dtype], sizes))
            orders.append(order)
        results.append(places[node])
    checked = bool(writer.bad)
    if checked:
        total = writer.bad[0]
        for count in writer.bad[1:]:
            total = writer.op("Add", total, count)
        total = _as_output(writer, total, described)
        described.append(helper.make_tensor_value_info(total, ELEMENT_TYPES[torch.int64], []))
    nodes = _live(writer.nodes, {d.name for d in described})
    read = {name for node in nodes for name in node.input}
    constants = [c for c in writer.constants if c.name in read]
    graph = helper.make_graph(nodes, prims.role, [i for i, _ in inputs if i.name in read], described, initializer=constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return Model(
        proto,
        tuple(i.name if i.name in read else None for i, _ in inputs),
        tuple(order for _, order in inputs),
        tuple(d.name for d in described),
        tuple(orders),
        tuple(results),
        checked,
    )

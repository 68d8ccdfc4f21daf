"""Builds PrimGraphs whose sizes follow a symbol, and runs them on an engine against PrimGraph.run."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from prim_records import SIZES, Record
from tracework.onnx.program import Engine, Program
from tracework.onnx_engines import ENGINES
from tracework_primops import Expr, GraphBuilder, PrimGraph, PrimValue, TensorSpec, symbol, verify

S = symbol("s0", 2, None)
TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 1e-3, torch.float64: 1e-12}


OPTIONS = {
    "onnxrt": {"session_options": {"intra_op_num_threads": 1}},
    "openvino": {"config": {"INFERENCE_NUM_THREADS": 1}},
    "tvm": {},
}


def engine_of(name: str) -> Engine:
    """The engine, for one thread; skips a test where its package is not installed."""
    row = ENGINES[name]
    pytest.importorskip(row.package, reason=f"the extra tracework[{row.extra}] is not installed")
    module = importlib.import_module(f"tracework.onnx.engines.{row.module}")
    return getattr(module, row.attribute)(OPTIONS[name], torch.device("cpu"))


def sizes_by_symbol(first: Sequence[int], second: Sequence[int], n: int, m: int) -> list[Any]:
    """Sizes as a*s0 + b, from those at n and at m."""
    found: list[Any] = []
    for a, b in zip(first, second, strict=True):
        slope = (b - a) // (m - n)
        found.append(a if a == b else S * slope + (a - n * slope))
    return found


def graph_of(call: Callable[..., Any], specs: Sequence[TensorSpec], n: Any) -> PrimGraph:
    """The graph of call(n, *values)."""
    graph = torch.fx.Graph()
    values = []
    for number, spec in enumerate(specs):
        node = graph.placeholder(f"in{number}")
        node.meta["spec"] = spec
        values.append(PrimValue(spec, node))
    with GraphBuilder(graph):
        made = call(n, *values)
    graph.output(tuple(v.node for v in made if v is not None) if isinstance(made, tuple) else (made.node,))
    found = PrimGraph.from_fx(graph)
    verify(found)
    return found


def symbolic_graph(call: Callable[..., Any], inputs: Callable[[int], list[torch.Tensor]], n: int, m: int) -> PrimGraph:
    """One graph for all sizes; a last input of this size, which nothing reads, tells the symbol."""
    pairs = zip(inputs(n), inputs(m), strict=True)
    specs = [TensorSpec(a.dtype, a.device, tuple(sizes_by_symbol(a.shape, b.shape, n, m))) for a, b in pairs]
    return graph_of(
        lambda size, *values: call(size, *values[:-1]), [*specs, TensorSpec(torch.bool, torch.device("cpu"), (S,))], S
    )


def static_graph(call: Callable[..., Any], inputs: list[torch.Tensor], n: int) -> PrimGraph:
    """A graph for the sizes of these inputs."""
    return graph_of(call, [TensorSpec(t.dtype, t.device, tuple(t.shape)) for t in inputs], n)


def assert_equals_run(program: Program, graph: PrimGraph, inputs: list[torch.Tensor], tolerance: float) -> None:
    """Values, dtypes, sizes and strides are those of PrimGraph.run."""
    expected = graph.run(*[t.clone() for t in inputs])
    found = program([t.clone() for t in inputs])
    for e, f in zip(expected, found, strict=True):
        assert (e.dtype, e.shape) == (f.dtype, f.shape)
        rtol = max(tolerance, TOLERANCE.get(e.dtype, 0.0)) if e.dtype.is_floating_point else 0
        torch.testing.assert_close(f, e, rtol=rtol, atol=rtol, equal_nan=True)
    for node, f in zip(graph.outputs, found, strict=True):
        spec = node.meta["spec"]
        if not any(isinstance(s, Expr) for s in spec.strides):
            assert [s for s, n in zip(f.stride(), f.shape) if n > 1] == [s for s, n in zip(spec.strides, f.shape) if n > 1]


def program_of(graph: PrimGraph, engine: Engine) -> tuple[Program, list[str]]:
    """The graph on an engine, and what is told of it."""
    told: list[str] = []
    return Program(graph, engine, lambda reason, place: told.append(reason)), told


class ByEager(Exception):
    """A call that is equal, but that the engine was not given, or refuses; the text says why."""


def check_record(record: Record, engine: Engine, look: Callable[[Program], None] = lambda program: None) -> None:
    """A record's call on the engine alone, at three sizes, against PrimGraph.run. `look` is shown each program. Raises ByEager."""
    graph = program = None
    told: list[str] = []
    for n in SIZES:
        inputs = record.inputs(n) if record.static else [*record.inputs(n), torch.empty(n, dtype=torch.bool)]
        if record.static or graph is None or program is None:
            graph = (
                static_graph(record.call, inputs, n) if record.static else symbolic_graph(record.call, record.inputs, *SIZES[:2])
            )
            try:
                program, told = program_of(graph, engine)
            except Exception as error:
                text = " ".join(str(error).split())[:100]
                raise ByEager(f"{engine.name}: the graph is refused: {type(error).__name__} {text}") from error
            look(program)
        try:
            assert_equals_run(program, graph, inputs, record.tolerance)
        except Exception as error:
            raise AssertionError(f"n = {n}: {error}\n{graph.text()}") from error
        if told:
            raise ByEager(told[0])

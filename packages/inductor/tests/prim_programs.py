"""Builds PrimGraphs from functions over prims, and compares a compiled graph with the graph run by EAGER."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import tracework_runtime as runtime
from tracework_inductor import InductorOptions, compile_graph
from tracework_primops import GraphBuilder, PrimGraph, PrimValue, prims
from tracework_primops.op import active_builder
from tracework_primops.spec import SizeSpec, TensorSpec


def build(fn: Callable[..., Any], inputs: Sequence[Any], specs: Sequence[Any] | None = None) -> PrimGraph:
    """The graph of fn over values with the inputs' specs (or the given ones)."""
    graph = torch.fx.Graph()
    builder = GraphBuilder(graph)
    values: list[Any] = []
    for n, t in enumerate(inputs):
        node = graph.placeholder(f"in{n}")
        spec = specs[n] if specs is not None else TensorSpec(t.dtype, t.device, tuple(t.shape), tuple(t.stride()))
        node.meta["spec"] = spec
        values.append(spec.expr if isinstance(spec, SizeSpec) else PrimValue(spec, node))
    with builder:
        out = fn(*values)
    out = out if isinstance(out, tuple) else (out,)
    graph.output(tuple(o.node for o in out))
    return PrimGraph.from_fx(graph)


def overload(target: Any, args: Sequence[Any], *specs: Any, **kwargs: Any) -> Any:
    """The first result of a call that no prim stands for."""
    nodes = tuple(a.node if isinstance(a, PrimValue) else a for a in args)
    kwargs = {k: v.node if isinstance(v, PrimValue) else v for k, v in kwargs.items()}
    spec = specs if len(specs) > 1 else specs[0]
    builder = active_builder()
    found = builder.wrap(builder.append(target, nodes, spec, kwargs), spec)
    return found[0] if len(specs) > 1 else found


def copied(x: torch.Tensor) -> torch.Tensor:
    """The same values at the same place of a memory of its own, as the graph was compiled for."""
    return x.new_empty(0).set_(x.untyped_storage().clone(), x.storage_offset(), x.shape, x.stride())


def check(
    fn: Callable[..., Any],
    *inputs: Any,
    rtol: float | None = None,
    atol: float | None = None,
    options: InductorOptions | None = None,
    graph: PrimGraph | None = None,
) -> Any:
    """Compiles fn, runs it, compares with EAGER; returns the artifact."""
    graph = graph or build(fn, inputs)
    artifact = compile_graph(graph, options or InductorOptions())
    compiled = runtime.load(artifact)
    expected = graph.run(*[i.clone() if isinstance(i, torch.Tensor) else i for i in inputs])
    actual = compiled([copied(i) if isinstance(i, torch.Tensor) else i for i in inputs])
    for name, a, e in zip(result_names(graph), actual, expected, strict=True):
        assert a.dtype == e.dtype and a.shape == e.shape, name
        torch.testing.assert_close(a, e, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m, name=name: f"{name}: {m}")
    return artifact


def result_names(graph: PrimGraph) -> list[str]:
    """Of each result the node that it comes from, which of many says which one differs."""
    return [str(node) for node in graph.outputs]


def weights(scores: PrimValue) -> PrimValue:
    """A softmax as it is decomposed; -inf throughout is NaN."""
    e = prims.exp(prims.sub(scores, prims.amax(scores, (scores.ndim - 1,), True)))
    return prims.div(e, prims.sum(e, (scores.ndim - 1,), True))


def product(a: PrimValue, b: PrimValue) -> PrimValue:
    """Of (..., n, k) and (..., k, m), as matmul is decomposed."""
    lots = math.prod(a.sizes[:-2])
    flat = prims.bmm(prims.reshape(a, (lots, *a.sizes[-2:])), prims.reshape(b, (lots, *b.sizes[-2:])))
    return prims.reshape(flat, (*a.sizes[:-1], b.sizes[-1]))


# Weights with another tensor than attention's values, as a function of (weights, values): no attention of (lots, queries, keys).
OTHER_PRODUCTS: dict[str, Callable[[PrimValue, PrimValue], PrimValue]] = {
    "values of all heads": lambda w, v: prims.bmm(
        prims.reshape(w, (w.sizes[0], w.sizes[1] * w.sizes[2], w.sizes[3])), prims.sum(v, (1,), False)
    ),
    "values of each query": lambda w, v: prims.bmm(
        prims.reshape(w, (math.prod(w.sizes[:3]), 1, w.sizes[3])),
        prims.reshape(prims.expand(prims.unsqueeze(v, 2), (*w.sizes, v.sizes[3])), (math.prod(w.sizes[:3]), *v.sizes[2:])),
    ),
    "values of half of the keys": lambda w, v: prims.bmm(
        *(prims.reshape(x, (2 * x.sizes[0] * x.sizes[1], *of)) for x, of in (
            (w, (w.sizes[2], w.sizes[3] // 2)), (v, (v.sizes[2] // 2, v.sizes[3]))
        ))
    ),
}  # fmt: skip


def turned(x: PrimValue) -> PrimValue:
    """The last two axes the other way round."""
    return prims.permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))

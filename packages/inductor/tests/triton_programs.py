"""Programs of prims, taken through lowering, scheduling and the Triton renderer as a GPU's graphs are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from scalar_functions import FLOAT_BINARY, FLOAT_UNARY, operand
from tracework_inductor import InductorOptions, lower, schedule
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_inductor.codegen.wrapper.lines import host_program
from tracework_inductor.codegen.wrapper.python import host_source
from tracework_inductor.schedule.numbers import with_numbers_in_memory
from tracework_inductor.schedule.plan import ExternKernel
from tracework_primops import GraphBuilder, PrimValue, TensorSpec, prims
from tracework_primops.graph import PrimGraph


def graph_of(program: Callable[..., Any], *inputs: torch.Tensor, device: torch.device | None = None) -> PrimGraph:
    """The graph of a function of prims for inputs like these, on this device if one is given."""
    graph = torch.fx.Graph()
    builder = GraphBuilder(graph)
    values = []
    for n, t in enumerate(inputs):
        node = graph.placeholder(f"a{n}")
        node.meta["spec"] = TensorSpec(t.dtype, device or t.device, tuple(t.shape), tuple(t.stride()))
        values.append(PrimValue(node.meta["spec"], node))
    with builder:
        outputs = program(*values)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    graph.output(tuple(o.node for o in outputs))
    return PrimGraph.from_fx(graph)


def rendered(graph: PrimGraph, options: InductorOptions | None = None) -> tuple[str, dict[str, Any]]:
    """Host program, and rendered kernels by the name under which it calls them."""
    options, renderer = options or InductorOptions(), TritonRenderer()
    plan = schedule(lower(graph, options), options, renderer.capabilities)
    plan = with_numbers_in_memory(plan, options.numbers_in_memory) if options.numbers_in_memory else plan
    kernels = {k.name: renderer.render(k) for k in plan.kernels if not isinstance(k, ExternKernel)}
    return host_source(host_program(plan, {name: name for name in kernels}), ()), kernels


def softmax(x: Any) -> Any:
    m = prims.amax(x, (1,), True)
    e = prims.exp(prims.sub(x, m))
    return prims.div(e, prims.sum(e, (1,), True))


def layer_norm(x: Any, w: Any, b: Any, residual: Any) -> Any:
    x = prims.add(x, residual)
    var, mean = prims.var_mean(x, (2,), 0, True)
    y = prims.mul(prims.sub(x, mean), prims.rsqrt(prims.add(var, 1e-5)))
    return x, prims.add(prims.mul(y, w), b), prims.rsqrt(prims.add(var, 1e-5))


def gelu_backward(g: Any, x: Any) -> Any:
    cdf = prims.mul(prims.add(prims.erf(prims.mul(x, 0.7071067811865476)), 1.0), 0.5)
    pdf = prims.mul(prims.exp(prims.mul(prims.mul(x, x), -0.5)), 0.3989422804014327)
    gx = prims.mul(g, prims.add(cdf, prims.mul(x, pdf)))
    return gx, prims.sum(gx, (0,), False)


def batch_norm(x: Any, w: Any, b: Any) -> Any:
    var, mean = prims.var_mean(x, (0, 2, 3), 0, True)
    y = prims.mul(prims.sub(x, mean), prims.rsqrt(prims.add(var, 1e-5)))
    w4, b4 = prims.reshape(w, (1, 6, 1, 1)), prims.reshape(b, (1, 6, 1, 1))
    y = prims.add(prims.mul(y, w4), b4)
    return prims.maximum(y, 0.0), prims.reshape(mean, (6,)), prims.reshape(var, (6,))


def attention_heads(x: Any) -> Any:
    y = prims.permute(prims.reshape(x, (2, 16, 4, 8)), (0, 2, 1, 3))
    return prims.clone(prims.mul(y, 2.0)), prims.cat((x, prims.neg(x)), 1)


def embedding(table: Any, ids: Any, g: Any) -> Any:
    rows = prims.index(table, (ids,))
    grad = prims.index_put(prims.full((50, 12), 0.0, torch.float32, table.spec.device), (ids,), g, True)
    return prims.add(rows, 1.0), grad


def rope(x: Any, cos: Any, sin: Any) -> Any:
    left, right = prims.slice(x, 3, 0, 8, 1), prims.slice(x, 3, 8, 16, 1)
    turned = prims.cat((prims.neg(right), left), 3)
    return prims.add(prims.mul(x, cos), prims.mul(turned, sin))


def cross_entropy(x: Any) -> Any:
    m = prims.amax(x, (1,), True)
    s = prims.log(prims.sum(prims.exp(prims.sub(x, m)), (1,), True))
    lp = prims.sub(prims.sub(x, m), s)
    return lp, prims.sum(lp, (0, 1), False)


def half_chain(x: Any, y: Any) -> Any:
    z = prims.add(prims.mul(x, y), y)
    f = prims.convert(z, torch.float32)
    n = prims.rsqrt(prims.add(prims.sum(prims.mul(f, f), (1,), True), 1e-3))
    return prims.convert(prims.mul(f, n), torch.bfloat16)


def max_pool(x: Any) -> Any:
    return prims.max_pool(x, (3, 3), (2, 2), (1, 1), (1, 1), False)


def scans(x: Any) -> Any:
    return prims.cumsum(x, 1), prims.argmax(x, 1, False)


def scan_across(x: Any) -> Any:
    """Sums over a flattened transpose: in the order of the elements, not of the memory that they lie in."""
    return prims.cumsum(prims.reshape(prims.permute(x, (1, 0)), (x.shape[0] * x.shape[1],)), 0)


def small_ones(x: Any, y: Any, count: Any) -> Any:
    """Several launches' worth of little work: other sizes, a transpose, a number, and two of the same form."""
    turned = prims.clone(prims.permute(x, (1, 0)))
    return prims.mul(x, 2.0), prims.add(y, 1.0), prims.add(count, 1), turned, prims.exp(prims.reshape(y, (70,))), prims.neg(count)


def signs_of_zeros(x: Any) -> tuple[Any, ...]:
    found = [op(x) for op in (prims.neg, prims.floor, prims.ceil, prims.trunc, prims.round, prims.sin)]
    return tuple([prims.signbit(v) for v in [*found, prims.mul(x, x), prims.sub(0.0, x), prims.neg(prims.neg(x))]])


def functions_of_one(*values: Any) -> tuple[Any, ...]:
    return tuple([getattr(prims, name)(x) for name, x in zip(FLOAT_UNARY, values, strict=True)])


def functions_of_two(y: Any, *values: Any) -> tuple[Any, ...]:
    return tuple([getattr(prims, name)(x, y) for name, x in zip(FLOAT_BINARY, values, strict=True)])


def operands(names: list[str], dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    return tuple([operand(name, dtype, seed) for seed, name in enumerate(names)])


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "softmax": (softmax, lambda: (torch.randn(9, 33),)),
    "layer norm": (
        layer_norm, lambda: (torch.randn(2, 5, 48), torch.randn(48), torch.randn(48), torch.randn(2, 5, 48)),
    ),
    "gelu backward": (gelu_backward, lambda: (torch.randn(300, 20), torch.randn(300, 20))),
    "batch norm": (batch_norm, lambda: (torch.randn(4, 6, 5, 7), torch.randn(6), torch.randn(6))),
    "attention heads": (attention_heads, lambda: (torch.randn(2, 16, 32),)),
    "embedding": (embedding, lambda: (torch.randn(50, 12), torch.randint(0, 50, (30,)), torch.randn(30, 12))),
    "rope": (rope, lambda: (torch.randn(2, 3, 5, 16), torch.randn(5, 16), torch.randn(5, 16))),
    "cross entropy": (cross_entropy, lambda: (torch.randn(6, 1000),)),
    "half chain": (half_chain, lambda: (torch.randn(7, 64).bfloat16(), torch.randn(7, 64).bfloat16())),
    "max pool": (max_pool, lambda: (torch.randn(2, 3, 9, 10).contiguous(memory_format=torch.channels_last),)),
    "scans": (scans, lambda: (torch.randn(3, 40),)),
    "scan across": (scan_across, lambda: (torch.randn(6, 40),)),
    "signs of zeros": (signs_of_zeros, lambda: (torch.tensor([0.0, -0.0, 0.3, -0.3, 2.5, -2.5]),)),
    "signs of zeros, float64": (signs_of_zeros, lambda: (torch.tensor([0.0, -0.0, 0.3, -0.3, 2.5]).double(),)),
    "signs of zeros, bfloat16": (signs_of_zeros, lambda: (torch.tensor([0.0, -0.0, 0.3, -0.3, 2.5]).bfloat16(),)),
    "functions": (functions_of_one, lambda: operands(FLOAT_UNARY, torch.float32)),
    "functions, float64": (functions_of_one, lambda: operands(FLOAT_UNARY, torch.float64)),
    "functions of two": (functions_of_two, lambda: (torch.randn(33), *operands(FLOAT_BINARY, torch.float32))),
    "functions of two, float64": (functions_of_two, lambda: (torch.randn(33).double(), *operands(FLOAT_BINARY, torch.float64))),
    "small ones": (small_ones, lambda: (torch.randn(300, 20), torch.randn(7, 10), torch.tensor(3))),
}  # fmt: skip

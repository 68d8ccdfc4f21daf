"""One ATen call against its decomposition: the call is put in a graph alone, decomposed, run with EAGER and compared with torch."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.utils._python_dispatch import TorchDispatchMode
from tracework_primops import FakeMode, decompose
from tracework_primops.op import Op

TOLERANCE = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (2e-5, 2e-5),
    torch.bfloat16: (2e-2, 2e-2),
    torch.float16: (2e-3, 2e-3),
    torch.complex64: (2e-5, 2e-5),
    torch.complex128: (1e-9, 1e-9),
}


def mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """What lists, tuples and dicts hold, changed; torch's own function for that takes several times as long."""
    if isinstance(value, (list, tuple)):
        return (list if isinstance(value, list) else tuple)([mapped(change, v) for v in value])
    return {k: mapped(change, v) for k, v in value.items()} if isinstance(value, dict) else change(value)


def leaves(value: Any) -> list[Any]:
    """What lists, tuples and dicts hold, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    return [x for v in value for x in leaves(v)] if isinstance(value, (list, tuple)) else [value]


@dataclass
class Module:
    """What decompose() reads of a GraphModule, which would also write Python code for the graph."""

    graph: torch.fx.Graph


def graph_of(func: Any, args: Any, kwargs: Any, result: Any) -> tuple[Module, list[torch.Tensor]]:
    """A graph with this call alone; every tensor argument is an input."""
    graph, inputs, nodes = torch.fx.Graph(), [], {}

    def lift(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in nodes:
            node = graph.placeholder(f"x{len(inputs)}")
            node.meta["val"] = value
            nodes[id(value)] = node
            inputs.append(value)
        return nodes[id(value)]

    args, kwargs = mapped(lift, tuple(args)), mapped(lift, dict(kwargs))
    node = graph.call_function(func, args, kwargs)
    node.meta["val"], node.meta["origin"] = result, f"test:0 {func}"
    graph.output(_results(graph, node, result))
    return Module(graph), inputs


def _results(graph: torch.fx.Graph, node: Any, result: Any) -> tuple[Any, ...]:
    if not isinstance(result, (tuple, list)):
        return (node,)
    out: list[Any] = []
    for i, value in enumerate(result):
        if value is None:
            continue
        item = graph.call_function(operator.getitem, (node, i))
        item.meta["val"] = value
        out.extend(_results(graph, item, value))
    return tuple(out)


def difference(expected: Any, got: Any) -> str | None:
    """What differs between two values, None if nothing does."""
    if not isinstance(expected, torch.Tensor):
        return None if expected == got else f"{got} instead of {expected}"
    if expected.dtype != got.dtype or expected.shape != got.shape:
        return f"{got.dtype} {tuple(got.shape)} instead of {expected.dtype} {tuple(expected.shape)}"
    if torch.equal(expected, got):  # what takes time is to say how they differ
        return None
    rtol, atol = TOLERANCE.get(expected.dtype, (0, 0))
    try:
        torch.testing.assert_close(got, expected, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        return str(error).replace("\n", " ")
    return None


def check(func: Any, args: Any, kwargs: Any, compare: bool = True, **options: Any) -> tuple[str, str | None]:
    """("prims" | "extern" | "empty", failure or None) for one call."""
    result = func(*args, **kwargs)
    gm, inputs = graph_of(func, args, kwargs, result)
    try:
        pg = decompose(gm, **options)
    except Exception as error:  # the text goes into the report
        return "prims", f"decompose: {type(error).__name__}: {error}"
    kind = "prims" if all(isinstance(n.target, Op) or n.target is operator.getitem for n in pg.calls) else "extern"
    if kind == "extern" or not compare:
        return kind, None
    wanted = [v for v in leaves(result) if v is not None]
    try:
        got = pg.run(*inputs)
    except Exception as error:
        return kind, f"run: {type(error).__name__}: {error}"
    if len(got) != len(wanted):
        return kind, f"{len(got)} results instead of {len(wanted)}"
    for i, (e, g, node) in enumerate(zip(wanted, got, pg.outputs)):
        found = difference(e, g)
        if found and as_near_as_eager(func, args, kwargs, i, e, g):
            found = None
        found = found or _spec_difference(e, node)
        if found:
            return kind, f"result {i}: {found}"
    return kind, None


class OnPrims(TorchDispatchMode):
    """Runs each functional ATen call, made on real tensors, as its decomposition with EAGER; sizes come from fakes.

    What writes to its arguments is left to eager: functional graphs have no such calls.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would wrap the handler with its compiler's decorator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace != "aten" or func._schema.is_mutable or any(r.alias_info for r in func._schema.returns):
            return func(*args, **kwargs)
        mode = FakeMode()
        fakes = mapped(lambda t: mode.from_real(t) if isinstance(t, torch.Tensor) else t, (args, kwargs))
        with mode:
            result = func(*fakes[0], **fakes[1])
        gm, inputs = graph_of(func, args, kwargs, result)
        outputs = iter(decompose(gm).run(*inputs))
        return mapped(lambda r: r if r is None else next(outputs), result)


WIDE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64, torch.float64: torch.float64}
WIDE |= {torch.complex32: torch.complex128, torch.complex64: torch.complex128, torch.complex128: torch.complex128}


def as_near_as_eager(func: Any, args: Any, kwargs: Any, index: int, expected: Any, got: Any) -> bool:
    """Whether `got` is about as far from the result in float64 as eager's is.

    Eager's distance says what rounding in this dtype does to this op. Two orders of the same operations may differ by a small
    factor (4) of it, and by 4 roundings of the largest element where eager happens to be exact.
    """
    if not isinstance(expected, torch.Tensor) or expected.dtype not in WIDE or expected.shape != got.shape:
        return False
    if expected.dtype in (torch.float64, torch.complex128):
        return False  # there is nothing wider to compare with

    def widened(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(WIDE[value.dtype]) if value.dtype in WIDE else value
        return WIDE.get(value, value) if isinstance(value, torch.dtype) else value

    try:
        exact = func(*mapped(widened, tuple(args)), **mapped(widened, dict(kwargs)))
    except (RuntimeError, NotImplementedError):  # no kernel in float64
        return False
    exact = [v for v in leaves(exact) if v is not None][index].to(WIDE[expected.dtype])
    wide_expected, wide_got = expected.to(exact.dtype), got.to(exact.dtype)
    finite = exact.isfinite() & wide_expected.isfinite()
    if not torch.equal(wide_got[~finite].nan_to_num(), wide_expected[~finite].nan_to_num()) or not bool(finite.any()):
        return False
    largest = float(exact[finite].abs().max())
    allowed = 4 * float((wide_expected - exact)[finite].abs().max()) + 4 * torch.finfo(expected.dtype).eps * largest
    return float((wide_got - exact)[finite].abs().max()) <= allowed


def _spec_difference(expected: Any, node: Any) -> str | None:
    if not isinstance(expected, torch.Tensor) or not isinstance(node, torch.fx.Node) or node.op == "placeholder":
        return None
    spec = node.meta["spec"]
    if tuple(spec.sizes) != tuple(expected.shape) or spec.dtype is not expected.dtype:
        return f"the spec says {spec}, the result is {expected.dtype} {tuple(expected.shape)}"
    return None


RANDOM = (
    "rand",
    "dropout",
    "bernoulli",
    "normal",
    "uniform",
    "multinomial",
    "exponential",
    "poisson",
    "binomial",
    "empty",
    "rrelu_with_noise",
)


class Calls(TorchDispatchMode):
    """Records (func, args, kwargs) of functional ATen calls, with copies of the tensors; equal signatures once."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Any, tuple[Any, Any, Any]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would wrap the handler with its compiler's decorator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "aten" and not func._schema.is_mutable and torch.Tag.data_dependent_output not in func.tags:
            key = (func, signature(args), signature(kwargs))
            if key not in self.calls:
                self.calls[key] = (func, *mapped(copied, (args, kwargs)))
        return func(*args, **kwargs)


def signature(value: Any) -> Any:
    """What makes two calls alike."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.stride()
    if isinstance(value, dict):
        value = tuple(value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(signature, value))
    return value.__class__, str(value)  # a NaN is itself, 1 is not True


def copied(value: Any) -> Any:
    """A tensor's copy with the same strides."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value
    with torch.no_grad():
        if value.is_conj() or value.is_neg():
            return value.resolve_conj().resolve_neg()
        extent = 1 + sum((s - 1) * t for s, t in zip(value.shape, value.stride())) if value.numel() else 0
        base = torch.as_strided(value.detach(), (extent,), (1,), value.storage_offset()).clone()
        return base.as_strided(value.shape, value.stride(), 0)


def is_random(func: Any) -> bool:
    """Calls whose values cannot be compared."""
    return torch.Tag.nondeterministic_seeded in func.tags or any(part in func._schema.name for part in RANDOM)


__all__ = ["Calls", "OnPrims", "check", "copied", "difference", "graph_of", "is_random", "leaves", "mapped"]

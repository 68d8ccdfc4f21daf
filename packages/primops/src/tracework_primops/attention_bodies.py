"""The bodies of attention: two functions of scores, traced and written in prims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .aten_graph import Recorder
from .attention import Bodies, Trained
from .decompose import decompose
from .errors import PrimError
from .fake import FakeMode
from .graph import print_graph
from .passes import run_passes
from .spec import SizeSpec, TensorSpec
from .symbols import Expr, Size, Symbol, SymbolTable

INDEX_SIZES = (3, 5, 7, 11)
"""Of the example that bodies are traced with: all different, none of them 1."""


def trace_bodies(
    score: Callable[..., Any],
    keep: Callable[..., Any],
    captured: Sequence[Any],
    dtype: torch.dtype,
    device: torch.device,
    table: SymbolTable | None,
    trained: Mapping[int, str] | None = None,
) -> Bodies:
    """The bodies of two functions of (scores, b, h, i, j, *captured), which are given fakes. dtype, device: of the scores.

    captured: fakes or specs, taken to be on that device, and torch.SymInt of `table`. trained: places of those with gradients, and their
    axes; in their place, functions are given what is read of them for scores. Raises PrimError for what has no form in prims.
    """
    trace = _Trace(captured, dtype, device, table, trained or {})
    factors = [Trained(place, axes, trace.text(score, by=place)) for place, axes in trace.trained.items()]
    return Bodies(trace.text(score), trace.text(keep), trace.text(score, by=SCORES), tuple(factors))


SCORES = -1
"""In the place of a captured tensor by which a function is derived."""


class _Trace:
    """The inputs of bodies, over symbols of their own: a body holds for all sizes."""

    def __init__(
        self,
        captured: Sequence[Any],
        dtype: torch.dtype,
        device: torch.device,
        table: SymbolTable | None,
        trained: Mapping[int, str],
    ) -> None:
        self.outer: Any = table  # None where no size is a symbol
        self.table, self.device, self.trained = SymbolTable(), device, trained
        self.known: dict[Expr, Symbol] = {}
        sizes = [self.table.new(size, lower=2) for size in INDEX_SIZES]
        self.specs: list[TensorSpec | SizeSpec] = [TensorSpec(dtype, device, tuple(sizes))]
        for dim, size in enumerate(sizes):
            self.specs.append(TensorSpec(torch.int64, device, tuple(size if d == dim else 1 for d in range(4))))
        self.specs += [self._spec(value) for value in captured]

    def _spec(self, value: Any) -> TensorSpec | SizeSpec:
        if isinstance(value, torch.SymInt):
            return SizeSpec(self._size(self.outer.from_symint(value), number=True))
        spec = value if isinstance(value, TensorSpec) else getattr(value, "spec", None)
        sizes = tuple(value.shape) if spec is None else spec.sizes
        return TensorSpec(value.dtype, self.device, tuple(map(self._size, sizes)))

    def _size(self, size: Size, number: bool = False) -> Size:
        if not isinstance(size, Expr):
            return size
        if size not in self.known:
            self.known[size] = self.table.new(self.outer.hint(size), number=number)
        return self.known[size]

    def text(self, function: Callable[..., Any], by: int | None = None) -> str:
        """The body of a function; of its derivative by scores or by what is read of a captured tensor, empty where it gives the scores
        themselves."""

        mode, recorder = FakeMode(self.table), Recorder()
        inputs: list[Any] = []
        for n, spec in enumerate(self.specs):
            if isinstance(spec, SizeSpec):
                inputs.append(self.table.to_symint(spec.expr))
            else:
                inputs.append(mode.make(spec, requires_grad=by == SCORES and n == 0))
            recorder.placeholder(f"x{n}", inputs[-1])
        conditions = len(self.table.conditions)
        with torch.set_grad_enabled(by is not None), mode:
            mode.recorder = recorder
            try:
                scores, *others = inputs
                for place, axes in self.trained.items():
                    read = _read(others[4 + place], axes, scores, others[:4])
                    others[4 + place] = read.expand(scores.shape).detach().requires_grad_() if by == place else read
                result = function(scores, *others)
                if by is not None:
                    if result is scores and by == SCORES:
                        return ""
                    (result,) = self._derivative(result, scores if by == SCORES else others[4 + by])
            finally:
                mode.recorder = None
        if len(self.table.conditions) != conditions:
            raise PrimError("a function of scores depends on the sizes of what it captures")
        recorder.graph.output((recorder.node_of(result),))
        graph = run_passes(decompose(torch.fx.GraphModule({}, recorder.graph)))
        return print_graph(graph, origins=False, canonical=True)

    @staticmethod
    def _derivative(result: Any, by: Any) -> tuple[torch.Tensor, ...]:
        if not result.requires_grad:
            return (torch.zeros_like(by),)
        result = result.expand(by.shape)
        return torch.autograd.grad(result, by, torch.ones_like(result))


def _read(x: torch.Tensor, axes: str, scores: torch.Tensor, indices: Sequence[torch.Tensor]) -> torch.Tensor:
    """What a captured tensor of these axes gives for each score."""
    b, h, i, j = indices
    places = {"b": b, "h": h, "i": i, "j": j}
    if "d" in axes:
        places["d"] = i - j + (scores.size(3) - 1)
    return x[tuple(places[axis] for axis in axes)] if axes else x

"""Integers that an engine would round or cut: a model counts them, and a call with one is run by eager's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tracework_primops import Op, TensorSpec

from .table import ONNX_ROWS, Value
from .writer import FLOATS, Writer

GROWS: Mapping[str, tuple[str, frozenset[int]]] = {
    "sub": ("add", frozenset()),
    **{name: (name, frozenset()) for name in "add mul square fma sum prod cumsum mm bmm mv dot vdot addmm baddbmm".split()},
    **{name: (name, frozenset({2})) for name in "index_add scatter_add scatter_reduce".split()},
    **{name: (name, frozenset({1})) for name in "index_put put".split()},
}
"""Prim whose results may be larger than its operands -> the prim that gives the size of a result from the sizes of operands, and the places
of arguments that are indices. All others give what is there, or less."""


def count_large(w: Writer, target: Any, spec: Any, args: tuple[Any, ...]) -> None:
    """Counts results of a call that are too large for the engine. The spec is in the dtype that is computed in."""
    name = target.name if isinstance(target, Op) else ""
    limit = w.traits.sums_below if name in ("sum", "prod") else w.traits.integers_below
    if limit is None or name not in GROWS or not isinstance(spec, TensorSpec) or spec.dtype in FLOATS or spec.dtype is torch.bool:
        return
    limit = min(limit, torch.iinfo(spec.dtype).max)
    wide = torch.float32 if torch.float64 in w.traits.lacks else torch.float64
    by, indices = GROWS[name]

    def size(place: int, x: Any) -> Any:
        if isinstance(x, Value) and place not in indices:
            return Value(w.op("Abs", w.in_dtype(x, wide)), x.spec.replace(dtype=wide))
        return abs(x) if isinstance(x, (int, float)) and not isinstance(x, bool) else x

    row = next(row for op, row in ONNX_ROWS.items() if isinstance(op, Op) and op.name == by)
    found = row(w, spec.replace(dtype=wide), *(size(place, x) for place, x in enumerate(args)))
    w.refuse_values(w.op("Not", w.op("Less", found, w.constant(limit, wide))))

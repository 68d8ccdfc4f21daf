"""How far values may be from float64's: some times as far as eager's own are, and some steps of their dtype."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

TIMES = 8.0
"""How many times as far from float64 as eager a value may be."""
STEPS = {torch.float64: 1 << 16, torch.complex128: 1 << 16, torch.float32: 64, torch.complex64: 64}
"""How many steps of the largest number of a tensor its numbers may be off; float64 has no better reference than eager."""
FEW_STEPS = 4
"""The same for other dtypes, whose steps are large."""
SMALLEST = 1e-3
"""What the largest number of a tensor is taken for at least."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """place: among the values compared. what: how they differ, as text. kind: "values" or "layout". times: how many times as far off as is
    allowed; infinite where that is no matter of precision."""

    place: int
    what: str
    kind: str
    times: float = float("inf")


def compare(
    got: Sequence[Any], expected: Sequence[Any], reference: Sequence[Any] | None, layouts: bool = True, coarsest: float = 0.0
) -> Difference | None:
    """The first of the values that differs; `expected` are eager's, `reference` float64's, None where there are none: values may be off by
    some steps of `coarsest` then, which is that of the dtypes that they are computed in."""
    if len(got) != len(expected):
        return Difference(0, f"{len(got)} results where eager has {len(expected)}", "layout")
    for place, (mine, eagers) in enumerate(zip(got, expected)):
        best = reference[place] if reference is not None else None
        found = _layout(mine, eagers, layouts)
        if found is not None:
            return Difference(place, found, "layout")
        off = _values(mine, eagers, best, 0.0 if reference is not None else coarsest)
        if off is not None:
            return Difference(place, off[0], "values", off[1])
    return None


def layout_difference(given: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> str | None:
    """What of a tensor is not as it should be; None where nothing is. Strides of dims of one element, and of no elements, do not matter."""
    if given.dtype != dtype:
        return f"dtype {given.dtype} where {dtype} should be"
    if tuple(given.shape) != tuple(sizes):
        return f"sizes {tuple(given.shape)} where {tuple(sizes)} should be"
    walked = [d for d, size in enumerate(sizes) if size != 1] if given.numel() else []
    if any(given.stride()[d] != strides[d] for d in walked):
        return f"strides {given.stride()} where {tuple(strides)} should be"
    return None


def _layout(mine: Any, eagers: Any, strides: bool) -> str | None:
    if not isinstance(mine, torch.Tensor) or not isinstance(eagers, torch.Tensor):
        return None if type(mine) is type(eagers) else f"{type(mine).__name__} where eager has {type(eagers).__name__}"
    return layout_difference(mine, eagers.shape, eagers.stride() if strides else mine.stride(), eagers.dtype)


def _values(mine: Any, eagers: Any, best: Any, coarsest: float) -> tuple[str, float] | None:
    if not isinstance(mine, torch.Tensor):
        return None if mine == eagers else (f"{mine!r} where eager has {eagers!r}", float("inf"))
    if not mine.numel():
        return None
    mine, eagers = mine.detach(), eagers.detach()
    if not (mine.dtype.is_floating_point or mine.dtype.is_complex):
        wrong = mine != eagers
        if isinstance(best, torch.Tensor) and best.shape == mine.shape:
            wrong &= eagers == best  # where eager itself decides otherwise than float64, either is as good
        count = int(wrong.sum())
        return (f"wrong: {count} of {mine.numel()} elements differ from eager's", float("inf")) if count else None
    wide = torch.complex128 if mine.dtype.is_complex else torch.float64
    kind, mine, eagers = mine.dtype, mine.to(wide), eagers.to(wide)
    best = best.detach().to(wide) if isinstance(best, torch.Tensor) and best.shape == mine.shape else eagers
    finite = torch.isfinite(eagers) & torch.isfinite(best)
    odd = ~torch.isfinite(eagers) & (eagers.real.isnan() == best.real.isnan())
    differs = odd & ~torch.isclose(mine, eagers, rtol=0, atol=0, equal_nan=True)
    spread = finite & ~torch.isfinite(mine)
    if bool(differs.any()) or bool(spread.any()):
        count = int(differs.sum() + spread.sum())
        return (
            f"wrong: {count} of {mine.numel()} elements are infinite or NaN where eager's are not, or not where they are",
            float("inf"),
        )
    if not bool(finite.any()):
        return None
    error, eager_error = (mine - best)[finite].abs().max().item(), (eagers - best)[finite].abs().max().item()
    largest = max(best[finite].abs().max().item(), SMALLEST)
    steps = max(STEPS.get(kind, FEW_STEPS) * torch.finfo(kind).eps, FEW_STEPS * coarsest)
    allowed = TIMES * eager_error + steps * largest
    if error <= allowed:
        return None
    what = f"off by {error:.3g} from float64, where eager is by {eager_error:.3g} and {allowed:.3g} is allowed"
    return f"{what} (largest number {largest:.3g})", error / allowed

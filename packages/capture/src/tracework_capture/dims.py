"""Marks on tensors: which sizes are symbols (mark_dynamic, maybe_mark_dynamic, mark_unbacked), which never are (mark_static), and
whose address stays (mark_static_address).

They are attributes of the tensor under torch.compile's names, so that a mark counts whichever compiler set it; ranges and groups, which
torch.compile keeps in objects of its own classes, have attributes of ours beside them. `marks_of` reads both.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import torch

from .errors import ControlMisuse

SMALLEST = 2  # sizes 0 and 1 are always compiled by themselves


@dataclass(frozen=True)
class DimRange:
    """The sizes that a marked dim may have; None is no bound. `group`: dims of one group have one size."""

    lower: int | None = None
    upper: int | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        """Raises ControlMisuse for bounds that are no ints, or that no size is between."""
        if not all(bound is None or type(bound) is int for bound in (self.lower, self.upper)):
            raise ControlMisuse(f"bounds of sizes are ints or None, not {self.lower!r} and {self.upper!r}.")
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise ControlMisuse(f"no size is from {self.lower} to {self.upper}. Swap them.")


@dataclass(frozen=True)
class DimMarks:
    """All marks of one tensor; declared: those of dynamic that a compile call declared."""

    dynamic: frozenset[int] = frozenset()
    maybe: frozenset[int] = frozenset()
    unbacked: frozenset[int] = frozenset()
    static: frozenset[int] = frozenset()
    declared: frozenset[int] = frozenset()
    ranges: dict[int, DimRange] = field(default_factory=dict)
    static_address: str | None = None

    @property
    def strict(self) -> frozenset[int]:
        """Dims that must stay open: fixing one is an error."""
        return self.dynamic | self.unbacked

    def how(self, dim: int) -> str:
        """Who wants a dim open, in words."""
        return (
            "declared in shapes_spec" if dim in self.declared else "marked unbacked" if dim in self.unbacked else "marked dynamic"
        )


NO_MARKS = DimMarks()
_FIELDS = {
    "dynamic": ("_dynamo_dynamic_indices",),
    "maybe": ("_dynamo_weak_dynamic_indices",),
    "unbacked": ("_dynamo_unbacked_indices", "_dynamo_strict_unbacked_indices"),
    "static": ("_dynamo_static_indices",),
}
_RANGES = "_tracework_dim_ranges"


def marks_of(tensor: torch.Tensor) -> DimMarks:
    """The marks of a tensor on dims that it has; torch.compile's take any."""
    attributes = tensor.__dict__
    if not attributes:
        return NO_MARKS
    there = range(tensor.dim())
    dims = {n: frozenset(d for key in keys for d in attributes.get(key) or () if d in there) for n, keys in _FIELDS.items()}
    ranges = {d: limits for d, limits in _ranges(attributes).items() if d in there}
    return DimMarks(**dims, ranges=ranges, static_address=attributes.get("_dynamo_static_input_type"))


def _ranges(attributes: dict[str, Any]) -> dict[int, DimRange]:
    found = {each.dim: DimRange(each.min, each.max) for each in attributes.get("_dynamo_dynamic_range") or ()}
    bounds, groups = attributes.get("_dynamo_unbacked_bounds") or {}, attributes.get("_dynamo_shape_ids") or {}
    for dim in {*bounds, *groups}:
        lower, upper = bounds.get(dim) or (None, None)
        found[dim] = DimRange(lower, upper, groups.get(dim))
    return {**found, **(attributes.get(_RANGES) or {})}


def _dims(t: Any, index: Any, control: str) -> list[int]:
    """The dims meant, counted from 0; of a dim that the tensor does not have a warning says so. Raises ControlMisuse."""
    if not isinstance(t, torch.Tensor):
        raise ControlMisuse(
            f"{control}() takes a tensor, not {type(t).__name__}. Mark the tensors that are the function's arguments."
        )
    wanted = [index] if isinstance(index, int) else list(index) if isinstance(index, (list, tuple, range)) else [index]
    if not all(isinstance(d, int) for d in wanted):
        raise ControlMisuse(
            f"{control}() takes a dim or a list of dims, not {index!r}. Write {control}(t, 0) or {control}(t, [0, 1])."
        )
    for dim in wanted:
        if not -t.dim() <= dim < t.dim():
            text = f"{control}(): a tensor of {t.dim()} dims has no dim {dim}, which is left out. Give one of {list(range(t.dim()))}."
            warnings.warn(text, stacklevel=3)
    return [dim % t.dim() for dim in wanted if -t.dim() <= dim < t.dim()]


def _add(t: Any, attribute: str, dims: list[int]) -> None:
    t.__dict__.setdefault(attribute, set()).update(dims)
    t.__dict__["_has_dynamo_dim_marking"] = True


def _set_ranges(t: Any, dims: list[int], limits: DimRange, control: str) -> None:
    if limits == DimRange():
        return
    for dim in dims:
        size = t.shape[dim]
        if (limits.lower is not None and size < limits.lower) or (limits.upper is not None and size > limits.upper):
            raise ControlMisuse(
                f"{control}(min={limits.lower}, max={limits.upper}): dim {dim} has size {size}, outside of the range. Widen it."
            )
        t.__dict__.setdefault(_RANGES, {})[dim] = limits


def mark_dynamic(t: Any, index: int | list[int] | tuple[int, ...], *, min: int | None = None, max: int | None = None) -> None:
    """Sizes of these dims are symbols from the first capture on; it is an error when the program fixes one.

    min, max: sizes outside are compiled by themselves; inside, nothing is checked that the range answers.
    Raises ControlMisuse for what is not a tensor, or a range without the present size.
    """
    dims = _dims(t, index, "mark_dynamic")
    _set_ranges(t, dims, DimRange(min, max), "mark_dynamic")
    _add(t, "_dynamo_dynamic_indices", dims)
    t.__dict__.setdefault("_dynamo_dynamic_range", set())


def maybe_mark_dynamic(t: Any, index: int | list[int] | tuple[int, ...]) -> None:
    """As mark_dynamic, but the program may fix the size: a wish, no demand."""
    _add(t, "_dynamo_weak_dynamic_indices", _dims(t, index, "maybe_mark_dynamic"))


def mark_static(t: Any, index: int | list[int] | tuple[int, ...] | None = None) -> Any:
    """Sizes of these dims (all, without index) are never symbols, dynamic=True or not; mark_dynamic goes before it.

    Also takes an nn.Module class and gives it back: ints that its instances hold stay constants.
    """
    if isinstance(t, type) and issubclass(t, torch.nn.Module):
        t._dynamo_marked_static = True  # type: ignore[attr-defined]
        return t
    _add(t, "_dynamo_static_indices", _dims(t, range(t.dim()) if index is None and hasattr(t, "dim") else index, "mark_static"))
    return None


def mark_static_address(t: Any, guard: bool = False) -> None:
    """The tensor's memory stays where it is; CUDA graphs need not copy it. With guard, another address compiles anew."""
    _dims(t, [], "mark_static_address")
    t._dynamo_static_input_type = "guarded" if guard else "unguarded"


def mark_unbacked(
    t: Any,
    index: int | list[int] | tuple[int, ...],
    *,
    shape_id: str | None = None,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """Sizes of these dims are symbols and nothing may be decided on them: it is an error when the program does.

    shape_id: dims with the same name have the same size. min, max: what is known of the size, which may answer such questions.
    """
    dims = _dims(t, index, "mark_unbacked")
    _set_ranges(t, dims, DimRange(min, max, shape_id), "mark_unbacked")
    _add(t, "_dynamo_unbacked_indices", dims)


for _control in (mark_dynamic, maybe_mark_dynamic, mark_static, mark_static_address, mark_unbacked):
    setattr(_control, "_dynamo_forbidden", True)  # noqa: B010

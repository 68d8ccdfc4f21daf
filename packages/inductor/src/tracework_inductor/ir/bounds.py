"""Between which numbers a value of a loop body lies, and whether a computed position is known to be in range."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tracework_primops import bounds
from tracework_primops.symbols.ranges import INF, is_nonnegative

from .body import Instruction, Ref
from .index import Size

Ranges = Mapping[Any, tuple[Size, Size]]
Interval = tuple[Any, Any]
UNKNOWN: Interval = (-INF, INF)


def in_range(instructions: Sequence[Instruction], value: Ref, size: Size, ranges: Ranges, low: int = 0) -> bool:
    """Whether `low <= value < size` follows from the body; ranges: inclusive, of the loop variables."""
    i = instructions[value.position]
    if i.op == "index_expr":
        return is_nonnegative(i.args[0] - low, ranges) and is_nonnegative(size - 1 - i.args[0], ranges)
    least, most = interval(instructions, value, ranges)
    return bool(least >= low and most < bounds(size)[0])


def interval(instructions: Sequence[Instruction], value: Ref, ranges: Ranges) -> Interval:
    """(lowest, highest), both inclusive; infinite where unknown. Of integers only: rounding is not looked at."""
    known: dict[int, Interval] = {}

    def of(ref: Ref) -> Interval:
        if ref.position not in known:
            known[ref.position] = _interval(instructions[ref.position], of, ranges)
        return known[ref.position]

    return of(value)


def narrowed(instructions: Sequence[Instruction], ranges: Ranges) -> list[Instruction]:
    """The same with 32 bits for whole numbers that are known to fit, and for what is computed from such."""
    made: list[Instruction] = []
    refs: list[Ref] = []
    for i in instructions:
        narrow = i.dtype == torch.int64 and i.op in NARROW and _fits(interval(instructions, Ref(len(refs)), ranges))
        wide = [a for a in i.args if isinstance(a, Ref) and instructions[a.position].dtype == torch.int64]
        all_narrow = all(made[refs[a.position].position].dtype == torch.int32 for a in wide)
        narrow = narrow and all_narrow
        free = narrow or i.op == "to_dtype" or (i.op in COMPARISONS and all_narrow)
        args: list[Any] = []
        for a in i.args:
            if isinstance(a, Ref):
                new = refs[a.position]
                if a in wide and not free and made[new.position].dtype == torch.int32:
                    made.append(Instruction("to_dtype", (new, torch.int64), torch.int64))
                    new = Ref(len(made) - 1)
                a = new
            elif narrow and a is torch.int64:
                a = torch.int32
            args.append(a)
        if i.op == "to_dtype" and args[1] == made[args[0].position].dtype:
            refs.append(args[0])
            continue
        refs.append(Ref(len(made)))
        made.append(Instruction(i.op, tuple(args), torch.int32 if narrow else i.dtype))
    return made


def _fits(limits: Interval) -> bool:
    return bool(limits[0] > -(2**31) and limits[1] < 2**31)


def _interval(i: Instruction, of: Callable[[Ref], Interval], ranges: Ranges) -> Interval:
    if i.dtype is None or i.dtype.is_floating_point:
        return UNKNOWN
    limits = (0, 1) if i.dtype == torch.bool else (torch.iinfo(i.dtype).min, torch.iinfo(i.dtype).max)
    if i.op == "constant":
        number = int(i.args[0]) if i.args[0] not in ("True", "False") else int(i.args[0] == "True")
        return number, number
    if i.op == "index_expr":
        return bounds(i.args[0], ranges)
    rule = INTERVALS.get(i.op)
    least, most = rule(*[of(a) for a in i.args if isinstance(a, Ref)]) if rule is not None else UNKNOWN
    return (least, most) if limits[0] <= least and most <= limits[1] else limits  # it may wrap around


def _remainder(a: Interval, b: Interval) -> Interval:
    """With the divisor's sign."""
    return (0, b[1] - 1) if b[0] > 0 else UNKNOWN


def _products(a: Interval, b: Interval) -> Interval:
    ends = [x * y for x in a for y in b] if all(abs(x) < INF for x in (*a, *b)) else [-INF, INF]
    return min(ends), max(ends)


INTERVALS: dict[str, Callable[..., Interval]] = {
    "to_dtype": lambda a: a,
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _products,
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (max(a[0], -a[1], 0), max(a[1], -a[0])),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "remainder": _remainder,
    "where": lambda _, a, b: (min(a[0], b[0]), max(a[1], b[1])),
}
"""Scalar op -> the interval of its result from those of its operands."""
NARROW = frozenset({"constant", "index_expr", *INTERVALS})
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})

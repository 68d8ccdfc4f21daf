"""Bodies in parts: what a vector loop computes up to a function, the function of whole vectors, and what follows, group by group.

Of a function that is written out in a loop's body g++ makes its own vectors; those of vector_functions.py are faster, and stand between two
loops over a group. What one part hands to another lies in small arrays. Their loops have lengths that g++ knows, so that it keeps these in
registers. What is less than a group at the end of an axis has the same parts with fewer steps: equal elements have equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from ...ir.body import Axis, Instruction, LoopBody, Ref
from ...ir.scalar_ops import compute_dtype
from ..printer import c_index
from .text_rules import CPP_TYPES, SIMD
from .vector_functions import FUNCTIONS

if TYPE_CHECKING:
    from .kernel import CppKernel

__all__ = ["GROUP", "has_parts", "in_parts", "open_groups", "open_groups_of", "write_group"]

GROUP = 32
"""Steps of a group: two vectors, the chains of which overlap."""
AGAIN = frozenset({"constant", "local", "index_expr"})
"""What costs nothing to write again in another part."""


def has_parts(body: LoopBody, axis: Axis) -> bool:
    """Whether a body over an axis is written in parts: some function is there for whole vectors, and a group of elements."""
    if isinstance(axis.size, int) and axis.size < GROUP:
        return False
    apart = any(i.op in ("indirect", "scan") for i in body.instructions)
    return not apart and any(map(_of_vectors, body.instructions))


def _of_vectors(i: Instruction) -> bool:
    return i.op in FUNCTIONS and i.dtype is not None and compute_dtype(i.dtype) == torch.float32


def open_groups(k: CppKernel, axis: Axis) -> None:
    """Opens the loop over the groups of an axis, each of which begins at `<axis>v`."""
    at = f"{axis.var}v"
    k.w.open(f"for (int64_t {at} = 0; {at} < {c_index(axis.size)}; {at} += {GROUP})")


def open_groups_of(k: CppKernel, axis: Axis, begin: str, count: str) -> str:
    """Opens the loop over the groups of so many steps from a start; gives the place of a step among these."""
    at = f"{axis.var}g"
    k.w.open(f"for (int64_t {at} = 0; {at} < {count}; {at} += {GROUP})")
    k.w.line(f"const int64_t {axis.var}v = {begin} + {at};")
    return f"{at} + {axis.var}k"


def write_group(k: CppKernel, body: LoopBody, axis: Axis) -> None:
    """Writes what a group computes; the last one of the axis may have fewer elements."""
    at, end = f"{axis.var}v", c_index(axis.size)

    def group(count: str) -> None:
        def begin() -> None:
            k.w.line(SIMD + k.bad_clause())
            k.loop(axis, at, count)

        in_parts(k, body.instructions, {}, axis, GROUP, begin)

    if isinstance(axis.size, int) and axis.size % GROUP == 0:
        group(str(GROUP))
        return
    k.w.open(f"if ({at} + {GROUP} <= {end})")
    group(str(GROUP))
    k.w.close()
    k.w.open("else")
    group(f"{end} - {at}")
    k.w.close()


def in_parts(
    k: CppKernel,
    instructions: Sequence[Instruction],
    accumulators: dict[str, str],
    axis: Axis,
    width: int,
    begin: Callable[[], None],
) -> None:
    """The loops over at most `width` steps of an axis, each of which `begin` opens; their counter is `<axis>k`."""
    places, dtypes = _parts(instructions), [i.dtype for i in instructions]
    base, step = k.new_values(), f"{axis.var}k"
    lists = [_written(instructions, places, n) for n in range(max(places) + 1)]
    handed = sorted({n for _, fetched in lists for n in fetched})
    for n in sorted({*handed, *(n for n, i in enumerate(instructions) if _of_vectors(i))}):
        k.w.line(f"{CPP_TYPES[_dtype(instructions[n])]} {base}{n}s[{width}] __attribute__((aligned(64)));")
    for part, (written, fetched) in enumerate(lists):
        begin()
        for n in sorted((*written, *fetched)):
            i = instructions[n]
            if n in fetched:
                k.w.line(f"{CPP_TYPES[_dtype(i)]} {base}{n} = {base}{n}s[{step}];")
            elif _of_vectors(i):
                k.w.line(f"{base}{n}s[{step}] = {base}{i.args[0].position};")
            else:
                k.statement(i, f"{base}{n}", dtypes, accumulators)
                if n in handed and places[n] == part:
                    k.w.line(f"{base}{n}s[{step}] = {base}{n};")
        k.w.close()
        for n, i in enumerate(instructions):
            if _of_vectors(i) and places[n] == part:
                k.w.line(f"tw_each_{i.op}<{width}>({base}{n}s);")


def _dtype(i: Instruction) -> torch.dtype:
    assert i.dtype is not None
    return i.dtype


def _operands(i: Instruction) -> list[int]:
    return [a.position for a in i.args if isinstance(a, Ref)]


def _parts(instructions: Sequence[Instruction]) -> list[int]:
    """The part of each instruction: the first where it may be, but for what only a later one needs. Stores, and loads of what is stored here,
    keep their order."""
    stored = {i.args[0] for i in instructions if i.op in ("store", "scratch_store")}
    places: list[int] = []
    floor = 0
    for i in instructions:
        place = max((places[n] + _of_vectors(instructions[n]) for n in _operands(i)), default=0)
        fixed = i.dtype is None or i.op in ("load", "scratch_load") and i.args[0] in stored
        place = max(place, floor) if fixed else place
        floor = place if i.dtype is None else floor
        places.append(place)
    first_store = min((place for i, place in zip(instructions, places, strict=True) if i.op == "store"), default=len(places))
    users: dict[int, list[int]] = {}
    for n in reversed(range(len(instructions))):
        i = instructions[n]
        values = [a for a in _operands(i) if instructions[a].op not in AGAIN and not _loads_again(instructions[a])]
        if n in users and not _of_vectors(i) and i.op != "scratch_load" and len(values) < 2:
            place = min(places[u] for u in users[n])
            places[n] = place if i.op != "load" or place <= first_store else places[n]
        for a in _operands(i):
            users.setdefault(a, []).append(n)
    return places


def _loads_again(i: Instruction) -> bool:
    """Whether a load costs no more than what another part has of it: floats as they are."""
    return i.op == "load" and i.dtype == torch.float32 and i.args[2] is None


def _written(instructions: Sequence[Instruction], places: Sequence[int], part: int) -> tuple[list[int], list[int]]:
    """What a part computes, and what it fetches of what others have."""
    written = {n for n, place in enumerate(places) if place == part}
    fetched: set[int] = set()
    waiting = [a for n in written for a in _operands(instructions[n])]
    # Buffers may share their memory.
    unchanged = all(place >= part for i, place in zip(instructions, places, strict=True) if i.op == "store")
    while waiting:
        n = waiting.pop()
        if n in fetched or n in written and not _of_vectors(instructions[n]):
            continue
        i = instructions[n]
        cheap = i.op in AGAIN or i.dtype == torch.bool and i.op not in ("load", "scratch_load")
        if not _of_vectors(i) and (cheap or unchanged and _loads_again(i)):
            written.add(n)
            waiting += _operands(i)
        else:
            fetched.add(n)
    return sorted(written), sorted(fetched)

"""LoopBody: a recorded loop body. Straight-line, each instruction used by number; replayable under any handler.

Instruction.args hold `Ref`s to earlier instructions, index expressions (int or Expr), names, dtypes and numbers, in the
order that STRUCTURAL_OPS gives.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from .index import Expr, substitute

INTEGERS = frozenset({torch.int32, torch.int64})
"""Dtypes that hold positions as they are."""


class Ref(NamedTuple):
    """The result of instruction number `position` of the same body."""

    position: int


class Instruction(NamedTuple):
    """One operation: name in SCALAR_OPS or STRUCTURAL_OPS, arguments, dtype of the result (None for effects)."""

    op: str
    args: tuple[Any, ...]
    dtype: torch.dtype | None


@dataclasses.dataclass(frozen=True)
class IndexCheck:
    """What a kernel makes sure of where it reads an index: that it is in range.

    number: of the check among those of the program; places: of how many elements the index is, all of which are checked;
    origin: the operator and its place in the source.
    """

    number: int
    places: Any
    origin: str

    def __str__(self) -> str:
        return f"check {self.number}"


class Axis(NamedTuple):
    """A loop: its variable (a symbol) and how often it runs; the variable goes from 0 to size - 1."""

    var: Any
    size: Any


@dataclasses.dataclass(frozen=True)
class LoopBody:
    """Instructions over outer `axes` and inner `reduction_axes`."""

    axes: tuple[Axis, ...]
    reduction_axes: tuple[Axis, ...]
    instructions: tuple[Instruction, ...]

    def loads(self) -> Iterator[Instruction]:
        """All loads, in order."""
        return (i for i in self.instructions if i.op == "load")

    def stores(self) -> Iterator[Instruction]:
        """All stores, in order."""
        return (i for i in self.instructions if i.op == "store")

    def checks(self) -> Iterator[IndexCheck]:
        """The checks that it makes, each once, in order."""
        return iter(dict.fromkeys(i.args[3] for i in self.instructions if i.op == "indirect" and i.args[3] is not None))

    def sizes(self) -> set[Any]:
        """The symbols that it takes from outside: all but its variables and computed positions."""
        found = {s for i in self.instructions for a in i.args for s in getattr(a, "free_symbols", ())}
        own = {axis.var for axis in (*self.axes, *self.reduction_axes)}
        return found - own - {i.args[2] for i in self.instructions if i.op == "indirect"}

    def behind(self, position: int) -> set[int]:
        """The positions of what a value is computed from, its own included."""
        found = {position}
        for n in range(position, -1, -1):
            if n in found:
                found |= {a.position for a in self.instructions[n].args if isinstance(a, Ref)}
        return found

    def text(self) -> str:
        """One line per instruction."""
        return "\n".join(format_instruction(n, i) for n, i in enumerate(self.instructions))


def axes_behind(body: LoopBody, value: Ref) -> set[Axis]:
    """The axes along which a value changes, as far as the body says."""
    axes = {a.var: a for a in (*body.axes, *body.reduction_axes)}
    positions = {i.args[2]: n for n, i in enumerate(body.instructions) if i.op == "indirect"}
    seen: set[int] = set()
    found: set[Axis] = set()
    waiting = [value.position]
    while waiting:
        number = waiting.pop()
        if number in seen:
            continue
        seen.add(number)
        for arg in body.instructions[number].args:
            if isinstance(arg, Ref):
                waiting.append(arg.position)
            for symbol in getattr(arg, "free_symbols", ()):
                if symbol in axes:
                    found.add(axes[symbol])
                elif symbol in positions:
                    waiting.append(positions[symbol])
    return found


def read_directly(body: LoopBody) -> LoopBody:
    """The same body, in which positions that are computed from loop variables alone, and need no check, are index expressions: what is read
    there lies side by side then."""
    exprs: dict[int, Any] = {}
    known: dict[Any, Any] = {}
    instructions = []
    for n, i in enumerate(body.instructions):
        args: tuple[Any, ...] = tuple(substitute(a, known) if known and isinstance(a, Expr) else a for a in i.args)
        i = i._replace(args=args)
        if i.op == "index_expr":
            exprs[n] = args[0]
        elif i.op == "to_dtype" and args[0].position in exprs and args[1] in INTEGERS:
            exprs[n] = exprs[args[0].position]
        elif i.op == "indirect" and args[3] is None and args[0].position in exprs:
            known[args[2]] = exprs[args[0].position]
        instructions.append(i)
    return dataclasses.replace(body, instructions=tuple(instructions))


def format_instruction(position: int, instruction: Instruction) -> str:
    """`%3 = add(%1, %2) : float32`."""
    args = ", ".join(_format_arg(a) for a in instruction.args)
    call = f"{instruction.op}({args})"
    if instruction.dtype is None:
        return call
    return f"%{position} = {call} : {str(instruction.dtype).removeprefix('torch.')}"


def _format_arg(arg: Any) -> str:
    if isinstance(arg, Ref):
        return f"%{arg.position}"
    if isinstance(arg, torch.dtype):
        return str(arg).removeprefix("torch.")
    return str(arg)

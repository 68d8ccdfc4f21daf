"""Random Python programs as source text: control flow, containers, closures, classes, generators, exceptions, tensor operations.

`generate(choices)` needs only choices.choice(sequence), choices.randint(a, b) and choices.random(): a random.Random, or what
hypothesis draws. Every program ends: loops have small bounds. Many raise: that is part of the test.
"""

from __future__ import annotations

from . import assignments, classes, containers, control, exceptions, functions, tensors
from .prelude import PRELUDE
from .writer import Writer

__all__ = ["SIGNATURE", "generate", "module"]

SIGNATURE = "def main(x, y, n, flag, items, table, obj, word):\n"
KINDS = (assignments, control, exceptions, functions, classes, containers, tensors)
SIMPLE = [form for kind in KINDS for weight, form in kind.SIMPLE for _ in range(weight)]
COMPOUND = [form for kind in KINDS for weight, form in kind.COMPOUND for _ in range(weight)]


def generate(choices):
    """Text of a function main(x, y, n, flag, items, table, obj, word)."""
    writer = Writer(choices, SIMPLE, COMPOUND)
    while writer.budget > 0:
        writer.statement()
    kept = [n for n, kind in writer.scope.items() if n != "obj" and kind not in "Gg"][-6:]
    return SIGNATURE + "\n".join([*writer.lines, f"    return ({', '.join(kept)},)"]) + "\n"


def module(function):
    """The text of a module that has it."""
    return f"{PRELUDE}\n\n{function}"

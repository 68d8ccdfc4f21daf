"""Random Python programs as source text: control flow, containers, closures, classes, generators, exceptions, tensor operations.

`generate(choices)` needs only choices.choice(sequence), choices.randint(a, b) and choices.random(), as random.Random has them.
Every program ends: loops have small bounds. Each statement is run as it is written, and most of those that raise are
written anew, so that programs go on; some raise all the same: that is part of the test. What raises depends on the versions of Python
and torch, and so does what a seed gives.
"""

from __future__ import annotations

from calls import CALLS
from trial import Trial

from . import (
    assignments,
    classes,
    containers,
    control,
    exceptions,
    functions,
    generators,
    holders,
    language,
    library,
    managers,
    models,
    objects,
    orders,
    places,
    practice,
    protocols,
    repository,
    settings,
    standard,
    tensors,
)
from .prelude import PRELUDE
from .writer import Writer

__all__ = ["SIGNATURE", "generate", "module"]

SIGNATURE = "def main(x, y, n, flag, items, table, obj, word):\n"
HELPER = "def {}(x, y=torch.ones(2), n=2, flag=True, items=[3, 1], table={{'b': 2}}, obj=Base(1), word='ab'):\n"
METHOD = "class {}(Base):\n    def {}(self, x, y=torch.ones(2), n=2, flag=True, items=[3, 1], table={{'b': 2}}, word='ab'):\n        obj = self\n"
KINDS = (
    assignments,
    control,
    exceptions,
    functions,
    classes,
    containers,
    tensors,
    generators,
    holders,
    language,
    managers,
    models,
    objects,
    orders,
    library,
    places,
    practice,
    protocols,
    repository,
    settings,
    standard,
)
SIMPLE = [form for kind in KINDS for weight, form in kind.SIMPLE for _ in range(weight)]
COMPOUND = [form for kind in KINDS for weight, form in kind.COMPOUND for _ in range(weight)]
KEPT = 0.12
"""How many of the statements that raise are kept."""
ATTEMPTS = 40


def generate(choices):
    """Text of a function main(x, y, n, flag, items, table, obj, word), after those that it calls, and of which CALLS are made."""
    calls = drawn_calls(choices)
    head = f"CALLS = {calls}\n"
    trial = Trial(module(head), calls[0])
    writer = Writer(choices, SIMPLE, COMPOUND)
    for number in range(choices.choice((0, 0, 1, 2))):
        head += helper(writer, f"h{number}", choices.choice(("H", "H", "J", "K")))
    writer.restart()
    writer.budget = choices.randint(4, 20)
    for _ in range(ATTEMPTS):
        if writer.budget <= 0:
            break
        before = writer.state()
        writer.statement()
        runs = compiles(writer.lines) and trial.runs(head + SIGNATURE + "\n".join(writer.lines) + "\n")
        if not runs and (not compiles(writer.lines) or choices.random() > KEPT):
            writer.go_back(before)
    kept = [n for n in writer.scope if n != "obj" and not n.startswith("h")][-8:]
    text = head + SIGNATURE + "\n".join([*writer.lines, f"    return ({', '.join(kept)},)"]) + "\n"
    compile(text, "", "exec")
    return text


def drawn_calls(choices):
    """Numbers of the arguments of each call: the same ones twice, others in between."""
    first = choices.choice((0, 0, 1, 2, 3, choices.randint(0, len(CALLS) - 1)))
    others = [choices.randint(0, len(CALLS) - 1) for _ in range(choices.randint(2, 3))]
    return (first, first, *others, first)


def helper(writer, name, kind):
    """A function (H), generator function (J) or class with a method (K) that main calls."""
    writer.restart(1 if kind == "K" else 0)
    writer.budget = writer.c.randint(2, 6)
    if kind == "J":
        writer.put(f"yield {writer.expr('T')}")
    while writer.budget > 0:
        before = writer.state()
        writer.statement()
        if not compiles(writer.lines):
            writer.go_back(before)
        if kind == "J" and writer.c.random() < 0.5:
            writer.put(f"yield {writer.expr('T')}")
    writer.put(f"return {writer.expr('T')}")
    body, head = "\n".join(writer.lines) + "\n", (METHOD if kind == "K" else HELPER)
    writer.helpers[name] = kind
    return head.format(*([name.upper(), name] if kind == "K" else [name])) + body


def compiles(lines):
    """Whether they are the body of a function with these parameters."""
    try:
        compile(SIGNATURE + "\n".join(lines) + "\n", "", "exec")
    except SyntaxError:
        return False
    return True


def module(function):
    """The text of a module that has it."""
    return f"{PRELUDE}\n\n{function}"

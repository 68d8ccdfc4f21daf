"""Random straight-line programs on tensors as source text, each statement of which runs on a first set of inputs."""

from __future__ import annotations

import re

import torch
from torch.nn import functional as F

from .forms import EXPRESSIONS, OPERANDS, WRITES

__all__ = ["INPUTS", "generate", "inputs", "namespace"]

FORMS = [(form) for weight, forms in EXPRESSIONS for form in [forms] * weight]
LAYOUTS = ("plain", "plain", "transposed", "sliced", "expanded", "offset", "channels", "gap")
SHAPES = (("p", "q"), ("p", "q"), ("q",), ("p", 1), (1, "q"), (), ("p", "q", "r"), ("q", "p"), ("p", "p"), ("r", "q"))
KINDS = ("float", "float", "float", "leaf", "leaf", "history", "int", "bool", "double", "half", "empty")
SIZES = ({"p": 4, "q": 3, "r": 2}, {"p": 4, "q": 3, "r": 2}, {"p": 7, "q": 5, "r": 3}, {"p": 2, "q": 17, "r": 4})
INPUTS = "abcd"


def namespace():
    return {"torch": torch, "F": F}


def generate(choices):
    """(a list of descriptions of inputs, the text of `main(a, b, ...)`)."""
    described = [
        (choices.choice(KINDS), choices.choice(SHAPES), choices.choice(LAYOUTS), choices.random() < 0.1)
        for _ in range(choices.randint(2, 4))
    ]
    if described[0][0] in ("int", "bool", "empty"):
        described[0] = ("leaf", ("p", "q"), "plain", False)
    program = _Program(choices, described)
    for _ in range(choices.randint(2, 12)):
        program.grow()
    return described, program.text()


def inputs(described, number):
    """The inputs of call `number`: made anew, with values that are multiples of 1/4, so that sums are exact in any order."""
    sizes, made = SIZES[number], []
    for position, (kind, shape, layout, shared) in enumerate(described):
        shape = [sizes.get(s, s) for s in shape]
        if kind == "empty":
            shape = [0, *shape[1:]]
        value = _laid_out(shape, layout, number * 7 + position * 3)
        if shared and made and made[0].is_leaf and not made[0].requires_grad and made[0].dim():
            value = made[0][:1]
        elif kind == "leaf":
            value = value.detach().requires_grad_()  # a leaf as most are: not itself a view
        elif kind == "history":
            value = value.detach().requires_grad_() * 1
        elif kind in ("int", "bool", "double", "half"):
            kinds = {"int": torch.int64, "bool": torch.bool, "double": torch.float64, "half": torch.bfloat16}
            value = (value * 4 if kind == "int" else value > 0 if kind == "bool" else value).to(kinds[kind])
        made.append(value)
    return made


def _laid_out(shape, layout, seed):
    def numbers(*sizes):
        count = 1
        for s in sizes:
            count *= s
        values = (torch.arange(count) * 5 + seed) % 23 - 9
        return (values.float() / 4).reshape(sizes)

    if layout == "transposed" and len(shape) > 1:
        return numbers(shape[-1], *shape[1:-1], shape[0]).transpose(0, -1)
    if layout == "sliced" and shape:
        return numbers(*shape[:-1], shape[-1] * 2)[..., ::2]
    if layout == "expanded" and len(shape) > 1:
        return numbers(1, *shape[1:]).expand(shape)
    if layout == "offset" and shape:
        return numbers(shape[0] + 1, *shape[1:])[1:]
    if layout == "gap" and len(shape) > 1:
        return numbers(*shape[:-1], shape[-1] + 1)[..., :-1]
    if layout == "channels" and len(shape) == 3:
        return numbers(shape[1], shape[2], shape[0]).permute(2, 0, 1)
    return numbers(*shape)


class _Program:
    """Lines under way, and the values that they have on the first inputs."""

    def __init__(self, choices, described):
        self.c, self.described = choices, described
        self.depth = choices.choice((0.0, 0.0, 0.3, 0.6))  # how often an operand is an expression of its own
        self.names = list(INPUTS[: len(described)])
        self.lines, self.count = [], 0
        self.values = self.run([])

    def run(self, lines):
        """The variables after the lines; raises where they do."""
        values = namespace() | dict(zip(self.names, inputs(self.described, 0)))
        torch.manual_seed(0)
        exec("\n".join(lines), values)
        return values

    def pick(self, kind):
        def fits(t):
            floating = t.dtype.is_floating_point
            return (
                kind == "T"
                or (kind == "F" and floating)
                or (kind == "B" and t.dtype is torch.bool)
                or (kind == "I" and not floating and t.dtype is not torch.bool and not t.is_complex())
            )

        if self.c.random() < self.depth:
            return self.fill(self.c.choice(OPERANDS).replace("$T", f"${kind}"))
        found = [n for n, t in self.values.items() if isinstance(t, torch.Tensor) and fits(t)]
        recent = found[-3:] if self.c.random() < 0.6 else found
        if recent:
            return self.c.choice(recent)
        return {"F": "a", "T": "a", "I": "(a * 4).long()", "B": "(a > 0)"}[kind]

    def fill(self, form):
        kept = []

        def one(match):
            text = match.group()
            if text == "#":
                return str(self.c.randint(-2, 4))
            if text == "$0":
                return kept[0] if kept else self.pick("T")
            if text.endswith("$$"):
                if not kept:
                    kept.append(self.pick(text[1]))
                return kept[0]
            return self.pick(text[1])

        return re.sub(r"\$[FIBT]\$\$|\$[FIBT]|\$0|#", one, form)

    def grow(self):
        """One more statement, if one is found in a few attempts that runs, and keeps values small and finite enough to be compared."""
        for _ in range(8):
            before = dict(self.values)
            if self.c.random() < 0.25:
                new = [self.fill(self.c.choice(WRITES))]
            else:
                name = f"v{self.count + 1}"
                new = [f"{name} = {self.fill(self.c.choice(self.c.choice(FORMS)))}"]
                if self.c.random() < 0.06:
                    new = ["with torch.no_grad():", "    " + new[0]]
            try:
                self.values = self.run([*self.lines, *new])
            except Exception:
                self.values = before
                continue
            if any(isinstance(t, torch.Tensor) and not _fine(t) for t in self.values.values()):
                self.values = before
                continue
            self.lines += new
            self.count += 1
            return

    def text(self):
        made = [n for n in self.values if n[0] == "v" and n[1:].isdigit()]
        returned = [n for n in made if self.c.random() < 0.6 or n == made[-1]] if made else []
        returned += [n for n in self.names if self.c.random() < 0.1]
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def main({', '.join(self.names)}):\n{body}    return ({', '.join([*returned, ''])[:-1]})\n"


def _fine(t):
    """Not large, neither many numbers nor big ones, and some of them finite."""
    if t.numel() > 3000:
        return False
    if not t.dtype.is_floating_point or not t.numel():
        return True
    data = t.detach().double()
    return bool(data.isfinite().any()) and float(data.nan_to_num(0, 0, 0).abs().max()) < 1e6

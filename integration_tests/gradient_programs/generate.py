"""Random programs on square float64 matrices as source text, each statement of which runs on a first set of inputs."""

from __future__ import annotations

import re

import torch
from torch.utils.checkpoint import checkpoint

from .uses import USES

__all__ = ["NAMES", "SIZES", "generate", "inputs", "namespace"]

NAMES = ("w0", "w1", "h0", "h1", "h2", "c0")
"""Two leaves; of what is computed from them two, and a view; a tensor without history."""
SIZES = {"static": (4, 4), "open": (4, 5, 3)}

# `$` is a tensor, `$$` the one that was `$` before; `!` one that is not a leaf with gradients, `?` one with a history; `@` a new name
VIEWS = [
    "@ = $.t()",
    "@ = $[1:]",
    "@ = $.view(-1)",
    "@ = $.unsqueeze(0)",
    "@ = $.split(2)[1]",
    "@ = $.transpose(0, -1)",
    "@ = $.view_as($$)",
    "@ = $.narrow(0, 0, 1)",
    "@ = $.chunk(2)[0]",
    "@ = $.squeeze()",
    "@ = $[..., 0]",
    "@ = $.diagonal()",
    "@ = $.expand(2, -1, -1)",
    "@ = $.reshape(-1)[::2]",
    "@ = $.unbind()[0]",
    "@ = $.detach()",
]
POINTWISE = [
    "@ = $.sin()",
    "@ = $.tanh()",
    "@ = $ * 2",
    "@ = $.exp()",
    "@ = $.relu()",
    "@ = $.sigmoid()",
    "@ = $.square()",
    "@ = $.clone()",
    "@ = $.sum()",
    "@ = $.softmax(-1)",
    "@ = $.cumsum(0)",
    "@ = $.max(0)[0]",
    "@ = $.float().double()",
    "@ = $.where($$ > 0, 0.5)",
    "@ = torch.nn.functional.dropout($, 0.5)",
]
PRODUCTS = [
    "@ = $ * $",
    "@ = $ + $",
    "@ = $ @ $",
    "@ = $ / (1 + $.square())",
    "@ = $.reshape(-1).mean() * $",
    "@ = torch.cat([$, $])",
    "@ = torch.stack([$, $$])",
]
BLOCKS = [
    "with torch.no_grad():\n    @ = $.sin()",
    "with torch.no_grad():\n    @ = $.t()",
    "with torch.no_grad():\n    @ = $.view(-1)",
    "with torch.no_grad(), torch.enable_grad():\n    @ = $ * $",
    "@ = $.detach().sin().requires_grad_()",
    "@ = Scaled.apply($, $)",
    "@ = Scaled.apply($, $.detach())",
    "@ = Both.apply($)[0]",
    "a, @ = Both.apply($)\n@ = @ * a",
    "@ = Quiet.apply($)[1]",
    "@ = checkpoint(torch.tanh, $, use_reentrant=False)",
    "@ = checkpoint(lambda a, b: (a.sin() * b).exp(), $, $, use_reentrant=False)",
    "@ = torch.autograd.grad($.sin().sum(), $, create_graph=True)[0]",
    "@ = torch.autograd.grad($.square().sum(), $, retain_graph=True)[0]",
]
HOOKS = ["?.register_hook(lambda g: g * 2)", "?.register_hook(torch.sin)", "?.retain_grad()"]
WRITES = [
    "!.mul_(2)",
    "!.sin_()",
    "!.add_($)",
    "!.copy_($)",
    "!.tanh_()",
    "!.detach().add_(1)",
    "!.zero_()",
    "![0] = 0.5",
    "![1:].mul_($.mean())",
    "!.t().add_(1)",
    "with torch.no_grad():\n    !.add_(1)",
    "!.t_()",
    "!.unsqueeze_(0)",
    "!.detach_()",
]
FORMS = [(30, VIEWS), (24, POINTWISE), (24, PRODUCTS), (12, BLOCKS), (2, HOOKS), (9, WRITES)]


class Scaled(torch.autograd.Function):
    """A product that is no more than half of one in its gradient."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * b, g * a / 2 if ctx.needs_input_grad[1] else None


class Both(torch.autograd.Function):
    """Two results of one node."""

    @staticmethod
    def forward(ctx, a):
        exp = a.tanh()
        ctx.save_for_backward(exp)
        return exp, a * 3

    @staticmethod
    def backward(ctx, g, h):
        (exp,) = ctx.saved_tensors
        return g * (1 - exp * exp) + h * 3


class Quiet(torch.autograd.Function):
    """Gets None for a result that no gradient comes to."""

    @staticmethod
    def forward(ctx, a):
        ctx.set_materialize_grads(False)
        return a * 2, a * 3

    @staticmethod
    def backward(ctx, g, h):
        return h * 3 if g is None else g * 5 if h is None else g * 7 + h


def namespace():
    """The names that programs read."""
    return {"torch": torch, "checkpoint": checkpoint, "Scaled": Scaled, "Both": Both, "Quiet": Quiet}


def inputs(size):
    """The inputs of one call."""
    device = torch.get_default_device()
    made = torch.Generator(device).manual_seed(size)
    w0, w1, c0 = (torch.randn(size, size, dtype=torch.float64, generator=made, device=device) for _ in range(3))
    w0.requires_grad_()
    w1 = torch.nn.Parameter(w1)
    return [w0, w1, w0 * 1, (w1 * w0).clone(), (w1 + w0).t(), c0]


def generate(choices):
    """(what is done with the results, the text of `main`)."""
    described = {"use": choices.choice([*USES]), "sizes": "open" if choices.random() < 0.25 else "static"}
    described["seed"] = choices.randrange(1000)
    return described, _Program(choices).text()


class _Program:
    """Lines under way, and the values that they have on the first inputs."""

    def __init__(self, choices):
        self.c, self.lines, self.count = choices, [], 0
        self.values = self.run([])
        for _ in range(choices.randint(2, 9)):
            self.grow()

    def run(self, lines):
        """The tensors after the lines, by name; raises where they do."""
        values = namespace() | dict(zip(NAMES, inputs(SIZES["static"][0])))
        torch.manual_seed(0)
        exec("\n".join(lines), values)
        return {name: t for name, t in values.items() if re.fullmatch(r"[whcv]\d+", name)}

    def pick(self, names):
        recent = names[-4:] if self.c.random() < 0.6 else names
        return self.c.choice(recent)

    def fill(self, form):
        kept = ""

        def one(match):
            nonlocal kept
            if match.group() == "@":
                return f"v{self.count}"
            if match.group() == "$$":
                return kept
            fitting = {
                "$": lambda t: True,
                "!": lambda t: not (t.is_leaf and t.requires_grad),
                "?": lambda t: t.grad_fn is not None,
            }
            kept = self.pick([n for n, t in self.values.items() if fitting[match.group()](t)])
            return kept

        return re.sub(r"\$\$|[$!?@]", one, form)

    def grow(self):
        """One more statement, if one is found in a few attempts that runs and keeps values small enough to be compared."""
        for _ in range(8):
            (forms,) = self.c.choices([f for _, f in FORMS], [weight for weight, _ in FORMS])
            lines = [*self.lines, *self.fill(self.c.choice(forms)).split("\n")]
            try:
                values = self.run(lines)
                if not all(_fine(t) for t in values.values()):
                    continue
            except Exception:
                continue
            self.values, self.lines = values, lines
            self.count += 1
            return

    def text(self):
        made = [n for n in self.values if n not in NAMES]
        returned = [n for n in made if self.c.random() < 0.65 or n == made[-1]] or ["w0"]
        if self.c.random() < 0.2:
            returned.insert(0, self.c.choice(NAMES))
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def main({', '.join(NAMES)}):\n{body}    return ({', '.join(returned)},)\n"


def _fine(t):
    """A tensor of few numbers, none of them large; raises for a view that eager refuses to use any more."""
    return t.is_leaf in (True, False) and t.numel() <= 100 and bool((t.detach().abs() < 1e3).all())

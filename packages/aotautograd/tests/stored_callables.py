"""Callables that one process compiles and another makes again."""

import json

import torch
from tracework_aotautograd import AotOptions, aot_compile
from tracework_aotautograd.recipes import RECIPE, Parts, from_recipe
from tracework_aotautograd.rest import Rest
from tracework_primops import FakeMode
from tracework_primops.decompose import spec_of


class Compiled:
    """What a graph compiler gives, under the name that its recipe has."""

    def __init__(self, gm, name):
        self.gm = gm
        setattr(self, RECIPE, name)

    def __call__(self, inputs):
        return self.gm(*inputs)


class Backwards(dict):
    """Where recipes of backwards are kept."""

    def put(self, key, content):
        self[key] = content


class Process:
    """A program compiled by one process, and made again of what that kept."""

    def __init__(self, module, *args, **options):
        self.module, self.args = module, args
        self.compiled, self.backwards, self.reports = [], Backwards(), []
        self.options = AotOptions(backwards=self.backwards, fallback=False, **options)
        mode, gm = FakeMode(), torch.fx.symbolic_trace(module)
        for node, given in zip(self.placeholders(gm), args, strict=True):
            if isinstance(given, torch.Tensor):
                node.meta["example_value"] = mode.from_real(given.detach())
        self.call = aot_compile(gm, args, forward_compiler=self.compiler, options=self.options)
        self.captures = 0

    @staticmethod
    def placeholders(gm):
        return [node for node in gm.graph.nodes if node.op == "placeholder"]

    def compiler(self, gm, spec):
        self.compiled.append(Compiled(gm, len(self.compiled)))
        return self.compiled[-1]

    def read(self):
        """The captured graph, as it comes from a text."""
        self.captures += 1
        gm = torch.fx.symbolic_trace(self.module)
        for node, given in zip(self.placeholders(gm), self.args, strict=True):
            node.meta["spec"] = spec_of(given)
        return gm

    def report(self, reason, place):
        self.reports.append(reason)

    def graph(self, recipe):
        return self.compiled[recipe]

    def backward(self, key):
        content = self.backwards.get(key)
        return lambda: None if content is None else self.compiled[json.loads(content)]

    def again(self, **changes):
        """The callable of the next process. changes: of the recipe."""
        recipe = json.loads(json.dumps({**getattr(self.call, RECIPE), **changes}))
        rest = Rest(recipe, self.read, self.compiler, self.options, self.report)
        return from_recipe(recipe, Parts(self.graph, self.backward, lambda recipe: rest, self.report))


class Views(torch.nn.Module):
    def forward(self, x, y):
        z = x + y
        return x.t(), z[0], z, 3, y, z.sum()


class Writes(torch.nn.Module):
    def forward(self, x, y):
        return (x.add_(y * 1),)


class Layers(torch.nn.Module):
    def forward(self, x, w, v):
        return ((x @ w).tanh() @ v,)


class Trained(torch.nn.Module):
    """With a result that others are made of, an input that is written to, and one without a gradient."""

    def forward(self, x, weight, seen):
        y = torch.tanh(x @ weight)
        seen.add_(y.detach().mean())
        return y, y.square().sum(), x.t()

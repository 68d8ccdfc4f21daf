"""Whatever a compiled function depends on is changed between calls: the next call gives what plain Python gives.

The function is called often before, so that the short check of the guards answers, and often after.
"""

import enum
import math
import sys
import types

import pytest
import torch
from tracework_capture import graph_break, optimize

OTHER = """
FACTOR = 2.0
TABLE = {"gain": 1.0, "deep": {"list": [1.0, 2.0]}}
def helper(x):
    return x + FACTOR
class Config:
    rate = 0.5
"""

PROGRAM = """
import collections, contextlib, dataclasses, enum, functools, types
import torch
import other_module
from torch import nn

LIMIT = 3
def triple(x): return x * 3
def positioned(x, by=2, *, plus=1): return x * by + plus
def make():
    count, inner = 1, [5]
    def closure(x): return x * count + inner[0]
    def change(value):
        nonlocal count
        count = value
    return closure, change
closure, change = make()
partial = functools.partial(positioned, by=4)
def wrapped(x): return triple(x)
decorated = functools.wraps(wrapped)(lambda x: wrapped(x) + 1)

class Describes:
    def __get__(self, instance, owner=None): return instance.__dict__.get("_d", 1)
    def __set__(self, instance, value): instance.__dict__["_d"] = value
class Mixin:
    offset = 1
    def mixed(self, x): return x + self.offset
class Root:
    level = 1
    field = Describes()
    @property
    def twice(self): return self.level * 2
    @classmethod
    def made(cls): return cls.level + 1
    @staticmethod
    def static(x): return x * 5
    def __getattr__(self, name):
        if name == "dynamic": return 7
        raise AttributeError(name)
    def __len__(self): return 2
    def __call__(self, x): return x * self.level
class Middle(Root): pass
class Leaf(Middle, Mixin): pass
@dataclasses.dataclass
class Options:
    scale: float = 2.0
    inner: object = None
class Slots:
    __slots__ = ("a", "b")
    def __init__(self): self.a = 3
Named = collections.namedtuple("Named", "left right")

class Block(nn.Module):
    shift = 0.5
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.scale = 2.0
        self.options = {"a": 1.0, "nested": {"b": [1.0, 2.0]}}
        self.leaf = Leaf()
        self.settings = Options(inner=Options())
        self.register_buffer("seen", torch.ones(3))
        self.activation = torch.relu
        self.names = ["p", "q"]
        self.chosen = {1, 2}
    def forward(self, x):
        x = self.activation(self.linear(x)) * self.scale + self.shift + self.seen
        return x * self.options["a"] * self.options["nested"]["b"][1] + len(self.names) + (1 in self.chosen)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.drop = nn.Dropout(0.0)
        self.extra = types.SimpleNamespace(value=1.0, below=types.SimpleNamespace(value=2.0))
        self.hooked = {}
    def forward(self, x):
        for block in self.blocks:
            x = self.drop(block(x))
        return x * self.extra.value + self.extra.below.value + (1 if self.training else 0)

torch.manual_seed(0)
model, leaf, options, slots = Model(), Leaf(), Options(inner=Options()), Slots()
pair, numbers, table = Named(1.0, [2.0]), [1, [2, 3]], {"k": {"j": 1}, "l": 2}

def main(x):
    y = model(x)
    y = y + leaf.level + leaf.field + leaf.twice + leaf.made() + leaf.dynamic + len(leaf) + leaf.mixed(x)
    y = leaf(leaf.static(y)) + slots.a + getattr(slots, "b", 0) + getattr(leaf, "optional", 0)
    y = y * options.scale + options.inner.scale + pair.left + pair.right[0] + numbers[1][1] + len(numbers)
    y = y + table["k"]["j"] + len(table) + sum(table["k"].values()) + pow(LIMIT, 2)
    y = triple(positioned(y)) + closure(x) + partial(x) + decorated(x)
    y = other_module.helper(y) * other_module.TABLE["gain"] + other_module.Config.rate + other_module.TABLE["deep"]["list"][0]
    y = y + len(Leaf.__name__) + len(Leaf.__bases__) + len([f.name for f in dataclasses.fields(options) if f.name != "scale"])
    if torch.is_grad_enabled():
        y = y + 1
    if hasattr(model, "late"):
        y = y * 2
    return y.to(torch.get_default_dtype()) + getattr(model.blocks[0], "gone", 1)
"""

CHANGES = {
    "attribute of a module": "model.blocks[1].scale = 3.0",
    "attribute of an attribute": "model.extra.below.value = 9.0",
    "an attribute's object": "model.extra = types.SimpleNamespace(value=2.0, below=model.extra)",
    "dict in a module": "model.blocks[0].options['a'] = 4.0",
    "dict in a dict in a module": "model.blocks[0].options['nested'] = {'b': [0.0, 5.0]}",
    "list in a dict in a module": "model.blocks[1].options['nested']['b'][1] = 7.0",
    "dict updated": "model.blocks[1].options.update(a=0.25)",
    "length of a list": "model.blocks[1].names.append('r')",
    "set": "model.blocks[1].chosen.discard(1)",
    "class attribute": "Block.shift = 1.5",
    "instance attribute over a class attribute": "model.blocks[0].shift = 4.5",
    "and deleted again": ("model.blocks[0].shift = 4.5", "del model.blocks[0].shift"),
    "__dict__ updated": "model.blocks[0].__dict__.update(scale=6.0)",
    "__dict__ item": "vars(model.blocks[0])['scale'] = 6.5",
    "__dict__ replaced": "leaf.__dict__ = {'level': 4, '_d': 5}",
    "attribute deleted": ("leaf.optional = 4", "del leaf.optional"),
    "attribute deleted by delattr": ("leaf.level = 4", "delattr(leaf, 'level')"),
    "attribute that is looked for": "model.late = 1",
    "attribute of a block that is looked for": "model.blocks[0].gone = 5",
    "parameter swapped": "model.blocks[0].linear.weight = nn.Parameter(torch.ones(3, 3))",
    "parameter of another dtype": "model.double()",
    "parameter shared": "model.blocks[0].linear.weight = model.blocks[1].linear.weight",
    "parameter under requires_grad_": "model.blocks[0].linear.weight.requires_grad_(False)",
    "all parameters under requires_grad_": "model.requires_grad_(False)",
    ".data": "model.blocks[1].linear.bias.data = torch.full((3,), 4.0)",
    ".data of another dtype": "model.blocks[1].linear.bias.data = torch.full((3,), 4.0, dtype=torch.float64); model.double()",
    "parameter in place": "torch.nn.init.ones_(model.blocks[1].linear.bias)",
    "parameter to None": "model.blocks[1].linear.bias = None",
    "parameter in _parameters": "model.blocks[1].linear._parameters['bias'] = nn.Parameter(torch.ones(3) * 2)",
    "buffer replaced": "model.blocks[1].seen = torch.full((3,), 5.0)",
    "buffer of another shape": "model.blocks[1].seen = torch.full((1,), 5.0)",
    "load_state_dict": "model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()})",
    "module swapped": "model.blocks[1].linear = nn.Sequential(nn.Linear(3, 3), nn.Tanh())",
    "module appended": "model.blocks.append(Block())",
    "module deleted": "del model.blocks[0]",
    "module's class": "model.blocks[0].linear.__class__ = type('Other', (nn.Linear,), {'forward': lambda self, x: x * 2})",
    "mode": "model.eval()",
    "mode of a child": ("model.drop.p = 1.0", "model.drop.training = False"),
    "dropout's rate": "model.drop.p = 1.0",
    "hook": "model.blocks[0].register_forward_hook(lambda m, a, o: o * 2)",
    "hook on a child's child": "model.blocks[0].linear.register_forward_pre_hook(lambda m, a: (a[0] + 1,))",
    "hook removed": ("h = model.drop.register_forward_hook(lambda m, a, o: o * 2)", "h.remove()"),
    "hook exchanged": (
        "h = model.drop.register_forward_hook(lambda m, a, o: o * 2)",
        "model.drop._forward_hooks[h.id] = lambda m, a, o: o * 3",
    ),
    "global hook": (
        "h = nn.modules.module.register_module_forward_hook(lambda m, a, o: o * 2 if isinstance(m, Block) else None)",
        "h.remove()",
    ),
    "forward of an instance": "model.blocks[0].forward = lambda x: x - 1",
    "forward of the class": "Block.forward = lambda self, x: x - 2",
    "function in a module": "model.blocks[1].activation = torch.sigmoid",
    "global function": "triple = lambda x: x * 4",
    "code of a function": "triple.__code__ = (lambda x: x * 5).__code__",
    "code of a method": "Mixin.mixed.__code__ = (lambda self, x: x * 6).__code__",
    "code of a forward": "Block.forward.__code__ = (lambda self, x: x * 7).__code__",
    "function of torch": ("keep = torch.relu; model.blocks[0].activation = torch.tanh", "model.blocks[0].activation = keep"),
    "monkey-patched function of torch": (
        "keep = nn.functional.linear; nn.functional.linear = lambda x, w, b=None: keep(x, w, b) * 2",
        "nn.functional.linear = keep",
    ),
    "global": "LIMIT = 8",
    "a global that hides a builtin": ("pow = lambda a, b: a", "del pow"),
    "a builtin": ("import builtins; keep = pow; builtins.pow = lambda a, b: b", "builtins.pow = keep"),
    "global of another module": "other_module.FACTOR = 5.0",
    "function of another module": "other_module.helper = lambda x: x - 1",
    "dict of another module": "other_module.TABLE['gain'] = 4.0",
    "list in a dict in a dict of another module": "other_module.TABLE['deep']['list'][0] = 8.0",
    "class of another module": "other_module.Config = type('Config', (), {'rate': 2.0})",
    "attribute of a class of another module": "other_module.Config.rate = 2.5",
    "the module itself": "other_module = types.SimpleNamespace(**{**vars(other_module), 'FACTOR': 11.0, 'helper': lambda x: x + 11.0})",
    "closure cell": "change(6)",
    "list in a closure cell": "closure.__closure__[1].cell_contents[0] = 9",
    "cell_contents": "closure.__closure__[0].cell_contents = 12",
    "__defaults__": "positioned.__defaults__ = (5,)",
    "__kwdefaults__": "positioned.__kwdefaults__ = {'plus': 6}",
    "item of __kwdefaults__": "positioned.__kwdefaults__['plus'] = 7",
    "keywords of a partial": "partial.keywords['by'] = 9",
    "a partial": "partial = functools.partial(positioned, plus=3)",
    "state of a partial": "partial.__setstate__((triple, (), {}, {}))",
    "what a decorated function calls": "wrapped = lambda x: x * 8",
    "base class": "Root.level = 6",
    "class between": "Middle.level = 7",
    "mixin": "Mixin.offset = 8",
    "method of a base class": "Mixin.mixed = lambda self, x: x - 4",
    "property of a base class": "Root.twice = property(lambda self: 50)",
    "property's reach": "leaf.level = 30",
    "property over an attribute": "Middle.level = property(lambda self: 60)",
    "classmethod": "Root.made = classmethod(lambda cls: 70)",
    "staticmethod": "Root.static = staticmethod(lambda x: x + 80)",
    "descriptor's state": "leaf.field = 90",
    "descriptor's method": "Describes.__get__ = lambda self, instance, owner=None: 95",
    "__getattr__": "Root.__getattr__ = lambda self, name: 100 if name == 'dynamic' else object.__getattribute__(self, name)",
    "what __getattr__ gave": "leaf.dynamic = 110",
    "__getattribute__ added": (
        "Leaf.__getattribute__ = lambda self, name: 120 if name == 'level' else object.__getattribute__(self, name)"
    ),
    "__len__": "Middle.__len__ = lambda self: 13",
    "__call__": "Middle.__call__ = lambda self, x: x * 14",
    "bases": "Leaf.__bases__ = (type('New', (Middle,), {'level': 15}), Mixin)",
    "class's name": "Leaf.__name__ = 'Renamed'",
    "class of an object": "leaf.__class__ = type('Other', (Middle, Mixin), {'level': 16})",
    "the object": "leaf = type('Other', (Middle, Mixin), {'level': 17})()",
    "slot": "slots.a = 18",
    "slot that was empty": "slots.b = 19",
    "slot deleted": ("slots.b = 19", "del slots.b"),
    "dataclass": "options.scale = 20.0",
    "dataclass in a dataclass": "options.inner.scale = 21.0",
    "dataclass's default": ("options.scale = 3.0", "del options.scale", "Options.scale = 22.0"),
    "namedtuple": "pair = pair._replace(left=23.0)",
    "list in a namedtuple": "pair.right[0] = 24.0",
    "list in a list": "numbers[1][1] = 25",
    "list's length": "numbers.append(0)",
    "dict in a dict": "table['k']['j'] = 26",
    "dict in a dict grows": "table['k']['new'] = 27",
    "dict grows": "table['m'] = 1",
    "dict's item exchanged": "table['k'] = {'j': 28}",
    "what a property holds": "Root.__dict__['twice'].__init__(lambda self: 29)",
    "what a static method holds": "Root.__dict__['static'].__init__(lambda x: x * 30)",
    "what a class method holds": "Root.__dict__['made'].__init__(lambda cls: 31)",
    "fields of a dataclass": "Options.__dataclass_fields__.pop('inner')",
    "a field of a dataclass": "Options.__dataclass_fields__['inner'] = Options.__dataclass_fields__.pop('scale')",
    "attribute over a parameter": "vars(model.blocks[0].linear)['bias'] = torch.ones(3)",
    "attribute over a buffer": "vars(model.blocks[1])['seen'] = 32.0",
    "attribute over a module": "vars(model.blocks[1])['linear'] = torch.sin",
    "what a module's call runs": "model.blocks[0]._call_impl = lambda x: x * 33",
    "default dtype": "torch.set_default_dtype(torch.float64)",
    "grad mode": "torch.set_grad_enabled(False)",
}


@pytest.fixture
def program(monkeypatch):
    """A fresh namespace, with fresh classes and a fresh other module."""
    other = types.ModuleType("other_module")
    exec(OTHER, vars(other))
    monkeypatch.setitem(sys.modules, "other_module", other)
    module = types.ModuleType("noticing")
    monkeypatch.setitem(sys.modules, "noticing", module)
    exec(compile(PROGRAM, "<noticing>", "exec"), vars(module))
    dtype, mode, patched = torch.get_default_dtype(), torch.is_grad_enabled(), torch.nn.functional.linear
    yield vars(module)
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(mode)
    torch.nn.functional.linear = patched


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed(name, program):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    plain, steps = program["main"], CHANGES[name]
    call = optimize(backend)(plain)
    results = []
    for step in ("", steps) if isinstance(steps, str) else ("", *steps):
        exec(step, program)
        x = torch.linspace(-1, 1, 6, dtype=next(program["model"].parameters()).dtype).reshape(2, 3)
        for _ in range(12):
            expected = outcome(plain, x)
            assert outcome(call, x) == expected, step
        results.append((expected, facts(program["model"])))
    assert graphs
    assert all(
        after != before for before, after in zip(results, results[1:])
    )  # a change that plain Python does not see would prove nothing


def outcome(function, x):
    """Value and facts of the result, or the exception."""
    try:
        y = function(x)
    except Exception as error:
        return type(error), str(error)
    return y.dtype, y.requires_grad, y.shape, y.tolist()


def facts(model):
    return [(name, p.requires_grad) for name, p in model.named_parameters()]


class Shade(enum.Enum):
    LIGHT = 1
    DARK = 2


class Drawn:
    shade = Shade.LIGHT
    rounded = math.floor


class Shown(Drawn):
    def above(self):
        return super().shade, super().rounded(2.5)


LOOKS = {
    "instance": lambda x, drawn: (x + 1, drawn.shade, drawn.rounded, drawn.rounded(2.5)),
    "class": lambda x, drawn: (x + 1, Drawn.shade, Drawn.rounded, Drawn.rounded(2.5)),
    "class of the instance": lambda x, drawn: (x + 1, type(drawn).shade, type(drawn).rounded, type(drawn).rounded(2.5)),
    "super": lambda x, drawn: (x + 1, drawn.above()),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_a_class_holds_that_binds_to_nothing(look, monkeypatch):
    compiled, drawn = optimize(lambda gm, inputs: gm.forward)(look), Shown()
    for shade, rounded in (
        (Shade.LIGHT, math.floor),
        (Shade.DARK, math.ceil),
        (Shade.LIGHT, math.ceil),
        (Shade.LIGHT, math.floor),
    ):
        monkeypatch.setattr(Drawn, "shade", shade)
        monkeypatch.setattr(Drawn, "rounded", rounded)
        for _ in range(3):
            assert repr(compiled(torch.ones(1), drawn)) == repr(look(torch.ones(1), drawn))


class Folders:
    def __init__(self, base):
        self.low, self.high, self.sizes = "/".join((base, "low")), "/".join((base, "high")), [10 ** len(base), len(base) / 3]

    def visit(self, x):
        found, (count, ratio) = [], self.sizes
        for folder in (self.low, self.high):
            graph_break()
            found.append((folder is self.high, folder is self.low))
        graph_break()
        return x + 1, found, count is self.sizes[0], ratio is self.sizes[1], (self.low, ratio)[0] is self.low


def test_equal_constants_of_other_calls_are_other_objects():
    compiled = optimize(lambda gm, inputs: gm.forward)(lambda x, base: Folders(base).visit(x))
    for base in ("first", "first", "first", "second", "second", "first"):
        base = "".join(base)
        assert repr(compiled(torch.ones(1), base)) == repr(Folders(base).visit(torch.ones(1)))
    visit = optimize(lambda gm, inputs: gm.forward)(Folders.visit)
    for base in ("first", "first", "first", "second", "second", "first"):
        assert repr(visit(Folders(base), torch.ones(1))) == repr(Folders(base).visit(torch.ones(1)))

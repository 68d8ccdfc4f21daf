"""Conditions on sizes, and the short check: it is used, and every change below it is seen."""

import gc
import sys
import weakref
from collections import OrderedDict

import pytest
import torch
from growth import growth
from tracework_capture.guards.access import Scope
from tracework_capture.guards.guard import Guard, GuardSet, TensorFacts
from tracework_capture.guards.program import Failure, build_program
from tracework_capture.sources import (
    Attr,
    ClassAttr,
    DictItem,
    InstanceAttr,
    InstanceDict,
    Item,
    Local,
    ModuleEntry,
    TensorSize,
    TypeOf,
)

X = Local("x")


def frame(x, n=0):
    return x


def sized_program(conditions, guarded=True):
    from tracework_primops import SymbolTable

    tensor = torch.zeros(6, 4)
    table = SymbolTable()
    a, b = table.new(6, TensorSize(X, 0)), table.new(4, TensorSize(X, 1))
    for make in conditions:
        table.guard(make(a, b))
    guards = [Guard("TENSOR", X, TensorFacts.of(tensor, dynamic=[0, 1]))] if guarded else []
    return build_program(guards, [TensorSize(X, 1), X, TensorSize(X, 0)], frame.__code__, table)


@pytest.mark.parametrize("guarded", [True, False])
def test_conditions_agree_with_python(guarded):
    from tracework_primops.symbols import Condition, maximum, minimum

    program = sized_program(
        [
            lambda a, b: Condition(">=", a - b),
            lambda a, b: Condition("==", (a * b) % 8),
            lambda a, b: Condition("<", a // 4 + b - 9),
            lambda a, b: Condition("<=", maximum(a, b) - 16),
            lambda a, b: Condition(">", minimum(a * 2, b + 3) - 3),
            lambda a, b: Condition("!=", a * a - b - 77),
        ],
        guarded,
    )
    passed = 0
    for a in range(1, 20):
        for b in range(1, 12):
            tensor = torch.zeros(a, b)
            native = program.native.run((tensor, 0), {}, None)
            python = program.run(Scope({"x": tensor, "n": 0}, {}))
            assert isinstance(native, tuple) == (not isinstance(python, Failure)), (a, b)
            if isinstance(native, tuple):
                assert native[0] == b and native[1] is tensor and native[2] == a
                passed += 1
    assert 5 < passed < 150


def test_an_integer_argument_as_a_size():
    from tracework_primops import SymbolTable
    from tracework_primops.symbols import Condition

    table = SymbolTable()
    n = table.new(5, Local("n"))
    table.guard(Condition("<", n - 9))
    program = build_program([Guard("TYPE", Local("n"), int)], [Local("n")], frame.__code__, table)
    assert program.native.run((0, 7), {}, None) == (7,)
    for value in (9, 1, 7.0, 10**40, True):
        assert isinstance(program.native.run((0, value), {}, None), int)


class Block(torch.nn.Module):
    kind = "block"

    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)
        self.scale = 2
        self.options = {"a": 1}
        self.sizes = (1, 2)
        self.names = ["x"]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))


def model_program(model):
    guards, collect = GuardSet(), []
    blocks = ModuleEntry(X, "_modules", "blocks")
    guards.record("TYPE", X, Model)
    guards.record("DICT_KEYS", InstanceAttr(blocks, "_modules"), ("0", "1", "2"))
    for i, block in enumerate(model.blocks):
        here = ModuleEntry(blocks, "_modules", str(i))
        guards.record("TYPE", here, Block)
        guards.record("CONSTANT", InstanceAttr(here, "scale"), 2)
        guards.record("CONSTANT", DictItem(InstanceAttr(here, "options"), "a"), 1)
        guards.record("DICT_LACKS", InstanceDict(here), "forward")
        guards.record("CONSTANT", Item(InstanceAttr(here, "sizes"), 1), 2)
        guards.record("CONSTANT", Item(InstanceAttr(here, "names"), 0), "x")
        guards.record("CONSTANT", ClassAttr(TypeOf(here), "kind"), "block")
        guards.record("CONSTANT", Attr(here, "training"), True)
        linear = ModuleEntry(here, "_modules", "lin")
        for name in ("weight", "bias"):
            source = ModuleEntry(linear, "_parameters", name)
            guards.record("TENSOR", source, TensorFacts.of(getattr(block.lin, name)))
            collect.append(source)
    return build_program(guards, collect, frame.__code__)


def swap_weight(model):
    model.blocks[1].lin.weight = torch.nn.Parameter(torch.zeros(3, 3, dtype=torch.float64))


def zeros_without_memory(*sizes):
    made = torch._efficientzerotensor(sizes).requires_grad_()
    made.__class__ = torch.nn.Parameter
    return made


CHANGES = {
    "constant": lambda m: setattr(m.blocks[1], "scale", 3),
    "inner dict": lambda m: m.blocks[2].options.update(a=2),
    "replaced dict": lambda m: setattr(m.blocks[2], "options", {"a": 9}),
    "new attribute": lambda m: m.blocks[0].__dict__.update(forward=1),
    "tuple": lambda m: setattr(m.blocks[0], "sizes", (1, 3)),
    "list": lambda m: m.blocks[0].names.__setitem__(0, "y"),
    "class": lambda m: setattr(m.blocks[0], "__class__", torch.nn.Linear),
    "mode": lambda m: m.eval(),
    "module added": lambda m: m.blocks.append(Block()),
    "parameter": swap_weight,
    "requires_grad": lambda m: m.blocks[2].lin.bias.requires_grad_(False),
    "data": lambda m: setattr(m.blocks[2].lin.bias, "data", torch.zeros(4)),
    "dtype": lambda m: m.half(),
    "data's dtype": lambda m: setattr(m.blocks[2].lin.weight, "data", torch.zeros(3, 3, dtype=torch.bfloat16)),
    "data's strides": lambda m: setattr(m.blocks[2].lin.weight, "data", torch.zeros(3, 3).t()),
    "data's dims": lambda m: setattr(m.blocks[2].lin.weight, "data", torch.zeros(3, 3, 1, 1, 1, 1)),
    "negated data": lambda m: setattr(m.blocks[2].lin.weight, "data", torch._neg_view(torch.zeros(3, 3))),
    "zeros without memory": lambda m: torch.utils.swap_tensors(m.blocks[2].lin.weight, zeros_without_memory(3, 3)),
    "resized": lambda m: m.blocks[2].lin.weight.detach_().resize_(2, 2),
    "transposed in place": lambda m: m.blocks[2].lin.weight.detach_().t_(),
    "set_": lambda m: m.blocks[2].lin.weight.detach_().set_(torch.ones(9)),
    "swapped": lambda m: torch.utils.swap_tensors(m.blocks[2].lin.weight, torch.nn.Parameter(torch.zeros(2, 3))),
    "class of a parameter": lambda m: setattr(m.blocks[2].lin.weight, "__class__", torch.nn.UninitializedParameter),
    "whole dict": lambda m: setattr(m.blocks[1], "__dict__", {**m.blocks[1].__dict__, "scale": 5}),
    "block": lambda m: m.blocks.__setitem__(1, torch.nn.Linear(1, 1)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_short_check_sees(name):
    model = Model()
    program = model_program(model)
    for _ in range(8):
        inputs = program.native.run((model, 0), {}, None)
        assert [id(t) for t in inputs] == [id(p) for p in model.parameters()]
    assert program.native.remembers()
    CHANGES[name](model)
    assert isinstance(program.native.run((model, 0), {}, None), int)
    assert isinstance(program.run(Scope({"x": model, "n": 0}, {})), Failure)


class Holder:
    def __init__(self, options):
        self.options, self.scale = options, 2


def options_program(kind, holder):
    options = InstanceAttr(X, "options")
    guards = [Guard("TYPE", X, Holder), Guard("TYPE", options, kind), Guard("CONSTANT", InstanceAttr(X, "scale"), 2)]
    guards += [Guard("DICT_KEYS", options, ("a",)), Guard("CONSTANT", DictItem(options, "a"), 1)]
    return build_program(guards, [X], frame.__code__)


DICT_CHANGES = {
    "new item": lambda d: d.__setitem__("b", 2),
    "other value": lambda d: d.__setitem__("a", 2),
    "update": lambda d: d.update(b=1),
    "in place or": lambda d: d.__ior__({"a": 3}),
    "setdefault": lambda d: d.setdefault("b", 1),
    "del": lambda d: d.__delitem__("a"),
    "pop": lambda d: d.pop("a"),
    "popitem": lambda d: d.popitem(),
    "clear": lambda d: d.clear(),
    "init": lambda d: d.__init__(b=1),
    "filled again": lambda d: (d.clear(), d.update(b=1)),
}


@pytest.mark.parametrize("kind", [dict, OrderedDict])
@pytest.mark.parametrize("name", DICT_CHANGES)
def test_every_change_of_a_dict_is_seen(name, kind):
    holder = Holder(kind(a=1))
    program = options_program(kind, holder)
    for _ in range(8):
        assert isinstance(program.native.run((holder, 0), {}, None), tuple)
    assert program.native.remembers()
    DICT_CHANGES[name](holder.options)
    assert isinstance(program.native.run((holder, 0), {}, None), int)


def test_specialized_stores_are_seen():
    def store(holder, value):
        holder.scale = value

    other = Holder({})
    for value in range(200):  # CPython specializes the store
        store(other, value)
    holder = Holder({"a": 1})
    program = options_program(dict, holder)
    for _ in range(20):
        for _ in range(8):
            assert isinstance(program.native.run((holder, 0), {}, None), tuple)
        assert program.native.remembers()
        for value in range(50):
            store(holder, value + 3)
        assert isinstance(program.native.run((holder, 0), {}, None), int)
        store(holder, 2)


def test_many_dicts_come_and_go():
    """Programs over dicts that die before and after them, in another order, with addresses used again."""
    alive = []
    for i in range(400):
        holder = Holder({"a": 1})
        program = options_program(dict, holder)
        for _ in range(8):
            assert isinstance(program.native.run((holder, 0), {}, None), tuple)
        alive.append((holder, program))
        if i % 3 == 0:
            holder.options = {"a": 1}
            alive[i // 2][0].options["a"] = 1
        if i % 5 == 0:
            alive[i // 3] = (Holder({"a": 1}), alive[i // 3][1])
    for i, (holder, program) in enumerate(alive):
        for _ in range(8):
            assert isinstance(program.native.run((holder, 0), {}, None), tuple)
        holder.options["a"] = i + 2
        assert isinstance(program.native.run((holder, 0), {}, None), int)


def test_new_data_of_the_same_kind_is_no_change():
    from tracework_capture import _torch

    assert _torch.tensors.SNAPSHOTS
    model = Model()
    program = model_program(model)
    for _ in range(8):
        program.native.run((model, 0), {}, None)
    for parameter in model.parameters():
        parameter.data = torch.zeros(40)[7:].as_strided(parameter.shape, parameter.stride())
        parameter.grad = torch.ones_like(parameter)
        with torch.no_grad():
            parameter.add_(1)
    inputs = program.native.run((model, 0), {}, None)
    assert [id(t) for t in inputs] == [id(p) for p in model.parameters()]


def test_a_class_attribute_is_seen():
    model = Model()
    program = model_program(model)
    for _ in range(8):
        assert isinstance(program.native.run((model, 0), {}, None), tuple)
    Block.kind = "other"
    try:
        assert isinstance(program.native.run((model, 0), {}, None), int)
    finally:
        Block.kind = "block"
    assert isinstance(program.native.run((model, 0), {}, None), tuple)


def test_harmless_changes_pass_and_give_the_new_objects():
    model, twin = Model(), Model()
    program = model_program(model)
    for _ in range(8):
        program.native.run((model, 0), {}, None)
    model.blocks[0].lin.weight = torch.nn.Parameter(torch.ones(3, 3))
    model.blocks[1].extra = 1
    for each in (model, twin, model, twin):
        inputs = program.native.run((each, 0), {}, None)
        assert [id(t) for t in inputs] == [id(p) for p in each.parameters()]


def test_nothing_is_kept_alive():
    model = Model()
    program = model_program(model)
    for _ in range(8):
        program.native.run((model, 0), {}, None)
    gone = weakref.ref(model)
    weight = weakref.ref(model.blocks[0].lin.weight)
    del model
    gc.collect()
    assert gone() is None and weight() is None
    assert isinstance(program.native.run((3, 0), {}, None), int)


def test_no_leak():
    model = Model()
    program = model_program(model)
    arguments = ((model, 0), {}, None)
    for _ in range(100):
        program.native.run(*arguments)
    weight = model.blocks[0].lin.weight
    before = sys.getrefcount(weight)
    assert abs(growth(sys.getallocatedblocks, 4000, lambda: program.native.run(*arguments))) < 400, "one in ten calls"
    assert sys.getrefcount(weight) == before


def test_distinct_parameters_and_inputs():
    model = Model()
    parameters = [
        ModuleEntry(
            ModuleEntry(ModuleEntry(ModuleEntry(X, "_modules", "blocks"), "_modules", str(i)), "_modules", "lin"),
            "_parameters",
            n,
        )
        for i in range(3)
        for n in ("weight", "bias")
    ]
    sources = (*parameters, Local("n"))
    program = build_program([Guard("TYPE", X, Model), Guard("DISTINCT", X, sources)], parameters, frame.__code__)
    for _ in range(8):
        assert isinstance(program.native.run((model, torch.ones(2)), {}, None), tuple)
    assert isinstance(program.native.run((model, model.blocks[1].lin.bias), {}, None), int)
    assert isinstance(program.native.run((model, torch.ones(2)), {}, None), tuple)
    model.blocks[0].lin.bias = model.blocks[1].lin.bias
    for _ in range(8):
        assert isinstance(program.native.run((model, torch.ones(2)), {}, None), int)

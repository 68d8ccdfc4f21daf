"""Bound methods and objects of C types as keys: a method is made anew at each look, and equals the others of its function and object."""

import typing

import pytest
import torch
from harness import check
from tracework_capture import optimize

X = torch.ones(3)
KIND = typing.TypeVar("KIND")
A_PROPERTY = property()


class Handlers:
    def __init__(self):
        self.scales = {self.first: 2.0, self.second: 3.0}
        self.seen = {self.first}

    def first(self, x):
        return x + 1

    def second(self, x):
        return x * 2

    def third(self, x):
        return x - 3

    @classmethod
    def of_the_class(cls):
        return 0


OF_A_CLASS = {Handlers.of_the_class: 5.0, (1, Handlers.of_the_class): 6.0}
OF_C_TYPES = {KIND: 2.0, A_PROPERTY: 3.0, (1, KIND): 4.0, dict.fromkeys: 5.0}


def looked_up(handlers, x):
    found = x * handlers.scales[handlers.first] + handlers.scales.get(handlers.second)
    known = handlers.third in handlers.scales, handlers.first in handlers.seen, handlers.second in handlers.seen
    return found, known


def changed(handlers, x):
    handlers.scales[handlers.third] = 5.0
    handlers.scales[handlers.first] = 7.0
    del handlers.scales[handlers.second]
    handlers.seen.add(handlers.third)
    made = {handlers.first: 1, handlers.second: 2}
    for handler, scale in handlers.scales.items():
        x = handler(x) * scale
    return x, len(handlers.scales), len(handlers.seen), made[handlers.second], handlers.first in made


def on_a_class(x):
    return x * OF_A_CLASS[Handlers.of_the_class] + OF_A_CLASS[1, Handlers.of_the_class]


def on_c_types(x):
    return x * OF_C_TYPES[KIND] + OF_C_TYPES[A_PROPERTY] + OF_C_TYPES[1, KIND] + OF_C_TYPES[dict.fromkeys], KIND in OF_C_TYPES


@pytest.mark.parametrize("program", [on_a_class, on_c_types])
def test_existing_keys(program):
    check(program, X)


@pytest.mark.parametrize("program", [looked_up, changed])
def test_handlers(program):
    plain, compiled = Handlers(), Handlers()
    expected, found = program(plain, X), optimize(lambda graph, inputs: graph.forward, fullgraph=True)(program)(compiled, X)
    assert expected[0].tolist() == found[0].tolist() and expected[1:] == found[1:]
    assert [(m.__name__, scale) for m, scale in plain.scales.items()] == [(m.__name__, s) for m, s in compiled.scales.items()]
    assert {m.__name__ for m in plain.seen} == {m.__name__ for m in compiled.seen}
    assert all(m.__self__ is compiled for m in (*compiled.scales, *compiled.seen))


def test_whose_method_it_is_is_guarded():
    run = optimize(lambda graph, inputs: graph.forward)(lambda holder, owner, x: x * holder.scales.get(owner.first, 100.0))
    one, other = Handlers(), Handlers()
    assert [run(h, o, X)[0].item() for h, o in ((one, one), (one, other), (other, other), (other, one), (one, one))] == [
        2,
        100,
        2,
        100,
        2,
    ]
    del one.scales[one.first]
    assert run(one, one, X)[0].item() == 100


def test_methods_of_containers_are_left_to_python():
    a_list = []
    table = {a_list.append: X}
    run = optimize(lambda graph, inputs: graph.forward)(lambda x: x + table[a_list.append])
    assert run(X).tolist() == [2, 2, 2]

"""Tensor subclasses and other objects with __torch_function__ in compiled functions: what is called, classes of results, attributes."""

import pytest
import torch
import tracework
from training import BACKENDS, same

linear = torch.nn.Linear(3, 2)


class Plain(torch.Tensor):
    def twice(self):
        return self * 2

    @property
    def half(self):
        return self / 2


class Logged(torch.Tensor):
    log = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.log.append((getattr(func, "__name__", "?"), len(args), [t.__name__ for t in types]))
        return super().__torch_function__(func, types, args, kwargs or {})


class Scaled(torch.Tensor):
    @staticmethod
    def __new__(cls, data, factor=2.0):
        made = torch.Tensor._make_subclass(cls, data)
        made.factor = factor
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **(kwargs or {}))
        return found * 10 if func in (torch.add, torch.Tensor.add) else found

    def scaled(self):
        return self * self.factor


HANDLED = {torch.sin: lambda x: torch.cos(x) * 2, torch.Tensor.mul: lambda x, y: torch.add(x, y)}


class Registered(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in HANDLED and all(issubclass(t, Registered) for t in types):
            return HANDLED[func](*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs or {})


class Duck:
    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return Duck(func(*[a.inner if isinstance(a, Duck) else a for a in args], **(kwargs or {})))


def classes(x):
    y = x + 1
    return y, x.sum(), type(y).__name__, isinstance(x * 2, type(x)), x.shape, x.detach(), 1 - x, x > 2, -x, x.max(0), x.view(-1)


def logged(x):
    Logged.log.clear()
    y = (x + 1).sin()
    results = [y, torch.add(x, y), 1 - x, x.shape, x[0], x @ x.T, torch.nn.functional.relu(x), torch.stack([x, y]), len(x)]
    return results, [row.sum() for row in x], list(Logged.log)


def in_place(x):
    x.add_(1)
    x[0] = 5
    x += 2
    x[x > 6] = 0
    return x, x.twice(), x.half


def registered(x):
    return torch.sin(x), x.sin(), x * 2, torch.stack([x, x]), x.split(1), linear(x), x == x


def scaled(x):
    return torch.add(x, 1), x.add(1), x + 1, x.scaled(), x.factor


def made_inside(x):
    plain = x.as_subclass(torch.Tensor)
    made = Scaled(plain, 3.0)
    return made, made.scaled(), made.factor, type(made).__name__, plain.as_subclass(Plain) + 1, type(plain).__name__


def attributes(x):
    x.note = 5
    y = x + 1
    y.note = x.note + 1
    return y, x.note


def switched_off(x):
    with torch._C.DisableTorchFunctionSubclass():
        found = x + 1, torch.add(x, 2)
    return *found, x + 1


def ducks(x):
    duck = Duck(x)
    return torch.add(duck, 1).inner, torch.sin(duck).inner, torch.nn.functional.relu(duck).inner


def over_a_break(x):
    y = x * 2
    tracework.graph_break()
    return y + 1, type(y).__name__


PROGRAMS = (
    *((fn, Plain) for fn in (classes, in_place, attributes, switched_off, registered)),
    *((fn, Logged) for fn in (classes, logged, switched_off)),
    *((fn, Registered) for fn in (classes, registered)),
    *((fn, Scaled) for fn in (scaled, switched_off)),
    *((fn, torch.Tensor) for fn in (made_inside, ducks)),
)


def given(cls, requires_grad=False):
    data = torch.arange(6.0).reshape(2, 3).requires_grad_(requires_grad)
    return Scaled(data) if cls is Scaled else data.as_subclass(cls)


def seen(value):
    """Class, values and attributes of all that a program gives."""
    if isinstance(value, torch.Tensor):
        facts = type(value).__name__, dict(value.__dict__), value.requires_grad
        return [*facts, value.detach().as_subclass(torch.Tensor).clone()]
    return [seen(v) for v in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize(("fn", "cls"), PROGRAMS, ids=lambda x: x.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_in_one_graph(fn, cls, backend):
    compiled = tracework.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        mine, theirs = given(cls), given(cls)
        same(seen(compiled(mine)), seen(fn(theirs)))
        same(seen(mine), seen(theirs))


@pytest.mark.parametrize("cls", [Plain, Logged, Registered])
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_gradients(cls, backend):
    found = []
    for fn in (registered, tracework.compile(registered, backend=backend, fullgraph=True)):
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        total = sum(part.sum() for part in fn(x.as_subclass(cls))[:3])
        total.backward()
        found.append([type(total).__name__, x.grad])
    same(*found)


def test_over_a_break():
    for cls in (Plain, Logged, Scaled):
        same(seen(tracework.compile(over_a_break, backend="eager")(given(cls))), seen(over_a_break(given(cls))))


def test_guards():
    compiled = tracework.compile(classes, backend="eager")
    for make in (lambda: given(Plain), lambda: given(torch.Tensor), lambda: given(Registered), lambda: given(Plain)[:1]):
        same(seen(compiled(make())), seen(classes(make())))
    with torch._C.DisableTorchFunctionSubclass():
        x = given(Plain)
        found, expected = compiled(x), classes(x)
    same(seen(found), seen(expected))


def test_operators_of_its_own_break_the_graph():
    class Odd(torch.Tensor):
        def __add__(self, other):
            return "added"

    compiled = tracework.compile(lambda x: (x + 1, x * 2), backend="eager")
    assert compiled(given(Odd))[0] == "added"


def test_strides_stay():
    def function(x):
        return x.split(1)[0].clone().as_subclass(Plain) + 1

    x = torch.randn(4, 1).t()
    assert tracework.compile(function)(x).stride() == function(x).stride() == (1, 1)

"""What was not there when a graph was made, or was found past the class that could have had it, and comes later."""

import abc

import pytest
import torch
from tracework_capture import optimize


class Base:
    def scaled(self, x):
        return x + 1


class Middle(Base):
    """Has nothing of its own."""


def programs():
    """name -> (program, its changes), on fresh state."""
    base = type("Base", (Base,), {})
    middle = type("Middle", (base,), {})

    class Last(middle):
        def scaled(self, x):
            return super().scaled(x) * 2

    shape, square = abc.ABCMeta("Shape", (), {}), type("Square", (), {})
    one = square()

    class local:
        pass

    last, parameter = Last(), torch.nn.Parameter(torch.ones(2))

    def patched(kind, by):
        kind.scaled = lambda self, x: x + by

    def mark(tensor, name, value):
        setattr(tensor, name, value)

    return {
        "super": (
            lambda x: last.scaled(x),
            [lambda: patched(base, 10), lambda: patched(middle, 20), lambda: delattr(middle, "scaled"), lambda: patched(base, 5)],
        ),
        "registered with an abstract class": (
            lambda x: x * (3 if isinstance(one, shape) else 2),
            [lambda: shape.register(square)],
        ),
        "registered subclass": (
            lambda x: x * (3 if issubclass(square, (int, shape)) else 2),
            [lambda: shape.register(square)],
        ),
        "registered class of a function": (
            lambda x: x * (3 if issubclass(local, shape) else 2),
            [lambda: shape.register(local)],
        ),
        "attribute of a parameter": (
            lambda x: x * (2 if getattr(parameter, "skipped", False) else 3) + hasattr(parameter, "other"),
            [
                lambda: mark(parameter, "skipped", True),
                lambda: mark(parameter, "other", 1),
                lambda: delattr(parameter, "skipped"),
            ],
        ),
    }


@pytest.mark.parametrize("name", programs())
def test_what_comes_later_is_noticed(name):
    plain, changes = programs()[name]
    twin, twin_changes = programs()[name]
    call = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(plain)
    x, seen = torch.ones(2), []
    for change, twin_change in zip([None, *changes], [None, *twin_changes], strict=True):
        if change is not None:
            change()
            twin_change()
        expected = twin(x)
        for _ in range(2):
            torch.testing.assert_close(call(x), expected, rtol=0, atol=0)
        seen.append(expected.tolist())
    assert all(before != after for before, after in zip(seen, seen[1:]))


def test_an_attribute_of_an_argument():
    def fn(x):
        return getattr(x, "factor", 1) * x

    call, marked = optimize(lambda gm, inputs: gm.forward)(fn), torch.ones(2)
    marked.factor = 3
    for x in (torch.ones(2), marked, torch.zeros(2)):
        torch.testing.assert_close(call(x), fn(x), rtol=0, atol=0)

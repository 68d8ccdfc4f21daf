"""Tensors of wrapper subclasses are taken apart and put together, their gradients with them."""

import operator

import pytest
import torch
from torch import fx
from tracework_capture.graph.wrapped import Construct, Gradient, Place, Structure, Unwrap, View, Wrap, is_wrapper


class Pair(torch.Tensor):
    @staticmethod
    def __new__(cls, first, second, label="pair"):
        facts = dict(strides=first.stride(), dtype=first.dtype, requires_grad=first.requires_grad)
        return torch.Tensor._make_wrapper_subclass(cls, first.shape, **facts)

    def __init__(self, first, second, label="pair"):
        self.first, self.second, self.label = first, second, label

    def __tensor_flatten__(self):
        return ["first", "second"], self.label

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Pair(inner["first"], inner["second"], context)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        parts = [
            func(*[getattr(a, n) if isinstance(a, Pair) else a for a in args], **(kwargs or {})) for n in ("first", "second")
        ]
        return Pair(*parts) if isinstance(parts[0], torch.Tensor) else parts[0]


def pair():
    return Pair(torch.randn(2, 3), torch.randn(2, 3))


def test_what_a_wrapper_is():
    assert is_wrapper(Pair) and not is_wrapper(torch.Tensor) and not is_wrapper(torch.nn.Parameter)


def test_taken_apart_and_put_together():
    outer = Pair(pair(), pair(), "outer")
    structure = Structure.of(outer)
    parts = structure.parts(outer)
    assert structure.count == 4 and parts[3] is outer.second.second
    again = Wrap(structure)(*parts)
    assert again.label == "outer" and all(a is b for a, b in zip(Unwrap(structure)(again), parts))


@pytest.mark.parametrize(
    "other",
    [
        lambda: Pair(torch.randn(2, 3), torch.randn(2, 3), "other"),
        lambda: Pair(torch.randn(3, 2), torch.randn(3, 2)),
        lambda: Pair(torch.randn(3, 2).t(), torch.randn(2, 3)),
        lambda: Pair(torch.randn(2, 3).double(), torch.randn(2, 3)),
        lambda: pair().requires_grad_(),
        lambda: Pair(pair(), pair()),
        lambda: torch.randn(2, 3),
    ],
)
def test_another_structure(other):
    structure = Structure.of(pair())
    assert structure.is_of(pair())
    assert not structure.is_of(other()) or Structure.of(other()).inner != structure.inner


@pytest.mark.parametrize("is_plain", [False, True])
def test_gradients_pass(is_plain):
    """As the graph does it: parts outside, a tensor inside, whose gradient is of its class or a plain one."""
    leaf = pair().requires_grad_()
    structure, gradient = Structure.of(leaf), Gradient()
    parts = Unwrap(structure, gradient)(leaf)
    inside = Wrap(structure, gradient)(*parts)
    given = torch.full((2, 3), 3.0)
    torch.autograd.backward(inside, given if is_plain else Pair(given, given * 2))
    assert type(leaf.grad) is (torch.Tensor if is_plain else Pair)
    assert torch.equal(leaf.grad if is_plain else leaf.grad.first, given)
    assert is_plain or torch.equal(leaf.grad.second, given * 2)


def test_a_view_is_replayed():
    graph = fx.Graph()
    base, other = graph.placeholder("base"), graph.placeholder("other")
    rows = graph.call_function(operator.getitem, (base, slice(1, None)))
    node = graph.call_method("t", (rows,))
    view = View.between(base, node)
    given = torch.randn(3, 4)
    assert view is not None and torch.equal(view(given), given[1:].t()) and view(given)._base is given
    assert View.between(base, graph.call_function(torch.add, (rows, other))) is None


def test_a_constructor_with_tensors_in_their_places():
    first, second = torch.randn(2), torch.randn(2)
    made = Construct(Pair, (Place(1), Place(0)), {"label": "made"})(first, second)
    assert made.first is second and made.second is first and made.label == "made"

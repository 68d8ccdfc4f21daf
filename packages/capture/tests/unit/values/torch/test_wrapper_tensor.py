"""What breaks a graph at a tensor of a wrapper subclass, and what a class without parts still does."""

import dataclasses

import pytest
import torch
from tracework_capture import Unsupported, optimize


@dataclasses.dataclass
class Setting:
    factor: float


class Marked(torch.Tensor):
    @staticmethod
    def __new__(cls, inner, setting):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype)

    def __init__(self, inner, setting):
        self.inner, self.setting = inner, setting

    def __tensor_flatten__(self):
        return ["inner"], self.setting

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Marked(inner["inner"], context)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*[a.inner * a.setting.factor if isinstance(a, Marked) else a for a in args], **(kwargs or {}))


def run(gm, inputs):
    return gm.forward


SETTING = Setting(2.0)


def test_a_constructor_takes_objects_that_were_there():
    function = lambda x: Marked(x, SETTING) + 1
    assert torch.equal(optimize(run, fullgraph=True)(function)(torch.ones(3)), torch.full((3,), 3.0))


def test_what_a_new_one_holds_is_what_its_constructor_was_given():
    function = lambda x: x * Marked(x, SETTING).setting.factor
    assert torch.equal(optimize(run, fullgraph=True)(function)(torch.ones(3)), torch.full((3,), 2.0))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: Marked(x, Setting(3.0)) + 1, "call_unknown"),
        (lambda x: setattr(Marked(x, SETTING), "more", 1), "side_effect_unknown"),
    ],
)
def test_what_breaks(function, reason):
    with pytest.raises(Unsupported, match=reason):
        optimize(run, fullgraph=True)(function)(torch.ones(3))


def test_another_context_is_another_graph():
    call = optimize(run, fullgraph=True)(lambda t: t + 1)
    for factor in (1.0, 2.0, 3.0):
        assert torch.equal(call(Marked(torch.ones(3), Setting(factor))), torch.full((3,), factor + 1))

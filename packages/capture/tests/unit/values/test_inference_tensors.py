"""Inference tensors that were there before the graph: what eager refuses of them, and what blocks of the program write to them."""

import pytest
import torch
from tracework_capture import graph_break, reset
from tracework_capture.hook.context import optimize


def detached(graph_module, example_inputs):
    """A backend that, as compilers do, does not see that an input is an inference tensor."""
    return lambda *inputs: graph_module(*(t.clone() if t.is_inference() else t for t in inputs))


def saved(a):
    return torch.ones(2, requires_grad=True) * a


def saved_as_a_view(a):
    return torch.ones(1, 2, requires_grad=True) * a.view(1, 2)


@pytest.mark.parametrize("use", [saved, saved_as_a_view])
def test_an_input_that_eager_refuses_to_save(use):
    with torch.inference_mode():
        a = torch.ones(2)

    def f(a):
        try:
            return use(a), "kept"
        except RuntimeError as error:
            return str(error)

    reset()
    captured = optimize(detached)(f)
    for _ in range(2):
        assert captured(a) == f(a) != "kept"


def test_a_block_writes_to_an_inference_tensor_of_before():
    def f(x):
        with torch.inference_mode():
            a = x + 1
            first = a[:1]
        graph_break()
        with torch.inference_mode():
            first.mul_(3)
            b = a.view(2, 1)
        return a, b, a.is_inference(), b.is_inference()

    reset()
    captured = optimize(lambda graph_module, example_inputs: graph_module.forward)(f)
    for _ in range(2):
        expected, found = f(torch.ones(2)), captured(torch.ones(2))
        assert all(map(torch.equal, found[:2], expected[:2])) and found[2:] == expected[2:]

"""What a class of tensors sees of a compiled program: its calls of torch, and nothing that capture and guards ask."""

import copy

import pytest
import torch
import tracework_capture as capture

LOG: list[str] = []
WEIGHT = torch.ones(3, requires_grad=True)
BUFFER = torch.zeros(3)


class Telling(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        LOG.append(getattr(func, "__name__", "?"))
        return super().__torch_function__(func, types, args, kwargs or {})


def block_of_inference(told, x):
    y = told * 2
    with torch.inference_mode():
        BUFFER.add_(1)
    return y


def attributes(told, x):
    return told.shape, told.dtype, told.requires_grad, told.is_leaf, told.grad_fn is None, x + 1


def backward_inside(told, x):
    (WEIGHT * told).sum().backward()
    found, WEIGHT.grad = WEIGHT.grad, None
    return found


def hook(told, x):
    x, seen = x.clone().requires_grad_(), []
    x.register_hook(lambda grad: seen.append(1))
    (x * told).sum().backward()
    return seen, x.grad


def refused_copy(told, x):
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(told)
    return x


def several_graphs(told, x):
    y = told * 2
    capture.graph_break()
    return y.sum() + x


@pytest.mark.parametrize("requires_grad", [False, True], ids=["data", "with_a_history"])
@pytest.mark.parametrize(
    "function", [block_of_inference, attributes, backward_inside, hook, refused_copy, several_graphs], ids=lambda f: f.__name__
)
def test_its_class_sees_the_calls_of_the_program(function, requires_grad):
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(function)
    for number in (1, 2, 3):
        seen = []
        for run in (function, compiled):
            with torch._C.DisableTorchFunction():
                told = torch.ones(3, requires_grad=requires_grad).as_subclass(Telling)
            LOG.clear()
            run(told, torch.ones(3) * number)
            seen.append(list(LOG))
        assert seen[0] == seen[1]

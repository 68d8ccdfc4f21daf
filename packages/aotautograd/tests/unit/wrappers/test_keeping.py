"""Kernels that keep something for their backward run with gradients on, and autograd records nothing of them."""

import torch
from tracework_aotautograd.wrappers.keeping import KEEPS_FOR_BACKWARD, keeping, keeps_for_backward


def test_a_graph_with_such_a_kernel():
    graph = torch.fx.Graph()
    graph.output(graph.call_function(next(iter(KEEPS_FOR_BACKWARD)), ()))
    assert keeps_for_backward(torch.fx.GraphModule({}, graph))
    assert not keeps_for_backward(torch.fx.symbolic_trace(torch.nn.Linear(2, 2)))


def test_gradients_are_on_and_nothing_is_recorded():
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        modes, y = keeping(lambda inputs: (torch.is_grad_enabled(), inputs[0] * 2))([x])
    assert modes and not y.requires_grad

"""What a node calls says which graphs it runs."""

import torch
from torch import fx
from tracework_capture.graph.captured_call import CapturedCall


def test_the_graphs_of_a_call():
    inner = fx.symbolic_trace(torch.nn.ReLU())
    call = CapturedCall("relu", inner)
    assert call.graphs() == [inner.graph] and call.__name__ == "relu"

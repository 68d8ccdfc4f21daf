"""What is a node of the graph at a nested tensor of torch.jagged layout, and what breaks it."""

import pytest
import torch
from tracework_capture import Unsupported, optimize


def nested(*lengths):
    return torch.nested.nested_tensor([torch.ones(n, 4) for n in lengths], layout=torch.jagged)


def targets(function, *args):
    """Names of what the one graph calls."""
    seen = []

    def backend(gm, inputs):
        seen.extend(getattr(n.target, "__name__", n.target) for n in gm.graph.nodes if "call" in n.op)
        return gm.forward

    optimize(backend, fullgraph=True)(function)(*args)
    return seen


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: x.unflatten(-1, (2, 2)).flatten(-2), "flatten"),
        (lambda x: torch.nn.functional.rms_norm(x, (4,)), "rms_norm"),
        (lambda x: x.to_padded_tensor(0.0), "to_padded_tensor"),
        (lambda x: torch.nested.to_padded_tensor(x, 0.0), "nested_to_padded_tensor"),
        (lambda x: torch.nested.nested_tensor_from_jagged(x.values(), x.offsets()), "nested_tensor_from_jagged"),
        (lambda x: x.sin(), "sin"),
    ],
)
def test_nodes(function, name):
    assert name in targets(function, nested(2, 3))


def test_another_layout_breaks():
    with pytest.raises(Unsupported, match="another layout than torch.jagged"):
        targets(lambda x: torch.nested.nested_tensor([x]), torch.ones(2, 3))

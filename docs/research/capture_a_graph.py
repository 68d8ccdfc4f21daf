"""Capture a graph: the first stage alone. What it records of a function, under which guards, and what makes a second graph necessary."""

from collections.abc import Callable
from typing import Any

import torch
from tracework_capture import capture, explain, optimize


def attention(x: torch.Tensor, heads: int, causal: bool) -> torch.Tensor:
    batch, length, width = x.shape
    q = k = v = x.view(batch, length, heads, width // heads).transpose(1, 2)
    scores = q @ k.transpose(-1, -2) / (width // heads) ** 0.5
    if causal:  # a bool of Python: decided while capturing, and guarded
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)


x = torch.randn(2, 6, 8)
captured = capture(attention, x, 2, True)  # nothing is run, nothing is compiled
print(captured.text())

# The graph is a torch.fx.GraphModule, and runs.
(result,) = captured.graph(*captured.example_inputs)
torch.testing.assert_close(result, attention(x, 2, True))

# Each input of the graph knows where a call finds it; each guard says what must hold for the graph to be used again.
for binding in captured.inputs:
    print(f"{binding.name} is {binding.source}, a {binding.role}")
for guard in captured.guards:
    print("guard:", guard)

# The other stages are a function: of a graph and its inputs, a callable.
graphs: list[torch.fx.GraphModule] = []


def backend(graph_module: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    graphs.append(graph_module)
    return graph_module.forward


fast = optimize(backend)(attention)
for length, causal in ((6, True), (6, True), (6, False), (7, False), (9, False)):
    y = torch.randn(2, length, 8)
    torch.testing.assert_close(fast(y, 2, causal), attention(y, 2, causal))
print(len(graphs), "graphs for five calls")
assert len(graphs) < 5


# What cannot be captured ends a graph; explain() says where.
def chooses(x: torch.Tensor) -> torch.Tensor:
    weights = attention(x, 2, True)
    return x if f"{weights.max():.1f}" > "1" else weights  # a text that is made of data


found = explain(chooses)(x)
for stop in found.breaks:
    print(stop.report())
assert len(found.breaks) == 1

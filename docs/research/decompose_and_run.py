"""Decompose into prims and run: an ATen graph in about 250 operations, each with a shape rule and an eager reference."""

from collections import Counter
from typing import Any

import torch
import torch.nn.functional as F
from tracework_primops import OPS, aten_graph, decompose, parse_graph, prims


def block(x: torch.Tensor, norm: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return x + F.silu(F.layer_norm(x, (16,), norm) @ up) @ down


inputs = torch.randn(8, 16), torch.randn(16), torch.randn(16, 32), torch.randn(32, 16)
aten = aten_graph(block, *inputs)
graph = decompose(aten)
print(graph)

# It runs, prim by prim, on tensors; its text is a graph again.
torch.testing.assert_close(graph.run(*inputs)[0], block(*inputs))
assert parse_graph(str(graph)).fingerprint() == graph.fingerprint()

used = Counter(node.target.name for node in graph.graph.nodes if getattr(node.target, "name", None) in OPS)
print(used.most_common())

# A prim alone: on tensors its reference, which says what it means.
print(OPS["rsqrt"].signature, prims.rsqrt(torch.tensor([4.0, 16.0])))

# Rules can be given for one call: silu by its definition with tanh in place of the sigmoid.


def silu_by_tanh(x: Any) -> Any:
    half = prims.mul(x, 0.5)
    return prims.add(half, prims.mul(half, prims.tanh(half)))


other = decompose(aten, changes={torch.ops.aten.silu.default: silu_by_tanh})
assert "tanh" in str(other) and "tanh" not in str(graph)
torch.testing.assert_close(other.run(*inputs)[0], block(*inputs))

# Which of the two is nearer to float64?
exact = block(*(t.double() for t in inputs))
for name, each in (("own rule", graph), ("by tanh", other)):
    print(name, (each.run(*inputs)[0] - exact).abs().max().item())

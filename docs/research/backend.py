"""Write a backend: it gets graphs and gives callables. This one does each call once more in float64, and keeps how far apart the two are."""

from collections.abc import Callable
from typing import Any

import torch
import tracework
from torch.utils._pytree import tree_map_only

errors: dict[str, float] = {}
"""Relative to the largest element, of each call of the graphs alone: its inputs are the same for both."""


def in_float64(value: torch.Tensor) -> torch.Tensor:
    return value.double() if value.is_floating_point() else value


class WithErrors(torch.fx.Interpreter):
    """Runs a graph, call by call."""

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        if n.op in ("call_function", "call_method") and isinstance(result, torch.Tensor) and result.dtype == torch.float32:
            args, kwargs = tree_map_only(torch.Tensor, in_float64, self.fetch_args_kwargs_from_env(n))
            exact = getattr(self, n.op)(n.target, args, kwargs)
            error = (result - exact).abs().max() / exact.abs().max()
            errors[n.name] = max(error.item(), errors.get(n.name, 0.0))
        return result


@tracework.register_backend(name="with_errors")
def with_errors(graph_module: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    return WithErrors(graph_module).run


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x
    for _ in range(3):
        y = torch.tanh(y @ w) + y
    return torch.logsumexp(y, -1)


x, w = torch.randn(64, 32), torch.randn(32, 32)
fast = tracework.compile(program, backend="with_errors")
torch.testing.assert_close(fast(x, w), program(x, w))
for name, error in sorted(errors.items(), key=lambda item: -item[1]):
    print(f"{error:.1e}  {name}")
assert len(errors) == 10 and max(errors.values()) < 1e-5

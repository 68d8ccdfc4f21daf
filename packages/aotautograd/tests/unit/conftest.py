"""Compiles a Python function through aot_compile with an eager runner and compares it with the function itself."""

from typing import Any

import pytest
import torch
import tracework_aotautograd as aot
from torch import fx


def graph_of(fn: Any, count: int) -> fx.GraphModule:
    """A captured graph of `count` inputs whose one node calls `fn`, which returns a tuple."""
    graph = fx.Graph()
    inputs = tuple(graph.placeholder(f"x{i}") for i in range(count))
    graph.output(graph.call_function(fn, inputs))
    return fx.GraphModule({}, graph)


def runner(gm: fx.GraphModule, spec: aot.GraphSpec) -> Any:
    """A graph compiler that runs the graph; checks that nothing in it writes, except to inputs at the end."""
    for node in gm.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            writes = any(a.alias_info is not None and a.alias_info.is_write for a in node.target._schema.arguments)
            assert not writes or (node.target is torch.ops.aten.copy_.default and node.args[0].op == "placeholder"), (
                node.format_node()
            )
    return lambda inputs: gm(*inputs)


class Pair:
    """`fn` compiled and `fn` itself, each with inputs of its own made from the same values."""

    def __init__(self, fn: Any, *args: Any, make: Any = None, **options: Any) -> None:
        self.fn, self.programs = fn, []
        self.mine, self.theirs = (self._copies(args, make) for _ in range(2))
        settings = aot.AotOptions(fallback=False, **options)
        self.compiled = aot.aot_compile(
            graph_of(fn, len(self.mine)),
            self.mine,
            forward_compiler=runner,
            options=settings,
            observe=lambda stage, p: self.programs.append(p),
        )

    @staticmethod
    def _copies(args: Any, make: Any) -> list[Any]:
        copies = [a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in args]
        return list(make(*copies)) if make else copies

    def call(self, seed: int = 0) -> tuple[Any, Any]:
        """Both results."""
        torch.manual_seed(seed)
        mine = self.compiled(*self.mine)
        torch.manual_seed(seed)
        return mine, self.fn(*self.theirs)

    def same_inputs(self) -> None:
        """Inputs hold the same values afterwards."""
        for a, b in zip(self.mine, self.theirs, strict=True):
            if isinstance(a, torch.Tensor):
                torch.testing.assert_close(a.detach(), b.detach())
                assert a.requires_grad == b.requires_grad and a.is_leaf == b.is_leaf

    def grads(self, outputs: Any, inputs: list[Any], create_graph: bool = False) -> list[Any]:
        """Gradients of fixed combinations of the outputs."""
        roots = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
        roots = [o for o in roots if o.grad_fn is not None or o.is_leaf and not o._is_view()]  # no views made under no_grad
        tangents = [torch.linspace(-1, 1, r.numel(), dtype=r.dtype).reshape(r.shape) for r in roots]
        return list(torch.autograd.grad(roots, inputs, tangents, create_graph=create_graph, allow_unused=True))


def same_outputs(mine: Any, theirs: Any) -> None:
    """Values, strides, requires_grad; for what is no tensor, equality."""
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride() and a.requires_grad == b.requires_grad and a.dtype == b.dtype


def same_gradients(mine: Any, theirs: Any) -> None:
    """A gradient that eager leaves undefined may be zeros."""
    for a, b in zip(mine, theirs, strict=True):
        if b is None:
            assert a is None or not a.any()
        else:
            torch.testing.assert_close(a, b)


@pytest.fixture
def check() -> Any:
    """check(fn, *args, second=True): values, written inputs, gradients, gradients of gradients; returns the Pair."""

    def run(fn: Any, *args: Any, second: bool = True, **options: Any) -> Pair:
        pair = Pair(fn, *args, **options)
        leaves, their_leaves = (
            [x for x in xs if isinstance(x, torch.Tensor) and x.requires_grad] for xs in (pair.mine, pair.theirs)
        )
        mine, theirs = pair.call()
        same_outputs(mine, theirs)
        pair.same_inputs()
        if not leaves or not any(isinstance(o, torch.Tensor) and o.requires_grad for o in theirs):
            return pair
        first, their_first = pair.grads(mine, leaves, second), pair.grads(theirs, their_leaves, second)
        same_gradients(first, their_first)
        if second and any(g is not None and g.requires_grad for g in their_first):
            squares = [sum(g.square().sum() for g in gs if g is not None) for gs in (first, their_first)]
            same_gradients(pair.grads(squares[:1], leaves), pair.grads(squares[1:], their_leaves))
        return pair

    return run


@pytest.fixture
def pair() -> type[Pair]:
    """The Pair class."""
    return Pair


@pytest.fixture
def eager_runner() -> Any:
    """The graph compiler that runs its graph."""
    return runner


@pytest.fixture
def compare() -> Any:
    """(same_outputs, same_gradients)."""
    return same_outputs, same_gradients


@pytest.fixture
def graph() -> Any:
    """graph_of."""
    return graph_of


@pytest.fixture
def real() -> Any:
    """Random float64 leaves with gradients."""
    torch.manual_seed(0)
    return lambda *sizes: torch.randn(*sizes, dtype=torch.float64, requires_grad=True)


@pytest.fixture
def data() -> Any:
    """Random float64 tensors without gradients."""
    torch.manual_seed(1)
    return lambda *sizes: torch.randn(*sizes, dtype=torch.float64)

"""Profiles and rows of decompose() as a user sees them: what becomes of the ops, and that every result runs eagerly."""

import pytest
import torch
from tracework_primops import OPS, FakeMode, decompose, prims

aten = torch.ops.aten


@pytest.fixture
def traced():
    """gelu(softmax(x) @ w) as an ATen graph, and its inputs."""
    mode, graph, nodes, calls = FakeMode(), torch.fx.Graph(), {}, []
    inputs = [torch.randn(3, 4), torch.randn(4, 5)]
    fakes = [mode.from_real(t) for t in inputs]
    for i, fake in enumerate(fakes):
        nodes[id(fake)] = graph.placeholder(f"x{i}")
        nodes[id(fake)].meta["val"] = fake
    mode.recorder = lambda func, args, kwargs, out: calls.append((func, args, kwargs, out))
    torch.nn.functional.gelu(torch.mm(torch._softmax(fakes[0], -1, False), fakes[1]))
    for func, args, kwargs, out in calls:
        node = nodes[id(out)] = graph.call_function(func, tuple(nodes.get(id(a), a) for a in args), dict(kwargs))
        node.meta["val"] = out
    graph.output((node,))
    return torch.fx.GraphModule({}, graph), inputs


def result_of(traced, **options):
    graph = decompose(traced[0], **options)
    (got,) = graph.run(*traced[1])
    (expected,) = traced[0](*traced[1])
    return [n.target for n in graph.calls], got, expected


@pytest.mark.parametrize("profile", ["prims", "core_aten", "none"])
def test_every_profile_runs_eagerly(traced, profile):
    targets, got, expected = result_of(traced, profile=profile)
    torch.testing.assert_close(got, expected)
    if profile == "prims":
        assert all(OPS.get(getattr(t, "name", "")) is t for t in targets)
    if profile == "none":
        assert targets == [aten._softmax.default, aten.mm.default, aten.gelu.default]
    if profile == "core_aten":
        assert all(torch.Tag.core in t.tags for t in targets)


def test_a_row_is_removed_replaced_and_added_from_outside(traced):
    targets, got, expected = result_of(traced, changes={aten.gelu.default: None})
    assert aten.gelu.default in targets and aten._softmax.default not in targets
    torch.testing.assert_close(got, expected)
    _, got, expected = result_of(traced, changes={aten.gelu.default: lambda x, approximate="none": prims.neg(x)})
    torch.testing.assert_close(got, -(torch.softmax(traced[1][0], -1) @ traced[1][1]))
    targets, got, expected = result_of(traced, profile="none", changes={aten.mm.default: lambda a, b: prims.mm(a, b)})
    assert targets == [aten._softmax.default, prims.mm, aten.gelu.default]
    torch.testing.assert_close(got, expected)
    assert aten.gelu.default not in result_of(traced)[0], "changes belong to one call"


def test_an_unknown_profile_is_an_error(traced):
    with pytest.raises(ValueError, match="known: prims, core_aten, none"):
        decompose(traced[0], profile="fast")

"""Which values of a graph get channels-last, and which keep eager's layout."""

import pytest
import torch
import tracework_aotautograd as aot
from torch.nn import functional as F
from tracework_aotautograd.trace import image_layouts

aten = torch.ops.aten


def network(x, *weights):
    for w in weights:
        x = torch.relu(F.conv2d(x, w, padding=1))
    return x, x.flatten(1).sum(1)


def joint_of(graph, count=3, dtype=torch.float32):
    x = torch.randn(2, 4, 6, 6, dtype=dtype)
    weights = [torch.randn(4, 4, 3, 3, dtype=dtype, requires_grad=True) for _ in range(count)]
    return aot.trace_joint(graph(network, count + 1), [x, *weights])


def values(gm, target):
    return [n.meta["val"] for n in gm.graph.nodes if n.target is target]


def test_images_and_what_is_computed_from_them_get_channels_last(graph, monkeypatch):
    monkeypatch.setattr(image_layouts, "FASTER", {("cpu", torch.float32)})
    joint = joint_of(graph)
    gm = joint.graph
    before = [n.meta["val"].stride() for n in next(iter(reversed(gm.graph.nodes))).all_input_nodes]
    image_layouts.spread_channels_last(gm)
    for target in (aten.convolution.default, aten.relu.default):
        assert {v.stride() for v in values(gm, target)} == {(144, 1, 24, 4)}
    assert [n.meta["val"].stride() for n in next(iter(reversed(gm.graph.nodes))).all_input_nodes] == before
    halves = aot.partition(joint, aot.AotOptions())
    assert {
        n.meta["val"].stride()
        for n in halves.backwards[0].graph.graph.nodes
        if n.op == "placeholder" and n.name.startswith("relu")
    } == {(144, 1, 24, 4)}


@pytest.mark.parametrize(("count", "faster"), [(2, True), (3, False)])
def test_other_graphs_stay_as_they_are(graph, monkeypatch, count, faster):
    if faster:
        monkeypatch.setattr(image_layouts, "FASTER", {("cpu", torch.float32)})
    gm = joint_of(graph, count).graph
    before = str(gm.graph), [v.stride() for v in values(gm, aten.relu.default)]
    image_layouts.spread_channels_last(gm)
    assert (str(gm.graph), [v.stride() for v in values(gm, aten.relu.default)]) == before

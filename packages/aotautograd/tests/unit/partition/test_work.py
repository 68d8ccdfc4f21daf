"""What computing a node takes."""

import pytest
import torch
from torch import fx
from tracework_aotautograd.partition.work import work_of

aten = torch.ops.aten


def node(target, *shapes, numbers=()):
    graph = fx.Graph()
    given = [graph.placeholder(f"x{i}") for i in range(len(shapes))]
    for placeholder, shape in zip(given, shapes, strict=True):
        placeholder.meta["val"] = torch.empty(shape, device="meta")
    made = graph.call_function(target, (*given, *numbers))
    made.meta["val"] = target(*[g.meta["val"] for g in given], *numbers)
    return made


MOVED = 4 * (32 * 16 + 16 * 8 + 32 * 8)


@pytest.mark.parametrize(
    ("made", "work"),
    [
        (node(aten.mm.default, (32, 16), (16, 8)), 2 * 32 * 16 * 8 / 8 + MOVED),
        (node(aten.relu.default, (8, 8)), 0),
        (node(aten.exp.default, (8, 8)), 128),
        (node(aten.sum.default, (8, 8)), 256 + 4),
        (node(aten.view.default, (8, 8), numbers=([64],)), 0),
    ],
    ids=lambda x: str(getattr(x, "target", "")),
)
def test_work(made, work):
    assert work_of(made) == work
    assert work_of(made, alone=True) >= work

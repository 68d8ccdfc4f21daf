"""Indices of pools that the backward is given in few bits."""

import sys

import pytest
import torch
import tracework_aotautograd as aot
from torch.nn import functional as F

indices = sys.modules["tracework_aotautograd.partition.indices"]


@pytest.fixture
def on_cpu(monkeypatch):
    """As on a GPU."""
    monkeypatch.setattr(indices, "ON", {"cpu"})


POOLS = {
    "image": (lambda x: F.max_pool2d(x, 3, 2, 1).exp(), (2, 3, 17, 20), torch.int16),
    "small image": (lambda x: F.max_pool2d(x, 2), (2, 3, 16, 16), torch.uint8),
    "large image": (lambda x: F.max_pool2d(x, 2), (1, 1, 129, 256), torch.int32),
    "as large as 16 bits hold": (lambda x: F.max_pool2d(x, 64, 64), (1, 1, 128, 256), torch.int16),
    "signal": (lambda x: F.max_pool1d(x, 3, 1, 1, 2), (2, 3, 300), torch.int16),
    "volume": (lambda x: F.max_pool3d(x, 2, ceil_mode=True), (1, 2, 5, 7, 9), torch.int16),
    "to given sizes": (lambda x: F.adaptive_max_pool2d(x, (3, 5)), (2, 3, 16, 17), torch.int16),
    "volume to given sizes": (lambda x: F.adaptive_max_pool3d(x, 2), (1, 2, 4, 5, 6), torch.uint8),
    "given, too": (lambda x: F.max_pool2d(x, 2, return_indices=True), (2, 3, 16, 16), torch.int64),
    "read": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), (2, 3, 16, 16), torch.int64),
}
"""Name -> pool, sizes of an image, and the dtype in which its indices are kept."""


def outputs(found):
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("name", POOLS)
def test_results_and_gradients_are_eagers(name, on_cpu, check):
    pool, sizes, dtype = POOLS[name]
    x = torch.randn(sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    pair = check(lambda x: outputs(pool(x.sin())), x, second=name != "large image")
    (program,) = pair.programs
    kept = [n.meta["val"].dtype for n in program.backwards[0].graph.graph.nodes if n.op == "placeholder"]
    assert [d for d in kept if not d.is_floating_point] == [dtype]


def test_where_the_library_scatters_them_they_stay(graph):
    joint = aot.trace_joint(graph(lambda x: (F.max_pool2d(x, 2),), 1), [torch.randn(1, 2, 8, 8, requires_grad=True)])
    before = str(joint.graph.graph)
    indices.narrow_indices(joint.graph.graph)
    assert str(joint.graph.graph) == before

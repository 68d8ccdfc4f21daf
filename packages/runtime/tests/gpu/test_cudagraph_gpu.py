"""CUDA graphs on a GPU: results, outputs that stay alive, parameters that move."""

import pytest
import torch
from tracework_runtime import Artifact, RuntimeOptions, cudagraph, load

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

HOST = """
import torch
def call(args):
    w, x = args
    args.clear()
    y = torch.ops.aten.mm.default(x, w)
    z = torch.ops.aten.relu.default(y)
    return (y, z)
"""


@pytest.fixture
def graphed(tmp_path):
    options = RuntimeOptions(cache_dir=str(tmp_path / "cache"))
    return cudagraph(load(Artifact("c" * 8, HOST, devices={"cuda:0"}, static_inputs={0}), options), options)


def test_results_of_many_calls(graphed):
    w = torch.randn(64, 64, device="cuda")
    kept = []
    for _ in range(8):
        x = torch.randn(32, 64, device="cuda")
        y, z = graphed([w, x])
        kept.append((y, x @ w))
        torch.testing.assert_close(z, (x @ w).relu())
        del z
        for value, expected in kept:
            torch.testing.assert_close(value, expected)
    assert graphed.recordings


def test_moved_parameter(graphed):
    x = torch.randn(32, 64, device="cuda")
    for _ in range(4):
        w = torch.randn(64, 64, device="cuda")
        torch.testing.assert_close(graphed([w, x])[0], x @ w)
        keep = w  # noqa: F841  the next parameter gets other memory

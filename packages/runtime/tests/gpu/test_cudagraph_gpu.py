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


WAITING = """
import torch
def call(args):
    w, x = args
    args.clear()
    y = torch.ops.aten.mm.default(x, w)
    return (y * float(y.sum().item() == y.sum().item()), torch.rand_like(y))
"""


def test_what_cannot_be_recorded_runs_all_the_same(graphed, tmp_path):
    """No operator of it is in the tables: the error comes while recording, and what follows is as if nothing had been."""
    options = RuntimeOptions(cache_dir=str(tmp_path / "cache"))
    waiting = cudagraph(load(Artifact("w" * 8, WAITING, devices={"cuda:0"}, static_inputs={0}), options), options)
    w, kept = torch.randn(64, 64, device="cuda"), []
    with pytest.warns(RuntimeWarning, match="cannot be recorded as a CUDA graph"):
        for _ in range(3):
            x = torch.randn(32, 64, device="cuda")
            found, drawn = waiting([w, x])
            torch.testing.assert_close(found, x @ w)
            kept.append((found, x @ w, drawn))
    for _ in range(4):  # other functions are recorded, random numbers drawn, memory given and taken as before
        x = torch.randn(32, 64, device="cuda")
        torch.testing.assert_close(graphed([w, x])[0], x @ w)
        torch.testing.assert_close(waiting([w, x])[0], x @ w)
    assert graphed.recordings and not waiting.recordings
    assert not torch.equal(kept[0][2], kept[1][2])
    for found, expected, _ in kept:
        torch.testing.assert_close(found, expected)


def test_a_precision_that_is_set_later(tmp_path):
    options = RuntimeOptions(cache_dir=str(tmp_path / "cache"))
    artifact = Artifact("p" * 8, HOST, devices={"cuda:0"}, static_inputs={0}, externs={"aten::mm", "aten::relu"})
    graphed, before = cudagraph(load(artifact, options), options), torch.backends.cuda.matmul.fp32_precision
    w, x = torch.randn(512, 512, device="cuda"), torch.randn(64, 512, device="cuda")
    exact = x.double() @ w.double()
    try:
        for precision, exactly in (("ieee", True), ("tf32", False), ("ieee", True)):
            torch.backends.cuda.matmul.fp32_precision = precision
            for _ in range(3):
                error = (graphed([w, x])[0].double() - exact).abs().max().item()
                assert (error < 1e-3) is exactly
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert len(graphed.recordings) == 2

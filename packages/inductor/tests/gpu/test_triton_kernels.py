"""Rendered Triton kernels, compiled and launched on a GPU, against eager; and what a launch costs."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_runtime import Artifact, RuntimeOptions, load
from triton_samples import SAMPLES

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    return RuntimeOptions(cache_dir=str(tmp_path_factory.mktemp("gpu") / "cache"))


def bound(sample, options):
    renderer = TritonRenderer()
    kernels = renderer.pack([("k0", renderer.render(sample.kernel))])
    host = "def call(args):\n    k0(*args)\n    return ()\n"
    return load(Artifact("g" * 8, host, kernels, devices={"cuda:0"}), options)


@pytest.mark.parametrize("name", SAMPLES)
def test_equals_eager(name, options):
    sample = SAMPLES[name]()
    tensors = sample.tensors("cuda")
    expected = sample.eager(**{n: t.clone() for n, t in tensors.items()})
    bound(sample, options)([*tensors.values(), *sample.sizes])
    torch.cuda.synchronize()
    for output, value in expected.items():
        torch.testing.assert_close(tensors[output], value, rtol=sample.tolerance, atol=sample.tolerance, equal_nan=True)


def test_unaligned_inputs(options):
    sample = SAMPLES["pointwise"]()
    tensors = sample.tensors("cuda")
    shifted = torch.empty(33 * 40 + 1, device="cuda")[1:].view(33, 40)
    shifted.copy_(tensors["a"])
    tensors["a"] = shifted
    expected = sample.eager(**tensors)
    bound(sample, options)(list(tensors.values()))
    torch.testing.assert_close(tensors["c"], expected["c"])


def test_cost_of_a_launch(options):
    sample = SAMPLES["pointwise"]()
    arguments = list(sample.tensors("cuda").values())
    launch = bound(sample, options).namespace["k0"]
    launch(*arguments)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(500):
        launch(*arguments)
    cost = (time.perf_counter() - start) / 500 * 1e6
    torch.cuda.synchronize()
    print(f"launch: {cost:.2f} us")
    assert cost < 15

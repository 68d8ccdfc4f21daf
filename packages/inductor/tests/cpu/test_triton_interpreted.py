"""Rendered Triton kernels through Triton's interpreter, against eager."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from tracework_inductor.codegen.triton import TritonRenderer  # noqa: E402
from triton_samples import SAMPLES  # noqa: E402


@pytest.mark.parametrize("name", SAMPLES)
def test_equals_eager(name, tmp_path):
    sample = SAMPLES[name]()
    rendered = TritonRenderer().render(sample.kernel)
    assert dict(rendered.launch)["kind"].startswith(sample.kind)
    tensors = sample.tensors()
    expected = sample.eager(**{n: t.clone() for n, t in tensors.items()})
    triton_interpreter.interpret(rendered, list(tensors.values()), sample.sizes, tmp_path)
    for output, value in expected.items():
        torch.testing.assert_close(tensors[output], value, rtol=sample.tolerance, atol=sample.tolerance, equal_nan=True)

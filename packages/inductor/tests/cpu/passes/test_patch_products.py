"""Convolutions whose window is the whole image, compiled as products: eager's values and strides."""

import pytest
import torch
import torch.nn.functional as F
import tracework_runtime as runtime
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_primops import prims as p


def gated(x, squeezed, w, b, v, c):
    """A squeeze-and-excite block of a mean that is given; and what its first convolution gives."""
    ones = (1, 1), (0, 0), (1, 1), False, (0, 0), 1
    hidden = p.convolution(squeezed, w, b, *ones)
    return p.mul(p.sigmoid(p.convolution(p.relu(hidden), v, c, *ones)), x), hidden


def eager(x, squeezed, w, b, v, c):
    hidden = F.conv2d(squeezed, w, b)
    return torch.sigmoid(F.conv2d(F.relu(hidden), v, c)) * x, hidden


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("batch", "side"), [(1, 1), (8, 1), (3, 5)])
def test_values_and_strides(batch, side, dtype, memory_format):
    made = torch.Generator().manual_seed(0)
    sizes = (batch, 24, 7, 7), (batch, 24, side, side), (6, 24, side, side), (6,), (24, 6, 1, 1), (24,)
    values = [torch.randn(s, generator=made).to(dtype) for s in sizes]
    values = [v.contiguous(memory_format=memory_format) if v.ndim == 4 else v for v in values]
    values[1][-1, -1] = torch.nan
    artifact = compile_graph(build(gated, values))
    assert ("torch.addmm" in artifact.host_source) == (dtype == torch.float32)
    expected = eager(*values)
    for actual, right in zip(runtime.load(artifact)(list(values)), expected, strict=True):
        assert actual.stride() == right.stride()
        torch.testing.assert_close(actual, right, equal_nan=True)

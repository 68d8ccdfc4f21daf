"""The gradient of a depthwise convolution's weights: float64's values at all rims, NaNs where they are, bits that no thread changes."""

import pytest
import torch
import tracework_runtime as runtime
from tracework_inductor.codegen import renderer_for
from tracework_inductor.codegen.cpp.depthwise import DEPTHWISE_KERNEL
from tracework_inductor.options import InductorOptions

CASES = {
    "one vector": ((2, 16, 9, 11), (3, 3), (1, 1), (1, 1), (1, 1)),
    "channels left over": ((1, 41, 8, 8), (5, 5), (1, 1), (2, 2), (1, 1)),
    "more taps across than at once": ((1, 24, 6, 20), (2, 9), (1, 1), (0, 4), (1, 1)),
    "strides": ((2, 32, 13, 10), (3, 5), (2, 3), (1, 2), (1, 1)),
    "dilations": ((2, 20, 12, 12), (3, 3), (1, 2), (2, 4), (2, 3)),
    "window larger than the image": ((3, 33, 3, 4), (7, 7), (1, 1), (3, 3), (1, 1)),
    "no paddings": ((2, 17, 7, 7), (7, 5), (1, 1), (0, 0), (1, 1)),
    "taps always outside": ((1, 16, 2, 2), (5, 5), (1, 1), (4, 4), (2, 2)),
    "long rows": ((1, 16, 3, 700), (1, 3), (1, 1), (0, 1), (1, 1)),
}
"""Images, window, strides, paddings, dilations."""


@pytest.fixture(scope="module")
def kernel():
    sources = renderer_for("cpu", InductorOptions()).pack([("weights", DEPTHWISE_KERNEL)])
    artifact = runtime.Artifact("depthwise", "def call(args):\n    return ()\n", tuple(sources), devices=frozenset({"cpu"}))
    return runtime.load(artifact).namespace["weights"]


def tensors(case: str):
    """Images, gradient, and a function that gives the library's gradient of the weights for such."""
    x, window, *settings = CASES[case]
    made, whole = torch.Generator().manual_seed(0), (None, *settings, False, (0, 0), x[1])
    images, weights = torch.randn(x, generator=made), torch.randn(x[1], 1, *window, generator=made)
    grad = torch.randn(torch.convolution(images, weights, *whole).shape, generator=made)

    def library(grad, images):
        given = grad, images, weights.to(grad.dtype), *whole, (False, True, False)
        return torch.ops.aten.convolution_backward(*given)[1]

    return *(t.contiguous(memory_format=torch.channels_last) for t in (images, grad)), library


def computed(kernel, case: str, images, grad):
    x, window, *settings = CASES[case]
    out = torch.full((x[1], 1, *window), -7.0)
    sizes = (*images.shape, *grad.shape[2:], *window, *(n for pair in settings for n in pair))
    assert kernel(images.data_ptr(), grad.data_ptr(), out.data_ptr(), *sizes) == 0
    return out


@pytest.mark.parametrize("case", CASES)
def test_values(kernel, case: str) -> None:
    images, grad, library = tensors(case)
    exact = library(grad.double(), images.double())
    error = (library(grad, images) - exact).norm()
    assert (computed(kernel, case, images, grad) - exact).norm() <= max(2e-7 * exact.norm(), 1.5 * error)


def test_equal_bits_on_any_number_of_threads_and_nans_where_they_are(kernel) -> None:
    images, grad, library = tensors("channels left over")
    images[0, 7, 0, 0] = float("nan")
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(computed(kernel, "channels left over", images, grad))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(other.nan_to_num(7.0), found[0].nan_to_num(7.0)) for other in found)
    assert torch.equal(found[0].isnan(), library(grad, images).isnan())

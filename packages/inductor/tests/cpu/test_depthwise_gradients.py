"""Gradients of depthwise convolutions: of weights by our kernel, channels-last between copies where that is faster."""

import pytest
import torch
import tracework_runtime as runtime
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_primops import prims as p

BOTH = (True, True, False)


def gradients(settings, mask=BOTH):
    def fn(grad, x, w):
        bias = [w.shape[0]] if mask[2] else None
        found = p.convolution_backward(p.mul(grad, 2.0), x, w, bias, *settings, mask)
        return tuple(p.add(f, 1.0) for f, wanted in zip(found, mask, strict=True) if wanted)

    return fn


def tensors(x, window, settings):
    """Gradient, images and weights."""
    made = torch.Generator().manual_seed(0)
    images, weights = (torch.randn(s, generator=made) for s in (x, (x[1], 1, *window)))
    return [torch.randn(torch.convolution(images, weights, None, *settings).shape, generator=made), images, weights]


def plain(stride, window, channels=8):
    return (stride, stride), (window // 2, window // 2), (1, 1), False, (0, 0), channels


def checked(settings, args, mask=BOTH):
    """The host program of a graph whose results are eager's, and float64's as nearly as eager's are."""
    graph = build(gradients(settings, mask), args)
    artifact = compile_graph(graph)
    exact = graph.run(*(a.double() for a in args))
    for got, expected, right in zip(runtime.load(artifact)(list(args)), graph.run(*args), exact, strict=True):
        assert got.stride() == expected.stride()
        assert (got - right).norm() <= max(2e-7 * right.norm(), 1.5 * (expected - right).norm())
    return artifact.host_source


@pytest.mark.parametrize("mask", [BOTH, (False, True, False), (True, False, False)], ids=str)
@pytest.mark.parametrize(("stride", "window", "turned"), [(1, 3, False), (2, 3, True), (1, 5, True), (2, 7, True)])
def test_values_and_layouts(stride: int, window: int, turned: bool, mask) -> None:
    settings = plain(stride, window)
    source = checked(settings, tensors((2, 8, 16, 16), (window, window), settings), mask)
    assert ("(2048, 1, 128, 8, )" in source) == turned


def test_images_with_channels_last_stay_as_they_are() -> None:
    settings = plain(2, 5)
    grad, x, w = tensors((2, 8, 16, 16), (5, 5), settings)
    checked(settings, [grad, x.contiguous(memory_format=torch.channels_last), w], (True, False, False))


@pytest.mark.parametrize(
    ("channels", "window", "last", "own"), [(15, 5, False, False), (16, 5, True, True), (16, 3, True, False)]
)
def test_where_it_is_taken(channels: int, window: int, last: bool, own: bool) -> None:
    """Small windows over images that lie channels-last, and few channels, are the library's."""
    settings = plain(1, window, channels)
    args = tensors((2, channels, 6, 6), (window, window), settings)
    if last:
        args[:2] = (a.contiguous(memory_format=torch.channels_last) for a in args[:2])
    assert ("depthwise_gradient(" in checked(settings, args, (True, True, True))) is own

"""Gradients of depthwise convolutions, channels-last between copies where the library is faster so."""

import pytest
import torch
import tracework_runtime as runtime
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_primops import prims as p


def gradients(stride: int, window: int, mask=(True, True, False)):
    settings = ((stride, stride), (window // 2, window // 2), (1, 1), False, (0, 0), 8, mask)

    def fn(grad, x, w):
        found = p.convolution_backward(p.mul(grad, 2.0), x, w, None, *settings)
        kept = [f for f, wanted in zip(found, mask, strict=True) if wanted]
        return tuple(p.add(f, 1.0) for f in kept)

    return fn


def tensors(stride: int, window: int):
    made = torch.Generator().manual_seed(0)
    side = (16 - 1) // stride + 1
    sizes = ((2, 8, side, side), (2, 8, 16, 16), (8, 1, window, window))
    return [torch.randn(s, generator=made) for s in sizes]


@pytest.mark.parametrize("mask", [(True, True, False), (False, True, False), (True, False, False)], ids=str)
@pytest.mark.parametrize(("stride", "window", "turned"), [(1, 3, False), (2, 3, True), (1, 5, True), (2, 7, True)])
def test_values_and_layouts(stride: int, window: int, turned: bool, mask) -> None:
    args = tensors(stride, window)
    graph = build(gradients(stride, window, mask), args)
    artifact = compile_graph(graph)
    assert ("(2048, 1, 128, 8, )" in artifact.host_source) == turned
    for got, expected in zip(runtime.load(artifact)(list(args)), graph.run(*args), strict=True):
        assert got.stride() == expected.stride()
        assert (got - expected).norm() <= 2e-6 * expected.norm()


def test_images_with_channels_last_stay_as_they_are() -> None:
    grad, x, w = tensors(2, 5)
    args = [grad, x.contiguous(memory_format=torch.channels_last), w]
    graph = build(gradients(2, 5, (True, False, False)), args)
    for got, expected in zip(runtime.load(compile_graph(graph))(list(args)), graph.run(*args), strict=True):
        assert got.stride() == expected.stride()
        assert (got - expected).norm() <= 2e-6 * expected.norm()

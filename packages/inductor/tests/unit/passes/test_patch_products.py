"""Convolutions that cut an image into patches: which become products, and that results and gradients stay."""

import sys

import pytest
import torch
from prim_programs import build
from tracework_inductor import InductorOptions
from tracework_inductor.passes import GRAPH_PASSES
from tracework_inductor.passes.patch_products import patch_products
from tracework_primops import TensorSpec, prims

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
CONVOLUTIONS = (prims.convolution, prims.convolution_backward)
IMAGE, WEIGHT = (2, 3, 32, 48), (24, 3, 16, 8)


def graph_of(program, *specs):
    """The graph of a program of inputs with these specs."""
    return build(program, [None] * len(specs), specs)


def settings(stride=(16, 8), padding=(0, 0), dilation=(1, 1), transposed=False, groups=1):
    return stride, padding, dilation, transposed, (0, 0), groups


def forward(**changed):
    return lambda x, w, b: prims.convolution(x, w, b, *settings(**changed))


def without_bias(x, w, b):
    return prims.convolution(x, w, None, *settings())


def backward(mask):
    def program(grad, x, w):
        found = prims.convolution_backward(grad, x, w, [24], *settings(), mask)
        return tuple(f for f, m in zip(found, mask, strict=True) if m)

    return program


def specs(*shapes, dtype=torch.bfloat16, device=CUDA, strides=None):
    return [TensorSpec(dtype, device, s, strides if n == 0 else None) for n, s in enumerate(shapes)]


@pytest.mark.parametrize(
    ("changed", "given", "becomes"),
    [
        ({}, {}, True),
        ({}, {"dtype": torch.float32}, False),  # TensorFloat32 in the library's convolutions, not in its products
        ({}, {"device": CPU}, False),
        ({}, {"strides": (3 * 32 * 48, 1, 3 * 48, 3)}, False),
        ({"stride": (8, 8)}, {}, False),
        ({"padding": (1, 0)}, {}, False),
        ({"dilation": (2, 1)}, {}, False),
    ],
)
def test_decision(changed, given, becomes):
    graph = graph_of(forward(**changed), *specs(IMAGE, WEIGHT, (24,), **given))
    assert (patch_products(graph) is not graph) == becomes


@pytest.mark.parametrize(
    ("image", "weight"),
    [
        ((2, 8, 32, 48), (24, 8, 16, 8)),  # the library's channels
        ((2, 3, 33, 48), (24, 3, 16, 8)),  # a rest
        (IMAGE, (20, 3, 16, 8)),  # rows of 40 bytes
    ],
)
def test_sizes_decide(image, weight):
    graph = graph_of(forward(), *specs(image, weight, (weight[0],)))
    assert patch_products(graph) is graph


@pytest.mark.parametrize(
    ("changed", "becomes"),
    [
        ({}, True),
        ({"stride": (2, 3)}, True),  # of one place
        ({"strides": (24, 1, 24, 24)}, True),  # as row-major
        ({"sides": (2, 2)}, False),
        ({"padding": (1, 1)}, False),
        ({"groups": 2}, False),
        ({"dtype": torch.bfloat16}, False),
        ({"role": "forward"}, False),
    ],
    ids=str,
)
def test_images_of_one_pixel_on_a_cpu(changed, becomes):
    set_apart = {k: v for k, v in changed.items() if k in ("stride", "padding", "groups")}
    image, weight = (4, 24, *changed.get("sides", (1, 1))), (8, 24 // changed.get("groups", 1), 1, 1)
    given = specs(image, weight, (8,), device=CPU, dtype=changed.get("dtype", torch.float32), strides=changed.get("strides"))
    graph = graph_of(forward(**{"stride": (1, 1), **set_apart}), *given).replace(role=changed.get("role", "inference"))
    assert (patch_products(graph) is not graph) == becomes


@pytest.mark.parametrize(
    ("program", "shapes"),
    [
        (forward(), (IMAGE, WEIGHT, (24,))),
        (without_bias, (IMAGE, WEIGHT, (24,))),
        *((backward(m), ((2, 24, 2, 6), IMAGE, WEIGHT)) for m in ([True, True, True], [False, True, True], [True, False, False])),
    ],
)
def test_values_and_sizes_stay(program, shapes, monkeypatch):
    monkeypatch.setattr(sys.modules[patch_products.__module__], "_cuts_patches", lambda n, role: n.target in CONVOLUTIONS)
    graph = graph_of(program, *specs(*shapes, dtype=torch.float64, device=CPU))
    changed = patch_products(graph)
    assert not any(n.target in CONVOLUTIONS for n in changed.calls)
    inputs = [torch.randn(s, dtype=torch.float64) for s in shapes]
    torch.testing.assert_close(changed.run(*inputs), graph.run(*inputs))
    assert [o.meta["spec"] for o in changed.outputs] == [o.meta["spec"] for o in graph.outputs]
    monkeypatch.undo()
    assert patch_products(changed) is changed


def test_gradients_that_nobody_asked_for():
    graph = graph_of(backward([False, True, False]), *specs((2, 24, 2, 6), IMAGE, WEIGHT))
    assert [n.target.name for n in patch_products(graph).calls if n.target in (prims.mm, prims.addmm)] == ["mm"]


def test_it_is_one_of_the_passes():
    assert GRAPH_PASSES[patch_products](InductorOptions())


def test_a_setting_that_is_about_products_is_none_about_convolutions():
    assert not GRAPH_PASSES[patch_products](InductorOptions(half_accumulation=True))

"""Loops of a CPU over windows, paddings and resampled rows, whose steps at the ends are apart from the others: every element is eager's."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import pytest
import torch
from tracework_inductor import compile_graph
from tracework_primops import prims
from tracework_runtime import RuntimeOptions, load
from triton_programs import graph_of

WIDTHS = (9, 11, 20, 33, 56)
"""Too short for it, of one group of iterations, and of several, the last of which overlaps."""


def max_pool(kernel, stride, padding, dilation=1, ceil=False):
    window = ((kernel,) * 2, (stride,) * 2, (padding,) * 2, (dilation,) * 2, ceil)
    return lambda x: prims.max_pool(x, *window), None


def avg_pool(kernel, stride, padding, ceil=False, with_padding=True, divisor=None):
    window = ((kernel,) * 2, (stride,) * 2, (padding,) * 2, ceil, with_padding, divisor)
    return lambda x: prims.avg_pool(x, *window), lambda g, x: prims.avg_pool_backward(g, x, *window)


def bilinear(rows, columns):
    sizes = lambda x: (rows * x.shape[2], columns * x.shape[3])
    forward = lambda x: prims.upsample_linear(x, sizes(x), False, (None, None))
    return forward, lambda g, x: prims.upsample_linear_backward(g, sizes(x), tuple(x.shape), False, (None, None))


CASES = {
    "max": max_pool(3, 2, 1),
    "max, every place": max_pool(3, 1, 1),
    "max, ends outside": max_pool(3, 2, 1, ceil=True),
    "max, gaps": max_pool(3, 2, 1, dilation=2),
    "max, large steps": max_pool(5, 3, 2),
    "average": avg_pool(3, 2, 1),
    "average, every place": avg_pool(3, 1, 1),
    "average, pairs": avg_pool(2, 2, 0),
    "average, padding not counted, ends outside": avg_pool(3, 2, 1, ceil=True, with_padding=False),
    "average, divisor, large steps": avg_pool(4, 3, 1, divisor=7),
    "bilinear": bilinear(2, 2),
    "bilinear, four times": (bilinear(4, 4)[0], None),
    "bilinear, rows of other factors": (bilinear(8, 2)[0], None),
    "bilinear, two factors": bilinear(2, 4),
}
"""Forward, and the gradient where it is a loop too."""
OTHER_DTYPES = (("max", torch.bfloat16), ("max", torch.float64), ("average", torch.float64), ("bilinear", torch.float64))


def images(dtype, special=None):
    torch.manual_seed(0)
    found = [torch.randn(2, 2, 7, width).to(dtype) for width in WIDTHS]
    if special is not None:
        for x in found:
            x[0, 0, 0, :2] = x[0, 1, 6, -2:] = x[1, 0, 3, 4] = special
            x[1, 1] = special
    return found


def compared(forward, backward, inputs, folder):
    """Its results for all inputs, in one file of kernels, against eager's."""
    grads = [] if backward is None else [torch.randn_like(graph_of(forward, x).run(x)[0]) for x in inputs]

    def program(*tensors):
        xs, gs = tensors[: len(inputs)], tensors[len(inputs) :]
        results = [r for f in map(forward, xs) for r in (f if isinstance(f, tuple) else (f,))]
        return *results, *(backward(g, x) for g, x in zip(gs, xs, strict=False))

    graph = graph_of(program, *inputs, *grads)
    artifact = compile_graph(graph)
    found = load(artifact, RuntimeOptions(cache_dir=str(folder / "cache")))([*inputs, *grads])
    for value, wanted in zip(found, graph.run(*inputs, *grads), strict=True):
        assert value.dtype == wanted.dtype
        assert value.stride() == wanted.stride()
        torch.testing.assert_close(value, wanted, equal_nan=True)
    return artifact


@pytest.mark.parametrize(("name", "dtype"), [*((name, torch.float32) for name in CASES), *OTHER_DTYPES], ids=str)
def test_windows_of_all_widths(name, dtype, tmp_path):
    assert "prims." not in compared(*CASES[name], images(dtype), tmp_path).host_source


@pytest.mark.parametrize("name", ["max", "max, gaps", "average", "average, padding not counted, ends outside", "bilinear"])
def test_elements_that_are_not_finite(name, tmp_path):
    inputs = [x for special in (float("nan"), float("-inf"), float("inf")) for x in images(torch.float32, special)]
    compared(CASES[name][0], None, inputs, tmp_path)


def test_paddings_and_patches(tmp_path):
    def forward(x):
        copied = prims.replication_pad(x, (2, 3, 1, 1)), prims.reflection_pad(x, (2, 3, 1, 1))
        return *copied, prims.im2col(x, (3, 3), (1, 1), (1, 1), (2, 2))

    compared(forward, None, images(torch.float32), tmp_path)


def test_steps_without_conditions(tmp_path):
    """Of a pool that steps by two, the loads of a row are copied ahead of the loop; of its gradient, a step writes two elements."""
    forward, backward = CASES["average"]
    text = compared(forward, backward, [torch.randn(1, 2, 40, 40)], tmp_path).kernels[0].source
    first, second = text.split('extern "C" void')[-2:]
    assert "tw_every<2, 16>" in first
    assert "+ x2i * 2 + 1)]" in second


CHANNELS = (9, 16, 19, 40)
"""Too few for loops over them, of one group, and of several, the last of which overlaps."""
CHANNELS_LAST = {
    **{
        name: CASES[name][0]
        for name in CASES
        if name in ("max, gaps", "average", "average, padding not counted, ends outside", "bilinear, two factors")
    },
    "borders": lambda x: (prims.reflection_pad(x, (2, 3, 1, 1)), prims.replication_pad(x, (2, -1, 1, 1))),
    "unequal tiles": lambda x: prims.adaptive_avg_pool(x, (3, 4)),
}


def side_by_side(dtype, channels, special):
    x = torch.randn(2, channels, 7, 9).to(dtype)
    x[0, :, 0, :2] = x[1, 3, 3, 4] = x[1, :, 6, 8] = special
    return x.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, torch.float32) for name in CHANNELS_LAST), ("average", torch.float64)], ids=str
)
def test_channels_that_lie_side_by_side(name, dtype, tmp_path):
    torch.manual_seed(0)
    inputs = [
        side_by_side(dtype, n, special) for n, special in zip(CHANNELS, (0.5, torch.nan, torch.inf, -torch.inf), strict=True)
    ]
    artifact = compared(CHANNELS_LAST[name], None, inputs, tmp_path)
    assert artifact.host_source.count("prims.") == int(name.startswith(("average", "bilinear", "unequal")))


def test_channels_that_are_changed_in_place(tmp_path):
    def program(x, y):
        z = prims.neg(y)
        return prims.mul(prims.add(CASES["average, every place"][0](x), z), z)

    inputs = [side_by_side(torch.float32, 37, 0.5) for _ in range(2)]
    graph = graph_of(program, *inputs)
    artifact = compile_graph(graph)
    (found,) = load(artifact, RuntimeOptions(cache_dir=str(tmp_path / "cache")))(list(inputs))
    torch.testing.assert_close(found, graph.run(*inputs)[0])
    source = artifact.kernels[0].source
    assert "if (v" in source and "else {" in source and "tw_imin(x1b, 16)" in source


def test_masks_that_always_hold(tmp_path):
    """As those of a padding that cuts."""
    x = side_by_side(torch.float32, 19, 0.5)
    y = x[..., 1:].contiguous(memory_format=torch.channels_last)
    graph = graph_of(lambda x, y: (prims.add(y, prims.pad(x, ((0, 0), (0, 0), (0, 0), (-1, 0)), 0.0)),), x, y)
    (found,) = load(compile_graph(graph), RuntimeOptions(cache_dir=str(tmp_path / "cache")))([x, y])
    torch.testing.assert_close(found, 2 * y)


def test_elements_that_are_changed_in_place(tmp_path):
    """Each is computed once: what is left of a row behind whole groups is not part of another group."""
    window = ((3, 3), (1, 1), (1, 1), False, True, None)

    def program(x, y):
        z = prims.neg(y)
        return prims.mul(prims.add(prims.avg_pool(x, *window), z), z)

    inputs = torch.randn(1, 2, 9, 37), torch.randn(1, 2, 9, 37)
    graph = graph_of(program, *inputs)
    artifact = compile_graph(graph)
    (found,) = load(artifact, RuntimeOptions(cache_dir=str(tmp_path / "cache")))(list(inputs))
    torch.testing.assert_close(found, graph.run(*inputs)[0])
    assert "tw_imin(x2ib, 16)" in artifact.kernels[0].source


def test_rows_that_shrink_by_even_numbers(tmp_path):
    """Two of its elements have a part in each result, or none of some: infinite ones too."""
    sizes = lambda x: (x.shape[2] // 4, x.shape[3] // 2) if x.shape[3] % 4 else (x.shape[2] // 2, x.shape[3] // 4)
    forward = lambda x: prims.upsample_linear(x, sizes(x), False, (None, None))
    backward = lambda g, x: prims.upsample_linear_backward(g, sizes(x), tuple(x.shape), False, (None, None))
    inputs = [torch.randn(2, 2, 8, 42), torch.randn(2, 2, 8, 44)]
    for x in inputs:
        x[0, 0, :2, :5], x[1, 1, 3:5, 20:] = float("inf"), float("nan")
    assert "prims." not in compared(forward, backward, inputs, tmp_path).host_source


def test_other_factors_are_the_librarys():
    forward, _ = bilinear(2, 3)
    x = torch.randn(1, 2, 20, 20)
    assert "prims.upsample_linear" in compile_graph(graph_of(forward, x)).host_source

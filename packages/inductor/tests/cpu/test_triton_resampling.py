"""Averages of windows, linear resampling and their gradients as loops of a GPU: Triton's interpreter against eager in float64."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from tracework_inductor import compile_graph  # noqa: E402
from tracework_primops import prims  # noqa: E402
from tracework_runtime import RuntimeOptions, load  # noqa: E402
from triton_programs import graph_of, rendered  # noqa: E402

CUDA = torch.device("cuda", 0)


def pool(*window):
    return lambda x: prims.avg_pool(x, *window), lambda g, x: prims.avg_pool_backward(g, x, *window)


def adaptive(*sizes):
    return lambda x: prims.adaptive_avg_pool(x, sizes), prims.adaptive_avg_pool_backward


def linear(sizes, corners=False):
    scales = (None,) * len(sizes)

    def backward(g, x):
        return prims.upsample_linear_backward(g, sizes, tuple(x.shape), corners, scales)

    return lambda x: prims.upsample_linear(x, sizes, corners, scales), backward


def nearest(*sizes):
    scales = (None,) * len(sizes)

    def backward(g, x):
        return prims.upsample_nearest_backward(g, sizes, tuple(x.shape), scales)

    return lambda x: prims.upsample_nearest(x, sizes, scales), backward


CASES = {
    "pool, overlapping": (pool((3, 3), (2, 2), (1, 1), False, True, None), (2, 3, 9, 10)),
    "pool, padding not counted": (pool((3, 2), (2, 1), (1, 1), False, False, None), (2, 3, 8, 7)),
    "pool, ends outside": (pool((3, 3), (2, 2), (1, 0), True, True, None), (2, 2, 8, 8)),
    "pool, ends outside, padding not counted": (pool((3, 3), (2, 2), (1, 0), True, False, None), (2, 2, 8, 8)),
    "pool, gaps": (pool((2, 2), (3, 3), (0, 0), False, True, None), (1, 3, 10, 11)),
    "pool, divisor": (pool((2, 3), (1, 2), (0, 1), False, True, 5), (2, 3, 6, 7)),
    "pool of a line": (pool((1, 4), (1, 3), (0, 2), False, False, None), (2, 3, 1, 17)),
    "pool of a volume": (pool((3, 2, 3), (2, 2, 2), (1, 0, 1), False, True, None), (1, 2, 5, 6, 7)),
    "adaptive, whole": (adaptive(3, 2), (2, 3, 9, 8)),
    "adaptive": (adaptive(3, 5), (2, 3, 10, 7)),
    "adaptive, more than there were": (adaptive(7, 9), (1, 2, 5, 4)),
    "adaptive, volume": (adaptive(2, 3, 2), (1, 2, 5, 4, 3)),
    "adaptive, one element of planes": (adaptive(4, 1, 1), (1, 2, 9, 4, 3)),
    "adaptive, one element": (adaptive(1, 1, 1), (1, 2, 5, 4, 3)),
    "bilinear, twice": (linear((10, 12)), (2, 3, 5, 6)),
    "bilinear, fewer": (linear((4, 5)), (2, 3, 9, 7)),
    "bilinear, any": (linear((7, 11)), (1, 2, 5, 6)),
    "bilinear, corners": (linear((9, 7), True), (2, 2, 5, 6)),
    "linear": (linear((13,)), (2, 3, 5)),
    "trilinear": (linear((4, 7, 5)), (1, 2, 4, 5, 4)),
    "nearest": (nearest(6, 15), (2, 3, 3, 5)),
    **{
        f"{name}, wide": (ops, (2, 3, 5, width))
        for width in (16, 25)
        for name, ops in (
            (f"pool of {width}", pool((3, 3), (2, 2), (1, 1), False, False, None)),
            (f"bilinear twice of {width}", linear((10, 2 * width))),
            (f"bilinear thrice of {width}", linear((15, 3 * width))),
            (f"bilinear, row four times as long, of {width}", linear((5, 4 * width))),
            (f"bilinear, same, of {width}", linear((5, width))),
        )
    },
}


def run(program, *inputs, folder):
    host, kernels = rendered(graph_of(program, *inputs, device=CUDA))
    assert "prims." not in host and not any("atomic" in k.source for k in kernels.values())
    return triton_interpreter.host_call(host, kernels, folder)(list(inputs))[0]


def assert_near(found, program, inputs):
    wide = [t.double() for t in inputs]
    exact = graph_of(program, *wide).run(*wide)[0]
    try:
        eager = graph_of(program, *inputs).run(*inputs)[0]
    except NotImplementedError:  # eager lacks it for the dtype
        eager = exact.to(inputs[0].dtype)
    assert (found.dtype, found.shape, found.stride()) == (eager.dtype, eager.shape, eager.stride())
    error, eagers = ((v.double() - exact).abs().max().item() for v in (found, eager))
    assert error <= 4 * eagers + 8 * torch.finfo(found.dtype).eps * exact.abs().max().item()


CHECKED = [(name, dtype) for name in CASES for dtype in (torch.float32, torch.bfloat16)]
CHECKED += [(name, torch.float64) for name in ("pool, overlapping", "adaptive", "bilinear, any", "nearest")]


@pytest.mark.parametrize(("name", "dtype"), CHECKED, ids=str)
def test_near_float64(name, dtype, tmp_path):
    """The result and the gradient, of row-major and channels-last images."""
    torch.manual_seed(0)
    (forward, backward), sizes = CASES[name]
    x = torch.randn(sizes).to(dtype)
    y = graph_of(forward, x).run(x)[0]
    for g in (torch.randn_like(y), torch.randn(y.shape).to(dtype)):
        assert_near(run(backward, g, x, folder=tmp_path), backward, (g, x))
        if y.ndim != 4:
            break
        x = x.contiguous(memory_format=torch.channels_last)
        g = g.contiguous(memory_format=torch.channels_last)
    if "nearest" not in name:
        assert_near(run(forward, x, folder=tmp_path), forward, (x,))


@pytest.mark.parametrize("width", (16, 25, 37))
def test_rows_of_windows_are_tiles_whose_threads_read_neighbours(width):
    """As many elements a thread as a store takes side by side would spread each load over as many times the memory. Addresses of a row are
    computed once for its columns; channels-last images are read in one piece as they are."""
    forward, _ = pool((3, 3), (2, 2), (1, 1), False, True, None)
    for form, expected in ((torch.contiguous_format, "jumps"), (torch.channels_last, "pointwise")):
        x = torch.empty(4, 16, 18, 2 * width).to(memory_format=form)
        ((_, kernel),) = rendered(graph_of(forward, x, device=CUDA))[1].items()
        assert dict(kernel.launch)["kind"] == expected
        assert ("tl.max_contiguous(p1 + " in kernel.source) == (expected == "jumps")
        assert ("xmask" in kernel.source) == (width != 16 or expected != "jumps")


@pytest.mark.parametrize("factor", (2, 3))
def test_a_gradient_that_is_not_finite_stays_where_it_is(factor, tmp_path):
    """An element that has no part in a result does not look at its gradient."""
    _, backward = linear((factor * 4, factor * 5))
    x, g = torch.zeros(1, 1, 4, 5), torch.ones(1, 1, factor * 4, factor * 5)
    g[0, 0, factor, 2 * factor] = float("inf")
    found = run(backward, g, x, folder=tmp_path)
    torch.testing.assert_close(found, graph_of(backward, g, x).run(g, x)[0])


FASTER_ON_CPU = ("pool, overlapping", "pool, ends outside, padding not counted", "pool of a volume", "adaptive", "nearest")


@pytest.mark.parametrize("name", FASTER_ON_CPU)
def test_row_major_images_on_a_cpu(name, tmp_path):
    """The loops are ours there, and the result eager's; channels-last images are the library's."""
    torch.manual_seed(0)
    (forward, backward), sizes = CASES[name]
    x = torch.randn(sizes)
    g = torch.randn_like(graph_of(forward, x).run(x)[0])

    def program(g, x):
        gradient = () if name in ("adaptive", "pool of a volume") else (backward(g, x),)
        return gradient if name == "nearest" else (*gradient, forward(x))

    graph = graph_of(program, g, x)
    artifact = compile_graph(graph)
    assert "prims." not in artifact.host_source
    found = load(artifact, RuntimeOptions(cache_dir=str(tmp_path / "cache")))([g, x])
    for value, wanted in zip(found, graph.run(g, x), strict=True):
        assert value.stride() == wanted.stride()
        torch.testing.assert_close(value, wanted)
    last = [t.contiguous(memory_format=torch.channels_last) for t in (g, x) if t.ndim == 4]
    if last and "pool" in name:
        assert "prims.avg_pool" in compile_graph(graph_of(program, *last)).host_source


@pytest.mark.parametrize(("kernel", "stride"), [((5, 5), (3, 3)), ((3, 3, 3), (2, 2, 2))], ids=str)
def test_gradients_of_large_windows_are_the_librarys_on_a_cpu(kernel, stride):
    forward, backward = pool(kernel, stride, (1,) * len(kernel), False, True, None)
    x = torch.randn(1, 2, *[11] * len(kernel))
    g = torch.randn_like(graph_of(forward, x).run(x)[0])
    assert "prims.avg_pool_backward" in compile_graph(graph_of(backward, g, x)).host_source


REFUSED = {
    "a large window": (pool((7, 7), (1, 1), (0, 0), False, True, None), (1, 1, 9, 9)),
    "one corner": (linear((1, 4), True), (1, 1, 3, 3)),
    "a large factor": (linear((40, 40)), (1, 1, 5, 5)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_left_to_the_library(name):
    (forward, backward), sizes = REFUSED[name]
    x = torch.randn(sizes)
    g = graph_of(forward, x).run(x)[0]
    assert "prims." in rendered(graph_of(backward, g, x, device=CUDA))[0]

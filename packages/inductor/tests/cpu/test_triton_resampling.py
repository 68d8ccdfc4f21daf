"""Averages of windows, linear resampling and their gradients as loops of a GPU: Triton's interpreter against eager in float64."""

import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from tracework_inductor import compile_graph  # noqa: E402
from tracework_inductor.codegen.triton import TritonRenderer  # noqa: E402
from tracework_primops import prims  # noqa: E402
from tracework_runtime import RuntimeOptions, Store, load  # noqa: E402
from tracework_runtime.build import triton as build  # noqa: E402
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


def bordered(forward, backward):
    padding = (2, 3, 1, 1)
    return lambda x: forward(x, padding), lambda g, x: backward(g, x, padding)


CASES = {
    "reflected": (bordered(prims.reflection_pad, prims.reflection_pad_backward), (2, 2, 5, 6)),
    "replicated": (bordered(prims.replication_pad, prims.replication_pad_backward), (2, 2, 5, 6)),
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
    "pool, fills blocks": (pool((3, 3), (2, 2), (1, 1), False, True, None), (2, 4, 16, 32)),
    "pool, fills blocks, ends outside, padding not counted": (pool((3, 3), (2, 2), (1, 1), True, False, None), (2, 4, 16, 32)),
    "pool, fills blocks, divisor": (pool((2, 2), (2, 2), (0, 0), False, True, 3), (2, 4, 16, 32)),
    "adaptive, fills blocks": (adaptive(8, 16), (2, 4, 16, 32)),
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


def max_pool(*window):
    return lambda x: prims.max_pool(x, *window, (1, 1), False), None


KINDS = {
    "mean": (pool((3, 3), (2, 2), (1, 1), False, True, None), "jumps", "pointwise"),
    "mean of borders": (pool((3, 3), (2, 2), (1, 1), True, False, None), "jumps", "pointwise"),
    "mean of neighbours": (pool((3, 3), (1, 1), (1, 1), False, True, None), "jumps", "jumps"),
    "mean of rows": (pool((3, 1), (1, 1), (1, 0), False, True, None), "pointwise", "pointwise"),
    "mean, far apart": (pool((3, 3), (9, 9), (1, 1), False, True, None), "pointwise", None),
    "largest": (max_pool((3, 3), (2, 2), (1, 1)), "jumps", None),
    "adaptive, whole": (adaptive(16, 48), "jumps", "pointwise"),
    "adaptive": (adaptive(15, 31), "pointwise", "pointwise"),
    "twice": (linear((64, 288)), "pointwise", "jumps"),
    "thrice": (linear((96, 432)), "pointwise", "jumps"),
    "nearest, twice": (nearest(64, 288), "pointwise", "jumps"),
}
"""Pools and resampling of rows of 144 elements -> the kinds of the kernels of both ways, row-major."""


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_kernels(name):
    """Tiles with one element a thread are for jumps of one length, whichever way, and for pieces that begin anywhere. Where places are divided
    or looked up, stores of one element take longer than what loads save. Nothing of a channels-last image jumps."""
    (forward, backward), *kinds = KINDS[name]
    for form in (torch.contiguous_format, torch.channels_last):
        x = torch.empty(2, 16, 32, 144).to(memory_format=form)
        y = graph_of(forward, x).run(x)[0].contiguous(memory_format=form)
        for program, args, kind in ((forward, (x,), kinds[0]), (backward, (y, x), kinds[1])):
            if kind is not None:
                (kernel,) = rendered(graph_of(program, *args, device=CUDA))[1].values()
                assert dict(kernel.launch)["kind"] == (kind if form is torch.contiguous_format else "pointwise")


LAYOUTS = """
import json, re, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from tracework_runtime.build.triton_worker import load_module

def layouts(job, number):
    function = load_module(job["source"], number)[job["entry"]]
    signature = dict(job["arguments"]) | {name: "constexpr" for name in job["constants"]}
    positions = {name: n for n, name in enumerate(function.arg_names)}
    attributes = {(positions[name],): [["tt.divisibility", 16]] for name in job["aligned"]}
    source = ASTSource(function, signature, job["constants"], attributes)
    options = {"num_warps": job["num_warps"], "num_stages": job["num_stages"]}
    text = triton.compile(source, target=GPUTarget("cuda", job["capability"], 32), options=options).asm["ttgir"]
    return re.findall(r"^#blocked.*sizePerThread = ([[].*?[]]), threadsPerWarp = ([[].*?[]]), .*order = ([[].*?[]])", text, re.M)

print("ANSWER" + json.dumps([layouts(job, n) for n, job in enumerate(json.load(sys.stdin))]))
"""


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_threads_walk_along_rows(dtype, tmp_path):
    """As Triton lays tiles out among them: one element each, the next thread the next one of a row, in rows of all sizes."""
    jobs = []
    for name in ("mean", "largest"):
        for width in (224, 144, 36):
            x = torch.empty(2, 16, 32, width, dtype=dtype)
            kernels = rendered(graph_of(KINDS[name][0][0], x, device=CUDA))[1]
            (kernel,) = TritonRenderer().pack(list(kernels.items()))
            (entry,) = kernel.launch["entries"]
            config = kernel.launch["configs"][0]
            jobs.append((build.request(kernel, entry, config, build.Variant(), 90), min(32, config["constants"]["XBLOCK"])))
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command, given = [sys.executable, "-c", LAYOUTS], json.dumps([job for job, _ in jobs])
    done = subprocess.run(command, input=given, capture_output=True, text=True, env=environment, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.partition("ANSWER")[2])
    assert {lanes for _, lanes in jobs} == {16, 32}
    for (_, lanes), layouts in zip(jobs, found, strict=True):
        assert layouts == [["[1, 1]", f"[{32 // lanes}, {lanes}]", "[1, 0]"]]


def test_numbers_beside_windows(tmp_path):
    """What is loaded for all of a tile, for its rows or for its columns has no threads of its own."""
    forward, _ = pool((3, 3), (2, 2), (1, 1), False, True, None)

    def program(x, number, rows, columns):
        return prims.add(prims.mul(prims.mul(forward(x), number), rows), columns)

    inputs = torch.randn(2, 3, 8, 32), torch.tensor(3.0), torch.randn(4, 1), torch.randn(16)
    host, kernels = rendered(graph_of(program, *inputs, device=CUDA))
    assert [dict(k.launch)["kind"] for k in kernels.values()] == ["jumps"]
    found = triton_interpreter.host_call(host, kernels, tmp_path)(list(inputs))[0]
    torch.testing.assert_close(found, graph_of(program, *inputs).run(*inputs)[0])
    jobs = [
        build.request(k, entry, k.launch["configs"][0], build.Variant(), 90)
        for k in TritonRenderer().pack(list(kernels.items()))
        for entry in k.launch["entries"]
    ]
    assert len(build.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))) == len(jobs)


def test_places_before_a_far_start_fit_into_32_bits():
    """What lies in a large buffer, behind others in a `cat`: the place of the element less its start, as one number."""
    pitch = 1 << 20
    x = torch.empty((), device="meta").as_strided((1000,), (pitch,))
    y = torch.empty(1500, device="meta")
    (kernel,) = rendered(graph_of(lambda y, x: prims.cat((y, x), 0), y, x, device=CUDA))[1].values()
    assert f"({pitch} * x - {1500 * pitch})" in kernel.source


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

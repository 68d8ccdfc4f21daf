"""Sums of columns kept by the blocks of a kernel that walks rows: Triton's interpreter against float64."""

import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from prim_programs import build  # noqa: E402
from tracework_inductor import InductorOptions, lower, schedule  # noqa: E402
from tracework_inductor.codegen.triton import TritonRenderer, function  # noqa: E402
from tracework_inductor.codegen.triton import config as config_table  # noqa: E402
from tracework_inductor.schedule import mixed_orders  # noqa: E402
from tracework_inductor.schedule.plan import LoopKernel  # noqa: E402
from tracework_primops import TensorSpec, prims  # noqa: E402
from tracework_runtime import RuntimeOptions, Store  # noqa: E402
from tracework_runtime.build import triton as build_triton  # noqa: E402
from triton_programs import graph_of, rendered  # noqa: E402

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
HALF = torch.bfloat16


def wide(*values):
    return [prims.convert(v, torch.float32) if v.spec.dtype == HALF else v for v in values]


def layer_norm_backward(g, x, w, mean, rstd):
    """dx, dgamma, dbeta in the dtype of the input."""
    dtype, rows = x.spec.dtype, tuple(range(x.spec.ndim - 1))
    width = x.shape[-1]
    g, x, w = wide(g, x, w)
    normal, scaled = prims.mul(prims.sub(x, mean), rstd), prims.mul(g, w)
    along = lambda v: prims.sum(v, (v.spec.ndim - 1,), True)
    inside = prims.sub(
        prims.sub(prims.mul(scaled, float(width)), along(scaled)), prims.mul(normal, along(prims.mul(scaled, normal)))
    )
    dx = prims.mul(prims.mul(rstd, 1.0 / width), inside)
    found = dx, prims.sum(prims.mul(g, normal), rows, False), prims.sum(g, rows, False)
    return tuple(prims.convert(v, dtype) for v in found)


def rms_norm_backward(g, x, w):
    """The norm is computed again; the gradient of what was added before is a sum of columns of dx."""
    width = x.shape[-1]
    scale = prims.rsqrt(prims.add(prims.mul(prims.sum(prims.mul(x, x), (1,), True), 1.0 / width), 1e-5))
    scaled, normal = prims.mul(g, w), prims.mul(x, scale)
    mean = prims.mul(prims.sum(prims.mul(scaled, normal), (1,), True), 1.0 / width)
    dx = prims.mul(prims.sub(scaled, prims.mul(normal, mean)), scale)
    return dx, prims.sum(prims.mul(g, normal), (0,), False), prims.sum(dx, (0,), False)


def softmax_backward(g, y):
    """Columns that are sums of what is written."""
    dx = prims.mul(y, prims.sub(g, prims.sum(prims.mul(g, y), (1,), True)))
    return dx, prims.sum(dx, (0,), False)


def norm_inputs(*sizes, dtype=torch.float32):
    x = torch.randn(sizes).to(dtype)
    mean = x.float().mean(-1, keepdim=True)
    rstd = (x.float().var(-1, keepdim=True, correction=0) + 1e-5).rsqrt()
    return torch.randn(sizes).to(dtype), x, torch.randn(sizes[-1]).to(dtype), mean, rstd


PROGRAMS = {
    "layer norm": (layer_norm_backward, lambda: norm_inputs(37, 48)),
    "layer norm of three dimensions, bfloat16": (layer_norm_backward, lambda: norm_inputs(3, 13, 40, dtype=HALF)),
    "layer norm, float64": (layer_norm_backward, lambda: tuple(t.double() for t in norm_inputs(40, 33))),
    "rms norm": (rms_norm_backward, lambda: (torch.randn(70, 24), torch.randn(70, 24), torch.randn(24))),
    "softmax": (softmax_backward, lambda: (torch.randn(64, 32), torch.randn(64, 32).softmax(1))),
}


@pytest.fixture
def small(monkeypatch):
    """Four blocks, that save anything."""
    monkeypatch.setattr(mixed_orders, "LEAST_SAVED", {"cuda": 1})
    monkeypatch.setattr(mixed_orders, "ROWS_OF_BLOCK", 8)
    monkeypatch.setattr(TritonRenderer, "capabilities", dataclasses.replace(TritonRenderer.capabilities, column_blocks=4))
    monkeypatch.setattr(mixed_orders, "_bytes", lambda fuser, name, elements: 1 << 30)


def plan_of(program, *inputs):
    options = InductorOptions()
    return schedule(lower(graph_of(program, *inputs, device=CUDA), options), options, TritonRenderer.capabilities)


def assert_near_float64(program, tensors, folder):
    host, kernels = rendered(graph_of(program, *tensors, device=CUDA))
    kinds = [dict(k.launch)["kind"] for k in kernels.values()]
    assert kinds[0] == "rows and columns" and kinds.count("rows and columns") == 1
    found = triton_interpreter.host_call(host, kernels, folder)(list(tensors))
    wide = [t.double() for t in tensors]
    wanted, plain = graph_of(program, *wide).run(*wide), graph_of(program, *tensors).run(*tensors)
    for value, exact, eager in zip(found, wanted, plain, strict=True):
        assert (value.dtype, value.shape, value.stride()) == (eager.dtype, eager.shape, eager.stride())
        error, eagers = ((v.double() - exact).abs().max().item() for v in (value, eager))
        assert error <= 4 * eagers + 4 * torch.finfo(value.dtype).eps * exact.abs().max().item()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("chain", [64, 2])
def test_near_float64(name, chain, small, monkeypatch, tmp_path):
    torch.manual_seed(0)
    monkeypatch.setattr(function, "CHAIN", chain)
    program, inputs = PROGRAMS[name]
    assert_near_float64(program, inputs(), tmp_path)


@given(height=st.integers(32, 90), width=st.integers(2, 70))
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_shape(height, width, small, tmp_path):
    torch.manual_seed(height)
    assert_near_float64(softmax_backward, (torch.randn(height, width), torch.randn(height, width).softmax(1)), tmp_path)


def readers(plan, name):
    """How many kernels of a plan read an input."""
    return sum(name in k.reads for k in plan.kernels if isinstance(k, LoopKernel))


def empty_inputs(height):
    sizes, stats = (height, 1024), (height, 1)
    dtypes = {sizes: HALF, sizes[1:]: HALF, stats: torch.float32}
    return [torch.empty(s, dtype=dtypes[s]) for s in (sizes, sizes, sizes[1:], stats, stats)]


def test_inputs_are_read_once():
    """The sizes of a model: bytes decide. Of few rows, what blocks would keep is as much."""
    many, few = (plan_of(layer_norm_backward, *empty_inputs(height)) for height in (8192, 512))
    assert [readers(many, name) for name in ("arg0", "arg1")] == [1, 1]
    assert [readers(few, name) for name in ("arg0", "arg1")] == [2, 2]


def test_a_call_of_the_library_may_stand_beside():
    def program(g, y, w):
        dx, columns = softmax_backward(g, y)
        return prims.mm(dx, w), columns

    plan = plan_of(program, torch.empty(8192, 1024), torch.empty(8192, 1024), torch.empty(1024, 64))
    assert [readers(plan, name) for name in ("arg0", "arg1")] == [1, 1]


def test_the_hosts_part_of_a_graph_has_none(small):
    """Of a graph that lies on a GPU and on the CPU."""

    def program(g, y, other):
        return (*softmax_backward(g, y), prims.mul(other, 2.0))

    graph = build(program, [None] * 3, [TensorSpec(torch.float32, d, (64, 32)) for d in (CPU, CPU, CUDA)])
    options = InductorOptions()
    plan = schedule(lower(graph, options), options, TritonRenderer.capabilities)
    assert not any("_of_blocks" in name for k in plan.kernels for name in k.writes)


def test_compiles_for_hopper(tmp_path):
    _, kernels = rendered(graph_of(layer_norm_backward, *empty_inputs(8192), device=CUDA))
    mixed = [k for k in kernels.values() if dict(k.launch)["kind"] == "rows and columns"]
    (kernel,) = TritonRenderer().pack([("mixed", one) for one in mixed])
    job = build_triton.request(kernel, "kernel", kernel.launch["configs"][0], build_triton.Variant(), 90)
    (cubin,) = build_triton.build_all([job], RuntimeOptions(), Store(tmp_path / "cache"))
    assert cubin.num_warps == 8


@pytest.mark.parametrize("dtype", [HALF, torch.float32, torch.float64])
@pytest.mark.parametrize("width", [256, 1024, 2048, 4096, 8192])
def test_all_blocks_run_at_once(width, dtype):
    """As many threads as have 128 registers each, and shared memory for what is on its way to both blocks of a multiprocessor."""
    sizes, rows = ((1 << 26) // width, width), ((1 << 26) // width, 1)
    layouts = [(sizes, dtype), (sizes, dtype), (sizes[1:], dtype), (rows, torch.float32), (rows, torch.float32)]
    plan = plan_of(layer_norm_backward, *(torch.empty(s, dtype=d, device="meta") for s, d in layouts))
    (launch,) = (found for k in plan.kernels if (found := dict(TritonRenderer().render(k).launch))["kind"] == "rows and columns")
    (config,), (grid,) = launch["configs"], map(int, launch["grids"])
    together = grid / config_table.MULTIPROCESSORS
    assert together == (2 if width <= 2048 else 1)
    assert 32 * config["num_warps"] * 128 * together <= 1 << 16
    on_their_way = (config["constants"]["XBLOCK"] * 2 + 1) * width * dtype.itemsize * (config["num_stages"] - 1)
    assert on_their_way * together <= config_table.LIMITS[80][0]


@pytest.mark.parametrize(("width", "dtype"), [(8192, torch.float32), (4096, torch.float32), (4096, torch.float64)], ids=str)
def test_wide_rows_fit_in_shared_memory(width, dtype, tmp_path):
    """Of an A100, which has the least of those whose blocks keep sums: what is on its way of both matrices, and of the weight."""
    sizes, rows = ((1 << 26) // width, width), ((1 << 26) // width, 1)
    layouts = [(sizes, dtype), (sizes, dtype), (sizes[1:], dtype), (rows, torch.float32), (rows, torch.float32)]
    plan = plan_of(layer_norm_backward, *(torch.empty(s, dtype=d, device="meta") for s, d in layouts))
    renderer = TritonRenderer()
    found = next(r for k in plan.kernels if dict((r := renderer.render(k)).launch)["kind"] == "rows and columns")
    (kernel,) = renderer.pack([("kernel", found)])
    job = build_triton.request(kernel, "kernel", kernel.launch["configs"][0], build_triton.Variant(), 80)
    (cubin,) = build_triton.build_all([job], RuntimeOptions(), Store(tmp_path / "cache"))
    assert cubin.shared <= config_table.LIMITS[80][0]

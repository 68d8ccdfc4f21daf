"""Running sums and products of few long rows, split over several blocks on a GPU: Triton's interpreter against float64."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from prim_programs import build  # noqa: E402
from tracework_inductor import compile_graph  # noqa: E402
from tracework_inductor.codegen.triton import config  # noqa: E402
from tracework_inductor.codegen.triton import kernel as kernel_text  # noqa: E402
from tracework_inductor.ir.index import symbol  # noqa: E402
from tracework_primops import TensorSpec, prims  # noqa: E402
from tracework_primops.spec import SizeSpec  # noqa: E402
from tracework_runtime import RuntimeOptions, Store  # noqa: E402
from tracework_runtime.build import triton as build_triton  # noqa: E402
from triton_programs import graph_of, rendered  # noqa: E402

CUDA = torch.device("cuda", 0)
SCANS = {"cumsum": (prims.cumsum, torch.cumsum), "cumprod": (prims.cumprod, torch.cumprod)}
ROUNDINGS = 32 + 32 + 32 + 4
"""The interpreter adds the lanes of a step one after the other, the totals of the parts, and the elements of a step; then comes the result's."""
EPS = {torch.float32: 2**-24, torch.bfloat16: 2**-9, torch.float64: 2**-53}


@pytest.fixture(autouse=True)
def short_steps(monkeypatch):
    """The interpreter takes the elements of a scan one by one: rows of a few hundred are long."""
    monkeypatch.setattr(kernel_text, "_longest_row", lambda *_: 32)
    monkeypatch.setitem(config.TABLES, "looped", lambda shape: [config.Config({"XBLOCK": min(shape.outer, 2), "RBLOCK": 32}, 1)])


def run(program, *given, folder):
    """By the interpreter; how many functions each kernel has, and the results."""
    host, kernels = rendered(graph_of(program, *given, device=CUDA))
    parts = [(kernel.launch, dict(kernel.launch)["kind"]) for kernel in kernels.values()]
    return [kind for _, kind in parts], triton_interpreter.host_call(host, kernels, folder)(list(given))


def rows(count, length, dtype, kind):
    torch.manual_seed(0)
    if not dtype.is_floating_point:
        return torch.randint(-3, 4, (count, length), dtype=dtype)
    x = torch.randn(count, length)
    return (x if kind == "cumsum" else 1 + x / length).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("kind", SCANS)
@pytest.mark.parametrize(("count", "length"), [(1, 512), (1, 1003), (3, 300), (2, 131)])
def test_long_rows(kind, count, length, dtype, tmp_path):
    """Also where the last parts have nothing, and where a part ends in the middle of a step."""
    ours, torchs = SCANS[kind]
    x = rows(count, length, dtype, kind)
    kinds, (found,) = run(lambda x: ours(x, 1), x, folder=tmp_path)
    assert len(kinds) == 1 and " split " in kinds[0], kinds
    if not dtype.is_floating_point:
        assert torch.equal(found, torchs(x, 1))
        return
    longer = getattr(np, kind)(x.double().numpy().astype(np.longdouble), 1)
    expected = torch.from_numpy(longer.astype(np.float64))
    scale = torchs(x.double().abs(), 1) if kind == "cumsum" else expected.abs()
    assert found.dtype == dtype and bool(((found.double() - expected).abs() <= ROUNDINGS * EPS[dtype] * scale).all())


@pytest.mark.parametrize("kind", SCANS)
def test_what_is_no_number(kind, tmp_path):
    """It goes on to the end of the row, from whichever part, and not into the next row."""
    ours, torchs = SCANS[kind]
    x = rows(3, 300, torch.float32, kind).abs() + 1e-3
    x[0, 5], x[1, 150], x[2, 299] = torch.inf, torch.nan, -torch.inf
    x = x / 2 if kind == "cumprod" else x
    _, (found,) = run(lambda x: ours(x, 1), x, folder=tmp_path)
    expected = torchs(x, 1)
    assert torch.equal(found.isnan(), expected.isnan()) and torch.equal(found.isinf(), expected.isinf())


def test_what_is_computed_before_and_read_elsewhere(tmp_path):
    """The values of the first function are those of the second."""
    x = rows(2, 400, torch.float32, "cumsum")
    index = torch.randint(0, 400, (400,))

    def program(x, index):
        return prims.cumsum(prims.mul(prims.index_select(prims.flip(x, (1,)), 1, index), 0.5), 1)

    kinds, (found,) = run(program, x, index, folder=tmp_path)
    values = x.flip(1)[:, index].double() * 0.5
    assert any(" split " in kind for kind in kinds)
    assert ((found.double() - values.cumsum(1)).abs() <= ROUNDINGS * 2**-24 * values.abs().cumsum(1)).all()


def test_columns(tmp_path):
    """Few and long."""
    x = rows(300, 3, torch.float32, "cumsum")
    kinds, (found,) = run(lambda x: prims.cumsum(x, 0), x, folder=tmp_path)
    assert " split " in kinds[0]
    assert ((found.double() - x.double().cumsum(0)).abs() <= ROUNDINGS * 2**-24 * x.double().abs().cumsum(0)).all()


def test_many_rows_are_not_split():
    """There are blocks enough without."""
    (kernel,) = rendered(graph_of(lambda x: prims.cumsum(x, 1), torch.empty(512, 400), device=CUDA))[1].values()
    assert "split" not in dict(kernel.launch)["kind"]


def test_they_compile_for_hopper(tmp_path):
    jobs = []
    n = symbol("s0", 2**15, None)
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for ours, _ in SCANS.values():
            fixed = build(lambda x, ours=ours: ours(x, 1), [None], [TensorSpec(dtype, CUDA, (2, 1 << 20))])
            open_size = build(lambda x, n, ours=ours: ours(x, 0), [None] * 2, [TensorSpec(dtype, CUDA, (n,)), SizeSpec(n)])
            for graph in (fixed, open_size):
                (kernel,) = compile_graph(graph).kernels
                jobs += [
                    build_triton.request(kernel, entry, kernel.launch["configs"][0], build_triton.Variant(), 90)
                    for entry in kernel.launch["entries"]
                ]
    assert len(build_triton.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))) == len(jobs) >= 18

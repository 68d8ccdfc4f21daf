"""Scans of few long rows, split over several blocks on a GPU, whose number a launch may tell: Triton's interpreter against float64."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from prim_programs import build  # noqa: E402
from tracework_inductor import compile_graph  # noqa: E402
from tracework_inductor.codegen.triton import config, shape  # noqa: E402
from tracework_inductor.ir.index import symbol  # noqa: E402
from tracework_primops import TensorSpec, prims  # noqa: E402
from tracework_primops.spec import SizeSpec  # noqa: E402
from tracework_runtime import RuntimeOptions, Store  # noqa: E402
from tracework_runtime.build import triton as build_triton  # noqa: E402
from triton_programs import graph_of, rendered  # noqa: E402

CUDA = torch.device("cuda", 0)
SCANS = {
    "cumsum": (prims.cumsum, torch.cumsum),
    "cumprod": (prims.cumprod, torch.cumprod),
    "logcumsumexp": (prims.logcumsumexp, torch.logcumsumexp),
}
EXTREMES = {"cummax": (prims.cummax, torch.cummax), "cummin": (prims.cummin, torch.cummin)}
READ = {"both": lambda pair: tuple(pair), "values": lambda pair: pair[0], "positions": lambda pair: pair[1]}
ROUNDINGS = 32 + 32 + 32 + 4
"""The interpreter adds the lanes of a step one after the other, the totals of the parts, and the elements of a step; then comes the result's."""
EPS = {torch.float32: 2**-24, torch.bfloat16: 2**-9, torch.float64: 2**-53}


@pytest.fixture(autouse=True)
def short_steps(monkeypatch):
    """The interpreter takes the elements of a scan one by one: rows of a few hundred are long."""
    monkeypatch.setattr(shape, "_longest_row", lambda *_: 32)
    monkeypatch.setitem(config.TABLES, "looped", lambda shape: [config.Config({"XBLOCK": min(shape.outer, 2), "RBLOCK": 32}, 1)])


def run(program, *given, folder, graph=None):
    """By the interpreter; the kind of each kernel, and the results."""
    host, kernels = rendered(graph or graph_of(program, *given, device=CUDA))
    kinds = [dict(kernel.launch)["kind"] for kernel in kernels.values()]
    return kinds, triton_interpreter.host_call(host, kernels, folder)(list(given))


def of_open_sizes(program, dtype, rows=None):
    """The graph of a program of a matrix: its inputs are the matrix, and the length and the number of the rows where that is not `rows`."""
    n, m = symbol("s0", 2**15, None), symbol("s1", 8, None)
    spec, sizes = TensorSpec(dtype, CUDA, (rows or m, n)), [n] if rows else [n, m]
    return build(lambda x, *_: program(x), [None] * (1 + len(sizes)), [spec, *map(SizeSpec, sizes)])


def rows(count, length, dtype, kind):
    torch.manual_seed(0)
    if not dtype.is_floating_point:
        return torch.randint(-3, 4, (count, length), dtype=dtype)
    x = torch.randn(count, length)
    return (1 + x / length if kind == "cumprod" else x).to(dtype)


def assert_near(found, kind, x, dtype):
    if not dtype.is_floating_point:
        assert torch.equal(found, SCANS[kind][1](x, 1))
        return
    run = {"cumsum": np.cumsum, "cumprod": np.cumprod, "logcumsumexp": np.logaddexp.accumulate}[kind]
    expected = torch.from_numpy(run(x.double().numpy().astype(np.longdouble), 1).astype(np.float64))
    # A logaddexp rounds its result, an exp and a log1p below 1; what its operands lack weighs less than 1 in it.
    scales = {"cumsum": lambda: x.double().abs().cumsum(1), "logcumsumexp": lambda: 4 + expected.abs().cummax(1)[0]}
    scale = scales.get(kind, expected.abs)()
    assert found.dtype == dtype and bool(((found.double() - expected).abs() <= ROUNDINGS * EPS[dtype] * scale).all())


CASES = [(k, d) for k in SCANS for d in (*EPS, torch.int64) if d.is_floating_point or k != "logcumsumexp"]


@pytest.mark.parametrize(("kind", "dtype"), CASES, ids=str)
@pytest.mark.parametrize(("count", "length"), [(1, 512), (1, 1003), (3, 300), (2, 131)])
def test_long_rows(kind, count, length, dtype, tmp_path):
    """Also where the last parts have nothing, and where a part ends in the middle of a step."""
    x = rows(count, length, dtype, kind)
    kinds, (found,) = run(lambda x: SCANS[kind][0](x, 1), x, folder=tmp_path)
    assert len(kinds) == 1 and " split " in kinds[0], kinds
    assert_near(found, kind, x, dtype)


@pytest.mark.parametrize(("kind", "dtype"), CASES, ids=str)
def test_a_launch_tells_the_sizes(kind, dtype, tmp_path, monkeypatch):
    """In as many parts as there are blocks left for; in one, whose totals nobody needs, where rows are many or short."""
    monkeypatch.setattr(config, "split_limits", lambda shape: config.SplitLimits(8, 1, 4))
    program = lambda x: SCANS[kind][0](x, 1)
    for graph, sizes in (
        (of_open_sizes(program, dtype), [(1, 301), (3, 300), (9, 75), (20, 40), (2, 31)]),
        (of_open_sizes(program, dtype, rows=2), [(2, 131), (2, 20)]),
    ):
        for count, length in sizes:
            x = rows(count, length, dtype, kind)
            given = [length, count][: 2 if count != 2 or length == 31 else 1]
            kinds, (found,) = run(None, x, *given, folder=tmp_path, graph=graph)
            assert " split " in kinds[0]
            assert_near(found, kind, x, dtype)


EXTREME_CASES = [(torch.float32, read) for read in READ]
EXTREME_CASES += [(dtype, "both") for dtype in (torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool)]


@pytest.mark.parametrize(("dtype", "read"), EXTREME_CASES, ids=str)
@pytest.mark.parametrize("kind", EXTREMES)
def test_extremes(kind, read, dtype, tmp_path):
    """The last of equal ones, a zero of either sign, infinities, and the first NaN and those after it; in parts, in one step, and in columns."""
    ours, torchs = EXTREMES[kind]
    x = torch.randint(-3, 4, (3, 300), generator=torch.Generator().manual_seed(1)).to(dtype)
    if dtype.is_floating_point:
        x[0, 7::11], x[1, 150::31], x[2, :40], x[2, 40] = -0.0, torch.nan, -torch.inf, torch.inf
    for dim, given in ((1, x), (1, x[:, :9].clone()), (0, x[1:].t().contiguous())):
        kinds, found = run(lambda g, dim=dim: READ[read](ours(g, dim)), given, folder=tmp_path)
        expected = READ[read](tuple(torchs(given, dim)))
        assert ("split" in kinds[0]) == (given.shape[dim] == 300), kinds
        for mine, eager in zip(found, expected if read == "both" else (expected,), strict=True):
            assert mine.dtype == eager.dtype and torch.equal(mine.nan_to_num(9), eager.nan_to_num(9))
            assert not dtype.is_floating_point or torch.equal(mine.signbit() & ~mine.isnan(), eager.signbit() & ~eager.isnan())


@pytest.mark.parametrize("kind", EXTREMES)
def test_extremes_where_a_launch_tells_the_sizes(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(config, "split_limits", lambda shape: config.SplitLimits(8, 1, 4))
    ours, torchs = EXTREMES[kind]
    graph = of_open_sizes(lambda x: ours(x, 1), torch.float32)
    for count, length in ((1, 301), (9, 75), (20, 40)):
        x = rows(count, length, torch.float32, kind).round()
        _, found = run(None, x, length, count, folder=tmp_path, graph=graph)
        assert all(map(torch.equal, found, torchs(x, 1)))


BLOCKS = 132
"""Blocks that a device should have at least, one for each multiprocessor."""


@pytest.mark.parametrize("op", [*SCANS, *EXTREMES, "sum"])
@pytest.mark.parametrize("count", [1, 8, 64])
def test_the_device_is_filled(op, count, monkeypatch):
    """Whether sizes are known before or at the launch."""
    monkeypatch.undo()
    program = (lambda x: prims.sum(x, (1,), False)) if op == "sum" else lambda x: (SCANS | EXTREMES)[op][0](x, 1)
    for length in (1 << 20, 1 << 24):
        for graph, names in (
            (graph_of(program, torch.empty(count, length, device="meta"), device=CUDA), {}),
            (of_open_sizes(program, torch.float32, rows=count), {"ks0": length}),
            (of_open_sizes(program, torch.float32), {"ks0": length, "ks1": count}),
        ):
            (kernel,) = rendered(graph)[1].values()
            launch = dict(kernel.launch)
            first, *_, last = filter(
                None, (eval(grid, {}, {**names, **launch["configs"][0]["constants"]}) for grid in launch["grids"])
            )
            assert first >= BLOCKS and (op == "sum" or last == first), (launch, first, last)
            assert all(eval(w["elements"], {}, names) == first for w in launch["workspace"])


def test_nothing_is_launched_for_totals_that_nobody_needs():
    """Of many rows, of short ones, and of none."""
    (kernel,) = rendered(of_open_sizes(lambda x: prims.cumsum(x, 1), torch.float32))[1].values()
    launch = dict(kernel.launch)
    for count, length in ((4096, 1 << 16), (3, 20), (0, 100)):
        names = {"ks0": length, "ks1": count}
        grids = [eval(grid, {}, {**names, **launch["configs"][0]["constants"]}) for grid in launch["grids"]]
        assert grids[0] == 0 and grids[1] == -(-count // launch["configs"][0]["constants"]["XBLOCK"])
        assert [eval(w["elements"], {}, names) for w in launch["workspace"]] == [0]


def test_many_rows_are_reduced_in_one_launch():
    """Where a launch tells the sizes: rows that fill the device, short rows, and no rows, with nothing kept between stages."""
    (kernel,) = rendered(of_open_sizes(lambda x: prims.sum(x, (1,), False), torch.float32))[1].values()
    launch = dict(kernel.launch)
    for count, length in ((4096, 1 << 16), (2 * BLOCKS, 1 << 20), (3, 20), (0, 100)):
        names = {"ks0": length, "ks1": count}
        grids = [eval(grid, {}, {**names, **launch["configs"][0]["constants"]}) for grid in launch["grids"]]
        assert grids == [-(-count // launch["configs"][0]["constants"]["XBLOCK"]), 0, 0]
        assert [eval(w["elements"], {}, names) for w in launch["workspace"]] == [0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_reductions_where_a_launch_tells_the_sizes(dtype, tmp_path, monkeypatch):
    """In parts, in one part because rows are many, and because they are short; two reductions, of which one needs the other."""
    monkeypatch.setattr(config, "split_limits", lambda shape: config.SplitLimits(8, 1, 4))
    monkeypatch.setattr(config, "MULTIPROCESSORS", 4)

    def program(x):
        most = prims.amax(x, (1,), True)
        return most, prims.sum(prims.sub(x, most), (1,), False), prims.argmax(x, 1, False)

    graph = of_open_sizes(program, dtype)
    for count, length in ((1, 301), (3, 300), (9, 75), (20, 40), (2, 31)):
        x = rows(count, length, dtype, "sum")
        kinds, (most, total, place) = run(None, x, length, count, folder=tmp_path, graph=graph)
        wide = x.double() - x.double().amax(1, True)
        assert any("split at most" in kind for kind in kinds)
        assert torch.equal(most, x.amax(1, True)) and torch.equal(place, x.argmax(1))
        eps = EPS.get(dtype, 0.0)
        assert ((total.double() - wide.sum(1)).abs() <= ROUNDINGS * eps * wide.abs().sum(1)).all()


@pytest.mark.parametrize("kind", SCANS)
def test_what_is_no_number(kind, tmp_path):
    """It goes on to the end of the row, from whichever part, and not into the next row."""
    ours, torchs = SCANS[kind]
    x = rows(3, 300, torch.float32, kind).abs() + 1e-3
    x[0, 5], x[0, 7], x[1, 150], x[2, 299] = torch.inf, torch.inf, torch.nan, -torch.inf
    x[2, :3] = -torch.inf if kind == "logcumsumexp" else x[2, :3]
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
    programs = {
        **{name: lambda x, ours=ours: ours(x, 1) for name, (ours, _) in SCANS.items()},
        "cummax": lambda x: prims.cummax(x, 1),
    }
    fixed = [("cumsum", torch.bfloat16), ("cumprod", torch.float32), ("cumsum", torch.int64), ("cummax", torch.int64)]
    opened = [("cumsum", torch.float32), ("logcumsumexp", torch.bfloat16), ("cummax", torch.uint8)]
    graphs = [build(programs[name], [None], [TensorSpec(dtype, CUDA, (2, 1 << 20))]) for name, dtype in fixed]
    graphs += [of_open_sizes(programs[name], dtype) for name, dtype in opened]
    kernels = [kernel for graph in graphs for kernel in compile_graph(graph).kernels]
    jobs = [
        build_triton.request(kernel, entry, kernel.launch["configs"][0], build_triton.Variant(wide=wide), 90)
        for kernel in kernels
        for entry in kernel.launch["entries"]
        for wide in (False, True)[: 1 + (kernel.launch["fits32"] is not None)]
    ]
    assert len(build_triton.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))) == len(jobs) == 20

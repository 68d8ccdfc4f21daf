"""Short rows sorted on a GPU: Triton's interpreter against eager's stable sort."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from prim_programs import build  # noqa: E402
from tracework_inductor import InductorOptions  # noqa: E402
from tracework_inductor.codegen.triton import TritonRenderer  # noqa: E402
from tracework_inductor.ir.index import symbol  # noqa: E402
from tracework_inductor.lowering.sort import LONGEST  # noqa: E402
from tracework_primops import TensorSpec, prims  # noqa: E402
from tracework_primops.spec import SizeSpec  # noqa: E402
from tracework_runtime import RuntimeOptions, Store  # noqa: E402
from tracework_runtime.build import triton as build_triton  # noqa: E402
from triton_programs import graph_of, rendered, softmax  # noqa: E402

CUDA = torch.device("cuda", 0)
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
DTYPES = (*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


def rows(dtype, *sizes):
    """Many equal elements, limits, and for floats NaN of both signs, both zeros and infinities."""
    if dtype == torch.bool:
        return torch.randint(0, 2, sizes).bool()
    if dtype.is_floating_point:
        plain, tiny = torch.randn(sizes), torch.finfo(dtype).smallest_normal
        special = torch.tensor([torch.nan, -torch.nan, 0.0, -0.0, torch.inf, -torch.inf, 1.0, tiny, -tiny], dtype=torch.float64)
    else:
        limits = torch.iinfo(dtype)
        plain = torch.randint(max(limits.min, -4), 5, sizes)
        wide = [k << 32 for k in (-2, -1, 1)] if dtype == torch.int64 else []
        special = torch.tensor([limits.min, limits.min + 1, limits.max - 1, limits.max, *wide])
    return torch.where(torch.rand(sizes) < 0.4, special[torch.randint(len(special), sizes)].to(dtype), plain.to(dtype))


def run(program, *inputs, folder):
    """By the interpreter, and how many kernels there were; nothing is left to the library."""
    host, kernels = rendered(graph_of(program, *inputs, device=CUDA))
    assert "prims." not in host
    return triton_interpreter.host_call(host, kernels, folder)(list(inputs)), len(kernels)


def assert_same(found, wanted):
    assert (found.dtype, found.shape, found.stride()) == (wanted.dtype, wanted.shape, wanted.stride())
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    if wanted.is_floating_point():
        assert torch.equal(torch.signbit(found) & (found == 0), torch.signbit(wanted) & (wanted == 0))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(dtype, tmp_path):
    torch.manual_seed(0)
    x = rows(dtype, 3, 37)

    def program(a):
        chosen = (*prims.sort(a, 1, False), *prims.sort(a, 1, True), *prims.topk(a, 5, 1, True), *prims.topk(a, 5, 1, False))
        return (*chosen, *prims.kthvalue(a, 4, 1, False), *prims.kthvalue(a, 37, 1, True))

    found, _ = run(program, x, folder=tmp_path)
    up, down = (torch.sort(x, dim=1, descending=d, stable=True) for d in (False, True))
    first = [t[:, :5].contiguous() for pair in (down, up) for t in pair]
    wanted = [*up, *down, *first, *(t[:, 3].contiguous() for t in up), *(t[:, 36:].contiguous() for t in up)]
    for one, other in zip(found, wanted, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.bool], ids=str)
def test_median(dtype, tmp_path):
    torch.manual_seed(1)
    x = rows(dtype, 6, 9)
    x[0] = 3
    if dtype.is_floating_point:
        x[1] = torch.arange(9)
    (value, place), kernels = run(lambda a: tuple(prims.median(a, 1, False)), x, folder=tmp_path)
    wanted = torch.median(x, 1).values
    assert_same(value.abs(), wanted.abs())  # which of two zeros is in the middle is nobody's choice
    assert_same(x.gather(1, place[:, None])[:, 0].abs(), wanted.abs())
    assert place.dtype == torch.int64 and kernels == 1


@given(data=st.data())
@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_shape(data, tmp_path):
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=0, max_size=2))
    dim = data.draw(st.integers(0, len(sizes)))
    length = data.draw(st.integers(2, 35))
    sizes.insert(dim, length)
    k, descending = data.draw(st.integers(1, length)), data.draw(st.booleans())
    order = data.draw(st.permutations(range(len(sizes))))
    x = torch.randint(-9, 9, [sizes[d] for d in order]).permute([order.index(d) for d in range(len(sizes))])
    program = lambda a: (*prims.sort(a, dim, descending, True), *prims.topk(a, k, dim, descending))
    found, _ = run(program, x, folder=tmp_path)
    wanted = torch.sort(x, dim=dim, descending=descending, stable=True)
    for one, other in zip(found, [*wanted, *(t.narrow(dim, 0, k).contiguous() for t in wanted)], strict=True):
        assert torch.equal(one, other)


def test_with_what_makes_the_row_and_reads_the_result(tmp_path):
    torch.manual_seed(0)
    x = torch.randn(5, 33)

    def program(a):
        values, places = prims.sort(softmax(a), 1, True)
        return prims.mul(values, 2.0), places, prims.sum(prims.mul(values, values), (1,), False)

    found, kernels = run(program, x, folder=tmp_path)
    values, places = torch.sort(torch.softmax(x, 1), 1, descending=True)
    assert kernels == 1 and torch.equal(found[1], places)
    torch.testing.assert_close(found[0], values * 2)
    torch.testing.assert_close(found[2], (values * values).sum(1))


def test_half_rows_are_sorted_as_they_are_rounded(tmp_path):
    """Elements that are equal in the half type keep their order, whatever they were before."""
    x = torch.tensor([[1.0 + n * 2.0**-12 for n in (3, 2, 1, 0, 40, 39)]])
    program = lambda a: tuple(prims.sort(prims.convert(prims.mul(a, 1.0), torch.bfloat16), 1, False, True))
    (values, places), kernels = run(program, x, folder=tmp_path)
    wanted = torch.sort(x.bfloat16(), dim=1, stable=True)
    assert kernels == 1 and torch.equal(places, wanted.indices) and torch.equal(values, wanted.values)


def test_open_number_of_rows(tmp_path):
    n = symbol("s0", 2, None)
    specs = [TensorSpec(torch.float32, CUDA, (n, 20)), SizeSpec(n)]
    host, kernels = rendered(build(lambda x, _: tuple(prims.topk(x, 3, 1, True)), [None, None], specs))
    call = triton_interpreter.host_call(host, kernels, tmp_path)
    for count in (2, 33):
        x = torch.randn(count, 20)
        values, places = call([x, count])
        wanted = torch.topk(x, 3, 1)
        assert torch.equal(values, wanted.values) and torch.equal(places, wanted.indices)


REFUSED = {
    "long": (lambda a: tuple(prims.sort(a, 1)), (2, max(LONGEST.values()) + 1), {}),
    "one": (lambda a: tuple(prims.sort(a, 1)), (2, 1), {}),
    "strict": (lambda a: tuple(prims.topk(a, 2, 1)), (2, 8), {"numerics": "strict"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_left_to_the_library(name):
    program, sizes, options = REFUSED[name]
    assert "prims." in rendered(graph_of(program, torch.randn(sizes), device=CUDA), InductorOptions(**options))[0]


def test_compiles_for_hopper(tmp_path):
    """The longest row of each width of element, in both directions of memory."""
    jobs, renderer = [], TritonRenderer()
    for dtype, dim in ((torch.float32, 0), (torch.int64, 1)):
        x = torch.zeros([300, LONGEST[dtype.itemsize]][:: 1 if dim else -1], dtype=dtype)
        _, kernels = rendered(graph_of(lambda a, dim=dim: tuple(prims.sort(a, dim, True)), x, device=CUDA))
        jobs += [
            build_triton.request(k, "kernel", k.launch["configs"][0], build_triton.Variant(), 90)
            for k in renderer.pack([(f"sort_dim_{dim}", one) for one in kernels.values()])
        ]
    cubins = build_triton.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))
    assert len(cubins) == 2

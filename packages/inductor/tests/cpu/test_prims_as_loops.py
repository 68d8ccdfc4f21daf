"""Prims that are a few lines of loops: C++ kernels, and Triton's by its interpreter, against eager and eager in float64."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
import tracework_runtime as runtime  # noqa: E402
from prim_programs import build, copied  # noqa: E402
from tracework_inductor import compile_graph  # noqa: E402
from tracework_inductor.codegen.triton import TritonRenderer  # noqa: E402
from tracework_primops import prims  # noqa: E402
from tracework_runtime.build import triton as build_triton  # noqa: E402
from triton_programs import graph_of, rendered  # noqa: E402

CUDA = torch.device("cuda", 0)
F32, F64, F16, BF16, I64, I32, U8 = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.uint8),
)
FLOATS = (F32, F64, BF16, F16)
NUMBERS = (*FLOATS, I64, I32, U8)
SPECIAL = torch.tensor([0.0, -0.0, 1.5, -2.5, float("inf"), -float("inf"), float("nan"), 1e-40, -3e-39, 88.0, 2.0**-126, 1.0])


def numbers(*sizes, dtype):
    x = torch.randn(sizes) if sizes else torch.randn(())
    return x.to(dtype) if dtype.is_floating_point else (x * 5).abs().to(dtype)


def special(dtype):
    x = SPECIAL.to(dtype)
    if dtype is BF16:  # of which the interpreter loads subnormal ones as 0
        x = x[(x == 0) | ~(x.abs() < torch.finfo(dtype).tiny)]
    return torch.cat([x, numbers(20, dtype=dtype)])


def rows(*sizes, dtype):
    return numbers(*sizes, dtype=dtype).sort(-1).values


def with_nan(x):
    return torch.cat([x, x.new_full((1,), float("nan"))]) if x.dtype.is_floating_point else x


def places(limit, *sizes, negative=False):
    """Each at most once."""
    count = torch.Size(sizes).numel()
    found = torch.randperm(limit)[:count].reshape(sizes)
    return torch.where(found % 2 == 0, found, found - limit) if negative else found


def pads(forward, backward, padding):
    def program(g, x):
        return backward(g, x, padding)

    def inputs(dtype, *sizes):
        x = numbers(*sizes, dtype=dtype)
        return torch.randn_like(forward(x, padding)), x

    return program, inputs


def mirror(padding, *sizes):
    program, inputs = pads(prims.reflection_pad, prims.reflection_pad_backward, padding)
    return program, lambda dtype: inputs(dtype, *sizes), FLOATS


def copies(padding, *sizes):
    program, inputs = pads(prims.replication_pad, prims.replication_pad_backward, padding)
    return program, lambda dtype: inputs(dtype, *sizes), FLOATS


def largest(result, *sizes):
    def inputs(dtype):
        x = numbers(*sizes, dtype=dtype)
        x[0, 0, 0] = float("nan")
        x[0, 1] = -float("inf")
        return (x,)

    return lambda x: prims.adaptive_max_pool(x, result), inputs, FLOATS


def largest_backward(result, *sizes):
    def inputs(dtype):
        x = numbers(*sizes, dtype=dtype)
        values, indices = prims.adaptive_max_pool(x, result)
        return torch.randn_like(values), x, indices

    return prims.adaptive_max_pool_backward, inputs, FLOATS


def patches(sizes, kernel, dilation, padding, stride):
    return lambda x: prims.im2col(x, kernel, dilation, padding, stride), lambda dtype: (numbers(*sizes, dtype=dtype),), FLOATS


def image(channels, sizes, kernel, padding, stride):
    count = 1
    for s, k, p, t in zip(sizes, kernel, padding, stride):
        count *= (s + 2 * p - k) // t + 1
    columns = 2, channels * kernel[0] * kernel[1], count
    return lambda x: prims.col2im(x, sizes, kernel, (1, 1), padding, stride), lambda d: (numbers(*columns, dtype=d),), FLOATS


def cubic(sizes, result, corners=False, scales=(None, None)):
    return lambda x: prims.upsample_bicubic(x, result, corners, scales), lambda dtype: (numbers(*sizes, dtype=dtype),), FLOATS


def masked(dtype):
    mask = torch.rand(5, 7) > 0.5
    return numbers(5, 7, dtype=dtype), mask, numbers(40, dtype=dtype)


CASES = {
    "logaddexp2": (prims.logaddexp2, lambda d: (special(d), special(d).flip(0)), FLOATS),
    "frexp": (prims.frexp, lambda d: (special(d),), FLOATS),
    "bucketize": (
        lambda x, b: prims.bucketize(x, b),
        lambda d: (with_nan(numbers(6, 9, dtype=d)), rows(7, dtype=d)),
        (I64, I32, U8),
    ),
    "bucketize, NaN": (lambda x, b: prims.bucketize(x, b), lambda d: (special(d), with_nan(rows(7, dtype=d))), FLOATS),
    "bucketize, right": (lambda x, b: prims.bucketize(x, b, True, True), lambda d: (b := rows(16, dtype=d), b), NUMBERS),
    "bucketize, one": (lambda x, b: prims.bucketize(x, b, True), lambda d: (numbers(5, dtype=d), rows(1, dtype=d)), NUMBERS),
    "bucketize, none": (lambda x, b: prims.bucketize(x, b), lambda d: (numbers(5, dtype=d), rows(0, dtype=d)), (F32,)),
    "bucketize a number": (lambda b: prims.bucketize(0.5, b), lambda d: (rows(9, dtype=d),), (F32, F64)),
    "searchsorted": (lambda s, v: prims.searchsorted(s, v), lambda d: (rows(3, 11, dtype=d), numbers(3, 5, dtype=d)), NUMBERS),
    "searchsorted, right": (
        lambda s, v: prims.searchsorted(s, v, True, True),
        lambda d: (s := rows(2, 3, 8, dtype=d), s[..., :6].clone()),
        NUMBERS,
    ),
    "searchsorted, one row": (
        lambda s, v: prims.searchsorted(s, v),
        lambda d: (rows(13, dtype=d), numbers(3, 4, dtype=d)),
        (F32, I64),
    ),
    "put": (
        lambda x, i, s: prims.put(x, i, s, False),
        lambda d: (numbers(4, 6, dtype=d), places(24, 3, 2, negative=True), numbers(3, 2, dtype=d)),
        NUMBERS,
    ),
    "put, added": (
        lambda x, i, s: prims.put(x, i, s, True),
        lambda d: (numbers(4, 6, dtype=d), torch.randint(-24, 24, (40,)), numbers(40, dtype=d)),
        (F32, F64, I64, I32),
    ),
    "masked_scatter": (prims.masked_scatter, masked, NUMBERS),
    "masked_scatter, nothing": (prims.masked_scatter, lambda d: (x := numbers(9, dtype=d), x != x, x[:2].clone()), (F32,)),
    "masked_scatter, long": (
        prims.masked_scatter,
        lambda d: (x := numbers(70, 90, dtype=d), x > 0, numbers(6300, dtype=d)),
        (F32,),
    ),
    "as_strided_scatter": (
        lambda x, s: prims.as_strided_scatter(x, s, (3, 4), (7, 2), 5),
        lambda d: (numbers(6, 7, dtype=d), numbers(3, 4, dtype=d)),
        NUMBERS,
    ),
    "as_strided_scatter, turned": (
        lambda x, s: prims.as_strided_scatter(x, s, (4, 3), (1, 9), 0),
        lambda d: (numbers(6, 7, dtype=d).t().contiguous().t(), numbers(4, 3, dtype=d)),
        (F32,),
    ),
    "dot": (prims.dot, lambda d: (numbers(1000, dtype=d), numbers(1000, dtype=d)), (*FLOATS, I64, I32)),
    "vdot": (prims.vdot, lambda d: (numbers(77, dtype=d), numbers(77, dtype=d)), (F32, F64)),
    "dot of one": (prims.dot, lambda d: (numbers(1, dtype=d), numbers(1, dtype=d)), (F32, I64)),
    "patches": patches((2, 3, 9, 8), (3, 2), (1, 1), (0, 0), (2, 1)),
    "patches, border": patches((2, 3, 7, 8), (3, 3), (1, 2), (1, 2), (2, 3)),
    "patches, tiles": patches((1, 2, 8, 12), (4, 4), (1, 1), (0, 0), (4, 4)),
    "image": image(3, (9, 8), (3, 2), (0, 0), (2, 1)),
    "image, border": image(2, (7, 8), (3, 3), (1, 2), (2, 3)),
    "image, tiles": image(2, (8, 12), (4, 4), (0, 0), (4, 4)),
    "mirror, line": mirror((2, 3), 2, 3, 7),
    "mirror, plane": mirror((1, 0, 2, 3), 2, 3, 5, 6),
    "mirror, volume": mirror((1, 2, 0, 1, 1, 1), 1, 2, 3, 4, 5),
    "copies, line": copies((3, 4), 2, 3, 2),
    "copies, plane": copies((1, 2, 2, 0), 2, 3, 5, 6),
    "copies, volume": copies((1, 1, 0, 1, 1, 0), 1, 2, 3, 4, 5),
    "largest": largest((3, 4), 2, 3, 10, 9),
    "largest, line": largest((5,), 2, 3, 12),
    "largest, of few": largest((7, 5), 2, 3, 4, 3),
    "largest, volume": largest((2, 2, 3), 1, 2, 5, 4, 6),
    "largest, gradient": largest_backward((3, 4), 2, 3, 10, 9),
    "largest, gradient of few": largest_backward((7, 5), 2, 3, 4, 3),
    "cubic, twice": cubic((2, 3, 5, 6), (10, 12)),
    "cubic, fewer": cubic((1, 2, 9, 7), (4, 5)),
    "cubic, corners": cubic((1, 2, 5, 6), (9, 7), True),
}
MADE = {
    "linspace": lambda dtype, device: prims.linspace(-1.3, 7.7, 1001, dtype, device),
    "linspace, one": lambda dtype, device: prims.linspace(0.1, 3.0, 1, dtype, device),
    "linspace, downwards": lambda dtype, device: prims.linspace(5, -3, 10, dtype, device),
    "logspace": lambda dtype, device: prims.logspace(-1.0, 2.0, 100, 2.0, dtype, device),
    "logspace, one": lambda dtype, device: prims.logspace(-1.0, 2.0, 1, 10.0, dtype, device),
}
LIBRARYS_ON_CPU = {
    name for name in CASES if name.startswith(("mirror", "copies", "cubic", "masked", "dot", "vdot", "largest, grad"))
}
"""What the CPU's library does as well, or better (measured)."""
BY_TYPE = [(name, dtype) for name, (_, _, dtypes) in CASES.items() for dtype in dtypes]


def given(name, dtype):
    torch.manual_seed(0)
    program, inputs, _ = CASES[name]
    return program, inputs(dtype)


def outputs(graph, inputs):
    return graph.run(*[t.clone() for t in inputs])


def assert_near(found, program, inputs):
    """As near to float64 as eager, where it can be run in it; the same dtype, sizes and strides."""
    try:
        eager = outputs(graph_of(program, *inputs), inputs)
    except NotImplementedError:  # for this dtype
        eager = None
    wide = [t.double() if t.is_floating_point() else t for t in inputs]
    exact = outputs(graph_of(program, *wide), wide)
    for f, e, x in zip(found, exact if eager is None else eager, exact, strict=True):
        assert f.shape == e.shape and (eager is None or (f.dtype, f.stride()) == (e.dtype, e.stride()))
        if not f.is_floating_point():
            assert torch.equal(f, e)
            continue
        assert torch.equal(f.isnan(), x.isnan())
        finite = x.isfinite() & e.isfinite()
        assert torch.equal(f[~finite].nan_to_num(7), e[~finite].to(f.dtype).nan_to_num(7))
        error, eagers = ((v.double() - x)[finite].abs().max().item() if finite.any() else 0.0 for v in (f, e))
        assert error <= 4 * eagers + 8 * torch.finfo(f.dtype).eps * max(
            1.0, x[finite].abs().max().item() if finite.any() else 0.0
        )


@pytest.mark.parametrize(("name", "dtype"), BY_TYPE, ids=str)
def test_cpp(name, dtype):
    program, inputs = given(name, dtype)
    artifact = compile_graph(build(program, inputs))
    if name not in LIBRARYS_ON_CPU and dtype in (F32, F64):
        assert not artifact.notes["fallbacks"]
    assert_near(runtime.load(artifact)([copied(t) for t in inputs]), program, inputs)


@pytest.mark.parametrize(("name", "dtype"), BY_TYPE, ids=str)
def test_triton(name, dtype, tmp_path):
    program, inputs = given(name, dtype)
    host, kernels = rendered(graph_of(program, *inputs, device=CUDA))
    assert "prims." not in host
    assert_near(triton_interpreter.host_call(host, kernels, tmp_path)(list(inputs)), program, inputs)


def test_compile_for_hopper(tmp_path):
    """Of one dtype each: the first that its case has."""
    jobs = []
    for name, (_, _, dtypes) in CASES.items():
        program, inputs = given(name, dtypes[0])
        for kernel in TritonRenderer().pack(list(rendered(graph_of(program, *inputs, device=CUDA))[1].items())):
            for entry in kernel.launch["entries"]:
                jobs.append(build_triton.request(kernel, entry, kernel.launch["configs"][0], build_triton.Variant(), 90))
    assert (
        len(build_triton.build_all(jobs, runtime.RuntimeOptions(), runtime.Store(tmp_path / "cache"))) == len(jobs) >= len(CASES)
    )


@pytest.mark.parametrize("dtype", (F32, F64), ids=str)
def test_made_of_nothing(dtype, tmp_path):
    """Bits of linspace are those of eager's vectors."""
    eager = [make(dtype, "cpu") for make in MADE.values()]
    artifact = compile_graph(build(lambda: tuple(make(dtype, torch.device("cpu")) for make in MADE.values()), []))
    host, kernels = rendered(graph_of(lambda: tuple(make(dtype, CUDA) for make in MADE.values())))
    assert not artifact.notes["fallbacks"] and "prims." not in host
    cpp, triton = runtime.load(artifact)([]), triton_interpreter.host_call(host, kernels, tmp_path)([])
    for name, a, b, expected in zip(MADE, cpp, triton, eager, strict=True):
        assert torch.equal(a, expected) or "logspace" in name
        for found in (a, b):  # the interpreter rounds twice in float64
            torch.testing.assert_close(found, expected, rtol=4 * torch.finfo(dtype).eps, atol=8 * torch.finfo(dtype).eps)


def test_places_out_of_range():
    """As eager, of both kinds of exception; a source that is too short for its mask, too."""
    x, src = torch.zeros(4, 6), torch.ones(3)
    for program, inputs in (
        (lambda x, i, s: prims.put(x, i, s, False), (x, torch.tensor([0, 24, 1]), src)),
        (prims.masked_scatter, (x, x == 0, src)),
    ):
        with pytest.raises((IndexError, RuntimeError)) as eagers:
            program(*inputs)
        with pytest.raises(eagers.type):
            runtime.load(compile_graph(build(program, inputs)))(list(inputs))

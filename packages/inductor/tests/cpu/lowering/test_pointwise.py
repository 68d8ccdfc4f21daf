"""Every pointwise row against EAGER; all of a dtype in one graph, so that there is one C++ compilation for each."""

import pytest
import torch
from prim_programs import check
from scalar_functions import FLOAT_BINARY, FLOAT_UNARY, operand
from tracework_primops import prims

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INT_BINARY = (
    "add sub mul floor_divide trunc_divide remainder fmod maximum minimum eq ne lt le gt ge bitwise_and bitwise_or"
    " bitwise_xor logical_and logical_or logical_xor"
).split()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_unary_floats(dtype: torch.dtype) -> None:
    inputs = [operand(n, dtype, k) for k, n in enumerate(FLOAT_UNARY)]
    tolerance = {torch.float32: 3e-6, torch.float64: 1e-11}.get(dtype, 2e-2)
    check(lambda *v: tuple(getattr(prims, n)(x) for n, x in zip(FLOAT_UNARY, v)), *inputs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_binary_floats(dtype: torch.dtype) -> None:
    inputs = [operand(n, dtype, k) for k, n in enumerate(FLOAT_BINARY)]
    other = torch.randn(33, generator=torch.Generator().manual_seed(9)).to(dtype)
    tolerance = {torch.float32: 3e-6, torch.float64: 1e-11}.get(dtype, 3e-2)

    def program(y, *v):
        return tuple(getattr(prims, n)(x, y) for n, x in zip(FLOAT_BINARY, v))

    if dtype in (torch.bfloat16, torch.float16):
        # one rounding more or less decides floor and remainder of half types
        keep = [k for k, n in enumerate(FLOAT_BINARY) if n not in ("floor_divide", "remainder", "fmod", "trunc_divide")]
        check(
            lambda y, *v: tuple(getattr(prims, FLOAT_BINARY[k])(x, y) for k, x in zip(keep, v)),
            other,
            *[inputs[k] for k in keep],
            rtol=tolerance,
            atol=tolerance,
        )
        return
    check(program, other, *inputs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", (torch.int64, torch.int32, torch.uint8), ids=str)
def test_binary_integers(dtype: torch.dtype) -> None:
    low = 0 if dtype == torch.uint8 else -20
    x = torch.randint(low, 20, (5, 31), dtype=dtype)
    y = torch.randint(1, 7, (31,), dtype=dtype)
    check(lambda a, b: tuple(getattr(prims, n)(a, b) for n in INT_BINARY), x, y)


def test_bools_and_special_values() -> None:
    x = torch.tensor([0.0, -0.0, 1.5, -1.5, float("inf"), -float("inf"), float("nan"), 1e-40, 88.0, -100.0, 2.5, 3.5] * 3)
    y = x.flip(0).contiguous()
    p = prims
    check(
        lambda a, b: (
            p.exp(a), p.tanh(a), p.erf(a), p.sigmoid(a), p.maximum(a, b), p.minimum(a, b), p.relu(a), p.isnan(a),
            p.isinf(a), p.isfinite(a), p.signbit(a), p.sign(a), p.round(a), p.where(p.gt(a, b), a, 0.0), p.fmax(a, b),
            p.copysign(a, b), p.convert(p.where(p.isfinite(a), a, 0.0), torch.int32), p.logical_not(a), p.div(a, b),
        ),
        x, y, rtol=1e-6, atol=1e-6,
    )  # fmt: skip
    m = x > 0
    check(lambda a, b: (p.add(a, b), p.mul(a, b), p.bitwise_not(a), p.logical_xor(a, b), p.convert(a, torch.float32)), m, ~m)


@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "sigmoid"])
def test_written_out_functions_are_accurate(name: str) -> None:
    x = torch.cat([torch.linspace(-12, 12, 40001), torch.linspace(-1e-3, 1e-3, 2001), torch.linspace(-87, 87, 4001)])
    artifact_check = {"exp": torch.exp, "tanh": torch.tanh, "erf": torch.erf, "sigmoid": torch.sigmoid}[name]
    import tracework_runtime as runtime
    from prim_programs import build
    from tracework_inductor import compile_graph

    (actual,) = runtime.load(compile_graph(build(lambda v: getattr(prims, name)(v), [x])))([x])
    exact = artifact_check(x.double())
    error = ((actual.double() - exact).abs() / exact.abs().clamp_min(1e-37)).max()
    assert error < 6e-7


def regions(x: object, windows: object) -> object:
    """Scores, and a mask of -100 between places of different regions of a window, the same for all heads."""
    p = prims
    mask = p.sub(p.reshape(windows, (64, 1, 49)), p.reshape(windows, (64, 49, 1)))
    mask = p.where(p.eq(mask, 0.0), 0.0, p.where(p.ne(mask, 0.0), -100.0, mask))
    return p.add(x, p.reshape(mask, (64, 1, 49, 49)))


def gated(x: object, gate: object) -> object:
    """Images times a gate of each channel, which is the last of four dims where images are 56 high at the second."""
    x = prims.permute(x, (0, 3, 1, 2)) if x.sizes[1] == 56 else x
    return prims.mul(x, prims.sigmoid(prims.add(prims.mul(gate, 0.5), 0.5)))


@pytest.mark.parametrize(
    "program, shapes, loops",
    [
        (regions, ((64, 3, 49, 49), (64, 49)), 2),
        (regions, ((64, 1, 49, 49), (64, 49)), 1),  # each element of the mask is read once
        (lambda x, s: prims.add(x, prims.mul(prims.add(s, 1.0), 2.0)), ((4096, 96), (96,)), 1),  # cheap
        (lambda x, s: prims.mul(x, prims.rsqrt(prims.add(prims.mul(prims.mul(s, 0.5), s), 1.0))), ((4096, 96), (96,)), 2),
        (lambda x, s: prims.mul(x, prims.rsqrt(prims.add(prims.mul(prims.mul(s, 0.5), s), 1.0))), ((96, 96), (96,)), 1),  # few
        (lambda x, s: prims.mul(x, prims.rsqrt(prims.add(prims.mul(prims.mul(s, 0.5), s), 1.0))), ((4096, 96), (4096, 1)), 1),
        (gated, ((1, 96, 56, 56), (1, 96, 1, 1)), 1),
        (gated, ((1, 56, 56, 96), (1, 96, 1, 1)), 2),  # channels-last in memory
    ],
)
def test_what_is_the_same_for_many_rows_is_computed_once(program: object, shapes: tuple, loops: int) -> None:
    made = torch.Generator().manual_seed(0)
    x, s = (torch.randint(0, 3, shape, generator=made).float() for shape in shapes)
    artifact = check(program, x, s)
    assert sum(kernel.name.partition("_")[0] != "content" for kernel in artifact.kernels) == loops

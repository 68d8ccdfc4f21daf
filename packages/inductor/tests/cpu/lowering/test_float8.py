"""float8 dtypes inside of loops: every bit is eager's, in C++ and in Triton."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import pytest
import torch
from prim_programs import build, copied
from tracework_inductor import compile_graph
from tracework_primops import prims
from tracework_runtime import RuntimeOptions, Store, load
from tracework_runtime.build import triton as triton_build
from triton_programs import graph_of, rendered

CUDA = torch.device("cuda", 0)
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
BYTES = torch.arange(256).to(torch.uint8)
HALVES = torch.arange(65536, dtype=torch.int32).to(torch.int16)
# Every exponent and sign with steps of the last digits that fall on all sides of the ties.
FLOATS = torch.arange(0, 2**32, 9973, dtype=torch.int64).to(torch.int32).view(torch.float32)
TIES = torch.cat(
    [t + d for t in (BYTES.view(E4M3).float(), BYTES.view(E5M2).float()) for d in (0.0, 2.0**-10, 16.0, -(2.0**-17))]
)

NUMBERS = {
    torch.float32: torch.cat([FLOATS, TIES, (TIES + TIES.roll(1)) / 2]),
    torch.float64: FLOATS.double() * (1 + 2.0**-40),
    torch.float16: HALVES.view(torch.float16),
    torch.bfloat16: HALVES.view(torch.bfloat16),
    torch.int64: torch.arange(-70000, 70000, 7),
    torch.int8: torch.arange(-128, 128).to(torch.int8),
    torch.uint8: BYTES,
    torch.bool: torch.tensor([True, False]),
    E4M3: BYTES.view(E4M3),
    E5M2: BYTES.view(E5M2),
}


def in_cpp(program: Callable[..., Any], inputs: list[torch.Tensor], tmp_path: Path) -> tuple[torch.Tensor, ...]:
    artifact = compile_graph(build(program, inputs))
    assert artifact.notes["fallbacks"] == [] and artifact.notes["kernels"] == 1
    return load(artifact)([copied(x) for x in inputs])


def in_triton(program: Callable[..., Any], inputs: list[torch.Tensor], tmp_path: Path) -> tuple[torch.Tensor, ...]:
    interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
    host, kernels = rendered(graph_of(program, *inputs, device=CUDA))
    assert len(kernels) == 1
    return interpreter.host_call(host, kernels, tmp_path)([x.clone() for x in inputs])


LANGUAGES = {"C++": in_cpp, "Triton": in_triton}


def assert_same(given: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal bits, but any NaN for a NaN of a wider dtype."""
    assert given.dtype == expected.dtype and given.shape == expected.shape and given.stride() == expected.stride()
    if expected.dtype.itemsize == 1:
        assert torch.equal(given.view(torch.uint8), expected.view(torch.uint8))
    else:
        torch.testing.assert_close(given, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("source", "target"), [(s, t) for s in NUMBERS for t in (E4M3, E5M2) if s != t], ids=str)
def test_to_float8(source, target, language, tmp_path):
    x = NUMBERS[source]
    (given,) = LANGUAGES[language](lambda x: prims.convert(x, target), [x], tmp_path)
    assert_same(given, x.to(target))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("source", [E4M3, E5M2], ids=str)
@pytest.mark.parametrize("target", [t for t in NUMBERS if t not in (E4M3, E5M2)], ids=str)
def test_from_float8(source, target, language, tmp_path):
    x = NUMBERS[source]
    if not target.is_floating_point and target != torch.bool:
        x = x[x.float().abs() < 128 if target != torch.uint8 else (x.float() >= 0) & (x.float() < 256)]  # what is defined
    (given,) = LANGUAGES[language](lambda x: prims.convert(x, target), [x], tmp_path)
    assert_same(given, x.to(target))


def turned(x: Any) -> Any:
    return prims.clone(prims.permute(x, (1, 0)))


MOVES: dict[str, Callable[..., Any]] = {
    "permuted": turned,
    "contiguous": lambda x: prims.contiguous(x, (1, 16)),
    "joined": lambda x: prims.cat((x, turned(x)), 1),
    "sliced": lambda x: prims.clone(prims.slice(x, 0, 3, 11, 2)),
    "chosen": lambda x: prims.where(prims.gt(prims.convert(x, torch.float32), 0.0), x, turned(x)),
    "a number for some": lambda x: prims.where(prims.gt(prims.convert(x, torch.float32), 0.0), x, -1.75),
    "gathered": lambda x: prims.roll(x, (3,), (1,)),
    "filled": lambda x: prims.where(
        prims.lt(prims.convert(x, torch.float32), 0.0), prims.full((16, 16), 0.375, x.dtype, x.device), x
    ),
    "padded": lambda x: prims.pad(x, ((0, 0), (2, 1)), -0.625),
    "indexed": lambda x: prims.index(x, (prims.convert(prims.iota(5, 3, 2, torch.int64, x.device), torch.int64),)),
    "as bytes": lambda x: prims.add(prims.bitcast(x, torch.uint8), 1),
    "of bytes": lambda x: prims.bitcast(prims.bitwise_xor(prims.bitcast(x, torch.uint8), 0x80), x.dtype),
}
"""What a loop does with the bits alone, NaN and all, whatever they mean."""

MOVED = [(name, dtype) for name in MOVES for dtype in (E4M3, E5M2)]
MOVED += [(name, dtype) for name in ("joined", "of bytes") for dtype in (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("name", "dtype"), MOVED, ids=str)
def test_moved(name, dtype, language, tmp_path):
    x = BYTES.view(dtype).reshape(16, 16)
    program = MOVES[name]
    (expected,) = build(program, [x]).run(x.clone())
    (given,) = LANGUAGES[language](program, [x], tmp_path)
    assert_same(given, expected)


def quantised(x: Any) -> Any:
    """A norm, then each row by its greatest magnitude."""
    y = prims.mul(x, prims.rsqrt(prims.add(prims.mul(prims.sum(prims.mul(x, x), (1,), True), 1 / 64), 1e-6)))
    scale = prims.div(448.0, prims.maximum(prims.amax(prims.abs(y), (1,), True), 1e-12))
    clamped = prims.minimum(prims.maximum(prims.mul(y, scale), -448.0), 448.0)
    return prims.convert(clamped, E4M3), prims.reciprocal(scale)


@pytest.mark.parametrize("language", LANGUAGES)
def test_scales_of_rows_are_made_where_the_rows_are_normalised(language, tmp_path):
    x = torch.randn(12, 64, generator=torch.Generator().manual_seed(0))
    expected = build(quantised, [x]).run(x)
    given = LANGUAGES[language](quantised, [x], tmp_path)
    torch.testing.assert_close(given[0].float(), expected[0].float(), rtol=0.126, atol=0)  # a tie may fall the other way
    assert (given[0].float() != expected[0].float()).float().mean() < 0.01
    torch.testing.assert_close(given[1], expected[1], rtol=1e-5, atol=0)


def test_an_input_is_written(tmp_path):
    x, y = BYTES.view(E4M3).clone(), torch.linspace(-600, 600, 256)
    artifact = compile_graph(build(lambda x, y: prims.copy_into(x, prims.mul(y, 2.0)), [x, y]))
    assert artifact.notes["fallbacks"] == []
    load(artifact)([x, y])
    assert_same(x, (y * 2).to(E4M3))


@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_compile(capability, tmp_path):
    pytest.importorskip("triton", reason="triton is not installed")
    from tracework_inductor.codegen.triton import TritonRenderer

    jobs = []
    for dtype in (E4M3, E5M2):
        programs = [(quantised, torch.randn(12, 64)), (lambda x, d=dtype: prims.convert(x, d), torch.randn(100).bfloat16())]
        for program, x in [*programs, (MOVES["chosen"], BYTES.view(dtype).reshape(16, 16))]:
            for kernel in TritonRenderer().pack(list(rendered(graph_of(program, x, device=CUDA))[1].items())):
                jobs.append(
                    triton_build.request(kernel, "kernel", kernel.launch["configs"][0], triton_build.Variant(), capability)
                )
    assert len(triton_build.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))) == len(jobs) == 6

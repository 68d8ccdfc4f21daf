"""Which loop of a reduction becomes the vector loop."""

import pytest
import torch
import tracework_runtime as runtime
from prim_programs import build, check
from tracework_inductor import compile_graph
from tracework_inductor.codegen.cpp import streams
from tracework_primops import SymbolTable
from tracework_primops import prims as p
from tracework_primops.spec import SizeSpec, TensorSpec


def centred(x, *statistics):
    """Sums along rows of what several vectors with one element a row were taken from."""
    for s in statistics:
        x = p.sub(x, p.reshape(s, (40, 1)))
    return p.sum(p.mul(x, x), (1,))


def tensors(*sizes):
    made = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=made) for s in sizes]


def compiled(fn, args):
    artifact = compile_graph(build(fn, args))
    torch.testing.assert_close(runtime.load(artifact)(list(args))[0], build(fn, args).run(*args)[0], rtol=1e-5, atol=1e-5)
    return artifact.kernels[0].source


def test_values_that_are_constant_along_a_row_do_not_turn_the_nest() -> None:
    source = compiled(centred, tensors((40, 300), (40,), (40,), (40,)))
    assert "_terms[" in source, "the vector loop is the one along the row"


def test_sums_of_columns_run_along_the_rows() -> None:
    source = compiled(lambda x, w: p.sum(p.mul(x, p.reshape(w, (300, 1))), (0,)), tensors((300, 40), (300,)))
    assert "xb" in source, "the vector loop is the one over the columns"


def softmax(x, w):
    e = p.exp(p.sub(x, p.amax(x, (1,), True)))
    return p.div(e, p.sum(e, (1,), True))


def norm_of_channels(x, w):
    y = p.add(x, p.sin(x))
    var, mean = p.var_mean(y, (1,), 0, True)
    return p.mul(p.mul(p.sub(y, mean), p.rsqrt(p.add(var, 1e-5))), w), y


def softmax_backward(x, w):
    y = p.mul(x, w)
    return p.sub(y, p.mul(x, p.sum(y, (1,), True)))


def test_what_is_kept_for_columns_lies_beside_what_is_kept_for_the_next(monkeypatch) -> None:
    """Of points across the order of axes, which are in the kernel of their reduction; the larger results go past the caches."""
    monkeypatch.setattr(streams, "LEAST_BYTES", 2 << 20)
    programs, w = (softmax, norm_of_channels, softmax_backward), torch.randn(40, 1, 1)
    xs = [x.to(dtype) for dtype in (torch.float32, torch.float64) for x in tensors(*[(3, 40, 9, 331)] * 3)]

    def fn(w, *xs):
        found = [f(x, p.convert(w, x.dtype)) for f, x in zip(programs * 2, xs, strict=True)]
        return tuple(y for one in found for y in (one if isinstance(one, tuple) else (one,)))

    artifact = check(fn, w, *xs, rtol=1e-5, atol=1e-5)
    assert len(artifact.kernels) == 5  # the two gradients read one factor
    assert artifact.kernels[0].source.count("xb += 64") == 5
    assert artifact.kernels[0].source.count("tw_stream(&") == 3


def test_running_sums_of_columns_run_along_the_rows() -> None:
    source = compiled(lambda x: p.cumsum(x, 0), tensors((30, 300)))
    assert "c_buf1[x0 - xb]" in source, "each column has a carry, and the vector loop is the one over the columns"


def test_a_row_that_is_looked_up_is_looked_up_once() -> None:
    rows = torch.tensor([3, 0, 3, 1])
    artifact = check(lambda w, i: p.index_select(w, 0, i), torch.randn(4, 40), rows)
    lines = artifact.kernels[0].source.splitlines()
    number = {word: next(n for n, line in enumerate(lines) if word in line) for word in ("bad |=", "x1 < 40")}
    assert number["bad |="] < number["x1 < 40"], "positions are loaded and checked ahead of the loop along the row"


def turned(sizes, dtype=torch.float32):
    """Values of an image in both layouts; the sizes are no multiples of a tile's."""
    made = torch.Generator().manual_seed(0)
    return torch.randint(-9, 9, sizes, generator=made).to(dtype)


IMAGE = (3, 37, 5, 27)
CASES = [
    (IMAGE, torch.float32),
    ((2, 9, 70, 1), torch.float32),
    (IMAGE, torch.bfloat16),
    (IMAGE, torch.int64),
    (IMAGE, torch.bool),
]


@pytest.mark.parametrize(("sizes", "dtype"), CASES, ids=str)
def test_arrays_that_lie_across_the_loop_are_turned_tile_by_tile(sizes, dtype) -> None:
    n, c, h, w = sizes
    x, y = turned(sizes, dtype), turned(sizes, dtype).contiguous(memory_format=torch.channels_last)

    def fn(a, b):
        value = p.where(p.ne(a, b), a, p.bitwise_not(b) if dtype == torch.bool else p.mul(b, b))
        return p.contiguous(value, (c * h * w, h * w, w, 1)), p.contiguous(value, (c * h * w, 1, w * c, c))

    artifact = check(fn, x, y)
    assert "tw_turn(" in artifact.kernels[0].source.partition("loops_0(")[2]


def test_tiles_of_symbolic_extents() -> None:
    x = torch.randn(4, 50, 30, generator=torch.Generator().manual_seed(0)).transpose(1, 2)
    table = SymbolTable()
    a, b = table.new(30, "a", 2, None), table.new(50, "b", 2, None)
    f32, cpu = torch.float32, torch.device("cpu")
    specs = (
        SizeSpec(a),
        SizeSpec(b),
        TensorSpec(f32, cpu, (4, a, b), (a * b, 1, a)),
        TensorSpec(f32, cpu, (4, a, b), (a * b, b, 1)),
    )
    args = (30, 50, x, torch.randn(4, 30, 50, generator=torch.Generator().manual_seed(1)))
    graph = build(lambda a, b, x, y: p.add(x, y), args, specs)
    artifact = compile_graph(graph)
    assert "tw_turn(" in artifact.kernels[0].source.partition("loops_0(")[2]
    torch.testing.assert_close(runtime.load(artifact)(list(args))[0], args[2] + args[3])


def test_masked_loads_are_not_turned() -> None:
    x = torch.randn(40, 60, generator=torch.Generator().manual_seed(0))
    artifact = check(lambda a: p.contiguous(p.pad(p.permute(a, (1, 0)), ((1, 2), (3, 0)), 0.5), (43, 1)), x)
    assert "tw_turn(" not in artifact.kernels[0].source.partition("loops_0(")[2]

"""Which loop of a reduction becomes the vector loop."""

import torch
import tracework_runtime as runtime
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_primops import prims as p


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
    assert "reduction(+:" in source, "the vector loop is the one along the row"


def test_sums_of_columns_run_along_the_rows() -> None:
    source = compiled(lambda x, w: p.sum(p.mul(x, p.reshape(w, (300, 1))), (0,)), tensors((300, 40), (300,)))
    assert "xb" in source, "the vector loop is the one over the columns"

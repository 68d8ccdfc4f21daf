"""Matrix products by torch's C functions on a GPU: the bits of torch's own call."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch
import tracework_runtime as runtime
from tracework_inductor import compile_graph
from tracework_primops import prims
from tracework_runtime.host.lines import Product
from triton_programs import graph_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

PRODUCTS = {
    "mm": (lambda a, b: prims.mm(a, b), ((64, 128), (128, 32))),
    "bmm": (lambda a, b: prims.bmm(a, b), ((2, 64, 128), (2, 128, 32))),
    "addmm": (lambda c, a, b: prims.addmm(c, a, b), ((32,), (64, 128), (128, 32))),
    "addmm, scaled": (lambda c, a, b: prims.addmm(c, a, b, beta=2, alpha=3), ((64, 32), (64, 128), (128, 32))),
    "baddbmm": (lambda c, a, b: prims.baddbmm(c, a, b, beta=2), ((2, 64, 32), (2, 64, 128), (2, 128, 32))),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_bits_of_every_product(name, dtype):
    fn, sizes = PRODUCTS[name]
    for turn in (False, True):
        given = [torch.randn(s, device="cuda", dtype=dtype) for s in sizes]
        given = [t.mT.contiguous().mT if turn and t.dim() > 1 else t for t in given]
        artifact = compile_graph(graph_of(lambda *v: fn(*v[:-1], prims.neg(v[-1])), *given))
        assert sum(isinstance(line, Product) for line in artifact.host_lines) == 1
        ways = runtime.load(artifact), runtime.load(artifact.replace(host_lines=()))
        for _ in range(3):
            (got,), (wanted,) = (way(list(given)) for way in ways)
            assert torch.equal(got, wanted)

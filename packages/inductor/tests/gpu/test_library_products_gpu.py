"""Library calls by torch's C functions on a GPU: the bits of torch's own call, and none is made by Python instead."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch
import tracework_runtime as runtime
from prim_programs import overload
from tracework_inductor import compile_graph
from tracework_primops import TensorSpec, prims
from tracework_runtime.host import program
from tracework_runtime.host.lines import Call
from triton_programs import graph_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

PRODUCTS = {
    "mm": (lambda a, b: prims.mm(a, b), ((64, 128), (128, 32))),
    "bmm": (lambda a, b: prims.bmm(a, b), ((2, 64, 128), (2, 128, 32))),
    "addmm": (lambda c, a, b: prims.addmm(c, a, b), ((32,), (64, 128), (128, 32))),
    "addmm, scaled": (lambda c, a, b: prims.addmm(c, a, b, beta=2, alpha=3), ((64, 32), (64, 128), (128, 32))),
    "baddbmm": (lambda c, a, b: prims.baddbmm(c, a, b, beta=2), ((2, 64, 32), (2, 64, 128), (2, 128, 32))),
}


def native(artifact):
    return [line for line in artifact.host_lines if isinstance(line, Call) and line.native]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_bits_of_every_product(name, dtype):
    fn, sizes = PRODUCTS[name]
    for turn in (False, True):
        given = [torch.randn(s, device="cuda", dtype=dtype) for s in sizes]
        given = [t.mT.contiguous().mT if turn and t.dim() > 1 else t for t in given]
        artifact = compile_graph(graph_of(lambda *v: fn(*v[:-1], prims.neg(v[-1])), *given))
        assert len(native(artifact)) == 1
        ways = runtime.load(artifact), runtime.load(artifact.replace(host_lines=()))
        for _ in range(3):
            (got,), (wanted,) = (way(list(given)) for way in ways)
            assert torch.equal(got, wanted)


def convolved(x, w, b):
    made = prims.convolution(prims.neg(x), w, b, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    return prims.cat((made, made), 0)  # what is returned, or its memory, is made by Python


def attended(kernel):
    """The first result of an attention kernel, with the other results' specs as its own rules give them."""

    def program_of(q, k, v, *mask):
        eager = getattr(torch.ops.aten, f"_scaled_dot_product_{kernel}_attention").default
        samples = [torch.empty_strided(t.spec.sizes, t.spec.strides, dtype=t.spec.dtype, device="cuda") for t in (q, k, v, *mask)]
        if kernel != "flash":
            args = (prims.neg(q), k, v, *(mask or (None,)), False)
            made = eager(*samples[:3], *(samples[3:] or (None,)), False)
        else:
            args, made = (prims.neg(q), k, v), eager(*samples)
        specs = [TensorSpec(r.dtype, r.device, tuple(r.shape), tuple(r.stride())) if torch.is_tensor(r) else None for r in made]
        made = overload(eager, args, *specs)
        return prims.cat((made, made), 0)

    return program_of


HEADS = ((2, 4, 128, 64),) * 3
CALLS = {
    "convolution": (convolved, ((2, 16, 14, 14), (32, 16, 3, 3), (32,)), True),
    "convolution by rows": (convolved, ((2, 16, 14, 14), (32, 16, 3, 3), (32,)), False),
    "a batch of one": (convolved, ((1, 16, 14, 14), (32, 16, 3, 3), (32,)), True),
    "flash": (attended("flash"), HEADS, False),
    "efficient": (attended("efficient"), HEADS, False),
    "efficient, mask": (attended("efficient"), (*HEADS, (2, 4, 128, 128)), False),
    "cudnn": (attended("cudnn"), HEADS, False),
}


@pytest.mark.parametrize("name", CALLS)
def test_bits_of_library_calls(name, monkeypatch):
    fn, sizes, images = CALLS[name]
    given = [torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in sizes]
    given = [t.contiguous(memory_format=torch.channels_last) if images and t.dim() == 4 else t for t in given]
    artifact = compile_graph(graph_of(fn, *given))
    assert len(native(artifact)) == 1
    ways = runtime.load(artifact), runtime.load(artifact.replace(host_lines=()))
    monkeypatch.setattr(program._Late, "__call__", lambda *args: pytest.fail("by Python"))
    for _ in range(3):
        (got,), (wanted,) = (way(list(given)) for way in ways)
        assert torch.equal(got, wanted) and got.stride() == wanted.stride()

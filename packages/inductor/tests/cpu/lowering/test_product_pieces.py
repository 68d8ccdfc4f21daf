"""Products in pieces of rows: which ones, in which order, and that values and layouts are those of the whole product."""

import pytest
import torch
from prim_programs import build
from tracework_inductor import compile_graph, lower, schedule
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_inductor.lowering import driver
from tracework_inductor.lowering.product_pieces import pieces
from tracework_inductor.options import InductorOptions
from tracework_inductor.pipeline import plan_graph
from tracework_primops import TensorSpec, prims
from tracework_runtime import load

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")


def graph_of(program, *shapes, dtype=torch.bfloat16, device=CUDA):
    """The graph of a program of inputs of these shapes."""
    return build(program, [None] * len(shapes), [TensorSpec(dtype, device, s) for s in shapes])


def logits(x, w):
    return prims.mm(x, prims.permute(w, (1, 0)))


def logits_with_bias(x, w, bias):
    return prims.addmm(bias, x, prims.permute(w, (1, 0)))


def batched_logits(x, w):
    return prims.reshape(logits(x, w), (4, x.sizes[0] // 4, w.sizes[0]))


@pytest.mark.parametrize(
    ("program", "shapes", "rows"),
    [
        (logits, ((16384, 768), (50257, 768)), 2048),
        (batched_logits, ((16384, 768), (50257, 768)), 2048),
        (logits_with_bias, ((16384, 768), (30522, 768), (30522,)), 2048),
        (logits, ((3000, 768), (50257, 768)), 512),
        (logits, ((16384, 768), (50304, 768)), None),  # aligned
        (logits, ((16384, 765), (50257, 765)), None),  # both sides would be padded
        (logits, ((64, 768), (50257, 768)), None),  # small
        (lambda x, w: prims.exp(logits(x, w)), ((16384, 768), (50257, 768)), None),  # the product stays in the graph
    ],
)
def test_decision(program, shapes, rows):
    assert list(pieces(graph_of(program, *shapes).graph).values()) == ([] if rows is None else [rows])


def test_one_padded_piece_is_alive_at_a_time():
    graph = graph_of(logits, (16384, 768), (50257, 768))
    whole = 2 * 16384 * 50257
    library = schedule(lower(graph, InductorOptions()), InductorOptions(), TritonRenderer.capabilities)
    assert (
        whole < library.memory.peak_bytes < 1.3 * whole
    )  # the result, a piece of an eighth, and the matrix with padded columns (0.05)
    assert plan_graph(graph, InductorOptions()).memory.peak_bytes == whole  # a core is taken, which pads nothing


@pytest.mark.parametrize(
    ("program", "shapes"),
    [
        (logits, ((10, 8), (7, 8))),
        (batched_logits, ((12, 8), (7, 8))),
        (logits_with_bias, ((10, 8), (7, 8), (7,))),
        (lambda x, w: (logits(prims.exp(x), w), prims.exp(x)), ((9, 8), (7, 8))),
        (lambda x, w: (y := logits(x, w), prims.amax(y, (1,))), ((9, 8), (7, 8))),
        (lambda x, w: prims.mm(x, prims.exp(w)), ((9, 8), (8, 7))),
    ],
)
def test_values_and_layouts_stay(program, shapes, monkeypatch):
    graph = graph_of(program, *shapes, dtype=torch.float32, device=CPU)
    products = {n: 4 for n in graph.calls if n.target in (prims.mm, prims.addmm)}
    inputs = [torch.randn(s) for s in shapes]
    expected = graph.run(*inputs)
    monkeypatch.setattr(driver, "pieces", lambda g: products)
    artifact = compile_graph(graph)
    assert artifact.host_source.count("out=") == -(-shapes[0][0] // 4)
    got = load(artifact)(list(inputs))
    for value, wanted in zip(got, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert value.stride() == wanted.stride()
        torch.testing.assert_close(value, wanted)


def test_inputs_that_are_windows(monkeypatch):
    graph = graph_of(logits, (10, 8), (7, 8), dtype=torch.float32, device=CPU)
    products = {n: 4 for n in graph.calls if n.target is prims.mm}
    monkeypatch.setattr(driver, "pieces", lambda g: products)
    x, w = torch.randn(10, 8), torch.randn(7, 8)
    (got,) = load(compile_graph(graph))([x, w])
    torch.testing.assert_close(got, x @ w.t())
    assert got._base is None

"""Products whose second matrix is the same for all batches: which are folded, in which order of rows, with values that stay."""

import pytest
import torch
from prim_programs import build
from tracework_inductor.passes import GRAPH_PASSES
from tracework_inductor.passes.fold_products import fold_products
from tracework_primops import SymbolTable, TensorSpec, prims

CPU = torch.device("cpu")


def graph_of(program, *shapes):
    """The graph of a program of float64 inputs of these shapes."""
    return build(program, [None] * len(shapes), [TensorSpec(torch.float64, CPU, s) for s in shapes])


def same_matrix(x, w):
    return prims.bmm(x, prims.expand(w, (x.sizes[0], *w.sizes)))


def turned(x):
    return prims.permute(x, (1, 0, 2))


def computed(x, w, b):
    return prims.add(same_matrix(turned(prims.exp(x)), w), b)


def given(x, w, b):
    return prims.add(b, same_matrix(turned(x), w))


def read_twice(x, w, b):
    y = prims.exp(x)
    return prims.add(same_matrix(turned(y), w), b), prims.neg(y)


def product_read_twice(x, w, b):
    y = same_matrix(x, w)
    return prims.add(y, b), prims.neg(y)


def folded_graph(program, shapes):
    """What the pass makes of the program, with the same values and specs."""
    graph = graph_of(program, *shapes)
    folded = fold_products(graph)
    inputs = [torch.randn(s, dtype=torch.float64) for s in shapes]
    torch.testing.assert_close(folded.run(*inputs), graph.run(*inputs))
    assert [o.meta["spec"] for o in folded.outputs] == [o.meta["spec"] for o in graph.outputs]
    return folded


def names(graph):
    return [n.target.name for n in graph.calls]


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        (computed, ["exp", "permute", "expand", "reshape", "addmm", "reshape"]),
        (given, ["permute", "expand", "reshape", "addmm", "reshape", "permute"]),
        (read_twice, ["exp", "permute", "expand", "reshape", "addmm", "reshape", "permute", "neg"]),
        (product_read_twice, ["expand", "reshape", "mm", "reshape", "add", "neg"]),
    ],
)
def test_folded(program, wanted):
    shapes = ((3, 5, 4), (4, 6), (6,))
    folded = folded_graph(program, shapes)
    assert names(folded) == wanted
    assert fold_products(folded) is folded


def with_open_batch(size):
    return graph_of(computed, (3, size, 4), (4, 6), (6,))


def test_open_sizes_are_folded():
    folded = fold_products(with_open_batch(SymbolTable().new(5, "batch", 2, None)))
    assert names(folded) == ["exp", "permute", "expand", "reshape", "addmm", "reshape"]


@pytest.mark.parametrize(
    ("program", "shapes"),
    [
        (prims.bmm, ((3, 5, 4), (3, 4, 6))),
        (lambda x, w: same_matrix(prims.permute(x, (0, 2, 1)), w), ((3, 4, 5), (4, 6))),  # the rows are columns in memory
        (lambda x, w: prims.bmm(x, prims.expand(w, (3, 4, 6))), ((3, 5, 4), (1, 4, 6))),
    ],
)
def test_others_stay(program, shapes):
    graph = graph_of(program, *shapes)
    assert fold_products(graph) is graph


@pytest.mark.parametrize(("shape", "dtype"), [((5, 6), torch.float64), ((6,), torch.float64)])
def test_bias_is_a_row(shape, dtype):
    graph = graph_of(lambda x, w, b: prims.add(same_matrix(x, w), b), (3, 5, 4), (4, 6), shape)
    assert ("addmm" in names(fold_products(graph))) == (len(shape) == 1)


def biased(x, w, b):
    return prims.add(prims.reshape(prims.mm(x, w), (3, 5, 6)), b)


def biased_and_read_by_a_loop(x, w, b):
    y = biased(x, w, b)
    return y, prims.exp(y)


def bias_of_rows(x, w, b):
    return prims.add(prims.reshape(prims.mm(x, w), (3, 6, 5)), b)


def read_without_bias(x, w, b):
    y = prims.mm(x, w)
    return prims.add(y, b), prims.permute(y, (1, 0))


@pytest.mark.parametrize(
    ("program", "shapes", "wanted"),
    [
        (biased, ((15, 4), (4, 6), (6,)), ["addmm", "reshape"]),
        (biased_and_read_by_a_loop, ((15, 4), (4, 6), (6,)), ["mm", "reshape", "add", "exp"]),
        (bias_of_rows, ((15, 4), (4, 6), (5,)), ["mm", "reshape", "add"]),
        (read_without_bias, ((15, 4), (4, 6), (6,)), ["mm", "add", "permute"]),
    ],
)
def test_the_library_adds_a_bias_that_a_loop_would_do_nothing_but_add(program, shapes, wanted):
    folded = folded_graph(program, shapes)
    assert names(folded) == wanted


def test_it_is_one_of_the_passes():
    assert fold_products in GRAPH_PASSES

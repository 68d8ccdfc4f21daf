"""Operators that refuse an index: they stay where nobody reads them, and a graph with them says where they are."""

import pytest
import torch
from tracework_primops import OPS, PrimGraph, Tag, aten_graph, checks_indices, decompose, place_of, prims, run_passes

aten = torch.ops.aten
X, I = torch.arange(15.0).reshape(5, 3), torch.tensor([0, 2])  # noqa: E741
CALLS = {
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "index_select": lambda x, i: x.index_select(0, i),
    "embedding": lambda x, i: aten.embedding(x, i),
    "index": lambda x, i: x[i],
    "take": lambda x, i: x.take(i),
    "index_put": lambda x, i: x.index_put((i,), x[:2]),
    "put": lambda x, i: x.put(i, x[0, :2]),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], x, "amax"),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[:2], "amax"),
    "nll_loss": lambda x, i: torch.nn.functional.nll_loss(x[:2], i),
    "nll_loss2d": lambda x, i: torch.nn.functional.nll_loss(x[None, :, :2, None], i[None, :, None]),
    "multi_margin_loss": lambda x, i: torch.nn.functional.multi_margin_loss(x[:2], i),
    "multilabel_margin_loss": lambda x, i: torch.nn.functional.multilabel_margin_loss(x[0, :2], i - 1),
    "embedding_bag": lambda x, i: torch.nn.functional.embedding_bag(i[None], x),
    "max_unpool2d": lambda x, i: aten.max_unpool2d(x[None, None, :2, :1], i[None, None, :, None], [5, 1]),
    "max_unpool3d": lambda x, i: aten.max_unpool3d(
        x[None, None, :2, :1, None], i[None, None, :, None, None], [5, 1, 1], [1] * 3, [0] * 3
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_nobody_reads_stays(name):
    """Each of these refuses an index of 100 on the CPU."""
    with pytest.raises((IndexError, RuntimeError)):
        CALLS[name](X, torch.tensor([0, 100]))
    graph = run_passes(decompose(aten_graph(lambda x, i: (CALLS[name](x, i), x + 1)[1], X, I)))
    assert any(map(checks_indices, graph.calls))
    with pytest.raises((IndexError, RuntimeError)):
        graph.run(X, torch.tensor([0, 100]))
    torch.testing.assert_close(graph.run(X, I), (X + 1,))


def test_only_those_where_indices_from_the_end_are_legal_take_them():
    wraps = (prims.index, prims.index_put, prims.take, prims.put)
    last = torch.tensor([-1])
    calls = {
        prims.index: (X, (last,)),
        prims.index_put: (X, (last,), X[:1]),
        prims.take: (X, last),
        prims.put: (X, last, X[0, :1]),
        prims.gather: (X, 0, last[:, None]),
        prims.index_select: (X, 0, last),
        prims.scatter: (X, 0, last[:, None], X),
        prims.scatter_add: (X, 0, last[:, None], X),
        prims.scatter_reduce: (X, 0, last[:, None], X, "amax"),
        prims.index_add: (X, 0, last, X[:1]),
        prims.index_copy: (X, 0, last, X[:1]),
        prims.index_reduce: (X, 0, last, X[:1], "amax"),
        prims.max_unpool: (X[None, None, :1, :1], last.view(1, 1, 1, 1), (5, 1)),
    }
    assert set(calls) == {op for op in OPS.values() if Tag.CHECKS in op.tags}
    for op, args in calls.items():
        if op in wraps:
            op(*args)
        else:
            with pytest.raises((IndexError, RuntimeError)):
                op(*args)
    assert prims.index(X, (last,), True).tolist() == X[4:].tolist() == prims.index_copy(X * 0, 0, last, X[4:], True)[4:].tolist()
    for call in (lambda: prims.index(X, (last,), False), lambda: prims.index_put(X, (last,), X[:1], False, False)):
        with pytest.raises(IndexError):
            call()


@pytest.mark.parametrize(
    "origin, place",
    [
        ("/home/me/src/model/layers.py:12 in forward embedding", "model/layers.py:12 in forward embedding"),
        ("layers.py:12 in forward embedding", "layers.py:12 in forward embedding"),
        ("/with a space/b c.py:1 in f getitem", "with a space/b c.py:1 in f getitem"),
        ("", ""),
        (None, ""),
    ],
)
def test_places_are_the_same_on_all_machines(origin, place):
    assert place_of(origin) == place


def test_the_fingerprint_tells_places_apart_that_kernels_name():
    def at(target: str, origin: str) -> PrimGraph:
        graph = aten_graph(lambda x, i: x[i] + 1, X, I)
        for node in graph.graph.nodes:
            if target in str(node.target):
                node.meta["origin"] = origin
        return decompose(graph)

    assert at("index", "/a/m.py:1 in f getitem").fingerprint() == at("index", "/b/a/m.py:1 in f getitem").fingerprint()
    assert at("index", "/a/m.py:1 in f getitem").fingerprint() != at("index", "/a/m.py:2 in f getitem").fingerprint()
    assert at("add", "/a/m.py:1 in f add").fingerprint() == at("add", "/a/m.py:2 in f add").fingerprint()

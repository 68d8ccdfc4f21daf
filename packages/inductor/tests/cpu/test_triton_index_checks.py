"""Assertions of Triton kernels in Triton's interpreter: they fail for the indices that the prim's eager rule refuses, and for no others."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch
from tracework_primops import prims as p

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from triton_programs import graph_of, rendered  # noqa: E402

N, WIDTH = 5, 3


def grid(i):
    return p.expand(p.unsqueeze(i, 1), (3, WIDTH))


PROGRAMS = {
    "gather": lambda x, i, y: p.gather(x, 0, grid(i)),
    "index_select": lambda x, i, y: p.index_select(x, 0, i),
    "index": lambda x, i, y: p.index(x, (i,)),
    "index of both": lambda x, i, y: p.index(x, (i, p.remainder(i, WIDTH))),
    "embedding": lambda x, i, y: p.index(x, (p.unsqueeze(i, 1),), False),
    "a part": lambda x, i, y: p.slice(p.index(x, (i,)), 0, 0, 1, 1),
    "joined": lambda x, i, y: p.cat((p.index_select(x, 0, i), x, p.index(x, (i,))), 0),
    "summed": lambda x, i, y: p.sum(p.index_select(x, 0, i), (0,), False, None),
    "of a constant": lambda x, i, y: p.add(p.index_select(p.full((N, WIDTH), 2.0, torch.float32, x.device), 0, i), y),
    "take": lambda x, i, y: p.take(p.slice(x, 1, 0, 1, 1), i),
    "scatter": lambda x, i, y: p.scatter(x, 0, grid(i), y),
    "scatter_add": lambda x, i, y: p.scatter_add(x, 0, grid(i), y),
    "index_add": lambda x, i, y: p.index_add(x, 0, i, y, 2),
    "index_copy": lambda x, i, y: p.index_copy(x, 0, i, y),
    "index_fill": lambda x, i, y: p.index_copy(x, 0, i, y, True),
    "index_put": lambda x, i, y: p.index_put(x, (i,), y),
    "index_put, accumulate": lambda x, i, y: p.index_put(x, (i,), y, True),
    "gradient of an embedding": lambda x, i, y: p.index_put(x, (i,), y, True, False),
}


@pytest.fixture
def assertions(monkeypatch):
    """The interpreter leaves assertions out, as Triton does, unless it is told to debug; integers are not to be looked after then."""
    import triton.runtime.interpreter as interpreter

    monkeypatch.setattr(
        interpreter.interpreter_builder, "options", interpreter.InterpreterOptions(debug=True, sanitize_overflow=False)
    )
    monkeypatch.setattr(
        interpreter.InterpreterBuilder, "create_assert", lambda self, condition, message: _refuse(condition.data.all(), message)
    )


def _refuse(holds, message):
    if not holds:
        raise IndexError(message)


@pytest.mark.parametrize("name", PROGRAMS)
def test_assertions_fail_where_eager_refuses(name, assertions, tmp_path):
    x, y, index = torch.arange(15.0).reshape(N, WIDTH), torch.ones(3, WIDTH), torch.tensor([0, 2, 1])
    graph = graph_of(PROGRAMS[name], x, index, y)
    host, kernels = rendered(graph)
    call = triton_interpreter.host_call(host, kernels, tmp_path)
    refused = []
    for value in (1, -1, -N, -N - 1, N, N + 5, 1 << 32):  # the last one is 0 in 32 bits
        index[1] = value
        try:
            expected = graph.run(x.clone(), index, y)
        except (IndexError, RuntimeError):
            refused.append(value)
            with pytest.raises(Exception, match="index out of range"):  # one of the interpreter's own around ours
                call([x.clone(), index, y])
        else:
            torch.testing.assert_close(call([x.clone(), index, y]), expected)
    assert refused[-3:] == [N, N + 5, 1 << 32]

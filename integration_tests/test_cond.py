"""torch.cond: the arm that the data asks for, in one graph."""

import pytest
import torch
import tracework
from training import BACKENDS, same


def of_a_tensor(x, w):
    y = x * 2
    return torch.cond(y.sum() > 3, lambda a: (a + y).sin(), lambda a: (a @ w).cos(), (x,)) + 1


def several(x, w):
    return torch.cond(x.sum() > 3, lambda a, b: (a.sin(), b + 1), lambda a, b: (a.cos(), b - 1), (x, w))


def on_sizes(x, w):
    return torch.cond(x.shape[0] > 1, lambda a: a.sin(), lambda a: a.cos(), (x,))


def plainly(x, w):
    """What of_a_tensor does."""
    y = x * 2
    return ((x + y).sin() if y.sum() > 3 else (x @ w).cos()) + 1


def severally(x, w):
    return (x.sin(), w + 1) if x.sum() > 3 else (x.cos(), w - 1)


PAIRS = ((of_a_tensor, plainly), (several, severally), (on_sizes, lambda x, w: x.sin()))


@pytest.mark.parametrize(("fn", "plain"), PAIRS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_in_one_graph(fn, plain, backend):
    compiled = tracework.compile(fn, backend=backend, fullgraph=True)
    w = torch.eye(3) * 0.5
    for x in (torch.ones(3, 3), -torch.ones(3, 3), torch.ones(3, 3)):
        found, expected = compiled(x, w), plain(x, w)
        same(found, expected)


def test_writes_are_left_to_plain_python():
    def writes(x, w):
        return torch.cond(x.sum() > 3, lambda a: a.add_(1) * 2, lambda a: a * 3, (x,))

    with pytest.raises(Exception, match="cannot be captured as one graph"):
        tracework.compile(writes, backend="eager", fullgraph=True)(torch.ones(3, 3), torch.eye(3))

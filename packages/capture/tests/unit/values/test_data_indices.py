"""Indices that are ints out of data: the row is gathered where nobody can tell it from the view that plain Python has."""

import pytest
import torch
from tracework_capture import optimize

X = torch.arange(12.0).reshape(3, 4)
ONE, TWO, LAST = (torch.tensor(n) for n in (1, 2, -1))


def rows(x, i, j):
    return x[i] + 1, x[i, 1:] * 2, (x * 2)[i][j], x[i, j] * 1, x[0, i] * 1, x[j, -1] * 1, x[i, [0, 2]] * 1, (x * 3)[i]


def other_ints(x, i, j):
    return x[i.to(torch.int32)] * 2, x[j.to(torch.int8)] * 2


def in_a_chain(x, i, j):
    back = x.argmax(1)
    path = []
    for _ in range(3):
        i = back[i % 3] % 3
        path.append(i)
    return torch.stack(path), x[i] * 2


def stored(x, i, j):
    y = x * 1
    y[i] = 5.0
    y[i, j] = torch.tensor(7)
    y[:, j] = torch.arange(3.0)
    y[j, 1:3] = torch.ones(2)
    y[0, j] = True
    y[i, ..., None] = torch.ones(4, 1) * 3
    y[..., i] = torch.ones(1, 1)
    y[j] = torch.ones(1, 4)
    return y


def counted(x, i, j):
    y = x * 1
    for at in (i, j, i, j - 1):
        y[at] += 1
    y[j] *= 2 - x[1]
    y[i, j] -= 2
    y[0, j] /= 4
    return y


def stored_in_the_argument(x, i, j):
    x[i] = 0
    x[j] = x[j - 1] * 2
    return x * 2


def stored_from_itself(x, i, j):
    y = x * 1
    y[i] = y[0]
    y[j] = y[2] * 2
    return y


def stored_as_other_kinds(x, i, j):
    y = x.long()
    y[i] = torch.ones(4) * 2.5
    y[j] = 3.7
    return y


WHOLE = [rows, other_ints, in_a_chain, stored, stored_from_itself, stored_as_other_kinds, counted]


def returned(x, i, j):
    return x[i], x * 2


def written(x, i, j):
    y = x * 2
    row = y[i]
    row.add_(1)
    return y, row + 1


def written_below(x, i, j):
    y = x * 2
    row = y[i]
    y.add_(1)
    return row * 1, y


def both_leave(x, i, j):
    y = x * 2
    return y, y[i]


def two_views(x, i, j):
    y = x * 2
    return y[i], y[j]


def in_other_memory(x, i, j):
    column = (x * 2)[:, j]
    return column, column.stride(), column.is_contiguous()


def asked_for_identity(x, i, j):
    row = x[i]
    return row is x[i], row + 1


def written_meanwhile(x, i, j):
    y = x * 1

    def add():
        y[1].mul_(3)
        return 1

    y[i] += add()
    return y


def kept_meanwhile(x, i, j):
    y = x * 1

    class Keeps:
        def __radd__(self, row):
            self.row = row
            return row

    class Row(Keeps):
        def __getitem__(self, at):
            self.row = y[at]
            return self.row

        def __setitem__(self, at, row):
            y[at] = row

    rows = Row()
    rows[i] += 1
    return y * 1, rows.row * 1


def asked_for_memory(x, i, j):
    row = (x * 2)[i]
    return row.storage_offset(), row[1:].storage_offset(), row * 1


def asked_for_storage(x, i, j):
    row = (x * 2)[i]
    return row.untyped_storage().size(), row * 1


def strided(x, i, j):
    row = (x * 2)[i]
    return torch.as_strided(row, (2,), (1,), 0) * 1, row.as_strided((2,), (2,), 1) * 1, row * 1


def small_ints_and_masks(x, i, j):
    return x[i.to(torch.uint8)] * 2, x[i > 0] * 2


LEFT = [
    returned,
    written,
    written_below,
    both_leave,
    two_views,
    in_other_memory,
    asked_for_identity,
    asked_for_memory,
    asked_for_storage,
    strided,
    counted,
    small_ints_and_masks,
]


def run(function, x, *places):
    """What it gives, how that lies in memory, the argument, and whether results share memory with it or each other."""
    x = x.clone()
    try:
        found = function(x, *places)
    except IndexError as error:
        return str(error), x.tolist()
    found = found if isinstance(found, tuple) else (found,)
    for result in found:  # what shares memory is seen in the others
        if isinstance(result, torch.Tensor) and result.is_floating_point():
            result.add_(1)
    return [(r.tolist(), r.stride(), r.dtype) if isinstance(r, torch.Tensor) else r for r in found], x.tolist()


@pytest.mark.parametrize("function", [*WHOLE, stored_in_the_argument, *LEFT], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [None, True])
def test_same_as_plain(function, dynamic):
    compiled = optimize(lambda gm, inputs: gm.forward, dynamic=dynamic)(function)
    for places in ((ONE, TWO), (LAST, ONE), (TWO, TWO), (torch.tensor(0), torch.tensor(7)), (torch.tensor(-4), ONE)):
        assert run(compiled, X, *places) == run(function, X, *places)


@pytest.mark.parametrize("function", WHOLE, ids=lambda f: f.__name__)
def test_one_graph(function):
    compiled = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(function)
    assert run(compiled, X, ONE, TWO) == run(function, X, ONE, TWO)


def test_gradients():
    def loss(x, i):
        return x.log_softmax(1)[i].sum() * x[0, i] + (x * 2)[i, i]

    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    loss(x, ONE).backward()
    optimize(lambda gm, inputs: gm.forward, fullgraph=True)(loss)(y, ONE).backward()
    torch.testing.assert_close(y.grad, x.grad)


def test_of_a_function_under_vmap():
    def step(x, i):
        return torch.vmap(lambda row, at: row[at] * 2)(x, i)

    places = torch.tensor([0, 3, 1])
    assert torch.equal(optimize(lambda gm, inputs: gm.forward)(step)(X, places), step(X, places))

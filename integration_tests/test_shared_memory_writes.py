"""What is written to, and what is read, share memory: eager refuses most of it, and what it does not refuse has the value of its loops."""

import pytest
import torch
import tracework

ROWS = torch.tensor([1, 0])
COLUMN = ROWS.reshape(2, 1)

WRITES = {
    "index_add_": lambda x: x.index_add_(0, ROWS, x[:2]),
    "index_add_ of itself": lambda x: x.index_add_(0, torch.arange(4), x),
    "index_copy_": lambda x: x.index_copy_(0, ROWS, x[:2]),
    "index_reduce_": lambda x: x.index_reduce_(0, ROWS, x[:2], "amax"),
    "index_put_": lambda x: x.index_put_((ROWS,), x[:2]),
    "index_put_ that adds": lambda x: x.index_put_((ROWS,), x[:2], accumulate=True),
    "setitem": lambda x: x.__setitem__(ROWS, x[:2]),
    "put_": lambda x: x.put_(ROWS, x[0, :2]),
    "scatter_": lambda x: x.scatter_(0, COLUMN, x[:2]),
    "scatter_add_": lambda x: x.scatter_add_(0, COLUMN, x[:2]),
    "scatter_reduce_": lambda x: x.scatter_reduce_(0, COLUMN, x[:2], "sum"),
    "masked_scatter_": lambda x: x.masked_scatter_(x > 3, x),
    "addmm_": lambda x: x.addmm_(x, x),
    "baddbmm_": lambda x: x[None].baddbmm_(x[None], x[None]),
    "addr_": lambda x: x.addr_(x[0], x[0]),
    "mm into an operand": lambda x: torch.mm(x, x, out=x),
    "sum into a row": lambda x: torch.sum(x, 0, out=x[0]),
    "gather into a column": lambda x: torch.gather(x, 0, COLUMN, out=x[:2, :1]),
    "_foreach_add_": lambda x: torch._foreach_add_([x[1:]], [x[:-1]]),
    "add_": lambda x: x[1:].add_(x[:-1]),
    "copy_": lambda x: x[1:].copy_(x[:-1]),
    "disjoint columns": lambda x: x[:, :2].index_add_(0, ROWS, x[:2, 2:]),
}
INDICES = {
    "index_fill_": lambda i: i.index_fill_(0, i, 3),
    "scatter_": lambda i: i.scatter_(0, i, 3),
    "index_copy_": lambda i: i.index_copy_(0, i, torch.tensor([2, 1, 0])),
    "index_add_": lambda i: i.index_add_(0, i, torch.tensor([2, 1, 0])),
    "index_put_": lambda i: i.index_put_((i,), torch.tensor(2)),
    "masked_fill_": lambda i: i[None].masked_fill_((i > 0)[:, None], 1).shape,
}
PROGRAMS = [(write, lambda: torch.arange(16.0).reshape(4, 4)) for write in WRITES.values()]
PROGRAMS += [(write, lambda: torch.arange(3)) for write in INDICES.values()]
NAMES = [*WRITES, *(f"{name} of indices" for name in INDICES)]


def outcome(function, x):
    try:
        function(x)
    except (RuntimeError, IndexError) as error:
        return f"{type(error).__name__}: {error}", x
    return "", x


@pytest.mark.parametrize("fresh", (False, True), ids=("input", "made"))
@pytest.mark.parametrize("write, make", PROGRAMS, ids=NAMES)
def test_writes_to_what_is_read_are_as_in_eager(write, make, fresh):
    def program(x):
        y = x * 1 if fresh else x
        write(y)
        x.copy_(y)

    error, expected = outcome(program, make())
    ours, value = outcome(tracework.compile(program, backend="aot_eager"), make())
    assert ours == error
    torch.testing.assert_close(value, expected, rtol=0, atol=0)


def test_elements_that_are_changed_where_they_lie():
    """Each once, also behind the last whole vector of a row."""

    def program(x):
        x[:, 1:] = torch.where(torch.arange(20) < 3, 2.0, 3.0) * x[:, 1:]

    values = torch.randn(4, 21), torch.randn(4, 21)
    expected = [x.clone() for x in values]
    for x, y in zip(values, expected, strict=True):
        tracework.compile(program)(x)
        program(y)
        torch.testing.assert_close(x, y, rtol=0, atol=0)

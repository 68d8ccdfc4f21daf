"""Ops whose eager code, or whose gradient, looks at data that the result does not depend on: they compile, with eager's values."""

import pytest
import torch
from tracework_aotautograd import Refusal

MASK = torch.tensor([[True, False, True, False], [False, False, False, True], [True, True, False, False]])
ROWS = torch.tensor([True, False, True])
COLUMNS = torch.tensor([False, True, True, False])
INDEX = torch.tensor([2, 0, 2])
GIVEN = (MASK, ROWS, COLUMNS, INDEX)


def set_mask(x, v, mask, rows, columns, index):
    y = x * 1
    y[mask] = v.sum()
    return (y,)


def set_rows(x, v, mask, rows, columns, index):
    y = x * 2
    y[rows] = v
    return (y.sin(),)


def set_columns(x, v, mask, rows, columns, index):
    y = x * 2
    y[:, columns] = v[:3, None]
    return (y,)


def add_at_rows(x, v, mask, rows, columns, index):
    return (torch.index_put(x, (rows,), v, accumulate=True),)


def through_a_view(x, v, mask, rows, columns, index):
    y = x * 1
    y.t()[columns] = v[:3]
    return (y,)


def no_position(x, v, mask, rows, columns, index):
    return (torch.index_put(x, (rows & False,), v[None]),)


def fill(x, v, mask, rows, columns, index):
    return torch.index_fill(x, 0, index, v.sum()), (x * 1).index_fill_(-1, index, v.prod())


PROGRAMS = {f.__name__: f for f in (set_mask, set_rows, set_columns, add_at_rows, through_a_view, no_position, fill)} | {
    "pairs": lambda x, v, *given: (torch.combinations(v) * x.sum(),),
    "triples with replacement": lambda x, v, *given: (torch.combinations(v, 3, True).cos(), x * 1),
    "none to choose from": lambda x, v, *given: (torch.combinations(v, 7) * x.sum(),),
    "cov": lambda x, v, *given: (torch.cov(x), torch.cov(v * x.sum(), correction=0)),
    "corrcoef": lambda x, v, *given: (torch.corrcoef(x) * v.sum(),),
    "least squares": lambda x, v, *given: (
        torch.linalg.lstsq(x.t(), v, driver="gels").solution,
        torch.linalg.lstsq(x, v[:3]).solution,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiles_with_eagers_values(name, check, real):
    check(PROGRAMS[name], real(3, 4), real(4), *GIVEN)


REFUSED = {
    "a value for each position": lambda x, v, mask, *given: (torch.index_put(x, (mask,), v.repeat(2)[:6]),),
    "weights": lambda x, v, *given: (torch.cov(x * v.sum(), aweights=v.detach()),),
    "ranks": lambda x, v, *given: (torch.linalg.lstsq(x.t(), v, driver="gelsd").solution,),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_depends_on_data_is_refused(name, pair, real):
    with pytest.raises(Refusal, match="data"):
        pair(REFUSED[name], real(3, 4), real(4), *GIVEN)


def test_values_that_do_not_fit_raise_as_eager_does(pair, real):
    program = lambda x, v, mask, rows, *given: (torch.index_put(x, (rows,), v[:3]),)
    with pytest.raises((RuntimeError, IndexError)):
        program(real(3, 4), real(4), *GIVEN)
    with pytest.raises((Refusal, RuntimeError, IndexError)):
        pair(program, real(3, 4), real(4), *GIVEN).call()

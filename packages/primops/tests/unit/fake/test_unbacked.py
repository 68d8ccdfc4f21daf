"""Sizes that depend on data, through the ops that programs apply to them; the sizes are eager's when the counts are."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tracework_primops import DataDependentError, FakeMode, SymbolTable
from tracework_primops.errors import GuardOnUnbackedError

X = torch.arange(24.0).reshape(6, 4).sin()
ROWS = X[:, 0] > 0
PROGRAMS = {
    "nonzero": lambda x, rows: x.nonzero().float() + 1,
    "rows of positions": lambda x, rows: x[rows.nonzero()[:, 0]],
    "elements": lambda x, rows: x[x > 0].exp(),
    "masked_select": lambda x, rows: x.masked_select(x > 0).cumsum(0),
    "rows": lambda x, rows: x[rows] @ torch.ones(4, 5),
    "rows and columns": lambda x, rows: x[rows, 1:3],
    "a mask in the middle": lambda x, rows: x.T[:, rows],
    "softmax": lambda x, rows: torch.softmax(x[rows], -1),
    "layer_norm": lambda x, rows: F.layer_norm(x[rows], (4,)),
    "linear": lambda x, rows: F.linear(x[rows], torch.ones(3, 4), torch.ones(3)).relu().sum(),
    "cat": lambda x, rows: torch.cat([x[rows], x]),
    "pad": lambda x, rows: F.pad(x[rows], (0, 0, 0, 2)),
    "views": lambda x, rows: x[rows].reshape(-1, 2, 2).flatten(1).t().contiguous(),
    "one mask twice": lambda x, rows: x[rows] + x[rows] * 2,
    "select after nonzero": lambda x, rows: x[rows].sum() / rows.nonzero().shape[0],
    "reductions": lambda x, rows: x[rows].max(1).values + x[rows].argmax(1),
    "sort": lambda x, rows: x[x > 0].sort().values,
    "repeats": lambda x, rows: x.repeat_interleave(rows.long(), 0),
    "write": lambda x, rows: x.index_put((rows,), torch.tensor(0.0)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes(name):
    expected = PROGRAMS[name](X, ROWS)
    table = SymbolTable()
    mode = FakeMode(table, allow_unbacked=True)
    x, rows = mode.from_real(X), mode.from_real(ROWS)
    with mode:
        found = PROGRAMS[name](x, rows).spec
    counts = {6: int(ROWS.sum()), 24: int((X > 0).sum())}
    number = (
        counts[24]
        if name in ("elements", "masked_select", "sort")
        else int(X.count_nonzero())
        if name == "nonzero"
        else counts[6]
    )
    at = {s: number for s in table.symbols}
    values = [s if isinstance(s, int) else s.evaluate(at) for s in (*found.sizes, *found.strides)]
    assert values == [*expected.shape, *expected.stride()]
    assert not table.conditions


def test_a_written_mask_counts_anew():
    mode = FakeMode(SymbolTable(), allow_unbacked=True)
    x, rows = mode.from_real(X), mode.from_real(ROWS)
    with mode:
        before = x[rows]
        rows.logical_not_()
        assert x[rows].spec.sizes != before.spec.sizes
        with pytest.raises(GuardOnUnbackedError, match=r"torch\._check"):
            before + x[rows]


def test_masks_are_refused_without_the_option():
    mode = FakeMode(SymbolTable())
    x = mode.from_real(X)
    for program in ("elements", "masked_select", "nonzero"):
        with mode, pytest.raises(DataDependentError):
            PROGRAMS[program](x, None)

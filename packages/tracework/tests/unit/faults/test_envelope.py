"""What is within the envelope around float64, and what is not."""

import pytest
import torch
from tracework.faults.envelope import compare

X = torch.linspace(1, 2, 5, dtype=torch.float64)
INF, NAN = float("inf"), float("nan")
ROWS = (
    # mine, eager's, float64's, kind of difference
    (X.float(), X.float(), X, None),
    (X.float() * (1 + 1e-6), X.float(), X, None),
    (X.float() * (1 + 1e-4), X.float(), X, "values"),
    (X.float() * (1 + 1e-4), X.float() * (1 - 5e-5), X, None),  # eager is off as far
    (X.bfloat16(), X.bfloat16(), X, None),
    (X.double(), X.float(), X, "layout"),
    (X[:4], X, X, "layout"),
    (torch.ones(2, 2).t()[:, :1], torch.ones(2, 1), None, None),  # strides of one element do not matter
    (torch.ones(2, 3).t(), torch.ones(3, 2), None, "layout"),
    (torch.tensor([INF, NAN, 1.0]), torch.tensor([INF, NAN, 1.0]), None, None),
    (torch.tensor([INF, 2.0]), torch.tensor([-INF, 2.0]), None, "values"),
    (torch.tensor([NAN, 2.0]), torch.tensor([1.0, 2.0]), None, "values"),
    (torch.tensor([1, 2]), torch.tensor([1, 3]), torch.tensor([1, 3]), "values"),
    (torch.tensor([1, 2]), torch.tensor([1, 3]), torch.tensor([1, 2]), None),  # eager decides otherwise than float64
    (torch.tensor([1 + 1j]), torch.tensor([1 - 1j]), None, "values"),
    (torch.empty(0), torch.empty(0), None, None),
    (3, 3, None, None),
    (3, 4, None, "values"),
)


@pytest.mark.parametrize("mine, eagers, best, kind", ROWS)
def test_envelope(mine, eagers, best, kind):
    found = compare([mine], [eagers], None if best is None else [best])
    assert (found and found.kind) == kind, found


def test_other_numbers_of_results():
    assert compare([1], [], None).kind == "layout"

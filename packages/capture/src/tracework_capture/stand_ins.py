"""Python that is traced in place of functions of torch that ask data which way to go: both ways are computed, and the data choose."""

import torch
from torch.distributions import constraints

__all__ = ["STAND_INS"]


def definite_check(self, value):
    """check() of torch.distributions' constraints on positive definite and semidefinite matrices."""
    symmetric = constraints._Symmetric.check(self, value)
    if value.shape[-1] != value.shape[-2]:
        return symmetric
    if isinstance(self, constraints._PositiveDefinite):
        found = torch.linalg.cholesky_ex(value).info.eq(0)
    else:
        found = torch.linalg.eigvalsh(value).ge(0).all(-1)
    return torch.where(symmetric.all(), found, symmetric)


STAND_INS = {
    constraints._PositiveDefinite.check: definite_check,
    constraints._PositiveSemidefinite.check: definite_check,
}
"""Function of torch -> what is traced for it."""

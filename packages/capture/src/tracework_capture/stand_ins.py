"""Python that is traced in place of functions of libraries: of torch those that ask data which way to go, where both ways are computed
and the data choose; of logging those that take locks to remember answers."""

import logging

import torch
from torch.distributions import constraints

__all__ = ["STAND_INS", "effective_level", "is_enabled_for"]


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


def is_enabled_for(self, level):
    """Logger.isEnabledFor"""
    return not self.disabled and self.manager._disable < level and level >= self.getEffectiveLevel()


def effective_level(self):
    """Logger.getEffectiveLevel"""
    while self is not None:
        if self.level:
            return self.level
        self = self.parent
    return logging.NOTSET


STAND_INS = {
    constraints._PositiveDefinite.check: definite_check,
    constraints._PositiveSemidefinite.check: definite_check,
}
"""Function of torch -> what is traced for it."""

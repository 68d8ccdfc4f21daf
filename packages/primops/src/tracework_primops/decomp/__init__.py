"""DECOMPS: ATen overload -> function written in prims; select(profile) gives a profile's rows."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .._torch import OpOverload
from . import (
    activation,
    attention,
    conv,
    creation,
    foreach,
    indexing,
    loss,
    matmul,
    memory,
    normalization,
    pointwise,
    quantization,
    reduction,
    rng,
    scan,
    view,
    window,
)
from .determinism import deterministic_changes
from .numerics import NUMERICS, contract_changes
from .table import DECOMPS, Rule, decomposition

PROFILES = ("prims", "core_aten", "none")

__all__ = ["DECOMPS", "NUMERICS", "PROFILES", "Rule", "contract_changes", "decomposition", "deterministic_changes", "select"]

_FAMILIES = (creation, indexing, matmul, memory, pointwise, reduction, rng, scan, view, conv, window)
_COMPOSITES = (activation, attention, foreach, loss, normalization, quantization)


def select(profile: str, changes: Mapping[OpOverload, Rule | None] | None = None) -> dict[OpOverload, Rule]:
    """The rows of a profile: "prims" all, "core_aten" those of ops outside core ATen, "none" nothing.

    `changes` adds or replaces rows, or removes them with None. Raises ValueError for an unknown profile.
    """
    if profile not in PROFILES:
        raise ValueError(f"unknown decomposition profile {profile!r}; known: {', '.join(PROFILES)}")
    if profile == "none":
        rows: dict[OpOverload, Rule] = {}
    elif profile == "core_aten":
        rows = {op: row for op, row in DECOMPS.items() if torch.Tag.core not in op.tags}
    else:
        rows = DECOMPS
    if not changes:
        return rows
    rows = dict(rows)
    for op, row in changes.items():
        if row is None:
            rows.pop(op, None)
        else:
            rows[op] = row
    return rows

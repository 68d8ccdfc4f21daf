"""EXTERN_FACTS: what speaks against recording a library call, by operator."""

from __future__ import annotations

import functools

import torch

__all__ = ["EXTERN_FACTS", "why_unrecordable"]

WAITS = "waits"
COLLECTIVE = "collective"
UNSAFE = "unsafe"

WAITING = (
    "equal is_nonzero segment_reduce _to_sparse cholesky matrix_exp linalg_matrix_exp _linalg_check_errors linalg_eig _linalg_eigh"
    " _linalg_svd linalg_ldl_factor_ex"
).split()
"""Of ATen; torch's tags do not say so."""
WAITING_PRIMS = "nonzero masked_select unique repeat_interleave bincount".split()

EXTERN_FACTS: dict[str, str] = {
    **{f"aten::{name}": WAITS for name in WAITING},
    **{f"prims::{name}": WAITS for name in WAITING_PRIMS},
    "aten::index": "",  # masks among its indices are operators of their own
    "_c10d_functional::*": COLLECTIVE,
    "_c10d_functional_autograd::*": COLLECTIVE,
    "c10d::*": COLLECTIVE,
    "c10d_functional::*": COLLECTIVE,
}
"""Operator, or all of a namespace -> why its kernels for a GPU are not recorded, a row of CUDAGRAPH_REFUSALS; empty for one that is, whatever
its tags. Operators that wait only for some arguments are tried: an error while recording is caught."""

TAGS: dict[torch.Tag, str] = {
    torch.Tag.data_dependent_output: WAITS,
    torch.Tag.dynamic_output_shape: WAITS,
    torch.Tag.cudagraph_unsafe: UNSAFE,
}
"""What the tags of other operators say, custom ones included."""


@functools.cache
def why_unrecordable(operator: str) -> str:
    """The fact about an operator such as "aten::mm"; empty for one that is recorded."""
    namespace, _, name = operator.partition("::")
    for key in (operator, f"{namespace}::*"):
        if key in EXTERN_FACTS:
            return EXTERN_FACTS[key]
    packet = getattr(getattr(torch.ops, namespace, None), name, None) if name else None
    overloads = packet.overloads() if packet is not None and hasattr(packet, "overloads") else ()
    tags = {tag for overload in overloads for tag in getattr(packet, overload).tags}
    return next((why for tag, why in TAGS.items() if tag in tags), "")

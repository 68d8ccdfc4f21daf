"""Which functions of torch go into the graph: those of NAMESPACES that are operators, or pure Python functions of tensors."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ..._torch.functions import present
from ..._torch.operators import NATIVE_NAMESPACES, VF, OpOverload, OpOverloadPacket, operator_names

SCALED = "scaled_mm scaled_grouped_mm _expand_single_value _enum_list_as_int_list _list_or_empty"
"""Functions that take members of TORCH_ENUMS, which are no arguments of nodes, and what they call."""

INLINED = {
    F.multi_head_attention_forward,
    F.gaussian_nll_loss,  # asks data
    F.triplet_margin_with_distance_loss,  # calls a function that it is given
    *present(F, ("linear_cross_entropy", "_linear_cross_entropy_chunked_applies")).values(),  # take an object with options
    *present(F, ("_in_projection_packed", "_verify_batch_size", *SCALED.split())).values(),
}
"""Python functions of torch that are traced into although their namespace goes into the graph."""


NAMESPACES = {
    torch: "",
    **NATIVE_NAMESPACES,
    torch.nn.functional: "",
    torch.functional: "",
    torch.linalg: "linalg_",
    torch.fft: "fft_",
    torch.special: "special_",
    VF: "",
}
"""Namespaces whose operators go into the graph -> how the names of those operators begin."""

PYTHON_SPACES = {"torch.functional", "torch.nn.functional", "torch._jit_internal"}
"""Modules whose Python functions go into the graph, too: pure functions of tensors."""

OTHER_OPERATORS = frozenset(
    "sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum dsmm hsmm saddmm spmm segment_reduce _segment_reduce".split()
)
"""Pure functions of tensors or sizes without an operator of their name."""

NOT_PURE = frozenset("_add_docstr _overload _jit_unused boolean_dispatch handle_torch_function cond from_file".split())
"""Functions that share a name with an operator, or live among functions of tensors, and are neither."""


@functools.cache
def functions_of_namespaces() -> set[Callable[..., Any]]:
    """All functions that go into the graph, by identity."""
    operators = operator_names()
    found: set[Callable[..., Any]] = set()
    for space, prefix in NAMESPACES.items():
        for name in dir(space):
            fn = getattr(space, name, None)
            if name in NOT_PURE and space is not torch.linalg:
                continue
            if isinstance(fn, types.FunctionType):
                if fn.__module__ in PYTHON_SPACES and not name.startswith("__") or name in OTHER_OPERATORS:
                    found.add(fn)
            elif isinstance(fn, types.BuiltinFunctionType):
                if name in operators or prefix + name in operators or name in OTHER_OPERATORS:
                    found.add(fn)
    return found - INLINED


def is_graph_function(fn: Callable[..., Any]) -> bool:
    """Whether calls of fn are nodes."""
    if isinstance(fn, (OpOverload, OpOverloadPacket)):
        return True
    try:
        return fn in functions_of_namespaces()
    except TypeError:
        return False

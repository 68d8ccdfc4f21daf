"""NUMERICS: how near a compiled program is to eager's bits, in one word, and which ATen ops stay with eager's kernel for it.

A contract is kept from the safe side: of the ops it is about, only those in EXACT are written in prims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from .._torch import OpOverload
from ..op import PrimValue, Scalar
from ..promotion import float_dtype, result_dtype
from .table import DECOMPS, Operand, Rule

NUMERICS: Mapping[str, frozenset[str]] = {
    "default": frozenset(),
    "strict_pointwise": frozenset({"pointwise"}),
    "strict_reduction": frozenset({"reduction"}),
    "strict": frozenset({"pointwise", "reduction"}),
}
"""word -> what has eager's bits: ops on single elements, and ops that add or multiply elements up."""

KINDS: Mapping[str, frozenset[str]] = {
    "pointwise": frozenset("pointwise activation foreach loss quantization rng creation window".split()),
    "reduction": frozenset("reduction normalization loss scan matmul conv attention window foreach".split()),
}
"""kind -> modules of decompositions whose rows it is about."""

SUMS = frozenset(
    "embedding_dense_backward unfold_backward put index_reduce index_put _unsafe_index_put scatter_add scatter_reduce index_add _unsafe_masked_index"
    " _unsafe_masked_index_put_accumulate".split()
)
"""Ops among those that read and write places which add up what meets at one place."""

EXACT_POINTWISE = frozenset(
    "neg sign sgn abs floor ceil trunc round relu threshold threshold_backward leaky_relu leaky_relu_backward _prelu_kernel"
    " square reciprocal bitwise_not bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift logical_not"
    " __lshift__ __rshift__"
    " logical_and logical_or logical_xor isnan isinf isfinite isposinf isneginf signbit eq ne lt le gt ge maximum minimum fmax"
    " fmin copysign heaviside nan_to_num where masked_fill real imag _conj full zeros ones empty empty_strided"
    " new_empty_strided full_like zeros_like ones_like empty_like new_full new_zeros new_ones new_empty fill scalar_tensor eye"
    " _efficientzerotensor".split()
)
"""Their prims, each rounded to its dtype, are what eager's kernels do: one correctly rounded operation, or a selection. Of complex numbers
those in COMPLEX_ARITHMETIC are several operations, in an order of each kernel's own.

sqrt is none of them: eager's vectorised one on a CPU is not rounded to nearest everywhere.
"""

COMPLEX_ARITHMETIC = frozenset("mul div pow square reciprocal abs sgn".split())

EXACT_REDUCTIONS = frozenset(
    "amax amin aminmax max min argmax argmin any all count_nonzero pixel_shuffle pixel_unshuffle channel_shuffle"
    " native_channel_shuffle max_pool2d_with_indices max_pool3d_with_indices".split()
)
"""Their result does not depend on an order."""


def contract_changes(word: str) -> dict[OpOverload, Rule | None]:
    """What `decompose(changes=...)` takes so that a program keeps the contract. Raises ValueError for an unknown word."""
    if word not in NUMERICS:
        raise ValueError(f"unknown numerics {word!r}; known: {', '.join(NUMERICS)}")
    changes: dict[OpOverload, Rule | None] = {}
    for op, row in DECOMPS.items():
        name, module = op._schema.name.partition("::")[2], row.__module__.rpartition(".")[2]
        kinds = {kind for kind in NUMERICS[word] if module in KINDS[kind] or kind == "reduction" and name in SUMS}
        exact_when = SOMETIMES_EXACT.get(name)
        if "pointwise" in kinds and name in COMPLEX_ARITHMETIC:
            exact_when = _of_reals(exact_when)
        elif not kinds or name in EXACT_POINTWISE or name in EXACT_REDUCTIONS:
            continue
        changes[op] = None if exact_when is None else _only(exact_when, row)
    return changes


def _only(exact_when: Callable[..., bool], row: Rule) -> Rule:
    return lambda *args, **kwargs: row(*args, **kwargs) if exact_when(*args, **kwargs) else NotImplemented


def _of_reals(exact_when: Callable[..., bool] | None) -> Callable[..., bool]:
    """The same where no operand is complex."""

    def is_exact(*args: Any, **kwargs: Any) -> bool:
        if any(isinstance(x, complex) or x.__class__ is PrimValue and x.dtype.is_complex for x in args):
            return False
        return exact_when is None or exact_when(*args, **kwargs)

    return is_exact


def _exact_sum(a: Operand, b: Operand, *args: Scalar, alpha: Scalar = 1) -> bool:
    """Eager multiplies by alpha without rounding, and rounds a number to a half dtype on a CPU but not on a GPU."""
    alpha = args[0] if args else alpha
    dtype = result_dtype(a, b)
    return alpha == 1 and _exact_tensors(dtype, a, b) and all(_is_value_of(dtype, x) for x in (a, b))


def _exact_product(a: Operand, b: Operand) -> bool:
    return _exact_tensors(result_dtype(a, b), a, b)


def _exact_quotient(a: PrimValue, b: Operand, *, rounding_mode: str | None = None) -> bool:
    """On a GPU eager divides by a number by multiplying with its reciprocal."""
    by_tensor = b.__class__ is PrimValue and b.ndim > 0
    return rounding_mode is None and _exact_tensors(float_dtype(a, b), a, b) and (by_tensor or a.device.type == "cpu")


def _exact_tensors(dtype: torch.dtype, *operands: Operand) -> bool:
    """Of a half result: eager does not round a tensor of one element and another dtype before it computes."""
    return dtype.itemsize != 2 or all(x.dtype is dtype for x in operands if x.__class__ is PrimValue)


def _is_value_of(dtype: torch.dtype, x: Operand) -> bool:
    """Whether a number is the same in a half dtype; tensors are."""
    if dtype.itemsize != 2 or not dtype.is_floating_point or x.__class__ is PrimValue:
        return True
    return isinstance(x, (int, float)) and torch.tensor(x, dtype=torch.float64).to(dtype).item() == x


def _exact_bounds(x: Any, *bounds: Any, **named: Any) -> bool:
    """Which of -0.0 and a bound of 0.0 is taken differs from kernel to kernel."""
    return all(b is None or isinstance(b, (int, float)) and b != 0 for b in (*bounds, *named.values()))


SOMETIMES_EXACT: Mapping[str, Callable[..., bool]] = {
    "add": _exact_sum,
    "sub": _exact_sum,
    "rsub": _exact_sum,
    "mul": _exact_product,
    "div": _exact_quotient,
    "pow": lambda a, b: b.__class__ is not PrimValue and b == 2,
    "clamp": _exact_bounds,
    "clamp_min": _exact_bounds,
    "clamp_max": _exact_bounds,
    "hardtanh": _exact_bounds,
}
"""op -> for which arguments its row is as one of EXACT_POINTWISE."""

"""Functions of torch that have private names, and what they do in this release."""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.distributions import constraints, distribution

neg_view = torch._neg_view
is_all_true = torch._is_all_true
int_mm = torch._int_mm
is_any_true = torch._is_any_true
shape_as_tensor = torch._shape_as_tensor
torch_assert = torch._assert
assert_async = torch._assert_async
assert_scalar = torch.ops.aten._assert_scalar.default
check_with = torch._check_with
check_tensor_all_with = torch._check_tensor_all_with
check_is_size = torch._check_is_size
PACKED_SEQUENCES = (torch._pack_padded_sequence, torch._pad_packed_sequence)
FUSED_ATTENTION = (torch._native_multi_head_attention, torch._transformer_encoder_layer_fwd)


def present(space: Any, names: Iterable[str]) -> dict[str, Any]:
    """What a namespace of torch has under these names, of which each release has some."""
    return {name: getattr(space, name) for name in names if hasattr(space, name)}


BOUNDS_TAKE_GRADIENTS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 14)
"""Whether a clamp has no gradient where an element is its bound, a number; where it is a bound in a tensor each gets a half of it."""


@functools.cache
def nan_alone_is_no_bound() -> bool:
    """Whether a clamp with one bound that is nan leaves all elements, without a gradient (torch 2.11), in the place of making them nan."""
    return not torch.zeros(1).clamp(max=math.nan).isnan().item()


@functools.cache
def foreach_gives_lists() -> bool:
    """Whether a function that writes to the tensors of a list gives the list; nothing in older versions of torch."""
    zero: Callable[..., Any] = torch._foreach_zero_
    return zero([torch.zeros(())]) is not None


def failed_check(message: Any) -> Exception:
    """What torch._check raises with this constant for a message: from torch 2.15 on it may be a text."""
    try:
        torch._check(False, message)
    except (RuntimeError, TypeError) as error:
        return error
    raise AssertionError("torch._check(False) did not raise")


@functools.cache
def text_of_failed_check() -> str:
    """What torch._check and its like say where the program says nothing."""
    return str(failed_check(None))


Symmetric: Any = constraints._Symmetric
PositiveDefinite: Any = constraints._PositiveDefinite
PositiveSemidefinite: Any = constraints._PositiveSemidefinite
asserts_all: Any = getattr(distribution, "_all_true_or_runtime_assert", None)
"""What tells whether a tensor that distributions made holds (torch 2.15)."""


def pytree_row(kind: type) -> tuple[Any, Any] | None:
    """(flatten, unflatten) of a class that torch.utils._pytree knows, None when it does not."""
    row = torch.utils._pytree.SUPPORTED_NODES.get(kind)
    return None if row is None else (row.flatten_fn, row.unflatten_fn)


pytree_flatten = torch.utils._pytree.tree_flatten
tree_leaves = torch.utils._pytree.tree_leaves
tree_map_only = torch.utils._pytree.tree_map_only


CANONICAL_MASK: Any = torch.nn.functional._canonical_mask
"""Makes an attention mask of floats of one of booleans."""

qualified_name: Callable[[Any], str] = torch.fx.node._get_qualified_name
"""The dotted name under which a function is found; raises RuntimeError or AttributeError where there is none."""

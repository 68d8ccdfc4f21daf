"""The only file of this package that touches private torch names; each is wrapped under a name of ours."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

disabled_torch_function = torch._C._disabled_torch_function_impl
OpOverload = torch._ops.OpOverload
SizeTypes = (torch.SymInt, torch.SymFloat, torch.SymBool)


def storage_key(tensor: torch.Tensor) -> int:
    """A number that two tensors have in common when they share a storage, as long as the storage lives."""
    return tensor.untyped_storage()._cdata


def weak_storage(tensor: torch.Tensor) -> StorageWeakRef:
    """A weak reference to the storage, with `expired()`."""
    return StorageWeakRef(tensor.untyped_storage())


def has_kernel(func: OpOverload, key: str) -> bool:
    """Whether the dispatcher has a kernel of its own for this key."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)


def has_computed_kernel(func: OpOverload, key: str) -> bool:
    """Whether the dispatcher finds a kernel for this key, its own or through an alias key."""
    return torch._C._dispatch_has_computed_kernel_for_dispatch_key(func.name(), key)


def below_autograd():
    """Guard under which autograd does not see what is done to a tensor."""
    return torch._C._AutoDispatchBelowAutograd()


def set_bits(tensor: torch.Tensor, conjugate: bool, negative: bool) -> None:
    """The lazy bits that say that memory holds the conjugate or the negative of the values."""
    torch._C._set_conj(tensor, conjugate)
    torch._C._set_neg(tensor, negative)


def node_name(graph: torch.fx.Graph, target: Any) -> str:
    """What a node that calls this function is named after."""
    return graph._target_to_str(target)


def python_kernel(func: OpOverload, key: str) -> Any:
    """The Python function that torch registered for this dispatch key, or None."""
    return func.py_kernels.get(getattr(torch._C.DispatchKey, key))


__all__ = [
    "OpOverload",
    "SizeTypes",
    "TorchDispatchMode",
    "below_autograd",
    "disabled_torch_function",
    "has_computed_kernel",
    "has_kernel",
    "node_name",
    "set_bits",
    "python_kernel",
    "storage_key",
    "weak_storage",
]

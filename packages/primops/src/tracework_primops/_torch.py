"""The only file of this package that touches private torch names; each is wrapped under a name of ours."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.fx
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

disabled_torch_function = torch._C._disabled_torch_function_impl
no_torch_function = torch._C.DisableTorchFunction
make_wrapper_subclass = torch.Tensor._make_wrapper_subclass
fused_sdp_choice = torch._fused_sdp_choice
safe_softmax = torch._safe_softmax
scaled_mm = torch._scaled_mm
grouped_mm = torch._grouped_mm
int_mm = torch._int_mm
lazy_conjugate = torch.ops.aten._conj.default
lazy_negative = torch.ops.aten._neg_view.default
unsafe_view = torch.ops.aten._unsafe_view
"""A view that counts as a tensor of its own: nobody else shows its memory."""
unique2 = torch.ops.aten._unique2

_RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
ADDMV_CONVERTS = _RELEASE < (2, 13)
"""Whether addmv copies what is added into the product's dtype, whatever its own; later it is refused unless it has the product's."""
ARANGE_COUNTS_BROKEN_STEPS = _RELEASE >= (2, 14)
"""Whether an arange of int64 counts its elements before it cuts its ends and its step to integers, as other dtypes' always did."""
CLAMPS_AT_LIMITS = _RELEASE >= (2, 15)
"""Whether a bound that an integer dtype cannot hold bounds as the dtype's limit does; before, it wrapped around or was refused."""
GROUP_NORM_GRADIENT_TAKES_ANY_ORDER = _RELEASE >= (2, 14)
"""Before, the kernel reads gradient and image in the order of one, whatever it is given, and autograd copies them."""

COMPOSITES_TAKE_SYMBOLS = _RELEASE >= (2, 13)
"""Before, `matmul` and `linear` ask for plain numbers where a size is symbolic."""


def present(space: Any, names: Iterable[str]) -> dict[str, Any]:
    """What a namespace of torch has under these names, of which each release has some."""
    return {name: getattr(space, name) for name in names if hasattr(space, name)}


def storage_key(tensor: torch.Tensor) -> int:
    """A number that two tensors have in common when they share a storage, as long as the storage lives."""
    return tensor.untyped_storage()._cdata


def weak_storage(tensor: torch.Tensor) -> StorageWeakRef:
    """A weak reference to the storage, with `expired()`."""
    return StorageWeakRef(tensor.untyped_storage())


def has_kernel(func: OpOverload, key: str) -> bool:
    """Whether the dispatcher has a kernel of its own for this key."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)


def below_autograd() -> AbstractContextManager[object]:
    """Guard under which autograd does not see what is done to a tensor."""
    return torch._C._AutoDispatchBelowAutograd()


def set_bits(tensor: torch.Tensor, conjugate: bool, negative: bool) -> None:
    """The lazy bits that say that memory holds the conjugate or the negative of the values."""
    torch._C._set_conj(tensor, conjugate)
    torch._C._set_neg(tensor, negative)


deny_data_pointer = torch._C._set_throw_on_mutable_data_ptr  # also for C++ code that asks, as the makers of DLPack capsules do


def may_be_written(tensor: torch.Tensor) -> bool:
    """Whether autograd lets an operator write to this view: it has a formula of its own, and its base is no leaf, whether or not that one
    requires gradients: of a leaf that is a view itself, other views share the base."""
    plain = torch._C._autograd._get_creation_meta(tensor) == torch._C._autograd.CreationMeta.DEFAULT
    return plain and not (tensor.requires_grad and tensor._base.is_leaf)


def in_dual_level() -> bool:
    """Whether the program is in a level of forward-mode AD of its own, and in no transform of torch.func."""
    return torch.autograd.forward_ad._current_level >= 0 and not torch._C._are_functorch_transforms_active()


def node_name(graph: torch.fx.Graph, target: Any) -> str:
    """What a node that calls this function is named after."""
    return graph._target_to_str(target)


def python_kernel(func: OpOverload, key: str) -> Callable[..., Any] | None:
    """The Python function that torch registered for this dispatch key, or None."""
    return func.py_kernels.get(getattr(torch._C.DispatchKey, key))


def fake_kernel(func: OpOverload) -> Callable[..., Any] | None:
    """The function that torch.library.register_fake was given for the op, or None."""
    kernel = torch._library.simple_registry.singleton.find(func.name()).fake_impl.kernel
    return None if kernel is None else kernel.func


def fake_context(context: object) -> AbstractContextManager[object]:
    """A with-block in which torch.library.get_ctx() gives `context`."""
    return torch._library.fake_impl.set_ctx_getter(lambda: context)


def composite_of_cpp(func: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """The call by torch's composite in C++, whatever Python functions its compiler has registered in its place when it was loaded."""
    return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def onednn_convolves(x: torch.Tensor, weight: torch.Tensor, *window: Any) -> bool:
    """Whether eager gives this convolution to oneDNN, by rules of its own about sizes, dtypes and the CPU."""
    backend = torch._C._select_conv_backend(x, weight, None, *window, None)
    return torch._C._conv_determine_backend_memory_format(x, weight, backend) is not torch.contiguous_format


_COMPOSITE_KEY = "DeferredInit"  # above autograd and autocast; torch itself has no kernel for it and gives it to no tensor
COMPOSITE_KEYS = torch._C.DispatchKeySet(torch._C._parse_dispatch_key(_COMPOSITE_KEY))


class CompositeKernels:
    """Kernels that only tensors made with COMPOSITE_KEYS reach; every other op falls through the key."""

    def __init__(self) -> None:
        self._fallback = torch.library.Library("_", "IMPL", _COMPOSITE_KEY)
        self._fallback.fallback(torch.library.fallthrough_kernel, _COMPOSITE_KEY)
        self._aten = torch.library.Library("aten", "IMPL", _COMPOSITE_KEY)

    def add(self, name: str, kernel: Callable[..., Any]) -> None:
        """Registers a kernel for an ATen overload, given as `upsample_nearest2d.vec`."""
        self._aten.impl(name, kernel, _COMPOSITE_KEY)


def without_composite_key() -> AbstractContextManager[object]:
    """Guard under which COMPOSITE_KEYS are not looked at."""
    return torch._C._ExcludeDispatchKeyGuard(COMPOSITE_KEYS)


_onednn = threading.RLock()


@contextlib.contextmanager
def without_onednn() -> Iterator[None]:
    """No kernel of oneDNN is chosen; one thread at a time, since the switch is the process's."""
    with _onednn:
        was = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(False)
        try:
            yield
        finally:
            torch._C._set_mkldnn_enabled(was)


def autocasts(func: OpOverload, device_type: str) -> bool:
    """Whether autocast is on for this device and does something about the op."""
    if not torch.is_autocast_enabled(device_type):
        return False
    return has_kernel(func, f"Autocast{device_type.upper()}")


def wait_tensor() -> Any:
    """The operator that waits for a collective; where torch has any."""
    return torch.ops._c10d_functional.wait_tensor.default


__all__ = [
    "ARANGE_COUNTS_BROKEN_STEPS",
    "CLAMPS_AT_LIMITS",
    "COMPOSITES_TAKE_SYMBOLS",
    "GROUP_NORM_GRADIENT_TAKES_ANY_ORDER",
    "COMPOSITE_KEYS",
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "CompositeKernels",
    "TorchDispatchMode",
    "autocasts",
    "below_autograd",
    "composite_of_cpp",
    "deny_data_pointer",
    "disabled_torch_function",
    "fake_context",
    "fake_kernel",
    "fused_sdp_choice",
    "grouped_mm",
    "no_torch_function",
    "present",
    "has_kernel",
    "in_dual_level",
    "int_mm",
    "make_wrapper_subclass",
    "node_name",
    "onednn_convolves",
    "python_kernel",
    "safe_softmax",
    "scaled_mm",
    "set_bits",
    "storage_key",
    "wait_tensor",
    "weak_storage",
    "without_composite_key",
    "without_onednn",
]

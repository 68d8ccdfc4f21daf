"""FakeTensor: a wrapper subclass without data that dispatches every ATen call to fake/dispatch.py."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from .. import _torch
from ..spec import TensorSpec
from ..symbols.expr import Expr
from .storage import FakeStorage

if TYPE_CHECKING:
    from .mode import FakeMode


class FakeTensor(torch.Tensor):
    """A tensor with everything but data. Made by FakeMode; holds `spec`, `mode`, `storage`.

    `constant` is the value of a 0-dim fake made from a number, when known; `constant_tensor` the real tensor that `torch.tensor(data)` made;
    `is_parameter` says that it stands for an nn.Parameter;
    `is_symbolic` that some size, stride or the offset is an expression.
    """

    __torch_function__ = _torch.disabled_torch_function

    spec: TensorSpec
    mode: FakeMode
    storage: FakeStorage
    is_symbolic: bool = False
    constant: Any = None
    constant_tensor: torch.Tensor | None = None
    is_parameter: bool = False

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        for a in args:
            if a.__class__ is FakeTensor:
                return a.mode.dispatch(func, args, kwargs or {})
        return find_mode(func, args, kwargs or {}).dispatch(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents=None) -> str:
        grad = ", requires_grad" if self.requires_grad else ""
        return f"FakeTensor({self.spec}, storage {self.storage.id}{grad})"

    def __deepcopy__(self, memo):
        return self.mode.make(self.spec, requires_grad=self.requires_grad)

    def __reduce_ex__(self, protocol):
        raise TypeError("a FakeTensor has no data to pickle; save its spec")


def find_mode(func: Any, *containers: Any) -> FakeMode:
    """The mode of the first fake found in nested lists, tuples and dicts."""
    for container in containers:
        for item in container.values() if isinstance(container, dict) else container:
            if item.__class__ is FakeTensor:
                return item.mode
            if isinstance(item, (list, tuple, dict)):
                mode = find_mode(None, item)
                if mode is not None:
                    return mode
    if func is None:
        return None
    raise TypeError(f"{func}: no fake tensor among the arguments")


_make = torch.Tensor._make_wrapper_subclass
EMPTY_STORAGE = {"storage_size": 0}  # otherwise C++ computes a symbolic number of bytes for each tensor


def make_fake(mode: FakeMode, spec: TensorSpec, storage: FakeStorage, requires_grad: bool = False) -> FakeTensor:
    """A new fake of this spec over this storage."""
    sizes, strides, offset = spec.sizes, spec.strides, spec.offset
    symbolic = False
    if mode.table is not None:
        for size in sizes:
            if size.__class__ is not int:
                symbolic = True
        for stride in strides:
            if stride.__class__ is not int:
                symbolic = True
        if offset.__class__ is not int:
            symbolic = True
    if symbolic:
        carry = mode.table.to_symint
        sizes, strides, offset = [carry(s) for s in sizes], [carry(s) for s in strides], carry(offset)
    extra = EMPTY_STORAGE if symbolic else {}
    fake = _make(
        FakeTensor,
        sizes,
        strides=strides,
        storage_offset=offset,
        dtype=spec.dtype,
        device=spec.device,
        requires_grad=requires_grad,
        **extra,
    )
    fake.spec = spec
    fake.mode = mode
    fake.storage = storage
    if symbolic:
        fake.is_symbolic = True
    storage._views.append(weakref.ref(fake))
    return fake


def has_symbols(spec: TensorSpec) -> bool:
    """Whether any size, stride or the offset is an expression."""
    return any(isinstance(s, Expr) for s in (*spec.sizes, *spec.strides, spec.offset))

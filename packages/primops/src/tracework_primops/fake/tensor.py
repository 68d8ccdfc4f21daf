"""FakeTensor: a wrapper subclass without data that dispatches every ATen call to fake/dispatch.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from .. import _torch
from .._torch import OpOverload
from ..errors import FakeTensorError
from ..spec import TensorSpec
from .memo import Template
from .storage import FakeStorage

if TYPE_CHECKING:
    from .mode import FakeMode


TENSOR_DATA: Any = torch.Tensor.data
SLOTS = ("spec", "mode", "storage")
"""Faster than the dict that a torch.Tensor has, and all that most fakes have. Written inside of the class, type checkers would take it for
all that a fake may have."""


class FakeTensor(torch.Tensor):
    """A tensor with everything but data. Made by FakeMode; holds `spec`, `mode`, `storage`.

    `constant` is the value of a 0-dim fake made from a number, when known; `constant_tensor` the real tensor that `torch.tensor(data)` made;
    `is_parameter` says that it stands for an nn.Parameter;
    `is_symbolic` that some size, stride or the offset is an expression; `has_bits` that torch's conjugate or negative bit is set.
    """

    __torch_function__ = _torch.disabled_torch_function
    __slots__ = SLOTS

    spec: TensorSpec
    mode: FakeMode
    storage: FakeStorage
    is_symbolic: bool = False
    has_bits: bool = False
    constant: Any = None
    constant_tensor: torch.Tensor | None = None
    is_parameter: bool = False

    @classmethod
    def __torch_dispatch__(
        cls, func: OpOverload, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for kind in types:
            if kind is not cls:
                return NotImplemented
        for a in args:
            if a.__class__ is FakeTensor:
                return a.mode.dispatch(func, args, kwargs or {})
        mode = find_mode(args, (kwargs or {}).values())
        if mode is None:
            raise TypeError(f"{func}: no fake tensor among the arguments")
        return mode.dispatch(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents: object = None) -> str:
        grad = ", requires_grad" if self.requires_grad else ""
        return f"FakeTensor({self.spec}, storage {self.storage.id}{grad})"

    def __format__(self, spec: str) -> str:
        """As the number that a tensor without dims is."""
        return format(self.item(), spec) if spec and self.dim() == 0 else object.__format__(self, spec)

    @property
    def data(self) -> torch.Tensor:
        """As `Tensor.data`; what is assigned gives its memory, sizes and dtype."""
        return TENSOR_DATA.__get__(self)

    @data.setter
    def data(self, other: torch.Tensor) -> None:
        fake = self.mode.from_real(other)
        TENSOR_DATA.__set__(self, fake)
        self.spec, self.storage, self.is_symbolic = fake.spec, fake.storage, fake.is_symbolic
        self.constant, self.constant_tensor = fake.constant, fake.constant_tensor
        self.has_bits = fake.has_bits

    def __copy__(self) -> FakeTensor:
        return self._like(self.storage)

    def __deepcopy__(self, memo: dict[int, Any]) -> FakeTensor:
        """In new memory; what shared memory and is copied in one go shares it again."""
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol")
        storage = memo.setdefault(id(self.storage), FakeStorage())
        made = memo[id(self)] = self._like(storage)
        return made

    def _like(self, storage: FakeStorage) -> FakeTensor:
        made = make_fake(self.mode, self.spec, storage, self.requires_grad)
        made.is_parameter, made.constant, made.constant_tensor = self.is_parameter, self.constant, self.constant_tensor
        if self.has_bits:
            set_bits(made, self.is_conj(), self.is_neg())
        return made

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a FakeTensor has no data to pickle; save its spec")

    def _needs_data(self, *args: object, **kwargs: object) -> NoReturn:
        raise FakeTensorError(
            "a FakeTensor has no data to share with others, to export or to turn into numbers; break the graph before"
        )

    numpy = tolist = share_memory_ = pin_memory = __array__ = __dlpack__ = _needs_data


def find_mode(*containers: Iterable[Any]) -> FakeMode | None:
    """The mode of the first fake found in nested lists, tuples and dicts."""
    for container in containers:
        for item in container:
            if isinstance(item, FakeTensor):
                return item.mode
            if isinstance(item, (list, tuple, dict)):
                mode = find_mode(item.values() if isinstance(item, dict) else item)
                if mode is not None:
                    return mode
    return None


_make = _torch.make_wrapper_subclass
_deny_data_pointer = _torch.deny_data_pointer


def make_fake(mode: FakeMode, spec: TensorSpec, storage: FakeStorage, requires_grad: bool = False) -> FakeTensor:
    """A new fake of this spec over this storage."""
    fake = from_template(mode, mode.memo.template(spec), storage)
    if requires_grad:
        fake.requires_grad_()
    return fake


def set_bits(fake: FakeTensor, conjugate: bool, negative: bool) -> None:
    """The lazy bits, and a note of them on the fake, because torch takes a microsecond to tell them."""
    _torch.set_bits(fake, conjugate, negative)
    fake.has_bits = conjugate or negative


def from_template(mode: FakeMode, template: Template, storage: FakeStorage) -> FakeTensor:
    """As make_fake, with what was prepared."""
    fake = _make(FakeTensor, **template.options)
    _deny_data_pointer(fake)
    fake.spec = template.spec
    fake.mode = mode
    fake.storage = storage
    if template.is_symbolic:
        fake.is_symbolic = True
    return fake

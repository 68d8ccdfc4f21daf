"""Real tensors to fakes, once per tensor and mode, keeping storage identity, leafness and memory format."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .. import _torch
from ..errors import FakeTensorError
from ..spec import TensorSpec
from ..symbols.expr import Expr, Size
from .storage import FakeStorage
from .tensor import FakeTensor, make_fake, set_bits

if TYPE_CHECKING:
    from .mode import FakeMode


class Converter:
    """The memo of one mode; holds real tensors and storages weakly."""

    def __init__(self, mode: FakeMode) -> None:
        self._mode = mode
        self._fakes: dict[int, tuple[weakref.ref[torch.Tensor], FakeTensor]] = {}
        self._storages: dict[int, tuple[Any, FakeStorage]] = {}

    def fake_of(self, tensor: torch.Tensor, sizes: Sequence[Size] | None, strides: Sequence[Size] | None) -> FakeTensor:
        """The fake of this tensor. Raises FakeTensorError for layouts that have no strides."""
        if tensor.__class__ is FakeTensor:
            return self._same_mode(tensor)
        known = self._fakes.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        fake = self._convert(tensor, sizes, strides)
        self._fakes[id(tensor)] = (weakref.ref(tensor, self._forgetting(id(tensor))), fake)
        return fake

    def _forgetting(self, key: int) -> Callable[[weakref.ref[torch.Tensor]], None]:
        """Drops the fake of a tensor that died: one with a grad_fn is in a cycle through autograd's nodes, where no collector looks."""
        fakes = self._fakes

        def forget(dead: weakref.ref[torch.Tensor]) -> None:
            if key in fakes and fakes[key][0] is dead:
                del fakes[key]

        return forget

    def forget(self) -> None:
        """Drops what is known of real tensors."""
        self._fakes.clear()
        self._storages.clear()

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether this tensor has been made fake before."""
        known = self._fakes.get(id(tensor))
        return known is not None and known[0]() is tensor

    def _same_mode(self, fake: FakeTensor) -> FakeTensor:
        if fake.mode is not self._mode:
            raise FakeTensorError("from_real got a fake of another mode")
        return fake

    def _convert(self, tensor: torch.Tensor, sizes: Sequence[Size] | None, strides: Sequence[Size] | None) -> FakeTensor:
        if tensor.layout is not torch.strided:
            raise FakeTensorError(
                f"from_real: a tensor of layout {tensor.layout} has no fake form; break the graph before it is used"
            )
        real_sizes = tuple(tensor.size())
        sizes = real_sizes if sizes is None else tuple(sizes)
        if strides is None:
            strides = tensor.stride() if sizes == real_sizes else scaled_strides(real_sizes, tensor.stride(), sizes)
        spec = TensorSpec(tensor.dtype, tensor.device, sizes, tuple(strides), tensor.storage_offset())
        storage = self._storage_of(tensor)
        storage.first = storage.first or spec
        if tensor.requires_grad and not tensor.is_leaf:
            with torch.inference_mode(False):  # where nothing has a history
                fake = self._as_result(make_fake(self._mode, spec, storage, False), tensor)
        else:
            fake = make_fake(self._mode, spec, storage, tensor.requires_grad)
        if tensor.is_conj() or tensor.is_neg():
            set_bits(fake, tensor.is_conj(), tensor.is_neg())
        fake.is_parameter = isinstance(tensor, torch.nn.Parameter)
        return fake

    def _as_result(self, fake: FakeTensor, tensor: torch.Tensor) -> FakeTensor:
        """A fake that autograd takes for the result of an operation rather than a leaf; one that is a view where the tensor is, and
        refuses writes where that does."""
        recorder, self._mode.recorder = self._mode.recorder, None
        try:
            with torch.enable_grad():
                result = fake.requires_grad_()
                if not tensor._is_view() or _torch.may_be_written(tensor):
                    result = torch.ops.aten.clone.default(result)
                if tensor._is_view():
                    result = torch.ops.aten.alias.default(result)
        finally:
            self._mode.recorder = recorder
        result.spec, result.storage = fake.spec, fake.storage
        return result

    def _storage_of(self, tensor: torch.Tensor) -> FakeStorage:
        key = _torch.storage_key(tensor)
        known = self._storages.get(key)
        if known is not None and not known[0].expired():
            return known[1]
        storage = FakeStorage()
        storage.real = True
        self._storages[key] = (_torch.weak_storage(tensor), storage)
        return storage


def scaled_strides(
    old_sizes: Sequence[int],
    old_strides: Sequence[int],
    sizes: Sequence[Size],
    gap: Callable[[int], Size | None] = lambda dim: None,
) -> tuple[Size, ...]:
    """Strides over new (symbolic) sizes in the order of the old ones; one that is no product of the sizes inside of it is what `gap` gives for
    the dim, or stays a number."""
    order = sorted(range(len(sizes)), key=lambda d: (old_strides[d], -d if old_sizes[d] == 1 else 0, -d))
    strides: list[Size] = list(old_strides)
    step: Size = 1
    old_step = 1
    for dim in order:
        if old_strides[dim] != old_step:
            found = gap(dim)
            step, old_step = old_strides[dim] if found is None else found, old_strides[dim]
        strides[dim] = step
        if old_strides[dim] != 0:
            size = sizes[dim]
            step = size * step if isinstance(size, Expr) else step * max(size, 1)
            old_step *= max(old_sizes[dim], 1)
    return tuple(strides)

"""Convolutions and linear layers whose weights are kept in the library's own layout until the tensors that they are made of change.

Whether these changed is read from their bytes, at each call: a version counter does not see `weight.data.mul_(2)`, nor a write through
NumPy or by another library. The digest runs at the speed of memory, which is far less than what it saves: without it, the library
lays the weights out anew at each call, and a normalisation takes a pass over the results.

Calls that need the same packed weights share them; they are freed with the last of these, or with the tensors that they were made of.
"""

from __future__ import annotations

import ctypes
import secrets
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tracework_runtime import _torch

__all__ = ["KEY_BYTES", "Convolution", "Linear", "Packed", "packed_bytes", "packed_convolution", "packed_linear"]

KEY_BYTES = 4 * 8192
"""What the digest kernel takes (inductor/codegen/cpp/digest.py)."""
_KEYS = ctypes.create_string_buffer(secrets.token_bytes(KEY_BYTES), KEY_BYTES)
"""Drawn once a process, so that no data can be made to collide."""

LINEAR_ROWS = 16
"""Rows that weights of linear layers are packed for. From two on the library's layout is the same for any number; for one it has another,
which is no faster, and takes twice the time where more rows come."""


class Weights:
    """What is kept."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self.nbytes = _torch.packed_nbytes(weight) + (bias.nbytes if bias is not None else 0)


_SHARED: weakref.WeakValueDictionary[tuple[Any, ...], Weights] = weakref.WeakValueDictionary()
"""By what they were made of, and how."""


def packed_bytes() -> int:
    """Bytes of all packed weights of this process."""
    return sum(kept.nbytes for kept in list(_SHARED.values()))


@dataclass(frozen=True)
class Convolution:
    """What is made of the sources is (weight, scale of each output channel or None, bias or None)."""

    activation: str
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def layout(self, x: torch.Tensor) -> tuple[int, ...]:
        """What the layout depends on beside these settings."""
        return tuple(x.shape)

    def pack(self, x: torch.Tensor, made: Sequence[torch.Tensor | None]) -> Weights:
        """Weights in the library's layout."""
        weight, scale, bias = made
        assert weight is not None
        if scale is not None:
            weight = weight * scale.reshape(-1, 1, 1, 1)
        return Weights(_torch.pack_convolution(weight.contiguous(), *self._settings(), list(x.shape)), _copied(bias))

    def call(self, x: torch.Tensor, other: torch.Tensor | None, kept: Weights) -> torch.Tensor:
        """Convolves x, adds other if it is not None, and applies the activation."""
        if other is not None:
            return _torch.convolution_plus(x, other, kept.weight, kept.bias, *self._settings(), "add", 1.0, None, [], None)
        return _torch.convolution_then(x, kept.weight, kept.bias, *self._settings(), self.activation, [], None)

    def _settings(self) -> tuple[Any, ...]:
        return self.padding, self.stride, self.dilation, self.groups


@dataclass(frozen=True)
class Linear:
    """What is made of the sources is (matrix, bias or None); the matrix is the second one of a product, as torch.mm takes it."""

    def layout(self, x: torch.Tensor) -> tuple[int, ...]:
        """What the layout depends on."""
        return ()

    def pack(self, x: torch.Tensor, made: Sequence[torch.Tensor | None]) -> Weights:
        """Weights in the library's layout."""
        matrix, bias = made
        assert matrix is not None
        return Weights(_torch.pack_linear(matrix.t().contiguous(), LINEAR_ROWS), _copied(bias))

    def call(self, x: torch.Tensor, other: torch.Tensor | None, kept: Weights) -> torch.Tensor:
        """Rows times the matrix, plus the bias; there is no other."""
        return _torch.linear_then(x, kept.weight, kept.bias, "none", [], "")


def _copied(bias: torch.Tensor | None) -> torch.Tensor | None:
    """Of sources that are taken as they are, a copy: what is kept must not change with them."""
    return bias.contiguous().clone() if bias is not None else None


class Packed:
    """`self(x, other, *sources)` computes what its kind says, with what make(*sources) gives."""

    def __init__(
        self, kind: Convolution | Linear, digest: Callable[..., Any], make: Callable[..., Sequence[torch.Tensor | None]]
    ) -> None:
        self._kind, self._digest, self._make = kind, digest, make
        self._kept: tuple[bytes, Weights, list[Any]] | None = None

    def __call__(self, x: torch.Tensor, other: Any, *sources: torch.Tensor) -> torch.Tensor:
        digest, kept = self._digest_of(sources), self._kept
        weights = kept[1] if kept is not None and kept[0] == digest else self._anew(digest, x, sources)
        return self._kind.call(x, other, weights)

    def _digest_of(self, sources: Sequence[torch.Tensor]) -> bytes:
        count = len(sources)
        addresses = (ctypes.c_void_p * count)(*[s.data_ptr() for s in sources])
        lengths = (ctypes.c_int64 * count)(*[s.nbytes for s in sources])
        found = ctypes.create_string_buffer(16 * count)
        self._digest(addresses, lengths, count, _KEYS, found)
        return found.raw

    def _anew(self, digest: bytes, x: torch.Tensor, sources: Sequence[torch.Tensor]) -> Weights:
        code = self._make.__code__
        how = self._kind, self._kind.layout(x), code.co_code, repr(code.co_consts), code.co_names
        key = digest, *how, *((s.dtype, tuple(s.shape), s.stride()) for s in sources)
        found = _SHARED.get(key)
        if found is None:
            with torch.no_grad():
                found = self._kind.pack(x, self._make(*(s.detach() for s in sources)))
        kept = digest, found, self._until_freed(sources)
        if self._digest_of(sources) == digest:  # else another thread wrote to them meanwhile
            _SHARED[key], self._kept = found, kept
        return found

    def _until_freed(self, sources: Sequence[torch.Tensor]) -> list[Any]:
        """References whose end, that of any tensor's memory, is the end of what is kept."""
        packed = weakref.ref(self)

        def forget(_: Any) -> None:
            if (held := packed()) is not None:
                held._kept = None

        return [weakref.ref(s.untyped_storage(), forget) for s in sources]


def packed_convolution(digest: Callable[..., Any], make: Callable[..., Sequence[torch.Tensor | None]], *settings: Any) -> Packed:
    """As a host program writes it; the last of settings is a label that tells equal convolutions apart."""
    activation, stride, padding, dilation, groups, _ = settings
    return Packed(Convolution(activation, tuple(stride), tuple(padding), tuple(dilation), groups), digest, make)


def packed_linear(digest: Callable[..., Any], make: Callable[..., Sequence[torch.Tensor | None]], label: str) -> Packed:
    """As a host program writes it; the label tells equal layers apart."""
    return Packed(Linear(), digest, make)

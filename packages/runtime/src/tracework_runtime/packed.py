"""Convolutions whose weights are kept in the library's own layout until the tensors that they are made of change.

Whether these changed is read from their bytes, at each call: a version counter does not see `weight.data.mul_(2)`, nor a write through
NumPy or by another library. The digest runs at the speed of memory, which is far less than what it saves: without it, the library
lays the weights out anew at each call, and a normalisation takes a pass over the results.
"""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tracework_runtime import _torch

__all__ = ["KEY_BYTES", "PackedConvolution", "packed_convolution"]

KEY_BYTES = 4 * 8192
"""What the digest kernel takes (inductor/codegen/cpp/digest.py)."""
_KEYS = ctypes.create_string_buffer(secrets.token_bytes(KEY_BYTES), KEY_BYTES)
"""Drawn once a process, so that no data can be made to collide."""

Made = tuple[torch.Tensor, "torch.Tensor | None", "torch.Tensor | None"]


class PackedConvolution:
    """`self(x, other, *sources)` convolves x, adds other if it is not None, and applies an activation.

    make(*sources) gives (weight, scale of each output channel or None, bias or None).
    """

    def __init__(
        self,
        digest: Callable[..., Any],
        make: Callable[..., Made],
        activation: str,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
    ) -> None:
        self._digest, self._make, self._activation = digest, make, activation
        self._stride, self._padding, self._dilation, self._groups = stride, padding, dilation, groups
        self._kept: tuple[bytes, torch.Tensor, torch.Tensor | None] = (b"", torch.empty(0), None)

    def __call__(self, x: torch.Tensor, other: torch.Tensor | None, *sources: torch.Tensor) -> torch.Tensor:
        digest = self._digest_of(sources)
        kept = self._kept
        if kept[0] != digest:
            kept = self._kept = (digest, *self._pack(x, sources))
        settings = (self._padding, self._stride, self._dilation, self._groups)
        if other is not None:
            return _torch.convolution_plus(x, other, kept[1], kept[2], *settings, "add", 1.0, None, [], None)
        return _torch.convolution_then(x, kept[1], kept[2], *settings, self._activation, [], None)

    def _digest_of(self, sources: Sequence[torch.Tensor]) -> bytes:
        count = len(sources)
        addresses = (ctypes.c_void_p * count)(*[s.data_ptr() for s in sources])
        lengths = (ctypes.c_int64 * count)(*[s.nbytes for s in sources])
        found = ctypes.create_string_buffer(16 * count)
        self._digest(addresses, lengths, count, _KEYS, found)
        return found.raw

    def _pack(self, x: torch.Tensor, sources: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor | None]:
        with torch.no_grad():
            weight, scale, bias = self._make(*(s.detach() for s in sources))
            if scale is not None:
                weight = weight * scale.reshape(-1, 1, 1, 1)
            # Of sources that are taken as they are, a copy: what is kept must not change with them.
            bias = bias.contiguous().clone() if bias is not None else None
            settings = (self._padding, self._stride, self._dilation, self._groups, list(x.shape))
            packed = _torch.pack_convolution(weight.contiguous(), *settings)
        return packed, bias


def packed_convolution(digest: Callable[..., Any], make: Callable[..., Made], *settings: Any) -> PackedConvolution:
    """As a host program writes it; the last of settings is a label that tells equal convolutions apart."""
    return PackedConvolution(digest, make, *settings[:-1])

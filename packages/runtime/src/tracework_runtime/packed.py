"""Convolutions and linear layers whose weights are kept in the library's own layout until the tensors that they are made of change.

Whether these changed is read from their bytes, at each call: a version counter does not see `weight.data.mul_(2)`, nor a write through
NumPy or by another library. The digest runs at the speed of memory, which is less than what it saves: without it, the library lays the
weights out anew at each call, and a normalisation takes a pass over the results. Bytes that were the same twice are watched from then
on, where the kernel can (page_watch.py), and read again only when a page of theirs was written to. A program looks once, as it begins, at
what all its calls are made of: 49 looks, one before each convolution of a small model, took a tenth of its step.

Calls that need the same packed weights share them; they are freed with the last of these, or with the tensors that they were made of.
All together take MOST_OF_MEMORY of the memory that there is, at most; what comes later is packed by the library at each call.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
import secrets
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tracework_runtime import _torch, huge_pages
from tracework_runtime.page_watch import Block, watch

__all__ = [
    "KEY_BYTES",
    "Convolution",
    "Linear",
    "Packed",
    "PackedCalls",
    "most_bytes",
    "packed_bytes",
    "packed_convolution",
    "packed_linear",
]

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


MOST_OF_MEMORY = 0.25


@functools.cache
def most_bytes() -> int:
    """Bytes that packed weights may take in all: of the machine's memory, or what the process is limited to."""
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        limit = "max"
    return int(MOST_OF_MEMORY * (min(there, int(limit)) if limit.isdigit() else there))


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

    def once(self, x: torch.Tensor, other: torch.Tensor | None, made: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """The same with nothing kept."""
        return self.call(x, other, self.pack(x, made))

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

    def once(self, x: torch.Tensor, other: torch.Tensor | None, made: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """The same with nothing kept."""
        matrix, bias = made
        assert matrix is not None
        return torch.mm(x, matrix) if bias is None else torch.addmm(bias, x, matrix)

    def call(self, x: torch.Tensor, other: torch.Tensor | None, kept: Weights) -> torch.Tensor:
        """Rows times the matrix, plus the bias; there is no other."""
        return _torch.linear_then(x, kept.weight, kept.bias, "none", [], "")


def _copied(bias: torch.Tensor | None) -> torch.Tensor | None:
    """Of sources that are taken as they are, a copy: what is kept must not change with them."""
    return bias.contiguous().clone() if bias is not None else None


Places = list[tuple[int, int]]
"""Addresses and lengths."""


def _places(sources: Sequence[torch.Tensor]) -> Places:
    return [(s.data_ptr(), s.nbytes) for s in sources]


def _is_there(source: torch.Tensor) -> bool:
    """Whether its storage has the bytes of a tensor: storages are made smaller to give memory back for a while."""
    return source.storage_offset() * source.itemsize + source.nbytes <= source.untyped_storage().nbytes()


def _may_be_pinned(source: torch.Tensor) -> bool:
    """Whether a GPU may write to it; a fork of a process that has used one cannot ask."""
    try:
        return source.is_pinned()
    except RuntimeError:
        return True


class _Digest:
    """Says what lies at places, in 16 bytes for each."""

    def __init__(self, digest: Callable[..., Any], places: Places) -> None:
        self._digest, self._count = digest, len(places)
        self._addresses = (ctypes.c_void_p * self._count)(*[address for address, _ in places])
        self._lengths = (ctypes.c_int64 * self._count)(*[length for _, length in places])

    def now(self) -> bytes:
        """Of the bytes as they are."""
        found = ctypes.create_string_buffer(16 * self._count)
        self._digest(self._addresses, self._lengths, self._count, _KEYS, found)
        return found.raw


def _digest_of(digest: Callable[..., Any], places: Places) -> bytes:
    return _Digest(digest, places).now()


class _Watch:
    """Says whether sources are as they were when it was made; what is less than a page is read for that."""

    def __init__(self, digest: Callable[..., Any], sources: Sequence[torch.Tensor]) -> None:
        self._places = _places(sources)
        self._blocks: list[tuple[Block, int]] = []
        rest: Places = []
        for source, (address, length) in zip(sources, self._places, strict=True):
            block = watch(address, length) if length >= LEAST_WATCHED and not _may_be_pinned(source) else None
            if block is None:
                rest.append((address, length))
                continue
            self._blocks.append((block, block.writes))
            ends = (address, block.start - address), (block.end, address + length - block.end)
            rest += [end for end in ends if end[1]]
        self._rest = _Digest(digest, rest)
        self._found = self._rest.now()

    def as_they_were(self, sources: Sequence[torch.Tensor]) -> bool:
        """Whether they lie where they lay, and nothing was written there."""
        if _places(sources) != self._places or any(block.looked_at() != writes for block, writes in self._blocks):
            return False
        return self._rest.now() == self._found


LEAST_WATCHED = 1 << 16
"""Bytes; fewer are read as quickly."""
MOST_WATCHES = 4
"""Of one program, and then of each of its calls: weights that are written to again and again are read, and who writes is not held up."""


@dataclass(frozen=True)
class _Kept:
    digest: bytes
    weights: Weights
    until_freed: list[Any]
    watch: _Watch | None = None


Known = dict[int, Weights]
"""Number of a call -> what it has found out since its program watches, of sources that are as they were."""


class PackedCalls:
    """The calls of one program, in its order: it looks at their sources together, as it begins."""

    def __init__(self, digest: Callable[..., Any]) -> None:
        self.digest = digest
        self.count = 0
        self.settled: set[int] = set()
        """The calls that were called, and whose sources did not end since."""
        self._watched: tuple[_Watch, Known, list[Any]] | None = None
        self._watches = 0

    @property
    def watches(self) -> bool:
        """Whether it watches for its calls, and none for itself."""
        return self._watches < MOST_WATCHES

    def look(self, *sources: torch.Tensor) -> Known:
        """What is known of the calls with these sources, those of all calls one after the other: each adds what it finds out."""
        watched = self._watched
        if watched is not None and watched[0].as_they_were(sources):
            return watched[1]
        self._watched = None
        known: Known = {}
        if self.watches and len(self.settled) == self.count and all(map(_is_there, sources)):
            self._watches += 1
            # Before calls read them: what is written from now on is seen.
            self._watched = _Watch(self.digest, sources), known, _until_freed(sources, self)
        return known

    def forget(self) -> None:
        """Nothing is known."""
        self._watched = None


class Packed:
    """`self(x, other, known, *sources)` computes what its kind says, with what make(*sources) gives; known: what the program's look gave."""

    def __init__(
        self, kind: Convolution | Linear, program: PackedCalls, make: Callable[..., Sequence[torch.Tensor | None]]
    ) -> None:
        self._kind, self._program, self._make = kind, program, make
        self._kept: _Kept | None = None
        self._watches = 0
        self._keeps = True
        self._number = program.count
        program.count += 1

    def __call__(self, x: torch.Tensor, other: Any, known: Known, *sources: torch.Tensor) -> torch.Tensor:
        weights = known.get(self._number)
        if weights is not None:
            return self._kind.call(x, other, weights)
        kept = self._kept
        if kept is not None and kept.watch is not None and kept.watch.as_they_were(sources):
            return self._kind.call(x, other, kept.weights)
        if not self._keeps or not all(map(_is_there, sources)):  # what is not there raises, as in eager
            return self._kind.once(x, other, self._made(sources))
        weights = self._read(kept, x, sources)
        if self._keeps:
            known[self._number] = weights
        return self._kind.call(x, other, weights)

    def _read(self, kept: _Kept | None, x: torch.Tensor, sources: Sequence[torch.Tensor]) -> Weights:
        """The packed weights, by the bytes of the sources."""
        digest_of, watched = self._program.digest, None
        if kept is not None and not self._program.watches and self._watches < MOST_WATCHES:  # before they are read, too
            self._watches += 1
            watched = _Watch(digest_of, sources)
        digest = _digest_of(digest_of, _places(sources))
        if kept is None or kept.digest != digest:
            return self._anew(digest, x, sources)
        if watched is not None or kept.watch is not None:
            self._kept = dataclasses.replace(kept, until_freed=_until_freed(sources, self), watch=watched)
        return kept.weights

    def _anew(self, digest: bytes, x: torch.Tensor, sources: Sequence[torch.Tensor]) -> Weights:
        code = self._make.__code__
        how = self._kind, self._kind.layout(x), code.co_code, repr(code.co_consts), code.co_names
        key = digest, *how, *((s.dtype, tuple(s.shape), s.stride()) for s in sources)
        found = _SHARED.get(key)
        if found is None:
            with torch.no_grad():
                found = self._kind.pack(x, self._made(sources))
            if packed_bytes() + found.nbytes > most_bytes():
                self._keeps = False
                self._program.settled.add(self._number)
                return found
            huge_pages.gather(_torch.packed_address(found.weight), _torch.packed_nbytes(found.weight))
        kept = _Kept(digest, found, _until_freed(sources, self))
        if _digest_of(self._program.digest, _places(sources)) == digest:  # else another thread wrote to them meanwhile
            _SHARED[key], self._kept = found, kept
            self._program.settled.add(self._number)
        return found

    def _made(self, sources: Sequence[torch.Tensor]) -> Sequence[torch.Tensor | None]:
        return self._make(*(s.detach() for s in sources))

    def forget(self) -> None:
        """Nothing is kept."""
        self._kept = None
        self._program.settled.discard(self._number)


def _until_freed(sources: Sequence[torch.Tensor], keeper: PackedCalls | Packed) -> list[Any]:
    """References whose end, that of any tensor's memory, is the end of what is kept."""
    held = weakref.ref(keeper)

    def forget(_: Any) -> None:
        if (known := held()) is not None:
            known.forget()

    return [weakref.ref(s.untyped_storage(), forget) for s in sources]


def packed_convolution(program: PackedCalls, make: Callable[..., Sequence[torch.Tensor | None]], *settings: Any) -> Packed:
    """As a host program writes it; the last of settings is a label that tells equal convolutions apart."""
    activation, stride, padding, dilation, groups, _ = settings
    return Packed(Convolution(activation, tuple(stride), tuple(padding), tuple(dilation), groups), program, make)


def packed_linear(program: PackedCalls, make: Callable[..., Sequence[torch.Tensor | None]], label: str) -> Packed:
    """As a host program writes it; the label tells equal layers apart."""
    return Packed(Linear(), program, make)

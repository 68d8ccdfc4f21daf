"""TensorSpec: everything about a tensor but its data. SizeSpec: a symbolic integer that is a graph value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

import torch

from . import _torch
from .symbols.expr import Expr, Size
from .symbols.layout import contiguous_strides, is_contiguous, product


class Frozen:
    """Instances cannot be changed after construction; fields are the slots."""

    __slots__: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; use replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    @classmethod
    def _fields(cls) -> list[str]:
        return [name for name in cls.__slots__ if not name.startswith("_")]

    def _key(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self._fields()])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and type(other) is type(self) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[Any, ...]]:
        return type(self), self._key()

    def replace(self, **changes: Any) -> Self:
        """A copy with these fields changed."""
        fields = {name: getattr(self, name) for name in self._fields()}
        fields.update(changes)
        return type(self)(**fields)


class TensorSpec(Frozen):
    """dtype, device, sizes, strides and storage offset of a tensor; sizes are `int | Expr`."""

    __slots__ = ("dtype", "device", "sizes", "strides", "offset", "_symbolic")
    dtype: torch.dtype
    device: torch.device
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size
    _symbolic: bool | None

    def __init__(
        self,
        dtype: torch.dtype,
        device: torch.device,
        sizes: tuple[Size, ...],
        strides: tuple[Size, ...] | None = None,
        offset: Size = 0,
    ) -> None:
        _set_dtype(self, dtype)
        _set_device(self, device)
        _set_sizes(self, sizes)
        _set_strides(self, contiguous_strides(sizes) if strides is None else strides)
        _set_offset(self, offset)
        _set_symbolic(self, None)  # worked out when first asked for

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, TensorSpec)
            and self.dtype is other.dtype
            and self.sizes == other.sizes
            and self.strides == other.strides
            and self.offset == other.offset
            and self.device == other.device
        )

    def __hash__(self) -> int:
        return hash((self.dtype, self.device, self.sizes, self.strides, self.offset))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.sizes)

    def numel(self) -> Size:
        """The number of elements."""
        return product(self.sizes)

    @property
    def is_contiguous(self) -> bool:
        """Whether the strides are those of a freshly made row-major tensor (dimensions of size 1 do not matter)."""
        return is_contiguous(self.sizes, self.strides)

    @property
    def is_symbolic(self) -> bool:
        """Whether any size, stride or the offset is an expression."""
        known = self._symbolic
        if known is None:
            known = any([isinstance(s, Expr) for s in (*self.sizes, *self.strides, self.offset)])
            _set_symbolic(self, known)
        return known

    def __repr__(self) -> str:
        text = f"{DTYPE_TEXT[self.dtype]}[{', '.join(map(str, self.sizes))}]"
        if self.strides != contiguous_strides(self.sizes):
            text += f" strides ({', '.join(map(str, self.strides))})"
        if self.offset != 0:
            text += f" offset {self.offset}"
        return text if self.device.type == "cpu" else f"{text} {self.device}"


_set_dtype, _set_device, _set_sizes, _set_strides, _set_offset, _set_symbolic = (
    vars(TensorSpec)[name].__set__ for name in TensorSpec.__slots__
)


class SizeSpec(Frozen):
    """The spec of a graph value that is an integer, not a tensor."""

    __slots__ = ("expr",)
    expr: Size

    def __init__(self, expr: Size) -> None:
        _set_expr(self, expr)

    def __repr__(self) -> str:
        return f"size {self.expr}"


_set_expr = vars(SizeSpec)["expr"].__set__


def storage_extent(sizes: Iterable[Size], strides: Iterable[Size], offset: Size = 0) -> Size:
    """How many elements the storage must have to hold such a tensor."""
    last: Size = offset
    for size, stride in zip(sizes, strides):
        if type(size) is int and size == 0:
            return 0
        last = last + (size - 1) * stride
    return last + 1


_NAMED = (
    "float64 float32 float16 bfloat16 complex128 complex64 complex32 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool "
    "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2 "
    "quint8 qint8 qint32 quint4x2 quint2x4 bits8 bits16"
)
DTYPE_SHORT = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "complex128": "c128", "complex64": "c64"}
DTYPE_SHORT |= {"complex32": "c32", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "bool": "b8"}
DTYPE_SHORT |= {"uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64"}
DTYPE_TEXT: dict[torch.dtype, str] = {
    dtype: DTYPE_SHORT.get(name, name) for name, dtype in _torch.present(torch, _NAMED.split()).items()
}
TEXT_DTYPE: dict[str, torch.dtype] = {text: dtype for dtype, text in DTYPE_TEXT.items()}

__all__ = [
    "DTYPE_TEXT",
    "TEXT_DTYPE",
    "Frozen",
    "SizeSpec",
    "TensorSpec",
    "contiguous_strides",
    "is_contiguous",
    "product",
    "storage_extent",
]

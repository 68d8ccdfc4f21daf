"""NumPy's arrays in a graph: an ndarray is a tensor over the same memory, a number of NumPy that is not known is a tensor of no dims.

ARRAY_ATTRIBUTES and CALLS hold what arrays can do; what is not there breaks the graph. Arrays that torch cannot share memory
with (other dtypes and byte orders) are left to NumPy. Warnings of floating-point errors that
NumPy gives are not given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ... import _C
from ...arrays import NUMPY_DTYPES, array_number, numpy
from ...signals import let_through
from ...sources import Source
from ..number.deferred import OF_KIND
from ..number.symint import size_value
from ..plain.iterators import SequenceIterator
from ..plain.sequence import SequenceValue, TupleValue
from ..protocol.binding import BoundBuiltin
from ..protocol.calls import method_handler
from ..protocol.constant import ConstantValue, force_plain, literal
from ..protocol.kinds import AbstractArray, AbstractTensor
from ..protocol.registry import Registry
from ..protocol.value import EXISTING, NEW, Emitter, Frame, Value
from ..torch.tensor_attributes import numel, shape
from ..torch.tensor_text import deferred_text, may_be_written_after
from .arguments import sizes_of
from .breaks import refuse
from .nodes import call, call_method

OF_DTYPE_KIND: dict[str, tuple[Any, ...]] = {"f": OF_KIND[float], "b": OF_KIND[bool], "i": (-1, 0, 1), "u": (0, 1)}
"""Kind of NumPy's dtypes -> numbers that a format takes where it takes any."""


def takes_format(kind: Callable[[float], object], numbers: Iterable[float], spec: str) -> bool:
    """Whether numbers of this class can be written so."""
    try:
        return bool(numbers) and all(type(format(kind(number), spec)) is str for number in numbers)
    except Exception as error:
        let_through(error)
        return False


class ArrayValue(AbstractArray):
    """An array, or a number of NumPy; `memory` is a tensor over its memory. `base` is the array that it is a view of, None where it
    owns its memory, or IN_A_TENSOR; it is not known of an array with a source."""

    is_unique = True

    def __init__(self, tensor: AbstractTensor, scalar: bool = False, source: Source | None = None, base: Any = None) -> None:
        super().__init__(source)
        self.memory = tensor
        self.scalar = scalar
        self.base = base
        self.mutability = NEW if source is None else EXISTING

    flips: frozenset[int] = frozenset()
    """Dims that run backwards (views.py)."""
    writeable = True

    @property
    def tensor(self) -> AbstractTensor:
        """What it holds, as a tensor."""
        return self.memory

    @property
    def example(self) -> Any:
        return self.memory.example

    def shared(self, frame: Frame) -> AbstractTensor:
        """The tensor over its memory, as torch makes one of it."""
        return self.tensor

    def copied(self, frame: Frame) -> ArrayValue:
        """A copy in C order."""
        made = call(frame, torch.clone, self.tensor, memory_format=torch.contiguous_format)
        return ArrayValue(made, self.scalar)

    def strides(self) -> tuple[Any, ...]:
        """In elements; NumPy gives 0 to what it makes without elements, and slices and transposes keep that."""
        made = self.example.storage.first
        if made is not None and 0 in made.sizes and len(made.sizes) == self.example.ndim:
            return tuple(0 for _ in made.sizes)
        return tuple(-s if dim in self.flips else s for dim, s in enumerate(self.example.stride()))

    def write(self, frame: Frame, source: AbstractTensor) -> None:
        """Writes a tensor to it."""
        call_method(frame, "copy_", self.tensor, source)

    @property
    def dtype(self) -> numpy.dtype[Any]:
        """NumPy's dtype."""
        found: numpy.dtype[Any] = NUMPY_DTYPES[self.example.dtype]
        return found

    def python_type(self) -> type:
        return self.dtype.type if self.scalar else numpy.ndarray

    def describe(self) -> str:
        shape = "x".join(map(str, self.example.shape))
        return f"NumPy {'number' if self.scalar else 'array'} {self.dtype} [{shape}]"

    def hash_key(self, frame: Frame) -> Any:
        if self.scalar:
            return refuse(frame, "the hash of a number that is not known")
        return super().hash_key(frame)

    def truth(self, frame: Frame) -> bool:
        return self.tensor.truth(frame)

    def as_graph_arg(self, frame: Frame) -> Any:
        return refuse(frame, f"a {self.describe()} as an argument of a function of torch")

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(array_number)}({emit.load(self.tensor)})" if self.scalar else self.over_memory(emit)

    def over_memory(self, emit: Emitter) -> str:
        """Expression of a new array over `memory`, with the base that NumPy gives it."""
        text = f"{emit.load(self.memory)}.numpy()"
        if self.base is None:
            return f"{emit.const(_C.own_memory)}({text})"
        return text if self.base is IN_A_TENSOR else f"{emit.const(_C.set_base)}({text}, {emit.load(self.holder())})"

    def holder(self) -> ArrayValue:
        """What it is a view of, if it is one, or else itself: NumPy has no views of views."""
        return self.base.holder() if isinstance(self.base, ArrayValue) else self

    def as_operand(self, frame: Frame, tensors: list[AbstractTensor], op: str | None = None) -> AbstractTensor:
        """What stands for a number in arithmetic of these tensors with it: it does not change their dtype, as any number."""
        if self.scalar and all(t.example.dtype.is_floating_point and t.example.ndim for t in tensors):
            if self.example.dtype in (torch.float32, torch.float64):
                return self.tensor
        return refuse(frame, f"arithmetic of a tensor and a {self.describe()}")

    # --- texts ---------------------------------------------------------------------------------------------------
    def deferred_truth(self, frame: Frame) -> Any:
        return None if self.example.ndim else self.tensor.deferred_truth(frame)

    def data_text(self, frame: Frame, fn: Callable[..., Any], *rest: Any) -> Value | None:
        if type(self) is not ArrayValue or not may_be_written_after(frame):
            return None
        kept = self.copied(frame)
        return deferred_text(frame, lambda emit: emit.load(kept), fn, rest)

    def own_format(self, frame: Frame, spec: str) -> Value | None:
        if type(self) is not ArrayValue or not self.scalar:
            return None
        takes = takes_format(self.dtype.type, OF_DTYPE_KIND.get(self.dtype.kind, ()), spec)
        return self.data_text(frame, format, spec) if takes else None

    def conversion_operand(self, frame: Frame, kind: str | None) -> Value:
        return self.data_text(frame, str) or self if kind == "s" else self

    # --- what arrays do ------------------------------------------------------------------------------------------
    def getattr(self, frame: Frame, name: str) -> Value:
        row = ARRAY_ATTRIBUTES.get(name)
        if row is not None:
            return row(frame, self)
        if callable(getattr(self.python_type(), name, None)):
            return BoundBuiltin(self, name)
        return frame.break_graph("attribute_unknown", f"{name} of a {self.describe()}")

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        if name == "shape" and self.mutability is NEW and type(self) is ArrayValue and self.example.is_contiguous():
            self.memory = call(frame, torch.reshape, self.tensor, sizes_of(frame, value))
            return
        frame.break_graph("side_effect_unknown", f"assignment to {name} of a {self.describe()}")

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "item" and len(args) == 1 and not kwargs and not isinstance(args[0], SequenceValue):
            chosen = self.getattr(frame, "flat").getitem(frame, args[0])
            assert isinstance(chosen, ArrayValue)
            return chosen.tensor.call_method(frame, name, [], {})
        if name in NUMBER_METHODS:
            return self.tensor.call_method(frame, name, args, kwargs)
        handler = method_handler(numpy.ndarray, name)
        if handler is None:
            return refuse(frame, f"{name}() of a {self.describe()}")
        return handler(frame, [self, *args], kwargs)

    def length(self, frame: Frame) -> Value:
        if self.example.ndim == 0:
            return frame.raise_new(TypeError, "len() of unsized object")
        return size_value(frame, self.example.shape[0])

    def unpack(self, frame: Frame) -> list[Value]:
        if self.example.ndim == 0:
            return refuse(frame, "iteration over an array of no dims")
        return [self.getitem(frame, ConstantValue(i)) for i in range(force_plain(frame, self.length(frame)))]

    def is_fixed(self) -> bool:
        return False

    def iterate(self, frame: Frame) -> Value:
        return SequenceIterator(self.unpack(frame))

    def contains(self, frame: Frame, item: Value) -> Value:
        return refuse(frame, "membership in an array")

    def getitem(self, frame: Frame, key: Value) -> Value:
        found: Value = OPERATIONS["item"](frame, self, key)
        return found

    def setitem(self, frame: Frame, key: Value, value: Value) -> None:
        OPERATIONS["set_item"](frame, self, key, value)

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        found: Value = OPERATIONS["binary"](frame, self, op, other, reverse)
        return found

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        found: Value = OPERATIONS["compare"](frame, self, op, other)
        return found

    def unary(self, frame: Frame, op: str) -> Value:
        found: Value = OPERATIONS["unary"](frame, self, op)
        return found


OPERATIONS: Registry[str, Callable[..., Any]] = Registry("OPERATIONS")
"""item, set_item, binary, compare, unary -> what does it, of the frame, the array and the other arguments of the method of Value."""
IN_A_TENSOR = object()
"""The base of an array that a tensor gave: NumPy sees a tensor of its own there."""
NUMBER_METHODS = frozenset("item tolist __bool__ __int__ __float__ __index__ __complex__".split())
"""Methods that give Python's numbers, as a tensor's do."""


def strides(frame: Frame, self: ArrayValue) -> Value:
    if self.example._is_view() and 1 in self.example.shape:
        return refuse(frame, "strides of a view with a dim of size 1, which is 0 for some")
    size = self.dtype.itemsize
    return TupleValue([size_value(frame, s * size) for s in self.strides()])


def base(frame: Frame, self: ArrayValue) -> Value:
    """Known of what the graph made."""
    holder = self.holder()
    if holder.source is not None or self.base is IN_A_TENSOR:
        return refuse(frame, f"the base of a {self.describe()}")
    return ConstantValue(None) if self.base is None else holder


def nbytes(frame: Frame, self: ArrayValue) -> Value:
    return self.tensor.getattr(frame, "nbytes")


ARRAY_ATTRIBUTES: Registry[str, Callable[..., Value]] = Registry("ARRAY_ATTRIBUTES")
"""Name -> fn(frame, array)."""
ARRAY_ATTRIBUTES.add(
    {
        "shape": lambda frame, self: TupleValue(shape(frame, self, "shape").items),
        "ndim": lambda frame, self: ConstantValue(self.example.ndim),
        "size": lambda frame, self: numel(frame, self, "size", [], {}),
        "dtype": lambda frame, self: literal(frame, self.dtype),
        "itemsize": lambda frame, self: ConstantValue(self.dtype.itemsize),
        "nbytes": nbytes,
        "base": base,
        "strides": strides,
        "__class__": lambda frame, self: literal(frame, self.python_type()),
    }
)

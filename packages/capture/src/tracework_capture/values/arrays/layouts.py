"""How NumPy lays out the memory of a result: its dims in the order of the operands' strides, in C order where operands disagree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..protocol.kinds import AbstractTensor
from ..protocol.value import Frame
from .arguments import Argument
from .array import ArrayValue
from .breaks import refuse
from .nodes import call


def axis_order(operands: list[Any], ndim: int) -> list[int]:
    """Dims, outermost first, of what NumPy makes for operands with these strides, each of `ndim` of which those of broadcast dims are 0.

    A dim comes outside of another where no operand has it as the faster one of the two; where none tells, they stay as they are.
    """
    inside_first: list[int] = []
    for dim in reversed(range(ndim)):
        place = len(inside_first)
        for k, other in reversed([*enumerate(inside_first)]):
            told = [(abs(s[dim]), abs(s[other])) for s in operands if s[dim] != 0 and s[other] != 0]
            if told and not all(step < other_step for step, other_step in told):
                break
            place = k if told else place
        inside_first.insert(place, dim)
    return inside_first[::-1]


def is_known(size: Any) -> bool:
    """Whether a size can be asked: it does not depend on data."""
    return not isinstance(size, torch.SymInt) or size.node.has_hint()


def strides_in(example: Any, ndim: int) -> list[int]:
    """Strides as an operand of `ndim` dims; 0 where it has one item."""
    own = [0 if is_known(size) and size == 1 else stride for size, stride in zip(example.shape, example.stride(), strict=True)]
    return [0] * (ndim - len(own)) + own


def ordered(frame: Frame, tensor: AbstractTensor, order: Sequence[int]) -> AbstractTensor:
    """The tensor, or a copy of it, whose memory has its dims in this order."""
    if all(map(is_known, tensor.example.shape)) and is_packed(tensor.example.permute(order)):
        return tensor
    packed = call(frame, torch.clone, call(frame, torch.permute, tensor, tuple(order)), memory_format=torch.contiguous_format)
    return call(frame, torch.permute, packed, tuple(sorted(range(len(order)), key=order.__getitem__)))


def arranged(frame: Frame, tensor: AbstractTensor, order: Sequence[int]) -> AbstractTensor:
    """The same for the order of operands, which says nothing of dims with one item."""
    if any(is_known(size) and size == 1 for size in tensor.example.shape):
        return refuse(frame, "a result with a dim of one item, of arrays that are not in C order")
    return ordered(frame, tensor, order)


def is_packed(example: Any) -> bool:
    """Whether it is in C order; with known sizes also the strides of dims of one item are those of C order."""
    sizes = example.shape
    if not all(type(size) is int for size in sizes):
        return bool(example.is_contiguous())
    return 0 in sizes or bool(example.stride() == tuple(math.prod(sizes[dim + 1 :]) for dim in range(len(sizes))))


def ordered_in_c(frame: Frame, tensor: AbstractTensor) -> AbstractTensor:
    """The tensor in C order."""
    return ordered(frame, tensor, tuple(range(tensor.example.ndim)))


def ordered_as(
    frame: Frame, tensor: AbstractTensor, arrays: Sequence[ArrayValue], others: Sequence[torch.Tensor] = ()
) -> AbstractTensor:
    """The tensor, an array's own result, laid out as what NumPy makes for these arrays and others that no tensor of the graph is."""
    examples, ndim = [*others, *(a.memory.example for a in arrays)], tensor.example.ndim
    if ndim < 2 or all(e.is_contiguous() for e in (*examples, tensor.example)):
        return tensor
    return arranged(frame, tensor, axis_order([strides_in(e, ndim) for e in examples], ndim))


def ordered_like(frame: Frame, tensor: AbstractTensor, array: ArrayValue) -> AbstractTensor:
    """The tensor laid out as NumPy lays out a copy of the array: its dims by their strides."""
    example = array.memory.example
    if example.ndim < 2 or example.is_contiguous() and tensor.example.is_contiguous():
        return tensor
    strides = example.stride()
    return arranged(frame, tensor, tuple(sorted(range(example.ndim), key=lambda dim: -abs(strides[dim]))))


def ordered_without(
    frame: Frame, tensor: AbstractTensor, arrays: Sequence[ArrayValue], dims: Iterable[int], keepdims: Argument
) -> AbstractTensor:
    """The tensor, a reduction of the first of the arrays over these dims, laid out as NumPy does."""
    examples, ndim = [a.memory.example for a in arrays], tensor.example.ndim
    if ndim < 2 or all(e.is_contiguous() for e in (*examples, tensor.example)):
        return tensor
    strides = [strides_in(e, examples[0].ndim) for e in examples]
    left = [[0 if d in dims else s for d, s in enumerate(own) if keepdims or d not in dims] for own in strides]
    return arranged(frame, tensor, axis_order(left, ndim))


def is_in_c_order(array: ArrayValue) -> bool:
    return not array.flips and array.example.is_contiguous()


def is_in_fortran_order(array: ArrayValue) -> bool:
    example = array.example
    return not array.flips and example.permute(tuple(reversed(range(example.ndim)))).is_contiguous()


def in_c_order(frame: Frame, name: str, arrays: Sequence[ArrayValue], dims: int) -> None:
    """Results of several dims lie in memory as the arguments do; torch does the same for those in C order."""
    if dims > 1 and not all(a.example.is_contiguous() for a in arrays):
        refuse(frame, f"numpy.{name} of arrays that are not in C order")

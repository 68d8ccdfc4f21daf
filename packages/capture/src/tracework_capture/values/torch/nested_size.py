"""Sizes of nested tensors that are no numbers: how long rows are which differ in length."""

from __future__ import annotations

from typing import Any

import torch

from ..._torch.tensors import is_nested_size
from ..number.symint import size_value
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Emitter, Frame, Value


class NestedSize(Value):
    """The size of a nested tensor whose rows differ: equal to that of tensors with the same offsets alone, and an argument of operators."""

    cls = int

    def __init__(self, tensor: AbstractTensor, dim: int, node: Any, example: torch.SymInt) -> None:
        super().__init__()
        self.tensor, self.dim, self.node, self.example = tensor, dim, node, example

    def as_graph_arg(self, frame: Frame) -> Any:
        return self.node

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(size_of, 'size_of')}({emit.load(self.tensor)}, {self.dim})"

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        return frame.break_graph("tensor_subclass", f"{op} with the size of rows that differ")

    def unary(self, frame: Frame, op: str) -> Value:
        return frame.break_graph("tensor_subclass", f"{op} of the size of rows that differ")

    def hash_key(self, frame: Frame) -> Any:
        return frame.break_graph("tensor_subclass", "a hash of the size of rows that differ")

    def truth(self, frame: Frame) -> bool:
        return frame.break_graph("tensor_subclass", "truth of the size of rows that differ")

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        if op not in ("==", "!=") or not (isinstance(other, NestedSize) or other.is_constant()):
            return frame.break_graph("tensor_subclass", f"{op} of the size of rows that differ")
        known = other.example if isinstance(other, NestedSize) else other.constant()
        return ConstantValue(bool(self.example == known) is (op == "=="))


def size_of(tensor: torch.Tensor, dim: int) -> Any:
    """A size of a nested tensor, as a node has it."""
    return tensor.size(dim)


def nested_size(frame: Frame, tensor: AbstractTensor, dim: int) -> Value:
    """The value of a size that is no number."""
    node = frame.graph.plain_node(frame, size_of, (tensor.node, dim))
    return NestedSize(tensor, dim, node, node.meta["example_value"])


def nested_numel(frame: Frame, tensor: AbstractTensor) -> Value:
    """How many elements a nested tensor has: those of its values, where these have no holes."""
    if tensor.example.lengths() is not None:
        return frame.break_graph("tensor_subclass", "the number of elements of a nested tensor with holes")
    return size_value(frame, tensor.example.values().numel())


__all__ = ["is_nested_size", "nested_numel", "nested_size"]

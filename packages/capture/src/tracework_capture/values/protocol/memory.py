"""What objects became while a frame is traced: one value an object; and the values of a graph's tensors, by their fakes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from tracework_primops import FakeTensor

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import CodeType

    from torch import fx

    from ..objects.function import CellValue
    from .kinds import AbstractTensor
    from .value import Frame, Value


@dataclass(eq=False)
class Memory:
    """globals: those of the captured frame. arguments: the objects in its slots when it began. with_finalizers: those whose death runs code."""

    globals: dict[str, Any]
    arguments: dict[str, Any]
    with_finalizers: tuple[Any, ...]
    memo: dict[int, Value] = field(default_factory=dict)
    """id of an existing object -> its value."""
    keep: list[Any] = field(default_factory=list)
    """Objects that must not die before the attempt is over, as their ids are used."""
    tuples: dict[int, Value] = field(default_factory=dict)
    """The same of constants of code objects."""
    new_classes: dict[int, Value] = field(default_factory=dict)
    """id of a template of a class or function that the program makes -> its value."""
    cells: dict[int, CellValue] = field(default_factory=dict)
    generators: list[Any] = field(default_factory=list)
    globals_written: dict[tuple[int, str], Value | None] = field(default_factory=dict)
    builtins_read: set[tuple[int, str]] = field(default_factory=set)
    inlined: dict[int, CodeType] = field(default_factory=dict)
    """The codes that were traced into, by id."""
    only_now: str | None = None
    """Why what was captured may be something else in another process, though its guards hold there: what tracing itself ran or was told."""
    dropped: set[type] = field(default_factory=set)
    """The classes of the objects whose references existing objects dropped."""
    watched: bool = False
    """Whether the program made a weak reference with a callback to an existing object."""

    def end(self) -> None:
        """The attempt is over: drops the user's objects. Values refer to each other in circles, even where the objects do so weakly."""
        for generator in self.generators:
            generator.frame.forget()  # on whose stack it is
        for value in self.memo.values():
            vars(value).clear()
        for held in (self.memo, self.tuples, self.keep, self.cells, self.generators, self.globals_written):
            held.clear()
        self.arguments, self.with_finalizers = {}, ()


def known_values(frame: Frame) -> dict[int, AbstractTensor]:
    """id of a fake -> its value, for this graph."""
    values: dict[int, AbstractTensor] = frame.graph.tensor_values
    return values


def remember(frame: Frame, value: AbstractTensor) -> None:
    """Finds the value again when an operation returns one of its arguments."""
    is_plain = isinstance(value.example, FakeTensor) or type(value.example) is torch.Tensor
    known = known_values(frame) if is_plain else frame.graph.wrapper_values
    known[id(value.example)] = value


def forget_nodes(frame: Frame, nodes: Collection[fx.Node]) -> None:
    """These nodes became part of an inner graph: their values cannot be used outside of it."""
    for node in nodes:
        node.meta["moved"] = True
    for value in known_values(frame).values():
        if value.node in nodes:
            value.node = None

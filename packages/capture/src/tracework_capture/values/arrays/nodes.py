"""Nodes of the graph that compute with the tensors of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ..protocol.kinds import AbstractTensor
from ..protocol.value import Frame, Value


def call(frame: Frame, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> AbstractTensor:
    """fn(*args, **kwargs), a function that gives one tensor."""
    return cast(AbstractTensor, frame.graph.call(frame, fn, args, kwargs))


def tensors_of(frame: Frame, made: Value) -> list[AbstractTensor]:
    """The tensors that a function gave."""
    return cast(list[AbstractTensor], made.unpack(frame))


def call_method(frame: Frame, name: str, *args: Any, **kwargs: Any) -> AbstractTensor:
    """args[0].name(*args[1:], **kwargs), a method that gives one tensor."""
    return cast(AbstractTensor, frame.graph.call_method(frame, name, args, kwargs))

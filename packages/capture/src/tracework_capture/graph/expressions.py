"""Nodes that compute expressions of sizes."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

__all__ = ["expression_node"]


def expression_node(builder: Any, size: Any) -> Any:
    """Nodes that compute a size expression from the size inputs, through the carrier of symbolic sizes."""
    value = builder.symbols.to_symint(size)
    text = str(size)
    names = {str(symbol): node for symbol, node in builder.symbol_nodes()}
    node = _evaluate(builder, text, names)
    node.meta["example_value"] = node.meta["val"] = value
    return node


class _Recorder:
    """Evaluates the Python text of an expression while recording nodes."""

    def __init__(self, builder: Any, node: Any) -> None:
        self.builder, self.node = builder, node

    def _apply(self, target: Any, left: Any, right: Any) -> _Recorder:
        args = tuple(x.node if isinstance(x, _Recorder) else x for x in (left, right))
        example = target(*(x.meta["example_value"] if isinstance(x, fx.Node) else x for x in args))
        return _Recorder(self.builder, self.builder.size_operation(target, args, example))


def _install(name: str, target: Any) -> None:
    setattr(_Recorder, f"__{name}__", lambda self, other: self._apply(target, self, other))
    setattr(_Recorder, f"__r{name}__", lambda self, other: self._apply(target, other, self))


for _name, _target in (
    ("add", operator.add),
    ("sub", operator.sub),
    ("mul", operator.mul),
    ("floordiv", operator.floordiv),
    ("mod", operator.mod),
    ("pow", operator.pow),
):
    _install(_name, _target)
setattr(_Recorder, "__neg__", lambda self: self._apply(operator.mul, self, -1))  # noqa: B010


def _extreme(function: Any) -> Any:
    def apply(*args: Any) -> Any:
        result = args[0]
        for other in args[1:]:
            recorder = result if isinstance(result, _Recorder) else other
            result = recorder._apply(function, result, other)
        return result

    return apply


def _evaluate(builder: Any, text: str, nodes: dict[str, Any]) -> Any:
    names = {name: _Recorder(builder, node) for name, node in nodes.items()}
    result = eval(text, {"__builtins__": {}, "max": _extreme(torch.sym_max), "min": _extreme(torch.sym_min), **names})
    return result.node

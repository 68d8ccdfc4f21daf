"""Writes chosen layouts into a graph: into meta["val"] of what is to lie so, and as copies where a reader takes only another layout.

Images that a convolution reads are laid out by its lowering. Elsewhere the strides in meta["val"] are those that the operator gives for
operands that lie as theirs say: where these are not what was chosen, or the operator refuses such operands, operands are copied, or else the
result; loops read such copies where the original lies.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from tracework_primops import FakeTensor
from tracework_primops.broadcasting import channels_last

from ..nodes import called, operand_of
from ..options import Answers
from ..trace.memory import same_layout
from .choice import CONVOLUTIONS, Choice, answered, choose, images_of, is_image, restrided, viewed
from .signals import signals_as_images
from .table import Asks, asks

__all__ = ["lay_out"]

aten = torch.ops.aten
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def lay_out(gm: fx.GraphModule, answers: Answers | None = None) -> None:
    """Changes the layouts of images in place where that is predicted to be faster; what leaves the graph has eager's."""
    choices = choose(gm.graph, answers)
    if choices:
        with torch.no_grad():
            _Layouts(gm.graph, signals_as_images(gm.graph, choices)).apply()


class _Layouts:
    def __init__(self, graph: fx.Graph, choices: dict[fx.Node, Choice]) -> None:
        self.graph = graph
        self.chosen = {*choices, *(choice.variable for choice in choices.values())}
        self.last_input = next((n for n in reversed(graph.nodes) if n.op == "placeholder"), None)
        self.eager: dict[fx.Node, Any] = {}
        """Changed nodes -> eager's value."""
        self.copies: dict[tuple[fx.Node, bool], fx.Node] = {}
        """A node, and whether its copy lies channels-last -> the copy."""

    def apply(self) -> None:
        """Walks the graph in its order."""
        for node in list(self.graph.nodes):
            if node.op == "output":
                self._read(node, self._as_eagers)
            elif node in self.chosen:
                self._change(node)
            elif any(a in self.eager for a in node.all_input_nodes) and not self._stays(node):
                self._read(node, self._as_eagers)
        for node in reversed(self.eager):
            if not node.users:  # views of which readers take only eager's
                self.graph.erase_node(node)

    def _stays(self, node: fx.Node) -> bool:
        """Whether a node that is to have eager's layout has it from operands as they lie now."""
        if node.target is operator.getitem:
            return True
        return asks(node) in (Asks.LOOP, Asks.NOTHING) and _strides(answered(node)) == _strides(node.meta["val"])

    def _change(self, node: fx.Node) -> None:
        what = asks(node)
        if node.target is operator.getitem:
            self._set(node, operand_of(node).meta["val"][node.args[1]])
        elif what is Asks.VIEW:
            self._set_or_leave(node, answered(node))
        elif what is Asks.CONVOLUTION:
            self._convolution(node)
        else:
            self._operator(node)
        value = node.meta["val"]
        if what is not Asks.VIEW and is_image(value):
            self._copied_for_all(node)

    def _convolution(self, node: fx.Node) -> None:
        """Where no result says how it is computed, since each is the same in both layouts, its operands do.

        Such copies are for all convolutions that read the image so.
        """
        found, images = self._for_images_last(node), images_of(node)
        self._set_or_leave(node, found)
        if found is None or node in self.eager:
            return
        self._read_last(node)
        for image in images:
            if (copy := self.copies.get((image, True))) is not None:
                for user in list(image.users):
                    if user in self.chosen and user.target in CONVOLUTIONS:
                        user.replace_input_with(image, copy)

    def _read_last(self, node: fx.Node) -> None:
        """Copies of images for this reader, channels-last."""
        images = images_of(node)
        self._read(node, lambda n: self._copy(n, True) if n in images and is_image(n.meta["val"]) else n)

    def _operator(self, node: fx.Node) -> None:
        """Operands as they lie, or else all channels-last, or else all as eager's."""
        if self._is_chosen(node, found := answered(node)):
            self._set(node, found)
            return
        if self._is_chosen(node, found := self._for_images_last(node)):
            self._read_last(node)
            self._set(node, found)
        else:
            self._read(node, self._as_eagers)

    def _for_images_last(self, node: fx.Node) -> Any:
        """What the operator gives for images that lie channels-last; None where it refuses them."""
        images = images_of(node)
        return answered(node, lambda n: _last(n.meta["val"]) if n in images else n.meta["val"])

    def _is_chosen(self, node: fx.Node, found: Any) -> bool:
        """Whether these results lie channels-last where they are images."""
        if found is None:
            return False
        pairs = zip(*map(_tuple, (node.meta["val"], found)), strict=True)
        return all(tuple(new.stride()) == channels_last(new.shape) for old, new in pairs if is_image(old))

    def _copied_for_all(self, node: fx.Node) -> None:
        """A copy for the readers of a result that the operator gives in eager's layout alone."""
        users = list(node.users)
        copy = self._copy(node, True)
        for user in users:
            user.replace_input_with(node, copy)
        self.eager[copy] = node.meta["val"]
        self.copies[copy, False] = node

    def _set_or_leave(self, node: fx.Node, found: Any) -> None:
        if found is None:
            self._read(node, self._as_eagers)
        else:
            self._set(node, found)

    def _set(self, node: fx.Node, found: Any) -> None:
        before = node.meta["val"]
        after = _merged(before, found)
        if _strides(before) != _strides(after):
            self.eager[node], node.meta["val"] = before, after

    def _read(self, node: fx.Node, change: Callable[[fx.Node], fx.Node]) -> None:
        node.args, node.kwargs = fx.map_arg((node.args, node.kwargs), change)

    def _as_eagers(self, node: fx.Node) -> fx.Node:
        """The node, or the same in eager's layout: a view again, of what it is a view of."""
        if node not in self.eager:
            return node
        if viewed(node) is None:
            return self._copy(node, False)
        if (node, False) not in self.copies:
            args, kwargs = fx.map_arg((node.args, node.kwargs), self._as_eagers)
            self.copies[node, False] = self._after(node, node.target, args, kwargs)
        return self.copies[node, False]

    def _copy(self, node: fx.Node, last: bool) -> fx.Node:
        """A copy of an image, for all who read it so; of a signal in three steps."""
        if (node, last) not in self.copies:
            if last and node.meta["val"].ndim not in FORMATS:
                turned = self._after(node, aten.permute.default, (node, [0, 2, 1]))
                rows = self._after(turned, aten.clone.default, (turned,), {"memory_format": torch.contiguous_format})
                self.copies[node, last] = self._after(rows, aten.permute.default, (rows, [0, 2, 1]))
            else:
                form = FORMATS[node.meta["val"].ndim] if last else torch.contiguous_format
                self.copies[node, last] = self._after(node, aten.clone.default, (node,), {"memory_format": form})
        return self.copies[node, last]

    def _after(self, node: fx.Node, target: Any, args: Any, kwargs: Any = None) -> fx.Node:
        with self.graph.inserting_after(self.last_input if node.op == "placeholder" else node):
            return called(self.graph, node, target, *args, **(kwargs or {}))


def _last(value: Any) -> Any:
    """The value channels-last, if it is an image that is not."""
    return restrided(value, channels_last(value.shape)) if is_image(value) else value


def _merged(old: Any, new: Any) -> Any:
    """What the trace made, but where only the layout is another; strides of dims of one element are eager's."""
    if isinstance(old, (tuple, list)):
        return type(old)(map(_merged, old, new))
    if not isinstance(old, FakeTensor) or new.dtype != old.dtype or new.shape != old.shape or same_layout(new, old):
        return old
    return new


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _strides(value: Any) -> list[Any]:
    return [tuple(v.stride()) if isinstance(v, torch.Tensor) else None for v in _tuple(value)]

"""Which images of a graph lie channels-last: the cheapest choice for the whole graph, forward and backward in one.

Each convolution has two predicted times; each reader that wants another layout than its operand has pays for a copy, a loop for reading
across its order. What comes into the graph and what leaves it has eager's layout.
"""

from __future__ import annotations

import logging
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import fx
from tracework_primops import FakeTensor
from tracework_primops.broadcasting import channels_last, is_contiguous
from tracework_primops.symbols import Size

from ..nodes import function_of, operand_of
from ..options import Answers
from . import costs
from .labels import NEVER, Labelling
from .table import Asks, asks

__all__ = ["CONVOLUTIONS", "Choice", "answered", "choose", "images_of", "is_image", "restrided", "run", "viewed"]

log = logging.getLogger("tracework.aotautograd.layouts")
aten = torch.ops.aten
CONVOLUTIONS: Mapping[object, tuple[tuple[int, ...], int, int]] = {
    aten.convolution.default: ((0,), 1, 3),
    aten.convolution_backward.default: ((0, 1), 2, 4),
}
"""Convolution -> places of its images, of its weight, and of the first of its settings, which are alike in both."""
Strides = tuple[Size, ...]


@dataclass(frozen=True)
class Choice:
    """variable: the node that decides for this one; last: its strides where that is channels-last, those of each of several views."""

    variable: fx.Node
    last: Any


@dataclass
class Problem:
    """Variables, and what their values cost."""

    labelling: Labelling = field(default_factory=Labelling)
    choices: dict[fx.Node, Choice] = field(default_factory=dict)

    def lie(self, node: fx.Node, last: bool) -> Strides:
        """Strides of a node's value, where its variable, if it has one, is so."""
        found = self.choices.get(node)
        return found.last if last and found is not None else tuple(node.meta["val"].stride())


def choose(graph: fx.Graph, answers: Answers | None = None) -> dict[fx.Node, Choice]:
    """Nodes whose images are to lie channels-last where eager's do not; none where that saves next to nothing."""
    found = next((node for node in graph.nodes if _gains(node)), None)
    if found is None or _is_compilers(graph, found):
        return {}
    problem = Problem()
    for node in graph.nodes:
        if node.op == "call_function":
            _add(problem, node)
        elif node.op == "output":
            _add_outputs(problem, node)
    labelling = problem.labelling
    labels = labelling.solve(answers)
    saved = labelling.cost(dict.fromkeys(labels, False)) - labelling.cost(labels)
    if saved < costs.prices(operand_of(found).meta["val"]).least_gain:
        return {}
    chosen = {node: choice for node, choice in problem.choices.items() if labels[choice.variable]}
    # a weight's gradient alone may be no image, that of a depthwise convolution: what it reads is
    alone = (v for v, last in labels.items() if last and isinstance(v, fx.Node) and v.target in CONVOLUTIONS and v not in chosen)
    return chosen | {node: Choice(node, ()) for node in alone}


def _is_compilers(graph: fx.Graph, convolution: fx.Node) -> bool:
    """Inference on a CPU: its images are laid out by a compiler, together with packed weights."""
    return costs.on_cpu(operand_of(convolution).meta["val"]) and all(
        node.target is not aten.convolution_backward.default for node in graph.nodes
    )


def _gains(node: fx.Node) -> bool:
    """Whether this is a convolution that may gain."""
    if node.target not in CONVOLUTIONS:
        return False
    places, weight, settings = CONVOLUTIONS[node.target]
    operands = [operand_of(node, place).meta["val"] for place in (*places, weight)]
    images = [x for x in _tensors(node.meta["val"]) if x.ndim > 2]
    if not images or not all(map(_is_static, (*operands, *images))):
        return False
    arguments: tuple[Any, ...] = node.args
    transposed, groups = arguments[settings + 3], arguments[settings + 5]
    depthwise = costs.has_row(operands[-2], operands[-1], transposed, groups, len(places) > 1)
    known = costs.rate(operands[-2], groups, depthwise) is not None and not (transposed and costs.on_cpu(operands[-2]))
    return known and operands[0].ndim <= 5 and all(is_contiguous(x.shape, x.stride()) for x in images)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [x for x in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(x, torch.Tensor)]


def _is_static(x: Any) -> bool:
    return isinstance(x, FakeTensor) and not x.is_symbolic and 0 not in x.spec.sizes


def is_image(x: Any) -> bool:
    """Whether a tensor lies row-major and would not be the same channels-last."""
    if not _is_static(x) or not 3 <= len(sizes := x.spec.sizes) <= 5:
        return False
    return sizes[1] > 1 and prod(sizes[2:]) > 1 and is_contiguous(sizes, x.spec.strides)


def images_of(node: fx.Node) -> list[fx.Node]:
    """The operands of a node that are images as its result is."""
    if node.target in CONVOLUTIONS:
        return [operand_of(node, place) for place in CONVOLUTIONS[node.target][0]]
    ranks = {x.ndim for x in _tensors(node.meta["val"])}
    return [a for a in node.all_input_nodes if isinstance(x := a.meta.get("val"), FakeTensor) and x.ndim in ranks and x.ndim > 2]


def _add(problem: Problem, node: fx.Node) -> None:
    if node.target is operator.getitem:
        _add_item(problem, node)
        return
    what = asks(node)
    if what is Asks.VIEW:
        _add_view(problem, node)
    elif what is Asks.CONVOLUTION and _gains(node):
        _add_convolution(problem, node)
    elif what is Asks.LOOP:
        _add_loop(problem, node)
    elif what is Asks.SAME and _may_choose(problem, node):
        problem.labelling.add(node)
        _choose_result(problem, node)
        for operand in images_of(node):
            _wants(problem, operand, node)
    elif what is not Asks.NOTHING:
        for operand in node.all_input_nodes:
            _wants_eagers(problem, operand)


def _may_choose(problem: Problem, node: fx.Node) -> bool:
    """Whether a node's result is made of images, or of what is repeated, and is an image."""
    if not any(map(is_image, _tensors(node.meta["val"]))):
        return False
    return any(a in problem.choices or is_image(x := a.meta["val"]) or _is_repeated(x) for a in images_of(node))


def _is_repeated(x: torch.Tensor) -> bool:
    return _is_static(x) and any(s > 1 and t == 0 for s, t in zip(x.shape, x.stride(), strict=True))


def _choose_result(problem: Problem, node: fx.Node) -> None:
    if isinstance(node.meta["val"], torch.Tensor):
        problem.choices[node] = Choice(node, channels_last(node.meta["val"].shape))


def _add_item(problem: Problem, node: fx.Node) -> None:
    """One of several results, or of several views."""
    source, place = operand_of(node), node.args[1]
    value, views = node.meta["val"], problem.choices.get(source)
    if views is not None:
        problem.choices[node] = Choice(views.variable, views.last[place])
    elif source in problem.labelling.alone and is_image(value):
        problem.choices[node] = Choice(source, channels_last(value.shape))


def _add_view(problem: Problem, node: fx.Node) -> None:
    """A view lies as what it is a view of, if that has the view in both layouts."""
    source: Any = node.args[0]
    value, choice = source.meta["val"], problem.choices.get(source)
    if choice is None:
        return
    there = answered(node, lambda n: restrided(n.meta["val"], choice.last) if n is source else n.meta["val"])
    if isinstance(there, torch.Tensor):
        problem.choices[node] = Choice(choice.variable, tuple(there.stride()))
    elif there is not None:
        problem.choices[node] = Choice(choice.variable, tuple(tuple(x.stride()) for x in there))
    elif all(asks(reader) in (Asks.LOOP, Asks.NOTHING) for reader in _readers(node)):
        problem.labelling.add(choice.variable, 0.0, costs.prices(value).turn * _moved(value))
    else:
        _wants_eagers(problem, source)


def viewed(node: fx.Node) -> Any:
    """What a node is a view of, or one of several views; None if it is none."""
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        return node.args[0] if asks(operand_of(node)) is Asks.VIEW else None
    return node.args[0] if asks(node) is Asks.VIEW else None


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """Who reads a value or views of it."""
    for user in node.users:
        if viewed(user) is not None:
            yield from _readers(user)
        else:
            yield user


def run(node: fx.Node, value: Callable[[fx.Node], Any] = lambda n: n.meta["val"]) -> Any:
    """What the operator gives for such values of its operands."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), value)
    return function_of(node)(*args, **kwargs)


def answered(node: fx.Node, value: Callable[[fx.Node], Any] = lambda n: n.meta["val"]) -> Any:
    """As run(); None where the operator refuses operands that lie so."""
    try:
        return run(node, value)
    except Exception as error:  # kernels say in many ways that they take only eager's layout
        log.debug("%s keeps eager's layout: %s", node.target, error)
        return None


def restrided(value: Any, strides: Sequence[Size]) -> FakeTensor:
    """A fake like this one, with other strides, in memory of its own."""
    return value.mode.make(value.spec.replace(strides=tuple(strides), offset=0))


def _add_convolution(problem: Problem, node: fx.Node) -> None:
    places, place, first = CONVOLUTIONS[node.target]
    x, w = (operand_of(node, n).meta["val"] for n in (places[-1], place))
    arguments: tuple[Any, ...] = node.args
    transposed, groups = arguments[first + 3], arguments[first + 5]
    if len(places) > 1:
        result = operand_of(node).meta["val"].shape
        works = costs.works(x, w, result, transposed, groups, arguments[-1][:2])
    else:
        works = costs.works(x, w, node.meta["val"].shape, transposed, groups)
    row, last = (sum(parts) for parts in zip(*map(costs.times, works), strict=True))
    copied = (
        _turned(w) + costs.prices(w).launch
        if w.shape[1] > 1 and prod(w.shape[2:]) > 1 and not _lies_channels_last(w.shape, w.stride())
        else 0.0
    )
    problem.labelling.add(node, row, last + copied)
    _choose_result(problem, node)
    for operand in images_of(node):
        _wants(problem, operand, node)


def _wants(problem: Problem, operand: fx.Node, reader: fx.Node) -> None:
    """The library reads the operand in the layout of the reader's result."""
    value, choice = operand.meta["val"], problem.choices.get(operand)
    if not _is_static(value):
        return
    if choice is None:
        if not _lies_channels_last(value.shape, value.stride()):
            problem.labelling.apart(_copy_of(problem, operand, True), reader, NEVER)
    elif _lies_channels_last(value.shape, choice.last):
        problem.labelling.apart(_copy_of(problem, operand, True), reader, NEVER)
        problem.labelling.apart(reader, _copy_of(problem, operand, False), NEVER)


def _wants_eagers(problem: Problem, operand: fx.Node) -> None:
    """A reader that takes only eager's layout."""
    if operand in problem.choices:
        problem.labelling.add(_copy_of(problem, operand, False), 0.0, NEVER)


def _copy_of(problem: Problem, operand: fx.Node, last: bool) -> tuple[fx.Node, bool]:
    """A variable that has the value `last` where a library's call reads the operand so: paid for once, if it lies otherwise.

    Of a convolution that adds a bias it is paid for in any case: a loop behind the library's call adds it, in whatever layout.
    """
    copy, choice = (operand, last), problem.choices.get(operand)
    if copy not in problem.labelling.alone:
        value = operand.meta["val"]
        launch = costs.prices(value).launch
        cost, made = _turned(value) + launch, _moved(value) + launch if _adds_bias(operand) else 0.0
        if choice is None:
            problem.labelling.add(copy, 0.0, cost)
        elif last:
            problem.labelling.add(copy, 0.0, made)
            problem.labelling.apart(choice.variable, copy, cost - made)
        else:
            problem.labelling.add(copy, made, 0.0)
            problem.labelling.apart(copy, choice.variable, cost - made)
    return copy


def _adds_bias(node: fx.Node) -> bool:
    """In a kernel of its own: a CPU's library does that as it computes the rest."""
    return node.target is aten.convolution.default and node.args[2] is not None and not costs.on_cpu(node.meta["val"])


def _moved(x: torch.Tensor) -> float:
    """What it takes to read and write as many bytes."""
    return 2 * costs.prices(x).move * x.element_size() * x.numel()


def _turned(x: torch.Tensor) -> float:
    """The same in another layout."""
    return (1 + costs.prices(x).turn) * _moved(x)


def _lies_channels_last(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """The same for signals, whose only dim is an image's width."""
    inner = (*sizes[:1], *sizes[2:], sizes[1]), (*strides[:1], *strides[2:], strides[1])
    return bool(is_contiguous(*inner))


def _add_loop(problem: Problem, node: fx.Node) -> None:
    """A loop writes any layout, and pays for reading across it."""
    chooses = _may_choose(problem, node)
    if chooses:
        problem.labelling.add(node)
        _choose_result(problem, node)
    results = [x for x in _tensors(node.meta["val"]) if x.ndim > 2 and _is_static(x)]
    for result in results[:1]:
        lies = [tuple(result.stride()), channels_last(result.shape) if chooses and is_image(result) else tuple(result.stride())]
        for operand in images_of(node):
            _read_by_loop(problem, operand, node if chooses else None, result, lies)


def _read_by_loop(problem: Problem, operand: fx.Node, reader: fx.Node | None, result: torch.Tensor, lies: list[Strides]) -> None:
    value, choice = operand.meta["val"], problem.choices.get(operand)
    if (choice is None and reader is None) or not _is_static(value) or value.ndim != result.ndim:
        return
    size = min(_moved(value), _moved(result))

    def price(of_operand: bool, of_reader: bool) -> float:
        fast = _fast_axis(value.shape, problem.lie(operand, of_operand)), _fast_axis(result.shape, lies[of_reader])
        return costs.prices(value).turn * size if None not in fast and fast[0] != fast[1] else 0.0

    label = problem.labelling
    if choice is None:
        label.add(reader, price(False, False), price(False, True))
    elif reader is None:
        label.add(choice.variable, price(False, False), price(True, False))
    else:
        same, differ = (price(False, False), price(True, True)), (price(False, True), price(True, False))
        if sum(same) <= sum(differ):  # else this is no cut: a view that turns the axes
            label.add(choice.variable, 0.0, differ[1] - same[0])
            label.add(reader, 0.0, same[1] - differ[1])
            label.apart(choice.variable, reader, sum(differ) - sum(same))


def _fast_axis(sizes: Sequence[int], strides: Strides) -> int | None:
    """The axis along which elements lie next to each other; None where there is none, or a value is repeated along it."""
    return next((n for n, (s, t) in enumerate(zip(sizes, strides, strict=True)) if s > 1 and t == 1), None)


def _add_outputs(problem: Problem, node: fx.Node) -> None:
    """What leaves the graph has eager's layout; what others are views of is no copy."""
    makers = Counter(_made_by(one) for one in node.all_input_nodes)
    for one in node.all_input_nodes:
        if one not in problem.choices:
            continue
        if _made_by(one) is one and makers[one] == 1:
            _wants_eagers(problem, one)
        else:
            problem.labelling.add(problem.choices[one].variable, 0.0, NEVER)


def _made_by(node: fx.Node) -> fx.Node:
    """The node whose memory the value lies in."""
    while (whole := viewed(node)) is not None:
        node = whole
    return node

"""Small tensors whose data is known while tracing, because they come from plain numbers alone: torch.tensor(n) and what follows.

Their nodes are in the graph as any other; the real tensor is kept beside, for code that asks for a number (a size, a slice, a
condition, item()). A write to the fake's storage ends the knowledge. What small inputs decide, too, is kept with their names: it may be
used once they are guarded (graph.specialised).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from tracework_primops import FakeTensor

from .._torch.functions import CANONICAL_MASK, is_all_true, is_any_true

LARGEST = 16
_ARITHMETIC = (
    "add sub mul div true_divide floor_divide remainder fmod pow neg abs floor ceil round trunc sqrt square minimum maximum clamp"
    " eq ne lt le gt ge logical_and logical_or logical_not logical_xor sum prod any all amax amin min max"
).split()
_FUNCTIONS = frozenset(getattr(torch, name) for name in _ARITHMETIC) | frozenset(
    getattr(operator, name)
    for name in "add sub mul truediv floordiv mod pow neg abs eq ne lt le gt ge and_ or_ xor invert getitem".split()
)
_FUNCTIONS |= {is_all_true, is_any_true}
_FACTORIES = frozenset({torch.full, torch.tensor, torch.as_tensor, torch.scalar_tensor, torch.arange, torch.zeros, torch.ones})
_EXACT = frozenset(
    "full ones zeros arange tensor eye full_like ones_like zeros_like triu tril eq ne lt le gt ge logical_and logical_or logical_not"
    " logical_xor and_ or_ invert mul neg any all isinf where masked_fill transpose t unsqueeze squeeze view reshape expand bool float"
    " double long int to type getitem".split()
)
_EXACT_FUNCTIONS = {CANONICAL_MASK} | frozenset(
    getattr(space, name) for space in (torch, operator) for name in _EXACT if callable(getattr(space, name, None))
)
LARGEST_MASK = 1 << 24
_UNBIND = frozenset({"unbind", torch.unbind})
_METHODS = frozenset(
    [*_ARITHMETIC, "long", "int", "float", "double", "bool", "to", "detach", "clone", "view", "reshape", "expand", "squeeze"]
)


class Known(NamedTuple):
    """The data of a node's tensor as its storage was at this version, and the inputs that it follows from."""

    real: torch.Tensor
    version: int
    inputs: frozenset[fx.Node] = frozenset()


def version_of_example(example: Any) -> int:
    """How often the memory of a node's example was written to while tracing."""
    version: int = example.storage.version
    return version


def apply_target(op: str, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a node of this op and target makes of these."""
    return getattr(args[0], target)(*args[1:], **kwargs) if op == "call_method" else target(*args, **kwargs)


def held_data(node: fx.Node) -> Known | None:
    """What is kept of a node, when that was not written to since."""
    held: Known | None = node.meta.get("known")
    return None if held is None or node.meta["example_value"].storage.version != held.version else held


def known_tensor(node: fx.Node) -> torch.Tensor | None:
    """The real tensor of a node, when its data follows from plain numbers alone and was not written to since."""
    held = held_data(node)
    return None if held is None or held.inputs else held.real


def numbers_alone(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """The result of an elementwise function of torch that is called with numbers only (torch.div(a, b) of ints, say)."""
    if target not in _FUNCTIONS or getattr(target, "__module__", None) == "_operator":
        return None
    if not args or not all(type(a) in (bool, int, float) for a in args):
        return None
    try:
        result = target(*args, **kwargs)
    except (TypeError, RuntimeError):  # arguments that are refused: a break, or an error of the program
        return None
    return result if isinstance(result, torch.Tensor) and result.ndim == 0 else None


def learn(node: fx.Node, example: Any) -> None:
    """Keep the data of a node's result, when its operands are known."""
    if _is_of_numbers(node, example):
        node.meta["version"] = example.storage.version
    if not isinstance(example, torch.Tensor) or example.device.type != "cpu" or example.ndim > 1:
        return
    if not is_pure(node) or type(example.numel()) is not int or example.numel() > LARGEST:
        return
    held = {n: held_data(n) for n in node.all_input_nodes}
    operands = {n: data for n, data in held.items() if data is not None}
    if len(operands) < len(held) or not (operands or node.target in _FACTORIES):
        return
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: operands[n].real)
    try:
        with torch.no_grad():
            real = apply_target(node.op, node.target, args, kwargs)
    except (RuntimeError, IndexError):  # a division by zero, say: raised when the graph runs, where the program would see it
        return
    if (
        isinstance(real, torch.Tensor)
        and (real.shape, real.dtype) == (example.shape, example.dtype)
        and real.device.type == "cpu"
    ):
        inputs = frozenset().union(*(data.inputs for data in operands.values()))
        node.meta["known"] = Known(real, version_of_example(example), inputs)


def data_of_numbers(node: fx.Node) -> torch.Tensor | None:
    """The data, made now and on the CPU, of what functions that do not round have made of numbers alone: masks, and what compares them.

    None for all else, for what has been written since, and above LARGEST_MASK elements.
    """
    version = node.meta.get("version")
    if version is None or version != node.meta["example_value"].storage.version:
        return None
    needed, left = set(), [node]
    while left:
        each = left.pop()
        if each not in needed:
            needed.add(each)
            left += each.all_input_nodes
    made: dict[fx.Node, torch.Tensor] = {}

    def real(argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            return made[argument]
        return torch.device("cpu") if isinstance(argument, torch.device) else argument

    for each in sorted(needed):
        args, kwargs = fx.node.map_aggregate((each.args, each.kwargs), real)
        try:
            with torch.no_grad():
                made[each] = apply_target(each.op, each.target, args, kwargs)
        except (RuntimeError, TypeError):  # raised when the graph runs, where the program would see it
            return None
    return made[node]


def _is_of_numbers(node: fx.Node, example: Any) -> bool:
    """Whether a node's result is that of an exact function of numbers, and of such results as they were when they were made."""
    if node.target not in (_EXACT if node.op == "call_method" else _EXACT_FUNCTIONS):
        return False
    if type(example) is not FakeTensor or any(type(n) is not int for n in example.shape) or example.numel() > LARGEST_MASK:
        return False
    for operand in node.all_input_nodes:
        storage = getattr(operand.meta.get("example_value"), "storage", None)
        if storage is None or operand.meta.get("version") != storage.version:
            return False
    return True


def learn_part(node: fx.Node, example: Any) -> None:
    """Keep the data of a node that takes one of the tensors that unbind gave, as loops over a tensor do."""
    given: Any = node.args
    rows, place = given
    if rows.target not in _UNBIND or rows.kwargs:
        return
    data = held_data(rows.args[0])
    if data is not None:
        node.meta["known"] = Known(data.real.unbind(*rows.args[1:])[place], example.storage.version, data.inputs)


def is_pure(node: fx.Node) -> bool:
    """Whether a node computes with numbers, and does nothing else."""
    if node.op == "call_method":
        return node.target in _METHODS
    return node.op == "call_function" and (node.target in _FUNCTIONS or node.target in _FACTORIES)


def is_pure_write(node: fx.Node) -> bool:
    """Whether a node computes with numbers and writes the result to its first argument."""
    if node.op == "call_method":
        name = str(node.target)
        return name.endswith("_") and name[:-1] in _ARITHMETIC
    return node.target in (operator.iadd, operator.isub, operator.imul)


def with_numbers(
    target: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    data_of: Callable[[fx.Node], torch.Tensor | None] = known_tensor,
    size_of: Callable[[fx.Node], Any] = lambda node: None,
) -> tuple[Any, Any] | None:
    """The arguments with known numbers in the place of tensors without dims, as torch itself takes them; None when there is none.

    What the operation works on, its first argument, stays. Masks that are an index become their positions. data_of: what is
    known. size_of: the argument in the place of what is computed from sizes.
    """
    replaced: list[fx.Node] = []
    indexed = target is operator.getitem

    def number(node: fx.Node) -> Any:
        known = data_of(node)
        size = size_of(node) if known is None else None
        if size is not None:
            replaced.append(node)
            return size
        if known is None or known.ndim and not (indexed and known.dtype is torch.bool):
            return node
        replaced.append(node)
        return known.nonzero()[:, 0].tolist() if known.ndim else known.item()

    made = fx.node.map_arg((args[1:], kwargs), number)
    return ((*args[:1], *made[0]), made[1]) if replaced else None

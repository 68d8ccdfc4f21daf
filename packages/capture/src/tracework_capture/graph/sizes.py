"""Sizes and ints in the graph: nodes that compute expressions of them, those that depend on data, and inputs that may be any number.

Sizes that depend on data come with the option `unbacked`: from which nodes, and what torch._check says of them. A node whose operator read data
carries meta["data_dependent"]; later stages call it as it is and compile what is between such nodes.

Ints that are inputs are any number where tensors are only computed with them; not below 0 as places, sizes and offsets, where what they are the
size of has 1 item at least; elsewhere a size of 2 or more. What is none of these is fixed. What takes an int as a place or a size treats negative
numbers, and nothing, by rules of their own; sums and products do not. Neither are divisors that give integers, and exponents, left open: integers
cannot be divided by 0 or raised to a negative power.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from tracework_primops import Condition

from .._torch.modes import set_grad_mode
from .._torch.settings import enter_autocast
from ..dims import SMALLEST
from ..guards.kinds import COMPARE_FUNCTIONS
from .operators import NAMESPACE

# --- expressions -----------------------------------------------------------------------------------------------------------


def expression_node(builder: Any, size: Any) -> fx.Node:
    """Nodes that compute a size expression from the size inputs, through the carrier of symbolic sizes."""
    value = builder.symbols.to_symint(size)
    names = {str(symbol): _Recorder(builder, node) for symbol, node in builder.symbol_nodes.items()}
    extremes = {"max": _extreme(torch.sym_max), "min": _extreme(torch.sym_min)}
    node: fx.Node = eval(str(size), {"__builtins__": {}, **extremes, **names}).node
    node.meta["example_value"] = node.meta["val"] = value
    return node


class _Recorder:
    """Evaluates the Python text of an expression while recording nodes."""

    def __init__(self, builder: Any, node: fx.Node) -> None:
        self.builder, self.node = builder, node

    def apply(self, target: Callable[[Any, Any], Any], left: Any, right: Any) -> _Recorder:
        args = tuple(x.node if isinstance(x, _Recorder) else x for x in (left, right))
        example = target(*(x.meta["example_value"] if isinstance(x, fx.Node) else x for x in args))
        return _Recorder(self.builder, self.builder.bare_node(target, args, example))

    def __neg__(self) -> _Recorder:
        return self.apply(operator.mul, self, -1)


def _install(name: str) -> None:
    target = getattr(operator, name)
    setattr(_Recorder, f"__{name}__", lambda self, other: self.apply(target, self, other))
    setattr(_Recorder, f"__r{name}__", lambda self, other: self.apply(target, other, self))


for _name in ("add", "sub", "mul", "floordiv", "mod", "pow"):
    _install(_name)


def _extreme(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def pair(left: Any, right: Any) -> _Recorder:
        return (left if isinstance(left, _Recorder) else right).apply(function, left, right)

    return lambda *args: functools.reduce(pair, args)


# --- sizes that depend on data ---------------------------------------------------------------------------------------------


def bind_sizes(builder: Any, node: fx.Node, example: Any) -> None:
    """Nodes for the symbols that first appear in a node's result."""
    if isinstance(example, torch.SymInt):
        if _is_new(builder, example):
            builder.know_size(builder.symbols.from_symint(example), node)
    elif isinstance(example, torch.Tensor):
        for dim, size in enumerate(example.shape):
            if _is_new(builder, size):
                made = builder.bare_node(torch.ops.aten.sym_size.int, (node, dim), size)
                builder.know_size(builder.symbols.from_symint(size), made)
    elif isinstance(example, (tuple, list)):
        for index, item in enumerate(example):
            if isinstance(item, torch.Tensor) and any(_is_new(builder, size) for size in item.shape):
                bind_sizes(builder, builder.bare_node(operator.getitem, (node, index), item), item)


def _is_new(builder: Any, size: Any) -> bool:
    """Whether a size is a symbol alone, which depends on data, and no node gives it yet."""
    if not isinstance(size, torch.SymInt):
        return False
    symbol = builder.symbols.from_symint(size)
    return symbol in builder.symbols.origins and not builder.symbols.has_hint(symbol) and symbol not in builder.symbol_nodes


def holds(difference: int, relation: str, error: str, text: str) -> None:
    """Raises when `difference relation 0` is false."""
    if not COMPARE_FUNCTIONS[relation](difference, 0):
        raise RAISED[error](text)


RAISED = {each.__name__: each for each in (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError)}


def state(frame: Any, condition: Any, error: type[BaseException], text: str) -> None:
    """The program says that a condition on sizes holds: taken for granted from here on, and looked at when the graph runs."""
    builder = frame.graph
    builder.symbols.assume(condition, frame.user_location())
    args = builder.size_node(condition.expr), condition.op, error.__name__, text
    builder.known_node(frame, holds, args, None, data_dependent=True)


MODE_SWITCHES = (set_grad_mode, enter_autocast)


def switches_modes(graph: fx.Graph) -> bool:
    """Whether grad mode or autocast change inside, which later stages do not keep when they cut the graph at its reads of data."""
    return any(node.target in MODE_SWITCHES for node in graph.nodes)


def relation_node(builder: Any, condition: Any) -> fx.Node:
    """The node of a condition's truth."""
    example = builder.symbols.to_symbool(condition)
    node: fx.Node = builder.bare_node(COMPARE_FUNCTIONS[condition.op], (builder.size_node(condition.expr), 0), example)
    return node


# --- inputs that may be any number -----------------------------------------------------------------------------------------

OPERATORS = "add sub mul iadd isub imul truediv itruediv true_divide eq ne lt le gt ge"
METHODS = "add sub mul roll rsub eq ne lt le gt ge where masked_fill fill clamp clamp_min clamp_max _foreach_add _foreach_sub _foreach_mul"
TAKES_ANY = frozenset([*OPERATORS.split(), *(name + end for name in METHODS.split() for end in ("", "_"))])
PLACES = (
    "getitem setitem narrow select tril triu diagonal arange linspace eye pad kthvalue full zeros ones empty rand randn"
    " new_zeros new_ones new_full new_empty expand repeat view reshape unflatten topk split chunk tensor_split"
)
TAKES_PLACES = frozenset([*PLACES.split(), "tril_", "triu_"])


class UnspecialisedNumbers:
    """The ints of one capture that may still be any number, and those that turned out to be fixed."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.values: dict[Any, int | None] = {}

    def add(self, symbol: Any) -> None:
        """An int that became an input."""
        self.values[symbol] = None

    def settle(self, frame: Any, target: Any, arg: Any) -> Any:
        """The arguments of a call of `target`, whose numbers are sizes or places from now on unless it takes any number."""
        name = target if isinstance(target, str) else getattr(target, "__name__", "")
        is_traced = getattr(target, "namespace", None) == NAMESPACE  # settled where its graphs were traced
        if not self.values or name in TAKES_ANY or is_traced:
            return arg
        return self.settled(frame, arg, 0 if name in TAKES_PLACES else SMALLEST)

    def settled(self, frame: Any, arg: Any, least: int) -> Any:
        if isinstance(arg, fx.Node):
            return self.settled_node(frame, arg, least)
        if type(arg) is slice:
            return slice(*(self.settled(frame, part, least) for part in (arg.start, arg.stop, arg.step)))
        if isinstance(arg, dict):
            return {key: self.settled(frame, item, least) for key, item in arg.items()}
        if type(arg) in (list, tuple, torch.Size):
            return type(arg)(self.settled(frame, item, least) for item in arg)
        return arg

    def settled_node(self, frame: Any, node: fx.Node, least: int) -> Any:
        example = node.meta["example_value"]
        if not isinstance(example, torch.SymInt):
            return node
        size = self.builder.symbols.from_symint(example)
        found = self.maybe_below_two(size)
        if not found:
            return node
        fixed = {s: value for s in found if (value := self.decided(frame, s, least)) is not None}
        return self.builder.size_node(size.substitute(fixed)) if fixed else node

    def maybe_below_two(self, size: Any) -> list[Any]:
        """The ints in a size that may be less than 2."""
        return [s for s in getattr(size, "free_symbols", ()) if s in self.values]

    def decided(self, frame: Any, symbol: Any, least: int) -> int | None:
        """The value that the symbol is fixed to, or None when it is `least` or more; a guard says which."""
        symbols = self.builder.symbols
        value = self.values[symbol]
        if value is None and symbols.hint(symbol) >= least:
            symbols.guard(Condition.compare(">=", symbol, least), frame.user_location())
            if least == SMALLEST:
                del self.values[symbol]
        elif value is None:
            value = self.values[symbol] = symbols.fix(symbol, frame.user_location())
        return value

    def fix_for_nothing(self, frame: Any, example: Any) -> bool:
        """Whether the result of a call has no items for some ints, which are fixed then; where it has, a guard says so."""
        if isinstance(example, (list, tuple)):
            return any([self.fix_for_nothing(frame, item) for item in example])
        if not self.values or not isinstance(example, torch.Tensor) or example.layout is not torch.strided:
            return False
        symbols, fixed = self.builder.symbols, False
        for size in example.shape:
            expression = size if type(size) is int else symbols.from_symint(size)
            found = [s for s in self.maybe_below_two(expression) if self.values[s] is None]
            if found and symbols.hint(expression) > 0:
                symbols.guard(Condition.compare(">=", expression, 1), frame.user_location())
                continue
            for symbol in found:
                self.values[symbol], fixed = symbols.fix(symbol, frame.user_location()), True
        return fixed

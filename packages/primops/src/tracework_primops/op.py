"""What a prim is: its declaration, the OPS registry, and what happens when one is called.

A declaration is one line in ops/<family>.py, such as ``op("gather(x:T, dim, index:T)", "...")``. Argument letters:
``T`` a tensor, ``V`` a tensor or a Python number, ``O`` a tensor or None, ``L`` a sequence of tensors (or Nones);
an argument without a letter is a literal (number, dtype, sizes as ``int | Expr``). In a graph, a prim's node always
has all its arguments, positionally, with defaults filled in; ``node.kwargs`` is empty.

Calling an Op:

- while a `GraphBuilder` is active on this thread: run its META rule and append a node, or only META if the builder has no graph;
- otherwise (real or fake tensors): run its EAGER rule.
"""

from __future__ import annotations

import enum
import operator
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from .fx_nodes import add_node
from .spec import TensorSpec
from .symbols import Expr, Size

Scalar = int | float | complex | Expr
"""A number, which may be a symbolic size."""


class Kind(enum.Enum):
    """How a backend may treat an op as a whole."""

    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    VIEW = "view"
    INDEXING = "indexing"
    CREATION = "creation"
    WINDOW = "window"
    SCAN = "scan"
    LIBRARY = "library"
    MEMORY = "memory"


class Tag(enum.Enum):
    """Single facts about an op, read by partitioners, passes and lowerings."""

    BOOL_RESULT = "the result is bool whatever the operands are"
    REAL_RESULT = "complex operands give a real result"
    TRANSCENDENTAL = "costs tens of instructions an element"
    COMPUTE = "work grows faster than its bytes; never recompute"
    RANDOM = "advances or reads a generator"
    DATA_DEPENDENT = "result sizes depend on values"
    MUTATES = "writes to its first argument"
    SCATTER = "writes to computed positions"
    CHECKS = "raises for an index out of range, also where nobody reads the result"


@dataclass(frozen=True)
class Arg:
    """One parameter of an Op: `letter` is T, V, O, L or '' (literal)."""

    name: str
    letter: str
    default: Any = ...


@dataclass(frozen=True, eq=False)
class Op:
    """A prim. Compared and hashed by identity; use it as the target of an fx call_function node."""

    name: str
    signature: str
    args: tuple[Arg, ...]
    results: int
    kind: Kind
    tags: frozenset[Tag]
    doc: str
    family: str
    arity: int = field(init=False)

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "__name__", self.name)
        set_(self, "__qualname__", self.name)
        set_(self, "__module__", "tracework_primops.prims")
        set_(self, "__doc__", f"{self.signature}: {self.doc}")
        set_(self, "arity", len(self.args))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != self.arity:
            args = self.bind(args, kwargs)
        builder = _active.builder
        if builder is not None:
            return builder.call(self, args)
        return RULES["eager"][self](*args)

    def apart(self, *args: Any, **kwargs: Any) -> Any:
        """The result on real tensors in memory of its own, which that of a view is not when it runs eagerly."""
        found = self(*args, **kwargs)
        return tuple([f.clone() for f in found]) if isinstance(found, (tuple, list)) else found.clone()

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """All arguments in order, with defaults; raises TypeError naming the op."""
        if len(args) > len(self.args):
            raise TypeError(f"prims.{self.signature}: {len(args)} arguments given")
        full = list(args)
        left = dict(kwargs)
        for arg in self.args[len(args) :]:
            value = left.pop(arg.name, arg.default)
            if value is ...:
                raise TypeError(f"prims.{self.signature}: argument {arg.name!r} is missing")
            full.append(value)
        if left:
            raise TypeError(f"prims.{self.signature}: unknown or repeated argument {next(iter(left))!r}")
        return tuple(full)

    def __repr__(self) -> str:
        return f"prims.{self.name}"

    def __reduce__(self) -> tuple[Callable[[str], Op], tuple[str]]:
        return _lookup, (self.name,)

    def __deepcopy__(self, memo: object) -> Op:
        return self


def _lookup(name: str) -> Op:
    return OPS[name]


class Registry(Mapping[str, Op]):
    """Name -> Op; three different errors for a second row, a late row and an unknown name."""

    def __init__(self) -> None:
        self._ops: dict[str, Op] = {}
        self._sealed = False

    def add(self, op: Op) -> None:
        if op.name in self._ops:
            raise KeyError(f"OPS: {op.name!r} is declared twice (ops/{op.family}.py and ops/{self._ops[op.name].family}.py)")
        if self._sealed:
            raise KeyError(f"OPS is sealed: {op.name!r} comes too late; use OPS.extend() from outside the package")
        self._ops[op.name] = op
        setattr(prims, op.name, op)

    def seal(self) -> None:
        self._sealed = True

    def extend(self, op: Op, meta: Callable[..., Any], eager: Callable[..., Any]) -> Op:
        """Add an op from outside the package, with its two rules."""
        self._sealed = False
        try:
            self.add(op)
        finally:
            self._sealed = True
        RULES["meta"][op] = meta
        RULES["eager"][op] = eager
        return op

    def __getitem__(self, name: str) -> Op:
        try:
            return self._ops[name]
        except KeyError:
            raise KeyError(f"OPS: there is no prim {name!r}; the declarations are in tracework_primops/ops/") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._ops)

    def __len__(self) -> int:
        return len(self._ops)


class Prims:
    """`prims.add` is OPS["add"]."""

    def __getattr__(self, name: str) -> Op:
        raise AttributeError(f"there is no prim {name!r}; the declarations are in tracework_primops/ops/")

    def __dir__(self) -> list[str]:
        return sorted(OPS)


prims = Prims()
OPS = Registry()
# op -> rule, filled by meta/__init__ and eager/__init__; here so that calling an Op needs no upward import.
RULES: dict[str, dict[Op, Callable[..., Any]]] = {"meta": {}, "eager": {}}

_SIGNATURE = re.compile(r"(\w+)\((.*)\)(?:\s*->\s*(\d+))?$")


def make_op(signature: str, doc: str, family: str, kind: Kind, *tags: Tag) -> Op:
    """Parse a declaration line into an Op (not registered)."""
    match = _SIGNATURE.match(signature)
    if match is None:
        raise ValueError(f"ops/{family}.py: cannot read the declaration {signature!r}")
    name, args, results = match.groups()
    parsed = tuple(_parse_arg(text) for text in _split(args))
    return Op(name, signature, parsed, int(results or 1), kind, frozenset(tags), doc, family)


def declarer(family: str, kind: Kind, *shared: Tag) -> Callable[..., Op]:
    """The `op` function of one family file; `kind=` and further tags override per line."""

    def op(signature: str, doc: str, *tags: Tag, kind: Kind = kind) -> Op:
        made = make_op(signature, doc, family, kind, *shared, *tags)
        OPS.add(made)
        return made

    return op


def _split(args: str) -> list[str]:
    return [a for a in (part.strip() for part in re.split(r",(?![^(]*\))", args)) if a]


def _parse_arg(text: str) -> Arg:
    head, _, default = text.partition("=")
    name, _, letter = head.partition(":")
    value = eval(default, {"__builtins__": {}}, {"contiguous": torch.contiguous_format}) if default else ...
    return Arg(name.strip(), letter.strip(), value)


# --- values and the builder


class PrimValue:
    """A tensor in a graph being built: its spec and its node. Has the shape queries a decomposition needs."""

    __slots__ = ("node", "spec")

    def __init__(self, spec: TensorSpec, node: torch.fx.Node | None) -> None:
        self.spec = spec
        self.node = node

    @property
    def dtype(self) -> torch.dtype:
        return self.spec.dtype

    @property
    def device(self) -> torch.device:
        return self.spec.device

    @property
    def sizes(self) -> tuple[Size, ...]:
        return self.spec.sizes

    shape = sizes

    @property
    def ndim(self) -> int:
        return len(self.spec.sizes)

    def numel(self) -> Size:
        return self.spec.numel()

    def __repr__(self) -> str:
        return f"PrimValue({self.node}, {self.spec})"


class _Active(threading.local):
    builder: GraphBuilder | None = None


_active = _Active()


def active_builder() -> GraphBuilder | None:
    """The builder that prims calls on this thread go to, if any."""
    return _active.builder


class GraphBuilder:
    """Receives prim calls while active (``with builder:``); appends nodes to `graph`, or only runs META if graph is None.

    `origin` is copied to each node's meta["origin"].
    """

    def __init__(self, graph: torch.fx.Graph | None) -> None:
        self.graph = graph
        self.origin: Any = None
        self._outer: list[GraphBuilder | None] = []

    def __enter__(self) -> GraphBuilder:
        self._outer.append(_active.builder)
        _active.builder = self
        return self

    def __exit__(self, *exc: object) -> None:
        _active.builder = self._outer.pop()

    def call(self, op: Op, args: tuple[Any, ...]) -> Any:
        """META, then a node; a tuple of PrimValues for an op with several results."""
        meta = RULES["meta"][op](*[a.spec if a.__class__ is PrimValue else _to_spec(a) for a in args])
        if self.graph is None:
            return PrimValue(meta, None) if op.results == 1 else tuple(PrimValue(m, None) for m in meta)
        if op.family == "pointwise" and op.results == 1 and meta.device.type != "cpu":
            args = tuple([self._placed(a, meta.device) for a in args])
        node = self.append(op, tuple([a.node if a.__class__ is PrimValue else _to_node(a) for a in args]), meta)
        return self.wrap(node, meta)

    def _placed(self, arg: Any, device: torch.device) -> Any:
        """A single number on the CPU, brought to the device that computes with it: kernels read memory of one device."""
        if arg.__class__ is PrimValue and arg.spec.device.type == "cpu":
            return prims.device_put(arg, device)
        return arg

    def append(self, target: Any, args: tuple[Any, ...], spec: Any, kwargs: dict[str, Any] | None = None) -> torch.fx.Node:
        """A bare call_function node with spec and origin."""
        assert self.graph is not None
        node = add_node(self.graph, "call_function", target, args, kwargs)
        node.meta["spec"] = spec
        node.meta["origin"] = self.origin
        return node

    def wrap(self, node: torch.fx.Node, spec: Any) -> Any:
        """The handle(s) of a node: getitem nodes are made for tuple results, and for tuples in them."""
        if not isinstance(spec, (tuple, list)):
            return None if spec is None else PrimValue(spec, node)
        return tuple(None if s is None else self.wrap(self.append(_getitem, (node, i), s), s) for i, s in enumerate(spec))


_getitem = operator.getitem


def _to_spec(arg: Any) -> Any:
    if arg.__class__ in (list, tuple):
        return tuple([a.spec if a.__class__ is PrimValue else _to_spec(a) for a in arg])
    return arg


def _to_node(arg: Any) -> Any:
    if arg.__class__ in (list, tuple):
        return tuple([a.node if a.__class__ is PrimValue else _to_node(a) for a in arg])
    return arg

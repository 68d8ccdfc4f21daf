"""Records the ATen ops that run on fakes into one fx graph without mutation.

A Recorder is put into `mode.recorder`; it is told each op after its fakes are known. Pure ops become nodes, views become nodes that can be
replayed, writes become new values (memory.py, functional_forms.py). Sizes that are symbols become nodes over the size inputs.
"""

from __future__ import annotations

import bisect
import functools
import operator
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import fx
from tracework_primops import Expr, FakeTensor, add_node, wait_tensor

from .. import _torch
from ..errors import Refusal
from ..signature import ViewStep
from .functional_forms import FUNCTIONAL_FORMS, by_schema
from .memory import Cell, Memory, overlaps_itself
from .repeats import NORMS, InCheckpoint, writes_of
from .views import IDENTITY_VIEWS, PHYSICAL

aten = torch.ops.aten
FORWARD, BACKWARD = "forward", "backward"
Reads = tuple[tuple[FakeTensor, int], ...]
"""The arguments of a checkpoint, and their versions when it began."""
_PLAIN = frozenset((int, float, bool, str, type(None), torch.dtype, torch.device, torch.memory_format, torch.layout, complex))
_NUMBER_DTYPES = frozenset((torch.float64, torch.int64, torch.bool, torch.complex128))


class _Begin(NamedTuple):
    """Of a captured node: its first autograd node's number, where it is in the program, what its checkpoint reads and which that is, by
    both of its names."""

    number: int
    origin: str
    reads: Reads | None
    region: Any
    level: Any


class Recorder:
    """The graph being made, the memory of its fakes, and where in the user's program we are."""

    def __init__(self, mode: Any, keeps_former: bool = False) -> None:
        self.mode = mode
        self.keeps_former = keeps_former  # what checkpoints compute, for their backward, where it is written over
        self.graph = fx.Graph()
        self.memory = Memory(self.emit)
        self.phase = FORWARD
        self.origin = ""
        self.marks: dict[str, Any] = {}  # what the captured node says of recomputation
        self.constants: list[torch.Tensor] = []
        self.pieces: list[tuple[Cell, int, str]] = []
        """Views that nobody knows to be some, how often their memory was written to before, and where they were made."""
        self.untracked: set[fx.Node] = set()  # values that were written unseen by autograd
        self.inside: dict[Any, FakeTensor] = {}  # edges where a gradient that arrives is one with respect to an input
        self._sizes: dict[Any, fx.Node] = {}
        self._last_placeholder: fx.Node | None = None
        self._names: set[str] = set()
        self._begins: list[_Begin] = []  # of each captured node
        self._latest: fx.Node | None = None  # when the captured node being run began
        self.in_checkpoints: list[InCheckpoint] | None = None
        """What checkpoints write to inputs, where a backward may repeat it."""

    # --- inputs -------------------------------------------------------------------------------------------------------
    def placeholder(self, name: str, val: Any, slot: int | None = None) -> fx.Node:
        """The next input; a fake becomes memory of its own, a size can be used in expressions."""
        with self.graph.inserting_after(self._last_placeholder) if self._last_placeholder else self.graph.inserting_before():
            node = self.graph.placeholder(self._unused(name))
        self._last_placeholder = node
        node.meta.update(val=val, origin="", phase=FORWARD)
        if isinstance(val, FakeTensor):
            self.memory.new_root(val, node, slot)
        elif isinstance(val, torch.SymInt):
            self._sizes[val.node.expr] = node
        return node

    def _unused(self, name: str) -> str:
        """A second-order trace has inputs that are named after tangents already."""
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name

    def tangent(self, name: str, val: FakeTensor) -> fx.Node:
        """A placeholder of the backward, at the end of the inputs."""
        node = self.placeholder(name, val)
        node.meta["phase"] = BACKWARD
        return node

    def constant(self, tensor: torch.Tensor) -> FakeTensor:
        """The fake of a tensor that the graph holds; it becomes an input after the caller's."""
        fake = self.mode.from_real(tensor)
        if self.memory.find(fake) is None:
            self.placeholder(f"constant_{len(self.constants)}", fake)
            self.constants.append(tensor)
        return fake

    # --- where we are -------------------------------------------------------------------------------------------------
    def at(self, origin: str, marks: dict[str, Any], reads: Reads) -> None:
        """The captured node being run; nodes of the forward carry its marks, autograd nodes made from now on belong to it."""
        self.origin, self.marks = origin, marks
        self._latest = self._last_node()
        (level, _), *_ = marks.get("recompute_levels") or ((None, False),)
        within = (reads, marks.get("recompute_region"), level) if "recompute" in marks else (None, None, None)
        self._begins.append(_Begin(_torch.sequence_number(), origin, *within))

    def saving(self) -> Any:
        """How autograd saves what the captured node reads and gives: a checkpoint computes that again in the backward."""
        if not self.keeps_former or "recompute" not in self.marks:
            return nullcontext()
        return torch.autograd.graph.saved_tensors_hooks(self._as_it_is, self._unwritten)

    def _as_it_is(self, tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
        cell = self.memory.find(tensor) if isinstance(tensor, FakeTensor) else None
        if cell is not None and self._in_same_checkpoint(cell.root.node):
            tensor = self.apart_from_writes(tensor)
        return tensor, tensor._version

    def apart_from_writes(self, tensor: torch.Tensor) -> torch.Tensor:
        """The present value of a tensor without its history, as memory that nobody writes to."""
        cell = self.cell(tensor)
        value = self.memory.read(cell)
        kept = self.mode.make(cell.fake.spec)
        self.memory.new_root(kept, value)
        return kept

    def _in_same_checkpoint(self, node: fx.Node) -> bool:
        mark = "recompute_region"
        return "recompute" in node.meta and node.meta.get(mark) == self.marks.get(mark)

    def _unwritten(self, kept: tuple[torch.Tensor, int]) -> torch.Tensor:
        """What a checkpoint is computed from again is another than in the forward where it was written to."""
        tensor, version = kept
        if tensor._version != version:
            raise RuntimeError("what a checkpoint is computed from has been modified by an inplace operation")
        return tensor

    def _where(self) -> dict[str, Any]:
        number = _torch.running_backward_sequence() if self.phase is BACKWARD else None
        if number is None or not self._begins:
            return {"origin": self.origin}
        begin = self._begins[self._maker_of(number)]
        return {"origin": begin.origin, "differentiates": begin.region}

    def _maker_of(self, number: int) -> int:
        """Which captured node made the autograd node with this number."""
        return max(bisect.bisect_right(self._begins, number, key=operator.itemgetter(0)) - 1, 0)

    def begin_of(self, node: Any) -> tuple[int, Any]:
        """Which captured node made an autograd node, and in which checkpoint, None where in none."""
        place = self._maker_of(_torch.sequence_number_of(node))
        return place, self._begins[place].level

    def checkpoint_of(self, node: Any) -> Reads | None:
        """What the checkpoint keeps in which an autograd node was made, in the place of what the node would keep."""
        return self._begins[self._maker_of(_torch.sequence_number_of(node))].reads if self._begins else None

    # --- recording ----------------------------------------------------------------------------------------------------
    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        kind = _KINDS.get(func)
        if kind is None:
            kind = _KINDS[func] = _kind_of(func)
        kind(self, func, args, kwargs, out)
        if self.in_checkpoints is not None and "recompute" in self.marks and self.phase is FORWARD and _writes(func):
            self.in_checkpoints += writes_of(self, func, args, kwargs, out, len(self._begins) - 1)

    def node(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], val: Any) -> fx.Node:
        """A node for a call whose arguments are nodes already."""
        node = add_node(self.graph, "call_function", func, args, kwargs)
        node.meta.update(val=val, phase=self.phase, **self._where(), **self.marks)
        return node

    def emit(self, func: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Append a call on nodes and compute its fakes, unseen by autograd."""
        args, kwargs = self.to_node(args), self.to_node(kwargs)
        if func is operator.getitem:
            return self.node(func, args, kwargs, args[0].meta["val"][args[1]])
        recorder, self.mode.recorder = self.mode.recorder, None
        try:
            with _torch.below_autograd(), self.mode:
                val = func(*_values(args), **_values(kwargs))
        finally:
            self.mode.recorder = recorder
        return self.node(func, args, kwargs, val)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Operators on fakes that are no part of the graph."""
        recorder, self.mode.recorder = self.mode.recorder, None
        try:
            yield
        finally:
            self.mode.recorder = recorder

    def _last_node(self) -> fx.Node | None:
        return next(iter(reversed(self.graph.nodes)), None)

    def is_of_this_node(self, made: fx.Node) -> bool:
        """Whether the captured node being run has made a node."""
        return self._latest is None or self._latest < made

    def has_just_made(self, cell: Cell) -> bool:
        """Whether the memory was made right now, inside of the captured node being run, by an operator that reads no data."""
        node = cell.node
        is_last = node is self._last_node()
        if cell.parent is not None or cell.root.slot is not None or not is_last or node is self._latest:
            return False
        name = getattr(node.target, "__name__", "").partition(".")[0]
        return (
            name.startswith("new_")
            or name.endswith("_like")
            or not any(isinstance(given.meta["val"], FakeTensor) for given in node.all_input_nodes)
        )

    def bind_result(self, fake: Any, node: fx.Node) -> None:
        """`fake` is new memory whose value is `node`."""
        if isinstance(fake, FakeTensor):
            node.meta["val"] = fake
            self.memory.new_root(fake, node)

    def write(self, fake: Any, node: fx.Node) -> None:
        """The memory that `fake` shows now holds `node`."""
        cell = self.cell(fake)
        if not torch.is_grad_enabled() or any(step.target is aten.detach.default for step in self.memory.steps(cell)):
            self.untracked.add(node)
        self.memory.write(cell, node)

    def view_in_place(self, cell: Cell, before: FakeTensor, view: Any, args: Any, kwargs: Any) -> None:
        """`cell.fake` has turned into `view` of what it was, which `before` stands for from now on."""
        fake = cell.fake
        for node in self.graph.nodes:
            val = node.meta["val"]
            if val is fake:
                node.meta["val"] = before
            elif isinstance(val, (tuple, list)) and any(v is fake for v in val):
                node.meta["val"] = type(val)([before if v is fake else v for v in val])
        parent = self.memory.read(cell)
        node = self.node(view, (parent, *self.to_node(tuple(args))), self.to_node(kwargs), fake)
        self.memory.turn_into_view(
            cell, before, ViewStep(view, tuple(args), tuple(kwargs.items()), None, torch.is_grad_enabled()), node
        )

    def cell(self, fake: torch.Tensor) -> Cell:
        """The cell of a fake; raises Refusal for tensors that came from nowhere."""
        found = self.memory.find(fake)
        if found is None:
            raise Refusal("an op uses a tensor that is neither an input nor made by the graph", self.origin)
        return found

    def to_node(self, value: Any) -> Any:
        """Arguments of a node: present values of fakes, nodes of symbolic sizes, containers mapped."""
        cls = value.__class__
        if cls in _PLAIN or cls is fx.Node:
            return value
        if cls is FakeTensor:
            found = self.memory.find(value)
            return self.memory.read(found) if found is not None else self._unknown(value)
        if cls is torch.SymInt:
            return self.size_node(value)
        if cls in (tuple, list, torch.Size):
            return [self.to_node(v) for v in value] if cls is list else tuple([self.to_node(v) for v in value])
        if cls is dict:
            return {k: self.to_node(v) for k, v in value.items()}
        if isinstance(value, torch.Tensor):
            return self._real(value)
        if isinstance(value, torch.SymFloat):
            return float(value)  # the operator's rule was given its number, so the sizes behind it are fixed by a condition
        if isinstance(value, torch.SymBool):
            return bool(value)
        return value

    def _unknown(self, fake: FakeTensor) -> Any:
        if fake.constant is not None and fake.ndim == 0:
            return self._number(fake.constant, fake.dtype)
        raise Refusal("an op uses a tensor that is neither an input nor made by the graph", self.origin)

    def _real(self, tensor: torch.Tensor) -> Any:
        if tensor.ndim == 0 and tensor.device.type == "cpu":
            return self._number(tensor.item(), tensor.dtype)
        raise Refusal("an op mixes real tensors with the graph's", self.origin)

    def _number(self, value: Any, dtype: torch.dtype) -> Any:
        """Numbers of the widest dtypes are what Python numbers turn into; others need a tensor to keep their dtype."""
        if dtype in _NUMBER_DTYPES and not isinstance(value, torch.Tensor):
            return value
        return self.emit(aten.full.default, [], value, dtype=dtype, device=torch.device("cpu"))

    # --- sizes --------------------------------------------------------------------------------------------------------
    def size_node(self, size: Any) -> Any:
        """The node of a symbolic size, made from the size inputs; the number itself when it is one."""
        expr = size.node.expr if isinstance(size, torch.SymInt) else size
        if not isinstance(expr, Expr):
            return int(expr)
        found = self._sizes.get(expr)
        if found is None:
            found = self._sizes[expr] = self._size_call(expr)
        return found

    def _size_call(self, expr: Expr) -> fx.Node:
        """An expression is text in Python's own operators over its symbols: evaluated with nodes in their place."""
        symbols = {str(s): _SizeProxy(self, self._symbol(s)) for s in expr.free_symbols}
        return eval(str(expr), {"__builtins__": {}, "max": _symbolic_max, "min": _symbolic_min, **symbols}).node

    def _symbol(self, symbol: Any) -> fx.Node:
        found = self._sizes.get(symbol)
        if found is not None:
            return found
        for node in self.graph.nodes:
            if node.op != "placeholder":
                break
            val = node.meta["val"]
            if isinstance(val, FakeTensor) and symbol in val.spec.sizes:
                dim = val.spec.sizes.index(symbol)
                made = self.node(aten.sym_size.int, (node, dim), {}, self.mode.table.to_symint(symbol))
                self._sizes[symbol] = made
                return made
        raise Refusal(f"the size {symbol} is not among the inputs", self.origin)


class _SizeProxy:
    """Turns Python arithmetic on sizes into nodes."""

    def __init__(self, recorder: Recorder, node: Any) -> None:
        self.recorder, self.node = recorder, node

    def _call(self, op: Any, *operands: Any) -> _SizeProxy:
        nodes = tuple(o.node if isinstance(o, _SizeProxy) else o for o in operands)
        vals = [n.meta["val"] if isinstance(n, fx.Node) else n for n in nodes]
        return _SizeProxy(self.recorder, self.recorder.node(op, nodes, {}, op(*vals)))

    def __neg__(self) -> _SizeProxy:
        return self._call(operator.neg, self)


def _operator(name: str, reverse: bool = False) -> Any:
    op = getattr(operator, name)
    if reverse:
        return lambda self, other: self._call(op, other, self)
    return lambda self, other: self._call(op, self, other)


for _name in ("add", "sub", "mul", "floordiv", "mod", "pow"):
    setattr(_SizeProxy, f"__{_name}__", _operator(_name))
    setattr(_SizeProxy, f"__r{_name}__", _operator(_name, reverse=True))


def _extremum(op: Any) -> Any:
    """The smallest or largest of two or more sizes, two at a time, which is what torch's operator takes; at most one is a number."""

    def apply(*operands: Any) -> Any:
        return functools.reduce(lambda a, b: (a if isinstance(a, _SizeProxy) else b)._call(op, a, b), operands)

    return apply


_symbolic_max, _symbolic_min = _extremum(torch.sym_max), _extremum(torch.sym_min)


# --- what kind of op it is --------------------------------------------------------------------------------------------


def _pure(recorder: Recorder, func: Any, args: Any, kwargs: Any, out: Any) -> None:
    node = recorder.node(func, recorder.to_node(tuple(args)), recorder.to_node(kwargs), out)
    if out.__class__ is FakeTensor:
        recorder.memory.new_root(out, node)
        return
    if isinstance(out, (tuple, list)):
        for index, item in enumerate(out):
            if isinstance(item, FakeTensor):
                recorder.memory.new_root(item, recorder.node(operator.getitem, (node, index), {}, item))


_SCATTERS = frozenset(
    (aten.select_scatter.default, aten.slice_scatter.default, aten.diagonal_scatter.default, aten.as_strided_scatter.default)
)


def _waits(recorder: Recorder, func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """Eager puts the result of a collective into a tensor that waits when it is read; graphs wait themselves."""
    _pure(recorder, wait_tensor(), args, kwargs, out)


def _scatter(recorder: Recorder, func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """Eager copies the memory behind the first argument and writes there: what shares a place with what is written changes, too. Only
    of what an expand shows several times it makes separate elements."""
    shown = args[0]
    is_expanded = any(stride == 0 and size != 1 for size, stride in zip(shown.shape, shown.stride()))
    if overlaps_itself(shown) and not is_expanded:
        raise Refusal(f"{func} of windows that overlap", recorder.origin)
    _pure(recorder, func, args, kwargs, out)


_BY_PLACES = frozenset((aten.as_strided_copy.default, aten.as_strided_scatter.default))


def _by_places(kind: Any) -> Any:
    """The kind of an op that finds elements by where they lie in the storage of its first argument."""

    def placed(recorder: Recorder, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        cell = recorder.cell(args[0])
        if recorder.memory.note_place(cell) and cell.root.writes:
            raise Refusal(f"{func} of an input that is written to", recorder.origin)
        kind(recorder, func, args, kwargs, out)

    return placed


def _view(index: int) -> Any:
    def view(recorder: Recorder, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        base = args[index]
        parent = recorder.cell(base)
        rest = tuple(args[:index]) + tuple(args[index + 1 :])
        if func in IDENTITY_VIEWS:
            node = recorder.memory.read(parent)
        elif func is aten.as_strided.default:
            node = recorder.memory.window(parent, *rest, **kwargs)
        else:
            target = PHYSICAL.get(func, func)
            node = recorder.node(target, recorder.to_node(tuple(args)), recorder.to_node(kwargs), out)
            if func is aten.view_as_complex.default:
                recorder.memory.note_pairs(parent)
        named = tuple(kwargs.items())
        if func is aten.detach.default and recorder.has_just_made(parent):
            recorder.memory.new_root(out, node)  # the result of torch.ones and its like: nobody has what they detach
            return
        if isinstance(out, FakeTensor):
            is_data = func is aten.detach.default and parent.root.slot is not None and not _torch.is_below_views()
            step = ViewStep(func, rest, named, None, torch.is_grad_enabled(), 0 if is_data else None)
            recorder.memory.new_view(out, parent, step, node)
            return
        for i, item in enumerate(out):
            picked = recorder.node(operator.getitem, (node, i), {}, item)
            step = ViewStep(func, rest, named, i, torch.is_grad_enabled(), call=node.name)
            recorder.memory.new_view(item, parent, step, picked)

    return view


@functools.cache
def _writes(func: Any) -> bool:
    return func in NORMS or bool(_torch.written_arguments(func._schema))


def _kind_of(func: Any) -> Any:
    names = [argument.name for argument in func._schema.arguments]
    if func in _BY_PLACES:
        return _by_places(_kind_of_dense(func))
    place = next((i for i, name in enumerate(names) if name in ("sparse", "sparse_grad")), None)
    return _kind_of_dense(func) if place is None else _dense_gradients(_kind_of_dense(func), place, names[place])


def _dense_gradients(kind: Any, place: int, name: str) -> Any:
    """The kind of an op that gives sparse gradients where it is asked to: no graph computes such."""

    def checked(self: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        is_sparse = args[place] if place < len(args) else kwargs.get(name)
        if is_sparse and torch.is_grad_enabled() and args[0].requires_grad:
            raise Refusal("gradients that are sparse tensors", self.origin)
        kind(self, func, args, kwargs, out)

    return checked


def _kind_of_dense(func: Any) -> Any:
    if func in FUNCTIONAL_FORMS:
        return FUNCTIONAL_FORMS[func]
    if func.name() == "_c10d_functional::_wrap_tensor_autograd":
        return _waits
    if func in _SCATTERS:
        return _scatter
    if _torch.written_arguments(func._schema):
        return by_schema
    aliased = _torch.aliased_argument(func._schema)
    return _pure if aliased is None else _view(aliased)


_KINDS: dict[Any, Any] = {}


def _values(args: Any) -> Any:
    if args.__class__ is fx.Node:
        return args.meta["val"]
    if isinstance(args, (tuple, list)):
        return type(args)([_values(a) for a in args])
    return {k: _values(v) for k, v in args.items()} if isinstance(args, dict) else args

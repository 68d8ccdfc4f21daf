"""Walks a PrimGraph, applies LOWERINGS and collects buffers and nodes.

`Lowering` is the state of one walk and what rules receive as their first argument.
"""

import functools
import logging
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from tracework_primops import Kind, place_of
from tracework_primops.graph.levels import several_results
from tracework_primops.passes.edits import memory_of, writes

from ..errors import InductorError, LoweringError
from ..ir.body import Axis, IndexCheck, LoopBody, Ref
from ..ir.buffer import FOLDED, Buffer, BufferLayout, BufferView, ExternNode, LoopNode
from ..ir.handlers import Recorder
from ..ir.index import Expr, Size, constant_product, contiguous_strides, dot, flatten, same, same_all, simplify, symbol
from ..ir.index import stride as step_along
from ..ir.scalar_ops import EXTREME_SCANS, handling, ops
from ..options import InductorOptions
from ..schedule.plan import Output, Program
from . import fallback
from .checks import each_checked_once
from .indexing import few_accesses
from .layout import ImageLayouts, dense_strides, is_dense, is_row_major, strides_equal
from .mask_blocks import MaskBlocks
from .operands import gapped_bases, shared_operands
from .pointwise import SAME_NAME, rounded
from .product_layouts import product_layouts
from .product_pieces import pieces
from .realize import is_computed_again, reason_to_realize
from .registry import LOWERINGS, VIEWS, Refused
from .row_padding import RowPadding
from .tile_products import tile_products
from .value import Lazy, Strided, TensorValue, settled
from .vector_products import vector_products
from .written_inputs import raises_after_write, written_inputs

log = logging.getLogger("tracework.fallbacks")
_MANY_LAZIES = 64
"""Above so many, those that nobody needs any longer are looked for."""
_LARGE_COPY = 1 << 20
"""Up to so many bytes a copy costs next to nothing beside a CUDA graph that is recorded anew."""

FLAT = (
    "(lambda *args, **kwargs: [t for part in {}(*args, **kwargs) for t in (part if isinstance(part, (list, tuple)) else [part])])"
)
"""Text of a function that gives the tensors of another's results in one list."""


class Lowering:
    """One lowering in progress."""

    def __init__(self, graph: Any, options: InductorOptions, writes_inputs: bool = True) -> None:
        self.graph = graph
        self.options = options
        self.symbols = graph.symbols
        self.images = ImageLayouts(graph.graph, graph.role)
        self.buffers: dict[str, Buffer] = {}
        self.nodes: list[Any] = []
        self.inputs: list[str] = []
        self.size_inputs: dict[str, Any] = {}
        self.mutated: dict[str, str] = {}
        self.newest: dict[str, str] = {}
        """Memory that was written to -> the alias that the last write made of it."""
        self.in_flight: dict[str, frozenset[str]] = {}  # result of a collective -> what that reads until it is waited for
        self.fallbacks: list[tuple[str, str]] = []
        self.mask_blocks: dict[tuple[Any, ...], MaskBlocks] = {}
        """What an attention mask reads, and how -> its blocks."""
        self.checks = 0
        """How many checks of indices there are."""
        self.spec: Any = None
        self.node: Any = None
        products = options.numerics == "default"  # what moves their operands chooses other kernels, with other bits
        self.product_pieces = pieces(graph.graph) if products else {}
        self.product_layouts = product_layouts(graph.graph) if products else {}
        self.vector_products = vector_products(graph.graph, graph.role) if products else frozenset()
        self.tile_products = tile_products(graph.graph, options) - self.vector_products if products else frozenset()
        self.products: dict[str, tuple[LoopNode, ...]] = {}
        """Library call -> the loops of its product (tile_products.py)."""
        self.pieces: dict[str, frozenset[str]] = {}
        """The first library call of such a product -> the names of others, and of what puts their results together."""
        self.row_padding = RowPadding(graph.graph, {*self.product_pieces, *self.vector_products})
        self.gapped_bases = gapped_bases(graph.graph)
        self.shared_operands = shared_operands(graph.graph, self.vector_products)
        self.origin: str | None = None
        self.token: str | None = None
        self._lazies: list[tuple[Any, Lazy]] = []
        self._most_lazies = _MANY_LAZIES
        self.values: dict[Any, Any] = {}
        """Node -> what it was lowered to."""
        self.padded: dict[Any, Strided] = {}
        """Copies with padded rows (matmul.py): (buffer, offset, sizes, strides) -> the copy."""
        self.copies: dict[Any, Strided] = {}
        """Copies with other strides, which all share that ask for them: (buffer, offset, sizes, strides, the copy's strides) -> the copy."""
        self.written_inputs = written_inputs(graph.graph)
        self.changed_copies: dict[str, Strided] | None = None if writes_inputs else {}
        """Inputs that are not written to before the end -> the copy in which their new value is made."""

    # buffers

    def new_buffer(self, layout: BufferLayout, kind: str = "computed", base: str | None = None) -> Buffer:
        """A fresh name with a layout."""
        buffer = Buffer(f"buf{len(self.buffers)}", layout, kind, base)
        self.buffers[buffer.name] = buffer
        return buffer

    def whole(self, buffer: Buffer) -> Strided:
        """The window that is the buffer itself."""
        layout = buffer.layout
        return Strided(layout.sizes, layout.dtype, layout.device, buffer.name, layout.strides)

    def add_node(self, node: Any) -> None:
        """Appends to the program."""
        self.nodes.append(node)

    def origins(self) -> tuple[str, ...]:
        """Of the node being lowered."""
        return (str(self.origin),) if self.origin else ()

    # realising

    def realize(self, value: TensorValue, strides: Sequence[Size] | None = None) -> Strided:
        """The value in memory; `strides` is the layout if it is not there yet."""
        value = settled(value)
        if isinstance(value, Strided):
            return value
        assert isinstance(value, Lazy)
        wanted = dense_strides(value.sizes, strides if strides is not None else value.strides)
        if (at := self._window_on_base(value, wanted)) is not None:
            return at
        if value.base is not None and value.base.realized is None and strides is None:
            self._prefer_base(value)
            at = self.place(value)
            if at is not None and is_row_major(at.sizes, at.strides):
                value.realized = at
                return at
        return self.realize_in(value, wanted)

    def realize_in(self, value: Lazy, strides: Sequence[Size]) -> Strided:
        """The value in a new buffer with these strides, which may leave gaps."""
        layout = BufferLayout(value.dtype, value.device, value.sizes, tuple(strides))
        buffer = self.new_buffer(layout)
        self.images.note(buffer.name, layout)
        reader, self.origin = self.origin, value.origin or self.origin
        self.pointwise_node(buffer, value.load)
        self.origin = reader
        value.realized = self.whole(buffer)
        value.base = None
        return value.realized

    def _realize_narrow(self, value: Lazy) -> Lazy | None:
        """The value, read from where what it is converted from lies then, as eager stores it."""
        narrow = value.narrow
        if narrow is None or narrow.realized is not None:
            return None
        value.reads, value.cost = frozenset((self.realize(narrow).buffer,)), 1
        return value

    def _window_on_base(self, value: Lazy, strides: Sequence[Size]) -> Strided | None:
        """What the value rearranges in memory, if the value is a window with these strides on it then.

        The loops are those of the base, whose neighbours go over memory in the same order and become one kernel with it.
        """
        base = _root(value)
        if base is value or base.realized is not None or base.dtype is not value.dtype:
            return None
        layout = BufferLayout(base.dtype, base.device, base.sizes, tuple(dense_strides(base.sizes, base.strides)))
        trial = self.new_buffer(layout)
        base.realized = self.whole(trial)
        at = self.place(value)
        base.realized = None
        del self.buffers[trial.name]
        if at is None or not strides_equal(at.sizes, at.strides, strides) or not same(base.numel(), value.numel()):
            return None
        self.realize_in(base, layout.strides)
        at = self.place(value)
        assert at is not None
        value.realized = at.window(at.sizes, strides, at.offset)  # of dims of one element, too
        return value.realized

    def _prefer_base(self, value: Lazy) -> None:
        base = _root(value)
        if base is not value and base.realized is None and base.cost >= self.options.inline_cost and len(base.reads) > 0:
            self.realize(base)

    def realize_with(self, value: TensorValue, strides: Sequence[Size]) -> Strided:
        """The value in memory with exactly these strides."""
        value = settled(value)
        if isinstance(value, Strided):
            if strides_equal(value.sizes, value.strides, strides):
                return value
            if value.dtype.is_complex:  # which loops do not load whole
                return self.strided_copy(value, strides)
            key = (value.buffer, value.offset, value.sizes, value.strides, tuple(strides))
            if key not in self.copies:
                copy = Lazy(value.sizes, value.dtype, value.device, value.load, 1, value.reads)
                self.copies[key] = self.realize(copy, strides)
            return self.copies[key]
        return self.realize(value, strides) if dense_strides(value.sizes, strides) == tuple(strides) else self.realize(value)

    def window(self, value: TensorValue, strides: Sequence[Size] | None = None) -> BufferView:
        """An operand of a library call, with these strides if given."""
        at = self.realize(value) if strides is None else self.realize_with(value, strides)
        return BufferView(at.buffer, at.sizes, at.strides, at.offset)

    def at_one_place(self, value: TensorValue) -> Strided:
        """The value in memory; a copy, if it is small, of what lies where a number says that kernels are to read from memory."""
        at = self.realize(value)
        moves = isinstance(at.offset, Expr) and not at.offset.free_symbols.isdisjoint(self.size_inputs.values())
        fixed = all(isinstance(n, int) for n in (*at.sizes, *at.strides)) and 0 not in at.strides
        if (
            not (at.device.type in self.options.numbers_in_memory and moves and fixed)
            or constant_product(at.sizes) * at.dtype.itemsize > _LARGE_COPY
        ):
            return at
        return self.realize_in(Lazy(at.sizes, at.dtype, at.device, at.load, 1, at.reads), at.strides)

    def place(self, value: Strided | Lazy) -> Strided | None:
        """The window on one buffer that the value is, in memory or as a lazy rearrangement; None if it is none."""
        value = settled(value)
        if not isinstance(value, Lazy):
            return value
        if _root(value).realized is None and (value.cost or len(value.reads) != 1):
            return None
        axes, index = make_axes("i", value.sizes)
        recorder = Recorder(axes)
        with handling(recorder):
            value.load(index)
        if [i.op for i in recorder.instructions] != ["load"] or recorder.instructions[0].args[2] is not None:
            return None
        buffer, at, _ = recorder.instructions[0].args
        at = simplify(at, axis_ranges(axes))
        if self.buffers[buffer].layout.dtype is not value.dtype:  # parts of complex numbers
            return None
        found = [step_along(at, i) if not isinstance(i, int) else 0 for i in index]
        steps = [s for s in found if s is not None]
        if len(steps) < len(found):
            return None
        offset = at - dot(index, steps)
        return self.whole(self.buffers[buffer]).window(value.sizes, steps, offset) if isinstance(offset, int) else None

    def is_repeated(self, value: TensorValue, dim: int) -> bool:
        """Whether the elements of a value are known to be the same at all indices of a dim."""
        value = settled(value)
        if isinstance(value, Strided):
            return same(value.strides[dim], 0)
        axes, index = make_axes("i", value.sizes)
        recorder, ranges, var = Recorder(axes), axis_ranges(axes), index[dim]
        with handling(recorder):
            value.load(index)
        read = [simplify(arg, ranges) for i in recorder.instructions for arg in i.args if isinstance(arg, Expr)]
        return not any(isinstance(arg, Expr) and var in arg.free_symbols for arg in read)

    # loops

    def pointwise_node(
        self,
        buffer: Buffer,
        inner: Callable[[list[Size]], Ref],
        sizes: Sequence[Size] | None = None,
        position: Callable[[list[Size]], Size] | None = None,
        mode: str = "set",
        domain: str = "pointwise",
        mutates: str | None = None,
    ) -> None:
        """A loop nest that stores inner(index) at position(index)."""
        layout = buffer.layout
        sizes = layout.sizes if sizes is None else tuple(sizes)
        if any(isinstance(s, int) and s == 0 for s in sizes):
            self.add_node(_nothing(buffer, mutates, self.origins()))
            return
        axes, index = make_axes("i", sizes)
        recorder = Recorder(axes)
        with handling(recorder):
            value = inner(index)
            at = dot(index, layout.strides) if position is None else position(index)
            ops.store(buffer.name, at, recorder.to_dtype(value, layout.in_loops.dtype), mode)
        self._add_loops(buffer.name, domain, recorder, mutates)

    def reduction_node(
        self,
        buffer: Buffer,
        kind: str,
        reduced: Sequence[Size],
        inner: Callable[[list[Size], list[Size]], Any],
    ) -> None:
        """A loop nest that reduces inner(index, reduced index); inner gives (value, position) for argmax and argmin, both factors for a dot."""
        axes, index = make_axes("i", buffer.layout.sizes)
        inner_axes, inner_index = make_axes("r", reduced)
        recorder = Recorder(axes, inner_axes)
        with handling(recorder):
            value = inner(index, inner_index)
            value = value if type(value) is tuple else (value,)
            recorder.reduce(buffer.name, kind, *value)
        self._add_loops(buffer.name, "reduction", recorder, None)

    def scan_node(
        self,
        buffer: Buffer | None,
        kind: str,
        dim: int,
        inner: Callable[[list[Size]], Ref],
        positions: Buffer | None = None,
    ) -> None:
        """A loop nest that stores the running reduction of inner along dim, and, of an extreme, where it is: each where it has a buffer."""
        stored = [b for b in (buffer, positions) if b is not None]
        name, sizes = stored[0].name, stored[0].layout.sizes
        axes, outer = make_axes("i", [s for d, s in enumerate(sizes) if d != dim])
        inner_axes, (along,) = make_axes("r", [sizes[dim]])
        index = [*outer[:dim], along, *outer[dim:]]
        recorder = Recorder(axes, inner_axes)
        with handling(recorder):
            value = inner(index)
            if kind in EXTREME_SCANS:
                value = recorder.scan(name, kind, value, recorder.index_expr(along, torch.int64))
            else:
                value = recorder.scan(name, kind, recorder.to_dtype(value, stored[0].layout.dtype))
            for made in stored:
                result = value if made is buffer else recorder.scanned_position(value)
                recorder.store(made.name, dot(index, made.layout.strides), recorder.to_dtype(result, made.layout.in_loops.dtype))
        self._add_loops(name, "scan", recorder, None, *(b.name for b in stored[1:]))

    def sort_node(
        self,
        results: Sequence[Buffer | None],
        dim: int,
        size: int,
        inner: Callable[[list[Size]], Ref],
        descending: bool,
    ) -> None:
        """A loop nest that sorts the `size` elements of inner along dim, and stores values and positions: of each row as many as the buffers
        hold. results: a buffer for each of the two, or None."""
        stored = [b for b in results if b is not None]
        sizes = stored[0].layout.sizes
        axes, outer = make_axes("i", [s for d, s in enumerate(sizes) if d != dim])
        inner_axes, (along,) = make_axes("r", [size])
        index = [*outer[:dim], along, *outer[dim:]]
        recorder = Recorder(axes, inner_axes)
        with handling(recorder):
            value = inner(index)
            place, mask = recorder.argsort(value, descending), None
            if sizes[dim] != size:
                mask = ops.lt(recorder.index_expr(along, torch.int64), recorder.index_expr(sizes[dim], torch.int64))
            for number, made in enumerate(results):
                if made is not None:
                    result = recorder.take_along(value, place) if number == 0 else place
                    result = recorder.to_dtype(result, made.layout.dtype)
                    recorder.store(made.name, dot(index, made.layout.strides), result, mask=mask)
        self._add_loops(stored[0].name, "sort", recorder, None, *(b.name for b in stored[1:]))

    def _add_loops(self, name: str, domain: str, recorder: Recorder, mutates: str | None, *more: str) -> None:
        body = recorder.finish()
        reads = frozenset(i.args[0] for i in body.loads())
        body = simplified(body)
        device = self.buffers[name].layout.device
        if any(self.buffers[r].layout.device != device for r in reads):
            raise InductorError(f"a kernel on {device} would read the memory of another device, from {self.origins()}")
        origins = tuple(dict.fromkeys((*recorder.origins, *self.origins())))
        writes = frozenset((name, *more))
        self.add_node(LoopNode(f"loop{len(self.nodes)}", domain, body, reads, writes, device, origins, mutates))

    def checked(
        self, index: TensorValue, size: Size, wrap: bool = False, accessed: Sequence[Size] = ()
    ) -> Callable[[list[Size]], Any]:
        """How an element of an index becomes a position below `size`, which kernels check; negative ones count from the end if `wrap`.

        What reads only a part of the index checks only that, and nobody may read what is found at it: a loop of its own, that checks the
        whole index and does nothing else, stays where no other does. accessed: sizes of what is read or written there; an index into
        nothing is not looked at.
        """
        index = settled(index)
        check: IndexCheck | None = None
        if self.options.index_checks and not any(isinstance(s, int) and s == 0 for s in (*index.sizes, *accessed)):
            check = IndexCheck(self.checks, index.numel(), _operator_and_place(self.origin))
            self.checks += 1

        def position(at: list[Size]) -> Any:
            return ops.indirect(index.load(at), size, wrap, check, flatten(at, index.sizes))

        if check is not None:
            axes, at = make_axes("i", index.sizes)
            recorder = Recorder(axes)
            with handling(recorder):
                position(at)
            body = simplified(recorder.finish())
            if not body.instructions:  # it is known to be in range
                check = None
            else:
                reads = frozenset(i.args[0] for i in body.loads())
                self.add_node(
                    LoopNode(f"loop{len(self.nodes)}", "check", body, reads, frozenset(), index.device, self.origins(), None)
                )
        return position

    # library calls

    def extern(
        self,
        target: str,
        args: Sequence[Any],
        kwargs: dict[str, Any] | None = None,
        *,
        out_form: str | None = None,
        reason: str = "",
        ordered: bool = False,
        sizes: Sequence[Size] | None = None,
        strides: Sequence[Size] | None = None,
        mutates: str | None = None,
        until_then: Collection[str] = (),
    ) -> Any:
        """A call whose results are laid out as the current node's spec says; tensors among args are realised.

        strides, sizes: other ones, for a call with one result and an out form. mutates: the buffer that the call writes and returns.
        until_then: buffers that another process may read until this call.
        """
        spec = self.spec if strides is None else _Spec(self.spec.dtype, self.spec.device, sizes or self.spec.sizes, strides)
        tuple_result = isinstance(spec, (tuple, list))
        parts = [*spec] if isinstance(spec, (tuple, list)) else [spec]
        if any(isinstance(part, (tuple, list)) for part in parts):  # lists of tensors among the results
            target = FLAT.format(target)
        made = [self._result_buffer(s, mutates) for part in parts for s in (part if isinstance(part, (tuple, list)) else [part])]
        reads = set(until_then)
        if mutates is None and not ordered:
            args, kwargs = (self._at_one_place(given) for given in (tuple(args), kwargs or {}))
        packed = tuple(self._pack(a, reads) for a in args)
        packed_kwargs = tuple((k, self._pack(v, reads)) for k, v in (kwargs or {}).items())
        writes = {b.name for b in made if b is not None}
        if ordered:
            reads |= {self.token} if self.token else set()
            self.token = f"order{len(self.nodes)}"
            writes.add(self.token)
        device = next((b.layout.device for b in made if b is not None), torch.device("cpu"))
        node = ExternNode(
            f"extern{len(self.nodes)}",
            target,
            packed,
            packed_kwargs,
            tuple(b.name if b else None for b in made),
            frozenset(reads),
            frozenset(writes),
            device,
            tuple_result,
            out_form,
            tuple(dict.fromkeys((*(self.node.meta.get(FOLDED, ()) if self.node is not None else ()), *self.origins()))),
            mutates,
            reason,
        )
        self.add_node(node)
        values = iter([self.whole(b) if b is not None else None for b in made])
        results = tuple([next(values) for _ in part] if isinstance(part, (tuple, list)) else next(values) for part in parts)
        return results if tuple_result else results[0]

    def _result_buffer(self, spec: Any, mutates: str | None = None) -> Buffer | None:
        if spec is None or not hasattr(spec, "strides"):
            return None
        if mutates is not None:
            return self.new_buffer(self.buffers[mutates].layout, "alias", mutates)
        return self.new_buffer(BufferLayout(spec.dtype, spec.device, tuple(spec.sizes), tuple(spec.strides)), "extern")

    def _at_one_place(self, arg: Any) -> Any:
        """The arguments of a library call that writes to none of them."""
        if isinstance(arg, TensorValue):
            return self.at_one_place(arg)
        if isinstance(arg, dict):
            return {k: self._at_one_place(v) for k, v in arg.items()}
        return type(arg)(map(self._at_one_place, arg)) if type(arg) in (tuple, list) else arg

    def _pack(self, arg: Any, reads: set[str]) -> Any:
        if isinstance(arg, TensorValue):
            view = self.window(arg)
            reads.add(view.buffer)
            return view
        if isinstance(arg, (tuple, list)):
            return (
                type(arg)(self._pack(a, reads) for a in arg)
                if type(arg) in (tuple, list)
                else tuple(self._pack(a, reads) for a in arg)
            )
        return arg

    # the walk

    def run(self) -> Program:
        """The whole graph."""
        users = effective_users(self.graph.graph)
        values = self.values
        outputs: tuple[Output, ...] = ()
        number = 0
        for node in self.graph.graph.nodes:
            if node.op == "placeholder":
                values[node] = self._input(node, number)
                number += 1
            elif node.op == "output":
                outputs = self._outputs(node, values)
            else:
                values[node] = self._call(node, values, users.get(node, 0))
        static = frozenset(n for n, i in enumerate(self.graph.inputs) if getattr(i, "is_static", False))
        program = Program(
            tuple(self.inputs),
            self.size_inputs,
            self.buffers,
            tuple(self.nodes),
            outputs,
            {},
            self.symbols,
            self.mutated,
            self.graph.role,
            static,
            tuple(self.fallbacks),
            self.products,
            self.pieces,
        )
        return each_checked_once(program) if self.checks else program

    def _input(self, node: Any, number: int) -> Any:
        spec = node.meta.get("spec")
        name = f"arg{number}"
        self.inputs.append(name)
        if spec is None or not hasattr(spec, "strides"):
            expr = getattr(spec, "expr", None)
            if expr is not None:
                self.size_inputs[name] = expr
            return expr
        layout = BufferLayout(spec.dtype, spec.device, tuple(spec.sizes), tuple(spec.strides))
        self.buffers[name] = Buffer(name, layout, "input", None, spec.offset)
        return self.whole(self.buffers[name])

    def _call(self, node: Any, values: dict[Any, Any], users: int) -> Any:
        if node.target is operator.getitem:
            value = values[node.args[0]][node.args[1]]
        else:
            self.node = node
            self.spec = node.meta.get("spec")
            self.origin = node.meta.get("origin")
            args = _resolve(node.args, values)
            kwargs = _resolve(dict(node.kwargs), values)
            if getattr(node.target, "kind", None) is Kind.POINTWISE:
                args = self._computed_once(args)
            value = self._lower(node, args, kwargs)
            if self.options.rounds and getattr(node.target, "name", None) not in VIEWS:
                value = rounded(value)
            value = self._give_strides(value)
        value = settled(value)
        if isinstance(value, Lazy):
            self._lazies.append((node, value))
            if value.origin is None and getattr(node.target, "name", None) not in VIEWS and node.target is not operator.getitem:
                value.origin = self.origin
            if node in self.row_padding.bases:
                return self.realize_in(value, self.row_padding.bases[node])
            if node in self.gapped_bases or node in self.shared_operands:
                return self.realize(value)
            if self._is_given_and_called_with(node, value):
                return self.realize(value)
            if reason_to_realize(value, users, self.options, self.buffers) is not None:
                return self._realize_narrow(value) or self.realize(value)
        return value

    def _computed_once(self, operands: Sequence[Any]) -> tuple[Any, ...]:
        """Operands of an elementwise op, in memory where the op's loops would compute them again and again."""
        operands = tuple(map(settled, operands))
        lazies = [v for v in operands if isinstance(v, Lazy)]
        if not lazies or not hasattr(self.spec, "sizes"):
            return operands
        reads = frozenset[str]().union(*(v.reads for v in operands if isinstance(v, (Lazy, Strided))))
        strides = self.images.strides(self.spec, reads)
        return tuple(
            self.realize(v) if isinstance(v, Lazy) and is_computed_again(v, self.spec.sizes, strides) else v for v in operands
        )

    def _give_strides(self, value: Any) -> Any:
        if isinstance(value, Lazy) and value.strides is None and hasattr(self.spec, "strides"):
            value.strides = self.product_layouts.get(self.node) or self.images.strides(self.spec, value.reads)
        return value

    def _is_given_and_called_with(self, node: Any, value: Lazy) -> bool:
        """Whether a new value leaves the graph and library calls read views of it: these are windows then, and no copies."""
        if not {"output", "library"} <= self.row_padding.readers[node]:
            return False
        new = getattr(node.target, "name", None) not in VIEWS or value.cost > 0
        spec = node.meta["spec"]
        return new and value.strides is not None and same_all(value.strides, spec.strides) and is_dense(spec.sizes, spec.strides)

    def _lower(self, node: Any, args: Any, kwargs: Any) -> Any:
        name = operator_name(node.target)
        reason = fallback.reason(name, node.target, args, self.spec, self.options)
        if reason is not None:
            log.info("%s calls the eager kernel: %s", name, reason)
            self.fallbacks.append((name, reason))
            return fallback.call(self, node.target, args, kwargs, reason)
        try:
            value = LOWERINGS[name](self, *args, **kwargs)
            if isinstance(value, Lazy) and value.dtype.is_complex:
                raise Refused("complex numbers that are no window on memory")
            return value
        except Refused as refused:
            log.info("%s calls the eager kernel: %s", name, refused)
            self.fallbacks.append((name, str(refused)))
            return fallback.call(self, node.target, args, kwargs, str(refused))
        except InductorError:
            raise
        except Exception as error:
            raise LoweringError(name, self.origin, f"{type(error).__name__}: {error}") from error

    def _outputs(self, node: Any, values: dict[Any, Any]) -> tuple[Output, ...]:
        if (problem := several_results(node)) is not None:
            raise InductorError(f"the graph's result cannot be compiled: {problem}")
        listed = node.args[0] if isinstance(node.args[0], (tuple, list)) else (node.args[0],)
        owners: dict[str, Any] = {}
        return tuple(self._output(item, values, owners) for item in listed)

    def _output(self, item: Any, values: dict[Any, Any], owners: dict[str, Any]) -> Output:
        """What the caller gets; `owners` says whose memory each buffer is that was given out."""
        value = values.get(item) if hasattr(item, "op") else item
        if not isinstance(value, TensorValue):
            return Output(None, value=value)
        spec = item.meta["spec"]
        at = self.realize_with(value, spec.strides)
        if not strides_equal(at.sizes, at.strides, spec.strides):
            at = self.strided_copy(at, spec.strides)
        elif self._has_another_owner(at.buffer, item, owners):
            at = self.strided_copy(at, at.strides)
        return Output(at.buffer, at.sizes, tuple(spec.strides), at.offset)

    def _has_another_owner(self, buffer: str, item: Any, owners: dict[str, Any]) -> bool:
        """Whether an op that makes memory of its own was lowered to its operand (`v.repeat(1)`), and the caller has that, too."""
        memory = memory_of(item)
        if writes(memory):
            return False
        while (base := self.buffers[buffer].base) is not None:
            buffer = base
        if self.buffers[buffer].kind == "input" and memory.op != "placeholder":
            return True
        return owners.setdefault(buffer, memory) is not memory

    def strided_copy(self, value: Strided, strides: Sequence[Size]) -> Strided:
        """A copy with strides that are not dense (an expanded or padded output), made by torch."""
        before, self.spec = self.spec, _Spec(value.dtype, value.device, value.sizes, tuple(strides))
        result = self.extern("restride", (value, tuple(strides)), reason="a layout that is not dense")
        self.spec = before
        assert isinstance(result, Strided)
        return result

    def settle_readers(self, buffer: str) -> None:
        """Gives memory to every value that reads `buffer`, which the current node overwrites, and that a later node needs."""
        known: dict[Any, bool] = {self.node: False}
        if len(self._lazies) > self._most_lazies:  # what nobody needs any longer nobody ever will
            unfinished: dict[Any, bool] = {self.node: True}
            self._lazies = [(node, value) for node, value in self._lazies if self._needed_later(node, unfinished)]
            self._most_lazies = 2 * len(self._lazies) + _MANY_LAZIES
        for node, value in self._lazies:
            at = value.realized
            if at is None and buffer in value.reads and self._needed_later(node, known):
                self.realize(value)
            elif at is not None and at.buffer == buffer and self._needed_later(node, known):
                # a rearranged copy that a library call read where the original lies
                value.realized = None
                self.values[node] = self.realize_in(value, dense_strides(value.sizes, value.strides))

    def _needed_later(self, node: Any, known: dict[Any, bool]) -> bool:
        """Whether a node that is still to come reads the lazy value of `node`, itself or through other lazy values. known: of some nodes, the
        current one among them, which is still to come or not."""
        if node not in known:
            known[node] = any(
                user not in self.values or (not _in_memory(self.values[user]) and self._needed_later(user, known))
                for user in node.users
                if user is not self.node or known[user]
            )
        return known[node]


def operator_name(target: Any) -> str:
    """Of what a node calls: a prim's name, or "aten.mm.default"."""
    name = getattr(target, "name", None)
    return name if isinstance(name, str) else str(target)


def places(graph: Any) -> list[str]:
    """Of each call of a PrimGraph, "file:line in function operator" in the program; empty where that is not known."""
    known = functools.cache(place_of)
    return [known(node.meta.get("origin")) for node in graph.graph.nodes if node.op == "call_function"]


def _operator_and_place(origin: str | None) -> str:
    """ "file:line in function operator" as "operator, file:line in function", for messages."""
    place, _, operator = place_of(origin).rpartition(" ")
    return f"{operator}, {place}" if place else operator


def _root(value: Lazy) -> Lazy:
    """What a value is a rearrangement of, up to what is in memory."""
    while value.base is not None and value.realized is None:
        value = value.base
    return value


def _in_memory(value: Any) -> bool:
    return isinstance(settled(value), Strided)


class _Spec:
    def __init__(self, dtype: Any, device: Any, sizes: Any, strides: Any) -> None:
        self.dtype, self.device, self.sizes, self.strides = dtype, device, sizes, strides


def lower(graph: Any, options: InductorOptions) -> Program:
    """A PrimGraph as buffers and loop nests."""
    program = Lowering(graph, options).run()
    return Lowering(graph, options, writes_inputs=False).run() if raises_after_write(program) else program


def make_axes(prefix: str, sizes: Sequence[Size]) -> tuple[tuple[Axis, ...], list[Size]]:
    """Axes for all dimensions but those of size 1, and the index that they make."""
    axes: list[Axis] = []
    index: list[Size] = []
    for n, size in enumerate(sizes):
        if same(size, 1):
            index.append(0)
        else:
            var = symbol(f"{prefix}{n}", 0, None)
            axes.append(Axis(var, size))
            index.append(var)
    return tuple(axes), index


def axis_ranges(axes: Sequence[Axis]) -> dict[Any, tuple[Size, Size]]:
    """Inclusive ranges of loop variables."""
    return {a.var: (0, a.size - 1) for a in axes}


def simplified(body: LoopBody) -> LoopBody:
    """The body with floors and mods removed where the ranges of its axes allow."""
    ranges = axis_ranges((*body.axes, *body.reduction_axes))
    memo: dict[Any, Any] = {}

    def short(arg: Any) -> Any:
        if not isinstance(arg, Expr):
            return arg
        found = memo.get(arg)
        if found is None:
            found = memo[arg] = simplify(arg, ranges) if _has_division(arg) else arg
        return found

    changed = tuple(i._replace(args=tuple(short(a) for a in i.args)) if _has_expr(i.args) else i for i in body.instructions)
    return LoopBody(body.axes, body.reduction_axes, changed)


def _has_expr(args: tuple[Any, ...]) -> bool:
    return any(isinstance(a, Expr) for a in args)


def _has_division(expr: Any) -> bool:
    return expr.as_affine() is None


LOOK_UPS = frozenset({"gather", "index_select", "index"})
"""Prims that read elements of a table."""
ELEMENTWISE = frozenset({*SAME_NAME, "convert"})
"""Prims that compute an element of an element of each operand."""


def effective_users(graph: Any) -> dict[Any, int]:
    """How many rules that compute read an element of each node's value, looking through views; not those that look up a few of its elements,
    or compute what only such look up."""
    counts: dict[Any, int] = {}
    for node in reversed(graph.nodes):
        parts = [user for user in node.users if _is_part(user)]
        count = _most_at_one_place(parts, counts)
        for user in node.users:
            if user in parts:
                continue
            name = getattr(user.target, "name", None)
            called = user.op == "call_function"
            if called and (name in VIEWS or user.target is operator.getitem):
                count += counts.get(user, 0)
            elif called and (
                name in LOOK_UPS and _is_looked_up(node, user) or name in ELEMENTWISE and user.users and not counts[user]
            ):
                continue
            else:
                count += 1
        counts[node] = count
    return counts


def _is_part(node: Any) -> bool:
    """Whether it is a slice from one number to another."""
    return getattr(node.target, "name", None) == "slice" and all(type(number) is int for number in node.args[1:4])


def _most_at_one_place(slices: Sequence[Any], counts: Mapping[Any, int]) -> int:
    """How many of the readers of slices read the same: halves have readers of their own."""
    if len({part.args[1] for part in slices}) > 1:
        return sum(counts[part] for part in slices)
    bounds = [(*part.args[2:4], counts[part]) for part in slices]
    return max((sum(n for low, high, n in bounds if low <= start < high) for start, _, _ in bounds), default=0)


def _is_looked_up(table: Any, user: Any) -> bool:
    """Whether an operation reads a few elements of a table, and nothing else of it."""
    if user.args[0] is not table or any(a is table for a in user.args[1:]):
        return False
    specs = table.meta.get("spec"), user.meta.get("spec")
    return all(hasattr(spec, "sizes") for spec in specs) and few_accesses(specs[0].sizes, specs[1].sizes)


def _resolve(arg: Any, values: dict[Any, Any]) -> Any:
    if hasattr(arg, "op") and hasattr(arg, "users"):
        return settled(values[arg])
    if isinstance(arg, (tuple, list)):
        return (
            type(arg)(_resolve(a, values) for a in arg) if type(arg) in (tuple, list) else tuple(_resolve(a, values) for a in arg)
        )
    if isinstance(arg, dict):
        return {k: _resolve(v, values) for k, v in arg.items()}
    return settled(arg)


def _nothing(buffer: Buffer, mutates: str | None, origins: tuple[str, ...]) -> ExternNode:
    return ExternNode(
        f"empty_{buffer.name}",
        "empty",
        (),
        (),
        (buffer.name,),
        frozenset(),
        frozenset((buffer.name,)),
        buffer.layout.device,
        False,
        None,
        origins,
        mutates,
        "has no elements",
    )


__all__ = ["Lowering", "contiguous_strides", "lower", "make_axes", "operator_name", "places"]

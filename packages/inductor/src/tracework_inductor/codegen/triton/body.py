"""One pass of a kernel as Triton lines: names, masks, loads and stores.

A value knows which tile dimensions it spans, so that loads get the masks their index needs and no more. Rules:

* equal right-hand sides get one name; names made inside a loop are forgotten when it ends;
* inside a loop, what does not depend on the loop is written before it;
* effects go through `store`, `reduce` and `scan`, which the kernel's shape (kernel.py) provides.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections import ChainMap
from collections.abc import Callable, MutableMapping
from typing import Any

import torch

from ...errors import InductorError
from ...ir.body import IndexCheck, Instruction, LoopBody, Ref
from ...ir.index import INT32_LIMIT, Size, same, simplify, stride, substitute
from ...ir.scalar_ops import COLUMNS
from .printer import IndexPrinter
from .text_rules import HALF, HELD, TRITON_TEXT, bitcast_text, constant_text, convert_text

__all__ = ["BodyWriter", "Tile", "Value"]

NOTHING: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Value:
    """A named value: text, the tile dimensions it spans, dtype in the sense of the loop body."""

    text: str
    dims: frozenset[str]
    dtype: torch.dtype


@dataclasses.dataclass(frozen=True)
class Read:
    """A load: text of its address, the dimensions that it spans, dtype in memory, where it is made besides the tile's masks."""

    pointer: str
    dims: frozenset[str]
    element: torch.dtype
    within: Value | None
    beside: int = 0
    """Elements side by side in memory that a thread loads at most; 0: as many as it can."""
    once: bool = False
    """Whether no other block reads it."""
    at_once: str | None = None
    """Text that loads the same by a descriptor, where pointers are aligned."""


@dataclasses.dataclass(frozen=True)
class Tile:
    """The tile's dimensions in order, with their mask names (None: always inside)."""

    dims: tuple[str, ...]
    masks: dict[str, str | None]

    def shape(self, dims: frozenset[str] | None = None) -> str:
        """The shape text of a value over some dimensions (None: all)."""
        extents = [f"{d.upper()}BLOCK" if dims is None or d in dims else "1" for d in self.dims]
        return f"[{', '.join(extents)}]"

    def mask(self, dims: frozenset[str], extra: str | None = None) -> str | None:
        """The mask for an access over some dimensions."""
        parts = [m for d in self.dims if d in dims and (m := self.masks[d])]
        if extra:
            parts.append(extra)
        return " & ".join(parts) or None


class BodyWriter:
    """Writes instructions as lines; one for a whole kernel function, with a scope pushed for each loop."""

    def __init__(self, tile: Tile, printer: IndexPrinter, merged: dict[Any, Size], narrow: bool, prefix: str = "t") -> None:
        self.tile = tile
        self.prefix = prefix
        self.printer = printer
        self.merged = merged
        self.narrow = narrow
        self.lines: list[str] = []
        self.before: list[str] | None = None
        """Where lines go that do not depend on the loop being written; None outside loops."""
        self.locals: dict[str, Value] = {}
        self.pointers: dict[str, str] = {}
        self.element: dict[str, torch.dtype] = {}
        self.symbol_dims: dict[Any, frozenset[str]] = {}
        self.zeros = False
        """Whether loads give zero where the tile's masks are off."""
        self.once: frozenset[str] = NOTHING
        """Buffers of which each element is read by one block, and which shall not displace others from caches."""
        self.beside: tuple[Any, int] | None = None
        """The fastest variable of `r`, and how many elements of one byte along it a thread loads at most, so that all loads are laid out over
        the threads in the same way."""
        self.one_each = False
        """Whether neighbouring threads take neighbouring elements, one each: as many as a store could take side by side, loads that jump would
        spread over as many times the memory."""
        self.on_effect: Callable[[BodyWriter, Instruction, tuple[Any, ...], LoopBody], Value | None] | None = None
        self._memo: MutableMapping[Any, Value] = {}
        self._outer_memo: MutableMapping[Any, Value] = self._memo
        self._count = 0
        self._reads: dict[str, Read] = {}
        """Name of a loaded value -> where it was loaded from."""
        self._zeros: set[str] = set()
        self._numbers: dict[str, int | float | bool] = {}
        """Name of a value that is the same number everywhere -> the number."""
        self._stored: dict[tuple[str, str], Value] = {}
        """What this function stored where: a later load gives the value back without touching memory."""
        self._written: set[str] = set()
        """Buffers stored to by passes before this one."""
        self._writing: set[str] = set()
        self.earlier: set[str] = set()
        """Those of them behind which there is a barrier already."""

    # scopes

    def enter_loop(self, before: list[str]) -> None:
        """From here on lines belong to a loop body; what does not depend on `r` goes to `before`."""
        self.before = before
        self._outer_memo = self._memo
        self._memo = ChainMap({}, self._memo)

    def leave_loop(self) -> None:
        """Forget the names of the loop."""
        self.before = None
        self._stored.clear()
        self._memo = self._outer_memo

    # values

    def name(self, text: str, dims: frozenset[str], dtype: torch.dtype) -> Value:
        """A name for a right-hand side; the same name for the same text."""
        key = (text, dtype)
        known = self._memo.get(key)
        if known is not None:
            return known
        value = Value(f"{self.prefix}{self._count}", dims, dtype)
        self._count += 1
        hoisted = self.before is not None and "r" not in dims
        (self.before if hoisted and self.before is not None else self.lines).append(f"{value.text} = {text}")
        (self._outer_memo if hoisted else self._memo)[key] = value
        return value

    def end_pass(self) -> None:
        """What was stored is stored: a load in a later pass needs a barrier first."""
        self._written |= self._writing
        self.earlier -= self._writing
        self._writing = set()

    def is_zero_outside(self, value: Value, dim: str) -> bool:
        """Whether it is 0 behind the end of a dimension."""
        read = self._reads.get(value.text)
        return self.zeros and read is not None and dim in read.dims

    def full(self, value: Value, dims: frozenset[str] | None = None) -> str:
        """The value spread over these dimensions of the tile (None: all)."""
        if value.dims == (frozenset(self.tile.dims) if dims is None else dims):
            return value.text
        return f"tl.broadcast_to({value.text}, {self.tile.shape(dims)})"

    def index(self, size: Size, *, value: bool = False) -> tuple[str, frozenset[str]]:
        """Text and dimensions of an index expression. value: it is a number, which no memory bounds, and not a place."""
        size = self._simplified(size)
        if isinstance(size, int):
            return str(size), NOTHING
        dims = NOTHING.union(*(self.symbol_dims.get(s, NOTHING) for s in size.free_symbols))
        printer = self.printer
        if value and (told := size.free_symbols - self.symbol_dims.keys()):
            wide = {s: f"{name}.to(tl.int64)" for s, name in printer.names.items() if s in told}
            printer = IndexPrinter({**printer.names, **wide}, printer.ranges)
        return printer.text(size), dims

    def _simplified(self, size: Size) -> Size:
        return simplify(substitute(size, self.merged), self.printer.ranges)

    def _address(self, buffer: str, index: Size, shape: str = "") -> str:
        """Of the element at an index, spread over a shape if one is given. A number at the end is added to what precedes it, which all
        accesses that differ in it alone share; not where that might be too large for 32 bits."""
        size = self._simplified(index)
        number = 0 if isinstance(size, int) else int(size.terms.get((), 0))
        number = number if number >= INT32_LIMIT - 2**31 else 0
        end = f" + {number}" if number > 0 else f" - {-number}" if number else ""
        if not self.one_each or shape or not self._along(size):
            spread = f" + tl.full({shape}, 0, tl.int32)" if shape else ""
            return f"{self.pointers[buffer]} + ({self.printer.text(size - number)}{spread}){end}"
        # The address of a row is computed once for all of its columns.
        row: Size = sum((part for part in _summands(size - number) if not self._along(part)), 0)
        parts = [f"({self.printer.text(part)})" for part in (row, size - number - row) if not same(part, 0)]
        address = " + ".join([self.pointers[buffer], *parts])
        # Threads walk along the dimension of most neighbours, the first of several; and a thread takes as many as lie aligned, one.
        ones = ["1"] * (len(self.tile.dims) - 1)
        return f"tl.multiple_of(tl.max_contiguous({address}{end}, [{', '.join([*ones, '2'])}]), [{', '.join([*ones, '1'])}])"

    def _along(self, size: Size) -> bool:
        """Whether a place changes along the last dimension of the tile."""
        symbols = () if isinstance(size, int) else size.free_symbols
        return any(self.tile.dims[-1] in self.symbol_dims.get(s, NOTHING) for s in symbols)

    # instructions

    def run(self, body: LoopBody, effects: bool = True) -> None:
        """Write all instructions of a body."""
        values: list[Value | None] = []
        for instruction in body.instructions:
            if instruction.dtype is None and not effects and instruction.op not in ("define", "indirect"):
                values.append(None)
                continue
            args = tuple(values[a.position] if isinstance(a, Ref) else a for a in instruction.args)
            values.append(self.one(instruction, args, body))

    def run_one(self, body: LoopBody, position: int, values: dict[int, Value | None]) -> Value:
        """Write one instruction of a body and what it needs, and nothing else."""
        if position not in values:
            instruction = body.instructions[position]
            for size in instruction.args:
                self._ensure_symbols(body, size, values)
            args = tuple(self.run_one(body, a.position, values) if isinstance(a, Ref) else a for a in instruction.args)
            values[position] = self.one(instruction, args, body)
        value = values[position]
        assert value is not None
        return value

    def _ensure_symbols(self, body: LoopBody, size: Any, values: dict[int, Value | None]) -> None:
        wanted = getattr(size, "free_symbols", NOTHING)
        for n, i in enumerate(body.instructions):
            if i.op == "indirect" and i.args[2] in wanted and n not in values:
                values[n] = None
                args = tuple(self.run_one(body, a.position, values) if isinstance(a, Ref) else a for a in i.args)
                self._indirect(i, args, body)

    def one(self, instruction: Instruction, args: tuple[Any, ...], body: LoopBody) -> Value | None:
        """Write one instruction whose operands are written."""
        special = STRUCTURE.get(instruction.op)
        if special is not None:
            return special(self, instruction, args, body)
        rule = TRITON_TEXT.get(instruction.op)
        if rule is None:
            raise InductorError(f"Triton kernel: no text for {instruction.op!r} (codegen/triton/text_rules.py)")
        assert instruction.dtype is not None
        if (number := self._number(instruction.op, args)) is not None:
            return self._constant_of(number, instruction.dtype)
        if instruction.op == "where":
            if args[0].text in self._numbers:
                return args[1] if self._numbers[args[0].text] else args[2]
            if (selected := self._selected(*args)) is not None:
                return selected
        dims = NOTHING.union(*(a.dims for a in args))
        # The first operand decides the arithmetic, except for `where`.
        text = rule([a.text for a in args], args[-1].dtype)
        return self.name(text, dims, instruction.dtype)

    def _number(self, op: str, args: tuple[Any, ...]) -> bool | None:
        """What a condition on numbers is."""
        numbers = [self._numbers.get(a.text) for a in args if isinstance(a, Value)]
        condition = CONDITIONS.get(op)
        return None if condition is None or None in numbers else condition(*numbers)

    def _constant_of(self, number: Any, dtype: torch.dtype) -> Value:
        value = self.name(constant_text(number, dtype), NOTHING, dtype)
        self._numbers[value.text] = number
        return value

    def _load(self, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> Value:
        buffer, index, extra = args
        assert i.dtype is not None
        if extra is not None and extra.text in self._numbers:
            if not self._numbers[extra.text]:
                return self._constant_of(0, i.dtype)
            extra = None
        text, dims = self.index(index)
        kept = self._stored.get((buffer, text))
        if kept is not None and extra is None and kept.dims == dims:
            return Value(kept.text, kept.dims, i.dtype)
        if buffer in self._written and buffer not in self.earlier:
            # Another thread of the block may have written it.
            (self.lines if self.before is None else self.before).append("tl.debug_barrier()")
            self.earlier.add(buffer)
        wanted = dims | (extra.dims if extra is not None else NOTHING)
        shape = "" if wanted <= dims else self.tile.shape(wanted)
        dims = wanted
        element = self.element[buffer]
        beside = self._beside(index) if element.itemsize == 1 else 0
        at_once = self.load_at_once(buffer, index) if extra is None else None
        pointer = self._address(buffer, index, shape)
        loaded = self._read(Read(pointer, dims, element, extra, beside, buffer in self.once, at_once))
        # A view of the buffer in another dtype would be a bitcast; a plain difference is a conversion.
        return loaded if element == i.dtype else self.name(convert_text(loaded.text, element, i.dtype), dims, i.dtype)

    def load_at_once(self, buffer: str, index: Size) -> str | None:
        """Text of a load of the whole tile by a descriptor; None where there is none."""
        return None

    def _beside(self, index: Size) -> int:
        """The limit of side by side elements for a load, if they are."""
        if self.beside is None or isinstance(index, int):
            return 0
        variable, limit = self.beside
        step = stride(substitute(index, self.merged), variable)
        return limit if step is not None and same(step, 1) else 0

    def _read(self, read: Read) -> Value:
        mask = self.tile.mask(read.dims, read.within.text if read.within is not None else None)
        pointer = read.pointer
        if read.beside:
            pointer = (
                f"tl.max_contiguous({pointer}, [{', '.join(str(read.beside) if d == 'r' else '1' for d in self.tile.dims)}])"
            )
        call = f"tl.load({pointer}"
        if mask is not None:
            call += f", {mask}" + (", other=0" if self.zeros or read.within is not None else "")
        call += ', eviction_policy="evict_first"' if read.once else ""
        call += ")"
        if read.at_once is not None:
            call = f"({read.at_once} if ALIGNED else {call})"
        call += ".to(tl.float32)" if read.element in HALF else ""
        loaded = self.name(call, read.dims, read.element)
        self._reads[loaded.text] = read
        return loaded

    def _selected(self, condition: Value, a: Value, b: Value) -> Value | None:
        """`where` of loads that the condition masks, as a load from either place: what a `cat` reads is held once, not once a part."""
        first, second = self._reads.get(a.text), self._reads.get(b.text)
        if self._writing or first is None or first.within is None or first.within.text != condition.text:
            return None
        if b.text in self._zeros:  # which a load gives where it is masked off
            return a
        if second is None or second.within is None or (first.dims, first.element) != (second.dims, second.element):
            return None
        beside = 0 if "r" in condition.dims else min(first.beside, second.beside)
        pointer = self.name(f"tl.where({condition.text}, {first.pointer}, {second.pointer})", first.dims, torch.int64)
        within = self.name(f"({condition.text} | {second.within.text})", condition.dims | second.within.dims, torch.bool)
        return self._read(Read(pointer.text, first.dims, first.element, within, beside, first.once and second.once))

    def _constant(self, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> Value:
        value = self.name(constant_text(args[0], args[1]), NOTHING, args[1])
        if args[1] == torch.int64 and isinstance(args[0], (int, str)):
            self._numbers[value.text] = int(args[0])
        if args[0] in ("0", "0.0", "False"):
            self._zeros.add(value.text)
        return value

    def _index_expr(self, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> Value:
        text, dims = self.index(args[0], value=True)
        if text.lstrip("-").isdigit():
            return self._constant_of(int(text), args[1])
        return self.name(f"({text}).to({HELD[args[1]]})", dims, args[1])

    def _indirect(self, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> None:
        value, size, symbol, check, within, _ = args
        if check is not None:
            self._assert_in_range(value, size, check, within)
        text = f"{value.text}.to(tl.int32)" if self.narrow else value.text
        narrowed = self.name(text, value.dims, torch.int32 if self.narrow else torch.int64)
        self.printer.names[symbol] = narrowed.text
        self.printer.ranges[symbol] = (0, size - 1)
        self.symbol_dims[symbol] = value.dims

    def _assert_in_range(self, value: Value, size: Size, check: IndexCheck, within: Value | None) -> None:
        """Before anything is read or written there: the assertion is followed by a barrier, and ends the block's other threads."""
        limit, _ = self.index(size)
        dims = value.dims | (within.dims if within is not None else NOTHING)
        mask = self.tile.mask(dims, within.text if within is not None else None)
        inside = f"({value.text} >= 0) & ({value.text} < {limit})"
        condition = f"({inside}) | (({mask}) == 0)" if mask is not None else inside
        line = f"tl.device_assert({condition}, {f'index out of range in {check.origin}'!r})"
        if (line, None) not in self._memo:
            hoisted = self.before is not None and "r" not in dims
            (self.before if hoisted and self.before is not None else self.lines).append(line)
            (self._outer_memo if hoisted else self._memo)[line, None] = value

    def _to_dtype(self, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> Value:
        value, dtype = args
        text = convert_text(value.text, value.dtype, dtype)
        return Value(text, value.dims, dtype) if text == value.text else self.name(text, value.dims, dtype)

    def _bitcast(self, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> Value:
        value, dtype = args
        text = bitcast_text(value.text, value.dtype, dtype)
        return Value(text, value.dims, dtype) if text == value.text else self.name(text, value.dims, dtype)

    def _local(self, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> Value:
        found = self.locals.get(args[0])
        if found is None:
            raise InductorError(f"Triton kernel: local {args[0]!r} is used before the pass that makes it")
        return found

    def _define(self, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> None:
        self.locals[args[0]] = args[1]

    def _store(self, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> None:
        if args[3] == COLUMNS:
            self._effect(i, args, body)
        else:
            self.store(*args)

    def store(self, buffer: str, index: Size, value: Value, mode: str, guard: Value | None = None) -> None:
        """Write the lines of a store; `guard` is one more condition."""
        text, dims = self.index(index)
        # An accumulating store happens once a point; a plain one needs no more lanes than its value spans.
        wanted = dims | value.dims if mode == "set" else frozenset(self.active_dims)
        wanted |= guard.dims if guard is not None else NOTHING
        spread = not wanted <= dims or (not dims and "r" in self.tile.dims)  # the value is a block, if of one element
        dims |= wanted
        shape = self.tile.shape(dims) if spread else ""
        # Lanes outside the tile must not write, whether or not the index depends on that dimension.
        mask = self.tile.mask(dims, guard.text if guard is not None else None)
        function = STORE_MODES.get(mode)
        if function is None:
            raise InductorError(f"Triton kernel: no store of mode {mode!r} (codegen/triton/body.py)")
        element = self.element[buffer]
        held = f"{value.text}.to({HALF[element]})" if element in HALF else value.text
        if mode != "set" and mode != "add" and element in HALF:
            raise InductorError(f"Triton kernel: no atomic {mode} for {element}")
        arguments = [self._address(buffer, index, shape), held, *([mask] if mask else [])]
        if mode != "set":
            if not mask:
                arguments.append("None")
            arguments.append('sem="relaxed"')
        self.lines.append(f"{function}({', '.join(arguments)})")
        self._writing.add(buffer)
        if mode == "set" and guard is None:
            self._stored[buffer, self.index(index)[0]] = value

    @property
    def active_dims(self) -> tuple[str, ...]:
        """The dimensions of the pass being written."""
        return self.tile.dims if self.inner else tuple(d for d in self.tile.dims if d != "r")

    inner: bool = False

    def _effect(self, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> Value | None:
        if self.on_effect is None:
            raise InductorError(f"Triton kernel: {i.op} outside of an inner pass")
        return self.on_effect(self, i, args, body)


def _summands(size: Size) -> list[Size]:
    """What a sum is made of."""
    if isinstance(size, int):
        return [size]
    return [math.prod(monomial, start=coefficient) for monomial, coefficient in size.terms.items()]


CONDITIONS: dict[str, Callable[..., bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "logical_and": lambda a, b: bool(a and b),
    "logical_or": lambda a, b: bool(a or b),
    "logical_not": operator.not_,
}
"""Scalar op -> what it gives for numbers."""

STORE_MODES = {"set": "tl.store", "add": "tl.atomic_add", "max": "tl.atomic_max", "min": "tl.atomic_min"}

STRUCTURE: dict[str, Callable[..., Value | None]] = {
    "load": BodyWriter._load,
    "constant": BodyWriter._constant,
    "index_expr": BodyWriter._index_expr,
    "indirect": BodyWriter._indirect,
    "to_dtype": BodyWriter._to_dtype,
    "bitcast": BodyWriter._bitcast,
    "local": BodyWriter._local,
    "define": BodyWriter._define,
    "store": BodyWriter._store,
    "reduce": BodyWriter._effect,
    "scan": BodyWriter._effect,
    "scanned_position": BodyWriter._effect,
    "argsort": BodyWriter._effect,
    "take_along": BodyWriter._effect,
    "scratch_store": BodyWriter._effect,
    "scratch_load": BodyWriter._effect,
}

"""Handlers of loop bodies: Recorder writes a LoopBody; replay runs a LoopBody under another Recorder.

A handler provides load, constant, index_expr, indirect, masked, to_dtype, bitcast, store, reduce, scan, local, define,
and `apply(name, args)` for every row of SCALAR_OPS.
"""

from collections.abc import Callable
from typing import Any

import torch

from ..errors import InductorError
from .body import Axis, IndexCheck, Instruction, LoopBody, Ref
from .bounds import in_range
from .index import Size, substitute, symbol
from .scalar_ops import BOOL, IN_BITS, REDUCTION_KINDS, SCALAR_OPS, SCAN_KINDS, SECOND, as_held


class Recorder:
    """Records calls as instructions, one per distinct expression; infers dtypes."""

    def __init__(self, axes: tuple[Axis, ...] = (), reduction_axes: tuple[Axis, ...] = ()) -> None:
        self.axes = axes
        self.reduction_axes = reduction_axes
        self.instructions: list[Instruction] = []
        self.memo: dict[Any, Any] = {}
        """Lazy values keep what they gave for an index here, so that shared ones are recorded once."""
        self.origins: dict[str, None] = {}
        """Of the values that were recorded."""
        self._seen: dict[tuple[Any, ...], Ref] = {}
        self._mask: Ref | None = None
        self._indirect: dict[tuple[Any, ...], Any] = {}

    def finish(self) -> LoopBody:
        """The body, without instructions that nothing needs."""
        return LoopBody(self.axes, self.reduction_axes, drop_unused(self.instructions))

    def dtype(self, value: Ref) -> torch.dtype:
        """The dtype of an earlier result."""
        dtype = self.instructions[value.position].dtype
        assert dtype is not None
        return dtype

    def emit(self, op: str, args: tuple[Any, ...], dtype: torch.dtype | None) -> Ref:
        """Appends an instruction unless an equal one exists; effects are always appended."""
        # 1 and True and 1.0 are equal as keys but not as constants.
        key = (op, args, dtype, *(type(a) for a in args)) if op == "constant" else (op, args, dtype)
        if dtype is not None and op != "scan":
            known = self._seen.get(key)
            if known is not None:
                return known
        ref = Ref(len(self.instructions))
        self.instructions.append(Instruction(op, args, dtype))
        if dtype is not None:
            self._seen[key] = ref
        return ref

    # values

    def constant(self, value: Any, dtype: torch.dtype) -> Ref:
        """A number of the given dtype."""
        value, dtype = as_held(value, dtype), IN_BITS.get(dtype, dtype)
        if dtype == torch.bool:
            value = bool(value)
        elif not dtype.is_floating_point:
            value = int(value)
        else:
            value = float(value)
        # -0.0 == 0.0 and nan != nan, so constants are keyed by text.
        return self.emit("constant", (value if value == value and value != 0 else repr(value), dtype), dtype)

    def index_expr(self, expr: Size, dtype: torch.dtype) -> Ref:
        """An index expression as a value."""
        if isinstance(expr, int):
            return self.constant(expr, dtype)
        return self.emit("index_expr", (expr, dtype), dtype)

    def load(self, buffer: str, index: Size, dtype: torch.dtype, mask: Ref | None = None) -> Ref:
        """An element of a buffer; 0 where the mask in force is false."""
        mask = self._and(self._mask, mask)
        return self.emit("load", (buffer, index, mask), dtype)

    def indirect(self, value: Ref, size: Size, wrap: bool = False, check: IndexCheck | None = None, position: Size = 0) -> Any:
        """Makes a computed integer usable as an index; negative values count from the end when `wrap`. The check is left out where the
        value is known to be in range; without one the caller knows."""
        value = self.to_dtype(value, torch.int64)
        ranges = {a.var: (0, a.size - 1) for a in (*self.axes, *self.reduction_axes)}
        safe = in_range(self.instructions, value, size, ranges)
        if wrap and not safe:
            safe = in_range(self.instructions, value, size, ranges, -size) if isinstance(size, int) else False
            negative = self.apply("lt", (value, self.constant(0, torch.int64)))
            wrapped = self.apply("add", (value, self.index_expr(size, torch.int64)))
            value = self.apply("where", (negative, wrapped, value))
        if check is None or safe:
            return self.position_of(value, size, None, None, 0)
        return self.position_of(value, size, check, self._mask, position)

    def position_of(self, value: Ref, size: Size, check: IndexCheck | None, mask: Ref | None, position: Size) -> Any:
        """The symbol of an `indirect` instruction; the same for the same one."""
        key = (value, size, check, mask, position)
        known = self._indirect.get(key)
        if known is None:
            known = symbol(f"t{len(self.instructions)}", 0, None)
            self._indirect[key] = known
            self.emit("indirect", (value, size, known, check, mask, position), None)
        return known

    def masked(self, mask: Ref, inside: Callable[[], Ref], other: Any) -> Ref:
        """`inside()` where mask holds, else the number `other`; loads inside do not touch memory elsewhere."""
        outer = self._mask
        memo, self.memo = self.memo, {}
        self._mask = self._and(outer, mask)
        value = inside()
        self._mask = outer
        self.memo = memo
        return self.apply("where", (mask, value, self.constant(other, self.dtype(value))))

    def _and(self, a: Ref | None, b: Ref | None) -> Ref | None:
        if a is None or b is None or a == b:
            return b if a is None else a
        return self.apply("logical_and", (a, b))

    def to_dtype(self, value: Ref, dtype: torch.dtype) -> Ref:
        """Conversion; none when it has the dtype already, or is the bits of it."""
        held = self.dtype(value)
        if held == IN_BITS.get(dtype, dtype):
            return value
        if dtype in IN_BITS:
            raise InductorError(f"a value of {held} is not the bits of one of {dtype}")
        source = self.instructions[value.position]
        if source.op == "constant" and not isinstance(source.args[0], str):
            return self.constant(source.args[0], dtype)
        return self.emit("to_dtype", (value, dtype), dtype)

    def bitcast(self, value: Ref, dtype: torch.dtype) -> Ref:
        """The same bits read as another dtype of the same width."""
        return self.emit("bitcast", (value, dtype), dtype)

    def apply(self, name: str, args: tuple[Ref, ...]) -> Ref:
        """A row of SCALAR_OPS."""
        row = SCALAR_OPS.get(name)
        if row is None:
            raise InductorError(f"SCALAR_OPS has no row {name!r} (ir/scalar_ops.py)")
        if row.dtype_rule == BOOL:
            dtype = torch.bool
        else:
            dtype = self.dtype(args[1 if row.dtype_rule == SECOND else 0])
        return self.emit(name, tuple(args), dtype)

    def __getattr__(self, name: str) -> Any:
        if name not in SCALAR_OPS:
            raise AttributeError(name)
        return lambda *args: self.apply(name, args)

    # effects and row values

    def store(self, buffer: str, index: Size, value: Ref, mode: str = "set", mask: Ref | None = None) -> None:
        """Writes an element where the mask holds."""
        self.emit("store", (buffer, index, value, mode) if mask is None else (buffer, index, value, mode, mask), None)

    def reduce(self, name: str, kind: str, value: Ref, second: Ref | None = None) -> None:
        """Accumulates into the reduction called `name`; second: of an extreme, the value's position, of a dot, the other factor."""
        if kind not in REDUCTION_KINDS:
            raise InductorError(f"REDUCTION_KINDS has no row {kind!r} (ir/scalar_ops.py)")
        args = (name, kind, value) if second is None else (name, kind, value, second)
        self.emit("reduce", args, None)

    def scan(self, name: str, kind: str, value: Ref, position: Ref | None = None) -> Ref:
        """The running reduction, this element included; position: of an extreme's value."""
        if kind not in SCAN_KINDS:
            raise InductorError(f"SCAN_KINDS has no row {kind!r} (ir/scalar_ops.py)")
        args = (name, kind, value) if position is None else (name, kind, value, position)
        return self.emit("scan", args, self.dtype(value))

    def scanned_position(self, scan: Ref) -> Ref:
        """Where the extreme that the scan has found so far is."""
        return self.emit("scanned_position", (scan,), torch.int64)

    def argsort(self, value: Ref, descending: bool) -> Ref:
        """The position in its row of the element that comes to this place when the row is sorted."""
        return self.emit("argsort", (value, descending), torch.int64)

    def take_along(self, value: Ref, position: Ref) -> Ref:
        """The value at a position of the row."""
        return self.emit("take_along", (value, position), self.dtype(value))

    def local(self, name: str, dtype: torch.dtype) -> Ref:
        """A value of this row from an earlier pass."""
        return self.emit("local", (name,), dtype)

    def define(self, name: str, value: Ref) -> None:
        """Keeps a value of this row for later passes."""
        self.emit("define", (name, value), None)

    def scratch_store(self, name: str, position: Size, value: Ref) -> None:
        """Keeps a value of this inner iteration for later passes."""
        self.emit("scratch_store", (name, position, value), None)

    def scratch_load(self, name: str, position: Size, dtype: torch.dtype) -> Ref:
        """What scratch_store kept."""
        return self.emit("scratch_load", (name, position), dtype)


def drop_unused(instructions: list[Instruction]) -> tuple[Instruction, ...]:
    """Removes instructions whose results are not needed by any effect, and renumbers. A check of an index is an effect."""
    needed = [False] * len(instructions)
    symbols_needed: set[Any] = set()
    for n in range(len(instructions) - 1, -1, -1):
        i = instructions[n]
        if i.op == "indirect":
            needed[n] = i.args[3] is not None or i.args[2] in symbols_needed
        elif i.dtype is None:
            needed[n] = True
        if not needed[n]:
            continue
        for arg in i.args:
            if isinstance(arg, Ref):
                needed[arg.position] = True
            elif hasattr(arg, "free_symbols"):
                symbols_needed.update(arg.free_symbols)
    if all(needed):
        return tuple(instructions)
    renumbered: dict[int, Ref] = {}
    kept: list[Instruction] = []
    for n, i in enumerate(instructions):
        if needed[n]:
            renumbered[n] = Ref(len(kept))
            args = tuple(renumbered[a.position] if isinstance(a, Ref) else a for a in i.args)
            kept.append(Instruction(i.op, args, i.dtype))
    return tuple(kept)


LoadRule = Callable[[Recorder, str, Size, torch.dtype], "Ref | None"]


def replay(
    body: LoopBody,
    into: Recorder,
    axes: dict[Any, Size],
    on_load: LoadRule | None = None,
    on_effect: Callable[[Recorder, Instruction], bool] | None = None,
) -> None:
    """Runs `body` under `into` with loop variables replaced.

    on_load may give the value of a load instead of loading; on_effect sees effects (with new refs and indices) and
    returns True when it has dealt with one.
    """
    renamed = dict(axes)
    refs: list[Ref | None] = []
    for i in body.instructions:
        args = tuple(_renew(a, refs, renamed) for a in i.args)
        refs.append(_replay_one(Instruction(i.op, args, i.dtype), into, renamed, on_load, on_effect))


def _renew(arg: Any, refs: list[Any], renamed: dict[Any, Size]) -> Any:
    if isinstance(arg, Ref):
        return refs[arg.position]
    if hasattr(arg, "free_symbols"):
        return substitute(arg, renamed)
    return arg


def _replay_one(i: Instruction, into: Recorder, renamed: dict[Any, Size], on_load: LoadRule | None, on_effect: Any) -> Ref | None:
    if i.op == "load":
        assert i.dtype is not None
        forwarded = on_load(into, i.args[0], i.args[1], i.dtype) if on_load else None
        return forwarded if forwarded is not None else into.emit("load", i.args, i.dtype)
    if i.op == "indirect":
        value, size, old, *rest = i.args
        renamed[old] = into.position_of(value, size, *rest)
        return None
    if i.op == "index_expr":
        return into.index_expr(i.args[0], i.args[1])
    if i.dtype is None:
        if on_effect is None or not on_effect(into, i):
            into.emit(i.op, i.args, None)
        return None
    return into.emit(i.op, i.args, i.dtype)

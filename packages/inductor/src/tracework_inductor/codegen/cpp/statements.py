"""Instructions to C++ text: STATEMENTS has a rule for each that is no scalar operation (those are in text_rules.py).

A rule gets the kernel, the instruction, what the names of its body's values begin with, their dtypes, the accumulators by name, and the lane:
the place in the arrays over a block of points, where values are such. It gives the value's text, or a whole statement where there is no value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...errors import RenderError
from ...ir.body import Instruction
from ...ir.index import Expr, Size
from ...ir.scalar_ops import COLUMNS
from ..printer import c_index
from .column_sums import place_in_block
from .rows import POSITIONS
from .scans import carried
from .text_rules import CPP_TYPES, REDUCTIONS, constant_text, conversion

if TYPE_CHECKING:
    from .kernel import CppKernel

__all__ = ["STATEMENTS"]

BITS = 31
"""Of what a kernel returns: one for each check of an index that failed."""


def _element(k: CppKernel, op: str, buffer: str, index: Size) -> str:
    if op == "store" and buffer in k.rows_of:
        name, start = k.rows_of[buffer]
        return f"{name}[{c_index(index - start)}]"
    tile = k.tiles.get((op, buffer, index))
    return tile if tile is not None else f"{k.names[buffer]}[{c_index(index)}]"


def _holds_elements(k: CppKernel, index: Size) -> list[str]:
    """Conditions for an access at computed positions: memory without elements has none to read for a position out of range."""
    symbols = index.free_symbols if isinstance(index, Expr) else ()
    return [f"({c_index(size)} > 0)" for symbol, size in k.indexed.items() if symbol in symbols]


def _load(k: CppKernel, i: Instruction, base: str, dtypes: Any, acc: Any, lane: Any) -> str:
    buffer, index, mask = i.args
    text = f"tw_get({_element(k, i.op, buffer, index)})"
    if i.dtype == torch.bool:
        text = f"({text} != 0)"
    conditions = _holds_elements(k, index) + ([] if mask is None else [f"{base}{mask.position}"])
    return f"{' && '.join(conditions)} ? {text} : ({CPP_TYPES[i.dtype]})0" if conditions and i.dtype is not None else text


def _store(k: CppKernel, i: Instruction, base: str, dtypes: Any, acc: Any, lane: Any) -> str:
    buffer, index, value, mode = i.args
    element = place_in_block(k, buffer, index) if mode == COLUMNS else _element(k, i.op, buffer, index)
    text = f"{base}{value.position}"
    if mode in ("add", COLUMNS):
        text = f"tw_get({element}) + {text}"
    elif mode != "set":
        raise RenderError(f"store mode {mode}")
    if k.kernel.layouts[buffer].dtype == torch.bool:
        text = f"(uint8_t)({text} != 0)"
    conditions = _holds_elements(k, index)
    guard = f"if ({' && '.join(conditions)}) " if conditions else ""
    return f"{guard}tw_put(&{element}, {text});"


def _constant(k: CppKernel, i: Instruction, base: str, dtypes: Any, acc: Any, lane: Any) -> str:
    return constant_text(*i.args)


def _index_expr(k: CppKernel, i: Instruction, base: str, dtypes: Any, acc: Any, lane: Any) -> str:
    return f"({CPP_TYPES[i.args[1]]}){c_index(i.args[0])}"


def _indirect(k: CppKernel, i: Instruction, base: str, dtypes: Any, acc: Any, lane: Any) -> str:
    value, size, name, check, mask, _ = i.args
    v = f"{base}{value.position}"
    if check is None:
        return f"int64_t {name} = {v};"
    outside = f"(({v} < 0) | ({v} >= {c_index(size)}))"
    if not (isinstance(size, int) and size > 0):
        k.indexed[name] = size
    bad = outside if mask is None else f"({outside} & {base}{mask.position})"
    return f"bad |= {bad}{_bit(k.checks[check])}; int64_t {name} = {outside} ? 0 : {v};"


def _bit(number: int) -> str:
    """A check's bit in what the kernel returns; the last ones share one."""
    return f" << {min(number, BITS - 1)}" if number else ""


def _to_dtype(k: CppKernel, i: Instruction, base: str, dtypes: Any, acc: Any, lane: Any) -> str:
    return conversion(f"{base}{i.args[0].position}", dtypes[i.args[0].position], i.args[1])


def _bitcast(k: CppKernel, i: Instruction, base: str, dtypes: Any, acc: Any, lane: Any) -> str:
    return f"tw_bits<{CPP_TYPES[i.args[1]]}>({base}{i.args[0].position})"


def _reduce(k: CppKernel, i: Instruction, base: str, dtypes: Any, acc: Any, lane: Any) -> str:
    name, kind, value = i.args[:3]
    at = acc[name] + (f"[{lane}]" if lane else "")
    v = f"{base}{value.position}"
    if kind in POSITIONS:
        return _position(k, i, base, acc[name], at, lane)
    if kind == "dot":
        v = f"({v} * {base}{i.args[3].position})"
    return f"{at}[{k.terms}] = {v};" if k.terms else f"{at} = {REDUCTIONS[kind][1].format(acc=at, value=v)};"


def _position(k: CppKernel, i: Instruction, base: str, name: str, at: str, lane: Any) -> str:
    """A place that is looked for: NaN before all else, of equal elements the first."""
    v, where = f"{base}{i.args[2].position}", f"{base}{i.args[3].position}"
    if k.terms:
        return f"{name}[{k.terms}] = {v}; {name}_at[{k.terms}] = {where};"
    if k.one_by_one:
        return f"{name}.one({v}, {where});"
    best = f"{name}_v" + (f"[{lane}]" if lane else "")
    better = f"{v} {'>' if i.args[1] == 'argmax' else '<'} {best}"
    if not lane:
        tie = f"(({v} == {best} || ({v} != {v} && {best} != {best})) && {where} < {at})"
        return f"if ({better} || ({v} != {v} && {best} == {best}) || {tie}) {{ {best} = {v}; {at} = {where}; }}"
    # Choices instead of a branch: a vector loop over many places.
    tie = f"((({v} == {best}) | (({v} != {v}) & ({best} != {best}))) & ({where} < {at}))"
    new = f"const bool {name}_new = ({better}) | (({v} != {v}) & ({best} == {best})) | {tie};"
    return f"{new} {best} = {name}_new ? {v} : {best}; {at} = {name}_new ? {where} : {at};"


def _scan(k: CppKernel, i: Instruction, base: str, dtypes: Any, acc: Any, lane: Any) -> str:
    name, kind, value = i.args
    assert i.dtype is not None
    carry = f"c_{name}" + (f"[{lane}]" if lane else "")
    new, term = f"{base}{value.position}", f"t_{name}[{k.lane}]"
    if k.apart:
        return f"({term} = {new})"
    combined = REDUCTIONS[kind][1]
    text = combined.format(acc=carry, value=term) if k.lane else f"{carry} = {combined.format(acc=carry, value=new)}"
    return conversion(f"({text})", carried(i), i.dtype)


def _local(k: CppKernel, i: Instruction, base: str, dtypes: Any, acc: Any, lane: Any) -> str:
    name, _ = k.locals[i.args[0]]
    return f"{name}[{lane}]" if lane else name


def _define(k: CppKernel, i: Instruction, base: str, dtypes: Any, acc: Any, lane: Any) -> str:
    name, value = i.args
    if lane:
        return f"{k.locals[name][0]}[{lane}] = {base}{value.position};"
    k.locals[name] = (f"{base}{value.position}", dtypes[value.position])
    return ""


def _scratch_store(k: CppKernel, i: Instruction, base: str, dtypes: Any, acc: Any, lane: Any) -> str:
    return f"{_kept(k, i, lane)} = {base}{i.args[2].position};"


def _scratch_load(k: CppKernel, i: Instruction, base: str, dtypes: Any, acc: Any, lane: Any) -> str:
    return _kept(k, i, lane)


def _kept(k: CppKernel, i: Instruction, lane: Any) -> str:
    """A value that is kept for a row, or for one point of those whose columns are walked side by side."""
    at = f"{c_index(i.args[1] * k.block)} + {lane}" if lane else c_index(i.args[1])
    return f"{k.scratch[i.args[0]]}[{at}]"


STATEMENTS: dict[str, Any] = {
    "load": _load,
    "store": _store,
    "constant": _constant,
    "index_expr": _index_expr,
    "indirect": _indirect,
    "to_dtype": _to_dtype,
    "bitcast": _bitcast,
    "reduce": _reduce,
    "scan": _scan,
    "local": _local,
    "define": _define,
    "scratch_store": _scratch_store,
    "scratch_load": _scratch_load,
}

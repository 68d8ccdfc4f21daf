"""The symbolic column of OPDB.md: every size of every input is a symbol of its own.

The result must be eager's at the example, and at other sizes that the recorded conditions allow. A size that became a
number is a failure when eager takes another number there.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import torch
from opdb_checks import Count, call, cloned, is_strided, parts, spread, tensors
from single_op import mapped
from tracework_primops import DataDependentError, FakeMode, FakeTensor, SymbolTable
from tracework_primops.errors import GuardOnUnbackedError

ORDER = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64)
TRUSTING = (
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
    "lu_unpack",
    "lu_solve",
    "linalg.lu_solve",
    "ormqr",
    "linalg.ldl_solve",
    "nn.functional.ctc_loss",
)  # no resized data: eager's kernels read past it
TRIES = 4  # assignments of other sizes that are tried


def symbolic(op: Any, count: Count, limit: int | None = None) -> None:
    """All samples of the first dtype that the entry supports."""
    supported = op.supported_dtypes("cpu")
    dtype = next((d for d in ORDER if d in supported), None) or next(iter(sorted(supported, key=str)), None)
    if dtype is None:
        return
    for number, sample in spread(op, dtype, limit):
        _symbolic_of(f"{dtype} #{number}", op, parts(sample), count)


def _symbolic_of(where: str, op: Any, sample: Any, count: Count) -> None:
    if not is_strided(sample):
        count.refused += 1
        return
    inputs = cloned(sample)
    table = SymbolTable()
    mode = FakeMode(table, allow_unbacked=True)
    fakes = mapped(lambda t: _symbolic_fake(mode, table, t) if isinstance(t, torch.Tensor) else t, inputs)
    expected = _eager(op.op, inputs)
    if expected is None or not is_strided(expected):
        count.refused += 1
        return
    count.compared += 1
    try:
        with warnings.catch_warnings(), mode:
            warnings.simplefilter("ignore")
            got = call(op.op, fakes)
    except (DataDependentError, GuardOnUnbackedError):
        count.data += 1
        return
    except Exception as error:
        count.fail(where, f"{type(error).__name__}: {error}")
        return
    found = _difference(table, {}, expected, got)
    if op.name not in TRUSTING:
        found = found or _elsewhere(op.op, table, sample, fakes, got)
        found = found or _specialised(op.op, table, sample, fakes, expected)
    if found:
        count.fail(where, found)


def _symbolic_fake(mode: FakeMode, table: SymbolTable, t: torch.Tensor) -> FakeTensor:
    if t.is_conj() or t.is_neg():
        return mode.from_real(t)
    return mode.from_real(t, sizes=[table.new(s, f"size {s}") if s > 1 else s for s in t.shape])


def _eager(function: Any, sample: Any) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(function, sample)
    except Exception:
        return None


def _evaluate(size: Any, at: dict[Any, int]) -> Any:
    return size if size.__class__ is int else size.evaluate(at)


def _difference(table: SymbolTable, changed: dict[Any, int], expected: Any, got: Any) -> str | None:
    at = {**table._hints, **changed}
    wanted, have = tensors(expected), tensors(got)
    if len(wanted) != len(have):
        return f"{len(have)} results instead of {len(wanted)}"
    for w, h in zip(wanted, have):
        if not isinstance(h, FakeTensor):
            return "a real tensor instead of a fake"
        spec = h.spec
        if any(not s.free_symbols <= set(at) for s in (*spec.sizes, *spec.strides, spec.offset) if s.__class__ is not int):
            continue  # depends on data
        found = tuple(tuple(_evaluate(s, at) for s in part) for part in (spec.sizes, spec.strides, (spec.offset,)))
        if found != (tuple(w.shape), tuple(w.stride()), (w.storage_offset(),)) or w.dtype is not spec.dtype:
            return f"{spec} at {_text(at)} instead of {tuple(w.shape)} {w.stride()} {w.dtype} offset {w.storage_offset()}"
    return None


def _text(at: dict[Any, int]) -> str:
    return ", ".join(f"{s}={v}" for s, v in at.items())


def _elsewhere(function: Any, table: SymbolTable, sample: Any, fakes: Any, got: Any) -> str | None:
    """The result at other sizes that all conditions allow, against eager there."""
    for at in _assignments(table):
        resized = _resized(sample, fakes, at)
        if resized is None:
            continue
        expected = _eager(function, resized)
        if expected is not None:
            found = _difference(table, at, expected, got)
            if found:
                return found
            return None
    return None


def _assignments(table: SymbolTable) -> Any:
    """Other values for the symbols, in which every recorded condition holds."""
    free = [s for s in table.symbols if s in table._hints and s not in table._equal and not _is_fixed(table, s)]
    if not free:
        return
    found = 0
    for step in (
        (lambda n, i: n + 1 + i),
        (lambda n, i: n * (2 + i)),
        (lambda n, i: n + 2),
        (lambda n, i: n * 2),
        (lambda n, i: n + 1),
    ):
        at = dict(table._hints)
        at.update({s: step(table._hints[s], i % 3) for i, s in enumerate(free)})
        for s, value in table._equal.items():
            at[s] = _evaluate(value, at)
        if all(v >= 2 for v in at.values()) and all(c.condition.evaluate(at) for c in table.conditions):
            yield at
            found += 1
            if found == TRIES:
                return


def _is_fixed(table: SymbolTable, s: Any) -> bool:
    low, high = table.ranges[s]
    return low is not None and low == high or table._equal.get(s).__class__ is int


def _resized(sample: Any, fakes: Any, at: dict[Any, int]) -> Any:
    """The sample with other sizes; contents repeat, so that indices stay in range."""
    pairs = iter(tensors(fakes))

    def one(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        spec = next(pairs).spec
        sizes = [_evaluate(s, at) for s in spec.sizes]
        if sizes == list(t.shape):
            return t.detach().clone() if t.is_contiguous() else cloned(t)
        strides = [_evaluate(s, at) for s in spec.strides]
        out = t.detach()
        for dim, size in enumerate(sizes):
            out = out.index_select(dim, torch.arange(size) % max(out.shape[dim], 1))
        holder = torch.empty_strided(sizes, strides, dtype=t.dtype)
        extent = holder.untyped_storage().nbytes() // max(holder.element_size(), 1) + spec.offset
        where = (
            torch.zeros(extent, dtype=t.dtype).as_strided(sizes, strides, spec.offset) if spec.offset.__class__ is int else holder
        )
        return where.copy_(out)

    try:
        return mapped(one, sample)
    except RuntimeError:  # overlapping memory
        return None


def _specialised(function: Any, table: SymbolTable, sample: Any, fakes: Any, expected: Any) -> str | None:
    """A symbol that became a number although eager takes another number there."""
    fixed = [s for s in table.symbols if s in table._hints and _is_fixed(table, s)]
    if not fixed:
        return None
    for s in fixed:
        alike = [x for x in table.symbols if table._hints.get(x) == table._hints[s]]
        same = [x for x in table._equal if x is not s and table._equal[x] is s]
        for group in _distinct([[s], [s, *same], alike]):
            for value in (table._hints[s] + 1, table._hints[s] * 2):
                resized = _resized(sample, fakes, {**table._hints, **dict.fromkeys(group, value)})
                other = None if resized is None else _eager(function, resized)
                if other is not None and _alike(expected, other):
                    where = [str(c) for c in table.conditions][:3]
                    return f"{s} became {table._hints[s]}, but eager takes {value} for {group}: {where}"
    return None


def _distinct(groups: list[list[Any]]) -> list[list[Any]]:
    return [g for g, _ in itertools.groupby(groups)]


def _alike(a: Any, b: Any) -> bool:
    """As many results, of as many dims: the program after the op could be the same."""
    return [t.ndim for t in tensors(a)] == [t.ndim for t in tensors(b)]


__all__ = ["symbolic"]

"""Rows of ATEN_META against the decompositions of the same overloads, run on the same specs: does a row say more?

python packages/primops/tests/cpu/rows_and_decompositions.py [--only ENTRY ...] [--samples N] [--modules] [--json FILE]

The calls are those of op_db's samples in some dtypes and layouts, with their gradients and with symbolic sizes, and of module_db's
modules. Each is also asked as if its tensors were on a GPU. A row of which the decomposition says the same everywhere is not needed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from opdb_checks import parts as parts_of
from opdb_checks import spread, tensors
from single_op import mapped
from tracework_primops import FakeMode, FakeTensor, SymbolTable, _torch
from tracework_primops.broadcasting import channels_last, contiguous
from tracework_primops.decomp import DECOMPS
from tracework_primops.fake import ATEN_META
from tracework_primops.fake.dispatch import forget_plans
from tracework_primops.fake.meta_kernel import run_meta_kernel
from tracework_primops.fake.rules import run_decomposition
from tracework_primops.spec import TensorSpec
from tracework_primops.symbols import active

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
GPU = torch.device("cuda", 0)
EXAMPLES = 3

Rule = Callable[..., Any]


class RolledBack(Exception):
    """Ends an attempt of a table, so that nothing of it stays."""


class Comparison:
    """What each row and the decomposition of its overload said of the same calls: overload -> kind of difference -> calls, examples."""

    def __init__(self) -> None:
        self.found: dict[str, Counter[str]] = defaultdict(Counter)
        self.examples: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        self.rows = {func: ATEN_META.get(func) or _meta_kernel(func) for func in DECOMPS if is_asked(func)}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Every row that has a decomposition beside it is compared when it is asked."""
        before = dict(ATEN_META)
        ATEN_META.update({func: self._compared(func, rule) for func, rule in self.rows.items()})
        forget_plans()
        try:
            yield
        finally:
            ATEN_META.clear()
            ATEN_META.update(before)
            forget_plans()

    def _compared(self, func: Any, rule: Rule) -> Rule:
        decomposed = run_decomposition(func)

        def compared(*args: Any, **kwargs: Any) -> Any:
            table = active.table()
            here = self._ask(rule, args, kwargs), self._ask(decomposed, args, kwargs)
            self._note(func, "", *here, args, kwargs)
            if table is None:
                args_there, kwargs_there = _moved(args), _moved(kwargs)
                there = self._ask(rule, args_there, kwargs_there), self._ask(decomposed, args_there, kwargs_there)
                self._note(func, "gpu ", *there, args_there, kwargs_there)
            return rule(*args, **kwargs)

        return compared

    def _ask(self, rule: Rule, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The result, or the error, and the conditions that were recorded on the way, all of which is undone."""
        table = active.table()
        if table is None:
            try:
                return rule(*args, **kwargs), ()
            except Exception as error:
                return error, ()
        answer: list[Any] = []

        def run() -> None:
            before = len(table.conditions)
            try:
                result = rule(*args, **kwargs)
            except Exception as error:
                result = error
            answer.append((result, tuple(sorted(str(c.condition) for c in table.conditions[before:]))))
            raise RolledBack

        with contextlib.suppress(RolledBack):
            table.attempt(run)
        return answer[0]

    def _note(self, func: Any, where: str, row: tuple[Any, Any], other: tuple[Any, Any], args: Any, kwargs: Any) -> None:
        kind = difference(row[0], other[0])
        if kind == "same" and row[1] != other[1]:
            kind = "conditions"
        if kind != "same":
            kind = where + kind
        self.found[str(func)][kind] += 1
        kept = self.examples[str(func)][kind]
        if kind != "same" and len(kept) < EXAMPLES:
            kept.append(f"{list(args)} {kwargs}: {row!r} / {other!r}"[:900])


def is_asked(func: Any) -> bool:
    """Whether fakes ask a rule for this overload: it exists in this torch, and is no composite."""
    try:
        return func.namespace == "aten" and not _torch.has_kernel(func, "CompositeImplicitAutograd")
    except RuntimeError:  # scripts alone know it
        return False


def _meta_kernel(func: Any) -> Rule:
    return lambda *args, **kwargs: run_meta_kernel(func, args, kwargs)


def difference(row: Any, other: Any) -> str:
    """What kind of difference there is between two answers."""
    if isinstance(row, Exception) or isinstance(other, Exception):
        if isinstance(row, Exception) and isinstance(other, Exception):
            return "same" if type(row) is type(other) and str(row) == str(other) else "other error"
        return "only the row refuses" if isinstance(row, Exception) else "only the decomposition fails"
    if row is NotImplemented or other is NotImplemented:
        return "same" if row is other else "only the row declines" if row is NotImplemented else "only the decomposition declines"
    if _plain(row) == _plain(other):
        return "same"
    if _plain(row, strides=False) == _plain(other, strides=False):
        return "strides"
    return "result"


def _plain(a: Any, strides: bool = True) -> Any:
    if isinstance(a, (tuple, list)):
        return [_plain(b, strides) for b in a]
    return (a.dtype, a.device, a.sizes, a.strides if strides else (), a.offset) if a.__class__ is TensorSpec else a


def _moved(a: Any) -> Any:
    if a.__class__ is TensorSpec:
        return a.replace(device=GPU)
    if isinstance(a, (list, tuple)):
        return type(a)([_moved(b) for b in a])
    if isinstance(a, dict):
        return {k: _moved(v) for k, v in a.items()}
    return GPU if isinstance(a, torch.device) else a


# layouts -----------------------------------------------------------------------------------------


def _as_it_is(spec: TensorSpec) -> TensorSpec:
    return spec


def _of_images(spec: TensorSpec) -> TensorSpec:
    return spec.replace(strides=channels_last(spec.sizes)) if spec.ndim in (4, 5) else spec


def _transposed(spec: TensorSpec) -> TensorSpec:
    if spec.ndim < 2:
        return spec
    strides = contiguous(spec.sizes[::-1])[::-1]
    return spec.replace(strides=strides)


def _expanded(spec: TensorSpec) -> TensorSpec:
    if not spec.ndim:
        return spec
    return spec.replace(strides=(0, *contiguous(spec.sizes[1:])))


def _every_second(spec: TensorSpec) -> TensorSpec:
    return spec.replace(strides=tuple(2 * s for s in contiguous(spec.sizes)))


LAYOUTS = (_as_it_is, _of_images, _transposed, _expanded, _every_second)


def _samples(op: Any, dtype: torch.dtype, most: int) -> list[tuple[int, Any]]:
    """None of an entry that cannot make any of this dtype."""
    try:
        return list(spread(op, dtype, most))
    except (ValueError, TypeError, AssertionError):
        return []


def run_entry(op: Any, samples: int) -> None:
    """The calls of one entry of op_db."""
    for dtype in DTYPES:
        for _, sample in _samples(op, dtype, samples):
            parts = parts_of(sample)
            if not all(t.layout is torch.strided and t.device.type == "cpu" for t in tensors(parts)):
                continue
            for layout in LAYOUTS:
                for first_only in (False, True) if layout is not _as_it_is and len(tensors(parts)) > 1 else (False,):
                    _run(op.op, parts, layout, first_only, symbolic=False)
            _run(op.op, parts, _as_it_is, False, symbolic=True)
            _run(op.op, parts, _transposed, False, symbolic=True)
            if op.get_inplace() is not None:
                _run(op.get_inplace(), parts, _as_it_is, False, symbolic=False)


def _run(function: Any, parts: Any, layout: Callable[[TensorSpec], TensorSpec], first_only: bool, symbolic: bool) -> None:
    table = SymbolTable() if symbolic else None
    mode = FakeMode(table, allow_unbacked=True) if symbolic else FakeMode()
    changed = [0]

    def fake(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        changed[0] += 1
        spec = mode.from_real(t).spec
        if not (first_only and changed[0] > 1):
            spec = layout(spec)
        if table is not None:
            sizes = [table.new(s, "size") if s > 1 else s for s in spec.sizes]
            strides = contiguous(tuple(sizes)) if layout is _as_it_is else contiguous(tuple(sizes[::-1]))[::-1]
            spec = TensorSpec(spec.dtype, spec.device, tuple(sizes), strides, 0)
        made = mode.make(spec)
        return made.requires_grad_() if t.dtype.is_floating_point or t.dtype.is_complex else made

    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fakes = mapped(fake, parts)
        torch.default_generator.manual_seed(1)
        with mode:
            out = function(fakes[0], *fakes[1], **fakes[2])
            roots = [t for t in tensors(out) if isinstance(t, FakeTensor) and t.requires_grad]
            leaves = [t for t in tensors(fakes) if t.requires_grad]
            if roots and leaves:
                torch.autograd.grad(roots, leaves, [torch.ones_like(r) for r in roots], allow_unused=True, retain_graph=True)
                grads = [torch.ones((), dtype=r.dtype).expand(r.shape) for r in roots]
                torch.autograd.grad(roots, leaves, grads, allow_unused=True)


def run_modules(samples: int) -> None:
    """The calls of module_db's modules."""
    import modules_on_fakes
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        for dtype in modules_on_fakes.DTYPES:
            for training in (True, False):
                for sizes in modules_on_fakes.SIZES:
                    modules_on_fakes.check(info, dtype, training, sizes, samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--samples", type=int, default=12, help="at most so many of an entry and dtype")
    parser.add_argument("--modules", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    from torch.testing._internal.common_methods_invocations import op_db

    torch.set_num_threads(1)
    comparison = Comparison()
    with comparison.watching():
        if options.modules:
            run_modules(options.samples)
        else:
            for op in op_db:
                if not options.only or op.name in options.only:
                    run_entry(op, options.samples)
    print(f"{len(comparison.rows)} rows with a decomposition, {len(comparison.found)} of them asked")
    for name, kinds in sorted(comparison.found.items()):
        print(f"{name:60} {dict(kinds)}")
    if options.json:
        options.json.write_text(json.dumps({"found": comparison.found, "examples": comparison.examples}))


if __name__ == "__main__":
    main()

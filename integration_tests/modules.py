"""Every module of torch's own module_db through tracework.compile, forward and backward, training and evaluating, against eager.

`python modules.py` runs all of them on the backends aot_eager and inductor and writes MODULES.md.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import logging
import multiprocessing
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import tracework
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_flatten, tree_map
from tracework_capture import Unsupported

SAMPLES = 3
EXACT = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.complex64: torch.complex128,
}
"""dtype -> the one that it is judged by."""
ROUNDINGS = 128
"""Of the largest element, where eager happens to be nearer than a quarter of that: what sums of a few thousand products round by in float32."""
WIDE_ROUNDINGS = 8
"""The same of half types, which are summed up in float32 and rounded a few times."""


@dataclass(frozen=True)
class Outcome:
    """One module in one mode on one backend: status is "equal", "equal, not in one graph", "wrong", "failed" or "refused by eager"."""

    name: str
    mode: str
    backend: str
    dtype: str
    status: str
    detail: str = ""


def dtypes_of(info: Any) -> list[torch.dtype]:
    """The dtypes that module_db lists for a module, and bfloat16, which eager may refuse."""
    known = dict.fromkeys((*EXACT, *EXACT.values()))
    return [d for d in known if d in info.dtypes or d is torch.bfloat16]


def check(info: Any, training: bool, backend: str, samples: int = SAMPLES, dtype: torch.dtype = torch.float32) -> Outcome:
    """The first samples of a module; the first that is not equal decides."""
    mode = "train" if training else "eval"
    row = Outcome(info.formatted_name, mode, backend, str(dtype).removeprefix("torch."), "equal")
    details = []
    for sample in _samples(info, training, samples, dtype):
        try:
            module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).train(training)
            module = module.to(dtype)
            expected = _run(module, sample.forward_input, lambda m: m)
        except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
            return replace(row, status="refused by eager", detail=_line(error))
        try:
            found, detail = _run_compiled(module, sample.forward_input, backend)
        except Exception as error:  # the text goes into the table
            return replace(row, status="failed", detail=f"{sample.desc}: {_line(error)}")
        wrong = _difference(found, expected, _exact(module, sample.forward_input, dtype))
        if wrong:
            return replace(row, status="wrong", detail=f"{sample.desc}: {wrong}")
        details += [detail] if detail else []
    return replace(row, status="equal, not in one graph" if details else "equal", detail=details[0] if details else "")


def _run_compiled(module: torch.nn.Module, given: Any, backend: str) -> tuple[dict[str, Any], str]:
    """Results, and why the module was not one compiled graph ("" when it was)."""
    with Refusals() as refusals:
        try:
            return _run(module, given, lambda m: _compiled(m, backend, fullgraph=True)), refusals.first
        except Unsupported as error:
            detail = _line(error)
        return _run(module, given, lambda m: _compiled(m, backend, fullgraph=False)), detail


def _compiled(module: torch.nn.Module, backend: str, fullgraph: bool) -> Any:
    tracework.reset()
    return tracework.compile(module, backend=backend, fullgraph=fullgraph)


class Refusals(logging.Handler):
    """Hears which graphs run uncompiled."""

    first = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "uncompiled: " in text:
            self.first = self.first or " ".join(text.split("\n  ")[:2])

    def __enter__(self) -> Refusals:
        logging.getLogger("tracework.fallbacks").addHandler(self)
        return self

    def __exit__(self, *error: Any) -> None:
        logging.getLogger("tracework.fallbacks").removeHandler(self)


def _samples(info: Any, training: bool, count: int, dtype: torch.dtype) -> Iterator[Any]:
    torch.manual_seed(0)
    offered = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
    found = [s for s in itertools.islice(offered, 4 * count) if s.forward_input is not None]
    step = max(1, len(found) / count)
    return iter([found[int(i * step)] for i in range(min(count, len(found)))])


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:200]


def _exact(module: torch.nn.Module, given: Any, dtype: torch.dtype) -> dict[str, Any]:
    """The results in the dtype that these are judged by; empty when there is none, or that is another function."""
    if dtype not in EXACT:
        return {}

    def widened(value: Any) -> Any:
        known = isinstance(value, torch.Tensor) and value.dtype in EXACT
        return value.detach().to(EXACT[value.dtype]).requires_grad_(value.requires_grad) if known else value

    args, kwargs = tree_map(widened, (given.args, given.kwargs))
    try:
        return _run(copy.deepcopy(module).to(EXACT[dtype]), type(given)(*args, **kwargs), lambda m: m)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return {}


def _run(module: torch.nn.Module, given: Any, wrap: Any) -> dict[str, Any]:
    """Outputs, gradients of inputs and parameters, and buffers, after one forward and backward."""
    args, kwargs = tree_map(_own, (given.args, given.kwargs))
    module = copy.deepcopy(module)
    torch.manual_seed(0)
    out = wrap(module)(*args, **kwargs)
    outputs = [o for o in tree_flatten(out)[0] if isinstance(o, torch.Tensor)]
    roots = [o for o in outputs if o.requires_grad]
    if roots:
        torch.autograd.backward(roots, [_tangent_of(r) for r in roots])
    leaves = {f"input {i}": t.grad for i, t in enumerate(tree_flatten((args, kwargs))[0]) if isinstance(t, torch.Tensor)}
    leaves |= {f"grad of {n}": p.grad for n, p in module.named_parameters()}
    return {**{f"output {i}": o for i, o in enumerate(outputs)}, **leaves, **dict(module.named_buffers())}


def _tangent_of(output: torch.Tensor) -> torch.Tensor:
    """Fixed numbers of either sign; complex ones lie on no axis, since the conjugate of a real number is itself."""
    values = torch.linspace(-1.1, 1.3, output.numel(), dtype=torch.float64).reshape(output.shape)
    return (torch.complex(values, 0.7 - values) if output.is_complex() else values).to(output)


def _own(value: Any) -> Any:
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def _difference(found: dict[str, Any], expected: dict[str, Any], exact: dict[str, Any]) -> str | None:
    if found.keys() != expected.keys():
        return f"{sorted(found)} instead of {sorted(expected)}"
    for name, theirs in expected.items():
        mine = found[name]
        if mine is None or theirs is None:
            if mine is not theirs:
                return f"{name}: {'no' if mine is None else 'a'} gradient"
        elif (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            return f"{name}: {mine.dtype} {tuple(mine.shape)} instead of {theirs.dtype} {tuple(theirs.shape)}"
        elif not _close(mine.detach(), theirs.detach(), exact.get(name)):
            return f"{name}: differs by {float((mine - theirs).abs().max()):.2e} of {float(theirs.abs().max()):.2e}"
    return None


def _close(mine: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor | None) -> bool:
    """The larger of four times what eager itself is from the result in the wider dtype, and of a few roundings."""
    if not theirs.is_floating_point() and not theirs.is_complex():
        return torch.equal(mine, theirs)
    finite = torch.isfinite(theirs)
    if not torch.equal(finite, torch.isfinite(mine)):
        return False
    wide = torch.complex128 if theirs.is_complex() else torch.float64
    a, b = mine[finite].to(wide), theirs[finite].to(wide)
    usable = exact is not None and exact.shape == theirs.shape and bool(torch.isfinite(exact[finite]).all())
    truth = exact.detach()[finite].to(wide) if usable and exact is not None else b
    if not b.numel():
        return True
    roundings = WIDE_ROUNDINGS if theirs.dtype.itemsize == 2 and usable else ROUNDINGS
    bound = max(
        4 * float((b - truth).abs().max()), roundings * torch.finfo(theirs.dtype).eps * max(1.0, float(truth.abs().max()))
    )
    return float((a - truth).abs().max()) <= bound


HEAD = """# torch's module_db through tracework.compile

Every module of `torch.testing._internal.common_modules.module_db` on the CPU, torch {torch}, in the dtypes that it lists and in bfloat16,
{samples} samples each, forward and backward in training and evaluating mode: outputs, gradients of inputs and parameters, and buffers against eager.
Written by `nox -s modules`.

| backend | outcome | {dtypes} |
|---|---|{rule}
"""


def table(outcomes: list[Outcome]) -> str:
    """The counts, and each row that is not equal in one graph."""
    dtypes = list(dict.fromkeys(o.dtype for o in outcomes))
    counts = Counter((o.backend, o.status, o.dtype) for o in outcomes)
    lines = [HEAD.format(torch=torch.__version__, samples=SAMPLES, dtypes=" | ".join(dtypes), rule="---|" * len(dtypes))]
    for backend, status in sorted({(o.backend, o.status) for o in outcomes}):
        lines.append(f"| {backend} | {status} | {' | '.join(str(counts[backend, status, d]) for d in dtypes)} |\n")
    lines.append("\n| module | mode | backend | dtype | outcome | why |\n|---|---|---|---|---|---|\n")
    for o in outcomes:
        if o.status != "equal":
            lines.append(f"| {o.name} | {o.mode} | {o.backend} | {o.dtype} | {o.status} | {o.detail.replace('|', '/')} |\n")
    return "".join(lines)


def _quiet() -> None:
    """What each process begins with: one core, and no warnings of the modules' own."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def _check_row(row: tuple[int, bool, str, torch.dtype]) -> Outcome:
    """`check` of a module by its number: entries do not travel between processes."""
    number, training, backend, dtype = row
    return check(module_db[number], training, backend, dtype=dtype)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("MODULES.md"))
    parser.add_argument("--only", default="", help="modules whose name contains this; writes nothing")
    parser.add_argument("--backend", default="", help="only this backend; writes nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    backends = [given.backend] if given.backend else ["aot_eager", "inductor"]
    rows = [
        (number, training, backend, dtype)
        for number, info in enumerate(module_db)
        if given.only in info.formatted_name
        for dtype, backend, training in itertools.product(dtypes_of(info), backends, (True, False))
    ]
    outcomes = []
    with multiprocessing.get_context("spawn").Pool(given.jobs, _quiet) as pool:
        for outcome in pool.imap(_check_row, rows):
            outcomes.append(outcome)
            if given.only or outcome.status != "equal":
                print(outcome, flush=True)
    if not (given.only or given.backend):
        given.out.write_text(table(outcomes))
    return 0 if all(o.status.startswith(("equal", "refused")) for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Every module of torch's own module_db on fakes, forward and backward, training and evaluating: is the metadata eager's?

`python packages/primops/tests/cpu/modules_on_fakes.py` runs all of them with static and with symbolic sizes and writes MODULES_ON_FAKES.md.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import itertools
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from opdb_checks import aliasing, describe, tensors
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_map
from tracework_primops import DataDependentError, FakeMode, SymbolTable

DTYPES = (torch.float32, torch.bfloat16)
SAMPLES = 12  # of each module, dtype and mode, evenly spread over what it offers
SIZES = ("static", "symbolic")


@dataclass(frozen=True)
class Outcome:
    """One module in one dtype and mode: status is "equal", "depends on data", "differs", "failed" or "refused by eager"."""

    name: str
    dtype: str
    mode: str
    sizes: str
    status: str
    cases: int = 0
    detail: str = ""


def check(info: Any, dtype: torch.dtype, training: bool, sizes: str, most: int = SAMPLES) -> Outcome:
    """The samples of a module; the first that differs decides, those that eager refuses are left out.

    A module that looks at the data of a tensor agrees when the fake refuses with DataDependentError.
    """
    row = Outcome(info.formatted_name, str(dtype)[6:], "train" if training else "eval", sizes, "equal")
    cases, refusal, data = 0, "no sample", ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in _spread(list(_samples(info, dtype, training)), most):
            try:
                module, given = _made(info, sample, dtype, training)
                expected = _run(copy.deepcopy(module), *tree_map(_own, given))
            except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
                refusal = _line(error)
                continue
            cases += 1
            try:
                wrong = _difference(_run_on_fakes(module, given, sizes), expected)
            except DataDependentError as error:
                data = f"{sample.desc}: {_line(error)}"
                continue
            except Exception as error:  # the text goes into the table
                return replace(row, status="failed", cases=cases, detail=f"{sample.desc}: {_line(error)}")
            if wrong:
                return replace(row, status="differs", cases=cases, detail=f"{sample.desc}: {wrong}")
    if data:
        return replace(row, status="depends on data", cases=cases, detail=data)
    return replace(row, cases=cases) if cases else replace(row, status="refused by eager", detail=refusal)


def _samples(info: Any, dtype: torch.dtype, training: bool) -> Iterator[Any]:
    torch.manual_seed(0)
    with contextlib.suppress(RuntimeError, NotImplementedError):  # numbers that the dtype's kernels cannot make
        offered = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
        yield from (s for s in offered if s.forward_input is not None)


def _spread(samples: list[Any], most: int) -> list[Any]:
    """At most so many, evenly spread."""
    step = max(len(samples) / most, 1.0)
    return [samples[int(i * step)] for i in range(min(len(samples), most))]


def _made(info: Any, sample: Any, dtype: torch.dtype, training: bool) -> tuple[torch.nn.Module, Any]:
    module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
    given = sample.forward_input.args, sample.forward_input.kwargs
    module = module.to(dtype).train(training)
    if any(isinstance(p, torch.nn.UninitializedParameter) for p in module.parameters()):
        module(*given[0], **given[1])  # makes its parameters
    return module, given


def _own(value: Any) -> Any:
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def _run(module: torch.nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    """Metadata of outputs, buffers and gradients after one forward and backward, and what the outputs share memory with."""
    torch.manual_seed(0)
    out = module(*args, **kwargs)
    outputs = tensors(out)
    given = tensors((args, kwargs))
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    found = {f"output {i}": (*describe(o), o.requires_grad) for i, o in enumerate(outputs)}
    found["aliasing"] = aliasing([*given, *state.values()], outputs) if outputs else ()
    found |= {f"buffer {n}": describe(b) for n, b in module.named_buffers()}
    leaves = [t for t in (*given, *module.parameters()) if t.requires_grad]
    roots = [o for o in outputs if o.requires_grad and not o.is_leaf]
    if roots and leaves:
        grads = torch.autograd.grad(roots, leaves, [torch.ones_like(r) for r in roots], allow_unused=True)
        found |= {f"gradient {i}": None if g is None else describe(g) for i, g in enumerate(grads)}
    return found


def _run_on_fakes(module: torch.nn.Module, given: Any, sizes: str) -> dict[str, Any]:
    """The same on fakes; symbols, one for each size of an input above 1, are replaced by what they stand for."""
    table = SymbolTable() if sizes == "symbolic" else None
    mode = FakeMode(table)
    known: dict[int, Any] = {}  # equal sizes are one symbol, as modules need them equal

    def size_of(n: int) -> Any:
        if n > 1 and n not in known:
            known[n] = table.new(n)  # type: ignore[union-attr]
        return known.get(n, n)

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return mode.from_real(value, sizes=None if table is None else [size_of(n) for n in value.shape])

    def numbers(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return tuple(map(numbers, value))
        return table.hint(table.from_symint(value)) if isinstance(value, torch.SymInt) else value  # type: ignore[union-attr]

    module = copy.deepcopy(module)
    for owner in module.modules():
        for name, parameter in owner._parameters.items():
            if parameter is not None:
                owner._parameters[name] = mode.from_real(parameter)
        for name, buffer in owner._buffers.items():
            if buffer is not None:
                owner._buffers[name] = mode.from_real(buffer)
    with mode:
        found = _run(module, *tree_map(fake, given))
    return {name: numbers(value) if name != "aliasing" else value for name, value in found.items()}


def _difference(found: dict[str, Any], expected: dict[str, Any]) -> str | None:
    if found.keys() != expected.keys():
        return f"{sorted(found)} instead of {sorted(expected)}"
    for name, theirs in expected.items():
        if found[name] != theirs:
            return f"{name}: {found[name]} instead of {theirs}"
    return None


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:200]


HEAD = """# torch's module_db on fakes

Every module of `torch.testing._internal.common_modules.module_db` on the CPU in {dtypes}, at most {samples} samples each, forward and
backward in training and evaluating mode, with static sizes and with a symbol for each size of the inputs above 1: sizes, strides, offset,
dtype, device and requires_grad of outputs, buffers and gradients, and what outputs share memory with, against eager. Written by
`nox -s modules_on_fakes`.

| sizes | outcome | rows | samples |
|---|---|---|---|
"""


def table_of(outcomes: list[Outcome]) -> str:
    """The counts, and each row that is not equal."""
    rows = Counter((o.sizes, o.status) for o in outcomes)
    cases: Counter = Counter()
    for o in outcomes:
        cases[o.sizes, o.status] += o.cases
    lines = [HEAD.format(dtypes=" and ".join(str(d)[6:] for d in DTYPES), samples=SAMPLES)]
    lines += [f"| {kind[0]} | {kind[1]} | {n} | {cases[kind]} |\n" for kind, n in sorted(rows.items())]
    lines.append("\n| module | dtype | mode | sizes | outcome | why |\n|---|---|---|---|---|---|\n")
    for o in outcomes:
        if o.status != "equal":
            lines.append(f"| {o.name} | {o.dtype} | {o.mode} | {o.sizes} | {o.status} | {o.detail.replace('|', '/')} |\n")
    return "".join(lines)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("MODULES_ON_FAKES.md"))
    parser.add_argument("--only", default="", help="modules whose name contains this; writes nothing")
    given = parser.parse_args()
    outcomes = []
    for info in module_db:
        if given.only not in info.formatted_name:
            continue
        for dtype, training, sizes in itertools.product(DTYPES, (True, False), SIZES):
            outcomes.append(check(info, dtype, training, sizes))
            if given.only or outcomes[-1].status in ("differs", "failed"):
                print(outcomes[-1], flush=True)
    if not given.only:
        given.out.write_text(table_of(outcomes))
    return 1 if any(o.status in ("differs", "failed") for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Gradients of op_db's entries through aot_compile against eager's.

The joint graph of each sample, traced through autograd on fakes and partitioned, runs three times: as the ATen graph that it is,
decomposed to prims that run eagerly, and decomposed as `numerics="strict"` has it, where all bits are compared. `python op_gradients.py
--out GRADIENTS.md` runs all entries and writes the table.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import multiprocessing
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tracework_aotautograd as aot
from torch import fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten
from tracework_primops import contract_changes, decompose

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex128, torch.complex64)
SAMPLES = 4  # of each entry and dtype, spread over what the entry offers
OFFERED = 60  # how many of an entry's samples are looked at
SEED = 42  # what op_db's own wrappers of random functions set before each call
MODES = ("aten", "prims", "strict")
STRICT = contract_changes("strict")

EXACT = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.complex64: torch.complex128,
}
"""dtype -> the one that it is judged by."""
ULPS = 8
"""What is allowed of the largest element, where eager happens to be nearer than a quarter of that: three roundings of a half ulp on the
way to a result, of numbers that are at most some times as large; and one ulp of the tangents' size, since a gradient of 0 is a difference
of such."""
UNJUDGED_ULPS = 64
"""The same beside eager's result, which is rounded as well, and of a number of the tangents' size at least."""

# entry -> why it runs uncompiled, all or some of its samples
UNCOMPILED = {
    "masked_select": "how many elements are selected depends on the data",
    "repeat_interleave": "with counts in a tensor, the size of the result is their sum",
    "narrow": "with a start in a tensor, the data say what the view shows",
    "tensor_split": "with positions in a tensor, the data say what the views show",
    "cov": "eager checks weights at each call, and raises or warns",
    "nn.functional.ctc_loss": "with lengths in tensors, the data say how much is kept for the backward",
    "nn.functional.gaussian_nll_loss": "its Python code raises when a variance is negative; capture takes the check out of the graph",
    **dict.fromkeys(
        ("linalg.lstsq", "linalg.lstsq.grad_oriented"),
        "drivers gelss and gelsd give residuals when the ranks that they find are full",
    ),
    "istft": "eager checks at each call that its windows leave no gap, and raises",
    **dict.fromkeys(
        ("svd", "linalg.svd", "svd_lowrank", "pca_lowrank"),
        "of complex matrices: the backward checks at each call that nothing depends on the phases of singular vectors, and raises",
    ),
    **dict.fromkeys(("sparse.sampled_addmm", "sparse.mm.reduce", "to_sparse"), "sparse tensors have no fake form"),
}
# (entry, dtype) -> why another result is as good
TRACED = "autograd has another formula for tensors that are traced"
WRITTEN = "written anew while tracing"
LAPACK = "the library's bits vary with where its operands lie"
# entry -> why its gradients do not have all of eager's bits under "strict"
NOT_STRICT = {
    **dict.fromkeys(
        "prod masked.prod cumprod masked.cumprod linalg.vander masked_fill cholesky_inverse qr linalg.qr linalg.eigh lu linalg.lu "
        "linalg.lu_factor linalg.lu_factor_ex linalg.solve_triangular linalg.householder_product ormqr".split(),
        TRACED,
    ),
    **dict.fromkeys("lu_solve linalg.lu_solve linalg.eig linalg.lstsq linalg.lstsq.grad_oriented".split(), LAPACK),
    **dict.fromkeys("combinations corrcoef cov gradient stft fft.fftn fft.ifftn fft.hfft2 fft.ihfft2".split(), WRITTEN),
}
DIFFERENT = {("nn.functional.soft_margin_loss", "float16"): "eager overflows between its operations, prims compute in float32"}
# entry -> factor by which rounding grows
CONDITION = {
    # a row of one element: its gradient, 0, is a difference of terms that are multiplied by 1/sqrt(eps)
    "native_layer_norm": 1e-5**-0.5,
    "nn.functional.normalize": 2**5,  # the same of terms that are divided by the element, of 0.04 and more
    # gradients of scores are differences of sums over 8 features, of products with values up to 9: little is left of them
    "nn.functional.scaled_dot_product_attention": 8 * 9,
}


@dataclass(frozen=True)
class Outcome:
    """One entry with one dtype: status is "equal", "uncompiled", "uncompiled in part", "wrong", "failed" or "refused by eager"."""

    name: str
    dtype: str
    status: str
    detail: str = ""
    samples: int = 0
    bits: str = ""  # the first of eager's bits that it does not have under "strict"

    @property
    def accepted(self) -> bool:
        """Whether it is equal or has a reason, and under "strict" as well."""
        return (self.status == "equal" or self.reason is not None) and (not self.bits or self.name in NOT_STRICT)

    @property
    def reason(self) -> str | None:
        """Why it is not equal, where that is known."""
        if self.status.startswith("uncompiled"):
            return UNCOMPILED.get(self.name)
        return DIFFERENT.get((self.name, self.dtype)) if self.status == "wrong" else None


def name_of(op: Any) -> str:
    """The entry's name with its variant."""
    return f"{op.name}.{op.variant_test_name}".rstrip(".")


def differentiable() -> list[Any]:
    """The entries that have a gradient on the CPU."""
    return [op for op in op_db if dtypes_of(op)]


def dtypes_of(op: Any) -> list[torch.dtype]:
    """The dtypes in which op_db says that the entry has a gradient on the CPU."""
    return [d for d in DTYPES if op.supports_autograd and d in op.supported_backward_dtypes("cpu")]


def check(op: Any, dtype: torch.dtype, samples: int = SAMPLES) -> Outcome:
    """The samples of one entry; the first that is wrong decides, those that run uncompiled are counted."""
    name, short = name_of(op), str(dtype).removeprefix("torch.")
    done, refused, bits = 0, "no sample has a gradient", ""
    refusals: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in _chosen(op, dtype, samples):
            case = Case(op, sample)
            try:
                expected = case.eager()
            except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError) as error:
                refused = _line(error)
                continue
            if not case.has_gradient:
                continue
            found = case.against(expected)
            bits = bits or case.bits
            if found is None:
                done += 1
            elif found[0] == "uncompiled":
                refusals.append(found[1])
            else:
                return Outcome(name, short, *found, done)
    if refusals:
        return Outcome(name, short, "uncompiled in part" if done else "uncompiled", refusals[0], done, bits)
    return Outcome(name, short, "equal" if done else "refused by eager", "" if done else refused, done, bits)


def check_row(row: tuple[int, torch.dtype]) -> Outcome:
    """`check` of an entry by its number: entries do not travel between processes."""
    number, dtype = row
    return check(differentiable()[number], dtype)


def _chosen(op: Any, dtype: torch.dtype, count: int) -> Iterator[Any]:
    torch.manual_seed(0)
    offered = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=True), OFFERED))
    step = max(1, len(offered) / count)
    return iter([offered[int(i * step)] for i in range(min(count, len(offered)))])


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:200]


Result = tuple[list[Any], list[Any]]  # outputs, gradients


class Case:
    """One sample: its tensors apart from the rest of its arguments."""

    def __init__(self, op: Any, sample: Any) -> None:
        self.op, self.process = op, sample.output_process_fn_grad
        flat, self.spec = tree_flatten((sample.input, sample.args, sample.kwargs))
        self.flat = flat
        self.places = [i for i, x in enumerate(flat) if isinstance(x, torch.Tensor)]
        self.has_gradient = False
        self.bits = ""

    def _call(self, *tensors: Any) -> tuple[Any, ...]:
        flat = list(self.flat)
        for place, tensor in zip(self.places, tensors, strict=True):
            flat[place] = tensor
        first, args, kwargs = tree_unflatten(flat, self.spec)
        out = self.process(self.op.op(first, *args, **kwargs))
        return tuple(o for o in tree_flatten(out)[0] if isinstance(o, torch.Tensor))

    def _inputs(self, exact: bool = False) -> list[torch.Tensor]:
        tensors = [self.flat[i] for i in self.places]
        made = [t.detach().to(EXACT.get(t.dtype, t.dtype) if exact else t.dtype) for t in tensors]
        return [m.requires_grad_(t.requires_grad) for m, t in zip(made, tensors, strict=True)]

    def _results(self, call: Callable[..., Any], inputs: list[Any]) -> Result:
        torch.manual_seed(SEED)
        outputs = list(call(*inputs))
        roots = [o for o in outputs if o.requires_grad]
        leaves = [t for t in inputs if t.requires_grad]
        self.has_gradient = bool(roots and leaves)
        tangents = [tangent_of(r) for r in roots]
        grads = torch.autograd.grad(roots, leaves, tangents, allow_unused=True) if self.has_gradient else ()
        return outputs, list(grads)

    def eager(self) -> Result:
        """What torch itself gives."""
        return self._results(self._call, self._inputs())

    def _exact(self) -> Result | None:
        """The same in float64 or complex128, to judge the others by; None when that is another function."""
        try:
            return self._results(self._call, self._inputs(exact=True))
        except (RuntimeError, TypeError):
            return None

    def against(self, expected: Result) -> tuple[str, str] | None:
        """(status, detail) of the first difference in any mode, or None; `bits` has the first that is none but under "strict"."""
        inputs, mode = self._inputs(), [MODES[0]]
        try:
            compiled = aot.aot_compile(
                graph_of(self._call, len(inputs)),
                inputs,
                forward_compiler=lambda gm, spec: both(gm, spec, mode),
                options=aot.AotOptions(fallback=False, eager_backward=True),
            )
        except aot.Refusal as refusal:
            return "uncompiled", _line(refusal)
        except Exception as error:  # the text goes into the table
            return "failed", f"compiling: {_line(error)}"
        exact = self._exact() if any(t.dtype in EXACT for t in inputs) else None
        for name in MODES:
            mode[0] = name
            try:
                found = self._results(compiled, inputs)
            except Exception as error:
                return "failed", f"{name}: {_line(error)}"
            if name == "strict":
                self.bits = other_bits(found, expected)
                continue
            wrong = differences(found, expected, exact, CONDITION.get(self.op.name, 1.0), strides=name == "aten")
            if wrong is not None:
                return "wrong", f"{name}: {wrong}"
        return None


def both(gm: fx.GraphModule, spec: Any, mode: list[str]) -> Callable[[list[Any]], Any]:
    """A graph compiler whose product runs the ATen graph or its prims, as `mode` says at the time of the call."""
    runs = {"aten": gm, "prims": decompose(gm, spec=spec).run, "strict": decompose(gm, spec=spec, changes=STRICT).run}
    return lambda inputs: runs[mode[0]](*inputs)


def graph_of(function: Callable[..., Any], count: int) -> fx.GraphModule:
    """A captured graph whose one node calls `function`."""
    graph = fx.Graph()
    inputs = tuple(graph.placeholder(f"x{i}") for i in range(count))
    graph.output(graph.call_function(function, inputs))
    return fx.GraphModule({}, graph)


def tangent_of(output: torch.Tensor) -> torch.Tensor:
    """Fixed numbers of either sign, none of them round; complex ones lie on no axis, since the conjugate of a real number is itself."""
    values = torch.linspace(-1.1, 1.3, output.numel(), dtype=torch.float64).reshape(output.shape)
    return (torch.complex(values, 0.7 - values) if output.is_complex() else values).to(output.dtype)


def differences(found: Result, expected: Result, exact: Result | None, condition: float, strides: bool) -> str | None:
    """What differs, or None. A gradient that eager leaves out may be zeros.

    strides: whether outputs must have eager's; prims say them in their specs, and running prims eagerly does not lay them out.
    """
    for what, mine, theirs, truth in zip(("output", "gradient"), found, expected, exact or (None, None), strict=True):
        truths = truth if truth is not None and len(truth) == len(theirs) else [None] * len(theirs)
        for number, (a, b, c) in enumerate(zip(mine, theirs, truths, strict=True)):
            wrong = _difference(a, b, c, condition, strides=strides and what == "output")
            if wrong is not None:
                return f"{what} {number}: {wrong}"
    return None


def other_bits(found: Result, expected: Result) -> str:
    """Where the first bit differs, "" where none does. A NaN is a NaN, and a gradient that eager leaves out may be zeros."""
    for what, mine, theirs in zip(("output", "gradient"), found, expected, strict=True):
        for number, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            if a is not None and b is not None and not torch.allclose(a.detach(), b.detach(), rtol=0, atol=0, equal_nan=True):
                return f"{what} {number}"
    return ""


def _difference(mine: Any, theirs: Any, exact: Any, condition: float, strides: bool) -> str | None:
    if theirs is None or mine is None:
        other = mine if theirs is None else theirs
        return None if other is None or not other.any() else "defined on one side only"
    if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
        return f"{mine.dtype} {tuple(mine.shape)} instead of {theirs.dtype} {tuple(theirs.shape)}"
    if strides and _strides(mine) != _strides(theirs):
        return f"strides {mine.stride()} instead of {theirs.stride()}"
    if not theirs.is_floating_point() and not theirs.is_complex():
        return None if torch.equal(mine, theirs) else "other values"
    return _distance(mine, theirs, exact, condition)


def _strides(tensor: torch.Tensor) -> list[int]:
    return [t for s, t in zip(tensor.shape, tensor.stride(), strict=True) if s > 1 and tensor.numel()]


def _distance(mine: torch.Tensor, theirs: torch.Tensor, exact: Any, condition: float) -> str | None:
    """The larger of four times what eager itself is from the result in the wider dtype, and of a few roundings."""
    finite = torch.isfinite(theirs)
    if not torch.equal(finite, torch.isfinite(mine)) or not torch.equal(mine[~finite].isnan(), theirs[~finite].isnan()):
        return "not finite in other places"
    wide = torch.complex128 if theirs.is_complex() else torch.float64
    a, b = mine.detach()[finite].to(wide), theirs.detach()[finite].to(wide)
    if not b.numel():
        return None
    usable = exact is not None and exact.shape == theirs.shape and bool(torch.isfinite(exact[finite]).all())
    truth = exact.detach()[finite].to(wide) if usable else b
    info, largest = torch.finfo(theirs.dtype), float(truth.abs().max())
    rounding = max(1.0, ULPS * largest) if usable else UNJUDGED_ULPS * max(1.0, largest)
    bound = max(4 * float((b - truth).abs().max()), condition * info.eps * rounding, info.smallest_normal * info.eps)
    error = float((a - truth).abs().max())
    return None if error <= bound else f"differs by {error:.2e}, {bound:.2e} is allowed"


def quiet() -> None:
    """Refusals are counted here, not logged; and one core for each process."""
    torch.set_num_threads(1)
    logging.getLogger("tracework.fallbacks").setLevel(logging.ERROR)


HEAD = """# Gradients of op_db

Every entry of `torch.testing._internal.common_methods_invocations.op_db` of torch {torch} that has a gradient on the CPU, in every dtype that it
lists for its backward (of float64, float32, bfloat16, float16, complex128, complex64), {samples} samples each: forward and backward traced through
autograd on fakes, partitioned, and run as the ATen graph and as prims run eagerly, against eager (outputs, their strides, gradients), and as prims under
`numerics="strict"` against eager's bits.
Written by `nox -s gradients`.

| outcome | {dtypes} |
|---|{rule}
"""


def table(outcomes: list[Outcome]) -> str:
    """The counts in each dtype, and each entry that is not equal with its reason."""
    dtypes = [str(d).removeprefix("torch.") for d in DTYPES]
    counts = Counter((o.status, o.dtype) for o in outcomes)
    lines = [HEAD.format(torch=torch.__version__, samples=SAMPLES, dtypes=" | ".join(dtypes), rule="---|" * len(dtypes))]
    for status in dict.fromkeys(["equal", *sorted(o.status for o in outcomes)]):
        lines.append(f"| {status} | {' | '.join(str(counts[status, d]) for d in dtypes)} |\n")
    lines.append("\n| entry | outcome | dtypes | reason |\n|---|---|---|---|\n")
    for name, status in sorted({(o.name, o.status) for o in outcomes if o.status != "equal"}):
        rows = [o for o in outcomes if (o.name, o.status) == (name, status)]
        reason = (rows[0].reason or rows[0].detail).replace("|", "/")
        lines.append(f"| {name} | {status} | {', '.join(o.dtype for o in rows)} | {reason} |\n")
    lines.append('\n| entry | dtypes | why it does not have all bits of eager under "strict" |\n|---|---|---|\n')
    for name in sorted({o.name for o in outcomes if o.bits}):
        rows = [o for o in outcomes if o.name == name and o.bits]
        reason = NOT_STRICT.get(name, rows[0].bits)
        lines.append(f"| {name} | {', '.join(o.dtype for o in rows)} | {reason} |\n")
    return "".join(lines)


def main() -> int:
    """Runs all entries and writes the table; fails when a row is not equal and has no reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("GRADIENTS.md"))
    parser.add_argument("--only", default="", help="entries whose name contains this; prints, writes nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    rows = [(n, dtype) for n, op in enumerate(differentiable()) if given.only in name_of(op) for dtype in dtypes_of(op)]
    outcomes = []
    with multiprocessing.get_context("spawn").Pool(given.jobs, quiet) as pool:
        for outcome in pool.imap(check_row, rows):
            outcomes.append(outcome)
            if given.only or not outcome.accepted:
                print(outcome, flush=True)
    if not given.only:
        given.out.write_text(table(outcomes))
    return 0 if all(o.accepted for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

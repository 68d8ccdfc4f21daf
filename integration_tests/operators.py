"""Every entry of torch's own op_db through tracework.compile, against eager: values, dtypes, strides, aliasing, gradients.

`python operators.py [--device cuda]` runs all of them in processes of their own and writes OPERATORS.md. The samples of an entry are
compiled as one function, one by one only where that fails; `dynamic` rows have every size symbolic. `errors` rows are the calls that op_db
says are refused: the compiled call raises what eager raises.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import tracework
from modules import EXACT, Refusals
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten
from tracework_capture import Unsupported

SAMPLES = 4  # of each entry, spread over what it offers
OFFERED = 15  # times as many of an entry's samples are looked at
LARGEST = 1 << 20  # elements; larger samples take long and show nothing else
SEED = 42
LIMIT = 300  # seconds for one row
HERE = f"{Path(__file__).parent}{os.sep}"  # tables name files by their place in this folder
MODES = {
    "float64": (torch.float64, True, False),
    "float32": (torch.float32, True, False),
    "bfloat16": (torch.bfloat16, True, False),
    "float16": (torch.float16, True, False),
    "complex128": (torch.complex128, True, False),
    "complex64": (torch.complex64, True, False),
    "int64": (torch.int64, False, False),
    "uint8": (torch.uint8, False, False),
    "bool": (torch.bool, False, False),
    "dynamic": (torch.float32, False, True),
}
"""mode -> (dtype, whether gradients are compared where op_db lists the dtype for the backward, whether all sizes are symbols)"""
ULPS = 8
"""What is allowed of the largest element, where eager happens to be nearer than a quarter of that: three roundings of a half ulp on the
way to a result, of numbers that are at most some times as large; and one ulp of the tangents' size, since a gradient of 0 is a difference
of such."""
UNJUDGED_ULPS = 64
"""The same beside eager's result, which is rounded as well, and of a number of the tangents' size at least."""
ERRORS = "errors"
CONDITION = {
    # a row of one element: its gradient, 0, is a difference of terms that are multiplied by 1/sqrt(eps)
    "native_layer_norm": 1e-5**-0.5,
    "nn.functional.normalize": 2**5,  # the same of terms that are divided by the element, of 0.04 and more
    # gradients of scores are differences of sums over 8 features, of products with values up to 9: little is left of them
    "nn.functional.scaled_dot_product_attention": 8 * 9,
    "nn.functional.hinge_embedding_loss": 2**5,  # a sum of 0.6 of terms up to 16
}
"""Entry -> factor by which rounding grows."""
NARROW = "eager rounds, and overflows, between its operations, where a kernel computes in float32"
DIFFERENT = {(name, "float16"): NARROW for name in ("nn.functional.soft_margin_loss", "pow")}
"""(entry, mode) -> why other results are as good."""
RANDOM = (
    "rand",
    "dropout",
    "bernoulli",
    "normal",
    "uniform",
    "multinomial",
    "exponential",
    "cauchy",
    "geometric",
    "empty",
    "rrelu",
    "attention_forward",
)
"""Parts of the names of entries whose values are random, or whatever memory held; sizes, dtypes and strides are compared."""
UNSAFE = ("unsafe_chunk", "unsafe_split")
"""Entries whose results lie in their input's memory though their schemas say that they do not."""


@dataclass(frozen=True)
class Outcome:
    """One entry in one mode.

    status is "equal", "equal, not in one graph", "uncompiled" (a graph ran by eager kernels only), "different" (for a reason), "wrong",
    "failed", "crashed" or "refused by eager".
    """

    name: str
    mode: str
    status: str
    detail: str = ""
    samples: int = 0

    @property
    def good(self) -> bool:
        """Whether the program got what eager gives."""
        return self.status.startswith(("equal", "uncompiled", "different", "refused", "unsupported"))


def name_of(op: Any) -> str:
    """The entry's name with its variant."""
    return f"{op.name}.{op.variant_test_name}".rstrip(".")


ENTRIES = {name_of(op): op for op in op_db}


def check(name: str, mode: str, device: str = "cpu", samples: int = SAMPLES, reference: bool = False) -> Outcome:
    """The samples of one entry in one mode; with `reference` those of its comparison with a reference, which are more and stranger."""
    op = ENTRIES[name]
    if mode == ERRORS:
        return _check_errors(op, device)
    dtype, gradients, dynamic = MODES[mode]
    if not op.supports_dtype(dtype, device):
        return Outcome(name, mode, "unsupported by eager")
    gradients = gradients and op.supports_autograd and dtype in op.supported_backward_dtypes(torch.device(device).type)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = list(_cases(op, dtype, device, gradients, samples, reference))
        if not cases:
            return Outcome(name, mode, "refused by eager")
        random = any(part in name for part in RANDOM)
        status, detail = _agree(cases, dynamic, random)
        if status in ("wrong", "failed") and len(cases) > 1:
            alone = [(i, *_agree([case], dynamic, random)) for i, case in enumerate(cases)]
            bad = [f"sample {i}: {d}" for i, s, d in alone if s in ("wrong", "failed")]
            status, detail = (status, bad[0]) if bad else (status, f"only all samples together: {detail}")
        if status == "wrong" and (reason := DIFFERENT.get((name, mode))):
            status, detail = "different", f"{detail}: {reason}"
    return Outcome(name, mode, status, detail, len(cases))


def _check_errors(op: Any, device: str) -> Outcome:
    """Whether calls that eager refuses are refused with the same exception."""
    name, differences, count = name_of(op), [], 0
    if op.error_inputs_func is None:
        return Outcome(name, ERRORS, "unsupported by eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, given in enumerate(op.error_inputs(device)):
            case = Case(op, given.sample_input, op.supports_autograd)
            theirs, mine = (_raised(case, compiled) for compiled in (False, True))
            count += theirs is not None
            if type(theirs) is not type(mine):
                differences.append(f"sample {number}: {_words(mine)} instead of {_words(theirs)}")
    return Outcome(name, ERRORS, "wrong" if differences else "equal", differences[0] if differences else "", count)


def _raised(case: Case, compiled: bool) -> Exception | None:
    tracework.reset()
    try:
        (tracework.compile(case.call) if compiled else case.call)(*case.inputs())
    except Exception as error:  # what is compared
        return error
    return None


def _words(error: Exception | None) -> str:
    return "no exception" if error is None else _line(error)


def _cases(op: Any, dtype: torch.dtype, device: str, gradients: bool, count: int, reference: bool) -> Iterator[Case]:
    torch.manual_seed(0)
    offered = []
    source = op.reference_inputs if reference else op.sample_inputs
    try:
        offered.extend(itertools.islice(source(device, dtype, requires_grad=gradients), OFFERED * count))
    except (RuntimeError, NotImplementedError, ValueError):
        pass  # those before it were made; the makers call kernels that eager does not have, or ask for gradients of integers
    cases = [Case(op, s, gradients) for s in offered]
    cases = [c for c in cases if c.usable(device)]
    step = max(1, len(cases) / count)
    for case in [cases[int(i * step)] for i in range(min(count, len(cases)))]:
        try:
            inputs = case.inputs()
            case.results = results(case.call, inputs, case.gradients)
        except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError, AssertionError):
            continue
        if all(o.layout is torch.strided for o in case.results[0]):
            case.shared = shared_memory(case.results[0], inputs)
            yield case


class Case:
    """One sample: its tensors apart from the rest of its arguments, and what eager gives for it."""

    results: tuple[list[Any], list[Any]]
    shared: list[list[int]]

    def __init__(self, op: Any, sample: Any, gradients: bool) -> None:
        self.op, self.gradients = op, gradients
        self.given = (sample.input, tuple(sample.args), dict(sample.kwargs))
        self.tensors = [x for x in tree_flatten(self.given)[0] if isinstance(x, torch.Tensor)]

    def usable(self, device: str) -> bool:
        return all(t.layout is torch.strided and t.device.type == device and t.numel() <= LARGEST for t in self.tensors)

    def call(self, *tensors: Any) -> Any:
        first, args, kwargs = with_tensors(self.given, iter(tensors))
        return self.op.op(first, *args, **kwargs)

    def inputs(self, exact: bool = False) -> list[torch.Tensor]:
        """Copies with the same strides, or in the dtypes that results are judged by."""
        made = [t.detach().clone().to(EXACT.get(t.dtype, t.dtype) if exact else t.dtype) for t in self.tensors]
        return [m.requires_grad_(t.requires_grad) for m, t in zip(made, self.tensors, strict=True)]

    def exact(self) -> tuple[list[Any], list[Any]] | None:
        """The same in float64 or complex128; None when that is another function, or there is nothing wider."""
        if not any(t.dtype in EXACT for t in self.tensors):
            return None
        try:
            return results(self.call, self.inputs(exact=True), self.gradients)
        except (RuntimeError, TypeError, NotImplementedError, ValueError):
            return None


def with_tensors(value: Any, tensors: Iterator[Any]) -> Any:
    """The value with its tensors replaced, in the order of torch's pytrees."""
    if isinstance(value, torch.Tensor):
        return next(tensors)
    if type(value) in (tuple, list):
        return type(value)([with_tensors(v, tensors) for v in value])
    if type(value) is dict:
        return {k: with_tensors(v, tensors) for k, v in value.items()}
    return value


def results(function: Callable[..., Any], inputs: list[Any], gradients: bool) -> tuple[list[Any], list[Any]]:
    """(tensors that the function gives, gradients of what requires them)."""
    torch.manual_seed(SEED)
    outputs = [o for o in tree_flatten(function(*inputs))[0] if isinstance(o, torch.Tensor)]
    return outputs, gradients_of(outputs, inputs) if gradients else []


def shared_memory(outputs: list[Any], inputs: list[Any]) -> list[list[int]]:
    """For each output, the inputs whose memory it lies in."""
    storages = [t.untyped_storage()._cdata for t in inputs]
    return [[i for i, storage in enumerate(storages) if o.untyped_storage()._cdata == storage] for o in outputs]


def gradients_of(outputs: list[Any], inputs: list[Any]) -> list[Any]:
    roots = [o for o in outputs if o.requires_grad]
    leaves = [t for t in inputs if t.requires_grad]
    if not roots or not leaves:
        return []
    return list(torch.autograd.grad(roots, leaves, [tangent_of(r) for r in roots], allow_unused=True))


def tangent_of(output: torch.Tensor) -> torch.Tensor:
    """Fixed numbers of either sign, none of them round; complex ones lie on no axis, since the conjugate of a real number is itself."""
    values = torch.linspace(-1.1, 1.3, output.numel(), dtype=torch.float64).reshape(output.shape)
    return (torch.complex(values, 0.7 - values) if output.is_complex() else values).to(output)


class Together:
    """Several cases as one function of all their tensors."""

    def __init__(self, cases: list[Case]) -> None:
        self.cases = cases

    def __call__(self, inputs: list[list[Any]]) -> list[Any]:
        return [case.call(*tensors) for case, tensors in zip(self.cases, inputs, strict=True)]


def _agree(cases: list[Case], dynamic: bool, random: bool) -> tuple[str, str]:
    """(status, detail)"""
    with Refusals() as refusals:
        try:
            found, inputs = _run(cases, dynamic, fullgraph=True)
            status, detail = "equal", ""
        except Unsupported as error:
            status, detail = "equal, not in one graph", _reason(error)
            try:
                found, inputs = _run(cases, dynamic, fullgraph=False)
            except Exception as error:  # the text goes into the table
                return "failed", f"after a break: {_line(error)}"
        except Exception as error:  # the text goes into the table
            return "failed", _line(error)
        outputs = [[o for o in tree_flatten(mine)[0] if isinstance(o, torch.Tensor)] for mine in found]
        try:
            grads = _gradients_of_all(outputs, inputs) if cases[0].gradients else [[] for _ in cases]
        except Exception as error:  # the text goes into the table
            return "failed", f"backward: {_line(error)}"
        for case, mine, grad, given in zip(cases, outputs, grads, inputs, strict=True):
            wrong = _difference(case, mine, grad, random)
            if wrong:
                return "wrong", wrong
            if (shared := shared_memory(mine, given)) != case.shared and case.op.name not in UNSAFE:
                return "wrong", f"outputs lie in the memory of inputs {shared} instead of {case.shared}"
    if refusals.first and status == "equal":
        return "uncompiled", refusals.first.replace(HERE, "")
    return status, detail


def _gradients_of_all(outputs: list[list[Any]], inputs: list[list[Any]]) -> list[list[Any]]:
    """The gradients of each case; one backward, since the cases are one graph."""
    leaves = [
        [t for t in given if t.requires_grad] if any(o.requires_grad for o in mine) else []
        for mine, given in zip(outputs, inputs)
    ]
    found = iter(gradients_of([o for mine in outputs for o in mine], [t for group in leaves for t in group]))
    return [[next(found) for _ in group] for group in leaves]


def _run(cases: list[Case], dynamic: bool, fullgraph: bool) -> tuple[list[Any], list[list[Any]]]:
    tracework.reset()
    inputs = [case.inputs() for case in cases]
    torch.manual_seed(SEED)
    compiled = tracework.compile(Together(cases).__call__, fullgraph=fullgraph, dynamic=True if dynamic else None)
    return compiled(inputs), inputs


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]


def _reason(error: Unsupported) -> str:
    """What broke the graph, and where."""
    lines = str(error).splitlines()
    detail = [line.strip().removeprefix("detail: ") for line in lines if line.strip().startswith("detail:")]
    text = ": ".join([lines[0].removeprefix("cannot be captured as one graph: "), *detail])
    return re.sub(r" at 0x[0-9a-f]+", "", text).replace(HERE, "")[:200]


def _difference(case: Case, outputs: list[Any], grads: list[Any], random: bool) -> str | None:
    """What differs from eager, or None. A gradient that eager leaves out may be zeros."""
    theirs, their_grads = case.results
    if len(outputs) != len(theirs) or len(grads) != len(their_grads):
        return f"{len(outputs)} outputs and {len(grads)} gradients instead of {len(theirs)} and {len(their_grads)}"
    exact = None
    for kind, mine, wanted in (("output", outputs, theirs), ("gradient", grads, their_grads)):
        for i, (a, b) in enumerate(zip(mine, wanted, strict=True)):
            wrong = _metadata(a, b, strides=kind == "output")
            if wrong is None and not random and a is not None and b is not None and not _same(a, b):
                exact = exact or [case.exact()]
                truths = exact[0][0 if kind == "output" else 1] if exact[0] else None
                truth = truths[i] if truths is not None and len(truths) == len(wanted) else None
                wrong = _distance(a.detach(), b.detach(), truth, CONDITION.get(case.op.name, 1.0))
            if wrong:
                return f"{kind} {i}: {wrong}"
    return None


def _metadata(mine: Any, theirs: Any, strides: bool) -> str | None:
    if mine is None or theirs is None:
        other = mine if theirs is None else theirs
        return None if other is None or not other.any() else "defined on one side only"
    if (mine.shape, mine.dtype, mine.device) != (theirs.shape, theirs.dtype, theirs.device):
        return f"{mine.dtype} {tuple(mine.shape)} on {mine.device} instead of {theirs.dtype} {tuple(theirs.shape)} on {theirs.device}"
    if strides and (_strides(mine) != _strides(theirs)):
        return f"strides {mine.stride()} instead of {theirs.stride()} for {tuple(theirs.shape)}"
    if strides and mine.requires_grad != theirs.requires_grad:
        return f"requires_grad is {mine.requires_grad}"
    return None


def _strides(tensor: torch.Tensor) -> list[int]:
    return [t for s, t in zip(tensor.shape, tensor.stride(), strict=True) if s > 1 and tensor.numel()]


def _same(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    if mine.dtype.is_floating_point or mine.dtype.is_complex:
        return torch.allclose(mine, theirs, rtol=0, atol=0, equal_nan=True)
    return torch.equal(mine, theirs)


def _distance(mine: torch.Tensor, theirs: torch.Tensor, exact: Any, condition: float) -> str | None:
    """The larger of four times what eager itself is from the result in the wider dtype, and of a few roundings."""
    if not theirs.is_floating_point() and not theirs.is_complex():
        return f"other values, {int((mine != theirs).sum())} of {theirs.numel()}"
    finite = torch.isfinite(theirs)
    if not torch.equal(finite, torch.isfinite(mine)) or not torch.equal(mine[~finite].isnan(), theirs[~finite].isnan()):
        return "not finite in other places"
    wide = torch.complex128 if theirs.is_complex() else torch.float64
    a, b = mine[finite].to(wide), theirs[finite].to(wide)
    usable = exact is not None and exact.shape == theirs.shape and bool(torch.isfinite(exact[finite]).all())
    truth = exact.detach()[finite].to(wide) if usable else b
    info, largest = torch.finfo(theirs.dtype), float(truth.abs().max())
    rounding = max(1.0, ULPS * largest) if usable else UNJUDGED_ULPS * max(1.0, largest)
    bound = max(4 * float((b - truth).abs().max()), condition * info.eps * rounding, info.smallest_normal * info.eps)
    error = float((a - truth).abs().max())
    return None if error <= bound else f"differs by {error:.2e}, {bound:.2e} is allowed"


# Processes ----------------------------------------------------------------------------------------


class Worker:
    """A process that checks rows until one of them ends it."""

    def __init__(self, options: list[str], core: int, cache: str) -> None:
        environment = {**os.environ, "TRACEWORK_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--worker", str(core), *options]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment)

    def ask(self, name: str, mode: str) -> Outcome:
        """The outcome of a row; "crashed" when the process ended or took too long."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps([name, mode]) + "\n")
        stdin.flush()
        while select.select([stdout], [], [], LIMIT)[0]:
            line = stdout.readline()
            if line.startswith("ROW"):
                return Outcome(**json.loads(line[3:]))
            if not line:
                return Outcome(name, mode, "crashed", f"exit status {self.process.wait()}")
        self.process.kill()
        return Outcome(name, mode, "crashed", f"no end in {LIMIT} s")


def serve(core: int, device: str, samples: int, reference: bool) -> None:
    """What a worker does, on one core: its compilers start as many processes as it may use cores."""
    os.sched_setaffinity(0, {core})
    logging.getLogger("tracework").setLevel(logging.WARNING)
    for line in sys.stdin:
        name, mode = json.loads(line)
        print("ROW" + json.dumps(asdict(check(name, mode, device, samples, reference))), flush=True)


def run_all(rows: list[tuple[str, str]], options: list[str], jobs: int, report: Callable[[Outcome], None]) -> None:
    """Gives the rows to `jobs` processes; an interrupt ends it with what was reported."""
    waiting, lock, workers = iter(rows), threading.Lock(), []
    cores = sorted(os.sched_getaffinity(0))

    def work(number: int, cache: str) -> None:
        worker = None
        while True:
            with lock:
                row = next(waiting, None)
                if row is None:
                    return
                if worker is None:
                    worker = Worker(options, cores[number % len(cores)], cache)
                    workers.append(worker)
            outcome = worker.ask(*row)
            if outcome.status == "crashed":
                worker = None
            with lock:
                report(outcome)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        threads = [threading.Thread(target=work, args=(i, cache), daemon=True) for i in range(jobs)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            waiting = iter(())
        finally:
            for worker in workers:
                worker.process.kill()


HEAD = """# torch's op_db through tracework.compile

Every entry of `torch.testing._internal.common_methods_invocations.op_db` on {device}, torch {torch}, {samples} samples of each mode, against eager:
values, dtypes, sizes, strides, and gradients where op_db lists the dtype for the backward. `dynamic`: float32 with every size symbolic.
`errors`: all calls that op_db says are refused, the exception's type. Written by `nox -s operators`.

| outcome | {modes} |
|---|{rule}
"""


def table(outcomes: list[Outcome], device: str, samples: int) -> str:
    """The counts, and each row that is not equal."""
    counts = Counter((o.mode, o.status) for o in outcomes)
    modes = [*MODES, ERRORS]
    head = HEAD.format(device=device, torch=torch.__version__, samples=samples, modes=" | ".join(modes), rule="---|" * len(modes))
    lines = [head.rstrip("\n") + "\n"]
    for status in sorted({o.status for o in outcomes}):
        lines.append(f"| {status} | {' | '.join(str(counts[mode, status]) for mode in modes)} |\n")
    lines.append("\n| entry | mode | outcome | why |\n|---|---|---|---|\n")
    for o in sorted(outcomes, key=lambda o: (o.good, o.name, o.mode)):
        if o.status != "equal" and not o.status.startswith(("refused", "unsupported")):
            lines.append(f"| {o.name} | {o.mode} | {o.status} | {o.detail.replace('|', '/')} |\n")
    return "".join(lines)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="entries whose name contains this; writes nothing")
    parser.add_argument("--every", type=int, default=1, help="one entry of so many; writes nothing")
    parser.add_argument("--modes", default=",".join([*MODES, ERRORS]))
    parser.add_argument("--samples", type=int, default=SAMPLES, help="of each entry, spread over what it offers")
    parser.add_argument(
        "--reference", action="store_true", help="the samples of an entry's comparison with its reference; writes nothing"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--worker", type=int, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        serve(given.worker, given.device, given.samples, given.reference)
        return 0
    rows = [(name, mode) for mode in given.modes.split(",") for name in [*ENTRIES][:: given.every] if given.only in name]
    outcomes: list[Outcome] = []

    def report(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if len(outcomes) % 200 == 0:
            print(f"{len(outcomes)} of {len(rows)} rows", flush=True)
        if not outcome.good or given.only:
            print(outcome, flush=True)

    options = ["--device", given.device, "--samples", str(given.samples), *(["--reference"] if given.reference else [])]
    run_all(rows, options, given.jobs, report)
    if given.out or not (given.only or given.reference or given.every > 1):
        out = given.out or Path(__file__).with_name("OPERATORS.md" if given.device == "cpu" else "OPERATORS_CUDA.md")
        out.write_text(table(outcomes, given.device, given.samples))
    print(Counter(o.status for o in outcomes))
    return 0 if all(o.good for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

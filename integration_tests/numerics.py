"""How far sums, norms and losses are from float64, next to eager's: root mean square of the relative error over seeds.

`python numerics.py [--device cuda]` runs all of them and writes NUMERICS.md. The error of one result is the norm of what it is off over
the norm of what it should be; the values have means far from 0, as a sum that cancels says nothing about how it was taken.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import tracework

SIZES = (10, 14, 18, 21, 24)
"""Powers of two: numbers of elements."""
LARGEST = 27
"""The same, for HUGE."""
SIDE = 16
"""Rows of "inner", columns of "outer"."""
TIMES_EAGER, ULPS = 4, 4
"""How far off a result may be: the larger of so many times eager's error, and so many units in the last place."""

Program = Callable[[torch.Tensor, Any], Any]
"""Takes values and the dims over which they are reduced."""


def _gradient(of: Callable[..., torch.Tensor], *which: int) -> Program:
    """The gradients of the sum of of(x, ...) weighted by x itself, with respect to some arguments after it."""

    def program(x: torch.Tensor, dims: Any) -> tuple[torch.Tensor, ...]:
        extra = [torch.ones(s, dtype=x.dtype, device=x.device, requires_grad=True) for s in _parameters(x, dims)]
        out = of(x, dims, *extra)
        return torch.autograd.grad(out, [extra[n] for n in which], x.expand_as(out))

    return program


def _parameters(x: torch.Tensor, dims: Any) -> list[tuple[int, ...]]:
    """Sizes of a weight and a bias: what is not reduced."""
    return [tuple(s for d, s in enumerate(x.shape) if d not in dims) or (1,)] * 2


def _shaped(x: torch.Tensor, v: torch.Tensor, dims: Any) -> torch.Tensor:
    return v.reshape([1 if d in dims else s for d, s in enumerate(x.shape)])


def _affine(x: torch.Tensor, dims: Any, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return x * _shaped(x, weight, dims) + _shaped(x, bias, dims)


def _channels(x: torch.Tensor, dims: Any) -> torch.Tensor:
    """As a batch of images: one channel for each place that is not reduced."""
    if x.ndim == 1:
        return x.reshape(4, 1, -1, 8)
    return x.reshape(SIDE, 4, -1, 8).transpose(0, 1) if dims == (1,) else x.reshape(4, -1, 8, SIDE).permute(0, 3, 1, 2)


def _running(x: torch.Tensor, dims: Any) -> tuple[torch.Tensor, ...]:
    images = _channels(x, dims)
    mean, var = (torch.zeros(images.shape[1], dtype=x.dtype, device=x.device) for _ in range(2))
    return F.batch_norm(images, mean, var, training=True), mean, var


def _batch_gradients(x: torch.Tensor, dims: Any) -> tuple[torch.Tensor, ...]:
    images = _channels(x, dims).detach().requires_grad_()
    parameters = [torch.ones(images.shape[1], dtype=x.dtype, device=x.device, requires_grad=True) for _ in range(2)]
    out = F.batch_norm(images, None, None, *parameters, training=True)
    return torch.autograd.grad(out, parameters, images.detach() * images.detach())


def _groups(x: torch.Tensor, dims: Any) -> torch.Tensor:
    return F.group_norm(x.reshape(2, 4, -1) if x.ndim == 1 else x.reshape(2, SIDE, -1), 2)


def _layer(x: torch.Tensor, dims: Any) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _layer_gradients(x: torch.Tensor, dims: Any) -> tuple[torch.Tensor, ...]:
    parameters = [torch.ones(x.shape[-1], dtype=x.dtype, device=x.device, requires_grad=True) for _ in range(2)]
    return torch.autograd.grad(F.layer_norm(x, x.shape[-1:], *parameters), parameters, x * x)


def _few_rows(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(x.shape[0], device=x.device) % 4


def _added(x: torch.Tensor, dims: Any) -> torch.Tensor:
    return torch.zeros((4, *x.shape[1:]), dtype=x.dtype, device=x.device).index_add(0, _few_rows(x), x)


def _scattered(x: torch.Tensor, dims: Any) -> torch.Tensor:
    index = _few_rows(x).reshape(-1, *[1] * (x.ndim - 1)).expand_as(x)
    return torch.zeros((4, *x.shape[1:]), dtype=x.dtype, device=x.device).scatter_add(0, index, x)


def _embedded(x: torch.Tensor, dims: Any) -> torch.Tensor:
    table = torch.zeros(4, x[0].numel(), dtype=x.dtype, device=x.device, requires_grad=True)
    return torch.autograd.grad(F.embedding(_few_rows(x), table), table, x.reshape(x.shape[0], -1))[0]


def _classes(x: torch.Tensor, dims: Any) -> torch.Tensor:
    rows = x.reshape(-1, 8) * 4
    return F.cross_entropy(rows, torch.arange(rows.shape[0], device=x.device) % 8)


def _other(x: torch.Tensor) -> torch.Tensor:
    """Values of the same kind, next to x."""
    return x.flip(0)


ALL, BOTH, ROWS = ("all",), ("all", "inner", "outer"), ("inner",)
PROGRAMS: dict[str, tuple[Program, tuple[str, ...]]] = {
    "sum": (lambda x, d: x.sum(d), BOTH),
    "sum of equal values": (lambda x, d: x.sum(d), BOTH),
    "mean": (lambda x, d: x.mean(d), BOTH),
    "mean of squares": (lambda x, d: (x * x).mean(d), BOTH),
    "nansum": (lambda x, d: x.nansum(d), ALL),
    "prod of factors around 1": (lambda x, d: x.prod(d[0]), BOTH),
    "var": (lambda x, d: x.var(d), BOTH),
    "std around 100": (lambda x, d: x.std(d), BOTH),
    "var around 1000": (lambda x, d: x.var(d), BOTH),
    "var around 100000": (lambda x, d: x.var(d), BOTH),
    "norm of order 1": (lambda x, d: torch.linalg.vector_norm(x, 1, d), BOTH),
    "norm of order 2": (lambda x, d: torch.linalg.vector_norm(x, 2, d), BOTH),
    "norm of order 3": (lambda x, d: torch.linalg.vector_norm(x, 3, d), BOTH),
    "normalize": (lambda x, d: F.normalize(x, dim=d[0]), BOTH),
    "renorm": (lambda x, d: x.renorm(2, 0, 1.0), ROWS),
    "logsumexp": (lambda x, d: x.logsumexp(d), BOTH),
    "softmax": (lambda x, d: x.softmax(d[0]), BOTH),
    "log_softmax": (lambda x, d: x.log_softmax(d[0]), BOTH),
    "cumsum": (lambda x, d: x.cumsum(d[0]), BOTH),
    "cumprod of factors around 1": (lambda x, d: x.cumprod(d[0]), BOTH),
    "cosine_similarity": (lambda x, d: F.cosine_similarity(x, _other(x), d[0]), BOTH),
    "pairwise_distance": (lambda x, d: F.pairwise_distance(x, _other(x) + 1), ROWS),
    "mse_loss": (lambda x, d: F.mse_loss(x, _other(x)), ALL),
    "l1_loss": (lambda x, d: F.l1_loss(x, _other(x)), ALL),
    "smooth_l1_loss": (lambda x, d: F.smooth_l1_loss(x, _other(x)), ALL),
    "huber_loss": (lambda x, d: F.huber_loss(x, _other(x)), ALL),
    "binary_cross_entropy": (lambda x, d: F.binary_cross_entropy(x * 0.5 + 0.25, _other(x)), ALL),
    "binary_cross_entropy_with_logits": (lambda x, d: F.binary_cross_entropy_with_logits(x, _other(x)), ALL),
    "kl_div": (lambda x, d: F.kl_div(-x - 1, _other(x) + 0.5, reduction="batchmean"), ALL),
    "cross_entropy": (_classes, ALL),
    "gaussian_nll_loss": (lambda x, d: F.gaussian_nll_loss(x, _other(x), x + 1.5), ALL),
    "poisson_nll_loss": (lambda x, d: F.poisson_nll_loss(x, _other(x)), ALL),
    "soft_margin_loss": (lambda x, d: F.soft_margin_loss(x, _other(x)), ALL),
    "hinge_embedding_loss": (lambda x, d: F.hinge_embedding_loss(x, (_other(x) > 0.5) * 2.0 - 1), ALL),
    "layer_norm": (_layer, ("all", "inner")),
    "layer_norm gradients": (_layer_gradients, ("outer",)),
    "rms_norm": (lambda x, d: F.rms_norm(x, x.shape[-1:]), ("all", "inner")),
    "batch_norm with running statistics": (_running, BOTH),
    "batch_norm gradients": (_batch_gradients, BOTH),
    "group_norm": (_groups, ("all", "inner")),
    "instance_norm": (lambda x, d: F.instance_norm(x.reshape(2, 2, -1)), ALL),
    "gradients of weight and bias": (_gradient(_affine, 0, 1), BOTH),
    "index_add into 4 rows": (_added, ("all", "outer")),
    "scatter_add into 4 rows": (_scattered, ("all", "outer")),
    "embedding gradient of 4 rows": (_embedded, ("outer",)),
}
GIVEN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum of equal values": lambda x: x * 0 + 1.1,
    "prod of factors around 1": lambda x: x * 1e-3 + 0.9995,
    "cumprod of factors around 1": lambda x: x * 1e-3 + 0.9995,
    "std around 100": lambda x: x + 100,
    "var around 1000": lambda x: x + 1000,
    "var around 100000": lambda x: x + 100000,
}
"""What programs get that do not get uniform values in [0, 1), made of these."""
HUGE = ("sum", "sum of equal values", "mean", "var", "norm of order 2", "std around 100", "logsumexp", "mean of squares")
"""Programs that run with 2**LARGEST elements too, over all of them."""
HALVES = ("mean", "mean of squares", "var", "logsumexp", "softmax", "mse_loss", "layer_norm", "rms_norm")
HALVES += ("norm of order 2", "cosine_similarity", "cross_entropy", "normalize", "group_norm")
"""Programs that run in float16 and bfloat16 too: those whose results stay within float16."""
SAMPLE = ("sum", "sum of equal values", "var", "std around 100", "norm of order 2", "softmax", "cumsum", "layer_norm")
"""Programs that torch.compile runs too, in float32, with 2**SIZES[-1] elements."""


@dataclass(frozen=True)
class Case:
    """A program on 2**size values: over all of them, along rows ("inner") or down columns ("outer")."""

    name: str
    axes: str
    dtype: torch.dtype
    size: int

    def values(self, seed: int, device: str) -> torch.Tensor:
        """Those that the program gets."""
        made = torch.Generator(device).manual_seed(seed)
        n = 1 << self.size
        shape = {"all": (n,), "inner": (SIDE, n // SIDE), "outer": (n // SIDE, SIDE)}[self.axes]
        x = torch.rand(shape, generator=made, device=device).to(self.dtype)
        return GIVEN.get(self.name, lambda x: x)(x)

    def program(self, x: torch.Tensor) -> Any:
        """What is measured."""
        return PROGRAMS[self.name][0](x, {"all": (0,), "inner": (1,), "outer": (0,)}[self.axes])

    def seeds(self, factor: float = 1) -> int:
        """How many: 20, fewer where each takes long, whose sums have more terms to average over."""
        return max(math.ceil(factor * (20 if self.size <= 18 else 6 if self.size <= 21 else 3 if self.size <= 24 else 1)), 1)


@dataclass
class Found:
    """Errors of a case."""

    case: Case
    ours: float
    eager: float
    torch: float | None = None

    @property
    def bound(self) -> float:
        """What ours may be; eager's own result may have overflown."""
        eager = self.eager if math.isfinite(self.eager) else 0.0
        return max(TIMES_EAGER * eager, ULPS * torch.finfo(self.case.dtype).eps)

    @property
    def good(self) -> bool:
        """Whether it is."""
        return self.ours <= self.bound


def _parts(value: Any) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


class Errors:
    """Sums of squares over seeds, for each result of a program."""

    def __init__(self) -> None:
        self.off: dict[int, float] = {}
        self.of: dict[int, float] = {}

    def add(self, results: Any, true: Any) -> None:
        """One more seed."""
        for n, (a, e) in enumerate(zip(_parts(results), _parts(true), strict=True)):
            self.off[n] = self.off.get(n, 0.0) + float((a.double() - e).square().sum())
            self.of[n] = self.of.get(n, 0.0) + float(e.square().sum())

    def worst(self) -> float:
        """The root of the mean square of the relative error; of the result that has most."""
        return max(math.sqrt(off / self.of[n]) if self.of[n] else math.sqrt(off) for n, off in self.off.items())


def measure(case: Case, device: str = "cpu", seeds: float = 1, with_torch: bool = False) -> Found:
    """The errors of ours and eager's, and of torch.compile's where asked for."""
    compiled = {"ours": tracework.compile(case.program, dynamic=False), "eager": case.program}
    if with_torch:
        compiled["torch"] = torch.compile(case.program, dynamic=False)
    errors = {name: Errors() for name in compiled}
    for seed in range(case.seeds(seeds)):
        x = case.values(seed, device)
        true = case.program(x.double())
        for name, fn in compiled.items():
            errors[name].add(fn(x), true)
    found = {name: e.worst() for name, e in errors.items()}
    tracework.compiler.reset()
    if with_torch:
        torch.compiler.reset()
    return Found(case, found["ours"], found["eager"], found.get("torch"))


def cases(sizes: tuple[int, ...] = (*SIZES, LARGEST), only: str = "") -> Iterator[Case]:
    """All of them."""
    for name, (_, axes) in PROGRAMS.items():
        for axis in axes:
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                if dtype != torch.float32 and (name not in HALVES or axis != axes[0]):
                    continue
                for size in sizes:
                    huge = size == LARGEST
                    if re.search(only, name) and not (huge and (name not in HUGE or axis != "all" or dtype != torch.float32)):
                        yield Case(name, axis, dtype, size)


def _cell(found: Found | None) -> str:
    if found is None:
        return ""
    mark = "" if found.good else " !"
    return f"{found.ours:.0e} / {found.eager:.0e}{mark}"


def report(found: list[Found], device: str) -> str:
    """The page."""
    sizes = sorted({f.case.size for f in found})
    rows: dict[tuple[str, str, str], dict[int, Found]] = {}
    for f in found:
        key = (f.case.name, f.case.axes, str(f.case.dtype).removeprefix("torch."))
        rows.setdefault(key, {})[f.case.size] = f
    lines = [
        "# Rounding errors of reductions, norms, losses and scans",
        "",
        f"Root mean square of the relative error against float64, ours / eager's, on {device}, torch {torch.__version__}; uniform values in",
        f"[0, 1) or as the name says, over all of them, along the {SIDE} rows of a matrix (inner) or down its {SIDE} columns (outer).",
        "20 seeds up to 2^18 elements, up to 6 for 2^21, up to 3 for 2^24, one for 2^27, where float64 takes most of the time and the",
        f"terms of a sum are a sample by themselves. At most the larger of {TIMES_EAGER} times eager's error and {ULPS} units in the last place",
        "is good; `!` is not; an empty cell was not measured. Written by `nox -s numerics`.",
        "",
        f"{sum(f.good for f in found)} of {len(found)} good.",
        "",
        "| program | axes | dtype | " + " | ".join(f"2^{s}" for s in sizes) + " |",
        "|---|---|---|" + "---|" * len(sizes),
    ]
    for (name, axes, dtype), by_size in rows.items():
        lines.append(f"| {name} | {axes} | {dtype} | " + " | ".join(_cell(by_size.get(s)) for s in sizes) + " |")
    compared = [f for f in found if f.torch is not None]
    if compared:
        lines += [
            "",
            "With torch.compile:",
            "",
            "| program | axes | elements | ours | eager | torch.compile |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {f.case.name} | {f.case.axes} | 2^{f.case.size} | {f.ours:.1e} | {f.eager:.1e} | {f.torch:.1e} |"
            for f in compared
        ]
    return "\n".join(lines) + "\n"


def _stored(found: Found) -> str:
    case = found.case
    key = (case.name, case.axes, str(case.dtype).removeprefix("torch."), case.size)
    return json.dumps([*key, found.ours, found.eager, found.torch])


def _restored(line: str) -> Found:
    name, axes, dtype, size, *errors = json.loads(line)
    return Found(Case(name, axes, getattr(torch, dtype), size), *errors)


def main() -> int:
    """Measures, prints each case that is not good, writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sizes", default=",".join(map(str, (*SIZES, LARGEST))), help="powers of two")
    parser.add_argument("--only", default="", help="a regular expression for names")
    parser.add_argument("--seeds", type=float, default=1, help="times as many seeds")
    parser.add_argument(
        "--results", type=Path, help="a file of results, to which these are added; the page is made of all of them"
    )
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    sizes = tuple(int(s) for s in given.sizes.split(","))
    lines: list[str] = []
    for case in cases(sizes, given.only):
        with_torch = case.name in SAMPLE and case.dtype == torch.float32 and case.size == SIZES[-1]
        found = measure(case, given.device, given.seeds, with_torch)
        lines.append(_stored(found))
        if not found.good:
            print(f"{case}: ours {found.ours:.1e}, eager {found.eager:.1e}, bound {found.bound:.1e}", flush=True)
    if given.results:
        earlier = given.results.read_text().splitlines() if given.results.exists() else []
        keys = [json.loads(line)[:4] for line in lines]
        lines = [line for line in earlier if json.loads(line)[:4] not in keys] + lines
        given.results.write_text("\n".join(lines) + "\n")
    order = {case: n for n, case in enumerate(cases())}
    results = sorted(map(_restored, lines), key=lambda f: order.get(f.case, len(order)))
    print(f"{sum(f.good for f in results)} of {len(results)} good")
    name = "NUMERICS.md" if given.device == "cpu" else f"NUMERICS_{given.device.upper()}.md"
    (Path(__file__).parent / name).write_text(report(results, given.device))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Times of kernels that do the same in different ways, on memory of their own, so that nothing of the program's changes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import torch

from tracework_runtime.artifact import KernelSource
from tracework_runtime.build import triton as build
from tracework_runtime.build.pool import cores
from tracework_runtime.cache.store import Entries
from tracework_runtime.device import cuda
from tracework_runtime.errors import BuildError, LaunchError
from tracework_runtime.launch.triton import TritonKernel
from tracework_runtime.options import RuntimeOptions

__all__ = ["NOT_NOW", "Trial", "time_trials"]

NOT_NOW = "not measured: "
"""How reasons begin that say nothing of the kernel: it can be measured another time."""
ROUNDS = 15
_BUILDS_A_WORKER = 2
"""Kernels that are compiled between two looks at the clock."""
_DTYPES = {text: getattr(torch, dtype) for dtype, text in build.WORKSPACE_TYPES.items()}
_SEED = 2


@dataclasses.dataclass(frozen=True)
class Trial:
    """A kernel to be timed.

    elements: of each tensor that it takes. written: the positions of those that it writes. sizes: the numbers that it takes.
    """

    kernel: KernelSource
    elements: tuple[int, ...]
    written: frozenset[int]
    sizes: tuple[int, ...] = ()


def time_trials(
    groups: Sequence[Sequence[Trial]], options: RuntimeOptions, store: Entries, driver: Any, until: float
) -> list[list[float | str]]:
    """Microseconds of each trial, or why there are none. Those of a group do the same, bit for bit: what differs from the first of them is refused.

    Memory is taken from torch's allocator, and given back to it. until: of time.monotonic(); what is not begun then is left out.
    """
    if driver.capturing():
        return [[NOT_NOW + "a CUDA graph is being recorded"] * len(group) for group in groups]
    answers: list[list[float | str]] = []
    while len(answers) < len(groups):
        first, count = len(answers), 0
        while len(answers) + count < len(groups) and (
            not count or sum(map(len, groups[first : first + count])) < _BUILDS_A_WORKER * (options.triton_workers or cores())
        ):
            count += 1
        together = groups[first : first + count]
        if time.monotonic() > until:
            answers += [[NOT_NOW + "no time was left"] * len(group) for group in together]
        else:
            answers += _timed(together, options, store, driver)
    return answers


def _timed(groups: Sequence[Sequence[Trial]], options: RuntimeOptions, store: Entries, driver: Any) -> list[list[float | str]]:
    kernels = [[_bound(trial, options, store, driver) for trial in group] for group in groups]
    jobs = [kernel.requests() for group in kernels for kernel in group]
    try:
        built = iter(build.build_each([job for some in jobs for job in some], options, store))
    except BuildError as error:  # a process that compiles has died: what runs without candidates goes on without
        return [[NOT_NOW + error.message] * len(group) for group in groups]
    failed = [_why_not([next(built) for _ in some], driver.most_shared(kernels[0][0].device)) for some in jobs]
    answers, position = [], 0
    for trials, bound in zip(groups, kernels, strict=True):
        reasons = failed[position : position + len(trials)]
        position += len(trials)
        try:
            answers.append(_in_turns(trials, bound, reasons, driver))
        except torch.OutOfMemoryError:
            answers.append([reason or NOT_NOW + "there is too little memory" for reason in reasons])
    return answers


def _bound(trial: Trial, options: RuntimeOptions, store: Entries, driver: Any) -> TritonKernel:
    device = trial.kernel.launch.get("device", 0)
    return TritonKernel(trial.kernel, options, store, device, driver, cuda.capability(device))


def _why_not(built: Sequence[build.Cubin | BuildError], most_shared: int) -> str:
    """Why a kernel of these functions cannot be launched; empty where it can."""
    for one in built:
        if isinstance(one, BuildError):
            return f"Triton cannot compile it: {one.excerpt.strip().splitlines()[-1]}"
        if one.shared > most_shared:
            return f"it takes {one.shared} bytes of shared memory, and there are {most_shared}"
    return ""


def _in_turns(trials: Sequence[Trial], kernels: Sequence[TritonKernel], reasons: Sequence[str], driver: Any) -> list[float | str]:
    """The times of one group, whose kernels share one set of tensors."""
    answers: list[float | str] = list(reasons)
    tensors = _tensors(trials[0], kernels[0].tensor_device)
    results = [tensors[n] for n in sorted(trials[0].written)]
    runs: dict[int, Any] = {}
    wanted: list[torch.Tensor] | None = None
    for n, (trial, kernel, reason) in enumerate(zip(trials, kernels, reasons, strict=True)):
        if reason:
            continue
        for result in results:
            result.zero_()
        try:
            kernel.call(*tensors, *trial.sizes)
        except (LaunchError, BuildError) as error:
            answers[n] = f"it cannot be launched: {error.message}"
            continue
        wanted = wanted if wanted is not None else [result.clone() for result in results]
        if not all(torch.equal(_bits(a), _bits(b)) for a, b in zip(wanted, results, strict=True)):
            answers[n] = "its bits differ from those of the first"
            continue
        runs[n] = lambda kernel=kernel, trial=trial: kernel.call(*tensors, *trial.sizes)
    if runs:
        times = driver.microseconds(list(runs.values()), ROUNDS, kernels[0].device)
        answers = [times[list(runs).index(n)] if n in runs else answer for n, answer in enumerate(answers)]
    return answers


def _tensors(trial: Trial, device: torch.device) -> list[torch.Tensor]:
    """Numbers like those of a network; integers are zeros. The program's generators are not asked."""
    generator = torch.Generator(device)
    generator.manual_seed(_SEED)
    pointers = [text for text in trial.kernel.signature if text.startswith("*")]
    made = []
    for text, elements in zip(pointers, trial.elements, strict=True):
        tensor = torch.zeros(elements, dtype=_DTYPES.get(text, torch.uint64), device=device)
        made.append(tensor.normal_(generator=generator) if tensor.is_floating_point() else tensor)
    return made


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8)

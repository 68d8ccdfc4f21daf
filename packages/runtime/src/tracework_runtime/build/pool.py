"""Builds in parallel: threads that wait for compiler processes, and warm Triton processes.

Nothing here forks the user's process: C++ compilers are started directly, Triton compiles in fresh interpreters
(`triton_worker.py`) that talk JSON and raw bytes over pipes, start at first need and stay for the next kernels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["run_threads"]

T = TypeVar("T")


def run_threads(steps: Sequence[Callable[[], T]], jobs: int | None = None) -> list[T]:
    """Run steps that wait for child processes, `jobs` at a time; results in order; the first error is raised."""
    limit = min(len(steps), jobs or len(os.sched_getaffinity(0)))
    if limit <= 1:
        return [step() for step in steps]
    with ThreadPoolExecutor(limit) as executor:
        return [future.result() for future in [executor.submit(step) for step in steps]]

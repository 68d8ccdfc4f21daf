"""The CPU: cores and instruction set."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from pathlib import Path
from typing import Any

__all__ = ["CpuDevice", "features", "identity", "multiplies_bfloat16", "vector_bytes", "vendor"]


@functools.cache
def features() -> frozenset[str]:
    """The names that the system has for what the CPU can."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    found = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(found.partition(":")[2].split())


def _fact(name: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


@functools.cache
def _model() -> str:
    return _fact("model name")


@functools.cache
def vendor() -> str:
    """Who made it: `GenuineIntel`, `AuthenticAMD`; empty where that is not known."""
    return _fact("vendor_id")


def vector_bytes() -> int:
    """Width of the widest vector registers."""
    return 64 if "avx512f" in features() else 32 if "avx2" in features() else 16


def multiplies_bfloat16() -> bool:
    """Whether there are instructions that add up products of bfloat16 in float32."""
    return "avx512_bf16" in features()


@functools.cache
def identity() -> str:
    """What `-march=native` depends on."""
    digest = hashlib.sha256(" ".join(sorted(features())).encode()).hexdigest()[:16]
    return f"{platform.machine()} {_model()} {digest}"


class CpuDevice:
    """The row of DEVICES for "cpu"."""

    type = "cpu"

    def available(self) -> bool:
        """Always."""
        return True

    def identity(self) -> str:
        """Architecture, model and features."""
        return identity()

    def properties(self) -> dict[str, Any]:
        """Cores and vector width."""
        return {"cores": len(os.sched_getaffinity(0)), "vector_bytes": vector_bytes(), "model": _model()}

    def synchronize(self) -> None:
        """Nothing to wait for."""

"""The CPU: cores and instruction set."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import platform
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

__all__ = [
    "LEVELS",
    "CpuDevice",
    "Level",
    "assumed",
    "features",
    "identity",
    "march",
    "multiplies_bfloat16",
    "vector_bytes",
    "vendor",
]


@dataclasses.dataclass(frozen=True)
class Level:
    """What a CPU of this level and each above has. march: the compilers' name of it; features: the system's names."""

    march: str
    features: frozenset[str]


_AVX2 = frozenset("cx16 lahf_lm popcnt pni ssse3 sse sse2 sse4_1 sse4_2 avx avx2 bmi1 bmi2 f16c fma abm movbe xsave".split())
LEVELS: Mapping[str, Level] = {
    "avx2": Level("x86-64-v3", _AVX2),
    "avx512": Level("x86-64-v4", _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
}
"""Those that can be compiled for on any machine."""
_assumed: ContextVar[Level | None] = ContextVar("assumed", default=None)


@contextlib.contextmanager
def assumed(level: Level | None) -> Iterator[None]:
    """In the block, what this thread compiles is for CPUs of a level, whatever this machine's is; None: for this machine's."""
    token = _assumed.set(level)
    try:
        yield
    finally:
        _assumed.reset(token)


def march() -> str:
    """What compilers call the CPU that is compiled for."""
    level = _assumed.get()
    return "native" if level is None else level.march


def features() -> frozenset[str]:
    """The names that the system has for what the CPU can."""
    level = _assumed.get()
    return _own_features() if level is None else level.features


@functools.cache
def _own_features() -> frozenset[str]:
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


def vendor() -> str:
    """Who made it: `GenuineIntel`, `AuthenticAMD`; empty where that is not known."""
    return _own_vendor() if _assumed.get() is None else ""


@functools.cache
def _own_vendor() -> str:
    return _fact("vendor_id")


def vector_bytes() -> int:
    """Width of the widest vector registers."""
    return 64 if "avx512f" in features() else 32 if "avx2" in features() else 16


def multiplies_bfloat16() -> bool:
    """Whether there are instructions that add up products of bfloat16 in float32."""
    return "avx512_bf16" in features()


def identity() -> str:
    """What `-march=native` depends on, or the level that is assumed."""
    level = _assumed.get()
    return _own_identity() if level is None else f"{platform.machine()} {level.march}"


@functools.cache
def _own_identity() -> str:
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

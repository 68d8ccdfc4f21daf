"""What a machine can do: bytes and operations a second, by a table for known GPUs and by a short measurement on a CPU."""

from __future__ import annotations

import dataclasses
import functools
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

_COPIED = 1 << 26
_SQUARE = 1024
_ROUNDS = 5


@dataclass(frozen=True)
class Machine:
    """bandwidth: bytes a second. peaks: dtype -> floating-point operations of products a second; "float32" is always there. how: where these
    are from."""

    name: str
    bandwidth: float
    peaks: Mapping[str, float]
    how: str

    def at_least(self, rates: Iterable[tuple[str, float]]) -> Machine:
        """The same, with peaks that are no less than what was seen: pairs of a dtype and operations a second."""
        peaks = dict(self.peaks)
        for dtype, rate in rates:
            if dtype in peaks:
                peaks[dtype] = max(peaks[dtype], rate)
        return dataclasses.replace(self, peaks=peaks)

    def limit(self, moved: float, flops: float, dtype: str) -> tuple[float, str]:
        """The least seconds that so many bytes and operations take, and which of the two they are."""
        by_memory, by_arithmetic = moved / self.bandwidth, flops / self.peaks.get(dtype, self.peaks["float32"])
        return max((by_memory, "memory"), (by_arithmetic, "arithmetic"))


def machine_of(device: str) -> Machine:
    """The machine behind "cpu" or "cuda:0"."""
    kind, _, index = device.partition(":")
    return _gpu(int(index or 0)) if kind == "cuda" else _cpu(torch.get_num_threads())


def name_of(device: str) -> str:
    """What a reader calls it, without measuring anything."""
    if device.startswith("cuda") and torch.cuda.is_available():
        return torch.cuda.get_device_name(device)
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    found = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    threads = torch.get_num_threads()
    return f"{found or platform.machine()}, {threads} thread{'s' if threads > 1 else ''}"


@functools.cache
def _gpu(index: int) -> Machine:
    from tracework_inductor.autotune import cost  # which only those who ask for limits need

    row = cost.device(index)
    peaks = {dtype: 1e6 * rate for dtype, rate in row.rates.items()}
    return Machine(name_of(f"cuda:{index}"), 1e6 * row.bandwidth, peaks, f"the table's row {row.name}")


@functools.cache
def _cpu(threads: int) -> Machine:
    source, target = torch.ones(_COPIED // 4), torch.empty(_COPIED // 4)
    bandwidth = 2 * _COPIED / _seconds(lambda: target.copy_(source))
    peaks = {"float32": _rate(torch.float32)}
    if torch.backends.mkldnn.is_available() and _has_bfloat16():
        peaks["bfloat16"] = _rate(torch.bfloat16)
    size = f"{_SQUARE} x {_SQUARE}"
    return Machine(name_of("cpu"), bandwidth, peaks, f"measured: a copy of {_COPIED >> 20} MiB, and torch's product of {size}")


def _has_bfloat16() -> bool:
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return "avx512_bf16" in flags or "amx_bf16" in flags


def _rate(dtype: torch.dtype) -> float:
    a, b = torch.ones(_SQUARE, _SQUARE, dtype=dtype), torch.ones(_SQUARE, _SQUARE, dtype=dtype)
    with torch.no_grad():
        return 2.0 * _SQUARE**3 / _seconds(lambda: torch.mm(a, b))


def _seconds(work: Callable[[], object]) -> float:
    """The least of a few calls after the first: what the machine can, not what it did."""
    work()
    found = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)

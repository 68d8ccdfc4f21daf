"""Memory that one call takes while it runs, measured: torch's profiler sees each tensor that is made and freed."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

POINTS = 200
"""Numbers of bytes that are kept of a call, the largest of each stretch of it."""
_DEVICES = {"cpu": 0, "cuda": 1}


def bytes_over_time(call: Callable[[], object], device: str) -> list[int]:
    """Bytes that a call has made and not yet freed, at each change. device: "cpu" or "cuda:0". What it gives is freed at the end."""
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device.startswith("cuda"):
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with _quietly(), torch.profiler.profile(activities=kinds, profile_memory=True) as profile:
        call()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        profile.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    return _alive(events, _DEVICES[device.partition(":")[0]])


@contextmanager
def _quietly() -> Iterator[None]:
    """The profiler's library does not say on stderr that it starts and stops."""
    known = "KINETO_LOG_LEVEL" in os.environ
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    try:
        yield
    finally:
        if not known:
            del os.environ["KINETO_LOG_LEVEL"]


def _alive(events: Sequence[Any], device: int) -> list[int]:
    found = [(e["ts"], e["args"]) for e in events if e.get("name") == "[memory]" and e["args"].get("Device Type") == device]
    alive, now = [], 0
    for _, args in sorted(found, key=lambda pair: pair[0]):
        now += args["Bytes"]
        alive.append(max(now, 0))  # what was there before may be freed
    return alive


def thinned(values: Sequence[int]) -> list[int]:
    """At most POINTS of them, with the largest of each stretch."""
    if len(values) <= POINTS:
        return list(values)
    ends = [n * len(values) // POINTS for n in range(POINTS + 1)]
    return [max(values[begin:end]) for begin, end in zip(ends, ends[1:])]


def beside_eager(ours: Callable[[], object], eager: Callable[[], object], device: str) -> dict[str, Any] | None:
    """Both, as data; None where this cannot be measured, as another profiler is on."""
    try:
        mine, others = (bytes_over_time(call, device) for call in (ours, eager))
    except Exception:  # whatever the profiler, or the function run uncompiled, says: a report goes without it
        return None
    return {
        "ours": thinned(mine),
        "eager": thinned(others),
        "peak_bytes": max(mine, default=0),
        "eager_peak_bytes": max(others, default=0),
    }


__all__ = ["POINTS", "beside_eager", "bytes_over_time", "thinned"]

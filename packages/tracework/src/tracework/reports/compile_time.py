"""The time of compilations: as a table with bars on a terminal, and as a file for Perfetto."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..activity import STAGES, Span
from .document import compile_time

BAR = 30
_COLOURS = ("blue", "magenta", "green", "yellow", "red")


def drawn(spans: Sequence[Span]) -> Any:
    """A text for rich: functions, the slowest first, with a bar of their stages and the seconds of each."""
    from rich.text import Text  # as the terminal's line does

    found = compile_time(spans)
    longest = max((row["seconds"] for row in found["functions"]), default=0.0)
    lines = [Text(f"compiled in {found['seconds']:.2f} s: {_seconds(found['stages'])}")]
    for row in found["functions"]:
        lines.append(Text(f"{row['function']}: {row['seconds']:.2f} s"))
        bar = Text("  ")
        for stage, colour in zip(STAGES, _COLOURS, strict=True):
            bar.append("█" * round(BAR * row["stages"].get(stage, 0.0) / longest) if longest else "", style=colour)
        lines.append(bar.append(f" {_seconds(row['stages'])}"))
    return Text("\n").join(lines)


def _seconds(stages: Mapping[str, float]) -> str:
    return ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in stages.items()) or "nothing was compiled"


def perfetto(spans: Sequence[Span]) -> str:
    """JSON of the format that Perfetto and chrome://tracing read: a row for each thread."""
    begun = min((span.started for span in spans), default=0.0)
    events = [
        {
            "ph": "X",
            "name": span.stage,
            "cat": "compile",
            "ts": 1e6 * (span.started - begun),
            "dur": 1e6 * span.seconds,
            "pid": os.getpid(),
            "tid": span.thread,
            "args": {"of": span.what},
        }
        for span in spans
    ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})

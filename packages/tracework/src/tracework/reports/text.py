"""A report in at most ten lines, and quantities with units."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..activity import STAGES

LINES = 10
_LENGTH = 120
_BYTES = ("B", "kB", "MB", "GB", "TB")
_FLOPS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP")


def quantity(number: float | None, units: Sequence[str]) -> str:
    """Three digits and a unit: "6.29 MB"; "not known" without a number."""
    if number is None:
        return "not known"
    power = 0
    while abs(number) >= 1000 and power < len(units) - 1:
        number, power = number / 1000, power + 1
    digits = f"{number:.0f}" if power == 0 or abs(number) >= 100 else f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}"
    return f"{digits} {units[power]}"


def size(number: float | None) -> str:
    """Of memory, in powers of a thousand."""
    return quantity(number, _BYTES)


def operations(number: float | None) -> str:
    """On floats."""
    return quantity(number, _FLOPS)


def duration(us: float | None) -> str:
    """From microseconds."""
    if us is None:
        return "not measured"
    if us < 100:
        return f"{us:.1f} µs"
    if us < 1e6:
        return f"{us / 1e3:.3g} ms" if us >= 1e3 else f"{us:.0f} µs"
    return f"{us / 1e6:.2f} s"


def share(part: float | None, whole: float | None) -> str:
    """In percent."""
    return f"{100 * part / whole:.0f} %" if part is not None and whole else ""


def place(file: str, line: int) -> str:
    """file:line, of a file below the working directory as seen from there."""
    return f"{file.removeprefix(os.getcwd() + os.sep)}:{line}"


def ten_lines(found: Mapping[str, Any], page: str = "") -> list[str]:
    """What matters most, at most LINES lines. page: where the page was written to."""
    s = found["summary"]
    lines = [f"{found['what']} on {found['machine']['name']}, torch {found['versions']['torch']}"]
    if not s["graphs"] and not found["compiled"]:
        lines.append("nothing was compiled: what is called must be called in the block, and not compiled before it")
    lines.append(
        f"graphs: {s['graphs']} ({s['operations']} operations), breaks: {s['breaks']}, recompiles: {s['recompiles']},"
        f" uncompiled: {s['uncompiled']}, guards: {s['guards']}"
    )
    kept = _kept(found["budgets"])
    lines += _trouble(found)[: 1 if kept else 2]
    lines.append(
        f"kernels: {s['kernels']} own, {s['library']} of the library; {size(s['bytes'])} moved, {operations(s['flops'])} computed"
    )
    steps = [(step, each) for each in found["compiled"] for step in each["kernels"] if step["us"] is not None]
    if s["us"] is not None:
        lines.append(
            f"one call of each graph: {duration(s['us'])}; the machine's limit is {duration(s['limit_us'])}, {share(s['limit_us'], s['us'])} of it"
        )
    if steps:
        step, each = max(steps, key=lambda pair: pair[0]["us"])
        lines.append(
            f"slowest: {step['name']}, {duration(step['us'])} ({share(step['us'], each['us'])}), {share(step['limit_us'], step['us'])} of its limit"
            f"{_at(step)}"
        )
    if (measured := found["memory"]) is not None:
        lines.append(
            f"memory of a call, measured: {size(measured['peak_bytes'])} at most, eager {size(measured['eager_peak_bytes'])}"
        )
    else:
        lines.append(f"memory: {size(s['peak_bytes'])} at most; operators one by one {size(s['one_by_one_peak_bytes'])}")
    lines += kept
    stages = ", ".join(
        f"{name} {found['compile_time']['stages'][name]:.2f}" for name in STAGES if name in found["compile_time"]["stages"]
    )
    lines.append(f"compiled in {s['compile_seconds']:.2f} s: {stages or 'nothing was compiled'}")
    return [*map(_short, lines), *([f"page: {page}"] if page else [])][:LINES]


def _trouble(found: Mapping[str, Any]) -> list[str]:
    """The first of what runs uncompiled or breaks, with its cure."""
    lines = [f"uncompiled at {u['place']}: {u['why']}" for u in found["uncompiled"][:1]]
    for stop in found["breaks"][:1]:
        at = place(stop["stack"][-1]["file"], stop["stack"][-1]["line"]) if stop["stack"] else "a place that is not known"
        lines.append(f"break at {at} ({stop['reason_id']}): {stop['what']}; try: {stop['cure']}")
    for again in found["recompiles"][:1]:
        cure = f"; try: {again['cures'][0]}" if again["cures"] else ""
        lines.append(f"recompile of {again['function']}: {again['reasons'][-1]}{cure}")
    return lines


def _kept(budgets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of the graph that keeps most for its backward."""
    rows = [{point["budget"]: point for point in row["points"]} for row in budgets]
    most = max(rows, key=lambda row: row[1.0]["bytes"], default=None)
    if most is None or not most[1.0]["bytes"]:
        return []
    whole, half = most[1.0], most[0.5]
    return [
        f"kept for the backward: {size(whole['bytes'])}; memory_budget=0.5 keeps {size(half['bytes'])}, "
        f"predicted {half['time']:.2f} times as long a step"
    ]


def _at(step: Mapping[str, Any]) -> str:
    return f", {place(step['lines'][0]['file'], step['lines'][0]['line'])}" if step["lines"] else ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LENGTH else f"{line[: _LENGTH - 1]}…"

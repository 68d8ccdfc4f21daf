"""The rows of zoo.breaks as BREAKS.md: totals first, then what breaks, then every record."""

from __future__ import annotations

import re
from typing import Any

Rows = list[dict[str, Any]]
HEAD = """# Graph breaks

Written by `nox -s breaks`. Every record runs once, in a process of its own, under tracework and under torch._dynamo, with a backend
that gives the graph back as it is. Breaks are graphs less one on both sides, as `torch._dynamo.explain` counts them. Records of
which torch.compile captures nothing (a break in a loop makes it run the whole function as plain Python) have a dash there and are
left out of the totals. A `generate` record calls its model once for the prompt and once for each later step, with inputs of other
shapes and without a break between the calls: graphs of other calls are no breaks, so the breaks there are those that each side
recorded itself. "at other sizes" has the graphs that a call with another batch and length brought, and those of a third call with yet
others: one and none is one graph for all sizes; a dash where the sizes lie in lists or were not counted. "not run": not yet counted
on that side; `python -m zoo.breaks --only NAME --side ours` counts a part and keeps the rest.
"""


def text(rows: Rows) -> str:
    """The page."""
    by_job: dict[str, dict[str, Any]] = {}
    for row in rows:
        by_job.setdefault(row["job"], {})[row["side"]] = row
    both = {job: sides for job, sides in by_job.items() if len(sides) == 2}
    return "\n".join([HEAD, *_totals(both), *_reasons(by_job), *_table(by_job)])


def breaks(row: dict[str, Any]) -> int:
    """Graphs less one; where the captured model is called more than once, the breaks that were recorded."""
    if row["job"].endswith("=generate"):
        return len(row["stops"])
    return max(row["graphs"] - 1, 0)


def _group(job: str) -> str:
    return job.partition("/")[0] if job.startswith(("timm/", "torchvision/", "awkward/")) else "transformers"


def _totals(both: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "| group | records | with breaks | breaks | with breaks in torch | breaks in torch | more than torch |",
        "|---" * 7 + "|",
    ]
    captured = {job: sides for job, sides in both.items() if sides["torch"]["graphs"] and sides["ours"]["graphs"]}
    for group in (*dict.fromkeys(map(_group, captured)), "all"):
        pairs = [(breaks(s["ours"]), breaks(s["torch"])) for job, s in captured.items() if group in ("all", _group(job))]
        ours, torchs = [o for o, _ in pairs], [t for _, t in pairs]
        figures = (len(pairs), sum(map(bool, ours)), sum(ours), sum(map(bool, torchs)), sum(torchs), sum(o > t for o, t in pairs))
        lines.append(f"| {group} | {' | '.join(map(str, figures))} |")
    return [*lines, ""]


def _reasons(by_job: dict[str, dict[str, Any]]) -> list[str]:
    lines = ["## What breaks", "", "| record | breaks | torch | the first break |", "|---|---|---|---|"]
    for job, sides in by_job.items():
        ours = sides.get("ours")
        if ours is None or not (breaks(ours) or ours["stops"] or "raised" in ours):
            continue
        why = ours.get("raised") or (ours["stops"] or ["?"])[0].partition(": ")[2]
        lines.append(f"| {job} | {breaks(ours)} | {_count(sides.get('torch'), breaks)} | {_short(why)} |")
    return [*lines, ""]


def _table(by_job: dict[str, dict[str, Any]]) -> list[str]:
    head = "| record | graphs | at other sizes | torch: graphs | at other sizes |"
    lines = ["## Every record", "", head, "|---" * 5 + "|"]
    for job, sides in by_job.items():
        figures = []
        for row in (sides.get("ours"), sides.get("torch")):
            later = row.get("other sizes") if row else None
            figures += [_count(row, lambda row: row["graphs"]), ", ".join(map(str, later)) if later else "-"]
        lines.append(f"| {job} | {' | '.join(figures)} |")
    return [*lines, ""]


def _count(row: dict[str, Any] | None, figure: Any) -> str:
    if row is None:
        return "not run"
    return "raised" if "raised" in row else str(figure(row)) if row["graphs"] else "-"


def _short(reason: str) -> str:
    """Without folders of this machine and advice, and fit for a table cell."""
    place = re.search(r" \(([^()]*:\d+ in [^()]*(?:\(\))?[^()]*)\)$", reason)
    said = reason[: place.start()] if place else reason
    where = re.sub(r"/\S*/(site-packages|integration_tests)/", "", place.group(1)) if place else ""
    said = re.sub(r" at 0x[0-9a-f]+|: the result depends on the data.*", "", said)[:160]
    return f"{said}{'; ' + where if where else ''}".replace("|", "\\|")

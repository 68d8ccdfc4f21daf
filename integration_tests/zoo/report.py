"""Outcomes as RESULTS.md: counts first, then the causes of breaks and fallbacks, then every record."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]
COLUMNS = (
    *("record", "mode", "result", "error", "gradient error", "graphs", "at other sizes", "kernels", "breaks", "fallbacks"),
    *("uncompiled", "seconds"),
)
GOOD = ("equal", "within envelope")


def write(rows: Rows, path: Path) -> None:
    """Writes the table, and the rows beside it as JSON lines."""
    path.write_text(text(rows))
    path.with_suffix(".jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


def text(rows: Rows) -> str:
    """The page."""
    parts = ["# The zoo", "", "Written by `nox -s zoo`. Small configurations with random weights, CPU, fp32, against eager.", ""]
    parts += _counts(rows)
    for title, key, clean in (
        ("Graph breaks", "breaks", lambda x: x.partition(": ")[2]),
        ("Frames run as plain Python", "plain", lambda x: x.partition(": ")[2] or x),
        ("Calls of eager kernels", "fallbacks", str),
        ("Uncompiled", "uncompiled", str),
    ):
        parts += _causes(rows, title, key, clean)
    parts += ["## Every record", "", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|", *(_line(r) for r in rows), ""]
    bad = [r for r in rows if r["status"] not in GOOD]
    if bad:
        parts += ["## Not equal", "", *(f"- {r['name']} ({r['mode']}): {r['status']}. {r.get('detail', '')}" for r in bad), ""]
    return "\n".join(parts)


def _counts(rows: Rows) -> list[str]:
    lines = ["| mode | records | equal | within envelope | one graph | no break | no fallback |", "|---|---|---|---|---|---|---|"]
    for mode in dict.fromkeys(r["mode"] for r in rows):
        some = [r for r in rows if r["mode"] == mode]
        status = Counter(r["status"] for r in some)
        clean = [sum(not r.get(k, ["?"]) for r in some) for k in ("breaks", "fallbacks")]
        one = sum(r.get("graphs") == 1 for r in some)
        lines.append(
            f"| {mode} | {len(some)} | {status['equal']} | {status['within envelope']} | {one} | {clean[0]} | {clean[1]} |"
        )
    return [*lines, ""]


def _causes(rows: Rows, title: str, key: str, clean: Any) -> list[str]:
    counted: Counter[str] = Counter()
    for row in rows:
        counted.update({_short(clean(x)) for x in row.get(key, ())})
    if not counted:
        return []
    lines = [f"## {title}", "", "| records | cause |", "|---|---|"]
    return [*lines, *(f"| {n} | {cause} |" for cause, n in sorted(counted.items(), key=lambda x: (-x[1], x[0]))), ""]


def _short(cause: str) -> str:
    """Without addresses and folders of this machine, and fit for a table cell."""
    cause = re.sub(r" at 0x[0-9a-f]+", "", cause)
    cause = re.sub(r"/\S*/site-packages/", "", cause)
    return cause.replace("|", "\\|").replace("\n", " ")[:160]


def _line(row: dict[str, Any]) -> str:
    figures = (f"{row.get(k, 0):.0e}" for k in ("error", "gradient_error"))
    later = ", ".join(map(str, row.get("other_sizes", ()))) or "-"
    counts = [str(len(row.get(key, ()))) for key in ("breaks", "fallbacks", "uncompiled")]
    graphs = [str(row.get("graphs", 0)), later, str(row.get("kernels", 0))]
    return f"| {' | '.join([row['name'], row['mode'], row['status'], *figures, *graphs, *counts, str(row.get('seconds', ''))])} |"

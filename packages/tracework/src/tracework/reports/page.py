"""A report as one page that needs nothing else: page.html filled in, with long texts deflated and opened in the browser."""

from __future__ import annotations

import base64
import functools
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from tracework_aotautograd import TradeOff

from .. import diagram
from ..activity import STAGES
from . import text

MOST_BOXES = 400
"""A picture with more is not drawn: nobody reads it."""
_CHART = (640, 150)


def page(found: Mapping[str, Any]) -> str:
    """The page of a report's data."""
    return str(
        _template().render(found=found, s=found["summary"], sources=_sources(found), stages=STAGES, findings=findings(found))
    )


@functools.cache
def _template() -> Any:
    import jinja2  # torch needs it, too; a tenth of a second

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tracework.reports", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "size": text.size,
        "operations": text.operations,
        "duration": text.duration,
        "deflated": deflated,
    }
    environment.globals |= {
        "budgets_chart": budgets_chart,
        "share": text.share,
        "place": text.place,
        "chart": chart,
        "picture": picture,
        "largest": _largest,
        "lines_of": _lines,
    }
    return environment.get_template("page.html")


def deflated(whole: str) -> str:
    """As the page's script inflates it."""
    return base64.b64encode(zlib.compress(whole.encode(), 9)).decode()


def findings(found: Mapping[str, Any]) -> list[str]:
    """What to look at first: a sentence each, the most costly first."""
    lines = [f"{u['place']} runs uncompiled: {u['why']}" for u in found["uncompiled"]]
    for stop in found["breaks"]:
        at = text.place(stop["stack"][-1]["file"], stop["stack"][-1]["line"]) if stop["stack"] else "a place that is not known"
        lines.append(f"The graph breaks at {at}: {stop['what']}. Try: {stop['cure']}")
    for again in found["recompiles"]:
        cure = f" Try: {again['cures'][0]}" if again["cures"] else ""
        lines.append(f"{again['function']} was compiled again: {again['reasons'][-1]}.{cure}")
    slow = [
        (step["us"] - step["limit_us"], step, each)
        for each in found["compiled"]
        for step in each["kernels"]
        if step["us"] and step["limit_us"] is not None and step["us"] > 2 * step["limit_us"]
    ]
    for lost, step, each in sorted(slow, key=lambda row: -row[0])[:3]:
        if lost > 0.02 * each["us"]:
            lines.append(
                f"{step['name']} (graph {each['number']}, step {step['number']}) takes {text.duration(step['us'])}, where its bytes and"
                f" operations need {text.duration(step['limit_us'])}."
            )
    return lines


def _sources(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(id, title, text) of everything that can be opened."""
    rows = [(f"captured{g['number']}", f"captured graph {g['number']}: {g['function']}", g["text"]) for g in found["graphs"]]
    for each in found["compiled"]:
        name = f"graph {each['number']}"
        rows += [(f"text{each['number']}-{n}", f"{name}: {title}", body) for n, (title, body) in enumerate(each["texts"].items())]
        for n, code in enumerate(each["code"]):
            title = f"{name}: {code['language']} of {', '.join(code['kernels'])}" if n else f"{name}: host program"
            rows.append((f"code{each['number']}-{n}", title, code["text"]))
    return rows


def picture(each: Mapping[str, Any]) -> str:
    """The SVG of a compiled graph; empty where there is too much to see."""
    if len(each["kernels"]) > MOST_BOXES:
        return ""
    buffers = {name: (b["dtype"], b["sizes"]) for name, b in each["buffers"].items()}
    static = {each["inputs"][n] for n in each["static_inputs"]}
    link = f"#kernel{each['number']}-{{}}"
    found = diagram.picture_of(each["kernels"], buffers, each["outputs"], each["inputs"], static, link)
    return diagram.svg(found, f"tip{each['number']}")


def chart(ours: Sequence[int], others: Sequence[int]) -> str:
    """Two lines of bytes over the steps of a graph, each over the whole width."""
    width, height = _CHART
    most = max([*ours, *others, 1])
    lines = []
    for name, values in (("others", others), ("ours", ours)):
        points = []
        for n, value in enumerate(values):
            y = height - value / most * (height - 10)
            points += [f"{n * width / len(values):.1f},{y:.1f}", f"{(n + 1) * width / len(values):.1f},{y:.1f}"]
        lines.append(f'<polyline class="{name}" points="{" ".join(points)}"/>')
    label = f"bytes alive: at most {text.size(max(ours, default=0))}, the dashed line {text.size(max(others, default=0))}"
    return f'<svg class="chart" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" aria-label="{label}">{"".join(lines)}</svg>'


def budgets_chart(points: Sequence[Mapping[str, Any]]) -> str:
    """Kept bytes against predicted time."""
    return TradeOff.of(points).svg()


def _lines(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The program's lines that a step computes, each once, with all operators that it computes of them."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for line in step["lines"]:
        known = found.setdefault((line["file"], line["line"]), {**line, "operators": []})
        known["operators"].append(line["operator"])
    return list(found.values())


def _largest(steps: Sequence[Mapping[str, Any]], key: str = "us") -> list[Mapping[str, Any]]:
    """The dozen with the largest numbers, which are not all known."""
    return sorted((step for step in steps if step[key]), key=lambda step: -step[key])[:12]

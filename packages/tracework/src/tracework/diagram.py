"""The graph after fusion as a picture: kernels, what they read and write, as DOT for Graphviz and as an SVG that needs nothing else."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

WIDTH, HEIGHT, GAP, ROW, PASSING = 232, 46, 22, 86, 12
"""Of a box, between boxes of a row, from row to row, and the width that an arrow has which passes by a row."""
MOST_LETTERS = 34
MOST_INPUTS = 8
_ROUNDS = 6
COLOURS = {"input": "#e8eef7", "kernel": "#d9ead3", "library": "#fff2cc", "output": "#f4cccc"}
_DARK = {"input": "#24324a", "kernel": "#23402a", "library": "#4a3f1c", "output": "#4d2a2a"}


@dataclass
class Box:
    """One box. row: how many boxes lie on the longest way to it. link: what a click on it leads to."""

    name: str
    kind: str
    lines: list[str]
    row: int = 0
    link: str = ""


@dataclass
class Picture:
    """Boxes by name, and (from, to, what goes along)."""

    boxes: dict[str, Box] = field(default_factory=dict)
    arrows: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, box: Box, reads: Iterable[tuple[str, str]]) -> None:
        """A box below all that it reads: pairs of a box and what it gives."""
        for source, what in reads:
            self.arrows.append((source, box.name, what))
            box.row = max(box.row, self.boxes[source].row + 1)
        self.boxes[box.name] = box


def picture_of(
    steps: Sequence[Mapping[str, Any]],
    buffers: Mapping[str, Any],
    outputs: Sequence[str],
    inputs: Sequence[str],
    static: Collection[str] = (),
    link: str = "",
) -> Picture:
    """The picture of a graph's steps, as an artifact's notes and a report have them; buffers: name -> (dtype, sizes, ...).

    static: inputs such as parameters, which are counted in the boxes that read them and have none, as all inputs where they are many.
    link: what a box leads to, {} for the step's number.
    """
    picture = Picture()
    read = {name for step in steps for name in step["reads"]}
    shown = [name for name in inputs if name in read and name not in static]
    counted = read & {*inputs} - {*(shown := shown if len(shown) <= MOST_INPUTS else [])}
    for name in shown:
        picture.add(Box(name, "input", [name, _layout(buffers.get(name))]), ())
    made: dict[str, str] = {name: name for name in shown}
    for number, step in enumerate(steps):
        own = f"step{number}"
        reads = [(made[name], _layout(buffers.get(name))) for name in step["reads"] if name in made]
        others = sum(name in counted for name in step["reads"])
        extra = f" + {others} input{'s' if others > 1 else ''}" if others else ""
        lines = [step["name"], (step["ops"] if step["ops"] != step["name"] else "") + extra]
        kind = "library" if step["kind"] == "library" else "kernel"
        picture.add(Box(own, kind, lines, link=link.format(number) if link else ""), dict.fromkeys(reads))
        made |= dict.fromkeys(step["writes"], own)
    given: dict[str, list[str]] = {}
    for name in outputs:
        if name in made:
            given.setdefault(made[name], []).append(name)
    for source, names in given.items():
        layouts = [_layout(buffers.get(name)) for name in names]
        lines = ["output" if len(names) == 1 else f"{len(names)} outputs", ", ".join(layouts)]
        picture.add(Box(f"output of {source}", "output", lines), [(source, ", ".join(layouts))])
    fed = {target for _, target, _ in picture.arrows}
    for box in picture.boxes.values():  # what needs nothing that is drawn stands by who reads it
        if box.name not in fed:
            box.row = min(
                (picture.boxes[target].row - 1 for source, target, _ in picture.arrows if source == box.name), default=0
            )
    return picture


def _layout(buffer: Any) -> str:
    return f"{buffer[0]}[{', '.join(map(str, buffer[1]))}]" if buffer else ""


def dot(picture: Picture) -> str:
    """Text for Graphviz."""
    lines = ["digraph kernels {", '  node [shape=box, style=filled, fontname="Helvetica"];']
    for box in picture.boxes.values():
        label = "\\n".join(_escaped(line) for line in box.lines if line)
        lines.append(f'  "{_escaped(box.name)}" [label="{label}", fillcolor="{COLOURS[box.kind]}"];')
    lines += [f'  "{_escaped(a)}" -> "{_escaped(b)}" [label="{_escaped(what)}"];' for a, b, what in picture.arrows]
    return "\n".join([*lines, "}"]) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def svg(picture: Picture, tip: str = "tip") -> str:
    """An SVG: a row of boxes for each depth, arrows from top to bottom, around the boxes of rows that they pass; the whole text of a box is its
    title. tip: a name that nothing else in the page has."""
    middles, ways = _places(picture)
    width = max((x for x in middles.values()), default=0) + WIDTH // 2 + GAP
    height = (max((box.row for box in picture.boxes.values()), default=0) + 1) * ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}"'
        ' font-family="Helvetica, Arial, sans-serif" font-size="11" role="img" aria-label="kernels and what goes between them">',
        f"<style>{_style()}</style>",
        f'<defs><marker id="{tip}" markerWidth="8" markerHeight="8" refX="7" refY="3" orient="auto"><path class="tip" d="M0,0 L7,3 L0,6 z"/>'
        "</marker></defs>",
    ]
    for (first, second, what), passing in zip(picture.arrows, ways, strict=True):
        rows = range(picture.boxes[first].row, picture.boxes[second].row + 1)
        xs = [middles[first], *(middles[name] for name in passing), middles[second]]
        parts.append(
            f'<path class="arrow" marker-end="url(#{tip})" d="{_curve(xs, rows)}"><title>{html.escape(what)}</title></path>'
        )
    for box in picture.boxes.values():
        drawn = _box(box, middles[box.name] - WIDTH / 2, box.row * ROW + GAP)
        parts.append(f'<a href="{html.escape(box.link)}">{drawn}</a>' if box.link else drawn)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _style() -> str:
    light = "".join(f".box-{kind}{{fill:{colour}}}" for kind, colour in COLOURS.items())
    dark = "".join(f".box-{kind}{{fill:{colour}}}" for kind, colour in _DARK.items())
    common = ".box{stroke:#777}.word{fill:#111}.arrow{fill:none;stroke:#777}.tip{fill:#777}"
    return f"{common}{light}@media (prefers-color-scheme:dark){{{dark}.word{{fill:#eee}}.box,.arrow{{stroke:#999}}.tip{{fill:#999}}}}"


def _box(box: Box, x: float, y: float) -> str:
    parts = [f'<rect class="box box-{box.kind}" rx="4" x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}"/>']
    for number, line in enumerate(line for line in box.lines if line):
        short = line if len(line) <= MOST_LETTERS else line[: MOST_LETTERS - 1] + "…"
        shown = f"{html.escape(short)}<title>{html.escape(line)}</title>"
        parts.append(f'<text class="word" x="{x + 8:.0f}" y="{y + 19 + 16 * number:.0f}">{shown}</text>')
    return "".join(parts)


def _curve(xs: Sequence[float], rows: Sequence[int]) -> str:
    """From below the first row's box past the others to the top of the last one's."""
    y = rows[0] * ROW + GAP + HEIGHT
    parts = [f"M{xs[0]:.0f},{y:.0f}"]
    for before, x, row in zip(xs, xs[1:], rows[1:], strict=False):
        top = row * ROW + GAP
        parts.append(f"C{before:.0f},{(y + top) / 2:.0f} {x:.0f},{(y + top) / 2:.0f} {x:.0f},{top:.0f}")
        if row != rows[-1]:
            y = top + HEIGHT
            parts.append(f"L{x:.0f},{y:.0f}")
    return " ".join(parts)


def _places(picture: Picture) -> tuple[dict[Any, float], list[list[Any]]]:
    """The middle of each box, and of each place where an arrow passes a row, which for each arrow are given, too."""
    rows: dict[int, list[Any]] = {}
    for box in picture.boxes.values():
        rows.setdefault(box.row, []).append(box.name)
    near: dict[Any, list[Any]] = {}
    ways = []
    known: dict[tuple[str, int], tuple[str, int]] = {}
    for first, second, _ in picture.arrows:
        passing: list[Any] = []
        for row in range(picture.boxes[first].row + 1, picture.boxes[second].row):
            if (first, row) not in known:  # arrows from one box go together
                known[first, row] = (first, row)
                rows[row].append(known[first, row])
            passing.append(known[first, row])
        ways.append(passing)
        for a, b in zip([first, *passing], [*passing, second], strict=True):
            near.setdefault(a, []).append(b)
            near.setdefault(b, []).append(a)
    middles: dict[Any, float] = {}
    for names in rows.values():
        _spread(names, {name: 0.0 for name in names}, middles)
    for n in range(_ROUNDS):
        for row in sorted(rows, reverse=n % 2 == 1):
            wanted = {
                name: sum(middles[other] for other in near[name]) / len(near[name]) if near.get(name) else middles[name]
                for name in rows[row]
            }
            rows[row].sort(key=wanted.__getitem__)
            _spread(rows[row], wanted, middles)
    least = min((middles[name] - _width(name) / 2 for name in middles), default=0)
    return {name: x - least + GAP for name, x in middles.items()}, ways


def _width(name: Any) -> int:
    return WIDTH if isinstance(name, str) else PASSING


def _spread(names: Sequence[Any], wanted: Mapping[Any, float], middles: dict[Any, float]) -> None:
    """Places one row in this order, without overlaps, about where each wants to be."""
    x: float | None = None
    found = []
    for name in names:
        least = wanted[name] if x is None else x + _width(name) / 2
        found.append(max(wanted[name], least))
        x = found[-1] + _width(name) / 2 + GAP
    shift = sum(wanted[name] - at for name, at in zip(names, found, strict=True)) / max(1, len(names))
    middles.update((name, at + shift) for name, at in zip(names, found, strict=True))

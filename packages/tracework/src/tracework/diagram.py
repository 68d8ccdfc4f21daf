"""The graph after fusion as a picture: kernels, what they read and write, as DOT for Graphviz and as an SVG that needs nothing else."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

WIDTH, HEIGHT, GAP, ROW = 250, 40, 24, 84
COLOURS = {"input": "#e8eef7", "kernel": "#d9ead3", "library": "#fff2cc", "output": "#f4cccc"}
MOST_LETTERS = 38


@dataclass
class Box:
    """One box. row: how many boxes lie on the longest way to it."""

    name: str
    kind: str
    lines: list[str]
    row: int = 0


@dataclass
class Picture:
    """Boxes by name, and (from, to, what goes along)."""

    boxes: dict[str, Box] = field(default_factory=dict)
    arrows: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, box: Box, reads: Iterator[tuple[str, str]]) -> None:
        """A box below all that it reads: pairs of a box and what it gives."""
        for source, what in reads:
            self.arrows.append((source, box.name, what))
            box.row = max(box.row, self.boxes[source].row + 1)
        self.boxes[box.name] = box


def picture_of(plan: Any) -> Picture:
    """The picture of a KernelPlan."""
    picture, program = Picture(), plan.program
    made = {}
    for name in program.inputs:
        picture.add(Box(name, "input", [name, _layout(program.buffers.get(name))]), iter(()))
        made[name] = name
    for kernel in plan.kernels:
        node = getattr(kernel, "node", None)
        target = getattr(node, "target", None)
        what = target or getattr(node, "core", None) or _loops(kernel)
        reads = [(made[name], _layout(program.buffers.get(name))) for name in sorted(kernel.reads) if name in made]
        picture.add(Box(kernel.name, "library" if target else "kernel", [kernel.name, what]), iter(reads))
        made |= dict.fromkeys(kernel.writes, kernel.name)
    for number, output in enumerate(program.outputs):
        reads = [(made[output.buffer], _layout(program.buffers.get(output.buffer)))] if output.buffer in made else []
        picture.add(Box(f"output{number}", "output", [f"output {number}", "" if reads else str(output.value)]), iter(reads))
    return picture


def _layout(buffer: Any) -> str:
    if buffer is None:
        return ""
    layout = buffer.layout
    return f"{str(layout.dtype).removeprefix('torch.')}[{', '.join(map(str, layout.sizes))}]"


def _loops(kernel: Any) -> str:
    """The operators of a kernel's bodies, each once."""
    found = [i.op for one in kernel.passes for i in one.body.instructions]
    return " ".join(dict.fromkeys(op for op in found if op not in ("load", "store", "constant", "local")))


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


def svg(picture: Picture) -> str:
    """An SVG: a row of boxes for each depth, arrows from top to bottom; the whole text of a box is its title."""
    rows: dict[int, list[Box]] = {}
    for box in picture.boxes.values():
        rows.setdefault(box.row, []).append(box)
    places = {b.name: (n * (WIDTH + GAP) + GAP, row * ROW + GAP) for row, boxes in rows.items() for n, b in enumerate(boxes)}
    width = max((len(boxes) for boxes in rows.values()), default=0) * (WIDTH + GAP) + GAP
    height = (max(rows, default=0) + 1) * ROW + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="Helvetica" font-size="11">',
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="3" orient="auto"><path d="M0,0 L7,3 L0,6 z"/></marker></defs>',
    ]
    for first, second, what in picture.arrows:
        (x, y), (to_x, to_y) = places[first], places[second]
        ends = f'x1="{x + WIDTH // 2}" y1="{y + HEIGHT}" x2="{to_x + WIDTH // 2}" y2="{to_y}"'
        parts.append(f'<line {ends} stroke="black" marker-end="url(#tip)"><title>{html.escape(what)}</title></line>')
    for name, (x, y) in places.items():
        box = picture.boxes[name]
        parts.append(f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" fill="{COLOURS[box.kind]}" stroke="black"/>')
        for number, line in enumerate(line for line in box.lines if line):
            short = line if len(line) <= MOST_LETTERS else line[: MOST_LETTERS - 1] + "…"
            shown = f"{html.escape(short)}<title>{html.escape(line)}</title>"
            parts.append(f'<text x="{x + 6}" y="{y + 16 + 15 * number}">{shown}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"

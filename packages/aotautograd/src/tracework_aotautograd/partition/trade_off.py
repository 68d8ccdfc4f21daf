"""What keeping less would cost: kept bytes against the time that computing again takes, for a row of budgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import fx

from ..contracts import FunctionalProgram, JointProgram, Kept
from ..options import AotOptions
from .budget import Choice
from .min_cut import beside_all, chosen
from .split import JointParts
from .work import work_of

__all__ = ["BUDGETS", "Point", "TradeOff", "kept_within", "trade_off"]

BUDGETS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)
WIDTH, HEIGHT, MARGIN = 480, 300, 48


@dataclass(frozen=True)
class Point:
    """A memory budget, the bytes that are kept under it beside inputs, and the predicted time of a step over that without a budget."""

    budget: float
    bytes: int
    time: float


@dataclass(frozen=True)
class TradeOff:
    """Points of falling budgets."""

    points: tuple[Point, ...]

    @classmethod
    def of(cls, data: Iterable[Mapping[str, Any]]) -> TradeOff:
        """What `data()` gave."""
        return cls(tuple(Point(**point) for point in data))

    def data(self) -> list[dict[str, Any]]:
        """The points, fit for JSON."""
        return [asdict(point) for point in self.points]

    def text(self) -> str:
        """A line for each point, with a bar for its bytes."""
        most = max(1, *(point.bytes for point in self.points))
        lines = ["budget       bytes kept   time of a step (predicted)"]
        for point in self.points:
            bar = "#" * round(24 * point.bytes / most)
            lines.append(f"{point.budget:6.2f}  {point.bytes:15,}  {point.time:6.3f}  {bar}")
        return "\n".join(lines)

    def svg(self) -> str:
        """The points as a curve: kept bytes to the right, predicted time upwards."""
        most = max(1, *(point.bytes for point in self.points))
        slowest = max(1.01, *(point.time for point in self.points))
        wide, high = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN
        places = [(MARGIN + wide * p.bytes / most, HEIGHT - MARGIN - high * (p.time - 1) / (slowest - 1), p) for p in self.points]
        curve = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
        dots = "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"><title>budget {p.budget}: {p.bytes:,} bytes, {p.time:.3f}</title></circle>'
            for x, y, p in places
        )
        bottom, right = HEIGHT - MARGIN, WIDTH - MARGIN
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">'
            f'<path d="M{MARGIN} {MARGIN}V{bottom}H{right}" fill="none" stroke="gray"/>'
            f'<polyline points="{curve}" fill="none" stroke="steelblue" stroke-width="2"/><g fill="steelblue">{dots}</g>'
            f'<text x="{right}" y="{bottom + 16}" text-anchor="end">{most:,} bytes kept</text>'
            f'<text x="{MARGIN}" y="{MARGIN - 8}">predicted time of a step, up to {slowest:.3f}</text></svg>'
        )


def trade_off(
    program: JointProgram | FunctionalProgram, options: AotOptions | None = None, budgets: Sequence[float] = BUDGETS
) -> TradeOff:
    """Of a joint graph, which may have been cut, and is not changed. The time is predicted from the arithmetic of products and from bytes."""
    if isinstance(program, FunctionalProgram):
        spec = program.forward_spec
        program = JointProgram(program.joint, program.signature, spec.fake_mode, spec.symbols, None)
    joint, options, parts = program, options or AotOptions(), JointParts.of(program)
    whole, *choices = chosen(joint, parts, options, [1.0, *budgets])
    times = _times(joint, whole, choices)
    return TradeOff(tuple(Point(budget, c.bytes, time) for budget, c, time in zip(budgets, choices, times, strict=True)))


def kept_within(joint: JointProgram, parts: JointParts, options: AotOptions, saved: Sequence[fx.Node]) -> Kept | None:
    """What a memory budget came to, if there is one. saved: what the partitioner chose."""
    if options.memory_budget >= 1:
        return None
    whole, choice = beside_all(joint, parts, options, saved)
    (time,) = _times(joint, whole, [choice])
    return Kept(options.memory_budget, whole.bytes, choice.bytes, choice.again, time)


def _times(joint: JointProgram, whole: Choice, choices: Sequence[Choice]) -> list[float]:
    """Of a step with each of these, over that with `whole`."""
    step = max(1.0, sum(work_of(node, alone=True) for node in joint.graph.graph.nodes if node.users))
    return [1 + max(0.0, choice.work - whole.work) / step for choice in choices]

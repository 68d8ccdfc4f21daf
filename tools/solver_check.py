"""Random systems of conditions over sizes: what SymbolTable proves or refutes, against trying all values.

python tools/run_in_tree.py python tools/solver_check.py [--systems N] [--write]

A system has up to four symbols with ranges, a few conditions that hold for the example (guards) or are stated (torch._check, also over sizes without
an example), and one question. A verdict must hold for every choice of values that the ranges and recorded conditions allow;
without one, the question would be asked at run time. --write puts the table into tools/solver_check.txt.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracework_primops import Condition, SymbolTable, floordiv, maximum, minimum, mod

OPS = ("==", "!=", "<", "<=", ">", ">=")
KINDS = ("affine", "product", "division", "remainder", "extremum")


@dataclass
class Outcome:
    """One system: its kind, the verdict (None: left open), what is true, and the seconds that the question took."""

    kind: str
    verdict: bool | None
    truth: bool | None
    seconds: float
    text: str

    @property
    def is_wrong(self) -> bool:
        """A verdict that some allowed values contradict."""
        return self.verdict is not None and self.verdict is not self.truth


def _affine(draw: random.Random, symbols: list[Any], most: int = 3) -> Any:
    total = draw.randint(-6, 6)
    for s in draw.sample(symbols, draw.randint(1, min(most, len(symbols)))):
        total = total + draw.choice((-3, -2, -1, 1, 1, 2, 4)) * s
    return total


def _expression(draw: random.Random, kind: str, symbols: list[Any]) -> Any:
    left = _affine(draw, symbols, 2)
    if kind == "product":
        return draw.choice(symbols) * draw.choice(symbols) + left
    if kind == "division":
        return floordiv(_affine(draw, symbols, 2), draw.choice((2, 3, 4))) + left
    if kind == "remainder":
        return mod(_affine(draw, symbols, 2), draw.choice((2, 3, 4))) - draw.randint(0, 3)
    if kind == "extremum":
        return draw.choice((maximum, minimum))(left, _affine(draw, symbols, 2)) + draw.randint(-4, 4)
    return _affine(draw, symbols)


def _symbols(draw: random.Random, table: SymbolTable) -> tuple[list[Any], dict[Any, range]]:
    symbols, domains = [], {}
    for i in range(draw.randint(1, 4)):
        low, high = draw.choice(((2, 7), (2, 5), (0, 5), (1, 6)))
        unbacked = draw.random() < 0.15
        made = table.new(None if unbacked else draw.randint(low, high), f"x{i}", low, high, unbacked=unbacked)
        symbols.append(made)
        domains[made] = range(low, high + 1)
    return symbols, domains


def _impose(table: SymbolTable, condition: Condition, allowed: list[dict[Any, int]]) -> list[dict[Any, int]]:
    """A guard where there is an example, a stated condition otherwise; what is left of the allowed values."""
    if table.has_hint(condition.expr):
        holds = table.guard(condition)
        return [v for v in allowed if condition.evaluate(v) is holds]
    kept = [v for v in allowed if condition.evaluate(v)]
    if not kept or len(kept) == len(allowed):
        return allowed
    try:
        table.assume(condition)
    except RuntimeError:
        return allowed
    return kept


def run_system(seed: int) -> Outcome:
    """The system of this number."""
    draw = random.Random(seed)
    table = SymbolTable()
    symbols, domains = _symbols(draw, table)
    allowed = [dict(zip(symbols, values, strict=True)) for values in itertools.product(*domains.values())]
    for _ in range(draw.randint(0, 4)):
        condition = Condition(draw.choice(OPS), _expression(draw, draw.choice(("affine", "affine", *KINDS)), symbols))
        allowed = _impose(table, condition, allowed)
    kind = draw.choice(KINDS)
    question = Condition(draw.choice(OPS), _expression(draw, kind, symbols))
    start = time.thread_time()
    verdict = table.is_true(question)
    seconds = time.thread_time() - start
    answers = {question.evaluate(v) for v in allowed}
    truth = verdict if not allowed else answers.pop() if len(answers) == 1 else None  # nothing is allowed: whatever is said holds
    facts = "; ".join(
        [*(f"{s} in {d.start}..{d.stop - 1}" for s, d in domains.items()), *(str(c.condition) for c in table.conditions)]
    )
    return Outcome(kind, verdict, truth, seconds, f"system {seed}: {facts}: {question}: {verdict}, in truth {truth}")


def table_of(outcomes: list[Outcome]) -> str:
    """Counts by kind of question."""
    lines = [f"{'question':12}{'systems':>9}{'proved':>9}{'refuted':>9}{'open':>9}{'missed':>9}{'wrong':>7}"]
    for kind in (*KINDS, "all"):
        rows = [o for o in outcomes if kind in (o.kind, "all")]
        count = Counter(o.verdict for o in rows)
        missed = sum(o.verdict is None and o.truth is not None for o in rows)
        open_ = count[None] - missed
        wrong = sum(o.is_wrong for o in rows)
        lines.append(f"{kind:12}{len(rows):9}{count[True]:9}{count[False]:9}{open_:9}{missed:9}{wrong:7}")
    lines.append("open: depends on the values; missed: does not, and is asked at run time all the same")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--systems", type=int, default=10_000)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    outcomes = [run_system(seed) for seed in range(options.systems)]
    report = table_of(outcomes)
    print(report, end="")
    spent = [o.seconds * 1e6 for o in outcomes]
    print(
        f"microseconds a question: median {statistics.median(spent):.0f}, 99 % below {sorted(spent)[len(spent) * 99 // 100]:.0f}"
    )
    for outcome in [o for o in outcomes if o.is_wrong][:20]:
        print("WRONG", outcome.text)
    if options.write:
        Path(__file__).with_suffix(".txt").write_text(report)
    raise SystemExit(any(o.is_wrong for o in outcomes))


if __name__ == "__main__":
    main()

"""Tables and charts of what was measured: `python -m benchmarks.tables` writes benchmarks/results/README.md, a chart for each kind of machine
and the table of the README at the root.

benchmarks/results/MACHINE/models.jsonl is what benchmarks.compare wrote there, decode.jsonl what `python -m benchmarks --decode` did.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
README = RESULTS.parent.parent / "README.md"
BEGIN, END = "<!-- python -m benchmarks.tables writes what follows -->", "<!-- end of the tables -->"
WAYS = {
    "torch.compile": "torch.compile",
    "torch.compile:max-autotune": "its max-autotune",
    "torch.compile:freezing": "its freezing",
    "tracework": "tracework",
    "tracework:max-autotune": "its max-autotune",
}
COLOURS = {
    "torch.compile": "#b8b8b8",
    "torch.compile:max-autotune": "#808080",
    "torch.compile:freezing": "#c8a860",
    "tracework": "#3b76c4",
    "tracework:max-autotune": "#1d3f73",
}


@dataclass(frozen=True)
class Step:
    """One model, inference or training, on one machine: seconds of each way, eager among them, and of the products alone; batch: in the place
    of the model's own."""

    model: str
    training: bool
    batch: int | None
    seconds: dict[str, float]
    cold: dict[str, float]
    limit: float | None
    peak: dict[str, int]

    def speedup(self, way: str, over: str = "eager") -> float | None:
        return self.seconds[over] / self.seconds[way] if {way, over} <= self.seconds.keys() else None

    def memory(self) -> float | None:
        """tracework's peak over eager's."""
        return self.peak["tracework"] / self.peak["eager"] if {"tracework", "eager"} <= self.peak.keys() else None

    def best(self) -> float | None:
        """Seconds of tracework's fastest mode."""
        return min((s for way, s in self.seconds.items() if way.partition(":")[0] == "tracework"), default=None)


@dataclass(frozen=True)
class Run:
    """A file that benchmarks.compare wrote."""

    folder: Path
    about: dict[str, Any]
    steps: tuple[Step, ...]

    @staticmethod
    def read(folder: Path) -> Run:
        about, *rows = (json.loads(line) for line in (folder / "models.jsonl").read_text().splitlines())
        return Run(folder, about, tuple(map(step_of, rows)))

    def parts(self) -> dict[str, list[Step]]:
        """Title -> its steps: inference and training, and each size of batch that was asked for."""
        found: dict[str, list[Step]] = {}
        for training in (False, True):
            for s in self.steps:
                if s.training == training:
                    what = "training" if training else "inference"
                    found.setdefault(what if s.batch is None else f"{what}, batch {s.batch}", []).append(s)
        return found


def ways_of(steps: Sequence[Step]) -> list[str]:
    """Those that are timed in one of the steps."""
    return [w for w in WAYS if any(w in s.seconds for s in steps)]


def step_of(row: dict[str, Any]) -> Step:
    """A line of the file."""
    ways = row.get("ways", {})

    def figures(key: str) -> dict[str, Any]:
        return {way: found[key] for way, found in ways.items() if key in found}

    given = (row["model"], row["training"], row.get("batch"))
    return Step(*given, figures("step_s"), figures("cold_s"), row.get("limit_s"), figures("peak_bytes"))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of those that are there."""
    found = [v for v in values if v is not None]
    return math.exp(statistics.fmean(map(math.log, found))) if found else None


def shown(value: float | None, form: str = "{:.2f}") -> str:
    return "-" if value is None else form.format(value)


def share_of_limit(step: Step) -> float | None:
    """The products alone over the whole step in tracework's fastest mode."""
    best = step.best()
    return None if step.limit is None or best is None else step.limit / best


def over_torch(step: Step) -> float | None:
    """The default modes of both."""
    return step.speedup("tracework", "torch.compile")


RATIOS: dict[str, Callable[[Step], float | None]] = {
    "over torch.compile": over_torch,
    "over its freezing": partial(Step.speedup, way="tracework", over="torch.compile:freezing"),
    "tuned over tuned": partial(Step.speedup, way="tracework:max-autotune", over="torch.compile:max-autotune"),
    "share of the limit": share_of_limit,
    "peak over eager's": Step.memory,
}


def models_table(steps: Sequence[Step]) -> str:
    """Speed-ups over eager in the same process, and what is left to the limit; columns of which no step has figures are left out."""
    ways = ways_of(steps)
    ratios = {name: ratio for name, ratio in RATIOS.items() if any(ratio(s) is not None for s in steps)}
    columns: list[Callable[[Step], float | None]] = [*(partial(Step.speedup, way=way) for way in ways), *ratios.values()]
    cold = any(s.cold for s in steps)
    rows = [
        [
            s.model,
            shown(s.seconds["eager"] * 1e3 if "eager" in s.seconds else None),
            *(shown(c(s)) for c in columns),
            *([first_calls(s)] if cold else []),
        ]
        for s in steps
    ]
    rows.append(["geometric mean", "", *(shown(mean(map(c, steps))) for c in columns), *([""] if cold else [])])
    return table(["model", "eager ms", *(WAYS[w] for w in ways), *ratios, *(["first call s"] if cold else [])], rows)


def first_calls(step: Step) -> str:
    """Seconds with empty caches: tracework's, torch.compile's."""
    return ", ".join(shown(step.cold.get(way), "{:.1f}") for way in ("tracework", "torch.compile"))


def decode_table(path: Path) -> str:
    """Milliseconds a token."""
    found: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for row in map(json.loads, path.read_text().splitlines()):
        if "token_ms" in row:
            way = row["system"] + (f":{row['mode']}" if row["mode"] else "")
            found.setdefault((row["model"], row["cache"]), {})[way] = row
    ways = ("torch.compile", "torch.compile:reduce-overhead", "tracework", "tracework:reduce-overhead")
    rows = []
    for (model, cache), by_way in found.items():
        cells = [shown(by_way[w]["token_ms"] if w in by_way else None) for w in ways]
        common = [statistics.median(r[key] for r in by_way.values()) for key in ("limit_ms", "eager_token_ms")]
        rows.append([f"{model}, {cache}", *map(shown, common), *cells])
    return table(
        ["model, cache", "limit", "eager", "torch.compile", "its reduce-overhead", "tracework", "its reduce-overhead"], rows
    )


def chart(run: Run, path: Path) -> None:
    """Bars of speed-ups over eager for each model, a line where the products alone would be."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "tracework", "font.size": 9, "svg.fonttype": "none"})
    from matplotlib import pyplot

    parts, ways = run.parts(), ways_of(run.steps)
    width = max(map(len, parts.values()))
    figure, axes = pyplot.subplots(len(parts), 1, figsize=(max(6.0, 0.85 * width), 2.6 * len(parts)), squeeze=False)
    for (title, steps), axis in zip(parts.items(), axes[:, 0], strict=True):
        bar = 0.8 / len(ways)
        for number, way in enumerate(ways):
            places = [i + (number - (len(ways) - 1) / 2) * bar for i in range(len(steps))]
            axis.bar(places, [s.speedup(way) or 0 for s in steps], bar, color=COLOURS[way], label=way.replace(":", " "))
        for i, s in enumerate(steps):
            if s.limit is not None and "eager" in s.seconds:
                axis.hlines(s.seconds["eager"] / s.limit, i - 0.45, i + 0.45, colors="black", linewidth=1)
        axis.axhline(1, color="#d04040", linewidth=0.8)
        axis.set_xticks(range(len(steps)), [s.model for s in steps])
        axis.set_ylabel("over eager")
        axis.set_title(title, loc="left", fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].legend(frameon=False, ncols=len(ways), fontsize=8, loc="upper left", bbox_to_anchor=(0, 1.25))
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def title_of(run: Run) -> str:
    about = run.about
    return f"{about['machine']}, torch {about['torch']}, triton {about['triton']}, commit {about['commit']}, {about['date']}"


def page(runs: Sequence[Run]) -> str:
    """benchmarks/results/README.md."""
    parts = [
        "# Results",
        "Written by `python -m benchmarks.tables` from the data beside it; `older/` has earlier runs as data. A figure is the median of steps "
        "timed in turns with eager's in one process, its error checked there; speed-ups are over eager. The limit is what the step's products, "
        "convolutions and attention take alone, each by the library's best call (`benchmarks/limit.py`): its share of the step is what is left "
        "to win. First calls are with empty caches: tracework's, torch.compile's.",
    ]
    for run in runs:
        parts.append(f"## {run.folder.name}\n\n{title_of(run)}: `python -m benchmarks.compare {run.about['command']}`")
        parts.append(f"![speed-ups]({run.folder.name}.svg)")
        parts += [f"{title.capitalize()}:\n\n{models_table(steps)}" for title, steps in run.parts().items()]
        decode = run.folder / "decode.jsonl"
        if decode.exists():
            what = "Decoding, milliseconds a token; the limit is the weights' bytes at the bandwidth of a copy:"
            parts.append(f"{what}\n\n{decode_table(decode)}")
    return "\n\n".join(parts) + "\n"


def headline(runs: Sequence[Run]) -> str:
    """Geometric means, for the README at the root."""
    rows = []
    for run in runs:
        for title, steps in run.parts().items():
            both = [s for s in steps if over_torch(s) is not None]
            if both:
                means = [mean(s.speedup(way) for s in both) for way in ("torch.compile", "tracework")]
                over = [over_torch(s) for s in both]
                what = [run.about["machine"], title, str(len(both))]
                rows.append([*what, *map(shown, means), shown(mean(over)), shown(min(x for x in over if x is not None))])
    head = ["machine", "step", "models", "torch.compile", "tracework", "over torch.compile", "worst model"]
    charts = "\n".join(f"![{run.folder.name}](benchmarks/results/{run.folder.name}.svg)" for run in runs)
    return f"{table(head, rows)}\n\n{charts}"


def write() -> None:
    runs = [Run.read(path.parent) for path in sorted(RESULTS.glob("*/models.jsonl"))]
    for run in runs:
        chart(run, RESULTS / f"{run.folder.name}.svg")
    (RESULTS / "README.md").write_text(page(runs))
    before, begin, rest = README.read_text().partition(BEGIN)
    if begin:
        README.write_text(f"{before}{BEGIN}\n\n{headline(runs)}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    write()

"""Some fifty float32 programs of one to twenty operators around a convolution or a product, against eager and torch.compile, in one run.

    python tools/run_in_tree.py python -m benchmarks.micro.short_programs [--device cpu] [--only WORDS] [--systems tracework,torch.compile] [--repeat 9]

Each line of the output is JSON: milliseconds of eager, of each system and its speed-up, taken in turns; the largest error of its result over
that of eager's in float64, in units of the result's norm; and whether result and strides are eager's. The last line holds geometric means, and
the programs below them. With `--device cpu` the batch is a sixteenth, which checks the programs and says nothing about a GPU.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import tracework
from torch import nn

Then = Callable[[torch.Tensor], torch.Tensor]
SMALLER = 16
"""What batches are divided by on a CPU."""


class Program(nn.Module):
    """A layer, and what follows it."""

    def __init__(self, layers: Sequence[nn.Module], then: Then) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.then = then

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.then(self.layers(x))


class Residual(nn.Module):
    """Two linear layers behind a norm, beside what they are given."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, size), nn.GELU(), nn.Linear(size, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


@dataclass(frozen=True)
class Row:
    """Layers, what follows them, and the sizes of the input, batch first."""

    layers: Callable[[], Sequence[nn.Module]]
    then: Then
    sizes: tuple[int, ...]


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


def _log_sum(x: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x, 1, keepdim=True)


PROGRAMS: Mapping[str, Row] = {
    # convolutions of images, from few channels
    "conv": Row(lambda: [nn.Conv2d(3, 64, 7, 2, 3)], _same, (64, 3, 224, 224)),
    "conv relu": Row(lambda: [nn.Conv2d(16, 32, 3)], torch.relu, (128, 16, 64, 64)),
    "conv gelu mean": Row(lambda: [nn.Conv2d(8, 64, 3)], lambda x: F.gelu(x).mean((2, 3)), (128, 8, 128, 128)),
    "conv norm relu": Row(lambda: [nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64)], torch.relu, (64, 32, 64, 64)),
    "conv sub hardswish pool mish": Row(
        lambda: [nn.Conv2d(8, 64, 3)], lambda x: F.mish(F.max_pool2d(F.hardswish(x - 0.5), 2)), (128, 8, 128, 128)
    ),
    "conv min add mul": Row(lambda: [nn.Conv2d(64, 128, 3)], lambda x: (torch.clamp(x, max=0.5) + 0.25) * 2.0, (128, 64, 64, 64)),
    "conv sub tanh sub avg": Row(
        lambda: [nn.Conv2d(32, 64, 3)], lambda x: F.avg_pool2d(torch.tanh(x - 0.5) - 0.2, 2), (64, 32, 96, 96)
    ),
    "conv group norm tanh hardswish logsumexp": Row(
        lambda: [nn.Conv2d(8, 64, 3), nn.GroupNorm(16, 64)], lambda x: _log_sum(x + F.hardswish(torch.tanh(x))), (128, 8, 96, 96)
    ),
    "conv instance norm div": Row(lambda: [nn.Conv2d(32, 64, 3), nn.InstanceNorm2d(64)], lambda x: x / 2.0, (64, 32, 96, 96)),
    "conv softplus tanh mul norm": Row(lambda: [nn.Conv2d(32, 64, 3), nn.Mish(), nn.BatchNorm2d(64)], _same, (64, 32, 96, 96)),
    "conv min tanh tanh": Row(
        lambda: [nn.Conv2d(16, 64, 3)], lambda x: x.amin(1, keepdim=True).tanh().tanh(), (128, 16, 128, 128)
    ),
    "conv relu hardswish": Row(lambda: [nn.Conv2d(8, 64, 3)], lambda x: F.hardswish(torch.relu(x)), (128, 8, 128, 128)),
    "conv scale min": Row(lambda: [nn.Conv2d(64, 128, 3)], lambda x: (x * 2).amin(1, keepdim=True), (64, 64, 96, 96)),
    "conv avg sigmoid sum": Row(
        lambda: [nn.Conv2d(8, 64, 3)], lambda x: torch.sigmoid(F.avg_pool2d(x, 4)).sum((1, 2, 3)), (128, 8, 128, 128)
    ),
    "conv mish mish": Row(lambda: [nn.Conv2d(64, 128, 3)], lambda x: F.mish(F.mish(x - 0.1) - 0.2), (64, 64, 96, 96)),
    "conv pixel shuffle": Row(
        lambda: [nn.Conv2d(32, 64, 3, padding=1)], lambda x: torch.relu(F.pixel_shuffle(x, 2)), (32, 32, 96, 96)
    ),
    "conv 1x1 silu": Row(lambda: [nn.Conv2d(128, 256, 1)], F.silu, (64, 128, 56, 56)),
    "depthwise norm relu6": Row(
        lambda: [nn.Conv2d(96, 96, 3, padding=1, groups=96), nn.BatchNorm2d(96), nn.ReLU6()], _same, (64, 96, 56, 56)
    ),
    "separable": Row(
        lambda: [nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.Conv2d(64, 128, 1), nn.BatchNorm2d(128), nn.ReLU()],
        _same,
        (64, 64, 56, 56),
    ),
    "grouped": Row(
        lambda: [nn.Conv2d(128, 128, 3, padding=1, groups=8), nn.BatchNorm2d(128), nn.ReLU()], _same, (64, 128, 56, 56)
    ),
    "dilated": Row(lambda: [nn.Conv2d(64, 64, 3, padding=4, dilation=4), nn.LeakyReLU(0.1)], _same, (64, 64, 64, 64)),
    "block": Row(
        lambda: [
            nn.Conv2d(64, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.BatchNorm2d(64),
        ],
        torch.relu,
        (64, 64, 56, 56),
    ),
    "two and a head": Row(
        lambda: [
            *(nn.Conv2d(3, 32, 5, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
            *(nn.Flatten(), nn.Linear(64, 100)),
        ],
        lambda x: F.log_softmax(x, 1),
        (128, 3, 128, 128),
    ),
    "separable chain": Row(
        lambda: [
            layer
            for size, results in ((32, 64), (64, 128))
            for layer in (
                *(nn.Conv2d(size, size, 3, padding=1, groups=size), nn.BatchNorm2d(size), nn.ReLU6()),
                *(nn.Conv2d(size, results, 1), nn.BatchNorm2d(results), nn.ReLU6()),
            )
        ],
        _same,
        (64, 32, 56, 56),
    ),
    "dilated, few channels": Row(lambda: [nn.Conv2d(4, 32, 3, padding=2, dilation=2)], torch.relu, (64, 4, 128, 128)),
    "conv largest of all": Row(lambda: [nn.Conv2d(32, 64, 3)], lambda x: torch.sigmoid(x.amax((2, 3))), (64, 32, 96, 96)),
    "conv logsumexp of all": Row(lambda: [nn.Conv2d(32, 64, 3)], lambda x: torch.logsumexp(x, (2, 3)), (64, 32, 96, 96)),
    # transposed
    "transposed": Row(lambda: [nn.ConvTranspose2d(64, 32, 4, 2, 1)], _same, (32, 64, 64, 64)),
    "transposed add min gelu mul": Row(
        lambda: [nn.ConvTranspose2d(64, 128, 4, 2)], lambda x: F.gelu(torch.clamp(x + 0.5, max=0.0)) * 2.0, (64, 64, 32, 32)
    ),
    "transposed bias softmax scale": Row(
        lambda: [nn.ConvTranspose2d(64, 128, 4, 2, 1)],
        lambda x: torch.sigmoid((torch.softmax(x, 1) + 0.1) * 2.0),
        (64, 64, 32, 32),
    ),
    "transposed pool hardtanh mean": Row(
        lambda: [nn.ConvTranspose2d(64, 64, 3, padding=1), nn.MaxPool2d(2), nn.Hardtanh()],
        lambda x: torch.tanh(x.mean((2, 3), keepdim=True)),
        (64, 64, 128, 128),
    ),
    "transposed norm sub pool": Row(
        lambda: [nn.ConvTranspose2d(32, 64, 3, 2, 1), nn.BatchNorm2d(64)],
        lambda x: F.avg_pool2d(x - x.mean((2, 3), keepdim=True), 2),
        (64, 32, 48, 48),
    ),
    # volumes
    "volume": Row(lambda: [nn.Conv3d(16, 32, 3)], _same, (16, 16, 32, 48, 48)),
    "volume relu leaky gelu sigmoid": Row(
        lambda: [nn.Conv3d(8, 32, 3), nn.ReLU(), nn.LeakyReLU(0.01), nn.GELU()],
        lambda x: torch.sigmoid(x) + 0.5,
        (32, 8, 32, 48, 48),
    ),
    "volume group norm mean": Row(
        lambda: [nn.Conv3d(3, 24, 3), nn.GroupNorm(8, 24)], lambda x: torch.relu(x).mean((1, 2, 3, 4)), (64, 3, 24, 32, 32)
    ),
    "volume softmax pool": Row(
        lambda: [nn.Conv3d(3, 16, 3)], lambda x: F.max_pool3d(torch.softmax(x, 1), 2), (64, 3, 24, 32, 32)
    ),
    "transposed volume norm": Row(
        lambda: [nn.ConvTranspose3d(16, 32, 3, 2, 1), nn.BatchNorm3d(32)],
        lambda x: x - x.mean((2, 3, 4), keepdim=True),
        (16, 16, 16, 24, 24),
    ),
    "volume norm leaky avg": Row(
        lambda: [nn.Conv3d(16, 32, 3, 2, 1), nn.BatchNorm3d(32), nn.LeakyReLU(0.1), nn.AvgPool3d(2)], _same, (16, 16, 32, 48, 48)
    ),
    # signals
    "signal": Row(lambda: [nn.Conv1d(64, 128, 3, padding=1)], F.gelu, (64, 64, 4096)),
    "signal norm relu pool": Row(
        lambda: [nn.Conv1d(32, 64, 7, 2, 3), nn.BatchNorm1d(64), nn.ReLU(), nn.MaxPool1d(2)], _same, (64, 32, 8192)
    ),
    "signal grouped": Row(lambda: [nn.Conv1d(128, 128, 5, 2, 2, groups=8), nn.BatchNorm1d(128)], F.silu, (64, 128, 4096)),
    "signal depthwise": Row(
        lambda: [nn.Conv1d(256, 256, 4, padding=3, groups=256)], lambda x: F.silu(x[..., :-3]), (16, 256, 4096)
    ),
    "transposed signal": Row(lambda: [nn.ConvTranspose1d(64, 32, 4, 2, 1), nn.LeakyReLU(0.1)], torch.tanh, (64, 64, 4096)),
    # products
    "linear gelu softmax": Row(lambda: [nn.Linear(1024, 1024)], lambda x: torch.softmax(F.gelu(x), 1), (4096, 1024)),
    "linear group norm hardtanh": Row(
        lambda: [nn.Linear(1024, 2048), nn.GroupNorm(16, 2048), nn.Hardtanh()], _same, (4096, 1024)
    ),
    "linear pool sum scale": Row(
        lambda: [nn.Linear(1024, 2048)], lambda x: F.max_pool1d(x.unsqueeze(1), 2).squeeze(1).sum(1) * 0.5, (4096, 1024)
    ),
    "linear norm swish": Row(
        lambda: [nn.Linear(1024, 1024), nn.BatchNorm1d(1024)], lambda x: x * torch.sigmoid(x / 2.0), (4096, 1024)
    ),
    "linear norm residual": Row(lambda: [Residual(1024), Residual(1024)], _same, (4096, 1024)),
    "products of a batch": Row(lambda: [], lambda x: torch.relu(torch.bmm(x, x.mT)).mean(2), (128, 512, 128)),
    "products of a batch scale softmax": Row(lambda: [], lambda x: torch.softmax(torch.bmm(x, x.mT) * 0.1, 2), (128, 512, 128)),
}


def built(name: str, device: str) -> tuple[nn.Module, torch.Tensor]:
    """The program in evaluation, seeded, and an input."""
    torch.manual_seed(0)
    row = PROGRAMS[name]
    batch, *rest = row.sizes
    batch = batch if device == "cuda" else max(1, batch // SMALLER)
    return Program(row.layers(), row.then).to(device).eval(), torch.randn(batch, *rest, device=device)


def compiled(system: str, program: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """The program by the compiler of this name."""
    if system == "torch.compile":
        torch.compiler.reset()
        return torch.compile(program)  # type: ignore[no-any-return]
    tracework.reset()
    return tracework.compile(program, fullgraph=True)  # type: ignore[no-any-return]


def milliseconds(calls: Mapping[str, Callable[[], Any]], device: str, repeat: int) -> dict[str, float]:
    """Name -> median over rounds in which all take turns; each round calls often enough for 5 ms."""
    sync = torch.cuda.synchronize if device == "cuda" else lambda: None
    counts: dict[str, int] = {}
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeat + 1):
        for name, call in calls.items():
            count = counts.get(name, 1)
            sync()
            start = time.perf_counter()
            for _ in range(count):
                call()
            sync()
            spent = (time.perf_counter() - start) * 1e3 / count
            found[name].append(spent)
            if not turn:
                counts[name] = max(1, min(200, round(5 / max(spent, 1e-3))))
    return {name: statistics.median(times[1:]) for name, times in found.items()}


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The norm of the difference, over that of the exact result."""
    return float((found.double() - exact).norm() / exact.norm())


def measure(name: str, systems: Sequence[str], device: str, repeat: int) -> dict[str, Any]:
    """One line of the output."""
    program, x = built(name, device)
    with torch.no_grad():
        eager, exact = program(x), copy.deepcopy(program).double()(x.double())
        calls: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"eager": program}
        line: dict[str, Any] = {"program": name, "device": device, "errors": {"eager": error(eager, exact)}}
        for system in systems:
            calls[system] = call = compiled(system, program)
            result = call(x)
            line["errors"][system] = error(result, exact)
            line.setdefault("same strides", {})[system] = result.stride() == eager.stride()
        del exact
        times = milliseconds({key: lambda call=call: call(x) for key, call in calls.items()}, device, repeat)  # type: ignore[misc]
    line["ms"] = {key: round(ms, 4) for key, ms in times.items()}
    line["speed-up"] = {system: round(times["eager"] / times[system], 3) for system in systems}
    worse = [s for s in systems if line["errors"][s] > max(4 * line["errors"]["eager"], 1e-6)]
    return line | {"wrong": worse}


def summary(lines: Sequence[dict[str, Any]], systems: Sequence[str]) -> dict[str, Any]:
    """Geometric means of speed-ups, the programs slower than eager, and those in which the first system is behind the second."""

    def mean(values: Sequence[float]) -> float:
        return round(math.exp(statistics.fmean(map(math.log, values))), 3)

    speed = {s: [line["speed-up"][s] for line in lines] for s in systems}
    found: dict[str, Any] = {"programs": len(lines), "geomean": {s: mean(speed[s]) for s in systems}}
    found["below 0.98 of eager"] = {s: [line["program"] for line in lines if line["speed-up"][s] < 0.98] for s in systems}
    if len(systems) > 1:
        a, b = systems[:2]
        found[f"{a} over {b}"] = mean([x / y for x, y in zip(speed[a], speed[b], strict=True)])
        found[f"below 0.95 of {b}"] = {
            line["program"]: round(line["speed-up"][a] / line["speed-up"][b], 3)
            for line in lines
            if line["speed-up"][a] < 0.95 * line["speed-up"][b]
        }
    return found


def main() -> None:
    """Prints a line of JSON a program, and one about all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", default="", help="programs whose names hold one of these words, separated by commas")
    parser.add_argument("--systems", default="tracework,torch.compile", help="what is compared with eager, separated by commas")
    parser.add_argument("--repeat", type=int, default=9, help="rounds of which the median is taken")
    chosen = parser.parse_args()
    words, systems, lines = chosen.only.split(","), chosen.systems.split(","), []
    for name in PROGRAMS:
        if any(word in name for word in words):
            lines.append(measure(name, systems, chosen.device, chosen.repeat))
            print(json.dumps(lines[-1]), flush=True)
            gc.collect()
            if chosen.device == "cuda":
                torch.cuda.empty_cache()
    print(json.dumps(summary(lines, systems)), flush=True)


if __name__ == "__main__":
    main()

"""A million calls of compiled programs: what memory they leave behind, and what is left when a compiled program is deleted.

python integration_tests/endurance.py [--calls N] [--write]

Memory is counted after a warm-up and after the calls, with the garbage collected: Python's blocks and the resident set of the process.
--write puts the tables into integration_tests/ENDURANCE.md. The exit status is 1 when something grows or stays.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import tracework

TABLE = Path(__file__).parent / "ENDURANCE.md"
BLOCKS, RESIDENT = 500, 4 << 20  # less is no growth: caches of the interpreter and of malloc fill up
ONE_IN = 10  # a leak is a block for each call, or for each few of them
OURS = ("tracework", "torch.fx")


class Block(torch.nn.Module):
    """A layer with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) + x


class Broken(Block):
    """One with a graph break."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return y * y.sum().item() + torch.relu(y)


def counted(x: torch.Tensor, seen: dict[str, int]) -> torch.Tensor:
    seen["calls"] = seen.get("calls", 0) + 1
    return torch.relu(x) * 2


def shapes() -> Callable[[], None]:
    call = tracework.compile(lambda x: torch.relu(x) * x.shape[0])
    inputs = [torch.randn(2 + i, 4) for i in range(50)]
    position = 0

    def one() -> None:
        nonlocal position
        position = (position + 1) % len(inputs)
        call(inputs[position])

    return one


def inference(make: type[torch.nn.Module]) -> Callable[[], None]:
    call, x = tracework.compile(make().requires_grad_(False)), torch.randn(2, 4)
    return lambda: call(x)


def effects() -> Callable[[], None]:
    call, x, seen = tracework.compile(counted), torch.randn(2, 4), {}
    return lambda: call(x, seen)


def training(make: type[torch.nn.Module]) -> Callable[[], None]:
    model, x = make(), torch.randn(2, 4)
    call, optimizer = tracework.compile(model), torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        call(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


PROGRAMS: dict[str, tuple[Callable[[], Callable[[], None]], int]] = {
    "module": (lambda: inference(Block), 1),
    "module with a graph break": (lambda: inference(Broken), 4),
    "50 shapes": (shapes, 1),
    "side effects": (effects, 1),
    "training step": (lambda: training(Block), 40),
    "training step with a graph break": (lambda: training(Broken), 40),
}
"""Name -> (what makes a program that is called without arguments, its share of the calls is one in so many)."""


def resident() -> int:
    """Bytes of the process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def collected() -> tuple[int, int]:
    for _ in range(3):
        gc.collect()
    return sys.getallocatedblocks(), resident()


@contextlib.contextmanager
def of_new_objects() -> Iterator[None]:
    """Collections look at objects only that are made inside: those of torch and its peers are hundreds of thousands."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@of_new_objects()
def growth(make: Callable[[], Callable[[], None]], calls: int, warm_up: int = 2000) -> tuple[int, int, float]:
    """Blocks and bytes that `calls` calls leave behind, and microseconds a call."""
    one = make()
    for _ in range(warm_up):
        one()
    before = collected()
    started = time.perf_counter()
    for _ in range(calls):
        one()
    spent = (time.perf_counter() - started) / calls * 1e6
    after = collected()
    return after[0] - before[0], after[1] - before[1], spent


def population() -> Counter[str]:
    collected()
    kinds = (f"{type(o).__module__}.{type(o).__qualname__}" for o in gc.get_objects())
    return Counter(kind for kind in kinds if kind.startswith(OURS))


@of_new_objects()
def left_behind(make: Callable[[], Callable[[], None]]) -> Counter[str]:
    """Objects of ours that one more compiled program leaves when it is deleted."""
    for _ in range(2):  # what the process keeps anyway is there after the first
        before = population()
        one = make()
        for _ in range(60):
            one()
        del one
    return population() - before


def main() -> int:
    """Run, report, and write the table when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    rows, failed = [], []
    for name, (make, share) in PROGRAMS.items():
        calls = given.calls // share
        blocks, size, spent = growth(make, calls)
        left = left_behind(make)
        rows.append(f"| {name} | {calls:,} | {blocks} | {size // 1024} | {spent:.0f} | {describe(left)} |")
        print(rows[-1], flush=True)
        if blocks > max(BLOCKS, calls // ONE_IN) or size > RESIDENT or left:
            failed.append(name)
    if given.write:
        heading = "| program | calls | blocks more | KiB more | us a call | left when deleted |\n|---|---|---|---|---|---|\n"
        TABLE.write_text(f"{__doc__.splitlines()[0]}\n\n{heading}" + "\n".join(rows) + "\n")
    print("grows or stays: " + ", ".join(failed) if failed else "nothing grows, nothing stays")
    return 1 if failed else 0


def describe(left: Counter[Any]) -> str:
    return ", ".join(f"{count} {kind.rsplit('.', 1)[1]}" for kind, count in left.most_common(4)) or "nothing"


if __name__ == "__main__":
    sys.exit(main())

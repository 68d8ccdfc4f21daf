"""What a call of a compiled function costs before and after its kernels: eager, tracework and torch.compile in one run.

    python tools/run_in_tree.py python benchmarks/micro/dispatch.py [--blocks 12 48] [--skip torch.compile]

Each column is a fresh process with one thread. `a + 1` runs with each compiler's default backend. The rows of blocks (layer norm,
attention-shaped linears, MLP: 12 parameters each) run a backend whose graph gives a ready tensor back, so that the time is all dispatch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

COLUMNS = ("eager", "tracework", "torch.compile")


def microseconds(call: Callable[..., Any], *args: Any, calls: int, repeats: int = 9) -> float:
    """CPU time of the thread: the best of several means."""
    best = float("inf")
    for _ in range(repeats):
        started = time.thread_time()
        for _ in range(calls):
            call(*args)
        best = min(best, (time.thread_time() - started) / calls)
    return best * 1e6


def model(blocks: int, width: int = 8, around: int = 0) -> Any:
    """Transformer-like blocks with 12 parameters each, every one inside of so many modules more."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
            x = x + self.project(q + k + v)
            return x + self.down(torch.relu(self.up(self.norm2(x))))

    made = [Block() for _ in range(blocks)]
    for _ in range(around):
        made = [nn.Sequential(block) for block in made]
    return nn.Sequential(*made)


def ready(result: Any) -> Callable[..., Any]:
    """A backend whose graph costs nothing: it gives `result` back."""

    def backend(gm: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        def graph(*args: Any) -> tuple[Any, ...]:
            return (result,)

        return graph

    return backend


def compiler(column: str) -> Callable[..., Any]:
    """What makes a callable fast, or nothing."""
    import torch

    if column == "eager":
        return lambda fn, **arguments: fn
    if column == "torch.compile":
        return torch.compile
    import tracework

    return tracework.compile


def measure(column: str, blocks: Sequence[int]) -> dict[str, float]:
    """All rows of one column."""
    import torch

    torch.set_num_threads(1)
    compile_ = compiler(column)
    a = torch.randn(4)

    def plus(a: torch.Tensor) -> torch.Tensor:
        return a + 1

    rows = {}
    for mode, name in ((True, "a + 1"), (False, "a + 1, no_grad")):
        with torch.set_grad_enabled(mode):
            call = compile_(plus)
            for _ in range(10):
                call(a)
            rows[name] = microseconds(call, a, calls=20000)
    for count in blocks if column != "eager" else ():
        for around in (0, 4):
            net, x = model(count, around=around), torch.randn(2, 4, 8)
            call = compile_(net, backend=ready(x.clone().requires_grad_()))  # as what parameters give
            for _ in range(10):
                call(x)
            name = f"{count} blocks, {12 * count} parameters, {sum(1 for _ in net.modules())} modules"
            rows[name] = microseconds(call, x, calls=1000)
    return rows


def main() -> None:
    """Runs the columns and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, nargs="*", default=[1, 12, 48])
    parser.add_argument("--skip", nargs="*", default=[], choices=COLUMNS)
    parser.add_argument("--column", choices=COLUMNS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.column:
        print(json.dumps(measure(options.column, options.blocks)))
        return
    found: dict[str, dict[str, float]] = {}
    for column in [c for c in COLUMNS if c not in options.skip]:
        command = [sys.executable, __file__, "--column", column, "--blocks", *map(str, options.blocks)]
        done = subprocess.run(command, env=dict(os.environ, OMP_NUM_THREADS="1"), stdout=subprocess.PIPE, check=True, text=True)
        found[column] = json.loads(done.stdout.splitlines()[-1])
    print(f"{'microseconds a call':40}" + "".join(f"{column:>16}" for column in found))
    for row in dict.fromkeys(name for column in found.values() for name in column):
        values = (f"{column[row]:16.2f}" if row in column else f"{'-':>16}" for column in found.values())
        print(f"{row:40}" + "".join(values))


if __name__ == "__main__":
    main()

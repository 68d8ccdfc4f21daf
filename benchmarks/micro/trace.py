"""What capture costs: a 12-block GPT traced with a backend that gives the graph back, by tracework and by torch.compile in one run.

    python tools/run_in_tree.py python benchmarks/micro/trace.py [--blocks 12] [--repeats 5]

Each column is a fresh process with one thread. Times are CPU seconds of the thread, the best of several captures, each after a reset, so
that imports and first-use work of either compiler are left out; the first capture is a row of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

COLUMNS = ("tracework", "torch.compile")


def gpt(blocks: int, width: int = 64, heads: int = 4) -> Any:
    """A decoder with learnt positions, causal attention and a head."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, length, _ = x.shape
            q, k, v = (t.view(batch, length, heads, -1).transpose(1, 2) for t in self.qkv(x).split(width, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.project(y.transpose(1, 2).contiguous().view(batch, length, width))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2, self.attention = nn.LayerNorm(width), nn.LayerNorm(width), Attention()
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(100, width), nn.Embedding(64, width)
            self.blocks = nn.ModuleList(Block() for _ in range(blocks))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return GPT()


def measure(column: str, blocks: int, repeats: int) -> dict[str, float]:
    """Seconds of the first capture and of the best later one, and the number of nodes."""
    import torch

    torch.set_num_threads(1)
    graphs = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return lambda *args: (result,)

    if column == "torch.compile":
        compile_, reset = torch.compile, torch.compiler.reset
    else:
        import tracework

        compile_, reset = tracework.compile, tracework.reset
    model, tokens = gpt(blocks), torch.randint(0, 100, (2, 16))
    result = model(tokens)  # with a history, as a backend gives it
    seconds = []
    for _ in range(repeats + 1):
        reset()
        call = compile_(model, backend=backend)
        started = time.thread_time()
        call(tokens)
        seconds.append(time.thread_time() - started)
    nodes = sum(node.op in ("call_function", "call_method") for node in graphs[-1].graph.nodes)
    return {"first": seconds[0], "best": min(seconds[1:]), "nodes": nodes}


def main() -> None:
    """Runs the columns and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--column", choices=COLUMNS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.column:
        print(json.dumps(measure(options.column, options.blocks, options.repeats)))
        return
    for column in COLUMNS:
        command = [
            sys.executable,
            __file__,
            "--column",
            column,
            "--blocks",
            str(options.blocks),
            "--repeats",
            str(options.repeats),
        ]
        done = subprocess.run(command, env=dict(os.environ, OMP_NUM_THREADS="1"), stdout=subprocess.PIPE, check=True, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        print(f"{column:16} first {found['first']:7.3f} s   best {found['best']:7.3f} s   {found['nodes']:.0f} operations")


if __name__ == "__main__":
    main()

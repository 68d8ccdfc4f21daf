"""`tracework demo`: compiles a real model, shows progress, and prints eager against compiled."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from . import activity, api
from .dump import Tally
from .errors import InvalidArgument

ROUNDS = 15
DONE = {"captured": "capture"}
"""What an observer is told -> the stage."""


def build_model(device: str) -> tuple[Any, dict[str, torch.Tensor]]:
    """A GPT-2 of transformers with random weights: 4 layers of 256 on a CPU, the 12 of the real one on a GPU."""
    try:
        import transformers  # which only this extra has
    except ImportError as error:
        raise InvalidArgument("the demo needs transformers: pip install 'tracework[demo]'") from error
    large = device == "cuda"
    config = transformers.GPT2Config(
        n_layer=12 if large else 4,
        n_embd=768 if large else 256,
        n_head=12 if large else 4,
        vocab_size=50257 if large else 8192,
        bos_token_id=0,  # those of the real one lie outside of the small vocabulary
        eos_token_id=0,
        use_cache=False,
    )
    torch.manual_seed(0)
    model: Any = transformers.GPT2LMHeadModel(config)
    model = model.to(device).eval()
    return model, {"input_ids": torch.randint(0, config.vocab_size, (4, 128), device=device)}


def _timed(work: Callable[[], Any], device: str) -> tuple[float, Any]:
    started = time.perf_counter()
    result = work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started, result


def run_demo(device: str, console: Console) -> None:
    """Compiles the model on `device` and prints the table."""
    model, inputs = build_model(device)
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("compiling GPT-2 at its first call")
        tally = Tally(lambda stage, _: progress.update(task, description=f"done: {activity.STAGES[DONE.get(stage, stage)]}"))
        compiled = api.compile(model, observe=tally, options={"progress": False})
        with torch.no_grad():
            expected = model(**inputs).logits
            first, got = _timed(lambda: compiled(**inputs).logits, device)
        progress.update(task, description="compiled")
    pairs = []
    with torch.no_grad():
        for _ in range(ROUNDS):
            pairs.append((_timed(lambda: model(**inputs), device)[0], _timed(lambda: compiled(**inputs), device)[0]))
    plain, ours = (round(statistics.median(column) * 1e3, 2) for column in zip(*pairs, strict=True))  # as they are shown
    error = ((got - expected).norm() / expected.norm()).item()
    table = Table("what", "figure", title=f"GPT-2 ({len(model.transformer.h)} layers) on {device}")
    table.add_row("eager, a call", f"{plain:.2f} ms")
    table.add_row("compiled, a call", f"{ours:.2f} ms")
    table.add_row("speed-up", f"{plain / ours:.2f}")
    table.add_row("first call", f"{first:.2f} s")
    table.add_row("relative error", f"{error:.1e}")
    table.add_row("graphs", str(tally.graphs))
    table.add_row("kernels", str(tally.kernels))
    console.print(table)

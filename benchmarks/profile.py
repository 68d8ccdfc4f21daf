"""Where the time of one step goes, eager and compiled: `python -m benchmarks.profile gpt2 --device cuda --dtype bf16 --scale full`."""

from __future__ import annotations

from typing import Annotated, Any

import torch
import typer
from torch.profiler import ProfilerActivity, profile

from benchmarks.models import MODELS, MORE_MODELS, build
from benchmarks.worker import DTYPES, Step, compiler

STEPS = 3


def top_kernels(step: Any, device: str, rows: int) -> str:
    """The kernels (CUDA) or ops (CPU) that take the most time of their own, as text."""
    for _ in range(3):
        step()
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with profile(activities=activities) as found:
        for _ in range(STEPS):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
    key = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    events = [
        e for e in found.key_averages() if getattr(e, key) > 0 and (device == "cpu" or "cuda" in str(e.device_type).lower())
    ]
    events.sort(key=lambda e: -getattr(e, key))
    total = sum(getattr(e, key) for e in events)
    lines = [f"{total / STEPS / 1e3:.3f} ms a step in {sum(e.count for e in events) // STEPS} calls"]
    for event in events[:rows]:
        time = getattr(event, key)
        lines.append(f"  {time / STEPS / 1e3:8.3f} ms {100 * time / total:5.1f} % {event.count // STEPS:5} x {event.key[:100]}")
    return "\n".join(lines)


def main(
    name: Annotated[str, typer.Argument(help="a model of benchmarks/models.py")],
    device: str = "cpu",
    dtype: str = "fp32",
    scale: str = "small",
    training: bool = False,
    systems: str = "eager,tracework",
    rows: int = 15,
) -> None:
    """Prints the costliest kernels of each system."""
    if name not in (known := {**MODELS, **MORE_MODELS}):
        raise typer.BadParameter(f"unknown model {name!r}; known: {', '.join(known)}")
    for system in systems.split(","):
        model, inputs = build(name, scale, device, DTYPES[dtype], training)
        step = Step(compiler(system, None)(model), inputs, training)
        print(f"{name} {'train' if training else 'infer'} {system}: {top_kernels(step, device, rows)}", flush=True)


if __name__ == "__main__":
    typer.run(main)

"""One measurement in a fresh process: `python -m benchmarks.worker JSON`; prints one JSON line."""

from __future__ import annotations

import copy
import ctypes
import gc
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.models import build, output_tensor

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def compiler(system: str, mode: str | None) -> Callable[[Any], Any]:
    """The function that makes a module fast under `system`."""
    if system == "eager":
        return lambda module: module
    if system == "torch.compile":
        if mode == "freezing":  # an option there
            return lambda module: torch.compile(module, options={"freezing": True})
        return lambda module: torch.compile(module, mode=mode)
    import tracework

    warnings.simplefilter("error", tracework.UncompiledWarning)  # eager's speed is no figure of a compiler
    return lambda module: tracework.compile(module, mode=mode)


def _sync(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


@dataclass(frozen=True)
class Step:
    """One inference call, or one forward and backward (gradients are left in the parameters)."""

    model: Any
    inputs: dict[str, Any]
    training: bool

    def __call__(self) -> torch.Tensor:
        """The output."""
        if not self.training:
            with torch.no_grad():
                return output_tensor(self.model(**self.inputs))
        self.clear()
        out = output_tensor(self.model(**self.inputs))
        out.float().square().mean().backward()
        return out.detach()

    def clear(self) -> None:
        """Lets go of the gradients of the step before."""
        for p in self.model.parameters() if self.training else ():
            p.grad = None


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    """||got - expected|| / ||expected|| in float64."""
    got, expected = got.double(), expected.double()
    scale = expected.norm().item()
    return (got - expected).norm().item() / scale if scale else (got - expected).norm().item()


def gradient_error(model: Any, reference: Any) -> float:
    """The relative error of all gradients taken as one vector."""
    pairs = [(a.grad, b.grad) for a, b in zip(model.parameters(), reference.parameters(), strict=True) if b.grad is not None]
    missing = [1 for a, b in pairs if a is None]
    if missing:
        return float("nan")
    difference = sum((a.double() - b.double()).square().sum().item() for a, b in pairs)
    scale = sum(b.double().square().sum().item() for _, b in pairs)
    return (difference / scale) ** 0.5 if scale else difference**0.5


def distances_from_float64(
    job: dict[str, Any], inputs: dict[str, Any], compiled: tuple[Any, Any], eager: tuple[Any, Any]
) -> dict[str, float]:
    """How far the compiled and the eager (module, step) are from the eager module in float64: errors that are not each other's rounding.

    Code of a model that fixes float32 (norms, rotary tables) is exact to float32 only. It comes after the timed part, so that the float64
    module does not count in the peak of memory.
    """
    exact = copy.deepcopy(eager[0]).double()
    inputs = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
    expected = Step(exact, inputs, job["training"])()
    found = {}
    for name, (module, step) in (("", compiled), ("eager_", eager)):
        found[f"{name}float64_error"] = relative_error(step(), expected)
        if job["training"]:
            found[f"{name}float64_gradient_error"] = gradient_error(module, exact)
    return found


def timed(step: Callable[[], Any], device: str) -> float:
    """Seconds of one call, with the device drained before and after."""
    _sync(device)
    start = time.perf_counter()
    step()
    _sync(device)
    return time.perf_counter() - start


def peak_of(step: Step, device: str) -> int:
    """Peak bytes of one step: of the CUDA allocator, else how far the process's resident set grows above what it is before.

    What recorded CUDA graphs use while they are replayed is not among them: see replayed_bytes(). On a CPU weights are not, either, and the
    step's gradients are.
    """
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        step()
        _sync(device)
        return torch.cuda.max_memory_allocated()
    return min(_growth(step) for _ in range(CPU_STEPS))


CPU_STEPS = 3
"""Of which the smallest peak counts: what other threads allocate is in it, too."""


def _growth(step: Step) -> int:
    """How many bytes the resident set grows by at most: what is kept from earlier steps for the next is given back first."""
    step.clear()
    gc.collect()
    if "tracework_runtime.workspace" in sys.modules:
        sys.modules["tracework_runtime.workspace"].forget()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is what is resident now
    before = _resident("VmHWM")
    step()
    return _resident("VmHWM") - before


def _resident(name: str) -> int:
    """A field of the process's status that counts kilobytes, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def replayed_bytes(device: str) -> int:
    """What pools of recorded CUDA graphs hold beside tensors: the allocator takes it to be free, but replays write to it."""
    if device != "cuda":
        return 0
    parts = [part for part in torch.cuda.memory_snapshot() if tuple(part["segment_pool_id"]) != (0, 0)]
    return sum(part["total_size"] - part["allocated_size"] for part in parts)


def in_turns(steps: dict[str, Callable[[], Any]], device: str, seconds: float) -> dict[str, list[float]]:
    """Seconds of each step, in rounds in which all take turns: for about `seconds`, at least 7 rounds, so that a busy machine
    slows all."""
    found: dict[str, list[float]] = {way: [] for way in steps}
    deadline = time.perf_counter() + seconds
    rounds = 0
    while rounds < 7 or (time.perf_counter() < deadline and rounds < 200):
        rounds += 1
        for way, step in steps.items():
            found[way].append(timed(step, device))
    return found


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Runs one job (model, system, device, dtype, scale, training, mode, seconds) and gives its figures."""
    device, training, dtype = job["device"], job["training"], DTYPES[job["dtype"]]
    reference, inputs = build(job["model"], job["scale"], device, dtype, training)
    model = copy.deepcopy(reference)
    eager = Step(reference, inputs, training)
    expected = eager()
    result = dict(job)
    compiled = Step(compiler(job["system"], job["mode"])(model), inputs, training)
    _sync(device)
    started = time.perf_counter()
    got = compiled()
    _sync(device)
    result["first_call_s"] = time.perf_counter() - started
    result["error"] = relative_error(got, expected)
    if training:
        result["gradient_error"] = gradient_error(model, reference)
    if job["seconds"]:
        for _ in range(2):
            compiled(), eager()
        result["peak_bytes"], result["eager_peak_bytes"] = peak_of(compiled, device), peak_of(eager, device)
        result["peak_bytes"] += replayed_bytes(device)
        times = in_turns({"compiled": compiled, "eager": eager}, device, job["seconds"])
        ours, plain = times["compiled"], times["eager"]
        result["step_s"], result["eager_step_s"] = statistics.median(ours), statistics.median(plain)
        result["speedup"] = statistics.median(p / o for p, o in zip(plain, ours, strict=True))
        result |= distances_from_float64(job, inputs, (model, compiled), (reference, eager))
    return result


if __name__ == "__main__":
    print("\n" + json.dumps(measure(json.loads(sys.argv[1]))))

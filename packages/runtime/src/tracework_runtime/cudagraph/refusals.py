"""CUDAGRAPH_REFUSALS: when a compiled function is not recorded as one CUDA graph, and how to say so.

Each row looks at an artifact; what depends on a call's inputs is refused in record.py, with the same kind of text. Of what a row of
BETWEEN finds, partition.py makes parts that run between recorded ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tracework_runtime.artifact import Artifact
from tracework_runtime.cudagraph.facts import COLLECTIVE, UNSAFE, WAITS, why_unrecordable

__all__ = ["BETWEEN", "CPU_WORK", "CUDAGRAPH_REFUSALS", "places_of", "refusals"]

CPU_WORK = "cpu work"


def _devices(artifact: Artifact) -> list[str]:
    return sorted({name if ":" in name else f"{name}:0" for name in artifact.devices})


def _gpus(artifact: Artifact) -> list[str]:
    return [name for name in _devices(artifact) if name.startswith("cuda")]


def _on_cpu(artifact: Artifact) -> list[str]:
    """The kernels for the CPU, by what they compute."""
    kernels = [kernel.name for kernel in artifact.kernels if kernel.language == "cpp"]
    return places_of(artifact, kernels) or [name for name in _devices(artifact) if name.startswith("cpu")]


def _with(fact: str) -> Callable[[Artifact], list[str]]:
    def found(artifact: Artifact) -> list[str]:
        return places_of(artifact, sorted(name for name in artifact.externs if why_unrecordable(name) == fact))

    return found


def places_of(artifact: Artifact, names: Iterable[str]) -> list[str]:
    """Operators and kernels by the calls of the program, where these are known."""
    return [", ".join(artifact.places.get(name, ())) or name for name in names]


CUDAGRAPH_REFUSALS: dict[str, tuple[Callable[[Artifact], Sequence[str]], str]] = {
    "no gpu": (lambda artifact: () if _gpus(artifact) else _devices(artifact) or ("no device",), "nothing in it runs on a GPU"),
    "several gpus": (lambda artifact: _gpus(artifact) if len(_gpus(artifact)) > 1 else (), "it runs on more than one GPU"),
    CPU_WORK: (_on_cpu, "part of it runs on the CPU, which a recording would not repeat"),
    WAITS: (_with(WAITS), "the host waits in it for what the GPU computes"),
    COLLECTIVE: (_with(COLLECTIVE), "processes wait in it for each other"),
    UNSAFE: (_with(UNSAFE), "an operator in it says that it cannot be recorded (torch.Tag.cudagraph_unsafe)"),
}
"""Name -> what of an artifact speaks against a recording, and why."""

BETWEEN = (CPU_WORK, WAITS, COLLECTIVE, UNSAFE)
"""The rows that speak against some lines of a host program only."""


def refusals(artifact: Artifact, rows: Iterable[str] = tuple(CUDAGRAPH_REFUSALS)) -> tuple[str, ...]:
    """All reasons against a recording; none when it may be made."""
    found = [(name, CUDAGRAPH_REFUSALS[name][0](artifact), CUDAGRAPH_REFUSALS[name][1]) for name in rows]
    return (*artifact.graph_refusals, *(f"{name}: {text} ({'; '.join(what)})" for name, what, text in found if what))

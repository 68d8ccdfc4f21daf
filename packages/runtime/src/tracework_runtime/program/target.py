"""What a machine has to have to run a program's binaries."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from tracework_runtime import _torch, container
from tracework_runtime._version import __version__
from tracework_runtime.device import cpu, cuda

__all__ = ["facts_of_machine", "misfit"]

_INSTRUCTIONS = re.compile(
    r"(pni|ssse|sse|avx|amx|fma|bmi|f16c|aes|vaes|v?pclmul|sha_|gfni|popcnt|abm|movbe|adx|xop|tbm|asimd|sve|sme|fp|bf16|i8mm|dot)\w*"
)
"""Features of a CPU that compilers make use of."""


def facts_of_machine(devices: Iterable[str], capability: int | None = None) -> dict[str, Any]:
    """Of this machine, with these devices: the key parts of a program that is made here. capability: of other GPUs than this machine's."""
    kinds = {name.partition(":")[0] for name in devices}
    facts: dict[str, Any] = {
        "tracework": __version__,
        "format": container.FORMAT,
        "torch": _minor(_torch.release()),
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "instructions": sorted(name for name in cpu.features() if _INSTRUCTIONS.fullmatch(name)),
        "vector_bits": 8 * cpu.vector_bytes(),
        "devices": sorted(devices),
    }
    if "cuda" in kinds:
        facts["capability"] = cuda.capability() if capability is None else capability
    return facts


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def misfit(made_for: Mapping[str, Any]) -> tuple[str, str] | None:
    """Why what was made for another machine does not run on this one, and what to do; None where it does."""
    here = facts_of_machine(made_for["devices"])
    again = "make the file again on such a machine"
    for part, what, advice in (
        ("torch", "torch", f"install torch {made_for['torch']}, or make the file again with this one"),
        ("tracework", "version of tracework", f"install tracework {made_for['tracework']}, or make the file again"),
        ("format", "format of artifacts", "make the file again with this version"),
        ("system", "system", again),
        ("machine", "architecture", again),
    ):
        if made_for[part] != here[part]:
            return f"it was made for {what} {made_for[part]}, and this is {here[part]}", advice
    missing = [name for name in made_for["instructions"] if name not in here["instructions"]]
    if missing:
        return f"its kernels were built for a CPU with {', '.join(missing[:6])}, which this one has not", again
    if "capability" in made_for:
        if not torch.cuda.is_available():
            return "it was made for a GPU, and torch sees none here", "check torch.cuda.is_available()"
        if made_for["capability"] != here["capability"]:
            return f"its kernels were built for sm_{made_for['capability']}, and this GPU is sm_{here['capability']}", again
    return None

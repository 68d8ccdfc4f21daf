"""What is chosen between, as values: the problem, and the candidates that solve it, with what they cost.

All of it is JSON, so that what was measured on one machine is data on another.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Candidate", "Problem", "as_text", "bucket", "fingerprint", "report"]


def bucket(size: int) -> int:
    """What stands in a problem for a size that changes from call to call: the smallest power of two that is at least as large."""
    return 1 << max(0, size - 1).bit_length()


def as_text(facts: Any) -> str:
    """JSON values as text, the same for equal ones."""
    return json.dumps(facts, sort_keys=True, separators=(",", ":"))


def fingerprint(facts: Any) -> str:
    """A short digest of JSON values."""
    return hashlib.sha256(as_text(facts).encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a choice depends on; equal problems get equal answers, from one machine of a class to another.

    kind: a core, or the kind of a kernel ("pointwise", "persistent", "dot", ...).
    sizes: extents by the names of dimensions, in order: "x" and "y" lie in blocks, "r" is walked inside of them, others are batches. An extent
    that changes from call to call is a `bucket`.
    dtypes, layouts: of each operand, then of each result; a layout is the order of the strides and the bytes that rows are multiples of.
    prologue, epilogue: fingerprints of what is computed as operands are read, and from the results.
    device: `Device.name`. numerics: a word of NUMERICS.
    bytes, operations: that are moved, and done (a multiplication and an addition are two) at the speed of `unit`, a key of Device.rates;
    scalars: what is computed from a product's results, in additions. They follow from the rest, and are no part of the key.
    """

    kind: str
    sizes: tuple[tuple[str, int], ...]
    dtypes: tuple[str, ...]
    layouts: tuple[str, ...]
    device: str
    prologue: str = ""
    epilogue: str = ""
    numerics: str = "default"
    bytes: int = dataclasses.field(default=0, compare=False)
    operations: int = dataclasses.field(default=0, compare=False)
    unit: str = dataclasses.field(default="float32", compare=False)
    scalars: int = dataclasses.field(default=0, compare=False)

    def facts(self) -> dict[str, Any]:
        """The key as JSON values."""
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.compare}
        return {**found, "sizes": dict(self.sizes)}

    @functools.cached_property
    def key(self) -> str:
        """The key as text."""
        return as_text(self.facts())


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One way to solve a problem, and what it costs: the one cost record.

    way: "extern" for the library, else a core or the kind of a kernel.
    config: constants, num_warps, num_stages; empty for a way that has no choice of them.
    bits: candidates of one problem with equal words have equal results to the last bit.
    predicted_us, measured_us: of one run, everything that belongs to it included; None where nobody asked.
    reason: why it was taken, or why it cannot be.
    """

    way: str
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    bits: str = ""
    predicted_us: float | None = None
    measured_us: float | None = None
    reason: str = ""

    @property
    def identity(self) -> str:
        """Way and config as text."""
        return as_text([self.way, self.config])

    @property
    def constants(self) -> Mapping[str, int]:
        """Block sizes by name; none for the library."""
        return self.config.get("constants", {})

    def replace(self, **changes: Any) -> Candidate:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def record(self) -> dict[str, Any]:
        """As JSON values, without what is not known."""
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: value for name, value in found.items() if value not in (None, "", {})}

    @classmethod
    def from_record(cls, facts: Any) -> Candidate:
        """The candidate of a record. Raises ValueError for anything else."""
        if not isinstance(facts, dict) or not facts.keys() <= {f.name for f in dataclasses.fields(cls)}:
            raise ValueError("a candidate has fields that are not known")
        for name, value in facts.items():
            kind: Any = (int, float) if name.endswith("_us") else dict if name == "config" else str
            if not isinstance(value, kind) or isinstance(value, bool):
                raise ValueError(f"{name} is {value!r}")
        if "way" not in facts:
            raise ValueError("a candidate has no way")
        config = facts.get("config", {})
        constants = config.get("constants", {})
        numbers = [*(constants.values() if isinstance(constants, dict) else [None])]
        numbers += [value for name, value in config.items() if name != "constants"]
        if not config.keys() <= {"constants", "num_warps", "num_stages"} or any(type(n) is not int or n < 1 for n in numbers):
            raise ValueError(f"config is {config!r}")
        return cls(**facts)

    def text(self) -> str:
        """One line."""
        blocks = " ".join(f"{name}={value}" for name, value in self.constants.items())
        others = " ".join(f"{name.removeprefix('num_')}={value}" for name, value in self.config.items() if name != "constants")
        times = [
            f"{what} {us:.1f} us"
            for what, us in (("predicted", self.predicted_us), ("measured", self.measured_us))
            if us is not None
        ]
        return ", ".join(part for part in (" ".join(p for p in (self.way, blocks, others) if p), *times, self.reason) if part)


def report(candidates: Iterable[Candidate]) -> list[str]:
    """A line for each, the chosen one first."""
    return [("takes " if n == 0 else "  not ") + candidate.text() for n, candidate in enumerate(candidates)]

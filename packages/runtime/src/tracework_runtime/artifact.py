"""Artifact: what a compiled graph is made of, as text, numbers and facts only.

An Artifact can be stored, moved to another machine of the same kind and loaded there; `load.load` makes it
callable. Sizes that depend on symbols are Python expressions in text over the names of `symbols`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from tracework_runtime import container
from tracework_runtime.errors import ArtifactError
from tracework_runtime.host.lines import Line, lines_from_data, lines_to_data

__all__ = ["FORMAT", "Artifact", "KernelSource", "OutputRecipe", "SymbolBinding", "TensorCheck"]

FORMAT = container.FORMAT
LANGUAGES = ("cpp", "triton")
Extent = int | str
_EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class KernelSource:
    """One kernel.

    name: the name under which the host program calls it.
    language: "cpp" or "triton".
    source: the whole translation unit; kernels with equal source (and flags) are built once.
    signature: type of each argument in order: "*fp32" (pointer; any "*..."), "i32", "i64", "fp32", "fp64", "i1".
    launch: JSON facts. cpp: `entry` (C symbol, default: name), `flags` (extra compiler flags), `result` (default "void"),
      `matrices` (numbers of operands that are read whole, at the speed of memory).
      triton: `entries`, `grids`, `configs`, `device` (an index, where the graph's kernels are on several); see launch/triton.py.
    """

    name: str
    language: str
    source: str
    signature: tuple[str, ...] = ()
    launch: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _EMPTY)
    fingerprint: str = ""

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise ArtifactError(f"kernel {self.name}: language {self.language!r} is not one of {LANGUAGES}")
        object.__setattr__(self, "signature", tuple(self.signature))
        # Through JSON at once: what cannot be stored fails here, and a stored kernel equals the fresh one.
        object.__setattr__(self, "launch", MappingProxyType(json.loads(json.dumps(dict(self.launch)))))
        if not self.fingerprint:
            facts = [self.language, self.source, self.signature, dict(self.launch)]
            digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
            object.__setattr__(self, "fingerprint", digest)


@dataclasses.dataclass(frozen=True)
class TensorCheck:
    """What the graph was compiled for at one input; `alignment` in bytes is what kernels rely on (1: nothing)."""

    index: int
    name: str
    dtype: str
    device: str
    sizes: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    offset: Extent = 0
    alignment: int = 1


@dataclasses.dataclass(frozen=True)
class OutputRecipe:
    """How one output comes about: kind "buffer" (fresh memory), "input" (input `source` itself), "view" of
    input `source`, "size" (a number), "constant", or "none"."""

    kind: str
    dtype: str = ""
    sizes: tuple[Extent, ...] = ()
    strides: tuple[Extent, ...] = ()
    offset: Extent = 0
    source: int | str | None = None


@dataclasses.dataclass(frozen=True)
class SymbolBinding:
    """Where a symbol is read at run time: input `index` itself (kind "value"), or its "size" or "stride" at `dim`. of_data: it is a number
    that the program computes."""

    name: str
    kind: str
    index: int
    dim: int = 0
    of_data: bool = False


@dataclasses.dataclass(frozen=True)
class Artifact:
    """A compiled graph. `host_source` is a Python module that defines `call(args: list) -> tuple`; the names of
    kernels and constants are globals of that module when it is executed.

    host_lines: the same program as data, whose texts name globals of host_source; empty where host_source alone says what is done.

    externs: what else it calls, "aten::mm" or "prims::sort".
    conditions: relations over `symbols` and over the names of `inputs` that the graph was compiled for, as Python expressions.
    inputs: a name for each input; None where that is not known.
    places: of kernels and of `externs`, by name: "file:line in function operator" of each call of the program that they compute, and its
      numbers among the calls of the graph.
    notes: "fallbacks", "kernels", how many of the plan, "choices": kernel -> lines on the configs that it was chosen from, and what a report
      says of each kernel (inductor's codegen/steps.py).
    """

    key: str
    host_source: str
    kernels: tuple[KernelSource, ...] = ()
    constants: Mapping[str, torch.Tensor | bytes] = dataclasses.field(default_factory=lambda: _EMPTY)
    checks: tuple[TensorCheck, ...] = ()
    outputs: tuple[OutputRecipe, ...] = ()
    devices: frozenset[str] = frozenset()
    static_inputs: frozenset[int] = frozenset()
    mutated_inputs: frozenset[int] = frozenset()
    graph_refusals: tuple[str, ...] = ()
    externs: frozenset[str] = frozenset()
    symbols: tuple[SymbolBinding, ...] = ()
    conditions: tuple[str, ...] = ()
    inputs: tuple[str, ...] | None = None
    host_lines: tuple[Line, ...] = ()
    places: Mapping[str, Mapping[str, tuple[int, ...]]] = dataclasses.field(default_factory=lambda: _EMPTY)
    notes: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _EMPTY)
    format: int = FORMAT

    def __post_init__(self) -> None:
        for name in ("kernels", "host_lines", "checks", "outputs", "graph_refusals", "symbols", "conditions"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("devices", "static_inputs", "mutated_inputs", "externs"):
            object.__setattr__(self, name, frozenset(getattr(self, name)))
        for name in ("constants", "places", "notes"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def replace(self, **changes: Any) -> Artifact:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def placed(self, places: Sequence[str]) -> Artifact:
        """The same for an equal graph whose calls stand elsewhere; an empty text where that is not known."""
        moved: dict[str, dict[str, tuple[int, ...]]] = {}
        for name, known in self.places.items():
            now: dict[str, list[int]] = {}
            for number in sorted(n for numbers in known.values() for n in numbers):
                now.setdefault(places[number], []).append(number)
            moved[name] = {text: tuple(numbers) for text, numbers in now.items() if text}
        return self.replace(places=moved)

    def places_of(self, step: Mapping[str, Any]) -> list[str]:
        """Where the program asks for what a step of `notes` computes, each place once; of all kernels of its name where that is not known."""
        known = self._places_by_number
        found: dict[str, None] = {}
        for origin in step["origins"]:
            at = self.notes["origins"][origin]
            found.update(dict.fromkeys([at] if isinstance(at, str) else [known[n] for n in at if n in known]))
        return list(found) or list(self.places.get(step["key"], {}))

    @functools.cached_property
    def _places_by_number(self) -> dict[int, str]:
        return {n: text for known in self.places.values() for text, numbers in known.items() for n in numbers}

    def to_bytes(self) -> bytes:
        """The artifact as sealed bytes: JSON and binary sections, no pickles."""
        sections: dict[str, bytes] = {}
        header = {
            "key": self.key,
            "host": _section(sections, self.host_source),
            "host_lines": lines_to_data(self.host_lines),
            "kernels": [_kernel_out(k, sections) for k in self.kernels],
            "constants": {n: _constant_out(n, c, sections) for n, c in self.constants.items()},
            "checks": [dataclasses.asdict(c) for c in self.checks],
            "outputs": [dataclasses.asdict(o) for o in self.outputs],
            "devices": sorted(self.devices),
            "static_inputs": sorted(self.static_inputs),
            "mutated_inputs": sorted(self.mutated_inputs),
            "graph_refusals": list(self.graph_refusals),
            "externs": sorted(self.externs),
            "symbols": [dataclasses.asdict(s) for s in self.symbols],
            "conditions": list(self.conditions),
            "inputs": None if self.inputs is None else list(self.inputs),
            "places": {name: dict(known) for name, known in self.places.items()},
            "notes": dict(self.notes),
        }
        return container.pack(header, sections)

    @classmethod
    def from_bytes(cls, data: bytes) -> Artifact:
        """The artifact in `data`. Raises CacheCorrupt for damage, ArtifactError for another format."""
        header, sections = container.unpack(data, "artifact")
        try:
            return cls(
                key=header["key"],
                host_source=sections[header["host"]].decode(),
                host_lines=lines_from_data(header["host_lines"]),
                kernels=tuple(_kernel_in(k, sections) for k in header["kernels"]),
                constants={n: _constant_in(c, sections) for n, c in header["constants"].items()},
                checks=tuple(TensorCheck(**_tuples(c)) for c in header["checks"]),
                outputs=tuple(OutputRecipe(**_tuples(o)) for o in header["outputs"]),
                devices=frozenset(header["devices"]),
                static_inputs=frozenset(header["static_inputs"]),
                mutated_inputs=frozenset(header["mutated_inputs"]),
                graph_refusals=tuple(header["graph_refusals"]),
                externs=frozenset(header["externs"]),
                symbols=tuple(SymbolBinding(**s) for s in header["symbols"]),
                conditions=tuple(header["conditions"]),
                inputs=None if header["inputs"] is None else tuple(header["inputs"]),
                places={name: _tuples(known) for name, known in header["places"].items()},
                notes=header["notes"],
            )
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise ArtifactError(f"artifact with missing or unknown fields: {error!r}") from error

    def text(self) -> str:
        """Everything in the artifact for reading: facts, host program, kernels (equal sources once)."""
        lines = [f"# artifact {self.key}", f"# devices {sorted(self.devices)}"]
        lines += [f"# check {c}" for c in self.checks]
        lines += [f"# cudagraph refused: {r}" for r in self.graph_refusals]
        lines += [self.host_source]
        sources: dict[str, list[str]] = {}
        for kernel in self.kernels:
            head = sources.setdefault(kernel.source, [])
            head.append(f"# kernel {kernel.name} ({kernel.language}) {' '.join(kernel.signature)}")
            known = next((step for step in self.notes.get("steps", ()) if step["name"] == kernel.name), None)
            head += [f"#   bytes {known['bytes']}, flops {known['flops']}"] if known else []
            head += [f"#   from {place}" for place in self.places.get(kernel.name, ())]
            head += [f"#   {line}" for line in self.notes.get("choices", {}).get(kernel.name, ())]
        for source, head in sources.items():
            lines += [*head, source]
        return "\n".join(lines) + "\n"


def _section(sections: dict[str, bytes], text: str) -> str:
    blob = text.encode()
    name = "t" + hashlib.sha256(blob).hexdigest()[:24]
    sections[name] = blob
    return name


def _kernel_out(kernel: KernelSource, sections: dict[str, bytes]) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "language": kernel.language,
        "source": _section(sections, kernel.source),
        "signature": list(kernel.signature),
        "launch": dict(kernel.launch),
        "fingerprint": kernel.fingerprint,
    }


def _kernel_in(fields: dict[str, Any], sections: dict[str, bytes]) -> KernelSource:
    return KernelSource(**{**_tuples(fields), "source": sections[fields["source"]].decode()})


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}


def _constant_out(name: str, value: torch.Tensor | bytes, sections: dict[str, bytes]) -> dict[str, Any]:
    if isinstance(value, bytes):
        sections["c" + name] = value
        return {"kind": "bytes", "section": "c" + name}
    flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    sections["c" + name] = flat.numpy().tobytes()
    return {
        "kind": "tensor",
        "section": "c" + name,
        "dtype": str(value.dtype).removeprefix("torch."),
        "device": str(value.device),
        "sizes": list(value.shape),
        "strides": list(value.stride()),
    }


def _constant_in(fields: dict[str, Any], sections: dict[str, bytes]) -> torch.Tensor | bytes:
    blob = sections[fields["section"]]
    if fields["kind"] == "bytes":
        return blob
    dtype = getattr(torch, fields["dtype"])
    flat = torch.frombuffer(bytearray(blob), dtype=dtype) if blob else torch.empty(0, dtype=dtype)
    dense = flat.reshape(fields["sizes"])
    out = torch.empty_strided(fields["sizes"], fields["strides"], dtype=dtype, device=fields["device"])
    return out.copy_(dense)

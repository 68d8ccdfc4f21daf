"""Options of the runtime: one frozen value, passed down, fingerprinted.

Every field says in its metadata whether it can change generated code (`changes_code`);
only those enter `fingerprint()` and so the cache key.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from . import _torch

__all__ = ["DEFAULT_OPTIONS", "RuntimeOptions", "Settings"]


def _option(default: Any, *, changes_code: bool, doc: str) -> Any:
    return dataclasses.field(default=default, metadata={"changes_code": changes_code, "doc": doc})


@dataclasses.dataclass(frozen=True)
class RuntimeOptions:
    """How artifacts are built, stored and launched."""

    cxx: str | None = _option(None, changes_code=True, doc="C++ compiler command; None looks for one")
    cxx_flags: tuple[str, ...] = _option((), changes_code=True, doc="flags after the built-in ones")
    cxx_timeout: float = _option(600.0, changes_code=False, doc="seconds before a compile is given up")
    build_jobs: int | None = _option(None, changes_code=False, doc="compiles at one time; None: cores")
    triton_workers: int | None = _option(None, changes_code=False, doc="warm Triton processes; None: cores, at most 16")
    cache_dir: str | None = _option(None, changes_code=False, doc="cache folder; None: the user's cache folder")
    cache_key: str | None = _option(None, changes_code=False, doc="file of the key that seals entries; None: the user's own")
    cache_layers: tuple[str, ...] = _option(
        (), changes_code=False, doc="cache folders that are only read, where the own has nothing"
    )
    cache_shared: str | None = _option(
        None, changes_code=False, doc="folder, or address of a file system of fsspec, that machines share; it takes a cache_key"
    )
    disk_cache: bool = _option(True, changes_code=False, doc="store on disk what was built")
    cache_limit: int = _option(8 << 30, changes_code=False, doc="bytes kept before the oldest entries go")
    cudagraph_warmup: int = _option(
        1, changes_code=False, doc="plain runs of a size before it is recorded; one more for the first size"
    )
    cudagraph_memory_share: float = _option(0.1, changes_code=False, doc="part of a device's memory that recordings may keep")
    cudagraph_capture_sizes: tuple[int | tuple[int, ...], ...] | None = _option(
        None, changes_code=False, doc="sizes that are recorded; None: each at its second use"
    )
    cudagraph_policy: Callable[[Any], Any] | None = _option(
        None, changes_code=False, doc="CompiledFn -> True to record it, False not to, or what is called in its place"
    )
    graph_partition: bool = _option(True, changes_code=False, doc="record the parts of what cannot be recorded as a whole")
    cudagraph_or_error: bool = _option(False, changes_code=False, doc="raise NotRecorded instead of running kernel by kernel")
    check_operators: str = _option(
        "warn",
        changes_code=False,
        doc="what follows where a first call finds out that an operator breaks its schema: off, warn, raise",
    )

    def fingerprint(self) -> str:
        """A hash of the fields that can change generated code."""
        facts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.metadata["changes_code"]}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def replace(self, **changes: Any) -> RuntimeOptions:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)


DEFAULT_OPTIONS = RuntimeOptions()


class Settings(NamedTuple):
    """Settings of torch that choose kernels of the compiler; others are looked at by torch's kernels when they run. Fields of InductorOptions."""

    deterministic: bool
    packs: bool
    half_accumulation: bool

    @classmethod
    def now(cls) -> Settings:
        """As they are set."""
        return cls(torch.are_deterministic_algorithms_enabled(), _torch.mkldnn_enabled(), _torch.half_accumulation())

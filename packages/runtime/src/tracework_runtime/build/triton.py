"""Triton source to cubins: one request per function, config and variant; stored by content.

A variant says what the compiler may rely on: pointers divisible by 16 (`aligned`), and whether sizes and indices
are 64 bits wide (`wide`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from tracework_runtime import container, observe
from tracework_runtime.artifact import KernelSource
from tracework_runtime.build.pool import triton_pool
from tracework_runtime.cache.ranks import shared
from tracework_runtime.cache.store import Entries
from tracework_runtime.errors import ArtifactError, BuildError, CacheCorrupt
from tracework_runtime.options import RuntimeOptions

log = logging.getLogger("tracework.runtime.cache")
__all__ = ["Cubin", "Variant", "build_all", "build_each", "request"]


@dataclasses.dataclass(frozen=True)
class Variant:
    """What a compiled kernel relies on."""

    aligned: bool = True
    wide: bool = False


@dataclasses.dataclass(frozen=True)
class Cubin:
    """One compiled function: the binary and what a launch needs."""

    code: bytes
    symbol: str
    shared: int
    num_warps: int
    params: int
    scratch: int = 0
    """Bytes of device memory that each block has for itself, such as for descriptors of tensors; the first parameter behind those that
    the kernel knows points to that of all blocks."""
    scratch_alignment: int = 1


def request(kernel: KernelSource, entry: str, config: Mapping[str, Any], variant: Variant, capability: int) -> dict[str, Any]:
    """The request for one function of a kernel; all but `symbol`, what it is to be called, is its content address."""
    pointers = [(f"p{n}", t) for n, t in enumerate(kernel.signature) if t.startswith("*")]
    numbers = [t for t in kernel.signature if not t.startswith("*")]
    sizes = [(f"ks{n}", _number(t, variant)) for n, t in enumerate(numbers)]
    workspace = [(f"ws{n}", WORKSPACE_TYPES[w["dtype"]]) for n, w in enumerate(kernel.launch.get("workspace", ()))]
    aligned = [name for name, _ in pointers] if variant.aligned else []
    by_alignment = kernel.launch.get("by_alignment", False)
    return {
        "source": kernel.source,
        "entry": entry,
        "symbol": kernel.name + entry.removeprefix(kernel.launch["entries"][0]),
        "arguments": [*pointers, *sizes, *workspace],
        "constants": {**config["constants"], "WIDE": variant.wide, **({"ALIGNED": variant.aligned} if by_alignment else {})},
        "aligned": aligned + [name for name, _ in workspace],
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
        "capability": capability,
        "fp_fusion": kernel.launch.get("fp_fusion", True),
        "checks": kernel.launch.get("checks", False),
    }


WORKSPACE_TYPES = {
    "float32": "*fp32",
    "float64": "*fp64",
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "int64": "*i64",
    "int32": "*i32",
    "int16": "*i16",
    "int8": "*i8",
    "uint8": "*u8",
    "bool": "*i1",
}


def _number(text: str, variant: Variant) -> str:
    return "i32" if text == "i64" and not variant.wide else text


def content_key(job: Mapping[str, Any]) -> str:
    """What a request's product is kept under."""
    return key_of(fingerprint(job))


def fingerprint(job: Mapping[str, Any]) -> str:
    """What a request asks for, whichever Triton compiles it."""
    facts = {name: fact for name, fact in job.items() if name != "symbol"}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def key_of(request: str) -> str:
    """What the product of a request with this fingerprint is kept under."""
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        version = "absent"
    return hashlib.sha256(f"{request} {version}".encode()).hexdigest()


def build_all(jobs: Sequence[dict[str, Any]], options: RuntimeOptions, store: Entries, *, anew: bool = False) -> list[Cubin]:
    """The cubin of each request, compiling what the store does not have; all of them where `anew`.

    Raises BuildError with the end of Triton's complaint.
    """
    found = build_each(jobs, options, store, anew=anew)
    for one in found:
        if isinstance(one, BuildError):
            raise one
    return [one for one in found if isinstance(one, Cubin)]


def build_each(
    jobs: Sequence[dict[str, Any]], options: RuntimeOptions, store: Entries, *, anew: bool = False
) -> list[Cubin | BuildError]:
    """The same, with the error of each that Triton cannot compile in its place. Raises BuildError where a process dies."""
    keys = [content_key(job) for job in jobs]
    found: dict[str, Cubin | BuildError | None] = {key: None if anew else _stored(key, store) for key in keys}
    missing = {key: job for key, job in zip(keys, jobs, strict=True) if found[key] is None}

    def make(mine: list[str]) -> Mapping[str, bytes]:
        with observe.timed("build.triton"):
            observe.add("build.triton.kernels", len(mine))
            answers = triton_pool(options.triton_workers).build([missing[key] for key in mine])
        for key, (facts, code) in zip(mine, answers, strict=True):
            found[key] = _accept(key, missing[key], facts, code, store)
        return {key: _packed(key, cubin) for key in mine if isinstance(cubin := found[key], Cubin)}

    def take(key: str, content: bytes | None) -> bool:
        found[key] = _stored(key, store)  # of a folder that ranks share
        if found[key] is None and content is not None:
            store.put("triton", key, content, ".cubin")
            found[key] = _unpacked(key, content)
        return found[key] is not None

    if anew:
        make([*missing])
    elif missing:
        shared(options.cache_key, "triton", [*missing], make, take)
    return [one for key in keys if (one := found[key]) is not None]


def _accept(key: str, job: Mapping[str, Any], facts: dict[str, Any], code: bytes, store: Entries) -> Cubin | BuildError:
    if not facts.pop("ok"):
        complaint = facts["error"].strip().splitlines()
        return BuildError(
            f"Triton cannot compile {job['entry']!r} for sm_{job['capability']}",
            excerpt="\n".join(complaint[-30:]),
            advice="report this kernel with its source",
        )
    cubin = Cubin(code, **facts)
    store.put("triton", key, _packed(key, cubin), ".cubin")
    return cubin


def _packed(key: str, cubin: Cubin) -> bytes:
    facts = {name: fact for name, fact in vars(cubin).items() if name != "code"}
    return container.pack({"key": key, **facts}, {"cubin": cubin.code})


def _stored(key: str, store: Entries) -> Cubin | None:
    data = store.get("triton", key, ".cubin")
    cubin = None if data is None else _unpacked(key, data)
    if data is not None and cubin is None:
        log.warning("stored cubin %s cannot be used; it is made again", key[:12])
        store.drop("triton", key, ".cubin")
    return cubin


def _unpacked(key: str, data: bytes) -> Cubin | None:
    try:
        facts, sections = container.unpack(data, "cubin")
        if facts.pop("key") != key:
            raise CacheCorrupt("a cubin of another request")
        return Cubin(sections["cubin"], **facts)
    except (ArtifactError, CacheCorrupt, KeyError, TypeError):
        return None

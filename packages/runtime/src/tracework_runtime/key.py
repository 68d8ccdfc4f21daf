"""KEY_PARTS: everything that can change generated code, in one ordered list.

A part that is forgotten here means a wrong result from the cache; a part too many means a rebuild. The graph's and
the options' fingerprints are given by the caller, the rest is looked up here.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Iterator

import torch

from tracework_runtime import container
from tracework_runtime.build import cpp
from tracework_runtime.cache.memory import open_store
from tracework_runtime.device import DEVICES
from tracework_runtime.errors import BuildError
from tracework_runtime.options import DEFAULT_OPTIONS, RuntimeOptions

__all__ = ["KEY_PARTS", "KeyFacts", "cache_key", "explain_key", "package_digest"]

# The packages whose code decides what a graph compiles to.
PACKAGES = ("tracework_primops", "tracework_aotautograd", "tracework_inductor", "tracework_runtime")


@dataclasses.dataclass(frozen=True)
class KeyFacts:
    """What the caller knows: the fingerprint of the graph (with its input specs), the fingerprint of the
    compiler's options, the runtime's options, and the types of device the graph runs on."""

    graph: str
    options: str = ""
    runtime: RuntimeOptions = DEFAULT_OPTIONS
    devices: frozenset[str] = frozenset({"cpu"})
    extra: tuple[str, ...] = ()


@functools.cache
def package_digest(name: str, runtime: RuntimeOptions = DEFAULT_OPTIONS) -> str:
    """Content hash of what decides about code in a package, sources and tuning books: also right while somebody edits them.

    The store of these options has it by what the folders say of the files, so that a process need not read them all.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return "absent"
    root = next(iter(spec.submodule_search_locations))
    found = sorted(_files(root))
    seen = [(path, facts.st_size, facts.st_mtime_ns, facts.st_ino) for path, facts in found]
    store, key = open_store(runtime), hashlib.sha256(repr(seen).encode()).hexdigest()
    known = store.get("package", key)
    if known is not None:
        return known.decode()
    digest = hashlib.sha256()
    for path, _ in found:
        with open(path, "rb", buffering=0) as file:
            digest.update(path[len(root) :].encode() + b"\0" + file.read())
    store.put("package", key, digest.hexdigest().encode())
    return digest.hexdigest()


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every process walks some 400 files, which takes twice as long with pathlib."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif entry.name.endswith((".py", ".h", ".cpp", ".jsonl")):
                yield entry.path, entry.stat()


@functools.cache
def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _compiler(facts: KeyFacts) -> str:
    try:
        compiler = cpp.compiler_for(facts.runtime, open_store(facts.runtime))
    except BuildError:
        return "none"
    return " ".join((compiler.identity, *cpp.BASE_FLAGS, *compiler.openmp[:1]))


def _devices(facts: KeyFacts) -> str:
    kinds = sorted({name.partition(":")[0] for name in facts.devices} & set(DEVICES))
    return "; ".join(f"{kind} {DEVICES[kind].identity()}" for kind in kinds)


KEY_PARTS: tuple[tuple[str, Callable[[KeyFacts], str]], ...] = (
    ("format", lambda facts: str(container.FORMAT)),
    ("graph", lambda facts: facts.graph),
    ("options", lambda facts: facts.options),
    ("runtime options", lambda facts: facts.runtime.fingerprint()),
    ("extra", lambda facts: "\0".join(facts.extra)),
    ("packages", lambda facts: " ".join(package_digest(name, facts.runtime) for name in PACKAGES)),
    ("python", lambda facts: f"{sys.implementation.cache_tag} {platform.machine()}"),
    ("torch", lambda facts: f"{torch.__version__} {torch.version.cuda}"),
    ("triton", lambda facts: _version("triton")),
    ("compiler", _compiler),
    # Always there, for graphs of a GPU have host kernels too.
    ("cpu", lambda facts: DEVICES["cpu"].identity()),
    ("devices", _devices),
)


def explain_key(facts: KeyFacts) -> dict[str, str]:
    """Each part of the key by name, to find out why an entry was not found."""
    return {name: part(facts) for name, part in KEY_PARTS}


def cache_key(facts: KeyFacts) -> str:
    """The key of an artifact."""
    digest = hashlib.sha256()
    for name, text in explain_key(facts).items():
        digest.update(f"{name}={len(text)}:{text}\n".encode())
    return digest.hexdigest()

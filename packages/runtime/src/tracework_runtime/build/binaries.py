"""Binaries: what the kernels of an artifact were built to, to be carried with it to where nothing is built."""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tracework_runtime import container
from tracework_runtime.artifact import Artifact, KernelSource
from tracework_runtime.build import cpp, triton
from tracework_runtime.build.cpp import CppJob, Product
from tracework_runtime.cache.memory import open_store
from tracework_runtime.cache.store import MemoryStore
from tracework_runtime.device import cuda
from tracework_runtime.device.driver import driver
from tracework_runtime.errors import ArtifactError, CacheCorrupt, LoadError
from tracework_runtime.options import RuntimeOptions

__all__ = ["Binaries"]


class Binaries(MemoryStore):
    """The store of an artifact whose kernels are built."""

    def __init__(self) -> None:
        super().__init__()
        self._libraries: dict[str, Product] = {}
        self._cubins: dict[str, bytes] = {}

    @classmethod
    def of(cls, artifacts: Sequence[Artifact], options: RuntimeOptions, capability: int | None = None) -> Binaries:
        """Those of artifacts that are loaded here; what is missing is built. capability: of other GPUs, one of cuda.MOST_SHARED."""
        made = cls()
        for artifact in artifacts:
            made._add(artifact, options, capability)
        return made

    def _add(self, artifact: Artifact, options: RuntimeOptions, capability: int | None) -> None:
        store = open_store(options)
        jobs = list(dict.fromkeys(job_of(k) for k in artifact.kernels if k.language == "cpp"))
        for job, product in zip(jobs, cpp.build_all(jobs, options, store), strict=True):
            self._libraries[_digest(job)] = product
        for kernel in artifact.kernels:
            if kernel.language == "triton":
                self._add_triton(kernel, options, capability)

    def _add_triton(self, kernel: KernelSource, options: RuntimeOptions, capability: int | None) -> None:
        """All that launches of a kernel may ask for on this device, or on others of a capability."""
        device, config = kernel.launch.get("device", 0), kernel.launch["configs"][0]
        wide = (False, True) if kernel.launch.get("fits32") is not None else (False,)
        if capability is not None:
            room: int | None = cuda.MOST_SHARED[capability]
        else:
            capability, room = cuda.capability(device), driver().most_shared(device) if torch.cuda.is_available() else None
        forms = itertools.product(kernel.launch["entries"], (True, False), wide)
        left = [(entry, triton.Variant(aligned, is_wide), config["num_stages"]) for entry, aligned, is_wide in forms]
        while left:
            jobs = [
                triton.request(kernel, entry, {**config, "num_stages": stages}, variant, capability)
                for entry, variant, stages in left
            ]
            cubins = triton.build_all(jobs, options, open_store(options))
            for job, cubin in zip(jobs, cubins, strict=True):
                facts = {name: fact for name, fact in vars(cubin).items() if name != "code"}
                self._put_cubin(triton.fingerprint(job), facts, cubin.code)
            # as launches do, which then take fewer steps under way
            too_large = [room is not None and cubin.shared > room for cubin in cubins]
            left = [(e, v, stages - 1) for (e, v, stages), is_large in zip(left, too_large) if is_large and stages > 1]

    def _put_cubin(self, request: str, facts: Mapping[str, Any], code: bytes) -> None:
        key = triton.key_of(request)
        self._cubins[request] = container.pack({"request": request, **facts}, {"cubin": code})
        self.put("triton", key, container.pack({"key": key, **facts}, {"cubin": code}), ".cubin")

    def library(self, job: CppJob) -> Product:
        """The shared object of a job. Raises LoadError where it is not carried."""
        found = self._libraries.get(_digest(job))
        if found is None:
            raise LoadError("the shared object of a kernel is not among what was carried", advice="make the file again")
        return found

    def get(self, kind: str, key: str, suffix: str = "") -> bytes | None:
        """The content of an entry. Raises LoadError for a kernel of a GPU that is not carried where Triton cannot make it."""
        found = super().get(kind, key, suffix)
        if found is None and kind == "triton" and importlib.util.find_spec("triton") is None:
            raise LoadError(
                "a kernel is needed in a form that was not carried, and there is no Triton to make it",
                advice="make the file again on a GPU of this kind, or install triton",
            )
        return found

    def members(self) -> dict[str, bytes]:
        """All as named bytes, which `from_members` reads."""
        libraries = {
            f"cpp/{digest}.so": container.pack({"symbol": p.symbol, "compiler": p.compiler}, {"so": p.content})
            for digest, p in self._libraries.items()
        }
        return {**libraries, **{f"triton/{request}.cubin": data for request, data in self._cubins.items()}}

    @classmethod
    def from_members(cls, members: Mapping[str, bytes]) -> Binaries:
        """Raises ArtifactError for what `members` did not give."""
        made = cls()
        try:
            for name, data in members.items():
                facts, sections = container.unpack(data, name)
                kind, _, file = name.partition("/")
                if kind == "cpp":
                    product = Product(facts["symbol"], sections["so"], None, facts["compiler"])
                    made._libraries[file.removesuffix(".so")] = product
                else:
                    made._put_cubin(facts.pop("request"), facts, sections["cubin"])
        except (CacheCorrupt, KeyError, TypeError) as error:
            raise ArtifactError(f"a carried binary cannot be read: {error}") from error
        return made


def job_of(kernel: KernelSource) -> CppJob:
    """The translation unit of a kernel for the CPU."""
    return CppJob(kernel.source, tuple(kernel.launch.get("flags", ())))


def _digest(job: CppJob) -> str:
    return hashlib.sha256("\0".join([job.source, *job.flags]).encode()).hexdigest()

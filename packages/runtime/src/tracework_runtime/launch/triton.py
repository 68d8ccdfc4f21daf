"""Triton kernels as Python callables: our own launcher through the CUDA driver.

A kernel is called with tensors and then its sizes. A call is csrc/launcher.c's: the tensors' addresses, one check that all are divisible
by 16 (else a variant that does not rely on it), one comparison with the sizes of the call before, one driver call for each stage. What can
be known before is a `Plan` per (sizes, variant), which is made and looked up here.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tracework_runtime import _torch, observe
from tracework_runtime._C import Launcher, Plan, set_data_ptr
from tracework_runtime.artifact import KernelSource
from tracework_runtime.build import triton as build
from tracework_runtime.build.triton import Cubin, Variant
from tracework_runtime.cache.store import Entries
from tracework_runtime.device import cuda
from tracework_runtime.device.driver import NO_CONTEXT, OTHER_CONTEXT
from tracework_runtime.errors import LaunchError
from tracework_runtime.options import RuntimeOptions

__all__ = ["TritonKernel"]

log = logging.getLogger("tracework.runtime.launch")
_FORMATS = {"i64": "q", "i32": "i", "fp32": "f", "fp64": "d", "i1": "?"}
_SCRATCH_ALIGNMENT = 128
_SHARED_ANYWHERE = 48 << 10
"""Bytes of shared memory that a block may take on each device."""
set_data_ptr(torch.Tensor.data_ptr)


@functools.lru_cache(4096)
def _code(expression: str) -> Any:
    """An expression over sizes as code: reading its text takes much longer than computing it."""
    return compile(expression, "<launch>", "eval")


def _whole(size: int) -> int:
    """The bytes up to where the next array may begin."""
    return -(-size // _SCRATCH_ALIGNMENT) * _SCRATCH_ALIGNMENT


class TritonKernel:
    """A kernel bound to a device. Call with tensors, then sizes."""

    def __init__(
        self, kernel: KernelSource, options: RuntimeOptions, store: Entries, device: int, driver: Any, capability: int
    ) -> None:
        self.kernel, self.options, self.store = kernel, options, store
        self.device, self.driver, self.capability = device, driver, capability
        self.tensor_device = torch.device("cuda", device)
        self.launch_facts = kernel.launch
        self.config: Mapping[str, Any] = kernel.launch["configs"][0]
        self.plans: dict[tuple[Any, ...], Plan] = {}
        self._functions: dict[tuple[str, Variant], tuple[int, Cubin]] = {}
        signature = kernel.signature
        tensors = sum(t.startswith("*") for t in signature)
        self.numbers = "".join(_FORMATS[t] for t in signature if not t.startswith("*"))
        given = "".join("d" if t in "fd" else "q" for t in self.numbers)
        self.call = Launcher(tensors, given, self.find, self.failed, driver.current_stream, device)

    # before the first launch

    def requests(self) -> list[dict[str, Any]]:
        """What to compile before the first launch."""
        entries = self.launch_facts["entries"]
        return [build.request(self.kernel, entry, self.config, Variant(), self.capability) for entry in entries]

    def _function(self, entry: str, variant: Variant) -> tuple[int, Cubin]:
        key = (entry, variant)
        found = self._functions.get(key)
        if found is None:
            job, cubin = self._fitting(entry, variant)
            try:
                handle = self.driver.load(cubin.code, cubin.symbol, cubin.shared, self.device)
            except LaunchError as error:
                log.warning("kernel %s cannot be loaded and is built again: %s", self.kernel.name, error.message)
                (cubin,) = build.build_all([job], self.options, self.store, anew=True)
                handle = self.driver.load(cubin.code, cubin.symbol, cubin.shared, self.device)
            found = self._functions[key] = (handle, cubin)
        return found

    def _fitting(self, entry: str, variant: Variant) -> tuple[dict[str, Any], Cubin]:
        """The function, with fewer steps under way where shared memory of this device is too small for all that the configuration has: it was
        chosen for larger ones."""
        for stages in range(self.config["num_stages"], 0, -1):
            job = build.request(self.kernel, entry, {**self.config, "num_stages": stages}, variant, self.capability)
            (cubin,) = build.build_all([job], self.options, self.store)
            if cubin.shared <= _SHARED_ANYWHERE or cubin.shared <= self.driver.most_shared(self.device):
                break
        return job, cubin

    def plan(self, sizes: tuple[Any, ...], aligned: bool) -> Plan:
        """The plan for these sizes; made at first need."""
        key = (sizes, aligned)
        found = self.plans.get(key)
        if found is None:
            found = self.plans[key] = self._plan(sizes, aligned)
        return found

    def _plan(self, sizes: tuple[Any, ...], aligned: bool) -> Plan:
        facts = self.launch_facts
        names: dict[str, Any] = {f"ks{n}": s for n, s in enumerate(sizes)}
        fits = facts.get("fits32")
        variant = Variant(aligned, wide=fits is not None and not eval(_code(fits), {}, names))
        values = {**names, **self.config["constants"]}
        blocks = [int(eval(_code(grid), {}, values)) for grid in facts["grids"]]
        scratch, end = [], 0
        for w in facts.get("workspace", ()):
            scratch.append(end)
            end += _whole(int(eval(_code(w["elements"]), {}, names)) * getattr(torch, w["dtype"]).itemsize)
        stages = []
        for entry, count in zip(facts["entries"], blocks, strict=True):
            if count:  # a function without blocks for these sizes is not even built
                stage, own = self._stage(entry, variant, count)
                stages.append((*stage, end if own else -1))
                end += _whole(own)
        numbers = self.numbers if variant.wide else self.numbers.replace("q", "i")
        return Plan(self.driver.launch_address, tuple(stages), numbers, tuple(scratch), end, self._allocate)

    def _allocate(self, size: int) -> torch.Tensor:
        """Scratch memory of so many bytes."""
        if _torch.current_gpu() == self.device:
            return _torch.empty_strided_cuda((size,), (1,), torch.uint8)
        return torch.empty(size, dtype=torch.uint8, device=self.tensor_device)

    def _stage(self, entry: str, variant: Variant, blocks: int) -> tuple[tuple[int, int, int, int, int], int]:
        """What Plan takes for one function but the place of its own memory, and how many bytes that takes."""
        handle, cubin = self._function(entry, variant)
        arguments = build.request(self.kernel, entry, self.config, variant, self.capability)["arguments"]
        hidden = cubin.params - len(arguments)
        if hidden < 0:
            raise LaunchError(f"kernel {self.kernel.name}: {entry} takes {cubin.params} parameters, not {len(arguments)}")
        if cubin.scratch and (hidden < 1 or cubin.scratch_alignment > _SCRATCH_ALIGNMENT):
            raise LaunchError(f"kernel {self.kernel.name}: {entry} wants memory that this launcher does not give")
        # Triton adds a pointer to memory that it wants for itself, and one to memory for profiles.
        return (handle, blocks, cubin.num_warps * 32, cubin.shared, hidden), blocks * cubin.scratch

    # launching

    def find(self, pointers: tuple[int, ...], sizes: tuple[Any, ...], aligned: bool) -> tuple[Plan, bool]:
        """The plan of a launch, and whether the next one with these sizes may take it without asking."""
        if not aligned:
            observe.add("launch.unaligned")
        return self.plan(sizes, aligned), True

    def run(self, plan: Plan, pointers: tuple[int, ...], sizes: tuple[Any, ...]) -> None:
        """Launches all stages of a plan."""
        status = plan.run(self.driver.current_stream(self.device), pointers, sizes)
        self.driver.check(status, f"launching kernel {self.kernel.name}")

    def failed(self, status: int, plan: Plan, pointers: tuple[int, ...], sizes: tuple[Any, ...]) -> None:
        """After a launch that failed: once more where the thread only had no context yet, or another device's; else LaunchError."""
        if status == NO_CONTEXT:
            self.driver.make_current(self.device)
            self.run(plan, pointers, sizes)
        elif status == OTHER_CONTEXT:
            with self.driver.on(self.device):
                self.run(plan, pointers, sizes)
        else:
            self.driver.check(status, f"launching kernel {self.kernel.name}")


def bind_all(
    kernels: Sequence[KernelSource], options: RuntimeOptions, store: Entries, device: int, driver: Any
) -> dict[str, Callable[..., None]]:
    """All kernels of an artifact, compiled in parallel; equal ones share one launcher.

    device: of the kernels whose launch facts name none.
    """
    unique: dict[str, TritonKernel] = {}
    for kernel in kernels:
        if kernel.fingerprint not in unique:
            mine = kernel.launch.get("device", device)
            unique[kernel.fingerprint] = TritonKernel(kernel, options, store, mine, driver, cuda.capability(mine))
    jobs = [job for kernel in unique.values() for job in kernel.requests()]
    build.build_all(jobs, options, store)
    return {kernel.name: unique[kernel.fingerprint].call for kernel in kernels}

"""Triton kernels as Python callables: our own launcher through the CUDA driver.

A kernel is called with tensors and then its sizes. Per call: the tensors' addresses, one check that all are divisible
by 16 (else a variant that does not rely on it), one look-up by sizes where there are any, one struct.pack into a
prepared argument buffer, one driver call. What can be known before is a `Plan` per (sizes, variant).
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tracework_runtime import observe
from tracework_runtime.artifact import KernelSource
from tracework_runtime.build import triton as build
from tracework_runtime.build.triton import Cubin, Variant
from tracework_runtime.cache.store import Store
from tracework_runtime.device import cuda
from tracework_runtime.device.driver import NO_CONTEXT, OTHER_CONTEXT, LaunchConfig
from tracework_runtime.errors import LaunchError
from tracework_runtime.options import RuntimeOptions

__all__ = ["TritonKernel"]

log = logging.getLogger("tracework.runtime.launch")
_FORMATS = {"i64": "q", "i32": "i", "fp32": "f", "fp64": "d", "i1": "?"}
_MEASURE_REPEAT = 10
_SCRATCH_ALIGNMENT = 128


Slot = tuple[
    Any, int, int, Any
]  # buffer, addresses of the launch's configuration and of the pointer array, what keeps both alive


class Slots:
    """Argument buffers of one function: packed values, the array of pointers to them and the configuration that the driver wants.

    A buffer is taken for a launch on a stream and put back after it, so that threads do not write into each other's.
    """

    def __init__(self, layout: str, blocks: int, threads: int, shared: int) -> None:
        self.layout = struct.Struct("@" + layout)
        self.offsets = [struct.calcsize("@" + layout[: n + 1]) - struct.calcsize(c) for n, c in enumerate(layout)]
        self.size = blocks, 1, 1, threads, 1, 1, shared
        self.free: dict[int, list[Slot]] = {}

    def take(self, stream: int) -> Slot:
        """One that nobody uses."""
        try:
            return self.free[stream].pop()
        except (KeyError, IndexError):
            self.free.setdefault(stream, [])
            buffer = ctypes.create_string_buffer(max(8, self.layout.size))
            base = ctypes.addressof(buffer)
            pointers = (ctypes.c_void_p * max(1, len(self.offsets)))(*(base + o for o in self.offsets))
            config = LaunchConfig(*self.size, stream, None, 0)
            return buffer, ctypes.addressof(config), ctypes.addressof(pointers), (config, pointers)


@dataclasses.dataclass(frozen=True)
class Stage:
    """One function ready to launch."""

    function: int
    blocks: int
    slots: Slots
    zeros: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything a launch needs for one combination of sizes and variant.

    scratch: where each of the kernel's scratch arrays begins in one piece of memory of `scratch_bytes`; only: the one stage of a
    kernel without scratch, which has a path of its own.
    """

    stages: tuple[Stage, ...]
    scratch: tuple[int, ...]
    scratch_bytes: int
    only: Stage | None


class TritonKernel:
    """A kernel bound to a device. Call with tensors, then sizes."""

    def __init__(
        self, kernel: KernelSource, options: RuntimeOptions, store: Store, device: int, driver: Any, capability: int
    ) -> None:
        self.kernel, self.options, self.store = kernel, options, store
        self.device, self.driver, self.capability = device, driver, capability
        self.tensor_device = torch.device("cuda", device)
        self.launch_facts = kernel.launch
        self.configs: Sequence[Mapping[str, Any]] = kernel.launch["configs"]
        self.chosen: int | None = 0 if len(self.configs) == 1 or not options.measure_launch else self._remembered()
        self.plans: dict[tuple[Any, ...], Plan] = {}
        self._functions: dict[tuple[str, int, Variant], tuple[int, Cubin]] = {}
        self.call = _specialise(self)

    def __call__(self, *args: Any) -> None:
        self.call(*args)

    # before the first launch

    def requests(self) -> list[dict[str, Any]]:
        """What to compile before the first launch."""
        configs = range(len(self.configs)) if self.chosen is None else [self.chosen]
        return [
            build.request(self.kernel, entry, self.configs[n], Variant(), self.capability)
            for n in configs
            for entry in self.launch_facts["entries"]
        ]

    def _function(self, entry: str, config: int, variant: Variant) -> tuple[int, Cubin]:
        key = (entry, config, variant)
        found = self._functions.get(key)
        if found is None:
            job = build.request(self.kernel, entry, self.configs[config], variant, self.capability)
            (cubin,) = build.build_all([job], self.options, self.store)
            handle = self.driver.load(cubin.code, cubin.symbol, cubin.shared, self.device)
            found = self._functions[key] = (handle, cubin)
        return found

    def plan(self, pointers: tuple[int, ...], sizes: tuple[Any, ...], aligned: bool) -> Plan:
        """The plan for these sizes; made at first need, with the config measured if there are several."""
        key = (sizes, aligned)
        found = self.plans.get(key)
        if found is not None:
            return found
        if self.chosen is None:
            found = self._choose(pointers, sizes, aligned)
        else:
            found = self._plan(sizes, aligned, self.chosen)
        if self.chosen is not None:
            self.plans[key] = found
        return found

    def _plan(self, sizes: tuple[Any, ...], aligned: bool, config: int) -> Plan:
        facts = self.launch_facts
        names: dict[str, Any] = {f"ks{n}": s for n, s in enumerate(sizes)}
        fits = facts.get("fits32")
        variant = Variant(aligned, wide=fits is not None and not eval(fits, {}, names))
        values = {**names, **self.configs[config]["constants"]}
        stages = tuple(
            self._stage(entry, config, variant, int(eval(grid, {}, values)))
            for entry, grid in zip(facts["entries"], facts["grids"], strict=True)
        )
        scratch, end = [], 0
        for w in facts.get("workspace", ()):
            scratch.append(end)
            size = int(eval(w["elements"], {}, names)) * getattr(torch, w["dtype"]).itemsize
            end += -(-size // _SCRATCH_ALIGNMENT) * _SCRATCH_ALIGNMENT
        return Plan(stages, tuple(scratch), end, stages[0] if len(stages) == 1 and not scratch else None)

    def _stage(self, entry: str, config: int, variant: Variant, blocks: int) -> Stage:
        handle, cubin = self._function(entry, config, variant)
        arguments = build.request(self.kernel, entry, self.configs[config], variant, self.capability)["arguments"]
        layout = "".join("P" if t.startswith("*") else _FORMATS[t] for _, t in arguments)
        hidden = cubin.params - len(arguments)
        if hidden < 0:
            raise LaunchError(f"kernel {self.kernel.name}: {entry} takes {cubin.params} parameters, not {len(arguments)}")
        # Triton adds pointers to scratch memory that these kernels do not use.
        slots = Slots(layout + "P" * hidden, blocks, cubin.num_warps * 32, cubin.shared)
        return Stage(handle, blocks, slots, (0,) * hidden)

    # choosing a config

    def _choose(self, pointers: tuple[int, ...], sizes: tuple[Any, ...], aligned: bool) -> Plan:
        plans = [self._plan(sizes, aligned, n) for n in range(len(self.configs))]
        if self.driver.capturing() or not self._repeatable(pointers):
            return plans[0]
        times = [self.driver.milliseconds(lambda p=p: self.run(p, pointers, sizes), _MEASURE_REPEAT, self.device) for p in plans]
        self.chosen = times.index(min(times))
        self.store.put("choice", self._choice_key(), json.dumps({"config": self.chosen, "ms": times}).encode())
        log.info("kernel %s: config %d of %s ms", self.kernel.name, self.chosen, [round(t, 4) for t in times])
        return plans[self.chosen]

    def _repeatable(self, pointers: tuple[int, ...]) -> bool:
        """Whether running twice gives what running once gives: no accumulation, no memory both read and written."""
        return bool(self.launch_facts.get("repeatable")) and len(set(pointers)) == len(pointers)

    def _choice_key(self) -> str:
        return f"{self.kernel.fingerprint[:48]}-{self.capability}"

    def _remembered(self) -> int | None:
        data = self.store.get("choice", self._choice_key())
        if data is None:
            return None
        chosen = json.loads(data).get("config", 0)
        return chosen if isinstance(chosen, int) and 0 <= chosen < len(self.configs) else None

    # launching

    def run(self, plan: Plan, pointers: tuple[int, ...], sizes: tuple[Any, ...]) -> None:
        """Launch all stages of a plan."""
        stream = self.driver.current_stream(self.device)
        values = (*pointers, *sizes)
        if plan.scratch:
            scratch = torch.empty(plan.scratch_bytes, dtype=torch.uint8, device=self.tensor_device)
            first = scratch.data_ptr()
            values += tuple([first + offset for offset in plan.scratch])
        for stage in plan.stages:
            if stage.blocks == 0:
                continue
            slot = stage.slots.take(stream)
            stage.slots.layout.pack_into(slot[0], 0, *values, *stage.zeros)
            status = self.driver.launch(slot[1], stage.function, slot[2], None)
            if status:
                self.launch_again(stage, slot, status)
            stage.slots.free[stream].append(slot)

    def launch_again(self, stage: Stage, slot: Slot, status: int) -> None:
        """After a launch that failed: once more where the thread only had no context yet, or another device's; else LaunchError."""
        if status == NO_CONTEXT:
            self.driver.make_current(self.device)
            status = self.driver.launch(slot[1], stage.function, slot[2], None)
        elif status == OTHER_CONTEXT:
            status = self.driver.launch_on(self.device, slot[1], stage.function, slot[2])
        self.driver.check(status, f"launching kernel {self.kernel.name}")

    def slow(self, pointers: tuple[int, ...], sizes: tuple[Any, ...], aligned: bool) -> None:
        """A launch that the fast path does not cover."""
        if not aligned:
            observe.add("launch.unaligned")
        self.run(self.plan(pointers, sizes, aligned), pointers, sizes)


# The fast path: one function per number of arguments, everything constant bound as a default or closure variable.
_TEMPLATE = """
def make(kernel, plans, driver, device):
    slow, run, launch, current_stream, again = kernel.slow, kernel.run, driver.launch, driver.current_stream, kernel.launch_again
    def call({arguments}):
        {addresses}
        if ({together}) & 15:
            return slow(({pointers}), ({sizes}), False)
        plan = plans.get((({sizes}), True))
        if plan is None:
            return slow(({pointers}), ({sizes}), True)
        stage = plan.only
        if stage is None:
            return run(plan, ({pointers}), ({sizes}))
        if not stage.blocks:
            return
        slots, stream = stage.slots, current_stream(device)
        slot = slots.take(stream)
        slots.layout.pack_into(slot[0], 0, {pointers}{sizes}*stage.zeros)
        status = launch(slot[1], stage.function, slot[2], None)
        if status:
            again(stage, slot, status)
        slots.free[stream].append(slot)
    return call
"""


def _specialise(kernel: TritonKernel) -> Callable[..., None]:
    signature = kernel.kernel.signature
    tensors = [n for n, t in enumerate(signature) if t.startswith("*")]
    sizes = [n for n, t in enumerate(signature) if not t.startswith("*")]
    text = _TEMPLATE.format(
        arguments=", ".join(f"a{n}" for n in (*tensors, *sizes)),
        addresses="; ".join(f"q{n} = a{n}.data_ptr()" for n in tensors) or "pass",
        together=" | ".join(f"q{n}" for n in tensors) or "0",
        pointers="".join(f"q{n}, " for n in tensors),
        sizes="".join(f"a{n}, " for n in sizes),
    )
    namespace: dict[str, Any] = {}
    exec(compile(text, f"<tracework launch {kernel.kernel.name}>", "exec"), namespace)
    return namespace["make"](kernel, kernel.plans, kernel.driver, kernel.device)  # type: ignore[no-any-return]


def bind_all(
    kernels: Sequence[KernelSource], options: RuntimeOptions, store: Store, device: int, driver: Any
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

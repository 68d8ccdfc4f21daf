"""Artifact to CompiledFn: build what is missing, bind the kernels, execute the host program.

Reads top to bottom: `load`, then the two builders, then CompiledFn.
"""

from __future__ import annotations

import ctypes
import functools
import linecache
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

import torch

from tracework_runtime import _torch, observe
from tracework_runtime.artifact import Artifact, KernelSource
from tracework_runtime.build import cpp as build_cpp
from tracework_runtime.build.binaries import Binaries
from tracework_runtime.build.pool import triton_pool
from tracework_runtime.cache.memory import open_store
from tracework_runtime.cache.store import Entries
from tracework_runtime.cudagraph.partition import Part, parts_of
from tracework_runtime.cudagraph.refusals import refusals
from tracework_runtime.device import DEVICES, driver
from tracework_runtime.errors import ArtifactError, LoadError
from tracework_runtime.host.lines import CALL, Call, Launch
from tracework_runtime.host.program import NotInterpreted, host_name, host_program
from tracework_runtime.inputs import InputCheck, input_check
from tracework_runtime.launch import cpp as launch_cpp
from tracework_runtime.launch import triton as launch_triton
from tracework_runtime.observe import Observer, no_observer
from tracework_runtime.options import DEFAULT_OPTIONS, RuntimeOptions
from tracework_runtime.promises import look_at_operators
from tracework_runtime.watch import Watch

__all__ = ["CompiledFn", "load", "warm_up", "watched"]

log = logging.getLogger("tracework.runtime.cache")
Kernels = Sequence[KernelSource]


class CompiledFn:
    """A loaded artifact: `fn(list_of_inputs) -> tuple`; it may empty the list.

    artifact: what it was loaded from.
    call: what a call runs, for a caller that wants to save one Python call.
    unchecked: the same without the check of inputs.
    check: raises InputError for inputs that it was not compiled for; None where it was loaded without.
    graph_refusals: reasons against recording it as one cudagraph.
    graph_parts: those that are recorded all the same, and those that run between.
    origins: kernel, or operator that is called -> "file:line in function operator" texts of the user's source.
    """

    __slots__ = ("__tracework_recipe__", "__weakref__", "artifact", "call", "check", "namespace", "unchecked")
    __tracework_boxed__ = True

    def __init__(self, artifact: Artifact, namespace: dict[str, Any], check: InputCheck | None = None) -> None:
        self.artifact = artifact
        self.namespace = namespace
        self.check = check
        self.unchecked: Callable[[list[Any]], tuple[Any, ...]] = namespace["call"]
        self.call = self.unchecked if check is None else _checked(self.unchecked, check)

    def __call__(self, inputs: list[Any]) -> tuple[Any, ...]:
        return self.call(inputs)

    def __repr__(self) -> str:
        return f"<CompiledFn {self.artifact.key[:12]} kernels={len(self.artifact.kernels)}>"

    @property
    def graph_refusals(self) -> tuple[str, ...]:
        """Reasons known at compile time against a cudagraph."""
        return refusals(self.artifact)

    @property
    def graph_parts(self) -> tuple[Part, ...]:
        """Its parts where these are recorded, each by itself; none where the whole is, or nothing."""
        return parts_of(self.artifact)

    @property
    def origins(self) -> Mapping[str, tuple[str, ...]]:
        """Where each kernel and library call comes from in the user's source."""
        return {name: tuple(places) for name, places in self.artifact.places.items()}


def _checked(call: Callable[[list[Any]], tuple[Any, ...]], check: InputCheck) -> Callable[[list[Any]], tuple[Any, ...]]:
    def call_checked(inputs: list[Any]) -> tuple[Any, ...]:
        check(inputs)
        return call(inputs)

    return call_checked


def load(
    artifact: Artifact,
    options: RuntimeOptions = DEFAULT_OPTIONS,
    *,
    check_inputs: bool = True,
    observe_stage: Observer = no_observer,
    binaries: Binaries | None = None,
) -> CompiledFn:
    """Make an artifact callable.

    check_inputs: each call compares its inputs with what the graph was compiled for, and raises InputError where they differ; without,
    other inputs give wrong results or worse. For callers with guards of their own.
    binaries: what its kernels were built to before; nothing is built then.

    Raises BuildError where a compiler fails or is missing, LoadError where the artifact does not fit this machine.
    """
    _check_devices(artifact)
    store = open_store(options) if binaries is None else binaries
    namespace: dict[str, Any] = {
        "__name__": f"tracework_host_{artifact.key[:12]}",
        "places": artifact.places,
        **artifact.constants,
    }
    with observe.timed("load"):
        for language, builder in BUILDERS.items():
            mine = [kernel for kernel in artifact.kernels if kernel.language == language]
            if mine:
                namespace.update(builder(mine, options, store, artifact))
        _make_call(artifact, namespace)
        look_at_operators(namespace, options.check_operators)
    if not callable(namespace.get("call")):
        raise ArtifactError(f"artifact {artifact.key[:12]}: its host program defines no call(args)")
    gpus = _gpus(artifact)
    if len(gpus) == 1 and torch.cuda.device_count() > 1:
        namespace["call"] = _on_device(gpus[0], namespace["call"])
    compiled = CompiledFn(artifact, namespace, input_check(artifact) if check_inputs else None)
    weakref.finalize(compiled, _forget_text, artifact.key).atexit = False
    observe_stage("load", compiled)
    return compiled


def watched(compiled: CompiledFn, watch: Watch) -> CompiledFn:
    """The same function, whose launches and calls `watch` sees one by one; the function itself where Python runs its host program."""
    artifact = compiled.artifact
    lines = frozenset(n for n, line in enumerate(artifact.host_lines) if isinstance(line, (Launch, Call)))
    namespace = {**compiled.namespace, "line_begins": watch.line_begins, "line_ends": watch.line_ends}
    try:
        call = host_program(artifact, namespace, lines) if artifact.host_lines else None
    except NotInterpreted as kernel:
        log.info("%r is not watched: Python runs its host program, for kernel %s", compiled, kernel)
        call = None
    if call is None:
        return compiled
    gpus = _gpus(artifact)
    if len(gpus) == 1 and torch.cuda.device_count() > 1:
        call = _on_device(gpus[0], call)
    namespace["call"] = functools.partial(watch.call, call)
    made = CompiledFn(artifact, namespace, compiled.check)
    weakref.finalize(made, _forget_text, artifact.key).atexit = False
    return made


def warm_up(device_type: str, options: RuntimeOptions = DEFAULT_OPTIONS, workers: int = 8) -> None:
    """Start what building for a device needs, so that it is ready when the graph is: Triton processes for "cuda"."""
    if device_type == "cuda":
        triton_pool(options.triton_workers).warm(workers)


def _check_devices(artifact: Artifact) -> None:
    for name in artifact.devices:
        device = DEVICES.get(name.partition(":")[0])
        if device is None:
            raise LoadError(f"artifact for unknown device {name!r}; known: {sorted(DEVICES)}")
        if not device.available():
            raise LoadError(f"artifact for {name}, which torch does not see here", advice="check torch.cuda.is_available()")


def _make_call(artifact: Artifact, namespace: dict[str, Any]) -> None:
    """`call` of the host program: interpreted where its lines say what it does, else as Python."""
    shared, separator, _ = artifact.host_source.partition(CALL)
    if artifact.host_lines and separator:
        exec(_host_code(shared, artifact.key), namespace)
        try:
            namespace["call"] = host_program(artifact, namespace)
            return
        except NotInterpreted as kernel:
            log.info("artifact %s: its host program runs as Python, for kernel %s", artifact.key[:12], kernel)
    exec(_host_code(artifact.host_source, artifact.key), namespace)


def _host_code(source: str, key: str) -> CodeType:
    name = host_name(key)
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    return compile(source, name, "exec")


def _forget_text(key: str) -> None:
    for name in (host_name(key), host_name(key, " lines"), host_name(key, " watched lines")):
        linecache.cache.pop(name, None)


def _build_cpp(kernels: Kernels, options: RuntimeOptions, store: Entries, artifact: Artifact) -> dict[str, Any]:
    jobs = [build_cpp.CppJob(k.source, tuple(k.launch.get("flags", ()))) for k in kernels]
    unique = list(dict.fromkeys(jobs))
    if isinstance(store, Binaries):
        libraries = {job: launch_cpp.open_library(store.library(job)) for job in unique}
    else:
        built = build_cpp.build_all(unique, options, store)
        libraries = {job: _library(job, product, options, store) for job, product in zip(unique, built, strict=True)}
    return {kernel.name: launch_cpp.bind(kernel, libraries[job]) for kernel, job in zip(kernels, jobs, strict=True)}


def _library(job: build_cpp.CppJob, product: build_cpp.Product, options: RuntimeOptions, store: Entries) -> ctypes.CDLL:
    """A product that is loaded; one that cannot be is built again, once."""
    try:
        return launch_cpp.open_library(product)
    except LoadError as error:
        log.warning("a kernel cannot be loaded and is built again: %s", error.message)
    (again,) = build_cpp.build_all([job], options, store, anew=True)
    return launch_cpp.open_library(again)


def _gpus(artifact: Artifact) -> list[int]:
    return sorted({int(name.partition(":")[2] or 0) for name in artifact.devices if name.startswith("cuda")})


def _on_device(gpu: int, call: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """The host program with its GPU as the thread's current one: a kernel is launched in the context of the current device."""
    current, on = _torch.current_gpu, torch.cuda.device

    def call_on_device(inputs: list[Any]) -> Any:
        if current() == gpu:
            return call(inputs)
        with on(gpu):
            return call(inputs)

    return call_on_device


def _build_triton(kernels: Kernels, options: RuntimeOptions, store: Entries, artifact: Artifact) -> dict[str, Any]:
    return launch_triton.bind_all(kernels, options, store, (_gpus(artifact) or [0])[0], driver.driver())


BUILDERS: dict[str, Callable[[Kernels, RuntimeOptions, Entries, Artifact], dict[str, Any]]] = {
    "cpp": _build_cpp,
    "triton": _build_triton,
}

"""compile_graph: PrimGraph -> Artifact, stage by stage."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from tracework_runtime import DEFAULT_OPTIONS, Artifact, KernelSource, RuntimeOptions
from tracework_runtime.cache.memory import open_store

from .autotune.book import Book
from .autotune.choose import Question
from .autotune.cost import device
from .codegen import renderer_for
from .codegen.cpp.depthwise import DEPTHWISE_KERNEL
from .codegen.cpp.digest import DIGEST_KERNEL
from .codegen.cpp.gemm import GEMM_KERNEL
from .codegen.names import kernel_name, numbered
from .codegen.pack import pack
from .codegen.renderer import RenderedKernel
from .codegen.wrapper.lines import HostProgram, host_program
from .codegen.wrapper.python import host_source
from .decisions.tune import Timing, tuned
from .ir.cores import DEPTHWISE, DIGEST, GEMM, PACKED_CALLS
from .lowering import lower, places
from .options import InductorOptions
from .passes import GRAPH_PASSES
from .schedule.choice import Answer, Choice, Choose, every
from .schedule.numbers import with_numbers_in_memory
from .schedule.pipeline import schedule
from .schedule.plan import ExternKernel, KernelPlan, LoopKernel, Program

Observe = Callable[[str, Any], None]
Change = Callable[[Program], Program]


def compile_graph(
    graph: Any,
    options: InductorOptions | None = None,
    *,
    observe: Observe | None = None,
    key: str = "",
    runtime: RuntimeOptions = DEFAULT_OPTIONS,
    change: Change | None = None,
) -> Artifact:
    """Lower, schedule, render and pack a graph of prims. `observe(stage, printable)` sees each product.

    runtime: how candidates are built that are timed, and where what they took is kept.
    change: what makes another program of a lowered one, before it is scheduled.
    """
    options = options or InductorOptions()
    artifact = compile_plan(graph, plan_graph(graph, options, observe, runtime, change), options, key)
    if observe is not None:
        observe("artifact", artifact)
    return artifact


def compile_plan(graph: Any, plan: KernelPlan, options: InductorOptions, key: str = "") -> Artifact:
    """Render and pack the plan of a graph."""
    host, kernels, functions = render(plan, options)
    return pack(plan, host_source(host, kernels), host.lines, host.spans, kernels, functions, places(graph), key)


def plan_graph(
    graph: Any,
    options: InductorOptions,
    observe: Observe | None = None,
    runtime: RuntimeOptions = DEFAULT_OPTIONS,
    change: Change | None = None,
) -> KernelPlan:
    """Up to the KernelPlan."""
    passes = GRAPH_PASSES if options.numerics == "default" else {}  # they choose other kernels, with other bits
    for graph_pass, applies in islice(passes.items(), options.graph_passes):
        graph = graph_pass(graph) if applies(options) else graph
    program = lower(graph, options) if change is None else change(lower(graph, options))
    device_type = next((b.layout.device.type for b in program.buffers.values() if b.layout.device.type != "cpu"), "cpu")
    plan = schedule(program, options, renderer_for(device_type, options).capabilities, _choose(options))
    plan = with_numbers_in_memory(plan, options.numbers_in_memory) if options.numbers_in_memory else plan
    plan = _tuned(plan, options, runtime) if device_type == "cuda" else plan
    if observe is not None:
        observe("plan", plan)
    return plan


def _tuned(plan: KernelPlan, options: InductorOptions, runtime: RuntimeOptions) -> KernelPlan:
    """The plan with the block sizes that the book has, or that are measured."""
    renderer, symbols = renderer_for("cuda", options), plan.program.symbols

    def ask(kernel: LoopKernel, device: str) -> Question | None:
        return renderer.question(kernel, symbols, options.numerics, device)

    if options.max_autotune and torch.cuda.is_available():
        return tuned(plan, ask, Book(store=open_store(runtime)), Timing(renderer, symbols, runtime))
    return tuned(plan, ask, Book())


def _choose(options: InductorOptions) -> Choose:
    """What chooses between the library and cores of ours."""
    if options.products == "tiles":
        return every

    def choose(choices: Sequence[Choice]) -> Answer:
        from .decisions.products import answer  # which brings the renderer of GPUs

        return answer(choices, Book(), device(choices[0].core.device.index or 0), options.numerics) if choices else Answer({})

    return choose


CALLED_CORES: Mapping[str, RenderedKernel] = {GEMM: GEMM_KERNEL, DEPTHWISE: DEPTHWISE_KERNEL}
"""Cores of the CPU that are no kernels of a plan: they are called with addresses and sizes, as the library is."""


def render(plan: KernelPlan, options: InductorOptions) -> tuple[HostProgram, list[KernelSource], dict[str, str]]:
    """The host program, the kernels, equal ones once, and which of these each kernel of the plan is."""
    functions: dict[str, str] = {}
    taken: Counter[str] = Counter()
    gpus = {b.layout.device for b in plan.program.buffers.values() if b.layout.device.type != "cpu"}
    by_device: dict[str, dict[tuple[Any, ...], tuple[str, RenderedKernel]]] = {}
    for kernel in plan.kernels:
        if not isinstance(kernel, ExternKernel):
            device_type = kernel.device.type
            rendered = renderer_for(device_type, options).render(kernel)
            if len(gpus) > 1 and device_type != "cpu":
                rendered = replace(rendered, launch=(*rendered.launch, ("device", kernel.device.index)))
            known = by_device.setdefault(device_type, {})
            identity = (rendered.source, rendered.signature, repr(rendered.launch))
            if identity not in known:
                name = numbered(kernel_name(kernel, plan.program.role), taken)
                known[identity] = (name, rendered)
            functions[kernel.name] = known[identity][0]
    targets = {k.node.target for k in plan.kernels if isinstance(k, ExternKernel)}
    if any(t.startswith(PACKED_CALLS) for t in targets):
        by_device.setdefault("cpu", {})[(DIGEST,)] = (DIGEST, DIGEST_KERNEL)
    for core, called in CALLED_CORES.items():
        if core in targets:
            by_device.setdefault("cpu", {})[(core,)] = (core, called)
    sources: list[Any] = []
    for device_type, known in by_device.items():
        sources += renderer_for(device_type, options).pack(list(known.values()))
    return host_program(plan, functions), sources, functions

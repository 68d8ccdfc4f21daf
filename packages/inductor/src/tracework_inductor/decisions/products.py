"""Large products as questions: the library's call with the kernels of what follows, or a core with what is fused, config by config."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..autotune.book import Book
from ..autotune.choose import LIBRARY, Measure, Question, decide
from ..autotune.cost import FEW_CHANNELS, Device, predict
from ..autotune.record import Candidate, Problem, bucket, fingerprint
from ..codegen.triton.cores import tiles
from ..codegen.triton.tuning import body_text
from ..ir.buffer import BufferLayout
from ..ir.index import constant_product
from ..lowering.conv import CONVOLUTION
from ..product_costs import CONVOLUTIONS, ROW_BYTES, alignment, convolution_kind
from ..schedule.choice import Answer, Choice
from ..schedule.matrix_product import MatrixProduct, extents, matrix_product
from ..schedule.plan import ExternKernel, Kernel, KernelBatch

__all__ = ["answer", "question"]


def answer(choices: Sequence[Choice], book: Book, device: Device, numerics: str, measure: Measure | None = None) -> Answer:
    """What computes each product. measure: as `decide` takes it."""
    decided = decide([question(choice, device, numerics) for choice in choices], book, device, measure)
    candidates = {choice.name: found for choice, found in zip(choices, decided, strict=True)}
    return Answer({name: found[0].config for name, found in candidates.items() if found[0].way != LIBRARY}, candidates)


def question(choice: Choice, device: Device, numerics: str) -> Question:
    """The library first: where nothing is known, it stays."""
    core = choice.core
    found = matrix_product(core)
    assert isinstance(found, MatrixProduct)
    problem = _problem(choice, found, device, numerics)
    capability = 90 if device.name.startswith(("H100", "H200")) else 80
    configs = [config.record() for config in tiles.configs(core, capability)]
    bits = [f"step {c['constants']['RBLOCK']} parts {c['constants'].get('PARTS', 1)}" for c in configs]
    # Shares were measured with the first guesses, whose order they say nothing about.
    known = problem.kind in device.calibrated
    ours_us = round(predict(problem, configs[0], device) + sum(_loops_us(k, device) for k in choice.copies), 3) if known else None
    ours = [Candidate(core.core, config, word, ours_us) for config, word in zip(configs, bits, strict=True)]
    library = Candidate(LIBRARY, bits="library", predicted_us=round(_library_us(choice, problem, device), 3))
    return Question(problem, (library, *ours))


def _problem(choice: Choice, found: MatrixProduct, device: Device, numerics: str) -> Problem:
    core, sizes = choice.core, []
    for name, axes, extent in zip("zyxr", (found.batches, found.rows, found.columns, found.inner), extents(found), strict=True):
        known = all(isinstance(a.size, int) for a in axes)
        sizes.append((name, extent if known else bucket(extent)))
    batches, rows, columns, inner = (extent for _, extent in sizes)
    layouts = [core.layouts[name] for name in core.buffers]
    dtype = str(found.dtype).removeprefix("torch.")
    return Problem(
        _kind(choice, batches * rows * columns, dtype, device),
        tuple(sizes),
        tuple(str(layout.dtype).removeprefix("torch.") for layout in layouts),
        tuple(map(_layout, layouts)),
        device.name,
        fingerprint(body_text(core, core.passes[:1])),
        fingerprint(body_text(core, core.passes[1:])),
        numerics,
        sum(map(_bytes, layouts)),
        2 * batches * rows * columns * inner,
        dtype,
    )


def _layout(layout: BufferLayout) -> str:
    """The order of the strides, slowest first, and the bytes that rows are multiples of."""
    order = sorted(range(len(layout.strides)), key=lambda d: -constant_product([layout.strides[d]]))
    steps = [s for s in layout.strides if isinstance(s, int) and s > 1]
    aligned = min((alignment(s, layout.dtype.itemsize) for s in steps), default=layout.dtype.itemsize)
    return f"{''.join(map(str, order))} by {aligned}"


def _bytes(layout: BufferLayout) -> int:
    return constant_product(layout.sizes) * layout.dtype.itemsize


def _kind(choice: Choice, results: int, unit: str, device: Device) -> str:
    """Of the library's call: what the shares of a Calibration are for."""
    call = next((k.node for k in choice.library if isinstance(k, ExternKernel) and k.name == choice.name), None)
    if call is None or call.target != CONVOLUTION:
        return choice.core.core
    image, weight = (view.sizes for view in call.args[:2])
    return convolution_kind(image, weight, results, unit, device)


def _library_us(choice: Choice, problem: Problem, device: Device) -> float:
    """Of the call, and of the kernels beside it by the bytes that they move."""
    found = 0.0
    calls = sum(isinstance(kernel, ExternKernel) for kernel in choice.library)
    for kernel in choice.library:
        if isinstance(kernel, ExternKernel):
            found += predict(_alone(kernel, problem, calls), {}, device)
        else:
            found += _loops_us(kernel, device)
    return found


def _alone(kernel: ExternKernel, problem: Problem, calls: int) -> Problem:
    """The library's call, one of so many, without what follows it; of few channels with the copies that it makes."""
    itemsize = 4 if problem.unit == "float32" else 2
    sizes = [constant_product(a.sizes) for a in kernel.node.args if hasattr(a, "buffer")]
    results = constant_product(extent for name, extent in problem.sizes if name != "r")
    elements, operations = sum(sizes) + results // calls, problem.operations // calls
    if problem.kind == FEW_CHANNELS:
        weight = kernel.node.args[1].sizes
        wide = ROW_BYTES // itemsize / weight[1]
        elements += round(2 * wide * sizes[0])
        operations = round(2 * wide * constant_product(weight[1:]) * results)
    kind = problem.kind if problem.kind in CONVOLUTIONS else "product"
    return dataclasses.replace(
        problem, kind=kind, dtypes=(), layouts=(), prologue="", epilogue="", bytes=elements * itemsize, operations=operations
    )


def _loops_us(kernel: Kernel, device: Device) -> float:
    """Of what is no product, by the bytes that it moves."""
    parts = kernel.parts if isinstance(kernel, KernelBatch) else (kernel,)
    return sum(_bytes(b) for part in parts for b in getattr(part, "layouts", {}).values()) / device.bandwidth + device.launch_us

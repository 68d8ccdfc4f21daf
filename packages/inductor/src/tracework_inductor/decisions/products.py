"""Large products as questions: the library's call with the kernels of what follows, or a core with what is fused, config by config."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..autotune.book import Book
from ..autotune.choose import LIBRARY, Measure, Question, decide
from ..autotune.cost import FEW_CHANNELS, PRODUCT_OF_ROWS, Device, predict
from ..autotune.record import Candidate, Problem, bucket, fingerprint
from ..codegen.triton.cores import tiles
from ..codegen.triton.tuning import body_text
from ..ir.buffer import BufferLayout
from ..ir.index import constant_product
from ..ir.scalar_ops import SCALAR_OPS
from ..lowering.conv import CONVOLUTION
from ..product_costs import CONVOLUTIONS, MOST_SCALARS, ROW_BYTES, TILES, alignment, convolution_kind, product_kind
from ..schedule.choice import Answer, Choice
from ..schedule.matrix_product import MatrixProduct, extents, matrix_product
from ..schedule.plan import ExternKernel, Kernel, KernelBatch, LoopKernel

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
    beside = sum(_loops_us(k, device) for k in (*choice.copies, *choice.rest))
    ours_us = round(predict(problem, configs[0], device) + beside, 3) if known else None
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
    after = [i.op for one in core.passes[1:] for i in one.body.instructions]
    scalars = sum(SCALAR_OPS[op].cost for op in after if op in SCALAR_OPS)
    return Problem(
        _kind(choice, found, scalars, dtype, device),
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
        scalars * batches * rows * columns,
    )


def _layout(layout: BufferLayout) -> str:
    """The order of the strides, slowest first, and the bytes that rows are multiples of."""
    order = sorted(range(len(layout.strides)), key=lambda d: -constant_product([layout.strides[d]]))
    steps = [s for s in layout.strides if isinstance(s, int) and s > 1]
    aligned = min((alignment(s, layout.dtype.itemsize) for s in steps), default=layout.dtype.itemsize)
    return f"{''.join(map(str, order))} by {aligned}"


def _bytes(layout: BufferLayout) -> int:
    return constant_product(layout.sizes) * layout.dtype.itemsize


def _kind(choice: Choice, found: MatrixProduct, scalars: int, unit: str, device: Device) -> str:
    """Of the library's call: what the shares of a Calibration are for. scalars: what follows an element costs, in additions."""
    call = next((k.node for k in choice.library if isinstance(k, ExternKernel) and k.name == choice.name), None)
    if call is None or call.target != CONVOLUTION:
        if scalars > MOST_SCALARS:
            return TILES
        return product_kind(extents(found), unit, tiles.are_read_by_rows(choice.core, found))
    image, weight = (view.sizes for view in call.args[:2])
    return convolution_kind(image, weight, constant_product(extents(found)[:3]), unit, device)


def _library_us(choice: Choice, problem: Problem, device: Device) -> float:
    """Of the call, and of the kernels beside it by the bytes that they move."""
    found = 0.0
    calls = sum(isinstance(kernel, ExternKernel) for kernel in choice.library)
    for kernel in choice.library:
        if isinstance(kernel, ExternKernel):
            found += predict(_alone(kernel, problem, calls), {}, device) + _unaligned_us(kernel, problem, device) / calls
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
    kind = problem.kind if problem.kind in (*CONVOLUTIONS, PRODUCT_OF_ROWS) else "product"
    alone: dict[str, Any] = {"dtypes": (), "layouts": (), "prologue": "", "epilogue": "", "scalars": 0}
    return dataclasses.replace(problem, kind=kind, bytes=elements * itemsize, operations=operations, **alone)


def _unaligned_us(kernel: ExternKernel, problem: Problem, device: Device) -> float:
    """More than `predict` says, of a product whose columns or inner elements are no multiples of what the library loads at a time."""
    if problem.kind != PRODUCT_OF_ROWS:
        return 0.0
    second = [view for view in kernel.node.args if hasattr(view, "buffer")][-1]
    itemsize = 2
    aligned = min(alignment(constant_product([size]), itemsize) for size in second.sizes)
    return device.unaligned.get(itemsize, {}).get(aligned, 0.0) * problem.operations / 2 * 1e-9


def _loops_us(kernel: Kernel, device: Device) -> float:
    """Of what is no product, by the bytes that it moves."""
    parts = kernel.parts if isinstance(kernel, KernelBatch) else (kernel,)
    return sum(map(_moved, parts)) / device.bandwidth + device.launch_us


def _moved(kernel: Kernel) -> int:
    """Bytes of the buffers of a kernel, of loops no more than these read and write."""
    if not isinstance(kernel, LoopKernel):
        return sum(map(_bytes, getattr(kernel, "layouts", {}).values()))
    points, inner = (constant_product(a.size for a in axes) for axes in (kernel.axes, kernel.reduction_axes))
    reached: Counter[str] = Counter()
    for one in kernel.passes:
        for i in one.body.instructions:
            if i.op in ("load", "store"):
                reached[i.args[0]] += points * (inner if one.level == "inner" else 1)
    return sum(min(_bytes(layout), reached[name] * layout.dtype.itemsize) for name, layout in kernel.layouts.items())

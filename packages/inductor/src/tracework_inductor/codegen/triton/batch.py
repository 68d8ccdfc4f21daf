"""A KernelBatch as Triton source: each part's function once, and one that calls the part to which its block belongs."""

from ...schedule.plan import KernelBatch, index_checks
from ..renderer import KERNEL_NAME, RenderedKernel
from .header import function_header, launch_record, source_text
from .kernel import Part, part
from .text_rules import POINTER

__all__ = ["render"]


def render(batch: KernelBatch) -> RenderedKernel:
    """The Triton source, its signature and its launch record."""
    parts = [part(kernel) for kernel in batch.parts]
    names: dict[str, str] = {}
    for one in parts:
        names.setdefault(one.function, f"part{len(names)}")
    calls, pointers, first = [], 0, 0
    for one, kernel in zip(parts, batch.parts, strict=True):
        last = first + one.blocks
        arguments = "".join(f"p{n}, " for n in range(pointers, pointers + len(kernel.buffers)))
        calls += [
            f"    if (pid >= {first}) & (pid < {last}):",
            f"        {names[one.function]}({arguments}pid - {first}, {_constants(one)})",
        ]
        pointers, first = pointers + len(kernel.buffers), last
    header = function_header([f"p{n}" for n in range(pointers)], [], [], workspace=False)
    chooser = header + "\n".join(["    pid = tl.program_id(0)", *calls]) + "\n"
    record = launch_record(
        entries=[KERNEL_NAME],
        grids=[str(first)],
        configs=[{"constants": {}, "num_warps": max(p.config.num_warps for p in parts), "num_stages": 1}],
        fits32=None,
        workspace=[],
        repeatable=False,
        kind=f"batch of {len(parts)}",
        checks=bool(index_checks(batch)),
    )
    signature = tuple(POINTER[kernel.layouts[b].dtype] for kernel in batch.parts for b in kernel.buffers)
    return RenderedKernel(source_text([*names, chooser], [*names.values(), KERNEL_NAME]), signature, record)


def _constants(one: Part) -> str:
    return ", ".join([*(f"{name}={value}" for name, value in one.config.constants.items()), "WIDE=WIDE"])

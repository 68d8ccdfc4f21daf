"""Numbers in memory: what a program is given that changes from call to call, and that no size, stride, offset or loop depends on.

A kernel that is told such a number is recorded for this one number in a CUDA graph; one that reads it is recorded for all.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tracework_primops.symbols.expr import Symbol

from ..ir.index import Expr
from .plan import KernelPlan, LoopKernel

__all__ = ["with_numbers_in_memory"]


def with_numbers_in_memory(plan: KernelPlan, devices: frozenset[str]) -> KernelPlan:
    """The plan whose loops read the numbers that nothing on another type of device takes."""
    program = plan.program
    given = {expr for expr in program.size_inputs.values() if isinstance(expr, Symbol) and not expr.of_data}
    loops = [kernel for kernel in plan.kernels if isinstance(kernel, LoopKernel)]
    told = [k for k in plan.kernels if not isinstance(k, LoopKernel)]
    elsewhere = [k.sizes for k in loops if k.device.type not in devices]
    extents = [(kernel.axes, kernel.reduction_axes, kernel.scratch) for kernel in loops]
    shown = [o for o in program.outputs if not isinstance(o.value, Symbol)]  # another is the input itself
    numbers = given - set(_symbols((program.buffers, shown, told, elsewhere, extents)))
    kernels = (_reading(k, numbers) if isinstance(k, LoopKernel) and not numbers.isdisjoint(k.sizes) else k for k in plan.kernels)
    return dataclasses.replace(plan, kernels=tuple(kernels))


def _reading(kernel: LoopKernel, numbers: set[Any]) -> LoopKernel:
    sizes = tuple(s for s in kernel.sizes if s not in numbers)
    return dataclasses.replace(kernel, sizes=sizes, numbers=tuple(s for s in kernel.sizes if s in numbers))


def _symbols(value: Any) -> Iterator[Any]:
    """All that a value mentions."""
    if isinstance(value, Expr):
        yield from value.free_symbols
    elif isinstance(value, Mapping):
        yield from _symbols(tuple(value.values()))
    elif dataclasses.is_dataclass(value):
        yield from _symbols([getattr(value, field.name) for field in dataclasses.fields(value)])
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for one in value:
            yield from _symbols(one)

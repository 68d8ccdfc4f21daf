"""Add a target: a renderer writes kernels of loops as text. This one writes plain C loops, one thread, nothing clever, for pointwise kernels."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from tracework_inductor import TARGETS, InductorOptions, compile_graph
from tracework_inductor.codegen.cpp import CppRenderer
from tracework_inductor.codegen.cpp.text_rules import CPP_TEXT, CPP_TYPES, MEMORY_TYPES, constant_text
from tracework_inductor.codegen.printer import c_index
from tracework_inductor.codegen.renderer import KERNEL_NAME, RenderedKernel
from tracework_inductor.ir.body import Ref
from tracework_inductor.schedule.plan import LoopKernel
from tracework_primops import aten_graph, decompose
from tracework_runtime import load


@dataclasses.dataclass(frozen=True)
class PlainLoops(CppRenderer):
    """The renderer of CPUs, but for pointwise kernels."""

    def render(self, kernel: Any) -> RenderedKernel:
        loops = isinstance(kernel, LoopKernel) and not (kernel.reduction_axes or kernel.numbers)
        return plain(kernel) if loops and WRITTEN.issuperset(operations(kernel)) else super().render(kernel)


WRITTEN = {"load", "store", "constant", *CPP_TEXT}


def operations(kernel: LoopKernel) -> Iterator[str]:
    """Names of all instructions, and of stores that do more than to set."""
    for part in kernel.passes:
        for i in part.body.instructions:
            yield i.op if i.op != "store" or i.args[3:] == ("set",) else "store otherwise"


def plain(kernel: LoopKernel) -> RenderedKernel:
    """A kernel's function: a pointer for each buffer, then the sizes that are symbols; a loop for each axis."""
    pointers = {buffer: f"p{n}" for n, buffer in enumerate(kernel.buffers)}
    types = [MEMORY_TYPES[kernel.layouts[buffer].dtype] for buffer in kernel.buffers]
    parameters = [f"{t}* {p}" for t, p in zip(types, pointers.values(), strict=True)] + [f"int64_t {s}" for s in kernel.sizes]
    lines = [f'extern "C" void {KERNEL_NAME}({", ".join(parameters)}) {{']
    lines += [f"for (int64_t {axis.var} = 0; {axis.var} < {c_index(axis.size)}; ++{axis.var})" for axis in kernel.axes]
    lines.append("{")
    for number, part in enumerate(kernel.passes):
        for position, i in enumerate(part.body.instructions):
            args = [f"v{number}_{a.position}" if isinstance(a, Ref) else a for a in i.args]
            if i.op == "store":
                lines.append(f"{pointers[args[0]]}[{c_index(args[1])}] = {args[2]};")
                continue
            kind = CPP_TYPES[i.dtype]
            if i.op == "load":
                text = f"{pointers[args[0]]}[{c_index(args[1])}]"
            else:
                text = constant_text(args[0], i.dtype) if i.op == "constant" else CPP_TEXT[i.op](kind, *args)
            lines.append(f"{kind} v{number}_{position} = {text};")
    lines += ["}", "}"]
    return RenderedKernel("\n".join(lines) + "\n", ("*",) * len(types) + ("i64",) * len(kernel.sizes))


def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.nn.functional.gelu(x * 2) + w, torch.softmax(x, -1)


inputs = [torch.randn(32, 48), torch.randn(48)]
graph = decompose(aten_graph(program, *inputs))
before = TARGETS["cpu"]
TARGETS["cpu"] = lambda options: PlainLoops(options.parallel_grain, options.rounds)
try:
    artifact = compile_graph(graph, InductorOptions())
finally:
    TARGETS["cpu"] = before
source = artifact.kernels[0].source
print(source[source.index('extern "C" void') :])
torch.testing.assert_close(load(artifact)([*inputs]), program(*inputs))

"""Segment: the part of a program that is recorded as one CUDA graph, and what tells its calls apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tracework_runtime.artifact import Artifact, SymbolBinding
from tracework_runtime.host.lines import Number

__all__ = ["Segment", "Sizes", "no_sizes", "size_reader"]

Inputs = list[Any]
Sizes = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Segment:
    """What is recorded.

    name: for messages. call: runs it kernel by kernel; it may empty its list of inputs. device: its GPU.
    static: inputs that are expected where they were, parameters and buffers. written: inputs that it writes to.
    constants: addresses of memory that is no input and that outputs may show.
    library: whether it calls kernels of a library, which look at settings of torch.
    draws: whether it may draw random numbers.
    keeps: whether it says what of the memory that it makes it returns, as the interpreter of host programs does.
    sizes: the parts of a call's inputs that a recording holds for: its sizes, and numbers but for those that it reads from memory.
    numbers: inputs that are such numbers.
    """

    name: str
    call: Callable[[Inputs], tuple[Any, ...]]
    device: int = 0
    static: frozenset[int] = frozenset()
    written: frozenset[int] = frozenset()
    constants: frozenset[int] = frozenset()
    library: bool = True
    draws: bool = True
    keeps: bool = False
    sizes: Callable[[Sequence[Any]], Sizes] = lambda inputs: _all_sizes(inputs)
    numbers: frozenset[int] = frozenset()

    @classmethod
    def of(cls, compiled: Any) -> Segment:
        """The whole of a CompiledFn."""
        artifact: Artifact = compiled.artifact
        gpus = sorted(name for name in artifact.devices if name.startswith("cuda"))
        tensors = [c for c in artifact.constants.values() if isinstance(c, torch.Tensor)]
        return cls(
            repr(compiled),
            compiled.unchecked,
            int(gpus[0].partition(":")[2] or 0) if gpus else 0,
            artifact.static_inputs,
            artifact.mutated_inputs,
            frozenset(c.untyped_storage().data_ptr() for c in tensors),
            bool(artifact.externs),
            not (artifact.kernels or artifact.externs) or any(map(_may_draw, artifact.externs)),
            bool(artifact.host_lines),
            size_reader(artifact),
            _numbers_in_memory(artifact),
        )


def _may_draw(operator: str) -> bool:
    """Whether an operator, such as "aten::mm", may draw random numbers; functions of ours, without a namespace, do not."""
    namespace, _, name = operator.partition("::")
    if not name:
        return False
    packet = getattr(torch.ops.aten, name, None) if namespace == "aten" else None
    seeded = torch.Tag.nondeterministic_seeded
    return packet is None or any(seeded in getattr(packet, overload).tags for overload in packet.overloads())


def _numbers_in_memory(artifact: Artifact) -> frozenset[int]:
    """The inputs that are numbers, and that kernels read from memory."""
    names = {line.given for line in artifact.host_lines if isinstance(line, Number)}
    return frozenset(n for n, name in enumerate(artifact.inputs or ()) if name in names)


def size_reader(artifact: Artifact) -> Callable[[Sequence[Any]], Sizes]:
    """Inputs -> what symbols among the sizes stand for, and numbers. All sizes, where the artifact does not know its inputs."""
    if artifact.inputs is None:
        static = artifact.static_inputs
        return lambda inputs: _all_sizes([x for n, x in enumerate(inputs) if n not in static])
    others = {check.index for check in artifact.checks} | _numbers_in_memory(artifact)
    numbers = tuple(n for n in range(len(artifact.inputs)) if n not in others)
    bindings = tuple(b for b in artifact.symbols if b.kind != "value")
    if not numbers and not bindings:
        return no_sizes

    def read(inputs: Sequence[Any]) -> Sizes:
        given = [x for n in numbers if not isinstance(x := inputs[n], torch.Tensor)]
        return (*given, *[_extent(b, inputs[b.index]) for b in bindings])

    return read


def no_sizes(inputs: Sequence[Any]) -> Sizes:
    """Where all sizes are settled and no input is a number."""
    return ()


def _extent(binding: SymbolBinding, tensor: torch.Tensor) -> int:
    return int(tensor.shape[binding.dim] if binding.kind == "size" else tensor.stride(binding.dim))


def _all_sizes(inputs: Sequence[Any]) -> Sizes:
    return tuple((tuple(x.shape), x.stride(), x.dtype) if isinstance(x, torch.Tensor) else x for x in inputs)

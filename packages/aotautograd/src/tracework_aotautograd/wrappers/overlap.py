"""Calls whose written inputs share memory with other inputs are compiled for how these overlap.

A later call may pass tensors that overlap otherwise than the example inputs did, and no guard of sizes sees it: the graph is compiled anew
for that, where no size is symbolic, and runs uncompiled where that cannot be. Static inputs, and what is lifted into the graph, are compared
again only when one of their addresses changes, the others, too, where no size is symbolic: how far a tensor reaches from its address is
then the same at each call. Storages of static inputs, and of all where sizes are symbolic, are compared first; where these meet the
elements are: tensors in separate parts of one storage are fine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch

from ..contracts import Report
from ..signature import InputKind, Mutation, SharedMemory, Signature
from ..trace.shared import overlaps, shared_memory

Run = Callable[..., Any]
Bounds = tuple[int, int]
Addresses = Callable[[Sequence[torch.Tensor]], Any]
CompileAnew = Callable[[Sequence[Any]], Run]
data_ptr = torch.Tensor.data_ptr
MOST = 8
"""Ways to overlap for which a graph is compiled, beside the first."""


def guard_overlaps(
    call: Run,
    uncompiled: Run,
    signature: Signature,
    report: Report,
    addresses: Addresses | None = None,
    compile_anew: CompileAnew | None = None,
) -> Run:
    """`call` where written inputs overlap others as it was compiled for; `call` itself for graphs that write to no input.

    compile_anew: what compiles the graph for inputs that overlap otherwise. Without it, and where there are too many ways, `uncompiled` runs.
    """
    if all(info.mutation is Mutation.NONE for info in signature.inputs):
        return call
    check = OverlapCheck(signature, addresses or pointers)
    sharing = Sharing(signature)
    others: dict[tuple[SharedMemory, ...], Run] = {}
    own = signature.shared

    def run(*args: Any) -> Any:
        pair = check(args)
        if pair is None and not own:
            return call(*args)
        found = () if pair is None else sharing(args)
        if found == own:
            return call(*args)
        if found is not None and compile_anew is not None and (found in others or len(others) < MOST):
            if found not in others:
                others[found] = compile_anew(args)
            return others[found](*args)
        a, b = (
            signature.inputs[i].name if i < len(signature.inputs) else "a constant" for i in pair or (own[0].parts[0][0],) * 2
        )
        report(f"inputs {a} and {b} share memory and one of them is written to; pass clones to avoid it", "")
        return uncompiled(*args)

    return run


class Sharing:
    """args -> the memory that written inputs share with others; None where a graph cannot take it, as with sizes that vary."""

    def __init__(self, signature: Signature) -> None:
        infos = signature.inputs
        self._written = [i for i, info in enumerate(infos) if info.mutation is not Mutation.NONE]
        self._tensors = [i for i, info in enumerate(infos) if info.kind is InputKind.TENSOR]
        self._sizes_are_known = all(info.kind is not InputKind.SIZE for info in infos)
        self._constants = signature.constants
        self._last: tuple[list[int], tuple[SharedMemory, ...] | None] | None = None

    def __call__(self, args: Sequence[Any]) -> tuple[SharedMemory, ...] | None:
        if not self._sizes_are_known:
            return None
        try:
            addresses = pointers([args[i] for i in self._tensors])
        except RuntimeError:  # one has no memory of its own, as a sparse tensor
            return self._look(args)
        if self._last is None or self._last[0] != addresses:
            self._last = addresses, self._look(args)
        return self._last[1]

    def _look(self, args: Sequence[Any]) -> tuple[SharedMemory, ...] | None:
        inputs = [*args, *self._constants]
        groups = overlaps(inputs, inputs, self._written)
        rows = [shared_memory(group, inputs) for group in groups]
        if any(row is None or row.parts[-1][0] >= len(args) for row in rows):
            return None
        return tuple(row for row in rows if row is not None)


class OverlapCheck:
    """args -> two slots that overlap, one of them written to, or None."""

    def __init__(self, signature: Signature, addresses: Addresses) -> None:
        self._ask = addresses
        infos = signature.inputs
        tensors = [i for i, info in enumerate(infos) if info.kind is InputKind.TENSOR]
        self._count = len(infos)
        self._constants = signature.constants
        self._written = frozenset(i for i in tensors if infos[i].mutation is not Mutation.NONE)
        self._static = tuple(i for i in tensors if infos[i].is_static)
        self._moving = tuple(i for i in tensors if not infos[i].is_static)
        self._static_is_written = any(i in self._written for i in self._static)
        self._addresses: Any = None
        self._apart: list[tuple[int, int, int]] = []  # (start, end, slot) of the static inputs that a moving one can meet
        self._starts: list[int] = []
        self._ends: list[int] = []  # the furthest end so far
        self._static_pair: tuple[int, int] | None = None
        self._sizes_are_known = all(info.kind is not InputKind.SIZE for info in infos)
        self._reach: list[int] | None = None  # bytes from the first element of each moving input to its last one's end
        self._moving_addresses: Any = None
        self._moving_pair: tuple[int, int] | None = None

    def __call__(self, args: Sequence[Any]) -> tuple[int, int] | None:
        static = [args[i] for i in self._static]
        addresses = self._addresses_of(static)
        if addresses is None or addresses != self._addresses:
            self._look_at_static(static, args)
            self._addresses, self._moving_addresses = addresses, None
        return self._static_pair or (self._look_at_moving(args) if self._moving else None)

    def _addresses_of(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Where the elements begin, to compare; None when one has no memory of its own, as a sparse tensor."""
        try:
            return self._ask(tensors)
        except RuntimeError:
            self._ask = pointers  # torch's C functions say on stderr what they refuse
            return None

    def _look_at_static(self, static: Sequence[torch.Tensor], args: Sequence[Any]) -> None:
        slots = [*self._static, *range(self._count, self._count + len(self._constants))]
        items = [
            (*bounds, slot) for slot, t in zip(slots, (*static, *self._constants), strict=True) if (bounds := storage_bounds(t))
        ]
        items.sort()
        self._static_pair = self._first_pair(items, args) if self._static_is_written else None
        self._apart = items if any(i in self._written for i in self._moving) else [x for x in items if x[2] in self._written]
        self._starts = [start for start, _, _ in self._apart]
        self._ends = list(accumulate((end for _, end, _ in self._apart), max))

    def _look_at_moving(self, args: Sequence[Any]) -> tuple[int, int] | None:
        tensors = [args[i] for i in self._moving]
        addresses = self._addresses_of(tensors) if self._sizes_are_known else None
        if addresses is None:
            return self._pair_of(
                [(*b, slot) for slot, t in zip(self._moving, tensors, strict=True) if (b := storage_bounds(t))], args
            )
        if addresses != self._moving_addresses:
            if self._reach is None:
                self._reach = [end - start for start, end in map(tensor_bounds, tensors)]
            found = zip(pointers(tensors), self._reach, self._moving, strict=True)
            self._moving_pair = self._pair_of([(start, start + reach, slot) for start, reach, slot in found if reach], args)
            self._moving_addresses = addresses
        return self._moving_pair

    def _pair_of(self, moving: list[tuple[int, int, int]], args: Sequence[Any]) -> tuple[int, int] | None:
        for start, end, _ in moving:
            before = bisect_left(self._starts, end)  # how many start before this one ends
            if before and self._ends[before - 1] > start:
                return self._first_pair(sorted([*moving, *self._apart]), args)
        return self._first_pair(sorted(moving), args) if len(moving) > 1 else None

    def _first_pair(self, items: Sequence[tuple[int, int, int]], args: Sequence[Any]) -> tuple[int, int] | None:
        """The first two of the sorted items that overlap, one being written to."""
        written, open_items = self._written, []
        reach = 0
        for item in items:
            start, end, slot = item
            if start >= reach:
                open_items = [item]
                reach = end
                continue
            for _, other_end, other in open_items:
                if other_end > start and (slot in written or other in written) and self._meet(slot, other, args):
                    return (other, slot)
            open_items.append(item)
            reach = max(reach, end)
        return None

    def _meet(self, a: int, b: int, args: Sequence[Any]) -> bool:
        first, second = (tensor_bounds(args[i] if i < self._count else self._constants[i - self._count]) for i in (a, b))
        return first[0] < second[1] and second[0] < first[1]


def pointers(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Where the elements begin; RuntimeError when one has no memory of its own, as a sparse tensor."""
    return list(map(data_ptr, tensors))


def storage_bounds(tensor: torch.Tensor) -> Bounds | None:
    """First and last address of the tensor's storage; None when it has no memory."""
    try:
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        return (start, start + storage.nbytes()) if start else None
    except (RuntimeError, NotImplementedError):
        return None


def tensor_bounds(tensor: torch.Tensor) -> Bounds:
    """First and last address of the elements themselves."""
    start = tensor.data_ptr()
    if tensor.numel() == 0:
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()

"""History: what is kept of a code object from one capture of it to the next."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from ..plan import Learnt

log = logging.getLogger("tracework.capture.checks")
MOST_FAILURES = 10


class History:
    """What is kept of one code object from capture to capture: what attempts learnt, and the sizes and numbers seen; what changed becomes a
    symbol. forget_checked: drops the entries that rely on checks of conditions on data."""

    def __init__(self, learnt: Learnt = Learnt(), forget_checked: Callable[[], object] = lambda: None) -> None:  # noqa: B008  # it is frozen
        self.learnt = learnt
        self.forget_checked = forget_checked
        self.failures = 0
        self.sizes: dict[Any, list[Any]] = {}
        self.gaps: dict[Any, dict[int, int | None]] = {}  # strides that are no products of sizes; None where they changed
        self.numbers: dict[Any, Any] = {}
        self.written: set[str] = set()  # inputs whose data was taken as it is, and is written to (graph.specialised)
        self.delayed = False
        self.dead_sources: list[str] = []  # where the objects were whose death has ended entries
        self.operations = 0  # most that an attempt of the last capture recorded for the frame itself
        self.answers: dict[Any, Any] = {}  # what functions that remember gave for this run while it was looked for a stored entry
        self.traced_in_vain = 0  # instructions of captures that met no tensor

    def check_failed(self) -> None:
        """A condition that was left to a check does not hold in this call; after the last time that is borne none is left to one."""
        self.failures += 1
        if self.failures == MOST_FAILURES:
            log.warning("conditions on data failed %d times; they break the graph from now on", self.failures)
            self.learnt |= Learnt(unchecked=True)
            self.forget_checked()

    def observe(self, names: dict[str, Any]) -> None:
        """Remember the arguments of a call that was not captured."""
        for name, value in names.items():
            if isinstance(value, torch.Tensor):
                self.remember(name, tuple(value.shape))
            elif type(value) is int:
                self.number_changed(name, value)

    def changed_dims(self, key: Any, shape: tuple[int, ...]) -> frozenset[int]:
        """Dims of the tensor at `key` that had another size before."""
        seen = self.sizes.get(key)
        if seen is None or len(seen) != len(shape):
            return frozenset()
        return frozenset(d for d, (old, new) in enumerate(zip(seen, shape)) if old is None or old != new)

    def remember(self, key: Any, shape: tuple[int, ...]) -> None:
        """Keep this call's sizes; a dim that changed once stays open (None)."""
        seen = self.sizes.get(key)
        if seen is None or len(seen) != len(shape):
            self.sizes[key] = list(shape)
        else:
            self.sizes[key] = [old if old == new else None for old, new in zip(seen, shape)]

    def remember_gaps(self, key: Any, gaps: dict[int, int]) -> None:
        """Keep this call's strides that are no products of sizes; one that changed once stays open (None)."""
        seen = self.gaps.setdefault(key, {})
        for dim, stride in gaps.items():
            seen[dim] = stride if seen.get(dim, stride) == stride else None

    def number_changed(self, key: Any, value: Any) -> bool:
        """Whether a number, or what else was taken as it is, had another value at `key` before; remembers it."""
        before = self.numbers.setdefault(key, value)
        if before is not None and before != value:
            before = self.numbers[key] = None
        return before is None

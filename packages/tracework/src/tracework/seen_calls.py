"""Arguments like those that a compiled function was called with, from the guards of its entries: tensors of the same kinds, without their data."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import tracework_capture as capture
from tracework_capture.guards import shapes as conditions
from tracework_capture.shapes import path_of
from tracework_capture.sources import TensorSize

from .errors import CannotCarry
from .torch_shapes import Shapes

Place = tuple[Any, ...]
_SIZES = (2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Sizes that are tried for those that were open."""
_TRIES = 20_000


def examples_of(compiled: Any) -> list[tuple[tuple[Any, ...], dict[str, Any], Shapes]]:
    """(args, kwargs, which sizes are open) for each entry of what capture.optimize() gave for a function; the last one used first.

    Raises CannotCarry for sizes that cannot be found.
    """
    found = []
    for text in capture.dump_guards(compiled, portable_only=True):
        call = _Call(capture.load_guards(text))
        found.append(call.arguments(list(inspect.signature(compiled.__wrapped__, follow_wrapped=False).parameters.values())))
    return found


class _Call:
    """What the guards of one entry say of the arguments."""

    def __init__(self, stored: capture.StoredGuards) -> None:
        self._known: dict[tuple[str, Place], Any] = {}
        for guard in stored.guards:
            if (path := path_of(guard.source)) is not None:
                self._known[guard.kind, path] = guard.payload
        values = _fitting(stored)
        self._sizes: dict[tuple[Place, int], int] = {}
        self._numbers: dict[Place, int] = {}
        for name, source in stored.symbols.items():
            path = path_of(source.base) if isinstance(source, TensorSize) else path_of(source)
            if path is not None and isinstance(source, TensorSize):
                self._sizes[path, source.dim] = values[name]
            elif path is not None:
                self._numbers[path] = values[name]
        self._open = Shapes({})

    def arguments(self, parameters: list[inspect.Parameter]) -> tuple[tuple[Any, ...], dict[str, Any], Shapes]:
        """The arguments, for a frame with these parameters."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for p in parameters:
            if p.kind is p.VAR_POSITIONAL:
                args += self._part((p.name,), ("args",)) or ()
            elif p.kind is p.VAR_KEYWORD:
                kwargs.update(self._part((p.name,), ("kwargs",)) or {})
            elif p.kind is p.KEYWORD_ONLY:
                kwargs[p.name] = self._part((p.name,), ("kwargs", p.name), p.default)
            else:
                args.append(self._part((p.name,), ("args", len(args)), p.default))
        return tuple(args), kwargs, self._open

    def _part(self, path: Place, at: Place, default: Any = None) -> Any:
        """The part at a path of the frame, which calls have at another one."""
        if (facts := self._known.get(("TENSOR", path))) is not None:
            return self._tensor(facts, path, at)
        if ("CONSTANT", path) in self._known:
            return self._known["CONSTANT", path]
        if path in self._numbers:
            assert self._open.declared is not None
            self._open.declared[at] = capture.DimRange()
            return self._numbers[path]
        kind, length, keys = (self._known.get((name, path)) for name in ("TYPE", "LENGTH", "DICT_KEYS"))
        below = dict.fromkeys(
            known[len(path)] for _, known in self._known if len(known) > len(path) and known[: len(path)] == path
        )
        if kind is dict:
            return {key: self._part((*path, key), (*at, key)) for key in (below if keys is None else keys)}
        if kind in (tuple, list):
            count = max((place + 1 for place in below if type(place) is int), default=0) if length is None else length
            items = [self._part((*path, place), (*at, place)) for place in range(count)]
            return items if kind is list else tuple(items)
        return None if default is inspect.Parameter.empty else default

    def _tensor(self, facts: Any, path: Place, at: Place) -> torch.Tensor:
        sizes = [self._sizes.get((path, dim), 2) if n is None else n for dim, n in enumerate(facts.sizes)]
        assert self._open.declared is not None
        if None in facts.sizes:
            self._open.declared[at] = tuple(capture.DimRange() if n is None else None for n in facts.sizes)
        strides = facts.strides
        if strides is None or None in strides:
            return torch.zeros(sizes, dtype=facts.dtype, device=facts.device)
        return torch.empty_strided(sizes, strides, dtype=facts.dtype, device=facts.device).zero_()


def _fitting(stored: capture.StoredGuards) -> Mapping[str, int]:
    """Numbers for the symbols for which all conditions hold."""
    for values in itertools.islice(_tried(list(stored.symbols)), _TRIES):
        if all(conditions.evaluate(record.condition, values) for record in stored.conditions):
            return values
    raise CannotCarry(
        "the function", ["no sizes were found for which the conditions of an entry hold; give aot_compile() example inputs"]
    )


def _tried(names: list[str]) -> Iterator[dict[str, int]]:
    """Equal numbers first: most conditions are of that kind."""
    yield from (dict.fromkeys(names, size) for size in _SIZES)
    yield from (dict(zip(names, sizes)) for sizes in itertools.product(_SIZES, repeat=len(names)))

"""What stands between the values of a frame and a compiled graph that is called with them: numbers are given as tensors, and modes set aside.

All of it is data but what draws random numbers, so that stored entries have it, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import _torch
from ..formulas import ComputedNumber

TYPE_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


def number_tensor(number: complex, kind: type = float) -> torch.Tensor:
    """A number as a tensor of one on the CPU, in the dtype that torch takes this kind of Python's numbers to be."""
    return torch.scalar_tensor(number, dtype=TYPE_DTYPES[kind], device="cpu")


def _float(number: float, given: Any) -> torch.Tensor:
    return number_tensor(number)


def _computed(number: ComputedNumber, given: Any) -> torch.Tensor:
    return number_tensor(number.of(given))


def _plain(tensor: torch.Tensor, given: Any) -> torch.Tensor:
    """A tensor of a subclass as one of class Tensor."""
    alias: torch.Tensor = _torch.modes.as_subclass(tensor, torch.Tensor)
    return alias


def _drawn_by(draw: Callable[[Any], Any]) -> Callable[[Any, Any], torch.Tensor]:
    """What the graph gets for a generator."""

    def drawn(generator: Any, given: Any) -> torch.Tensor:
        found = draw(generator)
        return found if isinstance(found, torch.Tensor) else number_tensor(found, type(found))

    return drawn


PLAIN = "plain"
INPUT_CHANGES: dict[str, Callable[[Any, Any], Any]] = {"float": _float, "computed": _computed, PLAIN: _plain}
"""Role of an input -> what the graph gets for it, and for all that is given: floats come as tensors, computed ones as a function of other
inputs; PLAIN is in the place of the role of a tensor of a subclass that is traced."""


def with_changed_inputs(
    compiled: Any, changes: tuple[tuple[int, str], ...], boxed: bool, draws: tuple[tuple[int, Callable[[Any], Any]], ...] = ()
) -> Any:
    """Hands the inputs at the places of `changes` over as their roles have it, and for generators what `draws` gives."""
    places = [(place, INPUT_CHANGES[role]) for place, role in changes] + [(place, _drawn_by(draw)) for place, draw in draws]
    if not places:
        return compiled
    places.sort(key=lambda change: change[0])

    def call(*given: Any) -> Any:
        numbers = given[0] if boxed else given
        inputs = list(numbers)
        for place, change in places:
            inputs[place] = change(inputs[place], numbers)
        return compiled(inputs) if boxed else compiled(*inputs)

    return call


_MODES: dict[str, Callable[[Any], Any]] = {
    "functions": _torch.modes.under_no_function_modes,
    "dual_levels": _torch.autograd.leaving_dual_levels,
    "saved_hooks": _torch.autograd.leaving_saved_hooks,
}


def around_of(modes: Any) -> tuple[str, ...]:
    """What has to be done about modes around a call of the graph: those at the start were asked while tracing, others are left."""
    held = {"functions": modes.modes_at_start, "dual_levels": modes.uses_dual_levels, "saved_hooks": modes.uses_saved_hooks}
    return tuple(name for name, is_there in held.items() if is_there)


def in_modes(compiled: Any, names: tuple[str, ...]) -> Any:
    """The same with that done."""
    for name in names:
        compiled = _MODES[name](compiled)
    return compiled

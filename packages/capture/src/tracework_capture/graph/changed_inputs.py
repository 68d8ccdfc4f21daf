"""What stands between the values of a frame and a compiled graph that is called with them: numbers are given as tensors, and modes set aside.

All of it is data, so that stored entries have it, too, but what keeps the state of a generator.
"""

from __future__ import annotations

import dataclasses
import operator
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


@dataclasses.dataclass(frozen=True)
class Draw:
    """What draws an input from a generator for each run. how: one of _DRAWS. is_of_place: whether it is given the place of the generator."""

    how: str
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()
    is_of_place: bool = False

    def __call__(self, found: Any) -> Any:
        generator = found.now if self.is_of_place else found
        return _DRAWS[self.how](self.function, generator, self.args, dict(self.named))


_DRAWS: dict[str, Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    "tensor": lambda function, generator, args, named: function(*args, **named, generator=generator),
    "array": lambda function, generator, args, named: torch.from_numpy(function(generator, *args, **named)),
    "int": lambda function, generator, args, named: operator.index(function(generator, *args, **named)),
    "float": lambda function, generator, args, named: float(function(generator, *args, **named)),
    "done": lambda function, generator, args, named: (function(generator, *args, **named), 0.0)[1],
}
"""Of a function of torch, of a method of NumPy's or Python's generators, or of what only changes the generator."""


def drawn_into(size: Any, stride: Any, dtype: Any, device: Any, name: str, *args: Any, **named: Any) -> torch.Tensor:
    """Memory of a form that a method, normal_() say, has filled."""
    with torch.no_grad():
        filled: torch.Tensor = getattr(torch.empty_strided(size, stride, dtype=dtype, device=device), name)(*args, **named)
        return filled


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

"""Functions of torch that read a float as it is, for floats that change: nodes that read it from a tensor when the graph runs
(graph/operators.py), where nothing asks for a gradient.

NUMBER_CALLS: name -> form(frame, name, args, kwargs), which gives None where the number is needed.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ...errors import NotPlain
from ...graph.operators import number_operator
from ..number.floats import changes
from ..protocol.constant import plain
from ..protocol.kinds import AbstractTensor, is_plain_tensor
from ..protocol.value import Frame, Value

FUNCTIONS = {
    "norm": torch.norm,
    "linalg_norm": torch.linalg.norm,
    "linalg_vector_norm": torch.linalg.vector_norm,
    "logspace": torch.logspace,
    **{name: getattr(torch, name) for name in ("dist", "histc", "cdist", "pdist")},
    "multi_margin_loss": F.multi_margin_loss,
}


AS_USUAL: dict[str, tuple[Any, ...]] = {"device": (None,), "dtype": (None,), "layout": (None, torch.strided)}
AS_USUAL |= {"requires_grad": (None, False), "pin_memory": (None, False)}
"""What an argument is where it says nothing."""


def read_when_run(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The call with its floats read from tensors; None where a gradient is asked for, or something else decides what it gives."""
    kwargs = {k: v for k, v in kwargs.items() if not v.is_constant() or v.constant() not in AS_USUAL.get(k, ())}
    values: list[Any] = [*args, *kwargs.values()]
    places = [place for place, value in enumerate(values) if isinstance(value, AbstractTensor)]
    examples = [values[place].example for place in places]
    if frame.modes.transforms or frame.modes.function_modes or any(torch.is_grad_enabled() and e.requires_grad for e in examples):
        return None
    if any(not is_plain_tensor(values[place]) for place in places) or under_autocast():
        return None
    try:
        known = [None if isinstance(v, AbstractTensor) or changes(v) else plain(v) for v in values]
    except NotPlain:
        return None
    numbers = {place: value.hint for place, value in enumerate(values) if changes(value)}
    if not places and not set(kwargs) <= {"start", "end", "steps", "base", "dtype"}:
        return None
    operator = number_operator(FUNCTIONS[name], known, tuple(kwargs), numbers, places)
    return frame.graph.call(frame, operator, (*(values[p] for p in places), *(values[p].as_tensor(frame) for p in numbers)))


def under_autocast() -> bool:
    """Whether the dtype of what functions compute in depends on where they are called."""
    return any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda"))


NUMBER_CALLS = dict.fromkeys(FUNCTIONS, read_when_run)

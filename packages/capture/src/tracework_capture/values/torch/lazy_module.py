"""Lazy modules of torch: the hook of a first call makes the parameters, and another class of the module, by the sizes of the inputs."""

from __future__ import annotations

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from ...plan import Again
from ..protocol.kinds import AbstractModule, AbstractTensor
from ..protocol.value import Frame, Value


def initialise(frame: Frame, module: AbstractModule, args: list[Value], kwargs: dict[str, Value]) -> None:
    """Does for real what the hook does, and starts the capture again with the module that this gives. Left to the hook, which breaks the
    graph, where sizes are open, random numbers were drawn or something was written before, which may tell of the module, and for lazy modules
    of others, which may look at more than sizes."""
    obj = module.obj
    if not isinstance(obj, LazyModuleMixin) or not obj.has_uninitialized_params():
        return
    own = type(obj).initialize_parameters.__module__.startswith("torch.nn.modules.")
    given = [like(value) for value in args]
    if not own or kwargs or None in given or frame.recording.effects.random or frame.mutations.entries:
        return
    obj._infer_parameters(obj, tuple(given))
    raise Again("initialised", detail=type(obj).__name__)


def like(value: Value) -> torch.Tensor | None:
    """A tensor of the same sizes without data; None where they are open."""
    if not isinstance(value, AbstractTensor) or not all(type(size) is int for size in value.example.shape):
        return None
    return torch.empty(value.example.shape, dtype=value.example.dtype, device="meta")

"""The state of the random number generators at the start of a call, so that a gradient of a gradient draws the same numbers again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import fx

from .. import _torch

States = tuple[tuple[torch.device, torch.Tensor], ...]


def random_devices(graph: fx.Graph) -> tuple[torch.device, ...]:
    """The devices on which a graph draws random numbers."""
    found: dict[torch.device, None] = {}
    for node in graph.nodes:
        if _torch.draws(node.target):
            values = node.meta["val"] if isinstance(node.meta["val"], (tuple, list)) else (node.meta["val"],)
            found.update(dict.fromkeys(v.device for v in values if isinstance(v, torch.Tensor)))
    return tuple(found)


def states_of(devices: tuple[torch.device, ...]) -> States:
    """The present states."""
    return tuple([(d, torch.get_rng_state() if d.type == "cpu" else torch.cuda.get_rng_state(d)) for d in devices])


def _set(states: States) -> None:
    for device, state in states:
        if device.type == "cpu":
            torch.set_rng_state(state)
        else:
            torch.cuda.set_rng_state(state, device)


@contextmanager
def drawing_again(states: States) -> Iterator[None]:
    """Random numbers come from `states`, and afterwards go on where they were."""
    if not states:
        yield
        return
    present = states_of(tuple(device for device, _ in states))
    _set(states)
    try:
        yield
    finally:
        _set(present)

"""Nodes recorded while the program has another default dtype or device than at its start say themselves which one they mean.

So a graph does not depend on the defaults that its program sets: they are written once, when it has run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .. import _torch
from ..errors import BreakGraph

__all__ = ["with_defaults"]

DEFAULTS = {"default_dtype": "dtype", "default_device": "device"}
"""Setting -> the argument of a factory that stands for it."""


def with_defaults(frame: Any, target: Any, args: Any, kwargs: Any, example: Any, kind: str) -> Any:
    """kwargs under which the call gives the same with the defaults of the start. Raises BreakGraph when there are none."""
    written = frame.modes.states_written
    changed = {name: written[name] for name in DEFAULTS if name in written and _torch.SETTINGS[name][0]() != written[name]}
    wanted = _kinds(example)
    if not changed or not wanted or id(example) in frame.graph.tensor_values:  # an argument, written in place
        return kwargs
    with _torch.blocks_of_devices_aside(), _as_at_start(changed):
        if _kinds(frame.graph.run_on_fakes(frame, target, args, kwargs, kind)) == wanted:
            return kwargs
        explicit = dict(zip(("dtype", "device"), wanted[0]))
        explicit = {k: v for k, v in explicit.items() if k in {DEFAULTS[name] for name in changed}}
        explicit |= {k: v for k, v in kwargs.items() if v is not None or k not in explicit}
        try:
            found = frame.graph.run_on_fakes(frame, target, args, explicit, kind)
        except BreakGraph:
            found = None
    if found is None or _kinds(found) != wanted:
        raise BreakGraph("torch_state", f"{getattr(target, '__name__', target)} under another default dtype or device")
    return explicit


def _kinds(example: Any) -> list[Any]:
    return [(leaf.dtype, leaf.device) for leaf in _torch.tree_leaves(example) if isinstance(leaf, torch.Tensor)]


@contextlib.contextmanager
def _as_at_start(changed: dict[str, Any]) -> Iterator[None]:
    now = {name: _torch.SETTINGS[name][0]() for name in changed}
    try:
        _torch.write_settings(changed)
        yield
    finally:
        _torch.write_settings(now)

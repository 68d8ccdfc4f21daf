"""What a graph wrote to inputs is taken back, where the frame runs again as plain Python after it."""

from __future__ import annotations

import functools
import operator
import random
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import fx
from tracework_primops.broadcasting import is_dense

from .. import _torch
from .wrapped import plain_parts

MAX_SAVED_BYTES = 1 << 16
"""Bytes of an input that are copied before each call for the case that a condition does not hold."""

Saved = list[tuple[torch.Tensor, torch.Tensor | None, int | None, tuple[Any, ...] | None]]
"""Tensor, copy, version, layout; no layout where nothing is written before the graph raises."""

OVERWRITES: frozenset[Any] = frozenset(
    {operator.setitem, "copy_", "fill_", "index_copy_", "index_fill_", "masked_fill_", "scatter_", "zero_"}
)
"""What gives elements of its first argument values that do not depend on what was there."""


def can_be_copied(node: fx.Node) -> bool:
    """Whether what the graph writes to an input can be taken back at all: without a history that is written along."""
    example: Any = node.meta["example_value"]
    return example.is_leaf and node.meta["binding"].role in ("tensor", "buffer", "parameter")


def can_be_put_back(node: fx.Node) -> bool:
    """Whether that costs next to nothing, so that it is done where conditions on data are checked: small, on the CPU, with a place of its
    own for each element."""
    spec: Any = node.meta["example_value"].spec
    if not can_be_copied(node) or spec.device.type != "cpu" or spec.is_symbolic:
        return False
    return spec.numel() * spec.dtype.itemsize <= MAX_SAVED_BYTES and is_dense(spec.sizes, spec.strides)


def is_written_the_same_again(node: fx.Node) -> bool:
    """Whether a plain run after the graph gives an input what it would have had without the graph: what writes to it overwrites, and its
    memory is read only after the last write, as the caches of a model's layers are."""
    example: Any = node.meta["example_value"]
    if not can_be_copied(node):
        return False
    written, was_read = 0, False
    for user in node.graph.nodes:
        places = [i for i, given in enumerate(user.all_input_nodes) if any(s is example.storage for s in storages_of(given))]
        if not places or user.op == "output":
            continue
        if (
            user.target in OVERWRITES
            and places == [0]
            and user.args[0] is user.all_input_nodes[0]
            and "reduce" not in user.kwargs
        ):
            if was_read:
                return False
            written += 1
        else:
            was_read = was_read or not any(s is example.storage for s in storages_of(user))  # views read nothing
    return bool(written == example.storage.version)


def storages_of(node: fx.Node) -> list[Any]:
    """The memory that the result of a node lies in."""
    example = node.meta.get("example_value")
    given = example if isinstance(example, (tuple, list)) else [example]
    parts = [part for tensor in given if isinstance(tensor, torch.Tensor) for part in plain_parts(tensor)]
    return [part.storage for part in parts]  # type: ignore[attr-defined, misc]  # of fakes; of wrappers it is a method


@_torch.modes.without_dispatch
def contents_of(tensors: list[torch.Tensor], written_again: list[torch.Tensor], whole: list[torch.Tensor]) -> Saved | None:
    """Copies of what the tensors hold, with their versions and layouts; None when one shows an element twice.

    There is no copy of what the plain run writes again, as the graph did, and of what is whole when the graph raises.
    """
    kept: Saved = [(t, None, version_of(t), ()) for t in written_again]
    for tensor in tensors:
        places = once_each(tensor.detach())
        if _torch.tensors.has_internal_overlap(places):
            return None
        layout = tensor.size(), tensor.stride(), tensor.storage_offset()
        kept.append((tensor, places.clone(), version_of(tensor), layout))
    return kept + [(t, None, version_of(t), None) for t in whole]


def version_of(tensor: torch.Tensor) -> int | None:
    """How often autograd saw the tensor written to; it does not count for those of inference mode."""
    return None if tensor.is_inference() else tensor._version


@_torch.modes.without_dispatch
def can_run_again(kept: Saved | None) -> bool:
    """Whether there is a copy of all that was not whole when the graph raised."""
    return kept is not None and all(version == version_of(tensor) for tensor, _, version, layout in kept if layout is None)


@_torch.modes.without_dispatch
def put_back(kept: Saved) -> None:
    """Gives the tensors what they held before, as if nobody had written to them."""
    for tensor, content, version, layout in kept:
        with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
            if content is not None and layout is not None:
                if (tensor.size(), tensor.stride(), tensor.storage_offset()) != layout:
                    tensor.as_strided_(*layout)
                once_each(tensor).copy_(content)
            if version is not None:
                _torch.tensors.set_version(tensor, version)


def states_of(generators: list[Any]) -> list[tuple[Callable[[Any], None], Any]]:
    """What sets these generators, and their states."""
    return [state_of(owner) for owner in {id(generator): generator for generator in generators}.values()]


def state_of(owner: Any) -> tuple[Callable[[Any], None], Any]:
    """What sets a generator of Python, of NumPy or of torch, and its state."""
    if isinstance(owner, random.Random):
        return owner.setstate, owner.getstate()
    if isinstance(owner, numpy.random.Generator):
        bits = owner.bit_generator
        return functools.partial(setattr, bits, "state"), bits.state
    return owner.set_state, owner.get_state()


def draw_again(states: list[tuple[Callable[[Any], None], Any]]) -> None:
    """The generators give the numbers once more that they gave since."""
    for put, state in states:
        put(state)


def once_each(tensor: torch.Tensor) -> torch.Tensor:
    """An expanded tensor without its repetitions."""
    for dim, (size, stride) in enumerate(zip(tensor.size(), tensor.stride())):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor

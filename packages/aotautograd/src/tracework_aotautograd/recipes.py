"""What aot_compile gave, as JSON data, and made again from it with what compiled the graphs loaded from elsewhere.

A recipe has the signature and what the wrappers were told. Of a callable whose wrapper needs the captured graph (one that writes to inputs,
depends on where they begin, or has a backward) there is none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import Enum
from typing import Any

import torch

from . import _torch, signature
from .signature import Mutation, Signature
from .wrappers.inference import wrap_inference

RECIPE = "__tracework_recipe__"
"""The attribute of a callable that says what it is made of."""
Load = Callable[[Any], Callable[[list[Any]], Any] | None]
"""From the recipe of a compiled graph to what it was; None where that is gone."""

_TYPES: dict[str, Any] = {
    name: kind for name, kind in vars(signature).items() if isinstance(kind, type) and kind.__module__ == signature.__name__
}
_NAMES = (torch.dtype, torch.layout, torch.memory_format)


class NotData(ValueError):
    """A value that JSON data cannot say."""


def inference_recipe(made: Signature, graph: Any, records: bool, autocast: bool) -> dict[str, Any] | None:
    """Of what wrap_inference gives; None where it cannot be made again without the captured graph.

    graph: the recipe of the compiled graph. records: whether a history would be recorded. autocast: whether casts were on while tracing.
    """
    if graph is None or made.constants or made.places or any(info.mutation is not Mutation.NONE for info in made.inputs):
        return None
    try:
        return {"role": "inference", "signature": to_data(made), "graph": graph, "records": records, "autocast": autocast}
    except NotData:
        return None


def from_recipe(recipe: dict[str, Any], load: Load) -> Callable[..., tuple[Any, ...]] | None:
    """What the recipe is of; None where a graph is gone."""
    call = load(recipe["graph"])
    if call is None:
        return None
    run = _torch.apart_from_autocast(call) if recipe["autocast"] else call
    return wrap_inference(run, from_data(recipe["signature"]), recipe["records"])


def to_data(value: Any) -> Any:
    """JSON data of a signature and what is in it. Raises NotData."""
    kind = type(value)
    if kind in (type(None), bool, int, str):
        return value
    if kind is float:
        return ["float", value.hex()]
    if kind.__name__ in _TYPES and kind is _TYPES[kind.__name__]:
        if issubclass(kind, Enum):
            return ["enum", kind.__name__, value.name]
        fields = value if issubclass(kind, tuple) else [getattr(value, f.name) for f in dataclasses.fields(kind)]
        return ["made", kind.__name__, *map(to_data, fields)]
    if kind in (tuple, list):
        return [kind.__name__, *map(to_data, value)]
    if isinstance(value, _NAMES):
        return ["torch", str(value).removeprefix("torch.")]
    if kind is torch.device:
        return ["device", str(value)]
    if kind is _torch.OpOverload and value.namespace == "aten":
        return ["operator", value.__name__]
    raise NotData(f"{kind.__name__} {value!r}")


def from_data(data: Any) -> Any:
    """The inverse of to_data."""
    if type(data) is not list:
        return data
    kind, *parts = data
    match kind:
        case "made":
            return _TYPES[parts[0]](*map(from_data, parts[1:]))
        case "enum":
            return _TYPES[parts[0]][parts[1]]
        case "tuple" | "list":
            return (tuple if kind == "tuple" else list)(map(from_data, parts))
        case "float":
            return float.fromhex(parts[0])
        case "torch":
            return getattr(torch, parts[0])
        case "device":
            return torch.device(parts[0])
    packet, _, overload = parts[0].partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload)

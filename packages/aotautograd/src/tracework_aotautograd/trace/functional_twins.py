"""Functional twins of operators that users registered and that write to arguments: they work on copies, and give these as results."""

import re
from functools import cache
from typing import Any

import torch

from .. import _torch

__all__ = ["functional_twin"]

NAMESPACE = "tracework_functional"
_ALIAS = re.compile(r"\([a-z]\w*!?\)")


@cache
def _library() -> Any:
    return torch.library.Library(NAMESPACE, "FRAGMENT")


def functional_twin(func: Any) -> Any:
    """The twin, registered under a name that does not depend on the process, since stored graphs hold it; None where there can be none."""
    schema, written = func._schema, _torch.written_arguments(func._schema)
    kinds = [str(a.type) for a in schema.arguments if a.name in written] + [str(r.type) for r in schema.returns]
    if set(kinds) != {"Tensor"} or any(r.alias_info is not None for r in schema.returns):
        return None
    arguments = str(schema).rpartition(" -> ")[0].partition("(")[2]
    name = "__".join([*schema.name.split("::"), schema.overload_name or "default"])
    if hasattr(getattr(torch.ops, NAMESPACE), name):
        return None  # the operator was registered a second time
    twin = _Twin(func, written)
    _library().define(f"{name}({_ALIAS.sub('', arguments)} -> ({', '.join(['Tensor'] * len(kinds))})")
    for key in ("CompositeExplicitAutograd", "Meta"):
        _library().impl(name, twin, key)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


class _Twin:
    """Calls the operator on copies of what it writes to."""

    def __init__(self, func: Any, written: tuple[str, ...]) -> None:
        self.__name__ = self.__qualname__ = func._schema.name
        self.func = func
        self.written = [(i, a.name) for i, a in enumerate(func._schema.arguments) if a.name in written]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        places = [place if place in given else name for place, name in self.written]
        for place in places:
            given[place] = _copy(given[place])
        found = self.func(*[given[i] for i in range(len(args))], **{name: given[name] for name in kwargs})
        new = () if found is None else tuple(found) if isinstance(found, (tuple, list)) else (found,)
        results = (*new, *(given[place] for place in places))
        return results[0] if len(results) == 1 else results


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Exactly the strides of the original, which the operator may have been given as numbers."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)

"""Operators of the program that do what their schemas say they do not: writing to an argument, giving memory that is an argument's or another
result's. Code around an operator is compiled by its schema, so that what it does beside goes unseen. A graph looks at each such operator when
it calls it first, and never again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from tracework_runtime import _torch
from tracework_runtime.errors import BrokenPromise

PROVIDED = frozenset(
    {"aten", "prims", "prim", "c10d", "_c10d_functional", "inductor", "higher_order", "quantized", "fsdp", "symm_mem"}
)
"""Namespaces of operators that come with torch."""
MOST_BYTES = 1 << 26
"""Of an argument that is compared with a copy of it; of larger ones a write is seen where it counts as one."""
_told: set[str] = set()


class FirstCall:
    """An operator under a name of a namespace, of which the first call is looked at."""

    def __init__(self, operator: Any, namespace: dict[str, Any], name: str, raises: bool) -> None:
        self._operator, self._namespace, self._name, self._raises = operator, namespace, name, raises

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        operator = self._namespace[self._name] = self._operator
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return operator(*args, **kwargs)
        schema, given = operator._schema, list(_named(operator._schema, args, kwargs))
        written = {_memory(tensor) for _, tensor, writes, _ in given if writes}
        before = [(row, row[1]._version, _bits(row[1], copy=True)) for row in given if _memory(row[1]) not in written]
        result = operator(*args, **kwargs)
        lies = [
            f"writes to its argument {name!r}, which the schema says it does not"
            for (name, tensor, *_), version, bits in before
            if tensor._version != version or bits is not None and not torch.equal(_bits(tensor), bits)  # type: ignore[arg-type]
        ]
        known = {_memory(tensor): f"its argument {name!r}" for name, tensor, _, aliased in given if not aliased}
        known.pop(0, None)
        for n, (returned, made) in enumerate(zip(schema.returns, result if isinstance(result, (tuple, list)) else (result,))):
            for tensor in made if isinstance(made, (list, tuple)) else [made]:
                if returned.alias_info is not None or not _is_plain(tensor):
                    continue
                if (owner := known.get(_memory(tensor))) is not None:
                    lies.append(f"gives a result, number {n}, with the memory of {owner}, which the schema says it does not")
                elif _memory(tensor):
                    known[_memory(tensor)] = f"its result number {n}"
        for lie in lies:
            self._tell(
                f"{schema.name} {lie}. What is compiled around it may not do what eager does: mend the operator or its schema."
            )
        return result

    def _tell(self, text: str) -> None:
        if self._raises:
            raise BrokenPromise(text)
        if text not in _told:
            _told.add(text)
            warnings.warn(text, UserWarning, stacklevel=4)


def look_at_operators(namespace: dict[str, Any], how: str) -> None:
    """Puts what looks at the first call in the place of each operator of the program. how: "off", "warn" or "raise"."""
    own = {n: f for n, f in namespace.items() if isinstance(f, _torch.OpOverload) and f.namespace not in PROVIDED}
    for name, operator in own.items() if how != "off" else ():
        namespace[name] = FirstCall(operator, namespace, name, how == "raise")


def looked_at(operator: Callable[..., Any], how: str) -> Callable[..., Any]:
    """The same, with a look at its first call where it is an operator of the program; for graphs that no host program runs."""
    namespace: dict[str, Any] = {"operator": operator}
    look_at_operators(namespace, how)
    if namespace["operator"] is operator:
        return operator
    return lambda *args, **kwargs: namespace["operator"](*args, **kwargs)


def _named(schema: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor, bool, bool]]:
    """(name, tensor, whether the operator says that it writes to it, whether it says that a result is its memory) of each argument."""
    for argument, value in zip(schema.arguments, (*args, *(kwargs.get(a.name) for a in schema.arguments[len(args) :]))):
        info = argument.alias_info
        several = isinstance(value, (list, tuple))
        for n, tensor in enumerate(value if several else [value]):
            if _is_plain(tensor):
                name = f"{argument.name}[{n}]" if several else argument.name
                yield name, tensor, info is not None and info.is_write, info is not None


def _is_plain(value: Any) -> bool:
    """Whether it is a tensor whose memory can be looked at."""
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided and not value.is_inference()


def _memory(tensor: torch.Tensor) -> int:
    """Where the memory of a tensor begins; 0 where it has none."""
    return tensor.untyped_storage().data_ptr()


@torch.no_grad()
def _bits(tensor: torch.Tensor, copy: bool = False) -> torch.Tensor | None:
    """The bytes of a tensor; None of one that is too large."""
    if tensor.nbytes > MOST_BYTES:
        return None
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return (flat.clone() if copy else flat).view(torch.uint8)

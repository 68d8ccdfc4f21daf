"""Torch's composites that read sizes as plain numbers, written anew for fakes with symbolic sizes.

Such a composite is C++ code that asks a tensor for its sizes and calls other ops with what it computed from them: with symbols
each size that it looks at would become fixed. Others treat subclasses of tensors in another way than tensors. Fakes carry one
more dispatch key, under which the composites of this folder are registered; all other ops fall through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import torch

from ... import _torch
from ..._torch import OpOverload
from ..tensor import FakeTensor

Form = Callable[..., Any]
AUTOCAST_DEVICES = ("cpu", "cuda")
COMPOSITES: dict[Any, Form] = {}  # overload -> its form over symbolic sizes
_KERNELS = _torch.CompositeKernels()


def composite(*names: str, static: bool = False) -> Callable[[Form], Form]:
    """Registers the form for these overloads, skipping those this torch does not have; it is for symbolic sizes unless `static`.

    A form gives NotImplemented where torch's own code may go on with the arguments.
    """

    def register(form: Form) -> Form:
        for name in names:
            packet, _, suffix = name.partition(".")
            found = getattr(getattr(torch.ops.aten, packet, None), suffix or "default", None)
            if found is not None:
                COMPOSITES[found] = form
                _KERNELS.add(name, _kernel(found, form, static))
        return form

    return register


def _kernel(func: OpOverload, form: Form, static: bool) -> Form:
    @wraps(form)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        serves = static or _is_symbolic(args) or _is_symbolic(kwargs.values())
        if serves and not any(_torch.autocasts(func, device) for device in AUTOCAST_DEVICES):
            result = form(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return torchs(func, *args, **kwargs)

    return kernel


def _is_symbolic(values: Iterable[Any]) -> bool:
    for value in values:
        if value.__class__ is FakeTensor and value.is_symbolic or value.__class__ is torch.SymInt:
            return True
        if isinstance(value, (list, tuple)) and _is_symbolic(value):
            return True
    return False


def torchs(func: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """The call as torch does it."""
    with _torch.without_composite_key():
        return func(*args, **kwargs)


def broadcast(a: Any, b: Any) -> list[Any]:
    """The sizes of two shapes together; equality of symbols is decided, and recorded, by their table."""
    longest = max(len(a), len(b))
    pairs = zip([1] * (longest - len(a)) + list(a), [1] * (longest - len(b)) + list(b), strict=True)
    return [_joined(x, y) for x, y in pairs]


def _joined(x: Any, y: Any) -> Any:
    if x == 1 or y == 1:
        return y if x == 1 else x
    if x != y:
        raise RuntimeError(f"sizes {x} and {y} do not broadcast")
    return x if isinstance(x, int) else y

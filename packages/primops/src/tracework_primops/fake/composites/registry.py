"""Torch's composites that read sizes as plain numbers, written anew for fakes with symbolic sizes.

Such a composite is C++ code that asks a tensor for its sizes and calls other ops with what it computed from them: with symbols
each size that it looks at would become fixed. A fake with symbolic sizes carries one more dispatch key, under which the
composites of this folder are registered; all other ops fall through it. Real tensors and static fakes do not have the key.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from ... import _torch

Form = Callable[..., Any]
AUTOCAST_DEVICES = ("cpu", "cuda")
COMPOSITES: dict[Any, Form] = {}  # overload -> its form over symbolic sizes
_KERNELS = _torch.SymbolicKernels()


def composite(*names: str) -> Callable[[Form], Form]:
    """Registers the form for these overloads, skipping those this torch does not have.

    A form gives NotImplemented where torch's own code may go on with the arguments.
    """

    def register(form: Form) -> Form:
        for name in names:
            packet, _, suffix = name.partition(".")
            found = getattr(getattr(torch.ops.aten, packet, None), suffix or "default", None)
            if found is not None:
                COMPOSITES[found] = form
                _KERNELS.add(name, _kernel(found, form))
        return form

    return register


def _kernel(func: Any, form: Form) -> Form:
    @wraps(form)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        if not any(_torch.autocasts(func, device) for device in AUTOCAST_DEVICES):
            result = form(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return torchs(func, *args, **kwargs)

    return kernel


def torchs(func: Any, *args: Any, **kwargs: Any) -> Any:
    """The call as torch does it."""
    with _torch.without_symbolic_key():
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

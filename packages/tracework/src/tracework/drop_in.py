"""Stands in for torch.compile in code that calls it itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from . import api


@contextlib.contextmanager
def _restoring(original: object) -> Iterator[None]:
    try:
        yield
    finally:
        torch.compile = original  # type: ignore[assignment]


def replace_torch_compile() -> contextlib.AbstractContextManager[None]:
    """From now on `torch.compile` and `nn.Module.compile` are this compiler's; as a context manager, until its end."""
    original = torch.compile
    torch.compile = api.compile  # type: ignore[assignment]
    return _restoring(original)

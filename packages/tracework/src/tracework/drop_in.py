"""Stands in for torch.compile in code that calls it itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from . import api, compiler

STAND_INS: tuple[tuple[Any, str, Any], ...] = (
    (torch, "compile", api.compile),
    (torch.compiler, "set_stance", compiler.set_stance),
    (torch.compiler, "reset", compiler.reset),
    (torch.compiler, "cudagraph_mark_step_begin", compiler.cudagraph_mark_step_begin),
)
"""What is replaced: what acts on the compiler as a whole. Marks on functions and tensors need no replacing: torch's are honoured."""


@contextlib.contextmanager
def _restoring(originals: list[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for (owner, name, _), original in zip(STAND_INS, originals):
            setattr(owner, name, original)


def replace_torch_compile() -> contextlib.AbstractContextManager[None]:
    """From now on `torch.compile`, `nn.Module.compile`, and `set_stance`, `reset` and `cudagraph_mark_step_begin` of torch.compiler are
    this compiler's.

    As a context manager, until its end.
    """
    originals = [getattr(owner, name) for owner, name, _ in STAND_INS]
    for owner, name, ours in STAND_INS:
        setattr(owner, name, ours)
    return _restoring(originals)

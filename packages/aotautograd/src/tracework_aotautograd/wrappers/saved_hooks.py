"""Calls under saved-tensor hooks of the program run uncompiled: such hooks see, and may change, every tensor that eager saves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from .. import _torch

fallbacks = logging.getLogger("tracework.fallbacks")
Run = Callable[..., Any]


def guard_saved_hooks(call: Run, uncompiled: Run) -> Run:
    """`call`, or `uncompiled` under hooks that torch did not make itself: those of torch (checkpointing, save_on_cpu) give back what
    they were given, and so work on what a compiled graph saves, too."""
    told = False

    def run(*args: Any) -> Any:
        nonlocal told
        hooks = _torch.saved_tensor_hooks()
        if hooks is None or (getattr(hooks[0], "__module__", None) or "").partition(".")[0] == "torch":
            return call(*args)
        if not told:
            told = True
            fallbacks.warning(
                "calls under torch.autograd.graph.saved_tensors_hooks run uncompiled: leave the hooks around the call"
            )
        return uncompiled(*args)

    return run

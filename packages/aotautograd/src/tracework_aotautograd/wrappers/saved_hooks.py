"""Calls under saved-tensor hooks of the program run uncompiled: such hooks see, and may change, every tensor that eager saves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import _torch
from ..contracts import Report

Run = Callable[..., Any]


def guard_saved_hooks(call: Run, uncompiled: Run, report: Report) -> Run:
    """`call`, or `uncompiled` under hooks that torch did not make itself: those of torch (checkpointing, save_on_cpu) give back what
    they were given, and so work on what a compiled graph saves, too. Also where the engine is to look for NaN in the gradients of each
    operator, of which a compiled graph has one: a NaN inside would go unseen, and the operator unnamed."""

    def run(*args: Any) -> Any:
        if torch.is_anomaly_check_nan_enabled() and torch.is_anomaly_enabled():
            report(
                "detect_anomaly is on, which looks at the gradients of each operator; leave it off where nothing is sought", ""
            )
            return uncompiled(*args)
        hooks = _torch.saved_tensor_hooks()
        if hooks is None or (getattr(hooks[0], "__module__", None) or "").partition(".")[0] == "torch":
            return call(*args)
        report("the call is under hooks of torch.autograd.graph.saved_tensors_hooks; leave them around the call", "")
        return uncompiled(*args)

    return run

"""KERNEL_CHOICES: functions for which a kernel is chosen by settings while they are traced or compiled: a graph with one of them guards these.

Other settings are looked at by kernels when they run, and need no guard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from .._torch import FLAGS, FUSED_ATTENTION
from ..guards.kinds import STATES

__all__ = ["KERNEL_CHOICES", "guard_choices", "guard_state"]

ATTENTION = tuple(name for name in FLAGS if "sdp" in name and name not in ("sdp_overrideable", "sdp_fa3"))
"""Which operator is taken; not what other devices may override, and which version of its kernel the operator calls."""
CUDNN = ("cudnn_enabled",)
LIBRARIES = (*CUDNN, "mkldnn_enabled")
CONVOLUTIONS = (*LIBRARIES, "cublas_allow_fp16_accumulation")
"""On a GPU some become products, which that setting is about."""

KERNEL_CHOICES: Mapping[Callable[..., Any], tuple[str, ...]] = {
    **dict.fromkeys((F.scaled_dot_product_attention, F.multi_head_attention_forward, *FUSED_ATTENTION), ATTENTION),
    **dict.fromkeys((torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu), LIBRARIES),
    **dict.fromkeys((F.ctc_loss, torch.ctc_loss, torch.batch_norm, F.batch_norm, torch.instance_norm, F.instance_norm), CUDNN),
    **dict.fromkeys(
        (
            torch.convolution,
            *(getattr(space, f"conv{way}{dims}d") for space in (torch, F) for way in ("", "_transpose") for dims in (1, 2, 3)),
        ),
        CONVOLUTIONS,
    ),
}
"""Function -> rows of guards.kinds.STATES."""


def guard_choices(frame: Any, target: Any) -> None:
    """Guards what a call of `target` in the graph depends on."""
    if not isinstance(target, str):
        for state in KERNEL_CHOICES.get(target, ()):
            guard_state(frame, state)


def guard_state(frame: Any, state: str) -> None:
    """The state, a row of guards.kinds.STATES, is as at the start of this frame: blocks and setters of the program change it for real."""
    modes = frame.modes
    start = modes.states_written[state] if state in modes.states_written else STATES[state]()
    frame.guards.state(state, modes.autocast_at_start if state == "autocast" else start, frame.user_location())

"""What settings of torch a node's call depends on.

Nodes recorded while the program has another default dtype or device than at its start say themselves which one they mean. So a graph does not
depend on the defaults that its program sets: they are written once, when it has run.

KERNEL_CHOICES: functions for which a kernel is chosen by settings while they are traced or compiled: a graph with one of them guards these. Other
settings are looked at by kernels when they run, and need no guard.

Context managers of torch hold for a block of the graph; some are entered by a call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from .. import _torch
from .._torch.functions import FUSED_ATTENTION
from .._torch.settings import FLAGS, exit_autocast
from ..errors import BreakGraph
from ..guards.kinds import STATES

if TYPE_CHECKING:
    from ..values.protocol.value import Frame


@contextlib.contextmanager
def settings_written(values: dict[str, Any]) -> Iterator[None]:
    """A block in which settings have these values, and after which they are as before."""
    now = {name: _torch.settings.SETTINGS[name][0]() for name in values}
    try:
        _torch.settings.write_settings(values)
        yield
    finally:
        _torch.settings.write_settings(now)


DEFAULTS = {"default_dtype": "dtype", "default_device": "device"}
"""Setting -> the argument of a factory that stands for it."""


def with_defaults(frame: Any, target: Any, args: Any, kwargs: Any, example: Any, kind: str) -> Any:
    """kwargs under which the call gives the same with the defaults of the start. Raises BreakGraph when there are none."""
    written = frame.modes.states_written
    changed = {
        name: written[name] for name in DEFAULTS if name in written and _torch.settings.SETTINGS[name][0]() != written[name]
    }
    wanted = _kinds(example)
    if not changed or not wanted or id(example) in frame.graph.tensor_values:  # an argument, written in place
        return kwargs
    with _torch.modes.blocks_of_devices_aside(), settings_written(changed):
        if _kinds(frame.graph.run_on_fakes(frame, target, args, kwargs, kind)) == wanted:
            return kwargs
        explicit = dict(zip(("dtype", "device"), wanted[0]))
        explicit = {k: v for k, v in explicit.items() if k in {DEFAULTS[name] for name in changed}}
        explicit |= {k: v for k, v in kwargs.items() if v is not None or k not in explicit}
        try:
            found = frame.graph.run_on_fakes(frame, target, args, explicit, kind)
        except BreakGraph:
            found = None
    if found is None or _kinds(found) != wanted:
        raise BreakGraph("torch_state", f"{getattr(target, '__name__', target)} under another default dtype or device")
    return explicit


def _kinds(example: Any) -> list[Any]:
    return [(leaf.dtype, leaf.device) for leaf in _torch.functions.tree_leaves(example) if isinstance(leaf, torch.Tensor)]


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


# --- context managers ------------------------------------------------------------------------------------------------------


def left(frame: Any, manager: Any) -> None:
    """The manager is not entered any more, or once less often."""
    entered = frame.modes.entered
    place = next((n for n in reversed(range(len(entered))) if entered[n][0] is manager), None)
    if place is not None:
        del entered[place]


def refuse_open_managers(frame: Frame) -> None:
    """Breaks the graph before the call that enters a manager by hand where the graph would end before it is left: what graphs do in the
    block ends with them."""
    for manager, step, stack in frame.modes.entered:
        if not manager.outlives_graph:
            stop = BreakGraph(
                "context_unknown", f"{manager.cls.__name__} is entered by a call, and the graph ends before it is left"
            )
            stop.created_at, stop.stack = step, stack
            raise stop


def end_autocast(frame: Any) -> None:
    """At the end of a graph: blocks that began before it and ended in it are blocks of the graph in which what held before them does.
    They really end after the graph."""
    for node in reversed(frame.modes.autocast_ended):
        frame.graph.plain_node(frame, exit_autocast, (node,))
    frame.modes.autocast_ended.clear()

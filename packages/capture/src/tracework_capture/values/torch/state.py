"""Settings of torch that captured code reads and writes: a read is answered while tracing and guarded with what held at the start.

A write of what holds already is nothing but a guard. Others are nodes, run for real while tracing, too: those that decide which
operators a composite calls (FLAGS of scaled_dot_product_attention) matter there alone; what kernels look at when they run cuts the
graph for the stages that follow, as operators that read data do. The default dtype and device are set for real while tracing, and
written into the nodes that they matter to.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.attention

from ..._torch import (
    FLAG_FUNCTIONS,
    FLAGS,
    SETTINGS,
    any_autocast,
    deterministic_warns_only,
    device_is_set_for_good,
    select_attention_kernels,
    under_fx_tracing,
    under_onnx_export,
)
from ...guards.kinds import STATES
from ..plain.mapping import dict_of
from ..plain.sequence import NONE, SequenceValue
from ..protocol.calls import Policy, call, calls
from ..protocol.constant import fold, force_plain
from .context import ContextValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol.calls import Handler
    from ..protocol.value import Emitter, Frame, Value


def at_start(frame: Frame, state: str) -> Any:
    """What a state was when the frame began."""
    written = frame.modes.states_written
    return written[state] if state in written else STATES[state]()


def guard_state(frame: Frame, state: str) -> None:
    """The state is as at the start of this frame."""
    frame.guards.state(state, at_start(frame, state), frame.user_location())


def read_row(fn: Any, state: str | None = None) -> Handler:
    """A query of torch's state, guarded by the row of that name in guards.kinds.STATES unless it never changes, or is always guarded."""

    def evaluates(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if state is not None:
            guard_state(frame, state)
        return fold(frame, fn, args, kwargs)

    return evaluates


def autocast_row(fn: Callable[..., Any]) -> Handler:
    """A query of autocast's dtypes or cache: blocks of the program change them for real while it is traced."""

    def evaluates(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        frame.guards.state("autocast", frame.modes.autocast_at_start, frame.user_location())
        return fold(frame, fn, args, kwargs)

    return evaluates


def write_row(fn: Callable[..., Any], states: tuple[str, ...], wanted: Callable[..., Any]) -> Handler:
    """A setter; wanted(*args, **kwargs) gives what the states will be."""

    def writes(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = [force_plain(frame, a) for a in args], {k: force_plain(frame, v) for k, v in kwargs.items()}
        try:
            values = wanted(*given[0], **given[1])
        except (TypeError, ValueError, RuntimeError) as error:
            return frame.break_graph("torch_state", f"{fn.__name__}: {error}")
        for state in states:
            guard_state(frame, state)
        if all(STATES[state]() == value for state, value in zip(states, values)):
            return NONE
        if not all(state in FLAGS and STATES[state]() is not None for state in states):
            return frame.break_graph("torch_state", f"torch.{fn.__name__}")
        for state, value in zip(states, values):
            set_flag(frame, state, value)
        return NONE

    return writes


ASK_WHETHER_TO_WARN = (
    torch.is_deterministic_algorithms_warn_only_enabled,
    deterministic_warns_only,
)
ASK_AUTOCAST = (
    torch.get_autocast_dtype,
    torch.get_autocast_cpu_dtype,
    torch.get_autocast_gpu_dtype,
    torch.is_autocast_cache_enabled,
    any_autocast,
)
ASK_WHETHER_FX_TRACES = ("is_fx_tracing", "is_fx_symbolic_tracing")


def as_matmul_precision(precision: str) -> tuple[str]:
    return (precision,)


def as_deterministic(mode: bool, *, warn_only: bool = False) -> tuple[bool, ...]:
    return bool(mode), bool(warn_only)


def set_flag(frame: Frame, name: str, value: list[int] | str | bool) -> None:
    """A node that writes a flag."""
    read, write = FLAGS[name]
    if read() != value:
        before = {flag: reads() for flag, (reads, _) in FLAGS.items()}
        node = frame.graph.plain_node(frame, write, (value,))
        for flag, was in before.items():  # some flags are other names of parts of others
            if FLAGS[flag][0]() != was:
                frame.modes.states_written.setdefault(flag, was)
        if "sdp" not in name:
            node.meta["data_dependent"] = True
            node.meta["undo"] = (read, write)


def default_row(name: str, argument: str, made: Callable[..., Any]) -> Handler:
    """torch.set_default_dtype, torch.set_default_device; made: what becomes of the argument."""

    def writes(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = {k: force_plain(frame, v) for k, v in (dict(zip((argument,), args)) | kwargs).items()}
        if set(given) != {argument} or not device_is_set_for_good():
            return frame.break_graph("torch_state", f"torch.set_{name}")
        guard_state(frame, name)
        read, write = SETTINGS[name]
        before = read()
        try:
            write(made(given[argument]))
        except (TypeError, RuntimeError) as error:
            return frame.break_graph("torch_state", f"torch.set_{name}: {error}")
        if read() != before:
            frame.modes.states_written.setdefault(name, before)
        return NONE

    return writes


class DeviceBlock(ContextValue):
    """`with torch.device(...):`, entered for real while tracing; nodes inside say themselves which device they mean."""

    def __init__(self, device: Value) -> None:
        super().__init__(torch.device, [device], {})
        self.device = device.constant()

    def enter(self, frame: Frame) -> Value:
        if frame.modes.function_modes or not device_is_set_for_good():
            return frame.break_graph("context_unknown", "with torch.device(...) under another one, or under a mode")
        guard_state(frame, "default_device")
        read, _ = SETTINGS["default_device"]
        frame.modes.states_written.setdefault("default_device", read())
        self.device.__enter__()
        return self.args[0]

    def leave(self, frame: Frame) -> None:
        self.device.__exit__(None, None, None)

    def reload(self, emit: Emitter) -> str:
        return emit.const(self.device)


class AttentionKernels(ContextValue):
    """torch.nn.attention.sdpa_kernel(backends, set_priority); `wanted`: what it does when it is entered."""

    def __init__(self, args: list[Value], kwargs: dict[str, Value], wanted: Callable[..., Any]) -> None:
        super().__init__(torch.nn.attention.sdpa_kernel, args, kwargs)
        self.wanted = wanted
        self.before: list[dict[str, Any]] = []

    def python_type(self) -> type:
        return contextlib._GeneratorContextManager

    def enter(self, frame: Frame) -> Value:
        before = {name: read() for name, (read, _) in FLAGS.items() if "sdp" in name}
        for name in before:
            guard_state(frame, name)
        self.wanted()
        after = {name: FLAGS[name][0]() for name in before}
        for name, value in before.items():
            FLAGS[name][1](value)
        self.before.append(before)
        for name, value in after.items():
            set_flag(frame, name, value)
        return dict_of(frame, [])

    def leave(self, frame: Frame) -> None:
        for name, value in self.before.pop().items():
            set_flag(frame, name, value)


@call(torch.nn.attention.sdpa_kernel)
def sdpa_kernel_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.nn.attention.sdpa_kernel(backends, set_priority=False)"""
    given = dict(zip(("backends", "set_priority"), args)) | kwargs
    if "backends" not in given or set(given) - {"backends", "set_priority"}:
        return frame.break_graph("context_unknown", "sdpa_kernel with these arguments")
    chosen = given["backends"].unpack(frame) if isinstance(given["backends"], SequenceValue) else [given["backends"]]
    kinds = [force_plain(frame, kernel) for kernel in chosen]
    if not all(isinstance(kind, torch.nn.attention.SDPBackend) for kind in kinds):
        return frame.break_graph("context_unknown", "sdpa_kernel of something that is no SDPBackend")
    priority = bool(force_plain(frame, given["set_priority"])) if "set_priority" in given else False
    backends = list(dict.fromkeys(kinds))
    return AttentionKernels(args, kwargs, lambda: select_attention_kernels(backends, priority))


calls(
    {
        **{fn: read_row(fn, "deterministic_warn_only") for fn in ASK_WHETHER_TO_WARN},
        torch.get_float32_matmul_precision: read_row(torch.get_float32_matmul_precision, "float32_matmul_precision"),
        **{fn: autocast_row(fn) for fn in ASK_AUTOCAST},
        **{read: read_row(read, name) for name, (read, _) in FLAG_FUNCTIONS.items()},
        "torch.onnx.is_in_onnx_export": read_row(under_onnx_export, "onnx_export"),
        **{f"torch.fx._symbolic_trace.{name}": read_row(under_fx_tracing, "fx_tracing") for name in ASK_WHETHER_FX_TRACES},
        under_fx_tracing: read_row(under_fx_tracing, "fx_tracing"),
    },
    policy=Policy.EVALUATED,
)
calls(
    {
        **{write: write_row(write, (name,), lambda value: (value,)) for name, (_, write) in FLAG_FUNCTIONS.items()},
        torch.set_default_dtype: default_row("default_dtype", "d", lambda d: d),
        torch.set_default_device: default_row("default_device", "device", lambda device: device),
        torch.set_float32_matmul_precision: write_row(
            torch.set_float32_matmul_precision, ("float32_matmul_precision",), as_matmul_precision
        ),
        torch.use_deterministic_algorithms: write_row(
            torch.use_deterministic_algorithms, ("deterministic", "deterministic_warn_only"), as_deterministic
        ),
        torch.set_num_threads: write_row(torch.set_num_threads, ("num_threads",), lambda number: (number,)),
    }
)

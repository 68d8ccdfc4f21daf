"""Settings of torch that captured code reads and writes: a read is answered while tracing and guarded with what held at the start.

A write of what holds already is nothing but a guard. Others are nodes, run for real while tracing, too: those that decide which
operators a composite calls (FLAGS of scaled_dot_product_attention) matter there alone; what kernels look at when they run cuts the
graph for the stages that follow, as operators that read data do. The default dtype and device are set for real while tracing, and
written into the nodes that they matter to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.attention

from ... import _torch
from ..._torch.modes import device_is_set_for_good
from ..._torch.settings import FLAG_FUNCTIONS, FLAGS, SETTINGS, select_attention_kernels
from ...graph.settings import guard_state
from ...guards.kinds import STATES
from ..plain.mapping import dict_of
from ..plain.sequence import NONE, SequenceValue
from ..protocol.calls import Handler, Policy, call, calls
from ..protocol.constant import fold, force_plain
from ..protocol.value import Emitter, Frame, Value
from .context import Block, Blocks, ContextValue


def read_row(fn: Any, state: str | None = None) -> Handler:
    """A query of torch's state, guarded by the row of that name in guards.kinds.STATES unless it never changes, or is always guarded."""

    def evaluates(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if state is not None:
            guard_state(frame, state)
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


def default_row(name: str, argument: str) -> Handler:
    """torch.set_default_dtype, torch.set_default_device"""

    def writes(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = {k: force_plain(frame, v) for k, v in (dict(zip((argument,), args)) | kwargs).items()}
        if set(given) != {argument} or not device_is_set_for_good():
            return frame.break_graph("torch_state", f"torch.set_{name}")
        guard_state(frame, name)
        read, write = SETTINGS[name]
        before = read()
        try:
            write(given[argument])
        except (TypeError, RuntimeError) as error:
            return frame.break_graph("torch_state", f"torch.set_{name}: {error}")
        if read() != before:
            frame.modes.states_written.setdefault(name, before)
        return NONE

    return writes


class DeviceBlock(ContextValue):
    """`with torch.device(...):`, entered for real while tracing; nodes inside say themselves which device they mean."""

    def __init__(self, device: Value) -> None:
        super().__init__(torch.device, device_block, [device], {})

    def reload(self, emit: Emitter) -> str:
        return emit.const(self.args[0].constant())


def device_block(frame: Frame, manager: ContextValue) -> Blocks:
    if frame.modes.function_modes or not device_is_set_for_good():
        frame.break_graph("context_unknown", "with torch.device(...) under another one, or under a mode")
    guard_state(frame, "default_device")
    read, _ = SETTINGS["default_device"]
    frame.modes.states_written.setdefault("default_device", read())
    device = manager.args[0].constant()
    device.__enter__()
    yield manager.args[0]
    device.__exit__(None, None, None)


def attention_block(select: Callable[[], Any]) -> Block:
    """A block of sdpa_kernel; `select` does what it does when it is entered."""

    def block(frame: Frame, manager: ContextValue) -> Blocks:
        before = {name: read() for name, (read, _) in FLAGS.items() if "sdp" in name}
        for name in before:
            guard_state(frame, name)
        select()
        after = {name: FLAGS[name][0]() for name in before}
        for name, value in before.items():
            FLAGS[name][1](value)
        for name, value in after.items():
            set_flag(frame, name, value)
        yield dict_of(frame, [])
        for name, value in before.items():
            set_flag(frame, name, value)

    return block


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
    block = attention_block(functools.partial(select_attention_kernels, list(dict.fromkeys(kinds)), priority))
    return ContextValue(torch.nn.attention.sdpa_kernel, block, args, kwargs)


def one(value: Any) -> tuple[Any]:
    """What a setter of one setting is given."""
    return (value,)


QUERIES: dict[Any, str | None] = {
    **{read: name for name, (read, _) in FLAG_FUNCTIONS.items()},
    torch.get_float32_matmul_precision: "float32_matmul_precision",
    _torch.settings.deterministic_warns_only: "deterministic_warn_only",
    torch.get_autocast_dtype: "autocast",
    torch.get_autocast_cpu_dtype: "autocast",
    torch.get_autocast_gpu_dtype: "autocast",
    torch.is_autocast_cache_enabled: "autocast",
    _torch.settings.any_autocast: "autocast",
    torch.cuda.is_initialized: "cuda_initialized",
    torch.cuda.get_device_capability: "cuda_device",
    torch.cuda.current_device: "cuda_device",
    torch.cuda.is_bf16_supported: "cuda_device",
    torch.distributed.is_initialized: "distributed",
    "torch.onnx.is_in_onnx_export": "onnx_export",
    "torch.fx._symbolic_trace.is_fx_tracing": "fx_tracing",
    "torch.fx._symbolic_trace.is_fx_symbolic_tracing": "fx_tracing",
    _torch.modes.under_fx_tracing: "fx_tracing",
    **dict.fromkeys(
        (
            *(torch.is_grad_enabled, torch.get_default_dtype, torch.are_deterministic_algorithms_enabled, torch.get_num_threads),
            *(torch.is_autocast_enabled, torch.is_autocast_cpu_enabled, torch.amp.is_autocast_available),
            *(torch.jit.is_tracing, torch.cuda.is_available, torch.cuda.device_count),  # type: ignore[attr-defined]
            *(torch.backends.mps.is_available, torch.backends.cudnn.is_available, torch.backends.mkldnn.is_available),
            *(torch.backends.mkl.is_available, torch.distributed.is_available, *_torch.settings.QUERIES),
            *(torch.finfo, torch.iinfo, torch.promote_types, torch.can_cast, torch.is_storage, _torch.modes.device_index),
        )
    ),
}
"""Query, or the name of one that is asked by the row of STATES -> the state that guards it; None where that is always guarded, or does not
change."""
for _query, _state in QUERIES.items():
    _asked = STATES[_state] if isinstance(_query, str) and _state is not None else _query
    call(_query, policy=Policy.EVALUATED)(read_row(_asked, _state))

calls(
    {
        **{write: write_row(write, (name,), one) for name, (_, write) in FLAG_FUNCTIONS.items()},
        torch.set_default_dtype: default_row("default_dtype", "d"),
        torch.set_default_device: default_row("default_device", "device"),
        torch.set_float32_matmul_precision: write_row(
            torch.set_float32_matmul_precision, ("float32_matmul_precision",), lambda precision: (precision,)
        ),
        torch.use_deterministic_algorithms: write_row(
            torch.use_deterministic_algorithms,
            ("deterministic", "deterministic_warn_only"),
            lambda mode, *, warn_only=False: (bool(mode), bool(warn_only)),
        ),
        torch.set_num_threads: write_row(torch.set_num_threads, ("num_threads",), one),
    }
)

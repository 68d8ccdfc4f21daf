"""Functions that read data for what they keep for their backward, that read and write the state of torch's random numbers, or that run
a layer over a sequence of any length: nodes that later stages call as they are, in their place among the others."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from tracework_primops import FakeTensor

from ..._torch.settings import any_autocast
from ...graph.builder import graph_argument
from ...graph.checks import RANDOM_STATE, fresh_seed
from ...graph.raises import OF_ATEN
from ...sources import Const
from ..protocol.calls import Handler, call, calls
from ..protocol.constant import force_plain
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Frame, Value
from .call import call_torch


def called_as_it_is(
    frame: Frame,
    fn: Callable[..., Any],
    args: list[Value],
    kwargs: dict[Any, Any],
    example: FakeTensor | None,
    raises: tuple[Any, ...] = (),
) -> Value:
    """The result of a node that is known by an example of its kind. raises: for some data; its operators are not seen on fakes."""
    if raises:
        frame.recording.effects.raised.append(raises)
    found = frame.graph.record(frame, fn, graph_argument(frame, tuple(args)), graph_argument(frame, kwargs), example)
    next(iter(reversed(frame.graph.graph.nodes))).meta["data_dependent"] = True
    return found


CTC_NAMES = list(inspect.signature(F.ctc_loss).parameters)


def ctc_row(fn: Callable[..., Any]) -> Handler:
    """ctc_loss, whose backward needs a tensor as large as the longest target: where the lengths are tensors, that is data."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = dict(zip(CTC_NAMES, args)) | kwargs
        scores = given.get("log_probs")
        lengths = [given.get("input_lengths"), given.get("target_lengths")]
        plain = not any(isinstance(length, AbstractTensor) for length in lengths) or frame.modes.transforms
        if plain or any_autocast() or not isinstance(scores, AbstractTensor) or scores.example.ndim not in (2, 3):
            return call_torch(frame, fn, args, kwargs)
        whole = "reduction" not in given or force_plain(frame, given["reduction"]) not in ("none", 0)
        dims = None if whole else (0, -1)
        example = frame.graph.run_on_fakes(frame, torch.sum, (scores.example, dims), {}, "call_function")
        return called_as_it_is(frame, fn, args, kwargs, example, OF_ATEN)

    return handler


RECURRENT_NAMES = "input hx params has_biases num_layers dropout train bidirectional batch_first".split()


def recurrent_row(fn: Callable[..., Any]) -> Handler:
    """torch.lstm and its like. A layer that is one operator is part of the graph, and so is a single step; one that is operators step by
    step, which would all be compiled, or whose number of steps is open, is called as it is. So is one that a GPU's library trains: it says how
    large the memory is that its backward reads, and keeps the state of its dropout. Calls that are captured as a whole have the operators of
    all steps, for nothing else runs there."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = dict(zip(RECURRENT_NAMES, args)) | kwargs
        sequence: Any = given.get("input")
        first: Any = given.get("batch_first")
        known = isinstance(sequence, AbstractTensor) and sequence.example.ndim == 3 and first is not None and first.is_constant()
        if not known or frame.modes.transforms:
            return call_torch(frame, fn, args, kwargs)  # packed sequences have two dimensions
        time = 1 if first.constant() else 0
        steps = sequence.example.shape[time]
        node_args, node_kwargs = graph_argument(frame, tuple(args)), graph_argument(frame, kwargs)

        def operators(count: int) -> int:
            """How many a sequence of `count` steps takes."""
            seen = []
            recorder, frame.graph.fake_mode.recorder = frame.graph.fake_mode.recorder, lambda *call: seen.append(call)
            try:
                frame.graph.run_on_fakes(
                    frame,
                    lambda whole, *rest, **options: fn(whole.narrow(time, 0, count), *rest, **options),
                    node_args,
                    node_kwargs,
                    "",
                )
            finally:
                frame.graph.fake_mode.recorder = recorder
            return len(seen)

        training: Any = given.get("train")
        trained = sequence.example.device.type != "cpu" and not (training.is_constant() and training.constant() is False)
        if type(steps) is int and not trained and (frame.options.whole or steps < 2 or operators(1) == operators(2)):
            return call_torch(frame, fn, args, kwargs)

        def for_its_shapes(whole: Any, states: Any, *rest: Any, **options: Any) -> Any:
            """The result of a sequence of one step in a batch of one, whose sizes are numbers, widened; without what training adds."""
            options |= dict(zip(RECURRENT_NAMES[2:], rest)) | {"dropout": 0.0, "train": False}
            rest = tuple(options[name] for name in RECURRENT_NAMES[2:])
            batch = whole.shape[1 - time]
            alone = [state.narrow(1, 0, 1) for state in (states if isinstance(states, (tuple, list)) else [states])]
            one = whole.narrow(time, 0, 1).narrow(1 - time, 0, 1)
            out, *ended = fn(one, alone if isinstance(states, (tuple, list)) else alone[0], *rest)
            out = out.transpose(0, time).expand(steps, batch, out.shape[2]).contiguous().transpose(0, time)
            return out, *(state.expand(-1, batch, -1).contiguous() for state in ended)

        example = frame.graph.run_on_fakes(frame, for_its_shapes, node_args, node_kwargs, "call_function")
        return called_as_it_is(frame, fn, args, kwargs, example)

    return handler


def random_state_row(fn: Any) -> Handler:
    """manual_seed, get_rng_state and set_rng_state of the CPU's generator"""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if frame.modes.transforms:
            return frame.break_graph("random_state", f"torch.{fn.__name__} under a transform of torch.func")
        example = None
        if fn is torch.get_rng_state:
            size, options = tuple(fn().shape), {"dtype": torch.uint8, "device": torch.device("cpu")}
            example = frame.graph.run_on_fakes(frame, torch.empty, (size,), options, "call_function")
        found = called_as_it_is(frame, fn, args, kwargs, example)
        frame.recording.effects.random = True
        return frame.wrap(torch.default_generator, Const(torch.default_generator)) if fn is torch.manual_seed else found

    return handler


@call(torch.seed)
def seed_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.seed(): the number that it gives is known when the graph has run."""
    if frame.modes.transforms:
        return frame.break_graph("random_state", "torch.seed under a transform of torch.func")
    example = frame.graph.run_on_fakes(frame, torch.empty, ((),), {"dtype": torch.uint64, "device": "cpu"}, "call_function")
    found = called_as_it_is(frame, fresh_seed, [], {}, example)
    frame.recording.effects.random = True
    return found.call_method(frame, "item", [], {})


calls({fn: ctc_row(fn) for fn in (F.ctc_loss, torch.ctc_loss)})
calls({fn: recurrent_row(fn) for fn in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)})
calls({fn: random_state_row(fn) for fn in RANDOM_STATE})

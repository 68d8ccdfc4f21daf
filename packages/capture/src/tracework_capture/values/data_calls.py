"""Functions that read data for what they keep for their backward: nodes that later stages call as they are, autograd and all."""

from __future__ import annotations

import inspect

import torch
import torch.nn.functional as F

from .._torch import any_autocast
from ..graph.builder import graph_argument
from .constant import force_plain
from .tensor import TensorValue

__all__ = ["DATA_CALL_ROWS"]


def called_as_it_is(frame, fn, args, kwargs, example):
    """The result of a node that is known by an example of its kind."""
    node_args = tuple(graph_argument(frame, a) for a in args)
    node_kwargs = {name: graph_argument(frame, a) for name, a in kwargs.items()}
    found = frame.graph.record(frame, fn, node_args, node_kwargs, example)
    found.node.meta["data_dependent"] = True
    return found


CTC_NAMES = list(inspect.signature(F.ctc_loss).parameters)


def ctc_row(fn):
    """ctc_loss, whose backward needs a tensor as large as the longest target: where the lengths are tensors, that is data."""

    def handler(frame, args, kwargs):
        from .torch_fn import call_torch

        given = dict(zip(CTC_NAMES, args)) | kwargs
        scores = given.get("log_probs")
        lengths = [given.get("input_lengths"), given.get("target_lengths")]
        plain = not any(isinstance(length, TensorValue) for length in lengths) or frame.root.transforms
        if plain or any_autocast() or not isinstance(scores, TensorValue) or scores.example.ndim not in (2, 3):
            return call_torch(frame, fn, args, kwargs)
        whole = "reduction" not in given or force_plain(frame, given["reduction"]) not in ("none", 0)
        dims = None if whole else (0, -1)
        example = frame.graph.run_on_fakes(frame, torch.sum, (scores.example, dims), {}, "call_function")
        return called_as_it_is(frame, fn, args, kwargs, example)

    return handler


DATA_CALL_ROWS = {fn: ctc_row(fn) for fn in (F.ctc_loss, torch.ctc_loss)}

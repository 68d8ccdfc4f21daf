"""Composites: an LSTM with symbolic sizes; layers over packed sequences, which read how many sequences each step has."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from ... import _torch
from ...errors import DataDependentError
from .registry import composite


@composite("lstm.input")
def lstm(*args: Any) -> Any:
    """Step by step: torch asks whether oneDNN's layer takes the sizes before it looks whether they are numbers, as that layer wants."""
    with _torch.without_onednn():
        return _torch.composite_of_cpp(torch.ops.aten.lstm.input, *args)  # with the forms of this folder for what it calls


@composite("lstm.data", "gru.data", "rnn_tanh.data", "rnn_relu.data", "_pad_packed_sequence", static=True)
def packed(*args: object, **kwargs: object) -> NoReturn:
    """Torch takes the counts from memory, without a look whether there is any."""
    raise DataDependentError("a layer over packed sequences, or their padding")

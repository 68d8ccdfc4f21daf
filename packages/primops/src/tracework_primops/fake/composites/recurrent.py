"""Composites: an LSTM with symbolic sizes."""

from __future__ import annotations

from typing import Any

import torch

from ... import _torch
from .registry import composite


@composite("lstm.input")
def lstm(*args: Any) -> Any:
    """Step by step: torch asks whether oneDNN's layer takes the sizes before it looks whether they are numbers, as that layer wants."""
    with _torch.without_onednn():
        return torch.ops.aten.lstm.input.decompose(*args)  # with the forms of this folder for what it calls

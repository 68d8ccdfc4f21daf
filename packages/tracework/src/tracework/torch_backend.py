"""Makes `torch.compile(m, backend="tracework")` use our stages under torch's own capture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import assemble, config
from .options import build


def tracework_backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """A torch.compile backend, registered under the entry point group `torch_dynamo_backends`."""
    return assemble.inductor_backend(build(None, None, config.current()), assemble.nothing)(gm, example_inputs)

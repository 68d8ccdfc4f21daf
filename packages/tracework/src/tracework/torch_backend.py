"""Makes `torch.compile(m, backend="tracework")` use our stages under torch's own capture."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from . import assemble, config
from .observe import nothing
from .options import build

MOST_SHAPES = 16
_LINE = re.compile(r'File "(.*)", line (\d+), in (.*)')


def tracework_backend(
    gm: torch.fx.GraphModule,
    example_inputs: list[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """A torch.compile backend, registered under the entry point group `torch_dynamo_backends`; takes the mode or options of compile()."""
    for node in gm.graph.nodes:
        node.meta["stack"] = _place(node.meta.get("stack_trace") or "")
    gm.meta["place"] = next((found for node in gm.graph.nodes if (found := node.meta["stack"])), "a graph of torch.compile")
    backend = assemble.inductor_backend(build(mode, options, config.current()), nothing)
    if any(isinstance(x, torch.SymInt) or _has_symbolic_sizes(x) for x in example_inputs):
        return _PerShape(gm, backend)
    return backend(gm, example_inputs)


def _place(stack: str) -> str:
    """The innermost line of a traceback's text as "file:line in function"; empty without one."""
    found = _LINE.findall(stack)
    return "{}:{} in {}".format(*found[-1]) if found else ""


def _has_symbolic_sizes(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and any(isinstance(s, torch.SymInt) for s in (*x.shape, *x.stride()))


class _PerShape:
    """Torch's symbols are not ours: a graph over them is compiled for the sizes that come, up to MOST_SHAPES of them."""

    def __init__(self, gm: torch.fx.GraphModule, backend: Callable[..., Any]) -> None:
        self._gm = gm
        self._backend = backend
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *inputs: Any) -> Any:
        key = tuple((tuple(x.shape), x.stride()) if isinstance(x, torch.Tensor) else x for x in inputs)
        key = (key, torch.is_grad_enabled())
        compiled = self._compiled.get(key)
        if compiled is None:
            if len(self._compiled) >= MOST_SHAPES:
                reason = f"it was compiled for {MOST_SHAPES} shapes, the limit under torch.compile with symbolic sizes"
                assemble.report_of(self._gm)(reason, "")
                return self._gm(*inputs)
            compiled = self._compiled[key] = self._backend(self._graph_of_numbers(), list(inputs))
        return compiled(*inputs)

    def _graph_of_numbers(self) -> torch.fx.GraphModule:
        """The graph without torch's facts about it, which speak of its symbols."""
        gm = torch.fx.GraphModule(self._gm, copy.deepcopy(self._gm.graph))
        gm.meta["place"] = self._gm.meta["place"]
        for node in gm.graph.nodes:
            node.meta = {k: v for k, v in node.meta.items() if k not in ("example_value", "val")}
        return gm

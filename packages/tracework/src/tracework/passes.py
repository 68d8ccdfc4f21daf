"""Passes of the user's own over graphs, as options: on what was captured, on the joint functional graph, and on forward and backward apart.

Each is called at each compilation, and the cache's keys are made of what it leaves, so that a changed pass needs no key of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tracework_aotautograd as aotautograd
from torch import fx

from .errors import CompileError
from .options import GraphPass, Options

STAGES = {
    "captured": ("pre_grad_custom_pass",),
    "joint": ("joint_custom_pre_pass", "joint_custom_post_pass"),
    "functional": ("post_grad_custom_pre_pass", "post_grad_custom_post_pass"),
}
"""Where passes run -> the options that give them, in order."""


def on_captured(options: Options, gm: fx.GraphModule) -> None:
    """Changes a captured graph in place."""
    change = _change(options, "captured")
    if change is not None:
        change(gm.graph)
        gm.graph.lint()
        gm.recompile()


def on_joint(options: Options) -> Callable[..., object] | None:
    """What aotautograd's option `rewrite` takes."""
    return _change(options, "joint")


def on_functional(options: Options, gm: fx.GraphModule, spec: Any) -> None:
    """Changes a functional graph in place."""
    change = _change(options, "functional")
    if change is not None:
        aotautograd.rewrite(gm, lambda graph: change(graph, is_inference=spec.role == "inference"), spec.fake_mode)


def _change(options: Options, stage: str) -> Callable[..., object] | None:
    """Runs the passes of a stage one after the other; None where there is none."""
    passes = [(name, given) for name in STAGES[stage] for given in _listed(getattr(options, name))]
    return None if not passes else lambda graph, is_inference=False: _run(passes, graph, is_inference)


def _listed(given: GraphPass) -> Sequence[Callable[..., Any]]:
    if given is None:
        return ()
    return given if isinstance(given, (list, tuple)) else (given,)


def _run(passes: Sequence[tuple[str, Callable[..., Any]]], graph: fx.Graph, is_inference: bool) -> None:
    for name, given in passes:
        try:
            if "is_inference" in inspect.signature(given).parameters:
                given(graph, is_inference=is_inference)
            else:
                given(graph)
            graph.lint()
        except Exception as error:
            raise CompileError(f"option {name}", error) from error

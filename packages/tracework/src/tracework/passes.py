"""Passes of the user's own, as options: on what was captured, on the joint functional graph, on forward and backward apart, on graphs of
prims, and on loops before they are fused.

Each is called at each compilation, and keys of artifacts are made of what it leaves, up to the graph of prims. What is kept beyond that, whole
entries and what loops became, has a key only where each pass has an identity: a method uuid() that gives what changes when the pass does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tracework_aotautograd as aotautograd
import tracework_inductor as inductor
import tracework_primops as primops
from torch import fx

from .errors import CompileError
from .options import Options, passes_of


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
        aotautograd.rewrite(gm, lambda graph: change(graph, spec.role), spec.fake_mode)


def on_prims(options: Options, graph: primops.PrimGraph) -> primops.PrimGraph:
    """What passes make of a graph of prims."""
    changed: primops.PrimGraph = _products(options, "prims", graph, primops.verify)
    return changed


def on_loops(options: Options) -> Callable[[inductor.Program], inductor.Program] | None:
    """What inductor takes as `change`; None where there is no pass."""
    if not passes_of(options, "loops"):
        return None
    return lambda program: _products(options, "loops", program, lambda changed: changed)


def _change(options: Options, stage: str) -> Callable[..., object] | None:
    """Runs the passes of a stage one after the other; None where there is none."""
    passes = passes_of(options, stage)
    if not passes:
        return None
    return lambda graph, role=None, is_inference=False: _run(passes, graph, role, is_inference)


def _run(passes: Sequence[tuple[str, Callable[..., Any]]], graph: fx.Graph, role: str | None, is_inference: bool) -> None:
    """role: of a functional graph."""
    facts = {"is_inference": is_inference or role == "inference", **({} if role is None else {"role": role})}
    for name, given in passes:
        try:
            asked = inspect.signature(given).parameters
            given(graph, **{fact: value for fact, value in facts.items() if fact in asked})
            graph.lint()
        except Exception as error:
            raise CompileError(f"option {name}", error) from error


def _products(options: Options, stage: str, product: Any, check: Callable[[Any], Any]) -> Any:
    """What passes that give a product make of one."""
    for name, given in passes_of(options, stage):
        try:
            changed = given(product)
            product = product if changed is None else check(changed)
        except Exception as error:
            raise CompileError(f"option {name}", error) from error
    return product

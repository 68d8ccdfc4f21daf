"""Caches whose layers are views of one tensor, which is an input as well: a write to a layer costs what it writes, and not the memory behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import tracework
import tracework_aotautograd as aotautograd
import tracework_inductor as inductor
import tracework_primops as primops
from gpu_specs import move
from tracework_inductor.codegen.traffic import traffic
from tracework_inductor.schedule.plan import ExternKernel

LAYERS, BATCH, HEADS, LENGTH, WIDTH = 3, 2, 4, 64, 8
TOKEN = BATCH * HEADS * WIDTH * 4
"""Bytes of a token in a layer."""


def one_after_the_other() -> tuple[torch.Tensor, list[torch.Tensor]]:
    memory = torch.zeros(LAYERS, BATCH, HEADS, LENGTH, WIDTH)
    return memory, [*memory]


def turned() -> tuple[torch.Tensor, list[torch.Tensor]]:
    memory = torch.zeros(LAYERS, BATCH, LENGTH, HEADS, WIDTH)
    return memory, [layer.transpose(1, 2) for layer in memory]


def side_by_side() -> tuple[torch.Tensor, list[torch.Tensor]]:
    memory = torch.zeros(BATCH, HEADS, LENGTH, LAYERS, WIDTH)
    return memory, [memory[:, :, :, layer] for layer in range(LAYERS)]


def at_a_position(layer: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> None:
    layer.index_copy_(2, at, new)


def by_index(layer: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> None:
    layer[:, :, at] = new


def in_a_slice(layer: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> None:
    layer[:, :, 7:8] = new


def selected(layer: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> None:
    layer.select(2, 5).copy_(new[:, :, 0])


def added(layer: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> None:
    layer[:, :, 3:4].add_(new)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("write", [at_a_position, by_index, in_a_slice, selected, added])
@pytest.mark.parametrize("layout", [one_after_the_other, turned, side_by_side])
def test_bytes(layout: Callable[[], Any], write: Callable[..., None], device: str) -> None:
    """Of writing a token, and of reading one after each write."""

    def step(memory: torch.Tensor, layers: list[torch.Tensor], at: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        total = torch.zeros((), device=new.device)
        for layer in layers:
            write(layer, at, new)
            total = total + layer[:, :, 5:6].sum()
        return total + memory.view(-1)[:8].sum()

    graphs = []

    def compiled(gm: Any, spec: Any) -> Callable[[list[Any]], Any]:
        graphs.append((gm, spec))
        return lambda given: gm(*given)

    def backend(gm: Any, inputs: Any) -> Any:
        return aotautograd.aot_compile(gm, inputs, forward_compiler=compiled, options=aotautograd.AotOptions(fallback=False))

    tracework.compile(step, backend=backend)(*layout(), torch.tensor([5]), torch.ones(BATCH, HEADS, 1, WIDTH))
    ((gm, spec),) = graphs
    if device == "cuda":
        move(gm, spec.fake_mode)
    graph = primops.run_passes(primops.decompose(gm, spec=spec).replace(editable=True))
    plan = inductor.plan_graph(graph, inductor.InductorOptions())
    assert not [kernel for kernel in plan.kernels if isinstance(kernel, ExternKernel)]
    assert sum(int(traffic(kernel, plan.program.buffers)["bytes"]) for kernel in plan.kernels) <= LAYERS * 7 * TOKEN

"""What the loops of a training step would move on a GPU, by their plans. None is needed."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import tracework_inductor as inductor
from gpu_specs import graphs, of_module, traced
from torch import nn
from tracework_inductor.codegen.traffic import traffic
from tracework_inductor.schedule.plan import ExternKernel


class Bottleneck(nn.Module):
    """Three convolutions with norms beside their input, as ResNets have them."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        sizes = [(channels, inner, 1), (inner, inner, 3), (inner, 4 * inner, 1)]
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, n, padding=n // 2, bias=False), nn.BatchNorm2d(b)) for a, b, n in sizes
        )
        self.beside = nn.Sequential(nn.Conv2d(channels, 4 * inner, 1, bias=False), nn.BatchNorm2d(4 * inner))
        self.plain = channels == 4 * inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, third = self.layers
        return F.relu(third(F.relu(second(F.relu(first(x))))) + (x if self.plain else self.beside(x)))


class Pixels(nn.Module):
    """A depthwise convolution, a norm and a perceptron of each pixel beside their input, as ConvNeXts have them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.spread, self.norm = nn.Conv2d(channels, channels, 7, padding=3, groups=channels), nn.LayerNorm(channels)
        self.mix = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mix(self.norm(self.spread(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2) * self.scale + x


NETWORKS = {
    "residual": ([nn.Conv2d(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1), Bottleneck(64, 64), Bottleneck(256, 64)], 24, 3480),
    "pixels": ([nn.Conv2d(3, 96, 4, 4), Pixels(96), Pixels(96)], 25, 3635),
}
"""Layers, and how many kernels their loops are at most and what megabytes these move, forward and backward, for a batch of 64."""


@pytest.mark.parametrize("name", NETWORKS)
def test_loops_of_a_step(name: str) -> None:
    layers, kernels, megabytes = NETWORKS[name]
    joint = traced(*of_module(nn.Sequential(*layers), torch.empty(64, 3, 224, 224, dtype=torch.bfloat16), True))
    plans = [inductor.plan_graph(graph, inductor.InductorOptions()) for graph in graphs(joint)]
    loops = [traffic(k, plan.program.buffers) for plan in plans for k in plan.kernels if not isinstance(k, ExternKernel)]
    moved = sum(int(one["bytes"]) for one in loops) / 1e6
    assert len(loops) <= kernels and moved <= megabytes

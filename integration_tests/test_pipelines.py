"""Stages of torch.distributed.pipelining that are compiled each, in two processes: losses and gradients of plain ones, and nothing compiled after
the first step."""

from typing import Any

import torch
import tracework
from ranks import in_ranks
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from tracework_runtime import counters

STEPS, PARTS = 3, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def trained(rank: int, schedule: Any, compiled: bool) -> tuple[list[torch.Tensor], list[int]]:
    """Losses and gradients of this rank's stage, and how many graphs there are after each step."""
    torch.manual_seed(rank)
    module = nn.Sequential(Block(), Block())
    stage = PipelineStage(tracework.compile(module, fullgraph=True) if compiled else module, rank, 2, torch.device("cpu"))
    steps = schedule(stage, n_microbatches=PARTS, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, foreach=False)
    found: list[torch.Tensor] = []
    graphs: list[int] = []
    for step in range(STEPS):
        draws = torch.Generator().manual_seed(step)
        x, target = torch.randn(8, 8, generator=draws), torch.randn(8, 8, generator=draws)
        losses: list[torch.Tensor] = []
        if rank == 0:
            steps.step(x)
        else:
            found.append(steps.step(target=target, losses=losses).detach())
        found += [loss.detach() for loss in losses]
        found += [p.grad.clone() for p in module.parameters() if p.grad is not None]
        optimizer.step()
        optimizer.zero_grad()
        graphs.append(int(counters().get("load", 0)))
    return found, graphs


def compare(rank: int) -> None:
    for schedule in (ScheduleGPipe, Schedule1F1B):
        before = counters().get("load", 0)
        expected, _ = trained(rank, schedule, compiled=False)
        found, graphs = trained(rank, schedule, compiled=True)
        torch.testing.assert_close(found, expected, msg=lambda text, schedule=schedule: f"{schedule.__name__}: {text}")
        assert before < graphs[0] == graphs[-1], (schedule.__name__, before, graphs)


def test_two_stages(tmp_path: Any) -> None:
    in_ranks(compare, tmp_path)

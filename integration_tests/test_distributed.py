"""Data- and tensor-parallel training in two processes, on the CPU and on two GPUs: compiled models have the losses and gradients of plain
ones."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import tracework
from ranks import in_ranks
from residual_block import Block
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from tracework_runtime import counters

STEPS = 3


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Block(16), Block(16), nn.BatchNorm1d(16), nn.Linear(16, 4))


def sharded(compiled: bool) -> nn.Module:
    model, mesh = network(), init_device_mesh(torch.get_default_device().type, (2,))
    for block in model[:2]:
        if compiled:
            block.forward = tracework.compile(block.forward)
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def split(compiled: bool) -> nn.Module:
    model, mesh = network(), init_device_mesh(torch.get_default_device().type, (2,))
    for block in model[:2]:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return tracework.compile(model) if compiled else model


PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "compiled around": (
        lambda: DistributedDataParallel(network()),
        lambda: tracework.compile(DistributedDataParallel(network())),
    ),
    "compiled inside": (
        lambda: DistributedDataParallel(network()),
        lambda: DistributedDataParallel(tracework.compile(network())),
    ),
    "sharded": (lambda: sharded(False), lambda: sharded(True)),
    "tensor parallel": (lambda: split(False), lambda: split(True)),
}


def gradient(p: torch.Tensor) -> torch.Tensor:
    assert p.grad is not None
    return p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad


def train(rank: int, device: str) -> None:
    """All pairs, in one of the two processes."""
    torch.set_default_device(device)
    for make_plain, make_compiled in PAIRS.values():
        models = make_plain(), make_compiled()
        optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01, foreach=False) for m in models]
        graphs = counters().get("load", 0)
        for step in range(STEPS):
            torch.manual_seed(2 * step + rank)
            x, target = torch.randn(8, 16), torch.randint(4, (8,))
            losses = [nn.functional.cross_entropy(m(x), target) for m in models]
            for optimizer, loss in zip(optimizers, losses, strict=True):
                optimizer.zero_grad()
                loss.backward()
            torch.testing.assert_close(losses[1], losses[0])
            for p, q in zip(models[1].parameters(), models[0].parameters(), strict=True):
                torch.testing.assert_close(gradient(p), gradient(q))
            for optimizer in optimizers:
                optimizer.step()
        assert counters().get("load", 0) > graphs


TWO_GPUS = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=TWO_GPUS)])
def test_training_in_two_processes(tmp_path, device):
    in_ranks(train, tmp_path, device, device=device)

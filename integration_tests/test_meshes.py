"""Meshes of two dims in four processes: what compiled functions ask of them, and models that are split along one dim and sharded or replicated
along the other, with eager's losses, compiled in the first step alone, and alike on all ranks."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
import tracework
from ranks import in_ranks, of_all_ranks
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from tracework_runtime import counters

MESH: DeviceMesh
GRID: DTensor
WORLD, STEPS, WORDS, WIDTH = 4, 3, 16, 8


# --- functions ----------------------------------------------------------------------------------------------------------


def facts(x):
    return x * MESH["tp"].size() + MESH.ndim * MESH.shape[0] + len(MESH["dp", "tp"].mesh_dim_names)


def places(x):
    return x * MESH.get_local_rank("tp") + MESH["dp"].get_local_rank() + MESH.get_coordinate()[1] + MESH.get_rank()


def groups(x):
    y = x.clone()
    dist.all_reduce(y, group=MESH.get_group("tp"))
    dist.all_reduce(y, group=MESH["dp"].get_group())
    return y


def along_one_dim(x):
    return DTensor.from_local(x, MESH["tp"], [Shard(0)], run_check=False).sum().full_tensor()


def along_both(x):
    return DTensor.from_local(x, MESH, [Shard(0), Shard(1)]).sin().redistribute(placements=[Replicate(), Shard(0)]).to_local()


def products(x):
    return (GRID @ GRID.t()).redistribute(placements=[Replicate(), Replicate()]).to_local() + x.sum()


FUNCTIONS = [facts, places, groups, along_one_dim, along_both, products]


# --- models -------------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (layer(x).unflatten(2, (-1, 4)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(WIDTH, 16), nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.attention, self.second, self.mlp = nn.RMSNorm(WIDTH), Attention(), nn.RMSNorm(WIDTH), Gated()

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.blocks = nn.Embedding(WORDS, WIDTH), nn.Sequential(Block(), Block())
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.embedding(tokens))))


COLUMNS = dict.fromkeys(("attention.q", "attention.k", "attention.v", "mlp.gate", "mlp.up"), ColwiseParallel())


def split(model: Language, of_loss: bool = False) -> Language:
    """Its blocks by columns and rows, its words by rows; what the first block is given is a sum over processes that is on its way."""
    head: Any = ColwiseParallel(output_layouts=Shard(-1) if of_loss else Replicate(), use_local_output=not of_loss)
    parallelize_module(model, MESH["tp"], {"embedding": RowwiseParallel(input_layouts=Replicate()), "head": head})
    for block in model.blocks:
        parallelize_module(block, MESH["tp"], {**COLUMNS, "attention.out": RowwiseParallel(), "mlp.down": RowwiseParallel()})
    return model


def split_sequences(model: Language) -> Language:
    """Sequences are split between the layers, too."""
    gathered = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    parallelize_module(
        model,
        MESH["tp"],
        {
            "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        },
    )
    for block in model.blocks:
        rows = RowwiseParallel(output_layouts=Shard(1))
        plan: Any = {"first": SequenceParallel(), "second": SequenceParallel(), "attention": gathered, "mlp": gathered}
        parallelize_module(block, MESH["tp"], {**plan, **COLUMNS, "attention.out": rows, "mlp.down": rows})
    return model


def sharded(model: Language, compiled: bool, mesh: DeviceMesh) -> nn.Module:
    for block in model.blocks:
        if compiled:
            tracework.compile_in_place(block)
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def replicated(compiled: bool) -> nn.Module:
    model = DistributedDataParallel(split(Language()), device_mesh=MESH["dp"])
    return tracework.compile(model) if compiled else model


def loss_in_parts(compiled: bool) -> nn.Module:
    model = split(Language(), of_loss=True)
    return tracework.compile(model, fullgraph=True) if compiled else model


MODELS: dict[str, Callable[[bool], nn.Module]] = {
    "split and sharded": lambda compiled: sharded(split(Language()), compiled, MESH["dp"]),
    "sequences, too": lambda compiled: sharded(split_sequences(Language()), compiled, MESH["dp"]),
    "sharded and replicated": lambda compiled: sharded(Language(), compiled, MESH),
    "split and replicated": replicated,
    "a loss in parts": loss_in_parts,
}


def losses(model: nn.Module) -> torch.Tensor:
    """Those of some steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
    found = []
    for step in range(STEPS):
        draws = torch.Generator().manual_seed(10 * step + MESH.get_local_rank("dp"))
        tokens = torch.randint(WORDS, (2, 7), generator=draws)
        results = model(tokens[:, :-1]).flatten(0, 1)
        with loss_parallel():
            loss = F.cross_entropy(results, tokens[:, 1:].flatten())
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.detach().full_tensor() if isinstance(loss, DTensor) else loss.detach())
        if step == 0:
            graphs = counters().get("load", 0)
    assert counters().get("load", 0) == graphs, "something is compiled after the first step"
    return torch.stack(found)


def compare(rank: int) -> None:
    """All of it, in one of the processes."""
    global MESH, GRID
    MESH = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    GRID = distribute_tensor(torch.arange(24.0).reshape(4, 6), MESH, [Shard(0), Shard(1)], src_data_rank=None)
    for f in FUNCTIONS:
        x = torch.arange(8.0).reshape(2, 4) + rank
        compiled = tracework.compile(f, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), f(x), msg=lambda text, f=f: f"{f.__name__}: {text}")
    for name, make in MODELS.items():
        before = counters().get("load", 0)
        found = losses(make(True))
        graphs = of_all_ranks(counters().get("load", 0) - before)
        assert graphs == [graphs[0]] * WORLD and graphs[0], (name, graphs)
        torch.testing.assert_close(found, losses(make(False)), msg=lambda text, name=name: f"{name}: {text}")


def test_four_processes(tmp_path):
    in_ranks(compare, tmp_path, ranks=WORLD)

"""Models under fully_shard in two processes, compiled in several ways and with what fully_shard and its users may ask for: twenty steps have the
losses of plain ones, nothing runs uncompiled, and nothing is compiled after the second step."""

import itertools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import tracework
from ranks import in_ranks
from residual_block import Block
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F
from tracework_runtime import counters

STEPS, WORDS, WIDTH = 20, 32, 16


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.blocks = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Block(WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x) + 0  # fully_shard warns of results that are views


def loss(model: Callable[..., torch.Tensor], tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(tokens).flatten(0, 1).float(), target.flatten())


def blocks(model: Language) -> Callable[..., torch.Tensor]:
    for block in model.blocks:
        tracework.compile_in_place(block)
    return lambda *data: loss(model, *data)


def whole(model: Language) -> Callable[..., torch.Tensor]:
    compiled = tracework.compile(model)
    return lambda *data: loss(compiled, *data)


def with_its_loss(model: Language) -> Callable[..., torch.Tensor]:
    compiled = tracework.compile(loss)
    return lambda *data: compiled(model, *data)


WAYS = [blocks, whole, with_its_loss]


def in_advance(model: Language) -> None:
    for first, second in itertools.pairwise(model.blocks):
        first.set_modules_to_forward_prefetch([second])
        second.set_modules_to_backward_prefetch([first])


def kept_gradients(model: Language) -> None:
    model.set_reshard_after_backward(False)


Case = tuple[dict[str, Any], str, Callable[[Language], None] | None]
"""Arguments of fully_shard, what the training does beside its steps, what is done to the model."""
CASES: dict[str, Case] = {
    "as it is": ({}, "", None),
    "two precisions": ({"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)}, "", None),
    "gathered once": ({"reshard_after_forward": False}, "", None),
    "gathered in groups": ({"reshard_after_forward": 2}, "", None),
    "offloaded": ({"offload_policy": CPUOffloadPolicy(pin_memory=False)}, "", None),
    "accumulated": ({}, "accumulates", None),
    "accumulated, gathered once": ({}, "accumulates", kept_gradients),
    "clipped": ({}, "clips", None),
    "saved": ({}, "saves", None),
    "in advance": ({}, "", in_advance),
}


def made(case: str) -> Language:
    options, _, change = CASES[case]
    model, mesh = Language(), init_device_mesh("cpu", (2,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    if change is not None:
        change(model)
    return model


def trained(model: Any, call: Callable[..., torch.Tensor], does: str, folder: str) -> Iterator[float]:
    """Losses, and norms of gradients."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(STEPS):
        for part in range(2 if does == "accumulates" else 1):
            if does == "accumulates":
                model.set_requires_gradient_sync(part == 1)
            torch.manual_seed(100 * step + 10 * part + dist.get_rank())
            found = call(torch.randint(WORDS, (2, 6)), torch.randint(WORDS, (2, 6)))
            found.backward()
            yield found.item()
        if does == "clips":
            yield nn.utils.clip_grad_norm_(model.parameters(), 0.5).full_tensor().item()
        optimizer.step()
        optimizer.zero_grad()
        if does == "saves" and step == STEPS // 2:
            save_and_load(model, optimizer, folder)


def save_and_load(model: Any, optimizer: torch.optim.Optimizer, folder: str) -> None:
    states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    dcp.save(states, checkpoint_id=folder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    dcp.load(states, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"])


def compare(rank: int, folder: Path) -> None:
    """All cases, in one of two processes."""
    warnings.simplefilter("error", tracework.UncompiledWarning)
    for case, (_, does, _) in CASES.items():
        model = made(case)
        expected = list(trained(model, lambda *data, model=model: loss(model, *data), does, f"{folder}/{case}"))
        for way in WAYS:
            before, model = counters().get("load", 0), made(case)
            loads, found = [], []
            for value in trained(model, way(model), does, f"{folder}/{case}, {way.__name__}"):
                found.append(value)
                loads.append(counters().get("load", 0))
            # sixteen times on the way to a loss values are rounded to bfloat16, by 2**-9 of them to either side: four times that as a rule
            close = {"rtol": 2**-7, "atol": 2**-7} if case == "two precisions" else {"rtol": 1e-4, "atol": 1e-5}
            torch.testing.assert_close(found, expected, **close, msg=lambda m, w=way, c=case: f"{c}, {w.__name__}: {m}")
            assert loads[-1] == loads[3], (case, way.__name__, loads)
            assert case != "as it is" or loads[0] > before, (way.__name__, loads)
    model = made("as it is")
    explanation = tracework.explain(tracework.compile(model))(torch.randint(WORDS, (2, 6)))
    assert explanation.graphs == 3, explanation  # before the blocks, of a block, after them


def test_two_processes(tmp_path: Path) -> None:
    in_ranks(compare, tmp_path, tmp_path)

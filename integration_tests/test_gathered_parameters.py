"""Parameters that are DTensors, each process with a part, gathered where the forward reads them: in two processes, a model of them is one graph,
its gathers and the sums of its gradients included, with the losses of plain data-parallel training. What a checkpoint computes again it gathers
again, so that the gathered parameters of a block are not kept for its backward."""

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import tracework
from ranks import in_ranks
from residual_block import Block
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrize
from torch.profiler import profile
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from tracework_runtime import counters

STEPS, WORDS, WIDTH, BLOCKS = 6, 32, 16, 3
GATHERS = (torch.ops._c10d_functional.all_gather_into_tensor.default, torch.ops._c10d_functional.wait_tensor.default)


def gathers_again(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_RECOMPUTE if operator in GATHERS else CheckpointPolicy.MUST_SAVE


def all_again(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(block, x, use_reentrant=False)


def parameters_again(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    contexts = functools.partial(create_selective_checkpoint_contexts, gathers_again)
    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)


class Language(nn.Module):
    def __init__(self, run: Callable[..., torch.Tensor]):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.blocks = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Block(WIDTH) for _ in range(BLOCKS))
        self.head, self.run = nn.Linear(WIDTH, WORDS), run

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = self.run(block, x)
        return self.head(x)


class Gathered(nn.Module):
    def forward(self, part: Any) -> torch.Tensor:
        return part.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial("avg")])


def shared(model: Language, mesh: DeviceMesh) -> Language:
    for module in list(model.modules()):
        for name, parameter in list(module.named_parameters(recurse=False)):
            part = nn.Parameter(distribute_tensor(parameter.detach(), mesh, [Shard(0)]))
            module.register_parameter(name, part)
            parametrize.register_parametrization(module, name, Gathered(), unsafe=True)
    return model


def trained(model: Any, call: Callable[..., torch.Tensor]) -> Iterator[torch.Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(STEPS):
        torch.manual_seed(10 * step + dist.get_rank())
        loss = F.cross_entropy(call(torch.randint(WORDS, (2, 6))).flatten(0, 1), torch.randint(WORDS, (12,)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.detach()


LETTERS = {
    "_c10d_functional::all_gather_into_tensor": "G",
    "_c10d_functional::reduce_scatter_tensor": "R",
    "_c10d_functional::wait_tensor": "w",
    **dict.fromkeys(("aten::addmm", "aten::mm"), "M"),
}


def events(call: Callable[[], Any]) -> str:
    """What starts in a call, in its order: a letter for each collective, wait and product."""
    with profile() as found:
        call()
    return "".join(LETTERS.get(event.name, "") for event in sorted(found.events(), key=lambda event: event.time_range.start))


def compare(rank: int) -> None:
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", tracework.UncompiledWarning)
    mesh = init_device_mesh("cpu", (2,))
    plain = DistributedDataParallel(Language(nn.Module.__call__))
    expected, count = list(trained(plain, plain)), len(list(plain.parameters()))
    again: dict[Any, int] = {}
    for run in (nn.Module.__call__, all_again, parameters_again):
        model, before, loads = shared(Language(run), mesh), counters().get("load", 0), []
        compiled = tracework.compile(model, fullgraph=True)
        for loss, wanted in zip(trained(model, compiled), expected, strict=True):
            torch.testing.assert_close(loss, wanted, msg=lambda text, run=run: f"{run.__name__}: {text}")
            loads.append(counters().get("load", 0))
        assert loads == [before + 2] * STEPS, (run.__name__, before, loads)
        results: list[torch.Tensor] = []
        tokens = torch.randint(WORDS, (2, 6))
        forward = events(lambda c=compiled, t=tokens, r=results: r.append(c(t).sum()))
        backward = events(results[0].backward)
        # all gathers start before the first product, and are waited for where the block is that reads them
        assert forward.startswith("G" * count) and forward.count("G") == count, (run.__name__, forward)
        assert forward.count("Mw") >= 2 * BLOCKS, (run.__name__, forward)
        # sums start before the products that follow, and nothing waits for them but the end
        assert backward.count("R") == count and backward.count("RM") >= 2 * BLOCKS, (run.__name__, backward)
        assert backward.endswith("w" * count), (run.__name__, backward)
        again[run] = backward.count("G")
    # neither what no gradient is computed from, nor what is outside of the blocks
    assert again == {nn.Module.__call__: 0, all_again: 5 * BLOCKS, parameters_again: 4 * BLOCKS}


def test_two_processes(tmp_path):
    in_ranks(compare, tmp_path)

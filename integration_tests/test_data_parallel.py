"""DistributedDataParallel, fully_shard and decisions that ranks take together, in two processes on the CPU, beside plain programs."""

import logging
import warnings
from contextlib import nullcontext

import torch
import torch.distributed as dist
import tracework
from ranks import in_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from tracework_aotautograd.wrappers import stages
from tracework_runtime import counters

STEPS = 3
SMALL = {"bucket_cap_mb": 0.004}
HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.blocks = nn.Linear(8, 16), nn.ModuleList([Block(), Block()])
        self.extra, self.head = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x, extra=False):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.extra(x) if extra else x)


def halved(state, bucket):
    """A hook of a program, in the place of DDP's own."""
    reduced = dist.all_reduce(bucket.buffer() / 2, async_op=True).get_future()
    return reduced.then(lambda future: future.value()[0])


def around(compiled, hook=None, **options):
    model = DistributedDataParallel(Network(), find_unused_parameters=True, **options)
    if hook is not None:
        model.register_comm_hook(None, hook)
    return tracework.compile(model) if compiled else model


def inside(compiled, **options):
    model = Network()
    return DistributedDataParallel(tracework.compile(model) if compiled else model, find_unused_parameters=True, **options)


def sharded(compiled, whole=False, **options):
    model, mesh = Network(), init_device_mesh("cpu", (2,))
    for block in model.blocks:
        if compiled and not whole:
            tracework.compile_in_place(block)
        fully_shard(block, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    return tracework.compile(model) if compiled and whole else model


MODELS = {
    # how a model is made; whether the parameters that get no gradient are others at each step, and on each rank
    "around": (lambda c: around(c, **SMALL), True),
    "inside": (lambda c: inside(c, **SMALL), True),
    "a hook": (lambda c: around(c, halved, **SMALL), False),
    "gradients in buckets": (lambda c: around(c, gradient_as_bucket_view=True, **SMALL), True),
    "sharded blocks": (sharded, False),
    "sharded, all": (lambda c: sharded(c, whole=True), False),
    "two precisions": (lambda c: sharded(c, mp_policy=HALF), False),
}


class Messages(logging.Handler):
    def __init__(self, name):
        super().__init__(logging.DEBUG)
        self.found = []
        self.log = logging.getLogger(name)
        self.log.setLevel(logging.DEBUG)
        self.log.addHandler(self)

    def emit(self, record):
        self.found.append(record.getMessage())


def trained(model, rank, extra, precise):
    """The losses and gradients of steps, two of three accumulated."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
    for step in range(STEPS):
        for part in range(2):
            torch.manual_seed(100 * step + 10 * part + rank)
            x, target = torch.randn(8, 8), torch.randint(4, (8,))
            with model.no_sync() if part == 0 and hasattr(model, "no_sync") else nullcontext():
                loss = nn.functional.cross_entropy(model(x, extra and (step + rank) % 2 == 1).float(), target)
                loss.backward()
            yield loss.detach(), precise
        for p in model.parameters():
            if p.grad is not None:
                yield p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad.clone(), precise
        optimizer.step()
        optimizer.zero_grad()


def train(rank):
    recompiles = Messages("tracework.capture.recompiles")
    for name, (make, extra) in MODELS.items():
        graphs = counters().get("load", 0)
        plain, compiled = (trained(make(c), rank, extra, "precisions" not in name) for c in (False, True))
        for (expected, precise), (found, _) in zip(plain, compiled, strict=True):
            close = {} if precise else {"rtol": 0.05, "atol": 0.05}
            torch.testing.assert_close(found, expected, **close, msg=lambda m, name=name: f"{name}: {m}")
        everywhere = [None, None]
        dist.all_gather_object(everywhere, (len(recompiles.found), counters().get("load", 0) - graphs > 1))
        assert everywhere[0] == everywhere[1] == (1 if extra else 0, True), (name, everywhere, recompiles.found)
        recompiles.found.clear()


def overlap(rank):
    """Each bucket is sent when the stage of the backward has run that gives its gradients, and before what the next one computes."""
    events, names = [], {}

    def hook(state, bucket):
        events.append(sorted(names[id(parameter)] for parameter in bucket.parameters()))
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0])

    def computing(chain, number, link):
        events.append(number)
        return computed(chain, number, link)

    computed, stages.Chain._next = stages.Chain._next, computing
    for make in (around, inside):
        model = make(True, **SMALL)
        model.register_comm_hook(None, hook)
        names.update((id(parameter), name) for name, parameter in model.named_parameters())
        for _ in range(3):
            events.clear()
            model(torch.randn(8, 8), True).sum().backward()
        assert len(events) == 6 and events[::2] == [0, 1, 2], events
        sent = [name.removeprefix("module.").removeprefix("_orig_mod.") for bucket in events[1::2] for name in bucket]
        assert sorted(sent) == sorted(name for name, _ in Network().named_parameters()), events
    stages.Chain._next = computed


def agree(rank):
    """They compile where the guards of one fail."""
    graphs = []
    call = tracework.compile(lambda x: (x * 2).sin(), backend=lambda gm, inputs: graphs.append(1) or gm)
    assert tracework.compiler.set_enable_guard_collectives(True) is False
    for size, expected in [(4, 1), (4, 1), (4 + rank, 2), (4 + rank, 2), (4, 2)]:
        call(torch.ones(size))
        assert len(graphs) == expected


def work(rank):
    warnings.simplefilter("error", tracework.UncompiledWarning)
    for part in (train, overlap, agree):
        part(rank)


def test_two_processes(tmp_path):
    in_ranks(work, tmp_path)

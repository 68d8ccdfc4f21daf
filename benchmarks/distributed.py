"""Training over several processes: `python -m benchmarks.distributed --ranks 2`; with `--device cuda` each has a GPU of its own.

A job is a model and a way to spread it. Each rank trains copies of the model from equal weights with equal data: plain, and by each
compiler. Their losses are compared step by step with the plain copy's, then all are timed in turns. A rank's step ends when its device is
idle; the slowest rank's counts.
"""

from __future__ import annotations

import copy
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import typer
from rich.table import Table
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from benchmarks.__main__ import RESULTS, console, settings_of, written
from benchmarks.compare import description
from benchmarks.worker import DTYPES, compiler, timed

PATIENCE = timedelta(minutes=5)
"""How long a collective waits for the other ranks: compiling included."""
WARM_STEPS = 2
"""After which nothing is compiled any more."""
PROFILED = 3
"""Steps that a profile sees."""


@dataclass(frozen=True)
class Sizes:
    """Of a decoder: blocks, width, vocabulary, and a rank's batch of sequences of `length` tokens."""

    layers: int = 4
    width: int = 256
    vocabulary: int = 4096
    batch: int = 4
    length: int = 128


SIZES = {"small": Sizes(), "full": Sizes(layers=6, width=4096, vocabulary=32000, batch=4, length=2048)}
HEAD = 64
"""Width of a head of attention."""


class Block(nn.Module):
    """A block of gpt2 (layer norms, GELU), or of llama (RMS norms, rotary places, gated SiLU, half as many heads of keys and values)."""

    def __init__(self, sizes: Sizes, llama: bool) -> None:
        super().__init__()
        width, hidden = sizes.width, sizes.width * (3 if llama else 4)
        norm = nn.RMSNorm if llama else nn.LayerNorm
        self.llama = llama
        self.first, self.second = norm(width), norm(width)
        self.q, self.o = nn.Linear(width, width, bias=not llama), nn.Linear(width, width, bias=not llama)
        self.k, self.v = (nn.Linear(width, width // (1 + llama), bias=not llama) for _ in range(2))
        self.up, self.down = nn.Linear(width, hidden, bias=not llama), nn.Linear(hidden, width, bias=not llama)
        if llama:
            self.gate = nn.Linear(width, hidden, bias=False)

    def forward(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        q, k, v = (layer(y).unflatten(-1, (-1, HEAD)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        if self.llama:
            q, k = turned(q, turns), turned(k, turns)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.llama)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y) if self.llama else F.gelu(self.up(y), approximate="tanh"))


def turned(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Queries or keys, (batch, heads, length, HEAD), turned by their places: turns is (2, length, HEAD), cosines and sines."""
    left, right = x.chunk(2, dim=-1)
    return x * turns[0] + torch.cat((-right, left), dim=-1) * turns[1]


class Decoder(nn.Module):
    """Tokens, (batch, length), to logits, (batch, length, vocabulary)."""

    def __init__(self, sizes: Sizes, llama: bool) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(sizes.vocabulary, sizes.width), nn.Embedding(sizes.length, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes, llama) for _ in range(sizes.layers))
        self.norm, self.head = nn.LayerNorm(sizes.width), nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        angles = torch.outer(torch.arange(sizes.length), 10000 ** (-torch.arange(0, HEAD, 2) / HEAD)).repeat(1, 2)
        self.register_buffer("turns", torch.stack((angles.cos(), angles.sin())))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x, self.turns)
        return self.head(self.norm(x))


MODELS: dict[str, Callable[[Sizes], Decoder]] = {"gpt2": lambda s: Decoder(s, False), "llama": lambda s: Decoder(s, True)}

Compile = Callable[[Any], Any]
InPlace = Callable[[nn.Module], None]


def split_in_ranks(model: Decoder, mesh: DeviceMesh) -> None:
    """Tensor parallel: columns, then rows, of each block."""
    columns = {name: ColwiseParallel() for name in ("q", "k", "v", "up", "gate")}
    rows = {name: RowwiseParallel() for name in ("o", "down")}
    for block in model.blocks:
        parallelize_module(block, mesh, {name: style for name, style in (columns | rows).items() if hasattr(block, name)})
    parallelize_module(model, mesh, {"head": ColwiseParallel(output_layouts=Replicate())})


def shard(model: Decoder, mesh: DeviceMesh, in_place: InPlace) -> None:
    """FSDP2 around blocks that are compiled each."""
    for block in model.blocks:
        in_place(block)
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def ddp(model: Decoder, mesh: DeviceMesh, compile: Compile, in_place: InPlace) -> Any:
    return compile(DistributedDataParallel(model))


def fsdp2(model: Decoder, mesh: DeviceMesh, compile: Compile, in_place: InPlace) -> Any:
    shard(model, mesh, in_place)
    return model


def tp(model: Decoder, mesh: DeviceMesh, compile: Compile, in_place: InPlace) -> Any:
    split_in_ranks(model, mesh)
    return compile(model)


def tp_fsdp2(model: Decoder, mesh: DeviceMesh, compile: Compile, in_place: InPlace) -> Any:
    split_in_ranks(model, mesh["tp"])
    shard(model, mesh["dp"], in_place)
    return model


@dataclass(frozen=True)
class Spread:
    """How a model is spread over ranks: spread(model, mesh, compile, compile in place); which ranks have equal data."""

    spread: Callable[[Decoder, DeviceMesh, Compile, InPlace], Any]
    axes: tuple[str, ...] = ("dp",)

    def mesh(self, device: str) -> DeviceMesh:
        world = dist.get_world_size()
        shape = (world,) if len(self.axes) == 1 else (world // 2, 2)
        return init_device_mesh(device, shape, mesh_dim_names=self.axes)


SPREADS = {"ddp": Spread(ddp), "fsdp2": Spread(fsdp2), "tp": Spread(tp, ("tp",)), "tp+fsdp2": Spread(tp_fsdp2, ("dp", "tp"))}


def in_place_by(system: str) -> InPlace:
    """What compiles a module in its place, under `system`."""
    if system == "eager":
        return lambda module: None
    if system == "torch.compile":
        return lambda module: module.compile()
    import tracework

    return lambda module: tracework.compile_in_place(module)


class Training:
    """One copy of the model, and its optimizer; a call is a step and gives the loss of this rank."""

    def __init__(self, model: Any, batches: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        self.model, self.batches = model, batches
        distributed, plain = [], []
        for parameter in model.parameters():
            (distributed if isinstance(parameter, DTensor) else plain).append(parameter)
        groups = [{"params": found} for found in (distributed, plain) if found]  # torch's foreach kernels take one kind at a time
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3)
        self.steps = 0

    def __call__(self) -> torch.Tensor:
        tokens, targets = self.batches[self.steps % len(self.batches)]
        self.steps += 1
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(tokens).flatten(0, 1).float(), targets.flatten())
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def batches_of(job: dict[str, Any], group: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Tokens and targets, equal for ranks of one group."""
    sizes, generator = SIZES[job["scale"]], torch.Generator().manual_seed(group)
    shape = (2, sizes.batch, sizes.length)
    return [
        tuple(torch.randint(0, sizes.vocabulary, shape, generator=generator).to(job["device"]))  # type: ignore[misc]
        for _ in range(job["steps"])
    ]


Spans = list[tuple[float, float]]


def merged(spans: Iterable[tuple[float, float]]) -> Spans:
    """The same times as spans that do not touch, in order."""
    found: Spans = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def share_covered(spans: Iterable[tuple[float, float]], others: Iterable[tuple[float, float]]) -> float:
    """How much of the time of `spans` lies within `others`: 0 to 1; not a number where there is none."""
    mine, theirs = merged(spans), merged(others)
    covered = sum(max(0.0, min(e, f) - max(s, t)) for s, e in mine for t, f in theirs)
    return covered / whole if (whole := sum(e - s for s, e in mine)) else float("nan")


def overlap_of(step: Callable[[], Any]) -> dict[str, float]:
    """Of the time of a GPU's kernels that talk to other ranks, milliseconds a step and the share during which others compute."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    kernels = [e for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA and not e.name.startswith("Mem")]
    spans: tuple[Spans, Spans] = ([], [])
    for event in kernels:
        spans["nccl" in event.name.lower()].append((event.time_range.start, event.time_range.end))
    talking = sum(e - s for s, e in merged(spans[True]))
    return {"collective_ms": talking / PROFILED / 1e3, "overlap": share_covered(spans[True], spans[False])}


def largest(values: Sequence[float], device: str) -> list[float]:
    """Of each value the largest that a rank has."""
    both = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(both, dist.ReduceOp.MAX)
    return both.tolist()


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """One job (model, spread, device, dtype, scale, ways, steps, rounds) on one rank; all ranks give equal figures."""
    device, kind = job["device"], SPREADS[job["spread"]]
    mesh = kind.mesh(device)
    torch.manual_seed(0)
    with torch.device(device):
        reference = MODELS[job["model"]](SIZES[job["scale"]]).to(DTYPES[job["dtype"]])
    group = mesh.get_local_rank("dp") if "dp" in kind.axes else 0
    batches = batches_of(job, group)
    result: dict[str, Any] = {**job, "ways": {}}
    trainings: dict[str, Training] = {}
    losses: dict[str, list[float]] = {}
    for way in ("eager", *job["ways"]):
        system, _, mode = way.partition(":")
        row = result["ways"][way] = {}
        dist.barrier()
        started = time.perf_counter()
        model = kind.spread(copy.deepcopy(reference), mesh, compiler(system, mode or None), in_place_by(system))
        training = Training(model, batches)
        try:
            found = [training().item()]
            (row["first_step_s"],) = largest([time.perf_counter() - started], device)
            found += [training().item() for _ in range(WARM_STEPS - 1)]
            before = loads()
            found += [training().item() for _ in range(job["steps"] - WARM_STEPS)]
        except Exception as failed:
            row["failed"] = f"{type(failed).__name__}: {str(failed).strip().splitlines()[0][:200] if str(failed).strip() else ''}"
            continue
        trainings[way], losses[way] = training, found
        (row["loss_error"],) = largest([max(abs(a / b - 1) for a, b in zip(found, losses["eager"], strict=True))], device)
        if system == "tracework":
            (row["later_loads"],) = largest([loads() - before], device)
    times: dict[str, list[float]] = {way: [] for way in trainings}
    for _ in range(job["rounds"]):
        for way, training in trainings.items():
            dist.barrier()
            times[way].append(timed(training, device))
    slowest = {way: largest(found, device) for way, found in times.items()}
    for way, found in slowest.items():
        row = result["ways"][way]
        row["step_s"] = statistics.median(found)
        row["speedup"] = statistics.median(e / t for e, t in zip(slowest["eager"], found, strict=True))
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            row |= overlap_of(trainings[way])
    return result


def loads() -> int:
    """How many graphs this process has made callable so far."""
    runtime = sys.modules.get("tracework_runtime")
    return runtime.counters().get("load", 0) if runtime else 0


def rank_of(rank: int, job: dict[str, Any], meeting: str, caches: Path) -> None:
    """One process of a job; the first one writes its result into the folder where ranks meet."""
    os.environ.update(settings_of(caches))
    if job["device"] == "cuda":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // job["ranks"]))
    backend = {"cpu": "gloo", "cuda": "nccl"}[job["device"]]
    dist.init_process_group(backend, init_method=f"file://{meeting}/store", rank=rank, world_size=job["ranks"], timeout=PATIENCE)
    result = measure(job)
    if rank == 0:
        Path(meeting, "result.json").write_text(json.dumps(result))
    dist.destroy_process_group()


def run_job(job: dict[str, Any], caches: Path) -> dict[str, Any]:
    """A job in processes of its own, which meet in a folder of this run; a failure becomes a row."""
    with TemporaryDirectory() as meeting:
        try:
            mp.spawn(rank_of, (job, meeting, caches), nprocs=job["ranks"])
        except (mp.ProcessRaisedException, mp.ProcessExitedException) as failed:
            return {**job, "failed": str(failed).strip().splitlines()[-1][:200]}
        return json.loads(Path(meeting, "result.json").read_text())


def table_of(rows: Sequence[dict[str, Any]], ways: Sequence[str]) -> Table:
    """Milliseconds of eager, and of each way the speed-up, the first step, the largest difference of losses, and the overlap on GPUs."""
    table = Table(
        "model", "spread", "eager ms", *ways, title="speed-up over eager (first step s, losses differ by, overlap of collectives)"
    )
    for row in rows:
        cells, found = [], row.get("ways", {})
        for way in ways:
            figures = found.get(way, {})
            if "speedup" not in figures:
                cells.append(figures.get("failed", row.get("failed", "-"))[:60])
                continue
            overlap = f", {figures['overlap']:.2f}" if "overlap" in figures else ""
            cells.append(f"{figures['speedup']:.2f} ({figures['first_step_s']:.1f}, {figures['loss_error']:.0e}{overlap})")
        eager = found.get("eager", {}).get("step_s", float("nan"))
        table.add_row(row["model"], row["spread"], f"{eager * 1e3:.1f}", *cells)
    return table


def main(
    models: Annotated[str, typer.Option(help="comma-separated: gpt2, llama")] = ",".join(MODELS),
    spreads: Annotated[str, typer.Option(help="comma-separated; tp+fsdp2 takes four ranks or more")] = "ddp,fsdp2,tp",
    ways: Annotated[str, typer.Option(help="comma-separated systems, each with :mode or without")] = "torch.compile,tracework",
    ranks: Annotated[int, typer.Option(help="processes")] = 2,
    device: Annotated[str, typer.Option(help="cpu (gloo) or cuda (nccl)")] = "cpu",
    dtype: Annotated[str, typer.Option(help="fp32 or bf16")] = "fp32",
    scale: Annotated[str, typer.Option(help="small or full")] = "small",
    steps: Annotated[int, typer.Option(help="whose losses are compared")] = 50,
    rounds: Annotated[int, typer.Option(help="in which all take turns")] = 20,
    folder: Annotated[Path | None, typer.Option(help="of the caches; default: one that is deleted at the end")] = None,
    output: Annotated[Path | None, typer.Option(help="JSON lines file; default under benchmarks/results")] = None,
) -> None:
    """Prints a table and writes JSON lines."""
    common = dict(device=device, dtype=dtype, scale=scale, ways=ways.split(","), ranks=ranks, steps=steps, rounds=rounds)
    path = output or RESULTS / f"{device}-{dtype}-{scale}-{ranks}-ranks.jsonl"
    jobs = [dict(model=model, spread=spread, **common) for spread in spreads.split(",") for model in models.split(",")]
    rows = []
    with TemporaryDirectory() as temporary:
        for row in written((run_job(job, folder or Path(temporary)) for job in jobs), path, description(device)):
            rows.append(row)
            console.print(table_of([row], ways.split(",")))
    console.print(table_of(rows, ways.split(",")))


if __name__ == "__main__":
    typer.run(main)

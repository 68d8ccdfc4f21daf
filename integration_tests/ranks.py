"""Several processes on this machine that are one process group, each of which does the same work and tells the others what it found."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def in_ranks(work: Callable[..., None], folder: Path, *given: Any, ranks: int = 2, device: str = "cpu") -> None:
    """Runs work(rank, *given) in as many processes, which meet in a folder; raises what one of them raised."""
    mp.spawn(_one_rank, (work, f"file://{folder}/store", given, ranks, device), nprocs=ranks)


def _one_rank(rank: int, work: Callable[..., None], store: str, given: tuple[Any, ...], ranks: int, device: str) -> None:
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group({"cpu": "gloo", "cuda": "nccl"}[device], init_method=store, rank=rank, world_size=ranks)
    work(rank, *given)
    dist.destroy_process_group()


def of_all_ranks(found: Any) -> list[Any]:
    """What each rank found, on all of them."""
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, found)
    return gathered

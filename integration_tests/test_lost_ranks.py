"""A rank that is slow, has another size, or is killed while it compiles: right results, or an error of the others at once."""

import os
import signal
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import tracework
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from tracework_runtime import RankLost

LIMIT = 60.0
SIZES = [(4, 4), (6, 6), (6, 7), (8, 8)]
"""Of both ranks, at each step. Rank 1 is slow in the second, and killed in the last one."""


def work(rank, store, agreed, told):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    tracework.compiler.set_enable_guard_collectives(agreed)
    step = 0

    def compiler(gm, inputs):
        if rank == 1 and step == 1:
            time.sleep(3)
        if rank == 1 and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return gm.forward

    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    model = DistributedDataParallel(tracework.compile(plain, backend=compiler, dynamic=False))
    for step, sizes in enumerate(SIZES):
        x = torch.randn(sizes[rank], 4, generator=torch.Generator().manual_seed(step))
        began = time.monotonic()
        try:
            result = model(x)
            result.square().mean().backward()
        except (RuntimeError, RankLost) as error:
            told.send((step, time.monotonic() - began, type(error).__name__))
            os._exit(0)
        torch.testing.assert_close(result, plain(x))
    told.send((len(SIZES), 0.0, "nothing"))


def lost(store, agreed):
    """What rank 0 is told: step, seconds, error."""
    context = mp.get_context("spawn")
    hears, told = context.Pipe(duplex=False)
    ranks = [context.Process(target=work, args=(rank, store, agreed, told)) for rank in range(2)]
    for process in ranks:
        process.start()
    try:
        assert hears.poll(2 * LIMIT), "rank 0 says nothing"
        return hears.recv()
    finally:
        for process in ranks:
            process.kill()
            process.join(LIMIT)


def test_a_rank_is_killed_while_it_compiles(tmp_path):
    step, seconds, error = lost(f"file://{tmp_path}/store", agreed=False)
    assert (step, error) == (3, "RuntimeError") and seconds < LIMIT, (step, seconds, error)


def test_a_rank_is_killed_while_it_compiles_what_all_compile(tmp_path):
    step, seconds, error = lost(f"file://{tmp_path}/store", agreed=True)
    assert step == 3 and error in ("RuntimeError", "RankLost") and seconds < LIMIT, (step, seconds, error)

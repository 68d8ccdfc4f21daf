"""What the checks of indices cost on a GPU: programs that read or write at an index, with the option index_checks and without, in turns.

python tools/run_in_tree.py python benchmarks/micro/index_checks.py
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import tracework

ROUNDS, CALLS = 30, 20


def _integers(below: int, *sizes: int) -> torch.Tensor:
    return torch.randint(0, below, sizes, device="cuda")


def _halves(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, device="cuda", dtype=torch.bfloat16)


def _training(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.autograd.grad(F.cross_entropy(x.float(), y), x)


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "embedding, 16384 of 768": (lambda w, i: F.embedding(i, w), lambda: (_halves(50257, 768), _integers(50257, 8, 2048))),
    "embedding, 16384 of 4096": (lambda w, i: F.embedding(i, w), lambda: (_halves(32000, 4096), _integers(32000, 8, 2048))),
    "embedding and norm": (
        lambda w, i: F.layer_norm(F.embedding(i, w), (1024,)),
        lambda: (_halves(50257, 1024), _integers(50257, 8, 2048)),
    ),
    "cross_entropy, 8192 of 50257": (F.cross_entropy, lambda: (_halves(8192, 50257), _integers(50257, 8192))),
    "cross_entropy, 65536 of 1000": (F.cross_entropy, lambda: (_halves(65536, 1000), _integers(1000, 65536))),
    "cross_entropy, training": (
        _training,
        lambda: (_halves(8192, 50257).requires_grad_(), _integers(50257, 8192)),
    ),
    "gather, 4096 of 4096": (lambda x, i: x.gather(1, i), lambda: (_halves(4096, 4096), _integers(4096, 4096, 4096))),
    "index_add, 65536 of 256": (
        lambda x, i, y: x.index_add(0, i, y),
        lambda: (torch.zeros(4096, 256, device="cuda"), _integers(4096, 65536), torch.randn(65536, 256, device="cuda")),
    ),
}


def milliseconds(call: Callable[..., Any], given: tuple[torch.Tensor, ...]) -> float:
    """Of one call, by events around several."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(2_000_000)  # the calls are queued while the device waits: what the host takes does not count
    start.record()
    for _ in range(CALLS):
        call(*given)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / CALLS


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for name, (program, make) in PROGRAMS.items():
        given = make()
        ways = [tracework.compile(program, options={"index_checks": checks}) for checks in (True, False)]
        for way in ways:
            way(*given)
        times: list[list[float]] = [[], []]
        for n in range(ROUNDS):
            for which in (0, 1) if n % 2 else (1, 0):
                times[which].append(milliseconds(ways[which], given))
        checked, unchecked = map(statistics.median, times)
        print(
            f"{name}: {checked * 1e3:.2f} us checked, {unchecked * 1e3:.2f} unchecked, {checked / unchecked - 1:+.2%}", flush=True
        )
        tracework.reset()


if __name__ == "__main__":
    main()

"""Programs in which something cannot be recorded as a CUDA graph: with parts recorded around it, without, and by torch.compile, in turns.

python tools/run_in_tree.py python benchmarks/micro/graph_parts.py [--without-torch] [PROGRAM ...]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
import tracework
from torch import nn
from tracework_runtime import GraphedFn

WIDTH, ROWS, EXPERTS, LAYERS = 256, 64, 4, 8
ROUNDS, CALLS, INPUTS = 15, 20, 4


class Layers(nn.Module):
    """Small layers, for which the host needs longer than the GPU."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.products = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(count))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows to rows."""
        for product, norm in zip(self.products, self.norms):
            x = x + F.gelu(product(norm(x)))
        return x


class Split(nn.Module):
    """Layers, something else, layers. parts: that are recorded at least."""

    parts = 2

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = Layers(LAYERS), Layers(LAYERS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The rows, by way of `between`."""
        return self.last(self.between(self.first(x)))

    def between(self, h: torch.Tensor) -> torch.Tensor:
        """What cannot be recorded."""
        raise NotImplementedError


class Item(Split):
    """A number that only tensors are computed with: it stays on the GPU."""

    parts = 1

    def between(self, h: torch.Tensor) -> torch.Tensor:
        return h / h.abs().max().item()


class Branch(Split):
    """The host reads a number and decides."""

    def between(self, h: torch.Tensor) -> torch.Tensor:
        return h.tanh() if h.abs().max().item() > 1e3 else h.sin()


class CpuTensor(Split):
    """A table on the CPU, and a number there that a GPU's values are multiplied by."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.table = torch.tensor(0.5), torch.linspace(0, 1, WIDTH)

    def between(self, h: torch.Tensor) -> torch.Tensor:
        mean = h.mean(0).cpu()
        return h * self.scale + (mean.sigmoid() * self.table).to(h.device)


class Nonzero(Split):
    """As many rows as the data says."""

    def between(self, h: torch.Tensor) -> torch.Tensor:
        chosen = torch.nonzero(h[:, 0] > h[:, 1]).squeeze(1)
        return h.index_add(0, chosen, h[chosen].tanh())


class Mask(Split):
    """A write behind a mask, whose elements eager counts; here it is a choice of each element."""

    parts = 1

    def between(self, h: torch.Tensor) -> torch.Tensor:
        h = h.clone()
        h[h[:, 0] > 0] = torch.linspace(0, 1, WIDTH, device=h.device, dtype=h.dtype)
        return h


class Cholesky(Split):
    """A decomposition that tells the host whether it failed; the layers behind do not wait for that."""

    parts = 1

    def between(self, h: torch.Tensor) -> torch.Tensor:
        positive = h.T @ h / ROWS + 2 * torch.eye(WIDTH, device=h.device, dtype=h.dtype)
        return h @ torch.linalg.cholesky(positive)


class Routed(Split):
    """Experts, each with the rows that chose it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(WIDTH, EXPERTS), nn.ModuleList(Layers(1) for _ in range(EXPERTS))

    def between(self, h: torch.Tensor) -> torch.Tensor:
        weight, choice = self.gate(h).softmax(-1).max(-1)
        out = torch.zeros_like(h)
        for number, expert in enumerate(self.experts):
            rows = torch.nonzero(choice == number).squeeze(1)
            out = out.index_add(0, rows, expert(h[rows]) * weight[rows].unsqueeze(1))
        return out


@torch.library.custom_op("tracework_benchmarks::unsafe", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def unsafe(x: torch.Tensor) -> torch.Tensor:
    """Twice x, and the host looks."""
    if x.is_cuda:
        torch.cuda.current_stream(x.device).synchronize()
    return x * 2


@unsafe.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Unsafe(Split):
    """A custom operator that says that it cannot be recorded."""

    def between(self, h: torch.Tensor) -> torch.Tensor:
        return unsafe(h.sin())  # type: ignore[no-any-return]


@torch.library.custom_op("tracework_benchmarks::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    """The same without a word."""
    if x.is_cuda:
        torch.cuda.current_stream(x.device).synchronize()
    return x * 2


@unknown.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Unknown(Split):
    """A custom operator that cannot be recorded, which the recording that fails finds out."""

    def between(self, h: torch.Tensor) -> torch.Tensor:
        return unknown(h.sin())  # type: ignore[no-any-return]


INFERENCE = Unsafe, Unknown
"""Without a backward."""
PROGRAMS = (Item, Branch, CpuTensor, Nonzero, Mask, Cholesky, Routed, Unsafe, Unknown)


def made(program: type[Split], device: str = "cuda") -> tuple[Split, Callable[[], torch.Tensor]]:
    """A model on a device, and what makes inputs."""
    torch.manual_seed(0)
    model = program().to(device).eval().requires_grad_(False)
    if isinstance(model, CpuTensor):
        model.scale, model.table = model.scale.cpu(), model.table.cpu()
    return model, lambda: torch.randn(ROWS, WIDTH, device=device)


class Recorded:
    """Counts what is recorded as long as it is entered."""

    def __enter__(self) -> Recorded:
        self.functions: list[GraphedFn] = []
        self._make = GraphedFn.__init__

        def make(graphed: GraphedFn, *args: Any, **kwargs: Any) -> None:
            self._make(graphed, *args, **kwargs)
            self.functions.append(graphed)

        GraphedFn.__init__ = make  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        GraphedFn.__init__ = self._make  # type: ignore[method-assign]

    def parts(self) -> int:
        """How many functions have recordings."""
        return sum(bool(graphed.recordings) for graphed in self.functions)


def milliseconds(call: Callable[[torch.Tensor], Any], given: Sequence[torch.Tensor]) -> float:
    """Of one call, among several with these inputs in turn."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    for n in range(CALLS):
        call(given[n % len(given)])
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / CALLS * 1000


def peak(call: Callable[[torch.Tensor], Any], x: torch.Tensor) -> float:
    """MiB that a call allocates over what is there between calls."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call(x)
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def measure(program: type[Split], with_torch: bool) -> None:
    """Prints one row."""
    model, inputs = made(program)
    ways: dict[str, Callable[[torch.Tensor], Any]] = {"eager": model, "default": tracework.compile(model)}
    ways["parts"] = tracework.compile(model, mode="reduce-overhead")
    if with_torch:
        ways["torch"] = torch.compile(model)
        ways["torch parts"] = torch.compile(model, mode="reduce-overhead")
    given = [inputs() for _ in range(INPUTS)]
    expected = [model(x) for x in given]
    errors, peaks = [], {}
    with Recorded() as recorded:
        for way, call in ways.items():
            for n in range(6 * INPUTS):
                found = call(given[n % INPUTS])
                errors.append(float((found - expected[n % INPUTS]).abs().max() / found.abs().max()))
                del found
            peaks[way] = peak(call, given[0])
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, call in ways.items():
            times[way].append(milliseconds(call, given))
    row = "  ".join(f"{way} {statistics.median(found):.3f}" for way, found in times.items())
    print(f"{program.__name__:10} peak MiB", "  ".join(f"{way} {found:.2f}" for way, found in peaks.items()))
    print(f"{program.__name__:10} ms: {row}  recorded {recorded.parts()} of {len(recorded.functions)}, error {max(errors):.1e}")
    for graphed in recorded.functions:
        print("   ", graphed, graphed.made, "made", graphed.replays, "replays", graphed.plain, "plain", graphed.reasons())


if __name__ == "__main__":
    print(torch.cuda.get_device_name(), torch.__version__)
    wanted = {word for word in sys.argv[1:] if not word.startswith("--")}
    for program in PROGRAMS:
        if not wanted or program.__name__ in wanted:
            measure(program, "--without-torch" not in sys.argv)

"""Peak memory of training steps, forward and backward: at most eager's, by what the C library's allocator gives out."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import memory

F = torch.nn.functional


def rms_norm(x, gain):
    return gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def half_turned(x):
    left, right = x.chunk(2, dim=-1)
    return torch.cat((-right, left), dim=-1)


COSINES, SINES = torch.rand(2, 8192, 256)


def rope(x):
    return x * COSINES + half_turned(x) * SINES


def rope_of_heads(x):
    heads = x.view(8, 1024, 4, 64).transpose(1, 2)
    return heads * COSINES[:1024, :64] + half_turned(heads) * SINES[:1024, :64]


CHAINS: dict[str, Callable[..., Any]] = {
    "normalize, rms": lambda x, w: rms_norm(F.normalize(x @ w, dim=-1), w[0]),
    "perceptron": lambda x, w: F.gelu(x @ w) @ w.t(),
    "rope": lambda x, w: rope(x @ w),
    "rope of a product that is written twice": lambda x, w: (x @ w) * COSINES + half_turned(x @ w) * SINES,
    "rope of heads": lambda x, w: rope_of_heads(x @ w),
    "loss": lambda x, w: F.cross_entropy(x @ w, torch.zeros(len(x), dtype=torch.long)),
}
"""Their values are 8 MB each."""
OBJECTS = 1 << 16
"""What Python's objects of a step may have beside them."""


class Step:
    """A forward and a backward."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        self.args = [torch.randn(8192, 256, requires_grad=True), torch.randn(256, 256, requires_grad=True)]

    def __call__(self) -> None:
        self.clear()
        self.call(*self.args).sum().backward()

    def clear(self) -> None:
        for x in self.args:
            x.grad = None


def measure() -> dict[str, list[int]]:
    """Bytes of tracework and of eager."""
    import tracework

    found = {}
    for name, chain in CHAINS.items():
        steps = [Step(tracework.compile(chain, fullgraph=True)), Step(chain)]
        for step in steps:
            step()
        found[name] = [memory.peak_of(step) for step in steps]
    return found


@pytest.fixture(scope="module")
def peaks():
    root = Path(__file__).parent.parent
    with memory.counter() as settings:
        command = [sys.executable, "-m", "integration_tests.test_peaks"]
        environment = {**os.environ, **settings}
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=300, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CHAINS)
def test_at_most_eagers(name, peaks):
    ours, eager = peaks[name]
    assert eager > 8 << 20 and ours <= eager + OBJECTS


if __name__ == "__main__":
    print(json.dumps(measure()))

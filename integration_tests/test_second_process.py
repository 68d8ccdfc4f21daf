"""Programs as users have them run in one process and then in others, with one cache folder: nothing is captured again, and where a file was
edited what depends on it is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARY = """
import functools
import torch

@functools.lru_cache
def factor(n):
    return n + 1

def helper(x):
    return x * 3

lib = torch.library.Library("second_process", "DEF")
lib.define("twice(Tensor x) -> Tensor")
lib.impl("twice", lambda x: x * 2, "CPU")

@torch.library.register_fake("second_process::twice", lib=lib)
def _(x):
    return torch.empty_like(x)
"""
PROGRAM = """
import functools, io, json, sys
from typing import NamedTuple
import torch, tracework
from tracework_capture.hook import compile_frame
from torch import nn
from . import library

names = []
real = compile_frame.capture_frame
def counted(given, *rest):
    if given.code.co_name != "_audit_fork_safety":
        names.append(given.code.co_qualname)
    return real(given, *rest)
compile_frame.capture_frame = counted

class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor

@functools.singledispatch
def chosen(value, x):
    return x

@chosen.register
def _(value: int, x):
    return x * value

def remembered(x):
    return x * library.factor(3)

def paired(pair):
    return chosen(2, pair.left) + pair.right

def defined(x):
    return torch.ops.second_process.twice(x) + 1

def masked(x):
    return x[x > 0].cumsum(0)

def called(x):
    return library.helper(x)

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 4)
        self.out = nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))
    def forward(self, x):
        return self.out(self.gru(x)[0]).mT

def pickled():
    file = io.BytesIO()
    torch.save(nn.Sequential(nn.Linear(4, 4), nn.GELU()), file)
    file.seek(0)
    return torch.load(file, weights_only=False)

def trained(compiled):
    model, rates = nn.Linear(4, 4), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()
    run = compiled(step)
    for _ in range(3):
        rates.append(run(torch.ones(2, 4)))
        schedule.step()
    return torch.stack(rates)

def in_a_function(compiled):
    class Inner(nn.Module):
        def forward(self, x):
            return x.sin() + 1
    return compiled(Inner())(torch.ones(3))

x = torch.linspace(-1, 1, 12).view(3, 4)
def gradients(compiled):
    model = Recurrent()
    compiled(model)(x[:, None]).square().sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])

PROGRAMS = {
    "remembered": lambda compiled: compiled(remembered)(x),
    "named tuple": lambda compiled: compiled(paired)(Pair(x, x + 1)),
    "operator": lambda compiled: compiled(defined)(x),
    "mask": lambda compiled: compiled(masked)(x),
    "helper": lambda compiled: compiled(called)(x),
    "recurrent": gradients,
    "pickled": lambda compiled: compiled(pickled())(x).detach(),
    "optimizer": trained,
    "local class": in_a_function,
}
if __name__ == "__main__":
    captured, wrong = [], []
    for name, program in PROGRAMS.items():
        del names[:]
        torch.manual_seed(0)
        found = program(tracework.compile)
        captured += [name] if names else []
        torch.manual_seed(0)
        if not torch.allclose(found, program(lambda function: function), atol=1e-5):
            wrong.append(name)
    print(json.dumps([captured, wrong]))
"""
EVERY = ["remembered", "named tuple", "operator", "mask", "helper", "recurrent", "pickled", "optimizer", "local class"]
EDITS = {
    # texts of the library -> what is there next, and what is captured again
    (("lambda x: x * 2", "lambda x: x * 4"),): [],  # what an operator computes is asked when it runs
    (("x * 3", "x * 4"), ("n + 1", "n + 2"), ("empty_like(x)", "empty_like(x, dtype=x.dtype)")): [
        "remembered",
        "operator",
        "helper",
    ],
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "library.py").write_text(LIBRARY)
    (folder / "program.py").write_text(PROGRAM)
    return folder


def captured(package: Path) -> list[str]:
    """Runs the program in a process of its own and gives what it captured; values have to be eager's."""
    paths = os.pathsep.join([str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "TRACEWORK_CACHE_DIR": str(package.parent / "cache")}
    command = [sys.executable, "-W", "ignore", "-m", "app.program"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    names, wrong = json.loads(done.stdout.splitlines()[-1])
    assert not wrong
    return list(names)


def test_nothing_is_captured_again(package: Path) -> None:
    assert captured(package) == EVERY
    assert captured(package) == []
    library = package / "library.py"
    for edits, expected in EDITS.items():
        for old, new in edits:
            library.write_text(library.read_text().replace(old, new))
        assert captured(package) == expected
    moved = package.parent / "another" / "app"  # another copy of the package, which is found first
    moved.parent.mkdir()
    package.rename(moved)
    (moved.parent / "cache").symlink_to(package.parent / "cache")
    assert captured(moved) == [name for name in EVERY if name != "pickled"]  # whose code is torch's

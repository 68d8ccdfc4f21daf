"""Our stages under torch.compile's own capture, in a process of its own because that imports torch._dynamo."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

PROGRAM = """
import torch
from tracework.torch_backend import tracework_backend

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
x = torch.randn(3, 4)
compiled = torch.compile(net, backend=tracework_backend)
with torch.no_grad():
    torch.testing.assert_close(compiled(x), net(x))
gradients = []
weights = torch.randn(3, 8)  # the sum of squares of normalised rows is constant: its gradient would be nothing but rounding
for module in (compiled, net):
    net.zero_grad()
    (module(x) * weights).sum().backward()
    gradients.append([p.grad.clone() for p in net.parameters()])
torch.testing.assert_close(*gradients)

f = lambda x, w: torch.nn.functional.gelu(x @ w).sum(-1) + x.size(0)
dynamic = torch.compile(f, backend=tracework_backend, dynamic=True)
w = torch.randn(4, 6)
for length in (3, 5, 7, 3):
    x = torch.randn(length, 4)
    torch.testing.assert_close(dynamic(x, w), f(x, w))
print("DONE")
"""

BY_NAME = """
import torch

f = lambda x: torch.nn.functional.gelu(x) * 2
x = torch.randn(5, 3)
assert "tracework" in torch.compiler.list_backends()
torch.testing.assert_close(torch.compile(f, backend="tracework")(x), f(x))
print("DONE")
"""

OF_ANOTHER_DISTRIBUTION = """
import torch, tracework

assert "plain" in tracework.compiler.list_backends()
f = lambda x: x.sin() + 1
x = torch.randn(4)
torch.testing.assert_close(tracework.compile(f, backend="plain", fullgraph=True)(x), f(x))
import their_backend
assert their_backend.graphs == 1
print("DONE")
"""


def install_entry_points(site: Path, groups: dict[str, dict[str, str]]) -> None:
    """What an installer leaves of a distribution's entry points: a dist-info folder in `site`."""
    folder = site / "some_backend-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: some-backend\nVersion: 1.0\n")
    lines = [line for group, names in groups.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in names.items()))]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")


def run_with(site: Path, program: str) -> None:
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=path))
    assert done.stdout.strip().endswith("DONE"), done.stderr


def test_torch_compile_finds_us_by_the_name_that_we_declare(tmp_path):
    declared = tomllib.loads((Path(__file__).parents[1] / "packages/tracework/pyproject.toml").read_text())
    install_entry_points(tmp_path, declared["project"]["entry-points"])
    run_with(tmp_path, BY_NAME)


def test_a_backend_of_another_distribution_is_found_by_name(tmp_path):
    (tmp_path / "their_backend.py").write_text(
        "graphs = 0\ndef plain(gm, inputs):\n    global graphs\n    graphs += 1\n    return gm\n"
    )
    install_entry_points(tmp_path, {"tracework.backends": {"plain": "their_backend:plain"}})
    run_with(tmp_path, OF_ANOTHER_DISTRIBUTION)


def test_torch_compile_with_our_backend_static_training_and_dynamic():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout.strip().endswith("DONE"), done.stderr

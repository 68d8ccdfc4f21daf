"""Our stages under torch.compile's own capture, and what it made inside of ours, in processes of their own because that imports torch._dynamo."""

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
for given in ({}, {"mode": "default"}, {"mode": "max-autotune-no-cudagraphs"}, {"options": {"numerics": "strict"}}, {"dynamic": True}):
    torch.compiler.reset()
    torch.testing.assert_close(torch.compile(f, backend="tracework", fullgraph=True, **given)(x), f(x))
try:
    torch.compile(f, backend="tracework", options={"numeric": "strict"})(x)
except Exception as error:
    assert "Did you mean 'numerics'" in str(error)
print("DONE")
"""

INSIDE = """
import copy
import warnings

import torch
import tracework_capture as capture

warnings.simplefilter("error", RuntimeWarning)
inner = torch.nn.Linear(3, 3)
inner.register_forward_hook(lambda module, args, out: out * 2)
made = torch.compile(inner, backend="eager")
made.register_forward_hook(lambda module, args, out: out + 1)
model = torch.nn.Sequential(made, torch.nn.ReLU())
plus = alias = torch.compile(lambda x: x + 1, backend="eager")
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], 0.1, momentum=0.9)
x = torch.ones(2, 3)
made(x), plus(x)  # torch.compile changes classes and optimizers at its first call


def steps(x):
    for _ in range(2):
        optimizer.zero_grad()
        (plus(x) * alias(weight)).square().mean().backward()
        optimizer.step()
    return weight * 1


def graphs_of(function, **options):
    graphs = []
    call = capture.optimize(lambda gm, inputs: (graphs.append(gm), gm.forward)[1], **options)(function)
    for _ in range(2):
        start, state = weight.detach().clone(), copy.deepcopy(optimizer.state_dict())
        found = call(x)
        weight.data.copy_(start), optimizer.load_state_dict(state)
        assert torch.equal(found, function(x))
    return len(graphs)


assert graphs_of(model, fullgraph=True) == 1
capture.optimize(lambda gm, inputs: gm.forward)(model)(x).sum().backward()
found, inner.weight.grad = inner.weight.grad, None
model(x).sum().backward()
assert torch.equal(found, inner.weight.grad)
assert graphs_of(lambda x: plus(x) * alias(x + 1), fullgraph=True) == 1
assert graphs_of(steps)  # the first call has no momentum yet
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
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=path), timeout=300
    )
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
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip().endswith("DONE"), done.stderr


def test_what_torch_compile_made_is_part_of_the_graph():
    """Modules, functions under two names, and what it puts around the methods of optimizers."""
    done = subprocess.run([sys.executable, "-c", INSIDE], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip().endswith("DONE"), done.stderr

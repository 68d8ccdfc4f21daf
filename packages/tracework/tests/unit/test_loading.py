"""A file runs where there is no compiler, no source and nothing that captures."""

import os
import subprocess
import sys

import torch
import tracework
from torch.export import Dim

LOADS = """
import sys, torch, tracework
program = tracework.load(sys.argv[1])
for x, expected in torch.load(sys.argv[2]):
    found = program(x)
    assert torch.equal(found["y"], expected["y"]) and found["n"] == expected["n"] == len(x)
try:
    program(x[:, :1])
except ValueError as error:
    print(str(error).splitlines()[0])
print(*sorted(name for name in sys.modules if name.startswith("tracework_") and "." not in name))
"""


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Linear(8, 5)

    def forward(self, x):
        return {"y": self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3))).softmax(-1), "n": x.shape[0]}


def test_it_runs_without_compiler_source_and_capture(tmp_path):
    program = tracework.aot_compile(Net().eval(), (torch.randn(4, 3, 8, 8),), dynamic_shapes={"x": {0: Dim("n")}})
    tracework.save(program, tmp_path / "m.tw")
    calls = [torch.randn(n, 3, 8, 8) for n in (1, 2, 9)]
    torch.save([(x, program(x)) for x in calls], tmp_path / "calls.pt")
    bare = {"PATH": "", "HOME": str(tmp_path / "none"), "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", LOADS, str(tmp_path / "m.tw"), str(tmp_path / "calls.pt")]
    done = subprocess.run(command, env=bare, cwd="/", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    error, modules = done.stdout.splitlines()
    assert error == "no entry of the program fits the call:" and modules == "tracework_runtime"

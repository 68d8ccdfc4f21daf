"""Our stages under torch.compile's own capture, in a process of its own because that imports torch._dynamo."""

import subprocess
import sys

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


def test_torch_compile_with_our_backend_static_training_and_dynamic():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout.strip().endswith("DONE"), done.stderr

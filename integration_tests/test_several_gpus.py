"""Programs over two GPUs and the CPU: values, gradients and devices are eager's, whatever the current device is."""

import pytest
import torch
import torch.nn.functional as F
import tracework
from torch import nn

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
FIRST, SECOND = "cuda:0", "cuda:1"


def on_the_second(x, y):
    return F.gelu(y.softmax(-1) @ y) + torch.ones(64, device=SECOND)


def from_one_to_the_other(x, y):
    return (F.gelu(x @ x).to(SECOND) * 2).softmax(-1) + 1


def there_and_back(x, y):
    return (x.sum(-1).to(SECOND) + y.sum(-1)).to(FIRST) * x[0]


def indexed_from_the_cpu(x, y):
    rows = torch.tensor([0, 2, 5])
    return x[rows].exp(), y.index_put((rows,), torch.tensor(1.0)).sin()


PROGRAMS = [on_the_second, from_one_to_the_other, there_and_back, indexed_from_the_cpu]


def outcome(function, leaves):
    found = function(*leaves)
    found = found if isinstance(found, tuple) else (found,)
    torch.autograd.backward([f.square().sum() for f in found])
    return found, [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(program, current):
    torch.manual_seed(0)
    given = torch.randn(64, 64, device=FIRST), torch.randn(64, 64, device=SECOND)
    with torch.cuda.device(current):
        eager = outcome(program, [g.clone().requires_grad_() for g in given])
        compiled = tracework.compile(program, fullgraph=True)
        for _ in range(2):
            found = outcome(compiled, [g.clone().requires_grad_() for g in given])
            torch.testing.assert_close(found, eager, rtol=1e-4, atol=1e-4)  # assert_close compares devices, too
        assert torch.cuda.current_device() == current


def test_one_function_on_each_device():
    compiled = tracework.compile(lambda x: torch.relu(x) * 2 + x.mean())
    for device in (FIRST, SECOND, FIRST, "cpu"):
        x = torch.randn(33, device=device)
        torch.testing.assert_close(compiled(x), torch.relu(x) * 2 + x.mean())


class Halves(nn.Module):
    """A model whose layers are on two GPUs."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 64, device=FIRST), nn.Linear(64, 8, device=SECOND)

    def forward(self, x):
        return self.second(F.relu(self.first(x)).to(SECOND))


def test_training_a_model_on_two_gpus():
    losses = []
    for wrap in (lambda m: m, tracework.compile):
        torch.manual_seed(0)
        model = Halves()
        run, optimizer = wrap(model), torch.optim.Adam(model.parameters())
        x = torch.randn(16, 64, device=FIRST)
        for _ in range(3):
            loss = run(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    torch.testing.assert_close(losses[3:], losses[:3])

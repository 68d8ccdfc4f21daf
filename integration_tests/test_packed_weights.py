"""Weights that compiled modules keep in the library's own layout: what is written to a module between two calls, in whatever way, counts."""

import copy

import pytest
import torch
import tracework
import tracework_runtime
from torch import nn
from tracework_inductor.lowering import cpu_products


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(512, 512), nn.Linear(512, 512, bias=False)

    def forward(self, x):
        return self.second(torch.relu(self.first(x))) + x


def load(module):
    module.load_state_dict({k: v * 2 for k, v in module.state_dict().items()})


def assign(module):
    module.load_state_dict({k: v * 2 for k, v in module.state_dict().items()}, assign=True)


def step(module):
    module(torch.ones(2, 512)).sum().backward()
    torch.optim.SGD(module.parameters(), lr=0.1).step()


def swap(module):
    module.second.weight = nn.Parameter(module.second.weight.detach() * 2)


def swap_layer(module):
    module.second = nn.Linear(512, 512, bias=False)


def through_data(module):
    module.first.weight.data[3, 4] += 10


def through_numpy(module):
    module.first.weight.detach().numpy()[-1, -1] += 10


def through_a_flat_view(module):
    nn.utils.vector_to_parameters(2 * nn.utils.parameters_to_vector(module.parameters()), module.parameters())


def initialise(module):
    nn.init.ones_(module.second.weight)


WRITES = [load, assign, step, swap, swap_layer, through_data, through_numpy, through_a_flat_view, initialise]


@pytest.mark.parametrize("write", WRITES)
def test_what_is_written_counts(write, monkeypatch) -> None:
    monkeypatch.setattr(cpu_products, "has_own_products", lambda: False)
    torch.manual_seed(0)
    module, x = Layers().eval(), torch.randn(128, 512)
    compiled = tracework.compile(module)

    def agrees():
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), copy.deepcopy(module)(x), rtol=1e-4, atol=1e-4)

    agrees()
    assert tracework_runtime.packed_bytes()
    write(module)
    agrees()
    write(module)
    agrees()

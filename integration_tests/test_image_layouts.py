"""Channels-last inside graphs of convolutions: values, gradients and layouts that the user sees are eager's."""

import copy

import pytest
import torch
import tracework
from torch import nn
from tracework_aotautograd.trace import image_layouts


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.third = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8 * 8 * 8, 5)

    def forward(self, x):
        x = self.pool(torch.relu(self.norm(self.first(x))))
        y = torch.relu(self.second(x)) + x
        features = self.third(y)
        return self.head(features.flatten(1)), features


@pytest.fixture
def everywhere(monkeypatch):
    """On the CPU too, where only a GPU gains."""
    monkeypatch.setattr(image_layouts, "FASTER", {("cpu", torch.float32)})
    texts = []
    monkeypatch.setattr(
        image_layouts, "_restore_outputs", lambda *a, real=image_layouts._restore_outputs: (texts.append(len(a[1])), real(*a))
    )
    yield texts
    tracework.reset()


@pytest.mark.parametrize("training", [True, False])
def test_users_see_eagers_layouts_and_values(everywhere, training):
    torch.manual_seed(0)
    reference = Network().train(training)
    model = copy.deepcopy(reference)
    x = torch.randn(2, 3, 16, 16, requires_grad=training)
    z = x.detach().clone().requires_grad_(training)
    compiled = tracework.compile(model, fullgraph=True, options={"cache": False})
    with torch.set_grad_enabled(training):
        pairs = list(zip(compiled(x), reference(z), strict=True))
    if training:
        for got, wanted in pairs:
            assert got.requires_grad and wanted.requires_grad
        sum(got.square().mean() for got, _ in pairs).backward()
        sum(wanted.square().mean() for _, wanted in pairs).backward()
        pairs += [(x.grad, z.grad), *((p.grad, q.grad) for p, q in zip(model.parameters(), reference.parameters(), strict=True))]
        pairs += list(zip(model.buffers(), reference.buffers(), strict=True))
    assert everywhere and all(everywhere), "no layout was changed"
    for got, wanted in pairs:
        assert got.stride() == wanted.stride()
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)

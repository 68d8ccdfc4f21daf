"""Training with fake quantization (torch.ao.quantization): eager's values, gradients and statistics, compiled."""

import copy

import pytest
import torch
import tracework
from torch.ao import quantization
from torch.ao.quantization._learnable_fake_quantize import _LearnableFakeQuantize
from torch.ao.quantization.quantize_fx import prepare_qat_fx

pytestmark = pytest.mark.filterwarnings("ignore")  # torch deprecates the package
OBSERVER = quantization.MovingAverageMinMaxObserver


def network():
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 5)
    return torch.nn.Sequential(*layers).train()


def by_tensor():
    fake = quantization.FakeQuantize(observer=OBSERVER, quant_min=0, quant_max=255)
    return torch.nn.Sequential(fake, network(), quantization.FusedMovingAvgObsFakeQuantize())


def by_channel():
    return prepare_qat_fx(network(), quantization.get_default_qat_qconfig_mapping("x86"), (torch.ones(2, 3, 6, 6),))


def learnt():
    return torch.nn.Sequential(_LearnableFakeQuantize(OBSERVER, 0, 255).enable_param_learning(), network())


def learnt_by_channel():
    observer = quantization.MovingAveragePerChannelMinMaxObserver
    fake = _LearnableFakeQuantize(observer, 0, 255, channel_len=3).enable_param_learning()
    fake.ch_axis = 1
    return torch.nn.Sequential(fake, network())


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("make", [by_tensor, by_channel, learnt, learnt_by_channel])
def test_steps_of_training(make, backend, caplog):
    torch.manual_seed(0)
    plain = make()
    model = copy.deepcopy(plain)
    compiled = tracework.compile(model, backend=backend)
    for step in range(4):
        caplog.clear()
        x = torch.randn(2, 3, 6, 6)
        results = []
        for called, owner in ((plain, plain), (compiled, model)):
            loss = called(x).square().sum()
            gradients = torch.autograd.grad(loss, [p for p in owner.parameters() if p.requires_grad], allow_unused=True)
            results.append([loss, *gradients, *owner.state_dict().values()])
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)  # sums of a convolution in another order
        assert step == 0 or not [r.getMessage() for r in caplog.records if r.name == "tracework.fallbacks"]

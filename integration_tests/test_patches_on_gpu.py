"""Convolutions into patches on a GPU: as eager's in a vision transformer's first layer, forward and backward, and quicker."""

import pytest
import torch
import tracework

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("size", [16, 4])
def test_equals_eager(size):
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(3, 96, size, size).to("cuda", torch.bfloat16)
    x = torch.randn(4, 3, 64, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    found = []
    for run in (layer, tracework.compile(layer, fullgraph=True)):
        x.grad = layer.weight.grad = layer.bias.grad = None
        y = run(x)
        (y.float() * torch.arange(96, device="cuda")[:, None, None]).sum().backward()
        found.append([y, x.grad, layer.weight.grad, layer.bias.grad])
    for wanted, value in zip(*found, strict=True):
        assert value.stride() == wanted.stride()
        # Sums of products rounded to bf16 once (2**-9 relative each), taken in another order, as whole tensors.
        assert ((value.double() - wanted.double()).norm() / wanted.double().norm()).item() < 2**-7

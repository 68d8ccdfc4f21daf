"""A residual block whose both branches end in a batch norm: the sums of columns of both gradients are of one gradient, and may be taken in one
kernel only where nothing in between needs some of them and makes what others read. And group norms, whose gradients are made of sums of each
channel."""

import pytest
import torch
import tracework
from torch import nn


class Block(nn.Module):
    def __init__(self, size=32, results=64):
        super().__init__()
        self.long = nn.Sequential(nn.Conv2d(size, results, 3, padding=1, bias=False), nn.BatchNorm2d(results))
        self.short = nn.Sequential(nn.Conv2d(size, results, 1, bias=False), nn.BatchNorm2d(results))
        self.last = nn.Conv2d(results, 8, 1)

    def forward(self, x):
        return self.last(torch.relu(self.long(x) + self.short(x)))


def test_gradients_of_a_residual_block():
    torch.manual_seed(0)
    block, x = Block(), torch.randn(8, 32, 56, 56)

    def gradients(call):
        block.zero_grad()
        call(x).square().mean().backward()
        return [p.grad.clone() for p in block.parameters()]

    for found, expected in zip(gradients(tracework.compile(block, fullgraph=True)), gradients(block), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("is_affine", [False, True])
@pytest.mark.parametrize("sizes", [(3, 16, 9, 7), (2, 16), (2, 16, 1000)], ids=str)
def test_gradients_of_a_group_norm(sizes, is_affine, groups):
    """No further from float64's than eager's, where a mean is large beside its deviation."""
    torch.manual_seed(0)

    def gradients(call, dtype):
        torch.manual_seed(1)
        norm = nn.GroupNorm(groups, 16, affine=is_affine).to(dtype)
        x, g = (torch.randn(sizes).mul(2) + 10).to(dtype).requires_grad_(), torch.randn(sizes).to(dtype)
        (call(norm)(x) * g).sum().backward()
        return [x.grad.double(), *(p.grad.double() for p in norm.parameters())]

    exact, plain = gradients(lambda norm: norm, torch.float64), gradients(lambda norm: norm, torch.float32)
    for found, eager, expected in zip(gradients(tracework.compile, torch.float32), plain, exact, strict=True):
        allowed = 2 * (eager - expected).abs().max() + 1e-6 * expected.abs().max()
        assert (found - expected).abs().max() <= allowed

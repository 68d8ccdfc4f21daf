"""A residual block whose both branches end in a batch norm: the sums of columns of both gradients are of one gradient, and may be taken in one
kernel only where nothing in between needs some of them and makes what others read."""

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

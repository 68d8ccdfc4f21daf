"""Functions whose guards are stored by one process and checked by another: importable, so that both have them."""

import torch
import torch.nn.functional as F

LIMITS = {"low": 1, "high": 2.5}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.kind = "plain"

    def forward(self, x):
        y = F.relu(self.linear(x)) + LIMITS["high"]
        return y.view(x.shape[0] * x.shape[1], -1) if self.kind == "plain" else y


def call(module, x, scale=(1, 2.0)):
    return module(x) * scale[1] + torch.ones(4)

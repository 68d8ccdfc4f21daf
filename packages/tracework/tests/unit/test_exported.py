"""The module of a program that torch.export made, compiled as one graph."""

import copy

import torch
import tracework


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.count.add_(1)
        return {"y": self.linear(x) + self.count, "n": x.shape[0]}


def test_an_exported_program_is_one_graph():
    exported = torch.export.export(Counting(), (torch.ones(2, 3),), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    module = exported.module()
    compiled = tracework.compile(copy.deepcopy(module), backend="aot_eager", fullgraph=True)
    for n in (2, 5, 7):
        x = torch.rand(n, 3)
        found, expected = compiled(x), module(x)
        assert found.keys() == expected.keys() and found["n"] == expected["n"] == n
        torch.testing.assert_close(found["y"], expected["y"])

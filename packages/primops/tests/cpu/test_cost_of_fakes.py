"""A sample of benchmarks/micro/fakes.py: what an op on fakes costs, in additions of two numbers, since other programs slow both."""

import statistics

import pytest
import torch

from benchmarks.micro.fakes import BATCH, distinct, replay, spread, trace
from benchmarks.micro.gpt import GPT

MOST = {"static": 6, "symbolic": 12}


@pytest.mark.parametrize("sizes", MOST)
def test_an_op_costs_a_few_additions(sizes):
    model = GPT(layers=1, width=64, heads=2, vocabulary=64, length=16)
    calls, _ = trace(model, torch.randint(0, 64, (BATCH, 16)), sizes == "symbolic")
    once, counts = distinct(calls)
    addition = (torch.ops.aten.add.Tensor, (torch.ones(1), torch.ones(1)), {})
    ours, (unit,) = replay(once, 8), replay([addition], 40)
    assert statistics.median(spread(ours, counts)) < MOST[sizes] * unit

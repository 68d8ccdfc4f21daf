"""Masks that operators of DTensors leave for others are there while a graph's calls run on fakes, and nowhere else."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from tracework_capture import _torch
from tracework_capture.errors import BreakGraph
from tracework_capture.graph import distributed
from tracework_capture.graph.distributed import Masks, refuse_draws


def test_a_mask_waits_for_its_reader_outside_of_torch(monkeypatch):
    buffer = SimpleNamespace(data=None, refcount=0)
    monkeypatch.setattr(distributed, "_placements", lambda result: [SimpleNamespace(mask_buffer=buffer)])
    masks = Masks()
    with masks:
        buffer.data, buffer.refcount = "mask", 1
        masks.leave(None)
    assert (buffer.data, buffer.refcount) == (None, 0)
    with masks:
        assert (buffer.data, buffer.refcount) == ("mask", 1)
    with masks:
        buffer.data, buffer.refcount = None, 0  # read
    with masks:
        assert (buffer.data, buffer.refcount) == (None, 0)


@pytest.fixture
def tensor():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield DTensor.from_local(torch.ones(2), init_device_mesh("cpu", (1,)), [Replicate()])
    dist.destroy_process_group()


def test_calls_that_draw(tensor, monkeypatch):
    dropout, attention = torch.nn.functional.dropout, torch.nn.functional.scaled_dot_product_attention
    refuse_draws(dropout, (tensor,), {})  # on a CPU
    monkeypatch.setattr(_torch.distributed, "sets_generators", lambda tensor: True)
    for call in ((dropout, (tensor,), {}), ("normal_", (tensor,), {}), (attention, (tensor,) * 3, {"dropout_p": 0.5})):
        with pytest.raises(BreakGraph):
            refuse_draws(*call)
    refuse_draws(dropout, (tensor, 0.5, False), {})
    refuse_draws(dropout, (torch.ones(2),), {})
    refuse_draws(attention, (tensor,) * 3, {"is_causal": True})
    refuse_draws(torch.add, (tensor, tensor), {})

"""What tells GPUs apart in the key of the cache."""

import pytest
import torch
from tracework_runtime.device import cuda


class Facts:
    multi_processor_count, total_memory = 132, 80 << 30

    def __init__(self, name):
        self.name = name


@pytest.fixture
def one_of(monkeypatch):
    def choose(name):
        for known in (cuda.capability, cuda.properties):
            known.cache_clear()
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Facts(name))
        return cuda.identity(0)

    yield choose
    for known in (cuda.capability, cuda.properties):
        known.cache_clear()


def test_gpus_of_one_chip_with_other_memory_have_other_names(one_of):
    assert one_of("NVIDIA H100 80GB HBM3") != one_of("NVIDIA H200")

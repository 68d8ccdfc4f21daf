"""Process groups and collectives, where there are none."""

import torch
from tracework_capture._torch import distributed


def test_tensors_of_one_process_are_as_they_are():
    x = torch.ones(2)
    assert distributed.waited_for(x) is x
    assert not distributed.is_awaited(torch.Tensor) and not distributed.is_distributed_tensor(torch.Tensor)


def test_there_is_no_group():
    assert not distributed.distributed_is_initialized() and distributed.default_group() is None


def test_what_this_torch_lacks_is_none():
    assert distributed.functional_collective("all_reduce") is torch.ops._c10d_functional.all_reduce
    assert distributed.functional_collective("of_no_torch") is None and distributed.function_of_distributed("of_no_torch") is None

"""Which operators are collectives, and which wait for one."""

import torch
from tracework_primops import is_collective, is_wait, prims

FUNCTIONAL = torch.ops._c10d_functional


def test_what_talks_to_other_processes():
    assert is_collective(FUNCTIONAL.all_reduce.default) and not is_wait(FUNCTIONAL.all_reduce.default)
    assert is_collective(FUNCTIONAL.wait_tensor.default) and is_wait(FUNCTIONAL.wait_tensor.default)
    assert not any(map(is_collective, (torch.ops.aten.mm.default, prims.add, torch.add, "add")))

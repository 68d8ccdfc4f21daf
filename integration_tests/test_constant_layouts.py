"""What is computed from tensors of one value lies in memory as eager's does."""

import pytest
import torch
import tracework

FUNCTIONS = {
    "another dtype": lambda a: torch.ones_like(a, dtype=torch.float32).double(),
    "a product": lambda a: torch.ones_like(a) * 2,
    "several": lambda a: (torch.zeros_like(a, dtype=torch.int32).float(), torch.full_like(a, 2.0).double(), -torch.zeros_like(a)),
    "a view": lambda a: torch.ones_like(a).t() * 3,
    "expanded": lambda a: torch.ones_like(a)[:, :1].expand(4, 3) + 1,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_strides(name):
    function = FUNCTIONS[name]
    compiled = tracework.compile(function)
    for a in (torch.rand(4, 4).t(), torch.rand(4, 4), torch.rand(6, 4).t()):
        for found, expected in zip(torch.utils._pytree.tree_leaves(compiled(a)), torch.utils._pytree.tree_leaves(function(a))):
            assert torch.equal(found, expected)
            assert (found.dtype, found.stride()) == (expected.dtype, expected.stride())


WRITES = {
    "a number": lambda a: torch.empty_like(a).fill_(3.0),
    "a tensor of one number": lambda a: torch.empty_like(a).fill_(torch.tensor(3.0)),
    "what is computed": lambda a: a.clone().fill_(a.sum()),
    "what is repeated": lambda a: a.clone().copy_(a.sum()),
    "another memory": lambda a: torch.empty_like(a).copy_(torch.ones(a.shape)),
}


@pytest.mark.parametrize("name", WRITES)
def test_strides_of_dims_of_size_one_after_a_write(name):
    function = WRITES[name]
    for a in (
        torch.rand(2)[::2],
        torch.rand(1),
        torch.rand(4, 1).t(),
        torch.rand(3, 1, 3),
        torch.rand(3, 3)[:, :1].t(),
        torch.rand(3, 1),
    ):
        tracework.reset()  # one entry serves all strides of such a dim
        found, expected = tracework.compile(function)(a), function(a)
        assert torch.equal(found, expected) and found.stride() == expected.stride()

"""What functions of flex_attention may do: calls that give for whole dims of indices what they give for single ones."""

import itertools

import pytest
import torch
from tracework_capture.values.torch.regions.flex_attention import promotes_as_numbers

DTYPES = [torch.bool, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]


@pytest.mark.parametrize("dims", [*itertools.product([(), (2,)], [(), (2,)])], ids=str)
def test_dtypes_are_those_of_single_numbers(dims):
    for dtypes in itertools.product(DTYPES, DTYPES):
        x, y = (torch.ones(sizes, dtype=dtype) for sizes, dtype in zip(dims, dtypes))
        as_numbers = torch.result_type(x, y) == torch.promote_types(*dtypes)
        assert as_numbers or not promotes_as_numbers([x, y])
        assert promotes_as_numbers([x, y]) == as_numbers or torch.complex64 in dtypes

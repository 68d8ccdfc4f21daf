"""Fourier transforms on fakes lie as eager's do, also where dims have one stride."""

import itertools

import pytest
import torch
from tracework_primops import FakeMode

SIZES = [(1, 3, 2), (1, 1, 1, 2), (5, 1, 1, 5), (2, 1, 3)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_transforms_lie_as_in_eager(sizes):
    mode, dims = FakeMode(), range(len(sizes))
    for order in itertools.permutations(dims):
        strides, step = [0] * len(sizes), 1
        for dim in order:
            strides[dim], step = step, step * sizes[dim]
        x = torch.empty_strided(sizes, strides, dtype=torch.complex64)
        for over in (over for count in (1, 2) for over in itertools.combinations(dims, count)):
            with mode:
                found = torch.fft.fftn(mode.from_real(x), dim=over)
            assert found.stride() == torch.fft.fftn(x, dim=over).stride(), (strides, over)

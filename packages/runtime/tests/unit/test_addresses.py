"""Where tensors begin, without Python for each."""

import struct

import pytest
import torch
import tracework_runtime as runtime

X = torch.arange(12.0)
TENSORS = {
    "plain": X,
    "a part": X[3:],
    "turned": X.reshape(3, 4).t(),
    "a parameter": torch.nn.Parameter(X.clone()),
    "a subclass": X.clone().as_subclass(type("Sub", (torch.Tensor,), {})),
    "of nothing": torch.empty(0),
    "complex": torch.zeros(3, dtype=torch.complex64).imag,
    "meta": torch.empty(4, device="meta"),
}


def test_addresses_are_those_of_data_ptr():
    found = runtime.addresses(list(TENSORS.values()))
    assert struct.unpack(f"{len(TENSORS)}Q", found) == tuple(t.data_ptr() for t in TENSORS.values())
    assert runtime.addresses(tuple(TENSORS.values())) == found and runtime.addresses([]) == b""


def test_what_moves_has_others():
    x = torch.zeros(4)
    before = runtime.addresses([X, x])
    x.data = torch.zeros(4)
    assert runtime.addresses([X, x]) != before


@pytest.mark.parametrize(("given", "error"), [([X, 3], TypeError), ([X.to_sparse()], RuntimeError), (3, TypeError)], ids=str)
def test_what_has_none(given, error):
    with pytest.raises(error):
        runtime.addresses(given)

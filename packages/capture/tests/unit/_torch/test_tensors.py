"""Nested tensors, and what lies in whose memory."""

import torch
from tracework_capture._torch import tensors


def test_nested_tensors_of_their_parts():
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(4, 3)], layout=torch.jagged)
    names, context = nested.__tensor_flatten__()
    again = tensors.jagged_of({name: getattr(nested, name) for name in names}, context["ragged_idx"])
    assert isinstance(again, tensors.NESTED) and torch.equal(tensors.jagged_values(again), nested.values())
    padded = tensors.jagged_padded(nested)
    assert padded.shape == (2, 4, 3)
    assert torch.equal(tensors.jagged_of_padded(padded, nested).values(), nested.values())
    assert tensors.is_nested_size(nested.shape[1]) and not tensors.is_nested_size(2)


def test_elements_in_one_place():
    assert tensors.has_internal_overlap(torch.ones(1).expand(3)) and not tensors.has_internal_overlap(torch.ones(3))


def test_versions_are_set():
    x = torch.ones(3)
    x.add_(1)
    tensors.set_version(x, 0)
    assert x._version == 0

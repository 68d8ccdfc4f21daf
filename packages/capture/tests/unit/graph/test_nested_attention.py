"""Which attention of nested tensors is computed padded; that it is eager's is in integration_tests/test_nested_tensors.py."""

import pytest
import torch
from tracework_capture import Unsupported, optimize
from tracework_capture.graph.nested_attention import is_attended_here

attention = torch.nn.functional.scaled_dot_product_attention


def heads(*lengths):
    rows = torch.nested.nested_tensor([torch.ones(n, 8) for n in lengths], layout=torch.jagged)
    return rows.unflatten(-1, (2, 4)).transpose(1, 2)


def test_not_of_tensors_with_data():
    q = heads(2, 3)
    assert not is_attended_here((q, q, q), {})


def test_one_graph_and_what_is_not():
    q = heads(2, 3)
    captured = optimize(lambda gm, inputs: gm.forward, fullgraph=True)
    found = captured(lambda q: attention(q, q, q))(q)
    assert found.shape == q.shape and torch.equal(found.transpose(1, 2).values(), torch.ones(5, 2, 4))
    with pytest.raises(Unsupported):
        captured(lambda q: attention(q, q, q, dropout_p=0.5))(q)

"""Packed sequences: what makes and pads them reads the lengths, and is plain Python's; what comes before and after it is captured."""

import torch
from tracework_capture import explain, optimize


class OverPacked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.layer = torch.nn.Linear(4, 4), torch.nn.LSTM(4, 5, batch_first=True)

    def forward(self, x, lengths):
        x = self.before(x).relu()
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, (hidden, _) = self.layer(packed)
        out, lengths = torch.nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        return out.sin() + hidden.sum(), lengths


MODULE, X, LENGTHS = OverPacked(), torch.randn(3, 6, 4), torch.tensor([6, 2, 4])


def test_a_layer_over_them(fresh):
    compiled = optimize(lambda gm, inputs: gm.forward)(MODULE)
    for _ in range(2):
        for found, expected in zip(compiled(X, LENGTHS), MODULE(X, LENGTHS), strict=True):
            torch.testing.assert_close(found, expected)


def test_no_graph_around_the_operators_themselves(fresh):
    found = explain(MODULE)(X, LENGTHS)
    assert {graph.origin.function for graph in found.graphs} == {"OverPacked.forward", "LSTM.forward"}
    reasons = [stop.detail for stop in found.breaks if stop.reason_id == "packed_sequence"]
    assert reasons == [f"torch.nn.utils.rnn.{name}" for name in ("pack_padded_sequence", "pad_packed_sequence")]


def test_padding_of_a_list_is_in_the_graph(fresh):
    def program(x):
        return torch.nn.utils.rnn.pad_sequence([x[0], x[1, :2]], batch_first=True) * 2

    compiled = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(program)
    torch.testing.assert_close(compiled(X), program(X))

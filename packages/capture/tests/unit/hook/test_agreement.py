"""The other processes are a list of what they find."""

import pytest
import torch
from tracework_capture import optimize, set_agreement


@pytest.fixture
def others():
    """What all processes find at each question, and the questions."""
    answers, asked = [], []

    def ask(holds, what):
        asked.append((holds, what.partition(" ")[0].rpartition(".")[2]))
        answer = answers.pop(0) if answers else True
        if isinstance(answer, Exception):
            raise answer
        return holds and answer

    assert set_agreement(ask) is None
    yield answers, asked
    assert set_agreement(None) is ask


def test_all_compile_where_guards_fail_in_one(others):
    answers, asked = others
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm

    def twice(x):
        return x + x

    call = optimize(backend)(twice)
    call(torch.ones(2))
    assert not asked  # nothing is compiled that could serve
    call(torch.ones(2))
    assert asked == [(True, "twice")] and len(graphs) == 1
    answers.append(False)
    assert call(torch.ones(2)).tolist() == [2, 2] and len(graphs) == 2
    call(torch.ones(3))
    assert asked[1:] == [(True, "twice"), (False, "twice")] and len(graphs) == 3
    answers.append(RuntimeError("rank 1 is gone"))
    with pytest.raises(RuntimeError, match="rank 1 is gone"):
        call(torch.ones(2))
    assert call(torch.ones(2)).tolist() == [2, 2] and len(graphs) == 3


def test_entries_without_a_graph_are_not_asked_about(others):
    call = optimize(lambda gm, inputs: gm)(lambda x: x)
    for _ in range(3):
        call(torch.ones(2))
    assert not others[1]

"""Calls of operators are compared one by one."""

import pytest
import torch
from tracework.faults.calls import Call, Calls, Fact, first_difference

A, B, C = (Call(name, (Fact((), torch.float32, 1.0, 1.0),), f"{name}.py:1") for name in "abc")
OTHER = Call("b", (Fact((), torch.float32, 2.0, 2.0),), "b.py:2")


@pytest.mark.parametrize(
    ("captured", "eager", "said"),
    [
        ([A, B], [A, B], ""),
        ([A, B], [A, C, B], ""),  # eager alone does what lies between graphs
        ([A, OTHER], [A, B], "b from b.py:2 where eager has b from b.py:1"),
        ([A], [A, C], "nothing after which eager has c from c.py:1"),
        ([A, B], [A], "b from b.py:1"),
    ],
)
def test_first_difference(captured, eager, said):
    assert first_difference(captured, eager) == said


def test_facts_of_results():
    calls = Calls()
    with calls.seen(lambda: "here"):
        torch.ones(2, dtype=torch.complex64).sum()
        torch.full((2,), float("nan")).topk(1)
    assert [each.operator for each in calls.known][-1] == "aten.topk.default" and calls.known[0].place == "here"
    assert all(each.same(each) for each in calls.known) and len(calls.known[-1].facts) == 2

"""What a wrapper is told of the graphs: what is kept how, which result a gradient comes from, and what eager alone keeps."""

import pytest
import torch
from tracework_aotautograd import AotOptions, trace_joint
from tracework_aotautograd.api import trained


def product(x, y):
    return (x * y,)


def exponential(x):
    return (x.exp(),)


def apart(x, y):
    return x.sin(), y.cos()


def together(x):
    y = x * 2
    return y.sin(), y.sum()


def random(x):
    return (torch.nn.functional.dropout(x, 0.5), torch.ones(2))


CASES = {
    # function: how each saved tensor is kept, which is the result, what each gradient comes from, (constant results, draws)
    product: ([(".detach()", ".detach()")], [None], [(1, 1)], ((), 0)),
    exponential: ([("",)], [0], [(1,)], ((), 0)),
    together: ([("",)], [None], [(3,)], ((), 0)),
    random: ([("",)], [None], [(1,)], ((1,), 1)),
}


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_facts(function, graph):
    inputs = [torch.rand(3, requires_grad=True) for _ in range(function.__code__.co_argcount)]
    facts = trained(trace_joint(graph(function, len(inputs)), inputs), AotOptions(), print).facts
    ways, results, reaching, (constant, draws) = CASES[function]
    assert [backward.ways for backward in facts.backwards] == ways
    assert [backward.kept_result for backward in facts.backwards] == results
    assert [backward.reaching for backward in facts.backwards] == reaching
    assert facts.constant_results == constant and len(facts.devices) == draws


def test_results_with_histories_of_their_own(graph):
    inputs = [torch.rand(3, requires_grad=True) for _ in range(2)]
    facts = trained(trace_joint(graph(apart, 2), inputs), AotOptions(), print).facts
    assert [backward.shared for backward in facts.backwards] in ([(1, 2)], [(1,), (1,)])

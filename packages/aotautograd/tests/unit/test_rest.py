"""What a stored callable is asked for beside its compiled graphs is made of its captured graph, and is what the first process had."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch
from stored_callables import Layers, Process, Trained, Writes
from tracework_aotautograd import UsageError


def trained():
    torch.manual_seed(0)
    return torch.rand(3, 3), torch.rand(3, 3, requires_grad=True), torch.zeros(())


def gradients(call, x, weight, seen, create_graph=False):
    y, loss, _ = call(x, weight, seen)
    (first,) = torch.autograd.grad(loss + y.sum(), weight, create_graph=create_graph)
    return [y, first, seen.clone(), *(torch.autograd.grad(first.square().sum(), weight) if create_graph else ())]


@pytest.mark.parametrize("kept", [True, False], ids=["its backward is kept", "its backward is not"])
@pytest.mark.parametrize("create_graph", [False, True], ids=["once", "twice"])
def test_a_training_step(kept, create_graph):
    process = Process(Trained(), *trained())
    if kept:
        gradients(process.call, *trained())
        assert process.backwards
    count = len(process.compiled)
    found, expected = (gradients(call, *trained(), create_graph) for call in (process.again(), Trained()))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    anew = not kept or create_graph
    assert process.captures == anew and (len(process.compiled) > count) is anew
    gradients(process.again(), *trained(), create_graph)
    assert (
        process.captures == anew + create_graph
    )  # what was compiled for want of a backward is kept, gradients of gradients are not


@pytest.mark.parametrize("kept", [True, False], ids=["its backward is kept", "its backward is not"])
def test_a_backward_in_stages(kept):
    args = [torch.nn.Parameter(torch.rand(3, 3)) for _ in range(3)]
    process = Process(Layers(), *args, buckets=(1, 1))

    def results(call):
        first = torch.autograd.grad(call(*args)[0].sin().sum(), args)
        return [*first, *torch.autograd.grad(call(*args)[0], args, torch.eye(9).view(9, 3, 3), is_grads_batched=True)]

    if kept:
        results(process.call)
        assert len(process.backwards) == 3
    again = process.again()
    (y,) = again(*args)
    first = torch.autograd.grad(y.sin().sum(), args)
    assert process.captures == (not kept) and y.grad_fn is not None
    for one, other in zip([*first, *results(again)], [*first, *results(Layers())], strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_that_are_not_what_they_were():
    process = Process(Trained(), *trained())
    with pytest.raises(UsageError, match="computed otherwise"):
        gradients(process.again(digest=""), *trained())


def test_several_gradients_at_once_and_other_data():
    process = Process(Trained(), *trained())
    gradients(process.call, *trained())

    def results(call):
        x, weight, seen = trained()
        y, loss, _ = call(x, weight, seen)
        batched = torch.autograd.grad(y, weight, torch.eye(9).view(9, 3, 3), is_grads_batched=True, retain_graph=True)
        x.data = torch.ones(3, 3)
        return [*batched, *torch.autograd.grad(loss, weight)]

    for one, other in zip(results(process.again()), results(Trained()), strict=True):
        torch.testing.assert_close(one, other)
    assert len(process.reports) == 2


def test_what_inputs_share():
    """What was compiled for inputs that overlap serves those, in the next process, too, and is compiled for others that do otherwise."""
    made = torch.arange(4.0)
    process = Process(Writes(), made[:3], made[1:])
    again = process.again()
    for begins in ([0, 1], [0, 3], [0, 3], [2, 0], [2, 0], [0, 1]):
        mine, theirs = torch.arange(6.0), torch.arange(6.0)
        found, expected = (call(*[row[b : b + 3] for b in begins]) for call, row in ((again, mine), (Writes(), theirs)))
        assert torch.equal(mine, theirs) and all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert len(process.compiled) == 3 and process.captures == 1 and not process.reports


def test_what_runs_uncompiled():
    process = Process(Trained(), *trained())
    hooks = [0]

    def pack(tensor):
        hooks[0] += 1
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        gradients(process.again(), *trained())
    assert hooks[0] and process.reports

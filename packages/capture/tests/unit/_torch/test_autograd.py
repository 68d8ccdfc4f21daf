"""What autograd keeps and runs."""

import pytest
import torch
from torch.autograd import forward_ad
from tracework_capture._torch import autograd


def test_nodes_and_what_they_save():
    x = torch.ones(3, requires_grad=True)
    y = x.exp()
    nodes = autograd.nodes_behind((y * 2).grad_fn)
    assert [node.name() for node in nodes] == ["MulBackward0", "ExpBackward0", "torch::autograd::AccumulateGrad"]
    (saved,) = autograd.saved_by(y.grad_fn)
    assert torch.equal(saved, y)


def test_what_was_written_to_since_is_said():
    y = torch.ones(3, requires_grad=True).exp()
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="inplace operation"):
        autograd.saved_by(y.grad_fn)


def test_a_call_that_raises_leaves_what_it_entered():
    def levels():
        forward_ad.enter_dual_level()
        raise ValueError

    def hooks():
        autograd.enter_saved_hooks(torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t))
        raise ValueError

    for function in (autograd.leaving_dual_levels(levels), autograd.leaving_saved_hooks(hooks)):
        with pytest.raises(ValueError):
            function()
    assert not autograd.forward_ad_is_on() and not autograd.any_saved_tensor_hooks()


def test_hooks_are_set_aside():
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        with autograd.saved_tensor_hooks_aside():
            torch.ones(3, requires_grad=True).exp()
        assert not seen
        torch.ones(3, requires_grad=True).exp()
    assert len(seen) == 1


def test_the_level_of_transforms():
    assert autograd.transform_level() is None
    torch.vmap(lambda x: x if autograd.transform_level() == 1 else None)(torch.ones(2))

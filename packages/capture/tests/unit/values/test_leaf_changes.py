"""tensor.data = other, Module.to and requires_grad_(False) in one graph; what a later backward would read differently breaks it. Values are compared in
integration_tests/test_aliasing.py, too."""

import copy

import pytest
import torch
import tracework_capture
from torch import nn
from tracework_capture import explain


def compared(function, *args):
    """The Explanation of a call whose result, arguments and gradients are those of the plain one."""
    plain = copy.deepcopy(args)
    expected = function(*plain)
    found = explain(function)(*args)
    torch.testing.assert_close(found.result, expected)
    for mine, theirs in zip(args, plain, strict=True):
        if isinstance(mine, nn.Module):
            torch.testing.assert_close(dict(mine.named_parameters()), dict(theirs.named_parameters()))
            mine, theirs = ([p.grad for p in m.parameters()] for m in (mine, theirs))
        torch.testing.assert_close(mine, theirs)
    return found


def weights_for_a_while(module, other, x):
    """As code that evaluates averaged weights does."""
    kept = {name: p.data for name, p in module.named_parameters()}
    for p, q in zip(module.parameters(), other.parameters()):
        p.data = q.data
    with torch.no_grad():
        y = module(x)
    for name, p in module.named_parameters():
        p.data = kept[name]
    return y, module(x).sum()


def step(module, other, x):
    module(x).square().sum().backward()
    for p in module.parameters():
        p.data = p.data - 0.1 * p.grad
    return module(x).detach()


@pytest.mark.parametrize("function", [step, weights_for_a_while])
def test_weights_are_exchanged_in_one_graph(function):
    found = compared(function, nn.Linear(3, 3), nn.Linear(3, 3), torch.randn(2, 3))
    assert len(found.graphs) == 1 and not found.breaks


def natural_step(module, other, x):
    """As code that takes the parameters for one vector does."""
    loss = module(x).square().sum()
    gradient = nn.utils.parameters_to_vector(torch.autograd.grad(loss, list(module.parameters())))
    point = nn.utils.parameters_to_vector(module.parameters())
    nn.utils.vector_to_parameters(point - 0.1 * gradient, module.parameters())
    return module(x).square().sum() + point.square().sum()


def parts_used_before(module, other, x):
    parts = module.weight.view(-1).exp().sum() + (x @ module.weight.t()).sin().sum()
    module.weight.data = other.weight.data * 2
    return parts + module(x).square().sum()


@pytest.mark.parametrize("function", [natural_step, parts_used_before])
def test_a_backward_that_reads_views_of_the_old_data_is_in_one_graph(function):
    module, other, x = nn.Linear(3, 3), nn.Linear(3, 3), torch.randn(2, 3)
    plain = copy.deepcopy(module)
    found = explain(function)(module, other, x)
    assert len(found.graphs) == 1 and not found.breaks
    function(plain, other, x).backward()
    found.result.backward()
    torch.testing.assert_close(dict(module.named_parameters()), dict(plain.named_parameters()))
    torch.testing.assert_close([p.grad for p in module.parameters()], [p.grad for p in plain.parameters()])


def test_what_a_backward_may_read_breaks_the_graph():
    def used_before(p, x):
        y = (p * p).sum()
        p.data = x
        return y

    p, x = nn.Parameter(torch.randn(3)), torch.randn(3)
    found = explain(used_before)(p, x)
    assert "a later backward reads" in found.breaks[0].detail
    found.result.backward()
    torch.testing.assert_close(p.grad, x * 2)


def test_history_goes_on_to_the_tensor_itself():
    def assigned(p, x):
        p.data = x * 2
        return (p * p).sum()

    p, x = nn.Parameter(torch.randn(3)), torch.randn(3)
    found = explain(assigned)(p, x)
    assert not found.breaks
    found.result.backward()
    torch.testing.assert_close(p.grad, x * 4)


@pytest.mark.parametrize(
    "convert",
    [
        lambda m, x: m.to(torch.float64)(x.double()),
        lambda m, x: m.to(x.double())(x.double()),
        lambda m, x: m.to(device="cpu", dtype=torch.float64, non_blocking=True)(x.double()),
        lambda m, x: m.double()(x.double()),
        lambda m, x: m.cpu().float()(x),
    ],
)
def test_modules_are_converted(convert):
    def converted(module, x):
        with torch.no_grad():
            return convert(module, x)

    found = compared(converted, nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), torch.randn(4, 3))
    assert len(found.graphs) == 1 and not found.breaks


def test_a_gradient_of_another_dtype_is_left_to_the_next_graph():
    found = compared(lambda m, x: (m.double()(x.double()).sum().backward(), m.weight.grad)[1], nn.Linear(3, 3), torch.randn(4, 3))
    assert "another kind of tensor" in found.breaks[0].detail


@pytest.mark.parametrize("target", ["no device", torch.int32])
def test_what_module_to_refuses(target):
    with pytest.raises((RuntimeError, TypeError)) as plain:
        nn.Linear(3, 3).to(target)
    with pytest.raises(type(plain.value)) as found:
        explain(lambda m, x: m.to(target)(x))(nn.Linear(3, 3), torch.randn(2, 3))
    assert str(found.value) == str(plain.value)


def frozen_for_a_while(module, x):
    for p in module.parameters():
        p.requires_grad_(False)
    fixed = module(x.clone().requires_grad_())
    for p in module.parameters():
        p.requires_grad = True
    (fixed.sum() + module(x).square().sum()).backward()
    return fixed.detach(), module.weight.requires_grad


def frozen(module, x):
    before = module(x).sum()
    module.requires_grad_(False)
    module.weight.mul_(2)
    return before, module(x).requires_grad, module.weight.is_leaf


@pytest.mark.parametrize("function", [frozen_for_a_while, frozen])
def test_leaves_stop_to_ask_for_gradients(function):
    module, x = nn.Linear(3, 3), torch.randn(2, 3)
    plain, module = copy.deepcopy(module), copy.deepcopy(module)
    expected = function(plain, x)
    found = explain(function)(module, x)
    assert len(found.graphs) == 1 and not found.breaks
    torch.testing.assert_close(found.result, expected)
    for mine, theirs in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close((mine.detach(), mine.grad), (theirs.detach(), theirs.grad))
        assert (mine.requires_grad, mine._version) == (theirs.requires_grad, theirs._version)


def test_a_leaf_that_begins_to_ask_breaks_the_graph():
    x = torch.randn(3)
    found = explain(lambda x: (x.cos(), (x.requires_grad_() * 2).sum())[1])(x)
    assert "requires_grad_ of an existing tensor" in found.breaks[0].detail
    found.result.backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 2.0))


def test_data_of_a_frame_that_begins_in_inference_mode(caplog):
    def convert(net, x):
        with torch.inference_mode():
            net.double()
        return x + 1

    net = torch.nn.Linear(2, 2)
    tracework_capture.optimize(lambda gm, inputs: gm.forward)(convert)(net, torch.ones(2))
    assert not caplog.records and net.weight.dtype is torch.float64
    tracework_capture.reset()

"""Hooks of modules and tensors around captured code: their order, what they get and give, and which of them break the graph."""

import pytest
import torch
from harness import assert_same
from tracework_capture.hook.context import optimize


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.a, self.b = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=generator))

    def forward(self, x, scale=1.0):
        return self.b(torch.relu(self.a(x))) * scale


LOG = []


def prepended(net):
    net.register_forward_hook(lambda module, args, out: out + 1)
    net.register_forward_hook(lambda module, args, out: out * 3, prepend=True)
    net.a.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    net.a.register_forward_pre_hook(lambda module, args: args[0] * 2, prepend=True)


def with_kwargs(net):
    net.register_forward_pre_hook(lambda module, args, kwargs: (args, {"scale": 2.0 + len(kwargs)}), with_kwargs=True)
    net.register_forward_hook(lambda module, args, kwargs, out: out + kwargs["scale"], with_kwargs=True)


def always_called(net):
    net.register_forward_hook(lambda module, args, out: LOG.append("always") or out + 1, always_call=True)


def backward_scales(net):
    net.a.register_full_backward_hook(lambda module, given, wanted: tuple(None if g is None else g * 2 for g in given))


def backward_logs(net):
    for module in net.modules():
        module.register_full_backward_hook(lambda module, given, wanted: LOG.append((type(module).__name__, len(given))))


def backward_before(net):
    net.b.register_full_backward_pre_hook(lambda module, wanted: (wanted[0] * 2,))


def of_parameters(net):
    net.a.weight.register_hook(lambda gradient: gradient * 2)
    net.b.weight.register_post_accumulate_grad_hook(lambda p: LOG.append(tuple(p.grad.shape)))


HOOKS = [prepended, with_kwargs, always_called, backward_scales, backward_logs, backward_before, of_parameters]


def step(function, net, gradients):
    LOG.clear()
    net.zero_grad()
    x = torch.arange(6.0).reshape(2, 3).requires_grad_(gradients)
    if not gradients:
        with torch.no_grad():
            return function(x), list(LOG)
    found = function(x)
    found.sum().backward()
    return found.detach(), x.grad, [p.grad for p in net.parameters()], list(LOG)


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.__name__)
def test_hooks(hook, gradients):
    plain, net, graphs = Net(), Net(), []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    def whole(net):
        return lambda x: net(x).sin()

    fast = optimize(backend, fullgraph=not gradients)(whole(net))
    assert_same(step(fast, net, gradients), step(whole(plain), plain, gradients))
    hook(plain), hook(net)
    for _ in range(3):
        assert_same(step(fast, net, gradients), step(whole(plain), plain, gradients))
    if "backward" not in hook.__name__ or not gradients:
        assert len(graphs) <= 2


def test_a_pre_hook_that_gives_no_arguments_raises_as_plainly():
    net = Net()
    net.register_forward_pre_hook(lambda module, args, kwargs: (args, kwargs, 1), with_kwargs=True)
    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        optimize(lambda gm, inputs: gm.forward)(lambda x: net(x))(torch.ones(2, 3))

"""Hooks of modules and tensors around captured code: their order, what they get and give, and which of them break the graph. Backward hooks in
compiled graphs: integration_tests/test_module_hooks.py."""

import functools
import warnings

import pytest
import torch
from harness import assert_same
from torch.nn.modules import module as torch_module
from tracework_capture import Unsupported
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


def backward_of_all(net):
    """Hooks of all modules: `step` removes them."""
    torch_module.register_module_full_backward_hook(lambda module, given, wanted: LOG.append((type(module).__name__, given)))
    torch_module.register_module_full_backward_pre_hook(lambda module, wanted: LOG.append((type(module).__name__, wanted)))


def forward_of_all(net):
    torch_module.register_module_forward_hook(lambda module, args, kwargs, out: out * (1 + len(kwargs)), with_kwargs=True)


HOOKS = [prepended, with_kwargs, always_called, backward_scales, backward_logs, backward_before, of_parameters]
HOOKS += [backward_of_all, forward_of_all]


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

    fast = optimize(backend, fullgraph=True)(whole(net))
    assert_same(step(fast, net, gradients), step(whole(plain), plain, gradients))
    hook(plain)
    if not hook.__name__.endswith("of_all"):
        hook(net)
    try:
        for _ in range(3):
            assert_same(step(fast, net, gradients), step(whole(plain), plain, gradients))
    finally:
        for name in ("forward_hooks", "forward_hooks_with_kwargs", "backward_hooks", "backward_pre_hooks"):
            getattr(torch_module, f"_global_{name}").clear()
        torch_module._global_is_full_backward_hook = None
    assert len(graphs) == (1 if hook is of_parameters else 2)
    assert_same(step(fast, net, gradients), step(whole(plain), plain, gradients))


def test_backward_hooks_may_come_and_go_without_new_graphs():
    net, graphs = Net(), []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    fast = optimize(backend, fullgraph=True)(lambda x: net(x))
    for count in (1, 2, 3):
        LOG.clear()
        handle = net.a.register_full_backward_hook(lambda module, given, wanted, count=count: LOG.append(count))
        out = fast(torch.ones(2, 3))
        handle.remove()
        out.sum().backward()
        assert LOG == [count] and len(graphs) == 1


def calls(kind, keep):
    """The hook that a step registers, which keeps what it is given."""
    if kind == "closure":
        return lambda module, args, out: keep.append(out)
    if kind == "method":
        return Keeper(keep).hook
    return lambda module, args, kwargs, out: keep.append(len(kwargs))


class Keeper:
    def __init__(self, keep):
        self.keep = keep

    def hook(self, module, args, out):
        self.keep.append(out)


@pytest.mark.parametrize("kind", ["closure", "method", "with_kwargs"])
def test_forward_hooks_that_are_registered_for_one_call(kind):
    net, graphs = Net(), []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    fast = optimize(backend, fullgraph=True)(lambda x: net(x).sin())
    for count in range(4):
        found = []
        for run in (fast, lambda x: net(x).sin()):
            keep = []
            handle = net.a.register_forward_hook(calls(kind, keep), with_kwargs=kind == "with_kwargs")
            run(torch.ones(2, 3) * count)
            handle.remove()
            found.append(keep)
        assert_same(*found)
        assert len(found[0]) == 1
    assert len(graphs) == (4 if kind == "with_kwargs" else 1)  # hooks with options are guarded by their numbers


def test_hooks_in_another_order():
    net = Net()
    fast = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(lambda x: net(x))
    first = net.register_forward_hook(lambda module, args, out: out + 1)
    net.register_forward_hook(lambda module, args, out: out * 3)
    for _ in range(2):
        torch.testing.assert_close(fast(torch.ones(2, 3)), net(torch.ones(2, 3)))
        first.remove()
        first = net.register_forward_hook(lambda module, args, out: out + 1, prepend=True)
        torch.testing.assert_close(fast(torch.ones(2, 3)), net(torch.ones(2, 3)))
        first.remove()
        first = net.register_forward_hook(lambda module, args, out: out + 1)


def test_a_hook_that_is_called_in_spite_of_an_exception():
    net, seen = Net(), []
    net.a.register_forward_hook(lambda module, args, out: seen.append(out), always_call=True)

    def refuse(x):
        raise ValueError("refused")

    net.a.forward = refuse

    def fn(x):
        try:
            return net(x)
        except ValueError:
            return x * 2

    fast = optimize(lambda gm, inputs: gm.forward)(fn)
    for count in (1, 2):
        assert_same(fast(torch.ones(2, 3)), torch.full((2, 3), 2.0))
        assert seen == [None] * count


def test_a_backward_hook_of_the_old_kind_breaks_the_graph():
    net = Net()
    net.a.register_backward_hook(lambda module, given, wanted: None)
    with pytest.raises(Unsupported, match="register_full_backward_hook replaces it"):
        optimize(lambda gm, inputs: gm.forward, fullgraph=True)(lambda x: net(x))(torch.ones(2, 3))


class Named(torch.nn.Module):
    def forward(self, x):
        return {"out": x * 2}


def test_a_module_with_backward_hooks_that_gives_a_dict_warns():
    net, messages = Named(), []
    net.register_full_backward_hook(lambda module, given, wanted: LOG.append(1))
    x = torch.ones(2, requires_grad=True)
    for call in (net, optimize(lambda gm, inputs: gm.forward, fullgraph=True)(lambda x: net(x))):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = call(x)
        messages.append([(str(w.message), w.category, w.filename, w.lineno) for w in caught])
        LOG.clear()
        assert torch.autograd.grad(found["out"].sum(), x)[0].tolist() == [2, 2] and not LOG
    assert messages[0] == messages[1] and len(messages[0]) == 1


def test_a_backward_in_the_same_function_runs_the_hooks_in_place():
    net, seen = Net(), []
    net.a.register_full_backward_hook(lambda module, given, wanted: seen.append(1))

    def fn(x):
        out = net(x)
        out.sum().backward()
        return out.detach() * len(seen)

    x = torch.ones(2, 3)
    fast = optimize(lambda gm, inputs: gm.forward)(fn)
    for count in (1, 2):
        torch.testing.assert_close(fast(x), net(x).detach() * count)


def test_a_pre_hook_that_gives_no_arguments_raises_as_plainly():
    net = Net()
    net.register_forward_pre_hook(lambda module, args, kwargs: (args, kwargs, 1), with_kwargs=True)
    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        optimize(lambda gm, inputs: gm.forward)(lambda x: net(x))(torch.ones(2, 3))


def listens(x, hooks):
    x, seen = x.clone().requires_grad_(), []
    y = x * 2
    made = [y.register_hook(functools.partial(hook, seen)) for hook in hooks]
    made[0].remove()
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    return x.grad, seen


def counts(seen, gradient):
    seen.append(len(seen))


def doubles(seen, gradient):
    seen += [1, 2]
    return gradient * 2


def nests(seen, gradient):
    if not seen:
        seen.append([])
    seen[0].append(3)


def names(seen, gradient):
    def name():
        nonlocal number
        number += 1
        return number

    number = 0
    return gradient * name()


@pytest.mark.parametrize("hooks", [(counts, doubles), (doubles, counts), (names, names), (doubles, nests)])
def test_what_hooks_do_to_objects_of_the_frame_they_do_in_the_backward(hooks):
    compiled = optimize(lambda gm, inputs: gm.forward)(listens)
    for _ in range(2):
        assert_same(compiled(torch.ones(3), hooks), listens(torch.ones(3), hooks))


def test_a_hook_that_counts_in_a_variable_of_the_frame():
    def program(x):
        def hook(gradient):
            nonlocal count
            count += 1

        count = 0
        x = x.clone().requires_grad_()
        y = x * 2
        handle = y.register_hook(hook)
        y.sum().backward(retain_graph=True)
        y.sum().backward(retain_graph=True)
        handle.remove()
        y.sum().backward()
        return x.grad, count

    assert_same(optimize(lambda gm, inputs: gm.forward)(program)(torch.ones(3)), program(torch.ones(3)))

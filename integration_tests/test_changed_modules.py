"""Modules that a compiled function changes: their tables as dicts, hooks that come and go, modes, gradients; and what it sees after."""

import pytest
import torch
import tracework
from training import BACKENDS, same


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.ones(3))
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)


def buffer_as_item(m, x):
    before = m.b
    m._buffers["b"] = x[0] * 2
    m.b = m.b + m._buffers["b"]
    return before, m.b, [n for n, _ in m.named_buffers()]


def module_as_item(m, x):
    before = m.first(x)
    m._modules["first"] = m._modules["second"]
    return before, m.first(x), len(list(m.children())), m.first is m.second


def module_removed(m, x):
    before = m.first(x)
    m._modules.pop("first")
    return before, [n for n, _ in m.named_children()], [n for n, _ in m.named_parameters()], hasattr(m, "first")


def parameter_as_item(m, x):
    before = m.first(x)
    m.first._parameters["weight"] = m.second._parameters["weight"]
    m.first._parameters["bias"] = None
    return before, m.first(x), [n for n, _ in m.named_parameters()]


def hooks_as_items(m, x):
    m.first._forward_hooks[7] = lambda module, args, out: out * 2
    found = m.first(x)
    m.first._forward_hooks.clear()
    return found, m.first(x)


def hooks_for_a_while(m, x):
    kept = []
    handles = [child.register_forward_hook(lambda module, args, out: kept.append(out) or out + 1) for child in m.children()]
    found = m.second(m.first(x))
    for handle in handles:
        handle.remove()
    return found, kept, m.second(m.first(x))


def modes_and_gradients(m, x):
    m.eval()
    modes = [m.training, m.first.training]
    m.train()
    m.first(x).sum().backward()
    gradient = m.first.weight.grad.clone()
    norm = torch.nn.utils.clip_grad_norm_(m.parameters(), 0.1)
    clipped = m.first.weight.grad.clone()
    m.zero_grad()
    return modes, m.training, gradient, norm, clipped, m.first.weight.grad


def applied(m, x):
    m.apply(lambda module: torch.nn.init.constant_(module.weight, 0.5) if isinstance(module, torch.nn.Linear) else None)
    return m.first(x)


PROGRAMS = (buffer_as_item, module_as_item, module_removed, parameter_as_item, modes_and_gradients, applied)


def run(fn, compiled):
    """What it gives, and the module after it."""
    torch.manual_seed(1)
    module, x = Two(), torch.randn(2, 3)
    found = compiled(module, x)
    return [part(found), [(n, part(t)) for n, t in module.state_dict().items()], sorted(module.second._forward_hooks)]


def part(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return [part(v) for v in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_in_one_graph(fn, backend):
    expected = run(fn, fn)
    compiled = tracework.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        same(run(fn, compiled), expected)


@pytest.mark.parametrize("fn", [hooks_as_items, hooks_for_a_while], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_with_breaks(fn, backend):
    expected = run(fn, fn)
    compiled = tracework.compile(fn, backend=backend)
    for _ in range(2):
        same(run(fn, compiled), expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_parameters_can_be_swapped(backend):
    """torch.utils.swap_tensors refuses tensors that somebody refers to weakly."""
    module, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
    fast = tracework.compile(lambda x: module(x), backend=backend)
    torch.testing.assert_close(fast(x), module(x))
    torch.utils.swap_tensors(module.weight, torch.nn.Parameter(torch.full((4, 4), 2.0)))
    torch.testing.assert_close(fast(x), module(x))
    module.load_state_dict({"weight": torch.zeros(4, 4), "bias": torch.ones(4)}, assign=True)
    torch.testing.assert_close(fast(x), module(x))
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        module.double()
        torch.testing.assert_close(fast(x.double()), module(x.double()))
        module.load_state_dict(torch.nn.Linear(4, 4).double().state_dict())
        torch.testing.assert_close(fast(x.double()), module(x.double()))
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)

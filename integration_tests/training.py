"""Compares values and gradients of a function run plainly and compiled."""

import copy

import torch
import tracework

BACKENDS = ("eager", "aot_eager", "inductor")


def copied(inputs):
    """Inputs of their own, which ask for gradients where the given ones do."""
    return [
        x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else copy.deepcopy(x) for x in inputs
    ]


def results_and_gradients(fn, inputs, module=None):
    """What fn gives, and the gradients of its inputs and of a module after backward of the sum of what it gives."""
    torch.manual_seed(0)
    found = fn(*inputs)
    tensors = [
        t for t in (found if isinstance(found, (tuple, list)) else [found]) if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    if any(t.grad_fn is not None for t in tensors):
        sum(t.sum() for t in tensors if t.grad_fn is not None).backward()
    gradients = [x.grad for x in inputs if isinstance(x, torch.Tensor)]
    gradients += [p.grad for p in module.parameters()] if module is not None else []
    return found, [t.requires_grad for t in tensors], gradients


def check(fn, *inputs, backend="eager", module=None, fullgraph=True):
    """The compiled function does what the plain one does; a module that it reads is compared by its gradients and state, too."""
    state = copy.deepcopy(module.state_dict()) if module is not None else None
    expected = detached(results_and_gradients(fn, copied(inputs), module))
    after = copy.deepcopy(module.state_dict()) if module is not None else None
    if module is not None:
        module.load_state_dict(state)
        module.zero_grad()
    compiled = tracework.compile(fn, backend=backend, fullgraph=fullgraph)
    found = detached(results_and_gradients(compiled, copied(inputs), module))
    same(found, expected)
    if module is not None:
        torch.testing.assert_close(dict(module.state_dict()), dict(after))
        module.zero_grad()


def same(found, expected):
    """Equal structure, close tensors, equal everything else."""
    assert type(found) is type(expected)
    if isinstance(found, torch.Tensor):
        torch.testing.assert_close(found, expected)
    elif isinstance(found, (list, tuple)):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            same(*pair)
    else:
        assert found == expected


def detached(value):
    """Copies without history."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, (list, tuple)):
        return [detached(v) for v in value]
    return value

"""What is done with the results of a program: each use yields what is seen, and raises what autograd does."""

from __future__ import annotations

import torch

__all__ = ["USES"]


def differentiable(tensors):
    """Those with a history, each once."""
    return [t for t in dict.fromkeys(tensors) if t.grad_fn is not None]


def scalar(t):
    return (t * torch.linspace(-1, 1, t.numel(), dtype=t.dtype).reshape(t.shape)).sum() + t.square().sum() / 2


def gradients(results, given, choices, call):
    """Of each result, with respect to everything."""
    made = differentiable(results)
    for result in made:
        yield from torch.autograd.grad(scalar(result), _targets(made, given), retain_graph=True, allow_unused=True)


def orders(results, given, choices, call):
    """To the third order. What no gradient depends on may be zeros."""
    made = differentiable(results)
    targets = _targets(made, given)
    for result in made:
        of = scalar(result)
        for _ in range(3):
            found = torch.autograd.grad(of, targets, create_graph=True, allow_unused=True)
            yield from (torch.zeros(()) if g is None or not g.any() else g for g in found)
            of = sum(((g / (1 + g.detach().abs())).sum() for g in found if g is not None and g.requires_grad), torch.zeros(()))
            if not of.requires_grad:
                break


def hooks(results, given, choices, call):
    """One backward with hooks on results, which change what goes on."""
    made, seen = differentiable(results), []
    for place, result in enumerate(made):
        result.retain_grad()
        result.register_hook(lambda g, place=place: seen.append((place, g.clone())) or g * (place + 2))
    for t in given:
        if t.grad_fn is not None:
            t.retain_grad()
    if made:
        sum(scalar(result) * (n + 1) for n, result in enumerate(made)).backward()
    yield from (t.grad for t in _targets(made, given))
    yield from (g for _, g in sorted(seen, key=lambda pair: pair[0]))


def backwards(results, given, choices, call):
    """One backward after the other, of which some let go of the graph."""
    for result in choices.sample(made := differentiable(results), len(made)):
        scalar(result).backward(retain_graph=choices.random() < 0.7)
        yield from (t.grad.clone() for t in given if t.is_leaf and t.grad is not None)


def some(results, given, choices, call):
    """Into chosen tensors alone."""
    made = differentiable(results)
    targets = [t for t in _targets(made, given) if choices.random() < 0.5]
    if made and targets:
        torch.autograd.backward([scalar(r) for r in made], inputs=targets)
    yield from (t.grad for t in targets)


def two_calls(results, given, choices, call):
    """What two calls give is differentiated together; inputs may have been written to in between."""
    made = differentiable([*results, *call(*given)])
    if made:
        sum(scalar(r) for r in made).backward()
    yield from (t.grad for t in given if t.is_leaf)


def written(results, given, choices, call):
    """A tensor is written to before the backward."""
    made = differentiable(results)
    if made:
        target = choices.choice(_targets(made, given) or [given[-1]])
        with torch.set_grad_enabled(choices.random() < 0.5 and not (target.is_leaf and target.requires_grad)):
            target.mul_(2)
        yield target.detach().clone()
    for result in made:
        yield from torch.autograd.grad(scalar(result), _targets(made, given), retain_graph=True, allow_unused=True)


def _targets(made, given):
    return list(dict.fromkeys([*made, *(t for t in given if t.requires_grad)]))


USES = {use.__name__: use for use in (gradients, orders, hooks, backwards, some, two_calls, written)}

"""Results that share history and have different inputs: a backward comes to the inputs of its own result alone."""

import pytest
import torch


def heads(x, a, b):
    trunk = (x * 2).exp()
    return trunk * a, trunk.mean() * b


def one_head(x, a, b):
    trunk = x.softmax(-1)
    return trunk * a + b, trunk.tanh()


def three(x, a, b):
    trunk = x.sin()
    middle = trunk * a
    return trunk.cos(), middle.exp(), middle * b


def sharing_a_view(x, a, b):
    row = x.sin()[1:]
    return row * a[1:], row * b[1:]


def with_a_result_between(x, a, b):
    trunk = x.sin()
    left = trunk * a
    return left, left * trunk, trunk * b


PROGRAMS = [heads, one_head, three, sharing_a_view, with_a_result_between]


def leaves(x, a, b):
    return x, a, b


def made(x, a, b):
    return x * 2, a * 3, b.exp()


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_hooks_of_other_inputs_are_not_called(fn, pair, real):
    found = pair(fn, real(3, 3), real(3, 3), real(3, 3), make=made)
    seen = []
    for results, inputs in zip(found.call(), (found.mine, found.theirs), strict=True):
        calls = []
        for place, x in enumerate(inputs):
            x.register_hook(
                lambda g, place=place, calls=calls: calls.append(place) or g * 2
            )  # a TypeError if there is no gradient
        for result in results:
            result.sum().backward(retain_graph=True)
            calls = sorted(calls)
        seen.append(calls)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_hooks_of_other_leaves_are_not_called(fn, pair, real):
    def hooked(*given):
        for x in given:
            x.register_hook(lambda g: g * 2)
        return given

    found = pair(fn, real(3, 3), real(3, 3), real(3, 3), make=hooked)
    gradients = []
    for results, inputs in zip(found.call(), (found.mine, found.theirs), strict=True):
        for result in results:
            result.sum().backward(retain_graph=True)
            gradients.append([None if x.grad is None else x.grad.clone() for x in inputs])
    half = len(gradients) // 2
    torch.testing.assert_close(gradients[:half], gradients[half:])


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_history_of_other_inputs_may_be_gone(fn, pair, real):
    """The second time that history is gone which the first backward went through, and no other."""
    found = pair(fn, real(3, 3), real(3, 3), real(3, 3), make=made)
    outcomes = []
    for results, inputs in zip(found.call(), (found.mine, found.theirs), strict=True):
        for gone in range(3):
            torch.autograd.backward(inputs[gone].sum(), retain_graph=False)
            for result in results:
                try:
                    torch.autograd.backward(result.sum(), retain_graph=True)
                    outcomes.append("ran")
                except RuntimeError as error:
                    outcomes.append("second time" if "second time" in str(error) else str(error))
    half = len(outcomes) // 2
    assert outcomes[:half] == outcomes[half:]

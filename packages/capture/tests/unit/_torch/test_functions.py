"""Functions of torch that have private names, and what they do in this release."""

import math

import torch
from tracework_capture._torch import functions


def test_bounds_without_a_number():
    clamped = torch.zeros(1).clamp(min=math.nan)
    assert functions.nan_alone_is_no_bound() is (not clamped.isnan().item())


def test_gradients_at_bounds():
    x = torch.ones(1, requires_grad=True)
    x.clamp(max=1.0).backward()
    assert x.grad.item() == (0.0 if functions.BOUNDS_TAKE_GRADIENTS else 1.0)


def test_what_failed_checks_say():
    assert functions.text_of_failed_check() == str(functions.failed_check(None))
    assert str(functions.failed_check(lambda: "said")) == "said"


def test_containers_that_torch_knows():
    flatten, unflatten = functions.pytree_row(list)
    assert unflatten(*flatten([1, 2])) == [1, 2] and functions.pytree_row(object) is None
    assert functions.present(math, ("pi", "of_no_module")) == {"pi": math.pi}

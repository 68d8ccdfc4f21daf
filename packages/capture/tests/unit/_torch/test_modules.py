"""How modules are called, with hooks."""

import pytest
import torch
from tracework_capture._torch import modules


@pytest.mark.parametrize("old", [True, False])
def test_which_hooks_see_the_backward(old):
    linear, seen = torch.nn.Linear(2, 2), []
    register = linear.register_backward_hook if old else linear.register_full_backward_hook
    register(lambda module, given, found: seen.append(module))
    assert modules.has_old_hooks(linear) is old and not modules.has_old_hooks(torch.ones(1))
    if not old:
        hook = modules.backward_hook(linear)
        (x,) = hook.setup_input_hook((torch.ones(2, requires_grad=True),))
        hook.setup_output_hook(x * 2).sum().backward()
        assert seen == [linear]


def test_hooks_of_all_modules():
    assert not modules.any_hook_of_all_modules() and modules.hooks_of_all_modules_are_full() is None
    handle = torch.nn.modules.module.register_module_full_backward_hook(lambda *given: None)
    try:
        assert modules.any_hook_of_all_modules() and modules.hooks_of_all_modules_are_full()
    finally:
        handle.remove()
        torch.nn.modules.module._global_is_full_backward_hook = None

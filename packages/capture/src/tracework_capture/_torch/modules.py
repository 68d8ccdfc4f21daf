"""How modules are called, with hooks of their own and of all modules; what optimizers are made of."""

from typing import Any

import torch
from torch.nn.modules._functions import BackwardHookFunction
from torch.optim import optimizer
from torch.utils import _foreach_utils
from torch.utils.hooks import BackwardHook

arguments_of_to = torch._C._nn._parse_to
"""What Module.to makes of its arguments: (device, dtype, non_blocking, memory format)."""
log_api_usage_once = torch._C._log_api_usage_once


def backward_hook(module: torch.nn.Module) -> BackwardHook:
    """What Module.__call__ makes of the full backward hooks and pre-hooks that the module has now, with those of all modules."""
    full, _ = module._get_backward_hooks()
    return BackwardHook(module, full, module._get_backward_pre_hooks())


def through_backward_hook(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What a BackwardHook makes of these."""
    return tuple(BackwardHookFunction.apply(*tensors))


module_call: Any = torch.nn.Module._call_impl
wrapped_module_call: Any = torch.nn.Module._wrapped_call_impl
"""What Module.__call__ is; it calls the one above."""
any_hook_of_all_modules = torch.nn.modules.module._has_any_global_hook


def always_called_hooks_of_all_modules() -> Any:
    """The hooks of all modules that are called in spite of an exception."""
    return torch.nn.modules.module._global_forward_hooks_always_called


def hooks_of_all_modules_are_full() -> bool | None:
    """Whether the backward hooks of all modules are full ones; None when there are none."""
    return torch.nn.modules.module._global_is_full_backward_hook


def has_old_hooks(module: Any) -> bool:
    """Whether hooks of register_backward_hook see this module's calls."""
    shared = hooks_of_all_modules_are_full()
    return isinstance(module, torch.nn.Module) and (module._is_full_backward_hook is False or shared is False)


group_tensors_by_device_and_dtype: Any = _foreach_utils._group_tensors_by_device_and_dtype
group_tensors_of_optimizer: Any = optimizer.Optimizer._group_tensors_by_device_and_dtype
value_in_optimizer: Any = optimizer._get_value
with_grad_mode_of_optimizer: Any = optimizer._use_grad_for_differentiable
"""Makes a step() that has gradients on where its optimizer is differentiable."""
trunc_normal_without_grad: Any = torch.nn.init._no_grad_trunc_normal_

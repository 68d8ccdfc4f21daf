"""Who sees calls of torch beside torch: modes, the classes of tensors, tracers, blocks of devices."""

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import _symbolic_trace
from torch.utils._device import DeviceContext

from .. import _C

set_grad_mode = torch._C._set_grad_enabled
"""What a graph's node calls to switch the gradients' mode; modes see it."""
function_mode_count = torch._C._len_torch_function_stack
function_mode_at = torch._C._get_function_stack_at
function_modes_are_on = torch._C._is_torch_function_mode_enabled
push_function_mode = torch._C._push_on_torch_function_stack
pop_function_mode = torch._C._pop_torch_function_stack
dispatch_mode_count = torch._C._len_torch_dispatch_stack
under_jit_trace = torch._C._is_tracing
device_constructors = torch.utils._device._device_constructors
device_index = torch._utils._get_device_index
jit_is_scripting = torch._jit_internal.is_scripting


torch_functions_off = torch._C.DisableTorchFunctionSubclass
all_torch_functions_off: Any = torch._C.DisableTorchFunction
torch_functions_on = torch._C._EnableTorchFunction
torch_functions_are_on = torch._C._is_torch_function_enabled
all_torch_functions_are_off = torch._C._is_torch_function_all_disabled
disabled_torch_function = torch._C._disabled_torch_function_impl
"""The __torch_function__ of classes that ask for nothing: calls with them go on as with plain tensors."""


def torch_functions_off_for() -> str:
    """Whom calls of torch do not ask: "nobody" is left out, the "classes" of tensors are, or "all", modes too."""
    if torch_functions_are_on():
        return "nobody"
    return "all" if all_torch_functions_are_off() else "classes"


def as_subclass(tensor: Any, cls: type) -> Any:
    """tensor.as_subclass(cls), past the __torch_function__ of both."""
    with torch_functions_off():
        return torch.Tensor.as_subclass(tensor, cls)


class _Aside(threading.local):
    modes: tuple[Any, ...] = ()


_aside = _Aside()


@contextlib.contextmanager
def function_modes_aside() -> Iterator[None]:
    """TorchFunctionModes see nothing of what is done inside, but for the one that is the default device."""
    stack = [pop_function_mode() for _ in range(function_mode_count())][::-1]
    staying = [mode for mode in stack if isinstance(mode, DeviceContext)]
    before = _aside.modes
    _aside.modes = (*before, *(mode for mode in stack if not isinstance(mode, DeviceContext)))
    for mode in staying:
        push_function_mode(mode)
    try:
        yield
    finally:
        while function_mode_count():
            pop_function_mode()
        _aside.modes = before
        for mode in stack:
            push_function_mode(mode)


def users_function_modes() -> tuple[Any, ...]:
    """The TorchFunctionModes that the program is under, the innermost last, without that of the default device."""
    stack = map(function_mode_at, range(function_mode_count()))
    return (*_aside.modes, *(mode for mode in stack if not isinstance(mode, DeviceContext)))


def default_device() -> Any:
    """The device of the mode that is the default device, and the one that a bare "cuda" means; None without such a mode."""
    stack = map(function_mode_at, range(function_mode_count()))
    device = next((mode.device for mode in reversed(list(stack)) if isinstance(mode, DeviceContext)), None)
    if device is None or device.index is not None or device.type != "cuda":
        return device
    try:
        return device, torch.cuda.current_device()
    except (AssertionError, RuntimeError):  # there is none, which what is made on it says
        return device, -1


def cuda_device() -> int:
    """The current CUDA device; -1 before there is one."""
    return torch.cuda.current_device() if torch.cuda.is_initialized() else -1


def under_onnx_export() -> bool:
    """Whether torch.onnx, which takes long to load, is exporting."""
    onnx = sys.modules.get("torch.onnx")
    return onnx is not None and onnx.is_in_onnx_export()


def under_fx_tracing() -> bool:
    """Whether torch.fx or torch.export is tracing, in this thread from torch 2.14 on, before that in any."""
    ask = getattr(_symbolic_trace, "_get_is_fx_tracing", None)
    return bool(_symbolic_trace._is_fx_tracing_flag if ask is None else ask())


def all_function_mode_count() -> int:
    """How many modes the program is under, those included that are set aside."""
    return len(_aside.modes) + function_mode_count()


def leave_blocks_of_devices() -> list[Any]:
    """Leaves `with torch.device(...)` blocks, and gives their modes; what torch.set_default_device left stays."""
    held = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
    left: list[Any] = []
    while function_mode_count():
        mode = function_mode_at(function_mode_count() - 1)
        if mode is held or not isinstance(mode, DeviceContext):
            break
        left.append(pop_function_mode())
    return left[::-1]


@contextlib.contextmanager
def blocks_of_devices_aside() -> Iterator[None]:
    """What is inside is done as if outside of `with torch.device(...)` blocks."""
    left = leave_blocks_of_devices()
    try:
        yield
    finally:
        for mode in left:
            push_function_mode(mode)


def without_dispatch(function: Any) -> Any:
    """The function, which neither modes nor the classes of tensors see anything of."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        with all_torch_functions_off():
            return function(*args)

    return call


item = without_dispatch(torch.Tensor.item)
set_grad_enabled = without_dispatch(set_grad_mode)
_enter_without_dispatch = without_dispatch(lambda manager: manager.__enter__())
_SWITCHES: tuple[Any, ...] = (torch_functions_off, all_torch_functions_off)


def enter(manager: Any) -> None:
    """Enters a manager, of which neither modes nor the classes of tensors see anything; the switches of those keep what held before."""
    if isinstance(manager, _SWITCHES):
        manager.__enter__()
    else:
        _enter_without_dispatch(manager)


def under_no_function_modes(function: Any) -> Any:
    """The function, which the modes that are on see nothing of."""

    def call(*args: Any) -> Any:
        with function_modes_aside():
            return function(*args)

    return call


def leave_dispatch_modes(count: int) -> None:
    """Leaves the innermost dispatch modes until `count` are left."""
    while torch._C._len_torch_dispatch_stack() > count:
        torch._C._pop_torch_dispatch_stack(None)


def under_users_dispatch_mode() -> bool:
    """Whether a TorchDispatchMode of the program sees the operators that are called: none of a graph's would be those of eager code."""
    stack = map(torch._C._get_dispatch_stack_at, range(dispatch_mode_count()))
    return any(not mode.is_infra_mode() and not mode.ignore_compile_internals() for mode in stack)


def device_is_set_for_good() -> bool:
    """Whether the default device is what torch.set_default_device left, and no `with torch.device(...)` is on."""
    held = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
    stack = map(function_mode_at, range(function_mode_count()))
    return all(mode is held for mode in stack if isinstance(mode, DeviceContext))


_C.set_function_modes(function_mode_count, all_torch_functions_off)

"""Who sees calls of torch beside torch."""

import torch
from torch.overrides import TorchFunctionMode
from tracework_capture._torch import modes


class Seen(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls.append(function)
        return function(*args, **kwargs or {})


def test_modes_are_set_aside_and_are_still_the_programs():
    with Seen() as mode:
        with modes.function_modes_aside():
            torch.ones(2).sin()
            assert modes.users_function_modes() == (mode,) and modes.function_mode_count() == 0
            assert modes.all_function_mode_count() == 1
        assert not mode.calls and modes.users_function_modes() == (mode,)
        torch.ones(2)
    assert mode.calls == [torch.ones] and modes.users_function_modes() == ()


def test_functions_that_modes_do_not_see():
    with Seen() as mode:
        modes.item(torch.scalar_tensor(2.0))
        modes.set_grad_enabled(True)
        modes.under_no_function_modes(torch.sin)(torch.scalar_tensor(2.0))
    assert mode.calls == [torch.scalar_tensor] * 2


def test_blocks_of_devices():
    with torch.device("meta"):
        assert modes.default_device() == torch.device("meta") and not modes.device_is_set_for_good()
        with modes.blocks_of_devices_aside():
            assert torch.ones(1).device.type == "cpu"
        assert torch.ones(1).device.type == "meta"
    assert modes.default_device() is None and modes.device_is_set_for_good()


def test_whom_calls_ask():
    assert modes.torch_functions_off_for() == "nobody"
    with modes.torch_functions_off():
        assert modes.torch_functions_off_for() == "classes"
    with modes.all_torch_functions_off():
        assert modes.torch_functions_off_for() == "all"

"""Integer division: eager raises for a zero divisor on a CPU, and so does what is compiled; other divisions stay in kernels."""

import logging

import pytest
import torch
import tracework

DIVISIONS = {
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "fmod": lambda a, b: torch.fmod(a, b),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
}
DIVIDEND = torch.tensor([7, -7, 5, -4])


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("divisor", [torch.tensor([2, 0, 3, 1]), 0], ids=["tensor", "number"])
def test_zero_raises_as_in_eager(name, divisor):
    def program(a, b):
        return DIVISIONS[name](a + 1, b) * 2

    call = tracework.compile(program)
    with pytest.raises(RuntimeError) as expected:
        program(DIVIDEND, divisor)
    with pytest.raises(RuntimeError) as found:
        call(DIVIDEND, divisor)
    assert str(found.value) == str(expected.value)
    fits = divisor + 1 if isinstance(divisor, int) else divisor.clamp(min=1)
    assert torch.equal(call(DIVIDEND, fits), program(DIVIDEND, fits))


@pytest.mark.parametrize("name", DIVISIONS)
def test_what_is_never_zero_stays_in_a_kernel(name, caplog):
    def program(a):
        return DIVISIONS[name](a, 3) + DIVISIONS[name](a, a.shape[0]) + DIVISIONS[name](a.float(), 0.0).nan_to_num(0, 0, 0).long()

    call = tracework.compile(program, dynamic=True)
    with caplog.at_level(logging.INFO, "tracework.fallbacks"):
        assert torch.equal(call(DIVIDEND), program(DIVIDEND))
    assert not caplog.messages

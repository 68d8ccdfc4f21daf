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


@pytest.mark.parametrize("name", [*DIVISIONS, "**"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_integers_wrap_around_as_in_eager(name, dtype):
    """-1 is the largest number of an unsigned dtype; powers and quotients leave the range of a signed one."""
    a = torch.tensor([0, 1, 2, 3, 100, 120, torch.iinfo(dtype).max], dtype=dtype)
    operation = DIVISIONS.get(name) or (lambda a, b: b ** (a.clamp(0, 120)))

    def program(a, b):
        return operation(a, b), operation(a, -1), operation(a, 119)

    for divisor in (torch.full_like(a, -1), torch.full_like(a, 107)):
        for found, expected in zip(tracework.compile(program)(a, divisor), program(a, divisor), strict=True):
            assert found.dtype is expected.dtype and torch.equal(found, expected)


NUMBERS = {
    "clamp_min": lambda a: a.clamp(min=300),
    "power": lambda a: a**300,
    "negative power": lambda a: a**-1,
    "multiple": lambda a: a.add(a, alpha=300),
    "addcmul": lambda a: a.addcmul(a, a, value=300),
    "scatter": lambda a: a.scatter(0, torch.zeros(1, dtype=torch.long), 300),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_do_not_fit_are_refused(name):
    a = torch.arange(4, dtype=torch.uint8)
    for call in (NUMBERS[name], tracework.compile(NUMBERS[name])):
        with pytest.raises(RuntimeError, match="without overflow|to negative integer powers|outside the representable range"):
            call(a)


BOUNDS = [(-1, 1), (0, 300), (-1, 300), (-200, 5), (1, -1), (-3, -2), (300, 400), (-1.5, 1.5), (-128.5, 3), (-5, 1e5), (1e6, 1e7)]


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32], ids=str)
@pytest.mark.parametrize("op", [torch.clamp, torch.nn.functional.hardtanh, lambda a, low, high: a.clamp_min(low)])
def test_bounds_that_the_dtype_does_not_hold(op, dtype):
    """As of torch 2.15 they bound as its limits do; before, they wrapped around or were refused."""
    a = torch.tensor([0, 1, 5, 100], dtype=dtype)

    def outcome(function, *bounds):
        try:
            return function(a, *bounds).tolist()
        except (RuntimeError, ValueError) as error:
            return type(error)

    for bounds in BOUNDS:
        tracework.compiler.reset()
        assert outcome(tracework.compile(op), *bounds) == outcome(op, *bounds), bounds

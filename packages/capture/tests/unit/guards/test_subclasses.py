import pytest
import torch
from tracework_capture._torch.modes import torch_functions_off
from tracework_capture.guards.guard import TensorFacts
from tracework_capture.guards.subclasses import IsSubclassTensor


class Own(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise AssertionError("nothing of the class is asked")


def own(*size, dtype=torch.float32):
    with torch_functions_off():
        return torch.zeros(size, dtype=dtype).as_subclass(Own)


CASES = {
    "the same": (own(2, 3), True),
    "a size": (own(2, 4), False),
    "a dtype": (own(2, 3, dtype=torch.float64), False),
    "a plain tensor": (torch.zeros(2, 3), False),
}


@pytest.mark.parametrize(("value", "holds"), CASES.values(), ids=CASES)
def test_past_what_the_class_overrides(value, holds):
    with torch_functions_off():
        guard = IsSubclassTensor(TensorFacts.of(own(2, 3)))
    assert IsSubclassTensor.of(value, guard.digest())(value) is holds
    with torch_functions_off():
        assert not guard(value)

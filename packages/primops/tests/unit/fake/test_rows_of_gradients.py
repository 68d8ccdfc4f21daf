"""Rows that stand in for meta kernels of torch which are written in Python, and load torch._dynamo when they first run."""

import subprocess
import sys

import pytest
import torch
from tracework_primops import FakeMode

PRELU = """
import sys, torch
from tracework_primops import FakeMode
mode = FakeMode()
x, weight = (mode.from_real(torch.ones(n)) for n in (3, 1))
torch.ops.aten._prelu_kernel_backward(x, x, weight)
print("torch._dynamo" in sys.modules)
"""


def test_the_gradient_of_prelu_is_laid_out_as_in_eager():
    given = torch.ones(2, 3, 4).transpose(0, 2), torch.ones(4, 3, 2), torch.ones(1, 3, 1)
    mode = FakeMode()
    found = torch.ops.aten._prelu_kernel_backward(*map(mode.from_real, given))
    for fake, real in zip(found, torch.ops.aten._prelu_kernel_backward(*given)):
        assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


def test_the_gradient_of_prelu_loads_no_other_compiler():
    assert (
        subprocess.run([sys.executable, "-c", PRELU], capture_output=True, text=True, check=True, timeout=300).stdout.strip()
        == "False"
    )


def test_an_index_into_a_number_has_one_element():
    mode = FakeMode()
    x, index = mode.from_real(torch.tensor(1.0)), mode.from_real(torch.tensor([0, 0]))
    with pytest.raises(RuntimeError, match="scatter"):
        x.scatter_add(0, index, x)

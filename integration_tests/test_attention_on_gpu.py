"""Attention by the library's kernels on a GPU: each of them, trained and not, runs compiled."""

import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F
import tracework
from torch.nn.attention import SDPBackend, sdpa_kernel

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

KERNELS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "torch's choice": None,
}
SIZES = {"one": (1, 4, 64, 64), "several": (3, 4, 130, 64), "wide": (2, 2, 64, 128)}


def attention(x, causal, kernel):
    q, k, v = (x * n for n in (1, 2, 3))
    if kernel is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal) + 1
    with sdpa_kernel(kernel):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal) + 1


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_runs_compiled(name, mode):
    compiled = tracework.compile(attention, mode=mode)
    for size, dtype, causal, trained in itertools.product(
        SIZES.values(), (torch.float16, torch.bfloat16), (False, True), (False, True)
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error", tracework.UncompiledWarning)
            for _ in range(3):
                x = torch.randn(size, device="cuda", dtype=dtype, requires_grad=trained)
                wanted, got = (fn(x, causal, KERNELS[name]) for fn in (attention, compiled))
                torch.testing.assert_close(got, wanted, rtol=2e-2, atol=2e-2)  # a half's rounding of values near 1
                if trained:
                    (expected,), (found,) = (torch.autograd.grad(y.sum(), x) for y in (wanted, got))
                    torch.testing.assert_close(found, expected, rtol=5e-2, atol=5e-2 * expected.abs().max().item())

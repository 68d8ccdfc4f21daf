"""Mean and variance in one pass over long rows, through Triton's interpreter, against float64."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from tracework_inductor.lowering import reduction  # noqa: E402
from tracework_primops import prims  # noqa: E402
from triton_programs import graph_of, rendered  # noqa: E402


def moments(x):
    var, mean = prims.var_mean(x, (0, 2, 3), 1, True)
    return prims.mul(prims.sub(x, mean), prims.rsqrt(var)), var, mean


def images(*sizes, channels_last=False, dtype=torch.float32):
    """Images whose mean is far from 0: a sum of squares would lose the variance."""
    x = (torch.randn(*sizes) + 300).to(dtype)
    return x.contiguous(memory_format=torch.channels_last) if channels_last else x


CASES = {
    "looped": (lambda: images(1, 140, 5, 20, channels_last=True), "looped"),
    "split": (lambda: images(3, 5, 64, 129), "looped split"),
    "split channels last": (lambda: images(3, 5, 64, 129, channels_last=True), "looped split"),
    "registers": (lambda: images(2, 5, 7, 9), "persistent"),
    "half": (lambda: images(3, 5, 64, 129, channels_last=True, dtype=torch.bfloat16), "looped split"),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_float64(name, tmp_path, monkeypatch):
    monkeypatch.setattr(reduction, "_in_one_pass", lambda x, dims: True)
    torch.manual_seed(0)
    make, kind = CASES[name]
    x = make()
    host, kernels = rendered(graph_of(moments, x))
    rows = [k for k in kernels.values() if "tl.load" in k.source and "seen_" in k.source or "persistent" in str(k.launch)]
    assert [dict(k.launch)["kind"].rstrip("0123456789 ") for k in rows] == [kind]

    normal, var, mean = triton_interpreter.host_call(host, kernels, tmp_path)([x])
    wide = x.double()
    true_var, true_mean = torch.var_mean(wide, (0, 2, 3), correction=1, keepdim=True)
    rough = 2**-7 if x.dtype == torch.bfloat16 else 1e-5  # the interpreter cuts halves off; sums of 1e4 terms in float32
    torch.testing.assert_close(var.double(), true_var, rtol=rough, atol=0)
    torch.testing.assert_close(mean.double(), true_mean, rtol=rough, atol=0)
    torch.testing.assert_close(normal.double(), (wide - true_mean) / true_var.sqrt(), rtol=rough, atol=1e-3)

"""Every ATen call that op_db's samples make, forward and backward, against its decomposition run with EAGER.

A fixed sample of ops runs by default, all with `--all-ops`; the summary at the end is the table of counts.
"""

from __future__ import annotations

import warnings

import pytest
import torch
from single_op import Calls, check, is_random
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten

DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16)
SAMPLES = 2
SAMPLE = (
    "add sub mul div pow where masked_fill clamp lerp addcmul remainder floor_divide bitwise_and eq exp sqrt erf round.decimals_0 "
    "sum mean var_mean std amax max.reduction_with_dim argmin prod logsumexp linalg.vector_norm all any cumsum sort topk "
    "view permute transpose expand slice select squeeze unsqueeze split chunk unbind flip roll repeat diagonal unfold as_strided "
    "cat stack gather scatter scatter_add index_select index_add index_put index_fill take nn.functional.embedding tril diag_embed "
    "full arange linspace zeros_like eye mm addmm bmm baddbmm matmul nn.functional.linear addr "
    "nn.functional.relu nn.functional.gelu nn.functional.silu nn.functional.mish nn.functional.hardswish nn.functional.hardsigmoid "
    "nn.functional.leaky_relu nn.functional.elu nn.functional.softplus nn.functional.glu nn.functional.logsigmoid nn.functional.prelu "
    "nn.functional.softshrink softmax log_softmax nn.functional.layer_norm nn.functional.group_norm nn.functional.batch_norm "
    "nn.functional.rms_norm native_batch_norm nn.functional.instance_norm nn.functional.cross_entropy nn.functional.nll_loss "
    "nn.functional.mse_loss nn.functional.smooth_l1_loss nn.functional.huber_loss nn.functional.binary_cross_entropy "
    "nn.functional.binary_cross_entropy_with_logits nn.functional.kl_div nn.functional.conv2d nn.functional.conv_transpose2d "
    "nn.functional.max_pool2d nn.functional.avg_pool2d nn.functional.adaptive_avg_pool2d nn.functional.interpolate "
    "nn.functional.pixel_shuffle nn.functional.pad nn.functional.unfold nn.functional.grid_sample "
    "nn.functional.scaled_dot_product_attention"
).split()

# overload -> why its numbers may differ from eager's
KNOWN = {
    "aten.native_layer_norm_backward.default": "a row of one element has gradient 0; what is left is rounding times 1/sqrt(eps)",
}


def _chosen(config):
    if config.getoption("--all-ops", False):
        return list(op_db)
    names = set(SAMPLE)
    return [op for op in op_db if op.name in names or f"{op.name}.{op.variant_test_name}" in names]


def pytest_generate_tests(metafunc):
    if "op" in metafunc.fixturenames:
        ops = _chosen(metafunc.config)
        metafunc.parametrize("op", ops, ids=[f"{op.name}.{op.variant_test_name}".rstrip(".") for op in ops])


def _calls(op, dtype):
    """ATen calls of the first samples of an op, with their backward."""
    torch.manual_seed(0)
    recorded = Calls()
    for number, sample in enumerate(
        op.sample_inputs("cpu", dtype, requires_grad=dtype.is_floating_point and op.supports_autograd)
    ):
        if number == SAMPLES:
            break
        with recorded:
            out = op.op(sample.input, *sample.args, **sample.kwargs)
            results = [o for o in tree_flatten(out)[0] if isinstance(o, torch.Tensor) and o.requires_grad and not o.is_complex()]
            if results:
                torch.autograd.backward(results, [torch.ones_like(o) for o in results])
    return recorded.calls.values()


def test_decompositions_equal_eager(op, counts):
    failures, compared = [], 0
    for dtype in DTYPES:
        if not op.supports_dtype(dtype, "cpu"):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                calls = _calls(op, dtype)
        except (RuntimeError, NotImplementedError) as error:  # sparse layouts, other devices' ops, missing backward kernels
            counts["sample that eager itself refuses"] += 1
            pytest.skip(str(error).splitlines()[0])
        for func, args, kwargs in calls:
            kind, failure = check(func, args, kwargs, compare=not is_random(func))
            compared += 1
            counts["became prims" if kind == "prims" else "stayed a call of the eager kernel"] += 1
            counts["extern", str(func)] += kind == "extern"
            if failure and str(func) not in KNOWN:
                failures.append(f"{func} {dtype}: {failure}")
    assert not failures, "\n".join(failures)
    if not compared:
        pytest.skip("no ATen call to compare")


def test_the_sample_names_ops_that_exist():
    names = {op.name for op in op_db} | {f"{op.name}.{op.variant_test_name}" for op in op_db}
    assert set(SAMPLE) <= names, set(SAMPLE) - names

"""Rows of ATen kernels that are left whole, against the kernels: three sizes, two dtypes."""

import prim_graphs
import pytest
import torch
from prim_records import SPECIAL
from tracework.onnx import ONNX_ROWS
from tracework_primops import Op, aten_graph, decompose

pytest.importorskip("onnxruntime", reason="the extra tracework[onnxrt] is not installed")
aten = torch.ops.aten
FLASH, FLASH_BACKWARD = (
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
)


def heads(n, dtype):
    torch.manual_seed(n)
    return [torch.randn(2, 3, n, 8, dtype=dtype) for _ in range(3)]


def mask_of(n, dtype):
    """The second row sees nothing."""
    mask = torch.randn(2, 1, n, n).sigmoid().log().to(dtype)
    mask[:, :, 1] = -torch.inf
    return mask


def attention(causal, masked):
    def call(q, k, v, *mask):
        return FLASH(q, k, v, 0.0, causal, attn_mask=mask[0] if masked else None, scale=None if masked else 0.3)

    return call, lambda n, dtype: [*heads(n, dtype), *([mask_of(n, dtype)] if masked else [])]


def attention_backward(causal, masked):
    forward, inputs = attention(causal, masked)

    def call(grad, q, k, v, out, sums, *mask):
        kwargs = {"attn_mask": mask[0] if masked else None, "scale": None if masked else 0.3}
        return FLASH_BACKWARD(grad, q, k, v, out, sums, 0.0, causal, **kwargs)

    def given(n, dtype):
        q, k, v, *mask = inputs(n, dtype)
        out, sums = forward(q, k, v, *mask)
        return [torch.randn_like(out), q, k, v, out, sums, *mask]

    return call, given


def rows(n, dtype):
    torch.manual_seed(n)
    return [torch.randn(n, 4, 6, dtype=dtype)]


KERNELS = {
    "softmax": (lambda x: aten._softmax.default(x, -1, False), rows),
    "softmax of a middle dim": (lambda x: aten._softmax.default(x, 1, False), rows),
    "log_softmax": (lambda x: aten._log_softmax.default(x, 0, False), rows),
    "gelu": (lambda x: aten.gelu.default(x), rows),
    "gelu, tanh": (lambda x: aten.gelu.default(x, approximate="tanh"), rows),
    "layer_norm": (lambda x: aten.native_layer_norm.default(x, [4, 6], None, None, 1e-3), rows),
    "layer_norm with weights": (
        lambda x, w, b: aten.native_layer_norm.default(x, [6], w, b, 1e-5),
        lambda n, dtype: [*rows(n, dtype), torch.randn(6, dtype=dtype), torch.randn(6, dtype=dtype)],
    ),
    "batch_norm": (
        lambda x, w, b, m, v: aten._native_batch_norm_legit_no_training.default(x, w, b, m, v, 0.1, 1e-5)[0],
        lambda n, dtype: [*rows(n, dtype), *[torch.rand(4, dtype=dtype) + 0.5 for _ in range(4)]],
    ),
    "attention": attention(False, False),
    "attention, causal": attention(True, False),
    "attention, masked": attention(False, True),
    "attention_backward": attention_backward(False, False),
    "attention_backward, causal": attention_backward(True, False),
    "attention_backward, masked": attention_backward(False, True),
}


def with_special_values(inputs):
    """NaN, infinities and a whole row of -inf among those of the first tensor."""

    def given(n, dtype):
        first, *rest = inputs(n, dtype)
        first = first.clone()
        first.view(-1)[: len(SPECIAL)] = torch.tensor(SPECIAL, dtype=dtype)
        first[(0,) * (first.ndim - 1) if first.ndim < 4 else (0, 0, -1)] = -torch.inf
        return [first, *rest]

    return given


@pytest.mark.parametrize("engine", ["onnxrt", "openvino", "tvm"])
@pytest.mark.parametrize("name", KERNELS)
def test_kernel(name, engine):
    from tracework.onnx.compiler import KEPT

    loaded = prim_graphs.engine_of(engine)
    call, inputs = KERNELS[name]
    for given, dtype, n in [
        *((inputs, dtype, n) for dtype in (torch.float32, torch.bfloat16) for n in ((3, 5, 8) if engine == "onnxrt" else (5,))),
        *([] if "attention" in name else [(with_special_values(inputs), torch.float32, 5)]),  # eager's attention has 0 for NaN
    ]:
        graph = decompose(aten_graph(call, *given(n, dtype)), changes=KEPT)
        assert any(node.target in KEPT for node in graph.calls)
        program, told = prim_graphs.program_of(graph, loaded)
        prim_graphs.assert_equals_run(program, graph, given(n, dtype), 1e-5)
        assert not told


def test_every_kernel_has_a_case():
    covered = {n.target for call, inputs in KERNELS.values() for n in decompose_of(call, inputs(3, torch.float32)).calls}
    assert {target for target in ONNX_ROWS if not isinstance(target, Op)} <= covered


def decompose_of(call, given):
    from tracework.onnx.compiler import KEPT

    return decompose(aten_graph(call, *given), changes=KEPT)

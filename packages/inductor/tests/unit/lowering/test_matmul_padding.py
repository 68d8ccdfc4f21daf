"""Rows of two-byte matrices on a GPU start at multiples of 16 bytes: results and operands of large products."""

import pytest
import torch
from prim_programs import build, check
from tracework_inductor import InductorOptions, compile_graph
from tracework_inductor.lowering import matmul
from tracework_primops import prims
from tracework_primops.spec import TensorSpec


@pytest.fixture
def anywhere(monkeypatch):
    """Pads on the CPU too, and small matrices."""
    monkeypatch.setattr(matmul, "_DEVICES", frozenset(("cpu",)))
    monkeypatch.setattr(matmul, "_WORTH_LENGTH", 2)
    monkeypatch.setattr(matmul, "_WORTH_ELEMENTS", 8)


def tensor(*sizes):
    return torch.randn(*sizes, dtype=torch.bfloat16)


def test_result_is_padded_and_given_in_the_layout_of_eager(anywhere):
    artifact = check(lambda a, b: prims.reshape(prims.mm(a, b), (2, 8, 13)), tensor(16, 24), tensor(24, 13))
    assert "empty_strided((16, 13, ), (16, 1, )" in artifact.host_source


def test_bias_is_added_after_a_padded_product(anywhere):
    artifact = check(lambda c, a, b: prims.addmm(c, a, b, 1, 1), tensor(13), tensor(16, 24), tensor(24, 13), rtol=2e-2, atol=2e-2)
    assert "torch.addmm" not in artifact.host_source


def test_operand_with_odd_rows_is_copied_once_for_both_products(anywhere):
    def gradients(g, x, w):
        flat = prims.reshape(g, (16, 13))
        return prims.mm(flat, w), prims.mm(prims.permute(flat, (1, 0)), x)

    artifact = check(gradients, tensor(2, 8, 13), tensor(16, 24), tensor(13, 24))
    assert artifact.host_source.count("empty_strided((16, 13, ), (16, 1, )") == 1


def test_computed_operand(anywhere):
    def program(g, x):
        return prims.mm(prims.permute(prims.mul(g, 2.0), (1, 0)), x)

    check(program, tensor(16, 13), tensor(16, 24))


def test_scaled_addmm_and_broadcast_operands(anywhere):
    check(lambda c, a, b: prims.addmm(c, a, b, 2, 3), tensor(13), tensor(16, 24), tensor(24, 13), rtol=2e-2, atol=1e-1)
    check(lambda a, b: prims.mm(prims.expand(a, (16, 13)), b), tensor(1, 13), tensor(13, 24))


@pytest.mark.parametrize(("rows", "columns", "padded"), [(16384, 50257, True), (16384, 50304, False), (16, 13, False)])
def test_only_large_products_on_a_gpu_are_padded(rows, columns, padded):
    def spec(*sizes):
        return TensorSpec(torch.bfloat16, torch.device("cuda", 0), sizes)

    graph = build(lambda a, b: prims.mm(a, prims.permute(b, (1, 0))), [None, None], [spec(rows, 768), spec(columns, 768)])
    source = compile_graph(graph, InductorOptions()).host_source
    assert ("50264" in source) is padded

"""Bytes and operations of library calls, and of cores."""

import pytest
import torch
from tracework_inductor.codegen.library_work import core_flops, library_bytes, library_flops, operator_name
from tracework_inductor.ir.buffer import Buffer, BufferLayout, BufferView, ExternNode

CPU = torch.device("cpu")


def call(target, operands, result, *others):
    """A call of windows with these sizes, then of other arguments, that gives one buffer."""
    sizes = {f"b{n}": tuple(s) for n, s in enumerate(operands)} | {"out": tuple(result)}
    buffers = {n: Buffer(n, BufferLayout.dense(torch.float32, CPU, s), "computed") for n, s in sizes.items()}
    views = tuple(BufferView(n, b.layout.sizes, b.layout.strides) for n, b in buffers.items() if n != "out")
    return ExternNode("e", target, (*views, *others), (), ("out",), frozenset(sizes), frozenset({"out"}), CPU), buffers


CONVOLUTION = (None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
CASES = {
    "mm": (call("torch.ops.aten.mm.default", [(4, 8), (8, 2)], (4, 2)), "mm", 2 * 4 * 8 * 2),
    "addmm": (call("torch.ops.aten.addmm.default", [(2,), (4, 8), (8, 2)], (4, 2)), "addmm", 2 * 4 * 8 * 2),
    "gemm": (call("gemm", [(4, 8), (8, 2)], (4, 2), None), "gemm", 2 * 4 * 8 * 2),
    "packed": (call("packed_linear(packed_calls, lambda a: a, 'w')", [(4, 8)], (4, 2), None), "packed_linear", 2 * 4 * 8 * 2),
    "convolution": (
        call("torch.ops.aten.convolution.default", [(1, 3, 8, 8), (4, 3, 3, 3)], (1, 4, 8, 8), *CONVOLUTION),
        "convolution",
        2 * 4 * 64 * 27,
    ),
    "attention": (
        call("torch.ops.aten._scaled_dot_product_flash_attention.default", [(1, 2, 4, 8)] * 3, (1, 2, 4, 8)),
        "_scaled_dot_product_flash_attention",
        2 * 2 * 4 * 4 * 16,
    ),
    "what only moves": (call("prims.copy_into", [(4,)], (4,)), "copy_into", 0),
    "not known": (call("torch.ops.mine.op.default", [(4,)], (4,)), "mine::op", None),
}


@pytest.mark.parametrize("case", CASES)
def test_operations(case):
    (node, buffers), name, flops = CASES[case]
    assert operator_name(node) == name and library_flops(node, buffers) == flops
    assert library_bytes(node, buffers) == sum(4 * buffer.layout.numel() for buffer in buffers.values())


def test_a_backward_of_attention_computes_the_weights_twice():
    views = [BufferView(name, (1, 2, 4, 8), (64, 32, 8, 1)) for name in ("grad", "q", "k", "v")]
    assert core_flops("attention_queries", views) + core_flops("attention_keys", views) == 7 * 2 * 2 * 4 * 4 * 8
    assert core_flops("rotate", views) == 0

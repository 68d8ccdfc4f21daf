"""Kernels of attention at many sizes: Triton's interpreter against float64, and how much memory they take."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[5]))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from attention_kernels import (  # noqa: E402
    BATCH,
    BF16,
    CASES,
    CUDA,
    F32,
    LENGTH,
    SCALE,
    SUMS,
    backward_program,
    check_values,
    forward_program,
    operands,
    sums_program,
    texts,
    trained,
)
from prim_programs import build, check  # noqa: E402
from tracework_inductor import InductorOptions  # noqa: E402
from tracework_inductor.pipeline import plan_graph  # noqa: E402
from tracework_primops import FakeMode, SymbolTable, TensorSpec, prims, trace_bodies  # noqa: E402
from tracework_primops.attention import forward_reference  # noqa: E402
from triton_programs import graph_of, rendered  # noqa: E402

SHAPES = {
    "more keys": {"queries": 40, "keys": 100},
    "more queries": {"queries": 100, "keys": 33},
    "one query": {"queries": 1, "keys": 90},
    "one key": {"queries": 20, "keys": 1},
    "whole blocks": {"queries": 128, "keys": 128},
    "other width of values": {"queries": 40, "keys": 50, "width": 24, "out_width": 40},
    "wide": {"queries": 20, "keys": 20, "width": 160, "out_width": 130, "key_heads": 2},
    "heads inside": {"queries": 30, "keys": 50, "heads": 4, "key_heads": 2, "inside": True},
    "halves": {"queries": 60, "keys": 90, "dtype": BF16},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape, tmp_path):
    check_values("causal", tmp_path, 0.06 if shape == "halves" else 1e-5, **SHAPES[shape])


def test_results_lie_as_the_graph_says(tmp_path):
    """Of a forward and a backward, with heads inside."""
    q, k, v, grad = operands(30, 50, heads=4, key_heads=2, out_width=24, inside=True)
    bodies, rows = texts("causal"), torch.zeros(q.shape[:3])
    for program, inputs, like in (
        (forward_program(*bodies), [q, k, v], [grad, rows, rows]),
        (backward_program(*bodies), [grad, q, k, v, rows, rows, rows], [q, k, v]),
    ):
        graph = graph_of(program, *inputs, device=CUDA)
        (call,) = (n for n in graph.calls if n.target in (prims.attention, prims.attention_backward))
        specs = [spec.replace(strides=x.stride()) for spec, x in zip(call.meta["spec"], like, strict=True)]
        call.meta["spec"] = tuple(specs)
        for user, spec in zip(call.users, specs, strict=True):
            user.meta["spec"] = spec
        host, kernels = rendered(graph)
        found = triton_interpreter.host_call(host, kernels, tmp_path)(list(inputs))
        assert [x.stride() for x in found] == [x.stride() for x in like]
        torch.testing.assert_close(found, list(graph.run(*inputs)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length", [2, 90])
def test_sizes_that_change(length, tmp_path):
    """Of operands, of what bodies read, and as numbers in bodies."""
    mode = FakeMode(table := SymbolTable())
    size, number = table.new(9), table.new(3, number=True)
    captured = [mode.from_real(torch.zeros(9), sizes=[size], strides=[1]), table.to_symint(number)]
    score, keep, *_ = trace_bodies(
        lambda s, b, h, i, j, x, n: s + x[j],
        lambda s, b, h, i, j, x, n: i + n >= 2 * j - j,
        captured,
        F32,
        torch.device("cpu"),
        table,
    )

    def program(q, k, v, x):
        return prims.attention(q, k, v, (x,), (), (LENGTH // 2,), score, keep, SCALE, ())

    specs = [TensorSpec(F32, CUDA, s) for s in (*[(BATCH, heads, LENGTH, 16) for heads in (2, 1, 1)], (LENGTH,))]
    (q, k, v, _), x = operands(length, length), torch.randn(length)
    host, kernels = rendered(build(program, [None] * 4, specs))
    found = triton_interpreter.host_call(host, kernels, tmp_path)([q, k, v, x])
    wanted = forward_reference(*(t.double() for t in (q, k, v)), [x.double()], [], [length // 2], score, keep, SCALE, [])
    torch.testing.assert_close([t.double() for t in found], list(wanted), rtol=0, atol=1e-5)


def test_no_scores_in_memory():
    """Bytes of all buffers grow with the length, not with its square."""

    def all_bytes(length):
        like = [torch.empty(1, 2, length, 16, device="meta") for _ in range(3)]
        rows = torch.empty(1, 2, length, device="meta")
        bodies = texts("soft-cap")
        total = 0
        programs = [(forward_program(*bodies), like), (backward_program(*bodies), [like[0], *like, rows, rows, rows])]
        for axes, sizes, function in SUMS.values():
            x = torch.empty([2 if a == "h" else 1 if a == "b" else n for a, n in zip(axes, sizes(length, length))], device="meta")
            score, keep, _, ((_, _, factor),) = texts_of = trained(function, axes, x.shape)
            program = sums_program(score, keep, factor, texts_of.trained[0].along)
            programs.append((program, [like[0], *like, rows, rows, rows, x]))
        for program, inputs in programs:
            plan = plan_graph(graph_of(program, *inputs, device=CUDA), InductorOptions())
            layouts = [buffer.layout for buffer in plan.program.buffers.values()]
            total += sum(int(layout.elements()) * layout.dtype.itemsize for layout in layouts)
        return total

    assert all_bytes(8192) < 8.01 * all_bytes(1024)


def test_on_a_cpu_and_for_other_dtypes_all_scores_are_computed():
    for dtype in (F32, torch.float64):
        check(forward_program(*texts("alibi")), *operands(20, 20, dtype=dtype)[:3], *CASES["alibi"][2])

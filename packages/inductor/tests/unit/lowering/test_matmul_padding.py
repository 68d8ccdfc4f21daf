"""Rows of matrices on a GPU start at multiples of 16 bytes where that pays: results and operands of products."""

import pytest
import torch
from prim_programs import build, check
from tracework_inductor import InductorOptions, compile_graph
from tracework_inductor.lowering import row_padding
from tracework_primops import SymbolTable, prims
from tracework_primops.spec import TensorSpec


@pytest.fixture
def anywhere(monkeypatch):
    """Pads on the CPU too, and small matrices."""
    rows = {("cpu", 2): {2: 1e9, 4: 1e9, 8: 1e9}, ("cpu", 4): {4: 1e9, 8: 1e9}}
    monkeypatch.setattr(row_padding, "SLOWER", rows)
    monkeypatch.setattr(row_padding, "FAST", dict.fromkeys(rows, 1.0))
    monkeypatch.setattr(row_padding, "LEAST_GAIN", 0.0)
    monkeypatch.setattr(row_padding, "MOST_PADDING", 1)


def tensor(*sizes, dtype=torch.bfloat16):
    return torch.randn(*sizes, dtype=dtype)


LOOSE = {"rtol": 2e-2, "atol": 1e-1}


def test_result_is_padded_and_given_in_the_layout_of_eager(anywhere):
    artifact = check(lambda a, b: prims.reshape(prims.mm(a, b), (2, 8, 13)), tensor(16, 24), tensor(24, 13))
    assert "empty_cpu((16, 13, ), (16, 1, )" in artifact.host_source


def test_single_precision_rows_take_multiples_of_four(anywhere):
    def program(a, b):
        return prims.neg(prims.mm(a, b))

    for columns, padded in ((13, True), (20, False)):
        inputs = tensor(16, 24, dtype=torch.float32), tensor(24, columns, dtype=torch.float32)
        source = check(program, *inputs).host_source
        assert (f"empty_cpu((16, {columns}, ), (16, 1, )" in source) is padded


def test_bias_is_added_after_a_padded_product(anywhere):
    artifact = check(lambda c, a, b: prims.addmm(c, a, b, 1, 1), tensor(13), tensor(16, 24), tensor(24, 13), **LOOSE)
    assert "torch.addmm" not in artifact.host_source


def test_bias_stays_with_the_library_where_rows_are_aligned(anywhere):
    artifact = check(lambda c, a, b: prims.addmm(c, a, b, 1, 1), tensor(16), tensor(16, 24), tensor(24, 16), **LOOSE)
    assert "torch.addmm" in artifact.host_source and "torch.mm" not in artifact.host_source


def test_bias_stays_with_the_library_where_another_product_reads_the_result(anywhere):
    def program(c, a, b, d):
        return prims.mm(prims.addmm(c, a, b, 1, 1), d)

    artifact = check(program, tensor(13), tensor(16, 24), tensor(24, 13), tensor(13, 16), **LOOSE)
    assert "torch.addmm" in artifact.host_source
    assert artifact.host_source.count("empty_cpu((16, 13, ), (16, 1, )") == 1, "no second copy for the reader"


def test_operand_with_odd_rows_is_copied_once_for_both_products(anywhere):
    def gradients(g, x, w):
        flat = prims.reshape(g, (16, 13))
        return prims.mm(flat, w), prims.mm(prims.permute(flat, (1, 0)), x)

    artifact = check(gradients, tensor(2, 8, 13), tensor(16, 24), tensor(13, 24))
    assert artifact.host_source.count("empty_cpu((16, 13, ), (16, 1, )") == 1


def test_rows_that_our_loops_write_are_padded_without_a_copy(anywhere):
    def gradients(g, x, w):
        flat = prims.reshape(prims.convert(prims.mul(prims.exp(g), 2.0), torch.bfloat16), (16, 13))
        return prims.mm(flat, w), prims.mm(prims.permute(flat, (1, 0)), x)

    artifact = check(gradients, tensor(2, 8, 13, dtype=torch.float32), tensor(16, 24), tensor(13, 24), **LOOSE)
    source = artifact.host_source
    assert source.count("empty_cpu((2, 8, 13, ), (128, 16, 1, )") == 1
    assert source.count("empty_cpu((") == 3, "the gradient and two results"


def test_attention_written_out(anywhere):
    """Scores and probabilities have rows of odd lengths; both are ours, so nothing is copied."""

    def program(q, k, v):
        scores = prims.convert(prims.bmm(q, prims.permute(k, (0, 2, 1))), torch.float32)
        e = prims.exp(prims.sub(scores, prims.amax(scores, (2,), True)))
        p = prims.convert(prims.div(e, prims.sum(e, (2,), True)), torch.bfloat16)
        return prims.bmm(p, v)

    artifact = check(program, tensor(3, 13, 16), tensor(3, 13, 16), tensor(3, 13, 16), **LOOSE)
    assert artifact.host_source.count("empty_cpu((3, 13, 13, ), (208, 16, 1, )") >= 1
    assert "(169, 13, 1, )" not in artifact.host_source


def test_computed_operand_that_is_also_returned_has_the_strides_of_eager(anywhere):
    def program(g, x):
        scaled = prims.mul(g, 2.0)
        return scaled, prims.mm(prims.permute(scaled, (1, 0)), x)

    check(program, tensor(16, 13), tensor(16, 24))


def test_slices_that_start_at_odd_places_are_copied(anywhere):
    artifact = check(lambda a, b: prims.mm(prims.slice(a, 1, 3, 27, 1), b), tensor(16, 32), tensor(24, 16), **LOOSE)
    assert "empty_cpu((16, 24, ), (24, 1, )" in artifact.host_source


def test_as_strided_sees_the_strides_of_eager(anywhere):
    def program(a, b):
        return prims.neg(prims.as_strided(prims.mm(a, b), (4, 6), (13, 1), 26))

    check(program, tensor(16, 24), tensor(24, 13))


def test_scaled_addmm_and_broadcast_operands(anywhere):
    check(lambda c, a, b: prims.addmm(c, a, b, 2, 3), tensor(13), tensor(16, 24), tensor(24, 13), **LOOSE)
    check(lambda c, a, b: prims.baddbmm(c, a, b, 2, 3), tensor(2, 1, 13), tensor(2, 16, 24), tensor(2, 24, 13), **LOOSE)
    check(lambda c, a, b: prims.baddbmm(c, a, b), tensor(2, 1, 13), tensor(2, 16, 24), tensor(2, 24, 13), **LOOSE)
    check(lambda a, b: prims.mm(prims.expand(a, (16, 13)), b), tensor(1, 13), tensor(13, 24))


def spec(*sizes, dtype=torch.bfloat16):
    return TensorSpec(dtype, torch.device("cuda", 0), sizes)


def decided(fn, *specs):
    """The decisions for one program."""
    return row_padding.RowPadding(build(fn, [None] * len(specs), specs).graph)


def linear(a, b):
    return prims.mm(a, prims.permute(b, (1, 0)))


@pytest.mark.parametrize(
    ("rows", "length", "columns", "padded"),
    [
        (16384, 768, 50257, True),  # GPT-2's logits
        (16384, 768, 30522, True),  # BERT's
        (16384, 768, 50304, False),  # aligned already
        (16384, 16, 50257, False),  # moving the result takes longer than the product
        (16384, 768, 1, False),  # a row would be eight times as long
        (16, 768, 13, False),
        (8, 768, 50257, False),  # one token at a time: reading the weight takes longer than the arithmetic
    ],
)
def test_results_that_leave_the_graph(rows, length, columns, padded):
    assert bool(decided(linear, spec(rows, length), spec(columns, length)).results) is padded


def test_results_that_stay_are_padded_at_less_gain():
    shapes = spec(16384, 40), spec(50257, 40)
    assert not decided(linear, *shapes).results
    assert decided(lambda a, b: prims.amax(linear(a, b), (1,), False), *shapes).results


def test_scores_and_probabilities_of_vit():
    def program(q, k, p, v):
        scores = prims.bmm(q, prims.permute(k, (0, 2, 1)))
        return prims.amax(scores, (2,), False), prims.bmm(prims.exp(p), v)

    inputs = spec(192, 197, 64)
    found = decided(program, inputs, inputs, spec(192, 197, 197), inputs)
    assert [*found.results.values(), *found.bases.values()] == [(197 * 200, 200, 1)] * 2


def test_weights_with_odd_rows_are_copied_only_for_much_arithmetic():
    def product(a, b):
        return prims.mm(a, b)

    assert decided(product, spec(16384, 768), spec(768, 50257)).products
    assert not decided(product, spec(16, 768), spec(768, 50257)).products
    assert not decided(product, spec(16384, 3), spec(3, 64)).products, "three channels are not made eight"


def test_both_sides_of_a_gradient():
    def gradients(g, x, w):
        flat = prims.reshape(prims.convert(g, torch.bfloat16), (16384, 50257))
        return prims.mm(flat, w), prims.mm(prims.permute(flat, (1, 0)), x)

    found = decided(gradients, spec(16, 1024, 50257, dtype=torch.float32), spec(16384, 768), spec(50257, 768))
    assert len(found.products) == 2
    assert list(found.bases.values()) == [(1024 * 50264, 50264, 1)]


def test_symbolic_row_counts_are_padded_and_symbolic_columns_are_not():
    size = SymbolTable().new(16384, "rows", 2, None)
    assert decided(linear, spec(size, 768), spec(50257, 768)).results
    assert not decided(linear, spec(16384, 768), spec(size, 768)).products


def test_host_program_for_a_gpu():
    graph = build(linear, [None, None], [spec(600, 768), spec(50257, 768)])
    source = compile_graph(graph, InductorOptions()).host_source
    assert "empty_cuda((600, 50264, ), (50264, 1, )" in source
    assert "empty_cuda((600, 50257, ), (50257, 1, )" in source

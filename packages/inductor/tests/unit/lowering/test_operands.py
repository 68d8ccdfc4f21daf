"""Operands of overloads lie in memory as eager's do: attention on a GPU refuses a bias whose rows are not aligned."""

import pytest
import torch
from prim_programs import build, check, overload
from tracework_inductor import InductorOptions, compile_graph
from tracework_inductor.lowering import row_padding
from tracework_primops import SymbolTable, prims
from tracework_primops.spec import TensorSpec
from tracework_primops.symbols import mod

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def numbers(allowed):
    """0 where attention is allowed, a large negative number elsewhere."""
    return prims.mul(prims.sub(prims.convert(allowed, torch.float32), 1.0), 1e9)


def padded_bias(mask, n, heads):
    """What eager's composite makes of a mask: padding to 16 columns, sliced off again, the same for all heads."""
    more = 16 - mod(n, 16)
    wide = prims.pad(mask, ((0, 0), (0, 0), (0, 0), (0, more)), 0.0)
    narrow = prims.slice(wide, 3, 0, n, 1)
    return prims.expand(narrow, (mask.sizes[0], heads, n, n))


def efficient(n):
    """Attention with a mask computed in the graph, on a GPU; the graph."""

    def program(q, allowed):
        bias = padded_bias(numbers(allowed), n, 4)
        out = TensorSpec(torch.float32, CUDA, (2, 4, n, 16), (64 * n, 16, 64, 1))
        lse, seed = TensorSpec(torch.float32, CUDA, (2, 4, 32)), TensorSpec(torch.int64, CUDA, ())
        target = torch.ops.aten._scaled_dot_product_efficient_attention.default
        return overload(target, (q, q, q, bias, True), out, lse, seed, seed)

    specs = [TensorSpec(torch.float32, CUDA, (2, 4, n, 16)), TensorSpec(torch.bool, CUDA, (2, 1, n, n))]
    return build(program, [None, None], specs)


def bias_of(source):
    """The text of the fourth argument's window, and of the allocation that it looks at."""
    call = next(line for line in source.splitlines() if ", True" in line and "as_strided" in line)
    text = call[: call.index(", True")]
    start = max(text.rfind("buf"), 0)
    window = text[start:]
    name = window.split(".")[0]
    return window, next(line for line in source.splitlines() if line.strip().startswith(f"{name} = "))


def test_bias_keeps_its_padded_rows():
    window, allocation = bias_of(compile_graph(efficient(9), InductorOptions()).host_source)
    assert "as_strided((2, 4, 9, 9, ), (144, 0, 16, 1, )" in window
    assert "empty_strided((2, 1, 9, 16, ), (144, " in allocation


def test_bias_keeps_its_padded_rows_with_symbolic_sizes():
    n = SymbolTable().new(12, "length", 2, None)
    window, allocation = bias_of(compile_graph(efficient(n), InductorOptions()).host_source)
    strides = window[window.index("), (") + 4 :].split(", ")
    assert strides[1] == "0" and strides[3] == "1"
    for length in (9, 12, 16, 33):
        assert eval(strides[2], {"s0": length}) == length + 16 - length % 16
    assert "% 16" in allocation or "//" in allocation


def flash(q, bias):
    n = q.sizes[2]
    specs = TensorSpec(torch.float32, CPU, q.sizes), TensorSpec(torch.float32, CPU, (*q.sizes[:2], n))
    target = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    return overload(target, (q, q, q), *specs, attn_mask=bias)


def test_values_with_a_mask_given_by_name():
    def program(q, allowed):
        return flash(q, padded_bias(numbers(allowed), 9, 4))

    q, allowed = torch.randn(2, 4, 9, 16), torch.ones(2, 1, 9, 9, dtype=torch.bool).tril()
    source = check(program, q, allowed).host_source
    assert "attn_mask=buf" in source and "(2, 4, 9, 9, ), (144, 0, 16, 1, )" in source


def test_rows_padded_for_products_are_not_seen_by_overloads(monkeypatch):
    rows = {("cpu", 4): {4: 1e9, 8: 1e9}}
    for name, value in {"SLOWER": rows, "FAST": dict.fromkeys(rows, 1.0), "LEAST_GAIN": 0.0, "MOST_PADDING": 1}.items():
        monkeypatch.setattr(row_padding, name, value)

    def program(x, w):
        a = prims.exp(x)
        return prims.mm(a, w), overload(torch.ops.aten.cumprod.default, (a, 1), TensorSpec(torch.float32, CPU, (16, 13)))

    source = check(program, torch.randn(16, 13), torch.randn(13, 24)).host_source
    assert "empty_strided((16, 13, ), (16, 1, )" in source, "for the product"
    call = next(line for line in source.splitlines() if "fitted(" in line and ", 1)" in line)
    name = call.split("(")[2].split(",")[0]
    assert f"{name} = empty_strided((16, 13, ), (13, 1, )" in source, "for the overload"


def test_a_copy_with_a_layout_that_repeats_elements():
    namespace = {}
    source = check(prims.neg, torch.randn(3)).host_source
    exec(source[: source.index("def fitted")], namespace)
    value = torch.arange(3.0).reshape(1, 3).expand(4, 3).contiguous()
    copy = namespace["restride"](value, (0, 2))
    assert copy.stride() == (0, 2) and torch.equal(copy, value)


def test_a_librarys_result_of_another_size_is_not_taken():
    source = check(prims.neg, torch.randn(3)).host_source
    namespace = {}
    exec(source[: source.index("def out_of_range")], namespace)
    with pytest.raises(RuntimeError, match=r"gave a tensor of size \(0,\) where the graph was compiled for \(5,\)"):
        namespace["fitted"](torch.empty(0), (5,), (1,))
    assert namespace["fitted"](torch.empty(7), (0,), (1,)).numel() == 7, "a workspace of a size that only the library knows"


def test_a_librarys_result_is_laid_out_anew_where_elements_repeat():
    source = check(prims.neg, torch.randn(3)).host_source
    namespace = {}
    exec(source[: source.index("def out_of_range")], namespace)
    value = torch.arange(6.0).reshape(3, 2)[:, :1].expand(3, 3)
    made = namespace["fitted"](value, (3, 3), (1, 0))
    assert made.stride() == (1, 0) and torch.equal(made, value)

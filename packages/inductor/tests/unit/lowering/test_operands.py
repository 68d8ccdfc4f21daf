"""Operands of overloads lie in memory as eager's do: attention on a GPU refuses a bias whose rows are not aligned."""

import re

import pytest
import torch
from prim_programs import build, check, overload
from tracework_inductor import InductorOptions, compile_graph, lower
from tracework_inductor.errors import InductorError
from tracework_inductor.ir.buffer import LoopNode
from tracework_inductor.lowering import row_padding
from tracework_primops import SymbolTable, parse_graph, prims
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
    assert "empty_cuda((2, 1, 9, 16, ), (144, " in allocation


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
    assert "empty_cpu((16, 13, ), (16, 1, )" in source, "for the product"
    function = re.search(r"(\w+) = torch.ops.aten.cumprod.default", source)[1]
    name = re.search(rf"{function}\((\w+),", source)[1]
    assert f"{name} = empty_cpu((16, 13, ), (13, 1, )" in source, "for the overload"


FLASH_ON_CPU = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
ITS_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def self_attention(length, batch, heads, depth, given_out=False, other_order=False):
    """Attention of three parts of one product, length first, as nn.MultiheadAttention has them; the graph."""
    width = heads * depth

    def program(x, w):
        packed = prims.reshape(prims.mm(x, w), (batch, length, 3, width) if other_order else (length, batch, 3, width))
        parts = []
        for n in range(3):
            part = prims.select(packed, 2, n)
            part = prims.permute(part, (1, 0, 2)) if other_order else part
            part = prims.permute(prims.reshape(part, (length, batch * heads, depth)), (1, 0, 2))
            parts.append(prims.reshape(part, (batch, heads, length, depth)))
        for part in parts:  # eager's are copies
            part.node.meta["spec"] = TensorSpec(torch.float32, CPU, part.sizes, (width, depth, batch * width, 1))
        out = TensorSpec(torch.float32, CPU, parts[0].sizes, (width, depth, batch * width, 1))
        sums = TensorSpec(torch.float32, CPU, (batch, heads, length), (length * heads, 1, heads))
        found = overload(FLASH_ON_CPU, tuple(parts), out, sums)
        return (found, parts[0]) if given_out else found

    return build(program, [torch.randn(length * batch, 8), torch.randn(8, 3 * width)])


def test_the_backward_of_attention_reads_them_there_too():
    shape, strides = (2, 4, 5, 16), (64, 16, 128, 1)

    def program(grad, x, w, out, sums):
        packed = prims.reshape(prims.mm(x, w), (5, 2, 3, 64))
        parts = [prims.permute(prims.reshape(prims.select(packed, 2, n), (5, 8, 16)), (1, 0, 2)) for n in range(3)]
        parts = [prims.reshape(p, shape) for p in parts]
        for part in parts:  # eager's are copies
            part.node.meta["spec"] = TensorSpec(torch.float32, CPU, shape, strides)
        made = [TensorSpec(torch.float32, CPU, shape, strides)] * 3
        return overload(ITS_BACKWARD, (grad, *parts, out, sums, 0.0, False), *made)

    inputs = [torch.randn(5, 2, 4, 16).permute(1, 2, 0, 3), torch.randn(10, 8), torch.randn(8, 192)]
    x, w = inputs[1:]
    q, k, v = (p.reshape(5, 8, 16).permute(1, 0, 2).reshape(shape) for p in (x @ w).reshape(5, 2, 3, 64).unbind(2))
    inputs += FLASH_ON_CPU(q, k, v)
    graph = build(program, inputs)
    call = next(line for line in compile_graph(graph).host_source.splitlines() if ", 0.0, False)" in line)
    assert call.count("(192, 16, 384, 1, )") == 3
    check(None, *inputs, graph=graph)


@pytest.mark.parametrize(
    ("options", "windows"),
    [
        ({}, 3),
        ({"given_out": True}, 2),  # the caller gets a copy as eager's, and the kernel reads that
        ({"other_order": True}, 0),  # the result would lie in memory in another order
        ({"depth": 6}, 0),  # 24 bytes from head to head
    ],
)
def test_attention_reads_the_parts_of_a_product_where_they_lie(options, windows):
    graph = self_attention(**{"length": 17, "batch": 2, "heads": 4, "depth": 16, **options})
    source = compile_graph(graph, InductorOptions()).host_source
    function = re.search(r"(\w+) = torch.ops.aten._scaled_dot_product", source)[1]
    call = next(line for line in source.splitlines() if "as_strided((2, 4, 17" in line or f" = {function}(" in line)
    step = 3 * 4 * options.get("depth", 16)
    assert call.count(f"({step}, ") == windows
    inputs = [torch.randn(34, 8), torch.randn(8, step)]
    check(None, *inputs, graph=graph)


@pytest.mark.parametrize(("offset", "copies"), [(0, 0), (1, 3)])
def test_attention_reads_an_input_where_its_rows_start_aligned(offset, copies):
    """Eager's part is a copy, which begins where memory does."""

    def program(x):
        parts = [prims.permute(prims.select(x, 2, n), (1, 2, 0, 3)) for n in range(3)]
        for part in parts:
            part.node.meta["spec"] = TensorSpec(torch.float32, CPU, part.sizes, (64, 16, 128, 1))
        out, sums = (
            TensorSpec(torch.float32, CPU, (2, 4, 17, 16), (64, 16, 128, 1)),
            TensorSpec(torch.float32, CPU, (2, 4, 17), (68, 1, 4)),
        )
        return overload(FLASH_ON_CPU, tuple(parts), out, sums)

    sizes = (17, 2, 3, 4, 16)
    x = torch.randn(offset + 6528)[offset:].view(sizes)
    graph = build(program, [x], [TensorSpec(torch.float32, CPU, sizes, offset=offset)])
    source = check(None, x, graph=graph).host_source
    assert source.count("empty_cpu((2, 4, 17, 16") == copies


SEVERAL = {
    "var_mean": "(f32[4]; f32[4]) = var_mean(%x, (0,), 1, False)",
    "sort": "(f32[3, 4]; i64[3, 4]) = sort(%x, 1, False, False)",
}


@pytest.mark.parametrize("call", SEVERAL.values(), ids=SEVERAL)
def test_a_result_of_several_values_is_refused(call):
    graph = parse_graph(f"inference graph\n%x: f32[3, 4] = input\n%pair: {call}\nreturn %pair\n")
    with pytest.raises(InductorError, match=r"%pair, which is 2 values"):
        lower(graph, InductorOptions())


def turned(x):
    return prims.permute(x, (1, 0))


def gate(x, y):
    """Of two matrices in a half type, as much arithmetic as is computed again rather than read."""
    return prims.convert(prims.mul(prims.convert(x, torch.float32), prims.sigmoid(prims.convert(y, torch.float32))), x.dtype)


SHARED = {
    "a matrix and its transpose": lambda g, x, w: (prims.mm(g, turned(w)), prims.mm(turned(g), x)),
    "through a reshape": lambda g, x, w: (
        prims.mm(g, turned(w)),
        prims.bmm(prims.reshape(g, (4, 8, 16)), prims.reshape(w, (4, 16, 8))),
    ),
    "a matrix that is added, too": lambda g, x, w: (prims.addmm(g, g, prims.mm(turned(x), w), 1, 1),),
}


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_several_products_read_is_computed_once(name, dtype):
    def program(x, y, w):
        return SHARED[name](gate(x, y), x, w)

    given = [torch.randn(32, 16, dtype=dtype) for _ in range(3)]
    check(program, *given, rtol=5e-2, atol=2e-1)
    specs = [TensorSpec(dtype, CUDA, tuple(x.shape)) for x in given]
    lowered = lower(build(program, [None] * 3, specs), InductorOptions())
    assert len([n for n in lowered.nodes if isinstance(n, LoopNode)]) == 1


@pytest.mark.parametrize("lots", [(), (1,)], ids=["matrix", "batch of one"])
def test_a_transposed_operand_has_the_loops_of_what_it_rearranges(lots):
    """So that it is one kernel with its neighbours."""

    def program(x, y, w):
        wide = prims.reshape(gate(x, y), (*lots, 256, 128))
        order = (*range(len(lots)), len(lots) + 1, len(lots))
        return prims.add(x, y), (prims.bmm if lots else prims.mm)(prims.permute(wide, order), w)

    specs = [TensorSpec(torch.bfloat16, CUDA, sizes) for sizes in ((4, 64, 128), (4, 64, 128), (*lots, 256, 96))]
    assert len(compile_graph(build(program, [None] * 3, specs), InductorOptions()).kernels) == 1


@pytest.mark.parametrize("inside", [False, True], ids=["heads", "heads inside"])
def test_heads_that_are_only_repeated_for_attention_are_not_copied(inside):
    """Keys and values of two heads each for four of queries."""

    def program(q, k, v):
        def repeated(x):
            wide = prims.expand(prims.unsqueeze(x, 2), (2, 2, 2, 30, 16))
            return prims.reshape(wide, (2, 4, 30, 16))

        out = TensorSpec(torch.float32, CPU, (2, 4, 20, 16), (1280, 16, 64, 1))
        rows = TensorSpec(torch.float32, CPU, (2, 4, 20), (80, 1, 4))
        target = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
        return overload(target, (q, repeated(k), repeated(v)), out, rows)

    sizes = [(2, 4, 20, 16), (2, 2, 30, 16), (2, 2, 30, 16)]
    given = [torch.randn(b, n, h, w).transpose(1, 2) if inside else torch.randn(b, h, n, w) for b, h, n, w in sizes]
    check(program, *given)
    assert not [n for n in lower(build(program, given), InductorOptions()).nodes if isinstance(n, LoopNode)]


def test_what_is_repeated_for_an_operand_stays_apart():
    """A broadcast has other elements than what it is taken of."""

    def program(x, w):
        row = prims.neg(x)
        wide = prims.expand(prims.unsqueeze(row, 0), (32, 16))
        return prims.mm(wide, w), prims.mm(turned(wide), prims.reshape(wide, (32, 16)))

    check(program, torch.randn(16), torch.randn(16, 8), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_widened_for_several_readers_lies_in_memory_as_it_was(dtype):
    """The gradient of a residual connection that two batch norms read in float32."""

    def program(x, y, z, w):
        total = prims.where(prims.gt(x, 0.0), prims.add(prims.add(y, z), w), 0.0)
        wide = prims.convert(total, torch.float64 if dtype == torch.float32 else torch.float32)
        return prims.sum(wide, (0,), False), prims.sum(prims.mul(wide, wide), (1,), False), prims.exp(prims.neg(wide))

    given = [torch.randn(64, 48, dtype=dtype) for _ in range(4)]
    terms = 4 * 64**0.5  # of the longest sum, each rounded at another place
    check(program, *given, rtol=4 * torch.finfo(dtype).eps, atol=terms * torch.finfo(dtype).eps)
    lowered = lower(build(program, [None] * 4, [TensorSpec(dtype, CUDA, tuple(x.shape)) for x in given]), InductorOptions())
    first = lowered.buffers[min(n for n in lowered.nodes[0].writes)]
    assert (first.layout.sizes, first.layout.dtype) == ((64, 48), dtype)

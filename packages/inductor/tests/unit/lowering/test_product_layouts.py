"""Values that products read through permutations are written in the products' order; what lies well is not copied for them."""

import pytest
import torch
from prim_programs import build, check
from tracework_inductor import InductorOptions, compile_graph
from tracework_inductor.lowering.product_layouts import product_layouts
from tracework_primops import SymbolTable, TensorSpec, prims
from tracework_runtime.host.lines import Launch

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
LENGTH, BATCH, WIDTH = 17, 8, 64


def launches(artifact):
    return sum(isinstance(line, Launch) for line in artifact.host_lines)


def joined(q, k, v):
    """(3, length, batch, width), and what a projection reads of it: (length * batch, 3 * width)."""
    parts = prims.cat(tuple(prims.unsqueeze(x, 0) for x in (q, k, v)), 0)
    rows = prims.clone(prims.permute(parts, (1, 2, 0, 3)))
    return parts, prims.reshape(rows, (q.sizes[0] * q.sizes[1], 3 * q.sizes[2]))


def projection_gradients(q, k, v, w, x):
    parts, rows = joined(q, k, v)
    return prims.mm(rows, w), prims.mm(prims.permute(rows, (1, 0)), x), prims.sum(parts, (1, 2), False, None)


def another_order(q, k, v, w, x):
    parts, rows = joined(q, k, v)
    flat = prims.reshape(parts, (3 * q.sizes[0] * q.sizes[1], q.sizes[2]))
    return prims.mm(rows, w), prims.mm(flat, prims.permute(x, (1, 0)))


def returned(q, k, v, w, x):
    parts, rows = joined(q, k, v)
    return prims.mm(rows, w), parts


def copied_and_returned(q, k, v, w, x):
    parts, rows = joined(q, k, v)
    return prims.mm(rows, w), rows


def cut(q, k, v, w, x):
    parts, rows = joined(q, k, v)
    return prims.mm(rows, w), prims.mm(prims.slice(rows, 0, 0, 8, 1), w)


SHAPES = ((LENGTH, BATCH, WIDTH),) * 3 + ((3 * WIDTH, WIDTH), (LENGTH * BATCH, WIDTH))
IN_ORDER = (WIDTH, BATCH * 3 * WIDTH, 3 * WIDTH, 1)


def graph_of(program, shapes=SHAPES, dtype=torch.bfloat16, device=CUDA):
    return build(program, [None] * len(shapes), [TensorSpec(dtype, device, s) for s in shapes])


@pytest.mark.parametrize(
    ("program", "layouts"),
    [
        (projection_gradients, [IN_ORDER]),
        (copied_and_returned, [IN_ORDER]),
        (another_order, []),
        (returned, []),  # the caller gets it in eager's layout
        (cut, []),
    ],
    ids=lambda p: getattr(p, "__name__", ""),
)
def test_decision(program, layouts):
    assert list(product_layouts(graph_of(program).graph).values()) == layouts


def test_open_sizes():
    length = SymbolTable().new(LENGTH, "length", 2, None)
    shapes = ((length, BATCH, WIDTH),) * 3 + ((3 * WIDTH, WIDTH), (length * BATCH, WIDTH))
    assert list(product_layouts(graph_of(projection_gradients, shapes).graph).values()) == [IN_ORDER]


def test_one_kernel_writes_what_two_products_and_a_sum_read():
    artifact = compile_graph(graph_of(projection_gradients))
    source = artifact.host_source.split("def call")[1]
    assert launches(artifact) == 2 and source.count(f"empty_cuda((3, {LENGTH}, {BATCH}, {WIDTH}, )") == 1


@pytest.mark.parametrize(
    "program", [projection_gradients, copied_and_returned, another_order, returned, cut], ids=lambda p: p.__name__
)
def test_values_and_layouts(program):
    inputs = [torch.randn(s, dtype=torch.float64) for s in SHAPES]
    check(program, *inputs)


def test_a_strict_graph_keeps_the_operands_of_its_products():
    window = f"({WIDTH}, {BATCH * 3 * WIDTH}, {3 * WIDTH}, 1, )"
    graph = graph_of(projection_gradients)
    assert window in compile_graph(graph).host_source
    assert window not in compile_graph(graph, InductorOptions(numerics="strict")).host_source


def normalised(x, w, scale, shift):
    """Rows that are normalised in one order and multiplied in another."""
    mean = prims.mul(prims.sum(x, (2,), True, None), 1 / WIDTH)
    centred = prims.sub(x, mean)
    variance = prims.mul(prims.sum(prims.mul(centred, centred), (2,), True, None), 1 / WIDTH)
    y = prims.add(prims.mul(prims.mul(centred, prims.rsqrt(prims.add(variance, 1e-5))), scale), shift)
    turned = prims.reshape(prims.clone(prims.permute(y, (1, 0, 2))), (x.sizes[0] * x.sizes[1], WIDTH))
    return (prims.mm(turned, w),)


def test_rows_are_written_in_the_products_order_by_the_kernel_that_makes_them():
    shapes = ((BATCH, LENGTH, WIDTH), (WIDTH, WIDTH), (WIDTH,), (WIDTH,))
    assert launches(compile_graph(graph_of(normalised, shapes))) == 1
    check(normalised, *(torch.randn(s, dtype=torch.float64) for s in shapes))


def saved_for_the_backward(x, bias):
    """What leaves the graph is what attention reads parts of: (3, length, batch, width)."""
    made = prims.add(x, bias)
    return made, prims.bmm(prims.select(made, 0, 0), prims.permute(prims.select(made, 0, 1), (0, 2, 1)))


def test_library_calls_read_parts_of_a_result_where_it_lies():
    shapes = ((3, LENGTH, BATCH, WIDTH), (WIDTH,))
    artifact = compile_graph(graph_of(saved_for_the_backward, shapes))
    source = artifact.host_source.split("def call")[1]
    assert launches(artifact) == 1 and source.count("empty_cuda") == 2
    check(saved_for_the_backward, *(torch.randn(s, dtype=torch.float64) for s in shapes))

"""Writes to parts of a value that ends in an input: made there, with eager's values in every order of reads and writes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import pytest
import torch
import tracework_runtime as runtime
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from prim_programs import build, copied, overload  # noqa: E402
from tracework_inductor import InductorOptions, compile_graph, lower, plan_graph  # noqa: E402
from tracework_inductor.ir.index import symbol  # noqa: E402
from tracework_primops import TensorSpec, prims  # noqa: E402
from tracework_primops.spec import SizeSpec  # noqa: E402
from tracework_runtime.build import triton as build_triton  # noqa: E402
from triton_programs import rendered  # noqa: E402

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
DEVICES = pytest.mark.parametrize("device", [CPU, CUDA], ids=str)
ROWS, NEW = 12, 3


def row(cache, at, new):
    """A cache's new row, and what is computed with it."""
    written = prims.index_copy(cache, 1, at, new, False)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def before(cache, at, new):
    """The old value is read before, and kept."""
    total = prims.mul(cache, 2.0)
    written = prims.index_copy(cache, 1, at, new, False)
    return prims.copy_into(cache, written), prims.add(total, written)


def after(cache, at, new):
    """The old value is read after the new one is there."""
    written = prims.index_copy(cache, 1, at, new, False)
    total = prims.add(prims.sum(written, (1,), False), prims.select(cache, 1, 0))
    return prims.copy_into(cache, written), total


def viewed(cache, at, new):
    """A view made before is read after."""
    view = prims.slice(cache, 1, 0, 4, 1)
    written = prims.index_copy(cache, 1, at, new, False)
    total = prims.sum(prims.mul(prims.slice(written, 1, 0, 4, 1), view), (1,), False)
    return prims.copy_into(cache, written), total


def itself(cache, at, new):
    """Rows of the cache become other rows of it."""
    source = prims.add(prims.slice(cache, 1, 2, 2 + NEW, 1), new)
    written = prims.index_copy(cache, 1, at, source, False)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def twice(cache, at, new):
    """Two writes, one after the other, the first one read in between."""
    first = prims.index_copy(cache, 1, at, new, False)
    total = prims.sum(first, (1,), False)
    second = prims.index_copy(first, 1, at, prims.mul(new, 3.0), False)
    return prims.copy_into(cache, second), prims.add(total, prims.select(second, 1, 1))


def between(cache, at, new):
    """The value between two writes is read after the second."""
    first = prims.index_copy(cache, 1, at, new, False)
    second = prims.index_copy(first, 1, at, prims.mul(new, 3.0), False)
    return prims.copy_into(cache, second), prims.add(first, second)


def given_out(cache, at, new):
    """The new value is a result as well, in memory of its own."""
    written = prims.index_copy(cache, 1, at, new, False)
    return prims.copy_into(cache, written), written


def changed(cache, at, new):
    """What the input becomes is computed of what was written."""
    written = prims.index_copy(cache, 1, at, new, False)
    return prims.copy_into(cache, prims.add(written, 1.0)), prims.sum(written, (1,), False)


def put(cache, at, new):
    """By index_put."""
    written = prims.index_put(cache, (None, at), new, False)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def added(cache, at, new):
    """By index_add."""
    written = prims.index_add(cache, 1, at, new)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def library_after(cache, at, new):
    """What may raise comes after the write."""
    written = prims.index_copy(cache, 1, at, new, False)
    total = prims.sum(written, (1,), False)
    angle = overload(torch.ops.aten.logcumsumexp.default, (total, 0), total.spec)
    return prims.copy_into(cache, written), angle


def library_after_parts(cache, at, new):
    """What may raise comes after several writes to parts, each of which is read."""
    first = prims.index_copy(prims.select(cache, 0, 1), 0, at, prims.select(new, 0, 0), False)
    value = prims.select_scatter(cache, first, 0, 1)
    total = prims.sum(value, (1,), False)
    value = prims.slice_scatter(value, prims.mul(prims.slice(value, 1, 2, 2 + NEW), new), 1, 4, 4 + NEW)
    value = prims.as_strided_scatter(value, prims.select(prims.select(new, 0, 0), 0, 0), (4,), (5,), 3)
    angle = overload(torch.ops.aten.logcumsumexp.default, (prims.sum(value, (1,), False), 0), total.spec)
    return prims.copy_into(cache, value), angle, total


def part_by_library(cache, at, new):
    """A part is written in place, read, and then written by a library call, which gives a copy of it."""
    part = prims.index_copy(prims.select(cache, 0, 1), 0, at, prims.select(new, 0, 0), False)
    total, row = prims.mul(part, 3.0), prims.expand(prims.reshape(at, (NEW, 1)), (NEW, 4))
    part = prims.scatter_reduce(part, 0, row, prims.select(new, 0, 1), "amax")
    written = prims.select_scatter(cache, part, 0, 1)
    return prims.copy_into(cache, written), total, prims.sum(written, (1,), False)


def library_beside(cache, at, new):
    """What may raise comes after the write, and can as well come before."""
    written = prims.index_copy(cache, 1, at, new, False)
    total = prims.sum(new, (1,), False)
    angle = overload(torch.ops.aten.logcumsumexp.default, (total, 0), total.spec)
    return prims.copy_into(cache, written), angle, prims.sum(written, (1,), False)


def sliced(cache, at, new):
    """A slice."""
    written = prims.slice_scatter(cache, new, 1, 4, 4 + NEW)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def strode(cache, at, new):
    """Each third row."""
    written = prims.slice_scatter(cache, prims.mul(new, 2.0), 1, 2, 2 + 3 * NEW, 3)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def selected(cache, at, new):
    """A row."""
    written = prims.select_scatter(cache, prims.select(new, 1, 2), 1, 5)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def diagonal(cache, at, new):
    """A diagonal below the first."""
    written = prims.diagonal_scatter(cache, prims.slice(prims.permute(prims.select(new, 0, 0), (1, 0)), 1, 0, 2), -2, 1, 0)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def part_of_part(cache, at, new):
    """`cache[1].index_copy_(...)`, and then a slice of a slice of it."""
    first = prims.index_copy(prims.select(cache, 0, 1), 0, at, prims.select(new, 0, 0), False)
    cache1 = prims.select_scatter(cache, first, 0, 1)
    total = prims.sum(first, (0,), False)
    inner = prims.slice(cache1, 0, 0, 1)
    inner = prims.slice_scatter(inner, prims.slice(new, 0, 1, 2), 1, 8, 8 + NEW)
    cache2 = prims.slice_scatter(cache1, inner, 0, 0, 1)
    return prims.copy_into(cache, cache2), prims.sum(cache2, (1,), False), total


def part_read_after(cache, at, new):
    """What a part was is read after the next write to it."""
    first = prims.index_copy(prims.select(cache, 0, 1), 0, at, prims.select(new, 0, 0), False)
    cache1 = prims.select_scatter(cache, first, 0, 1)
    cache2 = prims.slice_scatter(cache1, new, 1, 4, 4 + NEW)
    return prims.copy_into(cache, cache2), prims.add(first, prims.select(cache2, 0, 0))


def other_part(cache, at, new):
    """What is put back elsewhere is no part that was written there: that part is copied."""
    first = prims.index_copy(prims.select(cache, 0, 1), 0, at, prims.select(new, 0, 0), False)
    return prims.copy_into(cache, prims.select_scatter(cache, first, 0, 0)), prims.sum(first, (0,), False)


def part_moved(cache, at, new):
    """Rows of the cache become other rows, side by side."""
    written = prims.slice_scatter(cache, prims.slice(cache, 1, 1, ROWS), 1, 0, ROWS - 1)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def kept_before_part_of_itself(cache, at, new):
    """A part is written, the next one is made of itself: what is computed between the two is of the value between them."""
    first = prims.slice_scatter(cache, new, 1, 4, 4 + NEW)
    total = prims.mul(prims.slice(first, 1, 2, 8), 3.0)
    second = prims.select_scatter(first, prims.mul(prims.select(first, 1, 5), 2.0), 1, 5)
    return prims.copy_into(cache, second), total


def turned_part_of_itself(cache, at, new):
    """After a part that is written in place, a part is added to itself in another order."""
    first = prims.slice_scatter(cache, new, 1, 4, 4 + NEW)
    part = prims.select(first, 0, 1)
    turned = prims.permute(prims.mul(prims.reshape(part, (4, ROWS)), 2.0), (1, 0))
    return prims.copy_into(cache, prims.select_scatter(first, prims.add(part, turned), 0, 1)), prims.mul(new, 2.0)


def part_of_a_row(cache, at, new):
    """A part of all elements in a row, as inputs that share memory are."""
    elements = prims.reshape(cache, (8 * ROWS,))
    layer = prims.reshape(prims.slice(elements, 0, 4 * ROWS, 8 * ROWS), (1, ROWS, 4))
    layer = prims.index_copy(layer, 1, at, prims.slice(new, 0, 1, 2), False)
    elements = prims.slice_scatter(elements, prims.reshape(layer, (4 * ROWS,)), 0, 4 * ROWS, 8 * ROWS)
    written = prims.reshape(elements, SIZES[0])
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def part_by_strides(cache, at, new):
    """Two columns, whose rows lie four elements from each other, and then two others."""
    value = cache
    for begin in (2, 0):
        place = (2, ROWS, 2), (4 * ROWS, 4, 1), begin
        part = prims.index_copy(prims.as_strided(value, *place), 1, at, prims.slice(new, 2, 0, 2), False)
        value = prims.as_strided_scatter(value, part, *place)
    value = prims.as_strided_scatter(value, prims.select(prims.select(new, 0, 0), 0, 0), (4,), (5,), 3)
    return prims.copy_into(cache, value), prims.sum(value, (1,), False)


def turned_part(cache, at, new):
    """A part with its axes in another order, which becomes the part again."""
    part = prims.permute(prims.select(cache, 0, 1), (1, 0))
    part = prims.index_copy(part, 1, at, prims.permute(prims.select(new, 0, 0), (1, 0)), False)
    written = prims.select_scatter(cache, prims.permute(part, (1, 0)), 0, 1)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def part_turned_over(cache, at, new):
    """A part with its elements in another order, which become the part in that order."""
    part = prims.permute(prims.reshape(prims.select(cache, 0, 1), (4, ROWS)), (1, 0))
    part = prims.index_copy(part, 0, at, prims.select(new, 0, 0), False)
    written = prims.select_scatter(cache, part, 0, 1)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def part_of_what_was_written(cache, at, new):
    """Of what is written to the whole, only a part is kept."""
    part = prims.slice(prims.index_copy(cache, 1, at, new, False), 1, 0, 5)
    written = prims.slice_scatter(cache, part, 1, 0, 5)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def moved_by_strides(cache, at, new):
    """Elements of the cache become others, which lie among them."""
    written = prims.as_strided_scatter(cache, prims.as_strided(cache, (3, 4), (8, 1), 0), (3, 4), (8, 1), 4)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


IN_PLACE = {row: True, before: True, after: False, viewed: False, itself: True, twice: True, between: False, given_out: True}
IN_PLACE |= {
    changed: False,
    put: True,
    added: True,
    library_after: False,
    library_after_parts: True,
    part_by_library: True,
    library_beside: True,
}
IN_PLACE |= {sliced: True, strode: True, selected: True, diagonal: True, part_of_part: True}
IN_PLACE |= {
    part_read_after: False,
    other_part: True,
    part_moved: True,
    kept_before_part_of_itself: True,
    turned_part_of_itself: True,
}
IN_PLACE |= {part_of_a_row: True, part_by_strides: True, turned_part: True, part_turned_over: True, moved_by_strides: True}
IN_PLACE |= {part_of_what_was_written: True}
SIZES = (2, ROWS, 4), (NEW,), (2, NEW, 4)
DTYPES = torch.float32, torch.int64, torch.float32


def specs(device, dtypes=DTYPES):
    return [TensorSpec(dtype, device, sizes) for dtype, sizes in zip(dtypes, SIZES, strict=True)]


def inputs():
    torch.manual_seed(0)
    return torch.randn(SIZES[0]), torch.tensor([1, 7, 4]), torch.randn(SIZES[2])


def large(program, device, elements, options=None):
    """Buffers of at least so many elements that the graph of a program makes."""
    lowered = lower(build(program, [None] * 3, specs(device)), options or InductorOptions())
    return [b for b in lowered.buffers.values() if b.kind in ("computed", "extern") and b.layout.numel() >= elements]


def copies(program, device, options=None):
    """Buffers like the cache."""
    return [b for b in large(program, device, 8 * ROWS, options) if b.layout.sizes == SIZES[0]]


def run_on_cpu(graph, given):
    return runtime.load(compile_graph(graph, InductorOptions()))(list(given))


def run_on_gpu(graph, given, folder):
    """By the interpreter."""
    host, kernels = rendered(graph)
    return triton_interpreter.host_call(host, kernels, folder)(list(given))


LIBRARY = part_by_library, library_after, library_after_parts, library_beside
"""The results of library calls are looked at, and those of the interpreter do not come from a GPU."""


def checked(program, device, folder):
    """The inputs after a run on the device and its results, which are the prims' own."""
    expected_inputs, given = inputs(), inputs()
    expected = build(program, [None] * 3, specs(CPU)).run(*expected_inputs)
    graph = build(program, [None] * 3, specs(device))
    value = run_on_cpu(graph, given) if device == CPU else run_on_gpu(graph, given, folder)
    for a, e in zip((*given, *value), (*expected_inputs, *expected), strict=True):
        torch.testing.assert_close(a, e)
    return given, value


@pytest.mark.parametrize(
    ("program", "device"),
    [(p, d) for p in IN_PLACE for d in (CPU, CUDA) if d == CPU or p not in LIBRARY],
    ids=lambda x: str(getattr(x, "__name__", x)),
)
def test_values(program, device, tmp_path):
    given, value = checked(program, device, tmp_path)
    assert value[1].data_ptr() != given[0].data_ptr()


@DEVICES
@pytest.mark.parametrize("program", IN_PLACE, ids=lambda p: p.__name__)
def test_copies_of_the_whole(program, device):
    """None where the write is made in place, but for what is given out."""
    own = {before: 2, given_out: 1, library_after_parts: 1, part_by_library: 1, part_of_what_was_written: 1}.get(program, 0)
    assert (len(copies(program, device)) == own) == IN_PLACE[program]


@DEVICES
@pytest.mark.parametrize("program", [part_of_part, part_of_a_row, part_by_strides, turned_part], ids=lambda p: p.__name__)
def test_writes_to_a_part_copy_no_part(program, device):
    assert not large(program, device, 2 * ROWS)


def test_a_part_at_an_open_position_of_an_open_size():
    """`cache[:, p:p+n] = new` and `cache[:, p]` for numbers p and n that change."""
    p, n = symbol("s0", 0, None), symbol("s1", 2, None)

    def program(cache, new, p, n):
        written = prims.slice_scatter(cache, new, 1, p, p + n)
        written = prims.select_scatter(written, prims.select(new, 1, 0), 1, p + n)
        return prims.copy_into(cache, written), prims.sum(written, (1,), False)

    def size(expr):
        return SizeSpec(expr)

    graph = build(
        program, [None] * 4, [*(TensorSpec(torch.float32, CPU, s) for s in ((2, ROWS, 4), (2, n, 4))), size(p), size(n)]
    )
    lowered = lower(graph, InductorOptions())
    assert not [b for b in lowered.buffers.values() if b.kind == "computed" and b.layout.numel() == 2 * ROWS * 4]
    run = runtime.load(compile_graph(graph, InductorOptions()))
    for at, count in ((0, 2), (3, 5), (9, 2)):
        cache, new = torch.randn(2, ROWS, 4), torch.randn(2, count, 4)
        expected = cache.clone()
        expected[:, at : at + count], expected[:, at + count] = new, new[:, 0]
        _, total = run([cache, new, at, count])
        assert torch.equal(cache, expected)
        torch.testing.assert_close(total, expected.sum(1))


@pytest.mark.parametrize("bad", [0, 1])
def test_an_index_out_of_range_leaves_the_caches_as_they_were(bad):
    """On a CPU, whichever of two writes is refused."""

    def program(keys, values, at, other, new):
        made = [prims.index_copy(cache, 1, i, new, False) for cache, i in ((keys, at), (values, other))]
        sums = [prims.sum(cache, (1,), False) for cache in made]
        return prims.copy_into(keys, made[0]), prims.copy_into(values, made[1]), *sums

    cache, at, new = specs(CPU)
    graph = build(program, [None] * 5, [cache, cache, at, at, new])
    assert not [
        b for b in lower(graph, InductorOptions()).buffers.values() if b.kind == "computed" and b.layout.sizes == SIZES[0]
    ]
    run = runtime.load(compile_graph(graph, InductorOptions()))
    positions = [torch.tensor([1, 7, 4]), torch.tensor([0, 2, 3])]
    positions[bad][1] = ROWS
    caches = [torch.randn(SIZES[0]) for _ in range(2)]
    before = [c.clone() for c in caches]
    with pytest.raises(IndexError):
        run([*caches, *positions, torch.randn(SIZES[2])])
    assert all(torch.equal(a, b) for a, b in zip(caches, before, strict=True))


WINDOWS = [("slice", (1, 2, 2 + NEW, 1)), ("slice", (1, 0, NEW, 1)), ("slice", (0, 1, 2, 1)), ("slice", (2, 0, 4, 2))]
WINDOWS += [("select", (0, 1)), ("select", (1, 3)), ("diagonal", (0, 1, 2)), ("turned", ()), ("flat", ())]
STEPS = st.recursive(
    st.sampled_from(["fill", "rows", "double"]), lambda inner: st.tuples(st.sampled_from(WINDOWS), inner), max_leaves=3
)


def after_step(value, step, number):
    """A value with a part written: by a window and a step there, or as a whole by one of three operators."""
    if isinstance(step, tuple):
        (name, place), inner = step
        if name == "turned":
            order = tuple(range(value.ndim))[::-1]
            return prims.permute(after_step(prims.permute(value, order), inner, number), order)
        if name == "flat":
            return prims.reshape(after_step(prims.reshape(value, (value.numel(),)), inner, number), value.sizes)
        last = place[1] + 1 if name == "select" else place[2]
        if place[0] >= value.ndim or name == "diagonal" and value.ndim < 3 or last > value.sizes[place[0]]:
            return after_step(value, inner, number)
        part = after_step(getattr(prims, name)(value, *place), inner, number)
        return getattr(prims, f"{name}_scatter")(value, part, *place)
    if step == "double" or not value.ndim:
        return prims.mul(value, 2.0)
    row = prims.full(value.sizes[1:], float(number), torch.float32, value.device)
    if step == "fill":
        return prims.select_scatter(value, row, 0, 0)
    at = prims.full((1,), value.sizes[0] - 1, torch.int64, value.device)
    return prims.index_copy(value, 0, at, prims.unsqueeze(row, 0), False)


LOOKS = st.none() | st.tuples(st.sampled_from(["new", "old", "first part"]), st.booleans())
"""What is read after a step, and whether a loop over elements reads it, which may be put off, or a sum."""


@drawn(st.lists(st.tuples(STEPS, LOOKS), min_size=1, max_size=4), st.booleans())
@settings(max_examples=12, deadline=None, derandomize=True)
def test_random_writes(steps, may_raise):
    def program(cache, at, new):
        value, read, part = cache, [], prims.slice(cache, 1, 1, 5)
        for number, (step, look) in enumerate(steps):
            old, value = value, after_step(value, step, number)
            if look is not None:
                seen, kept = {"new": value, "old": old, "first part": part}[look[0]], look[1]
                read.append(prims.mul(seen, 3.0) if kept else prims.sum(seen, (1,), False))
        if may_raise:
            total = prims.sum(value, (1,), False)
            read.append(overload(torch.ops.aten.logcumsumexp.default, (total, 0), total.spec))
        return prims.copy_into(cache, value), *read

    expected_inputs, given = inputs(), inputs()
    graph = build(program, [None] * 3, specs(CPU))
    expected, value = graph.run(*expected_inputs), run_on_cpu(graph, [copied(t) for t in given])
    for a, e in zip(value, expected, strict=True):
        torch.testing.assert_close(a, e)


def test_the_librarys_attention_refuses_no_data():
    """A prompt's rows are written in place as well."""

    def program(cache, at, new):
        written = prims.index_copy(cache, 1, at, new, False)
        x = prims.unsqueeze(written, 1)
        rows, seed = TensorSpec(torch.float32, CUDA, (2, 1, ROWS)), TensorSpec(torch.int64, CUDA, ())
        call = torch.ops.aten._scaled_dot_product_efficient_attention.default
        found = overload(call, (x, x, x, None, False), x.spec, rows, seed, seed)
        return prims.copy_into(cache, written), found

    assert not copies(program, CUDA)


def test_deterministic_algorithms_keep_to_the_library():
    """On a GPU, where a position is computed."""
    assert copies(row, CUDA, InductorOptions(deterministic=True)) and not copies(row, CPU, InductorOptions(deterministic=True))
    assert not copies(sliced, CUDA, InductorOptions(deterministic=True))


def test_rows_of_two_caches_at_a_computed_position_are_one_launch():
    def program(keys, values, at, new):
        at = prims.add(at, 1)
        made = [prims.index_copy(cache, 1, at, prims.mul(new, n), False) for n, cache in ((2.0, keys), (3.0, values))]
        return prims.copy_into(keys, made[0]), prims.copy_into(values, made[1])

    first, *rest = specs(CUDA)
    plan = plan_graph(build(program, [None] * 4, [first, first, *rest]), InductorOptions())
    assert [len(kernel.parts) for kernel in plan.kernels] == [2]


def rolled(cache, at, new):
    """All rows move by one, and the last one is new, as in a sliding window that is full."""
    moved = prims.roll(cache, (-1,), (1,))
    written = prims.index_put(moved, (None, prims.slice(at, 0, 0, 1)), prims.slice(new, 1, 0, 1), False)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def rolled_alone(cache, at, new):
    """By two, and what was there before is read before."""
    total = prims.sum(cache, (2,), False)
    return prims.copy_into(cache, prims.roll(cache, (-2,), (-2,))), total


def rolled_and_read(cache, at, new):
    """What was there before is read after."""
    moved = prims.roll(cache, (-1,), (1,))
    written = prims.slice_scatter(moved, new, 1, 4, 4 + NEW)
    total = prims.add(prims.sum(written, (1,), False), prims.select(cache, 1, 0))
    return prims.copy_into(cache, written), total


def rolled_later(cache, at, new):
    """What is rolled is no longer the input."""
    first = prims.slice_scatter(cache, new, 1, 4, 4 + NEW)
    return prims.copy_into(cache, prims.roll(first, (-1,), (1,))), prims.mul(new, 2.0)


def rolled_in_two(cache, at, new):
    return prims.copy_into(cache, prims.roll(cache, (-1, 1), (1, 2))), prims.mul(new, 2.0)


ROLLED = {rolled: True, rolled_alone: True, rolled_and_read: False, rolled_later: False, rolled_in_two: False}
LARGE_BLOCKS = 3, 1500, 4


@pytest.fixture
def rolled_anyway(monkeypatch):
    """However little it is."""
    from tracework_inductor.ir import cores

    monkeypatch.setattr(cores, "LEAST_ROTATED", 0)


@DEVICES
@pytest.mark.parametrize("program", ROLLED, ids=lambda p: p.__name__)
def test_rolls(program, device, rolled_anyway, tmp_path):
    assert (not copies(program, device)) == ROLLED[program]
    checked(program, device, tmp_path)


def test_a_bad_index_leaves_what_is_rolled_as_it_was():
    given = inputs()
    given[1][0] = ROWS
    before = given[0].clone()
    with pytest.raises(IndexError):
        run_on_cpu(build(rolled, [None] * 3, specs(CPU)), given)
    assert torch.equal(given[0], before)


@DEVICES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8], ids=str)
@pytest.mark.parametrize(
    ("sizes", "dim", "shift"),
    [
        *((LARGE_BLOCKS, 1, s) for s in (-1, -7, -255)),  # a tile's begin, and more than the last tile has
        ((3, 1025, 4), 1, -3),  # the last tile has one row
        ((1, 1024, 4), 1, -1),
        ((2, 3, 2048), 2, -5),
        ((9000,), 0, -1),
        ((5, 1, 7), 1, -1),
        ((2, 4, 3, 5), 1, 3),
    ],
    ids=str,
)
def test_rotations(sizes, dim, shift, dtype, device, rolled_anyway, tmp_path):
    def program(x):
        return prims.copy_into(x, prims.roll(x, (shift,), (dim,)))

    torch.manual_seed(0)
    x = (torch.randn(sizes) * 100).to(dtype)
    expected = x.roll(shift, dim)
    graph = build(program, [None], [TensorSpec(dtype, device, sizes)])
    assert not [b for b in lower(graph, InductorOptions()).buffers.values() if b.kind == "computed"] or sizes[dim] == 1
    run_on_cpu(graph, [x]) if device == CPU else run_on_gpu(graph, [x], tmp_path)
    assert torch.equal(x, expected)


def test_little_is_rolled_by_copies_on_a_gpu():
    """Two more launches take longer."""
    assert copies(rolled, CUDA) and not copies(rolled, CPU)


def test_rotations_compile_for_hopper(tmp_path):
    jobs = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool):
        graph = build(
            lambda x: prims.copy_into(x, prims.roll(x, (-1,), (1,))), [None], [TensorSpec(dtype, CUDA, (4, 1 << 15, 256))]
        )
        (kernel,) = compile_graph(graph).kernels
        jobs += [
            build_triton.request(kernel, entry, kernel.launch["configs"][0], build_triton.Variant(), 90)
            for entry in kernel.launch["entries"]
        ]
    assert len(build_triton.build_all(jobs, runtime.RuntimeOptions(), runtime.Store(tmp_path / "cache"))) == 10

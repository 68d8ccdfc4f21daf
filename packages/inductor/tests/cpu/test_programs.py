"""Reductions, views, indexing, scatters, writes to inputs and fused programs against EAGER."""

import pytest
import torch
import tracework_runtime as runtime
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prim_programs import build, check
from tracework_inductor import InductorOptions, compile_graph
from tracework_primops import SymbolTable, prims
from tracework_primops.spec import TensorSpec
from tracework_runtime.errors import IndexOutOfRange

p = prims
CPU = torch.device("cpu")


def data(*sizes: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 2), (0, 1), (0, 1, 2)], ids=str)
def test_reductions(dims: tuple[int, ...]) -> None:
    x = data(5, 33, 70, dtype=torch.float64)

    def program(v):
        m = p.mul(v, 0.1)
        variance, mean = p.var_mean(v, dims, 1, True)
        return (
            p.sum(v, dims), p.amax(v, dims, True), p.amin(v, dims), p.prod(m, dims), p.any(p.gt(v, 2.5), dims),
            p.all(p.gt(v, -2.5), dims), variance, mean, p.logsumexp(v, dims), p.norm(v, 2, dims), p.count_nonzero(v, dims),
            p.sum(p.convert(v, torch.int64), dims),
        )  # fmt: skip

    check(program, x, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_positions_and_scans(dim: int) -> None:
    x = torch.randint(-4, 4, (6, 17, 9)).float()
    x[1, 3, 2] = float("nan")
    check(lambda v: (p.argmax(v, dim), p.argmin(v, dim), p.amax(v, (dim,))), x)
    check(lambda v: (p.cumsum(v, dim), p.cumprod(v, dim)), data(6, 17, 9, dtype=torch.float64), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_scans_follow_the_elements_not_their_memory(order: tuple[int, ...]) -> None:
    x = data(6, 4, 9, dtype=torch.float64)
    check(lambda v: p.cumsum(p.reshape(p.permute(v, order), (216,)), 0), x, rtol=1e-9, atol=1e-9)
    check(lambda v: p.cumprod(p.reshape(p.permute(v, order), (12, 18)), 1), x, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32, torch.int64], ids=str)
def test_reductions_of_other_dtypes(dtype: torch.dtype) -> None:
    x = torch.randint(-9, 9, (12, 40)).to(dtype)
    check(lambda v: (p.sum(v, (1,)), p.amax(v, (0,)), p.amin(v, (1,)), p.argmax(v, 1), p.any(v, (0,))), x, rtol=1e-2, atol=1e-2)


def test_views() -> None:
    x = data(4, 6, 10)

    def program(v):
        e = p.exp(v)
        return (
            p.add(p.reshape(p.permute(e, (2, 0, 1)), (20, 12)), 1.0),
            p.mul(p.slice(e, 2, 1, 9, 3), 2.0),
            p.add(p.flip(e, (0, 2)), p.expand(p.select(e, 0, 2), (4, 6, 10))),
            p.neg(p.unfold(e, 2, 4, 2)),
            p.neg(p.diagonal(e, 1, 0, 1)),
            p.add(p.reshape(e, (3, 80)), 1.0),
            p.sum(p.reshape(e, (8, 30)), (1,)),
            p.add(p.squeeze(p.unsqueeze(e, 1), (1,)), 0.5),
            p.clone(p.permute(v, (2, 1, 0))),
            p.cat((e, v), 1),
            p.pad(e, ((1, 0), (0, 2), (-1, 3)), 0.5),
            p.roll(v, (2, -1), (0, 2)),
            p.tril(v, 1), p.triu(v, -1),
            p.slice_scatter(v, p.slice(e, 1, 0, 2), 1, 1, 5, 2),
            p.select_scatter(v, p.select(e, 1, 0), 1, 3),
        )  # fmt: skip

    check(program, x)


def test_indexing_and_scatters() -> None:
    x, i = data(9, 5, 4), torch.tensor([3, 0, 8, -1])
    j, n = torch.tensor([1, 4, 2, 0]), torch.randint(0, 9, (9, 5, 4))
    source = data(4, 5, 4, seed=2)

    def program(v, a, b, g, s):
        positive = p.where(p.lt(a, 0), p.add(a, 9), a)
        return (
            p.index(v, (a, b)), p.index(v, (None, b)), p.gather(v, 0, g), p.index_select(v, 0, positive),
            p.index_put(v, (a,), s, False), p.index_put(v, (positive,), s, True), p.scatter_add(v, 0, g, v),
            p.index_add(v, 0, positive, s, 2), p.scatter(v, 0, p.slice(g, 0, 0, 1), 3.0),
        )  # fmt: skip

    check(program, x, i, j, n, source)


def test_an_index_out_of_range_raises() -> None:
    def two(v, a, b):
        return p.index(v, (a,)), p.gather(v, 0, b)

    run = runtime.load(compile_graph(build(two, [data(4, 4), torch.tensor([0]), torch.zeros(4, 4, dtype=torch.int64)])))
    for bad in (-5, 4, 1 << 40):
        with pytest.raises(IndexOutOfRange):
            run([data(4, 4), torch.tensor([bad]), torch.zeros(4, 4, dtype=torch.int64)])
    for bad in (-1, 4):  # of a gather those from the end are out of range, too
        with pytest.raises(RuntimeError, match="index out of range in an operator"):
            run([data(4, 4), torch.tensor([-4]), torch.full((4, 4), bad)])


def test_an_index_into_memory_without_elements_raises() -> None:
    with pytest.raises(IndexError):
        check(lambda v, a: p.index(v, (a,)), data(0, 4096), torch.tensor([0, 0]))
    with pytest.raises(IndexError):
        check(lambda v, a, s: p.index_put(v, (a,), s, True), data(0, 4096), torch.tensor([0]), data(1, 4096))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize(
    "window",
    [((3, 3), (2, 2), (1, 1), (1, 1), False), ((2, 3), (2, 1), (0, 1), (1, 2), False), ((3, 3), (2, 2), (0, 0), (1, 1), True)],
    ids=str,
)
def test_max_pool_with_ties_infinities_and_nans(window, layout) -> None:
    x = torch.randint(-3, 3, (2, 5, 13, 16), generator=torch.Generator().manual_seed(0)).float()
    x[0, 0] = -torch.inf
    x[0, 1, 3:5, 3:6] = torch.nan
    artifact = check(lambda v: tuple(p.max_pool(v, *window)), x.to(memory_format=layout), rtol=0, atol=0)
    assert not artifact.notes["fallbacks"]


def test_max_pool_of_a_large_window_calls_the_library() -> None:
    artifact = check(lambda v: p.max_pool(v, (7, 7), (1, 1), (3, 3), (1, 1), False)[0], data(1, 2, 9, 9), rtol=0, atol=0)
    assert artifact.notes["fallbacks"][0][0] == "max_pool"


def test_library_calls_and_fallbacks() -> None:
    a, b, c = data(8, 16), data(16, 12), data(12)

    def program(x, y, z):
        h = p.relu(p.addmm(z, x, y))
        values, indices = p.topk(h, 3, 1, True, True)
        return p.mm(h, p.permute(h, (1, 0))), values, indices, p.add(values, 1.0)

    artifact = check(program, a, b, c)
    assert any(name == "topk" for name, _ in artifact.notes["fallbacks"])


def test_inputs_are_overwritten_after_they_are_read() -> None:
    import tracework_runtime as runtime
    from tracework_inductor import compile_graph

    def program(running, x):
        new = p.add(p.mul(running, 0.9), p.mul(p.sum(x, (0,)), 0.1))
        return p.copy_into(running, new), p.mul(running, 2.0)

    running, x = data(7), data(20, 7, seed=1)
    before = running.clone()
    fn = runtime.load(compile_graph(build(program, [running, x])))
    _, doubled = fn([running, x])
    torch.testing.assert_close(running, before * 0.9 + x.sum(0) * 0.1)
    torch.testing.assert_close(doubled, before * 2)


def test_a_copy_that_a_library_call_reads_where_the_original_lies_keeps_its_values() -> None:
    """The call is given a window on the input, and what is read after the input is overwritten is no such window."""
    import tracework_runtime as runtime
    from tracework_inductor import compile_graph

    def program(x, w):
        row = p.unsqueeze(p.clone(x), 0)
        product = p.mm(row, w)
        return product, p.copy_into(x, p.mul(x, 2.0)), row

    x, w = data(5), data(5, 6, seed=1)
    before = x.clone()
    product, _, row = runtime.load(compile_graph(build(program, [x, w])))([x, w])
    torch.testing.assert_close(product, before[None] @ w)
    torch.testing.assert_close(x, before * 2)
    torch.testing.assert_close(row, before[None])


def test_results_that_take_memory_over_are_no_views() -> None:
    import tracework_runtime as runtime
    from tracework_inductor import compile_graph

    inputs = [data(4, 5), data(5, 6, seed=1)]
    artifact = compile_graph(build(lambda a, b: (p.mul(p.reshape(p.mm(a, b), (2, 12)), 2.0),), inputs))
    assert ".as_strided((2, 12, )" in artifact.host_source
    (result,) = runtime.load(artifact)(list(inputs))
    torch.testing.assert_close(result, (inputs[0] @ inputs[1]).reshape(2, 12) * 2)
    assert not result._is_view()


def test_other_strides_of_one_element_need_no_kernel() -> None:
    """A write to a part of a product asks for those that eager's tensor had."""
    import tracework_runtime as runtime
    from tracework_inductor import compile_graph

    x = data(4, 5)
    program = build(lambda x: (p.mul(p.as_strided(p.reshape(p.exp(x), (4, 1, 5)), (4, 1, 5), (5, 7, 1), 0), 2.0),), [x])
    artifact = compile_graph(program)
    assert "as_strided" not in artifact.host_source.partition("def call")[2] and len(artifact.kernels) == 1
    torch.testing.assert_close(runtime.load(artifact)([x])[0], x.exp().mul(2).view(4, 1, 5))


def test_layer_norm_and_softmax_are_one_kernel_each() -> None:
    def norm(x, r, w):
        h = p.add(x, r)
        variance, mean = p.var_mean(h, (1,), 0, True)
        return p.mul(p.mul(p.sub(h, mean), p.rsqrt(p.add(variance, 1e-5))), w), h

    def softmax(x):
        e = p.exp(p.sub(x, p.amax(x, (1,), True)))
        return p.div(e, p.sum(e, (1,), True))

    assert check(norm, data(20, 50), data(20, 50, seed=1), data(50), rtol=1e-5, atol=1e-5).notes["kernels"] == 1
    assert check(softmax, data(20, 50), rtol=1e-5, atol=1e-6).notes["kernels"] == 1


def test_equal_kernels_are_emitted_once() -> None:
    def program(x, w):
        for _ in range(4):
            x = p.tanh(p.mm(x, w))
        return x

    artifact = check(program, data(16, 16), data(16, 16), rtol=1e-4, atol=1e-5)
    assert len(artifact.kernels) == 1


def test_dynamic_sizes() -> None:
    table = SymbolTable()
    s0, s1 = table.new(6, "x.shape[0]", 2, None), table.new(40, "x.shape[1]", 2, None)
    spec = TensorSpec(torch.float32, CPU, (s0, s1), (s1, 1))
    bias = TensorSpec(torch.float32, CPU, (s1,), (1,))

    def program(x, b):
        e = p.exp(p.sub(x, p.amax(x, (1,), True)))
        y = p.div(e, p.sum(e, (1,), True))
        return p.add(y, b), p.sum(x, (0,)), p.reshape(p.permute(y, (1, 0)), (s0 * s1,)), p.slice(y, 0, 1, s0, 1)

    graph = build(program, [None, None], [spec, bias])
    for rows, columns in ((6, 40), (3, 129), (17, 8)):
        check(program, data(rows, columns), data(columns), graph=graph, rtol=1e-5, atol=1e-6)


@st.composite
def programs(draw):
    """A random chain of elementwise, view and reduction steps over one input."""
    sizes = draw(st.lists(st.sampled_from([2, 3, 4, 6, 8]), min_size=2, max_size=3))
    steps = draw(st.lists(st.integers(0, 9), min_size=3, max_size=12))
    return sizes, steps


def run_steps(v, steps):
    kept = [v]
    for n, step in enumerate(steps):
        v = kept[-1]
        sizes, ndim = list(v.sizes), v.ndim
        if step == 0:
            v = p.add(p.mul(v, 0.5), p.sin(v))
        elif step == 1 and ndim > 1:
            v = p.permute(v, (*range(1, ndim), 0))
        elif step == 2 and ndim > 1:
            v = p.reshape(v, (sizes[0] * sizes[1], *sizes[2:]))
        elif step == 3:
            v = p.sub(v, p.sum(v, (n % ndim,), True))
        elif step == 4:
            v = p.tanh(p.sub(v, p.amax(v, (ndim - 1,), True)))
        elif step == 5:
            v = p.flip(v, (n % ndim,))
        elif step == 6:
            v = p.add(v, kept[len(kept) // 2]) if list(kept[len(kept) // 2].sizes) == sizes else p.neg(v)
        elif step == 7 and sizes[0] % 2 == 0:
            v = p.reshape(v, (2, sizes[0] // 2, *sizes[1:]))
        elif step == 8 and sizes[-1] > 1:
            v = p.pad(p.slice(v, ndim - 1, 1, sizes[-1], 1), ((0, 0),) * (ndim - 1) + ((1, 0),), 0.25)
        else:
            v = p.cos(v)
        kept.append(v)
    return kept[-1], kept[len(kept) // 2], p.sum(kept[-1], tuple(range(kept[-1].ndim)))


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(programs())
def test_random_programs(program) -> None:
    sizes, steps = program
    check(lambda v: run_steps(v, steps), data(*sizes, dtype=torch.float64), rtol=1e-8, atol=1e-8)
    check(
        lambda v: run_steps(v, steps),
        data(*sizes, dtype=torch.float64),
        rtol=1e-8,
        atol=1e-8,
        options=InductorOptions(fuse=False),
    )

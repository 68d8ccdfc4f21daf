"""Channels-last inside inference graphs with convolutions; eager's layouts outside."""

import dataclasses

import pytest
import torch
import tracework_runtime as runtime
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_primops import prims as p

ONE = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)


def network(x, a, b, c):
    y = p.maximum(p.convolution(x, a, None, *ONE), 0.0)
    z = p.convolution(y, b, None, *ONE)
    w = p.max_pool(p.add(y, z), (3, 3), (2, 2), (1, 1), (1, 1), False)[0]
    return z, p.sum(p.convolution(w, c, None, *ONE), (2, 3)), p.reshape(w, (2, 512))


def inputs(dtype=torch.float32):
    made = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=made).to(dtype) for s in ((2, 3, 16, 16), (8, 3, 3, 3), (8, 8, 3, 3), (4, 8, 3, 3))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_convolutions_of_an_inference_graph_run_channels_last(dtype) -> None:
    args = inputs(dtype)
    graph = build(network, args)
    artifact = compile_graph(graph)
    assert "(2048, 1, 128, 8, )" in artifact.host_source
    actual, expected = runtime.load(artifact)(list(args)), graph.run(*args)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.5}
    for a, e in zip(actual, expected, strict=True):
        assert a.stride() == e.stride()
        torch.testing.assert_close(a, e, **tolerance)


def test_changed_weights_are_seen() -> None:
    args = inputs()
    graph = build(network, args)
    compiled = runtime.load(compile_graph(graph))
    compiled(list(args))
    args[1].data.mul_(-1.5)
    torch.testing.assert_close(compiled(list(args))[0], graph.run(*args)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("why", ["training", "few"])
def test_layouts_stay_as_they_are(why: str) -> None:
    args = inputs()
    graph = build(network if why == "training" else lambda x, a, b, c: p.convolution(x, a, None, *ONE), args)
    if why == "training":
        graph = dataclasses.replace(graph, role="forward")
    assert "(2048, 1, 128, 8, )" not in compile_graph(graph).host_source


DRAWS = {
    "normal": lambda x: p.normal(x, 0.0, 1.0),
    "uniform": lambda x: p.uniform(x, -1.0, 1.0),
    "bernoulli": lambda x: p.bernoulli(p.sigmoid(x)),
    "bernoulli_p": lambda x: p.bernoulli_p(x, 0.5),
    "exponential": lambda x: p.exponential(x, 1.0),
    "dropout": lambda x: p.native_dropout(x, 0.5)[0],
    "slopes": lambda x: p.rrelu_noise(x, 0.1, 0.3),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_random_numbers_fill_the_memory_of_eager(draw) -> None:
    """Like a result of a convolution, and like what is computed from one: kernels draw in the order of the memory."""

    def noisy(x, a, b, c):
        y = p.convolution(x, a, None, *ONE)
        y = p.convolution(p.add(y, draw(y)), b, None, *ONE)
        return p.convolution(draw(p.maximum(y, -0.5)), c, None, *ONE)

    args = inputs()
    graph = build(noisy, args)
    artifact = compile_graph(graph)
    assert "(2048, 1, 128, 8, )" in artifact.host_source
    results, states = [], []
    for run in (runtime.load(artifact), lambda given: graph.run(*given)):
        torch.manual_seed(0)
        results.append(run(list(args))[0])
        states.append(torch.get_rng_state())
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
    assert torch.equal(*states)


POOLS = {"2 of 2": (2, 2, 0, True), "3 of 2": (3, 2, 1, True), "odd": (3, 2, 0, True), "nine windows": (3, 1, 1, False)}


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "rows"])
@pytest.mark.parametrize("name", POOLS)
def test_gradients_of_pools_are_gathered_where_channels_lie_side_by_side(name: str, last: bool) -> None:
    size, stride, padding, few = POOLS[name]
    window = (size, size), (stride, stride), (padding, padding), (1, 1), False
    x = torch.randn(2, 24, 9, 11, generator=torch.Generator().manual_seed(0)).round(decimals=1).relu()  # with equal ones
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    y, places = torch.nn.functional.max_pool2d(x, *window, return_indices=True)
    graph = build(lambda grad, x, places: p.max_pool_backward(grad, x, *window, places), [y, x, places])
    artifact = compile_graph(graph)
    assert ("max_pool_backward" not in artifact.host_source) is (few and last)
    (got,), (expected,) = runtime.load(artifact)([y, x, places]), graph.run(y, x, places)
    assert got.stride() == expected.stride()
    torch.testing.assert_close(got, expected)

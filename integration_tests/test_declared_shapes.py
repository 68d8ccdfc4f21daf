"""shapes_spec: sizes that are declared stay open, all others are fixed; what is not as declared is an error."""

import functools

import pytest
import torch
import tracework
from tracework_capture.errors import ControlMisuse, DynamicDimError

DimRange = tracework.compiler.DimRange


def compiled(function, spec, **arguments):
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    return tracework.compile(function, backend=backend, fullgraph=True, shapes_spec=spec, **arguments), graphs


def scaled(x, y, n, other=None):
    return (x * n + y.sum(0)) * (x.shape[0] + (0 if other is None else other["z"][1].shape[1]))


X, Y = torch.ones(3, 4), torch.ones(3, 4)


def test_declared_sizes_take_one_graph_and_others_one_each():
    call, graphs = compiled(scaled, {"x": ["batch", None], "y": ("batch", None), "n": "n"})
    for batch, n in ((3, 2), (5, 7), (9, -1), (2, 0)):
        x = torch.randn(batch, 4)
        torch.testing.assert_close(call(x, x, n), scaled(x, x, n))
    assert len(graphs) == 1
    for width in (5, 6):
        x = torch.randn(3, width)
        torch.testing.assert_close(call(x, x, 2), scaled(x, x, 2))
    assert len(graphs) == 3  # the width is not declared: one for each


def test_parts_of_containers():
    call, graphs = compiled(scaled, {"other": {"z": [None, ["a", DimRange(2, 100)]]}})
    for a, b in ((3, 4), (5, 6), (7, 99)):
        other = {"z": [1, torch.ones(a, b)]}
        torch.testing.assert_close(call(X, Y, 2, other), scaled(X, Y, 2, other))
    assert len(graphs) == 1


def test_some_dims_of_a_tensor():
    call, graphs = compiled(lambda x, other: (x + 1, other[0] * 2), {"x": {0: "batch"}, "other": [{1: DimRange(2, 100)}]})
    for batch, n in ((3, 4), (5, 6), (7, 99)):
        assert [r.shape for r in call(torch.ones(batch, 4), [torch.ones(2, n)])] == [(batch, 4), (2, n)]
    assert len(graphs) == 1
    call(torch.ones(3, 5), [torch.ones(2, 4)])
    assert len(graphs) == 2  # the other dim is not declared
    for wrong in ({2: "batch"}, {"rows": "batch"}, {0: ["batch"]}, {-1: "batch"}):
        with pytest.raises(ControlMisuse, match="declares x as .*, but it is a tensor of 2 dims"):
            compiled(lambda x: x + 1, {"x": wrong})[0](X)


def test_of_a_module_and_by_keyword():
    module = torch.nn.Linear(4, 2)
    call, graphs = compiled(module, {"input": ["batch", 4]})
    for batch in (3, 8, 30):
        x = torch.randn(batch, 4)
        torch.testing.assert_close(call(x), module(x))
        torch.testing.assert_close(call(input=x), module(x))
    assert len(graphs) == 2  # one for each way of calling


def test_ranges_spare_guards_and_decide():
    call, graphs = compiled(lambda x: x * 2 if x.shape[0] > 5 else x, {"x": [DimRange(8, 64), None]})
    for batch in (8, 20, 64):
        x = torch.ones(batch, 2)
        torch.testing.assert_close(call(x), x * 2)
    assert len(graphs) == 1


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ({"x": ["batch", 5]}, ControlMisuse, r"dim 1 of x as 5, but it is 4"),
        ({"x": ["batch"]}, ControlMisuse, r"a tensor of 2 dims"),
        ({"x": [DimRange(4, 8), None]}, ControlMisuse, r"dim 0 of x as from 4 to 8, but it is 3"),
        ({"n": 3}, ControlMisuse, r"declares n as 3, but it is 2"),
        ({"x": ["size", "size"]}, ControlMisuse, r"is 4, but the other sizes of group 'size' are 3"),
        (
            {"x": [None, "width"], "y": [None, None]},
            DynamicDimError,
            r"dim 1 of x is declared in shapes_spec, but the program fixes it[\s\S]*declare it as None or 4",
        ),
        ({"n": "n"}, None, None),
    ],
)
def test_what_is_not_as_declared(spec, error, words):
    call, _ = compiled(scaled, spec)
    if error is None:
        call(X, Y, 2)
    else:
        with pytest.raises(error, match=words):
            call(X, Y, 2)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"w": ["b"]}, "'w', which is no parameter"),
        ({"x": [1.5]}, "no name, int, DimRange"),
        (3, "by the names of parameters"),
        (["b"], "by the names of parameters"),
    ],
)
def test_declarations_that_mean_nothing(spec, words):
    with pytest.raises(tracework.InvalidArgument, match=words):
        compiled(scaled, spec)


def test_declarations_of_torch():
    """The objects that torch.compile takes."""
    specs = pytest.importorskip("torch.fx.experimental.dynamic_spec")
    batch = specs.ShapeVar("batch", max=64)
    spec = specs.ShapesSpec({"x": specs.TensorSpec([batch, None]), "y": specs.TensorSpec([batch, 4]), "n": specs.IntVar("n")})
    call, graphs = compiled(scaled, spec)
    for size, n in ((3, 2), (5, 7), (64, 1)):
        x = torch.randn(size, 4)
        torch.testing.assert_close(call(x, x, n), scaled(x, x, n))
    assert len(graphs) == 1
    with pytest.raises(ControlMisuse, match="from any to 64, but it is 65"):
        call(torch.ones(65, 4), torch.ones(65, 4), 2)


def test_declarations_of_further_arguments():
    def further(x, *rest, **named):
        return x * rest[0].sum() + named["y"] * named["n"]

    spec = {"x": ["b"], "*args": [["a"]], "**kwargs": {"y": ["b"], "n": "n"}}
    specs = pytest.importorskip("torch.fx.experimental.dynamic_spec")
    b = specs.ShapeVar("b")
    theirs = specs.ParamsSpec(
        {
            "x": specs.TensorSpec([b]),
            "*args": [specs.TensorSpec([specs.ShapeVar("a")])],
            "**kwargs": {"y": specs.TensorSpec([b]), "n": specs.IntVar("n")},
        }
    )
    for declared in (spec, theirs):
        call, graphs = compiled(further, declared)
        for size, n in ((3, 2), (5, 7), (6, 9)):
            x = torch.randn(size)
            torch.testing.assert_close(call(x, torch.ones(n), y=x, n=n), further(x, torch.ones(n), y=x, n=n))
        assert len(graphs) == 1
    with pytest.raises(tracework.InvalidArgument, match="is computed from other sizes"):
        compiled(scaled, {"x": specs.TensorSpec([b * 2, None])})


def test_of_what_a_decorator_wraps():
    """Calls reach the parameters through the decorator's *args and **kwargs."""

    class Net(torch.nn.Module):
        @torch.no_grad()
        @tracework.compiler.dynamic_spec({"x": ["b", None]})
        def forward(self, x):
            return x * 2

    def noted(function):
        @functools.wraps(function)
        def wrapper(*given, **named):
            return function(*given, **named)

        return wrapper

    @noted
    def f(x, n):
        return x * 2

    net = Net()
    for function, spec in ((net, None), (net.forward, None), (f, {"x": ["b", None]})):
        call, graphs = compiled(function, spec)
        further = () if spec is None else (3,)
        for size in (2, 3, 4):
            torch.testing.assert_close(call(torch.ones(size, 3), *further), torch.full((size, 3), 2.0))
        assert len(graphs) == 1

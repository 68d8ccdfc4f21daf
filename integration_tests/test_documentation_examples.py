"""What torch.compile's documentation shows, with tracework.compile in its place (rows 1, 2, 4-9, 12, 13, 15 of the feature map).

Written for this project after the documented behaviour: a name, its documented use, the documented outcome.
"""

import pytest
import torch
import tracework


def counting():
    """A custom backend as the documentation writes one: it looks at the graph and gives its forward back."""
    graphs = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]):
        graphs.append(gm)
        return gm.forward

    return backend, graphs


def pair(a, b):
    x = torch.sin(a)
    y = torch.cos(b)
    return x + y


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(10, 10)

    def forward(self, x):
        return torch.nn.functional.relu(self.lin(x))


def branching(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def test_call_on_a_function():
    a, b = torch.randn(10, 10), torch.randn(10, 10)
    torch.testing.assert_close(tracework.compile(pair)(a, b), pair(a, b))


def test_decorator_bare_and_with_arguments():
    a, b = torch.randn(3), torch.randn(3)

    @tracework.compile
    def bare(a, b):
        return pair(a, b)

    @tracework.compile(options={"triton.cudagraphs": False}, fullgraph=True)
    def with_arguments(a, b):
        return pair(a, b)

    for f in (bare, with_arguments):
        torch.testing.assert_close(f(a, b), pair(a, b))


def test_module_by_call_by_method_and_in_place():
    x, net = torch.randn(4, 10), Small()
    expected = net(x)
    torch.testing.assert_close(tracework.compile(net)(x), expected)
    with tracework.replace_torch_compile():
        net.compile(fullgraph=True)
    torch.testing.assert_close(net(x), expected)


def test_only_the_inner_function_is_compiled():
    backend, graphs = counting()

    @tracework.compile(backend=backend)
    def inner(x):
        return x * 2

    def outer(x):
        return inner(x + 1) - 1

    torch.testing.assert_close(outer(torch.ones(2)), torch.full((2,), 3.0))
    assert [n.target.__name__ for g in graphs for n in g.graph.nodes if n.op == "call_function"] == ["mul"]


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
@pytest.mark.filterwarnings("ignore:cudagraphs")
def test_modes(mode):
    net, x = Small(), torch.randn(4, 10)
    torch.testing.assert_close(tracework.compile(net, mode=mode)(x), net(x))


def test_mode_and_options_exclude_each_other():
    with pytest.raises(ValueError, match="both given"):
        tracework.compile(pair, mode="default", options={"max_autotune": True})


def test_data_dependent_branch_is_a_selection():
    """torch.compile breaks the graph there, and refuses it under fullgraph=True."""
    backend, graphs = counting()
    compiled = tracework.compile(branching, backend=backend, fullgraph=True)
    for sign in (1, -1):
        a, b = torch.randn(10), sign * torch.rand(10)
        torch.testing.assert_close(compiled(a, b), branching(a, b))
    assert len(graphs) == 1


def tracework_unsupported():
    import tracework_capture

    return tracework_capture.Unsupported


def test_torch_cond_style_select_needs_no_break():
    @tracework.compile(fullgraph=True)
    def f(a, b):
        return a / (a.abs() + 1) * torch.where(b.sum() < 0, -b, b)

    a, b = torch.randn(10), torch.randn(10)
    torch.testing.assert_close(f(a, b), branching(a, b))


@pytest.mark.parametrize(("dynamic", "graphs_made"), [(None, 2), (True, 1), (False, 4)])
def test_dynamic(dynamic, graphs_made):
    backend, graphs = counting()
    compiled = tracework.compile(lambda x: (x + 1).sum(-1) * x.size(0), backend=backend, dynamic=dynamic)
    for length in (8, 16, 24, 32):
        x = torch.randn(length, 3)
        torch.testing.assert_close(compiled(x), (x + 1).sum(-1) * length)
    assert len(graphs) == graphs_made


def test_a_changed_global_and_a_changed_constant_recompile():
    backend, graphs = counting()
    compiled = tracework.compile(lambda x, flag: x + 1 if flag else x - 1, backend=backend)
    x = torch.ones(2)
    assert compiled(x, True).sum() == 4 and compiled(x, False).sum() == 0 and compiled(x, True).sum() == 4
    assert len(graphs) == 2


def test_custom_backend_registered_by_name_and_listed():
    backend, graphs = counting()
    tracework.register_backend(backend, name="documented_backend")
    assert "documented_backend" in tracework.list_backends()
    assert {"eager", "aot_eager"}.isdisjoint(tracework.list_backends())
    assert {"eager", "aot_eager", "inductor"} <= set(tracework.list_backends(None))
    torch.testing.assert_close(
        tracework.compile(pair, backend="documented_backend")(torch.ones(2), torch.ones(2)), pair(torch.ones(2), torch.ones(2))
    )
    assert len(graphs) == 1


def test_default_backend():
    backend, graphs = counting()
    assert tracework.get_default_backend() == "inductor"
    tracework.set_default_backend(backend)
    try:
        tracework.compile(pair)(torch.ones(2), torch.ones(2))
    finally:
        tracework.set_default_backend(None)
    assert len(graphs) == 1 and tracework.get_default_backend() == "inductor"
    with pytest.raises(tracework.UnknownName):
        tracework.set_default_backend("no_such_backend")


def test_backend_that_compiles_by_itself_may_fall_back_to_forward():
    def tracing(gm, example_inputs):
        traced = torch.jit.trace(gm.forward, tuple(example_inputs), check_trace=False)
        return lambda *args: traced(*args)

    a, b = torch.randn(4), torch.randn(4)
    torch.testing.assert_close(tracework.compile(pair, backend=tracing)(a, b), pair(a, b))


def test_disable_as_decorator_as_call_and_only_for_the_function_itself():
    backend, graphs = counting()

    def helper(x):
        return x.sin() + 1

    @tracework.disable
    def plain(x):
        return helper(x)

    @tracework.disable(recursive=False, reason="documented")
    def only_this(x):
        return helper(x)

    x = torch.ones(2)
    for f, expected in ((plain, 0), (only_this, 1), (tracework.disable(helper), 0)):
        graphs.clear()
        torch.testing.assert_close(tracework.compile(f, backend=backend)(x), x.sin() + 1)
        assert len(graphs) == expected, f


def test_graph_break_and_skip_frame():
    backend, graphs = counting()

    def f(x):
        x = x + 1
        tracework.graph_break()
        return x * 2

    def inner(x):
        tracework.skip_frame()
        return x * 3

    def g(x):
        return inner(x + 1) + 1

    x = torch.ones(2)
    torch.testing.assert_close(tracework.compile(f, backend=backend)(x), f(x))
    assert len(graphs) == 2
    graphs.clear()
    torch.testing.assert_close(tracework.compile(g, backend=backend)(x), g(x))
    assert len(graphs) == 2  # g before and after the call; inner is plain
    for function in (f, g):
        with pytest.raises(tracework_unsupported(), match="graph_break|skip_frame"):
            tracework.compile(function, fullgraph=True)(x)


def test_state_queries():
    def f(x):
        if torch.compiler.is_compiling() and tracework.is_compiling() and not torch.compiler.is_exporting():
            return x + 1
        return x - 1

    torch.testing.assert_close(tracework.compile(f, fullgraph=True)(torch.ones(2)), torch.full((2,), 2.0))
    assert not tracework.is_compiling() and f(torch.ones(2)).sum() == 0


def test_reset_compiles_again():
    backend, graphs = counting()
    compiled = tracework.compile(pair, backend=backend)
    compiled(torch.ones(2), torch.ones(2))
    tracework.reset()
    compiled(torch.ones(2), torch.ones(2))
    assert len(graphs) == 2


def test_recompile_limit_runs_the_rest_uncompiled():
    backend, graphs = counting()
    compiled = tracework.compile(lambda x, n: x * n.k, backend=backend, recompile_limit=2)

    class N:
        def __init__(self, k):
            self.k = k

    for k in ("a", "b", "c", "d"):
        n = N(len(k) + ord(k))
        torch.testing.assert_close(compiled(torch.ones(2), n), torch.ones(2) * n.k)
    assert len(graphs) <= 2


def test_options_and_mode_options_are_listed():
    assert "max_autotune" in tracework.list_options()
    assert tracework.list_mode_options()["reduce-overhead"] == {"cudagraphs": True}
    assert tracework.list_mode_options("max-autotune-no-cudagraphs") == {"max_autotune": True, "cudagraphs": False}


def test_training_loop_with_an_optimizer():
    torch.manual_seed(0)
    net, reference = Small(), Small()
    reference.load_state_dict(net.state_dict())
    compiled = tracework.compile(net)
    x = torch.randn(16, 10)
    for model, parameters in ((compiled, net.parameters()), (reference, reference.parameters())):
        optimizer = torch.optim.SGD(parameters, lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    for a, b in zip(net.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_threads_share_a_compiled_function():
    from concurrent.futures import ThreadPoolExecutor

    compiled = tracework.compile(lambda x, k: (x * k).sin().sum() + x.shape[0])

    def work(i):
        xs = [torch.full((2 + (i + r) % 3, 4), float(i)) for r in range(20)]
        return all(torch.allclose(compiled(x, 2.0), (x * 2.0).sin().sum() + x.shape[0]) for x in xs)

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))

"""What the autograd engine asks of a compiled graph: retained and freed graphs, partial and undefined gradients, hooks, versions."""

import gc
import weakref

import pytest
import torch
import tracework_aotautograd as aot
from torch.nn import functional as F


def fn(x, w):
    y = torch.tanh(x @ w)
    return y, (y * 2).exp(), w.sum()


@pytest.fixture
def compiled(graph, eager_runner, real):
    """A compiled fn with its leaves."""
    x, w = real(3, 4), real(4, 4)
    return aot.aot_compile(graph(fn, 2), [x, w], forward_compiler=eager_runner), x, w


def test_two_backwards_with_retained_graph(compiled):
    call, x, w = compiled
    y, z, s = call(x, w)
    first = torch.autograd.grad(z.sum(), [x, w], retain_graph=True)
    second = torch.autograd.grad(z.sum(), [x, w], retain_graph=True)
    both = torch.autograd.grad(y.sum() + s, [x, w])
    expected = torch.autograd.grad(fn(x, w)[1].sum(), [x, w])
    for a, b, e in zip(first, second, expected, strict=True):
        torch.testing.assert_close(a, e)
        torch.testing.assert_close(b, e)
    torch.testing.assert_close(both, torch.autograd.grad(fn(x, w)[0].sum() + w.sum(), [x, w]))


def test_freed_graph(compiled):
    call, x, w = compiled
    z = call(x, w)[1]
    z.sum().backward()
    with pytest.raises(RuntimeError, match="second time|already been freed"):
        z.sum().backward()


def test_gradient_of_one_output_and_one_input(compiled):
    call, x, w = compiled
    for position in range(3):
        mine, theirs = call(x, w)[position], fn(x, w)[position]
        for leaf in (x, w):
            a, b = (torch.autograd.grad(o.sum(), leaf, retain_graph=True, allow_unused=True)[0] for o in (mine, theirs))
            assert (a is None) == (b is None)  # an optimizer passes over parameters without a gradient
            if b is not None:
                torch.testing.assert_close(a, b)


def test_tangents_of_any_layout(compiled):
    call, x, w = compiled
    tangent = torch.randn(4, 3, dtype=torch.float64).t()
    for given in (tangent, tangent[:1].expand(3, 4), torch.randn(3, 8, dtype=torch.float64)[:, ::2]):
        torch.testing.assert_close(
            torch.autograd.grad(call(x, w)[1], [x, w], given), torch.autograd.grad(fn(x, w)[1], [x, w], given)
        )


def test_a_tangent_without_memory_is_filled_with_zeros(graph, real):
    """Compiled code reads it; the gradients of abs and sign, among others, give such."""
    seen = []

    def compiler(gm, spec):
        return lambda inputs: [seen.append(t._is_zerotensor()) for t in inputs] and gm(*inputs)

    x = real(3)
    (y,) = aot.aot_compile(graph(lambda x: (x.exp(),), 1), [x], forward_compiler=compiler)(x)
    (found,) = torch.autograd.grad(y, x, torch._efficientzerotensor((3,), dtype=torch.float64))
    assert not any(seen) and found.tolist() == [0.0] * 3


def test_hooks(compiled):
    call, x, w = compiled
    seen = []
    y, z, s = call(x, w)
    y.register_hook(lambda g: seen.append("y") or g * 2)
    x.register_hook(lambda g: seen.append("x"))
    (y.sum() + z.sum()).backward()
    assert seen == ["y", "x"]
    a, b, c = fn(*(t.detach().requires_grad_() for t in (x, w)))
    leaf = x.detach().requires_grad_()
    a, b, c = fn(leaf, w.detach())
    a.register_hook(lambda g: g * 2)
    (expected,) = torch.autograd.grad(a.sum() + b.sum(), leaf)
    assert x.grad.shape == expected.shape


def test_saved_tensor_hooks(compiled):
    call, x, w = compiled
    packed, unpacked = [], []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: unpacked.append(t) or t):
        z = call(x, w)[1]
    assert packed and not any(type(t).__name__ == "FakeTensor" for t in packed)
    z.sum().backward()
    assert len(unpacked) == len(packed)


def test_version_of_saved_input(compiled):
    call, x, w = compiled
    z = call(x, w)[1]
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


@pytest.mark.parametrize("other", [lambda t: t.detach().double(), lambda t: torch.ones(5), lambda t: t.detach() * 2])
@pytest.mark.parametrize("slot", [0, 1])
def test_inputs_that_are_given_other_data(graph, eager_runner, other, slot):
    """Formulas of the backward read what an input is by then: cos(x), exp's result and x @ w.t() are three kinds of what they read."""

    def f(x, w):
        return (x.sin() @ w.t() * w.exp().sum() * w.sum(0),)

    inputs = [torch.arange(6.0).reshape(2, 3), torch.arange(9.0).reshape(3, 3) / 8]
    call = aot.aot_compile(graph(f, 2), [t.clone().requires_grad_() for t in inputs], forward_compiler=eager_runner)
    found = []
    for function in f, call:
        given = [torch.nn.Parameter(t.clone()) for t in inputs]
        (y,) = function(*given)
        given[slot].data = other(given[slot])
        try:
            found.append(torch.autograd.grad(y.sum(), given))
        except RuntimeError as error:
            found.append(str(error))
    assert type(found[0]) is type(found[1])
    assert all(map(torch.allclose, *found)) if isinstance(found[0], tuple) else found[0] == found[1]


def test_inputs_whose_storage_has_other_memory(graph, eager_runner):
    """As that of a parameter which is gathered again for the backward: it is the same data."""
    told = []
    inputs = [torch.ones(2, 3, requires_grad=True), torch.nn.Parameter(torch.arange(12.0).reshape(4, 3))]

    def f(x, w):
        return ((x @ w.t()).sin() @ w,)

    call = aot.aot_compile(graph(f, 2), inputs, forward_compiler=eager_runner, report=lambda *what: told.append(what))
    expected = torch.autograd.grad(f(*inputs)[0].sum(), inputs)
    (y,) = call(*inputs)
    storage, data, address = inputs[1].untyped_storage(), inputs[1].detach().clone(), inputs[1].data_ptr()
    storage.resize_(0)
    elsewhere = torch.empty(12)  # where it lay
    storage.resize_(48)
    with torch.autograd._unsafe_preserve_version_counter(inputs[1]), torch.no_grad():
        inputs[1].copy_(data)
    assert inputs[1].data_ptr() != address and elsewhere.data_ptr() != inputs[1].data_ptr()
    assert all(map(torch.allclose, torch.autograd.grad(y.sum(), inputs), expected)) and not told


def test_hooks_pack_what_is_given_other_data_later(graph, eager_runner):
    """What they kept is read."""
    x, w = torch.ones(2, 3, requires_grad=True), torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
    call = aot.aot_compile(graph(lambda x, w: (x @ w,), 2), [x, w], forward_compiler=eager_runner)
    with torch.autograd.graph.save_on_cpu():
        (y,) = call(x, w)
    w.data = w.detach() * 2
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [[6.0, 22.0, 38.0]] * 2


def test_saved_values_die_with_the_backward(graph, eager_runner, real):
    x = real(5)
    call = aot.aot_compile(graph(lambda x: (x.exp().sum(),), 1), [x], forward_compiler=eager_runner)
    middle = x * 2
    (y,) = call(middle)
    seen = weakref.ref(middle)
    del middle
    y.backward()
    gc.collect()
    assert seen() is None, "the graph keeps its input after its backward"
    assert x.grad is not None


def test_no_cycles(graph, eager_runner, real):
    x = real(5)

    def write(a):
        a.mul_(a.detach().cos())
        return (a.sin(),)

    middle = x * 2
    call = aot.aot_compile(graph(write, 1), [middle], forward_compiler=eager_runner)
    gc.collect()
    gc.disable()
    try:
        middle = x * 2
        out = call(middle)
        seen = weakref.ref(middle)
        del middle, out
        assert seen() is None
    finally:
        gc.enable()


def test_create_graph_with_changed_flags(graph, eager_runner, real):
    x, w = real(3, 4), real(4, 4)
    call = aot.aot_compile(graph(fn, 2), [x, w], forward_compiler=eager_runner)
    for tangent in (torch.ones(3, 4, dtype=torch.float64), real(3, 4)):
        found = []
        for f in (call, fn):
            first = torch.autograd.grad(f(x, w)[1], [x, w], tangent, create_graph=True)
            leaves = [x, w] + [t for t in (tangent,) if t.requires_grad]
            found.append(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))
        torch.testing.assert_close(*found)


def test_third_order(graph, eager_runner, real):
    x = real(3)
    f = lambda x: (x.sin() * x.exp(),)
    call, found = aot.aot_compile(graph(f, 1), [x], forward_compiler=eager_runner), []
    for g in (call, f):
        y = g(x)[0].sum()
        for _ in range(3):
            (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        found.append(y)
    torch.testing.assert_close(*found)


def test_dropout(check, pair, real, compare):
    def drop(x):
        return F.dropout(x, 0.5) * 2, F.dropout(x.sin(), 0.1), torch.rand(3)

    check(drop, real(20, 20), second=False)
    found = pair(drop, real(50))
    mine, theirs = found.call(seed=7)
    torch.manual_seed(7)
    again = found.compiled(*found.mine)
    compare[0](mine, theirs)
    torch.testing.assert_close(mine[0], again[0])
    mask = mine[0] != 0
    (grad,) = torch.autograd.grad(mine[0].sum(), found.mine[0])
    assert torch.equal(grad != 0, mask)


def test_dropout_of_a_transposed_tensor(pair, real):
    """It draws in the order of memory."""
    mine, theirs = pair(lambda x: (F.dropout(x.permute(2, 0, 1), 0.5),), real(4, 5, 6)).call(seed=3)
    torch.testing.assert_close(mine[0], theirs[0])


def test_random_numbers_nobody_reads_are_drawn(pair, real):
    def wasteful(x):
        torch.rand(5)
        return (F.dropout(x, 0.5),)

    mine, theirs = pair(wasteful, real(50)).call(seed=3)
    torch.testing.assert_close(mine[0], theirs[0])


@pytest.mark.parametrize("order", [2, 3])
def test_higher_orders_draw_the_same_numbers_again(pair, real, order):
    def fn(x):
        noise = torch.rand_like(x)
        return (F.dropout(x.sin() * noise, 0.5) * x.exp() + torch.randn_like(x),)

    found = pair(fn, real(6))
    results = []
    for x, values in zip((found.mine, found.theirs), found.call(), strict=True):
        torch.manual_seed(7)
        value = values[0].sum()
        for _ in range(order):
            (gradient,) = torch.autograd.grad(value, x, create_graph=True)
            value = gradient.square().sum()
        results.append((gradient.detach(), torch.rand(3)))
    torch.testing.assert_close(*results)


def test_a_graph_that_keeps_nothing_can_run_backward_again(graph, eager_runner):
    """Eager's views and sums keep no values either."""
    x = torch.ones(2, 3, requires_grad=True)
    found = aot.aot_compile(graph(lambda x: x.view(-1) + 1, 1), [x], forward_compiler=eager_runner)(x)[0]
    for _ in range(2):
        (grad,) = torch.autograd.grad(found.sum(), [x])
        assert grad.equal(torch.ones(2, 3))


def test_history_that_no_result_depends_on_is_left_alone(graph, eager_runner, real):
    """Its hooks are not called, and it is not freed."""

    def fn(x, y):
        return (x * 2).sin(), y.detach() * 3

    x, y = real(3), real(3)
    before, seen = y * y, []
    before.register_hook(seen.append)
    result, _ = aot.aot_compile(graph(fn, 2), [x, before], forward_compiler=eager_runner)(x, before)
    result.sum().backward()
    assert not seen
    before.sum().backward()
    torch.testing.assert_close(y.grad, 2 * y.detach())
    torch.testing.assert_close(x.grad, 2 * (x.detach() * 2).cos())


def test_a_graph_that_begins_without_gradients_keeps_the_history_of_its_inputs(eager_runner, real):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch._C._set_grad_enabled, (True,))
    graph.output((graph.call_function(torch.sin, (x,)),))
    leaf = real(3)
    given = leaf * 2
    with torch.no_grad():
        call = aot.aot_compile(torch.fx.GraphModule({}, graph), [given], forward_compiler=eager_runner)
        (result,) = call(given)
    result.sum().backward()
    torch.testing.assert_close(leaf.grad, 2 * given.detach().cos())


def apart(a, b, w):
    return (a * w).sin().sum(), (b * w).exp().sum()


def with_sum(a, b, w):
    first, second = apart(a, b, w)
    return first, first + second, second


def chained(a, b, w):
    first, second = apart(a, b, w)
    return first * second.detach(), second


def one_order(call, fn_order, make):
    """What hooks of the inputs' history see, and the gradients, for backwards of these results one after the other."""
    leaves = make()
    middles = [leaf * leaf for leaf in leaves[:2]]
    seen = []
    for name, t in zip("abw", (*middles, leaves[2]), strict=True):
        t.register_hook(lambda g, name=name: seen.append((name, g is None)))
    results = call(*middles, leaves[2])
    failed = []
    for place in fn_order:
        try:
            results[place].backward()
        except RuntimeError as error:
            failed.append("second time" in str(error) or "freed" in str(error))
        seen.append(place)
    return seen, failed, [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 0), (1, 1, 0)])
@pytest.mark.parametrize("fn", [apart, chained])
def test_backwards_of_results_with_nothing_in_common(fn, order, graph, eager_runner, real):
    def make():
        torch.manual_seed(0)
        return [torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(3)]

    mine = one_order(aot.aot_compile(graph(fn, 3), make(), forward_compiler=eager_runner), order, make)
    theirs = one_order(fn, order, make)
    assert mine[:2] == theirs[:2]
    torch.testing.assert_close(mine[2], theirs[2])


@pytest.mark.parametrize("order", [(0, 2), (2, 0), (1, 2)])
def test_backwards_of_results_that_are_returned_with_their_sum(order, graph, eager_runner, real):
    leaves = [real(3) for _ in range(3)]
    call = aot.aot_compile(graph(with_sum, 3), leaves, forward_compiler=eager_runner)
    found = []
    for run in (call, with_sum):
        for leaf in leaves:
            leaf.grad = None
        results, failed = run(*leaves), []
        for place in order:
            try:
                results[place].backward()
            except RuntimeError:
                failed.append(place)
        found.append((failed, [leaf.grad for leaf in leaves]))
    assert found[0][0] == found[1][0]
    torch.testing.assert_close(found[0][1], found[1][1])


def test_each_backward_frees_what_was_saved_for_it(graph, eager_runner):
    def fn(a, b):
        return a.exp().sum(), b.exp().sum()

    a, b = (torch.ones(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    call = aot.aot_compile(graph(fn, 2), [a, b], forward_compiler=eager_runner)
    middles = [a * 2, b * 2]
    seen = [weakref.ref(m) for m in middles]
    first, second = call(*middles)
    del middles
    first.backward()
    assert seen[0]() is None and seen[1]() is not None
    second.backward()
    assert seen[1]() is None


def test_second_order_of_results_with_nothing_in_common(graph, eager_runner, real):
    leaves = [real(3) for _ in range(3)]
    call = aot.aot_compile(graph(apart, 3), leaves, forward_compiler=eager_runner)
    found = []
    for run in (call, apart):
        first, second = run(*leaves)
        ga = torch.autograd.grad(first, [leaves[0], leaves[2]], create_graph=True)
        gb = torch.autograd.grad(second, [leaves[1], leaves[2]], create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in (*ga, *gb)), leaves))
    torch.testing.assert_close(*found)

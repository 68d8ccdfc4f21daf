"""Results that other results are computed from: what the engine shows of them is eager's, as each is a tensor of its own history."""

import itertools
import weakref

import pytest
import torch
import tracework_aotautograd as aot
from torch.nn import functional as F


def scaled(x, w):
    y = x * 2
    return y, y * 3


def chain(x, w):
    y = (x @ w).sin()
    z = y * 3 * x
    return y, z, z.exp() * w


def diamond(x, w):
    y = (x @ w).sin()
    a, b = y.cos(), y * w
    return y, a, b, a * b


def past_a_result(x, w):
    h = (x @ w).tanh()
    y = h * 2
    return y, y * h


def past_several(x, w):
    h = (x @ w).tanh()
    k = h.exp()
    y = h * k
    z = y * k
    return y, z, z * h + k, k.sum()


def loss_and_logits(x, w):
    logits = x @ w
    return F.cross_entropy(logits, torch.arange(logits.shape[0])), logits


def with_their_sum(x, w):
    a, b = (x @ w).sin().sum(), (w * w).sum()
    return a, b, a + b


def sharing_a_view_of_an_input(x, w):
    t = x.t()
    y = torch.cat([t, w])
    return y, torch.cat([t, w]).mean() * y


def sharing_parts_of_an_input(x, w):
    row, part = x.t()[1], x.view(-1)[1:4].expand(2, 3)
    y = row * w
    z = (part.sum() * y + row).exp()
    return y, z, (part * 2).sin()


def sharing_a_view_of_a_result(x, w):
    y = (x * w).square()
    row = y.narrow(0, 0, 1)
    z = row.sin()
    return y, z, row * z


def sharing_pieces_of_an_input(x, w):
    half = x.chunk(2)[0]
    row = half.unbind()[0]
    y = half.mean() * w / (1 + row.square())
    return y, y * row


def detached(x, w):
    y = x @ w
    z = y.detach() * w
    return y, z, (y * z).sin()


def without_gradients(x, w):
    y = x @ w
    with torch.no_grad():
        z = y * 3
    return y, z, y * z


def written_without_gradients(x, w):
    y = x.sin()
    z = y.mean() * w
    with torch.no_grad():
        y.add_(1)
    return y, z


def view_of_what_was_written_without_gradients(x, w):
    y = x.sin()
    v = y[1:]
    z = v.mean() * w
    y.detach().mul_(2)
    return y, v, z


def written(x, w):
    y = x @ w
    y.sin_()
    return y, y * w


def pieces_of_one_op(x, w):
    a, b = (x @ w).sort()[0].split(2)
    return a, b, a * b, b.exp()


def random(x, w):
    y = F.dropout(x @ w, 0.5)
    return y, F.dropout(y * w, 0.5).sin(), y + w.exp()


def views(x, w):
    y = x @ w
    return y, y.t(), y.t() * w, (y.t() * w).reshape(-1).exp()


def view_of_an_input(x, w):
    t = w.t()
    return (t.sin() * w).sum(), t, t.exp() * x


def only_computed_from_a_view(x, w):
    t = x.t()
    return t, t.sin().sum()


def views_of_views(x, w):
    y = (x @ w).sin()
    t = y.t()
    row = t[1:]
    return t, row, (row * x[1:]).sum(), t.cos() * w, row.reshape(-1)[::2].exp()


def view_of_a_view_alone(x, w):
    t = x.t()
    y = (x * w).t()
    rows = y[1:]
    return t[0].exp(), rows[0], y, t[1:], t, rows, rows


def view_of_a_view_before_a_write(x, w):
    y = x @ w
    t = y.t()
    row = t[0]
    y.mul_(2)
    return t, row, y, row.sin(), t.exp()


def view_of_a_written_value(x, w):
    y = x @ w
    t = y.t()
    y.mul_(2)
    return y, t, t.sin() * w


def past_a_view_of_a_result(x, w):
    h = (x @ w).tanh()
    y = h * 2
    t = y.t()
    return y, t, t * h, (t * h).sum()


def past_a_written_value(x, w):
    h = x @ w
    h.sin_()
    y = h * 2
    y.mul_(w)
    return y, (y * h).exp()


def past_a_view(x, w):
    h = torch.cat([x, w])[1:5]
    y = h.clone()
    return y, (y.sin() * h * w).sum()


def twice(x, w):
    y = x @ w
    return y, y, y.sin()


def also_an_input(x, w):
    y = x * w
    return x, y, y.sin() * x


def doubled(x, w):
    """A sum of gradients of two results is added to itself."""
    h = w + w
    return h * x, h.sin() * x


class WithoutGradient(torch.autograd.Function):
    """A product that gives its first factor no gradient."""

    @staticmethod
    def forward(ctx, a, b):
        return a * b

    @staticmethod
    def backward(ctx, gradient):
        return None, gradient


def not_followed(x, w):
    y = x * 2
    return y, WithoutGradient.apply(y, w)


def only_one_followed(x, w):
    y = x * 2
    z = y.sin() * w
    return y, z, WithoutGradient.apply(y, w) * z


def none_followed(x, w):
    y = x * 2
    z = x.sin()
    return y, z, WithoutGradient.apply(y * z, w), y.cos()


PROGRAMS = [
    scaled,
    chain,
    diamond,
    past_a_result,
    past_several,
    loss_and_logits,
    with_their_sum,
    sharing_a_view_of_an_input,
    sharing_parts_of_an_input,
    sharing_a_view_of_a_result,
    sharing_pieces_of_an_input,
    detached,
    without_gradients,
    written_without_gradients,
    view_of_what_was_written_without_gradients,
    written,
    random,
    views,
    pieces_of_one_op,
    view_of_an_input,
    only_computed_from_a_view,
    views_of_views,
    view_of_a_view_alone,
    view_of_a_view_before_a_write,
    view_of_a_written_value,
    past_a_view_of_a_result,
    twice,
    also_an_input,
    not_followed,
    only_one_followed,
    none_followed,
    doubled,
    past_a_written_value,
    past_a_view,
]


@pytest.fixture
def both(pair, real, compare):
    """both(fn, what): `what(inputs, results)` of the compiled function and of the function are the same."""

    def run(fn, what):
        found = pair(fn, real(4, 4), real(4, 4))
        mine, theirs = found.call()
        compare[0](mine, theirs)
        found_mine, expected = what(found.mine, mine), what(found.theirs, theirs)
        assert [t is None for t in found_mine] == [t is None for t in expected]
        torch.testing.assert_close(found_mine, expected)
        return found

    return run


def differentiable(results):
    return [r for r in dict.fromkeys(results) if r.grad_fn is not None]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_between_results(fn, both):
    def what(inputs, results):
        made, found = differentiable(results), []
        for result in made:
            found += torch.autograd.grad(result.square().sum(), [*made, *inputs], retain_graph=True, allow_unused=True)
        return found

    both(fn, what)


SEVERAL_VIEWS = {
    "split": lambda x: x.split(2),
    "split sizes": lambda x: x.split([1, 2, 3]),
    "split_with_sizes": lambda x: x.split_with_sizes([1, 1, 4]),
    "chunk": lambda x: x.chunk(3),
    "unbind": lambda x: x.view(3, 2, 4).unbind(),
    "iteration": lambda x: [*x.view(3, 2, 4)],
    "tensor_split": lambda x: x.tensor_split(3),
    "hsplit": lambda x: x.t().hsplit(3),
    "vsplit": lambda x: x.vsplit([1, 4]),
    "dsplit": lambda x: x.view(2, 2, 6).dsplit(3),
    "narrow": lambda x: [x.narrow(0, i, 2) for i in (0, 2, 4)],
}
USES_OF_SEVERAL = {
    "one bare, one made longer": lambda x, k, v: (torch.cat([k, k * 2]), v),
    "one bare, one copied": lambda x, k, v: (k.clone(), v),
    "one bare, a view of another": lambda x, k, v: (k[:1], v),
    "both bare": lambda x, k, v: (k, v),
    "views": lambda x, k, v: (k.view_as(k), v[..., :1]),
    "with what they are views of": lambda x, k, v: (k.sin(), v, x),
}


@pytest.mark.parametrize("is_made", [False, True], ids=["of an input", "made"])
@pytest.mark.parametrize("use", USES_OF_SEVERAL.values(), ids=USES_OF_SEVERAL)
@pytest.mark.parametrize("views", SEVERAL_VIEWS.values(), ids=SEVERAL_VIEWS)
def test_gradients_beside_one_of_several_views(views, use, is_made, pair, real, compare):
    """`q, k, v = x.split(...)`, as attention with a cache has them."""

    def fn(x):
        x = x.sin() if is_made else x
        q, k, v = views(x)
        k, v, *more = use(x, k, v)
        return (q.square().sum() + k.square().sum() * v.sin()).mean(), k, v, *more

    found = pair(fn, real(6, 4))
    mine, theirs = found.call()
    compare[0](mine, theirs)

    def gradients(inputs, results):
        made, grads = differentiable(results), []
        for result in made:
            grads += torch.autograd.grad(result.square().sum(), [*made, *inputs], retain_graph=True, allow_unused=True)
        return grads

    found_mine, expected = gradients(found.mine, mine), gradients(found.theirs, theirs)
    assert [t is None for t in found_mine] == [t is None for t in expected]
    torch.testing.assert_close(found_mine, expected)


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_hooks_and_retained_gradients(fn, both):
    def what(inputs, results):
        made, seen = differentiable(results), []
        for place, result in enumerate(made):
            result.retain_grad()
            result.register_hook(lambda g, place=place: seen.append((place, g)) or g * (place + 2))
        torch.autograd.backward(made, [torch.linspace(-1, 1, r.numel(), dtype=r.dtype).reshape(r.shape) for r in made])
        return [r.grad for r in (*made, *inputs)] + [g for _, g in sorted(seen, key=lambda found: found[0])]

    both(fn, what)


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_of_gradients(fn, both):
    def what(inputs, results):
        made, found = differentiable(results), []
        given = [*made, *inputs]
        for result in made:
            first = torch.autograd.grad(result.square().sum(), given, create_graph=True, allow_unused=True)
            total = sum(g.sin().sum() for g in first if g is not None and g.requires_grad)
            second = torch.autograd.grad(total, given, create_graph=True, allow_unused=True)
            third = sum(g.cos().sum() for g in second if g is not None and g.requires_grad)
            found += [*first, *second]
            if isinstance(third, torch.Tensor):
                found += torch.autograd.grad(third, given, retain_graph=True, allow_unused=True)
        # what no gradient depends on may be zeros
        return [torch.zeros(()) if g is None or not g.any() else g for g in found]

    both(fn, what)


def test_one_backward_after_the_other(both):
    def what(inputs, results):
        for result in results:
            result.sum().backward(retain_graph=result is not results[-1])
        with pytest.raises(RuntimeError, match="second time|already been freed"):
            results[-1].sum().backward()
        return [x.grad for x in inputs]

    both(chain, what)


def test_a_result_that_is_written_to(pair, real):
    for fn, raises in ((scaled, False), (diamond, True)):
        found = pair(fn, real(3, 3), real(3, 3))
        for results, inputs in zip(found.call(), (found.mine, found.theirs), strict=True):
            with torch.no_grad():
                results[0].add_(1)
            if raises:
                with pytest.raises(RuntimeError, match="inplace operation"):
                    results[-1].sum().backward()
            else:
                results[-1].sum().backward()
                assert inputs[0].grad.eq(6).all()


@pytest.mark.parametrize("records", [False, True])
def test_gradients_of_gradients_with_a_result_that_is_written_to(records, pair, real):
    """Eager keeps the mean of it alone."""
    found = pair(lambda x, w: [(y, y.mean() * w) for y in [x.sin()]][0], real(3, 3), real(3, 3))
    seconds = []
    for (first, last), inputs in zip(found.call(), (found.mine, found.theirs), strict=True):
        with torch.set_grad_enabled(records):
            first.mul_(3)
        given = [first, *inputs]
        gradients = torch.autograd.grad(last.square().sum(), given, create_graph=True, allow_unused=True)
        total = sum(g.sin().sum() for g in gradients if g is not None)
        seconds.append([*gradients, *torch.autograd.grad(total, given, allow_unused=True)])
    assert [g is None for g in seconds[0]] == [g is None for g in seconds[1]] == [records, False, False] * 2
    torch.testing.assert_close(*seconds)


def plus_one(x):
    return x + 1, x.sin()


def plus_and_times(x):
    return x + 1, x * 2


def between(x):
    y = x * 2
    return y, y + 1, (y + 1).view(-1)[2:]


def written_part(x):
    y = x * 1
    y[0].add_(1)
    return y, y + 1


@pytest.mark.parametrize("fn", [lambda x: (x + 1,), plus_one, plus_and_times, between, written_part])
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_second_backward_raises_where_eager_keeps_anything(fn, create_graph, pair, real):
    """Whatever the partition keeps."""
    count = len(fn(real(3, 3)))
    for order in itertools.product(range(count), repeat=2):
        found, seen = pair(fn, real(3, 3)), []
        for results, (x,) in zip(found.call(), (found.mine, found.theirs), strict=True):
            results[order[0]].sum().backward()
            try:
                seen.append(torch.autograd.grad(results[order[1]].sum(), x, create_graph=create_graph)[0].detach())
            except RuntimeError as error:
                assert "second time" in str(error)
                seen.append(torch.zeros(()))
        torch.testing.assert_close(*seen)


def test_views_are_still_views(pair, real):
    found = pair(view_of_an_input, real(4, 4), real(4, 4))
    results, inputs = found.compiled(*found.mine), found.mine
    assert results[1]._base is inputs[1]
    a, b, *_ = found_pieces = pair(pieces_of_one_op, real(4, 4), real(4, 4)).compiled(*found.mine)
    assert a._base is b._base is not None and not found_pieces[2]._is_view()


def test_a_node_for_each_result(pair, real):
    for fn, count in ((chain, 3), (loss_and_logits, 2), (past_a_result, 3)):
        signature = pair(fn, real(4, 4), real(4, 4)).programs[0].signature
        assert len(signature.components) == count
    (one,) = pair(lambda x, w: ((x @ w).sin(), (x @ w).sin().sum() * 2), real(4, 4), real(4, 4)).programs[:1]
    assert not any(component.results for component in one.signature.components)


def test_a_result_that_no_gradient_reads_is_not_kept(pair, real):
    found = pair(scaled, real(4), real(4))
    y, z = found.compiled(*found.mine)
    seen = weakref.ref(y)
    del y
    assert seen() is None
    z.sum().backward()


# --- inputs that the graph writes to, and views made under no_grad ---


def written_input(x, w):
    x.mul_(w)
    return (x.sin(),)


def written_input_that_was_read(x, w):
    a = x.exp()
    x.sin_()
    return a, x.sin() * a, x * w


def several_writes(x, w):
    x.mul_(2)
    x.add_(w)
    w.sin_()
    return x * w, (x * w).exp(), x


def view_of_a_written_input(x, w):
    t = x.t()
    x.mul_(2)
    row = t[1]
    return t, t.sin() * w, row, row.exp()


def written_through_a_view(x, w):
    x[1].mul_(2)
    t = x.t()
    return t, t * w, x * w


def read_transposed_between_writes_through_views(x, w):
    x.reshape(16).add_(1)
    t = x.t().reshape(16)
    x.contiguous().sub_(1)
    return x, t * 2


def written_with_another(x, w):
    x.copy_(w.sin())
    return (x * w), x.t()


def no_grad_below_a_view(x, w):
    with torch.no_grad():
        t = x.t()
    row = t[1]
    return row, row.exp() * w


def no_grad_view_and_what_is_computed_from_it(x, w):
    with torch.no_grad():
        t = x.t()
    row = t[1]
    return t, row, t.sin() * w, row.exp() * w


def history_that_leads_to_nowhere(x, w):
    with torch.no_grad():
        t = x.t()
    y = t.exp()
    z = y.sin()
    return y, z, z * y * w, w * t


def apart_from_history_that_leads_to_nowhere(x, w):
    with torch.no_grad():
        t = x.t()
    return t.exp(), w.sin() * x


def written_over_between_two_uses(x, w):
    v = w.sin()
    y = v * 2
    v.mul_(2)
    return y, v * y


def view_of_a_hidden_base(x, w):
    a = x.square()
    b = a * w
    t = b.t()
    return a, t, b / (1 + t[:1].square())


def no_grad_view_of_a_result(x, w):
    y = x * w
    with torch.no_grad():
        t = y.t()
    row = t[1]
    return y, row, row.exp() * y


def view_of_a_no_grad_view(x, w):
    y = x * w
    with torch.no_grad():
        t = y.view(-1)
    return (t[::2],)


WRITING = [
    written_input,
    written_input_that_was_read,
    several_writes,
    view_of_a_written_input,
    written_through_a_view,
    read_transposed_between_writes_through_views,
    written_with_another,
    no_grad_below_a_view,
    history_that_leads_to_nowhere,
    apart_from_history_that_leads_to_nowhere,
    written_over_between_two_uses,
    view_of_a_hidden_base,
    no_grad_view_and_what_is_computed_from_it,
    no_grad_view_of_a_result,
    view_of_a_no_grad_view,
]


@pytest.mark.parametrize("fn", WRITING, ids=lambda f: f.__name__)
def test_written_inputs_are_results(fn, pair, real, compare):
    """Gradients with respect to an input that was written to are those with respect to its new value, as eager's."""
    leaves = []

    def make(x, w):
        leaves.append((x, w))
        return x * 1, w * 1

    found = pair(fn, real(4, 4), real(4, 4), make=make)
    mine, theirs = found.call()
    compare[0](mine, theirs)
    found.same_inputs()
    gradients = []
    for results, inputs, begin in ((mine, found.mine, leaves[0]), (theirs, found.theirs, leaves[1])):
        made = differentiable([*results, *inputs])
        given, mine_found, seen = [*made, *begin], [], []
        for result in made:
            first = torch.autograd.grad(result.square().sum(), given, create_graph=True, allow_unused=True)
            total = sum(g.sin().sum() for g in first if g is not None and g.requires_grad)
            second = torch.autograd.grad(total, given, retain_graph=True, allow_unused=True)
            mine_found += [*first, *[torch.zeros(()) if g is None or not g.any() else g for g in second]]
        for place, result in enumerate(made):
            result.retain_grad()
            result.register_hook(lambda g, place=place, seen=seen: seen.append((place, g)) or g * (place + 2))
        torch.autograd.backward([r.sum() for r in made])
        gradients.append([*mine_found, *(t.grad for t in given), *(g for _, g in sorted(seen, key=lambda s: s[0]))])
    assert [g is None for g in gradients[0]] == [g is None for g in gradients[1]]
    torch.testing.assert_close(*gradients)


def test_a_hook_of_a_result_is_left_to_eager(graph, eager_runner, real):
    """What others see of the result's gradient is what the hook gives."""

    def fn(x, w):
        y = x * w
        y.register_hook(lambda g: g * 2)
        return y, y.sin()

    with pytest.raises(aot.Refusal, match="hook of a result"):
        aot.aot_compile(graph(fn, 2), [real(4), real(4)], forward_compiler=eager_runner, options=aot.AotOptions(fallback=False))


def test_a_detached_view_with_a_history_of_its_own_is_left_to_eager(graph, eager_runner, real, data):
    def of_an_input(x, w):
        t = x.detach()
        t.add_(w)
        return (t,)

    def of_a_result(x, w):
        y = x * 2
        t = y.detach()
        t.add_(w)
        return y, t

    for fn in (of_an_input, of_a_result):
        with pytest.raises(aot.Refusal, match="a history of its own"):
            options = aot.AotOptions(fallback=False)
            aot.aot_compile(graph(fn, 2), [data(4), real(4)], forward_compiler=eager_runner, options=options)


def test_a_write_behind_autograd_to_an_input_with_a_history_is_left_to_eager(graph, eager_runner, real):
    """The engine asks a view that has a new version for another history, which what came before the write does not have."""

    def unrecorded(x, w):
        y = x * w
        with torch.no_grad():
            x.add_(1)
        return y, x.exp() * w

    def detached(x, w):
        y = x * w
        x.detach().add_(1)
        return (y,)

    for fn in (unrecorded, detached):
        with pytest.raises(aot.Refusal, match="not recorded to an input with a history"):
            options = aot.AotOptions(fallback=False)
            inputs = [real(4, 4) * 1, real(4, 4)]
            aot.aot_compile(graph(fn, 2), inputs, forward_compiler=eager_runner, options=options)


def test_hooks_of_what_results_are_views_of_are_left_to_eager(graph, eager_runner, real):
    def fn(x, w):
        row = x[0]
        row.register_hook(lambda g: g * 2)
        return row.unsqueeze(0), row * w

    with pytest.raises(aot.Refusal, match="a hook of what a result"):
        aot.aot_compile(
            graph(fn, 2), [real(4, 4), real(4)], forward_compiler=eager_runner, options=aot.AotOptions(fallback=False)
        )


def test_the_hook_of_an_input_that_no_history_leads_to_is_not_called(pair, real):
    """The view was made without gradients and says that it requires them: what is computed from it has a history that leads nowhere."""

    def fn(x, w):
        with torch.no_grad():
            view = w.t()
        return (view.view_as(view).sin(),)

    found = pair(fn, real(4, 4), real(4, 4), make=lambda x, w: (x * 1, w))
    for results, (x, _) in zip(found.call(), (found.mine, found.theirs), strict=True):
        x.register_hook(torch.sin)  # a TypeError if it is called without a gradient
        assert results[0].requires_grad
        assert torch.autograd.grad(results[0].sum(), [x], allow_unused=True) == (None,)


def test_backwards_of_results_that_share_a_view_of_an_input_are_apart(pair, real):
    def fn(x, w):
        t = torch.stack([x, x, x, x]).t()
        return (t * 2).sin(), (t * w).cos()

    found = pair(fn, real(4), real(4, 4))
    gradients = []
    for results, inputs in zip(found.call(), (found.mine, found.theirs), strict=True):
        for result in results:
            result.sum().backward()  # frees the history of this one alone
        gradients.append([x.grad for x in inputs])
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("view", [lambda y: y.t(), lambda y: y.view(-1)[2:], lambda y: y.unsqueeze(0)])
def test_the_hook_of_an_input_that_only_another_result_is_computed_from_is_not_called(view, pair, real):
    """What the first result is a view of is no result, and the second one is computed from it and from an input more."""

    def fn(x, w):
        y = x * x
        return view(y), y + w

    found = pair(fn, real(4, 4), real(4, 4), make=lambda x, w: (x * 1, w * 1))
    gradients = []
    for results, inputs in zip(found.call(), (found.mine, found.theirs), strict=True):
        for tensor in inputs:
            tensor.register_hook(lambda g: g * 2)  # a TypeError if it is called without a gradient
        for result in results:
            gradients.append(torch.autograd.grad(result.sum(), inputs, retain_graph=True, allow_unused=True))
    assert [g is None for g in gradients[0]] == [False, True]
    torch.testing.assert_close(gradients[:2], gradients[2:])


ATTENTION = {
    "efficient": lambda q, k, v, bias: torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, bias, True)[0],
    "cudnn": lambda q, k, v, bias: torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, bias, True)[0],
}


@pytest.mark.parametrize("attention", ATTENTION.values(), ids=ATTENTION)
def test_keys_and_values_are_results_beside_attention_of_a_gpu(attention, graph):
    """Its backward is tagged as random; given where the forward drew, it draws nothing, and the gradients come apart."""

    def with_cache(x, w, bias):
        k, v = x * w, x + w
        return k, v, attention(x, k, v, bias) * w

    x, w, bias = (torch.randn(1, 2, 16, 16, requires_grad=True) for _ in range(3))
    programs = []
    aot.aot_compile(
        graph(with_cache, 3),
        [x, w, bias.detach() if attention is ATTENTION["cudnn"] else bias],
        forward_compiler=lambda gm, spec: gm.forward,  # it is traced alone: there are no kernels for it on a CPU
        options=aot.AotOptions(fallback=False),
        observe=lambda stage, program: programs.append(program),
    )
    assert len(programs[0].signature.components) == 3


def test_what_is_given_a_state_does_not_draw():
    from tracework_aotautograd._torch import draws

    random = torch.Tag.nondeterministic_seeded
    packets = (getattr(torch.ops.aten, name) for name in dir(torch.ops.aten))
    packets = [packet for packet in packets if isinstance(packet, torch._ops.OpOverloadPacket)]
    tagged = [op for p in packets for op in (getattr(p, o) for o in p.overloads()) if random in op.tags]
    still = {op._schema.name for op in tagged if not draws(op)}
    assert still >= {f"aten::_scaled_dot_product_{kind}_attention_backward" for kind in ("cudnn", "efficient")}
    assert all("backward" in name for name in still) and len(tagged) > 50

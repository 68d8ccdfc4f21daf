"""Outputs that are inputs, views of inputs, or share memory with each other: writes to them show where they show in eager."""

import gc
import weakref

import pytest
import torch
from torch import fx
from tracework_aotautograd import AotOptions, Refusal, aot_compile

CASES = {
    "inputs": lambda x: (x, x + 1, x),
    "views_of_input": lambda x: (x.view(-1), x.t(), x[1:], x[0], x.detach()),
    "shared": lambda x: (lambda y: (y, y.view(-1), y[0], y))(x * 2),
    "expanded": lambda x: ((x * 2)[:1].expand(5, 4), (x * 2)[:, ::2]),
    "pieces": lambda x: tuple((x + 1).split(1)) + (x.unbind(1)[2],),
    "detached": lambda x: (lambda y: (y, y.detach()))(x * 2),
    "copied": lambda x: copied(x * 2, (x + 1).detach()),
}


def copied(target, source):
    target.unsqueeze(0).copy_(source)
    target[None].view(1, -1).copy_(source.view(-1))
    return target, source


@pytest.mark.parametrize("name", CASES)
def test_values(name, check, real, data):
    check(CASES[name], real(3, 4))
    check(CASES[name], data(3, 4))


@pytest.mark.parametrize("name", CASES)
def test_writes_after_the_call_show_alike(name, pair, data):
    found = pair(CASES[name], data(3, 4))
    mine, theirs = found.call()
    for position in range(len(theirs)):
        if 0 not in theirs[position].stride():
            mine[position].mul_(3)
            theirs[position].mul_(3)
            for a, b in zip((*mine, *found.mine), (*theirs, *found.theirs), strict=True):
                torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", CASES)
def test_same_objects(name, pair, real):
    found = pair(CASES[name], real(3, 4))
    mine, theirs = found.call()
    for i, a in enumerate(theirs):
        assert (a is found.theirs[0]) == (mine[i] is found.mine[0])
        assert [a is b for b in theirs] == [mine[i] is b for b in mine]


def test_views_through_a_write(check, real, data):
    def fn(x, w):
        y = x * 1
        v = y.view(-1)
        y.add_(w)
        return v, y[0]

    check(fn, real(3, 4), real(3, 4))
    check(fn, data(3, 4), data(3, 4))

    def input_too(x):
        v = x.t()
        x.add_(1)
        return v, x

    check(input_too, data(3, 4))


def test_the_graphs_constants_are_not_handed_out(pair, data):
    found = pair(lambda x: (x + 1, torch.tensor([1.0, 2.0])), data(2))
    mine, _ = found.call()
    mine[1].fill_(9)
    again, theirs = found.call()
    torch.testing.assert_close(again[1], theirs[1])


def unsqueezed_in_place(x, w):
    y = x * w
    y.unsqueeze_(0)
    return (y.mul(2), y)


def transposed_in_place(x, w):
    y = (x * w).sin()
    y.t_()
    y.add_(1)
    return (y, y.sum())


def view_squeezed_in_place(x, w):
    y = x * w
    row = y[:1]
    row.squeeze_(0)
    row.mul_(3)
    return (y, row * 2)


@pytest.mark.parametrize("fn", [unsqueezed_in_place, transposed_in_place])
def test_sizes_changed_in_place(check, real, fn):
    check(fn, real(3, 4), real(3, 4))


def test_sizes_of_a_view_changed_in_place(check, pair, real, data):
    check(view_squeezed_in_place, data(3, 4), data(3, 4))
    with pytest.raises(Refusal, match="sizes of a view that requires grad"):
        pair(view_squeezed_in_place, real(3, 4), real(3, 4))


def base_transposed_in_place(x, w):
    y = x * w
    row = y.view(-1)
    y.t_()
    return (y, row * 2)


def test_sizes_of_what_others_are_views_of(check, pair, real, data):
    check(base_transposed_in_place, data(3, 4), data(3, 4))
    with pytest.raises(Refusal, match="what others are views of"):
        pair(base_transposed_in_place, real(3, 4), real(3, 4))


def turned_twice(x, w):
    y = x * w
    y.unsqueeze_(0)
    y.transpose_(0, 2)
    return (y, y.view(-1).sin())


def test_sizes_changed_in_place_twice(check, real):
    check(turned_twice, real(3, 1), real(3, 1))


def test_sizes_of_an_input_changed_in_place_are_refused(pair, data):
    with pytest.raises(Refusal, match="sizes of memory that the caller sees"):
        pair(lambda x: (x.t_() * 2,), data(3, 4))


def part_of_an_expand_written(x):
    y = x * 2
    y.expand(2, *y.shape)[0].add_(1)
    return (y,)


def test_a_write_to_part_of_an_expand_is_refused_with_the_place_of_the_write(data):
    graph = fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(part_of_an_expand_written, (x,))
    node.meta["stack"] = "program.py:3 in main"
    graph.output(node)
    with pytest.raises(Refusal, match=r"part of an expand.*\(at program.py:3 in main"):
        aot_compile(fx.GraphModule({}, graph), [data(3, 4)], forward_compiler=None, options=AotOptions(fallback=False))


def test_a_write_through_a_conjugate(check):
    def fn(x):
        y = x * 2
        y.conj().mul_(1j)
        return y, torch.view_as_real(y.conj().resolve_conj())

    check(fn, torch.randn(3, dtype=torch.complex128, requires_grad=True))


def test_a_history_that_begins_in_the_graph_is_refused_where_no_input_has_one(pair, data):
    with pytest.raises(Refusal, match="asked for its gradient"):
        pair(lambda x: (x.clone().requires_grad_() * 2,), data(3, 4))


@pytest.mark.parametrize("own", [False, True])
def test_views_made_without_gradients_have_none_and_pass_none_on(own, pair, real):
    """Each view op of a chain is made again with gradients on or off as the program made it."""

    def f(x):
        x = x * 1 if own else x
        with torch.no_grad():
            view = x[1:]
        return x * 2, x.t(), view, view[0], view.split(1)[1]

    found = pair(f, real(3, 4))
    mine, theirs = found.call()
    assert [(t.requires_grad, t.grad_fn is None) for t in mine] == [(t.requires_grad, t.grad_fn is None) for t in theirs]
    for given, results in ((found.mine, mine), (found.theirs, theirs)):
        sum(((i + 1) * t).sum() for i, t in enumerate(results) if t.grad_fn is not None).backward()
        assert torch.equal(given[0].grad, torch.full((3, 4), 4.0))


@pytest.mark.parametrize("others", [0, 1])
def test_views_made_without_gradients_of_what_no_result_shows(others, pair, real):
    """Such a view requires grad as its base does, which has a history that nobody reaches."""

    def f(x):
        y = x.sin() * x
        base = y.tril()
        with torch.no_grad():
            views = base.view(-1), base[1:]
        return (*views[: 1 + others], y)

    found = pair(f, real(3, 4))
    mine, theirs = found.call()
    facts = [[(t.requires_grad, t.grad_fn is None, t._is_view()) for t in results] for results in (mine, theirs)]
    assert facts[0] == facts[1] == [(True, True, True)] * (1 + others) + [(True, False, False)]
    seconds = []
    for given, results in ((found.mine, mine), (found.theirs, theirs)):
        (first,) = torch.autograd.grad(results[-1].sum(), given, create_graph=True)
        seconds.append(torch.autograd.grad(first.sum(), given)[0])
    assert torch.allclose(*seconds)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x.unfold(0, 3, 1).select_scatter(x.new_zeros(3), 0, 1),),
        lambda x: (x.unfold(0, 3, 1).slice_scatter(x.new_zeros(2, 3), 0, 0, 2),),
        lambda x: (x.as_strided((3, 3), (2, 1)).diagonal_scatter(x.new_zeros(3)),),
        lambda x: (x.unfold(0, 3, 1).as_strided_scatter(x.new_zeros(3), (3,), (1,)),),
    ],
)
def test_a_scatter_into_windows_that_overlap_is_left_to_eager(fn, graph, eager_runner, data):
    """It writes to what other windows show, too, by the strides of its argument."""
    with pytest.raises(Refusal, match="windows that overlap"):
        aot_compile(graph(fn, 1), [data(8)], forward_compiler=eager_runner, options=AotOptions(fallback=False))


def test_a_scatter_into_what_an_expand_repeats(check, real):
    check(lambda x: (x.expand(3, 3).select_scatter(x * 2, 0, 1),), real(3))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_view_of_a_detached_result_has_that_as_its_base(requires_grad, graph, eager_runner, real):
    def fn(x):
        y = (x * 2).detach()
        return y, y[0], y.t()[1], x.detach()[0]

    x = real(3, 3).requires_grad_(requires_grad)
    for run in (aot_compile(graph(fn, 1), [x], forward_compiler=eager_runner), fn):
        y, *views, of_input = run(x)
        assert [view._base is y for view in views] == [True, True]
        assert of_input._is_view() and of_input._base is not x


def test_results_that_share_memory_end_with_their_last_holder(graph, eager_runner, data):
    compiled = aot_compile(graph(lambda x: (y := x * 2, y[1:], y.view(-1, 1)), 1), [data(4)], forward_compiler=eager_runner)
    gc.disable()
    try:
        ended = [weakref.ref(result) for result in compiled(data(4))]
        assert [ref() for ref in ended] == [None] * 3
    finally:
        gc.enable()


def piece_of_filled_zeros(w):
    y = torch.zeros(2, 3)
    y[0] = w * 2
    return y.chunk(2)


def rows_of_filled_zeros(w):
    y = w.new_zeros(2, 3)
    y[0] = w * 2
    return y[0], y[1], y


def part_of_filled_memory(w):
    y = torch.empty(2, 3)
    y.copy_(w)
    return (y[:, 1:],)


def view_before_a_write(w):
    y = torch.ones_like(w)
    v = y.expand(2, 3)
    y.mul_(w)
    return v, w * 2


def detached_view_that_is_written(w):
    y = w * 2
    v = y.detach()[1:]
    v.mul_(w[1:])
    return v[None].expand(2, 2), w * 2


@pytest.mark.parametrize(
    "fn", [piece_of_filled_zeros, rows_of_filled_zeros, part_of_filled_memory, view_before_a_write, detached_view_that_is_written]
)
def test_views_of_what_got_its_history_by_a_write(fn, graph, eager_runner):
    found = []
    inputs = [torch.arange(1.0, 4.0).requires_grad_() for _ in range(2)]
    call = aot_compile(graph(fn, 1), inputs[:1], forward_compiler=eager_runner)
    for run, w in zip((call, fn), inputs, strict=True):
        results = run(w)
        facts = [(t.requires_grad, t._is_view(), t._version, t.stride(), t.detach().clone()) for t in results]
        loss = sum((t * torch.arange(1.0, t.numel() + 1).view(t.shape)).sum() for t in results)
        found.append((facts, torch.autograd.grad(loss, w)[0]))
    torch.testing.assert_close(*found)

"""Numbers, texts and lists out of data that Python gets when the graph has run: nothing breaks where they are passed on, counted with or shown."""

import copy
import math

import pytest
import torch
from tracework_capture import explain, optimize

X = torch.arange(12.0).reshape(3, 4)
WHOLE = torch.arange(12).reshape(3, 4)


def kinds(x, n):
    return n.sum().item(), int(n[0, 1]), bool(x.any()), float(n[1, 1]), (x > 1).any().item(), n[0, :1].item(), int((x > 3).all())


def lists(x, n):
    found = x.tolist()
    return found, n[0].tolist(), (x[1] > 4).tolist(), len(found), found[0], found[-1][1] + 1, [round(v, 1) for v in x[2].tolist()]


def arithmetic(x, n):
    k = n.sum().item()
    other = k + n[0, 1].item()
    return (
        k + 1,
        1 - k,
        k * other,
        k / 4,
        k // 5,
        k % 7,
        -k,
        +k,
        k * 2.5,
        k - 0.5,
        True + k,
        k / len(x),
        float(k),
        int(k),
        round(k / 7, 2),
    )


def with_floats(x, n):
    loss, hits = x.mean().item(), (x > 3).sum().item()
    return loss * hits, hits - loss, hits / 12 * loss, round(loss, 1), sum([loss, hits / 3, 1]), sum([hits, 1])


def negated(x, n):
    return not (x > 3).sum().item(), not bool(x.any())


def texts(x, n):
    loss, hits = x.mean(), (x > 3).sum().item()
    named = "{a} {b:>8}".format(a=hits, b="z")
    return (
        f"{loss.item():.3f} {hits:4d} {hits!r}",
        "%d of %s, %.2f" % (hits, 12, loss.item()),  # noqa: UP031
        "loss {:.3f} of {}".format(loss.item(), hits),  # noqa: UP032
        named,
        str(hits) + "/" + repr(hits),
        f"{x[0].tolist()}",
        "n=%d" % hits,  # noqa: UP031
    )


def kept(x, n):
    meter = {"hits": 0, "losses": []}
    for row in x:
        meter["hits"] += (row > 2).sum().item()
        meter["losses"].append(row.long().sum().item())
    return meter, meter["hits"] / 12, meter["hits"] is None, isinstance(meter["hits"], int)


def read_before_it_is_written_to(x, n):
    y = n * 1
    first, whole = y[0, 0].item(), y.tolist()
    y += 5
    return first, whole, y


@pytest.mark.parametrize(
    "function",
    [kinds, lists, arithmetic, with_floats, negated, texts, kept, read_before_it_is_written_to],
    ids=lambda function: function.__name__,
)
def test_nothing_breaks(function):
    fast = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(function)
    for x, n in ((X, WHOLE), (X * 2 - 3, WHOLE * 3), (X * math.nan, -WHOLE)):
        expected, found = function(x, n), fast(x, n)
        assert repr(found) == repr(expected)


def a_size(x, n):
    k = n[0, 3].item()
    return x[:k] + 1


def a_branch(x, n):
    k = n.sum().item()
    y = x + 1
    return (y * 2 if k > 70 else y), k


def rounds(x, n):
    y = x
    for i in range(n[0, 3].item()):
        y = y + i
    return y


def a_character(x, n):
    return x + 1, "%c" % n[2, 3].item()  # noqa: UP031


def a_key(x, n):
    k = n[0, 1].item()
    return x + 1, {k: "a"}[1]


def a_list_that_grows(x, n):
    found = x[0].tolist()
    found.append(3)
    return x + 1, found


def a_number_of_the_graph(x, n):
    k = n[0, 1].item()
    return x * k, torch.full((2,), k)


@pytest.mark.parametrize(
    "function",
    [a_size, a_branch, rounds, a_character, a_key, a_list_that_grows, a_number_of_the_graph],
    ids=lambda function: function.__name__,
)
def test_what_needs_the_number_breaks_where_the_program_asks_for_it(function):
    found = explain(function)(X, WHOLE)
    assert repr(found.result) == repr(function(X, WHOLE))
    (stop,) = found.breaks
    assert stop.reason_id == "tensor_to_python" and "needed while tracing" not in stop.detail


def test_printed_when_the_graph_has_run(capsys):
    def show(x, n):
        print("hits", n.sum().item(), f"{x.mean().item():.1f}", n[0].tolist())
        return x + 1

    show(X, WHOLE)
    expected = capsys.readouterr().out
    optimize(lambda gm, inputs: gm.forward, fullgraph=True)(show)(X, WHOLE)
    assert capsys.readouterr().out == expected


def test_gradients_pass_by_what_is_read():
    def step(x):
        loss = (x**2).sum()
        return loss, loss.item(), x.tolist(), bool(loss > 3)

    first, second = (copy.deepcopy(X).requires_grad_() for _ in range(2))
    expected, found = step(first), optimize(lambda gm, inputs: gm.forward, fullgraph=True)(step)(second)
    expected[0].backward(), found[0].backward()
    assert repr(found[1:]) == repr(expected[1:]) and torch.equal(first.grad, second.grad)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


def test_a_backward_in_a_frame_that_keeps_what_it_reads_from_a_tensor():
    kept = []

    def fn(x, ids):
        kept.append((ids.tolist(),))
        return Doubled.apply(x * 1)

    x = torch.ones(2, requires_grad=True)
    found = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(fn)(x, torch.arange(2))
    found.sum().backward()
    assert found.tolist() == [2, 2] and x.grad.tolist() == [3, 3] and kept == [([0, 1],)]

"""Sizes and numbers that depend on data stay in the graph with fullgraph=True or the option `unbacked`. Without them numbers break, and
sizes stay only in frames that go into one graph without a decision on them."""

import logging

import pytest
import torch
import tracework
from tracework_capture.errors import Unsupported
from training import BACKENDS, same


def number(x):
    n = (x > 0).sum().item()
    return torch.zeros(3) + n, n * 2


def size(x):
    n = (x > 0).sum().item()
    torch._check(n >= 0)
    return torch.ones(n) * 2 + 1, n


def positions(x):
    found = x.nonzero()
    return found.float().sum(0) + 1, found.shape[0]


def elements(x):
    return x[x > 0].exp() * 2, x[x > 0].shape


def rows(x):
    chosen = x[x[:, 0] > 0]
    return torch.softmax(chosen * 2 + 1, -1).sum(0), chosen @ torch.ones(4, 5)


def coordinates(x):
    first, second = torch.where(x > 0)
    return (x[first, second] * 2).sum(), first * 3


def listed(x):
    first, second = (x > 0).sum(1)[:2].tolist()
    torch._check(first >= 0)
    return torch.ones(first + 1) * second


def selected(x):
    return x.masked_select(x > 0.1).cumsum(0) * 2


def repeated(x):
    counts = (x[:, 0] > 0).long() + 1
    return torch.repeat_interleave(x, counts, 0) + 1


def leading_rows(x):
    n = (x > 0).sum().item() // 8
    torch._check(n >= 0)
    torch._check(n <= x.shape[0])
    return x[:n] * 2


def written_between(x):
    y = x * 2
    n = (y > 0).sum().item()
    y.add_(n)
    y[y > 20] = 0.0
    return y, n


def distinct(x):
    signs = x.sign().long()
    found, counts = torch.unique(signs, return_counts=True)
    runs, which = torch.unique_consecutive(signs.flatten(), return_inverse=True)
    slices = torch.unique(signs, dim=0, return_inverse=True)
    return found * 2, counts + 1, runs - 1, which * 2, slices, torch.bincount(signs.flatten() + 1, minlength=2) * 2


def bounded(x):
    """The number that a loss is divided by, say."""
    some, others = torch.where(x > 0)[0], torch.where(x < -0.5)[0]
    found = some.numel() + others.numel()
    at_least, at_most = max(1, found), min([found, x.numel() // 2, 5])
    return x.sum() / at_least, torch.ones(at_most) * at_most, at_least, at_most


PROGRAMS = [
    bounded,
    distinct,
    number,
    size,
    positions,
    elements,
    rows,
    coordinates,
    listed,
    selected,
    repeated,
    leading_rows,
    written_between,
]
X = torch.arange(24.0).reshape(6, 4).sin()
INPUTS = [X, -X, X + 3, X - 3, torch.eye(6, 4) * 0.2 - 0.1]  # all elements, none, one in some rows


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_graph_for_all_data(function, backend, dynamic, caplog):
    compiled = tracework.compile(function, backend=backend, fullgraph=True, dynamic=dynamic, options={"unbacked": True})
    with caplog.at_level(logging.WARNING, "tracework.fallbacks"):
        for x in INPUTS:
            found, expected = compiled(x.clone()), function(x.clone())
            same(found if isinstance(found, tuple) else [found], expected if isinstance(expected, tuple) else [expected])
    assert not caplog.records


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients(backend):
    def loss(x, w):
        chosen = x[x[:, 0] > 0]
        return ((chosen @ w).relu() * chosen.shape[0]).sum() + (w * chosen.sum()).exp().mean()

    compiled = tracework.compile(loss, backend=backend, fullgraph=True, options={"unbacked": True})
    for x in INPUTS:
        results = []
        for call in (compiled, loss):
            data, w = x.clone().requires_grad_(), torch.linspace(-0.1, 0.1, 20).reshape(4, 5).requires_grad_()
            value = call(data, w)
            value.backward()
            results.append([value.detach(), data.grad, w.grad])
        same(*results)


@pytest.mark.parametrize("backend", BACKENDS)
def test_statements_are_looked_at(backend):
    """torch._check is taken for granted while tracing; when it does not hold, eager's exception is raised before anything lasts."""
    seen = []

    def function(x):
        n = (x > 0).sum().item()
        seen.append(len(seen))
        torch._check(n >= 6, lambda: f"too few: {n}")
        torch._check(n <= 24)
        return x[:, :4] * n, torch.ones(n).sum() if n >= 6 else None

    compiled = tracework.compile(function, backend=backend, fullgraph=True, options={"unbacked": True})
    for x in INPUTS:
        outcomes = []
        for call in (compiled, function):
            seen.clear()
            try:
                outcomes.append([t.tolist() for t in call(x)])
            except RuntimeError as error:
                outcomes.append(str(error))
            outcomes[-1] = (outcomes[-1], list(seen))
        assert outcomes[0] == outcomes[1]


def test_decisions_on_data_break_and_are_errors_in_one_graph():
    def function(x):
        n = (x > 0).sum().item()
        return x * n if n > 12 else x - n

    compiled = tracework.compile(function, backend="eager", options={"unbacked": True})
    for x in INPUTS:
        torch.testing.assert_close(compiled(x), function(x))
    whole = tracework.compile(function, backend="eager", fullgraph=True, options={"unbacked": True})
    with pytest.raises(Unsupported, match=r"u0 > 12[\s\S]*torch\._check"):
        whole(X)


def test_one_graph_keeps_them_without_the_option():
    for function in PROGRAMS:
        compiled = tracework.compile(function, backend="eager", fullgraph=True)
        for x in INPUTS:
            torch.testing.assert_close(compiled(x), function(x))


def test_what_is_known_is_no_symbol():
    def function(x):
        n = torch.tensor(3)
        return torch.repeat_interleave(x, n, 0).shape, torch.arange(n).shape, x[: n.item()]

    same(list(tracework.compile(function, backend="eager", fullgraph=True)(X)), list(function(X)))


def test_without_the_option_they_break():
    with pytest.raises(Unsupported, match="tensor_to_python"):
        tracework.compile(number, backend="eager", fullgraph=True, options={"unbacked": False})(X)
    with pytest.raises(Unsupported, match="dynamic_output_shape"):
        tracework.compile(elements, backend="eager", fullgraph=True, options={"unbacked": False})(X)


# --- sizes that nothing decides on, without the option --------------------------------------------------------------------


class Counting:
    """How many graphs are captured."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, stage, product):
        self.graphs += stage == "captured"


def two_ways(x, mask):
    """Rows go through layers of their own and back to their places, as experts and adapters do it."""
    out = torch.zeros_like(x)
    for index, weight in enumerate((2.0, 3.0)):
        chosen = mask == index
        out[chosen] = torch.tanh(x[chosen] @ torch.full((4, 4), weight)) + 1
    return out + x


def views_written(x, mask):
    y = x * 2
    flat, kept = y.view(-1), y[mask > 0]
    flat.add_(kept.sum())
    y[mask > 0] = kept * 3
    return y + 1, flat.sum(), kept


def inputs_written(x, mask):
    x.mul_(2)
    kept = x[mask > 0]
    x.add_(kept.mean(0).nan_to_num())
    return kept * 2, x


def pairs(x, mask):
    rows = torch.where(mask > 0)[0]
    return x.index_add(0, rows, x[rows].exp()), rows + 1


@pytest.mark.parametrize("function", [two_ways, views_written, inputs_written, pairs], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_that_nothing_decides_on_stay_in_the_graph(function, backend):
    counted = Counting()
    compiled = tracework.compile(function, backend=backend, fullgraph=True, observe=counted)
    for mask in ([0, 1, 0, 1, 1, 0], [0] * 6, [1] * 6, [1, 0, 0, 0, 0, 0], [2] * 6):
        mine, theirs = X.clone(), X.clone()
        same(compiled(mine, torch.tensor(mask)), function(theirs, torch.tensor(mask)))
        same([mine], [theirs])
    assert counted.graphs == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_their_gradients(backend):
    compiled = tracework.compile(two_ways, backend=backend, fullgraph=True)
    for mask in ([0, 1, 0, 1, 1, 0], [0] * 6, [2] * 6, [1, 0, 2, 2, 2, 2]):
        results = []
        for call in (compiled, two_ways):
            x = X.clone().requires_grad_()
            value = call(x, torch.tensor(mask))
            value.square().sum().backward()
            results.append([value.detach(), x.grad])
        same(*results)


def decides(x, mask):
    chosen = x[mask > 0] * 2
    return chosen.sum() if len(chosen) > 3 else chosen.mean(0)


def looped(x, mask):
    total = x.sum(0)
    for row in (mask > 0).nonzero():
        total = total + x[row]
    return total


def prints(x, mask):
    chosen = x[mask > 0]
    print(chosen.tolist())
    return chosen + 1


def without_history(x, mask):
    with torch.no_grad():
        weights = x[mask > 0].sum()
    return x * weights


def adds_to_a_list(x, mask):
    chosen = x[mask > 0]
    found = chosen.tolist()
    found.append(0.0)
    return chosen + len(found)


@pytest.mark.parametrize("function", [decides, looped, adds_to_a_list, without_history], ids=lambda f: f.__name__)
def test_where_something_decides_the_graph_breaks_as_before(function, capsys):
    compiled = tracework.compile(function, backend="eager")
    for mask in ([0, 1, 0, 1, 1, 0], [1] * 6, [1, 0, 0, 0, 0, 0]):
        outcomes = []
        for call in (compiled, function):
            outcomes.append((call(X.clone(), torch.tensor(mask)).tolist(), capsys.readouterr().out))
        assert outcomes[0] == outcomes[1]
    found = tracework.explain(function, backend="eager")(X.clone(), torch.tensor([0, 1, 0, 1, 1, 0]))
    assert found.capture.breaks[0].reason_id == "dynamic_output_shape"


def test_data_of_such_a_size_that_is_shown(capsys):
    compiled = tracework.compile(prints, backend="eager")
    for mask in ([0, 1, 0, 1, 1, 0], [1] * 6, [1, 0, 0, 0, 0, 0]):
        outcomes = [(call(X.clone(), torch.tensor(mask)).tolist(), capsys.readouterr().out) for call in (compiled, prints)]
        assert outcomes[0] == outcomes[1]
    assert not tracework.explain(prints, backend="eager")(X.clone(), torch.tensor([0, 1, 0, 1, 1, 0])).capture.breaks


def test_backends_of_others_are_given_no_such_sizes():
    def backend(gm, example_inputs):
        assert not any(node.meta.get("data_dependent") for node in gm.graph.nodes)
        return gm.forward

    mask = torch.tensor([0, 1, 0, 1, 1, 0])
    same([tracework.compile(two_ways, backend=backend)(X.clone(), mask)], [two_ways(X.clone(), mask)])


def masks_made_twice(x, y):
    first = x[x > 0] * y[x > 0]
    y = y.clone()
    y[x.gt(0) & (x < 1)] = first.sum()
    y[(x > 0) & (x < 1)] += x[(x > 0) & (x < 1)]
    return first.sum(), (y[x > 0] + first).mean(), y


def masks_around_writes(x, y):
    x, y = x + 1, y + 1
    before = x[x > 0].sum()
    x.sub_(1)
    mask = y > 0
    kept = y[mask].sum()
    mask.logical_not_()
    return before, x[x > 0].sum(), kept, y[y > 0].sum(), y[mask].sum()


def masks_of_like_numbers(x, y):
    return x[x > 0].sum(), x[x > 0.0].sum(), x[x > True].sum(), x[x >= 1].sum(), x[0 < x].sum()


def variance(x, y):
    return torch.distributions.StudentT(x.exp(), y, 1.0, validate_args=False).variance


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [masks_made_twice, masks_around_writes, masks_of_like_numbers, variance])
def test_masks_that_say_the_same_select_as_many(program, backend):
    run = tracework.compile(program, backend=backend)
    graphs = tracework.explain(program, backend="eager")(torch.randn(7), torch.randn(7)).capture
    assert len(graphs.graphs) == 1 and not graphs.breaks
    for _ in range(3):
        x, y = torch.randn(7), torch.randn(7)
        torch.testing.assert_close(run(x, y), program(x.clone(), y.clone()), equal_nan=True)

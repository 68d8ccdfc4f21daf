"""Numbers that change from call to call: how many graphs they take, and that every value gives eager's result."""

import math

import pytest
import torch
import torch.nn.functional as F
from tracework_capture import optimize


def graphs_of(function, calls):
    """How many graphs the calls took; each gives what plain Python gives, exceptions included."""
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compiled = optimize(backend, recompile_limit=20)(function)
    for args in calls:
        assert outcome(compiled, args) == outcome(function, args)
    return len(graphs)


def outcome(function, args):
    try:
        result = function(*args)
    except (RuntimeError, IndexError, ValueError, OverflowError) as error:
        return type(error)
    return result.dtype, result.tolist()


X = torch.arange(12.0).reshape(3, 4) - 5.5  # no 0: not a number is not equal to itself
COMPUTED_WITH = {
    "sum": lambda x, n: x + n,
    "product": lambda x, n: n * x,
    "difference": lambda x, n: (n - x) * -n,
    "in place": lambda x, n: x.clone().mul_(n),
    "whole numbers": lambda x, n: x.int() * n,
    "comparison": lambda x, n: (x > n) * 2,
    "choice": lambda x, n: torch.where(x > 0, x, n),
    "fill": lambda x, n: x.masked_fill(x > 0, n).clamp(max=n),
    "arithmetic before": lambda x, n: x * (n // 2) + (n % 3) - (-n),
    "quotient": lambda x, n: x / n,
    "quotient in place": lambda x, n: x.clone().__itruediv__(n),
    "quotient of whole numbers": lambda x, n: (x.int() * 2 + 1) / n,
}
ORDERS = ([5, 7, -1, 0, 1, -4], [-1, -2, 0, 3], [0, 1, 2, -3], [1, 0, -7])


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("function", COMPUTED_WITH.values(), ids=COMPUTED_WITH)
def test_numbers_that_tensors_are_computed_with_take_two_graphs(function, order):
    assert graphs_of(function, [(X, n) for n in order]) == 2


def test_absolute_values_take_one_graph():
    calls = [(X, n) for n in (5, 7, -1, 0, -4, 9, -12)]
    assert graphs_of(lambda x, n: x + abs(n) * 2, calls) <= 2
    assert graphs_of(lambda x, n: x + abs(n) * math.sqrt(abs(n)), calls) <= 3  # of no number, too


GIVEN = {
    "argument": lambda n, s: (X, n, s),
    "items": lambda n, s: (X, [n, 0], {"s": s}),
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_numbers_among_the_arguments_are_open_at_once(given):
    def function(x, n, s):
        n, s = (n[0], s["s"]) if type(n) is list else (n, s)
        return x * n + s

    graphs = []
    compiled = optimize(lambda gm, inputs: graphs.append(gm) or gm.forward, dynamic=True, fullgraph=True)(function)
    for n, s in ((5, 0.5), (7, 0.25), (-3, 1e9), (100, -2.0)):
        assert torch.equal(compiled(*given(n, s)), function(*given(n, s)))
    assert len(graphs) == 1


def test_attributes_of_modules_are_not_open_at_once():
    class Scales(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.by = 3

        def forward(self, x):
            return x * self.by

    graphs = []
    module = optimize(lambda gm, inputs: graphs.append(gm) or gm.forward, dynamic=True)(Scales())
    assert torch.equal(module(X), X * 3)
    assert [node.op for node in graphs[0].graph.nodes].count("placeholder") == 3  # X and its two sizes


SIZES = {
    "slice": lambda x, n: x[:n] * 2,
    "slice from": lambda x, n: x[n:] * 2,
    "index": lambda x, n: x[n] * n,
    "column": lambda x, n: x.select(1, n) + n,
    "rows of zeros": lambda x, n: torch.zeros(n, 4) + n,
    "rows of zeros, computed": lambda x, n: torch.zeros(n + 2, 4) + x[0],
    "view": lambda x, n: x.reshape(n, -1) * n,
    "expansion": lambda x, n: x[:1].expand(n, -1) + n,
    "roll": lambda x, n: x.roll(n, 0) + n,
    "divisor": lambda x, n: x / n,
    "whole divisor": lambda x, n: x.int() // n,
    "exponent": lambda x, n: x.int() ** n,
    "padding": lambda x, n: F.pad(x, (n, 1)),
    "dim": lambda x, n: x.sum(n) * n,
}


@pytest.mark.parametrize("order", [[2, 3, -1, 0, 4, 1, -2, 7], [-1, -2, 0, 3, 9]], ids=str)
@pytest.mark.parametrize("function", SIZES.values(), ids=SIZES)
def test_sizes_and_indices_of_any_value_give_eagers_result(function, order):
    """Where 0, 1 and negative numbers mean something else each has a graph of its own."""
    graphs_of(function, [(X, n) for n in order])


def written(x, n):
    y = x.clone()
    y[n] = 1
    y[:, n % 4] += torch.ones(9)
    y[n, ..., None] = torch.zeros(1, 4, 1)
    return y


POSITIONS = {
    "row": lambda x, n: x[n] * 2,
    "column": lambda x, n: x[:, n % 4],
    "element": lambda x, n: x[n, n % 4],
    "counted from the end": lambda x, n: x[None, ..., n // 3, None],
    "two steps": lambda x, n: x[n][n % 4],
    "beside tensors": lambda x, n: x.reshape(9, 2, 2)[n, :, torch.tensor([1, 0])],
    "between tensors": lambda x, n: x.reshape(9, 2, 2)[torch.tensor([1, 0]), n % 2, torch.tensor([1, 0])],
    "beside a mask": lambda x, n: x[x[:, 0] > n, n % 4],
    "written": written,
    "too many": lambda x, n: x[n, 0, 0],
}


@pytest.mark.parametrize("function", POSITIONS.values(), ids=POSITIONS)
def test_positions_share_a_graph(function):
    x = torch.arange(36.0).reshape(9, 4)
    calls = [(x, n) for n in (2, 6, 7, 3, 8, 5, 9)]
    assert graphs_of(function, calls) <= 4  # remainders and positions of 0 and 1 are by themselves


def test_sizes_of_two_and_more_share_a_graph():
    assert graphs_of(lambda x, n: torch.zeros(n, 4) + x[0], [(X, n) for n in (9, 5, 2, 30, 3)]) == 2


def mixed(x, n):
    views = (x[None, n], x[..., n, None], x[1, n], x[n, -1], x[n, n - 1], x[n][2:])
    x = x.clone()
    x[n - 1, ..., n] = 5
    x[None, n, 1] = 2.5
    x[n, n:] *= 3
    x[[0, n]] = x[n]
    return torch.cat([t.flatten() for t in (*views, x)])


def test_positions_of_all_signs():
    x = torch.randn(30, 30)
    assert graphs_of(mixed, [(x, n) for n in (7, 3, 5, 20, 11)]) == 2
    graphs_of(mixed, [(x, n) for n in (7, 3, -2, 40, -5, 29, 30, 0, 1, -30, -31)])


def test_reasons_of_recompiles_name_the_size(caplog):
    caplog.set_level("INFO", "tracework.capture.recompiles")
    x = torch.randn(30, 30)
    graphs_of(lambda x, rows, n: x[:rows][n], [(x, rows, n) for rows, n in ((20, 7), (21, 3), (9, 8), (9, 10))])
    assert "rows > n does not hold: " in caplog.text or "n < rows does not hold: " in caplog.text, caplog.text
    assert "n is 10" in caplog.text and "rows is 9" in caplog.text


def number_of_a_tensor(x):
    scale = (x > 2).sum().item()
    return x * scale


def number_of_a_helper(x):
    return x + number_of_a_tensor(x)


def count_of_a_tensor(x):
    return x[: (x > 0).sum().item()] + 1


@pytest.mark.parametrize("function", [number_of_a_tensor, number_of_a_helper, count_of_a_tensor])
def test_a_number_that_comes_out_of_a_break_is_an_input_at_once(function):
    assert graphs_of(function, [(torch.arange(8.0) - k,) for k in range(5)]) == 2


SUMS = {
    "floats alone": lambda x, a, b, c: (x + 1, sum([a, b, c])),
    "from a float": lambda x, a, b, c: (x + 1, sum([a, 2, b], 0.5)),
    "what is lost comes back": lambda x, a, b, c: (x + 1, sum([a * b, 1e16, c, -1e16])),
    "times a tensor": lambda x, a, b, c: (x * sum([a, 1.0, b]), 0),
    "a tensor between": lambda x, a, b, c: (sum([1, 2.5, a, x, b, c]), 0),
    "not finite": lambda x, a, b, c: (x + 1, sum([a, float("inf"), b])),
    "numbers of tensors": lambda x, a, b, c: (x + a, sum(v.item() for v in x), sum([x.sum().item(), 1, b, True])),
    "sizes": lambda x, a, b, c: (x + 1, sum([x.shape[0] / 3, 0.1, 0.7, x.shape[0], c])),
}


@pytest.mark.parametrize("function", SUMS.values(), ids=SUMS)
def test_sums_of_floats_are_those_of_python(function):
    """From 3.12 on sum() adds what rounding took from the floats."""
    compiled = optimize(lambda gm, example_inputs: gm.forward)(function)
    generator = torch.Generator().manual_seed(0)
    for round_ in range(5):
        x, factors = torch.rand(5 + round_, generator=generator), (torch.rand(3, generator=generator) - 0.5).double()
        args = (x, *(factors * torch.tensor([1e-3, 1e6, 1.0]).double().roll(round_)).tolist())
        (tensor, *numbers), (expected, *plain) = compiled(*args), function(*args)
        torch.testing.assert_close(tensor, expected, rtol=0, atol=0)
        assert numbers == plain


LARGE = {
    "limit": lambda x, n: x + min(n, 2**64),
    "comparison": lambda x, n: x + (n < 10**30) + (n * 2 > -(2**80)),
    "float": lambda x, n: x + (n < 1e300),
    "sum": lambda x, n: x + (n + 2**90) % 7,
    "product": lambda x, n: x + n * 2**200 // 2**200,
    "square": lambda x, n: x[n**8 % 3],
    "infinite": lambda x, n: x + (n * 10**400 > 5),
}


@pytest.mark.parametrize("function", LARGE.values(), ids=LARGE)
def test_numbers_beyond_what_guards_compute_with(function):
    assert graphs_of(function, [(X, n) for n in (5, 7, 2**10, 2**60, 2**70, -3)]) <= 6


TUPLES = {
    "text": lambda x, n: x * len(str((n, [1], (n,)))),
    "format": lambda x, n: x * len(f"{(n, 1)}"),
    "order": lambda x, n: x * sorted([(n, 1), (3, 2)])[0][0],
    "distance": lambda x, n: x * math.dist((n, 1), (2, 2)),
    "hash": lambda x, n: x * (hash((n, (n, 1))) % 3),
}


@pytest.mark.parametrize("function", TUPLES.values(), ids=TUPLES)
def test_tuples_with_ints_that_change_where_all_of_them_must_be_known(function):
    assert graphs_of(function, [(X, n) for n in (2, 3, 40)]) <= 3


@pytest.mark.parametrize("keyword", [False, True])
def test_defaults_of_functions_that_are_made_anew(keyword):
    def scaled_by(n):
        if keyword:
            return lambda x, *, scale=n: x * scale
        return lambda x, scale=n: x * scale

    assert graphs_of(lambda x, scaled: scaled(x), [(X, scaled_by(n)) for n in (3, 5, 2, 0.5, 7, -1)]) <= 3


@pytest.mark.parametrize(
    "asked",
    [
        *(lambda n, name=name: getattr(n, name)(2) for name in ("__int__", "__index__", "__trunc__", "__floor__", "conjugate")),
        *(lambda n, name=name: getattr(n, name)(0.5) for name in ("__add__", "__mul__", "__eq__", "__lt__")),
        lambda n: n.__add__(),
        lambda n: (n.__add__(n), n.__mul__(True), n.__int__(), n.__eq__("a")),
        lambda n: bool(n, 2),
    ],
)
def test_methods_of_ints_take_the_arguments_that_they_take(asked):
    def outcome(function, n):
        try:
            return repr(function(X, n))
        except TypeError as error:
            return error.args

    def function(x, n):
        return x * 2, asked(n)

    compiled = optimize(lambda gm, inputs: gm.forward)(function)
    for n in (3, 5, 4):
        assert outcome(compiled, n) == outcome(function, n)

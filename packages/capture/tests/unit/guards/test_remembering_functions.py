"""Functions that functools.cache made, when the program makes another one for each call: they are guarded by what they run and give."""

import functools
import math

import pytest
import torch
from tracework_capture import optimize

X = torch.ones(3)


def counted(function):
    graphs = []
    return optimize(lambda gm, inputs: (graphs.append(gm), gm.forward)[1])(function), graphs


def of_number(number):
    return functools.lru_cache(lambda n: n * number)


def of_list(numbers):
    return functools.lru_cache(lambda n: n + len(numbers))


def giving_lists(number):
    return functools.cache(lambda n: [n, number])


def test_one_entry_serves_all_that_give_the_same():
    compiled, graphs = counted(lambda x, g: (x * g(3) + g(3), g))
    for number in (2, 2, 2, 5, 2, 2.0, True):
        function = of_number(number)
        found, same = compiled(X, function)
        assert torch.equal(found, X * 3 * number + 3 * number)
        assert same is function
    assert len(graphs) == 4  # 2, 5, 2.0 and True


def test_what_it_remembers_is_what_counts():
    calls = []

    def maker():
        @functools.lru_cache
        def g(n):
            calls.append(n)
            return len(calls)

        return g

    def program(x, g):
        return x * g(3)

    compiled, graphs = counted(program)
    for _ in range(4):
        calls.clear()
        assert torch.equal(compiled(X, maker()), X)
        assert calls == [3]
    calls.clear()
    warm = maker()
    warm(4)
    assert torch.equal(compiled(X, warm), X * 2)
    assert calls == [4, 3]
    assert len(graphs) == 2


@pytest.mark.parametrize(
    "program",
    [
        lambda x, g, h: (x * g(3), g is h),
        lambda x, g, h: (x * g(3), {g: 1}.get(h)),
        lambda x, g, h: (x * g(3), g == h),
        lambda x, g, h: (x * g(3), g != h),
        lambda x, g, h: (x + 1, [h, g].count(g)),
        lambda x, g, h: (x + 1, g.__wrapped__(2) + g(2)),
    ],
    ids=["is", "key", "equal", "unequal", "counted", "wrapped"],
)
def test_where_the_object_counts_it_is_guarded(program):
    compiled, _ = counted(program)
    one, other = of_number(2), of_number(3)
    for g, h in ((one, one), (one, other), (other, other), (other, one), (one, one)):
        (found, fact), (expected, wanted) = compiled(X, g, h), program(X, g, h)
        assert torch.equal(found, expected)
        assert fact == wanted


def test_objects_that_it_gives_are_its_own():
    def program(x, g):
        return x * g(3)[1], g(3)

    compiled, _ = counted(program)
    for number in (2, 2, 4):
        function = giving_lists(number)
        for _ in range(2):
            found, held = compiled(X, function)
            assert torch.equal(found, X * number)
            assert held is function(3)


def test_what_the_frame_wrote_before_is_in_place():
    def program(x, numbers, g):
        numbers.append(1)
        return x * g(3)

    compiled, _ = counted(program)
    for _ in range(3):
        assert torch.equal(compiled(X, [1], of_list([1])), X * 4)
    numbers = [1]
    assert torch.equal(compiled(X, numbers, of_list(numbers)), X * 5)


def test_of_tensors_it_runs_the_code():
    compiled, graphs = counted(lambda x, g: g(x) + 1)
    for number in (2.0, 3.0, 4.0, 5.0):
        assert torch.equal(compiled(X, of_number(number)), X * number + 1)
    assert len(graphs) == 2


def test_made_inside_of_the_frame():
    def program(x):
        @functools.lru_cache
        def g(n):
            return n * 2

        return x * g(3)

    compiled, graphs = counted(program)
    for _ in range(4):
        assert torch.equal(compiled(X), X * 6)
    assert len(graphs) == 1


def test_it_forgets_in_the_order_of_the_calls():
    calls = []

    @functools.lru_cache(maxsize=2)
    def g(n):
        calls.append(n)
        return n * 2

    def program(x):
        return x * (g(1) + g(2) + g(1) + g(3) + g(2))

    compiled, _ = counted(program)
    for _ in range(3):
        g.cache_clear()
        calls.clear()
        assert torch.equal(compiled(X), X * 18) and calls == [1, 2, 3, 2] and g.cache_info().misses == 4


@pytest.mark.parametrize("anew", [True, False])
def test_it_is_asked_what_the_program_asks_and_nothing_else(anew):
    calls = []

    def maker():
        return functools.lru_cache(lambda n: (calls.append(n), n * 2)[1])

    function = maker()
    compiled, _ = counted(lambda x, n, g: x * g(n) if len(x) > 2 else x - g(n))
    for n, rows in ((3, 3), (4, 3), (5, 3), (3, 3), (5, 2), (6, 4), (2.5, 3)):
        given = maker() if anew else function
        given.cache_clear()
        calls.clear()
        x = torch.ones(rows)
        assert torch.equal(compiled(x, n, given), x * n * 2 if rows > 2 else x - n * 2)
        assert calls == [n]


SCALE = 2


@functools.lru_cache(maxsize=4)
def doubled(n):
    return n * 2 if n > 0 else math.sqrt(abs(n))


@functools.lru_cache
def scaled(n):
    return n * SCALE


@functools.lru_cache
def inverse(n):
    return 12 // (n - 5)


def test_a_formula_of_an_int_that_changes():
    """It is part of the graph, and the function remembers and counts as in plain Python."""

    def step(x, n):
        return x * doubled(n) + doubled(n)

    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    compiled = optimize(backend)(step)
    numbers = (3, 4, 5, 6, 3, 7, 8, 9, 3, -4, -9)

    def run(call):
        doubled.cache_clear()
        return [(call(torch.ones(3), n).tolist(), doubled.cache_info()) for n in numbers]

    expected = run(step)
    assert run(compiled) == expected
    assert len(graphs) <= 4


def test_what_depends_on_more_than_its_int_is_asked(monkeypatch):
    compiled = optimize(lambda gm, inputs: gm.forward)(lambda x, n: x * scaled(n))
    for n in (3, 4, 5):
        assert compiled(torch.ones(()), n) == n * 2
    monkeypatch.setitem(globals(), "SCALE", 3)
    for n in (3, 4, 5, 6):  # what it remembers was computed before
        assert compiled(torch.ones(()), n) == (n * 3 if n == 6 else n * 2)


def test_an_error_of_a_formula():
    compiled = optimize(lambda gm, inputs: gm.forward)(lambda x, n: x * inverse(n))
    for n in (7, 8, 9):
        assert compiled(torch.ones(()), n) == 12 // (n - 5)
    with pytest.raises(ZeroDivisionError):
        compiled(torch.ones(()), 5)


@functools.lru_cache(maxsize=8)
def tripled(n):
    return n * 3


def asked_over_a_break(x):
    y = x * tripled(3)
    if y.sum().tolist() > 3:
        y = y + tripled(3)
    return y * tripled(4)


@pytest.mark.parametrize("function", [lambda x: x * tripled(3), asked_over_a_break], ids=["once", "over a break"])
def test_the_first_calls_count_as_in_plain_python(function):
    def counts(call):
        tripled.cache_clear()
        return [(call(X).tolist(), tripled.cache_info()) for _ in range(4)]

    assert counts(optimize(lambda gm, inputs: gm.forward)(function)) == counts(function)


def test_what_it_remembers_may_be_forgotten_at_once():
    compiled = optimize(lambda gm, inputs: gm.forward)(lambda x: (x * 1, giving(1)))
    giving = functools.cache(lambda n: [n])
    assert compiled(X)[1] is giving(1)
    giving.cache_clear()
    assert compiled(X)[1] is giving(1)

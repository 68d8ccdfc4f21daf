"""Tensors drawn from a torch.Generator of the program: the numbers of plain Python, in its order, and the generator left as it leaves it."""

import pytest
import torch
from tracework_capture import explain, optimize

X = torch.arange(12.0).reshape(3, 4)


def generator(seed=3):
    made = torch.Generator()
    made.manual_seed(seed)
    return made


def drawn(x, g):
    first = torch.rand(3, 4, generator=g), torch.randint(0, 9, (3,), generator=g), torch.randperm(5, generator=g)
    return x + first[0], first, torch.normal(0.0, 2.0, (2,), generator=g), torch.randn((2,), generator=g, dtype=torch.float64)


def seeded(x, g):
    before = torch.rand(2, generator=g)
    same = g.manual_seed(11)
    return x + 1, before, torch.rand(2, generator=same), same is g


def written_to(x, g):
    noise = torch.randn(3, 4, generator=g)
    noise *= 2
    noise[0] = 1
    return x + noise, noise


def beside_the_other_generator(x, g):
    return torch.rand(2) + torch.rand(2, generator=g), torch.rand(3), x + 1


@pytest.mark.parametrize(
    "function", [drawn, seeded, written_to, beside_the_other_generator], ids=lambda function: function.__name__
)
def test_drawn_in_one_graph(function):
    fast = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(function)
    mine, theirs = generator(), generator()
    for seed in range(3):
        torch.manual_seed(seed)
        expected = function(X, theirs)
        torch.manual_seed(seed)
        found = fast(X, mine)
        assert repr(found) == repr(expected)
        assert torch.equal(mine.get_state(), theirs.get_state())


def checked(x, g):
    noise = torch.rand(3, 4, generator=g)
    if (x + noise).sum() < 0:
        raise ValueError("negative")
    return x * noise


def test_drawn_once_where_a_condition_on_data_fails():
    fast = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(checked)
    mine, theirs = generator(), generator()
    assert torch.equal(fast(X, mine), checked(X, theirs))
    for function, g in ((fast, mine), (checked, theirs)):
        with pytest.raises(ValueError, match="negative"):
            function(-X, g)
    assert torch.equal(mine.get_state(), theirs.get_state())


def in_place_between_other_numbers(x, g):
    return x + 1, torch.empty(3, 2)[:, 0].normal_(generator=g)


def with_a_gradient(x, g):
    return x + torch.rand(3, 4, generator=g, requires_grad=True)


@pytest.mark.parametrize("function", [in_place_between_other_numbers, with_a_gradient], ids=lambda function: function.__name__)
def test_others_break(function):
    found = explain(function)(X, generator())
    assert repr(found.result) == repr(function(X, generator()))
    assert {stop.reason_id for stop in found.breaks} == {"random_state"}


def test_the_default_generator_breaks():
    torch.manual_seed(0)
    expected = beside_the_other_generator(X, torch.default_generator)
    fast = optimize(lambda gm, inputs: gm.forward)(beside_the_other_generator)
    fast(X, generator())
    torch.manual_seed(0)
    assert repr(fast(X, torch.default_generator)) == repr(expected)


def a_made_one_that_is_set_back(x):
    torch.manual_seed(int(x.numel()) + 9)
    before = torch.get_rng_state()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        forked = torch.randn(2) + torch.nn.functional.dropout(torch.ones(2), 0.5)
    torch.set_rng_state(before)
    made = torch.Generator().manual_seed(7)
    drawn = torch.randperm(4, generator=made), torch.empty(2).normal_(1, 2, generator=made), made.initial_seed()
    state, numbers = made.get_state(), torch.bernoulli(torch.full((4,), 0.5), generator=made)
    made.set_state(state)
    return drawn, forked, numbers, torch.bernoulli(torch.full((4,), 0.5), generator=made), torch.multinomial(torch.ones(4), 2)


def test_a_generator_made_beside_graphs_that_may_raise():
    """What such a graph drew is drawn again when it raises, but by a generator that the frame makes itself."""
    expected = a_made_one_that_is_set_back(X)
    assert repr(optimize(lambda gm, inputs: gm.forward)(a_made_one_that_is_set_back)(X)) == repr(expected)

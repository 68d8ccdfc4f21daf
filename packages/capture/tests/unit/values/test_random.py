"""Random numbers in captured code, of torch, Python and NumPy: those that plain Python draws, and every generator in the state it leaves."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from harness import assert_same
from tracework_capture.hook.context import optimize

X = torch.arange(6.0).reshape(2, 3) / 7 + 0.1
OWN = random.Random(3)
OWN_NUMPY = np.random.default_rng(3)
OWN_TORCH = torch.Generator()
LAYERS = [torch.sin, torch.cos, torch.exp]


def seed_at_the_start(x):
    torch.manual_seed(3)
    return x + torch.rand(3)


def seed_in_the_middle(x):
    first = torch.rand(3)
    torch.manual_seed(3)
    return x + torch.rand(3) + first


def fork(x):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        y = torch.rand(3)
    return x + torch.rand(3) + y


def a_generator_made_inside(x):
    generator = torch.Generator().manual_seed(7)
    return x + torch.rand(3, generator=generator) * torch.rand(3, generator=generator)


def a_generator_of_the_program(x):
    return x.sin() + torch.rand(3, generator=OWN_TORCH) + torch.randn(3, generator=OWN_TORCH)


def state_taken_and_put_back(x):
    state = torch.get_rng_state()
    y = x * torch.rand(3)
    torch.set_rng_state(state)
    return y + torch.rand(3)


def initial_seed(x):
    return x * (torch.initial_seed() % 7)


def dropout(x):
    return F.dropout(x, 0.5) + torch.bernoulli(torch.full_like(x, 0.5)) + torch.randperm(3) + F.dropout(x, 0.1)


def floats(x):
    return x * random.random() + random.uniform(1, 2) - random.gauss(0, 1)


def branch(x):
    return x + 1 if random.random() < 0.5 else x * 2


def integers(x):
    return x[:, random.randint(0, 2)] * random.randrange(5) + random.choice([1.0, 2.0])


def shuffled(x):
    order = [0, 1, 2]
    random.shuffle(order)
    return x[:, order] * 2, order, random.sample(range(10), 3)


def seeded(x):
    random.seed(5)
    return x * random.random()


def a_random_of_its_own(x):
    return x * OWN.random() + random.Random(4).random()


def dropped_layers(x):
    for layer in LAYERS:
        if random.uniform(0, 1) < 0.5:
            continue
        x = layer(x) * random.random()
    return x


def numpy_numbers(x):
    return x * np.random.rand() + np.random.uniform(0, 1) + np.random.randint(0, 10) + np.random.randn()


def numpy_arrays(x):
    return x + torch.from_numpy(np.random.rand(3).astype(np.float32))


def numpy_seeded(x):
    np.random.seed(3)
    return x * np.random.rand()


def a_numpy_generator(x):
    return x * OWN_NUMPY.random() + OWN_NUMPY.integers(3)


def mixed_up(x):
    weight = np.random.beta(0.4, 0.4)
    return weight * x + (1 - weight) * x[torch.randperm(x.size(0))] * random.random()


def raises_after_draws(x):
    y = x * random.random() + torch.rand(3)
    np.random.rand()
    raise ValueError(f"{len(y)}")


PROGRAMS = [
    *(seed_at_the_start, seed_in_the_middle, fork, a_generator_made_inside, a_generator_of_the_program, state_taken_and_put_back),
    *(initial_seed, dropout, floats, branch, integers, shuffled, seeded, a_random_of_its_own, dropped_layers, numpy_numbers),
    *(numpy_arrays, numpy_seeded, a_numpy_generator, mixed_up, raises_after_draws),
]
WHOLE = {seed_at_the_start, dropout, floats, seeded, mixed_up}


def states():
    numpy = np.random.get_state()
    made = str(OWN_NUMPY.bit_generator.state), OWN.getstate(), OWN_TORCH.get_state().tolist()
    return torch.get_rng_state().tolist(), torch.initial_seed(), random.getstate(), numpy[1].tolist(), numpy[2:], made


def runs(fn):
    """What three calls give or raise, and the states after each."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    OWN.seed(0)
    OWN_TORCH.manual_seed(0)
    OWN_NUMPY.bit_generator.state = np.random.default_rng(0).bit_generator.state
    found = []
    for _ in range(4):
        try:
            result = fn(X)
        except ValueError as error:
            result = str(error)
        found.append((result, states()))
    return found


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_numbers_and_states_are_those_of_plain_python(fn):
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    expected = runs(fn)
    assert_same(runs(optimize(backend)(fn)), expected)
    if fn in WHOLE:
        assert len(graphs) == 1

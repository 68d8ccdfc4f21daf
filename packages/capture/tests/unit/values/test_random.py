"""Random numbers in captured code, of torch, Python and NumPy: those that plain Python draws, and every generator in the state it leaves."""

import random
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tracework_capture as capture
from harness import assert_same
from tracework_capture.hook.context import optimize

X = torch.arange(6.0).reshape(2, 3) / 7 + 0.1
OWN = random.Random(3)
NUMBERS = [5, 6, 7, 8]
STATE = random.Random(5).getstate()
OWN_NUMPY = np.random.default_rng(3)
OWN_STATE = np.random.RandomState(3)
OWN_TORCH = torch.Generator()
LONGS = torch.arange(6)
BYTES = torch.arange(6, dtype=torch.uint8)
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
    return x * OWN.random() + OWN.uniform(a=1, b=2) * OWN.triangular() - OWN.gauss(0, 1)


def a_random_made_inside(x):
    return x * OWN.random() + random.Random(4).random()


def asked_of_one_made_inside(x):
    made = random.Random(x.shape[0])
    parts = made.sample(range(9), 3)
    parts.append(made.choice("abc"))
    kept = made.randint
    try:
        made.randint(5, 1)
    except ValueError as error:
        parts.append(str(error))
    return x * kept(1, 5), parts, made.choices((1, 2), k=3), made.getrandbits(70), made.randbytes(3), {made: 1}[made]


def places_from_one_made_inside(x):
    made, rows = random.Random(x.shape[0]), [x, x + 1, x + 2, x + 3]
    made.shuffle(rows)
    numbers = list(NUMBERS)
    made.shuffle(numbers)
    picked = made.sample(rows, 2), made.choices(("a", x), weights=[1, 9], k=2), made.choice((x * 5, x * 6))
    said = []
    for call in (lambda: made.choice([]), lambda: made.choices((), k=1), lambda: made.sample([x], 2)):
        try:
            call()
        except (IndexError, ValueError) as error:
            said.append(str(error))
    return rows, numbers, picked, said, made.random()


def the_argument_in_another_order(x):
    rows = [x, x * 2, x * 3]
    shuffled_by(rows, random.Random(4))
    return rows


def shuffled_by(rows, made):
    made.shuffle(rows)


def one_made_inside_leaves(x):
    made = random.Random("seed")
    made.gauss(0, 1)
    made.seed(5)
    x = x * made.gauss(0, 1)
    return x, made.getstate(), made.gauss(0, 1), made.random()


def seeded_between_draws(x):
    first = OWN.random()
    OWN.seed("a")
    second = OWN.gauss(0, 1)
    OWN.seed(a=x.shape[0], version=1)
    random.seed(3)
    return x * first + second, OWN.random(), random.random()


def seeded_from_outside(x):
    made = random.Random()
    made.seed()
    return x + 1, type(made) is random.Random


def a_seed_that_is_refused(x):
    y = x * OWN.random()
    try:
        OWN.seed([])
    except TypeError as error:
        return y * OWN.random(), str(error)


def a_method_kept(x):
    number = OWN.randint
    return x * number(1, 3) + number(1, 3)


def ints_of_python(x):
    n, m = random.randint(1, 5), OWN.randrange(-3, 9, 2)
    return (
        x * n + m,
        x / n > m,
        LONGS * n - m,
        n,
        n + m,
        2 - n * m,
        -m,
        n / 4,
        n * 0.5,
        1.5 - m,
        -0.5 * (m * 0),
        float(n) + int(m),
    )


def ints_kept(x):
    held = [random.randint(1, 9) for _ in range(3)]
    return x * held[0], held, {"drawn": random.randrange(4)}


def ints_of_numpy(x):
    return x * np.random.randint(1, 7) + np.random.randint(5) + np.random.uniform(low=1, high=2)


def numpy_state_of_its_own(x):
    return x * OWN_STATE.rand() + OWN_STATE.randint(3)


def powers_and_quotients(x):
    n = random.randint(1, 5)
    return x**n, n**x, LONGS // n, LONGS % n, LONGS & n


def negative_powers(x):
    return LONGS ** random.randint(-3, -1) + x


def small_ints(x):
    return BYTES * random.randint(1, 5), (x > 0) * random.randint(0, 1), x.half().sum() * random.randint(1, 3)


def places_and_sizes(x):
    n = random.randint(1, 2)
    return x[n - 1], x[:, n], torch.ones(n), [1, 2, 3][n], [x] * n, list(range(n)), x.reshape(-1)[::n]


def texts(x):
    n = random.randint(1, 2)
    return x + 1, f"{n}", str(n), f"{n:3d}", {n: x}, n in (1, 3), (n, type(n), isinstance(n, int), n.bit_length())


def what_ints_are_asked(x):
    n = random.randint(1, 3)
    return x + 1, n == 2, n < 3, min(n, 2), n // 2, n % 2, n & 1, n << 1, abs(n), divmod(n, 2), ~n, pow(n, 2), 6 / n, bool(n - 1)


def large_ints(x):
    n, m = random.randint(1, 2**52), random.randint(1, 2**60)
    return x * n, n * n, n + 2**53, m


def an_empty_range(x):
    x = x * random.random()
    return x * random.randint(5, 1)


def raises_for_some(x):
    y = x * OWN.randint(-3, 5) + random.random() * np.random.randint(3)
    if y.sum() < 3:
        raise ValueError("small")
    return y


def chosen_by_an_int(x):
    return x.sin() if random.randint(0, 1) else x.cos()


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


def numpy_arrays_of_many_kinds(x):
    drawn = [np.random.randn(2, 3), np.random.normal(1.0, 2.0, (3,)), np.random.randint(0, 5, size=3), np.random.permutation(3)]
    drawn += [
        OWN_STATE.rand(3),
        OWN_NUMPY.normal(size=3),
        OWN_NUMPY.integers(0, 9, 3),
        OWN_NUMPY.permutation(4),
        OWN_NUMPY.choice(5, 2),
    ]
    drawn[0][0] = 0.0
    return x + torch.from_numpy(drawn[1]), [torch.from_numpy(each) for each in drawn], np.random.rand()


def drawn_into_memory(x):
    y, wide = x + 1, torch.zeros(4, 5)
    y.normal_(1.0, 2.0, generator=OWN_TORCH)
    wide.t().uniform_(generator=OWN_TORCH)
    wide[:, ::2].exponential_(generator=OWN_TORCH)
    return y * 2, wide.bernoulli_(0.5, generator=OWN_TORCH) + torch.rand(5, generator=OWN_TORCH)


def memory_from_a_generator(x):
    weight = torch.empty(3, 4)
    torch.nn.init.normal_(weight, generator=OWN_TORCH)
    return x @ weight.random_(0, 9, generator=OWN_TORCH)


def several_made_inside(x):
    first, second = torch.Generator(), torch.Generator(device="cpu")
    second.manual_seed(5)
    y = x * torch.rand(3, generator=first) + torch.rand(3, generator=second)
    first.manual_seed(5)
    return y.normal_(generator=first), torch.randn(3, generator=second), second.device


def one_that_is_given_back(x):
    made = torch.Generator().manual_seed(5)
    return x + torch.rand(3, generator=made), made.get_state()[:9].tolist()


def a_numpy_generator(x):
    return x * OWN_NUMPY.random() + OWN_NUMPY.integers(3)


def mixed_up(x):
    weight = np.random.beta(0.4, 0.4)
    return weight * x + (1 - weight) * x[torch.randperm(x.size(0))] * random.random()


def raises_after_draws(x):
    y = x * random.random() + torch.rand(3)
    np.random.rand()
    raise ValueError(f"{len(y)}")


def states_put_back(x):
    state, numpys = random.getstate(), np.random.get_state()
    y = x * random.random() + np.random.rand()
    random.setstate(state)
    np.random.set_state(numpys)
    return y + random.random(), np.random.rand()


def drawn_aside(x):
    before = OWN.getstate()
    OWN.seed(7)
    y = x * OWN.random()
    after = OWN.getstate()
    OWN.setstate(before)
    first = OWN.random()
    OWN.setstate(after)
    return y + first, OWN.random()


def a_state_over_a_break(x):
    state = random.getstate()
    y = x * random.random()
    capture.graph_break()
    random.setstate(state)
    return y.sin() * random.random(), state


def a_state_from_before(x):
    random.setstate(STATE)
    return x.sin() * random.random()


def chosen_numbers(x):
    return x * random.choice([2, 3, 5]) + OWN.choice((0.5, 0.25)), random.choice([7, 8]), random.choice([x, x + 1]).sum()


PROGRAMS = [
    *(seed_at_the_start, seed_in_the_middle, fork, a_generator_made_inside, a_generator_of_the_program, state_taken_and_put_back),
    *(initial_seed, dropout, floats, branch, integers, shuffled, seeded, a_random_of_its_own, dropped_layers, numpy_numbers),
    *(
        numpy_arrays,
        numpy_seeded,
        a_numpy_generator,
        mixed_up,
        raises_after_draws,
        a_random_made_inside,
        a_method_kept,
        ints_of_python,
    ),
    *(
        ints_kept,
        ints_of_numpy,
        numpy_state_of_its_own,
        powers_and_quotients,
        negative_powers,
        small_ints,
        places_and_sizes,
        texts,
    ),
    *(places_from_one_made_inside, the_argument_in_another_order),
    *(asked_of_one_made_inside, one_made_inside_leaves, seeded_between_draws, seeded_from_outside, a_seed_that_is_refused),
    *(numpy_arrays_of_many_kinds, drawn_into_memory, memory_from_a_generator, several_made_inside, one_that_is_given_back),
    *(states_put_back, drawn_aside, a_state_over_a_break, a_state_from_before, chosen_numbers),
    *(what_ints_are_asked, large_ints, an_empty_range, raises_for_some, chosen_by_an_int),
]
WHOLE = {seed_at_the_start, dropout, floats, seeded, mixed_up, a_random_of_its_own, a_method_kept, ints_of_python, ints_kept}
WHOLE |= {ints_of_numpy, raises_for_some, a_random_made_inside, asked_of_one_made_inside, seeded_between_draws}
WHOLE |= {places_from_one_made_inside, the_argument_in_another_order, numpy_arrays, numpy_arrays_of_many_kinds}
WHOLE |= {states_put_back, drawn_aside}
WHOLE |= {memory_from_a_generator, several_made_inside, a_generator_made_inside}


def states():
    numpy = np.random.get_state()
    made = str(OWN_NUMPY.bit_generator.state), OWN.getstate(), OWN_TORCH.get_state().tolist(), OWN_STATE.get_state()[1].tolist()
    return torch.get_rng_state().tolist(), torch.initial_seed(), random.getstate(), numpy[1].tolist(), numpy[2:], made


def runs(fn):
    """What three calls give or raise, and the states after each."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    OWN.seed(0)
    OWN_STATE.seed(0)
    OWN_TORCH.manual_seed(0)
    OWN_NUMPY.bit_generator.state = np.random.default_rng(0).bit_generator.state
    found = []
    for _ in range(4):
        try:
            result = fn(X)
        except (ValueError, RuntimeError) as error:
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


@pytest.mark.parametrize("made", [random.Random, np.random.RandomState, np.random.default_rng], ids=lambda made: made.__name__)
def test_numbers_are_drawn_again_where_a_condition_on_data_does_not_hold(made):
    def step(x, places, generator):
        return (x.numpy()[places.numpy()] * generator.uniform(0, 1)).tolist(), x + 1

    call, plainly, compiled = optimize(lambda gm, example_inputs: gm.forward)(step), made(4), made(4)
    for places in ([0, 1], [1, 0], [-1, 1], [0, 9], [1, 1]):
        found = [result_of(fn, X, torch.tensor(places), given) for fn, given in ((call, compiled), (step, plainly))]
        assert_same(*found)
        assert compiled.uniform(0, 1) == plainly.uniform(0, 1)


def result_of(fn, *args):
    try:
        return fn(*args)
    except IndexError as error:
        return str(error)


@pytest.mark.parametrize("made", [np.random.RandomState, np.random.default_rng], ids=lambda made: made.__name__)
def test_an_array_is_shuffled_in_place(made):
    def step(x, generator):
        numbers = x.numpy().reshape(-1).copy()
        generator.shuffle(numbers)
        return x + 1, torch.from_numpy(numbers)

    call, plainly, compiled = optimize(lambda gm, example_inputs: gm.forward)(step), made(4), made(4)
    for _ in range(3):
        assert_same(call(X, compiled), step(X, plainly))
    assert compiled.uniform(0, 1) == plainly.uniform(0, 1)


def test_a_generator_made_for_each_call():
    """The graph draws from the one that it is given; none is kept alive."""
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    def step(x, generator):
        return x * generator.random() + generator.randint(1, 6)

    call = optimize(backend, fullgraph=True)(step)
    for seed in range(12):
        given = random.Random(seed)
        assert_same(call(X, given), step(X, random.Random(seed)))
        held = weakref.ref(given)
        del given
        assert held() is None
    assert len(graphs) == 1
    call = optimize(backend)(step)
    assert_same(call(X, Loaded(3)), step(X, Loaded(3)))
    assert_same(call(X, with_an_attribute()), step(X, with_an_attribute()))


class Loaded(random.Random):
    def random(self):
        return 0.75


def with_an_attribute():
    made = random.Random(3)
    made.random = lambda: 2.0
    return made


def test_functions_of_the_module_that_are_replaced(monkeypatch):
    def step(x):
        return x * random.random() + random.randint(1, 6)

    call = optimize(lambda gm, example_inputs: gm.forward)(step)
    call(X)
    monkeypatch.setattr(random, "random", lambda: 2.0)
    monkeypatch.setattr(random, "randint", lambda low, high: high)
    assert_same(call(X), step(X))
    monkeypatch.undo()
    monkeypatch.setattr(random.Random, "randint", lambda self, low, high: low)
    random.seed(3)
    expected = step(X)
    random.seed(3)
    assert_same(call(X), expected)


def test_a_draw_of_a_class_that_is_replaced(monkeypatch):
    """What the program puts in the place of random() is called as often as by plain Python."""

    def step(x):
        return x * random.gammavariate(0.5, 1.5) + random.uniform(0, 1)

    def found(call):
        drawn = iter([0.1 * number for number in range(1, 10)])
        monkeypatch.setattr(random.Random, "random", lambda self: next(drawn))
        return call(X), list(drawn)

    assert_same(found(optimize(lambda gm, example_inputs: gm.forward)(step)), found(step))


def test_a_generator_of_numpy_that_is_given_a_list(caplog):
    def step(x):
        made = np.random.RandomState(3)
        return x + 1, made.choice([3, 1, 2], size=2, replace=False).tolist(), made.choice([3, 1, 2])

    assert_same(optimize(lambda gm, example_inputs: gm.forward)(step)(X), step(X))
    assert not caplog.records

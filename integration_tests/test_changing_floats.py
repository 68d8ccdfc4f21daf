"""Floats that change from call to call become inputs where tensors compute with them, and are fixed where their value is needed."""

import math

import pytest
import torch
import tracework
from training import BACKENDS, same


class Counting:
    """A backend that runs the graph as it is and counts graphs."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, gm, example_inputs):
        self.graphs += 1
        return gm.forward


def arithmetic(x, s):
    y = x * s + (2 * s - 1) / 4
    y = s - y
    y.mul_(-s).add_(x, alpha=s).sub_(s)
    return y / 3, s * 2.5, torch.addcmul(x, x, x, value=s)


def other_dtypes(x, s):
    return x.double() * s, x.to(torch.int32) * s, x.sum() * s, (x > s), x.half() + s, x[0, 0] + s, x.long().sum() + s


def lists(x, s):
    xs = [x, x + 1]
    torch._foreach_mul_(xs, s)
    return torch._foreach_add(xs, [x, x], alpha=s * 2)


@pytest.mark.parametrize("fn", [arithmetic, other_dtypes, lists], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_values(fn, backend):
    compiled = tracework.compile(fn, backend=backend, fullgraph=True)
    for s in (0.5, 0.25, -3.0, 1e-3):
        x = torch.arange(6.0).reshape(2, 3)
        same(list(compiled(x.clone(), s)), list(fn(x.clone(), s)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_graphs_for_all_values(backend):
    counting = Counting()
    x = torch.randn(3, 4, requires_grad=True)
    for chosen in (counting, backend):
        compiled = tracework.compile(arithmetic, backend=chosen, fullgraph=True)
        for step in range(1, 12):
            same(list(compiled(x, 1.0 / step)), list(arithmetic(x, 1.0 / step)))
    assert counting.graphs == 2


RELATIONS = {
    "less": (lambda x, s, t: x * s if s < t else x - t, 3),
    "equal": (lambda x, s, t: x * s if s == t else x - t, 2),
    "least": (lambda x, s, t: x * min(s, t, 0.4), 2),
    "largest": (lambda x, s, t: (x * max(s, t), max(s, t)), 2),
    "apart": (lambda x, s, t: x * abs(s - t), 2),
    "power": (lambda x, s, t: x * s**t, 2),
    "with a size": (lambda x, s, t: x * min(s, t / x.shape[0]), 2),
}


@pytest.mark.parametrize("name", RELATIONS)
def test_what_python_computes_from_two_floats(name):
    function, graphs = RELATIONS[name]
    counting = Counting()
    compiled = tracework.compile(function, backend=counting, fullgraph=True)
    x = torch.arange(3.0)
    for step in range(10):
        numbers = 0.5 * 0.9**step, 0.3 * 1.2**step
        same(compiled(x, *numbers), function(x, *numbers))
    assert counting.graphs == graphs
    for s, t in (
        (0.0, -0.0),
        (-0.0, 0.0),
        (math.nan, 1.0),
        (1.0, math.nan),
        (math.inf, 1.0),
        (-math.inf, math.inf),
        (1, 2.0),
        (True, 2),
    ):
        torch.testing.assert_close(compiled(x, s, t), function(x, s, t), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD], ids=lambda kind: kind.__name__)
def test_fused_steps_with_a_schedule_take_one_more_graph(kind, backend):
    found, counting = [], Counting()
    for compile_ in (
        lambda f: f,
        lambda f: tracework.compile(f, backend=counting),
        lambda f: tracework.compile(f, backend=backend),
    ):
        weight = torch.nn.Parameter(torch.arange(4.0))
        optimizer = kind([weight], lr=0.1, weight_decay=0.1, fused=True)
        schedule, step = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), compile_(optimizer.step)
        for _ in range(6):
            weight.grad = weight.detach() * 2 - 1
            step()
            schedule.step()
        found.append(weight.detach())
    assert torch.equal(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])
    assert counting.graphs <= 3  # makes the state, first rate, any rate


def test_errors_of_two_floats():
    compiled = tracework.compile(lambda x, s, t: x * s**t, backend=Counting(), fullgraph=False)
    for s, t in ((2.0, 3.0), (3.0, 2.0), (4.0, 0.5)):
        compiled(torch.ones(2), s, t)
    for s, t, error in ((0.0, -1.0, ZeroDivisionError), (10.0, 1000.0, OverflowError)):
        with pytest.raises(error):
            compiled(torch.ones(2), s, t)


def test_the_value_where_it_is_needed():
    def fn(x, s):
        if s > 0.5:
            x = x + 1
        return torch.full_like(x, s), math.floor(s), f"{s}", {s: 1}

    compiled = tracework.compile(fn, backend="eager", fullgraph=True, dynamic=None)
    for s in (0.25, 0.75, 1.5, 0.25):
        found, expected = compiled(torch.ones(2), s), fn(torch.ones(2), s)
        same(found[0], expected[0])
        assert found[1:] == expected[1:]


def halves(x, y, s):
    return (
        torch.add(x, x, alpha=s), torch.add(x, y, alpha=s), y.clone().sub_(x, alpha=s), torch.addcmul(x, x, y, value=s),
        x.clone().addcdiv_(x, y, value=s), *torch._foreach_add([x, y], [y, x], alpha=s), x * s,
    )  # fmt: skip


@pytest.mark.parametrize(
    "kinds", [(torch.bfloat16, torch.bfloat16), (torch.float16, torch.float32), (torch.float32, torch.float64)], ids=str
)
def test_numbers_of_other_dtypes(kinds):
    """Halves are computed with in float32 and rounded once (what that loses shows near zero); two dtypes meet in their common one."""
    counting = Counting()
    compiled = tracework.compile(halves, backend=counting, fullgraph=True)
    torch.manual_seed(0)
    for step in range(5):
        x, y = (torch.randn(64).to(kind) for kind in kinds)
        s = 0.7 / (step + 1)
        results = zip(compiled(x, y, s), halves(x, y, s), halves(x.double(), y.double(), s), strict=True)
        for found, expected, exact in results:
            if step and found.dtype in (torch.float16, torch.bfloat16):  # eager's kernels round the number, too, in some sizes
                torch.testing.assert_close(found.double(), exact, rtol=torch.finfo(found.dtype).eps / 2 * 1.01, atol=1e-5)
            else:
                torch.testing.assert_close(found, expected)
    assert counting.graphs == 2


def stored(x, s):
    y = x.clone()
    y[0] = s
    y[1:, [0, 2]] = -s
    y[y > 3] = s * 2
    return (
        y, torch.full((2, 3), s), torch.full_like(x, s, dtype=torch.float64), x.new_full((2,), s), torch.fill(x, s), y.clone().fill_(s),
        x.masked_fill(x > 0, s), y.clone().masked_fill_(y > 0, s), torch.where(x > 0, x, s), torch.where(x > 0, s, 0.0),
        torch.where(x > 0, 1, s),
    )  # fmt: skip


def bounds_and_curves(x, s):
    high = abs(s) + 0.125
    return (
        x.clamp(max=s), x.clamp(-high, high), torch.clamp(x, 0.1, max=high), torch.clamp(x, high, 0.1), x.clone().clamp_(s), x.clamp_min(s),
        torch.nn.functional.leaky_relu(x, s), torch.pow(x.abs(), s), x.abs().pow(s), torch.pow(s, x) if s > 0 else x, x.lerp(x * 2, s),
        torch.lerp(x, x + 1, 1 - s), x.clone().lerp_(x + 1, s), x[0, 0].clamp(max=s), x.double().clamp(max=s), x.long().clamp(max=s),
        x.half().clamp(max=s), x.half().masked_fill(x > 0, s), x.bfloat16().lerp(x.bfloat16() * 2, 0.25),
    )  # fmt: skip


PLACES = torch.tensor([0, 2])


def by_name(x, s):
    y, functional = x.detach() * 1, torch.nn.functional
    return (
        torch.fmod(x, s), torch.remainder(x, s), torch.floor_divide(y, s), torch.gt(x, s), x.ge(s), torch.eq(x, s), torch.true_divide(x, s),
        torch.multiply(x, s), torch.xlogy(x.abs() + 1, abs(s)), torch.special.xlog1py(x.abs(), abs(s)), torch.special.zeta(y.abs() + 2, abs(s)),
        torch.copysign(x, s), x.clone().fmod_(s), functional.threshold(x, s, s * 2), functional.threshold_(x * 1, s, 0.5), y.long() // s,
        functional.pad(x, (1, 1), value=s), x.index_fill(1, PLACES, s), x.scatter(1, PLACES[None], s), x.clone().scatter_(0, PLACES[None] // 2, s),
        x.index_add(1, PLACES, x[:, 1:], alpha=s), torch.bucketize(s, y[0]), torch.searchsorted(y[1], s), y.fill_diagonal_(s),
        torch.scalar_tensor(s) * x, functional.local_response_norm(x[None], 2, alpha=abs(s), k=abs(s) + 1),
        torch.distributions.Normal(x, abs(s)).log_prob(x * 2), torch.tensor(s, device="cpu") + x, functional.normalize(x, 2.0, eps=abs(s)),
    )  # fmt: skip


def made_and_measured(x, s):
    y, power = x.detach(), abs(s) + 1
    return (
        x * s, torch.arange(0, power * 2, 0.25), torch.arange(power), torch.linspace(s, 3, 5, requires_grad=False), torch.logspace(0, s, 4),
        torch.norm(y, power), torch.linalg.vector_norm(y, power, dim=1), torch.dist(y, y * 2, power), torch.nn.functional.normalize(y, power),
        torch.cdist(y, y + 1, p=power), torch.histc(y, 4, min=-power - 3, max=power + 3), torch.signal.windows.gaussian(5, std=power),
        torch.nn.functional.multi_margin_loss(y, PLACES, margin=power), y.norm(power, dim=0, keepdim=True), power, hasattr(s, "shape"), s.real,
    )  # fmt: skip


def sides(x, s):
    y = x * max(s, 0.001) + min(s, 4.0)
    if s > 0.3:
        y = y * s
    return y * abs(s - 0.0), (y if s else x), s == 0.5, 0.0 < s <= 1


@pytest.mark.parametrize("fn", [stored, bounds_and_curves, by_name, made_and_measured, sides], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_operators_with_numbers(fn, backend):
    """Each value is computed with; what Python decides by a float splits the values in two."""
    counting = Counting()
    for chosen in (counting, backend):
        compiled = tracework.compile(fn, backend=chosen, fullgraph=True)
        for s in (0.75, 0.625, 1.25, -0.5, -0.25, 0.875, 0.1, 0.375):
            x = (torch.arange(-2.0, 4.0) + 0.25).reshape(2, 3).requires_grad_()
            found, expected = list(compiled(x, s)), list(fn(x, s))
            same([v for v in found if isinstance(v, torch.Tensor)], [v for v in expected if isinstance(v, torch.Tensor)])
            assert [v for v in found if not isinstance(v, torch.Tensor)] == [
                v for v in expected if not isinstance(v, torch.Tensor)
            ]
            floating = [(a, b) for a, b in zip(found, expected) if isinstance(b, torch.Tensor) and b.requires_grad]
            gradients = [torch.autograd.grad(sum(t.double().sum() for t in side), x)[0] for side in zip(*floating)]
            same(*([g] for g in gradients))
    assert counting.graphs <= (8 if fn is sides else 4)


def adagrad(parameters, **options):
    return torch.optim.Adagrad(parameters, fused=True, **options)


@pytest.mark.parametrize(
    "make, foreach, dtype, steps",
    [
        (make, foreach, torch.float32, steps)
        for make, steps in (
            (torch.optim.SGD, 1000),
            (torch.optim.Adam, 1000),
            (torch.optim.AdamW, 1000),
            (torch.optim.RAdam, 100),  # its arms of a condition on the step take turns
            (torch.optim.ASGD, 30),
            (torch.optim.Adafactor, 30),
            (torch.optim.Adamax, 30),
        )
        for foreach in (False, True)
    ]
    + [(torch.optim.SGD, True, torch.bfloat16, 1000), (torch.optim.Muon, None, torch.float32, 100)]
    + [(adagrad, None, torch.float32, 100)] * ("tensor_lr" in torch.ops.aten._fused_adagrad_.overloads()),
)
def test_learning_rates(make, foreach, dtype, steps):
    """Any number of learning rates takes two graphs: the first call's, and one with the learning rate as an input."""
    counting, results = Counting(), []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2, bias=make is not torch.optim.Muon).to(dtype)
        options = {} if foreach is None else {"foreach": foreach}
        optimizer = make(model.parameters(), lr=1.0, weight_decay=0.1, **options)
        call = tracework.compile(lambda o=optimizer: o.step(), backend=counting, fullgraph=True) if compiled else optimizer.step
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = 1e-2 / (step + 1)
            if make is not adagrad:  # its kernel takes one tensor for a number, the learning rate
                optimizer.param_groups[0]["weight_decay"] = 0.1 / (step + 1)
            if step < 3:
                optimizer.zero_grad()
                model(torch.ones(3, 4, dtype=dtype)).square().sum().backward()
            call()
        results.append([p.detach() for p in model.parameters()])
    same(*results)
    assert counting.graphs <= 2


@pytest.mark.parametrize("options", [{"lr_decay": 0.1, "weight_decay": 0.2}, {"maximize": True}], ids=str)
def test_a_fused_step_of_adagrad_is_compiled(options, caplog):
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
        optimizer = adagrad(model.parameters(), lr=0.1, **options)
        call = tracework.compile(lambda o=optimizer: o.step(), fullgraph=True) if compiled else optimizer.step
        for step in range(4):
            optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
            for p in model.parameters():
                p.grad = torch.randn_like(p)
            call()
        results.append([p.detach() for p in model.parameters()] + [t for s in optimizer.state.values() for t in s.values()])
    torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=1e-6)  # four steps of float32 operations in another order
    assert not [r for r in caplog.records if r.name == "tracework.fallbacks"]


def from_ints(x, n):
    scale = 1 / math.sqrt(n)
    y = x * scale + (n / 3) * x.sum()
    return (
        y[:, : math.ceil(n / 4)],
        torch.arange(3) * (n / 2),
        x[:, [0, n % 2]],
        torch.tensor(n / 7),
        y.mean() / x.shape[1] ** 0.5,
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_floats_computed_from_ints(backend):
    """All ints share one graph; the numbers are Python's."""
    counting = Counting()
    for chosen in (counting, backend):
        compiled = tracework.compile(from_ints, backend=chosen, fullgraph=True)
        for n in range(2, 9):
            x = torch.randn(3, 12 + n, requires_grad=True, generator=torch.Generator().manual_seed(n))
            same(list(compiled(x, n)), list(from_ints(x, n)))
    assert counting.graphs == 2


class Known:
    in_dict = {3: "a", "b": 1, None: 2}
    in_set = {40, 41}


def remainder(x, n):
    """A decision on a float that is made of an int and of another int, which is computed from it."""
    cycle = math.floor(1 + n / 4.0)
    return x * 2 if 1 + n / 4.0 - cycle <= 0.75 else x


def known(x, n):
    return (
        (x + 1 if n in Known.in_dict or n in Known.in_set else x + n)
        if Known.in_dict.get(n, 5) == 5
        else x * Known.in_dict[n].count("a")
    )


@pytest.mark.parametrize("fn, numbers, graphs", [(remainder, range(2, 12), 2), (known, (*range(10, 20), 3, 41, 40, 4), 5)])
def test_what_is_decided_by_an_int_that_changes(fn, numbers, graphs):
    """A graph for each answer, and one for the first int; a key of its own for each that a dict or a set has."""
    counting, x = Counting(), torch.ones(3)
    compiled = tracework.compile(fn, backend=counting, fullgraph=True)
    for n in numbers:
        same(compiled(x, n), fn(x, n))
    assert counting.graphs == graphs


@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [4, 9]),
        lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.01, 0.1, 5),
    ],
)
def test_schedules_in_the_step(schedule):
    found = []
    for counting in (None, Counting()):
        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        scheduler = schedule(optimizer)

        def step(x, weight=weight, optimizer=optimizer, scheduler=scheduler):
            (weight * x).square().sum().backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()

        call = step if counting is None else tracework.compile(step, backend=counting, fullgraph=True)
        for _ in range(16):
            call(torch.linspace(0, 1, 3))
        found.append((weight.detach(), scheduler.state_dict()["_last_lr"]))
    torch.testing.assert_close(found[1], found[0])
    assert counting.graphs <= 6  # the first step, one where the int is open, and where the schedule takes another way


@pytest.mark.parametrize("make", [torch.optim.Adafactor, torch.optim.AdamW, torch.optim.SGD], ids=lambda m: m.__name__)
def test_steps_of_parameters_of_two_dtypes(make):
    """Each dtype has a group of its own, as in eager: torch makes one of all where it compiles, and Adafactor asks its dtype."""
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        parameters = [torch.randn(3, 4, dtype=dtype).requires_grad_() for dtype in (torch.float32, torch.float64, torch.float32)]
        optimizer = make(parameters, lr=0.1, foreach=True)
        call = tracework.compile(lambda o=optimizer: o.step(), backend="aot_eager") if compiled else optimizer.step
        for _ in range(3):
            for parameter in parameters:
                parameter.grad = (
                    parameter.detach() * 1e-8
                )  # small, so that what Adafactor adds to squares, a dtype's epsilon, counts
            call()
        results.append([p.detach() for p in parameters])
    same(*results)

"""`if <data>:` with short arms that only compute tensors is one graph; whatever else the arms do breaks it, and so does what tells a
tensor from the copy of it that an arm gave."""

import pytest
import torch
import tracework
from tracework_capture.errors import Unsupported
from training import BACKENDS, same


def assigned(x):
    if x.sum() > 0:
        y = x + 1
    else:
        y = x - 1
    return y * 2


def returned(x):
    if x.sum() > 0:
        return x.sin(), x.sum(), 3
    return torch.cos(x), x.mean(), 3


def expression(x):
    return (x + 1 if x.mean() < 0 else x * 2) + 3


def several(x):
    if x.max() > 1:
        a, b = x + 1, x * 2
        unused = a + b
    else:
        a = x - 1
        b = x.relu()
        unused = 1  # noqa: F841
    return a * b, a


def drawn(x):
    if x.sum() > 0:
        y = torch.rand(3)
    else:
        y = torch.randn(3) + x
    return y + torch.rand(3)


def in_a_callee(x):
    return assigned(x) + assigned(x - 5)


def not_zero(x):
    if x.sum() - 3:
        y = x / x
    else:
        y = x * 0
    return y


def negated(x):
    if not x.sum() > 0:
        y = x + 1
    else:
        y = x - 1
    return (x.sin() if not (x > 0).any() else x.cos()) * y


def elif_chain(x):
    total = x.sum()
    if total > 2:
        y, z = x + 1, x * 2
    elif total > -2:
        y, z = x * 3, x.cos()
    elif (x > -1.5).any():
        y, z = -x, x.abs()
    else:
        y, z = x.sin(), x
        z = z + 2
    return y * z, z


def elif_returned(x):
    total = x.sum()
    if total > 2:
        return x + 1
    elif total > -2:
        return x * 3
    return x.sin()


def nested_expression(x):
    return (x + 1 if x.mean() < 0 else x * 2 if x.max() > 1 else x - 3) + 3


def conjunction(x):
    if (x > -1).all() and x.sum() > 0 and not x.max() > 5:
        return x + 1
    return x - 1


def disjunction(x):
    if x.sum() > 2 or (x == 1).any() or (x < -2).any():
        y = x.sin()
    else:
        y = x.cos()
    return y + x


def squared(x, plus):
    return x * x + plus


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def scaled(self, x):
        return x * self.factor if self.factor > 1 else x + self.factor


def in_functions(x):
    double = Scaled(2)
    if x.sum() > 0:
        y = squared(x, 1)
    else:
        y = squared(double.scaled(x), plus=x)
    return y * 2


def other_constants(x):
    if x.sum() > 0:
        y, sign = x + 1, 0.0
    else:
        y, sign = x - 1, -0.0
    return y, str(sign)


def written_in_place(x):
    y = x + 1
    z = y[1:]
    for step in range(2):
        if x.sum() > step:
            y.mul_(2).add_(x)
        else:
            y.copy_(x * step)
    return y, z + 1, x


def writes_to_an_input(x):
    if x.sum() > 0:
        x.cumsum_(0)
    else:
        x.fill_(7)
    with torch.no_grad():
        if x.sum() > 7:
            x.sub_(1)
        else:
            x.mul_(2)
    return x * 2, x


def written_to_a_part(x):
    y = x.repeat(2)
    if x.max() > 1:
        y[::2].mul_(3)
    else:
        y[1:].zero_()
    return y


def returned_by_each(x):
    y, z = x + 1, x * 2
    if x.max() > 1:
        y.mul_(z)
        return y, z
    y.zero_()
    return y, z


def numbers(x):
    total = x.sum().item()
    scale = 0.5 if total > 2 else 2.0
    high = min(max(total, -1.0), scale)
    rest = total * 2 if total != 3 else high
    return x * scale + high, rest, scale, total > 2


def closed_over(x):
    total = x.sum().item()

    def half():
        return x * 0.5 + total

    y = half() if total > 0 else x - total
    return y


def without_else(x):
    y = x + 1
    if x.sum() > 0:
        y = y * 2
    return y


def without_else_of_an_argument(x):
    if x.sum() > 0:
        x = x.cumsum(0)
    return x * 2


def nested_without_else(x):
    y = x * 2
    for step in range(3):
        if y.sum() > step:
            y = y + 1
            if y.max() > 3:
                y = y * 0.5
        elif y.min() < -1:
            y = y / 2
    return y - 1


def or_what_it_was(x):
    y = x + 1
    seen = [y]
    y = y * 2 if x.sum() > 0 else y
    return seen, y + 1


def swapped(x):
    a, b = x + 1, x - 1
    if x.sum() > 0:
        a, b = b, a
    return a * 2 + b


def two_that_share_memory(x):
    y = x + 1
    z = y[1:]
    if x.sum() > 0:
        y, z = y * 2, z - 1
    return y[1:] * z


def writes(x):
    y = x + 1
    if x.sum() > 0:
        y.add_(1)
        z = y + 1
    else:
        z = y - 1
    return y, z


def writes_without_else(x):
    y = x * 2
    z = y[1:]
    if y.max() > 3:
        y.clamp_(max=3)
    if z.sum() < 1:
        z.cumsum_(0)
    if torch.isnan(y).any():
        y[torch.isnan(y)] = 7.0
        y[0] = x[0] * 0 + 2
    return y, z


def limited(x):
    h = x * 3e38
    if h.dtype == torch.float32 and (torch.isinf(h).any() or torch.isnan(h).any()):
        limit = torch.finfo(h.dtype).max - 1000
        h = torch.clamp(h, min=-limit, max=limit)
    return h * 0.5


SELECTED = [
    writes,
    writes_without_else,
    limited,
    without_else,
    without_else_of_an_argument,
    nested_without_else,
    or_what_it_was,
    swapped,
    two_that_share_memory,
    written_in_place,
    writes_to_an_input,
    written_to_a_part,
    returned_by_each,
    numbers,
    closed_over,
    other_constants,
    elif_chain,
    elif_returned,
    nested_expression,
    conjunction,
    disjunction,
    in_functions,
    negated,
    assigned,
    returned,
    expression,
    several,
    drawn,
    in_a_callee,
    not_zero,
]


def the_same_object(x):
    if x.sum() > 0:
        y = x
    else:
        y = x + 1
    return y, y is x


def a_view(x):
    if x.sum() > 0:
        y = x[:]
    else:
        y = x + 0
    y.add_(1)
    return x * 1


def gives_the_argument(x):
    if x.sum() > 0:
        x = x * 2
    return x


def gives_both(x):
    z = y = x + 1
    if x.sum() > 0:
        y = y * 2
    return y, z


def gives_a_view_of_what_it_was(x):
    y = x + 1
    z = y[1:]
    if x.sum() > 0:
        y = y * 2
    return y, z


def writes_to_what_was_chosen(x):
    z = y = x + 1
    if x.sum() > 0:
        y = y * 2
    y.add_(1)
    return z * 1


def writes_to_what_it_was(x):
    z = y = x + 1
    if x.sum() > 0:
        y = y * 2
    z.add_(1)
    return y * 1


def asks_for_identity(x):
    z = y = x + 1
    if x.sum() > 0:
        y = y * 2
    return y * 1, y is z


def chosen_twice(x):
    p = q = x + 1
    if x.sum() > 0:
        p = p * 2
    if x.sum() > 1:
        q = q * 3
    return p, q


def chosen_of_what_was_chosen(x):
    y = x + 1
    p = y * 2 if x.sum() > 0 else y
    q = p * 2 if x.sum() > 1 else p
    return q, y


def an_attribute_of_what_was_chosen(x):
    z = y = x + 1
    if x.sum() > 0:
        y = y * 2
    y.tag = 1
    return hasattr(z, "tag"), y * 2


def statistics_of_what_was_chosen(x):
    mean, var = x[:3] * 0, x[:3].exp()
    new = mean
    if x.sum() > 0:
        new = mean + 1
    out = torch.nn.functional.batch_norm(x.reshape(1, 3).expand(2, 3), new, var, training=True)
    return out, mean * 1, var


def another_layout(x):
    y = torch.stack([x, x + 1]).t()
    if x.sum() > 0:
        y = y.contiguous()
    return y * 1


def other_shapes(x):
    if x.sum() > 0:
        return x + 1
    return (x + 1)[:1]


def other_ints(x):
    if x.sum() > 0:
        y, count = x + 1, 1
    else:
        y, count = x - 1, 2
    return y, count


def writes_to_an_alias(x):
    y = x + 1
    z = y[:2]
    if x.sum() > 0:
        y.add_(1)
        w = z + 1
    else:
        y.sub_(1)
        w = z - 1
    return y, z, w


def writes_and_appends(x):
    y, seen = x + 1, []
    if x.sum() > 0:
        y.add_(1)
        seen.append(y)
    else:
        y.sub_(1)
    return y, len(seen)


def appends(x):
    seen = []
    if x.sum() > 0:
        seen.append(1)
        y = x + 1
    else:
        y = x - 1
    return y, seen


def writes_to_an_argument(x):
    if x.sum() > 0:
        x.add_(1)
    return x * 2


def writes_to_what_a_backward_keeps(x):
    w, y = torch.ones(3, requires_grad=True), x + 1
    z = (w * y).sum()
    if x.sum() > 0:
        y.add_(1)
    z.backward()
    return w.grad, y


def stores_in_a_list(x):
    seen, y = [0], x + 1
    if x.sum() > 0:
        seen[0] = 1
        y = x - 1
    return y, seen


def appends_in_a_function(x):
    seen = []

    def noted(x):
        seen.append(1)
        return x + 1

    if x.sum() > 0:
        y = noted(x)
    else:
        y = x - 1
    return y, seen


def counts_in_a_function(x):
    count = 0

    def counted(x):
        nonlocal count
        count += 1
        return x + 1

    if x.sum() > 0:
        y = counted(x)
    else:
        y = x - 1
    return y, count


def stores_in_an_object(x):
    kept = Scaled(1)

    def stored(x):
        kept.factor = 5
        return x + 1

    y = stored(x) if x.sum() > 0 else x - 1
    return y, kept.factor


def elif_of_other_kinds(x):
    if x.sum() > 2:
        y = x + 1
    elif x.sum() > 0:
        y = 3
    else:
        y = x - 1
    return y


def rebinds_an_argument(x):
    for step in range(3):
        if x.sum() > 0:
            x = x - step
        else:
            x = x + 1
    return x


def raises(x):
    if x.sum() > 0:
        y = x.reshape(2, 7)
    else:
        y = x - 1
    return y


BROKEN = [
    appends_in_a_function,
    counts_in_a_function,
    stores_in_an_object,
    elif_of_other_kinds,
    the_same_object,
    a_view,
    gives_the_argument,
    gives_both,
    gives_a_view_of_what_it_was,
    writes_to_what_was_chosen,
    writes_to_what_it_was,
    asks_for_identity,
    chosen_twice,
    chosen_of_what_was_chosen,
    an_attribute_of_what_was_chosen,
    statistics_of_what_was_chosen,
    another_layout,
    other_shapes,
    writes_to_an_alias,
    writes_to_an_argument,
    writes_to_what_a_backward_keeps,
    stores_in_a_list,
    writes_and_appends,
    other_ints,
    appends,
    raises,
]
INPUTS = [torch.arange(3.0), -torch.arange(3.0) - 1, torch.full((3,), float("nan")), torch.ones(3), torch.zeros(3)]


def outcome(function, x):
    torch.manual_seed(0)
    try:
        found = function(x)
    except RuntimeError as error:
        return [str(error)]
    return [repr(part) for part in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("function", [*SELECTED, rebinds_an_argument, *BROKEN], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_as_plain_python(function, backend):
    compiled = tracework.compile(function, backend=backend, fullgraph=function in SELECTED)
    for x in INPUTS:
        assert outcome(compiled, x.clone()) == outcome(function, x.clone())


@pytest.mark.parametrize("function", BROKEN, ids=lambda f: f.__name__)
def test_what_else_the_arms_do_breaks(function):
    with pytest.raises(Unsupported, match="data_dependent_branch"):
        tracework.compile(function, backend="eager", fullgraph=True)(torch.ones(3))


@pytest.mark.parametrize(
    "asked",
    [
        lambda flag: flag in (True, 3),
        lambda flag: (flag, 1) == (True, 1),
        lambda flag: [False, True].index(flag),
        lambda flag: True is flag,
        lambda flag: {True: 1, False: 2}[flag],
    ],
)
def test_truths_of_data_among_constants(asked):
    compiled = tracework.compile(lambda x: (x * 2, asked(x.sum().item() > 2)), backend="eager")
    for x in (torch.ones(3), torch.zeros(3)):
        assert repr(compiled(x)) == repr((x * 2, asked(x.sum().item() > 2)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_history_breaks(backend):
    """Gradients of the arm that is not taken are none, not zeros."""

    def function(x, w, v):
        if x.sum() > 0:
            y = x * w
        else:
            y = x * v
        return y.sum()

    compiled = tracework.compile(function, backend=backend)
    for x in INPUTS:
        results = []
        for call in (compiled, function):
            w, v = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
            call(x, w, v).backward()
            results.append([w.grad, v.grad])
        assert [g is None for g in results[0]] == [g is None for g in results[1]]
        torch.testing.assert_close(
            [g for g in results[0] if g is not None], [g for g in results[1] if g is not None], equal_nan=True
        )


@pytest.mark.parametrize(
    "function", [gives_the_argument, gives_both, gives_a_view_of_what_it_was, chosen_twice], ids=lambda f: f.__name__
)
def test_who_gets_the_tensors_cannot_tell(function):
    def places(results):
        return [[(p is q, p.untyped_storage().data_ptr() == q.untyped_storage().data_ptr()) for q in results] for p in results]

    def outputs(call, x):
        found = call(x)
        return [x, *found] if isinstance(found, tuple) else [x, found]

    compiled = tracework.compile(function, backend="eager")
    for x in INPUTS:
        assert places(outputs(compiled, x.clone())) == places(outputs(function, x.clone()))


@pytest.mark.parametrize("mode", [lambda: torch.autocast("cpu", torch.bfloat16), torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("backend", BACKENDS)
def test_in_modes(mode, backend):
    def function(x):
        if x.sum() > 0:
            y = x @ x
        else:
            y = x @ x.T
        return y + 1

    compiled = tracework.compile(function, backend=backend)
    for sign in (1.0, -1.0):
        x = torch.arange(16.0).reshape(4, 4).sin() + sign
        with mode():
            same(compiled(x), function(x))
            assert compiled(x).is_inference() == function(x).is_inference()


def test_an_arm_with_sizes_out_of_data_is_no_selection(caplog):
    """The mean of a cluster, which may be empty: the size was left outside of the arm, and capture failed."""

    def fn(x, chosen):
        return torch.stack([x[chosen == k].mean(0) if (chosen == k).any() else x[k] for k in range(3)])

    run = tracework.compile(fn, backend="eager")
    for chosen in ([0, 1, 1, 0], [2, 2, 2, 2]):
        given = torch.randn(4, 2), torch.tensor(chosen)
        torch.testing.assert_close(run(*given), fn(*given))
    assert "please report" not in caplog.text

"""Tensors, sizes and torch functions against plain torch."""

from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from harness import capture, check
from torch.utils.hooks import RemovableHandle
from tracework_capture import optimize
from tracework_capture.values.torch.overrides import overridable_functions


def operators(x):
    return (
        x + 1,
        2 - x,
        x / x,
        x**2,
        -x,
        x @ x,
        x // 2,
        x % 2,
        x > 0,
        x == x,
        ~(x > 0),
        1 / (x + 9),
        (x > 0) & (x < 1),
        abs(x),
        x != 0,
        2**x,
    )


def in_place(x):
    y = x.clone()
    y += 1
    y.mul_(2)
    y[0] = 5
    y[:, 1] -= 1
    z = y.add_(x)
    return y, z is y, y.data


def inputs_changed(x):
    x.add_(1)
    x[0, 0] = 9
    return x, x.view(-1) is x


def views(x):
    a, b = x.chunk(2, dim=-1)
    c, *rest = x.split(1)
    return (
        a,
        b,
        c,
        len(rest),
        x.T,
        x.mT,
        x[..., None],
        x[1:, ::2],
        x[torch.tensor([0, 1])],
        [r.sum() for r in x],
        x.unbind(0)[1],
        x.reshape(-1, 2).size(0),
    )


def creations(x):
    n = x.shape[0]
    return (
        torch.arange(n, device=x.device),
        torch.zeros(n, 2, dtype=x.dtype),
        torch.ones_like(x),
        x.new_zeros(2),
        torch.full((2,), 1.5),
        torch.tensor([1, n]),
        torch.eye(n),
        torch.tensor(2.0),
        torch.zeros(x.shape),
        torch.empty(0).numel(),
        torch.linspace(0, 1, n),
    )


def structures(x):
    m = x.max(dim=1)
    values, indices = torch.topk(x, 2)
    return (
        m.values,
        m.indices,
        m[0],
        values,
        indices,
        torch.std_mean(x),
        x.sort(),
        torch.cat([x, x]),
        torch.stack((x, x)),
        torch.where(x > 0, x, 0),
        torch.einsum("ij,jk->ik", x, x),
    )


def functional(x):
    return (
        F.relu(x),
        F.softmax(x, -1),
        F.gelu(x),
        F.layer_norm(x, x.shape[-1:]),
        F.linear(x, x),
        F.pad(x, (1, 1)),
        F.scaled_dot_product_attention(x[None], x[None], x[None]),
        F.cross_entropy(x, torch.zeros(4, dtype=torch.long)),
        F.dropout(x, 0.5, False),
    )


def conversions(x):
    return (
        x.to(torch.float64),
        x.float() is x,
        x.to("cpu") is x,
        x.half().dtype,
        x.long(),
        x.type(torch.int32),
        x.type(),
        x.contiguous() is x,
        x.detach(),
        x.clone().requires_grad_(),
        x.bool().any(),
    )


def out_argument(x):
    o = torch.empty_like(x)
    r = torch.add(x, x, out=o)
    return r is o, o


def identity(x):
    y = x
    return x, y is x, x.view(4, 4) is x, [x, x]


FUNCTIONS = [operators, in_place, inputs_changed, views, creations, structures, functional, conversions, out_argument, identity]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_same_as_plain(function):
    check(function, torch.randn(4, 4))


BREAKS = {
    "tensor_to_python": [
        lambda x: x.argmax().item() + x,
        lambda x: int(x.sum()) + x,
        lambda x: x[: len(x) - 1].tolist().index(3.0),
        lambda x: torch.equal(x, x),
    ],
    "tensor_to_numpy": [lambda x: (x + 1).bfloat16().numpy()],
    "data_dependent_branch": [lambda x: not (x + 1).sum()],
    "hook": [lambda x: (x * 2).register_hook(print)],
    "call_unknown": [lambda x: (x * 2).sum().backward()],
}


@pytest.mark.parametrize(("reason", "function"), [(r, f) for r, fs in BREAKS.items() for f in fs])
def test_breaks(reason, function):
    from tracework_capture.errors import Unsupported

    with pytest.raises(Unsupported) as caught:
        capture(function, torch.randn(3))
    assert caught.value.reason_id == reason


def test_identity_of_inputs_is_kept():
    x = torch.randn(4, 4)
    result = capture(identity, x)[0]()
    assert result[0] is x and result[3][0] is x


def test_custom_autograd_function_without_grad():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

    check(lambda x: Double.apply(x) + 1, torch.randn(3))


def test_checks_are_honoured():
    def fn(x, n):
        try:
            torch._check(x.shape[0] > n, lambda: f"too few rows: {n}")
            torch._check_value(n > 0, lambda: "negative")
        except (RuntimeError, ValueError) as error:
            return x - 1, type(error).__name__, str(error)
        return x + n

    check(fn, torch.randn(3), 2)
    check(fn, torch.randn(3), 4)
    check(fn, torch.randn(3), -1)


def numbers_of_losses(x):
    total, seen = 0.0, []
    for step in range(3):
        loss = (x * step).square().mean()
        total += loss.item()
        seen.append(float(loss))
        loss.add_(1)
    return total / 3, seen, f"{total:.5f} {seen[2]}", x / (total + 1), {"loss": loss.item()}


def number_of_a_leaf(x):
    weight = x.double().requires_grad_()
    loss = (weight * weight).sum()
    return loss * loss.item(), loss.item() * 2


@pytest.mark.parametrize("function", [numbers_of_losses, number_of_a_leaf], ids=lambda f: f.__name__)
def test_floats_out_of_tensors_wait_until_the_graph_has_run(function):
    """No break: Python gets its numbers when the graph has run, and tensors are computed with them inside."""
    compiled = optimize(lambda gm, example_inputs: gm.forward, fullgraph=True)(function)
    for scale in (1.0, -3.0, 1e-3):
        x = torch.arange(6.0).reshape(2, 3) * scale + 0.3
        found, expected = compiled(x), function(x)
        torch.testing.assert_close(found[0], expected[0], rtol=0, atol=0)
        assert found[1:3] == expected[1:3] and type(found[1]) is type(expected[1])


def test_what_steers_by_a_float_of_a_tensor_breaks():
    function = lambda x: x + 1 if x.mean().item() > 0 else x - 1
    compiled = optimize(lambda gm, example_inputs: gm.forward)(function)
    for x in (torch.ones(3), -torch.ones(3), torch.full((3,), float("nan"))):
        torch.testing.assert_close(compiled(x), function(x), equal_nan=True)


def test_python_types_as_dtypes_are_written_as_dtypes():
    """The text of a graph cannot name a class: `dtype = <class 'int'>` is no Python."""

    def fn(x):
        made = (
            torch.tensor([-1], dtype=int),
            torch.ones(2, dtype=float),
            torch.zeros(2, dtype=bool),
            torch.ones(3, dtype=complex),
        )
        return *made, x.to(int), x.sum(dtype=float), x.new_zeros(2, dtype=int)

    x = torch.randn(3)
    found = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(fn)(x)
    for mine, plain in zip(found, fn(x), strict=True):
        assert mine.dtype is plain.dtype and torch.equal(mine, plain)


def test_one_of_several_views_of_memory_that_was_written_to(caplog):
    """Eager refuses whatever is done with it; so does the plain Python that the graph breaks for."""

    def program(part, other):
        return part * 2 + other

    captured = optimize(lambda gm, inputs: gm.forward)(program)
    for call in (program, captured):
        whole = torch.ones(2, 3, requires_grad=True) * 1
        parts = whole.unbind(0)
        with torch.no_grad():
            whole.mul_(2)
        with pytest.raises(RuntimeError, match="multiple views"):
            call(*parts)
    assert "please report" not in caplog.text


def test_empty_arrays_of_open_sizes_become_tensors():
    """A dim that vmap hands on keeps its symbol."""

    def f(x):
        array = torch.vmap(lambda row: row)(x).numpy()
        return torch.from_numpy(array)

    captured = optimize(lambda gm, inputs: gm.forward)(f)
    for rows in (2, 4, 0):
        expected, found = f(torch.ones(rows, 3)), captured(torch.ones(rows, 3))
        assert torch.equal(found, expected) and found.stride() == expected.stride()


@pytest.mark.parametrize("base", [-2, -0.5, -2j, complex(0.0, -2.0), 2, True])
def test_powers_of_numbers(base):
    """The text of a graph binds a minus less tightly than a power."""
    x = torch.arange(4.0)

    def fn(x):
        return base**x, pow(base, x), x.clone() * base**2**x

    for mine, plain in zip(optimize(lambda gm, inputs: gm.forward, fullgraph=True)(fn)(x), fn(x), strict=True):
        torch.testing.assert_close(mine, plain, rtol=0, atol=0)


def test_where_a_tensor_begins_in_its_memory_is_looked_at_again():
    def f(x):
        return x + x.storage_offset(), x[1:] + x[1:].storage_offset()

    compiled = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(f)
    for row in torch.arange(12.0).reshape(3, 4):
        for found, expected in zip(compiled(row), f(row)):
            assert torch.equal(found, expected)


def test_gradients_of_results_in_a_tuple_that_were_made_outside():
    def f(results, leaves):
        return torch.autograd.grad(results, leaves, retain_graph=True, allow_unused=True)

    leaf = torch.ones(2, requires_grad=True)
    result = (leaf * 3).sum()
    compiled = optimize(lambda gm, inputs: gm.forward)(f)
    for _ in range(2):
        assert torch.equal(compiled((result,), (leaf,))[0], torch.full((2,), 3.0))


def test_a_backward_that_meets_a_freed_history_accumulates_as_far_as_eager():
    def f(x):
        shared, scale = x.sin(), torch.ones((), requires_grad=True)
        shared.sum().backward()
        try:
            ((shared * 2).sum() * scale).backward()
        except RuntimeError:
            pass
        return scale.grad

    compiled = optimize(lambda gm, inputs: gm.forward)(f)
    for _ in range(2):
        x = torch.ones(2, requires_grad=True)
        assert f(x) is not None and torch.equal(compiled(x), f(x))


def test_a_class_is_asked_once_where_it_is_an_argument_itself():
    class Asked(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func.__name__)

    def f(x):
        return x + 1, torch.add(Asked, 1)

    seen = []
    assert optimize(lambda gm, inputs: gm.forward)(f)(torch.ones(2))[1] is None and seen == ["add"]


def test_classes_are_asked_while_a_mock_stands_for_a_function_of_torch(caplog):
    class Asked:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    def f(x, asked):
        return x + 1, F.relu(asked)

    for remembered in (overridable_functions, torch.overrides._get_overridable_functions, torch.overrides.get_testing_overrides):
        remembered.cache_clear()
    with mock.patch("torch.linalg.cholesky", mock.MagicMock(wraps=torch.linalg.cholesky)):
        assert optimize(lambda gm, inputs: gm.forward)(f)(torch.ones(2), Asked())[1] == "relu"
    assert not [r for r in caplog.records if "please report" in r.getMessage()]


def test_types_in_messages_have_their_modules_as_in_plain_python():
    def f(x):
        try:
            return x.shape < 3
        except TypeError as error:
            return x + 1, str(error)

    assert optimize(lambda gm, inputs: gm.forward)(f)(torch.ones(2))[1] == f(torch.ones(2))[1]


def test_views_notice_when_their_base_is_detached_in_place():
    def f(x):
        y = x.exp()
        with torch.no_grad():
            view = y[1:]
        y.detach_()
        return view, y

    found, expected = (g(torch.ones(3, requires_grad=True)) for g in (optimize(lambda gm, inputs: gm.forward)(f), f))
    assert [t.requires_grad for t in found] == [t.requires_grad for t in expected] == [False, False]


def test_hooks_take_the_numbers_that_they_take_in_plain_python():
    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * 3)
        y.register_hook(lambda g: g + 1)
        return y.sin()

    taken = []
    for function in (f, optimize(lambda gm, inputs: gm.forward)(f)):
        for _ in range(2):
            x = torch.ones(2, requires_grad=True)
            before = RemovableHandle.next_id
            f_of_x = function(x)
            taken.append(RemovableHandle.next_id - before)
            f_of_x.sum().backward()
            assert torch.equal(x.grad, 2 * (3 * torch.cos(torch.full((2,), 2.0)) + 1))
    assert taken == [2] * 4


def versions(x, number):
    filled = [torch.full((2,), number), torch.full_like(x, number), x.new_full((2,), number)]
    made, other = x * 2, x + 1
    made.add_(1)
    made.set_(other)
    before = made._version
    made.sub_(1)
    return before, made._version, other._version, [t._version for t in filled], filled, made, other


def test_how_often_a_tensor_was_written_to_that_was_filled_or_goes_on_over_other_memory():
    graphs = []
    compiled = optimize(lambda gm, inputs: (graphs.append(gm), gm.forward)[1])(versions)
    for number in (0.5, 1.5, 2.5):
        (*counts, filled, made, other), (*expected, others, one, another) = (
            f(torch.ones(2), number) for f in (compiled, versions)
        )
        assert counts == expected and counts[:3] == [2, 3, 0]
        torch.testing.assert_close([*filled, made, other], [*others, one, another])
        assert made._version == one._version and [t._version for t in filled] == [t._version for t in others]
    assert len(graphs) == 2


RANGES = [((), {"from": -10, "to": 10}), ((-10,), {"to": 10}), ((-10, 10), {}), ((), {"to": 10, "from": 2})]


@pytest.mark.parametrize("method", ["random_", "uniform_"])
@pytest.mark.parametrize("args, kwargs", RANGES, ids=str)
def test_ranges_of_random_numbers_by_name(method, args, kwargs):
    """The text of a graph cannot give an argument called `from`."""
    expected, x = torch.zeros(2, 3), torch.zeros(2, 3)
    torch.manual_seed(0)
    getattr(expected, method)(*args, **kwargs)
    run, _ = capture(lambda x: getattr(x, method)(*args, **kwargs), x)
    torch.manual_seed(0)
    run()
    torch.testing.assert_close(x, expected)


def test_the_gradient_of_a_leaf_under_its_other_name():
    def program(x, y):
        x._grad = y + 1
        y.grad = x + 2
        found = x.grad.data, y._grad.data
        x._grad = None
        return *found, x.grad

    plain, captured = ([torch.ones(2, requires_grad=True), torch.zeros(2, requires_grad=True)] for _ in range(2))
    expected, found = program(*plain), optimize(lambda graph, inputs: graph.forward)(program)(*captured)
    torch.testing.assert_close(found[:2], expected[:2])
    assert found[2] is expected[2] is captured[0].grad is plain[0].grad is None
    torch.testing.assert_close(captured[1].grad, plain[1].grad)


def test_an_order_of_dims_that_is_not_unique_is_refused_by_eager():
    ask = optimize(lambda graph, inputs: graph.forward)(lambda x: (x + 1, x.dim_order(ambiguity_check=True)))
    with pytest.raises(RuntimeError, match="unique dim order") as refused:
        ask(torch.ones(4, 1, 5, 1))
    assert type(refused.value) is RuntimeError

"""TorchFunctionModes that captured code enters, or is under: what they see, what they change, and when they are left."""

import copy
from contextlib import nullcontext

import pytest
import torch
from harness import assert_same
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from tracework_capture import graph_break
from tracework_capture.guards.access import steps_of
from tracework_capture.hook.context import optimize
from tracework_capture.sources import Local, TensorSize, TensorStride


class Swap(TorchFunctionMode):
    """cos for sin"""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return (torch.cos if func is torch.sin else func)(*args, **(kwargs or {}))


class Log(TorchFunctionMode):
    """Keeps the names of what is called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Scale(TorchFunctionMode):
    """Adds a number to what add gives."""

    def __init__(self, by):
        self.by = by

    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return found * self.by if func is torch.Tensor.add else found


class Tagged(torch.Tensor):
    """A subclass"""


class Operators(TorchDispatchMode):
    """Keeps the names of the operators that run, and gives cos for sin."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return (torch.ops.aten.cos.default if func is torch.ops.aten.sin.default else func)(*args, **(kwargs or {}))


def stack():
    return torch.overrides._get_current_function_mode_stack()


def inside(x):
    with Swap():
        y = torch.sin(x)
    return y + torch.sin(x)


def attributes_and_operators(x):
    with Log() as log:
        y = (2 - x)[0] + x.shape[0]
        y -= x.mean(dim=0)
        y[0] = -(x[1, 0] ** 2)
        first, second = x
        z = torch.nn.functional.relu(y) @ x.T, len(x), x.dtype, first, second
    return y, z, log.names, x.sum()


def nested(x):
    with Scale(2.0), Swap(), Scale(3.0):
        return torch.sin(x) + x


class Refuses(TorchFunctionMode):
    """Raises for cos."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.cos:
            raise KeyError("cos")
        return func(*args, **(kwargs or {}))


def handler_raises(x):
    try:
        with Refuses():
            x = x.sin()
            x = torch.cos(x)
    except KeyError:
        x = torch.cos(x) * 2
    return x


def breaks_inside(x):
    with Log() as log:
        y = x.sin() + 1
        number = y.argmax().item()
        y = y * number
    return y, log.names, torch.cos(y)


def subclass_inside(x):
    with Log() as log:
        y = x.as_subclass(Tagged) + 1
    return y, log.names


def off_inside(x):
    with Log() as log:
        x = x + 1
        with torch._C.DisableTorchFunction():
            x = x * 2
        with torch._C.DisableTorchFunctionSubclass():
            x = x - 2
    return x, log.names


def made_inside(x):
    with Log() as log:
        y = torch.zeros(2) + torch.ones(2, dtype=torch.float64) + torch.tensor(2.0)
    return x + y, log.names


def module_inside(x):
    with Log() as log:
        y = torch.nn.functional.softmax(LAYER(x), dim=-1)
    return y, log.names


LAYER = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.LayerNorm(2))
INSIDE = [inside, attributes_and_operators, nested, handler_raises, breaks_inside, subclass_inside, off_inside, module_inside]


def optimized(fn, **options):
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    return optimize(backend, **options)(fn), graphs


@pytest.mark.parametrize("fn", [*INSIDE, made_inside], ids=lambda fn: fn.__name__)
def test_modes_entered_inside(fn):
    x = torch.arange(6.0).reshape(2, 3) / 7 if fn is not made_inside else torch.ones(2)
    breaks = fn is breaks_inside
    fast, graphs = optimized(fn, fullgraph=not breaks)
    for _ in range(3):
        assert_same(fast(x), fn(x))
        assert not stack()
    assert len(graphs) == 1 + breaks


@pytest.mark.parametrize("fn", INSIDE, ids=lambda fn: fn.__name__)
def test_modes_around(fn):
    x = torch.arange(6.0).reshape(2, 3) / 7
    fast, graphs = optimized(fn)
    for modes in ([Log()], [Swap(), Log()], [Log(), Scale(3.0)], [Scale(5.0), Log()], [Log(), Log()]):
        logs = [mode.names for mode in modes if isinstance(mode, Log)]
        seen = []
        for function in (fn, fast, fast):
            for names in logs:
                names.clear()
            for mode in modes:
                mode.__enter__()
            try:
                found = function(x)
                assert stack() == modes
            finally:
                for mode in reversed(modes):
                    mode.__exit__(None, None, None)
            seen.append((found, [list(names) for names in logs]))
        assert_same(seen[1], seen[0])
        assert_same(seen[2], seen[0])
    assert_same(fast(x), fn(x))


def test_other_modes_are_noticed():
    def fn(x):
        return torch.sin(x) + 1

    x = torch.ones(2)
    fast, graphs = optimized(fn, fullgraph=True)
    for mode in (Swap(), Scale(2.0), Scale(3.0), Scale(3.0), Swap()):
        with mode:
            expected = fn(x)
        with mode:
            found = fast(x)
        assert_same(found, expected)
    assert len(graphs) <= 4
    assert_same(fast(x), fn(x))


def test_a_mode_left_entered_and_one_left_from_outside():
    def enters(x):
        mode = Scale(2.0)
        mode.__enter__()
        return x.sin(), mode

    def leaves(x):
        torch.overrides._pop_mode()
        return x + 1

    x = torch.ones(2)
    found, mode = optimized(enters, fullgraph=True)[0](x)
    assert stack() == [mode]
    found = optimized(leaves, fullgraph=True)[0](x)
    assert not stack()
    assert_same(found, x + 1)


def test_a_mode_sees_no_more_than_it_does_plainly_when_sizes_change():
    def fn(x):
        return (x * 2).sum() / x.shape[0]

    fast, graphs = optimized(fn)
    for size in (2, 3, 4, 5):
        x = torch.ones(size)
        with Log() as plain:
            expected = fn(x)
        with Log() as log:
            found = fast(x)
        assert_same(found, expected)
        assert log.names == plain.names


def operators_inside(x):
    with Operators() as seen:
        y = x.sin() + 1
    return y.sin(), seen.names


def test_dispatch_modes_see_the_operators_of_plain_python():
    def fn(x):
        return x.sin() + 1

    x = torch.ones(2)
    fast, graphs = optimized(lambda x: fn(x))
    for _ in range(2):
        with Operators() as plain:
            expected = fn(x)
        with Operators() as seen:
            found = fast(x)
        assert_same((found, seen.names), (expected, plain.names))
        assert_same(fast(x), fn(x))
    assert len(graphs) == 1
    inside, _ = optimized(operators_inside)
    assert_same([inside(x), inside(x)], [operators_inside(x)] * 2)


@pytest.mark.parametrize("warm", [False, True])
def test_jit_trace_sees_the_operators_of_plain_python(warm):
    def backend(gm, example_inputs):
        return lambda *inputs: tuple(torch.from_numpy(t.numpy()) for t in gm(*inputs))  # kernels that the tracer does not see

    x = torch.ones(2, 3)
    fast = optimize(backend)(lambda x: x.sin() + 1)
    if warm:
        fast(x)
    traced = torch.jit.trace(fast, (x,), check_trace=False)
    assert_same(traced(x * 2), (x * 2).sin() + 1)


def writes_and_may_raise(x):
    x.add_(1)
    return torch.nn.functional.embedding(x.long().flatten(), torch.ones(40, 2))


def test_a_mode_sees_nothing_of_what_is_kept_for_a_raise():
    fast, _ = optimized(writes_and_may_raise)
    for size in (2, 3, 5, 4):
        given = [torch.ones(4, size + 2)[:, :size] for _ in range(2)]
        with Log() as plain:
            expected = writes_and_may_raise(given[0])
        with Log() as log:
            found = fast(given[1])
        assert_same(found, expected)
        assert log.names == plain.names


@pytest.mark.parametrize("source", [TensorSize(Local("x"), 0), TensorStride(Local("x"), 0)])
def test_a_mode_sees_nothing_of_guards_that_read_sizes(source):
    ((_, read, _),) = steps_of(source, (lambda x: x).__code__)[-1:]
    x = torch.ones(2, 2)
    with Log() as log:
        assert read(x) == 2
    assert log.names == []


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.new_tensor([1.5]),
        lambda x: x.new_full((2,), 3.0),
        lambda x: x.new_zeros(2),
        lambda x: torch.ones(x.stride()),
        lambda x: x.unflatten(0, (1, -1)),
        lambda x: x.as_subclass(torch.Tensor) + 1,
    ],
)
def test_methods_that_make_and_ask_are_seen(call):
    def f(x, mode):
        with mode:
            return call(x)

    plain, captured = Log(), Log()
    expected = f(torch.ones(3), plain)
    assert torch.equal(optimize(lambda gm, inputs: gm.forward)(f)(torch.ones(3), captured), expected)
    assert captured.names == plain.names


class Nothing(TorchFunctionMode):
    """Gives None instead of calling anything."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return None


@pytest.mark.parametrize("block", [nullcontext, torch.no_grad])
def test_a_mode_left_after_a_break_sees_nothing_of_what_follows(block):
    def f(x):
        with Nothing(), block():
            graph_break()
        return (x + 1).sum().item()

    assert optimize(lambda gm, inputs: gm.forward)(f)(torch.ones(2)) == 4.0
    assert not stack() and torch.is_grad_enabled()


def decorated(x):
    @torch.no_grad()
    def inner(x):
        return x + 1

    return inner(x).requires_grad


def switched(x):
    with torch.set_grad_enabled(False):
        y = x + 1
    torch.set_grad_enabled(True)
    with torch.no_grad(), torch.enable_grad(), torch.inference_mode():
        x = x * 2
    return y, x.requires_grad


def switched_around_a_break(x):
    with torch.no_grad():
        graph_break()
        x = x + 1
    return x.requires_grad


@pytest.mark.parametrize("fn", [decorated, switched, switched_around_a_break], ids=lambda fn: fn.__name__)
def test_modes_see_switches_of_grad_mode(fn):
    def f(x, mode):
        with mode:
            return fn(x)

    x = torch.ones(2, requires_grad=True)
    plain, captured = Log(), Log()
    compiled = optimize(lambda gm, inputs: gm.forward)(f)
    for _ in range(2):
        assert_same(compiled(x, captured), f(x, plain))
        assert captured.names == plain.names and "_set_grad_enabled" in plain.names


def test_a_mode_sees_nothing_of_guards_that_read_attributes():
    def f(x):
        return None if x.grad is None else x.grad * 2, x.is_leaf

    x = torch.ones(2, requires_grad=True)
    compiled = optimize(lambda gm, inputs: gm.forward)(f)
    seen = []
    for function in (f, compiled, compiled):
        with Log() as log:
            function(x)
        seen.append(log.names)
    assert seen[0] == seen[1] == seen[2]


def double(module, x):
    return module.double()


def to_another_dtype(module, x):
    return module.to(torch.float64)


def a_training_step(module, x):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    return module.weight.grad


def a_leaf_that_is_made(module, x):
    x.grad = torch.ones_like(x)
    return (x * 2).detach().requires_grad_(), x.grad


def a_copy_of_a_module(module, x):
    return copy.deepcopy(module)(x)


def a_break_after_a_store(module, x):
    module.weight.grad = torch.zeros(module.weight.shape)
    graph_break()
    return module.weight.grad * x.size(0)


@pytest.mark.parametrize(
    "fn",
    [double, to_another_dtype, a_training_step, a_leaf_that_is_made, a_copy_of_a_module, a_break_after_a_store],
    ids=lambda fn: fn.__name__,
)
@pytest.mark.parametrize("inside", [False, True])
def test_a_mode_sees_what_the_program_does_to_modules_and_gradients_and_no_more(fn, inside):
    def under(module, x, mode):
        with mode:
            return fn(module, x)

    def run(compiled):
        torch.manual_seed(0)
        module, x, mode = torch.nn.Linear(2, 2), torch.ones(3, 2), Log()
        for _ in range(3):
            if inside:
                result = compiled(module, x, mode)
            else:
                with mode:
                    result = compiled(module, x)
        return result, mode.names, list(module.parameters()), [p.grad for p in module.parameters()]

    function = under if inside else fn
    assert_same(run(optimize(lambda gm, inputs: gm.forward)(function)), run(function))


def test_a_mode_sees_the_plain_run_of_a_frame_whose_graph_raised():
    def f(x, i):
        x = x + 1
        try:
            return torch.nn.functional.embedding(i, x)
        except IndexError:
            return x.sin()

    compiled = optimize(lambda gm, inputs: gm.forward)(f)
    for i in (0, 5, 0):
        seen = []
        for function in (f, compiled):
            with Log() as log:
                function(torch.ones(3, 2), torch.tensor([i]))
            seen.append(log.names)
        assert seen[0] == seen[1]


class Forms(TorchFunctionMode):
    """Notes what is called with which keywords."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append((func.__name__, len(args), sorted(kwargs or {})))
        return func(*args, **(kwargs or {}))


PYTHON_FUNCTIONS = {
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.0),
    "max_pool1d": lambda x: torch.nn.functional.max_pool1d(x, 2),
    "split": lambda x: (torch.split(x, 1), x.split(1)),
    "norm": lambda x: (torch.norm(x), x.norm(), x.norm(1, 0)),
    "tensordot": lambda x: torch.tensordot(x, x),
    "meshgrid": lambda x: torch.meshgrid(x[0], x[1], indexing="ij"),
    "backward": lambda x: (x * 2).requires_grad_().sum().backward(),
    "cdist": lambda x: torch.cdist(x, x),
}


@pytest.mark.parametrize("function", PYTHON_FUNCTIONS.values(), ids=PYTHON_FUNCTIONS)
def test_functions_in_python_hand_their_arguments_over_as_in_eager(function):
    def f(x, mode):
        with mode:
            function(x)
        return x + 1

    plain, captured = Forms(), Forms()
    f(torch.ones(2, 2), plain)
    optimize(lambda gm, inputs: gm.forward)(f)(torch.ones(2, 2), captured)
    assert captured.seen == plain.seen

"""Backends of the user's own: right for eight sizes in a row and without messages, with gradients; what fails, and what loses gradients."""

import logging
import warnings

import pytest
import torch
import tracework
import tracework_capture as capture
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import aot_module_simplified
from torch.fx.experimental.proxy_tensor import make_fx

MADE = []


def forward_compiler(gm, example_inputs):
    MADE.append(gm)
    return make_boxed_func(gm.forward)


def simplified(gm, example_inputs):
    return aot_module_simplified(gm, example_inputs, fw_compiler=forward_compiler)


def showing(gm, example_inputs):
    MADE.append([getattr(x, "shape", x) for x in example_inputs])
    return gm.forward


def wrapping(gm, example_inputs):
    MADE.append(gm)
    return lambda *args: gm(*args)


def burning(gm, example_inputs):
    """Rewrites the graph in place, with the example's sizes in it, and gives it back."""
    MADE.append(gm)
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), example_inputs):
        for user in list(node.users) if isinstance(value, int) else ():
            user.replace_input_with(node, value)
    gm.recompile()
    return gm


def inductor_of_torch(gm, example_inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what importing it says
        from torch._inductor.compile_fx import compile_fx
    MADE.append(gm)
    return compile_fx(gm, example_inputs)


BACKENDS = {
    "aot_autograd": aot_autograd(fw_compiler=forward_compiler),
    "aot_module_simplified": simplified,
    "showing": showing,
    "wrapping": wrapping,
    "burning": burning,
}
WAYS = ("size", "marked", "dynamic", "int", "float")
SIZES = range(3, 11)


def program(x, n, s):
    return x.sum() / x.shape[0] * s + n, x.mean(0) * n


def calls(way, sizes=SIZES):
    for n in sizes:
        x = torch.randn(n if way in ("size", "marked", "dynamic") else 4, 5, dtype=torch.float64, requires_grad=True)
        if way == "marked":
            tracework.compiler.mark_dynamic(x, 0)
        yield x, n if way == "int" else 2, n / 3 if way == "float" else 1.5


def check(backend, way, sizes=SIZES):
    compiled = tracework.compile(program, backend=backend, dynamic=True if way == "dynamic" else None)
    MADE.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x, n, s in calls(way, sizes):
            found, expected = compiled(x, n, s), program(x, n, s)
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(*(torch.autograd.grad(a.sum() + b.sum(), x) for a, b in (found, expected)))


def loud(caplog):
    """What is warned of, but by torch of the machine: it has CUDA's files and no GPU."""
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    return [record for record in warned if record.name != "torch.utils.cpp_extension"]


@pytest.mark.parametrize(
    ("name", "way"), [(name, way) for name in BACKENDS for way in (WAYS if name != "aot_module_simplified" else WAYS[:2])]
)
def test_eight_in_a_row(name, way, caplog, capfd):
    check(BACKENDS[name], way)
    assert not loud(caplog) and not capfd.readouterr().err
    if name == "showing":  # what gives graphs back as they are gets symbols
        assert len(MADE) == (1 if way in ("marked", "dynamic") else 2)


def test_torchs_inductor(caplog):
    check(inductor_of_torch, "size", [3, 4, 5])  # the third is the first with symbols; it takes seconds for each
    assert not loud(caplog)


def test_a_backend_that_says_so_gets_symbols():
    def mine(gm, example_inputs):
        MADE.append(gm)
        return lambda *args: gm(*args)

    MADE.clear()
    tracework.register_backend(mine, dynamic=True)
    compiled = tracework.compile(program, backend="mine")
    for args in calls("size"):
        torch.testing.assert_close(compiled(*args), program(*args))
    first, second = MADE
    kinds = [[type(n.meta["example_value"]) for n in gm.graph.find_nodes(op="placeholder")] for gm in (first, second)]
    assert torch.SymInt not in kinds[0] and torch.SymInt in kinds[1]


def tracing(gm, example_inputs):
    return make_fx(gm)(*example_inputs).forward


DATA_SIZES = {
    "mask": lambda x: x[x > 0].sum() * x[x > 0].shape[0],
    "nonzero": lambda x: torch.ones(torch.nonzero(x).shape[0]).sum() + x,
    "item": lambda x: x * (x.long().sum().item() + 1),
}


@pytest.mark.filterwarnings("ignore::tracework.UncompiledWarning")  # torch's tables of fakes see what is behind a break die
@pytest.mark.parametrize("program", DATA_SIZES.values(), ids=DATA_SIZES)
@pytest.mark.parametrize("backend", [tracing, BACKENDS["aot_autograd"]], ids=["tracing", "aot_autograd"])
def test_sizes_that_depend_on_data(program, backend):
    """They are in no graph of a backend that may burn them in: the graph breaks there, or it is an error."""
    data = [torch.tensor([1.0, 2.0, 0.0, -1.0]), torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0.0, 0.0, 0.0, 1.0])]
    for unbacked in (None, True):
        compiled = tracework.compile(program, backend=backend, options={"unbacked": unbacked})
        for x in data:
            torch.testing.assert_close(compiled(x), program(x))
    with pytest.raises(capture.Unsupported, match=r"register_backend\(dynamic=True\)"):
        tracework.compile(program, backend=backend, fullgraph=True)(data[0])
    torch.testing.assert_close(tracework.compile(program, backend=showing, fullgraph=True)(data[0]), program(data[0]))


def test_a_mark_needs_a_place():
    with pytest.raises(tracework.InvalidArgument, match="takes none"):
        tracework.register_backend(len, name="len", dynamic=True)


def test_a_stance_with_a_backend_of_the_users_own():
    compiled = tracework.compile(program, backend="aot_eager")
    with tracework.compiler.set_stance(force_backend=BACKENDS["aot_autograd"]):
        for args in calls("size"):
            torch.testing.assert_close(compiled(*args), program(*args))


def without_history(gm, example_inputs):
    def run(*args):
        with torch.no_grad():
            return gm(*args)

    return run


def test_a_lost_history_raises():
    linear = torch.nn.Linear(3, 3)
    x = torch.ones(2, 3)
    compiled = tracework.compile(linear, backend=without_history)
    with pytest.raises(capture.ControlMisuse, match="without_history made of a graph gave .*, result 0 .*no_grad"):
        compiled(x)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), linear(x))
    only = tracework.compile(lambda x: (x * 2, x > 1), backend=without_history)
    torch.testing.assert_close(only(x), (x * 2, x > 1))


def failing(gm, example_inputs):
    raise NotImplementedError("no such thing")


@pytest.mark.parametrize("backend", [failing, lambda gm, example_inputs: None], ids=["raises", "gives nothing"])
def test_suppress_errors(backend):
    def function(x):
        return x.sin() + 1

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(Exception):  # noqa: B017  # each its own
        tracework.compile(function, backend=backend)(x)
    compiled = tracework.compile(function, backend=backend, options={"suppress_errors": True})
    with pytest.warns(tracework.UncompiledWarning, match="suppress_errors is on") as said:
        torch.testing.assert_close(compiled(x), function(x))
        torch.testing.assert_close(compiled(x), function(x))
    assert len(said) == 1


@pytest.mark.parametrize(("backend", "second"), [("eager", False), ("aot_eager", True)], ids=["first order", "second order"])
def test_compiled_autograd_of_torch_around_it(backend, second):
    from torch._dynamo import compiled_autograd

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 2)).double()

    def gradients(function):
        model.zero_grad()
        x = torch.arange(15, dtype=torch.float64).reshape(5, 3).div(7).requires_grad_()
        loss = function(x).square().sum()
        if second:
            (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
            loss = gradient.square().sum()
        loss.backward()
        return [x.grad, *(p.grad for p in model.parameters())]

    expected = gradients(model)
    with compiled_autograd._enable(torch.compile(backend=backend)):
        torch.testing.assert_close(gradients(tracework.compile(model)), expected)
    torch._dynamo.reset()

"""What broken code calls: modules are captured at their forward, single operations of torch and of the rest of a function are not."""

import builtins
import functools
import random
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
import tracework_capture as capture
from tracework_capture import RecompileLimitWarning

X = torch.arange(6.0).reshape(2, 3)


def graphs_of(function, *args):
    """The operators of each graph, after the compiled function gave what the plain one gives."""
    graphs = []

    def backend(module, example_inputs):
        graphs.append([n.name for n in module.graph.nodes if n.op in ("call_function", "call_method")])
        return module.forward

    expected = function(*args)
    compiled = capture.optimize(backend)(function)
    for _ in range(6):
        torch.testing.assert_close(compiled(*args), expected)
    return graphs


def breaks_around(function):
    """The function is called by broken code."""

    def program(x):
        x = x * 2 + 1
        capture.graph_break()
        return capture.disable(function, recursive=False)(x)

    return program


def test_an_operator_of_torch_is_called_plainly():
    assert len(graphs_of(breaks_around(lambda x: F.log_softmax(x, 0)), X)) == 1
    assert len(graphs_of(breaks_around(torch.nn.LayerNorm(3)), X)) == 1


def test_it_is_captured_when_that_is_what_is_wanted():
    assert len(graphs_of(torch.nn.Softmax(0), X)) == 1
    assert len(graphs_of(F.normalize, X)) == 1


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x):
        return self.linear(x).relu() + 1


class Tower(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ModuleList([Block(3) for _ in range(12)])

    def forward(self, x):
        for part in self.parts:
            x = capture.disable(part, recursive=False)(x)
        return x


def test_many_modules_share_the_code_around_forward_without_a_limit(recwarn):
    with torch.no_grad():
        graphs = graphs_of(Tower(), X)
    assert graphs == [graphs[0]]
    assert not [w for w in recwarn if issubclass(w.category, RecompileLimitWarning)]


def test_hooks_of_a_module_run_when_it_is_called_by_broken_code():
    block, seen = Block(3), []
    block.register_forward_hook(lambda module, args, result: seen.append(result.shape) or result * 2)
    graphs_of(breaks_around(block), X)
    assert seen == [X.shape] * 7


def test_one_operation_after_a_break_in_a_callee_is_not_compiled():
    def callee(x):
        x = x * 3 + 1
        capture.graph_break()
        return x.reshape(-1)

    def program(x):
        x = x + 1
        y = callee(x * 2)
        return y.exp() + 1

    graphs = graphs_of(program, X)
    assert [len(graph) for graph in graphs] == [2, 2, 2]


def depth():
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


def near_the_limit(x):
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(depth() + 25)
        y = x + 1
    finally:
        sys.setrecursionlimit(limit)
    return y * 2


def test_handlers_run_where_no_room_is_left_to_capture():
    limit = sys.getrecursionlimit()
    compiled_near_the_limit = capture.optimize(lambda module, example_inputs: module.forward)(near_the_limit)
    try:
        assert compiled_near_the_limit(torch.ones(1)) == 4
        assert sys.getrecursionlimit() == limit
    finally:
        sys.setrecursionlimit(limit)


def refuses_to_import(*anything):
    raise ImportError("nothing is imported here")


@pytest.mark.parametrize("name, replacement", [("len", functools.lru_cache(4)(len)), ("__import__", refuses_to_import)])
def test_nothing_is_captured_while_the_program_has_replaced_a_builtin_that_the_compiler_needs(
    name, replacement, monkeypatch, caplog
):
    """The compiler is a Python program itself: it would call what the program put there, which here knows no lists."""
    graphs = []

    def backend(module, example_inputs):
        graphs.append(module)
        return module.forward

    compiled = capture.optimize(backend)(lambda x: x * 2 + len("ab"))
    with monkeypatch.context() as patched:
        patched.setattr(builtins, name, replacement)
        result = compiled(torch.ones(2))
    assert "please report" not in caplog.text
    assert not graphs and torch.equal(result, torch.full((2,), 4.0))
    assert torch.equal(compiled(torch.ones(2)), result) and len(graphs) == 1


def slope(start, factor):
    total = start
    for step in range(20):
        total = total * factor - step / 2.0
    return total


def test_floats_that_change_are_no_reason_for_a_graph():
    graphs = []

    def backend(module, example_inputs):
        graphs.append(module)
        return module.forward

    compiled = capture.optimize(backend)(slope)
    for factor in (0.5, 0.25, 1.5, 2.5, 3.5):
        assert compiled(factor, 1.0 / factor) == slope(factor, 1.0 / factor)
    assert not graphs

    drawing = capture.optimize(backend)(lambda scale: random.random() * scale)
    for scale in (0.5, 0.25, 1.5):
        random.seed(5)
        expected = random.random() * scale
        random.seed(5)
        assert drawing(scale) == expected
    assert not graphs

    learning = capture.optimize(backend)(lambda x, rate: x * (rate * 0.5 + 1.0))
    for rate in (0.5, 0.25, 1.5):
        torch.testing.assert_close(learning(X, rate), X * (rate * 0.5 + 1.0))
    assert len(graphs) == 2


def busy(rounds):
    total = 0
    for i in range(rounds):
        total = (total + i) % 1009
    return total


def test_a_long_loop_without_tensors_runs_plainly_for_good():
    traced = []
    callback_of = capture.optimize(lambda module, example_inputs: module.forward)
    compiled = callback_of(lambda rounds: busy(rounds) + busy(rounds // 2))
    for _ in range(3):
        assert compiled(100_000) == busy(100_000) + busy(50_000)
    for frame in compiled.callback.skipped:
        traced.append(frame.why)
    assert traced == ["a long loop without tensor operations: 50000 instructions"] * 2  # the program, and busy


def test_tensors_behind_a_long_loop_are_captured():
    assert graphs_of(lambda x: ((x * 2 + 1) + busy(60_000)).exp() - 1, X) == [["mul", "add"], ["add", "exp", "sub"]]


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


def test_a_wrapper_is_left_plain_for_the_functions_that_break_in_it():
    """As Optimizer.step is wrapped, by the same code for all optimizers."""

    @decorated
    def fails(x):
        capture.graph_break()
        return x.tolist()

    @decorated
    def works(x):
        return (x * 2 + 1).sin()

    for _ in range(2):
        compiled = capture.optimize(lambda gm, inputs: gm.forward)(fails)
        for _ in range(6):
            assert compiled(X) == X.tolist()
        assert graphs_of(works, X) == [["mul", "add", "sin"]]


class Named(torch.nn.Module):
    def __init__(self, **named):
        super().__init__()
        self.named = named


def test_what_a_function_without_operators_calls_is_not_asked_to_be_one_graph():
    """Its parts, as a module's __init__ that has not run yet, need not be frames that can be captured by themselves."""

    def program(x):
        return x, Named(a=1).named

    compiled = capture.optimize(lambda module, example_inputs: module.forward, fullgraph=True)(program)
    for _ in range(2):
        assert compiled(X) == (X, {"a": 1})


def test_nothing_of_capture_is_imported_while_a_program_is_traced():
    """The program may have changed how Python imports. graph.text is for who writes cases, after tracing."""
    script = """
import pkgutil, sys, tracework_capture
tracework_capture.optimize(lambda gm, inputs: gm.forward)(len)
names = {m.name.partition(".")[2] for m in pkgutil.walk_packages(tracework_capture.__path__, "tracework_capture.")}
print(sorted(name for name in names if f"tracework_capture.{name}" not in sys.modules))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300).stdout
    assert found.strip() == "['graph.text', 'values.policy']"


class BadMeta(type):
    @property
    def __module__(cls):
        raise ZeroDivisionError


def test_a_class_whose_module_raises():
    def fn(x):
        return x + 1, type(BadMeta("Made", (), {})()).__name__

    assert capture.optimize(lambda gm, inputs: gm.forward)(fn)(X)[1] == "Made"

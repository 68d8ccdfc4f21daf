"""Nothing uncompiled in silence: each reason for which recorded tensor operations run without a compiled graph gives one warning, with the
file and the line, and a line in explain. The table has a row for each place of the sources that reports one."""

import ast
import gc
import warnings
from pathlib import Path

import pytest
import torch
import tracework
from tracework import assemble, torch_backend
from tracework_capture.hook import context
from tracework_capture.uncompiled import collected, report_uncompiled
from tracework_primops import Condition, GuardOnUnbackedError
from tracework_primops.fake import SPECIAL
from tracework_primops.fake.dispatch import forget_plans

PACKAGES = Path(__file__).parent.parent / "packages"
X = torch.ones(3)


def program(x):
    return x.sin() + 1


def weighted(weight):
    return lambda x: (x * weight).sin() * weight


def leaf():
    return torch.ones(3, requires_grad=True)


def refused():
    tracework.compile(lambda x, y: (x.sin(), y * 2))(X, torch.ones(2, device="meta"))


def overlapping():
    memory = torch.ones(8)

    def function(x, y):
        x.add_(1)
        return y * 2

    call = tracework.compile(function)
    call(memory[:4].clone(), memory[4:].clone())
    call(memory[:4], memory[2:6].view(torch.int32))


def elsewhere():
    memory = torch.ones(12)
    call = tracework.compile(lambda x: x.as_strided((2,), (1,), 1) * 2)
    call(memory[:4])
    call(memory[4:8])


def under_saved_hooks():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        tracework.compile(weighted(leaf()))(X)


def effects_under_saved_hooks():
    weight, seen = leaf(), []

    def function(x):
        seen.append(1)
        return (x * weight).sin() * weight

    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        tracework.compile(function)(X)


def several_gradients():
    weight = leaf()
    torch.autograd.grad(tracework.compile(weighted(weight))(X), weight, torch.eye(3), is_grads_batched=True)


def several_gradients_of_gradients():
    weight = leaf()
    result = tracework.compile(weighted(weight))(X)
    torch.autograd.grad(result, weight, torch.eye(3), is_grads_batched=True, create_graph=True)


def gradients_for_other_sizes():
    real = assemble.GraphCompiler._compiled

    def fixing(self, gm, spec):
        for symbol in [*spec.symbols.origins] if second else ():  # what compiling found out
            spec.symbols.assume(Condition.compare("==", symbol, spec.symbols.hint(symbol)), "a test")
        return real(self, gm, spec)

    second = False
    call = tracework.compile(lambda x: (x * x).sin().sum(), dynamic=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble.GraphCompiler, "_compiled", fixing)
        for n in (3, 4):
            x = torch.ones(n, requires_grad=True)
            loss, second = call(x), True
            torch.autograd.grad(loss, x, create_graph=True)


def other_data():
    weight = leaf()
    result = tracework.compile(weighted(weight))(X).sum()
    weight.data = torch.full((3,), 2.0)
    result.backward()


def asked_about_data():
    real = assemble.inductor.compile_graph

    def ask(graph, options, **given):
        if "sin" in str(graph):
            raise GuardOnUnbackedError("u0 > 3", "here")
        return real(graph, options, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble.inductor, "compile_graph", ask)
        tracework.compile(lambda x: x[x > 0].sin() * 7.25, fullgraph=True, options={"cache": False})(X)


def given_up():
    def function(x):
        def steps():
            try:
                yield x * 2
            finally:
                x.add_(1)

        return next(steps()) + 1

    tracework.compile(function)(torch.ones(3))


def failing_capture():
    def fail(*args):
        raise ZeroDivisionError("of capture itself")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "_capture_frame", lambda: fail)
        tracework.compile(program)(X)


def near_the_recursion_limit():
    def fail(given, backend, options, history, call_disabled):
        history.operations = 2
        raise RecursionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "_capture_frame", lambda: fail)
        tracework.compile(program)(X)


def at_the_limit():
    call = tracework.compile(lambda x, text: x.sin() + len(text))
    for n in range(10):
        call(X, "a" * n)


def constructor_text():
    def function(x, text="def made(x):\n    return x.sin() * 2 - 1"):
        names = {}
        exec(compile(text, "made anew", "exec"), names)
        return names["made"](x) + 1

    call = tracework.compile(function, recompile_limit=3)
    for _ in range(6):
        call(X)
        gc.collect()


def stillborn():
    state = {"n": 0}

    def backend(gm, example_inputs):
        state["n"] = 5  # what the frame has read is another number by now
        return gm.forward

    tracework.compile(lambda x: x.sin() + state["n"], backend=backend)(X)


def graph_raises():
    def backend(gm, example_inputs):
        def call(*args):
            raise RuntimeError("in the graph alone")

        return call

    tracework.compile(program, backend=backend)(X)


def hooks_of_another_kind():
    class Net(torch.nn.Module):
        def forward(self, x):
            return x.sin() + 1

    net = Net()
    net.register_backward_hook(lambda *args: None)
    tracework.compile(net)(X)


def under_a_transform():
    torch.func.vmap(tracework.compile(program))(torch.ones(3, 2))


def suppressed():
    def backend(gm, example_inputs):
        raise NotImplementedError("no such thing")

    tracework.compile(program, backend=backend, options={"suppress_errors": True})(X)


def suppressed_backward():
    real = assemble.inductor.compile_graph

    def fail(graph, options, **given):
        if graph.role == "backward":
            raise NotImplementedError("no lowering")
        return real(graph, options, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble.inductor, "compile_graph", fail)
        tracework.compile(weighted(leaf()), options={"suppress_errors": True, "cache": False})(X).sum().backward()


def other_settings():
    weight = leaf()
    result = tracework.compile(weighted(weight), dynamic=True)(X)
    torch.use_deterministic_algorithms(True)
    try:
        result.sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)


def a_result_of_another_dtype():
    func = torch.ops.aten.nonzero.default
    right = SPECIAL[func]

    def rule(mode, func, args, kwargs):
        return right(mode, func, args, kwargs).to(torch.float32)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SPECIAL, func, rule)
        forget_plans()
        tracework.compile(lambda x: (torch.nonzero(x.sin() > 0) * 3 + 1).sum(1))(torch.ones(4, 2))
    forget_plans()


def shapes_under_torch_compile():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_backend, "MOST_SHAPES", 2)
        call = torch.compile(program, backend=torch_backend.tracework_backend, dynamic=True)
        for n in range(3, 8):
            call(torch.ones(n))
        torch._dynamo.reset()


ROWS = {
    # place in the sources: programs, and what each is told
    "aotautograd/api.py:aot_compile": [(refused, "a tensor on device meta")],
    "aotautograd/api.py:__call__": [(several_gradients, "several gradients are computed at once")],
    "aotautograd/higher_order.py:__call__": [(several_gradients_of_gradients, "several gradients are computed at once")],
    "aotautograd/higher_order.py:run": [(gradients_for_other_sizes, "was compiled for other sizes")],
    "aotautograd/pieces.py:_compiled": [(asked_about_data, "u0 > 3")],
    "aotautograd/pieces.py:run": [(a_result_of_another_dtype, "where the graph was compiled for")],
    "aotautograd/wrappers/other_data.py:gradients": [(other_data, "was replaced between")],
    "aotautograd/wrappers/overlap.py:run": [(overlapping, "share memory and one of them is written to")],
    "aotautograd/wrappers/places.py:run": [(elsewhere, "begins elsewhere in its memory")],
    "aotautograd/wrappers/saved_hooks.py:run": [(under_saved_hooks, "under hooks of torch.autograd.graph.saved_tensors_hooks")],
    "capture/graph/checks.py:plainly_under_hooks": [(effects_under_saved_hooks, "side effects, and hooks of saved tensors")],
    "capture/uncompiled.py:run_again": [(graph_raises, "the graph raised RuntimeError")],
    "capture/hook/cache.py:at_limit": [(at_the_limit, "its recompile_limit")],
    "capture/hook/dynamic_code.py:at_limit": [(constructor_text, "its recompile_limit")],
    "capture/hook/context.py:answer": [
        (hooks_of_another_kind, "register_backward_hook"),
        (under_a_transform, "under a transform of torch.func"),
    ],
    "capture/hook/context.py:new_entry": [
        (given_up, "is left in the middle"),
        (failing_capture, "of capture itself"),
        (near_the_recursion_limit, "recursion limit is near"),
    ],
    "capture/uncompiled.py:report_stillborn": [(stillborn, "does not hold for it")],
    "tracework/assemble.py:run_uncompiled": [(suppressed, "NotImplementedError: no such thing")],
    "tracework/assemble.py:compile_": [(suppressed_backward, "the backward failed")],
    "tracework/assemble.py:_make": [(other_settings, "settings of torch have changed")],
    "tracework/torch_backend.py:__call__": [(shapes_under_torch_compile, "compiled for 2 shapes")],
}
PROGRAMS = {run.__name__: (run, words) for rows in ROWS.values() for run, words in rows}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:Using a non-full backward hook")
def test_one_warning_and_a_line(name):
    run, words = PROGRAMS[name]
    tracework.reset()
    with collected() as found, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run()
        run()  # of the same place, which was told
    (warning,) = [w for w in said if issubclass(w.category, tracework.UncompiledWarning)]
    text = str(warning.message)
    assert words in text and "\n  at " in text or "cure: " in text
    assert warning.filename in (__file__, "made anew") and warning.lineno > 0
    (line,) = {str(each) for each in found}
    assert words in line and f"{warning.filename}:{warning.lineno}" in line


def places_that_report():
    for package in ("aotautograd", "capture", "tracework"):
        root = next(path.parent for path in (PACKAGES / package / "src").rglob("_version.py"))
        for path in root.rglob("*.py"):
            text = path.read_text()
            for function in ast.walk(ast.parse(text)) if "report" in text or "say_limit" in text else ():
                if isinstance(function, ast.FunctionDef) and any(map(_reports, _own(function))):
                    yield f"{package}/{path.relative_to(root).as_posix()}:{function.name}"


def _own(function):
    """The nodes of a function without those of functions inside of it."""
    waiting = [*ast.iter_child_nodes(function)]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef):
            waiting += ast.iter_child_nodes(node)


def _reports(node):
    called = node.func if isinstance(node, ast.Call) else None
    name = called.func.id if isinstance(called, ast.Call) and isinstance(called.func, ast.Name) else None
    name = getattr(called, "id", None) or getattr(called, "attr", None) or name
    partial = name == "partial" and getattr(node.args[0], "id", None) == "report_uncompiled"
    return partial or name in ("report", "_report", "report_of", "report_uncompiled", "say_limit")


PASSED_ON = {
    "capture/hook/cache.py:say_limit",
    "aotautograd/api.py:tell",
    "capture/contracts.py:report",
    "capture/hook/explain.py:__str__",
    "capture/hook/context.py:report",
    "tracework/assemble.py:report",
    "tracework/assemble.py:backend",
    "tracework/entry_store.py:report",
}
"""Functions that hand a report on, or call another thing of that name."""
OF_ENGINES = {"tracework/onnx/compiler.py:__call__"} | {
    f"tracework/onnx/program.py:{name}" for name in ("__call__", "__init__", "_by_eager")
}
"""What engines of others do not run: packages/tracework/tests/onnx_models has the programs, where such an engine is installed."""


WITHOUT_A_COMPILER = {"tracework/assemble.py:_by_operators"}
"""What runs so where no C++ compiler is: packages/tracework/tests/unit/test_arguments.py has the programs, in processes of their own."""


OF_STORED = {"aotautograd/rest.py:run"}
"""What is asked of entries that another process has stored: packages/tracework/tests/unit/test_entry_store.py has the program."""


def test_each_place_has_a_row():
    assert {*places_that_report()} - PASSED_ON - OF_ENGINES - WITHOUT_A_COMPILER - OF_STORED == {*ROWS}


@pytest.mark.filterwarnings("ignore::tracework.UncompiledWarning")
def test_explain_says_it():
    def function(x, y):
        x.add_(1)
        return y * 2

    memory = torch.ones(8)
    for _ in range(2):  # the second time nobody is warned any more
        found = tracework.explain(function)(memory[:4], memory[2:6].view(torch.int32)).capture
        line = f"uncompiled: inputs in_x, in_y share memory and one of them is written to (at {__file__}:{function.__code__.co_firstlineno} in "
        assert line in str(found) and found.summary().endswith("uncompiled at 1 place(s)")
        assert found.as_dict()["uncompiled"][0]["why"].startswith("inputs in_x, in_y")


def test_breaks_and_frames_without_operations_are_not_told(recwarn):
    def function(x):
        y = x.sin()
        tracework.graph_break()
        return y + helper()

    def helper():
        return 1

    tracework.compile(function)(X)
    tracework.compile(helper)()
    assert not recwarn.list
    assert len(tracework.explain(function)(X).capture.breaks) == 1


def test_a_program_that_makes_errors_of_warnings_goes_on():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report_uncompiled("a reason", f"{__file__}:1 in nowhere")

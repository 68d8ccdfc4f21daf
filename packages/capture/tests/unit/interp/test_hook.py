"""Functions through the native evaluator: breaks, side effects, with and try, decorators, marks."""

import contextlib
import fcntl
import functools
import gc
import io
import os
import signal
import weakref

import pytest
import torch
import tracework_capture as capture
from interp_harness import assert_same
from tracework_capture.graph.builder import GraphBuilder
from tracework_capture.hook import compile_frame
from tracework_capture.values.protocol import constant

LOG = []
COUNT = 0


def eager(gm, example_inputs):
    return gm.forward


def note(*values):
    """Runs as plain Python."""
    LOG.append(values)


note = capture.disable(note)


@pytest.fixture(autouse=True)
def fresh():
    LOG.clear()
    capture.reset()
    yield
    capture.reset()


def compare(function, *calls, graphs=None, **options):
    """Each call plainly and compiled: same results, same notes."""
    counted = []

    def backend(gm, example_inputs):
        counted.append(gm)
        return gm.forward

    compiled = capture.optimize(backend, **options)(function)
    for args in calls:
        expected = function(*args)
        plain_notes, LOG[:] = list(LOG), []
        actual = compiled(*args)
        assert_same(actual, expected)
        assert LOG == plain_notes
        LOG.clear()
    if graphs is not None:
        assert len(counted) == graphs
    return counted


X = torch.arange(6.0).reshape(2, 3)


def test_program_with_everything():
    def program(x, items):
        global COUNT
        COUNT += 1
        y = x * 2
        items.append(COUNT)
        note("before", COUNT)
        if y.sum() > 0:
            y = y + 1
        else:
            y = y - 1
        items.append(y)
        note("after", len(items))
        return y * COUNT

    global COUNT
    results = []
    for run in (program, capture.optimize(eager)(program)):
        COUNT = 0
        LOG.clear()
        items = []
        outputs = [run(X, items), run(-X, items), run(X, items)]
        results.append((outputs, items, list(LOG), COUNT))
    torch.testing.assert_close(results[0][0], results[1][0])
    assert results[0][2:] == results[1][2:]
    torch.testing.assert_close(
        [i for i in results[0][1] if isinstance(i, torch.Tensor)], [i for i in results[1][1] if isinstance(i, torch.Tensor)]
    )


def test_break_inside_no_grad():
    def f(x):
        y = x * 2
        with torch.no_grad():
            a = y + 1
            note(torch.is_grad_enabled(), a.requires_grad)
            b = a + y
            note(torch.is_grad_enabled())
        c = b + y
        note(torch.is_grad_enabled(), c.requires_grad)
        return c

    x = X.clone().requires_grad_()
    compare(f, (x,), (x,))
    assert torch.is_grad_enabled()


def test_exception_inside_no_grad_after_break():
    def f(x):
        try:
            with torch.no_grad():
                y = x + 1
                note(1)
                int("no" + str(y.dtype))
        except ValueError:
            note(torch.is_grad_enabled())
        return y * 2

    compare(f, (X,), (X,))


def test_user_context_managers():
    class Manager:
        def __init__(self):
            self.events = []

        def __enter__(self):
            self.events.append("enter")
            return self

        def __exit__(self, *exc):
            self.events.append("exit")
            return exc[0] is KeyError

    @contextlib.contextmanager
    def scaled(x):
        yield x * 3

    def f(x):
        with Manager() as m, scaled(x) as y:
            z = y + 1
            m.events.append("body")
            raise KeyError("swallowed")
        return z, m.events

    compare(f, (X,), graphs=1)

    def g(x):
        with Manager() as m:
            y = x + 1
            note("in")
            y = y * 2
        return y, m.events

    compare(g, (X,), (X,))


def test_nested_functions_break_inside():
    def inner(x):
        y = x + 1
        note("inner")
        return y * 2

    def f(x):
        return inner(x) + inner(x * 2)

    compare(f, (X,), (X,))


def test_loop_with_break_runs_and_inner_functions_are_captured():
    def step(x, i):
        return (x + i).relu()

    def f(x):
        for i in range(3):
            x = step(x, i)
            note(i)
        return x

    assert compare(f, (X,), (X,))


def test_closure_changes_are_seen():
    scale = 2.0

    def f(x):
        return x * scale

    compiled = capture.optimize(eager)(f)
    torch.testing.assert_close(compiled(X), X * 2)
    scale = 3.0
    torch.testing.assert_close(compiled(X), X * 3)


def test_arguments_of_all_kinds():
    def f(a, /, b, *rest, c=1, d, **more):
        return a + b * c - d + sum(rest) + sum(more.values())

    compiled = capture.optimize(eager)(f)
    torch.testing.assert_close(compiled(X, 1, 2, 3, d=4, e=5), f(X, 1, 2, 3, d=4, e=5))
    torch.testing.assert_close(compiled(X, b=X, d=4), f(X, b=X, d=4))


def test_same_tensor_twice():
    def f(a, b):
        a.add_(1)
        return a + b

    compiled = capture.optimize(eager)(f)
    x, y = X.clone(), X.clone()
    torch.testing.assert_close(compiled(x, y), (X + 1) + X)
    z = X.clone()
    torch.testing.assert_close(compiled(z, z), (X + 1) * 2)
    x, y = X.clone(), X.clone()
    torch.testing.assert_close(compiled(x, y), (X + 1) + X)


def test_recursion():
    def f(x, n):
        return x if n == 0 else f(x + n, n - 1)

    compare(f, (X, 5), graphs=1)


def test_unused_results_do_not_recompile():
    counted = []
    clock = iter(range(100))

    def now():
        return next(clock)

    now = capture.disable(now)

    def f(x):
        y = x + 1
        started = now()
        return y * 2, started

    def backend(gm, example_inputs):
        counted.append(gm)
        return gm.forward

    compiled = capture.optimize(backend)(f)
    for i in range(5):
        assert compiled(X)[1] == i
    assert len(counted) <= 4


def test_fullgraph_raises_with_place():
    def f(x):
        y = x + 1
        note("here")
        return y

    with pytest.raises(capture.Unsupported, match=r"test_hook.py:\d+ in"):
        capture.optimize(eager, fullgraph=True)(f)(X)


def test_backend_error_reaches_the_user():
    def backend(gm, example_inputs):
        raise ArithmeticError("backend")

    with pytest.raises(capture.BackendError, match="the backend backend raised ArithmeticError: backend") as raised:
        capture.optimize(backend)(lambda x: x + 1)(X)
    assert isinstance(raised.value.__cause__, ArithmeticError)


def test_explain_lists_breaks():
    def f(x):
        y = x + 1
        note("here")
        return y * 2

    report = capture.explain(f)(X)
    assert len(report.graphs) == 2 and len(report.breaks) == 1
    assert "test_hook.py" in str(report)


def test_capture_gives_the_graph():
    graph = capture.capture(lambda x: x.relu() + 1, X)
    assert [n.op for n in graph.graph.graph.nodes] == ["placeholder", "call_method", "call_function", "output"]
    assert "relu" in graph.text()


def test_break_inside_autocast():
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ x.T
            note(torch.is_autocast_enabled("cpu"))
            b = a @ x
        note(torch.is_autocast_enabled("cpu"))
        return b.float().sum() + a.float()

    compare(f, (X,), (X,))
    assert not torch.is_autocast_enabled("cpu")


def test_unread_arguments_are_not_guarded():
    def f(x, unused):
        y = x + 1
        note()
        return y, unused

    report = capture.explain(f)(X, object())
    assert not [g for g in report.graphs[0].guards if "unused" in str(g.source)]


def test_patched_method_of_a_class_is_noticed():
    class Scale:
        def factor(self):
            return 2

    class Layer(torch.nn.Module):
        def forward(self, x):
            return x * 2

    scale, layer = Scale(), Layer()
    compiled = capture.optimize(eager)(lambda x: layer(x) * scale.factor())
    assert_same(compiled(X), X * 4)
    Scale.factor = lambda self: 3
    assert_same(compiled(X), X * 6)
    Layer.forward = lambda self, x: x * 5
    assert_same(compiled(X), X * 15)


def test_numbers_in_breaking_instructions():
    def f(x, n):
        y = x + 1
        try:
            n.missing  # noqa: B018
        except AttributeError as error:
            return y, str(error), (-2) ** int(x.sum() * 0 + 2)

    compare(f, (X, 1), (X, -1))


def test_new_iterators_are_not_kept():
    def f(x, code):
        return x + 1, len(list(code.co_positions()))

    compare(f, (X, f.__code__), (X, f.__code__), (X, f.__code__))


def test_capture_keeps_no_locals_of_the_user():
    alive = []

    class Local:
        def __del__(self):
            alive.append("gone")

    def f(x):
        held = Local()  # noqa: F841
        for i in range(2):
            note(i)
        return x + 1

    capture.optimize(eager)(f)(X)
    assert alive == ["gone"]


def test_methods_of_a_context_manager_are_found_as_python_does():
    class Static:
        __enter__ = staticmethod(lambda: note("in") or 2.0)
        __exit__ = staticmethod(lambda *raised: note("out", len(raised)))

    class NoExit:
        def __enter__(self):
            note("never")

    class Own:
        def __init__(self):
            self.__enter__ = self.__exit__ = lambda *raised: None

    def run(x, manager):
        y = x + 1
        with manager as factor:
            y = y * factor
        return y - 1

    compiled = capture.optimize(eager)(run)
    for kind in (Static, NoExit, Own):
        results = []
        for function in (run, compiled):
            try:
                results.append(function(torch.ones(2), kind()).tolist())
            except TypeError as error:
                results.append(str(error))
        assert results[0] == results[1]


def test_entries_that_die_when_the_interpreter_ends(monkeypatch):
    from tracework_capture.hook import cache

    for emptied in (None, type("Emptied", (), {"get_entries": None})):
        monkeypatch.setattr(cache, "_C", emptied)
        assert cache._Invalidate(lambda: run_of_nothing.__code__, lambda: object())(None) is None


def run_of_nothing():
    pass


class Passes:
    """Hands attributes on to another object."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


def raises_itself(x):
    raise ValueError(x)


def test_a_function_that_is_called_where_nothing_is_captured_may_raise_with_fullgraph():
    """What calls it runs plainly, and handles the exception."""

    def asks(x):
        return hasattr(Passes(3), "absent"), hasattr(Passes(3), "real"), x

    def handles(x):
        try:
            raises_itself(x)
        except ValueError as error:
            return error.args

    for function in (asks, handles):
        run = capture.optimize(eager, fullgraph=True)(function)
        for _ in range(12):  # also when it is known that there is nothing to capture
            assert run(X) == function(X)
    with pytest.raises(capture.Unsupported):
        capture.optimize(eager, fullgraph=True)(raises_itself)(X)


class TimeIsUp(Exception):
    pass


class Watch:
    def ring(self, number, frame):
        raise TimeIsUp

    __call__ = ring


@pytest.mark.parametrize("handler", [Watch().ring, Watch(), functools.partial(Watch.ring, None)])
@pytest.mark.parametrize("at", [(compile_frame, "run"), (GraphBuilder, "call"), (constant, "literal")])
def test_what_a_handler_of_a_signal_raises_is_the_programs(monkeypatch, caplog, handler, at):
    def interrupted(*args, **kwargs):
        signal.raise_signal(signal.SIGUSR1)

    def f(x):
        return (x + len("four")).sin() * 2

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        compiled = capture.optimize(eager)(f)
        with monkeypatch.context() as patched:
            patched.setattr(*at, interrupted)  # while the frame is traced
            with pytest.raises(TimeIsUp):
                compiled(torch.ones(2))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not caplog.records
    assert_same(compiled(torch.ones(2)), f(torch.ones(2)))


class Rings:
    """Things of the program whose code runs while a frame is traced or its guards are checked: the signal comes there."""

    def __init__(self):
        self.armed = False

    def ring(self):
        if self.armed:
            self.armed = False  # one signal: what loses its exception goes on as if there had been none
            signal.raise_signal(signal.SIGUSR1)

    def __getattr__(self, name):
        self.ring()
        raise AttributeError(name)


class RingsAsAKey(Rings):
    def __hash__(self):
        self.ring()
        return 7

    def __eq__(self, other):
        self.ring()
        return self is other


class AsksSubclasses(type):
    def __instancecheck__(cls, instance):
        RINGS.ring()
        return False


class Asked(metaclass=AsksSubclasses):
    pass


RINGS, KEY = Rings(), RingsAsAKey()
TABLE = {KEY: 2}


@functools.cache
def remembered(n):
    RINGS.ring()
    return n + 1


def stays(number, frame):
    del number, frame
    raise TimeIsUp


def serves_once(number, frame):
    signal.signal(number, signal.SIG_IGN)
    raise TimeIsUp


def takes_anything(*given):
    serves_once(*given)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + hasattr(RINGS, "missing"),
        lambda x: x + TABLE[KEY],
        lambda x: x + isinstance(x, Asked),
        lambda x: x + remembered(3),
    ],
    ids=["a missing attribute", "a key", "a check of classes", "a function that remembers"],
)
@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize("handler", [stays, serves_once, takes_anything])
def test_what_a_handler_raises_in_code_of_the_program_is_lost_nowhere(function, served, handler):
    before = signal.signal(signal.SIGUSR1, handler)
    compiled = capture.optimize(eager)(function)
    try:
        remembered.cache_clear()
        for _ in range(3 if served else 0):
            compiled(torch.ones(2))
        remembered.cache_clear()
        RINGS.armed = KEY.armed = True
        with pytest.raises(TimeIsUp):
            compiled(torch.ones(2))
    finally:
        RINGS.armed = KEY.armed = False
        signal.signal(signal.SIGUSR1, before)
    assert_same(compiled(torch.ones(2)), function(torch.ones(2)))


def in_a_destructor(raise_signal):
    class Dies:
        def __del__(self):
            raise_signal()

    Dies()


def in_a_callback_of_a_weak_reference(raise_signal):
    class Dies:
        pass

    dies = Dies()
    _reference = weakref.ref(dies, lambda dead: raise_signal())
    del dies


def in_a_callback_of_the_collector(raise_signal):
    def callback(phase, info):
        gc.callbacks.remove(callback)
        raise_signal()

    gc.callbacks.append(callback)
    gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("where", [in_a_destructor, in_a_callback_of_a_weak_reference, in_a_callback_of_the_collector])
@pytest.mark.parametrize("error", [TimeIsUp, SystemExit])
@pytest.mark.parametrize("fails", [False, True])
def test_what_a_handler_raises_where_python_drops_errors_comes_after_the_compilation(where, error, fails):
    def handler(number, frame):
        raise error

    def backend(gm, inputs):
        where(lambda: signal.raise_signal(signal.SIGUSR1))
        return None if fails else gm.forward

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(error):
            capture.optimize(backend)(lambda x: x.sin() * 2)(torch.ones(2))
        assert signal.getsignal(signal.SIGUSR1) is handler
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_handler_raises_in_the_program_though_its_signal_came_during_a_collection():
    """Python looks for signals where a Python function begins: the collector drops what is raised in a callback of its own."""

    def handler(number, frame):
        raise TimeIsUp

    others = [callback for callback in gc.callbacks if str(callback.__module__).startswith("hypothesis")]
    gc.callbacks[:] = [callback for callback in gc.callbacks if callback not in others]
    before = signal.signal(signal.SIGIO, handler)
    read, write = os.pipe()
    fcntl.fcntl(read, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(read, fcntl.F_SETFL, os.O_ASYNC)  # the signal comes when the other end is closed
    file = io.FileIO(write, "w")
    file.itself = file
    try:
        with pytest.raises(TimeIsUp):
            del file
            gc.collect()
    finally:
        os.close(read)
        signal.signal(signal.SIGIO, before)
        gc.callbacks += others


PROGRAM = """
import torch

def activated(x):
    return torch.nn.functional.gelu(x)

def program(x):
    return activated(torch.nn.Identity()(x) * 2)
"""


@pytest.mark.parametrize("folder", ["/home/someone/net", "/home/someone/torch/examples", "/home/torch"])
def test_operators_are_of_the_innermost_line_that_is_not_torchs(folder):
    scope = {}
    exec(compile(PROGRAM, f"{folder}/net.py", "exec"), scope)
    graphs = []
    capture.optimize(lambda gm, inputs: graphs.append(gm) or gm.forward)(scope["program"])(torch.ones(2))
    lines = [node.meta["stack"] for node in graphs[0].graph.nodes if node.op == "call_function"]
    assert lines == [f"{folder}/net.py:8 in program", f"{folder}/net.py:5 in activated"]

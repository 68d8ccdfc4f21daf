"""What a compiled function is to Python and to torch, how it fails, and torch's own switches: as with torch.compile, which is asked."""

import copy
import functools
import inspect
import pickle
import subprocess
import sys
import types
import typing
import warnings

import pytest
import torch
import torch._dynamo
import tracework
from tracework import compiler
from tracework_capture import BackendError, Unsupported


def function(x, y=2, *, z: int = 3) -> torch.Tensor:
    """Adds."""
    return x + y + z


class Callable:
    def method(self, x):
        return x + 1

    def __call__(self, x):
        return x + 2


class Module(torch.nn.Module):
    def forward(self, x):
        return x * 3


def outcome(ask, call):
    try:
        return ask(call)
    except (pickle.PicklingError, AttributeError):  # pickle raises either, by the name of what it cannot find
        return "cannot be pickled"


QUESTIONS = {
    "isfunction": inspect.isfunction,
    "ismethod": inspect.ismethod,
    "isroutine": inspect.isroutine,
    "is a function": lambda f: isinstance(f, types.FunctionType),
    "iscoroutinefunction": inspect.iscoroutinefunction,
    "signature": lambda f: str(inspect.signature(f)),
    "name": lambda f: (f.__name__, f.__qualname__, f.__module__, f.__doc__),
    "wrapped": lambda f: inspect.unwrap(f) is function,
    "source": inspect.getsource,
    "hints": typing.get_type_hints,
    "wraps": lambda f: functools.wraps(f)(lambda *args: 0).__name__,
    "update_wrapper": lambda f: functools.update_wrapper(functools.partial(f), f).__name__,
    "lru_cache": lambda f: functools.lru_cache(f).__name__,
    "copy": lambda f: copy.copy(f) is f,
    "deepcopy": lambda f: copy.deepcopy(f) is f,
    "pickle": lambda f: len(pickle.dumps(f)),
    "own attributes": lambda f: setattr(f, "mine", 1) or f.mine,
    "call": lambda f: f(torch.ones(2)).tolist(),
    "compiled again": lambda f: tracework.compile(f, backend="eager")(torch.ones(2)).tolist(),
}


def compiled_by(compile_):
    """Callables of each kind."""
    owner = Callable()
    return {
        "function": compile_(function),
        "method": compile_(owner.method),
        "lambda": compile_(lambda x: x + 1),
        "partial": compile_(functools.partial(function, y=5)),
        "builtin": compile_(torch.sin),
    }


KINDS = ("function", "method", "lambda", "partial", "builtin")


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_compiled_function_answers_as_torchs(question):
    ask = QUESTIONS[question]
    ours, torchs = (compile_(function, backend="eager") for compile_ in (tracework.compile, torch.compile))
    assert outcome(ask, ours) == outcome(ask, torchs)


@pytest.mark.parametrize("question", ["call", "pickle", "copy"])
@pytest.mark.parametrize("kind", KINDS)
def test_other_callables_answer_as_torchs(kind, question):
    ours = compiled_by(functools.partial(tracework.compile, backend="eager"))[kind]
    torchs = compiled_by(functools.partial(torch.compile, backend="eager"))[kind]
    assert outcome(QUESTIONS[question], ours) == outcome(QUESTIONS[question], torchs)


def test_a_method_is_copied_with_its_object():
    """torch.compile's stays bound to the first one."""
    call = tracework.compile(Callable().method, backend="eager")
    assert copy.deepcopy(call) is not call and copy.deepcopy(call)(torch.ones(1)) == 2


def test_an_object_with_a_call_is_copied_as_torchs():
    call = tracework.compile(Callable(), backend="eager")
    assert copy.deepcopy(call) is call and copy.deepcopy([call])[0](torch.ones(1)) == 3
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(call)


def test_methods_that_a_decorator_compiles_are_functions_of_the_class():
    class Owner:
        @tracework.compile(backend="eager")
        def method(self, x):
            return x + 5

        @classmethod
        @tracework.compile(backend="eager")
        def of_class(cls, x):
            return x + 6

    assert inspect.isfunction(Owner.method) and inspect.ismethod(Owner().method)
    assert Owner().method(torch.ones(1)) == 6 and Owner.of_class(torch.ones(1)) == 7


def test_traced_code_sees_the_function_too():
    inner = tracework.compile(function, backend="eager")

    @tracework.compile(backend="eager", fullgraph=True)
    def outer(x):
        return inner(x) if inspect.isfunction(inner) else x - 1

    assert outer(torch.ones(1)) == 6


def test_fx_traces_over_what_is_compiled():
    """torch.compile's raises there."""
    call = tracework.compile(function)
    call(torch.ones(2))

    class Uses(torch.nn.Module):
        def forward(self, x):
            return call(x) * 2

    assert torch.fx.symbolic_trace(call)(torch.ones(1)) == 6
    assert torch.fx.symbolic_trace(Uses())(torch.ones(1)) == 12
    assert torch.fx.symbolic_trace(tracework.compile(Module()))(torch.ones(1)) == 3


# errors


def backend_that_raises(gm, example_inputs):
    raise ValueError("mine")


def breaks(x):
    torch._dynamo.graph_break()
    return x + 1


def test_the_error_of_a_backend_is_caught_as_torchs():
    with pytest.raises(BackendError, match="backend_that_raises raised ValueError: mine") as raised:
        tracework.compile(function, backend=backend_that_raises)(torch.ones(2))
    assert isinstance(raised.value, torch._dynamo.exc.BackendCompilerFailed) and isinstance(raised.value, RuntimeError)
    assert isinstance(raised.value.inner_exception, ValueError) and isinstance(raised.value.__cause__, ValueError)


def test_the_errors_of_our_own_backend_pass_as_they_are(monkeypatch):
    from tracework import assemble

    def fails(*args, **kwargs):
        raise KeyError("inside")

    monkeypatch.setattr(assemble.aotautograd, "aot_compile", fails)
    with pytest.raises(tracework.CompileError, match="KeyError: 'inside'") as raised:
        tracework.compile(function)(torch.ones(2))
    assert isinstance(raised.value, torch._dynamo.exc.BackendCompilerFailed)


def test_a_break_where_none_may_be_is_caught_as_torchs():
    for kind in (Unsupported, RuntimeError, torch._dynamo.exc.Unsupported):
        with pytest.raises(kind):
            tracework.compile(breaks, fullgraph=True, backend="eager")(torch.ones(2))


def test_a_marked_size_that_cannot_stay_open_is_caught_as_torchs():
    x = torch.ones(4)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(torch.fx.experimental.symbolic_shapes.ConstraintViolationError, match="marked dynamic"):
        tracework.compile(lambda x: x + 1 if x.shape[0] == 4 else x, backend="eager")(x)


@pytest.mark.parametrize(
    ("kwargs", "kind"),
    [({"mode": "fast"}, RuntimeError), ({"options": {"nothing": 1}}, RuntimeError), ({"backend": "nobody"}, RuntimeError),
     ({"mode": "default", "options": {}}, RuntimeError)],
)  # fmt: skip
def test_wrong_arguments_are_caught_as_torchs(kwargs, kind):
    for compile_ in (torch.compile, tracework.compile):
        with pytest.raises(kind):
            compile_(function, **kwargs)(torch.ones(2))


# torch's own switches


def counted():
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    return graphs, tracework.compile(function, backend=backend)


def test_a_stance_of_torchs_holds_where_none_of_ours_is_set():
    graphs, call = counted()
    with torch.compiler.set_stance("force_eager"):
        call(torch.ones(2))
        assert not graphs
        with compiler.set_stance("eager_then_compile"):  # ours comes first
            call(torch.ones(2)), call(torch.ones(2))
            assert len(graphs) == 1
    call(torch.ones(2, dtype=torch.float64))
    assert len(graphs) == 2
    with torch.compiler.set_stance("fail_on_recompile"):
        call(torch.ones(2))
        with pytest.raises(torch._dynamo.exc.RecompileError):
            call(torch.ones(2, dtype=torch.int32))
    with torch.compiler.set_stance("eager_on_recompile"):
        call(torch.ones(2, dtype=torch.int32))
    with torch.compiler.set_stance(force_backend="eager"):
        call(torch.ones(2, dtype=torch.int32))
    assert len(graphs) == 2
    torch.compiler.set_stance("force_eager")
    torch.compiler.set_stance("default")
    call(torch.ones(2, dtype=torch.int32))
    assert len(graphs) == 3


def test_an_unknown_stance_of_torchs_is_an_error_at_the_call():
    graphs, call = counted()
    with torch.compiler.set_stance("nonsense"), pytest.raises(RuntimeError, match="unknown stance 'nonsense'. Known: default"):
        call(torch.ones(2))
    assert not graphs


def test_a_delayed_compilation_of_torchs_stance():
    graphs, call = counted()
    with torch.compiler.set_stance("eager_then_compile"):
        call(torch.ones(2))
        assert not graphs
        call(torch.ones(2))
        assert len(graphs) == 1
    with torch.compiler.set_stance("aot_eager_then_compile"):
        call(torch.ones(2, dtype=torch.float64))
        call(torch.ones(2, dtype=torch.float64))


MARKS = ("mark_dynamic", "maybe_mark_dynamic", "mark_static", "mark_unbacked")
PLACES = {"size 1": ((1, 3), 0), "out of range": ((2, 3), 5), "negative": ((2, 3), -5), "size 0": ((0, 3), 0), "scalar": ((), 0)}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mark", MARKS)
def test_marks_where_torch_takes_them(mark, place):
    shape, dim = PLACES[place]
    missing = not -len(shape) <= dim < len(shape)
    x = torch.ones(shape)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        getattr(compiler, mark)(x, dim)
    assert len(told) == missing and all(w.filename == __file__ and "has no dim" in str(w.message) for w in told)
    assert torch.equal(tracework.compile(lambda x: x * 2, backend="eager")(x), x * 2)
    y = torch.ones(shape)
    getattr(torch._dynamo.decorators, mark)(y, dim)  # torch marks it in silence
    assert torch.equal(tracework.compile(lambda x: x * 2, backend="eager")(y), y * 2)


TRANSFORMED = {
    "vmap": lambda f: torch.vmap(f),
    "grad": lambda f: torch.func.grad(lambda x: f(x).sum()),
    "grad_and_value": lambda f: torch.func.grad_and_value(lambda x: f(x).sum()),
    "jacrev": lambda f: torch.func.jacrev(f),
    "jacfwd": lambda f: torch.func.jacfwd(f),
    "hessian": lambda f: torch.func.hessian(lambda x: f(x).sum()),
    "functionalize": lambda f: torch.func.functionalize(f),
    "vmap of grad": lambda f: torch.vmap(torch.func.grad(lambda x: f(x).sum())),
    "decorated vmap": lambda f: torch.no_grad()(torch.vmap(f)),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_what_torch_func_made_is_one_graph(name):
    graphs, x = [], torch.rand(3, 2)

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    made = TRANSFORMED[name](lambda x: x.sin() * x)
    with warnings.catch_warnings():
        warnings.simplefilter("error", tracework.UncompiledWarning)
        compiled = tracework.compile(made, backend=backend)
        torch.testing.assert_close(compiled(x), made(x))
        torch.testing.assert_close(compiled(x), made(x))
    assert len(graphs) == 1
    assert (compiled.__name__, inspect.signature(compiled)) == (made.__name__, inspect.signature(made))


def test_functions_that_torch_func_made_do_not_share_a_limit():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    for number in range(12):
        compiled = tracework.compile(torch.vmap(lambda x, number=number: x + number), backend=backend)
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 1.0 + number))
    assert len(graphs) == 12


LATE = """
import sys, torch, tracework

def branches(x):
    return x + 1 if x.sum() > 0 else x

def adds(x):
    return x + 1

def fails(gm, inputs):
    raise ValueError("no")

x = torch.ones(3)
CASES = {
    "Unsupported": lambda: tracework.compile(branches, backend=lambda gm, inputs: gm.forward, fullgraph=True)(x),
    "BackendCompilerFailed": lambda: tracework.compile(adds, backend=fails)(x),
}
try:
    CASES[sys.argv[1]]()
except getattr(__import__("torch._dynamo.exc", fromlist=["exc"]), sys.argv[1]) as error:
    print("caught", type(error).__name__)
"""


@pytest.mark.parametrize("name", ("Unsupported", "BackendCompilerFailed"))
def test_torchs_errors_catch_ours_where_the_clause_imports_them(name):
    done = subprocess.run([sys.executable, "-c", LATE, name], capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("caught"), done.stderr

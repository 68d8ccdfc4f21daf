"""What is known of other libraries, shown on stand-ins of theirs."""

import abc
import functools
import importlib.util
import sys
import types

import pytest
import torch
import tracework_capture as capture
from harness import check
from torch.fx.experimental import symbolic_shapes
from tracework_capture.errors import Unsupported

CODE = """
class Backend:
    subclasses = []
    def double(self, x):
        return x * 2

found = {}

def get_backend(tensor):
    if type(tensor) not in found:
        for kind in Backend.__subclasses__():
            found[type(tensor)] = kind()
    return found[type(tensor)]

class TorchBackend(Backend):
    pass
"""


def test_whether_a_package_is_installed():
    def program(x):
        return x + 1 if importlib.util.find_spec("no_such_package") is None and importlib.util.find_spec("torch") else x

    check(program, torch.ones(2))


def test_the_backend_of_einops_is_found_while_tracing(monkeypatch):
    module = types.ModuleType("einops._backends")
    exec(CODE, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def program(x):
        return module.get_backend(x + 1).double(x)

    compiled = capture.optimize(lambda graph, example_inputs: graph.forward, fullgraph=True)(program)
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert list(module.found) == [torch.Tensor]


def whole(function):
    return capture.optimize(lambda graph, example_inputs: graph.forward, fullgraph=True)(function)


def test_functions_by_the_class_of_their_argument_are_found_while_tracing():
    class Base:
        by = 2

    class Derived(Base):
        by = 3

    @functools.singledispatch
    def scaled(kind, x):
        return x

    @scaled.register(Base)
    def _(kind, x):
        return x * kind.by

    def program(x):
        return scaled(Derived(), x) + scaled(Base(), x) * 10 + scaled(x, 100)

    call, x = whole(program), torch.ones(3)
    assert torch.equal(call(x), x * 123)
    scaled.register(Derived, lambda kind, x: x * 4)
    assert torch.equal(call(x), x * 124)
    scaled.register(Derived, lambda kind, x: x * 5)
    assert torch.equal(call(x), x * 125)
    scaled.register(abc.ABC, lambda kind, x: x)
    with pytest.raises(Unsupported, match="over abstract classes"):
        call(x)


def test_functions_are_told_apart():
    """Which of two functions an argument is decides; a later call need not have different ones."""

    def made():
        return lambda: None

    first, second = made(), made()
    call, x = whole(lambda x, f, g, known: x * 2 + 1 if f is g else x * 3 + 1 if f in known else x * 4 + 1), torch.ones(3)
    for f, g, known, by in (
        (first, second, [], 4),
        (first, first, [], 2),
        (first, second, [first], 3),
        (second, first, [first], 4),
    ):
        assert torch.equal(call(x, f, g, known), x * by + 1)


def test_defaults_of_functions_that_are_made_inside():
    def program(x):
        def scaled(y, by=x, *more, last=3):
            return y * by

        def plain(y):
            return y

        return scaled.__defaults__[0] + 1, len(scaled.__defaults__), plain.__defaults__

    x = torch.ones(3)
    found, count, nothing = whole(program)(x)
    assert torch.equal(found, x + 1) and count == 1 and nothing is None


def test_modules_of_torch_are_imported_as_the_program_would(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch.utils.throughput_benchmark", raising=False)

    def program(x):
        from torch.utils.throughput_benchmark import format_time

        return x * len(format_time(time_us=3)) + 1

    assert torch.equal(whole(program)(torch.ones(3)), torch.full((3,), len("3.000us") + 1.0))


@torch.jit.script
def scripted(x, factor: float = 0.5, twice: bool = True):
    y = x * factor
    for n in range(2):
        y = y + n
    if twice:
        y = y * 2
    return y, x.size(0)


@torch.jit.script
def scripted_apart(x):
    if torch.jit.is_scripting():
        return x + 1
    return x


def graphs_of(function, *args, **options):
    """How many graphs there are, of calls that give what plain Python gives."""
    graphs = []
    call = capture.optimize(lambda gm, inputs: (graphs.append(gm), gm.forward)[1], **options)(function)
    for _ in range(2):
        torch.testing.assert_close(call(*args), function(*args), rtol=0, atol=0)
    return len(graphs)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
class TestScripts:
    """Functions of torch.jit inside of the program."""

    def test_a_scripted_function_is_part_of_the_graph(self):
        def f(x):
            y, n = scripted(x, factor=3.0)
            return y + scripted(x, 2.0, False)[0] * n

        assert graphs_of(f, torch.ones(3), fullgraph=True) == 1

    def test_one_that_asks_whether_it_is_scripted_runs_itself(self):
        assert graphs_of(lambda x: scripted_apart(x + 1) * 2, torch.ones(3)) == 2

    def test_what_was_traced_is_another_program_than_its_function(self):
        traced = torch.jit.trace(lambda x: x + 1 if x.sum() > 100 else x * 2, torch.ones(3), check_trace=False)
        assert graphs_of(lambda x: traced(x + 100) - 1, torch.ones(3)) == 2


@pytest.mark.parametrize(
    "name", ["guard_bool", "guard_or_false", "guard_or_true", "guard_size_oblivious", "statically_known_true"]
)
def test_what_torch_compile_is_told_about_conditions(name):
    told = getattr(symbolic_shapes, name)

    def f(x):
        n = symbolic_shapes.guard_int(x.shape[0])
        return x + n if told(x.shape[0] > 3) else x - symbolic_shapes.guard_float(0.5)

    for dynamic in (None, True):
        for size in (2, 5):
            assert graphs_of(f, torch.ones(size), fullgraph=True, dynamic=dynamic) == 1


VERSIONS = {
    "above": lambda x: x + (torch.__version__ > "1.0") + 2 * (torch.__version__ < "10.0") + 4 * ("10.0" > torch.__version__),
    "by parts": lambda x: x + (torch.__version__ >= (2, 0)) + int(torch.__version__.split(".")[0]),
    "as a text": lambda x: (x + 1, torch.__version__[0], f"{torch.__version__}", [*torch.__version__][:2], torch.__version__),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_the_version_of_torch_is_known_while_tracing(name):
    check(VERSIONS[name], torch.ones(2))


def test_a_custom_operator_that_is_changed_in_the_frame():
    def f(x):
        made = torch.library.custom_op("tests::made_inside", lambda t: t + 1, mutates_args=(), schema="(Tensor t) -> Tensor")
        made.register_fake(lambda t: torch.empty_like(t))
        try:
            _ = made.missing
        except AttributeError as error:
            return made(x), str(error), isinstance(made, torch._library.custom_ops.CustomOpDef)

    result, message, is_one = capture.optimize(lambda gm, example_inputs: gm.forward)(f)(torch.ones(2))
    assert torch.equal(result, torch.full((2,), 2.0)) and is_one
    assert message == "'CustomOpDef' object has no attribute 'missing'"


class Folded(torch.fx.GraphModule):
    """Runs a part of itself before it is called first, as torch.fx.experimental.const_fold has it."""

    folded = None

    def __call__(self, *args):
        if self.folded is None:
            self.folded = [args[0] * 2]
        return super().__call__(*args) + self.folded[0]


def test_a_call_that_a_class_of_graph_modules_inherits():
    def program(module, x):
        return module(x) * 2, module(x + 1)

    graph = torch.fx.symbolic_trace(torch.nn.Linear(2, 2))
    made = [Folded(graph, graph.graph) for _ in range(2)]
    found = [
        run(module, torch.ones(1, 2))
        for run, module in zip((capture.optimize(lambda gm, inputs: gm.forward)(program), program), made)
    ]
    for mine, theirs in zip(*found, strict=True):
        assert torch.equal(mine, theirs)
    assert all(torch.equal(module.folded[0], torch.full((1, 2), 2.0)) for module in made)


def test_an_error_of_a_linearized_function_is_the_programs():
    def program(x):
        try:
            return torch.func.linearize(lambda p: (p.sin() * p).sum(), x)[1](x)
        except IndexError:
            return None

    x = torch.arange(3.0)
    assert torch.equal(capture.optimize(lambda gm, inputs: gm.forward)(program)(x), program(x))

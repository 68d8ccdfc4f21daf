"""torch.compile called inside of a captured function: the function that it compiles is part of the graph."""

import pytest
import torch
import tracework_capture as capture
from harness import assert_same

X = torch.arange(6.0)
pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture(autouse=True, scope="module")
def distributions_as_before():
    """torch's own compiler leaves the checks of all distributions switched off."""
    checked = torch.distributions.Distribution._validate_args
    yield
    torch.distributions.Distribution.set_default_validate_args(checked)


class Lazy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = None

    def inner(self, x):
        return x.sin()

    def forward(self, x):
        if self.compiled is None:
            self.compiled = torch.compile(self.inner, backend="eager")
        return self.compiled(x) + 1


def called_at_once(x):
    return torch.compile(lambda y, *, k=2: y * k, backend="eager", dynamic=True)(x, k=3)


def decorated(x):
    @torch.compile(backend="eager", fullgraph=True)
    def inner(y):
        return y + x

    return inner(x * 2)


LAYER = torch.nn.Linear(6, 6)


def of_a_module(x):
    compiled = torch.compile(LAYER, fullgraph=True)
    return compiled(x) - LAYER(x) + x * (compiled._orig_mod is LAYER)


def of_a_function_of_torch(x):
    return torch.compile(torch.sin, backend="eager")(x) + torch.compile(torch.add)(x, x)


class HoldsModule(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = LAYER
        self.made = {}

    def forward(self, x):
        if "layer" not in self.made:
            self.made["layer"] = torch.compile(self.layer, backend="eager")
        return self.made["layer"](x) - self.layer(x)


OF_OTHERS = [(of_a_module, X), (of_a_function_of_torch, X.sin() + 2 * X), (HoldsModule(), X * 0)]


@pytest.mark.parametrize(
    ("function", "expected"), [*OF_OTHERS, (called_at_once, X * 3), (decorated, X * 3), (Lazy(), X.sin() + 1)]
)
def test_one_graph(function, expected):
    run = capture.optimize(lambda gm, inputs: gm.forward, fullgraph=True)(function)
    for _ in range(2):
        assert_same(run(X).detach(), expected)


def test_module_that_was_compiled_leaves_the_graph_as_torch_makes_it():
    compiled, y = capture.optimize(lambda gm, inputs: gm.forward)(lambda x: (torch.compile(LAYER, backend="eager"), x + 1))(X)
    assert compiled._orig_mod is LAYER and isinstance(compiled, torch.nn.Module)
    assert_same(compiled(X), LAYER(X))


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_hooks_of_all_modules_see_the_wrapper_of_a_compiled_module():
    def count(module, args, result):
        seen.append(type(module).__name__)

    def fn(x):
        return torch.compile(layer, backend="eager")(x + 1)

    seen, layer = [], torch.nn.Linear(6, 6)
    handle = torch.nn.modules.module.register_module_forward_hook(count)
    try:
        capture.optimize(lambda gm, inputs: gm.forward)(fn)(X)
    finally:
        handle.remove()
    assert seen[-1:] == ["OptimizedModule"]


def test_what_was_made_is_a_compiled_function_for_others():
    calls = []

    def counting(gm, inputs):
        calls.append(gm)
        return gm.forward

    def make(x):
        return x + 1, torch.compile(lambda y: y * 2, backend=counting)

    _, compiled = capture.optimize(lambda gm, inputs: gm.forward)(make)(X)
    assert_same(compiled(X), X * 2)
    assert len(calls) == 1, "torch.compile's own backend was asked"


@pytest.mark.parametrize(
    "options", [{"mode": "nonsense"}, {"mode": "default", "options": {}}, {"backend": "unknown"}, {"wrong": 1}]
)
def test_refused_options_are_refused(options):
    def refused(x):
        try:
            torch.compile(lambda y: y, **options)
        except Exception as error:
            return x + 1, type(error).__name__
        return x - 1, "taken"

    run = capture.optimize(lambda gm, inputs: gm.forward)(refused)
    assert_same(run(X), refused(X))


def result_structures(x):
    made = torch.return_types.max((x, x + 1))
    largest = torch.max(x.view(2, 3), 1)
    other = type(largest)(part * 2 for part in largest)
    return made.values + 1, made.indices, other, len(made), type(made) is torch.return_types.max


def test_structures_that_torch_functions_return_are_made():
    run = capture.optimize(lambda gm, inputs: gm.forward, fullgraph=True)(result_structures)
    assert_same(run(X), result_structures(X))


SEEN = []


def told_before_and_after(x):
    module = torch.nn.LazyLinear(2)
    SEEN.append((type(module).__name__, torch.nn.parameter.is_lazy(module.weight)))
    y = module(x)
    SEEN.append((type(module).__name__, torch.nn.parameter.is_lazy(module.weight)))
    return y.shape


def test_a_lazy_module_is_told_of_before_its_first_call():
    compiled = capture.optimize(lambda gm, inputs: gm.forward)(told_before_and_after)
    for function in (compiled, compiled, told_before_and_after):
        function(torch.ones(3, 4))
        assert SEEN == [("LazyLinear", True), ("Linear", False)]
        SEEN.clear()


def after_a_break(x):
    y = x + 1
    print(end="")
    return y * 2


def test_torch_compile_leaves_the_compiler_alone():
    graphs, seen = [], []
    function = capture.optimize(lambda gm, inputs: graphs.append(gm) or gm.forward)(after_a_break)

    def outer(x):
        x = x - 1
        print(end="")
        return function(x) / 3

    hook = torch._dynamo.convert_frame.register_bytecode_hook(lambda code, new: seen.append(code.co_filename))
    try:
        compiled = torch.compile(outer, backend="eager")
        for _ in range(2):
            assert_same(compiled(X), outer(X))
    finally:
        hook.remove()
    assert graphs and seen and not any("tracework" in name and "/src/" in name for name in seen)

"""torch.compile called inside of a captured function: the function that it compiles is part of the graph."""

import pytest
import torch
import tracework_capture as capture
from harness import assert_same

X = torch.arange(6.0)
pytestmark = pytest.mark.usefixtures("fresh")


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


@pytest.mark.parametrize(("function", "expected"), [(called_at_once, X * 3), (decorated, X * 3), (Lazy(), X.sin() + 1)])
def test_one_graph(function, expected):
    run = capture.optimize(lambda gm, inputs: gm.forward, fullgraph=True)(function)
    for _ in range(2):
        assert_same(run(X), expected)


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

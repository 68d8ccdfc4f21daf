"""Wrong arguments and wrong backends: the error says what was wrong and what to do, and nothing is left half changed."""

import pytest
import torch
import tracework_capture as capture
from counted_graphs import compiled
from tracework_capture import errors

X = torch.arange(3.0)


def given_back(gm, example_inputs):
    return gm.forward


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f: capture.optimize("inductor"), "tracework.compile"),
        (lambda f: capture.optimize(given_back, dynamic="yes"), "dynamic= takes"),
        (lambda f: capture.optimize(given_back, fullgraph=None), "fullgraph= takes"),
        (lambda f: capture.optimize(given_back, recompile_limit=0), "positive int, not 0"),
        (lambda f: capture.optimize(given_back, recompile_limit=True), "positive int, not True"),
        (lambda f: capture.optimize(given_back, dynamic_sources="x"), r"Write \['x'\]"),
        (lambda f: capture.optimize(given_back, static_sources=["x["]), "neither a name nor a regular expression"),
        (lambda f: capture.optimize(given_back, shapes={"x": ["b"]}), "declared_shapes"),
        (lambda f: capture.optimize(given_back)(3), "3 cannot be called"),
        (lambda f: capture.explain(3)(X), "3 cannot be called"),
        (lambda f: capture.wrap_numpy(3), "takes a function, not 3"),
        (lambda f: capture.DimRange(5, 2), "Swap them"),
        (lambda f: capture.DimRange("b"), "bounds of sizes"),
    ],
)
def test_arguments(call, words):
    with pytest.raises(errors.ControlMisuse, match=words):
        call(lambda x: x + 1)


@pytest.mark.parametrize("text", ["nope", "[]", "{}", '{"format": 1}', '{"format": 1, "guards": 3}'])
def test_what_are_no_stored_guards(text):
    with pytest.raises(errors.GuardBuildError, match="[Ss]tore them anew"):
        capture.load_guards(text)


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("given", [None, 3])
def test_a_backend_that_gives_nothing_to_call(given, fullgraph):
    """It is the user's mistake, is said at each call, and another backend may compile the function."""

    def f(x):
        return x + 1

    def broken(gm, example_inputs):
        return given

    call = capture.optimize(broken, fullgraph=fullgraph)(f)
    for _ in range(2):
        with pytest.raises(errors.ControlMisuse, match=f"the backend broken gave {given} for a graph"):
            call(X)
    call, graphs = compiled(f)
    assert torch.equal(call(X), X + 1) and len(graphs) == 1


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda x: None, "gave a NoneType, not a tuple, for its 2 results"),
        (lambda x: 3, "gave a int, not a tuple, for its 2 results"),
        (lambda x: x, "gave a Tensor, not a tuple, for its 2 results"),
        (lambda x: (x,), "gave a tuple of 1 for its 2 results"),
        (lambda x: [], "gave a list of 0 for its 2 results"),
    ],
)
def test_a_compiled_graph_that_gives_something_else_than_its_results(given, words, fullgraph):
    def broken(gm, example_inputs):
        return given

    call = capture.optimize(broken, fullgraph=fullgraph)(lambda x: (x + 1, x * 2))
    for _ in range(2):
        with pytest.raises(errors.ControlMisuse, match=f"what the backend broken made of a graph {words}"):
            call(X)


def test_a_compiled_graph_may_give_a_list_and_more_than_its_results():
    call = capture.optimize(lambda gm, example_inputs: lambda x: [x + 1, x * 2, None])(lambda x: (x + 1, x * 2))
    for _ in range(2):
        assert [t.tolist() for t in call(X)] == [[1.0, 2.0, 3.0], [0.0, 2.0, 4.0]]


def test_a_backend_that_fails_once():
    calls = []

    def flaky(gm, example_inputs):
        calls.append(gm)
        if len(calls) == 1:
            raise ValueError("not yet")
        return gm.forward

    call = capture.optimize(flaky)(lambda x: x + 1)
    with pytest.raises(errors.BackendError, match="the backend flaky raised ValueError: not yet") as raised:
        call(X)
    assert raised.value.inner_exception is raised.value.__cause__ and isinstance(raised.value, RuntimeError)
    assert torch.equal(call(X), X + 1) and torch.equal(call(X), X + 1) and len(calls) == 2


def test_what_one_call_leaves_plain_another_one_tries():
    """With other options it may be captured, or must be; reset() forgets, too."""

    def skipped(x):
        capture.skip_frame()
        return x + 1

    call, graphs = compiled(skipped)
    assert torch.equal(call(X), X + 1) and not graphs
    strict, _ = compiled(skipped, fullgraph=True)
    for _ in range(2):
        with pytest.raises(errors.Unsupported, match="skip_frame"):
            strict(X)


def test_reset_forgets_what_is_left_plain():
    holder = [True]

    def sometimes(x):
        if holder[0]:
            capture.skip_frame()
        return x + 1

    call, graphs = compiled(sometimes)
    assert torch.equal(call(X), X + 1) and not graphs
    holder[0] = False
    capture.reset()
    assert torch.equal(call(X), X + 1) and len(graphs) == 1


def test_what_cannot_be_captured_at_all_is_an_error_under_fullgraph():
    """A generator left in the middle of a try block is closed when it dies: the frame runs as plain Python, aloud."""

    def left_in_the_middle(x):
        def steps():
            try:
                yield x + 1
            finally:
                closed.append(x)

        return next(steps()) * 2

    closed = []
    call, graphs = compiled(left_in_the_middle)
    assert torch.equal(call(X), (X + 1) * 2) and not graphs
    strict, _ = compiled(left_in_the_middle, fullgraph=True)
    for _ in range(2):
        with pytest.raises(errors.Unsupported, match="left in the middle") as caught:
            strict(X)
        assert caught.value.stack[0].function.endswith("left_in_the_middle")

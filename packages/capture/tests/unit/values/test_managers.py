"""`with` over torch's managers and over what is none: what `as` gives, and arguments that the managers refuse."""

import collections
import contextlib

import pytest
import torch
from harness import eager
from tracework_capture import Unsupported, graph_break, reset
from tracework_capture.hook.context import optimize


def assert_agree(function):
    """Captured, twice, and plain runs give the same."""
    reset()
    captured, x = optimize(eager)(function), torch.ones(3)
    value, *rest = function(x)
    for _ in range(2):
        found, *others = captured(x)
        assert torch.equal(found, value) and found.requires_grad == value.requires_grad and others == rest


MANAGERS = {
    "no_grad": lambda: torch.no_grad(),
    "enable_grad": lambda: torch.enable_grad(),
    "set_grad_enabled": lambda: torch.set_grad_enabled(False),
    "inference_mode": lambda: torch.inference_mode(),
    "autocast": lambda: torch.autocast("cpu"),
    "record_function": lambda: torch.profiler.record_function("block"),
    "nullcontext": lambda: contextlib.nullcontext(3),
    "disable_saved_tensors_hooks": lambda: torch.autograd.graph.disable_saved_tensors_hooks("not here"),
}


@pytest.mark.parametrize("name", MANAGERS)
def test_what_as_gives(name):
    make = MANAGERS[name]

    def f(x):
        with make() as given:
            y = x + 1
        return y, type(given).__name__

    assert_agree(f)


def test_numbers_that_change_are_not_shown_to_hooks_of_saved_tensors():
    def inside(x, k):
        with torch.autograd.graph.saved_tensors_hooks(packed, lambda t: t):
            return (x * x).sin() * k + torch.lerp(x, x * 2, k)

    def around(x, k):
        return x.sin() * k

    inside_captured, around_captured = optimize(eager)(inside), optimize(eager)(around)

    def seen(function, k, manager):
        SAVED.clear()
        x = torch.arange(4.0).requires_grad_()
        with manager:
            function(x, k).sum().backward()
        return list(SAVED), x.grad.tolist()

    def hooks():
        return torch.autograd.graph.saved_tensors_hooks(packed, lambda t: t)

    around_captured(torch.ones(4), 1.5)
    around_captured(torch.ones(4), 2.5)  # now it is open
    for k in (0.5, 0.75, 0.25):
        assert seen(inside_captured, k, contextlib.nullcontext()) == seen(inside, k, contextlib.nullcontext())
        assert seen(around_captured, k, hooks()) == seen(around, k, hooks())


SAVED = []


def packed(tensor):
    SAVED.append(tuple(tensor.shape))
    return tensor.detach()


REFUSED = {
    "no_grad, a number": lambda: torch.no_grad(1),
    "no_grad, a keyword": lambda: torch.no_grad(wrong=1),
    "enable_grad, a keyword": lambda: torch.enable_grad(orig_func=None),
    "set_grad_enabled, nothing": lambda: torch.set_grad_enabled(),
    "set_grad_enabled, two": lambda: torch.set_grad_enabled(True, 2),
    "inference_mode, a number": lambda: torch.inference_mode(1),
    "inference_mode, None": lambda: torch.inference_mode(None),
    "inference_mode, two": lambda: torch.inference_mode(True, 2),
    "autocast, nothing": lambda: torch.autocast(),
    "autocast, a number": lambda: torch.autocast(1),
    "autocast, no device": lambda: torch.autocast("nothing"),
    "record_function, nothing": lambda: torch.profiler.record_function(),
    "nullcontext, two": lambda: contextlib.nullcontext(1, 2),
    "save_on_cpu, a keyword": lambda: torch.autograd.graph.save_on_cpu(wrong=2),
    "dual_level, one": lambda: torch.autograd.forward_ad.dual_level(1),
    "a number": lambda: 3,
    "a deque": lambda: collections.deque(),
    "a function": lambda: test_what_as_gives,
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make = REFUSED[name]

    def f(x):
        try:
            with make():
                return (x + 1,)
        except Exception as error:
            return x * 2, type(error), str(error)

    assert_agree(f)


@pytest.mark.parametrize("mode", [True, False])
def test_set_grad_enabled_brings_back_what_held_where_it_was_made(mode):
    def f(x):
        with torch.no_grad():
            with torch.set_grad_enabled(mode):
                graph_break()
            after = torch.is_grad_enabled()
        made = torch.set_grad_enabled(mode)
        inside = torch.is_grad_enabled()
        graph_break()
        with made:
            y = x + 1
        return y, after, inside, torch.is_grad_enabled(), made.prev

    assert_agree(f)


def state():
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")


def by_hand(make, breaks):
    def f(x):
        manager = make()
        manager.__enter__()
        y = x @ x
        breaks()
        inside = state()
        manager.__exit__(None, None, None)
        return y, inside, state()

    return f


def on_a_stack(make, breaks):
    def f(x):
        with contextlib.ExitStack() as stack:
            for each in (make, torch.enable_grad, make):
                stack.enter_context(each())
            y = x @ x
            breaks()
            inside = state()
        return y, inside, state()

    return f


def left_later(make, breaks):
    """What enters is a function of its own."""

    def begin(stack):
        stack.enter_context(make())
        return state()

    def f(x):
        stack = contextlib.ExitStack()
        began = begin(stack)
        y = x @ x
        breaks()
        try:
            raise KeyError(1)
        except KeyError:
            stack.close()
        return y, began, state()

    return f


@pytest.mark.parametrize("breaks", [graph_break, lambda: None], ids=["break", "whole"])
@pytest.mark.parametrize("program", [by_hand, on_a_stack, left_later])
@pytest.mark.parametrize("name", MANAGERS)
def test_managers_that_no_with_statement_enters(name, program, breaks):
    """What a graph does in such a block ends with the graph: it may not be cut, and what is entered knows what held before."""
    before = state()
    assert_agree(program(MANAGERS[name], breaks))
    assert state() == before


def test_a_manager_that_a_function_leaves_entered():
    def begin(x):
        made = torch.autocast("cpu", dtype=torch.bfloat16)
        made.__enter__()
        return x @ x, made

    captured, x = optimize(eager)(begin), torch.ones(2, 2)
    for _ in range(2):
        y, made = captured(x)
        assert y.dtype == torch.bfloat16 and state()[2] and (x @ x).dtype == torch.bfloat16
        made.__exit__(None, None, None)
        assert not state()[2]
    with pytest.raises(Unsupported, match="is entered by a call, and the graph ends before it is left"):
        optimize(eager, fullgraph=True)(begin)(x)


def under_no_grad(x):
    with torch.no_grad():
        decorate = torch.set_grad_enabled(True)
        during = torch.is_grad_enabled()
        doubled = decorate(lambda v: v * 2)
        return doubled(x), during, torch.is_grad_enabled(), (x * 1).requires_grad


def recursive(x):
    @torch.no_grad()
    def halved(count, v):
        return v if count == 0 else halved(count - 1, v) / 2

    kept = halved(3, x)
    return x * 1, kept.requires_grad, torch.is_grad_enabled()


def made_before_it_is_called(x):
    @torch.set_grad_enabled(False)
    def doubled(v):
        return v * 2

    y = x * 1
    with torch.no_grad():
        inside = doubled(x).requires_grad, torch.is_grad_enabled()
    return y, *inside, doubled(x).requires_grad, torch.is_grad_enabled()


def without_parentheses(x):
    @torch.no_grad
    def first(v):
        return v * 2

    @torch.enable_grad
    def second(v):
        return v * 2

    return x * 1, first(x).requires_grad, second(x).requires_grad, torch.is_grad_enabled()


@pytest.mark.parametrize(
    "program", (under_no_grad, recursive, made_before_it_is_called, without_parentheses), ids=lambda f: f.__name__
)
def test_grad_modes_that_decorate(program):
    """A decorated function enters a manager of its own at each call; set_grad_enabled takes effect where it is made, until it decorates."""
    reset()
    captured, x = optimize(eager, fullgraph=True)(program), torch.ones(3, requires_grad=True)
    value, *rest = program(x)
    for _ in range(2):
        found, *others = captured(x)
        assert torch.equal(found, value) and found.requires_grad == value.requires_grad and others == rest


def test_what_held_before_a_grad_mode_is_asked():
    manager = torch.no_grad()

    def program(x):
        with manager:
            y = x * 2
        return y, manager.prev

    captured, x = optimize(eager, fullgraph=True)(program), torch.ones(3)
    for _ in range(2):
        assert captured(x)[1] is True
        manager.prev = False


def test_an_autocast_that_is_entered_twice_at_once_stays_in_force():
    def program(x):
        manager = torch.autocast("cpu")
        with manager:
            with manager:
                inside = torch.is_autocast_enabled("cpu")
        return x @ x.T, inside, torch.is_autocast_enabled("cpu")

    def run(function):
        try:
            product, *rest = function(torch.ones(2, 2))
            return product.dtype, *rest
        finally:
            torch.set_autocast_enabled("cpu", False)

    captured = optimize(eager)(program)
    assert [run(captured) for _ in range(2)] == [run(program)] * 2

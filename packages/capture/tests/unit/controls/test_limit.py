"""The limit of entries: said aloud once, with what differed and what would have kept each entry."""

import collections
import functools
import gc
import re
import types
import warnings
import weakref

import pytest
import torch
import tracework_capture as capture
from tracework_capture import RecompileLimitWarning
from tracework_capture.guards.kinds import GUARD_KINDS
from tracework_capture.guards.report import CURES
from tracework_capture.hook.context import FrameCallback


def eager(gm, example_inputs):
    return gm.forward


def warning_of(function, calls, **options):
    """The text of the one warning of a function that is called beyond its limit."""
    call = capture.optimize(eager, recompile_limit=2, **options)(function)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for args in calls:
            assert torch.equal(call(*args), function(*args))
            del args
    (warning,) = [w for w in said if w.category is RecompileLimitWarning]
    return str(warning.message)


def test_sizes():
    text = warning_of(lambda x: x + 1, [(torch.ones(n),) for n in (2, 3, 4, 5)], dynamic=False)
    assert "2 times, its recompile_limit" in text and "x has size 4 in dim 0, had 3" in text
    assert text.count("cure: mark_dynamic(x, 0) before the first call, or dynamic=True") == 1


def test_what_a_guard_could_not_read_holds_no_frame():
    class Held:
        pass

    def get(x, table):
        return x + table["a"] if "a" in table else x

    call = capture.optimize(eager)(get)
    call(torch.ones(2), collections.OrderedDict(a=1))

    def caller():
        held = Held()
        call(torch.ones(2), collections.OrderedDict(b=1))
        return weakref.ref(held)

    gc.disable()
    try:
        assert caller()() is None
    finally:
        gc.enable()


def test_dtypes_and_numbers_of_dims():
    text = warning_of(lambda x: x + 1, [(torch.ones(2, dtype=d),) for d in (torch.float32, torch.float64, torch.int32)])
    assert "has dtype torch.int32" in text and "cure: call it with the same dtype" in text
    text = warning_of(lambda x: x + 1, [(torch.ones([2] * n),) for n in (1, 2, 3)])
    assert "has 3 dims" in text and "number of dims of x" in text


def test_parameters_that_have_no_shape_yet():
    made = [torch.nn.Parameter(torch.ones(n)) for n in (2, 3)] + [torch.nn.UninitializedParameter() for _ in range(2)]
    text = warning_of(
        lambda x, p: x * (2 if torch.nn.parameter.is_lazy(p) else p.sum()), [(torch.ones(2), p) for p in made], dynamic=False
    )
    assert "cure: pass one type of object as p" in text


def test_values_and_objects():
    text = warning_of(lambda x, n: x + len(n), [(torch.ones(2), "a" * n) for n in (1, 2, 3, 4)])
    assert "cure: keep n the same" in text and "cure: raise recompile_limit" in text
    text = warning_of(lambda x, f: f(x), [(torch.ones(2), f) for f in (lambda x: x - 1, lambda x: x + 1, lambda x: x + 2)])
    assert "cure: pass the same function as f" in text


def test_a_program_that_makes_errors_of_warnings(caplog):
    call = capture.optimize(eager, recompile_limit=2, dynamic=False)(lambda x: x + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (2, 3, 4, 5):
            assert torch.equal(call(torch.ones(n)), torch.ones(n) + 1)
    assert caplog.text.count("its recompile_limit") == 1


@pytest.mark.parametrize("kind", CURES)
def test_cures_are_for_guards_that_exist(kind):
    assert kind in {*GUARD_KINDS, "SAME", "DISTINCT"}


def test_entries_that_die_while_their_reasons_are_asked_for(monkeypatch):
    """As when the collector runs just then: the call makes an entry as a first one does."""
    compiled = capture.optimize(lambda graph, inputs: graph.forward)(lambda x, scale: x * len(scale))
    assert compiled(torch.ones(1), "ab") == 2
    monkeypatch.setattr("tracework_capture.hook.cache.recompile_reasons", lambda *args: [])
    assert compiled(torch.ones(1), "abc") == 3


def test_entries_that_died_with_an_object_count():
    """They would be compiled for each call, and nobody would hear of it."""
    calls = ((torch.ones(2), Holder(None)) for _ in range(5))
    text = warning_of(lambda x, key: {key: x}[key] * 2, calls)
    assert text.count("key was an object that is gone") == 2 and "cure: pass the same object as key" in text


def scaled(x, factor=2.0):
    return x * factor


def scaling(factor):
    return lambda x: x * factor


def with_a_default(function):
    return lambda x, inner=function: inner(x)


class Holder:
    def __init__(self, function):
        self.function = function


@pytest.mark.parametrize(
    "function, make",
    [
        (lambda x, p: x + len(p.match("aab")[0]) + p.flags, lambda: re.compile("a+b?", re.IGNORECASE)),
        (lambda x, f: f(x), lambda: scaling(3)),
        (lambda x, f: f(x), lambda: functools.partial(scaling(3))),
        (lambda x, fs: fs[1](fs[0](x)), lambda: [scaling(2), scaling(3)]),
        (lambda x, fs: fs["a"](x), lambda: {"a": scaling(2)}),
        (lambda x, holder: holder.function(x), lambda: Holder(scaling(2))),
        (lambda x, f: f(x), lambda: with_a_default(scaling(2))),
        (lambda x, f: f(x), lambda: functools.wraps(scaled)(scaling(2))),
        (lambda x, limits: x * limits.eps, lambda: torch.finfo(torch.float32)),
    ],
)
def test_new_objects_that_do_the_same(function, make):
    """Patterns, functions made from the same code, and what holds them, are made for each call in many programs."""
    graphs = []
    call = capture.optimize(lambda gm, inputs: (graphs.append(gm), gm.forward)[1])(function)
    for _ in range(5):
        given = make()
        re.purge()
        assert torch.equal(call(torch.ones(2), given), function(torch.ones(2), given))
    assert len(graphs) == 1


def test_functions_of_the_same_code_that_differ():
    """In what they close over, in defaults, in globals and in which object they are."""
    call = capture.optimize(eager)(lambda x, holder: holder.function(x))
    other = types.FunctionType(uses_a_global.__code__, {"OFFSET": 7.0})
    marked, same_code = scaling(5), scaling(5)
    for function in (
        scaling(3),
        scaling(4),
        scaled,
        types.FunctionType(scaled.__code__, {}, argdefs=(5.0,)),
        uses_a_global,
        other,
    ):
        holder = Holder(function)
        assert torch.equal(call(torch.ones(2), holder), function(torch.ones(2)))
    known = {marked: 2.0}
    asks = capture.optimize(eager)(lambda x, holder: x * known.get(holder.function, 1.0))
    for function in (marked, same_code, marked):
        assert asks(torch.ones(1), Holder(function)) == known.get(function, 1.0)
    compares = capture.optimize(eager)(lambda x, holder: x * 2 if holder.function is marked else x)
    for function in (same_code, marked, same_code):
        assert compares(torch.ones(1), Holder(function)) == (2 if function is marked else 1)


OFFSET = 1.0


def uses_a_global(x):
    return x + OFFSET


def test_nobody_asks_for_frames_behind_the_limit_when_all_entries_are_dead(monkeypatch):
    asked = []
    plain = FrameCallback.answer
    monkeypatch.setattr(FrameCallback, "answer", lambda self, code, *rest: (asked.append(code), plain(self, code, *rest))[1])
    call = capture.optimize(eager, recompile_limit=3)(lambda x, module: x * module.factor)
    with pytest.warns(RecompileLimitWarning):
        for factor in range(8):
            module = types.ModuleType("made_for_this_call")
            module.factor = factor
            assert torch.equal(call(torch.ones(2), module), torch.full((2,), float(factor)))
            del module
    assert asked.count(call.__wrapped__.__code__) == 4


def made_by_exec(x, text="def made(x):\n    return x * 2 - 1"):
    names = {}
    exec(compile(text, "made anew", "exec"), names)
    return names["made"](x) + 1


def test_code_that_each_call_makes_anew_is_given_up():
    graphs, texts = [], [f"def made(x):\n    return x * 2 - {n}" for n in range(4)]

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    call = capture.optimize(backend, recompile_limit=3)(made_by_exec)
    x = torch.ones(2)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(8):
            assert torch.equal(call(x), made_by_exec(x))
            gc.collect()
        (warning,) = [w for w in said if w.category is RecompileLimitWarning]
        assert "compiled made (made anew:1) 3 times" in str(warning.message) and "make the function once" in str(warning.message)
        assert sum("sub" in str(gm.graph) for gm in graphs) == 3
        for text in texts:  # each another one
            assert torch.equal(call(x, text), made_by_exec(x, text))
    assert sum("sub" in str(gm.graph) for gm in graphs) == 6  # the second is the one given up

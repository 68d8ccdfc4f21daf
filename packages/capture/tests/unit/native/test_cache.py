"""Entries per code object: the limit is announced once, entries die with what they guard, reset forgets."""

import gc
import warnings

import pytest
from tracework_capture import _C, RecompileLimitWarning
from tracework_capture.errors import RecompileLimitError
from tracework_capture.guards.access import Scope
from tracework_capture.guards.guard import Guard
from tracework_capture.hook import cache
from tracework_capture.options import CaptureOptions
from tracework_capture.sources import Local


def compiled(function, replacement, options, kind="CONSTANT"):
    def callback(code, names, globals_, builtins, closure, func):
        if code is not function.__code__:
            return _C.SKIP
        if cache.at_limit(code, Scope(names, globals_), options, callback):
            return None
        return cache.make_entry(
            code, [Guard(kind, Local("x"), names["x"], "user.py:3")], [Local("x")], None, replacement.__code__, callback
        )

    return _C.Scoped(function, callback)


def test_the_limit_is_announced_once():
    def plain(x):
        return "plain"

    call = compiled(plain, lambda inputs, x: "fast", CaptureOptions(recompile_limit=2))
    with pytest.warns(RecompileLimitWarning) as caught:
        assert [call(i) for i in range(5)] == ["fast", "fast", "plain", "plain", "plain"]
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "x is 2, was 1" in text and "recompile_limit" in text and "plain" in text and "user.py:3" in text
    assert call(1) == "fast"
    cache.reset()
    assert cache.entries_of(plain.__code__) == () and call(4) == "fast"


def test_at_the_limit_nobody_is_asked_until_an_entry_dies():
    def plain(x):
        return "plain"

    options, asked = CaptureOptions(recompile_limit=2), []

    def callback(code, names, globals_, builtins, closure, func):
        asked.append(names.get("x"))
        if code is not plain.__code__ or cache.at_limit(code, Scope(names, globals_), options, callback):
            return None
        guards = [Guard("IDENTITY", Local("x"), names["x"], "user.py:3")]
        return cache.make_entry(code, guards, [], None, (lambda inputs, x: "fast").__code__, callback)

    call = _C.Scoped(plain, callback)
    first, *others = things = [Thing() for _ in range(5)]
    with pytest.warns(RecompileLimitWarning):
        assert [call(thing) for thing in things] == ["fast", "fast", "plain", "plain", "plain"]
    assert asked == things[:3]
    asked.clear()
    del first, things
    gc.collect()
    assert [call(thing) for thing in others] == ["fast", "fast", "plain", "plain"] and asked == others[1:3]


def test_the_limit_may_be_an_error():
    def plain(x):
        return "plain"

    call = compiled(plain, lambda inputs, x: "fast", CaptureOptions(recompile_limit=1, fail_on_limit=True))
    call(1)
    with pytest.raises(RecompileLimitError, match="x is 2, was 1"):
        call(2)


class Thing:
    pass


def test_entries_die_with_what_they_guard():
    def plain(x):
        return "plain"

    call = compiled(plain, lambda inputs, x: "fast", CaptureOptions(), "IDENTITY")
    thing = Thing()
    assert call(thing) == call(thing) == "fast"
    assert len(cache.entries_of(plain.__code__)) == 1
    (reason,) = cache.recompile_reasons(plain.__code__, Scope({"x": 3}, {}))
    assert "another object" in reason
    del thing
    gc.collect()
    assert cache.entries_of(plain.__code__) == ()


def test_skip_marks_are_forgotten():
    def plain(x):
        return "plain"

    cache.skip(plain.__code__)
    call = compiled(plain, lambda inputs, x: "fast", CaptureOptions())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert call(1) == "plain"
        cache.reset(plain.__code__)
        assert call(1) == "fast"


def test_models_and_inputs_are_not_kept_alive():
    import weakref

    import torch
    from tracework_capture.hook.context import optimize

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x):
            return self.linear(x).relu()

    model = Model()
    compiled = optimize(lambda gm, inputs: gm.forward)(model.forward)
    x = torch.randn(2, 3)
    for _ in range(10):
        assert torch.equal(compiled(x), model(x))
    entry = cache.entries_of(Model.forward.__code__)[0]
    assert entry.hits == 10
    gone = [weakref.ref(x), weakref.ref(model)]
    del model, compiled, x
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_equal_code_of_several_functions_is_forgotten_one_by_one():
    def equal_function():
        names = {}
        exec(compile("def plain(x):\n    return 'plain'\n", "equal.py", "exec"), names)
        return names["plain"]

    first, second = equal_function(), equal_function()
    assert first.__code__ == second.__code__ and first.__code__ is not second.__code__
    options = CaptureOptions(recompile_limit=1)
    calls = [compiled(function, lambda inputs, x: "fast", options) for function in (first, second)]
    assert [call(1) for call in calls] == ["fast", "fast"]
    with pytest.warns(RecompileLimitWarning) as caught:  # one for the place
        assert [call(2) for call in calls] == ["plain", "plain"]
    assert len(caught) == 1
    cache.reset()
    assert cache.entries_of(first.__code__) == cache.entries_of(second.__code__) == ()
    assert [call(2) for call in calls] == ["fast", "fast"]

"""The frame evaluator: entries run instead of frames, everything else is as without it."""

import gc
import sys
import threading
import traceback
import weakref

import pytest
import torch
import tracework_capture as capture
from growth import growth
from tracework_capture import _C, UncompiledWarning

ACCESSOR = {name: number for number, name in enumerate(_C.ACCESSORS)}
LEAF = {name: number for number, name in enumerate(_C.LEAVES)}


def always():
    return _C.GuardProgram((), (), (), (), 0, 0)


def first_argument_is(value):
    return _C.GuardProgram(((ACCESSOR["LOCAL"], -1, None, 0, 0, -1, -1, 0),), ((0, LEAF["CONSTANT"], value, 0),), (), (-1,), 0, 0)


def replacing(function, replacement, program=always):
    """A callable that runs `replacement`'s code in place of `function`, and the calls its callback got."""
    asked = []

    def callback(code, names, globals_, builtins, closure, func):
        if code is not function.__code__:
            return _C.SKIP
        asked.append(names)
        made = program(next(iter(names.values()))) if program is first_argument_is else program()
        return _C.Entry(made, replacement.__code__, callback)

    return _C.Scoped(function, callback), asked


def nothing(*frame):
    return None


def test_all_kinds_of_arguments():
    def plain(a, /, b, *args, c=3, **kwargs):
        return ("plain", a, b, args, c, kwargs)

    def fast(__tw_inputs, a, b, c, args, kwargs):
        return ("fast", __tw_inputs, a, b, args, c, kwargs)

    call, asked = replacing(plain, fast, first_argument_is)
    assert call(1, 2) == ("fast", (1,), 1, 2, (), 3, {})
    assert call(1, 2, 5, 6, c=7, d=8) == ("fast", (1,), 1, 2, (5, 6), 7, {"d": 8})
    assert call(2, b=0) == ("fast", (2,), 2, 0, (), 3, {})
    assert call(1, 0)[0] == "fast"
    assert len(asked) == 2 and asked[0] == {"a": 1, "b": 2, "args": (), "c": 3, "kwargs": {}}
    assert plain(1, 2)[0] == "plain"
    assert [e.hits for e in _C.get_entries(plain.__code__)] == [3, 1]
    with pytest.raises(TypeError):
        call()


def test_many_arguments():
    names = [f"a{i}" for i in range(40)]
    space = {}
    exec(f"def plain({','.join(names)}): return 0\ndef fast(inputs, {','.join(names)}): return [{','.join(names)}]", space)
    call, _ = replacing(space["plain"], space["fast"])
    assert call(*range(40)) == list(range(40))


def test_defaults_and_methods():
    class Thing:
        def plain(self, a=2):
            return ("plain", a)

        def fast(inputs, self, a):
            return ("fast", a)

    plain, fast = Thing.plain, Thing.fast
    Thing.call, _ = replacing(plain, fast)
    assert Thing().call() == ("fast", 2)
    assert Thing().call(5) == ("fast", 5)
    assert Thing.call(Thing()) == ("fast", 2)


def closures(value):
    def plain(x):
        return ("plain", value, x)

    return plain


def fast_closure():
    value = None

    def fast(inputs, x):
        return ("fast", value, x)

    return fast


def test_closures():
    one, two = closures(1), closures(2)
    call_one, asked = replacing(one, fast_closure())
    assert call_one(5) == ("fast", 1, 5)
    assert asked == [{"x": 5, "value": 1}]
    assert _C.Scoped(two, call_one.callback)(6) == ("fast", 2, 6)
    assert len(asked) == 1


def test_cells_of_arguments():
    def plain(x):
        def inner():
            return x

        return ("plain", inner())

    def fast(inputs, x):
        x += 1

        def inner():
            return x

        return ("fast", inner())

    call, asked = replacing(plain, fast)
    assert call(1) == call(1) == ("fast", 2)
    assert asked == [{"x": 1}]


def test_entries_belong_to_a_callback():
    def plain(x):
        return "plain"

    first, _ = replacing(plain, lambda inputs, x: "first")
    second, _ = replacing(plain, lambda inputs, x: "second")
    assert (first(1), second(1), first(1), second(1)) == ("first", "second", "first", "second")


def test_marks():
    def inner():
        return "plain"

    def outer():
        return inner()

    asked = []

    def callback(code, *rest):
        asked.append(code.co_name)
        return None

    call = _C.Scoped(outer, callback)
    call()
    assert asked == ["outer", "inner"]
    _C.set_mark(inner.__code__, _C.MARK_SKIP)
    call()
    assert asked[2:] == ["outer"]
    _C.set_mark(inner.__code__, _C.MARK_NONE)
    _C.set_mark(outer.__code__, _C.MARK_SKIP)
    call()
    assert asked[3:] == ["inner"]
    _C.set_mark(outer.__code__, _C.MARK_SKIP_RECURSIVE)
    call()
    assert len(asked) == 4
    _C.set_mark(outer.__code__, _C.MARK_RUN_ONLY)
    call()
    assert asked[4:] == ["inner"]


def test_callback_returning_skip_and_nonsense():
    def plain():
        return 1

    assert _C.Scoped(plain, lambda *a: _C.SKIP)() == 1
    assert _C.get_mark(plain.__code__) == _C.MARK_SKIP
    _C.set_mark(plain.__code__, _C.MARK_NONE)
    with pytest.raises(TypeError, match="callback returned 3"):
        _C.Scoped(plain, lambda *a: 3)()


def test_exceptions_of_the_callback_propagate():
    def plain():
        return 1

    def callback(*frame):
        raise ZeroDivisionError("from the callback")

    with pytest.raises(ZeroDivisionError):
        _C.Scoped(plain, callback)()
    assert _C.get_callback() is None and not _C.is_installed() and not _C.is_compiling()


def test_exceptions_and_tracebacks():
    def deepest():
        raise ValueError("here")

    def plain(x):
        deepest()

    def fast(inputs, x):
        deepest()

    call, _ = replacing(plain, fast)
    for _ in range(3):
        with pytest.raises(ValueError, match="here") as caught:
            call(1)
        names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert names[-2:] == ["fast", "deepest"]
    assert _C.get_callback() is None


def test_a_failing_fresh_entry_runs_plainly():
    def plain(x):
        return "plain"

    def callback(code, names, *rest):
        if code is not plain.__code__:
            return _C.SKIP
        return _C.Entry(first_argument_is("nothing"), fast.__code__, callback)

    def fast(inputs, x):
        return "fast"

    with pytest.warns(UncompiledWarning, match="does not hold"):
        assert _C.Scoped(plain, callback)(1) == "plain"


def test_recursion():
    source = """
def fast(inputs, n):
    return 0 if n == 0 else 1 + again(n - 1)
def plain(n):
    ran.append(n)
    return 0 if n == 0 else 1 + again(n - 1)
again = plain
"""
    space = {"ran": []}
    exec(source, space)
    call, asked = replacing(space["plain"], space["fast"])
    assert call(150) == 150 and not space["ran"]
    assert len(asked) == 1
    with pytest.raises(RecursionError):
        call(10**6)
    space["ran"].clear()
    assert call(150) == 150 and not space["ran"]
    assert _C.Scoped(space["plain"], nothing)(150) == 150


def test_generators_comprehensions_and_classes():
    def numbers(n):
        received = yield 0
        for i in range(n):
            received = yield i + (received or 0)

    def plain(n):
        steps = numbers(3)
        total = next(steps) + steps.send(10)
        steps.close()

        class Local:
            value = [i for i in range(n)]

        return total + sum(i for i in range(n)) + sum(Local.value) + sum({k: k for k in range(n)})

    assert _C.Scoped(plain, nothing)(5) == plain(5)


def test_coroutines():
    import asyncio

    async def wait(n):
        await asyncio.sleep(0)
        return n

    async def both():
        return sum(await asyncio.gather(wait(1), wait(2)))

    assert _C.Scoped(lambda: asyncio.run(both()), nothing)() == 3


def test_tracing_runs_the_original():
    def plain(x):
        return "plain"

    call, _ = replacing(plain, lambda inputs, x: "fast")
    assert call(1) == "fast"
    old = sys.gettrace()
    sys.settrace(lambda *event: None)
    try:
        traced = call(1)
    finally:
        sys.settrace(old)
    assert traced == "plain" and call(1) == "fast"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in CPython 3.12")
@pytest.mark.parametrize("local", [False, True])
def test_monitoring_runs_the_original(local):
    def plain(x):
        return "plain"

    call, _ = replacing(plain, lambda inputs, x: "fast")
    assert call(1) == "fast"
    lines, monitoring = [], sys.monitoring
    monitoring.use_tool_id(3, "test")
    try:
        monitoring.register_callback(3, monitoring.events.LINE, lambda code, line: lines.append((code.co_name, line)))
        if local:
            monitoring.set_local_events(3, plain.__code__, monitoring.events.LINE)
        else:
            monitoring.set_events(3, monitoring.events.LINE)
        watched = call(1)
        monitoring.set_local_events(3, plain.__code__, 0)
        monitoring.set_events(3, 0)
    finally:
        monitoring.register_callback(3, monitoring.events.LINE, None)
        monitoring.free_tool_id(3)
    assert watched == "plain" and call(1) == "fast"
    assert ("plain", plain.__code__.co_firstlineno + 1) in lines


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in CPython 3.12")
def test_monitoring_of_a_function_that_is_inlined():
    """A breakpoint in it is met, whether its caller was compiled before or not."""

    def helper(x):
        return x * 2

    def program(x):
        return helper(x) + 1

    x, lines, monitoring = torch.ones(2), [], sys.monitoring
    compiled = capture.optimize(lambda gm, inputs: gm.forward)(program)
    compiled(x)
    monitoring.use_tool_id(3, "test")
    try:
        monitoring.register_callback(3, monitoring.events.LINE, lambda code, line: lines.append(code.co_name))
        monitoring.set_local_events(3, helper.__code__, monitoring.events.LINE)
        for function in (compiled, capture.optimize(lambda gm, inputs: gm.forward)(program)):
            assert torch.equal(function(x), program(x))
        monitoring.set_local_events(3, helper.__code__, 0)
    finally:
        monitoring.register_callback(3, monitoring.events.LINE, None)
        monitoring.free_tool_id(3)
    assert lines == ["helper"] * 4


def test_calls_nest_as_deep_as_without_it():
    """An evaluator takes room on the C stack for each call, which CPython 3.12 limits and 3.11 does not."""

    def deep(n):
        return 0 if n == 0 else 1 + deep(n - 1)

    seen = []
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        assert _C.Scoped(lambda: (deep(15_000), deep(1)), lambda code, *rest: seen.append(code.co_name))() == (15_000, 1)
    finally:
        sys.setrecursionlimit(limit)
    assert seen.count("deep") > 100 and seen[-1] == "deep"  # before it was deep, and again after


def test_near_the_recursion_limit_frames_run_plainly():
    """What asks about a frame takes more room than the frame: a finally clause must be able to run."""

    def nested(n):
        return n and nested(n - 1)

    def asked(code, *rest):
        return nested(60) or None

    def fail():
        raise ValueError("deep")

    def last(limit):
        try:
            return fail()
        finally:
            sys.setrecursionlimit(limit)

    def program():
        limit, depth = sys.getrecursionlimit(), 1
        while True:
            try:
                sys.setrecursionlimit(depth)
            except RecursionError:
                depth += 1
            else:
                break
        sys.setrecursionlimit(depth + 20)
        return last(limit)

    before = sys.getrecursionlimit()
    try:
        with pytest.raises(ValueError, match="deep"):
            _C.Scoped(program, asked)()
        assert sys.getrecursionlimit() == before
    finally:
        sys.setrecursionlimit(before)


def test_disabled_regions():
    def inner():
        return _C.get_callback() is None

    def plain():
        return inner(), _C.call_disabled(inner), _C.Scoped(inner)(), inner()

    assert _C.Scoped(plain, nothing)() == (False, True, True, False)
    assert _C.call_disabled(lambda a, *, b: (a, b), 1, b=2) == (1, 2)


def test_compiled_functions_inside_the_callback_run_plainly():
    def plain():
        return 1

    inner, asked = replacing(plain, lambda inputs: 2)
    seen = []

    def callback(*frame):
        seen.append((inner(), _C.is_compiling()))
        return None

    assert _C.Scoped(lambda: 5, callback)() == 5
    assert seen == [(1, True)] and not asked


def test_scoped_looks_like_its_function():
    def plain(x: int) -> int:
        """Doc."""

    plain.extra = 1
    call = _C.Scoped(plain, nothing)
    assert call.__name__ == "plain" and call.extra == 1 and call.__wrapped__ is plain and call.__annotations__["x"] is int
    call.mine = 2
    assert call.mine == 2 and not hasattr(plain, "mine")
    assert weakref.ref(call)() is call
    with pytest.raises(TypeError):
        _C.Scoped(3, nothing)
    with pytest.raises(AttributeError):
        call.missing  # noqa: B018


def test_threads():
    def plain(n):
        return ("plain", n)

    barrier, wrong = threading.Barrier(6), []
    call, asked = replacing(plain, lambda inputs, n: ("fast", inputs[0], n), first_argument_is)

    def work(number):
        barrier.wait(60)
        for i in range(2000):
            if call(number % 3) != ("fast", number % 3, number % 3) or plain(i) != ("plain", i):
                wrong.append(i)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        workers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        [w.start() for w in workers]
        [w.join() for w in workers]
    finally:
        sys.setswitchinterval(interval)
    assert not wrong and 3 <= len(asked) <= 6 and not _C.is_installed()


def test_another_thread_is_not_captured():
    seen = []

    def plain():
        worker = threading.Thread(target=lambda: seen.append(_C.get_callback()))
        worker.start()
        worker.join()

    _C.Scoped(plain, nothing)()
    assert seen == [None]


def test_no_leak():
    def plain(x, *args, **kwargs):
        return x

    call, _ = replacing(plain, lambda inputs, x, args, kwargs: x)
    bound, _ = replacing(closures(3), fast_closure())
    thing = object()
    for _ in range(100):
        call(thing, 1, k=thing), bound(thing)
    before = sys.getrefcount(thing)
    assert growth(sys.getallocatedblocks, 20_000, lambda: (call(thing, 1, k=thing), bound(thing))) < 2000, "one in ten calls"
    assert sys.getrefcount(thing) == before


def test_entries_are_collected_with_their_code():
    space = {}
    exec("def plain(x): return x\ndef fast(inputs, x): return x", space)

    def callback(code, *frame):
        return _C.Entry(always(), space["fast"].__code__, callback)

    assert _C.Scoped(space["plain"], callback)(1) == 1
    gone = [weakref.ref(space[name].__code__) for name in ("plain", "fast")]
    space.clear()
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_functions_called_by_guards_run_as_they_are():
    calls = []

    def check(value):
        calls.append(value)
        return value == 1

    def program():
        leaf = (0, LEAF["PYTHON"], check, 0)
        return _C.GuardProgram(((ACCESSOR["LOCAL"], -1, None, 0, 0, -1, -1, 0),), (leaf,), (), (-1,), 0, 0)

    def plain(x):
        return "plain"

    def callback(code, *frame):
        return _C.Entry(program(), (lambda inputs, value: "fast").__code__, callback)

    call = _C.Scoped(plain, callback)
    assert call(1) == call(1) == "fast"
    assert calls == [1, 1] and not _C.get_entries(check.__code__)
    assert _C.Scoped(check, callback)(1) == "fast"  # its guard is itself
    assert _C.Scoped(check, callback)(1) == "fast"

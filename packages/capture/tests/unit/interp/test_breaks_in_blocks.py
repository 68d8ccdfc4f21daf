"""Breaks inside loops, except blocks and with blocks: the frame goes on captured, and does what the plain frame does."""

import os
import sys

import pytest
import torch
import tracework_capture as capture
from interp_harness import assert_same
from tracework_capture.hook import compile_frame

X = torch.arange(6.0)
pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture(autouse=True)
def continue_always(monkeypatch):
    """Loops that break several times in a round are continued, too, however little there is between the breaks."""
    monkeypatch.setattr(compile_frame, "SMALL_PIECE", 0)


def agree(function, *args, graphs=None, calls=3):
    """Plain and compiled calls give the same; nothing runs plainly; later calls compile nothing."""
    counted = []

    def backend(gm, example_inputs):
        counted.append(gm)
        return gm.forward

    compiled = capture.optimize(backend)(function)
    for _ in range(calls):
        expected, actual = outcome(function, args), outcome(compiled, args)
        assert_same(actual, expected)
        if graphs is not None:
            assert len(counted) == graphs
    assert [frame.why for frame in compiled.callback.skipped if frame.why != "no tensor operations"] == []


def outcome(function, args):
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__, str(error), repr(error.__context__), repr(error.__cause__)


def counted_loop(x):
    for i in range(5):
        x = x + i
        s = x.sum().item()
        x = x * 2 + (s > 40)
    return x


def loop_over_tensors(x):
    out = []
    for y in [x, x + 1, x + 2]:
        y = y * 2
        out.append(y.sum().item())
        x = x + y
    return x, out


def while_loop(x):
    n = 0
    while x.sum() < 1000:
        x = x * 2 + 1
        n += 1
    return x + n


def nested_loops(x):
    t = 0
    for i in range(3):
        for j in (1.0, 2.0):
            x = x + j * i
            t += x.sum().item()
        x = x - 1
    else:
        x = x * 2
    return x, t


def leaves_early(x):
    for i in range(9):  # noqa: B007
        if x.sum() > 20:
            continue
        if x.sum() > 60:
            break
        x = x + 1
    else:
        return x, "end"
    return x, i


def over_a_dict(x):
    t = 0.0
    for i, (k, v) in enumerate({"a": x, "b": x + 1}.items()):  # noqa: B007
        v = v * 2
        t += v.sum().item() * i
    return x * t, k


def over_a_generator(x):
    def items():
        for i in range(3):
            yield x + i

    t = 0
    for y in items():
        z = y * 2
        t += z.sum().item()
    return t * x


def over_zip(x):
    t = []
    for y, n in zip([x, x * 2], range(7, 100)):
        t.append((y + n).max().item())
    return t


def with_cells(x):
    made, total = [], 0

    def bump(v):
        nonlocal total
        total += v

    for i in range(3):
        x = x + 1
        made.append(x.sum().item())
        bump(i)
        x = x * 2
    return x, made, total


def raises_in_a_loop(x):
    for _ in range(4):
        x = x + 1
        if x.sum().item() > 25:
            raise RuntimeError("too big")
    return x


def try_in_a_loop(x):
    n = 0
    for _ in range(6):
        try:
            x = x + 1
            if x.sum().item() > 30:
                raise ValueError
            x = x * 1.5
        except ValueError:
            n += 1
            x = x - 3
        finally:
            x = x + 0.5
    return x, n


def loop_in_a_handler(x):
    for i in range(3):
        try:
            raise ValueError(i)
        except ValueError:
            x = x + 1
            t = x.sum().item()
            x = x + (t > 30)
    return x


def in_a_handler(x):
    try:
        x = x + 1
        raise ValueError("a")
    except ValueError as e:
        x = x * 2
        t = x.sum().item()
        x = x + t
        s = str(e)
    return x, s


def raised_again(x):
    try:
        try:
            x = x + 1
            int("q")
        except ValueError:
            x = x * 2
            x = x + x.sum().item()
            raise
    except ValueError as e:
        return x, str(e), e.__context__
    finally:
        x = x + 7


def context_of_the_next(x):
    try:
        x = x + 1
        raise KeyError("k")
    except KeyError:
        y = x * 2
        y.sum().item()
        raise TypeError("next")  # noqa: B904


def context_inside(x):
    try:
        raise KeyError("k")
    except KeyError:
        x = x * 2
        try:
            x.sum().item()
            int("zz")
        except ValueError as error:
            return x * 3, repr(error.__context__)


def other_exceptions_pass(x):
    try:
        try:
            x = x + 1
            raise KeyError(int(x.sum().item()))
        except ValueError:
            return None
        finally:
            x = x * x.sum().item()
    except KeyError as error:
        return x, str(error)


def grad_mode_in_a_loop(x):
    for _ in range(3):
        with torch.no_grad():
            x = x * 2
            s = x.sum().item()
            x = x + s
        x = x + torch.is_grad_enabled()
    return x


def with_in_a_handler(x):
    try:
        raise ValueError
    except ValueError:
        with torch.enable_grad():
            x = x * x.sum().item()
        x = x + torch.is_grad_enabled()
    return x


def raised_with_cells(x):
    items = [3]
    try:
        if x.sum() > 1:
            raise KeyError("five")
        x = x + sum(i * 2 for i in items)
    except ValueError:
        return items
    return x


FUNCTIONS = [f for f in list(globals().values()) if getattr(f, "__code__", None) and f.__code__.co_varnames[:1] == ("x",)]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_breaks_in_blocks_are_continued(function):
    agree(function, X)


def test_rounds_of_a_loop_share_their_graphs():
    def f(x, layers):
        for layer in layers:
            x = x * 2
            if x.sum() > 1e9:
                x = layer(x)[:1]
        return x

    agree(f, X, [torch.sin] * 12, graphs=2)


def test_a_long_loop_does_not_nest():
    def f(x):
        n = 0
        while n < 3000:
            n += 1
            x = x + 1
            if x[0] > 1e9:
                break
        return x

    agree(f, X, graphs=3, calls=1)


def test_a_long_loop_whose_rounds_differ_becomes_plain():
    def f(x):
        total = []
        for _ in range(1500):
            x = x + 1
            total.append(x[0].item())
        return x, sum(total)

    agree(f, X)


def test_objects_that_notice_their_death_are_made():
    seen = []

    class Local:
        def __del__(self):
            seen.append("gone")

    def f(x):
        held = Local()  # noqa: F841
        return x + 1

    agree(f, X, calls=1)
    assert seen == ["gone", "gone"]


def test_generators_end_when_they_do_in_plain_python():
    events = []

    def items(n):
        try:
            yield from range(n)
        finally:
            events.append("end")

    def raises_inside(x):
        try:
            for i in items(3):
                x = x + i
                events.append({}[int(x.sum().item())])
        except KeyError:
            events.append("handled")
        return x

    def sends(x):
        made = items(2)
        first = next(made)
        return x + first, made.send(1 if x.sum() > 100 else None)

    def leaves(x):
        for i in items(3):
            x = x + i
            if x.sum() > 16:
                break
        events.append("left")
        return x

    for function in (raises_inside, sends, leaves):
        compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(function)
        for _ in range(3):
            events.clear()
            expected, plain = function(X), list(events)
            events.clear()
            assert_same(compiled(X), expected)
            assert events == plain


def caller_and_callers_caller():
    return [sys._getframe(1).f_code.co_name, sys._getframe(2).f_code.co_name]


def breaks_three_times(x):
    torch._dynamo.graph_break()
    y = x + 1
    torch._dynamo.graph_break()
    y = y + 1
    return y, caller_and_callers_caller()


def raises_after_breaks(x):
    torch._dynamo.graph_break()
    y = x + 1
    torch._dynamo.graph_break()
    raise ValueError(y.sum())


def test_the_program_sees_one_frame_for_a_function_that_broke():
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(breaks_three_times)

    def outer():
        return compiled(torch.ones(2))

    assert outer()[1] == ["breaks_three_times", "outer"]
    fails = capture.optimize(lambda gm, example_inputs: gm.forward)(raises_after_breaks)
    with pytest.raises(ValueError) as caught:
        fails(torch.ones(2))
    assert [entry.name for entry in caught.traceback] == [
        "test_the_program_sees_one_frame_for_a_function_that_broke",
        "raises_after_breaks",
    ]


@capture.disable
def raises_without_context():
    error = ValueError(2)
    try:
        raise error
    except ValueError:
        error.__context__ = None
        raise


def catches_what_was_raised_elsewhere(x):
    y = x + 1
    try:
        try:
            raise KeyError(1)
        except KeyError:
            raises_without_context()
    except ValueError as error:
        names, trace = [], error.__traceback__
        while trace is not None:
            names.append(trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
        return y * 2, error.__context__, names


def test_an_exception_over_a_break_keeps_its_context_and_traceback():
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(catches_what_was_raised_elsewhere)
    for _ in range(2):
        y, context, names = compiled(torch.ones(2))
        assert y.tolist() == [4, 4] and context is None
        assert [name for name in names if name == "catches_what_was_raised_elsewhere"] == ["catches_what_was_raised_elsewhere"]


def many_rounds_that_raise(items):
    found = []
    for item in items:
        try:
            found.append(issubclass(item, int))
        except TypeError:
            found.append(None)
    return found


def raised_inside_of_a_file(x):
    try:
        with open(os.devnull):
            raise ValueError(x.sum().item())
    except ValueError as error:
        found = str(error), repr(error.__context__)
    return found, x + 1


def raised_in_a_handler_that_breaks(x):
    try:
        try:
            try:
                raise ValueError(1)
            finally:
                x = x + x.sum().item()
        except ValueError as error:
            raise TypeError(x.sum().item()) from error
    except TypeError as error:
        return str(error), repr(error.__cause__), x


@pytest.mark.parametrize("function", [raised_inside_of_a_file, raised_in_a_handler_that_breaks])
def test_no_exception_is_left_being_handled(function):
    compiled = capture.optimize(lambda gm, inputs: gm.forward)(function)
    for _ in range(3):
        assert_same(outcome(compiled, (X,)), outcome(function, (X,)))
        assert sys.exc_info() == (None, None, None)


def test_rounds_that_raise_run_plainly():
    items = [1, int, "a", str, 3.0] * 40
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(many_rounds_that_raise)
    assert compiled([torch, *items]) == many_rounds_that_raise([torch, *items])

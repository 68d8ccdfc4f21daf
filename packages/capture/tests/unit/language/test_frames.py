"""What is around a compiled frame: other calls with other objects, errors and their places, exceptions being handled."""

import ctypes
import dis
import functools
import gc
import inspect
import io
import pdb
import sys
import traceback

import pytest
import torch
import tracework_capture as capture

pytestmark = pytest.mark.usefixtures("fresh")


def compiled(function):
    return capture.optimize(lambda gm, inputs: gm.forward)(function)


@capture.disable
def nothing(*anything):
    pass


class Thing:
    pass


ABSENT = Thing()


def chosen(x, value):
    return x + 1 if value is ABSENT else x - 1


def test_an_entry_for_different_objects_is_not_used_for_one_twice():
    function, x = compiled(chosen), torch.ones(2)
    for value in (Thing(), ABSENT, Thing(), ABSENT):
        torch.testing.assert_close(function(x, value), chosen(x, value))


class Watched:
    def __init__(self):
        self.asked = []

    def __repr__(self):
        self.asked.append("__repr__")
        return "Watched()"

    @property
    def __class__(self):
        self.asked.append("__class__")
        return object


def test_the_reason_of_a_recompile_asks_nothing_of_the_users_objects():
    held = [Watched(), Watched(), [Watched()]]
    function = compiled(lambda x, value, held=held: x + 1 if value is held[0] else x - 1)
    for value in held:
        function(torch.ones(2), value)
    assert not any(thing.asked for thing in (*held[:2], held[2][0]))


def emptied_cell(x):
    y = x + 1
    value = 12

    def read():
        return value

    cell = read.__closure__[0]
    nothing()
    del cell.cell_contents
    found = []
    for function in (read, lambda: value):
        try:
            function()
        except NameError as error:
            found.append((type(error), str(error)))
    try:
        nothing(value)
    except UnboundLocalError as error:
        found.append(str(error))
    return y * 2, found


def left_with_an_empty_cell(x):
    def read():
        return value  # noqa: F821

    value = 12
    nothing(x)
    del value
    return read, value  # noqa: F821


def emptied_twice(x):
    def read():
        return value

    y = x + 1
    nothing(x)
    y = y * 2
    del value  # noqa: F821
    value = 1
    return y, read


def test_empty_cells_are_named_as_the_program_has_them():
    x = torch.ones(2)
    assert compiled(emptied_cell)(x)[1] == emptied_cell(x)[1]
    for function in (left_with_an_empty_cell, emptied_twice):
        with pytest.raises(UnboundLocalError, match="local variable 'value'"):
            compiled(function)(x)


class Leaving:
    """A manager that must break the graph to leave."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        nothing()
        self.seen = error[0], error[1].args, error[2] is not None
        return error[0] is ValueError


def left_by_an_error(x, error):
    manager, y = Leaving(), x + 1
    try:
        with manager:
            raise error(3)
    except KeyError as caught:
        return y * 2, manager.seen, caught.__traceback__ is not None
    return y * 3, manager.seen


@pytest.mark.parametrize("error", (ValueError, KeyError))
def test_with_blocks_that_break_while_an_error_leaves_them(error):
    x = torch.ones(2)
    (found, *rest), (expected, *wanted) = compiled(left_by_an_error)(x, error), left_by_an_error(x, error)
    torch.testing.assert_close(found, expected)
    assert rest == wanted


def test_what_is_being_handled_keeps_its_traceback():
    function = compiled(lambda x: nothing(x + 1))
    try:
        raise KeyError
    except KeyError as error:
        before = error.__traceback__
        function(torch.ones(2))
        assert error.__traceback__ is before


def fails(x):
    y = x + 1
    nothing(y)
    return {}["key"]


def test_errors_are_raised_at_the_place_of_their_instruction():
    places = []
    for function in (fails, compiled(fails)):
        with pytest.raises(KeyError) as caught:
            function(torch.ones(2))
        last = traceback.extract_tb(caught.value.__traceback__)[-1]
        places.append((last.lineno, last.end_lineno, last.colno, last.end_colno))
    assert places[0] == places[1]


def without_lines():
    code = fails.__code__
    return type(fails)(code.replace(co_linetable=b"\xff" * len(code.co_linetable)), fails.__globals__)


def test_code_without_lines_stays_so():
    lines = []
    for function in (without_lines(), compiled(without_lines())):
        with pytest.raises(KeyError) as caught:
            function(torch.ones(2))
        lines.append(traceback.extract_tb(caught.value.__traceback__)[-1].lineno)
    assert lines[0] == lines[1]
    assert lines[0] is None or lines[0] == -1  # which early versions of 3.11 say instead


def divided(number, by=1):
    half = number / 2
    return half / by


def thrown_into():
    try:
        yield 1
    except ValueError:
        divided(3, by=0)


def caught(x):
    y = x + 1
    try:
        divided(2, by=0)
    except ZeroDivisionError as error:
        return y, error


def caught_again(x):
    y = x + 1
    try:
        try:
            divided(2, by=0)
        except ZeroDivisionError as error:
            raise KeyError(1) from error
    except KeyError as error:
        found = error
        try:
            raise found
        except KeyError:
            return y, found


def caught_from_a_generator(x):
    y = x + 1
    running = thrown_into()
    next(running)
    try:
        running.throw(ValueError(1))
    except ZeroDivisionError as error:
        return y, error


def without_its_traceback(x):
    y = x + 1
    try:
        divided(2, by=0)
    except ZeroDivisionError as error:
        found = error
    try:
        raise found.with_traceback(None)
    except ZeroDivisionError:
        return y, found


def places(error):
    """Everything that a traceback says of where an exception, and those behind it, came from."""
    found = []
    while error is not None:
        walked = [(frame.f_code, frame.f_lineno, line) for frame, line in traceback.walk_tb(error.__traceback__)]
        found.append((repr(error), walked, [(s.name, s.line, s.colno) for s in traceback.extract_tb(error.__traceback__)]))
        error = error.__context__
    return found


def left_through_except(by):
    try:
        divided(2, by)
    except TypeError:
        pass


def lines_where_frames_ended(x):
    y = x + 1
    try:
        left_through_except(0)
    except ZeroDivisionError as error:
        found = error.__traceback__.tb_next
    lines = []
    while found:
        lines.append((found.tb_lineno, found.tb_frame.f_lineno, found.tb_frame.f_code.co_name))
        found = found.tb_next
    return y, lines


def test_frames_of_tracebacks_are_where_they_ended():
    assert compiled(lines_where_frames_ended)(torch.ones(2))[1] == lines_where_frames_ended(torch.ones(2))[1]


def places_below_the_program(error):
    return [(text, [place[::2] for place in walked], shown) for text, walked, shown in places(error)]


@pytest.mark.parametrize("program", [caught, caught_again, caught_from_a_generator, without_its_traceback])
def test_tracebacks_of_what_captured_code_caught(program):
    run = compiled(program)
    for _ in range(2):
        try:
            raise LookupError("handled by the caller")
        except LookupError:
            # a frame that went on has another line by now than one that ended where it raised
            assert places_below_the_program(run(torch.ones(2))[1]) == places_below_the_program(program(torch.ones(2))[1])


def test_exceptions_share_a_traceback():
    def program(x):
        y = x + 1
        try:
            divided(2, by=0)
        except ZeroDivisionError as error:
            other = ValueError(1).with_traceback(error.__traceback__)
            return y, error, other, error.__traceback__, error.__traceback__.tb_next.tb_lineno

    _, first, second, trace, line = compiled(program)(torch.ones(2))
    assert first.__traceback__ is second.__traceback__ is trace
    assert line == divided.__code__.co_firstlineno + 2


def left_through_finally(x):
    unread = 3
    _y = x + 1
    try:
        divided(unread, by=0)
    finally:
        unread = 4


def left_for_a_name(x):
    misings = missing = 1
    _y = x + missing + misings
    return mising  # noqa: F821


def left_for_sizes(x):
    y = x + 1
    z = y.reshape(1, 2)
    return z @ torch.ones(3, 4)


def left_for_an_axis(x):
    y, unread = x * 2, 5
    for place in range(3):
        y = y.sum(place)
    return y + unread


@pytest.mark.parametrize("program", [left_through_finally, left_for_a_name, left_for_sizes, left_for_an_axis])
def test_the_frame_that_raised_is_as_the_program_left_it(program):
    seen = []
    for run in (program, *[compiled(program)] * 2):
        with pytest.raises((ZeroDivisionError, NameError, RuntimeError, IndexError)) as raised:
            run(torch.ones(2))
        frame = raised.value.__traceback__.tb_next.tb_frame
        names = {name: held for name, held in frame.f_locals.items() if not isinstance(held, torch.Tensor)}
        seen.append((frame.f_lineno, names, {*frame.f_locals}, traceback.format_exception(raised.value)[2:]))
    assert seen[0] == seen[1] == seen[2]


SEEN = []


def look(*anything):
    caller = sys._getframe(1)
    SEEN.append((caller.f_code.co_name, caller.f_lineno, sorted(caller.f_locals)))


def look_back():
    look_at = inspect.currentframe().f_back
    SEEN.append((look_at.f_code.co_name, look_at.f_lineno, sorted(look_at.f_locals)))


def stops_at_breakpoint(x):
    y = x + 1
    breakpoint()
    return y * 2


def is_looked_at(x):
    y = x + 1
    look()
    z = y * 2
    look_back()
    return z


def is_looked_at_inside(x):
    return is_looked_at(x + 1) * 2


@pytest.mark.parametrize("function", [stops_at_breakpoint, is_looked_at, is_looked_at_inside])
def test_what_looks_at_the_frame_that_calls_it_sees_the_users(function, monkeypatch):
    monkeypatch.setattr(sys, "breakpointhook", look)
    seen = []
    for call in (function, compiled(function)):
        SEEN.clear()
        call(torch.ones(2))
        seen.append(list(SEEN))
    assert seen[0] == seen[1] and SEEN


def stops(x, debugger):
    y = x + 1
    debugger.set_trace()
    z = y * 2
    return z - 1


class Derived(pdb.Pdb):
    def set_trace(self):
        super().set_trace(sys._getframe().f_back)


def goes_on(x):
    return x + 1


def stops_below(x, debugger):
    y = goes_on(x)
    return stops(y, debugger)


@pytest.mark.parametrize("function, kind", [(stops, pdb.Pdb), (stops, Derived), (stops_below, Derived)])
def test_a_debugger_steps_over_the_users_lines(function, kind):
    shown = []
    for call in (function, compiled(function)):
        text = io.StringIO()
        debugger = kind(stdin=io.StringIO("next\nprint(y)\nnext\nprint(z)\ncontinue\n"), stdout=text, nosigint=True, readrc=False)
        old = sys.gettrace()
        try:
            call(torch.ones(2), debugger)
        finally:
            sys.settrace(old)
        shown.append(text.getvalue())
    assert shown[0] == shown[1] and "-> return z - 1" in shown[0]


def lines_seen(x):
    lines = []

    def trace(frame, event, arg):
        lines.append((frame.f_code.co_name, event))
        return trace

    old = sys.gettrace()
    sys.settrace(trace)
    nothing()
    sys.settrace(old)
    return x + 1, lines


def test_tracing_that_starts_inside():
    (result, lines), (expected, plain) = compiled(lines_seen)(torch.ones(2)), lines_seen(torch.ones(2))
    assert torch.equal(result, expected)
    assert lines == plain


@pytest.mark.skipif(not hasattr(ctypes.pythonapi, "PyFunction_SetVectorcall"), reason="CPython 3.12 is the first to have it")
def test_a_function_whose_calls_an_extension_took_over():
    def helper(x):
        return x + 1

    class Asked:
        def __getattribute__(self, name):
            return name

    def uses(x, function, asked):
        return x * 2, function(x), asked.a

    taken = ctypes.PYFUNCTYPE(ctypes.py_object, *[ctypes.c_void_p] * 4)(lambda *pointers: "taken over")
    function, x, asked = compiled(uses), torch.ones(2), Asked()
    assert [repr(v) for v in function(x, helper, asked)] == [repr(v) for v in (x * 2, x + 1, "a")]
    for other in (helper, Asked.__getattribute__):
        ctypes.pythonapi.PyFunction_SetVectorcall(ctypes.py_object(other), taken)
    for _ in range(2):
        assert function(x, helper, asked)[1:] == ("taken over", "taken over")


def test_bytecode_that_cpython_refuses(caplog):
    def refused():
        return 1

    assert dis.opname[229] == "<229>"
    refused.__code__ = refused.__code__.replace(co_code=bytes([229]) + refused.__code__.co_code[1:])

    def uses(x):
        y = x + 1
        try:
            refused()
        except SystemError as error:
            return y, "opcode" in str(error)

    assert compiled(uses)(torch.ones(2))[1]
    assert not [record for record in caplog.records if record.exc_info]


def test_a_class_with_attributes_under_what_is_no_str(caplog):
    asked = []

    class Key:
        def __hash__(self):
            return hash("value")

        def __eq__(self, other):
            asked.append(other)
            return False

    def uses(x, cls, instance):
        return x + 1, cls.value, instance.value

    for run in (uses, compiled(uses)):
        made = type("Made", (), {Key(): 5, "value": 1})
        instance = made()
        del asked[:]
        assert run(torch.ones(2), made, instance)[1:] == (1, 1)
        assert set(asked) == {"value"}
    assert not [record for record in caplog.records if record.exc_info]


def _watch(trace):
    sys.settrace(trace)
    sys._getframe().f_back.f_back.f_trace = trace


def _begin(trace):
    _watch(trace)


def seen_from_here(x):
    lines, old = [], sys.gettrace()

    def trace(frame, event, arg):
        if frame.f_code is seen_from_here.__code__:
            lines.append((event, frame.f_lineno))
        return trace

    y = x + 1
    _begin(trace)
    y = y * 2
    sys.settrace(old)
    return y, lines


def without_naming_it(x, stop, lines):
    def trace(frame, event, arg):
        if frame.f_code.co_name == "without_naming_it":
            lines.append((event, frame.f_lineno))
        return trace

    y = x + 1
    _begin(trace)
    y = y * 2
    stop()
    return y


def test_tracing_that_a_callee_starts():
    seen = []
    for call in (without_naming_it, compiled(without_naming_it)):
        lines, old = [], sys.gettrace()
        assert torch.equal(call(torch.ones(2), functools.partial(sys.settrace, old), lines), torch.full((2,), 4.0))
        seen.append(lines)
    assert seen[0] == seen[1] and [event for event, _ in seen[0]] == ["line", "line"]
    (result, lines), (expected, plain) = compiled(seen_from_here)(torch.ones(2)), seen_from_here(torch.ones(2))
    assert torch.equal(result, expected) and lines == plain


def collected(x):
    a = [x]
    a.append(a)
    gc.collect()
    del a
    return x + 1, gc.collect(), len(gc.garbage), gc.get_count()[2] >= 0


def test_what_a_collection_finds():
    call = compiled(collected)
    call(torch.ones(2))  # entries of other tests die with what a collection finds, and are cleared when something is compiled
    while gc.collect():
        pass
    (result, *found), (expected, *plain) = call(torch.ones(2)), collected(torch.ones(2))
    assert torch.equal(result, expected)
    assert found == plain == [1, 0, True]


def collects(x):
    x = x + 1
    gc.collect()
    return x * 2


def test_a_collection_is_a_break_and_no_more():
    graphs = []
    function = capture.optimize(lambda gm, inputs: graphs.append(gm) or gm.forward)(collects)
    assert torch.equal(function(torch.ones(2)), collects(torch.ones(2)))
    assert len(graphs) == 2

"""What is around a compiled frame: other calls with other objects, errors and their places, exceptions being handled."""

import traceback

import pytest
import torch
import tracework_capture as capture


@pytest.fixture(autouse=True)
def fresh():
    capture.reset()
    yield
    capture.reset()


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


def test_empty_cells_are_named_as_the_program_has_them():
    x = torch.ones(2)
    assert compiled(emptied_cell)(x)[1] == emptied_cell(x)[1]
    with pytest.raises(UnboundLocalError, match="local variable 'value'"):
        compiled(left_with_an_empty_cell)(x)


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
    with pytest.raises(KeyError) as caught:
        compiled(without_lines())(torch.ones(2))
    assert traceback.extract_tb(caught.value.__traceback__)[-1].lineno is None

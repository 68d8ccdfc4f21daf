"""Warnings of captured code: the same texts, categories, files and lines as of plain Python, and errors where filters make them ones."""

import functools
import warnings

import pytest
import torch
import tracework_capture as capture


def deep(x, level):
    warnings.warn("deep", stacklevel=level)
    return x + 1


def levels(x):
    return deep(deep(deep(x, 1), 2), 3)


def after_a_break(x):
    x = x + 1
    capture.graph_break()
    warnings.warn("after")
    return deep(x, 2)


def drawn(n):
    for i in range(n):
        warnings.warn("drawn", stacklevel=2)
        yield i


def in_a_generator(x):
    for i in drawn(2):
        x = x + i
    return x


def in_a_comprehension(x):
    return sum([deep(x, 2) for _ in range(2)])


def categories(x):
    warnings.warn(DeprecationWarning("old"), stacklevel=2)
    warnings.warn("old", DeprecationWarning, 2)
    warnings.warn(message="later", category=FutureWarning)
    warnings.warn(f"size {x.shape[0]}")
    return x * 2


def no_category(x):
    y = x + 1
    try:
        warnings.warn("x", int)
    except TypeError as error:
        return y + len(str(error))
    return y


def made_an_error(x):
    y = x + 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            warnings.warn("x")
        except UserWarning:
            return y * 2
    return y


PROGRAMS = [levels, after_a_break, in_a_generator, in_a_comprehension, categories, no_category, made_an_error]


def ran(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(torch.ones(2))
    return [(w.filename, w.lineno, w.category, str(w.message)) for w in caught], result


def plainly(gm, inputs):
    return gm.forward


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_equal_to_plain_python(function):
    wanted, result = ran(function)
    compiled = capture.optimize(plainly)(function)
    for _ in range(2):
        found, again = ran(compiled)
        assert found == wanted
        torch.testing.assert_close(again, result)


def caught_if_error(x):
    y = x + 1
    try:
        warnings.warn("x")
    except UserWarning:
        return y * 2
    return y


def test_filters_that_change_later():
    compiled = capture.optimize(plainly)(caught_if_error)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert compiled(torch.ones(1)).item() == 2
        warnings.simplefilter("error")
        assert compiled(torch.ones(1)).item() == 4


def test_once_for_each_place():
    compiled = capture.optimize(plainly)(levels)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        compiled(torch.ones(2))
        compiled(torch.ones(2))
    assert sorted({(w.filename, w.lineno) for w in caught}) == sorted((w.filename, w.lineno) for w in caught)


class Odd(ValueError):
    def __init__(self, number):
        super().__init__("odd")
        self.number = number


@functools.lru_cache
def halved(number):
    warnings.warn("halved", stacklevel=3)
    if number % 2:
        raise Odd(number)
    return number // 2


def halved_inside(number):
    return halved(number)


def remembered(x):
    return x * halved_inside(8)


def test_what_remembers_its_results_warns_where_it_is_called():
    wanted, _ = ran(remembered)
    halved.cache_clear()
    assert ran(capture.optimize(plainly)(remembered))[0] == wanted


def test_what_a_remembering_function_raises_keeps_its_attributes():
    def program(x):
        y = x + 1
        try:
            halved(3)
        except Odd as error:
            return y, error.number, error

    _, number, error = ran(capture.optimize(plainly)(program))[1]
    assert number == error.number == 3
    assert error.args == ("odd",)


def recorded(x):
    with warnings.catch_warnings(record=True) as taken:
        warnings.simplefilter("always")
        warnings.warn("one")
        before = len(taken)
        warnings.warn("two")
        return x + 1, before, [str(w.message) for w in taken]


def taken_up(x):
    taken, shown = [], warnings.showwarning
    warnings.showwarning = lambda message, *rest: taken.append(str(message))
    try:
        warnings.warn("shown")
        return x + 1, len(taken), taken
    finally:
        warnings.showwarning = shown


@pytest.mark.parametrize("function", [recorded, taken_up], ids=lambda f: f.__name__)
def test_what_takes_up_warnings_is_looked_at_in_the_same_frame(function):
    compiled = capture.optimize(plainly)(function)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for _ in range(2):
            (expected, *told), (found, *seen) = function(torch.ones(2)), compiled(torch.ones(2))
            assert torch.equal(found, expected) and seen == told


COUNTED = torch.zeros(())


def warned_before_a_write(x):
    warnings.warn("before", DeprecationWarning, stacklevel=2)
    COUNTED.add_(1)
    return x + 1


def test_what_follows_a_warning_that_is_an_error_is_not_done():
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(warned_before_a_write)

    def counts(action):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            if action == "error":
                with pytest.raises(DeprecationWarning, match="before"):
                    compiled(torch.ones(2))
            else:
                compiled(torch.ones(2))
        return COUNTED.item()

    COUNTED.zero_()
    assert [counts(action) for action in ("ignore", "error", "ignore", "error", "default")] == [1, 1, 2, 2, 3]

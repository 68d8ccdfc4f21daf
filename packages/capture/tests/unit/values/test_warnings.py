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


@pytest.mark.parametrize("action", ["always", "default", "once"])
def test_a_list_of_the_caller_takes_warnings_up_and_the_graph_is_one(action):
    compiled = capture.optimize(plainly, fullgraph=True)(levels)
    with warnings.catch_warnings(record=True) as taken:
        warnings.simplefilter(action)
        compiled(torch.ones(2))
    assert taken


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


def recorded(x):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.warn("first")
        y = deep(x, 2) * 2
        warnings.warn("old", DeprecationWarning)
    return y, found


def recorded_inside(x):
    with warnings.catch_warnings(record=True) as outer:
        warnings.simplefilter("always")
        warnings.warn("outer")
        with warnings.catch_warnings(record=True) as inner:
            warnings.warn("inner", FutureWarning)
            x = x * len(inner)
        warnings.warn("outer again")
    return x + len(outer), outer + inner


def ignored(x):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*noise", category=UserWarning)
        warnings.warn("only noise")
        y = x.sin()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("any")
    return y * 2, []


def made_an_error(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            warnings.warn("old", DeprecationWarning)
        except DeprecationWarning as error:
            return x + 1, [str(error)]


def of_some_modules(x):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", module=r".*test_warnings")
        warnings.warn("from here")
    return x + 1, found


def after_the_block(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = x + 1
    warnings.warn("after")
    return x * 2, []


def broken_in_the_block(x):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.warn("before")
        x = x + 1
        capture.graph_break()
        warnings.warn("after")
        x = x * 2
    return x, found


def said(found):
    return [str(each) for each in found]


BLOCKS = [recorded, recorded_inside, ignored, made_an_error, of_some_modules, after_the_block]


@pytest.mark.parametrize("function", [*BLOCKS, broken_in_the_block])
def test_blocks_that_catch_warnings(function):
    x = torch.ones(2)
    before = warnings.filters, list(warnings.filters), warnings.showwarning, warnings._showwarnmsg_impl
    with warnings.catch_warnings(record=True) as plain:
        warnings.simplefilter("always")
        expected, theirs = function(x)
    graphs = []
    run = capture.optimize(lambda gm, inputs: graphs.append(gm) or gm.forward, fullgraph=function in BLOCKS)(function)
    for _ in range(3):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found, ours = run(x)
        assert found.equal(expected) and said(ours) == said(theirs) and said(seen) == said(plain)
    assert (warnings.filters, list(warnings.filters), warnings.showwarning, warnings._showwarnmsg_impl) == before
    assert len(graphs) == (1 if function in BLOCKS else 2)

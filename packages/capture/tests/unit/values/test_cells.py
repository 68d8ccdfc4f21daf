"""Cells of closures: each call writes to the cells of the functions that it was given, and which of them are one cell is guarded."""

import torch
import tracework_capture as capture


def counters():
    count = 0

    def one():
        nonlocal count
        count += 1
        return count

    def ten():
        nonlocal count
        count += 10
        return count

    return one, ten


def compiled(function):
    return capture.optimize(lambda module, example_inputs: module.forward)(function)


def test_functions_of_one_code_have_cells_of_their_own():
    def step(count, x):
        count()
        return x + 1

    fast = compiled(step)
    functions = [counters()[0] for _ in range(3)]
    for function in functions:
        fast(function, torch.ones(2))
        fast(function, torch.ones(2))
    assert [function() for function in functions] == [3, 3, 3]


def through_arguments(wrap):
    def step(one, ten, x):
        one()
        ten()
        return one() + ten() + x

    step = wrap(step)
    (a, b), (c, d) = counters(), counters()
    results = [step(one, ten, torch.ones(1)).item() for one, ten in ((a, d), (a, b), (c, d), (a, d))]
    return results, a(), c()


def test_which_functions_share_a_cell_is_guarded():
    assert through_arguments(compiled) == through_arguments(lambda function: function)


def sharing_its_own():
    number = 1

    def add():
        nonlocal number
        number += 1

    def step(function, x):
        nonlocal number
        function()
        number *= 2
        return x + number

    return add, step


def through_free_variables(wrap):
    (add, step), (other_add, other_step) = sharing_its_own(), sharing_its_own()
    step, other_step = wrap(step), wrap(other_step)
    calls = ((add, step), (other_add, step), (other_add, other_step), (add, other_step), (add, step))
    return [step(add, torch.ones(1)).item() for add, step in calls]


def test_a_cell_shared_with_the_frame_itself_is_guarded():
    assert through_free_variables(compiled) == through_free_variables(lambda function: function)


def filled_and_emptied(wrap):
    def step(x):
        try:
            return x + number
        except NameError:
            return x

    step, results = wrap(step), []
    for round_ in range(4):
        results.append(step(torch.ones(1)).item())
        if round_ % 2 == 0:
            number = 7
        else:
            del number
    return results


def test_an_empty_cell_is_guarded():
    assert filled_and_emptied(compiled) == filled_and_emptied(lambda function: function) == [1, 8, 1, 8]


def reads_after(x):
    y = x + 1
    get = lambda: y
    numbers = [len(str(capture.graph_break())) + y for y in (1, 2)]
    return get(), y, numbers


def closes_in_it(x):
    y = x + 1
    get = lambda: y
    functions = [(capture.graph_break(), lambda: y)[1] for y in (1, 2)]
    x = x * 2
    capture.graph_break()
    return get(), y, [function() for function in functions], x


def closes_after(x):
    y = x + 1
    get = lambda: y
    capture.graph_break()
    functions = [lambda: y for y in (1, 2, 3)]
    x = x * 2
    capture.graph_break()
    return get(), y, [function() for function in functions], x


def two_in_a_row(x):
    y = x + 1
    get = lambda: y
    capture.graph_break()
    numbers = [y for y in (1, 2)]
    numbers += [y for y in ((capture.graph_break(), 3)[1],)]
    x = x * 2
    capture.graph_break()
    return get(), y, numbers, x


def closes_over_an_argument(x, scale):
    def first():
        return x * scale

    capture.graph_break()

    def second():
        return x + scale

    scale = scale + 1
    capture.graph_break()
    return first(), second(), scale


def test_breaks_around_comprehensions_that_name_a_cell():
    x = torch.arange(3.0)
    for function in (reads_after, closes_in_it, closes_after, two_in_a_row):
        torch.testing.assert_close(compiled(function)(x), function(x))
    torch.testing.assert_close(compiled(closes_over_an_argument)(x, 2), closes_over_an_argument(x, 2))


def test_closure_of_a_function_made_in_the_frame():
    def fn(x):
        y, z = x + 1, x + 2

        def inner():
            return y, z

        cells = dict(zip(inner.__code__.co_freevars, inner.__closure__))
        y = x * 3
        return cells["y"].cell_contents * 2 + cells["z"].cell_contents, (lambda: 1).__closure__, inner.__closure__ is None

    x = torch.arange(3.0)
    found, expected = capture.optimize(lambda gm, example_inputs: gm.forward, fullgraph=True)(fn)(x), fn(x)
    assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:] == (None, False)

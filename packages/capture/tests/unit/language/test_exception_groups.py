"""Exception groups and `except*` in captured functions: what is handled, what is raised on, with which parts, context and cause."""

import pytest
import torch
import tracework_capture as capture


class Told(ExceptionGroup):
    """A group that says how parts of it are made."""

    def derive(self, exceptions):
        return Told(self.message + "'", exceptions)


class Coded(ValueError):
    """A ValueError with an __init__ of its own."""

    def __init__(self, code):
        super().__init__(code)
        self.code = code


def nested():
    return ExceptionGroup(
        "outer", [ValueError(1), ExceptionGroup("inner", [KeyError("k"), Coded(2), TypeError("t")]), OSError(3)]
    )


def handles_all(x):
    y, seen = x + 1, []
    try:
        raise nested()
    except* ValueError as group:
        seen.append(group)
        y = y * 2
    except* (KeyError, TypeError):
        y = y * 3
    except* Exception as group:
        seen.append(group)
        y = y * 5
    else:
        y = y * 7
    finally:
        y = y + 0.5
    return y, seen


def leaves_some(x):
    y = x + 1
    try:
        try:
            raise nested()
        except* ValueError:
            y = y * 2
    except ExceptionGroup as rest:
        return y, rest, rest.message, rest.exceptions
    return None


def clauses_without_a_match(x):
    y, group, seen = x + 1, nested(), []
    try:
        raise group
    except* ArithmeticError:
        y = y * 2
    except* Exception as rest:
        seen += [rest, rest is group, rest.exceptions[1] is group.exceptions[1]]
    return y, seen


def raises_again(x):
    y = x + 1
    try:
        try:
            raise nested()
        except* KeyError:
            y = y * 2
            raise
        except* TypeError:
            y = y * 3
    except ExceptionGroup as rest:
        return y, rest
    return None


def raises_anew(x):
    y = x + 1
    try:
        try:
            raise nested()
        except* KeyError as group:
            raise RuntimeError(len(group.exceptions)) from group
        except* ValueError as group:
            raise group
        except* TypeError:
            raise
    except ExceptionGroup as rest:
        return y, rest
    return None


def raise_again_in_a_call():
    raise  # noqa: PLE0704 - what the caller handles


def raises_again_in_a_call(x):
    y = x + 1
    try:
        try:
            raise nested()
        except* KeyError:
            raise_again_in_a_call()
    except ExceptionGroup as rest:
        return y, rest
    return None


def of_a_single_exception(x):
    y, seen = x + 1, None
    try:
        raise ValueError("alone")
    except* TypeError:
        y = y * 2
    except* ValueError as group:
        seen = group
    return y, seen


def raises_the_group_of_a_single_one(x):
    y, seen = x + 1, []
    try:
        try:
            raise ValueError("alone")
        except* ValueError as group:
            seen.append(group)
            raise group
    except ExceptionGroup as group:
        return y, group is seen[0], group
    return None


def raises_the_single_one_on(x):
    y = x + 1
    try:
        try:
            raise KeyError("alone")
        except* ValueError:
            y = y * 2
    except KeyError as error:
        return y, error


def raises_out_of_it(x):
    y = x + 1
    try:
        raise nested()
    except* ValueError:
        y = y * 2
    return y


def without_an_exception(x):
    y = x + 1
    try:
        y = y * 2
    except* ValueError:
        y = y * 3
    else:
        y = y + 1
    return y


def breaks_in_a_clause(x):
    y = x + 1
    try:
        try:
            raise nested()
        except* ValueError:
            y = y * 2
            capture.graph_break()
            y = y + 1
        except* KeyError:
            y = y * 3
            raise
    except ExceptionGroup as rest:
        return y, rest
    return None


def derives(x):
    y = x + 1
    try:
        try:
            raise Told("told", [ValueError(1), KeyError(2)])
        except* ValueError as group:
            seen = group
    except Told as rest:
        return y, seen, rest
    return None


def splits(x):
    group = nested()
    parts = group.split(ValueError)
    return x + 1, parts, group.subgroup(lambda e: isinstance(e, OSError)), group.subgroup(MemoryError), str(group)


def base_exceptions(x):
    y = x + 1
    made = BaseExceptionGroup("all ordinary", [ValueError(1)]), BaseExceptionGroup("not", [KeyboardInterrupt(), ValueError(2)])
    try:
        try:
            raise made[1]
        except* ValueError:
            y = y * 2
    except BaseExceptionGroup as rest:
        return y, made, rest


def catches_a_group_class(x):
    y = x + 1
    try:
        try:
            raise nested()
        except* ExceptionGroup:
            y = y * 2
    except TypeError as error:
        return y, str(error)
    return None


def wrong_arguments(x):
    y, seen = x + 1, []
    for arguments in (("empty", []), ("no exception", [1]), (1, [ValueError(1)]), ("bases", [KeyboardInterrupt()])):
        try:
            ExceptionGroup(*arguments)
        except (TypeError, ValueError) as error:
            seen.append((type(error), str(error)))
    return y, seen


def changed_list(x):
    items = [ValueError(1)]
    group = ExceptionGroup("g", items)
    items.append(KeyError(2))
    return x + 1, group, items


ONE_GRAPH = (
    handles_all,
    leaves_some,
    clauses_without_a_match,
    raises_again,
    raises_anew,
    raises_again_in_a_call,
    of_a_single_exception,
    raises_the_group_of_a_single_one,
    raises_the_single_one_on,
    without_an_exception,
    derives,
    splits,
    base_exceptions,
    catches_a_group_class,
    changed_list,
)
WITH_BREAKS = (raises_out_of_it, breaks_in_a_clause, wrong_arguments)


def facts(value, depth=6):
    """What can be compared of a result."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [type(value), *[facts(item, depth) for item in value]]
    if not isinstance(value, BaseException) or not depth:
        return value if not isinstance(value, BaseException) else type(value)
    links = [facts(link, depth - 1) for link in (value.__cause__, value.__context__)]
    parts = facts(getattr(value, "exceptions", None), depth - 1)
    return [type(value), facts(value.args, depth - 1), parts, links, value.__suppress_context__, value.__traceback__ is not None]


def outcome(function):
    try:
        return facts(function(torch.ones(3)))
    except BaseExceptionGroup as error:
        return facts(error)


@pytest.mark.parametrize("function", ONE_GRAPH + WITH_BREAKS, ids=lambda f: f.__name__)
def test_groups_are_as_in_plain_python(function):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    compiled = capture.optimize(backend)(function)
    expected = outcome(function)
    for _ in range(2):
        assert outcome(compiled) == expected
    if function in ONE_GRAPH:
        assert len(graphs) == 1

"""Each construct, captured and run, against plain Python."""

import typing

import pytest
import torch
from interp_harness import Runner, check

X = torch.arange(6.0).reshape(2, 3)
COUNTER = 0


def plain(*values):
    """Runs as plain Python: the graph breaks at its call."""
    print(*values)


plain.__tracework_disable__ = True


def test_straight_line():
    def f(x, y):
        z = x + y * 2
        return z, (x, [z, 1], {"a": z})

    check(f, X.clone(), X.clone(), graphs=1, skips=0)


def test_input_returned_is_the_same_object():
    def f(x):
        y = x + 1
        return x, y

    x = X.clone()
    assert Runner().call(f, x)[0] is x


def test_inlined_calls_defaults_and_keywords():
    def g(a, b=2, *rest, c, d=4, **more):
        return a * b + c - d + len(rest) + len(more)

    def f(x):
        args, kwargs = (x, 3, 5, 6), {"c": 1, "e": 2}
        return g(x, c=1) + g(*args, **kwargs)

    check(f, X.clone(), graphs=1, skips=0)


def test_closures_and_nonlocal():
    def f(x):
        n = 0

        def bump():
            nonlocal n
            n += 1
            return x * n

        return bump() + bump(), n

    check(f, X.clone(), graphs=1, skips=0)


def test_free_variable_written():
    total = 0

    def f(x):
        nonlocal total
        total += 1
        return x + total

    runner = Runner()
    torch.testing.assert_close(runner.call(f, X), X + 1)
    assert total == 1
    torch.testing.assert_close(runner.call(f, X), X + 2)
    assert total == 2


def test_global_written():
    def f(x):
        global COUNTER
        COUNTER += 1
        return x * COUNTER

    before = COUNTER
    Runner().call(f, X)
    assert COUNTER == before + 1


def test_loops_and_comprehensions():
    def f(x, n):
        out = []
        for i in range(n):
            if i == 1:
                continue
            out.append(x + i)
            if i == 3:
                break
        else:
            out.append(x)
        return out, [y * 2 for y in out], {i: y for i, y in enumerate(out)} if n > 100 else None

    check(f, X.clone(), 6, graphs=1, skips=0)
    check(f, X.clone(), 2, graphs=1, skips=0)


def test_unpacking():
    def f(x):
        a, (b, *c) = x, (x + 1, x + 2, x + 3)
        return a + b, c

    check(f, X.clone(), graphs=1, skips=0)


UserId = typing.NewType("UserId", int)


def test_new_types():
    def f(x):
        return x + UserId(3), UserId(x), UserId.__supertype__

    check(f, X.clone(), graphs=1, skips=0)


class FromTheStart:
    """An iterator that begins anew whenever it is asked for one."""

    def __init__(self, last):
        self.last, self.asked = last, []

    def __iter__(self):
        self.place = 0
        self.asked.append("iter")
        return self

    def __next__(self):
        self.asked.append(self.place)
        if self.place == self.last:
            raise StopIteration
        self.place += 1
        return self.place


@pytest.mark.parametrize("last", range(5))
def test_what_is_left_of_an_iterator_is_what_its_own_iterator_gives(last):
    def f(x):
        numbers, found = [FromTheStart(last) for _ in range(3)], []
        try:
            a, *b = numbers[0]
            found += [a, b]
            a, *b, c = numbers[1]
            found += [a, b, c]
            *a, b, c = numbers[2]
            found += [a, b, c]
        except ValueError as error:
            found.append(error.args)
        return x + 1, found, [n.asked for n in numbers]

    check(f, X.clone(), graphs=1, skips=0)


def test_try_except_inside():
    def f(x):
        try:
            if x.shape[0] == 2:
                raise ValueError("two")
        except ValueError:
            x = x + 1
        finally:
            x = x * 2
        return x

    check(f, X.clone(), graphs=1, skips=0)


def test_generators_inline():
    def gen(x, n):
        for i in range(n):
            got = yield x + i  # noqa: F841
        return None

    def f(x):
        def outer():
            yield from gen(x, 2)
            yield x * 5

        total = x
        for y in outer():
            total = total + y
        return total

    check(f, X.clone(), graphs=1, skips=0)


def test_return_function():
    def f(x):
        y = x + 1

        def g(z, k=2, *, w=y):
            return y + z * k + w

        return g

    g = Runner().call(f, X)
    torch.testing.assert_close(g(X), f(X)(X))


def test_match():
    def f(x, command):
        match command:
            case ["add", n]:
                return x + n
            case {"mul": n}:
                return x * n
            case _:
                return x

    check(f, X.clone(), ["add", 2], graphs=1)
    check(f, X.clone(), {"mul": 3}, graphs=1)
    check(f, X.clone(), 3)


def test_break_at_print(capsys):
    def f(x):
        y = x + 1
        plain("hi", y.sum().shape)
        return y * 2

    check(f, X.clone(), graphs=2, skips=0)
    assert capsys.readouterr().out == "hi torch.Size([])\n" * 2


def test_break_on_data_dependent_branch():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            z = y + 1
        else:
            z = y
        w = z * 3
        return w + 1, y, z  # longer than what 3.12 repeats in both arms, where each would give a new tensor

    check(f, X.clone(), graphs=2, skips=0)
    check(f, -X.clone(), graphs=2, skips=0)


def test_break_with_stack_and_cells():
    def f(x):
        scale = 2

        def g(v):
            return v * scale

        y = g(x) + (plain("a") or x.sum())
        scale = 3
        return g(y)

    check(f, X.clone(), skips=0)


def test_break_in_try():
    def f(x):
        y = x + 1
        try:
            y = y + 1
            int("nope" + str(y.dtype))
            y = y + 100
        except ValueError:
            y = y * 2
        return y + 1

    check(f, X.clone())


def test_break_in_nested_call():
    def g(x):
        plain("inner")
        return x + 1

    def f(x):
        return g(x * 2) * 3

    check(f, X.clone(), graphs=2)


def test_break_in_loop_runs_plainly():
    def f(x):
        for i in range(3):
            x = x + 1
            plain(i)
        return x

    check(f, X.clone(), skips=1)


def test_exception_leaves_the_frame():
    def f(x):
        y = x + 1  # noqa: F841
        raise ValueError("bad")

    check(f, X.clone())


def test_list_argument_changed():
    def f(x, items):
        items.append(x + 1)
        items[0] = x
        return x * 2

    check(f, X.clone(), [1, 2], graphs=1)


def test_fullgraph_names_the_place():
    from tracework_capture.errors import Unsupported

    def f(x):
        y = x + 1
        plain("here")
        return y

    with pytest.raises(Unsupported) as error:
        Runner(fullgraph=True).call(f, X)
    text = str(error.value)
    assert "test_constructs.py" in text and 'plain("here")' in text and "^^^" in text and "try:" in text


def test_result_of_a_break_that_is_not_used_is_not_guarded():
    def f(x):
        y = x + 1
        t = plain()  # noqa: F841
        plain("drop")
        return y * 2

    runner = check(f, X.clone(), skips=0)
    assert not [g for g in runner.graphs[-1].guards if "stack" in str(g.source)]

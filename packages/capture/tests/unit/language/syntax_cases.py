"""Statements and expressions."""

import collections
import contextlib
import functools
from dataclasses import dataclass

from cases import case

COUNT = 0


@dataclass
class Point:
    x: object
    y: object = 2


@case
def star_unpacking(x):
    a, *b, c = x, 1, 2, x + 1
    (d, *e), f = b + [3], [*b, *"ab"]
    return a + c + d, e, f, {**{"k": 1}, "l": x}, {*b}


@case
def walrus(x):
    if (n := x.shape[0]) > 1 and (y := x + n) is not None:
        return y * n, [m := n, m + 1]
    return x


def describe(value):
    match value:
        case None:
            return "none"
        case 1 | 2:
            return "small"
        case int(n) if n > 100:
            return f"large {n}"
        case str() as s:
            return s
        case [a, b]:
            return ("pair", a, b)
        case [first, *rest]:
            return (first, rest)
        case {"k": v, **others}:
            return v, others
        case Point(x=0, y=y):
            return "on y", y
        case Point(x, y):
            return x, y
        case _:
            return "other"


@case
def match_statement(x):
    return [describe(v) for v in (None, 1, 500, "s", [1, 2], (1, 2, 3), {"k": 3, "l": 4}, Point(0, 1), Point(5), 5.0)], x + 1


@case
def for_else(x):
    for i in range(3):
        if i == 5:
            break
    else:
        x = x + 1
    while x.dim() < 4:
        x = x.unsqueeze(0)
    else:
        x = x * 2
    return x


@case
def try_except_else_finally(x):
    seen = []
    for value in ("1", "a", None):
        try:
            x = x + int(value)
        except (ValueError, ArithmeticError) as error:
            seen.append(type(error).__name__)
        except TypeError:
            seen.append("type")
        else:
            seen.append("else")
        finally:
            seen.append("finally")
    return x, seen


@case
def raise_from(x):
    try:
        try:
            {}["k"]
        except KeyError as error:
            raise ValueError("no k") from error
    except ValueError as error:
        return x + 1, str(error), type(error.__cause__).__name__, error.__suppress_context__
    return x


@case
def implicit_context(x):
    def fail():
        raise TypeError("second")

    try:
        try:
            raise KeyError("first")
        except KeyError:
            fail()
    except TypeError as error:
        return x + 1, type(error.__context__).__name__, error.__context__.args, error.__cause__
    return x


@case
def a_ring_of_contexts_that_the_program_made(x):
    first, second, third = ValueError("first"), ValueError("second"), ValueError("third")
    second.__context__, third.__context__ = third, second
    try:
        try:
            raise second
        except ValueError:
            raise first  # noqa: B904
    except ValueError as error:
        return x + 1, error.__context__ is second, second.__context__ is third, third.__context__ is second


@case
def raise_again_from_a_function(x):
    def again():
        raise  # noqa: PLE0704

    try:
        try:
            raise KeyError("first")
        except KeyError:
            again()
    except KeyError as error:
        return x + 1, error.args
    return x


@case
def return_in_finally(x):
    def f(y):
        try:
            return y + 1
        finally:
            COLLECTED.append("left")

    return f(x)


COLLECTED = []


@case
def closures(x):
    total = 0

    def add(y, *, scale=2):
        nonlocal total
        total += 1
        return y * scale + total

    def twice(y):
        return add(add(y), scale=3)

    return twice(x), total


@case(graphs=2)  # the global is a constant of the first graph, and an input of the second
def global_statement(x):
    global COUNT
    COUNT += 1
    return x + COUNT


@case
def every_argument_form(x):
    def f(a, /, b, *args, c, d=4, **kwargs):
        return a, b, args, c, d, kwargs

    return f(x, 1, 2, 3, c=5), f(*[x, 1], **{"c": 2, "a": 3}), f(x + 1, b=1, c=2, d=3, e=4)


@case
def comprehensions(x):
    y = x + 1
    return (
        [y * i for i in range(3) if i],
        {i: y for i in range(2)},
        {i % 2 for i in range(5)},
        sum(i for i in range(3)),
        [[i * j for i in range(2)] for j in range(2)],
    )


def countdown(n):
    while n:
        got = yield n
        n = n - 1 if got is None else got
    return "done"


def delegating(n, log):
    try:
        log.append((yield from countdown(n)))
    finally:
        log.append("closed")


@case
def generators(x):
    log = []
    items = [x * i for i in delegating(3, log)]
    one = countdown(5)
    return items, log, next(one), one.send(2), list(one)


@case
def generator_that_throws(x):
    def gen():
        try:
            yield 1
        except ValueError as error:
            yield str(error)

    g = gen()
    next(g)
    text = g.throw(ValueError("inside"))
    return x + 1, text, list(g)


@case
def generator_return_value(x):
    g = countdown(1)
    next(g)
    try:
        next(g)
    except StopIteration as stop:
        return x + 1, stop.value
    return x


@case
def infinite_generator(x):
    def naturals():
        n = 0
        while True:
            yield n
            n += 1

    g = naturals()
    a, b = next(g), next(g)
    try:
        c, d = naturals()
    except ValueError as error:
        return x + a + b, str(error)
    return x


@contextlib.contextmanager
def manager(log):
    log.append("in")
    try:
        yield log
    except KeyError:
        log.append("caught")
    finally:
        log.append("out")


class Manager:
    def __init__(self):
        self.seen = []

    def __enter__(self):
        self.seen.append("enter")
        return self

    def __exit__(self, kind, value, trace):
        self.seen.append((kind and kind.__name__, trace is None))
        return kind is ZeroDivisionError


@case
def with_statement(x):
    log, own = [], Manager()
    with manager(log) as inner, own:
        y = x + len(inner)
    with own:
        y = y + 1 // 0
    with manager(log):
        raise KeyError("k")
    return y, log, own.seen


@case
def conditional_and_boolean(x):
    n = x.shape[0]
    return (x if n > 1 else x + 1), n and x + 2, not n, 0 or x * 2, 1 < n < 5, None is not n


@case
def chained_assignment_and_augmented(x):
    a = b = [1]
    a += [2]
    c = x + 1
    c *= 2
    d = {"n": 1}
    d["n"] += 2
    return a is b, a, c, d


@case
def slices(x):
    items = list(range(10))
    items[2:4] = "ab"
    del items[::3]
    return items, items[::-1], x[..., 1], x[:, None], "abcdef"[-3:], (1, 2, 3)[:2]


@case
def deletion(x):
    y, d = x + 1, {"a": 1, "b": x}
    del d["a"]
    z = y * 2
    del y
    return z, d


@case
def assertion(x):
    assert x.dim() == 2, "two dimensions"
    try:
        assert not x.dim(), f"{x.dim()} dimensions"
    except AssertionError as error:
        return x + 1, str(error)
    return x


@case
def lambdas(x):
    scale = (lambda k: lambda y, *a, b=2: y * k + b + len(a))(3)
    return scale(x), scale(x, 1, 2, b=0)


@case
def f_strings(x):
    n, name = 3, "w"
    return x + 1, f"{n:>4}|{name!r}|{n=}|{1.5:.3f}|{name:^{n + 2}}|{{}}|{x.shape}|{'nested' + f'{n}'}"


@case
def exception_group(x):
    y = x + 1
    try:
        raise ExceptionGroup("all", [ValueError(1), TypeError(2)])
    except* ValueError:
        y = y * 2
    except* TypeError:
        y = y * 3
    return y


@case
def annotations(x):
    y: int = 1

    def f(a: int, b: list = None) -> float:
        return a

    return f(x + y)


@case(graphs=0)  # the names must be those of the function's own frame
def locals_of_the_frame(x):
    y = x + 1
    return sorted(locals()), y


TABLE: dict = {}
exec("LEVEL = 1\ndef get(): return LEVEL\ndef set(v):\n global LEVEL\n LEVEL = v\ndef drop():\n global LEVEL\n del LEVEL", TABLE)
GET, SET, DROP = TABLE["get"], TABLE["set"], TABLE["drop"]


@case
def globals_are_also_a_dict(x):
    TABLE["LEVEL"] = 2
    seen = [GET()]
    SET(3)
    seen += [GET(), TABLE["LEVEL"]]
    DROP()
    seen.append("LEVEL" in TABLE)
    try:
        GET()
    except NameError as error:
        seen.append(str(error))
    SET(4)
    return x + 1, seen, TABLE["LEVEL"]


@case  # the graph ends at SET's write, which is in the dict before it is looked at
def globals_are_looked_at_as_a_dict(x):
    y = x + 1
    SET(5)
    return y * 2, TABLE["LEVEL"], GET()


@case
def cell_in_a_local(x):
    cell = (lambda: x).__closure__[0]
    held = cell
    return held.cell_contents + 1, [held for _ in range(2)][0] is cell


def takes_two(a, b):
    return a, b


takes_two.__defaults__ = (1, 2, 3)


def takes_any(*args):
    return args


takes_any.__defaults__ = (1,)


@case
def defaults_of_a_function_of_more_parameters(x):
    return takes_two(), takes_two(x + 1), takes_two(b=x), takes_any(), takes_any(x)


class Mapping:
    def __init__(self, *keys):
        self.names = keys

    def keys(self):
        if not self.names:
            raise AttributeError("keys")
        return self.names

    def __getitem__(self, key):
        if key not in self.names:
            raise IndexError(key)
        return key


TWICE = {"y": 0}
STARRED = [
    lambda v, x: [*v],
    lambda v, x: (x, *v),
    lambda v, x: {1, *v},
    lambda v, x: [1].__iadd__(v),
    lambda v, x: max(*v),
    lambda v, x: takes_any(*v),
    lambda v, x: {"a": x, **v},
    lambda v, x: dict(**v),
    lambda v, x: Point(**v),
    lambda v, x: Point(1, **TWICE, **{"y": v}),
    lambda v, x: Point(1).__eq__(**TWICE, **{"y": v}),
    lambda v, x: functools.partial(takes_any, 1).func(*v),
]


@case
def messages_about_stars(x):
    texts = []
    for value in (None, x.shape[0], 1.5, Mapping(), Mapping("x", "y")):
        for starred in STARRED:
            try:
                starred(value, x)
            except (TypeError, AttributeError, RuntimeError) as error:
                texts.append(str(error))
    return texts, x + 1


class KeysOfItsOwn(dict):
    def keys(self):
        return ["other"]

    def __getitem__(self, key):
        return 5


class IteratesOtherwise(KeysOfItsOwn):
    def __iter__(self):
        return iter(["third"])


class OrderedKeysOfItsOwn(collections.OrderedDict):
    def keys(self):
        return ["other"]

    def __getitem__(self, key):
        return 5


MAPPINGS = KeysOfItsOwn(a=1), IteratesOtherwise(a=1), OrderedKeysOfItsOwn(a=1)


@case
def dicts_with_keys_of_their_own_behind_stars(x):
    found = []
    for mapping in (*MAPPINGS, KeysOfItsOwn(a=1), IteratesOtherwise(a=1), OrderedKeysOfItsOwn(a=1)):
        updated = {"k": 1}
        updated.update(mapping)
        found += [{**mapping, "k": 1}, dict(**mapping), dict(mapping), updated, (lambda **given: given)(**mapping)]
    return found, x + 1

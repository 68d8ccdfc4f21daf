"""Instances of the program's own subclasses of int, float, str, bytes, tuple, set and frozenset: one graph, and what plain Python gives."""

import collections
import copy
import functools
import math
import operator
import typing

import pytest
import torch
import tracework_capture as capture
from harness import check

X = torch.arange(6.0)


class Dim(int):
    def __new__(cls, value, name="n"):
        self = super().__new__(cls, value)
        self.name = name
        return self

    def double(self):
        return self * 2


class Level(int):
    def __add__(self, other):
        return Level(int(self) + int(other))

    def __radd__(self, other):
        return "from the right"

    def __repr__(self):
        return f"Level<{int(self)}>"

    def __format__(self, spec):
        return f"as {spec}"


class Half(int):
    __slots__ = ()

    @property
    def half(self):
        return self // 2


class Metres(float):
    unit = "m"


class Money(float):
    def __new__(cls, value, currency):
        self = float.__new__(cls, value)
        self.currency = currency
        return self

    def __mul__(self, other):
        return Money(super().__mul__(other), self.currency)


class Name(str):
    def shout(self):
        return self.upper() + "!"


class Quoted(str):
    def __repr__(self):
        return "quoted"


class EqualToAll(str):
    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


class Raw(bytes):
    pass


class Pair(collections.namedtuple("Pair", "a b")):
    def total(self):
        return self.a + self.b

    @classmethod
    def zero(cls):
        return cls(0, 0)


class Marked(Pair):
    def __init__(self, a, b):
        self.extra = a


class Row(tuple):
    @property
    def first(self):
        return self[0]


class Bag(set):
    def __init__(self, *members):
        super().__init__(*members)
        self.made_by_init = True


class Frozen(frozenset):
    pass


class Either(set):
    def __or__(self, other):
        return "either"


def arithmetic(x, d):
    infix = d + 1, 1 + d, d - 1, d // 2, d % 2, d**2, 2**d, d & 3, d | 1, d ^ 1, d << 1, d >> 1
    return x * d, d * x, infix, -d, +d, ~d, abs(d), divmod(d, 2), divmod(7, d), d.double(), d / 2


def asked_of_ints(x, d):
    texts = str(d), repr(d), f"{d}", f"{d:03d}", "%d" % d, "%s" % d, "{:>4}".format(d)  # noqa: UP031, UP032
    numbers = int(d), float(d), d.real, d.bit_length(), operator.index(d), math.sqrt(d), round(d), bool(d)
    return x + 1, texts, numbers, d == 3, 3 == d, d < 4, 4 > d, isinstance(d, int), type(d), d.name, hash(d) == hash(int(d))


def taken_as_ints(x, d):
    return x[:d], x[d], x.view(2, 3).repeat(d, 1), torch.zeros(d), [5, 6, 7, 8][d], list(range(d)), [0] * d, "ab" * d, {3: "c"}[d]


def kept(x, d):
    d.note = 3
    return x + d.note, [d], {d: 1}, max(d, 2), min(d, 10), sorted([9, d, 1]), sum([d, d]), d or 1


def made_ints(x):
    d = Dim(3, "k")
    e = d
    e += 1
    return x * d, d, d.name, Dim(d, "z").name, Dim("12"), Half(5).half, type(e), d is d, [Dim(1)].count(1), Dim(1) in (1, 2)


def own_operators(x):
    return Level(2) + 3, 3 + Level(2), Level(4) - 1, repr(Level(5)), str(Level(5)), f"{Level(5):w}", x + 1


def floats(x, f):
    texts = str(f), f"{f:.2f}", f.hex(), f.unit
    return x * f, f + 1, 1 - f, f / 3, f == 1.5, f < 2, int(f), round(f, 1), math.floor(f), f.is_integer(), texts, f


def made_floats(x):
    m = Money(1.5, "EUR") * 2
    return x * m, m, m.currency, max(m, Money(0.5, "USD")).currency, Metres("2.5"), abs(Metres(-1)), torch.full((2,), Metres(3))


def texts(x, s):
    tests = s == "ab", "ab" == s, s != "b", s.startswith("a"), "a" in s, s < "b", isinstance(s, str), type(s) is str
    parts = s[0], s[::-1], list(s), s.split("a"), s.encode(), s.join(["x", "y"]), ",".join([s, "z"])
    return x + len(s), s + "c", "c" + s, s * 2, s.shout(), f"{s}!", "%s" % s, str(s), repr(s), tests, parts, {s: 1}["ab"]  # noqa: UP031


def made_texts(x):
    return (
        x + len(Name("abc")),
        Name("a").shout(),
        Name("a") + "d",
        Name(5),
        Name(),
        str(Quoted("a")),
        repr(Quoted("a")),
        Name("x") or 1,
    )


def own_equality(x, s):
    return x + 1, s == "q", "q" == s


def some_bytes(x, b):
    return x + 1, b + b"c", b[0], len(b), list(b), b == b"ab", b.hex(), Raw(b"ab") + b


def records(x, p):
    p.note = 5
    return x + p.note, p.total(), p._replace(b=3), p._asdict(), Pair.zero(), p[0], [*p], hash(Pair(1, 2)) == hash((1, 2)), p == p


def made_records(x):
    m = Marked(x, 1)
    return (
        m.extra + 1,
        m,
        vars(m),
        repr(Pair(1, 2)),
        f"{Pair(1, 2)}",
        Pair(1, 2) < (1, 3),
        {Pair(1, 2): 3}[1, 2],
        Pair(1, 2) + (3,),
    )


def records_under_transforms(x):
    mapped = torch.vmap(lambda p: p.a * p.b)(Pair(x, x + 1))
    return mapped, torch.func.grad(lambda p: (p.a * p.b).sum())(Pair(x, x + 1)), torch.stack(Pair(x, x))


def a_field_is_not_set(x):
    try:
        Pair(1, 2).a = 4
    except AttributeError as error:
        return x + 1, str(error)


def tuples(x):
    r = Row((1, 2))
    compared = r == (1, 2), (1, 2) == r, r != (1,), r < (2,), r <= Row((1, 2)), hash(r) == hash((1, 2)), {r: 3}[1, 2]
    return x + r.first, compared, r + (3,), r * 2, r.index(1), sorted(Row((2, 1))), str(r), r


def sets_of_sets(x):
    a, b = Bag([1, 2]), Bag([2, 3])
    operators = a | b, a & b, a - b, a ^ b, a - a, a & a, {4} | a, {4} - a, frozenset([1]) | a, a | {2: 3}.keys()
    methods = (
        a.copy(),
        a.union(b),
        a.union(b, [7]),
        a.union(),
        a.difference([1]),
        a.intersection([1]),
        a.symmetric_difference([9]),
    )
    sizes = Bag(range(20)) - {3}, Bag(range(20)).difference(Bag([1])), Bag([1]) - set(range(20))
    marked = [hasattr(made, "made_by_init") for made in (a, a | b, a.copy())]
    return x + len(a | b), operators, methods, sizes, marked, a == b, a == Bag([1, 2]), a <= b, a.isdisjoint(b), Either([1]) | b


def sets_in_place(x):
    a = Bag([1])
    b = a
    b |= {2, 3}
    b -= Bag([1])
    b &= {2, 3}
    b ^= {8}
    a.update([4])
    c = Frozen([1])
    return x + 1, a, b is a, c | {4}, {4} | c, c - {1}, c & {1}, c ^ {3}, hash(c) == hash(frozenset([1])), {c: 1}[frozenset([1])]


def existing_sets(x, s):
    made = s | {9}
    made.add(3)
    s.add(7)
    return x + len(made), made, sorted(made)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        *[(f, (Dim(3, "rows"),)) for f in (arithmetic, asked_of_ints, taken_as_ints, kept)],
        *[(f, (Metres(1.5),)) for f in (floats,)],
        *[(f, (Name("ab"),)) for f in (texts,)],
        (own_equality, (EqualToAll("ab"),)),
        (some_bytes, (Raw(b"ab"),)),
        *[(records, (Pair(X, 2),)), (records, (Marked(X, 2),))],
        *[(f, ()) for f in (made_ints, own_operators, made_floats, made_texts, made_records, records_under_transforms, tuples)],
        *[(f, ()) for f in (a_field_is_not_set, sets_of_sets, sets_in_place)],
        (existing_sets, (Bag([1, 5]),)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_they_do_what_they_do_in_plain_python(function, args):
    check(function, X.clone(), *args)


def test_a_number_that_changes_is_an_input():
    def scaled(x, d):
        return x * d

    graphs = []
    compiled = capture.optimize(lambda gm, example_inputs: graphs.append(gm) or gm.forward, fullgraph=True)(scaled)
    for number in range(2, 7):
        torch.testing.assert_close(compiled(X, Dim(number)), X * number)
    assert len(graphs) == 2


def test_another_text_is_noticed():
    def sized(x, s):
        return x + len(s)

    compiled = capture.optimize(lambda gm, example_inputs: gm.forward, fullgraph=True)(sized)
    for text in ("a", "bc", "", "def"):
        torch.testing.assert_close(compiled(X, Name(text)), X + len(text))


@pytest.mark.parametrize("make", [lambda: Dim(1) + "a", lambda: Name("a") + 1], ids=["sum", "text"])
def test_errors_name_the_class(make):
    def failing(x):
        try:
            return make()
        except TypeError as error:
            return x + 1, str(error)

    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(failing)
    assert compiled(X)[1] == failing(X)[1]


@pytest.mark.parametrize("make", [lambda: Dim(3), lambda: Name("a")], ids=["int", "str"])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda a: a.__reduce_ex__(4)], ids=["copy", "deepcopy", "reduce"])
def test_copies_are_of_the_class(make, copied):
    """They were of the built-in class, without the attributes."""

    def fn(x, value):
        value.note = "kept"
        return x + 1, copied(value)

    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(fn)
    (_, expected), (_, found) = fn(X, make()), compiled(X, make())
    assert found == expected and type(found) is type(expected)
    assert getattr(found, "note", None) == getattr(expected, "note", None)


class Settings(dict):
    def __init__(self, *args, **given):
        super().__init__(*args, **given)
        self.made = True


class Counted(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.stores = getattr(self, "stores", 0) + 1


class Logged(list):
    def append(self, value):
        super().append(value)
        self.appends = getattr(self, "appends", 0) + 1


class Groups(collections.defaultdict):
    def __init__(self, factory=None, *args):
        super().__init__(factory, *args)
        self.made = True


class Ordered(collections.OrderedDict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value)


class Window(collections.deque):
    pass


def parts(value):
    """Class, contents and attributes."""
    inside = list(value.items()) if isinstance(value, dict) else list(value) if isinstance(value, list) else value
    return type(value).__name__, inside, sorted(vars(value).items())


@pytest.mark.parametrize(
    "make", [lambda: Dim(3), lambda: Name("a"), lambda: Settings(a=[1]), lambda: Counted(a=2), lambda: Logged([1, [2]])]
)
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_of_new_and_existing_instances_are_made_in_the_graph(make, copied):
    def fn(x, given):
        new = make()
        new.note, given.note = [1], "kept"
        made = copied(new)
        return x + 1, parts(made), made.note is new.note, parts(copied(given)), made is new

    compiled = capture.optimize(lambda gm, example_inputs: gm.forward, fullgraph=True)(fn)
    for _ in range(2):
        assert compiled(X, make())[1:] == fn(X, make())[1:]


@pytest.mark.parametrize("make", [lambda: Groups(list, {"a": 1}), lambda: Ordered(a=1, b=2), lambda: Window([1, 2])])
def test_copy_method_calls_the_class(make):
    def fn(x, given):
        new = make()
        made = new.copy()
        return (
            x + 1,
            *map(parts, (made, given.copy())),
            made is new,
            getattr(made, "maxlen", 0),
            getattr(made, "default_factory", 0),
        )

    compiled = capture.optimize(lambda gm, example_inputs: gm.forward, fullgraph=True)(fn)
    for _ in range(2):
        assert compiled(X, make())[1:] == fn(X, make())[1:]


class Offset(int):
    def __index__(self):
        return int(self) + 1


class Foreign(int):
    __eq__ = str.__eq__
    __add__ = str.__add__
    __sub__ = int.__mul__
    __neg__ = int.__abs__
    __hash__ = int.__hash__


class ByIdentity(int):
    __eq__ = object.__eq__
    __hash__ = object.__hash__


def test_index_of_an_int_is_the_int():
    """CPython asks no __index__ of what is an int."""

    def fn(x, n):
        items = list(range(10))
        return x + 1, operator.index(n), items[n], items[:n], [0] * n, range(n), "ab".ljust(n), slice(n).indices(20), bytes(n)

    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(fn)
    for number in (3, 4):
        assert compiled(X, Offset(number))[1:] == fn(X, Offset(number))[1:]


def test_methods_of_other_classes():
    """They raise, or are what their own names say."""

    def fn(x, a):
        errors = []
        for operation in (operator.eq, operator.add):
            try:
                operation(a, a)
            except TypeError as error:
                errors.append(str(error))
        return x + 1, errors, a - 5, -a, ByIdentity(3) == ByIdentity(3)

    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(fn)
    assert compiled(X, Foreign(-3))[1:] == fn(X, Foreign(-3))[1:]


@pytest.mark.parametrize(
    "make",
    [
        lambda text: typing.Annotated[int, text].__metadata__[0],
        lambda text: typing.Annotated[int, (text, 1)].__metadata__[0][0],
        lambda text: typing.Literal[text].__args__[0],
        lambda text: list[text].__args__[0],
        lambda text: remembered(text)[0],
    ],
    ids=["annotated", "in_a_tuple", "literal", "alias", "lru_cache"],
)
def test_what_keeps_an_instance_keeps_its_class(make):
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(lambda x: (x + 1, make(Name("a")), make("b")))
    assert [type(found) for found in compiled(X)[1:]] == [Name, str]


@functools.lru_cache(typed=True)
def remembered(value):
    return (value,)


@pytest.mark.parametrize(
    "access",
    [
        lambda thing: type.__setattr__(type(thing), b"x", None),
        lambda thing: object.__setattr__(thing, b"x", None),
        lambda thing: object.__delattr__(thing, b"x"),
        lambda thing: setattr(thing, b"x", None),
        lambda thing: delattr(type(thing), b"x"),
        lambda thing: getattr(thing, b"x", None),
        lambda thing: hasattr(thing, b"x"),
    ],
)
def test_attributes_go_by_texts(access):
    def fn(x):
        class Made:
            pass

        with pytest.raises(TypeError, match="attribute name must be string, not 'bytes'"):
            access(Made())
        return x + 1

    assert capture.optimize(lambda gm, example_inputs: gm.forward)(fn)(X).tolist() == (X + 1).tolist()


class OddText(str):
    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


def test_keywords_that_are_instances_of_an_own_class():
    def fn(x):
        def keywords(**given):
            return [type(name) for name in given]

        return x + 1, keywords(**{Name("a"): 1}), keywords(**{OddText("b"): 1})

    assert capture.optimize(lambda gm, example_inputs: gm.forward)(fn)(X)[1:] == fn(X)[1:]


class LimitedInItsOwnWay(collections.deque):
    @property
    def maxlen(self):
        return "none"


@pytest.mark.parametrize("kind", [Window, LimitedInItsOwnWay])
@pytest.mark.parametrize("limit", [None, 0, 2, 3])
def test_existing_instances_of_a_subclass_of_deque_keep_no_more_than_they_may(kind, limit):
    def fn(x, window):
        window.append(4)
        seen = [len(window), sum(window), window.maxlen]
        window.appendleft(5)
        window.extend([6, 7])
        return x * len(window) + sum(window), seen, list(window)

    compiled = capture.optimize(lambda gm, example_inputs: gm.forward, fullgraph=kind is Window)(fn)
    for kept in (limit, limit, 4):
        ours, theirs = kind([1, 2], kept), kind([1, 2], kept)
        found, expected = compiled(X, ours), fn(X, theirs)
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:] and list(ours) == list(theirs)


def test_a_number_in_place_with_an_instance_that_answers_first():
    def fn(x, parts):
        total = 0
        for part in parts:
            total += part
        text = "n"
        text += "m"
        return x + 1, total, text

    check(fn, X, (Level(3),))


class Named(str):
    def __eq__(self, other):
        return super().__eq__(other)

    def __lt__(self, other):
        return super().__lt__(other)

    __hash__ = str.__hash__


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, a, b: (x + 1, a == b),
        lambda x, a, b: (x + 1, a < b),
        lambda x, a, b: (x + 1, str.__eq__(a, b)),
        lambda x, a, b: (x + 1, str.__eq__("c", b), str.__gt__(a, b)),
        lambda x, a, b: (x + 1, str.__ne__(a, "c"), str.__add__(a, b)),
    ],
)
@pytest.mark.parametrize("cls", [Named, str])
def test_comparisons_of_texts_that_change_by_their_methods(fn, cls):
    compiled = capture.optimize(lambda gm, inputs: gm.forward)(fn)
    for a, b in (("a", "a"), ("b", "b"), ("c", "c"), ("c", "a"), ("a", "c")):
        assert compiled(X, cls(a), cls(b))[1:] == fn(X, cls(a), cls(b))[1:]


def answers(name):
    return lambda self, other, *modulo: (name, type(self), other)


REFLECTED = [f"__r{name}__" for name in "add sub mul truediv floordiv mod pow divmod".split()] + ["__gt__", "__le__"]
Turned = type("Turned", (int,), {name: answers(name) for name in REFLECTED})
Rate = type("Rate", (float,), {name: answers(name) for name in REFLECTED})


def a_list(x):
    return [1]


def a_deque(x):
    return collections.deque([1])


OPERATORS = {"add": operator.add, "pow": operator.pow, "divmod": divmod, "mul": operator.mul, "sub": operator.sub}
OPERATORS |= {"truediv": operator.truediv, "floordiv": operator.floordiv, "mod": operator.mod, "in place": operator.imul}
OPERATORS |= {"lt": operator.lt, "ge": operator.ge}


@pytest.mark.parametrize(
    "left", [3, True, 2.5, 2j, "ab", (1,), a_list, a_deque, len], ids=lambda left: getattr(left, "__name__", str(left))
)
@pytest.mark.parametrize("name", OPERATORS)
def test_reflected_operators_of_numbers_answer_where_those_of_c_leave_it_to_them(left, name):
    def fn(x, right):
        given = left(x) if callable(left) else left
        try:
            return x + 1, OPERATORS[name](given, right)
        except TypeError:
            return x + 1, "refused"

    compiled = capture.optimize(lambda gm, inputs: gm.forward)(fn)
    for x, right in ((X, Turned(2)), (X, Rate(1.5)), (torch.ones(4), Turned(3)), (torch.ones(4), Rate(2.5))):
        found, expected = compiled(x, right)[1], fn(x, right)[1]
        assert type(found) is type(expected) and found == expected

"""Lists, tuples, dicts, sets, iterators: every operation against plain Python."""

import collections
import functools
import itertools
import operator
import types

import pytest
import torch
import tracework_capture as capture
from harness import check
from tracework_capture import optimize

Point = collections.namedtuple("Point", "x y", defaults=[3])


def list_methods(x):
    a = [3, 1, 2]
    a.append(5)
    a.extend((7, 8))
    a.insert(0, 9)
    popped = a.pop(), a.pop(1)
    a.remove(2)
    a.reverse()
    b = sorted(a) + a[1:] + a * 2
    a.sort(key=lambda v: -v)
    return x + sum(b), popped, a, b, a.index(9), a.count(1), 9 in a, len(a), a[-1], a[::2], a == b, a < b, [*a, 1], a.copy()


def list_items(x):
    a = [1, 2, 3, 4]
    a[0] = x
    a[1:3] = [7]
    del a[-1]
    a += [5]
    a *= 2
    return a, x * 2


def tuples(x):
    p = Point(1)
    q = p._replace(x=x.shape[0])
    (a, b), *rest = [(1, 2), 3, 4]
    return (
        p,
        q,
        q.x + q.y,
        p._asdict(),
        a,
        b,
        rest,
        (1, 2) + (3,),
        (1, 2) < (1, 3),
        hash((1, 2)) == hash((1, 2)),
        x + a,
        p == (1, 3),
    )


def sizes(x):
    s = x.shape
    h, w = s[-2:]
    return (
        s,
        s[:-1] + (7,),
        list(s),
        s.numel(),
        len(s),
        h * w,
        (*s[:-1], -1),
        x.view(*s[:-1], -1),
        x.size(),
        x.size(-1),
        x + 1,
        s == (3, 4),
        isinstance(s, tuple),
        tuple(s),
    )


def dict_methods(x):
    d = {"a": 1, "b": x}
    d.update(c=3)
    d["e"] = d.get("zz", 9)
    d.setdefault("f", []).append(4)
    popped = d.pop("a"), d.pop("nope", None)
    keys, values, items = list(d), list(d.values()), [(k, v) for k, v in d.items()]
    merged = {**d, "g": 1} | {"h": 2}
    return (
        d,
        popped,
        keys,
        values,
        items,
        merged,
        "b" in d,
        len(d),
        x * 2,
        dict(zip("ab", (1, 2))),
        dict.fromkeys("ab", 0),
        {1: 2} == {1: 2},
    )


def ordered(x):
    d = collections.OrderedDict(a=1, b=2)
    d.move_to_end("a")
    e = collections.defaultdict(list)
    e["k"].append(x)
    q = collections.deque([1, 2, 3], maxlen=3)
    q.append(4)
    q.appendleft(0)
    return d, e, q, x + 1, d.popitem(), list(q)


def sets(x):
    s = {1, 2} | {3}
    s.add(4)
    s.discard(1)
    return (
        s,
        s & {2, 4},
        s - {2},
        s ^ {9},
        s >= {2},
        frozenset([1]),
        {k for k in (1, 1, 2)},
        x + len(s),
        {"a": 1}.keys() & {"a"},
        s.union([8]),
    )


def iterators(x):
    total = 0
    for i, (a, b) in enumerate(zip([1, 2, 3], (4, 5, 6)), 1):
        total += i * a * b
    it = iter([1, 2, 3])
    first = next(it)
    return (
        x + total,
        first,
        list(it),
        next(it, "end"),
        list(map(lambda v: v + 1, [1, 2])),
        list(filter(None, [0, 1, 2])),
        list(reversed([1, 2])),
        any([0, 1]),
        all([]),
        list(itertools.chain([1], [2])),
        list(itertools.product([1, 2], repeat=2)),
        functools.reduce(operator.add, [1, 2, 3]),
        list(itertools.islice(itertools.count(3), 2)),
        list(itertools.accumulate([1, 2, 3])),
        max(3, 1),
        min([2, 5], key=lambda v: -v),
        sum([1, 2], 3),
        list(itertools.zip_longest([1], [2, 3])),
        list(itertools.pairwise([1, 2, 3])),
        sorted([3, 1], reverse=True),
        list(range(5)[1:3]),
        3 in range(5),
    )


def generators(x):
    def gen(n):
        for i in range(n):
            yield x * i
        return 5

    return list(gen(2)), sum(v.shape[0] for v in gen(2)), {k: v for k, v in zip("ab", gen(2))}


def existing_list(x, items):
    items.append(x.shape[0])
    items.append(x * 2)
    return x + items[0]


def existing_list_reordered(x, items):
    items.insert(0, 4)
    items.pop()
    return x + 1, len(items)


def existing_dict(x, table):
    table["new"] = x + 1
    table["a"] = 5
    del table["b"]
    return table["a"] * x, "b" in table, table.get("c")


def nested_existing(x, table):
    table["list"].append(1)
    table["inner"]["k"] = table["list"]
    return x + len(table["list"])


def shared_new(x):
    a = [x]
    b = {"a": a, "again": a}
    a.append(1)
    return b, a, x + 1


def texts(x):
    n = x.shape[0]
    return (
        f"{n}:{n:>4}|{x.dtype}|{[1, n]}",
        "%d-%s" % (n, "a"),  # noqa: UP031
        f"{1}-{2}",
        ",".join(str(i) for i in range(n)),
        "abc".upper()[1:],
        x + 1,
    )


FUNCTIONS = [list_methods, list_items, tuples, sizes, dict_methods, ordered, sets, iterators, generators, shared_new, texts]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_same_as_plain(function):
    check(function, torch.randn(3, 4))


EXISTING = [
    (existing_list, [1, 2]),
    (existing_list_reordered, [1, 2]),
    (existing_dict, {"a": 1, "b": 2}),
    (nested_existing, {"list": [1], "inner": {}}),
]


@pytest.mark.parametrize(("function", "argument"), EXISTING, ids=lambda f: getattr(f, "__name__", ""))
def test_changes_of_existing_objects_are_replayed(function, argument):
    check(function, torch.randn(3, 4), argument)


def missing_key(x, table):
    return x + table["nope"]


def missing_index(x, items):
    try:
        items[7]
    except IndexError as error:
        return x + 1, str(error), error
    return x


def bounds_that_are_no_indices(x, items, n):
    seen = []
    for act in (lambda: items[n:], lambda: items.__setitem__(slice(n), [1]), lambda: items.__delitem__(slice(None, None, n))):
        try:
            act()
        except TypeError as error:
            seen.append(str(error))
    return x + 1, seen


SETS = {
    "displays and unions": lambda s, t, d: ({65, 33} | set(d), {*d} | {*s}, {1, *t}, set([33, 1, 17]).union(d, [9])),
    "copies": lambda s, t, d: ((s | t).copy(), frozenset(s | t), set(d).copy(), set(frozenset(d) | t)),
    "what is left": lambda s, t, d: ((s | t) - {17}, (s | set(d)) ^ {9, 1, 25}, set(d) & {33, 9, 65}, s.difference(t, d)),
    "many taken": lambda s, t, d: [u := set(range(20)), *map(u.discard, range(17)), u.add(33), u.add(65)],
    "taken and put back": lambda s, t, d: [u := {1, 33, 17}, u.remove(1), u.add(9), u.add(1), u.pop(), u.copy()],
    "updates": lambda s, t, d: [u := set(t), u.update(d, [2, 33]), u.symmetric_difference_update(s), u.intersection_update(d)],
    "an existing one": lambda s, t, d: [s.add(1), s.update([33, 17], d), s.discard(9), s.__ior__({25, 41, 73}), s.__isub__(t)],
    "one that is emptied": lambda s, t, d: [s.clear(), s.add(33), s.add(1), s.update({17: 0, 9: 0, 41: 0}), s.pop()],
    "of strings": lambda s, t, d: ({*"tensor"} | set("graph"), {*"abc", *d}, set("loop") - set("pool")),
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("members", [(9, 17, 25), (25, 17, 9), (1, 33)])
def test_sets_have_the_order_that_plain_python_gives_them(name, members):
    """Every order that the program can see: of what is returned, of what that is made of, and of existing sets that were changed."""

    def arguments():
        s = {7}
        for member in (*members, 7):
            s.add(member) if member != 7 else s.discard(7)
        return s, {17, 41}, {"k": 1, 9: 2, 33: 3, "w": 4, 5: 5}

    def f(x, s, t, d):
        return SETS[name](s, t, d), x + 1

    compiled = optimize(lambda gm, inputs: gm.forward)(f)
    for _ in range(2):
        plain, captured = arguments(), arguments()
        expected, got = f(torch.ones(2), *plain)[0], compiled(torch.ones(2), *captured)[0]
        assert [repr(found) for found in (*got, *captured)] == [repr(found) for found in (*expected, *plain)]


def test_errors_are_python_s():
    check(bounds_that_are_no_indices, torch.randn(2), [1, 2], 1.5)
    check(missing_key, torch.randn(2), {"a": 1}, fullgraph=False)
    check(missing_index, torch.randn(2), [1])


def test_only_what_was_read_is_guarded():
    captured = check(lambda x, d: x + d["a"], torch.randn(2), {"a": 1, "b": 2})
    texts = [str(g) for g in captured.guards]
    assert any("d['a']" in t for t in texts) and not any("d['b']" in t for t in texts)


def test_an_iterator_that_only_passes_through_is_guarded():
    def listed(x, items=None):
        return x + 1, [] if items is None else list(items)

    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(listed)
    for items in (iter([1, 2]), None, map(str, [1]), (n for n in (1, 2)), None):
        expected = None if items is None else list(items)
        given = items if expected is None else iter(expected)
        assert compiled(torch.ones(2), given)[1] == (expected or [])


def test_whoever_sorts_a_list_or_goes_over_a_deque_notices_what_came_and_went():
    x = torch.ones(2)

    def comes_and_goes(items, item):
        items.append(x + 1)
        items.pop()
        return item

    def outcomes(function):
        found = []
        for items in ([2, 1], collections.deque([1, 2]), collections.deque([1, 2], 2), collections.deque([1], 1)):
            try:
                if isinstance(items, list):
                    items.sort(key=lambda item: function(items, item))
                else:
                    found.append([function(items, item) for item in items])
            except (ValueError, RuntimeError) as error:
                found.append(str(error))
            found.append(list(items))
        function(none := collections.deque((), 1), 0)
        return found, list(none)

    assert outcomes(capture.optimize(lambda gm, inputs: gm.forward)(comes_and_goes)) == outcomes(comes_and_goes)


def test_new_objects_are_in_no_dict_of_before():
    class Key:
        pass

    def f(x, table):
        y = x + 1
        return y, table.get(y), (y, 1) in table, Key() in table, table.get((Key(), 2), 3), x in table

    x, compiled = torch.ones(2), optimize(lambda gm, inputs: gm.forward, fullgraph=True)(f)
    for table in ({}, {x: 1, Key(): 2, (x, 1): 3}, {torch.ones(2): 1}):
        assert repr(compiled(x, table)) == repr(f(x, table))


@pytest.mark.parametrize(
    "made",
    [
        lambda: set([1], [2]),
        lambda: frozenset([1], 2, 3),
        lambda: slice(),
        lambda: collections.deque([1], 2, 3),
        lambda: collections.deque([1], x=2),
        lambda: collections.deque(iterable=[1, 2, 3], maxlen=2),
        lambda: "ab".join("a", "b"),
        lambda: "ab".join(),
    ],
)
def test_constructors_refuse_what_python_refuses(made):
    def program(x):
        try:
            return x * 2, made()
        except TypeError as error:
            return x * 3, error.args

    x, compiled = torch.ones(2), optimize(lambda gm, inputs: gm.forward)(program)
    assert repr(compiled(x)) == repr(program(x))


@pytest.mark.parametrize("kind", [dict, collections.Counter, collections.OrderedDict])
@pytest.mark.parametrize("count", [3, 5, 9, 20])
def test_sets_made_of_views_have_python_s_order(kind, count):
    """It follows from how much room a set took: all at once for a dict's keys, step by step for others."""
    numbers = [(n * 37) % 512 for n in range(count)]

    def program(x):
        first, second = kind(dict.fromkeys(numbers, 1)), kind(dict.fromkeys(numbers[count // 2 :] + [7], 1))
        other = {*numbers[1:]}
        same = types.SimpleNamespace(value=other, alias=other)
        same.value |= first.keys()
        keys, items = first.keys(), first.items()
        made = [keys - other, keys | other, keys ^ other, keys & other, other - keys, other | keys, other ^ keys, other & keys]
        made += [keys - second.keys(), keys | second.keys(), keys ^ second.keys(), keys - numbers[:2], [-1, *numbers] - keys]
        made += [items - second.items(), items ^ second.items(), set(first), frozenset(first), set(keys), {*first}, same.value]
        return x + 1, [list(each) for each in made], same.value is same.alias

    assert optimize(lambda gm, inputs: gm.forward, fullgraph=True)(program)(torch.ones(2))[1:] == program(torch.ones(2))[1:]


def test_sets_made_of_an_existing_one_that_was_changed():
    def program(x, shared):
        made = {0, 8}
        made ^= {1, 9, 17, 33}
        shared |= made
        return x + 1, frozenset(made) & shared, shared.copy(), made | shared, set(shared), shared - {1}

    compiled = optimize(lambda gm, inputs: gm.forward)(program)
    for members in ((), (64, 32), range(20), (33, 17)):
        found, expected = (list(map(list, f(torch.ones(2), set(members))[1:])) for f in (compiled, program))
        assert found == expected

"""Which overridden methods of a subclass of a built-in class the methods and functions of C call, and which they do not: as CPython does.

A table: base class x the method that is overridden x operation. `nox -s containers` runs all of it, the suite a sample."""

import collections
import copy
import functools
import itertools
import operator
import os
import random

import pytest
import torch
import tracework_capture as capture

LOG = []
MAPPING = """
d["a"] | d["zz"] | d.__setitem__("c", 3) | operator.setitem(d, "c", 3) | operator.delitem(d, "a") | d.get("a") | d.pop("a") | d.pop("z", None)
d.setdefault("a", 9) | d.setdefault("z", 9) | d.popitem() | d.update({"x": 1}) | d.update([("x", 1)]) | d.update(x=1) | d.update(e)
{}.update(d) | collections.OrderedDict().update(d) | d.clear() | d.copy() | copy.copy(d) | copy.deepcopy(d) | dict(d)
collections.OrderedDict(d) | collections.Counter(d) | operator.or_(d, {}) | operator.or_({}, d) | operator.or_(d, e)
operator.ior(d, {"q": 1}) | operator.ior({}, d) | operator.ior(d, [("q", 1)]) | {**d} | (lambda **k: k)(**d) | list(d) | sorted(d)
list(d.keys()) | list(d.values()) | list(d.items()) | len(d) | bool(d) | "a" in d | d == {"a": 1} | d == e | d != e | repr(d) | str(d)
[k for k in d] | list(reversed(d)) | type(d)(d) | type(d)() | type(d).fromkeys("ab") | tuple(d) | set(d) | max(d) | [*d] | d.keys() & {"a"}
dict.__getitem__(d, "a") | dict.update(d, {"y": 1}) | dict.__setitem__(d, "y", 1) | dict.get(d, "a") | dict.copy(d) | d.keys() == e.keys()
"""
SEQUENCE = """
d[0] | d[-1] | d[0:2] | copy.copy(d) | copy.deepcopy(d) | list(d) | tuple(d) | set(d) | frozenset(d) | sorted(d) | sum(d) | max(d) | any(d) | len(d)
bool(d) | 1 in d | 9 in d | d == e | d < e | d != e | repr(d) | [v for v in d] | [*d] | (lambda *a: a)(*d) | list(reversed(d)) | type(d)(d) | type(d)()
list(zip(d, d)) | list(map(str, d)) | iter(d).__next__() | ",".join(map(str, d)) | d * 2 | 2 * d | d + e | [].extend(d) | collections.deque(d)
d.index(2) | d.count(1) | operator.imul(d, 2) | operator.iadd([1], d) | dict.fromkeys(d) | list(itertools.chain(d, d))
"""
GROWING = """
operator.setitem(d, 0, 5) | operator.delitem(d, 0) | d.append(4) | d.extend([4]) | d.extend(e) | d.insert(0, 1) | d.pop() | d.remove(1) | d.reverse()
d.clear() | d.copy() | operator.iadd(d, [1])
"""
SETS = """
d.copy() | operator.or_(d, {4}) | operator.or_({4}, d) | operator.and_(d, {1}) | d - {1} | {1} - d | d ^ {1} | operator.or_(d, e) | d.union([4])
{1}.union(d) | d.intersection([1]) | {1}.intersection(d) | d.difference([1]) | {1}.difference(d) | d.symmetric_difference([1])
d.issubset({1, 2, 3}) | {1}.issubset(d) | d.issuperset([1]) | d.isdisjoint([5]) | {5}.isdisjoint(d) | {1}.isdisjoint(d) | d <= {1, 2, 3} | d < e
d == {1, 2} | d == e | list(d) | sorted(d) | set(d) | frozenset(d) | len(d) | bool(d) | 1 in d | 9 in d | repr(d) | [v for v in d] | [*d]
type(d)(d) | type(d)() | sum(d)
"""
OWN_SETS = """
d.add(4) | d.discard(1) | d.remove(1) | d.pop() | d.clear() | d.update([4]) | d.update(e) | set().update(d) | operator.ior(d, {5})
operator.ior({5}, d) | operator.iand(d, {1}) | operator.isub(d, {1}) | operator.ixor(d, {1}) | d.intersection_update([1])
d.difference_update([1]) | {1}.difference_update(d)
"""
ATOM = """
d == 3 | d < 4 | repr(d) | str(d) | f"{d}" | "%s" % d | hash(d) | {d: 1}[d] | bool(d) | [d].index(d) | type(d)(d) | copy.copy(d) | d in [d] | d * 2 | d + d
"""
TABLE = {
    dict: (({"a": 1, "b": 2},), MAPPING),
    collections.OrderedDict: (({"a": 1, "b": 2},), MAPPING + 'd.move_to_end("a") | d.popitem(last=False)'),
    collections.defaultdict: ((int, {"a": 1, "b": 2}), MAPPING + "d.default_factory"),
    collections.Counter: (
        ("aab",),
        MAPPING + 'd.most_common() | d.update("abc") | d.subtract("a") | d + e | d - e | +d | d.total()',
    ),
    list: (([1, 2, 3],), SEQUENCE + GROWING + "d.sort() | operator.setitem(d, slice(0, 1), [7, 8]) | list.append(d, 3)"),
    tuple: (([1, 2],), SEQUENCE + 'hash(d) | "%s %s" % d'),
    collections.deque: (([1, 2, 3],), SEQUENCE + GROWING + "d.appendleft(4) | d.popleft() | d.rotate(1) | d.extendleft([4])"),
    set: (([1, 2],), SETS + OWN_SETS),
    frozenset: (([1, 2],), SETS + "hash(d)"),
    int: (
        (3,),
        ATOM
        + "d / 2 | 7 % d | -d | int(d) | float(d) | [0, 1, 2, 3][d] | range(d) | torch.ones(d).shape | divmod(d, 2) | operator.index(d)",
    ),
    float: ((2.5,), ATOM + "d / 2 | -d | int(d) | float(d) | round(d) | torch.ones(2) * d | max(d, 1)"),
    str: (
        ("ab",),
        ATOM.replace("d < 4", 'd < "b"')
        + 'd.upper() | ",".join([d, d]) | "a" in d | len(d) | list(d) | d.startswith("a") | d.encode()',
    ),
}
"""Base class -> arguments for an instance, operations on two instances d and e."""
NOT_OVERRIDDEN = frozenset(
    "__new__ __init_subclass__ __subclasshook__ __class_getitem__ __getattribute__ __class__ __hash__ __sizeof__ __dir__ __getnewargs__ "
    "__reduce__ __reduce_ex__ __setattr__ __delattr__ __format__ __getformat__ fromkeys fromhex from_bytes maketrans __getstate__".split()
)
WHOLE = bool(os.environ.get("TRACEWORK_WHOLE_TABLE"))
OVERRIDDEN, OPERATIONS = 3, 12
"""How many methods of each base class are overridden in turn in a sample, and how many operations are tried with each."""


def operations(text):
    return [part.strip() for line in text.splitlines() for part in line.split(" | ") if part.strip()]


def overridable(base):
    names = {n for cls in base.__mro__[:-1] for n, static in vars(cls).items() if callable(static)} - NOT_OVERRIDDEN
    return sorted(n for n in names if base not in (int, float, str) or n.startswith("__"))


def own_class(base, *names):
    """A subclass whose methods of these names say that they are called."""

    def method(name):
        def said(self, *args, **kwargs):
            LOG.append(name)
            return getattr(super(cls, self), name)(*args, **kwargs)

        return said

    cls = type("Own", (base,), {name: method(name) for name in names})
    return cls


def shown(value):
    """Class and contents, past what the class overrides."""
    for base in (collections.OrderedDict, dict, list, tuple, set, frozenset, collections.deque):
        if isinstance(value, base):
            items = base.items(value) if issubclass(base, dict) else base.__iter__(value)
            items = [(key, shown(item)) for key, item in items] if issubclass(base, dict) else [shown(item) for item in items]
            return type(value).__name__, sorted(items, key=repr) if base in (set, frozenset) else items
    for base in (str, int, float):
        if isinstance(value, base):
            return type(value).__name__, base.__repr__(value)
    return type(value).__name__, value.tolist() if isinstance(value, torch.Tensor) else ""


def program(expression):
    namespace = dict(collections=collections, copy=copy, functools=functools, itertools=itertools, operator=operator, torch=torch)
    lines = [
        "def fn(x, cls, args, d, e):",
        "    x = x + 1",
        "    if d is None:",
        "        d, e = cls(*args), cls(*args)",
        "    try:",
    ]
    lines += [f"        found = {expression}", "    except Exception as error:", "        found = type(error), str(error)"]
    exec("\n".join([*lines, "    return x * 2, found, d, e"]), namespace)
    return namespace["fn"]


def run(function, cls, args, given):
    d, e = (cls(*copy.deepcopy(args)) for _ in range(2)) if given else (None, None)
    LOG.clear()
    found = function(torch.ones(2), cls, args, d, e)
    calls = list(LOG)
    return [shown(value) for value in found], calls


def rows():
    chosen = random.Random(0)
    for base, (_, text) in TABLE.items():
        names, wanted = overridable(base), operations(text)
        for name in ["all", *names] if WHOLE else ["all", *chosen.sample(names, OVERRIDDEN)]:
            tried = wanted if WHOLE else chosen.sample(wanted, min(len(wanted), 2 * OPERATIONS if name == "all" else OPERATIONS))
            yield pytest.param(base, name, tried, id=f"{base.__name__}-{name}")


@pytest.mark.parametrize(("base", "name", "wanted"), list(rows()))
def test_own_methods_are_called_as_by_cpython(fresh, base, name, wanted):
    args = TABLE[base][0]
    cls = own_class(base, *(overridable(base) if name == "all" else [name]))
    wrong = []
    for expression in wanted:
        function = program(expression)
        for given in (False, True):
            expected = run(function, cls, args, given)
            found = run(capture.optimize(lambda gm, inputs: gm.forward)(function), cls, args, given)
            wrong += [(expression, given, found, expected)] if found != expected else []
    assert not wrong


def test_instances_of_subclasses_of_defaultdict_keep_their_factory(fresh):
    class Groups(collections.defaultdict):
        pass

    def fn(x, given):
        made = Groups(list)
        made["a"].append(1)
        given["b"].append(2)
        return x + 1, made

    given = Groups(list)
    _, made = capture.optimize(lambda gm, inputs: gm.forward, fullgraph=True)(fn)(torch.ones(2), given)
    assert made == {"a": [1]} and made.default_factory is list and given == {"b": [2]} and given.default_factory is list


class Counted:
    def __len__(self):
        LOG.append("length")
        return 2

    def __getitem__(self, place):
        LOG.append(place)
        return place


class CountedTuple(tuple):
    __len__, __getitem__ = Counted.__len__, Counted.__getitem__


class CountedText(str):
    __len__, __getitem__ = Counted.__len__, Counted.__getitem__


class Turned(tuple):
    def __reversed__(self):
        LOG.append("reversed")
        return iter((7, 8))


TAKERS = """
list(reversed(d)) | tuple(reversed(d)) | [*reversed(d)] | [v for v in reversed(d)] | sorted(reversed(d)) | set(reversed(d)) | [0].extend(reversed(d))
collections.deque(reversed(d)) | next(reversed(d)) | (lambda *a: a)(*reversed(d)) | list(zip(reversed(d), reversed(d))) | type(reversed(d)).__name__
"""


@pytest.mark.parametrize("cls", [Counted, CountedTuple, CountedText, Turned])
def test_reversed_asks_what_cpython_asks(fresh, cls):
    args = () if cls is Counted else (range(3),) if issubclass(cls, tuple) else ("abc",)
    wrong = []
    for expression in operations(TAKERS):
        function = program(expression)
        for given in (False, True):
            expected = run(function, cls, args, given)
            found = run(capture.optimize(lambda gm, inputs: gm.forward)(function), cls, args, given)
            wrong += [(expression, given, found, expected)] if found != expected else []
    assert not wrong

"""Comparisons of objects of C's classes, made in the frame or given to it: a class that compares what its objects hold is asked for that."""

import collections
import functools
import itertools
import operator
import types

import pytest
import torch
from tracework_capture.hook.context import optimize

MAKERS = {
    "slice": slice,
    "slice with a step": lambda n: slice(None, n, 2),
    "range": range,
    "list": lambda n: [n],
    "tuple": lambda n: (n, [n]),
    "dict": lambda n: {"a": n},
    "OrderedDict": lambda n: collections.OrderedDict(a=n, b=2),
    "defaultdict": lambda n: collections.defaultdict(list, a=n),
    "Counter": lambda n: collections.Counter([n]),
    "set": lambda n: {n},
    "frozenset": lambda n: frozenset([n]),
    "deque": lambda n: collections.deque([n]),
    "mappingproxy": lambda n: types.MappingProxyType({"a": n}),
    "dict_keys": lambda n: {n: 1}.keys(),
    "dict_items": lambda n: {"a": n}.items(),
    "dict_values": lambda n: {"a": n}.values(),
    "list_iterator": lambda n: iter([n]),
    "range_iterator": lambda n: iter(range(n)),
    "zip": lambda n: zip([n], [n]),
    "map": lambda n: map(abs, [n]),
    "count": itertools.count,
    "bytes": lambda n: b"a" * n,
    "str": lambda n: "a" * n,
    "complex": lambda n: complex(n, 1),
    "partial": lambda n: functools.partial(max, n),
    "method": lambda n: [n].append,
    "Size": lambda n: torch.Size([n]),
    "namespace": lambda n: types.SimpleNamespace(a=n),
}
OPERATORS = {
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge", "is_", "is_not")},
    "in a list": lambda a, b: a in [b],
    "place in a list": lambda a, b: [b, a].index(a),
    "in tuples": lambda a, b: (1, a) == (1, b),
    "as values": lambda a, b: {"k": a} == {"k": b},
    "by its method": lambda a, b: a.__eq__(b),
    "by the method of the other kind": lambda a, b: a.__ne__(b),
}


def outcome(function, *args):
    """What it returns, or the exception's type and text without addresses."""
    try:
        found = function(*args)
    except TypeError as error:
        return str(error)
    return [part.tolist() if isinstance(part, torch.Tensor) else part for part in found]


@pytest.mark.parametrize("op", OPERATORS.values(), ids=OPERATORS)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_comparisons(make, op):
    def made(x):
        a = make(3)
        return x + 1, op(a, make(3)), op(a, make(4)), op(a, a), op(a, 3)

    def equality_of_given(x, a, b):
        return x + 1, op(a, b), op(b, a)

    def mixed(x, a):
        return x + 1, op(a, make(3)), op(make(3), a), op(make(4), a)

    x = torch.ones(2)
    kept = make(3)
    for function, args in ((made, ()), (equality_of_given, (kept, make(3))), (equality_of_given, (kept, kept)), (mixed, (kept,))):
        compiled = optimize(lambda gm, _: gm.forward)(function)
        assert outcome(compiled, x, *args) == outcome(function, x, *args)

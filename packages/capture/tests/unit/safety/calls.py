"""The arguments that programs are called with. `CALLS[number](namespace)` makes them anew: x, y, n, flag, items, table, obj, word.

The elements are small multiples of powers of two: a sum or a mean of them is exact in any order. Where it is zero in one order and a
rounding error in another, a program that divides by it shows an arbitrary difference.
"""

from __future__ import annotations

import collections

import torch

__all__ = ["CALLS", "FIRST"]


def _first(ns):
    x = torch.arange(6.0).reshape(2, 3) - 2
    return [x, torch.ones(2, 3), 3, True, [1, 2, 3], {"a": 1, "b": 2}, ns["Base"](2), "abc"]


def _second(ns):
    x = torch.arange(8.0).reshape(4, 2).requires_grad_()
    return [x, torch.full((4, 2), 2.0), 2, False, [0], {"b": 5}, ns["Derived"](1), "word"]


def _third(ns):
    x = torch.arange(-5.0, 6, 2).reshape(2, 3) / 4
    return [x, x, 4, True, [3, 1, 2, 1], {"a": 0}, ns["Base"](3), "abc"]


def _fourth(ns):
    x = (torch.arange(15.0).reshape(5, 3) / 8).requires_grad_()
    return [x * 1, x.detach().flip(0), 5, True, [4, 2], {"a": 2, "c": 1}, ns["Base"](0), "a"]


def _fifth(ns):
    x = torch.arange(12.0).reshape(3, 4).t() / 4 - 1
    return [x, torch.ones(4, 3).requires_grad_(), -1, False, [2, 0, 7], {"a": 3, "b": -1}, ns["Derived"](4), "bca"]


def _other(number, **changed):
    """The first arguments with others in the place of some."""
    names = ("x", "y", "n", "flag", "items", "table", "obj", "word")

    def make(ns):
        given = dict(zip(names, CALLS[number](ns)))
        for name, value in changed.items():
            given[name] = value(ns, given)
        return list(given.values())

    return make


def _grid(*sizes, dtype=torch.float32):
    count = torch.Size(sizes).numel()
    return ((torch.arange(count) * 5) % 7 - 3).to(dtype).reshape(sizes) / (2 if dtype.is_floating_point else 1)


CALLS = (
    _first,
    _second,
    _third,
    _fourth,
    _fifth,
    # other types
    _other(0, n=lambda ns, given: 2.5, flag=lambda ns, given: 1),
    _other(0, n=lambda ns, given: True, word=lambda ns, given: ""),
    _other(0, n=lambda ns, given: 0, flag=lambda ns, given: None, items=lambda ns, given: []),
    _other(0, items=lambda ns, given: [1.5, -2, True], table=lambda ns, given: collections.OrderedDict(b=1, a=2.5)),
    _other(0, items=lambda ns, given: ns["Stack"]([2, 1]), table=lambda ns, given: ns["Bag"](a=4)),
    _other(0, obj=lambda ns, given: ns["Both"](3), table=lambda ns, given: {}),
    _other(0, obj=lambda ns, given: ns["Left"](torch.ones(3)), n=lambda ns, given: 7),
    # other tensors
    _other(0, x=lambda ns, given: _grid(2, 3, dtype=torch.float64), y=lambda ns, given: _grid(2, 3, dtype=torch.float64)),
    _other(0, x=lambda ns, given: _grid(2, 3, dtype=torch.int64), n=lambda ns, given: 6),
    _other(0, x=lambda ns, given: _grid(4), y=lambda ns, given: _grid(4) + 1),
    _other(0, x=lambda ns, given: torch.tensor(2.0), y=lambda ns, given: torch.tensor(-1.0, requires_grad=True)),
    _other(0, x=lambda ns, given: _grid(0, 3), y=lambda ns, given: torch.ones(1, 3)),
    _other(0, x=lambda ns, given: _grid(2, 2, 3), y=lambda ns, given: _grid(1, 3)),
    _other(0, x=lambda ns, given: torch.nn.Parameter(_grid(3, 3)), y=lambda ns, given: _grid(3, 3)),
    _other(1, x=lambda ns, given: _grid(6, 2), y=lambda ns, given: _grid(6, 2).requires_grad_(), n=lambda ns, given: 6),
    _other(3, x=lambda ns, given: _grid(7, 3), y=lambda ns, given: _grid(7, 3), items=lambda ns, given: [5, 6, 7, 8, 9]),
    # memory that arguments share, attributes that tensors have
    _other(0, y=lambda ns, given: given["x"].t()),
    _other(0, y=lambda ns, given: given["x"][0]),
    _other(0, y=lambda ns, given: given["x"].detach()),
    _other(0, x=lambda ns, given: _grid(4, 6)[::2, ::2], y=lambda ns, given: _grid(1, 3).expand(2, 3)),
    _other(0, items=lambda ns, given: [given["x"], 1], table=lambda ns, given: {"t": given["y"], "a": 1}),
    _other(0, obj=lambda ns, given: ns["Base"](given["x"]), y=lambda ns, given: given["x"].view(3, 2).t()),
)
FIRST = (0, 0, 1, 2, 3, 4)
"""What a program is called with that does not say it."""

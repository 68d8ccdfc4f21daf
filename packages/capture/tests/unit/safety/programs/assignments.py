"""Assignments, effects of one expression, writes to globals, and what breaks a graph."""

from __future__ import annotations

from .effects import EFFECTS

__all__ = ["COMPOUND", "SIMPLE"]

OPERATORS = {"T": "+ - * / @ **", "I": "+ - * // % & | ^ <<", "F": "+ - * // % /", "L": "+", "S": "+", "Z": "| & -", "D": "|"}
GLOBALS = [
    "bump()",
    "bump($I)",
    "SHARED['b'].append(n)",
    "SHARED['c'] = $T",
    "Base.total += 1",
    "Base.extra = $I",
    "del SHARED['c']",
    "globals()['COUNT'] += 1",
]
BREAKS = [
    "note($I, $T)",
    "note('here', $L)",
    "v_item = $T.sum().item()",
    "print(n, word, items)",
    "print($S)",
    "tracework_capture.graph_break()",
]
DELETIONS = [
    "del items[#]",
    "del table['a']",
    "obj.items.pop()",
    "del obj.extra",
    "items.clear()",
    "table.pop(#, None)",
    "items[1:3] = [#, #]",
    "items.remove(#)",
    "items[::2] = [#]",
    "del items[:1]",
    "table.popitem()",
    "delattr(obj, 'value')",
    "del x.zz",
]


def assign(w):
    kind = w.c.choice("TTTTIIILLDSOBFPRMZEEQN")
    value = w.expr(kind)
    name = w.fresh(kind)
    w.put(f"{name} = {value}")
    w.scope[name] = kind


def one_of(forms):
    return lambda w: w.put(w.fill(w.c.choice(forms)))


def augment(w):
    kind = w.c.choice("TIFLSZD")
    name = w.pick(kind)
    if name is None or name in ("x", "y") and w.c.random() < 0.7:
        return assign(w)
    other = "I" if kind == "T" and w.c.random() < 0.3 else kind
    w.put(f"{name} {w.c.choice(OPERATORS[kind].split())}= {w.expr(other)}")


def unpack(w):
    a, b = w.fresh("T"), w.fresh("I")
    if a == b:
        b += "_"
    w.put(f"{a}, {b} = {w.expr('T')}, {w.expr('I')}")
    w.scope.update({a: "T", b: "I"})
    form = w.c.random()
    if form < 0.6:
        c, d = w.fresh("I"), w.fresh("L")
        w.put(f"{c}, *{d} = {w.expr('L')}" if form < 0.4 else f"*{d}, {c} = {w.expr('L')}")
        w.scope.update({c: "I", d: "L"})
    elif form < 0.8:
        c, d = w.name("v"), w.name("v")
        w.put(f"({c}, ({d}, *_)) = {w.expr('I')}, {w.expr('M')}")
        w.scope.update({c: "I", d: "T"})


def swap(w):
    a, b = w.pick("T"), w.pick("T")
    w.put(f"{a}, {b} = {b}, {a}")


SIMPLE = [
    (10, assign),
    (7, one_of(EFFECTS)),
    (3, augment),
    (2, unpack),
    (1, swap),
    (1, one_of(GLOBALS)),
    (1, one_of(BREAKS)),
    (1, one_of(DELETIONS)),
]
COMPOUND = []

"""Branches, loops, match statements, early returns."""

from __future__ import annotations

from .assignments import assign, one_of
from .effects import EFFECTS
from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

SOURCES = [
    ("range(#)", "I"),
    ("range(n)", "I"),
    ("list(items)[:4]", "I"),
    ("enumerate(list(items)[:3])", "t"),
    ("zip(range(3), 'abc')", "t"),
    ("list(table.items())[:4]", "t"),
    ("zip(range(3), x)", "t"),
    ("enumerate($M)", "t"),
    ("counter(3)", "I"),
    ("x", "T"),
    ("(x, y, x + y)", "T"),
    ("$M", "T"),
    ("reversed(range(3))", "I"),
    ("itertools.chain([1, 2], range(2))", "I"),
    ("sorted(table)", "S"),
    ("word[:3]", "S"),
    ("map(abs, [-1, 2])", "I"),
    ("relay(2)", "I"),
    ("(i * n for i in range(3))", "I"),
    ("iter(list($Z))", "I"),
    ("$E", "A"),
    ("$Q.copy()", "A"),
    ("itertools.islice($E, 3)", "A"),
    ("enumerate(zip($M, $L))", "t"),
    ("itertools.pairwise($L)", "t"),
    ("(brk(i) for i in $L)", "I"),
    ("dict($D)", "S"),
    ("filter(lambda i: i != #, $L)", "I"),
    ("map(torch.neg, $M)", "T"),
    ("$T.tolist()", "A"),
    ("$T.shape", "I"),
    ("range($T.size(0))", "I"),
    ("range(len($L) % 4)", "I"),
    ("itertools.takewhile(lambda i: i < 3, itertools.count($I))", "I"),
    ("$T.split(1)", "T"),
    ("(n, *$L)", "I"),
]
CASES = [
    "case []",
    "case [a, *b]",
    "case [int() as a, *_] if a > #",
    "case [_, _, *b] | [*b]",
    "case {'a': a, **b}",
    "case {'a': int(a), 'b': 2 | 5 as b}",
    "case Point(a, b=2)",
    "case Point()",
    "case Point(torch.Tensor() as a, int(b))",
    "case int(a) if a > 1",
    "case 0 | 1",
    "case Pair(a, b)",
    "case Pair(left=int(a))",
    "case Base(value=a)",
    "case Base(value=int(a), items=[]) | Base(value=float(a))",
    "case Both(value=a)",
    "case Record(name=str(a), rows=[b, *_])",
    "case Color.RED | Color.BLUE",
    "case str()",
    "case torch.Tensor()",
    "case torch.Tensor(ndim=2 | 1 as a)",
    "case float(a) | bool(a)",
    "case [torch.Tensor() as a, *_]",
    "case {'t': torch.Tensor() as a}",
    "case {'a': _, **b} if len(b) > #",
    "case Base(items=[_, *_] as a)",
    "case Exception(args=(a, *_))",
    "case collections.deque()",
    "case Key(name='abc' | 's') | Record(count=0)",
    "case 'abc' | 'a'",
    "case -1 | 1.5 | True",
    "case [[a, *_], *_] | (a, (_, _))",
    "case None",
    "case (int(a), [*b]) | [a, b]",
]


def if_(w):
    w.put(f"if {w.expr('B')}:")
    w.block()
    for word in ("elif", "else"):
        if w.c.random() < 0.4:
            w.put("else:" if word == "else" else f"elif {w.expr('B')}:")
            w.block()


def for_(w):
    name = w.fresh("I")
    source, kind = w.c.choice(SOURCES)
    target = name if kind != "t" else f"{name}k, {name}"
    w.put(f"for {target} in {w.fill(source)}:")
    known = dict(w.scope)
    w.scope[name] = "I" if kind in "tA" else kind
    w.loops += 1
    w.block()
    w.loops -= 1
    w.scope = known
    if w.c.random() < 0.2:
        w.put("else:")
        w.block(1, 2)


def while_(w):
    name = w.name("w")
    w.put(f"{name} = 0")
    extra = f" and ({w.expr('B')})" if w.c.random() < 0.5 else ""
    w.put(f"while {name} < {w.c.randint(1, 4)}{extra}:")
    w.depth += 1
    w.put(f"{name} += 1")
    w.depth -= 1
    w.scope[name] = "I"
    w.loops += 1
    w.block()
    w.loops -= 1


def leave_loop(w):
    if not w.loops:
        return one_of(EFFECTS)(w)
    w.put(f"if {w.expr('B')}: {w.c.choice(['break', 'continue'])}")


def match_(w):
    w.put(f"match {w.expr(w.c.choice('LDIPORSATN'))}:")
    w.depth += 1
    for _ in range(w.c.randint(1, 4)):
        w.put(w.fill(w.c.choice(CASES)) + ":")
        w.block(1, 2)
    w.depth -= 1


def return_(w):
    if w.depth == 0 or not w.returns:
        return assign(w)
    w.put(f"if {w.expr('B')}: return {w.expr(w.c.choice('TILMR'))}")


UNTIL_FOUND = template("""
for @i, @j in itertools.product(range(3), $L[:2]):
    if @i == #: continue
    BLOCK
    if @j == #: break
else:
    LOG.append('not found')
""")
TENSOR_LOOP = template("""
@s = torch.zeros(())
for @r in $T:
    @s = @s + @r.sum()
    if $B: @s *= 2
=> @s T
""")
NESTED_WHILE = template("""
@w = $I
while (@w := @w - 1) > 0 and @w < 6:
    for @i in range(@w % 3):
        if @i == 1: break
        BLOCK
    else:
        continue
    break
""")

SIMPLE = [(1, leave_loop), (1, return_)]
COMPOUND = [(5, if_), (4, for_), (2, while_), (2, match_), (1, UNTIL_FOUND), (1, TENSOR_LOOP), (1, NESTED_WHILE)]

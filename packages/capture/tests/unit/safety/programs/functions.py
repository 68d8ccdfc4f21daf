"""Nested functions: closures, nonlocal, defaults, decorators, generators, comprehensions that see variables around them."""

from __future__ import annotations

from .assignments import assign
from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]


def function(w):
    """A function that is called later, or never."""
    if w.in_function > 1:
        return assign(w)
    name = w.name("f")
    known, place = dict(w.scope), w.place()
    form = w.c.choice(["def", "def", "nonlocal", "gen", "lambda", "recursive", "wraps"])
    if form == "lambda":
        w.scope["p"] = "T"
        w.put(f"{name} = lambda p, q={w.c.randint(0, 3)}: {w.expr('T')}")
        w.scope = known | {name: "G"}
        return
    if form == "recursive":
        w.write(f"def {name}(p, q=2):\n    if q <= 0: return p\n    return {name}($T + p, q - 1)")
        w.scope[name] = "G"
        return
    if form == "wraps":
        w.put(w.c.choice(["@functools.lru_cache(None)", "@functools.wraps(peek)", "@torch.no_grad()", "@traced", "@twice"]))
    outer = [n for n, k in w.scope.items() if n.startswith("v") and k in "TI" and not w.in_function]
    w.put(f"def {name}(p, q={w.expr('I', 2)}):")
    w.depth += 1
    if form == "nonlocal" and outer:
        var = w.c.choice(outer)
        w.put(f"nonlocal {var}")
        w.put(f"{var} = {var} + 1")
    w.inside({"p": "T", "q": "I"})
    w.depth -= 1
    w.block(1, 3)
    w.depth += 1
    w.put(f"{'yield' if form == 'gen' else 'return'} {w.expr('T')}")
    if form == "gen":
        w.put("LOG.append('resumed')")
        w.put("yield p")
    w.depth -= 1
    w.scope = known | {name: "g" if form == "gen" else "G"}
    w.loops, w.in_function, w.returns = place


def call(w):
    name = w.pick("G") or w.pick("g")
    if name is None:
        return function(w)
    arguments = w.expr("T") if w.c.random() < 0.6 else f"{w.expr('T')}, q={w.expr('I')}"
    result = w.fresh("T")
    w.put(f"{result} = {name}({arguments})" if w.scope[name] == "G" else f"{result} = sum({name}({arguments}), {w.expr('T')})")
    w.scope[result] = "T"


HELPED = {
    "H": [
        "@v = {0}($T)\n=> @v T",
        "@v = {0}($T, $T, $I)\n=> @v T",
        "@v = {0}(y=$T, x=$T, obj=$O, items=$L)\n=> @v T",
        "@v = {0}(*$M[:2], flag=$B, word=$S)\n=> @v T",
        "@m = [*map({0}, $M)]\n=> @m M",
        "@v = functools.partial({0}, n=$I)($T)\n=> @v T",
        "@d = {{k: {0}($T, n=k) for k in $L[:2]}}\n=> @d D",
        "try:\n    @v = {0}($T, table=$D)\nexcept Exception as error:\n    @v = x\n    LOG.append(error.args)\n=> @v T",
    ],
    "J": [
        "@i = {0}($T)\n@v = next(@i)\n=> @i E\n=> @v T",
        "for @t in {0}($T, n=$I):\n    LOG.append(@t)\n    BLOCK",
        "@m = [*{0}($T, items=$L)]\n=> @m M",
        "@v = sum({0}($T), $T)\n=> @v T",
        "@i = {0}($T, obj=$O)\nLOG.append(next(@i))\n@i.send($I)\n@i.close()",
        "def @f(p):\n    @k = yield from {0}(p)\n    BLOCK\n    yield @k\n@m = list(@f($T))\n=> @m M",
    ],
    "K": [
        "@v = {1}($I).{0}($T)\n=> @v T",
        "@o = {1}($I)\n@v = @o.{0}($T, n=$I)\n@v = @v + @o.{0}(y=@v, x=$T)\n=> @o O\n=> @v T",
        "@f = {1}($I).{0}\n@v = @f($T, items=$L)\n=> @v T",
    ],
}


def helped(w):
    """A call of a function of the module."""
    names = [name for name, kind in w.scope.items() if kind in HELPED]
    if not names:
        return call(w)
    name = w.c.choice(names)
    text = w.c.choice(HELPED[w.scope[name]]).format(name, name.upper())
    w.write(text.replace("BLOCK", "LOG.append($I)") if w.depth > 3 else text)


TEMPLATES = [
    """
def @f(p, *, k=$I):
    total = 0
    def @g(q):
        nonlocal total
        total += q
        return total
    @g(1)
    BLOCK
    return p * @g(k)
@v = @f($T)
=> @v T
=> @f G
""",
    """
@v = $I
@k = $T
def @f(p, q=@v, keep=[]):
    nonlocal @v, @k
    @v = @v + q
    @k = @k * 2
    keep.append(q)
    return p * len(keep)
LOG.append(@f($T).shape)
LOG.append(@f($T, 3).shape)
LOG.append((@v, @f.__defaults__[1]))
=> @v I
=> @k T
=> @f G
""",
    """
def @f(n):
    def @g(q):
        nonlocal n
        n += q
        def @h(q):
            nonlocal n
            n *= 2
            return n + q
        return @h
    return @g, lambda: n
@a, @b = @f($I)
LOG.append((@a(1)(2), @b(), @a($I)($I), @b()))
""",
    """
def @f(a, /, b=$I, *rest, key=$I, **more):
    return a, b, rest, key, sorted(more)
LOG.append(@f($I, *$L, key=#))
LOG.append(@f(*$L, **{'key': $I, 'other': 1}))
LOG.append(@f($S, a=$I))
""",
    """
@l = [lambda p, i=i: p * i for i in range(3)] + [lambda p: p + i for i in range(2)]
@v = sum(f($T) for f in @l)
=> @v T
""",
    """
@k = $I
@l = [(@w := i + @k) for i in $L if i > #]
LOG.append([[j + @w for j in range(i)] for i in @l[:2]])
""",
    """
i = $I
@d = {i: [i for i in range(i + 1)] for i in range(3)}
@s = {i % 2 for i in $L}
LOG.append((i, @d, @s, sum(i for i in $L)))
""",
    """
def @g(p, q=2):
    try:
        for @i in range(q):
            got = yield p * @i
            if got is not None: LOG.append(got)
            BLOCK
    except ValueError as error:
        LOG.append(error.args)
        yield p
    finally:
        LOG.append('closed')
@i = @g($T)
@v = next(@i)
LOG.append(@i.send($I).shape)
@v = @v + @i.throw(ValueError($I))
@i.close()
=> @v T
=> @g g
""",
    """
def @g(p):
    got = yield from relay(#)
    LOG.append(got)
    yield from (p, p * 2)
    return p
@l = list(@g($T))
@v = @l[-1] + len(@l)
=> @v T
""",
    """
@i = (p * # for p in $M)
@v = next(@i, $T)
BLOCK
@k = sum(@i, $T)
=> @v T
=> @k T
""",
    """
@i = counter(3)
for @j in @i:
    BLOCK
    if @j == 1: break
LOG.append(list(@i))
""",
    """
@f = functools.partial(varargs, $I, key=$I)
LOG.append(@f($S, *$L))
LOG.append((@f.args, sorted(@f.keywords)))
""",
    """
def @d(*, factor=$I):
    def @e(fn):
        @functools.wraps(fn)
        def @w(*args, **kwargs):
            LOG.append(fn.__name__)
            return fn(*args, **kwargs) * factor
        return @w
    return @e
def @f(p, q=1):
    BLOCK
    return p + q
@v = @d(factor=#)(@f)($T, q=$I)
=> @v T
""",
    """
@v = (lambda *a, **k: sum(a, $T) * len(k))($T, *$M, one=1, **{'two': $I})
=> @v T
""",
    """
@m = map(lambda p: p * 2, $M)
@v = next(@m)
LOG.append([t.shape for t in @m])
=> @v T
""",
]

SIMPLE = [(2, call), (5, helped)]
COMPOUND = [(2, function), *((1, template(text)) for text in TEMPLATES)]

"""Generators and iterators: driven by hand, delegated to, consumed a piece at a time across breaks, left open, ended by exceptions."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

TEMPLATES = [
    """
def @g(p, q=2):
    got = $I
    while q > 0:
        q -= 1
        try:
            got = yield (p * q, got)
            BLOCK
        except LookupError as error:
            LOG.append(error.args)
            q += len(error.args) - 1
        except Oops as error:
            raise ValueError('from inside') from error
        else:
            LOG.append(got)
        finally:
            LOG.append(q)
    return got
@i = @g($T)
@v, @k = next(@i)
try:
    @v = @v + @i.send($I)[0]
    BLOCK
    @v = @v + @i.throw($X)[0]
    LOG.append(next(@i)[1])
except StopIteration as stop:
    LOG.append(stop.value)
except ValueError as error:
    LOG.append((error.args, type(error.__cause__).__name__))
=> @v T
""",
    """
def @g(p):
    try:
        got = yield p
        LOG.append(('inner', got))
        got = yield p * 2
    except KeyError as error:
        LOG.append('inner handles')
        yield p * 3
        return 'handled'
    finally:
        LOG.append('inner ends')
    return got
def @h(p):
    try:
        result = yield from @g(p)
        BLOCK
        LOG.append(('outer', result))
        yield p - 1
    finally:
        LOG.append('outer ends')
@i = @h($T)
@v = next(@i)
@v = @v + @i.send($I)
try:
    @v = @v + @i.throw(KeyError(#))
    @v = @v + next(@i)
finally:
    @i.close()
LOG.append(next(@i, 'gone'))
=> @v T
""",
    """
def @g(p):
    for @j in range(4):
        LOG.append(('made', @j))
        BLOCK
        yield p + @j
@i = @g($T)
@v = next(@i)
note(@v)
@w = next(@i)
for @t in @i:
    @v = @v + @t
    if $B: break
print(n)
=> @v T
=> @i E
""",
    """
@i, @j = itertools.tee(iter($L), 2)
LOG.append((next(@i, None), list(@j), list(@i)))
""",
    """
@i = iter($L)
for @k in @i:
    LOG.append((@k, next(@i, 'none')))
    BLOCK
=> @i E
""",
    """
@i = enumerate(zip($M, itertools.count(#)), #)
@v = $T
for @k, (@t, @c) in @i:
    @v = @v + @t * @k + @c
    BLOCK
    if @k > #: continue
    LOG.append(@k)
=> @v T
=> @i E
""",
    """
class @C:
    def __init__(self, p, q=3):
        self.p, self.q = p, q
    def __iter__(self):
        return self
    def __next__(self):
        if self.q <= 0:
            raise StopIteration
        self.q -= 1
        BLOCK
        return self.p * self.q
@o = @C($T)
@v = sum(@o, $T)
LOG.append((@o.q, list(@o)))
@a, *@l = @C(@v, 2)
=> @a T
=> @v T
""",
    """
class @C:
    def __init__(self, *rows):
        self.rows = rows
    def __getitem__(self, q):
        LOG.append(q)
        return self.rows[q]
    def __len__(self):
        return len(self.rows)
    def __reversed__(self):
        BLOCK
        return iter([len(self)])
@o = @C($T, $I, $S)
LOG.append(([type(a).__name__ for a in @o], list(reversed(@o)), len(@o), $I in @o.rows))
@v, *_ = @o
=> @v T
""",
    """
@i = (j * $I for j in $L if j != #)
@k = next(@i, #)
BLOCK
LOG.append((@k, sum(@i), list(@i)))
""",
    """
@i = (lambda: ((yield $I), (yield $I)))()
LOG.append((next(@i), @i.send(#)))
try: @i.send('last')
except StopIteration as stop: LOG.append(stop.value)
""",
    """
def @g():
    @k = 0
    while True:
        @k += 1
        yield @k
@l = []
for @i, @j in zip(@g(), $L):
    @l.append(@i * @j if isinstance(@j, int) else @i)
LOG.append((@l, list(itertools.islice(@g(), #, 7, 2))))
=> @l L
""",
    """
def @g(p, q=2):
    if q > 0:
        yield p
        yield from @g(p * 2, q - 1)
        LOG.append(q)
    else:
        BLOCK
@v = $T
for @t in @g(@v):
    @v = @v + @t
=> @v T
=> @g g
""",
    """
def @g(p):
    with Guarded(LOG, $B), scope($S):
        yield p
        BLOCK
        yield p + 1
    yield p + 2
@i = @g($T)
@v = next(@i)
if $B: @i.close()
for @t in @i: @v = @v + @t
=> @v T
""",
    """
def @g(p):
    try:
        yield p
    finally:
        LOG.append('dropped')
        BLOCK
@v = next(@g($T))
for @t in @g(@v):
    break
LOG.append('after')
=> @v T
""",
    """
def @g(n):
    while n:
        n -= 1
        if n == #: return 'early'
        yield n
def @h(n):
    LOG.append((yield from @g(n)))
    LOG.append((yield from 'ab'))
@k = [*@h(3)]
LOG.append(@k)
""",
    """
def @g():
    raise StopIteration(#)
    yield
def @h():
    next(iter([]))
    yield
for @f in (@g, @h):
    try: next(@f())
    except (RuntimeError, StopIteration) as error: LOG.append((type(error).__name__, type(error.__cause__).__name__))
""",
    """
@i = $E
@k = next(@i, None)
BLOCK
@l = [a for a, _ in zip(@i, range(2))]
LOG.append((@k, @l))
=> @i E
""",
    """
async def @f(p):
    BLOCK
    return p + 1
@i = @f($T)
try: @i.send(None)
except StopIteration as stop: @v = stop.value
=> @v T
""",
    """
@i = map(lambda p, q: p * q, $M, itertools.cycle((#, 2)))
@v = next(@i) + next(@i, $T)
LOG.append([t.shape for t in @i])
=> @v T
""",
    """
@d = {'a': $T, 'b': $I, **$D}
@i = iter(@d.items())
LOG.append(next(@i))
BLOCK
@d['a'] = $I
for @k, @a in @i: LOG.append((@k, @a))
""",
]

SIMPLE = []
COMPOUND = [(1, template(text)) for text in TEMPLATES]

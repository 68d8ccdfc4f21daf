"""What programs see of order and identity: sets and dicts that are changed, iterators that several take from, memory that several names
show, what is built up step by step, and when blocks end."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

CONTAINERS = [
    """
@s = {*$L} | set($D)
@s.discard($I)
@s.add($I)
@s ^= {1, 9, 17, 33}
BLOCK
@t = @s.copy() - {$I}
@k = SHARED.setdefault('seen', set())
@k |= @t
@k.difference_update($L)
LOG.append(([*map(str, @s)], str(@t), [*map(str, frozenset(@s) & @k)], [*map(str, set(table).union(@s, $L))]))
""",
    """
@d = {**$D, 'z': $I}
@k = next(iter(@d))
@d[@k] = @d.pop(@k)
@d |= {'a': $T, 'y': 0}
BLOCK
del @d[next(reversed(@d))]
@d = {key: @d[key] for key in sorted(@d)} | dict(zip('zb', $L))
@o = @d.setdefault('l', [])
@o += [*@d.keys() & {'a', 'z'}]
LOG.append(([*@d], [*reversed(@d.items())][0][0], [*(@d.keys() - {'a'})], @d.keys() >= {'z'}, len(@o)))
""",
    """
@i = iter($L + [1, 2, 3])
@g = (LOG.append(k) or k for k in @i)
@l = [*zip(@g, @i)]
BLOCK
@j = iter(lambda: len(LOG) % 3, 0)
LOG.append((@l, next(@g, None), [k for _, k in zip('ab', @j)], 1 in iter($L), [*itertools.takewhile(bool, iter($L))]))
""",
    """
@l = [$T, $T * 2, $T + 1]
@l[1:2] = [t * 3 for t in @l[:2]]
for @t in @l:
    if len(@l) < 6: @l.append(@t + 1)
    BLOCK
@l.sort(key=lambda t: t.dim())
del @l[::2]
@l *= 2
@v = @l[-1]
LOG.append((len(@l), @l[0] is @l[len(@l) // 2], [@l.index(t) for t in @l[:1]]))
=> @v T
""",
    """
@w = []
for @k, @c in enumerate($S):
    @w.append(f'{@k:02d}{@c!r:>4}')
    BLOCK
@s = ''.join(@w)
@s += '%-8s|%s' % ($S, tuple($T.shape))
@b = io.StringIO()
print(*@w, $I, sep='/', end='.', file=@b)
@b.seek(1)
LOG.append((@s.center(30, '*'), @b.read(), @s.splitlines(), re.sub(r'(\\d)', lambda m: str(int(m[1]) + 1), @s), @s.casefold().count('a')))
""",
]
OBJECTS = [
    """
class @C:
    table = {}
    for k in range(3): table[k] = k * 2
    del k
    if $B: limit = $I
    else: limit = #
    total = sum(v for v in table.values())
    scale = $T
    def f(self, p):
        BLOCK
        type(self).scale = type(self).scale * 1
        return p * self.total + self.limit
    g = f
@v = @C().f($T) + @C().g(1)
LOG.append((sorted(k for k in vars(@C) if k[0] != '_'), @C.g is @C.f, @C.table))
=> @v T
""",
    """
class @D:
    def __set_name__(self, owner, name):
        self.name = '_' + name
        LOG.append(name)
    def __get__(self, o, kind=None): return self if o is None else getattr(o, self.name, None)
    def __set__(self, o, value):
        BLOCK
        setattr(o, self.name, value)
    def __delete__(self, o): delattr(o, self.name)
class @C:
    t, k = @D(), @D()
    def __init__(self, **given):
        for name, value in given.items(): setattr(self, name, value)
@o = @C(t=$T, k=$I)
@v = @o.t * @o.k
@o.t += 1
del @o.k
@o.__dict__['t'] = 5
LOG.append((@o.k, sorted(vars(@o)), @C.t.name, @o.t is @o._t))
=> @v T
""",
    """
class @C:
    def __init__(self, p): self.p, self.part = p, p.view(-1)[:1]
    def step(self):
        self.part.add_(1)
        self.p.extra = getattr(self.p, 'extra', 0) + 1
        self.seen = self.p.sum() if hasattr(self, 'seen') else None
        return self.p * 2
@o = @C($T.detach().clone().contiguous())
@v = @o.step()
BLOCK
@v = @v + @o.step()
LOG.append((@o.p.extra, @o.p._version, @o.part._base is @o.p, vars(@o.p), @o.seen))
=> @v T
""",
    """
@a = (x if $B else y).detach()
@b = @a.t() if @a.dim() == 2 else @a
@b[:1] = $F
@b.select(0, -1).mul_(2)
BLOCK
@c = torch.as_strided(@a, (2,), (1,))
@c.sub_(1)
@a[..., 0].masked_fill_(@a[..., 0] > #, 0.5)
@v = @a.select_scatter(@a.select(0, 0) + 1, 0, 0)
LOG.append((@a._version, @b._version, @a.data_ptr() == @c.data_ptr(), @v.is_contiguous()))
=> @v T
""",
]
ENDS = [
    """
with contextlib.ExitStack() as @s:
    @s.callback(LOG.append, $I)
    @c = @s.enter_context(contextlib.nullcontext($T))
    @s.push(lambda kind, error, trace: LOG.append(kind and kind.__name__) or kind is KeyError)
    @s.enter_context(torch.set_grad_enabled($B))
    BLOCK
    @v = @c * 2
    if $B: @s.pop_all().close()
    if $B: raise KeyError($I)
LOG.append((@v.requires_grad, torch.is_grad_enabled()))
""",
    """
try:
    try: raise $X
    except Exception as error:
        error.add_note(f'note {$I}')
        error.add_note($S)
        error.t = $T
        BLOCK
        raise
except Exception as error:
    @v = error.t + len(error.__notes__)
    LOG.append((error.__notes__, type(error).__name__, sorted(vars(error))))
=> @v T
""",
    """
def @f(p, q=$I):
    for k in range(3):
        try:
            if k == q % 3: continue
            p = p + k
            if k == 2: return p
        finally:
            LOG.append(k)
            BLOCK
            if q > 4: break
    else:
        p = p * 2
    return -p
@v = @f($T) + @f($T, 7)
=> @v T
""",
    """
def @g(p):
    try:
        while True:
            try: got = yield p
            except KeyError as error: got = len(error.args)
            if got is None: return p
            BLOCK
            p = p * got
    finally:
        LOG.append('over')
@i = @g($T)
next(@i)
@v = @i.send($I)
@w = @i.throw(KeyError('k', $I))
try: @i.send(None)
except StopIteration as stop: LOG.append((stop.value is @w, next(@i, 'done')))
=> @v T
=> @w T
""",
]

SIMPLE = []
COMPOUND = [(1, template(text)) for text in CONTAINERS + OBJECTS + ENDS]

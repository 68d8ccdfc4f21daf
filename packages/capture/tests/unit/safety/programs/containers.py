"""Containers that are changed through more than one name, while they are iterated, and nested in one another."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

TEMPLATES = [
    """
@a = table
@a['z'] = $T
del table[$S]
LOG.append((@a is table, list(@a)))
""",
    """
@a = @b = $L
@a.append($I)
@b += [$I]
@a = @a + [#]
LOG.append((@a, @b))
=> @b L
""",
    """
@d = {'rows': $L, 'deep': {'t': $T, 'l': [$I]}}
@r = @d['deep']
@r['l'].append(@d['rows'])
@r['t'] = @r['t'] * 2
@d['deep']['l'][0] += 1
LOG.append(@d)
@v = @d['deep']['t']
=> @v T
""",
    """
@d = dict($D)
for @k in @d:
    @d[@k] = #
    if $B: @d[@k * 2] = 1
LOG.append(@d)
""",
    """
@l = list($L)
for @i in @l:
    if len(@l) < 6: @l.append(@i + 1)
    if @i == #: @l.remove(@i)
LOG.append(@l)
=> @l L
""",
    """
@s = $Z
@t = @s
@s |= {$I}
@t ^= {#, $I}
LOG.append((sorted(@s), sorted(@t), @s is @t, @s <= @t))
=> @t Z
""",
    """
@s = set($L)
@a = @s
@a.add($I)
@a.discard(#)
@s.update($L)
@a.remove($I)
""",
    """
@k, @w = $D.keys(), $D.items()
LOG.append((list(@k), sorted(map(str, @w)), @k & {'a', 'b'}))
table['late'] = $I
LOG.append((list(@k), len(@w)))
""",
    """
@l = [[#] * 2] * 2
@l[0].append($I)
@l[1] = @l[0] + [$I]
LOG.append(@l)
a, (b, *c), *d = $I, @l[0], *$L
LOG.append((a, b, c, d))
""",
    """
@m = $M
@m[0].add_(#)
@m.append(@m[0])
@m[-1].mul_(2)
@v = @m[0]
items.append(@v.shape)
=> @v T
=> @m M
""",
    """
@q = collections.deque($L, maxlen=3)
@q.appendleft($I)
@q.rotate(#)
@q.extend($L)
LOG.append((@q, @q.pop(), list(@q)))
""",
    """
@d = collections.defaultdict(list)
for @i, @t in enumerate($M):
    @d[@i % 2].append(@t * @i)
@v = sum(@d[0], $T)
LOG.append((len(@d), [len(l) for l in @d.values()]))
=> @v T
""",
    """
@l = sorted($L, key=lambda i: (i % 2, -i), reverse=$B)
@l[1:2] = $L
@l[::-1] = list(@l)
LOG.append((@l, max(@l, default=#), [*zip(@l, @l[1:])]))
=> @l L
""",
    """
@d = {**$D, 'k': [$T]}
@c = {**@d}
@c['k'].append($I)
@d |= {'a': #}
LOG.append((len(@d['k']), @c.get('a'), @d == @c, @d.setdefault('new', @c) is @c))
""",
    """
@i = iter($L)
@l = list(zip(@i, @i))
LOG.append((@l, next(@i, 'end')))
""",
    """
@a, @b = $L, []
while @a and len(@b) < 4:
    @b.append(@a.pop())
    BLOCK
LOG.append(@b)
""",
    """
@t = ([$I], $L)
try:
    @t[0] += [#]
except TypeError as error:
    LOG.append(str(error))
LOG.append(@t)
""",
    """
@f = {'add': operator.add, 'mul': lambda p, q: p * q, 'step': obj.step}
@v = @f['add']($T, $I)
for @k in ('mul', 'add'):
    @v = @f[@k](@v, $I)
@f['step']($I)
=> @v T
""",
]

SIMPLE = []
COMPOUND = [(1, template(text)) for text in TEMPLATES]

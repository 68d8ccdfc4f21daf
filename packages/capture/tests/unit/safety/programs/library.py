"""The standard library as programs use it: collections, itertools, functools, operator, copy, strings and formats."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

TEMPLATES = [
    """
@q = $Q
@q.append($T)
@q.extendleft($L)
BLOCK
@q.rotate(#)
LOG.append((len(@q), @q.maxlen, @q.count(#)))
@q.popleft()
=> @q Q
""",
    """
@d = collections.OrderedDict($D)
@d['t'] = $T
@d.move_to_end('t', last=$B)
BLOCK
LOG.append((list(@d), @d.popitem(last=$B)[0], [*reversed(@d)]))
=> @d D
""",
    """
@d = collections.defaultdict(lambda: [$I])
for @i, @k in enumerate(list($L)[:4]):
    @d[@i % 2].append(@k)
    BLOCK
LOG.append((dict(@d), @d[9], 9 in @d, @d.get(8), len(@d)))
""",
    """
@c = collections.Counter($L)
@c.update(a=2, b=$I)
@c['a'] -= 1
@c.subtract({'b': 1})
LOG.append((@c['a'], @c['zz'], sorted(map(str, @c.elements()))[:3], @c.total(), (@c + @c)['a']))
""",
    """
@c = collections.ChainMap({'a': $I}, $D)
@c['new'] = $T
@m = @c.new_child({'a': 0})
LOG.append((@m['a'], len(@m), sorted(@c), 'new' in @m.parents))
""",
    """
@l = sorted($L, key=operator.neg)
@l.sort(key=lambda p: (p % 3, p), reverse=$B)
LOG.append((@l, max(@l, key=abs, default=0), min(@l + [#])))
=> @l L
""",
    """
@l = sorted($M, key=lambda t: (t.dim(), t.numel()))
@v = max(@l, key=torch.Tensor.numel, default=$T)
LOG.append([t.shape for t in @l])
=> @v T
""",
    """
@l = [(k, [*g]) for k, g in itertools.groupby($L, key=lambda p: p > #)]
LOG.append(@l)
LOG.append([*itertools.pairwise($L)])
LOG.append([*itertools.zip_longest($L, $S, fillvalue=#)])
LOG.append([*itertools.combinations($L[:3], 2)] + [*itertools.permutations('ab')])
""",
    """
@l = [*itertools.compress($L, [1, 0, $B, 1])]
@l += itertools.dropwhile(lambda p: p < #, $L)
@l.extend(itertools.starmap(pow, [(2, 3), ($I, 2)]))
@l += [*itertools.chain.from_iterable([$L, (#, #)])]
@l += itertools.filterfalse(lambda p: p % 2, $L)
@l += itertools.repeat($I, 2)
LOG.append((@l, [*itertools.accumulate(@l, max, initial=#)]))
=> @l L
""",
    """
@v = functools.reduce(lambda p, q: p + q * 2, $M, $T)
@f = functools.partial(operator.add, $I)
@w = functools.partial(torch.mul, other=$F)(@v)
LOG.append((@f($I), @f.func is operator.add, [*map(@f, $L)]))
=> @w T
""",
    """
@functools.lru_cache(maxsize=None)
def @f(q):
    LOG.append(('computed', q))
    return q if q < 2 else @f(q - 1) + @f(q - 2)
LOG.append((@f(5), @f(5), @f.cache_info().misses))
@v = $T * @f($I % 5)
=> @v T
""",
    """
@functools.total_ordering
class @C:
    def __init__(self, k): self.k = k
    def __eq__(self, other): return self.k == other.k
    def __lt__(self, other):
        BLOCK
        return self.k < other.k
@a, @b = @C($I), @C($I)
LOG.append((@a >= @b, @a != @b, max(@a, @b).k, [o.k for o in sorted([@b, @a], key=functools.cmp_to_key(lambda p, q: q.k - p.k))]))
""",
    """
@a, @b, @c = operator.itemgetter(0, -1)($L), operator.attrgetter('shape', 'dtype')($T), operator.methodcaller('sum', 0)($T)
LOG.append((@a, @b, operator.concat($L, [#]), operator.contains($L, #), operator.indexOf([1, 2], 2), operator.truth($O)))
@k = operator.iadd($I, $I)
=> @c T
""",
    """
@l = $L
@o = copy.copy(@l), copy.deepcopy({'l': @l, 't': [$I]})
@l.append($I)
BLOCK
LOG.append((@o, @l))
""",
    """
@o = copy.deepcopy($R)
@o.rows.append($I)
@p = copy.copy($O)
@p.value = $I
LOG.append((@o, @p.value, @p.items is obj.items))
""",
    """
LOG.append(f'{$T.shape} {tuple($T.shape)} {$T.size(0):03d} {$I!r:>6} {$S!s:^7}|{$F:.3e}')
LOG.append('{0} {1:>{w}} {k}'.format($I, $S, w=#, k=list($T.size())))
LOG.append('%5d|%-4s|%r|%x|%.2f' % ($I, $S, $L, abs($I), $F))
LOG.append(f'{$I:+,d}' + f'{$I:b}'.zfill(6) + str($T.shape[-1:]) + repr($F))
""",
    """
@s = $S + 'x,y;z'
LOG.append((@s.split(','), @s.rpartition(';'), @s.title(), @s.find('y'), @s.center(12, '*'), @s.translate({97: 'Q'}), @s.casefold()))
LOG.append((*map(str.upper, @s[:3]), @s.isalpha(), @s.encode()[:2], @s.removeprefix('a'), '-'.join(@s[::2]), @s.splitlines(), @s.expandtabs(2)))
=> @s S
""",
    """
@k = $I
LOG.append((@k.bit_length(), divmod(@k, 3), -@k // 2, @k % -3, @k >> 1, ~@k, @k ^ 5, float(@k).is_integer(), @k.__index__(), bool(@k), hash(@k)))
@f = $F
LOG.append((round(@f, 1), int(@f), @f // 1, @f % 2, math.trunc(@f), @f.as_integer_ratio() if abs(@f) < 9 else 0, abs(@f), -@f, @f ** 2, @f > @k))
@v = $T * @k + @f
=> @v T
""",
    """
@z = $Z
@z ^= {#, #}
@z -= $Z
LOG.append((@z.isdisjoint({1}), @z.issubset({1, 2, 3}), @z | {1} >= {1}, len(@z & $Z), frozenset(@z) == @z, @z.symmetric_difference([1])))
for @k in sorted(@z):
    BLOCK
=> @z Z
""",
    """
@d = dict($D)
@d |= [('p', $I), ('q', $T)]
@k = @d.pop('p', None), @d.popitem()[0], @d.setdefault('s', []).append($I)
BLOCK
LOG.append((@k, list(@d.items())[-1:], @d.keys() - {'a'}, [*reversed(@d)], @d.get('zz'), {**@d, 'a': 1} == @d))
for @a in list(@d): del @d[@a]
LOG.append(@d)
""",
    """
@l = $L
@l[1:1] = $L
@l[::2] = [#] * len(@l[::2])
del @l[-1:]
BLOCK
@l.insert(-1, $I)
LOG.append((@l[::-1], @l[-2:], @l.count(#), @l * 2, [#] + @l, @l < [3], @l.index(@l[0]) if @l else None))
@a, *@b = [*@l, $I]
[@a, *@b][0] if @b else None
=> @l L
""",
    """
@a, (@b, *@c), *@d = $T, ($I, *$L), *$M
LOG.append((@b, @c, len(@d)))
@f = lambda *args, k=#, **more: (len(args), k, sorted(more))
LOG.append((@f(*@c, **$D), @f(@a, *@d, k=@b), @f(*$S, *@c)))
=> @a T
""",
    """
@b = bytearray($S.encode())
@b.append(65)
@b[0:1] = b'zz'
LOG.append((bytes(@b), @b.decode().upper(), memoryview(@b)[0], b'a' in @b, bytes([1, 2]).hex()))
""",
    """
@h = []
for @k in $L: heapq.heappush(@h, -@k)
LOG.append(([heapq.heappop(@h) for _ in range(min(2, len(@h)))], bisect.bisect([1, 3, 5], $I), heapq.nlargest(2, $L)))
""",
    """
@m = re.match(r'(?P<w>[a-c]+)(.*)', $S)
LOG.append((@m and @m.group('w'), re.sub('b', '_', $S), re.findall('[ab]', $S)))
LOG.append((json.loads(json.dumps({'l': $L[:1], 's': $S})), textwrap.shorten($S, 8)))
""",
    """
@w = warnings.catch_warnings(record=True)
with @w as @l:
    warnings.simplefilter('always')
    warnings.warn($S)
    BLOCK
LOG.append([str(i.message) for i in @l if 'recompile' not in str(i.message)])
""",
    """
@s = inspect.signature(varargs)
@b = @s.bind($I, *$L, key=#)
@b.apply_defaults()
LOG.append((list(@s.parameters), @b.arguments['key'], @b.args[:1], varargs.__name__, inspect.isfunction(varargs)))
""",
    """
@d = weakref.WeakValueDictionary()
@o = Base($I)
@d['o'] = @o
@r = weakref.ref(@o)
BLOCK
LOG.append((@r() is @o, 'o' in @d, @r().value))
""",
    """
@a = array.array('d', [$F, 2.0])
@a.append($I)
LOG.append((@a[0], len(@a), sum(@a), @a.tolist()))
""",
    """
@f = fractions.Fraction($I, 3) + 1
@c = complex($F, $I)
LOG.append((@f.numerator, @f > 1, @c.real, (@c * 2).imag, abs(@c), @c.conjugate() == @c))
""",
]

SIMPLE = []
COMPOUND = [(1, template(text)) for text in TEMPLATES]

"""What Python's own types and modules can do beyond the common: numbers, texts, containers, iterators, operators, namespaces, generics."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

TYPES = [
    """
@k, @f = $I, $F
@k = int(@k)
LOG.append((@k.bit_length(), @k.bit_count(), (@k & 255).to_bytes(2, 'big'), int.from_bytes(b'ab', 'little', signed=True), @k.as_integer_ratio()))
LOG.append((@k.conjugate(), (-@k).__abs__()))
LOG.append((@f.is_integer(), @f.hex(), float.fromhex('0x1.8p1'), @f.as_integer_ratio()[1] > 0, divmod(@f, 2), divmod(-7, @k or 1), pow(@k, 2, 5)))
LOG.append((round(@f, 1), round(-2.5)))
LOG.append((int('0b101', 0), int('ff', 16), float('inf') > @f, float('1e3'), complex(@k, 2) * 1j, abs(3 + 4j), (1 + 2j).conjugate().imag, bool(@k)))
LOG.append((~@k, @k ** -1 if @k else 0, -@k // 3, -@k % 3))
BLOCK
LOG.append((math.gcd(@k, 12), math.lcm(4, 6), math.comb(5, 2), math.isqrt(abs(@k)), math.fsum([0.1] * 3), math.hypot(3, 4), math.copysign(1, -0.0)))
LOG.append((math.frexp(8.0), math.modf(@f), math.ulp(1.0), math.dist([0], [3]), math.isclose(@f, @f + 1e-12), math.nextafter(1, 2), math.cbrt(8)))
@v = $T * (@k & 3) + @f
=> @v T
""",
    """
@s = $S + 'Abc dEf\\tx,y'
LOG.append((@s.title(), @s.casefold(), @s.expandtabs(4), @s.splitlines(), @s.rpartition(' '), @s.removeprefix('A').removesuffix('y')))
LOG.append((@s.center(20, '-'), @s.ljust(18) + '|', @s.rsplit(None, 1), @s.capitalize()))
LOG.append((@s.translate({97: 'Z', 98: None}), @s.translate(str.maketrans('xy', 'uv', 'A')), '{a}{b!r}'.format_map({'a': 1, 'b': @s[:2]})))
LOG.append((@s.isidentifier(), @s.istitle(), @s.isascii(), 'a1'.isalnum(), '１'.isdecimal(), ' '.isspace(), @s.encode().isalpha()))
BLOCK
@b = @s.encode('utf-8')
LOG.append((@b[0], @b[:2], @b.upper().split(b' '), @b.replace(b'b', b''), b'-'.join([b'a', @b[:1]]), bytes([1, 2]) + bytes(2)))
LOG.append((@b.startswith((b'A', b's')), bytes.fromhex('6162'), b'%d|%s' % (3, b'x'), @b.decode('ascii', 'replace')[:1]))
LOG.append((f'{3.14159:+08.2f}{1234567:_}{255:08b}{0.25:.1%}{"s":>{5}}{True:d}{1e10:g}{-3: d}{2:^5}|{[1]!s:>5}', chr(65)))
LOG.append(('%-5s|%5.1f|%x|%c' % ('a', 2.25, 255, 'q'), format(1.5, '010.3e'), '{:>{w}}'.format('r', w=4), f'{@s[:1]!r}{@s=!s:.6}'))
LOG.append((min(@s), sorted(@s, key=str.lower)[:3], max('ab', 'b', key=len), @s.index('b'), @s.rindex('b'), 'b' in @s, @s < 'B', @s * 0, @s[1:-1:3]))
LOG.append(([*reversed(@s)][:2], @s.count('')))
""",
    """
@c = collections.Counter('abca')
@c.subtract({'a': $I})
@c.update(b=2)
@q = collections.deque(range(5), maxlen=4)
@q.rotate($I)
@q.extendleft([7, 8])
@q.appendleft(9)
@q.remove(9)
@o = collections.OrderedDict(a=1, b=2, c=3)
@o.move_to_end('a')
@o.move_to_end('c', last=False)
@d = collections.defaultdict(lambda: [$I])
@d['x'].append(1)
BLOCK
@m = collections.ChainMap({'a': 1}, {'a': 2, 'b': 3}).new_child()
@m['b'] = 4
@m.pop('b')
@u, @s = collections.UserList([3, 1]), collections.UserString('text')
@u.sort()
LOG.append((sorted(@c.elements()), @c.total(), +@c, @c - collections.Counter('b'), @c['zz'], [*@q], @q.index(7), @q.count(0), @q.maxlen, @q[1]))
LOG.append((@o.popitem(False), [*@o], dict(@d), @d.get('no')))
LOG.append((@m['b'], [*@m], @m.parents.maps, @u + [1], @u[0], @s.upper() + '!', @s[1:], collections.Counter(a=1) == collections.Counter(a=1, b=0)))
LOG.append((@d.default_factory is None, [*collections.deque('ab').copy()]))
try: @q[9]
except IndexError as error: LOG.append(error.args)
""",
    """
@l = $L + [3, 1, 2]
LOG.append(([*itertools.compress('abcd', [1, 0, 1])], [*itertools.dropwhile(lambda k: k < 2, @l)], [*itertools.filterfalse(lambda k: k % 2, @l)]))
LOG.append(([*itertools.pairwise(@l)][:2], [*itertools.starmap(pow, [(2, 3), (3, 2)])], [*itertools.zip_longest('ab', @l, fillvalue='-')][:3]))
LOG.append(([*itertools.permutations('abc', 2)][:3], [*itertools.combinations(@l, 2)][:2], [*itertools.product([0, 1], 'a')]))
LOG.append(({k: [*g] for k, g in itertools.groupby(sorted(@l), key=lambda k: k > 1)}, [*itertools.chain.from_iterable([[1], (2,)])]))
LOG.append(([*itertools.accumulate([1, 2, 3], lambda a, b: a * b, initial=$I)],))
BLOCK
@i = itertools.count($I, -2)
@j, @k = itertools.tee(itertools.islice(@i, 4))
next(@k)
LOG.append(([*zip(@j, @k)], next(@i), [*itertools.islice(itertools.repeat('r', 3), 1, None)], [*itertools.takewhile(str.isalpha, 'ab1c')]))
LOG.append(([*zip(itertools.cycle('ab'), range(3))],))
try: [*zip([1], [1, 2], strict=True)]
except ValueError as error: LOG.append(error.args)
@t = $T
@v = functools.reduce(operator.add, itertools.accumulate([@t, @t.detach() * 0 + 1], torch.maximum if $B else torch.mul))
@v = @v + sum(map(operator.mul, [@t], [2]), start=@t)
=> @v T
""",
    """
@l, @d = $L + [1, 2, 3], {'a': 1, **$D}
LOG.append((operator.is_(@l, @l), operator.is_not(1, None), operator.not_(@l), operator.truth([]), operator.concat(@l, [9])))
LOG.append((operator.contains(@l, 2), operator.countOf(@l, 1), operator.indexOf(@l, 3), operator.call(len, @l), operator.itemgetter(0, -1)(@l)))
LOG.append((operator.itemgetter('a')(@d), operator.itemgetter(slice(1))(@l)))
operator.setitem(@d, 'q', $I)
operator.delitem(@d, 'a')
operator.iconcat(@l, [5])
@k = operator.iadd($I, 2)
BLOCK
LOG.append((@l, @d, @k, operator.floordiv(7, 2), operator.matmul(torch.ones(2), torch.ones(2)).item(), operator.lshift(1, 3), operator.inv(2)))
LOG.append((operator.neg($I), operator.pos(True), operator.xor(5, 1), operator.ge(2, 2), operator.methodcaller('count', 1)(@l)))
LOG.append((operator.attrgetter('kind')(Base),))
@v = operator.itemgetter((..., None))($T) if $B else operator.getitem($T, ...)
@v = operator.mul(operator.truediv(@v, 2), operator.pow(2, 3))
@w = operator.imul(@v, 2)
LOG.append(@w is @v)
=> @v T
""",
    """
@n = types.SimpleNamespace(t=$T, k=$I)
@n.k += 1
@p = types.MappingProxyType({'a': @n.k})
vars(@n)['more'] = [1]
setattr(@n, 'x y', 2)
@m = types.ModuleType('made')
@m.value = @n.k
exec('def f(p, q=3):\\n    return p * q + value', vars(@m))
BLOCK
@v = @m.f(@n.t)
del @n.k, @m.value
try: @m.f(1)
except NameError as error: LOG.append(error.name)
LOG.append((hasattr(@n, 'k'), @p['a'], @n.more, sorted(vars(@n)), @p | {'b': 1}, type(@m).__name__, eval('1 + k', {'k': 2})))
LOG.append((types.new_class('Made', (Base,), {}, lambda ns: ns.update(q=1)).q,))
try: @p['b'] = 1
except TypeError as error: LOG.append(str(error)[:8])
LOG.append((@m.f.__defaults__, @m.f.__code__.co_name, Ellipsis is ..., NotImplemented is not None, types.MethodType(lambda self, k: self + k, 3)(4)))
LOG.append((isinstance(@m.f, types.FunctionType),))
=> @v T
""",
    """
@g = sys.modules['program']
@g.COUNT = $I
@g.fresh_@g = [1]
LOG.append((globals()['COUNT'], COUNT, 'fresh_@g' in globals()))
globals()['COUNT'] += 1
BLOCK
del @g.fresh_@g
@m = __import__('math')
@f = getattr(@g, 'varargs')
@g.varargs, @k = (lambda *a: 'patched'), @g.varargs
LOG.append((varargs(1), COUNT, hasattr(@g, 'fresh_@g'), @m.floor(1.5)))
@g.varargs = @k
LOG.append(varargs(1)[:1])
try: fresh_@g
except NameError as error: LOG.append('gone')
""",
    """
def @f[T](p: T, k: int = $I) -> T:
    BLOCK
    return p * k
class @C[T, *Ts, **P](Base):
    def f(self, p: T) -> T: return p + self.value
    def g[U](self, p: U) -> U: return p
type @A = list[int] | @C
type @B[T] = dict[str, T]
@v = @f($T) + @C[int, str]($I).f($T)
LOG.append((@f.__type_params__[0].__name__, len(@C.__type_params__), @A.__name__[0], @C.g.__type_params__[0].__name__, @B[int].__args__))
LOG.append(([x := k for k in itertools.batched([1, 2, 3], 2)],))
=> @v T
""",
]

SIMPLE = []
COMPOUND = [(1, template(text)) for text in TYPES]

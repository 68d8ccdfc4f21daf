"""The rest of the language: protocols, hooks of classes, patterns, groups of exceptions, and what larger models do with hooks, buffers,
copies and arrays."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

LANGUAGE = [
    """
class @C:
    def __init__(self, p): self.p = p
    def __imatmul__(self, other):
        LOG.append('imatmul')
        BLOCK
        self.p = self.p * other
        return self
    def __itruediv__(self, other): return @C(self.p / 2)
    def __ipow__(self, other): return NotImplemented
    def __pow__(self, other, mod=None): return @C(self.p ** 2)
    def __ifloordiv__(self, other): return self
    def __ilshift__(self, other): return [self, other]
    def __rshift__(self, other): return (self.p, other)
    def __ixor__(self, other): raise $X
@o = @C($T)
@o @= $I
@o /= 4
@o **= 2
@o //= $I
@v = @o.p
@t = @o >> $I
LOG.append((len(@t), type(@o).__name__[0]))
@o <<= 1
LOG.append(len(@o))
@k = @o[0]
if $B: @k ^= 1
=> @v T
""",
    """
@a = $T.detach().clone().float()
@b = torch.eye(@a.shape[-1]) if @a.dim() else torch.ones(())
@c = @a
@c @= @b
@d = @a
@d **= 2
@d /= 2
@k = $I
@k **= 2
@k <<= 1
@k >>= 1
@k %= 7
@k ^= 3
@f = $F
@f //= 1
@f %= 2
BLOCK
LOG.append((@c is @a, @d is @a, @k, @f))
=> @c T
=> @d T
""",
    """
class @M(type):
    @classmethod
    def __prepare__(mcls, name, bases, **more):
        LOG.append(('prepare', sorted(more)))
        return collections.OrderedDict(made=$I)
    def __new__(mcls, name, bases, body, **more):
        return super().__new__(mcls, name, bases, dict(body))
    def __init__(cls, name, bases, body, **more):
        super().__init__(name, bases, body)
        cls.order = [k for k in body if not k.startswith('__')]
    def __instancecheck__(cls, other): return isinstance(other, int)
    def __subclasscheck__(cls, other): return other is int or super().__subclasscheck__(other)
    def __getattr__(cls, name):
        LOG.append(name)
        return len(name)
    def __iter__(cls): return iter(cls.order)
    def __len__(cls): return 3
    def __getitem__(cls, k): return k
    def __or__(cls, other): return (cls.__name__[0], other)
    def __setattr__(cls, name, value): super().__setattr__(name, value)
class @C(metaclass=@M, tag=$S):
    one = made + 1
    def f(self, p):
        BLOCK
        return p * type(self).made
@v = @C().f($T)
@C.two = $I
LOG.append((isinstance(3, @C), issubclass(bool, @C), issubclass(int, @C), @C.missing, [*@C], len(@C), @C[#], @C | 2, @C.two))
=> @v T
""",
    """
class @A(abc.ABC):
    @classmethod
    def __subclasshook__(cls, other):
        return True if 'quack' in vars(other) else NotImplemented
    @abc.abstractmethod
    def quack(self): ...
    @staticmethod
    @abc.abstractmethod
    def other(): ...
class @B:
    def quack(self): return $T
class @D(@A):
    quack = @B.quack
    other = staticmethod(lambda: $I)
@A.register(Base)
@o = @D()
@v = @o.quack() + @o.other()
BLOCK
LOG.append((isinstance(@B(), @A), isinstance(Derived(1), @A), sorted(@A.__abstractmethods__), isinstance(@o, collections.abc.Hashable)))
=> @v T
""",
    """
class @C(collections.abc.MutableMapping):
    def __init__(self, *args, **more):
        self.d = {}
        self.update(*args, **more)
    def __getitem__(self, k): return self.d[k]
    def __setitem__(self, k, value):
        BLOCK
        self.d[k] = value
    def __delitem__(self, k): del self.d[k]
    def __iter__(self): return iter(self.d)
    def __len__(self): return len(self.d)
@d = @C({'t': $T}, k=$I)
@d['k'] += 1
@d.setdefault('l', []).append($I)
@v = @d.pop('t') * @d['k']
LOG.append((sorted(@d), 'k' in @d, @d.get('zz', #), @d == {'k': 1}, @d.pop('zz', None), [*@d.values()], @d.popitem()[0], varargs(0, **@d)))
match @d:
    case {'l': [a, *_], **rest}: LOG.append((a, sorted(rest)))
    case _: LOG.append('none')
=> @v T
""",
    """
class @C(collections.abc.Sequence):
    def __init__(self, *l): self.l = l
    def __len__(self): return len(self.l)
    def __getitem__(self, k):
        LOG.append(('get', k))
        return self.l[k]
@o = @C($T, $I, $I)
@v = @o[0]
BLOCK
LOG.append((3 in @C(1, 3), [*reversed(@C(1, 2))], @C(4, 5, 4).count(4), @C(1, 2).index(2), len(@o)))
match @C($I, $I, $I):
    case [a, b]: LOG.append('two')
    case [a, *b] if a == b[-1]: LOG.append('ends')
    case (a, _, c): LOG.append(a + c)
@a, @b, *@c = @o
=> @v T
""",
    """
class @C:
    __match_args__ = ('t', 'k')
    def __init__(self, t, k=None): self.t, self.k = t, k
class @K:
    LOW, HIGH = 1, $I
def @f(o, p):
    match o:
        case @C(t, @K.LOW): return p + 1
        case @C(t, @C(_, k)) if k: return p * 2
        case @C(k=None | []) as q: return p - 1
        case {'a': int(a) | float(a), **rest} if not rest: return p * a
        case [@C() as a, *_] | (_, @C() as a): return p * 3
        case str() | bytes(): return p + 3
        case (-1 | 0 | 1) as a: return p + a
        case [[*_], {}] | set(): return p
        case bool() | None: return -p
        case _:
            BLOCK
            return p * 0
@v = $T
for @o in [@C(@v, $I), @C(1, @C(2, $I)), @C(1), {'a': $I}, [@C(0), 2], (1, @C(0)), $S, $I, [[1], {}], $B, $Z, $D]:
    @v = @f(@o, @v)
=> @v T
""",
    """
@c = $I
match ($T.shape, $T.dtype, $L):
    case ((a, b), torch.float32, [int(c), *_]) if a > b: @c = a * b
    case ([a], torch.float32 | torch.float64, _): @c = a
    case (torch.Size() as a, _, [] | [_]): @c = len(a)
    case (_, d, [*_, c]):
        BLOCK
        LOG.append(str(d))
@v = $T * @c
=> @v T
""",
    """
def @f(k):
    errors = []
    for @e in (ValueError(k), KeyError('k'), OSError(2, 'no'), $X):
        try: raise @e
        except Exception as error: errors.append(error)
    raise ExceptionGroup('several', [*errors[:2], ExceptionGroup('inner', errors[2:])])
@v = $T
try:
    try:
        @f($I)
    except* (ValueError, ZeroDivisionError) as group:
        @v = @v + len(group.exceptions)
        BLOCK
    except* KeyError as group:
        LOG.append(group.message)
        raise Oops('from a group') from group.exceptions[0]
    finally:
        LOG.append('finally')
except ExceptionGroup as rest:
    @a, @b = rest.split(OSError)
    LOG.append((len(rest.exceptions), @a and @a.message, @b is None, rest.subgroup(lambda e: isinstance(e, Oops)) is None))
    LOG.append([type(e).__name__ for e in rest.derive([ValueError(1)]).exceptions])
=> @v T
""",
    """
class @C:
    def __init__(self, log, swallow=None): self.log, self.swallow = log, swallow
    def __enter__(self):
        if self.swallow is KeyError: raise KeyError('entering')
        return self.log
    def __exit__(self, kind, error, trace):
        self.log.append((kind and kind.__name__, trace is None))
        if kind is ZeroDivisionError: raise Oops('leaving')
        return kind is self.swallow
@l = []
@v = $T
for @k in (None, ValueError, KeyError, ZeroDivisionError):
    try:
        with @C(@l) as @a, @C(@a, @k):
            @v = @v + 1
            BLOCK
            if @k is not None: raise @k($I)
            @l.append('plain')
    except (Oops, KeyError) as error:
        LOG.append((error.args, type(error.__context__).__name__))
LOG.append(@l)
=> @v T
""",
    """
@contextlib.contextmanager
def @m(p, *, k=$I):
    @s = [p]
    LOG.append('enter')
    try:
        got = yield @s
        LOG.append(got)
    except Oops as error:
        LOG.append(error.code)
        raise KeyError('other') from error
    except LookupError:
        @s.append(k)
    finally:
        BLOCK
        LOG.append(len(@s))
@v = $T
try:
    with @m(@v) as @a, @m(@a[0], k=2) as @b, contextlib.suppress(ValueError):
        @b.append(@a[0] * 2)
        BLOCK
        if $B: raise $X
    @v = @b[-1]
except KeyError as error:
    LOG.append((error.args, type(error.__cause__).__name__))
=> @v T
""",
    """
class @D:
    def __init__(self, f):
        self.f = f
        functools.update_wrapper(self, f)
    def __get__(self, instance, owner=None):
        LOG.append((instance is None, owner.__name__[0]))
        return self if instance is None else types.MethodType(self, instance)
    def __call__(self, *args, **more):
        BLOCK
        return self.f(*args, **more)
def @e(cls):
    cls.tagged = True
    cls.old, cls.f = cls.f, lambda self, p: cls.old(self, p) + 1
    return cls
@@e
class @C:
    @@D
    def f(self, p, q=$I): return p * q
    g = @D(lambda self: self.k)
    k = property(lambda self: $I, doc='the k')
@o = @C()
@v = @o.f($T) + @o.g()
LOG.append((@C.tagged, @C.g.__get__(@o, @C)(), @C.k.__doc__, @C.old.__name__))
=> @v T
""",
    """
class @S:
    __slots__ = ('a', 'b', '__weakref__')
    c = 3
    def __init__(self, *args):
        for name, value in zip(('a', 'b'), args): setattr(self, name, value)
class @R(@S):
    __slots__ = {'d': 'the d'}
    def __getstate__(self): return (self.a, self.b)
    def __setstate__(self, state):
        LOG.append('state')
        self.a, self.b = state
@o = @R($T, $I)
@o.d = $L
BLOCK
@o.b += @o.c
@p = copy.copy(@o)
for @n in ('c', 'zz'):
    try: setattr(@o, @n, 1)
    except AttributeError as error: LOG.append(error.name)
@v = @p.a * @p.b
LOG.append((hasattr(@p, 'd'), hasattr(@o, '__dict__'), @S.a.__get__(@o) is @p.a, weakref.ref(@o)() is @o))
=> @v T
""",
    """
@dataclass(kw_only=True)
class @C:
    t: object
    k: dataclasses.InitVar[int] = $I
    made: int = dataclasses.field(init=False, default=0)
    every: typing.ClassVar[list] = []
    def __post_init__(self, k):
        self.made = k
        self.every.append(k)
@dataclass(frozen=True, eq=True)
class @D(Key):
    more: tuple = ()
    def __post_init__(self): object.__setattr__(self, 'rank', self.rank + 1)
@o = @C(t=$T)
@p = dataclasses.replace(@o, t=@o.t * 2, k=@o.made)
BLOCK
@v = @p.t + @p.made
@k = @D($S, $I, (1, 2))
for @n in ('rank', 'fresh'):
    try: setattr(@k, @n, 1)
    except dataclasses.FrozenInstanceError as error: LOG.append(str(error))
LOG.append((len(@C.every), @k, @k == @D(@k.name, @k.rank - 1, (1, 2)), hash(@k) == hash((@k.name, @k.rank, @k.more)), dataclasses.asdict(@k)))
=> @v T
""",
    """
class @E(enum.Enum):
    A = enum.auto()
    B = enum.auto()
    C = (3, $S)
    @classmethod
    def _missing_(cls, value):
        LOG.append(value)
        return cls.B if value == 9 else None
    def __call__(self, p): return p * self.rank
    @property
    def rank(self): return self.value[0] if isinstance(self.value, tuple) else self.value
class @S(enum.StrEnum):
    RED = enum.auto()
    BLUE = 'b'
class @I(enum.IntEnum):
    ONE = 1
    TWO = 2
@v = $T
for @e in @E:
    @v = @v + @e(@v)
    BLOCK
@t = {@E.A: 1, @I.TWO: 2, @S.RED: 3}
LOG.append((@E(9).name, @t[2], @t['red'], @S.BLUE + 'x', f'{@S.RED}', @I.ONE < @I.TWO, @I(1) + 1, [*@E.__members__], @E['C'].value, @E.A in @E))
try: @E(8)
except ValueError as error: LOG.append(str(error)[:1])
=> @v T
""",
    """
@N = collections.namedtuple('Named', 'a b c', defaults=(1, $I))
class @M(@N):
    __slots__ = ()
    def __new__(cls, a, *rest): return super().__new__(cls, a, *rest)
    def __add__(self, other): return @M._make(x + y for x, y in zip(self, other))
    @property
    def t(self): return self.a * self.b
@o = @M($T, $I)
@o = @o + (1, 2, 3)
BLOCK
@p = @o._replace(b=2)
@v = @p.t
@d = {@N(1): 'one', (1, 1, 2): 'two'}
LOG.append((@M._field_defaults, @o._fields, @o.c, @p[1:], @d.get((1, 1, $I)), @N(1, 2) < (1, 3), copy.copy(@p)[1:], type(@p).__name__))
@a, *@b = @p
=> @v T
""",
    """
class @C:
    def __init__(self, t, l): self.t, self.l, self.me = t, l, self
    def __copy__(self):
        LOG.append('copy')
        return @C(self.t, self.l)
    def __deepcopy__(self, memo):
        LOG.append(('deep', len(memo)))
        made = @C.__new__(@C)
        memo[id(self)] = made
        made.__dict__.update({k: copy.deepcopy(value, memo) for k, value in vars(self).items()})
        return made
@t = $T.detach().clone()
@o = @C(@t, [@t, [1]])
@p, @q = copy.copy(@o), copy.deepcopy(@o)
@q.t.add_(1)
BLOCK
@q.l[1].append($I)
@v = @q.l[0] * 2
@z = copy.deepcopy({'a': (z := [1, z] if (z := [$I]) else 0), 'b': z, 'c': (1, (2,))})
LOG.append((@p.l is @o.l, @q.me is @q, @q.l[0] is @q.t, @o.l[1], @z['a'] is @z['b']))
=> @v T
""",
    """
@m = copy.deepcopy(net)
@m.gain += $I
with torch.no_grad(): @m.scale.add_(#)
BLOCK
@v = @m($T)
@p = copy.copy(@m)
@p.register_buffer('more', torch.ones(2))
LOG.append((@m.scale is net.scale, @p.scale is @m.scale, 'more' in dict(@m.named_buffers()), len(@m.state_dict())))
@m.load_state_dict({k: t.clone() * 2 for k, t in net.state_dict().items()}, strict=$B)
@v = @v + @m(x)
=> @v T
""",
    """
class @C:
    def __init__(self, n): self.n = n
    def __getitem__(self, k):
        if k >= self.n: raise IndexError(k)
        return k * 2
    def __reversed__(self): return iter('reversed')
    def __length_hint__(self): return 9
class @D:
    def __init__(self, n): self.n = n
    def __iter__(self): return self
    def __next__(self):
        if self.n <= 0: raise StopIteration(self.n)
        self.n -= 1
        BLOCK
        return $T
@v = sum(@D(2), $T)
@l = list(iter([3, 2, 0, 1].pop, 3))
LOG.append(([*@C(3)], 4 in @C(4), [*reversed(@C(1))], @l, operator.length_hint(@C(2)), dict(zip('ab', @C(5))), [*map(max, @C(2), @C(3))]))
@a, @b = @C(2)
@i = iter(@D(1))
next(@i)
LOG.append((next(@i, 'end'), next(@i, 'end'), max(@C(3)), sorted(@C(3), reverse=$B), (*@C(2), @a, @b)))
=> @v T
""",
    """
@a, @b = itertools.tee($L, 2)
next(@a, None)
@l = [*zip(@b, @a)] + [*itertools.product('ab', repeat=2)][:2]
@l += itertools.islice(itertools.cycle($L or [1]), 1, 6, 2)
@l += [*itertools.accumulate($L, operator.mul)] + [*itertools.combinations_with_replacement('ab', 2)]
@l += itertools.islice(itertools.count(#, 2), 2)
BLOCK
@m = [*itertools.accumulate($M)][-1]
@v = functools.reduce(torch.add, itertools.chain([@m], itertools.repeat(1, 2)))
LOG.append(@l)
=> @v T
""",
    """
class @C:
    @functools.singledispatchmethod
    def @f(self, p): return 'any'
    @@f.register
    def _(self, p: int): return p + 1
    @@f.register(list)
    @@f.register(tuple)
    def _(self, p): return len(p)
    @functools.cached_property
    def k(self):
        LOG.append('k')
        return $I
    g = functools.partialmethod(@f, $I)
    @functools.wraps(varargs)
    def h(self, *args): return varargs(*args)
@o = @C()
BLOCK
@g = operator.attrgetter('k', 'k.real')
LOG.append((@o.@f($I), @o.@f($L), @o.@f($S), @o.@f(()), @o.g(), @g(@o), @o.h(1, 2)[:2], @o.h.__name__, operator.methodcaller('@f', 1)(@o)))
@v = functools.reduce(lambda p, q: p * q, [$T, @o.k])
del @o.k
=> @v T
""",
    """
@c = collections.Counter(word) + collections.Counter(a=$I)
@c |= collections.Counter('ab')
@q = collections.deque($L, maxlen=3)
@q.extend([$I, #])
@q.insert(0, 7) if len(@q) < 3 else @q.reverse()
@o = collections.OrderedDict.fromkeys('abc', $I)
@o.move_to_end('a')
@d = collections.defaultdict(list, {'l': [$T]})
@d['l'].append($T)
@d['m'] += [1]
@u = collections.UserList($L)
@u.append($I)
@m = collections.ChainMap(dict(a=1), @o)
@m['c'] = 5
BLOCK
LOG.append((@c.most_common(1), [*@q], @q == collections.deque([1]), [*@o], @d.keys(), @u[-1:], len(@u), @m.maps[0], @m['b'], @c & @c == @c, -@c))
@v = sum(@d['l'])
=> @v T
""",
    """
@k, @f, @s = $I, $F, $S
@a = f'{@k:>{abs(@k) % 5 + 3}}|{@f:.{2}f}|{@s!r:*^9}|{@k=}|{@f:e}|{@k:#x}|{@k:,}|{@f:%}|{{}}'
@b = '{0[0]} {1.shape} {name!a:>4} {2:{w}.{p}f}'.format([@k], $T, @f, name=@s, w=8, p=2)
@c = '%(a)s %(b)05.1f %(c)-3d|%%' % {'a': @s, 'b': @f, 'c': @k} + '%s %r %+d %i %o' % (@s, @k, @k, @f, abs(@k))
@t = f'{$T.dtype} {$T.ndim} {tuple($T.shape)!s:>12} {$T.requires_grad}'
BLOCK
LOG.append((@a, @b, @c, @t, @s.join('ab'), @s.partition('b'), f'{@s:<3}'.rstrip(), @s.zfill(5), @s.swapcase(), format(@k, 'b'), ascii(@s), str(@k).isdigit()))
LOG.append((@s.startswith(('a', 'w')), @s.replace('b', 'xx', 1), @s.rfind('c'), @s * 2, @s[::-1]))
LOG.append(('%s' % (@s,), 'ab' 'cd', rb'x'.hex(), @s.encode('utf8', 'strict').decode()))
""",
    """
@a = $T.detach().numpy()
@b = np.concatenate([@a.ravel(), np.arange(2, dtype=@a.dtype)])
@c = np.where(@b > #, @b, -@b).clip(-2, 2)
@b[:1] = $F
@d = np.stack([@b, @c]).mean(axis=0)
@d += np.sum(@c) * 0.5
@e = np.maximum(@d, 0).reshape(1, -1) @ np.ones((@d.size, 2), dtype=@d.dtype)
BLOCK
LOG.append((@d.shape, str(@e.dtype), @e.T.shape, float(np.abs(@d).max()), @b.argmax().item(), np.allclose(@d, @d), @b.tolist()[:1], @a.base is None))
@v = torch.from_numpy(np.exp(-np.square(@d))) + torch.tensor(@e.sum())
@w = torch.as_tensor(np.linspace(0, 1, 3)).float()
=> @v T
=> @w T
""",
    """
@a = np.array($L if $L else [1], dtype=np.float32)
@m = np.zeros((2, @a.size), np.float32)
@m[0] = @a
@m[1, :1] += $F
@m[:, 0] *= 2
@k = np.float32($F) * np.int64(3)
BLOCK
@v = torch.tensor(@m) * float(@k)
LOG.append((@m.sum(1).tolist(), np.unique(@a).size, np.sort(@a)[::-1].copy().tolist(), np.cumsum(@a)[-1].item()))
LOG.append((str(np.result_type(@a, @k)), np.isnan(@a).any(), np.dot(@a, @a).item()))
=> @v T
""",
    """
try:
    with torch.set_grad_enabled($B), torch.autocast('cpu', enabled=$B), torch.inference_mode($B):
        @v = $T * 2
        BLOCK
    LOG.append((torch.is_grad_enabled(), @v.requires_grad, @v.is_inference()))
except (TypeError, RuntimeError) as error:
    LOG.append(type(error).__name__)
""",
    """
@k = decimal.getcontext().prec
with decimal.localcontext() as @c:
    @c.prec = 5
    @d = decimal.Decimal(1) / (abs(int($I)) + 3)
    BLOCK
LOG.append((str(@d), decimal.getcontext().prec == @k, str(decimal.Decimal(1) / 3)[:9]))
@v = $T * float(@d)
=> @v T
""",
    """
@l = [*$L, 'a', 2]
@d = dict($D)
try:
    @l.sort(key=lambda k: k + 1)
except TypeError as error:
    LOG.append((str(error), len(@l)))
try:
    for @k in @d:
        BLOCK
        @d[@k + 'z'] = $I
except RuntimeError as error:
    LOG.append((str(error), sorted(@d)))
""",
    """
def @f(p, q=3):
    if q <= 0: raise KeyError(p.dim())
    return @f(p + 1, q - 1)
try:
    @f($T, 2)
except KeyError as error:
    @t, @n = error.__traceback__, []
    while @t is not None:
        @n.append((@t.tb_frame.f_code.co_name[0], @t.tb_lineno - @t.tb_frame.f_code.co_firstlineno))
        @t = @t.tb_next
    LOG.append((@n[1:], sys.exc_info()[0].__name__, error.args))
LOG.append(sys.exc_info())
""",
]
TORCH = [
    """
class @N(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.full((1,), 0.5))
        self.register_buffer('mean', torch.zeros(1))
        self.register_buffer('count', torch.tensor(0), persistent=False)
        self.mode = 'train'
    def forward(self, v):
        if self.training and self.mode == 'train':
            self.mean.lerp_(v.detach().float().mean(), 0.5)
            self.count += 1
            BLOCK
        self.last = v.shape
        return (v - self.mean) * self.w
@m = @N()
@v = @m($T)
@m.mode = $S
@v = @m(@v)
@m.eval()
@m.train($B)
@v = @m(@v)
@m.mean[:] = 2
@m.mean = @m.mean + 1
@m.mode = 'train'
@v = @m(@v)
LOG.append((@m.mean, @m.count, @m.last, [k for k, _ in @m.named_buffers()], sorted(@m.state_dict())))
=> @v T
""",
    """
@m = torch.nn.Sequential(torch.nn.Identity(), Net())
@l = []
@h = [
    @m.register_forward_pre_hook(lambda m, a: (@l.append('pre'), (a[0] * 2,))[1]),
    @m[1].register_forward_hook(lambda m, a, k, o: @l.append((len(a), sorted(k))), with_kwargs=True),
    @m[0].register_forward_hook(lambda m, a, o: o + $I, prepend=True),
    @m.register_state_dict_post_hook(lambda m, d, p, s: @l.append(len(d))),
]
@v = @m($T)
@h[0].remove()
BLOCK
@v = @v + @m($T)
@h[2].remove()
with @h[1]: @v = @v + @m(@v)
@v = @v + @m(@v)
LOG.append((@l, len(@m._forward_pre_hooks), len(@m.state_dict())))
=> @v T
""",
    """
@p = torch.nn.Parameter(torch.full((2,), $F))
@l = []
@q = @p * 2
@h = @q.register_hook(lambda g: (@l.append(g.shape), g * $I)[1])
@g = @p.register_post_accumulate_grad_hook(lambda t: @l.append(t.grad.clone()))
@r = @q[:1]
@r.register_hook(lambda g: @l.append('view'))
BLOCK
(@q.sum() + @r.sum()).backward()
@h.remove()
@g.remove()
(@p * 3).sum().backward()
@v = @p.grad
LOG.append(@l)
=> @v T
""",
    """
@m = torch.nn.Linear(2, 2)
with torch.no_grad():
    for @p in @m.parameters(): @p.fill_(0.5)
@l = []
@h = @m.register_full_backward_hook(lambda m, gi, go: @l.append((len(gi), go[0].shape)))
@i = torch.ones(1, 2, requires_grad=True)
@v = @m(@i * $F)
BLOCK
@v.sum().backward()
@h.remove()
LOG.append((@l, @m.weight.grad, @i.grad))
@w = @v.detach() + 1
=> @w T
""",
    """
@a = ($T.detach().clone().float() + 0).requires_grad_()
@b = @a * 1
@c = @b.view(-1)
@d = @c[::2]
@d.mul_(2)
@e = @b.unsqueeze(0)
@e.add_(@c.sum().detach())
BLOCK
@c[:1] = $F
@b.neg_()
@g = torch.autograd.grad((@b * @b).sum() + @d.sum(), @a, allow_unused=True)[0]
LOG.append((@d._base is @b, @c.grad_fn is None, @b._version, @e._is_view(), @g.shape))
@v = @d.detach() + 1
@w = @g
=> @w T
=> @v T
""",
    """
@a = $T.detach().clone().float().requires_grad_()
@b = @a.sin()
@g = torch.autograd.grad(@b.sum(), @a, create_graph=True)[0]
@h = torch.autograd.grad((@g * @g).sum(), @a)[0]
with torch.no_grad():
    @a -= 0.5 * @h
@a.grad = None
(@a * @b.detach()).sum().backward()
(@a * 2).sum().backward(inputs=[@a])
BLOCK
LOG.append((@a.grad, @a._version, @g.requires_grad))
@v = @a.grad + @h
=> @v T
""",
    """
class @F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, k, *rest):
        ctx.mark_non_differentiable(m := t > k)
        ctx.save_for_backward(t, m)
        ctx.set_materialize_grads($B)
        LOG.append(ctx.needs_input_grad)
        return t * k, m
    @staticmethod
    def backward(ctx, g, h):
        t, m = ctx.saved_tensors
        return (None if g is None else g * m), None, *[None] * (len(ctx.needs_input_grad) - 2)
@p = $T.detach().clone().float().requires_grad_()
@v, @m = @F.apply(@p * 1, #, 'more')
BLOCK
(@v * @m).sum().backward()
LOG.append((@p.grad, @m.requires_grad, @v.requires_grad))
@w = @v.detach()
=> @w T
""",
    """
class @M(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        @l.append(getattr(func, '__name__', 'get'))
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.add else out
@l = []
with @M():
    @v = torch.add($T, 1)
    BLOCK
    @v = @v.exp().clamp(max=4)
LOG.append((@l[:2], torch.add(torch.ones(1), 1).item()))
=> @v T
""",
    """
@v = $T
with torch.autocast('cpu', dtype=torch.bfloat16, enabled=$B):
    @w = torch.ones(2, 3) @ torch.ones(3, 2) * $F
    with torch.autocast('cpu', enabled=False):
        @z = torch.ones(2, 2) @ torch.ones(2, 2)
        BLOCK
LOG.append((@w.dtype, @z.dtype, torch.is_autocast_enabled('cpu'), torch.get_autocast_dtype('cpu')))
before = torch.get_default_dtype()
torch.set_default_dtype(torch.float64)
try:
    @w = @w.float() + torch.ones(2)
    @v = torch.tensor(1.5) * 2
    LOG.append((@v.dtype, torch.arange(2.0).dtype, (torch.ones(2).float() + 1.5).dtype))
finally:
    torch.set_default_dtype(before)
=> @w T
""",
    """
with torch.inference_mode():
    @a = torch.ones(2) * $F
    @b = @a.view(2, 1)
    @a.add_(1)
    BLOCK
LOG.append((@a.is_inference(), @b.is_inference(), torch.is_inference_mode_enabled()))
@p = torch.ones(2, requires_grad=True)
try:
    @v = @p * @a
    LOG.append('kept')
except RuntimeError as error:
    LOG.append(str(error)[:20])
@v = @a.clone() + 1
=> @v T
""",
    """
@m = torch.nn.ModuleDict({'a': torch.nn.Linear(2, 2, bias=$B), 'b': torch.nn.ModuleList([torch.nn.ReLU() for _ in range(2)])})
@p = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(2) * k) for k in (1, 2)])
@d = torch.nn.ParameterDict({'k': @p[0]})
with torch.no_grad():
    for @n, @t in @m.named_parameters(): @t.fill_(0.25)
@m['c'] = torch.nn.Dropout(0.5).eval()
@v = torch.ones(1, 2) * $F
for @n, @k in @m.items():
    @v = @k(@v) if not isinstance(@k, torch.nn.ModuleList) else [*@k][0](@v)
    BLOCK
@m.apply(lambda k: setattr(k, 'seen', True))
@m.requires_grad_(False).half().float()
@q = @m.pop('c')
LOG.append(([*@m.keys()], len([*@m.modules()]), @d['k'] is @p[0], all(t.requires_grad for t in @p), @m['a'].seen, @q.training, @m.training))
@v = (@v * @p[1] + @d['k']).detach()
=> @v T
""",
    """
@s = {'params': [torch.nn.Parameter(torch.full((2,), $F))], 'step': 0}
@o = (torch.optim.Adam if $B else torch.optim.RMSprop)(@s['params'], lr=0.1)
@h = @o.register_step_pre_hook(lambda o, a, k: LOG.append('step'))
def @f():
    @o.zero_grad()
    @l = ((@s['params'][0] - 1) ** 2).sum()
    @l.backward()
    @s['step'] += 1
    return @l
for @g in @o.param_groups: @g['lr'] *= 0.5
@v = @o.step(@f).detach()
BLOCK
@h.remove()
@o.load_state_dict(@o.state_dict())
@v = @v + @o.step(@f).detach()
LOG.append((@s['step'], @s['params'][0].detach().round(decimals=3), @o.param_groups[0]['lr'], sorted(@o.state_dict())))
=> @v T
""",
]

SIMPLE = []
COMPOUND = [(1, template(text)) for text in LANGUAGE + TORCH]

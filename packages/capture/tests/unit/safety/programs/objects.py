"""Objects with protocols of their own, whose methods have blocks: what a break in a property, an operator or a hook leaves."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

TEMPLATES = [
    """
class @C:
    def __init__(self, p):
        self._p = p
        self.reads = 0
    @property
    def p(self):
        self.reads += 1
        BLOCK
        return self._p
    @p.setter
    def p(self, value):
        LOG.append('set')
        self._p = value * 2
    @p.deleter
    def p(self):
        del self._p
@o = @C($T)
@v = @o.p + @o.p
@o.p = @v
@o.p += 1
@v = @o.p
del @o.p
LOG.append((@o.reads, sorted(vars(@o)), getattr(@o, 'p', 'none')))
=> @v T
""",
    """
class @D:
    def __init__(self, default):
        self.default = default
    def __set_name__(self, owner, name):
        self.name = '_' + name
    def __get__(self, instance, owner):
        if instance is None: return self
        LOG.append('get ' + self.name)
        return getattr(instance, self.name, self.default)
    def __set__(self, instance, value):
        if value is None: raise TypeError('none')
        BLOCK
        setattr(instance, self.name, value)
    def __delete__(self, instance):
        delattr(instance, self.name)
class @C:
    one = @D($I)
    two = @D($T)
    def __init__(self, **more):
        for name, value in more.items():
            setattr(self, name, value)
@o = @C(one=$I)
@v = @o.two * @o.one
@o.two = @v
@o.one += $I
try: @o.two = None
except TypeError as error: LOG.append(error.args)
del @o.one
LOG.append((@o.one, sorted(vars(@o)), @C.one.name))
=> @v T
""",
    """
class @C:
    __slots__ = ('a', 'b', '__dict__')
    def __init__(self, a, b=None):
        self.a = a
        if b is not None: self.b = b
class @D(@C):
    __slots__ = ('c',)
    def total(self):
        BLOCK
        return self.a + getattr(self, 'b', 1) + self.c
@o = @D($T, $I)
@o.c = $I
@o.more = $S
@v = @o.total()
del @o.b
LOG.append((hasattr(@o, 'b'), vars(@o), @o.total().shape))
=> @v T
""",
    """
class @C:
    def __init__(self, p):
        self.__dict__['held'] = {'p': p, 'q': $I}
    def __getattr__(self, name):
        try:
            return self.held[name]
        except KeyError:
            raise AttributeError(f'no {name}') from None
    def __setattr__(self, name, value):
        BLOCK
        self.held[name] = value
    def __delattr__(self, name):
        LOG.append('del ' + name)
        del self.held[name]
    def __dir__(self):
        return sorted(self.held)
@o = @C($T)
@v = @o.p * @o.q
@o.r = @v
@o.q += 1
del @o.p
LOG.append((dir(@o), hasattr(@o, 'p'), getattr(@o, 's', #), @o.q))
@o.missing
=> @v T
""",
    """
class @C:
    def __getattribute__(self, name):
        LOG.append(name)
        return super().__getattribute__(name)
    def f(self, p):
        return p * self.k
    k = $I
@v = @C().f($T)
=> @v T
""",
    """
class @V:
    def __init__(self, t, k=1):
        self.t, self.k = t, k
    def __add__(self, other):
        return @V(self.t + other.t, self.k) if isinstance(other, @V) else NotImplemented
    def __radd__(self, other):
        BLOCK
        return @V(other + self.t, self.k + 1)
    def __mul__(self, other):
        return @V(self.t * other, self.k * 2)
    __rmul__ = __mul__
    def __iadd__(self, other):
        self.k += 1
        return self
    def __neg__(self):
        return @V(-self.t, -self.k)
    def __lt__(self, other):
        return self.k < other.k
    def __eq__(self, other):
        return isinstance(other, @V) and self.k == other.k
    def __hash__(self):
        return hash(self.k)
    def __bool__(self):
        return self.k > 0
    def __index__(self):
        return 1
    def __getitem__(self, where):
        return self.t[where]
    def __call__(self, *args, **more):
        return self.t * len(args) + len(more)
    def __contains__(self, what):
        return what == self.k
@a, @b = @V($T), @V($T, $I)
@c = 2 * (@a + @b) * $I
@c += 1
LOG.append((@c.k, @a == @b, @a < @b, sorted([@b, @a, @c])[0].k, not -@a, # in @b, len({@a, @b, @c}), [5, 6][@a]))
@v = @c(1, 2, x=3) + @c[0]
@w = $T + @a
LOG.append(@w.k if isinstance(@w, @V) else 'tensor')
=> @v T
""",
    """
class @A:
    def go(self, p, log):
        log.append('A')
        return p + 1
class @B(@A):
    def go(self, p, log):
        log.append('B')
        p = super().go(p, log)
        BLOCK
        return p * 2
class @C(@A):
    def go(self, p, log):
        log.append('C')
        return super().go(p, log) - 1
class @D(@B, @C):
    def go(self, p, log):
        log.append('D')
        return super(@D, self).go(p, log=log)
@v = @D().go($T, LOG)
LOG.append([k.__name__[0] for k in type(@D()).__mro__])
=> @v T
""",
    """
class @M(type):
    made = []
    def __new__(mcls, name, bases, body, **more):
        cls = super().__new__(mcls, name, bases, body)
        cls.more = sorted(more)
        mcls.made.append(len(body) > 2)
        return cls
    def __init__(cls, name, bases, body, **more):
        super().__init__(name, bases, body)
    def __contains__(cls, item):
        return item in cls.more
    @property
    def size(cls):
        return len(cls.more)
class @C(metaclass=@M, one=$I, two=2):
    def f(self, p):
        BLOCK
        return p + type(self).size
@v = @C().f($T)
LOG.append((@C.more, 'one' in @C, @M.made, isinstance(@C, @M)))
=> @v T
""",
    """
@dataclass
class @C:
    t: object
    n: int = 0
    tags: list = dataclasses.field(default_factory=list)
    kind: str = dataclasses.field(default='k', repr=False)
    def scaled(self, k):
        BLOCK
        return dataclasses.replace(self, t=self.t * k, n=self.n + 1)
    def __iter__(self):
        return iter((self.t, self.n))
@o = @C($T, n=$I, tags=$L)
@p = @o.scaled($I)
@v, @k = @p
@p.tags.append($I)
LOG.append((@p.n, @p.tags is @o.tags, [f.name for f in dataclasses.fields(@C)], @o == @o))
match @p:
    case @C(t, 0): LOG.append('zero')
    case @C(n=int(m), tags=[a, *_]): LOG.append((m, a))
    case _: LOG.append('other')
=> @v T
""",
    """
@dataclass(frozen=True, order=True, slots=True)
class @C:
    a: int
    b: str = 'b'
    def up(self):
        return dataclasses.replace(self, a=self.a + 1)
@o = @C($I, $S)
@d = {@o: $T, @o.up(): $I}
@v = @d[@C(@o.a, @o.b)]
try: @o.a = 2
except dataclasses.FrozenInstanceError as error: LOG.append(error.args)
LOG.append((sorted([@o.up(), @o])[0] is @o, repr(@o)[-12:], @o < @o.up(), dataclasses.astuple(@o)))
=> @v T
""",
    """
class @P(typing.NamedTuple):
    t: object
    k: int = $I
    @property
    def both(self):
        return self.t * self.k
    def plus(self, p):
        BLOCK
        return self._replace(t=self.t + p)
@o = @P($T).plus($T)
@v, @k = @o
@v = @o.both + @o[0]
LOG.append((@P._fields, @k, len(@o), @o._asdict().keys() == {'t', 'k'}, @o.count(#)))
match @o:
    case @P(t, 2 | 3): LOG.append('small')
    case (_, int() as m): LOG.append(m)
=> @v T
""",
    """
class @E(enum.Enum):
    LOW = 1
    HIGH = $I * 0 + 2
    ALSO = 1
    def scale(self, p):
        BLOCK
        return p * self.value
    @classmethod
    def of(cls, b):
        return cls.HIGH if b else cls.LOW
    @property
    def lower(self):
        return self.name.lower()
@e = @E.of($B)
@v = @e.scale($T)
match @e:
    case @E.LOW: LOG.append('low')
    case @E.HIGH: LOG.append('high')
LOG.append((@e.lower, [m.name for m in @E], @E['ALSO'] is @E.LOW, @E(2).value, {@e: 1}[@e], @e in (@E.LOW,)))
@E(7)
=> @v T
""",
    """
class @F(enum.IntFlag):
    A = 1
    B = 2
    C = 4
@e = @F.A | (@F.B if $B else @F.C)
@e &= ~@F.A
@v = $T * int(@e)
LOG.append((@e.value, @F.B in @e, bool(@e), @e == 2, @e + 1))
=> @v T
""",
    """
class @C:
    instances = []
    def __new__(cls, *args):
        self = super().__new__(cls)
        cls.instances.append(args)
        return self
    def __init__(self, p, k=1):
        self.p = p * k
    def __init_subclass__(cls, tag=None, **more):
        LOG.append((tag, cls.__name__[0]))
    def __class_getitem__(cls, item):
        return item
class @D(@C, tag=$S): pass
@o = @D($T, $I)
@v = @o.p
LOG.append((len(@C.instances), @D[#], isinstance(@o, @C)))
=> @v T
""",
    """
@k = $I
class @C:
    total = @k
    for @i in range(2):
        total += @i
    names = {c: @k for c in 'ab'}
    BLOCK
    def f(self, p, q=total):
        return p + q + self.total
    def g(self):
        return __class__.names
@v = @C().f($T)
LOG.append((@C.total, @C().g(), @C.f.__qualname__.count('.')))
=> @v T
""",
    """
class @N(torch.nn.Module):
    def __init__(self, q=2):
        super().__init__()
        self.q = q
        self.w = torch.nn.Parameter(torch.full((), 0.5))
        self.register_buffer('ticks', torch.zeros(2))
        self.parts = torch.nn.ModuleDict({'act': torch.nn.ReLU(), 'drop': torch.nn.Identity()})
        self.cache = {}
    @property
    def gain(self):
        return self.q + len(self.cache)
    def forward(self, v, *rest, scale=None):
        self.ticks[0] += 1
        self.ticks = self.ticks * 2
        BLOCK
        for name, part in self.parts.items():
            v = part(v)
            self.cache.setdefault(name, []).append(v.shape)
        return v * self.w * self.gain if scale is None else v * scale
@m = @N($I)
@v = @m($T)
@v = @m(@v, scale=$F) + @m.ticks.sum()
@m.parts['drop'] = torch.nn.Tanh()
@m.w.data.mul_(2)
@v = @m(@v)
LOG.append((@m.cache, sorted(@m.state_dict()), [k for k, _ in @m.named_buffers()], @m.gain))
=> @v T
""",
    """
@f = functools.singledispatch(lambda p: 'any')
@f.register(int)(lambda p: p + 1)
@f.register(str)(lambda p: p * 2)
LOG.append((@f($I), @f($S), @f(None)))
""",
    """
class @C:
    @staticmethod
    def s(p): return p + 1
    @classmethod
    def c(cls, p): return cls.s(p) * cls.k
    k = $I
    @functools.cached_property
    def once(self):
        LOG.append('once')
        BLOCK
        return $T
class @D(@C):
    k = 3
    @staticmethod
    def s(p): return p - 1
@v = @C.c($T) + @D().c($T)
@o = @D()
@v = @o.once + @o.once
LOG.append(('once' in vars(@o), @o.once is @o.once))
=> @v T
""",
    """
class @C:
    def __init__(self, n): self.n = n
    def __enter__(self): return self
    def __exit__(self, *a): self.n += 1
    def __len__(self): return max(self.n, 0)
    def __iter__(self): return iter(range(max(self.n, 0)))
    def __str__(self): return f'<{self.n}>'
    def __format__(self, spec): return spec + str(self)
    def __int__(self): return self.n
    def __float__(self): return self.n / 2
    def __abs__(self): return self
    def __divmod__(self, other): return divmod(self.n, other)
    def __round__(self, k=None): return self.n
@o = @C($I)
with @o:
    BLOCK
LOG.append((len(@o), [*@o], f'{@o:x}', str(@o), int(@o), float(@o), divmod(@o, 2), round(@o), bool(@o), list(map(str, [@o]))))
@v = $T * int(@o) + float(@o)
=> @v T
""",
    """
@o = types.SimpleNamespace(t=$T, k=$I, l=$L)
@o.t = @o.t * @o.k
@o.l.append(@o.k)
BLOCK
@o.__dict__.update(z=$S)
del @o.k
LOG.append((sorted(vars(@o)), @o == types.SimpleNamespace(**vars(@o)), hasattr(@o, 'k')))
@v = @o.t
=> @v T
""",
    """
class @L(collections.UserDict):
    def __setitem__(self, key, value):
        LOG.append(key)
        super().__setitem__(key, value)
class @T(dict):
    def __getattr__(self, name):
        try: return self[name]
        except KeyError: raise AttributeError(name)
    __setattr__ = dict.__setitem__
@d = @T(t=$T, k=$I)
@d.k += 1
@d.new = @d.t * @d.k
BLOCK
LOG.append((list(@d), @d.k, hasattr(@d, 'no'), isinstance(@d, dict)))
@v = @d.new
=> @v T
""",
]

SIMPLE = []
COMPOUND = [(1, template(text)) for text in TEMPLATES]

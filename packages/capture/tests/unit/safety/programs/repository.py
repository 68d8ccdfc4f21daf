"""How repositories are put together: registries and configurations, mixins and metaclasses, decorators and retries, callbacks and visitors,
trees, signatures that are inspected, wrappers, records of logs and warnings."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

MAKING = [
    """
class @R(dict):
    def register(self, name=None, **defaults):
        def @d(cls):
            key = name or cls.__name__[0].lower()
            if key in self: raise KeyError(f'{key!r} is there')
            self[key] = functools.partial(cls, **defaults)
            return cls
        return @d
    def build(self, config, **more):
        config = {**config, **more}
        kind = config.pop('kind')
        if kind not in self: raise KeyError(f'{kind} is none of {sorted(self)}')
        return self[kind](**config)
@r = @R()
@@r.register('scale', by=$I)
class @A:
    def __init__(self, by, shift=0): self.by, self.shift = by, shift
    def __call__(self, p):
        BLOCK
        return p * self.by + self.shift
@@r.register('shift')
class @B(@A):
    def __call__(self, p): return super().__call__(p) - self.shift
@v = $T
for @c in ({'kind': 'scale'}, {'kind': 'shift', 'by': 2}, {'kind': 'scale', 'shift': $I}, {'kind': $S}):
    try:
        @v = @r.build(@c)(@v) if len(@c) > 1 else @r.build(@c, shift=1)(@v)
    except (KeyError, TypeError) as error:
        LOG.append(error.args)
=> @v T
""",
    """
@dataclass
class @C:
    width: int = 4
    rate: float = $F
    names: list[str] = dataclasses.field(default_factory=lambda: ['a'])
    inner: 'dict | None' = None
    @classmethod
    def of(cls, given):
        known = {f.name for f in dataclasses.fields(cls)}
        LOG.append(sorted(set(given) - known))
        return cls(**{k: v for k, v in given.items() if k in known})
    def __post_init__(self):
        self.inner = {} if self.inner is None else dict(self.inner)
        if isinstance(self.width, str): raise ValueError(self.width)
    def updated(self, **more): return dataclasses.replace(self, **more)
@c = @C.of({'width': $I, 'other': 1, **$D})
@n = @c.updated(rate=2.0, inner={'k': @c.width})
@n.names.append($S)
BLOCK
@v = $T * @n.rate + @n.width
LOG.append((@c, dataclasses.asdict(@n), @c == @C.of({'width': @c.width}), [(f.name, f.type) for f in dataclasses.fields(@n)][:2], @c.names is @n.names))
=> @v T
""",
    """
class @A:
    def __init__(self, *, first=1, **rest):
        super().__init__(**rest)
        self.first = first
    def run(self, p): return p + self.first
class @L:
    def __init__(self, *, log=None, **rest):
        self.log = [] if log is None else log
        super().__init__(**rest)
    def run(self, p):
        self.log.append(('run', type(self).__mro__.index(@L)))
        BLOCK
        return super().run(p) * 2
class @M:
    def __init__(self, **rest):
        LOG.append(sorted(rest))
        super().__init__(**rest)
        self.last = None
    def run(self, p):
        self.last = super().run(p)
        return self.last
class @C(@L, @M, @A):
    def run(self, p): return super().run(p) + super(@L, self).run(p)
@o = @C(first=$I)
@v = @o.run($T)
LOG.append((@o.log, [k.__name__[0] for k in @C.mro()], @o.last is None))
try: @C(wrong=1)
except TypeError as error: LOG.append(type(error).__name__)
=> @v T
""",
    """
@T = typing.TypeVar('T')
class @B(typing.Generic[@T]):
    made = []
    def __init_subclass__(cls, /, scale=1, **rest):
        super().__init_subclass__(**rest)
        cls.scale = scale
        @B.made.append(cls.__name__[0])
    def __init__(self, item: @T): self.item = item
    def map(self, f) -> '@B[@T]': return type(self)(f(self.item))
class @I(@B[int], scale=$I): pass
class @U(@B[torch.Tensor]):
    def __matmul__(self, other): return self.map(lambda t: t * other.item * other.scale)
@typing.runtime_checkable
class @P(typing.Protocol):
    def map(self, f): ...
@o = @U($T) @ @I($I)
BLOCK
@v = @o.map(lambda t: t + 1).item
LOG.append((@B.made, isinstance(@o, @P), isinstance($L, @P), typing.get_args(@I.__orig_bases__[0]), @B[str].__origin__ is @B))
=> @v T
""",
    """
class @S(type):
    made = {}
    def __call__(cls, *args, **more):
        if cls not in @S.made:
            LOG.append('first')
            @S.made[cls] = super().__call__(*args, **more)
        return @S.made[cls]
    def __contains__(cls, k): return k in cls.known
    @property
    def known(cls): return ('a', $S)
class @C(metaclass=@S):
    def __new__(cls, p):
        self = super().__new__(cls)
        self.seen = 0
        return self
    def __init__(self, p): self.p = p
    def __call__(self, k=1):
        BLOCK
        self.seen += k
        return self.p * self.seen
@v = @C($T)() + @C(None)(2)
LOG.append((@C(1) is @C(2), 'a' in @C, @C(0).seen, len(@S.made), isinstance(@C, @S), hasattr(@C(0), 'known')))
=> @v T
""",
    """
class @F:
    def __init__(self, default=None, check=None): self.default, self.check = default, check
    def __set_name__(self, owner, name):
        self.name = name
        owner.__dict__.get('fields', []).append(name)
    def __get__(self, o, kind=None):
        if o is None: return self
        if self.name not in o.__dict__:
            o.__dict__[self.name] = self.default() if callable(self.default) else self.default
        return o.__dict__[self.name]
    def __set__(self, o, value):
        if self.check and not self.check(value): raise ValueError(f'{self.name}: {value!r}')
        BLOCK
        o.__dict__[self.name] = value
class @C:
    fields = []
    t = @F(lambda: torch.ones(2))
    k = @F($I, lambda k: k != 4)
    l = @F(list)
@o, @p = @C(), @C()
@o.l.append($I)
@o.t = $T
@o.t += 1
@o.t *= @o.k
for @k in (4, $I):
    try: @o.k = @k
    except ValueError as error: LOG.append(str(error))
@v = @o.t + @p.t.sum() * (@p.k or 1)
LOG.append((@C.fields, @o.l, @p.l, @o.k, sorted(vars(@p)), @C.k.name))
=> @v T
""",
    """
@dataclass(order=True, slots=True)
class @K:
    score: float
    index: int = dataclasses.field(compare=False)
    extra: tuple = dataclasses.field(default=(), repr=False, hash=False)
@l = [@K(float(k % 3), i, (i,)) for i, k in enumerate($L[:5]) if not isinstance(k, torch.Tensor)]
@l.sort(reverse=$B)
@s = sorted(@l, key=operator.attrgetter('score', 'index'))
BLOCK
@h = list(@l)
heapq.heapify(@h)
LOG.append((@l, @s[:2], max(@l, default=None), heapq.heappushpop(@h, @K(9.0, 99)).index if @h else None, hasattr(@K, '__dict__') and @K.__slots__))
LOG.append([(k, [o.index for o in g]) for k, g in itertools.groupby(@s, key=lambda o: o.score)])
match @s:
    case [@K(score=a, index=0), *_]: LOG.append(('zero', a))
    case [@K(a, b), @K(c, d), *rest] if a <= c: LOG.append((b, d, len(rest)))
    case _: LOG.append('few')
""",
    """
class @P(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    BOTH = READ | WRITE
    def apply(self, p):
        BLOCK
        return p + len([f for f in @P if f in self])
class @E(float, enum.Enum):
    HALF = 0.5
    TWO = 2.0
    def __new__(cls, value):
        made = float.__new__(cls, value)
        made._value_ = value
        made.doubled = value * 2
        return made
    @classmethod
    def pick(cls, k): return [*cls][k % 2]
@p = @P.READ
@p |= @P(abs(int($I)) % 4)
@v = @p.apply($T) * @E.pick(int($I)) + @E.HALF.doubled
LOG.append((@p == @P.BOTH, @P.WRITE in @p, ~@p, bool(@p & @P.READ), @E(2.0).name, @E.TWO > 1, f'{@E.TWO.value:.2f}', repr(@P.BOTH), @P['READ'] ^ @P.BOTH))
@d = {k: k.value for k in @E}
LOG.append((@d[@E.HALF], @d.get(2.0), {@P.BOTH: 1}[@P(3)]))
=> @v T
""",
]
CALLING = [
    """
def @r(times, *kinds, wait=None):
    def @d(f):
        @functools.wraps(f)
        def @w(*args, **more):
            last = None
            for k in range(times):
                try:
                    return f(*args, attempt=k, **more)
                except kinds as error:
                    error.add_note(f'attempt {k}')
                    error.__cause__ = last
                    last = error
                    if wait: wait(k)
            raise Oops(f'{f.__name__[0]} failed', times) from last
        return @w
    return @d
@@r(3, ValueError, LookupError, wait=LOG.append)
def @f(p, k, attempt):
    BLOCK
    if attempt < k: raise (ValueError, KeyError)[attempt % 2](attempt)
    return p * (attempt + 1)
@v = $T
for @k in (0, 2, $I):
    try:
        @v = @f(@v, @k)
    except Oops as error:
        @c = []
        @e = error
        while @e is not None:
            @c.append((type(@e).__name__, @e.args, getattr(@e, '__notes__', None)))
            @e = @e.__cause__
        LOG.append((@c, error.code, @f.__wrapped__.__name__ == @f.__name__))
        del @e
=> @v T
""",
    """
def @f(p, k=$I, *, scale=2, **more): return p * k + scale + len(more)
@s = inspect.signature(@f)
@g = {'k': 3, 'scale': $I, 'left': 1}
@a = {k: v for k, v in @g.items() if k in @s.parameters}
@b = @s.bind($T, **@a)
@b.apply_defaults()
@v = @f(*@b.args, **@b.kwargs)
BLOCK
@n = [(k, p.kind.name, p.default is p.empty) for k, p in @s.parameters.items()]
LOG.append((@n, sorted(@b.arguments), @f.__kwdefaults__, @f.__code__.co_varnames[:2], inspect.isfunction(@f), inspect.isclass(Base)))
try: @s.bind()
except TypeError as error: LOG.append(str(error))
@f.__defaults__ = (1,)
@v = @v + @f(@v)
=> @v T
""",
    """
class @T(contextlib.ContextDecorator):
    depth = 0
    def __init__(self, name): self.name, self.l = name, []
    def __enter__(self):
        type(self).depth += 1
        self.l.append(('in', self.depth))
        return self
    def __exit__(self, *error):
        type(self).depth -= 1
        self.l.append(('out', error[0] and error[0].__name__))
        return error[0] is IndexError
@t = @T($S)
@@t
def @f(p, q=$I):
    BLOCK
    if q > 3: raise IndexError(q)
    with @t, @T('inner') as inner:
        return p + inner.depth
@a, @b = @f($T), @f($T, 9)
@v = $T if @a is None else @a
LOG.append((@t.l, @b, @T.depth, @f.__name__[0]))
=> @v T
""",
    """
class @E:
    def __init__(self): self.handlers = collections.defaultdict(list)
    def on(self, name, f=None):
        if f is None: return functools.partial(self.on, name)
        self.handlers[name].append(f)
        return f
    def off(self, name, f): self.handlers[name].remove(f)
    def fire(self, name, p, **more):
        for f in list(self.handlers.get(name, ())):
            out = f(p, **more)
            if out is False: break
            p = p if out is None else out
        return p
class @H:
    def __init__(self): self.seen = 0
    def count(self, p, **more):
        self.seen += 1 + len(more)
        BLOCK
@e, @h = @E(), @H()
@e.on('step', @h.count)
@@e.on('step')
def @f(p, by=$I):
    @e.off('step', @h.count) if @h.seen > 1 else None
    return p * by
@e.on('end', lambda p: False if p.dim() == 0 else p + 1)
@v = @e.fire('end', @e.fire('step', @e.fire('step', $T), by=2))
LOG.append((@h.seen, {k: len(l) for k, l in @e.handlers.items()}, @h.count == @h.count, 'none' in @e.handlers))
@v = @e.fire('none', @v)
=> @v T
""",
    """
class @V:
    def visit(self, o, *args):
        for kind in type(o).__mro__:
            f = getattr(self, 'visit_' + kind.__name__, None)
            if f is not None: return f(o, *args)
        raise NotImplementedError(type(o).__name__)
    def visit_list(self, o, p): return [self.visit(k, p) for k in o]
    def visit_dict(self, o, p): return type(o)((k, self.visit(value, p)) for k, value in o.items())
    def visit_tuple(self, o, p): return type(o)._make(self.visit_list(o, p)) if hasattr(o, '_fields') else tuple(self.visit_list(o, p))
    def visit_int(self, o, p): return o + 1
    def visit_Tensor(self, o, p):
        BLOCK
        return o * p
    def visit_str(self, o, p): return o.upper()
    visit_NoneType = visit_float = lambda self, o, p: o
@o = [$T, {'k': ($I, $S), 'o': collections.OrderedDict(b=$T)}, Pair($F, [True, None]), $L]
try:
    @v, *@l = @V().visit(@o, abs($I) + 1)
    @v = @v + @l[0]['o']['b'].sum()
    LOG.append((@l[0]['k'], @l[1]))
except NotImplementedError as error:
    @v = $T
    LOG.append(error.args)
=> @v T
""",
    """
def @t(f, o, *rest, path=()):
    if isinstance(o, dict): return type(o)({k: @t(f, o[k], *(r[k] for r in rest), path=(*path, k)) for k in o})
    if isinstance(o, (list, tuple)):
        l = (@t(f, *z, path=path + (i,)) for i, z in enumerate(zip(o, *rest, strict=True)))
        return type(o)(*l) if hasattr(o, '_fields') else type(o)(l)
    return f(path, o, *rest)
def @f(o):
    match o:
        case dict(): yield from itertools.chain.from_iterable(map(@f, o.values()))
        case list() | tuple():
            for k in o: yield from @f(k)
        case _: yield o
@o = {'a': [$T, $T], 'b': Pair($T, ($T,))}
@p = @t(lambda path, t: t.detach() * len(path), @o)
BLOCK
@q = @t(lambda path, a, b: (LOG.append('/'.join(map(str, path))), a + b.sum())[1], @o, @p)
@v = functools.reduce(torch.add, (t.sum() for t in @f(@q)))
try: @t(lambda path, a, b: a, [1, 2], [1])
except ValueError as error: LOG.append(str(error)[:20])
LOG.append(([*@f([1, [2, (3,)], {'k': $I}])], type(@q['b']).__name__))
=> @v T
""",
    """
@w = []
def @g(n):
    LOG.append('open')
    try:
        for k in range(n):
            got = yield torch.full((2,), float(k))
            if got: @w.append(got)
    except GeneratorExit:
        LOG.append('closed')
        raise
    finally:
        LOG.append('released')
def @b(source, size=2):
    batch = []
    for p in source:
        batch.append(p)
        if len(batch) == size:
            yield torch.stack(batch)
            batch = []
    if batch: yield torch.stack(batch)
@i = @g(abs(int($I)) % 4 + 2)
@v = $T
for @n, @t in enumerate(@b(@i), start=1):
    BLOCK
    @v = @v + @t.sum() * @n
    if @n > 1: break
LOG.append((next(@i, None), @w))
@i.close()
@j = @g(3)
next(@j)
@j.send($S)
try: @j.throw(Oops('stop'))
except Oops as error: LOG.append((error.code, next(@j, 'none')))
=> @v T
""",
    """
def @p(text):
    left, right = (side.split() for side in re.sub(r'[()]', '', text).split('->'))
    sizes = dict(zip(left, x.shape))
    if len(left) != x.dim() or set(left) != set(right): raise ValueError(f'{text}: {sorted(set(left) ^ set(right))}')
    return x.permute(*(left.index(k) for k in right)), sizes
for @t in ('a b -> b a', 'a -> a', '(b) a -> a b', 'a b -> a c', $S + '->'):
    try:
        @v, @d = @p(@t)
        BLOCK
        LOG.append((@d, @v.stride(), ' '.join(f'{k}={n}' for k, n in @d.items())))
    except ValueError as error:
        LOG.append(str(error))
""",
    """
@c = types.SimpleNamespace(a=types.SimpleNamespace(t=$T, l=[$I, {'k': 2}]), n=net)
def @g(o, path): return functools.reduce(lambda a, k: a[int(k)] if k.isdigit() else a[k] if isinstance(a, dict) else getattr(a, k), path.split('.'), o)
def @s(o, path, value):
    head, _, last = path.rpartition('.')
    setattr(@g(o, head) if head else o, last, value)
@s(@c, 'a.t', @g(@c, 'a.t') * 2)
@s(@c, 'extra', $I)
@s(@c, 'n.gain', @g(@c, 'n.gain') + 1)
BLOCK
@v = @g(@c, 'a.t') * @g(@c, 'a.l.1.k')
for @k in ('a.zz', 'n.inner.0.weight', 'a.l.7', 'n.scale.data.shape'):
    try: LOG.append(tuple(@g(@c, @k).shape) if 'weight' in @k else type(@g(@c, @k)).__name__)
    except (AttributeError, LookupError) as error: LOG.append(str(error))
@s(@c, 'n.gain', 2)
LOG.append(@c.extra)
=> @v T
""",
    """
class @W:
    def __init__(self, o, **more):
        object.__setattr__(self, '_o', o)
        object.__setattr__(self, '_more', more)
    def __getattr__(self, name):
        if name.startswith('__'): raise AttributeError(name)
        LOG.append(name)
        return self._more[name] if name in self._more else getattr(self._o, name)
    def __setattr__(self, name, value):
        BLOCK
        setattr(self._o, name, value)
    def __dir__(self): return sorted([*self._more, 'value'])
    def __eq__(self, other): return self._o == getattr(other, '_o', other)
    __hash__ = None
@o = $O
@w = @W(@W(@o, tag=$S), other=$I)
@w.value = $T
@w.step(1) if not isinstance(@o, Both) else None
@v = @w.value + @w.other
LOG.append((@w.tag, @w.kind, getattr(@w, 'zz', 'none'), dir(@w), @w == @o, @o.value is @w.value, callable(@w.step), isinstance(@w, Base)))
try: {@w}
except TypeError as error: LOG.append(str(error))
=> @v T
""",
    """
class @L(logging.Handler):
    def emit(self, record): LOG.append((record.levelname, self.format(record), record.funcName[:1], getattr(record, 'step', None)))
@g = logging.getLogger('program.log')
@h = @L(logging.DEBUG)
@h.setFormatter(logging.Formatter('%(name)s|%(message)s'))
@h.addFilter(lambda record: 'skip' not in record.getMessage())
@g.addHandler(@h)
@g.propagate = False
@g.setLevel(logging.INFO)
try:
    @g.info('%s of %d', $S, int($I), extra={'step': $I})
    @g.debug('never %s', $T)
    BLOCK
    @g.warning('shape %s skip', $T.shape)
    try: raise $X
    except Exception: @g.error('failed at %(k)s', {'k': $I}, exc_info=False)
    @v = $T + @g.isEnabledFor(logging.DEBUG)
    logging.LoggerAdapter(@g, {'step': 7}).log(logging.ERROR, 'adapted')
finally:
    @g.removeHandler(@h)
LOG.append((@g.handlers, @g.getEffectiveLevel()))
=> @v T
""",
    """
with warnings.catch_warnings(record=True) as @w:
    warnings.simplefilter('always')
    def @f(p):
        warnings.warn(f'old {p.dim()}', DeprecationWarning, stacklevel=2)
        BLOCK
        return p + 1
    @v = @f(@f($T))
    warnings.warn(UserWarning($S))
LOG.append([(k.category.__name__, str(k.message)) for k in @w if 'old' in str(k.message) or k.category is UserWarning])
with warnings.catch_warnings():
    warnings.simplefilter('error')
    try: @f(@v)
    except DeprecationWarning as error: LOG.append(error.args)
=> @v T
""",
]

SIMPLE = []
COMPOUND = [(1, template(text)) for text in MAKING + CALLING]

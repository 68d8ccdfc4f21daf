"""Special methods and hooks of classes that few programs define, objects that act when they die, coroutines that plain code drives, scopes
that are nested deeply."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

CLASSES = [
    """
class @C:
    def __init__(self, p): self.p = p
    def __matmul__(self, other): return NotImplemented
    def __rmatmul__(self, other):
        LOG.append(('rmatmul', type(other).__name__))
        return self.p * 2
    def __rsub__(self, other): return other * self.p
    def __rpow__(self, other, mod=None): return self.p + other
    def __rdivmod__(self, other): return (other, self.p)
    def __pos__(self): return self.p + 1
    def __invert__(self): return self.p - 1
    def __floor__(self): return 4
    def __ceil__(self): return $I
    def __trunc__(self): return 6
    def __round__(self, digits=None): return (digits, 7)
    def __index__(self): return 2
    def __complex__(self): return 1j
    def __bytes__(self): return b'of it'
    def __fspath__(self): return 'a/b.txt'
    def __sizeof__(self): return 11
    def __dir__(self): return ['p', 'q']
@o = @C($T)
BLOCK
@v = +@o + ~@o
@k = (3 @ @o) - 1
LOG.append((2 - @o is not None, divmod(3, @o)[0], math.floor(@o), math.ceil(@o), math.trunc(@o), round(@o), round(@o, 2)))
LOG.append((bytes(@o), os.fspath(@o), os.path.basename(@o), dir(@o), hex(@o), 'abcd'[@o], [*range(@o)], complex(@o), operator.index(@o)))
try: LOG.append(@o @ 2)
except TypeError as error: LOG.append(error.args)
=> @v T
=> @k T
""",
    """
class @G:
    def __init__(self, *names): self.names = names
    def __mro_entries__(self, bases): return (Base,) if self.names else ()
    def __class_getitem__(cls, names): return cls(*(names if isinstance(names, tuple) else (names,)))
class @C(@G['a', 2]):
    def __class_getitem__(cls, k): return types.GenericAlias(cls, k)
    def f(self, p):
        BLOCK
        return p + self.value
@o = @C($I)
@a = @C[int]
@v = @o.f($T) * @a(2).value
LOG.append((@C.__orig_bases__[0].names, @C.__mro__[1].__name__, @a.__args__, @a.__origin__ is @C, list[int] == list[int], list[int]([1])))
=> @v T
""",
    """
@T = typing.TypeVar('Item')
class @C(typing.Generic[@T]):
    every: typing.ClassVar[int] = $I
    item: 'int | None'
    def __init__(self, item: @T, more: 'int | None' = None): self.item, self.more = item, more
    def get(self) -> @T: return self.item
class @D(@C[int]):
    def get(self):
        BLOCK
        return super().get() * 2
class @P(typing.Protocol):
    def get(self): ...
@P = typing.runtime_checkable(@P)
@N = typing.NewType('Number', int)
@o = @D($T, more=@N($I))
@v = @o.get() + @C[float](1).get()
LOG.append((@D.__orig_bases__[0].__args__, isinstance(@o, @P), isinstance(3, @P), typing.get_origin(list[int]), typing.get_args(dict[str, int])))
LOG.append((@C.every,))
LOG.append((sorted(typing.get_type_hints(@C)), typing.cast(int, 's'), @C.__parameters__[0].__name__, int | None == typing.Optional[int]))
LOG.append((isinstance(2, int | str),))
=> @v T
""",
    """
class @B:
    def __init_subclass__(cls, /, tag=None, **more):
        super().__init_subclass__(**more)
        cls.tag, cls.made = tag, [k for k in vars(cls) if not k.startswith('_')]
class @A:
    def __set_name__(self, owner, name):
        LOG.append((owner.__name__[0], name))
        self.name = name
    def __get__(self, instance, owner): return (self.name, instance is None)
    def __delete__(self, instance): LOG.append('deleted ' + self.name)
class @M(type):
    def __new__(mcls, name, bases, body, *, extra=0, **more):
        LOG.append(('new', extra, sorted(more)))
        return super().__new__(mcls, name, bases, body, **more)
    def __init__(cls, name, bases, body, **more): super().__init__(name, bases, body)
    def __call__(cls, *args, **more):
        @o = super().__call__(*args, **more)
        @o.called = len(args)
        return @o
    def __contains__(cls, k): return k in cls.made
    def __delattr__(cls, k):
        LOG.append('del ' + k)
        super().__delattr__(k)
class @C(@B, metaclass=@M, extra=$I, tag=$S):
    a, b = @A(), @A()
    k = $I
    def __init__(self, p=1): self.p = p
    class Inner: deep = $I
    def f(self, p, __q=2):
        BLOCK
        return p * self.k + __q * self.Inner.deep
@o = @C(2)
@v = @o.f($T)
del @o.a, @C.k
LOG.append((@C.tag, 'f' in @C, @o.called, @C.a, @o.b, hasattr(@C, 'k'), @C.Inner.__qualname__.split('.')[-1], @C.__dict__['made']))
=> @v T
""",
    """
class @C:
    def __init__(self, p): self.p, self.log = p, []
    def __getattribute__(self, name):
        if name.startswith('seen_'): return len(name)
        if name == 'hidden': raise AttributeError('no ' + name)
        return super().__getattribute__(name)
    def __getattr__(self, name): return self.log if name == 'hidden' else object.__getattribute__(self, 'p')
    def __setattr__(self, name, value):
        if name == 'p' and 'p' in self.__dict__: self.log.append('again')
        object.__setattr__(self, name, value)
    def __delattr__(self, name):
        self.log.append('gone ' + name)
        if name in self.__dict__: object.__delattr__(self, name)
@o = @C($T)
@o.p = @o.p * 2
BLOCK
@o.p += @o.seen_a
del @o.q, @o.p
@o.p = $T
@v = @o.other + len(@o.hidden)
LOG.append((@o.log, sorted(vars(@o)), getattr(@o, 'hidden') is @o.log, hasattr(@o, 'zz')))
=> @v T
""",
    """
class @D:
    def __init__(self, name, log=LOG): self.name, self.log = name, log
    def __del__(self): self.log.append('end of ' + self.name)
def @f(p, d=None):
    @e = @D('inner')
    return p + len(@e.name)
@d = @D('first')
@v = @f($T)
@d = @D('second')
BLOCK
LOG.append('between')
@l = [@D('item'), @D('other')]
@l.pop()
LOG.append('after pop')
@k = {'a': @l, 'b': @D('value')}
@k['b'] = None
@v = @f(@v, @D('argument'))
del @l, @k['a']
LOG.append('at the end')
=> @v T
""",
    """
class @C: pass
@o, @p = @C(), @C()
@o.me = [$I]
@r = weakref.ref(@o, lambda r: LOG.append('dead'))
@f = weakref.finalize(@p, LOG.append, 'finalized')
@k, @w, @s = weakref.WeakKeyDictionary({@o: 1}), weakref.WeakValueDictionary(a=@o), weakref.WeakSet([@o, @p])
@x = weakref.proxy(@o)
@m = weakref.WeakMethod(Base($I).step)
@v = $T * len(@x.me)
BLOCK
LOG.append((@r() is @o, len(@k), len(@w), len(@s), @f.alive, @m() is None, weakref.getweakrefcount(@o) > 2))
del @o
LOG.append((@r() is None, len(@k), [*@w], len(@s)))
@f()
try: @x.me
except ReferenceError as error: LOG.append(error.args)
=> @v T
""",
    """
class @C:
    def __new__(cls, *args, **more):
        @o = super().__new__(cls)
        @o.args = args
        return @o if args != (0,) else 'none of it'
    def __init__(self, *args, k=$I): self.k = k
    def __reduce__(self): return (@C, self.args, {'k': self.k + 1})
    def __getnewargs__(self): return self.args
    def __eq__(self, other): return self.args == getattr(other, 'args', None)
    __hash__ = None
@o = @C(1, k=$I)
@p = copy.copy(@o)
BLOCK
@q = copy.deepcopy([@o, @o])
LOG.append((@p.k, @p == @o, @q[0] is @q[1], @C(0), @C.__hash__, @o in [@p], [@q[0]].index(@o)))
try: {@o}
except TypeError as error: LOG.append(str(error)[:20])
@v = $T + @p.k
=> @v T
""",
    """
@functools.total_ordering
class @C:
    def __init__(self, k): self.k = k
    def __eq__(self, other): return self.k == other.k
    def __lt__(self, other): return self.k < other.k
    def __hash__(self): return hash(self.k)
    def __repr__(self): return f'<{self.k}>'
@l = [@C(k % 3) for k in (5, 1, 3, 4)]
@l.sort()
BLOCK
LOG.append((@l, @l[0] >= @l[-1], max(@l), min(@l, key=lambda o: -o.k), sorted({*@l}), bisect.bisect(@l, @C(1)), [*heapq.merge(@l, [@C(2)])]))
LOG.append((heapq.nsmallest(2, @l), {o: o.k for o in @l}, [[*g] for _, g in itertools.groupby(@l)], @C(1) != @C(2), sorted(@l, reverse=True)[:2]))
@v = $T * @l[-1].k
=> @v T
""",
    """
@E = enum.Flag('Mode', 'READ WRITE RUN')
class @F(enum.IntFlag):
    A = 1
    B = 2
    C = 4
    AC = 5
@enum.unique
class @G(str, enum.Enum):
    def _generate_next_value_(name, start, count, last): return name.lower() * 2
    ONE = enum.auto()
    TWO = enum.auto()
    def on(self, p): return p * len(self.value)
@a = @E.READ | @E.RUN
@b = @F.A | @F($I & 7)
BLOCK
@v = @G.ONE.on($T)
match @a:
    case @E.READ: LOG.append('read')
    case _ if @E.RUN in @a: LOG.append('runs')
LOG.append((@E.READ in @a, bool(@a & @E.WRITE), (~@a).name, @b, @F.AC & 4, @F(5) is @F.AC, int(@b ^ @F.B), [*@F.AC], @F.B.name))
LOG.append((@G('twotwo').name, @G.ONE == 'oneone', @G.TWO.value.upper(), {@G.ONE: 1}['oneone'], [g.name for g in @G], f'{@F.C:03d}', @a == @E(5)))
LOG.append((len(@E),))
=> @v T
""",
    """
@dataclass(slots=True, order=True)
class @C:
    k: int = $I
    _: dataclasses.KW_ONLY
    t: object = dataclasses.field(default=None, compare=False, repr=False)
    l: list = dataclasses.field(default_factory=lambda: [$I], hash=False)
@D = dataclasses.make_dataclass('Made', [('p', object), ('q', int, dataclasses.field(default=2))], namespace={'f': lambda self: self.p * self.q})
@dataclass(match_args=False, unsafe_hash=True, frozen=True)
class @H(Key):
    more: int = 1
@o = @C(t=$T)
@o.l.append(@o.k)
BLOCK
@p = dataclasses.replace(@o, k=@o.k + 1)
@v = @D(@o.t).f()
LOG.append((@o < @p, @o == @p, repr(@o), @p.l is @o.l, dataclasses.astuple(@C(1, l=[2]))[:1], [f.name for f in dataclasses.fields(@C)]))
LOG.append((hash(@H('a')) == hash(@H('a')), @H.__match_args__ == Key.__match_args__))
LOG.append((dataclasses.is_dataclass(@D), repr(@D(1)), sorted([@C(3), @C(1)])[0].k, hasattr(@o, '__dict__')))
try: @o.zz = 1
except AttributeError as error: LOG.append('no attribute')
=> @v T
""",
    """
class @C(typing.NamedTuple):
    t: object
    k: int = $I
    def f(self): return self.t * self.k
class @T(typing.TypedDict, total=False):
    a: int
    b: str
@o = @C($T)
@d = @T(a=1, b='x')
BLOCK
@v = @o._replace(k=3).f()
match @o:
    case @C(t, k) if k > 1: LOG.append(k)
    case (_, k): LOG.append(-k)
LOG.append((@o._asdict().keys(), @C._field_defaults, @d | {'a': 2}, type(@d).__name__, @T.__optional_keys__ >= {'a'}, @C.__annotations__['k']))
=> @v T
""",
]
COROUTINES = [
    """
class @M:
    async def __aenter__(self):
        LOG.append('enters')
        return $I
    async def __aexit__(self, kind, error, trace):
        LOG.append(kind and kind.__name__)
        return kind is ValueError
async def @g(k):
    for i in range(k):
        yield i
    LOG.append('given')
async def @f(p):
    async with @M() as k, @M():
        async for i in @g(3):
            p = p + i
            BLOCK
            if i == $I: raise ValueError
    @l = [i async for i in @g(2) if i]
    return p * (await @h(k)) + len(@l)
async def @h(k): return k
def @r(coroutine):
    try:
        while True: coroutine.send(None)
    except StopIteration as stop: return stop.value
@v = @r(@f($T))
async def @t():
    async with contextlib.AsyncExitStack() as stack:
        @k = await stack.enter_async_context(@M())
        stack.callback(LOG.append, 'called back')
        return @k
LOG.append((@r(@t()), inspect.iscoroutinefunction(@h)))
=> @v T
""",
    """
class @A:
    def __init__(self, k): self.k = k
    def __await__(self):
        got = yield self.k
        return (got, self.k)
async def @f(p):
    @l = []
    try:
        for k in range(2): @l.append(await @A(k))
        BLOCK
    except KeyError as error:
        @l.append(error.args)
    finally:
        LOG.append('awaited')
    return p * len(@l), @l
@c = @f($T)
@k = @c.send(None)
@k += @c.send('a') if $B else @c.throw(KeyError(5)) if $B else 0
try: @c.send('b')
except StopIteration as stop: LOG.append(stop.value[1])
except RuntimeError as error: LOG.append(error.args)
@d = @f(1)
@d.send(None)
@d.close()
LOG.append(@k)
""",
    """
def @g(p, k=$I):
    LOG.append('starts')
    try:
        while True:
            try:
                got = yield p * k
                if got is None: continue
                k = got
            except ZeroDivisionError as error:
                LOG.append(error.args)
                p = p + 1
            BLOCK
    except GeneratorExit:
        LOG.append('closing')
        raise
    finally:
        LOG.append('over')
def @o(p):
    try:
        result = yield from @g(p)
    except KeyError as error:
        result = error.args
        yield $I
    return result
@i = @o($T)
@v = next(@i)
@v = @v + @i.send(2)
@v = @v + @i.throw(ZeroDivisionError('again'))
@k = @i.throw(KeyError('key')) if $B else 5
LOG.append((@k, inspect.getgeneratorstate(@i), @i.gi_frame is None, @i.gi_yieldfrom is None))
@i.close()
@e = next(@i, 'ended')
LOG.append((@e, inspect.getgeneratorstate(@i)))
=> @v T
""",
    """
def @f(k):
    try:
        yield k
    finally:
        LOG.append(('closes', k))
def @g():
    with contextlib.closing(@f(1)) as a:
        yield next(a)
        with contextlib.closing(@f(2)) as b: yield from b
    return 'done'
@l = []
for @k in @g():
    @l.append(@k)
    BLOCK
    if @k == 2: break
@a, *@b = @g()
def @h():
    @r = yield from @g()
    LOG.append(@r)
    yield @r
try:
    for @k in @h(): raise LookupError(@k)
except LookupError as error: LOG.append(error.args)
LOG.append((@l, @a, @b, [*@h()], dict(zip('ab', @g())), sum(@g()), 2 in @g()))
""",
    """
@l = []
with contextlib.ExitStack() as @s:
    @s.callback(@l.append, 1)
    @k = @s.enter_context(scope('inner', swallow=$B))
    @s.push(lambda kind, error, trace: @l.append(kind and kind.__name__))
    @s.push(Guarded(@l, False))
    @t = @s.pop_all() if $B else @s
    BLOCK
    @t.enter_context(contextlib.redirect_stdout(io.StringIO()))
    print('unseen')
    @s.callback(lambda: @l.append('last'))
LOG.append((@l, @k))
@t.close()
with contextlib.nullcontext($T) as @v, contextlib.suppress(Oops, KeyError):
    @v = @v + 1
    raise KeyError
class @D(contextlib.ContextDecorator):
    def __enter__(self):
        LOG.append('on')
        return self
    def __exit__(self, *exc):
        LOG.append('off')
        return True
@@D()
def @f(p):
    BLOCK
    if $B: raise Oops('inside')
    return p * 2
@r = @f(@v)
@v = @v if @r is None else @r
LOG.append(@l)
=> @v T
""",
]
SCOPES = [
    """
def @f(p):
    a, b = 1, [p]
    def @g(q=$I):
        nonlocal a
        c = a + q
        def @h():
            nonlocal a, b, c
            global COUNT
            COUNT += 1
            a += 1
            c *= 2
            BLOCK
            b = [*b, c]
            def deepest():
                nonlocal b
                b = b + [a]
                del b[0]
            deepest()
            return c
        return @h() + c
    @r = @g() + @g(2)
    LOG.append((a, @r, len(b), COUNT))
    del a
    try: return p * a
    except NameError as error: return p + @r
@v = @f($T)
=> @v T
""",
    """
def @f(p, /, q, *rest, r=$I, **more):
    BLOCK
    return p * q + r + len(rest) - len(more)
@v = @f($T, 2) + @f($T, *[1, 2], r=3, **{'z': 1}) + @f(*(1, 2), *[3], **{'r': 4}, y=5)
@s = inspect.signature(@f)
@b = @s.bind(1, 2, 3, z=4)
@b.apply_defaults()
LOG.append((str(@s)[:5], @b.args[1:], sorted(@b.kwargs), [p.kind.name for p in @s.parameters.values()], @f.__kwdefaults__))
LOG.append((@f.__code__.co_posonlyargcount,))
for @k in ((), (1,), (1, 2)):
    try: @f(*@k, p=3)
    except TypeError as error: LOG.append(str(error)[-20:])
try: @f(1, 2, **{'r': 1}, r=2)
except TypeError as error: LOG.append('twice')
=> @v T
""",
    """
@a, @b, @c = $T, $L, {'k': [1, 2, 3], 'z': 0}
@c['k'][1], @c['z'], *@d = *@b, 7, 8, 9
(@e, [@f, *@g]), @h = (1, 'abc'), 2
[@i, *@j, @k] = range(5)
*@l, = 'ab'
for @m, (@n, *@o) in [(1, (2, 3, 4)), (5, [6])]: LOG.append((@m, @n, @o))
BLOCK
@p = @q = [@d]
@q[0][0] = 'changed'
@r: int = 3
@s: list[int]
@t = (*@j, *{'x': 1}, *@o)
del @c['k'][0], (@e, @f)
try: @e
except NameError as error: LOG.append('gone')
try: @s
except UnboundLocalError: LOG.append('unbound')
try: @u, @w = @j, *@l, 1
except ValueError as error: LOG.append(error.args)
LOG.append((@c, @d, @g, @h, @i, @j, @k, @l, @p is @q, @r, @t))
@v = @a * len(@t)
=> @v T
""",
    """
@c = $L + [4, 5, 6, 7, 8]
@c[1:3] = [9]
@c[::2] = [*range(len(@c[::2]))]
@c[2:2] = 'ab'
@c[-1:] += [$I]
del @c[1::3], @c[0]
@s = slice($I, None, 2)
@b = bytearray(b'abcdef')
@b[1:3] = b'XYZ'
@b += b'!'
del @b[::2]
BLOCK
LOG.append((@c, @c[@s], @s.indices(5), 'abcdef'[::-2], (1, 2, 3)[-5:2], [*range(10)[2:8:3]], @b, bytes(@b)[1:], @b.find(b'e'), @b.hex()))
try: @c[::2] = [1]
except ValueError as error: LOG.append(error.args)
@v = $T
if @v.dim() > 1: @v = torch.cat([@v[..., None, :1], @v[-1:, None, :1].expand_as(@v[..., None, :1]), @v[None, ..., 0:1].transpose(0, 1)], 1)[:, ::2]
=> @v T
""",
    """
def @f(k, p):
    try:
        try:
            if k == 0: raise KeyError(k)
            if k == 1: raise ValueError from KeyError('cause')
            if k == 2: return p
            if k == 3: raise LookupError from None
            assert k != 4, ('message', k)
        except KeyError as error:
            error.extra = [p]
            raise
        except (ValueError, LookupError) as error:
            raise Oops('later', k) from error
        else:
            BLOCK
            p = p * 2
        finally:
            p = p + 1
            if k == 5: return p
            LOG.append(('finally', k))
    except AssertionError as error: return p - len(error.args)
    return p
@v = $T
for @k in range(7):
    try: @v = @f(@k, @v)
    except Exception as error:
        LOG.append((type(error).__name__, error.args, type(error.__cause__).__name__, type(error.__context__).__name__, error.__suppress_context__))
        LOG.append((sorted(vars(error)),))
=> @v T
""",
    """
@e = None
for @k in range(3):
    try:
        try: {}[@k]
        except KeyError as a:
            try: [][@k]
            except IndexError as b:
                b.add_note('noted')
                if @k == 1: raise TypeError('third') from a
                if @k == 2: raise b.with_traceback(None) from None
                raise
    except Exception as error:
        BLOCK
        @c, @n = error, []
        while @c is not None:
            @n.append((type(@c).__name__, getattr(@c, '__notes__', None)))
            @c = @c.__cause__ or (None if @c.__suppress_context__ else @c.__context__)
        LOG.append(@n)
try: raise Oops
except TypeError as error: LOG.append(str(error)[:12])
try: raise $I
except TypeError as error: LOG.append(error.args)
""",
]
SIMPLE = []
COMPOUND = [(1, template(text)) for text in CLASSES + COROUTINES + SCOPES]

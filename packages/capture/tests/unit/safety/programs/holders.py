"""What repositories keep things in: dictionaries with attributes, outputs of models, caches, trees with weak references, vectors with operators,
meters, closures, objects whose methods are replaced, names of files and texts of reports."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

TEMPLATES = [
    """
class @D(dict):
    def __init__(self, *args, **more):
        super().__init__()
        self.update(*args, **more)
    def __getattr__(self, name):
        try: return self[name]
        except KeyError: raise AttributeError(f'no {name}') from None
    __setattr__ = dict.__setitem__
    def __delattr__(self, name): del self[name]
    def update(self, *args, **more):
        for k, value in dict(*args, **more).items(): self[k] = value
    def __setitem__(self, k, value):
        BLOCK
        super().__setitem__(k, @D(value) if type(value) is dict else value)
    def copy(self): return @D(self)
@d = @D($D, net={'w': $T, 'deep': {'k': $I}})
@d.net.w = @d.net.w + 1
@d.net.deep.k += 1
@d['late'] = {'l': $L}
@e = @d.copy()
@e.net.w = 0
del @d.late
@v = @d.net.w * @d.net.deep.k
LOG.append(([*@e], @d.get('zz'), 'late' in @d, @e.late.l, hasattr(@d, 'zz'), type(@d.net).__name__[0], @d.setdefault('s', {}), {**@d.net}.keys()))
try: @d.missing
except AttributeError as error: LOG.append((str(error), error.__cause__, error.__suppress_context__))
=> @v T
""",
    """
@dataclass
class @O(collections.OrderedDict):
    loss: object = None
    logits: object = None
    states: tuple = ()
    def __post_init__(self):
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if value is not None: self[f.name] = value
    def __getitem__(self, k): return dict(self.items())[k] if isinstance(k, str) else self.to_tuple()[k]
    def __setattr__(self, name, value):
        if name in self.keys() and value is not None: super().__setitem__(name, value)
        super().__setattr__(name, value)
    def to_tuple(self): return tuple(self[k] for k in self.keys())
@o = @O(logits=$T, states=($T, $I)) if $B else @O($T.sum(), $T)
BLOCK
@o.logits = @o.logits * 2
@v = @o[0] + @o['logits'].sum()
@a, *@b = @o.to_tuple()
LOG.append(([*@o], len(@b), @o.get('loss') is None, @o[:1][0] is @a, @o.logits is @o['logits'], [k for k, _ in @o.items()], 'states' in @o))
=> @v T
""",
    """
class @C:
    def __init__(self, size): self.size, self.d, self.hits = size, collections.OrderedDict(), 0
    def get(self, key, make):
        if key in self.d:
            self.d.move_to_end(key)
            self.hits += 1
            return self.d[key]
        self.d[key] = value = make(*key)
        while len(self.d) > self.size:
            LOG.append(self.d.popitem(last=False)[0])
        return value
@c = SHARED.setdefault('lru', @C(2))
def @m(*key):
    BLOCK
    return torch.ones(2) * sum(key)
@v = $T
for @k in ((1, 2), (3, 1), (1, 2), (abs(int($I)), 0), (x.dim(), 1), (1, 2)):
    @v = @v + @c.get(@k, @m).sum()
LOG.append(([*@c.d], @c.hits, (1, 2) in @c.d))
=> @v T
""",
    """
class @N:
    live = weakref.WeakValueDictionary()
    def __init__(self, name, parent=None):
        self.name, self.children = name, []
        self.parent = parent and weakref.ref(parent)
        @N.live[name] = self
        if parent: parent.children.append(self)
        weakref.finalize(self, LOG.append, ('gone', name))
    def __iter__(self):
        yield self
        for c in self.children: yield from c
    @property
    def path(self): return (self.parent().path if self.parent else ()) + (self.name,)
@r = @N('root')
@k = @N($S or 'k', @r)
@N('leaf', @k).t = $T
BLOCK
@v = sum(getattr(o, 't', torch.zeros(1)) for o in @r)
LOG.append(([o.path for o in @r], sorted(@N.live), len(@N.live)))
@r.children.clear()
del @k
LOG.append((sorted(@N.live), [o.name for o in @r]))
@s = weakref.WeakSet([@r])
@w = weakref.ref(@r, lambda r: LOG.append('collected'))
del @r
LOG.append((len(@s), @w() is None))
=> @v T
""",
    """
class @V:
    def __init__(self, *l): self.l = l
    def __add__(self, other):
        if not isinstance(other, @V): return NotImplemented
        LOG.append('add')
        return type(self)(*map(operator.add, self.l, other.l))
    def __mul__(self, other): return type(self)(*(k * other for k in self.l)) if isinstance(other, (int, float, torch.Tensor)) else NotImplemented
    __rmul__ = __mul__
    def __radd__(self, other): return self if other == 0 else NotImplemented
    def __eq__(self, other): return self.l == other.l if isinstance(other, @V) else NotImplemented
    def __abs__(self): return sum(abs(k) for k in self.l)
    def __index__(self): return len(self.l)
    def __bool__(self): return any(bool(k) for k in self.l if not isinstance(k, torch.Tensor))
    def __invert__(self): return type(self)(*self.l[::-1])
class @W(@V):
    def __radd__(self, other):
        BLOCK
        return self if other == 0 else @W(*other.l, *self.l)
    def __round__(self, k=None): return ('round', k)
    def __trunc__(self): return 4
    def __complex__(self): return 1j
@a, @b = @V($T, $I), @W($T, 2)
@c = sum([@a + @b, @b + @b])
@v = abs(@c * 2).sum() + (3 * @a).l[0]
for @o in (lambda: @a + 1, lambda: 1 + @a, lambda: @a * 'k', lambda: 'k' * @a, lambda: @a < @b, lambda: @a @ @b, lambda: -@a, lambda: [1] * @a):
    try: LOG.append(@o())
    except TypeError as error: LOG.append(str(error)[:30])
LOG.append((len(@c.l), @V(1) == @W(1), @V(1) != 1, bool(@V(0)), [4, 5, 6][@b], (~@V(1, 2)).l, round(@b, 1), round(@b), complex(@b), hex(@b), range(@b)[-1]))
=> @v T
""",
    """
class @M:
    def __init__(self, name, form=':.3f'): self.name, self.form, self.sum, self.count, self.last = name, form, 0.0, 0, collections.deque(maxlen=2)
    def update(self, value, n=1):
        value = value.item() if isinstance(value, torch.Tensor) else value
        self.last.append(value)
        self.sum += value * n
        self.count += n
        return self
    avg = property(lambda self: self.sum / max(self.count, 1))
    def __str__(self): return ('{name}: {avg' + self.form + '} ({n})').format(name=self.name, avg=self.avg, n=self.count)
@m = {k: @M(k, f) for k, f in (('loss', ':8.2e'), ('acc', ':>6.1%'))}
for @k in range(3):
    @m['loss'].update($T.float().abs().sum() / 4, n=@k + 1)
    @m['acc'].update(@k / 4)
    BLOCK
    if @k == 1 and $B: break
else:
    @m['acc'].update(1)
LOG.append((' | '.join(map(str, @m.values())), [round(k, 3) for k in @m['loss'].last], @m['acc'].avg > 0.2))
@v = $T * @m['acc'].avg
=> @v T
""",
    """
class @B:
    def f(self, p): return p + 1
    def g(self, p): return self.f(p) * 2
@o, @p = @B(), @B()
@o.f = types.MethodType(lambda self, p: @B.f(self, p) * $I, @o)
@v = @o.g($T)
@k = @B.g
@B.g = functools.wraps(@k)(lambda self, p: (LOG.append('patched'), @k(self, p))[1])
@v = @v + @p.g($T)
BLOCK
with contextlib.ExitStack() as @s:
    @s.callback(setattr, @B, 'f', @B.f)
    @B.f = staticmethod(lambda p: p - 1)
    @v = @v + @p.g($T) + @o.g(1)
@B.g = @k
del @o.f
LOG.append((@o.g(1), 'f' in vars(@o), @B.g is @k, @B.__dict__['f'].__class__.__name__))
@p.__class__ = type('Other', (@B,), {'f': lambda self, p: p * 5})
@v = @v + @p.f(1)
=> @v T
""",
    """
def @f():
    total, calls = $T, 0
    def @a(p):
        nonlocal total, calls
        calls += 1
        try:
            if calls % 2: return total
            total = total + p
            BLOCK
            return total
        finally:
            calls += 10
    def @r():
        nonlocal total
        total, old = torch.zeros(1), total
        return old
    return @a, @r, lambda: calls
@a, @r, @n = @f()
@b, *_ = @f()
for @k in range(3): @a(@k + 1)
@v = @r() + @a(2).sum() + @b(1)
LOG.append((@n(), @a.__code__.co_freevars, [type(c.cell_contents).__name__ for c in @a.__closure__ if not callable(c.cell_contents)]))
LOG.append(@a.__closure__[0] is @b.__closure__[0])
=> @v T
""",
    """
@s = hashlib.sha1(json.dumps({**$D, 'l': $L, 'k': $I}, sort_keys=True, default=str).encode()).hexdigest()[:6] if not isinstance($I, torch.Tensor) else ''
@p = pathlib.PurePosixPath('root') / 'runs' / f'{$S}-{int($I):03d}.tar.gz'
@u = string.Template('{k} of ').template + os.path.join('a', $S, '..', 'b')
BLOCK
LOG.append((@s, str(@p), @p.stem, @p.suffixes, @p.with_suffix('').name, @p.parent.parts, @u, os.path.splitext(str(@p))[1], os.environ.get('NOT_THERE', 'none')))
LOG.append((urllib.parse.urlencode({'k': $I, 's': $S}), shlex.split(f'a "{word} b" c'), [*map(str.strip, 'a, b ,c'.split(','))]))
""",
    """
@r, @g = random.Random(int($I)), np.random.RandomState(3)
@l = [*range(6)]
@r.shuffle(@l)
@a = (@r.choice(@l), @r.sample(@l, 2), @r.choices('ab', weights=[1, 3], k=3), round(@r.random(), 6), @r.randint(0, 9))
@t = @r.getstate()
@b = @r.gauss(0, 1)
@r.setstate(@t)
BLOCK
@i = torch.tensor(@g.permutation(4))
@v = torch.arange(4.0)[@i] * float(@g.uniform()) + torch.from_numpy(@g.randn(4)).float()
random.seed(4)
np.random.seed(5)
LOG.append((@l, @a, @r.gauss(0, 1) == @b, random.random(), np.random.rand(2).round(5).tolist(), @g.choice([3, 1, 2], size=2, replace=False).tolist()))
=> @v T
""",
    """
@o = {'w': 4, 'p': 2}
@k, @f = int($I), float($F)
@a = f'{@k:>{@o["w"]}}|{@f:{@o["w"] + 4}.{@o["p"]}f}|{f"<{@k:+}>":^9}|{@k!r:~<5}|{[k * 2 for k in range(2)]}|{(lambda q: q + 1)(@k)}|{@o!s}'
@b = f'{x.shape[0] if x.dim() else 0:0{@o["w"]}d}/{list(x.shape)}/{x.dtype!s:>16}/{x.requires_grad:d}/{tuple(x.stride())=}'
BLOCK
@c = '\\n'.join(f'{name:<6}{"x".join(map(str, t.shape)):>8}{t.numel():>6,}' for name, t in net.named_parameters())
LOG.append((@a, @b, @c, '%*d' % (5, @k), '%.*f' % (1, @f), '{0:{1}}{2!r:>{3}}'.format(@k, 6, $S, 8), f'{$S:{"*"}^{7}}', format(@f, '+.1e')))
""",
]

SIMPLE = []
COMPOUND = [(1, template(text)) for text in TEMPLATES]

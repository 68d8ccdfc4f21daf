"""What larger programs do between their tensor operations: registries, caches, copies, texts in and out, callbacks, models that are
changed after they were made."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

LANGUAGE = [
    """
class @C:
    def __init__(self, p): self.p = p
    def __radd__(self, other): return @C(other + self.p)
    def __rsub__(self, other): return NotImplemented
    def __rmul__(self, other):
        LOG.append('rmul')
        return self.p * other
    def __imul__(self, other):
        self.p = self.p * other
        return self
    def __matmul__(self, other): return (self.p, other)
    def __neg__(self): return @C(-self.p)
    def __divmod__(self, other): return (self.p, other)
    def __lt__(self, other): return $B
@o = sum([@C($I), 2][:1], $T)
@o *= 2
LOG.append((type(@o).__name__, 3 * @o, @C(1) @ 2, (-@o).p, divmod(@C(2), $I), sorted([@C(2), @C(1)])[0].p, 3 > @o))
try:
    LOG.append($I - @o)
except TypeError as error:
    LOG.append(str(error))
@v = @o.p + 1
=> @v T
""",
    """
class @A(abc.ABC):
    handlers = {}
    def __init_subclass__(cls, key=None, **more):
        super().__init_subclass__(**more)
        @A.handlers[key] = cls
    @property
    @abc.abstractmethod
    def size(self): ...
    def run(self, p):
        return p * self.size
class @D(@A, key=$S):
    def __init__(self): self.size_read = 0
    @property
    def size(self):
        self.size_read += 1
        BLOCK
        return $I
try:
    @A()
except TypeError as error:
    LOG.append(type(error).__name__)
@o = @D()
@v = @o.run($T)
LOG.append((@o.size_read, sorted(map(str, @A.handlers)), isinstance(@o, @A)))
=> @v T
""",
    """
class @N(typing.NamedTuple):
    t: object
    k: int = 3
    @property
    def twice(self): return self.t * 2
class @T(typing.TypedDict, total=False):
    a: int
@o = @N($T)._replace(k=$I)
@d = @T(a=@o.k)
@v = @o.twice
LOG.append((@o.k, @o._fields, @d, @o[1:], @N(1) == (1, 3), @o._asdict()['k'], len({@N(1), @N(1, 3)})))
=> @v T
""",
    """
@s = '{:>{w}}|{!r:<8}|{k[0]}'.format($S, $S, w=$I % 9 + 1, k=[$I])
@s += '%s %5.2f %-4d|%x' % ($S, $F, $I, abs($I))
@s += f'{$F:.3e} {$I:+05d} {$B!s:^7} {$T.dim():02}'
LOG.append((@s, @s.encode().hex()[:8], @s.title().split('|', 1), @s.translate({124: '-'})))
=> @s S
""",
    """
@b = struct.pack('<if', int($I) % 99, 1.5) + bytes($S, 'utf8')
@m = bytearray(@b)
@m[0] = 7
@m += b'end'
LOG.append((len(@b), struct.unpack_from('<if', @b), bytes(@m[-3:]), @m.find(b'e'), memoryview(@b)[1:3].tolist(), int.from_bytes(@b[:2], 'big')))
""",
    """
@j = json.loads(json.dumps({'n': $I, 'l': $L, 's': $S, 'd': {'k': [None, True, 1.5]}}, sort_keys=True))
@j['d']['k'].append($I)
BLOCK
LOG.append((@j, json.dumps(@j['l'], separators=(',', ':'))))
""",
    """
@p = pickle.loads(pickle.dumps(($L, $D, Point($I, 2), Key($S), Color.RED, Pair(1, $I))))
@p[0].append(#)
@c = copy.deepcopy({'o': $O, 'l': [$T.detach(), items]})
@c['o'].items.append(1)
@v = @c['l'][0] * 2
LOG.append((@p, @c['o'].value, @c['l'][1] is items, copy.copy(@c)['l'] is @c['l']))
=> @v T
""",
    """
@h = []
for @i, @k in enumerate($L[:4]):
    heapq.heappush(@h, (@k, @i))
    BLOCK
LOG.append((heapq.nsmallest(2, @h), [heapq.heappop(@h) for _ in range(len(@h))], heapq.nlargest(1, $L)))
@s = sorted($L)
bisect.insort(@s, $I)
LOG.append((@s, bisect.bisect_left(@s, #)))
""",
    """
@m = re.match(r'(?P<a>[a-c]+)(\\d*)', $S + '12')
LOG.append((@m and @m.groupdict(), @m and @m.span(2), re.sub('[ab]', lambda g: g[0].upper(), $S), re.split('b', $S), re.findall('.', $S)[:3]))
""",
    """
@d = datetime.date(2024, 2, 28) + datetime.timedelta(days=int($I) % 50)
@q = decimal.Decimal('1.10') * int($I) + decimal.Decimal(str($F))
@r = fractions.Fraction(int($I) % 7, 3) + $I % 5
LOG.append((@d.isoformat(), @d > datetime.date(2024, 3, 1), str(@q), float(@q) > 2, @r, @r.numerator, math.floor(@r), round(float(@r), 2)))
@v = $T * float(@r)
=> @v T
""",
    """
def @f(p, q=$I):
    total = 0
    while True:
        got = yield total
        if got is None: break
        total = total + got
        BLOCK
    return p * q
def @g(p):
    LOG.append((yield from @f(p)))
@i = @g($T)
next(@i)
LOG.append([@i.send(k) for k in $L[:3]])
try:
    @i.send(None)
except StopIteration as stop:
    LOG.append(stop.value)
""",
    """
class @A:
    def __init__(self, p): self.p = p
    def __await__(self):
        got = yield self.p
        return got
    async def __aenter__(self):
        LOG.append('aenter')
        return await @A(self.p + 1)
    async def __aexit__(self, *error): LOG.append(error[0])
    async def each(self):
        for k in range(2):
            yield self.p * (await @A(k))
async def @f(p):
    async with @A($I) as got:
        LOG.append(got)
    return p * sum([k async for k in @A(2).each()])
@c = @f($T)
@s = @c.send(None)
for @k in range(5):
    try:
        LOG.append(@s)
        @s = @c.send(@k)
    except StopIteration as stop:
        @v = stop.value
        break
=> @v T
""",
    """
@m = {}
def @f(k, p):
    if k in @m: return @m[k]
    @m[k] = p if k < 2 else @f(k - 1, p) + @f(k - 2, p * 2)
    return @m[k]
@v = @f(abs($I) % 6, $T)
LOG.append((sorted(@m), len(@m)))
=> @v T
""",
    """
@p = functools.partial(varargs, $I, key=$S)
@q = functools.partial(@p, $T, key=2, more=1)
@r = functools.partialmethod(Base.step, 3)
Base.three = @r
LOG.append((@q(4)[2:], @q.args[0], len(@p.args), @q.keywords, $O.three().value))
del Base.three
for @k in map(functools.partial(operator.mul, $I), $L[:2]):
    BLOCK
""",
    """
@l = threading.RLock()
with @l, threading.Lock() as @g:
    @n = bump($I)
    with @l:
        BLOCK
    LOG.append((@n, @g, COUNT))
""",
    """
@c = SHARED.setdefault('cache', {})
@k = ($I, $S)
if @k not in @c:
    @c[@k] = $T.detach() + 1
    LOG.append('computed')
@v = @c[@k] * 2
while len(@c) > 2: @c.pop(next(iter(@c)))
@o = $O
@w = weakref.WeakKeyDictionary({@o: 1})
LOG.append((@w.get(@o), len(@w), weakref.proxy(@o).kind, weakref.ref(@o)() is @o))
=> @v T
""",
    """
class @G:
    def __class_getitem__(cls, k): return (cls.__name__[0], k)
    def __missing(self): return 1
    __slots__ = ('s',)
@F = types.new_class('Fresh', (@G,), {}, lambda ns: ns.update(k=$I))
@o = types.SimpleNamespace(**{'a': $T, 'b': @F.k})
@e = enum.IntFlag('Mode', 'A B')
LOG.append((@G[int], @F[1:2], vars(@o).keys(), @e.A | @e.B, @e(3) & @e.A, getattr(@F(), 's', 'empty'), hasattr(@F(), '_G__missing')))
@v = @o.a + @o.b
=> @v T
""",
    """
@k = contextvars.ContextVar('k', default=$I)
@r = @k.set(@k.get() + 1)
def @f(p):
    return p * @k.get()
@c = contextvars.copy_context()
@k.reset(@r)
@v = @c.run(@f, $T)
BLOCK
LOG.append((@k.get(), @f(2)))
=> @v T
""",
    """
@f = operator.itemgetter(0)
@a = array.array('f', [1.5, 2.5, $I % 7])
@t = textwrap.dedent('  a\\n  b').splitlines()
@z = [*itertools.zip_longest(@a, $L[:2], fillvalue=0)]
@y = {k: [*g] for k, g in itertools.groupby(sorted(word), key=lambda s: s < 'c')}
LOG.append((@z, @y, @f(@a), @t, @a.tolist(), collections.ChainMap({'q': 1}, table).get('q'), dict(enumerate('ab'))))
@v = torch.tensor(@a.tolist()) * $F
=> @v T
""",
]
TORCH = [
    """
@m = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
with torch.no_grad():
    for @p in @m.parameters(): @p.fill_(0.5)
@m[1] = torch.nn.Tanh()
@m.append(torch.nn.Identity())
@v = @m(torch.ones(2, 3) * $F)
del @m[0]
@m.insert(0, torch.nn.Flatten(0))
BLOCK
LOG.append((len(@m), [type(k).__name__ for k in @m], sorted(k for k, _ in @m.named_parameters()), @m[-1] is @m[len(@m) - 1]))
=> @v T
""",
    """
@m = copy.deepcopy(net)
@s = {k: t.clone() for k, t in net.state_dict().items()}
@s['scale'] = @s['scale'] * 2
LOG.append(@m.load_state_dict(@s, strict=$B))
@v = @m($T)
@m.register_buffer('extra', @v.detach().sum(), persistent=$B)
LOG.append((sorted(@m.state_dict()), @m.scale, net.scale, @m.extra, @m.seen))
@m.extra += 1
@m = @m.double().eval()
LOG.append((@m.scale.dtype, @m.extra, @m.training, @m.inner[0].training))
=> @v T
""",
    """
class @P(torch.nn.Module):
    def forward(self, t): return t.abs() + 1
@m = torch.nn.Linear(3, 2, bias=False)
with torch.no_grad(): @m.weight.copy_(torch.arange(6.0).reshape(2, 3) - 2)
torch.nn.utils.parametrize.register_parametrization(@m, 'weight', @P())
@v = @m(torch.ones(2, 3) * $F)
@v.sum().backward()
LOG.append((sorted(k for k, _ in @m.named_parameters()), @m.parametrizations.weight.original.grad))
=> @v T
""",
    """
@k = []
@h = [net.register_forward_pre_hook(lambda m, a: (a[0] + 1,)), net.inner[0].register_forward_hook(lambda m, a, o: @k.append(o.shape))]
@v = net($T)
BLOCK
for @i in @h: @i.remove()
LOG.append((@k, len(net._forward_hooks), net($T).shape))
=> @v T
""",
    """
@a = $T.detach().clone().float()
@b = @a.flatten()
@b[::2] = $F
@a[..., -1] += 1
@a[@a > #] = 0
if @a.dim() == 2:
    @a[[0, -1]] = @a[[-1, 0]]
    @a[:, torch.tensor([0])] *= 2
    @a.index_put_((torch.tensor([0]), torch.tensor([0])), torch.tensor(3.0), accumulate=$B)
@v = @a + 1
LOG.append((@b, @a._base is @b, @b._base is @a))
=> @v T
""",
    """
@o = torch.zeros_like($T)
torch.add(@o, $F, out=@o)
@w = torch.empty(0)
torch.cat([@o.flatten(), @o.flatten()[:1]], out=@w)
@n = torch.empty(@o.shape, dtype=torch.bool)
torch.gt(@o, #, out=@n)
@v = @w * 2
LOG.append((@w.shape, @n, @o))
=> @v T
""",
    """
@d = {$T: 1, x: 2}
@s = {x, y}
@d[x] = @d.get(x, 0) + len(@s)
@l = [t for t in @d if t is x] + [k.shape for k in @s if k is y]
LOG.append((@d[x], y in @d, len(@d), @l, any(x is k for k in [y, x])))
""",
    """
@v = $T.to(torch.float64)
@w = @v.to('cpu', torch.float32, copy=$B)
@u = @w.type_as(@v).cpu().contiguous().view(torch.int64)
@z = @v.to(x).half().bfloat16().to(dtype=torch.get_default_dtype())
LOG.append((@w.dtype, @u.shape, @v.to(@v) is @v, @z.is_floating_point(), torch.result_type(@v, 1), torch.promote_types(torch.int8, torch.uint8)))
=> @z T
""",
    """
@a = $T.detach().clone().float()
@v = @a.view(-1)
@w = @a.unsqueeze(0).squeeze(0)
@u = @a.expand(2, *@a.shape)
@v.add_(1)
BLOCK
@w.mul_(2)
LOG.append((@a, @u.sum(), @w.data_ptr() == @a.data_ptr(), @v._version == @a._version, @a.is_set_to(@w)))
=> @w T
""",
    """
@w = torch.nn.Parameter(torch.ones(2))
@o = torch.optim.SGD([{'params': [@w], 'lr': 0.5}], lr=0.1, momentum=0.5)
@c = torch.optim.lr_scheduler.StepLR(@o, 1, gamma=0.5)
for @i in range(2):
    @o.zero_grad()
    (@w * $F).sum().backward()
    @o.step()
    BLOCK
    @c.step()
LOG.append((@w, @o.param_groups[0]['lr'], @c.get_last_lr(), sorted(@o.state_dict()), @o.state[@w]['momentum_buffer']))
""",
    """
class @F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, k):
        ctx.save_for_backward(t)
        ctx.k = k
        return t * k
    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        LOG.append(ctx.k)
        return g * t, None
@p = $T.detach().clone().float().requires_grad_()
@v = @F.apply(@p, $I)
BLOCK
@v.sum().backward()
LOG.append(@p.grad)
@v = @p.grad
=> @v T
""",
    """
@c = torch.zeros(9000, 2)
@b = $T.detach().flatten()[:2].sum()
SHARED['cache'] = @c
def @f(p, q=1):
    LOG.append('fill')
    @c[q] = @b
    @c[2:4].copy_(torch.ones(2, 2))
    LOG.append('filled')
    return @c[torch.tensor([q, abs($I) * 4000])]
try:
    @v = @f(x, abs($I))
    BLOCK
except IndexError as error:
    LOG.append(('missed', @c[:4].clone()))
    @v = @c.sum(0) + 1
=> @v T
""",
    """
@t = torch.nn.Embedding(4, 3)
with torch.no_grad(): @t.weight.copy_(torch.arange(12.0).reshape(4, 3) / 4)
@i = torch.tensor([abs($I) % 5, 0, 3])
try:
    LOG.append('look up')
    @v = @t(@i)
    @v = torch.nn.functional.layer_norm(@v + @t.weight[:1], (3,))
    LOG.append(@v.argmax(-1))
except IndexError as error:
    LOG.append('beyond')
    @v = @t.weight.detach() * 2
=> @v T
""",
    """
@g = torch.func.grad(lambda p, q: (p * p * q).sum())
@v = @g($T.detach().float(), $F)
@j = torch.func.vmap(lambda t: (t * 2).sum())(torch.ones(3, 2) * $F)
@w, @h = torch.func.grad_and_value(lambda p: p.sin().mean())(@v)
BLOCK
LOG.append((@j, @h))
=> @w T
""",
    """
@m = torch.nn.Linear(2, 2)
@p = {k: torch.full_like(t, 0.5) for k, t in @m.named_parameters()}
@v = torch.func.functional_call(@m, @p, (torch.ones(1, 2) * $F,))
@p['bias'] = @p['bias'] + $I
BLOCK
LOG.append((torch.func.functional_call(@m, @p, torch.ones(1, 2)), @m.weight.shape))
=> @v T
""",
    """
def @f(p, q=$I):
    return (p * q).sin() * p
@p = $T.detach().clone().float().requires_grad_()
@v = torch.utils.checkpoint.checkpoint(@f, @p, use_reentrant=False)
BLOCK
@v.sum().backward()
@w = @p.grad + 1
=> @w T
""",
    """
torch.manual_seed(3)
@m = torch.nn.GRU(2, 3, batch_first=True) if $B else torch.nn.LSTM(2, 3)
@o, @h = @m(torch.ones(2, 4, 2) * $F)
BLOCK
@h = @h[0] if isinstance(@h, tuple) else @h
LOG.append((@o.shape, @h.shape, len(list(@m.parameters()))))
@v = @o[:, -1].detach() + 1
=> @v T
""",
    """
class @S(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        LOG.append(getattr(func, '__name__', 'get'))
        return super().__torch_function__(func, types, args, kwargs or {})
@a = $T.detach().clone().as_subclass(@S)
@b = torch.add(@a, 1) * $I
LOG.append((type(@b).__name__[0], type(@b.sum()).__name__[0], @b.shape))
@v = @b.as_subclass(torch.Tensor) + 1
=> @v T
""",
    """
@a, @b = (torch.nn.Parameter(torch.full((2,), k)) for k in (0.5, 1.5))
@o = [torch.optim.SGD([p], lr=0.1) for p in (@a, @b)]
for @k in range(2):
    @o[0].zero_grad(set_to_none=$B)
    ((@b * @a).sum() * $F).backward()
    torch.nn.utils.clip_grad_norm_([@a], 1.0)
    @o[0].step()
    @a.requires_grad_(False)
    @b.grad = None
    (@b * @a.detach() + $I).square().sum().backward()
    BLOCK
    @o[1].step()
    @a.requires_grad_(True)
LOG.append((@a, @b, @a.grad, @b.grad))
@v = (@a * @b).detach()
=> @v T
""",
    """
@m = {k: torch.zeros_like(t) for k, t in net.state_dict().items()}
@d = 0.5
with torch.no_grad():
    for @k, @t in net.state_dict().items():
        @m[@k].mul_(@d).add_(@t, alpha=1 - @d)
    BLOCK
    for @k, @t in @m.items():
        if @t.ndim: net.state_dict()[@k].copy_(@t)
LOG.append(sorted((k, t.sum()) for k, t in @m.items() if t.numel() == 1)[0][0])
@v = net($T)
=> @v T
""",
    """
@r = [torch.ones(k % 3 + 1) * k for k in $L[:3] if isinstance(k, int) and k > 0] or [torch.ones(2)]
@p = torch.nn.utils.rnn.pad_sequence(@r, batch_first=True, padding_value=$F)
@l = torch.tensor([len(k) for k in @r])
@m = torch.arange(@p.size(1))[None] < @l[:, None]
@v = (@p * @m).sum(1) / @l.clamp(min=1)
BLOCK
LOG.append((@p.shape, @m.sum().item(), @p[@m].tolist(), torch.where(@m)[0].shape, @m.nonzero().shape))
=> @v T
""",
    """
@x = torch.arange(4)[None] % 3
@s = []
for @k in range(3):
    @l = torch.nn.functional.one_hot(@x[:, -1], 4).float() * $F + torch.arange(4.0)
    @t = torch.topk(@l, 2, -1)
    @n = @t.indices[:, :1] if $B else @l.argmax(-1, keepdim=True)
    @x = torch.cat([@x, @n], -1)
    @s.append(@t.values)
    BLOCK
    if (@n == 3).all(): break
LOG.append((@x.tolist(), torch.unique(@x), torch.bincount(@x[0]), len(@s)))
@v = torch.stack(@s).mean(0)
=> @v T
""",
    """
@i = (torch.arange(32.0).reshape(1, 2, 4, 4) % 5 - 2) * $F
@v = torch.nn.functional.conv2d(@i, torch.full((3, 2, 2, 2), 0.25), stride=2)
@v = torch.nn.functional.max_pool2d(torch.nn.functional.relu(@v), 2)
@w = torch.nn.functional.interpolate(@i, scale_factor=0.5)
BLOCK
LOG.append((@v.flatten(1).shape, @w.mean(), torch.einsum('bchw,bkhw->bck', @i, @i).shape))
=> @v T
""",
    """
@h = torch.autograd.functional.jacobian(lambda p: p * p * $I, torch.ones(2) * $F)
@p = torch.ones(2, requires_grad=True)
@g = torch.autograd.grad((@p ** 3).sum() * $F, @p, create_graph=True)[0]
@w = torch.autograd.grad(@g.sum(), @p)[0]
BLOCK
LOG.append((@h, @g))
=> @w T
""",
]

SIMPLE = []
COMPOUND = [(1, template(text)) for text in LANGUAGE + TORCH]

"""Where values live: cells, globals, attributes, tensors that are keys or share memory, names that are deleted; and what data steers."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

TEMPLATES = [
    """
@k = $I
@t = $T
def @f():
    nonlocal @k, @t
    @k += 1
    @t = @t * 2
    return @k
def @g(p=@k):
    BLOCK
    return @t + @k + p
def @h(value):
    nonlocal @t
    @t = value
@f()
note(@k)
@v = @g() + @f()
@h(@v)
LOG.append((@k, @t is @v))
=> @v T
=> @f f
=> @g f
""",
    """
def @f():
    state = {'n': 0, 't': $T}
    @l = []
    def @g(p, *, q=$I):
        state['n'] += q
        state['t'] = state['t'] + p
        @l.append(state['n'])
        BLOCK
        return state['t']
    def @h():
        return state, @l
    return @g, @h
@a, @b = @f()
@v = @a($T)
note(@v)
@v = @a($T, q=#) + @v
LOG.append(@b())
=> @v T
=> @b f
""",
    """
@l = []
for @i in range(3):
    def @f(p, k=@i):
        return p * k + @i
    @l.append(@f)
    BLOCK
@v = $T
for @f in @l: @v = @f(@v)
=> @v T
""",
    """
@v = $T
@w = @v
del @v
BLOCK
try: @v
except NameError as error: LOG.append(type(error).__name__)
@v = @w * 2
=> @v T
""",
    """
def @f(p):
    if $B:
        q = p
    BLOCK
    try:
        return q
    except UnboundLocalError:
        return p * 2
@v = @f($T)
=> @v T
""",
    """
def @f():
    global COUNT, MADE
    COUNT = COUNT + $I
    MADE = [$T]
    BLOCK
    MADE.append(COUNT)
@f()
@v = MADE[0] + COUNT
globals()['OTHER'] = MADE
LOG.append('MADE' in globals())
del globals()['OTHER']
=> @v T
""",
    """
@a, @b = $T, $T
@d = {@a: $I, 'k': @b}
@d[@b] = 2
@z = {@a, @b, @a}
LOG.append((@d[@a], len(@z), @a in @d, @d.pop(@b, None), len(@d)))
@v = next(iter(@d))
=> @v T
""",
    """
@a = $T.clone()
@b = @a.view(-1)
@c = [@a, @b, @a[..., :1]]
BLOCK
@c[2].mul_(2)
@c[1] += 1
@b[:1] = #
note(@a)
@a.t_()
@v = sum(t.sum() for t in @c)
=> @v T
=> @a T
""",
    """
@a = x.view(x.shape)
@a.add_($F)
y[..., 0] = x.sum()
BLOCK
x.mul_(2)
@v = @a + y
=> @v T
=> @a T
""",
    """
@k = $T.sum().item()
if @k > #:
    BLOCK
@v = $T * @k
LOG.append((type(@k).__name__, @k == int(@k)))
=> @v T
""",
    """
@l = $T.flatten().tolist()
@v = torch.tensor(@l[:3] + [#])
for @k in @l[:2]:
    if @k > 0: @v = @v + @k
    BLOCK
LOG.append(len(@l))
=> @v T
""",
    """
@v = $T
@i = 0
while (@v.abs().sum() > 1) and @i < 3:
    @v = @v / 2
    @i += 1
    BLOCK
LOG.append(@i)
=> @v T
""",
    """
@v = $T
if @v.sum() > #:
    @v = @v + 1
    @w = @v * 2
elif (@v < 0).any():
    @w = @v - 1
    BLOCK
else:
    @w = -@v
=> @w T
""",
    """
@k = ($T > #).nonzero()
@v = $T.sum() + @k.shape[0]
LOG.append((@k.shape, len(@k)))
=> @v T
""",
    """
@v = $T
@n, *@s = @v.shape if @v.dim() else (1,)
@l = [torch.full((@n, i + 1), $F) for i in range(2)]
@v = torch.cat(@l, -1)[: @n // 2 + 1]
if @n > 3: @v = @v[:, :1]
LOG.append((@n * 2 + 1, @n / 2, @s, @n == len(@l), max(@n, 3), range(@n)[-1:], f'{@n}'))
BLOCK
=> @v T
""",
    """
@k = n * 2 if isinstance(n, (int, float)) else 1
@v = x * @k + n
if @k > 5: @v = @v - @k
LOG.append((@k, type(n).__name__, n == @k, @k // 2, str(@k)))
for @i in range(int(@k) % 4):
    @v = @v + @i
    BLOCK
=> @v T
""",
    """
@o = $O
@o.cache = getattr(@o, 'cache', {})
@o.cache[n] = @o.cache.get(n, 0) + 1
@o.last, before = $T, getattr(@o, 'last', None)
BLOCK
@o.last += 1
LOG.append((before is None, @o.cache, len(vars(@o))))
@v = @o.last
=> @v T
""",
    """
@v = $T
@w = (@k := @v * 2) + (@v := @k + 1)
@l = [@j for i in range(3) if (@j := i + n) != #]
LOG.append((@l, (@m := len(@l)) and @m + 1))
BLOCK
=> @w T
=> @v T
""",
    """
@p = $T.detach().clone().requires_grad_()
@q = @p * 2
@q.register_hook(lambda g: g * 3)
@q.retain_grad()
(@q * $T).sum().backward()
BLOCK
LOG.append((@p.grad, @q.grad))
@p.grad.zero_()
@p.grad = None
@v = @p.detach()
=> @v T
""",
    """
net.seen[...] = net.seen + 1
net.inner[0].weight.data.fill_($F)
net.gain += 1
BLOCK
@v = net($T)
net.seen = net.seen.clone()
net.inner.append(torch.nn.Identity())
@v = @v + net(x)
del net.inner[-1]
LOG.append((len(net.inner), net.gain, net.training))
=> @v T
""",
    """
SHARED['list'] = @l = [$I]
SHARED['t'] = $T
@l.append($I)
BLOCK
SHARED['t'] += 1
SHARED.setdefault('deep', {}).setdefault('er', []).append($I)
@v = SHARED.pop('t')
LOG.append(SHARED['list'] is @l)
=> @v T
""",
    """
@l = [$T, $T]
@l[0], @l[1] = @l[1], @l[0]
@l[0] += 1
@l[:] = [t * 2 for t in @l]
@a, @b = @l
(@l[0], @d) = @b, {'k': @l}
@d['k'][0].add_(1)
@d['k'] += [@a]
BLOCK
LOG.append((len(@l), @l[0] is @b))
=> @a T
=> @b T
""",
    """
def @f(q):
    return 1 if q < 1 else q * @f(q - 1)
def @g(p, q):
    if q == 0: return [p]
    return [*@g(p + 1, q - 1), p * q]
def @e(q): return q == 0 or @o(q - 1)
def @o(q): return q != 0 and @e(q - 1)
@v = sum(@g($T, 3)) * @f(4)
LOG.append((@e(3), @o(3)))
=> @v T
""",
    """
@l = locals()
LOG.append((sorted(k for k in @l if len(k) > 3)[:3], 'x' in @l, callable(peek)))
""",
    """
exec('made = 1 + ' + str($I), globals())
LOG.append((eval('made * 2', globals()), globals().pop('made')))
@v = eval('lambda p: p + 1')($T)
=> @v T
""",
    """
@a = np.asarray($T.detach())
@b = @a * 2 + 1
@v = torch.from_numpy(@b) if isinstance(@b, np.ndarray) and @b.ndim else torch.as_tensor(@b)
LOG.append((@a.shape, float(@b.sum()), str(@b.dtype)))
BLOCK
=> @v T
""",
    """
@v = $T
for @i, @r in enumerate(@v):
    if @i == #: continue
    @v = @v + @r.mean()
    if @r.sum() > 2: break
    BLOCK
else:
    @v = @v * 2
=> @v T
""",
    """
@v = torch.empty_like($T).copy_($T)
torch.manual_seed(#)
@w = torch.rand(@v.shape) + torch.nn.functional.dropout(@v, 0.5)
LOG.append(@w.shape)
BLOCK
=> @w T
""",
]

SIMPLE = []
COMPOUND = [(1, template(text)) for text in TEMPLATES]

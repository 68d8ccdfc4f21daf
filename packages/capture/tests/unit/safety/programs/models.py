"""How repositories write models, generate with them and train them: caches and buffers that grow, beams and masks, shared parameters,
modules that are changed between calls, state that is saved and loaded, transforms, generators of random numbers."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

MODELS = [
    """
class @K:
    def __init__(self, size): self.k, self.v, self.at = torch.zeros(1, size, 2), torch.zeros(1, size, 2), 0
    def update(self, k, v):
        n = k.shape[1]
        if self.at + n > self.k.shape[1]: self.grow(self.at + n)
        self.k[:, self.at:self.at + n] = k
        self.v[:, self.at:self.at + n].copy_(v)
        self.at += n
        return self.k[:, :self.at], self.v[:, :self.at]
    def grow(self, size):
        LOG.append(('grow', size))
        for name in ('k', 'v'):
            old = getattr(self, name)
            setattr(self, name, torch.cat([old, old.new_zeros(1, size - old.shape[1], 2)], 1))
@c = @K(2)
@q = torch.ones(1, 2) * $F
@s = []
for @n in (1, 2, 1):
    @k, @w = @c.update(torch.full((1, @n, 2), @n / 2), torch.arange(@n * 2.0).reshape(1, @n, 2))
    @a = torch.einsum('bd,bnd->bn', @q, @k).softmax(-1)
    BLOCK
    @s.append((@a[..., None] * @w).sum(1))
@v = torch.cat(@s)
LOG.append((@c.at, @c.k, @k.shape, @k.data_ptr() == @c.k.data_ptr(), @w.is_contiguous()))
=> @v T
""",
    """
@w = torch.tensor([[0.0, 1.5, 0.5, 0.25], [1.0, 0.0, 0.75, 2.0], [0.5, 0.25, 0.0, 1.25], [0.0, 0.5, 1.0, 0.125]]) * (abs($F) + 1)
@b, @s = torch.zeros(2, 1, dtype=torch.long), torch.tensor([0.0, -1.0])
@d = []
for @n in range(3):
    @l = @w[@b[:, -1]].log_softmax(-1) + @s[:, None]
    @s, @i = @l.view(-1).topk(2)
    @p, @t = torch.div(@i, 4, rounding_mode='floor'), @i % 4
    @b = torch.cat([@b.index_select(0, @p), @t[:, None]], 1)
    BLOCK
    @e = @t.eq(3)
    if @e.any():
        @d += [(q.tolist(), round(k.item(), 4)) for q, k in zip(@b[@e], @s[@e])]
        @s = @s.masked_fill(@e, -9.0)
    if len(@d) > 1: break
LOG.append((sorted(@d, key=lambda q: -q[1]), @b.gather(1, @b[:, -1:].clamp(max=1)).tolist()))
@v = @s.exp()
=> @v T
""",
    """
class @R(torch.nn.Module):
    def __init__(self, d=2):
        super().__init__()
        self.register_buffer('inv', 1.0 / (10 ** (torch.arange(0, d, 2).float() / d)), persistent=False)
        self.cos = self.sin = None
        self.seen = 0
    def tables(self, n):
        if n > self.seen or self.cos is None:
            LOG.append(('tables', n))
            self.seen = n
            f = torch.outer(torch.arange(n).float(), self.inv)
            self.cos, self.sin = (t.repeat_interleave(2, -1) for t in (f.cos(), f.sin()))
        return self.cos[:n], self.sin[:n]
    def forward(self, p):
        c, s = self.tables(p.shape[0])
        a, b = p[..., ::2], p[..., 1::2]
        BLOCK
        return p * c + torch.stack((-b, a), -1).flatten(-2) * s
@m = SHARED.setdefault('rotary', @R())
@v = @m(torch.arange(6.0).reshape(3, 2) * $F)
@v = @v + @m(@v).flip(0)
@w = @m(torch.ones(abs(int($I)) % 5 + 1, 2))
LOG.append((@m.seen, @m.cos.shape, len(@m.state_dict()), [k for k, _ in @m.named_buffers()]))
=> @w T
=> @v T
""",
    """
class @M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(5, 3)
        self.out = torch.nn.Linear(3, 5, bias=False)
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(3, 3)] * 2)
        self.tie()
        with torch.no_grad():
            for k, p in enumerate(self.parameters()): p.copy_(torch.linspace(-1, 1, p.numel()).view_as(p) / (k + 1))
    def tie(self): self.out.weight = self.emb.weight
    def forward(self, i):
        h = self.emb(i)
        for b in self.blocks: h = h + b(h).tanh()
        BLOCK
        return self.out(h)
@m = @M()
@i = torch.tensor([[0, abs(int($I)) % 5, 4]])
@l = torch.nn.functional.cross_entropy(@m(@i)[:, :-1].flatten(0, 1), @i[:, 1:].flatten())
@l.backward()
@g = @m.emb.weight.grad
LOG.append((len([*@m.parameters()]), sorted(@m.state_dict()), @m.out.weight.grad is @g, @g.shape, @m.blocks[0] is @m.blocks[1]))
@n = copy.deepcopy(@m)
@n.out.weight = torch.nn.Parameter(@n.out.weight.detach() * 2)
@v = @n(@i).detach() - @m(@i).detach()
LOG.append((@n.out.weight is @n.emb.weight, len([*@n.named_parameters(remove_duplicate=False)]), @n.emb.weight.grad is None))
@w = @g.clone()
=> @v T
=> @w T
""",
    """
@m = torch.nn.ModuleDict(dict(a=torch.nn.Linear(2, 2), b=torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())))
with torch.no_grad():
    for @p in @m.parameters(): @p.fill_(0.25)
class @L(torch.nn.Module):
    def __init__(self, base, r=1):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a, self.b = torch.nn.Parameter(torch.ones(r, base.in_features)), torch.nn.Parameter(torch.full((base.out_features, r), 0.5))
        self.on = True
    def forward(self, p):
        BLOCK
        return self.base(p) + (p @ self.a.T @ self.b.T if self.on else 0)
@v = @m['b'](@m['a'](torch.ones(1, 2) * $F))
for @n, @c in list(@m.named_modules()):
    if isinstance(@c, torch.nn.Linear):
        @k, _, @l = @n.rpartition('.')
        setattr(@m.get_submodule(@k), @l, @L(@c)) if @k else @m.__setitem__(@l, @L(@c))
@v = @v + @m['b'](@m['a'](torch.ones(1, 2)))
@v.sum().backward()
LOG.append(([n for n, p in @m.named_parameters() if p.grad is not None], sum(p.numel() for p in @m.parameters() if p.requires_grad)))
for @c in @m.modules():
    if isinstance(@c, @L): @c.on = $B
@m['a'] = @m['a'].base
@v = @m['b'](@m['a'](torch.ones(1, 2))).detach()
LOG.append((repr(@m['a']), [*@m._modules], 'b' in @m, @m.get_parameter('b.0.a').shape))
=> @v T
""",
    """
@m = torch.nn.Linear(2, 2)
with torch.no_grad():
    @m.weight.copy_(torch.tensor([[0.5, -1.0], [2.0, 0.25]]))
    @m.bias.fill_($F)
torch.nn.utils.parametrizations.weight_norm(@m) if $B else torch.nn.utils.parametrize.register_parametrization(@m, 'weight', torch.nn.Softplus())
@v = @m(torch.ones(1, 2))
BLOCK
with torch.nn.utils.parametrize.cached():
    LOG.append(@m.weight is @m.weight)
    @v = @v + @m(@v)
LOG.append((@m.weight is @m.weight, sorted(k for k, _ in @m.named_parameters()), torch.nn.utils.parametrize.is_parametrized(@m)))
torch.nn.utils.parametrize.remove_parametrizations(@m, 'weight', leave_parametrized=$B)
LOG.append((@m.weight, type(@m).__name__, sorted(@m.state_dict())))
@v = @m(@v).detach()
=> @v T
""",
    """
@l = []
@m = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
with torch.no_grad():
    for @p in @m.parameters(): @p.fill_(0.5)
class @H:
    def __init__(self, m): self.out, self.handles = {}, [c.register_forward_hook(self.keep(n)) for n, c in m.named_children()]
    def keep(self, name):
        def @k(m, a, o):
            self.out[name] = o
            BLOCK
        return @k
    def __enter__(self): return self
    def __exit__(self, *error):
        for h in self.handles: h.remove()
with @H(@m) as @h:
    @i = torch.ones(1, 2, requires_grad=True)
    @v = @m(@i * $F)
@f = @m[0].register_full_backward_pre_hook(lambda m, g: (@l.append('pre'), (g[0] * 2,))[1])
@g = @m.register_full_backward_hook(lambda m, gi, go: @l.append((len(gi), go[0].sum())))
@a = torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: @l.append(type(m).__name__))
try: @m(@i * 2).sum().backward()
finally: @a.remove()
@f.remove()
@g.remove()
@m(@i).sum().backward()
LOG.append((@l, @i.grad, sorted(@h.out), @h.out['1'] is @v, len(@m[0]._forward_hooks)))
@v = @h.out['0'].detach()
=> @v T
""",
    """
@m = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
with torch.no_grad(): @m[0].weight.fill_($F)
@s = {k: t.clone() for k, t in @m.state_dict(prefix='m.').items()}
@m(torch.arange(6.0).reshape(3, 2))
@c = [k for k, t in @m.state_dict(prefix='m.').items() if not torch.equal(t, @s[k])]
@h = @m.register_load_state_dict_pre_hook(lambda m, d, *rest: d.update({k.removeprefix('m.'): d.pop(k) for k in list(d)}))
@k = @m.load_state_dict(dict(@s))
BLOCK
@h.remove()
for @d in ({'0.weight': torch.ones(3, 2)}, {'0.weight': torch.ones(2, 2), 'zz': 1}, {}):
    try: LOG.append(@m.load_state_dict(@d, strict=len(@d) < 2))
    except RuntimeError as error: LOG.append(str(error).splitlines()[:2])
@b = io.BytesIO()
torch.save({'m': @m.state_dict(), 'step': $I}, @b)
@b.seek(0)
@d = torch.load(@b, weights_only=True)
LOG.append((@c, str(@k), @d['step'], [*@d['m']][:2], @m.load_state_dict(@d['m'], assign=$B), @m[1].num_batches_tracked))
@v = @m.eval()(torch.ones(2, 2)).detach()
=> @v T
""",
    """
@m = torch.nn.LazyLinear(2) if $B else torch.nn.LazyConv1d(2, 1)
LOG.append((torch.nn.parameter.is_lazy(@m.weight), type(@m).__name__))
@v = @m(torch.ones(1, 3, 3) * $F)
with torch.no_grad(): @m.weight.fill_(0.5), @m.bias.zero_()
BLOCK
@v = @m(torch.ones(1, 3, 3)).detach()
@n = torch.nn.Linear(3, 2, device='meta')
@n = @n.to_empty(device='cpu')
torch.nn.init.constant_(@n.weight, 0.25)
torch.nn.init.zeros_(@n.bias)
@v = @v.sum() + @n(torch.ones(3))
LOG.append((type(@m).__name__, tuple(@m.weight.shape), @n.weight.is_leaf, repr(@n), torch.nn.utils.parameters_to_vector(@n.parameters()).shape))
=> @v T
""",
    """
class @N(torch.nn.Module):
    def __init__(self, kind='gate'):
        super().__init__()
        self.kind, self.f = kind, {'gate': torch.sigmoid, 'relu': torch.relu}[kind]
        self.w = torch.nn.ParameterDict({k: torch.nn.Parameter(torch.full((2,), n)) for k, n in (('a', 0.5), ('b', 2.0))})
        self.extra = torch.nn.ParameterList()
    def __getattr__(self, name):
        if name.startswith('w_'): return self.w[name[2:]]
        return super().__getattr__(name)
    def extra_repr(self): return f'kind={self.kind}'
    def __call__(self, *args, **more):
        LOG.append('called')
        return super().__call__(*args, **more)
    def forward(self, p):
        h = self.f(p * self.w_a)
        for e in self.extra: h = h + e
        BLOCK
        return h * self.w_b
@m = @N()
@v = @m(torch.ones(2) * $F)
@m.extra.append(torch.nn.Parameter(torch.ones(2)))
@m.w['c'] = @m.w.pop('a')
for @n in ('c', 'a'):
    try:
        @v = @v + @m(@v)
    except (KeyError, AttributeError) as error:
        LOG.append((type(error).__name__, str(error)[:30]))
        @m.w['a'] = @m.w[@n]
@m.forward = lambda p: @N.forward(@m, p) * 2
@v = @m(@v)
del @m.forward
LOG.append(([n for n, _ in @m.named_parameters()], repr(@m).splitlines()[0][2:], hasattr(@m, 'w_zz') if $B else 0))
@v.sum().backward()
LOG.append([None if p.grad is None else p.grad for p in @m.parameters()])
@v = @v.detach()
=> @v T
""",
]
TRAINING = [
    """
class @F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, mode, scale=2.0):
        ctx.mode, ctx.scale, ctx.sizes = mode, scale, (a.shape, b.shape)
        ctx.save_for_backward(a, b)
        c = a * scale
        return c, mode, (a + b).sum(), None
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g, *rest):
        a, b = ctx.saved_tensors
        LOG.append((ctx.mode, len(rest), ctx.needs_input_grad, [type(k).__name__ for k in rest]))
        s = rest[1]
        BLOCK
        return (g * ctx.scale + s) if ctx.needs_input_grad[0] else None, s.expand(ctx.sizes[1]), None, None
@a, @b = torch.ones(2, 2, requires_grad=True), torch.full((2, 2), $F, requires_grad=$B)
@v, @k, @s, @n = @F.apply(@a * 2, @b, $S, 3.0)
(@v.sum() + @s).backward()
@w, *_ = @F.apply(@a, @b.detach(), 'again')
LOG.append((@k, @n, @a.grad, @b.grad, type(@v.grad_fn).__name__[-8:], @w.requires_grad))
with torch.no_grad(): LOG.append(@F.apply(@a, @b, 'none')[0].requires_grad)
@v = @w.detach()
=> @v T
""",
    """
@l = []
def @p(t):
    @l.append(tuple(t.shape))
    return t.detach().numpy().copy()
def @u(a): return torch.from_numpy(a) * 1
@a = torch.arange(4.0).reshape(2, 2).requires_grad_()
with torch.autograd.graph.saved_tensors_hooks(@p, @u):
    @b = (@a * @a).sin() * $F
    BLOCK
@b.sum().backward()
with torch.autograd.graph.save_on_cpu():
    @c = (@a.exp() * @a).sum()
@g, = torch.autograd.grad(@c, @a, torch.tensor(2.0))
with torch.autograd.set_grad_enabled($B): @d = @a * 2
LOG.append((@l, @a.grad, @g, @d.requires_grad))
@v = @g
=> @v T
""",
    """
@torch.no_grad()
def @f(p):
    p.mul_(2)
    BLOCK
    return p * 3, torch.is_grad_enabled()
@torch.autocast('cpu', dtype=torch.bfloat16)
def @g(p):
    return torch.ones(2, 2) @ (torch.ones(2, 2) * p.float().sum()), torch.is_autocast_enabled('cpu')
@torch.enable_grad()
def @h(p): return p.detach().requires_grad_() * 2
@torch.inference_mode()
def @i(p):
    yield p + 1
    yield torch.is_inference_mode_enabled()
@a = torch.ones(2).requires_grad_() * $F
@v, @k = @f(@a)
@w, @n = @g(@v)
with torch.no_grad(): @b = @h(@v)
@c, @d = @i(@v)
LOG.append((@k, @n, @w.dtype, @b.requires_grad, @c.is_inference(), @d, torch.is_inference_mode_enabled(), @a._version, @f.__name__[0]))
@v = @w.float() + @b.sum()
=> @v T
""",
    """
torch.manual_seed(int($I) + 9)
@a = torch.rand(3)
@s = torch.get_rng_state()
with torch.random.fork_rng():
    torch.manual_seed(1)
    @b = torch.randn(2) + torch.nn.functional.dropout(torch.ones(2), 0.5)
    BLOCK
@c = torch.rand(3)
torch.set_rng_state(@s)
@g = torch.Generator().manual_seed(7)
@d = (torch.randperm(4, generator=@g), torch.randint(0, 9, (2,), generator=@g), torch.empty(2).normal_(1, 2, generator=@g), @g.initial_seed())
@t = @g.get_state()
@e = torch.bernoulli(torch.full((4,), 0.5), generator=@g)
@g.set_state(@t)
LOG.append((torch.equal(@c, torch.rand(3)), @d, torch.equal(@e, torch.bernoulli(torch.full((4,), 0.5), generator=@g))))
LOG.append((torch.initial_seed(), torch.multinomial(torch.ones(4), 2)))
@v = @a + @b.sum() + torch.randn_like(@a)
=> @v T
""",
    """
def @l(w, p, k=$I): return ((p * w['a']).tanh() + w['b'] * k).square().mean()
@w = {'a': torch.full((2,), 0.5), 'b': torch.tensor($F)}
@i = torch.arange(6.0).reshape(3, 2) / 4
@g = torch.func.vmap(torch.func.grad(@l), in_dims=(None, 0))(@w, @i)
@o, @j = torch.func.vjp(lambda q: @l(q, @i), @w)
_, @t = torch.func.jvp(lambda q: @l({**@w, 'a': q}, @i), (@w['a'],), (torch.ones(2),))
@c = []
def @n(p):
    @c.append(p.shape)
    return p.cumsum(0) * @i.sum(), {'k': p.max()}
@m, @d = torch.func.vmap(@n, in_dims=1, out_dims=(1, 0))(@i)
BLOCK
@h = torch.func.jacrev(torch.func.grad(lambda q: (q ** 3).sum() * @w['b']))(@w['a'])
@e = torch.func.linearize(torch.sin, @w['a'])[1](torch.ones(2))
LOG.append(({k: t.shape for k, t in @g.items()}, @j(torch.tensor(1.0))[0]['b'], @t, @c, @m.shape, @m.stride(), @d['k'], @h, @e))
@v = @g['a'] + @m.sum()
=> @v T
""",
    """
@m = [torch.nn.Linear(2, 1) for _ in range(3)]
for @k, @c in enumerate(@m):
    with torch.no_grad(): @c.weight.fill_(@k + 0.5), @c.bias.fill_(@k)
@p, @b = torch.func.stack_module_state(@m)
def @f(p, b, i): return torch.func.functional_call(@m[0], (p, b), (i,))
@v = torch.func.vmap(@f, in_dims=(0, 0, None))(@p, @b, torch.ones(2, 2) * $F)
@d = dict(net.named_parameters()) | dict(net.named_buffers())
@d = {k: t.detach().clone() for k, t in @d.items()}
@w = torch.func.functional_call(net, @d, (torch.ones(2),), {'again': 1})
BLOCK
LOG.append((@v.shape, @p['weight'].requires_grad, @d['seen'], net.seen, @w))
try:
    @g = torch.func.grad(lambda q: torch.func.functional_call(net.train($B), {**@d, 'scale': q}, torch.ones(2)).sum())(@d['scale'])
    LOG.append(@g)
except RuntimeError as error: LOG.append(str(error)[:30])
finally: net.train()
try: torch.func.functional_call(net, {'zz': @w}, torch.ones(2), strict=True)
except RuntimeError as error: LOG.append(str(error)[:30])
=> @v T
""",
    """
class @E:
    def __init__(self, m, d=0.5): self.d, self.s, self.back = d, {k: t.clone() for k, t in m.named_parameters()}, None
    @torch.no_grad()
    def update(self, m):
        for k, t in m.named_parameters():
            if t.requires_grad: self.s[k].lerp_(t, 1 - self.d)
    @contextlib.contextmanager
    def applied(self, m):
        self.back = {k: t.data for k, t in m.named_parameters()}
        for k, t in m.named_parameters(): t.data = self.s[k]
        try: yield m
        finally:
            for k, t in m.named_parameters(): t.data = self.back[k]
            self.back = None
@m = torch.nn.Linear(2, 1)
with torch.no_grad(): @m.weight.fill_(1.0), @m.bias.fill_($F)
@e = @E(@m)
@o = torch.optim.SGD([{'params': @m.weight}, {'params': [@m.bias], 'lr': 0.5, 'weight_decay': 0.1}], lr=0.1, nesterov=True, momentum=0.5)
@s = torch.optim.lr_scheduler.LambdaLR(@o, [lambda k: 1 / (k + 1), lambda k: 0.5 ** k])
for @k in range(3):
    @l = (@m(torch.ones(2, 2)) - 1).pow(2).mean() / 2
    @l.backward()
    if @k % 2 == 0: continue
    @n = torch.nn.utils.clip_grad_norm_(@m.parameters(), 0.5, foreach=$B)
    BLOCK
    @o.step()
    @s.step()
    @o.zero_grad()
    @e.update(@m)
with @e.applied(@m) as @c: @v = @c(torch.ones(1, 2)).detach()
LOG.append((@n, @s.get_last_lr(), @m.weight.data, @e.s['bias'], @e.back, @m.bias.grad, len(@o.state)))
=> @v T
""",
    """
@p = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
@o = torch.optim.LBFGS([@p], lr=0.5, max_iter=3) if $B else torch.optim.AdamW([@p], lr=0.1, amsgrad=True)
@n = 0
def @c():
    global COUNT
    COUNT += 1
    @o.zero_grad()
    l = (@p * @p).sum() * (abs($F) + 0.5)
    l.backward()
    BLOCK
    return l
for @k in range(2): @l = @o.step(@c)
@s = copy.deepcopy(@o.state_dict())
@o.add_param_group({'params': [torch.nn.Parameter(torch.ones(1))]}) if not isinstance(@o, torch.optim.LBFGS) else None
LOG.append((@l, @p.detach().clone(), [sorted(k) for k in @s['state'].values()], len(@o.param_groups), @p.grad))
@v = @p.detach() * 2
=> @v T
""",
    """
class @D(torch.utils.data.Dataset):
    def __init__(self, n): self.t = torch.arange(float(n)).reshape(n, 1)
    def __len__(self): return len(self.t)
    def __getitem__(self, k): return {'x': self.t[k], 'k': k, 's': f'row {k}'}
@l = torch.utils.data.DataLoader(@D(5), batch_size=2, drop_last=bool($B), shuffle=True, generator=torch.Generator().manual_seed(3))
@v = $T
for @n, @b in enumerate(@l):
    @v = @v + @b['x'].sum() * (@n + 1)
    BLOCK
    LOG.append((@b['k'].tolist(), @b['s'], @b['x'].shape))
@a, @c = torch.utils.data.random_split(@D(4), [1, 3], generator=torch.Generator().manual_seed(1))
LOG.append((len(@l), @a.indices, len(@c), [len(k) for k in torch.utils.data.TensorDataset(torch.ones(2, 1), torch.ones(2))]))
=> @v T
""",
    """
@s = torch.amp.GradScaler('cpu', init_scale=8.0, growth_interval=1)
@p = torch.nn.Parameter(torch.ones(2))
@o = torch.optim.SGD([@p], lr=0.1)
for @k in (1.0, $F, float('inf')):
    @o.zero_grad(set_to_none=$B)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        @l = (torch.ones(2, 2) @ @p * @k).float().sum()
    @s.scale(@l).backward()
    BLOCK
    @s.unscale_(@o)
    @n = torch.nn.utils.get_total_norm([@p.grad]).isfinite()
    @s.step(@o)
    @s.update()
    LOG.append((@n, @s.get_scale(), @p.detach().clone()))
@v = @p.detach()
=> @v T
""",
]
TENSORS = [
    """
@a = torch.tensor([[3.0, 1.0, 2.0], [1.0, 1.0, 0.0]]) * $F
@m, @k, @s, @t = @a.max(1), @a.kthvalue(2), torch.sort(@a, dim=-1, descending=$B, stable=True), @a.topk(2)
@q, @r = torch.linalg.qr(@a.T @ @a + torch.eye(3))
BLOCK
LOG.append((type(@m).__name__, @m.values.shape, @m[1].shape, @k.n_fields, @s.indices.tolist(), isinstance(@t, tuple), @t == @t))
match @a.min(0):
    case (values, indices): @v = values + indices
@w, *_ = torch.unique(torch.tensor([2, 1, 2]), return_counts=True, return_inverse=True)
@u = torch.aminmax(@a, dim=0)
LOG.append((@w, @u.min, [*map(torch.Tensor.sum, torch.unbind(@a))], (@q @ @r).round(decimals=3), @a.histc(3), torch.var_mean(@a)[1]))
=> @v T
""",
    """
@n = abs(int($I)) % 3 + 1
@l = torch.tensor([@n, 1, 2])
@m = torch.arange(int(@l.max()))[None, :] >= @l[:, None]
@c = torch.full((3, 3), float('-inf')).triu(1)
@a = torch.zeros(3, 3).masked_fill(@m[:1].expand(3, -1)[:, :1], -1.0) + @c
@p = @a.softmax(-1)
@i = torch.nn.utils.rnn.pack_padded_sequence(torch.ones(3, @m.size(1), 2), @l, batch_first=True, enforce_sorted=False)
BLOCK
@o, @b = torch.nn.utils.rnn.pad_packed_sequence(@i, batch_first=True, padding_value=$F)
@v = torch.nn.functional.scaled_dot_product_attention(torch.ones(1, 3, 2), torch.ones(1, 3, 2) * $F, torch.arange(6.0).reshape(1, 3, 2), attn_mask=@c)
LOG.append((@m, @p, @i.batch_sizes, @o.shape, @b, (~@m).sum(1), @m.any(), @m.logical_not().float().argmin(1), @m.int().cumsum(1)))
=> @v T
""",
    """
@i = torch.tensor([0, 2, 0, 1])
@s = torch.arange(4.0) * $F
@a = torch.zeros(3).scatter_add_(0, @i, @s)
@b = torch.zeros(3).index_add_(0, @i, @s, alpha=2)
@c = torch.full((3,), 9.0).scatter_reduce(0, @i, @s, 'amax', include_self=$B)
@d = @s.new_zeros(4).masked_scatter_(@i > 0, torch.tensor([7.0, 8.0]))
@e = torch.nn.functional.embedding_bag(@i, torch.eye(3), torch.tensor([0, 2]), mode='mean')
BLOCK
@f = torch.bucketize(@s, torch.tensor([0.0, 1.0]), right=True)
@g = torch.zeros(2, 3).index_put_((torch.tensor([0, 1, 0]), torch.tensor([1, 1, 1])), torch.ones(3), accumulate=True)
@g[:, 1:] /= 2
@g[1, ...], @g[0, 0] = @g[0].clone(), $F
@g.diagonal().add_(1)
@g[None, :, -1:].sub_(0.5)
LOG.append((@a, @b, @c, @d, @e, @f, @g, torch.repeat_interleave(@s, @i).shape, @s.diff(), @s.roll(1), torch.cartesian_prod(@i[:2], @i[1:3])))
@v = @g.index_copy(1, torch.tensor([2]), torch.ones(2, 1))
=> @v T
""",
    """
def @f(t, out, **k):
    out[1:].mul_(2)
    t.tag = k.get('tag', getattr(t, 'tag', 'none'))
    t.grad_scale = {'k': 1}
    BLOCK
    return out.t() if out.dim() == 2 else out
@a = torch.arange(6.0).reshape(3, 2) + 0
@b = @a[1:, :1]
@v = @f(@b, @a, tag=$S)
@b.tag += '!'
@c = @b.clone()
@d = @a.requires_grad_($B).detach()
@d[0] = $F
@e = torch.nn.Parameter(@d, requires_grad=False)
@e.shared, @e.k = @a, 3
@p = copy.deepcopy(@e)
LOG.append((@b.tag, vars(@b), hasattr(@c, 'tag'), @v._base is @a, @a._version, @b, @e.data_ptr() == @a.data_ptr(), type(@p).__name__, vars(@p).keys(), @e.k))
@v = @v.detach() + @e.sum()
=> @v T
""",
    """
@a = np.arange(6, dtype=np.float32).reshape(2, 3)
@t = torch.from_numpy(@a)
@t[0] = $F
@a[1, ::2] += 1
@b = @t.numpy()[:, ::-1].copy()
@c = torch.as_tensor(@b).mul_(2)
BLOCK
@d = np.asarray(@t) * np.float32(2) + @t.mean().item()
@e = np.add(@t.detach(), 1) if $B else np.einsum('ij,kj->ik', @a, @b)
@s = np.array([t.sum().item() for t in @t])
LOG.append((@b.base is None, @a.tolist(), str(@d.dtype), type(@e).__name__, @s.tolist(), np.percentile(@a, 50), @a[@a > 1].size))
LOG.append((np.pad(@a, 1).shape, np.array_equal(@a, @t)))
@m = np.where(np.isfinite(@a), @a, 0)
@v = torch.tensor(np.stack([@m, @a])) + torch.tensor(@s.max(), dtype=torch.float32)
for @i, (@r, @k) in enumerate(np.ndenumerate(@a[:1])): LOG.append((@r, float(@k)))
=> @v T
""",
    """
@z = torch.complex(torch.arange(4.0), torch.full((4,), $F))
@f = torch.fft.rfft(@z.real * 2)
@w = torch.hann_window(4)
@s = torch.stft(torch.arange(8.0), 4, hop_length=2, window=@w, return_complex=True)
BLOCK
@r = torch.istft(@s, 4, hop_length=2, window=@w, length=8)
@z[1:] *= 1j
@c = torch.view_as_real(@z.conj().resolve_conj())
LOG.append((@f.abs(), @s.shape, @z.is_conj(), @z.conj().is_conj(), @c.shape, @z.real._base is None, torch.is_complex(@f)))
LOG.append(((@z * @z.conj()).real, @z.resolve_conj().imag))
@v = torch.fft.irfft(@f, n=4) + @r[:4].round(decimals=4)
=> @v T
""",
]

SIMPLE = []
COMPOUND = [(1, template(text)) for text in MODELS + TRAINING + TENSORS]

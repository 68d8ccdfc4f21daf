"""What torch lets a program do around its tensors: parametrizations, hooks of whole classes and of loading, state that is kept beside
parameters, operators and functions of the program's own, control flow as operators, functional derivatives, controls of the compiler."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

MODULES = [
    """
class @N(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.full((2,), 0.5))
        self.register_buffer('kept', torch.ones(1))
        self.register_buffer('lost', torch.zeros(1), persistent=False)
        self.extra = $I
        self.register_load_state_dict_post_hook(lambda m, k: LOG.append((sorted(k.missing_keys), k.unexpected_keys)))
        self.register_load_state_dict_pre_hook(lambda m, d, prefix, *rest: d.setdefault(prefix + 'kept', torch.full((1,), 7.0)))
    def get_extra_state(self): return {'extra': self.extra}
    def set_extra_state(self, state): self.extra = state['extra'] + 1
    def _load_from_state_dict(self, state, prefix, *rest):
        LOG.append(prefix)
        super()._load_from_state_dict(state, prefix, *rest)
    def forward(self, v): return v * self.w.sum() + self.kept * self.extra + self.lost
@m = torch.nn.Sequential(@N(), torch.nn.Identity())
@d = {k: copy.copy(v) for k, v in @m.state_dict().items()}
@v = @m($T)
@d.pop('0.kept')
with torch.no_grad(): @m[0].w.mul_(3)
BLOCK
LOG.append(@m.load_state_dict(@d, strict=$B))
@v = @v + @m(@v)
@m[0].lost += 2
del @m[0].kept
@m[0].kept = torch.nn.Parameter(torch.ones(1) * 2)
@v = @v + @m($T)
LOG.append(([k for k, _ in @m.named_parameters()], sorted(@m.state_dict()), @m[0].extra, len([*@m.buffers()])))
=> @v T
""",
    """
class @S(torch.nn.Module):
    def forward(self, w):
        LOG.append('asked')
        return w.triu() + w.triu(1).mT
    def right_inverse(self, w): return w.triu()
@m = torch.nn.Linear(2, 2, bias=False)
with torch.no_grad(): @m.weight.copy_(torch.arange(4.0).view(2, 2))
torch.nn.utils.parametrize.register_parametrization(@m, 'weight', @S())
@v = @m(torch.ones(1, 2) * $F)
with torch.nn.utils.parametrize.cached():
    @v = @v + @m(@v)
    BLOCK
    @v = @v + @m.weight[0]
@m.weight = torch.eye(2)
(@m(@v) * 1).sum().backward()
LOG.append((@m.parametrizations.weight.original.grad, torch.nn.utils.parametrize.is_parametrized(@m), type(@m).__name__, sorted(@m.state_dict())))
torch.nn.utils.parametrize.remove_parametrizations(@m, 'weight', leave_parametrized=$B)
@v = @m(@v).detach()
LOG.append((type(@m).__name__, @m.weight.requires_grad))
=> @v T
""",
    """
@m = torch.nn.Linear(2, 3)
with torch.no_grad():
    for @p in @m.parameters(): @p.copy_(torch.arange(@p.numel()).view_as(@p) / 4)
from torch.nn.utils import prune
prune.custom_from_mask(@m, 'weight', torch.tensor([[1.0, 0], [0, 1], [1, 1]]))
@v = @m(torch.ones(2, 2) * $F)
BLOCK
@v.sum().backward()
LOG.append((@m.weight_orig.grad, sorted(@m.state_dict()), len(@m._forward_pre_hooks), prune.is_pruned(@m)))
prune.remove(@m, 'weight')
@v = @v.detach() + @m(torch.ones(2, 2)).detach()
@f = torch.nn.utils.parameters_to_vector(@m.parameters())
torch.nn.utils.vector_to_parameters(@f * 2, @m.parameters())
LOG.append((torch.nn.utils.clip_grad_norm_([@p], 0.5), torch.nn.utils.clip_grad_value_(@p, 0.1), @p.grad, @m.weight.shape))
=> @v T
""",
    """
@l = []
@h = [
    torch.nn.modules.module.register_module_forward_pre_hook(lambda m, a: @l.append(type(m).__name__)),
    torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: o + $I if type(m) is torch.nn.Identity else None),
]
try:
    @m = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Tanh())
    @t = $T
    @v = @m(@t)
    BLOCK
    @h.pop().remove()
    @v = @v + @m(@t)
finally:
    for @k in @h: @k.remove()
@v = @v * @m(@t)
LOG.append(@l)
=> @v T
""",
    """
@m = torch.nn.Module()
@m.register_module('part', torch.nn.Identity())
@m.register_parameter('w', torch.nn.Parameter(torch.ones(2) * $F))
@m.register_parameter('none', None)
@m.add_module('more', torch.nn.ModuleList([torch.nn.Identity()]))
@m.k = $I
@m.w = torch.nn.Parameter(@m.w.detach() * 2)
try: @m.w = torch.ones(2)
except TypeError as error: LOG.append(str(error)[:20])
BLOCK
@m.w.data = torch.ones(3) * 4
@m.none = torch.nn.Parameter(torch.ones(1))
@v = @m.part($T) * @m.w.sum() + @m.none
@m.part = None
@m.more.append(torch.nn.ReLU())
@m.more.insert(0, torch.nn.Tanh())
@v = @m.more[0](@v)
del @m.w, @m.more[1]
LOG.append(([k for k, _ in @m.named_modules()], [k for k, _ in @m.named_parameters()], hasattr(@m, 'w'), 'part' in @m._modules))
LOG.append((@m.get_submodule('more.0') is @m.more[0], len(@m.more), [k for k, _ in @m.named_children()]))
try: @m.w
except AttributeError as error: LOG.append(str(error)[-12:])
=> @v T
""",
    """
class @B(torch.nn.Module):
    shared = {}
    def __init__(self, k):
        super().__init__()
        self.k, self.cache = k, {}
        object.__setattr__(self, 'owner', [self])
    def __getattr__(self, name):
        if name.startswith('times_'): return lambda v: v * int(name[6:])
        return super().__getattr__(name)
    def __call__(self, *args, **more):
        LOG.append('called')
        return super().__call__(*args, **more)
    def __setattr__(self, name, value):
        if name == 'k': self.shared[name] = value
        super().__setattr__(name, value)
    def extra_repr(self): return f'k={self.k}'
    def forward(self, v, key='a', *, mask=None):
        if key not in self.cache or self.cache[key].shape != v.shape: self.cache[key] = v.detach() * 0 + self.k
        self.k += 1
        BLOCK
        return self.times_3(v) + self.cache[key] if mask is None else v.masked_fill(mask, 0)
@m = @B($I)
@v = @m($T)
@v = @m(@v, 'b') + @m(@v, mask=@v > 1)
@m.forward = lambda v: v - 1
@v = @m(@v)
del @m.forward
@v = @m(v=@v)
LOG.append((sorted(@m.cache), @m.shared, repr(@m), @m.owner[0] is @m, @m.training))
=> @v T
""",
]
TENSORS = [
    """
@a = ($T.detach().clone().float()).requires_grad_()
@l = []
@a.register_hook(lambda g: @l.append(('leaf', g.sum())))
@b = @a * 2
@c = @b.sin()
@b.retain_grad()
@h = @c.register_hook(lambda g: g * $I)
@b.register_hook(lambda g: g + 1)
@k = @c.grad_fn.register_hook(lambda gi, go: @l.append((len(gi), len(go))))
torch.autograd.graph.register_multi_grad_hook((@b, @c), lambda gs: @l.append([g is None for g in gs]))
BLOCK
@c.sum().backward(retain_graph=True)
@h.remove()
@k.remove()
@c.sum().backward()
LOG.append((@l, @b.grad, @b.retains_grad, @c.is_leaf, @a.grad_fn is None, @c.output_nr))
@v = @a.grad
=> @v T
""",
    """
@a = $T.detach().clone().float()
@a.tag = [$I]
@b = @a.view(-1)
@c = @b[1:] if @b.numel() > 1 else @b
@d = @a.detach()
@c.mul_(2)
@d += 1
BLOCK
@a.unsqueeze_(0).squeeze_(0)
@e = torch.empty(0).set_(@b.detach().clone())
@e.resize_(2).fill_(3)
LOG.append((@b._base is @a, @c._base is @a, @d._base is None, @a._version, @d._version, @a.tag, @a.data_ptr() == @d.data_ptr(), @e.shape))
LOG.append((@b.storage_offset(), @c.is_contiguous(), hasattr(@b, 'tag')))
@f, @g = torch.ones(2), torch.zeros(3)
torch.utils.swap_tensors(@f, @g)
@a.data = @a.data * 2
@v = @a * @f.numel() + @g.sum()
=> @v T
""",
    """
class @T(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        LOG.append(func.__name__)
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, @T): out.k = $I
        return out
    def more(self): return self + 1
@a = $T.detach().as_subclass(@T)
@b = torch.add(@a, 1).more()
BLOCK
@c = torch.stack([@b, @a]).sum(0)
with torch._C.DisableTorchFunctionSubclass(): @d = @c * 2
LOG.append((type(@b).__name__, @b.k, type(@c[0]).__name__, type(@d).__name__, isinstance(@b.shape, torch.Size)))
@v = @d.as_subclass(torch.Tensor)
=> @v T
""",
    """
@g = torch.Generator().manual_seed(abs($I))
@a = torch.rand(3, generator=@g)
@s = @g.get_state()
@b = torch.randint(0, 5, (2,), generator=@g)
@g.set_state(@s)
BLOCK
LOG.append((torch.equal(@b, torch.randint(0, 5, (2,), generator=@g)), @g.initial_seed()))
with torch.random.fork_rng():
    torch.manual_seed(3)
    @v = torch.rand(2) + @a.sum()
@r = torch.get_rng_state()
@w = torch.nn.functional.dropout($T.float(), 0.5, training=$B)
torch.set_rng_state(@r)
@u = torch.nn.functional.dropout(@w.detach() * 0 + 1, 0.5) + torch.bernoulli(torch.full((2, 1), 0.5)).sum()
LOG.append(torch.randperm(4).tolist())
=> @v T
=> @u T
""",
    """
@f = lambda p: (p.sin() * p).sum()
@x = torch.tensor([1.0, 2.0]) * $F
@h = torch.func.hessian(@f)(@x)
@o, @j = torch.func.jvp(@f, (@x,), (torch.ones(2),))
@o, @p = torch.func.vjp(@f, @x)
BLOCK
@k = torch.func.jacrev(lambda p, q: p * q, argnums=1)(@x, @x + 1)
@l = torch.func.vmap(torch.func.grad(@f), in_dims=1)(torch.stack([@x, @x * 2], 1))
@m, @a = torch.func.grad_and_value(lambda p: (@f(p), p * 2), has_aux=True)(@x)
LOG.append((@h, @j, @p(torch.ones(())), @k, @l.shape, @a[1]))
@n = torch.nn.Linear(2, 1)
@s = {k: torch.full_like(t, 0.5) for k, t in @n.named_parameters()}
@v = torch.func.functional_call(@n, @s, (@x,)) + torch.func.functional_call(@n, {'bias': torch.zeros(1), 'weight': torch.ones(1, 2)}, @x[None])
@w = torch.func.linearize(@f, @x)[1](torch.ones(2)) if $B else torch.func.jacfwd(@f)(@x)
=> @v T
""",
    """
@v = $T.float() * 1
@c = torch.cond(@v.sum() > #, lambda p: p * 2, lambda p: p - 1, (@v,))
@i, @w = torch._higher_order_ops.while_loop(lambda i, p: i < 3, lambda i, p: (i + 1, p * 2), (torch.tensor(0), @c.detach()))
BLOCK
@s = torch.utils.checkpoint.checkpoint_sequential([torch.nn.Tanh(), torch.nn.ReLU(), torch.nn.Identity()], 2, @v.detach().requires_grad_(), use_reentrant=False)
@k = torch.utils.checkpoint.checkpoint(lambda p, *, q: p.sin() * q, @s, q=2, use_reentrant=False)
@g = torch.autograd.grad(@k.sum(), @s)[0]
LOG.append((@i, @g.shape, torch.where(@v > 0, @v, @g).sum()))
=> @c T
=> @w T
""",
    """
@k = $I
@tracework_capture.assume_constant_result
def @a(): return @k
@tracework_capture.allow_in_graph
def @b(p): return p * 2 + 1
@tracework_capture.disable
def @c(p):
    LOG.append('left alone')
    return p - 1
@torch.compiler.disable(recursive=False)
def @d(p): return @c(p) + 2
@v = @b($T) * @a()
BLOCK
@v = @d(@v) + (0 if torch.compiler.is_compiling() or torch.jit.is_scripting() else 0)
torch.compiler.cudagraph_mark_step_begin()
@e = torch.compiler.disable(lambda p: p * 3)
@v = @e(@v)
LOG.append(@a())
=> @v T
""",
    """
@l = torch.library.Library('made_@l', 'DEF')
@l.define('op(Tensor t, int k) -> Tensor')
@l.impl('op', lambda t, k: t * k, 'CompositeImplicitAutograd')
@v = getattr(torch.ops, 'made_@l').op($T, $I)
BLOCK
@o = torch.library.custom_op('made_@l::plain', lambda t: t.clone() + 1, mutates_args=(), schema='(Tensor t) -> Tensor')
@o.register_fake(lambda t: torch.empty_like(t))
@o.register_autograd(lambda ctx, g: g * 3, setup_context=lambda ctx, inputs, output: None)
@w = @o(@v.float())
@p = torch.ones(2, requires_grad=True)
@o(@p * 2).sum().backward()
LOG.append((@p.grad, @w.requires_grad))
@l._destroy()
=> @w T
""",
    """
@m = torch.jit.script(torch.nn.ReLU())
@v = @m($T)
BLOCK
@g = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Identity()))
@v = @v + @g($T)
LOG.append((len(@g.graph.nodes), type(@m).__name__, [n.op for n in @g.graph.nodes]))
=> @v T
""",
    """
@u = torch.nn.Unflatten(0, (1, -1))
@v = @u($T.flatten())
@v = torch.nn.functional.interpolate(@v[None].float(), scale_factor=2) if @v.numel() else @v
BLOCK
@t = torch.nested.as_nested_tensor([torch.ones(2), torch.ones(3)]).to_padded_tensor(0.0)
@s = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.tensor([1.0, 2]), (3,)).to_dense()
@p = torch.nn.utils.rnn.pad_sequence([torch.ones(2), torch.ones(3) * $F], batch_first=True)
@q = torch.nn.utils.rnn.pack_padded_sequence(@p[..., None], torch.tensor([2, 3]), batch_first=True, enforce_sorted=False)
@r, @k = torch.nn.utils.rnn.pad_packed_sequence(@q, batch_first=True)
LOG.append((@t, @s, @k, @r.shape, torch.block_diag(@p, @p).shape, torch.cartesian_prod(@k, @k).shape, torch.unravel_index(torch.tensor(5), (2, 3))))
=> @v T
""",
]

SIMPLE = []
COMPOUND = [(1, template(text)) for text in MODULES + TENSORS]

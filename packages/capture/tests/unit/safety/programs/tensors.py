"""Tensors that share memory, are changed in place, leave and enter gradient modes; modules and their buffers."""

from __future__ import annotations

from .writer import template

__all__ = ["COMPOUND", "SIMPLE"]

TEMPLATES = [
    """
@a = $T.clone()
@b = @a[1:]
@b.mul_($F)
@a[0] = #
LOG.append((@b, @b.data_ptr() == @a.data_ptr(), @b._base is @a))
=> @a T
=> @b T
""",
    """
@a = $T.clone()
@b, @c = @a.view(-1), @a.t()
@b[#:] += 1
@c.zero_()
@b.add_($F)
=> @a T
=> @c T
""",
    """
@a = x * 1
@r = @a
@a += y
@a = @a * 2
@a -= @r
LOG.append(@r is @a)
=> @a T
=> @r T
""",
    """
@d = x.detach()
@d.add_($F)
@v = (x * @d).sum()
LOG.append((@d.requires_grad, @v.requires_grad, @d.grad_fn is None))
=> @v T
=> @d T
""",
    """
with torch.no_grad():
    @d = $T * 2
    x.mul_(#)
    BLOCK
@v = @d * y
LOG.append((@d.requires_grad, @v.requires_grad))
=> @v T
""",
    """
@p = $T.detach().clone().requires_grad_()
@l = (@p * $T).sum()
@l.backward()
LOG.append(@p.grad)
@v = @p.grad * 2
=> @v T
""",
    """
@p = $T.detach().clone().requires_grad_()
@g, = torch.autograd.grad((@p * @p).sum(), [@p])
=> @g T
""",
    """
@c = [$T.clone() for _ in range(2)]
for @t in @c:
    @t.add_(#)
    @t[..., 0] = $F
@v = torch.stack(@c).sum(0)
=> @v T
""",
    """
@a = $T.clone()
@a[@a > #] = $F
@a[..., -1:] *= 2
@a[[0]] = @a[[0]] + 1
@a.index_fill_(0, torch.tensor([0]), $F)
=> @a T
""",
    """
@a, @b = $T.clone(), $T
@a.copy_(@b)
@a.unsqueeze_(0).squeeze_(0)
@a.t_()
LOG.append((@a.stride(), @a.is_contiguous()))
=> @a T
""",
    """
@o = torch.empty(0)
torch.mul($T, $F, out=@o)
LOG.append(@o.shape)
=> @o T
""",
    """
@m = Net()
@m.gain = $I
@m.register_buffer('more', $T.detach())
@v = @m($T) + @m.seen
LOG.append(sorted(@m.state_dict()))
@m.eval()
@v = @m(@v, again=#)
=> @v T
""",
    """
@h = net.inner[0].register_forward_hook(lambda m, i, o: o * 2)
try:
    @v = net($T)
finally:
    @h.remove()
=> @v T
""",
    """
net.scale.grad = None
(net($T).sum() * net.scale).backward()
with torch.no_grad():
    net.scale -= 0.1 * net.scale.grad
LOG.append(net.scale.grad.clone())
""",
    """
@a = $T.to(torch.int64)
@b = @a // # + @a % 3
@v = (@b ^ @a).float() + (@a >> 1)
@v = @v + (@b != @a)
=> @v T
""",
    """
@a, @b = $T.unbind(0)[:2]
@v = torch.where(@a > @b, @a, @b).sum()
if @v > #:
    @v = @v / 2
=> @v T
""",
    """
@a = $T.clone()
@i = @a.expand(2, *@a.shape)
@a.add_(1)
@v = @i.sum(0) - @a
=> @v T
""",
    """
@n, @k = $T.shape[0], $T.numel()
@v = torch.zeros(@n, @k % 3 + 1)
for @i in range(@n):
    @v[@i] = @i * @k
if @n > 2 and @k % 2 == 0:
    @v = @v[:@n // 2].reshape(-1)
=> @v T
""",
    """
x.zz = $T
@v = x.zz + getattr(y, 'zz', #)
LOG.append(hasattr(x, 'zz'))
=> @v T
""",
    """
@a = $T
@b = @a.data
@b.mul_(2)
@a.data = @b + 1
LOG.append((@a.shape, @b.requires_grad))
=> @a T
""",
]

SIMPLE = []
COMPOUND = [(1, template(text)) for text in TEMPLATES]

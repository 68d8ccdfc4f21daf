"""Fakes against eager: sizes, strides, dtype, aliasing and versions of every result, for a table of calls."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from tracework_primops import DataDependentError, FakeMode, FakeTensor, MixedTensorError, SymbolTable

aten = torch.ops.aten


def tensor(*sizes, dtype=torch.float32):
    return lambda: torch.randn(*sizes, dtype=dtype)


A, B, T3, IM = tensor(4, 6), (lambda: torch.randn(6, 4).t()), tensor(2, 4, 6), tensor(2, 4, 8, 8)
LAST = lambda: torch.randn(2, 4, 8, 8).to(memory_format=torch.channels_last)
INT = lambda: torch.randint(0, 4, (3, 2))
LABELS = lambda: torch.randint(0, 4, (5,))
ROWS = lambda: torch.tensor([0, 2])
HEADS = tensor(2, 3, 5, 8)


def bags(kernel, *, dtype=torch.float32, mode=0, weights=None, last=False, padding=-1, transposed=False):
    """Sums of rows, whose further results differ with what the CPU's kernel can do at once."""
    offsets = [0, 3, 5] if last else [0, 3]
    rows = (lambda: torch.randn(5, 10, dtype=dtype).t()) if transposed else tensor(10, 5, dtype=dtype)

    def call(rows, indices, offsets, *weights):
        return kernel(rows, indices, offsets, False, mode, False, weights[0] if weights else None, last, padding)

    given = [] if weights is None else [lambda: torch.randn(10, dtype=dtype)[::weights][:5]]
    return (call, rows, lambda: torch.randint(0, 10, (5,)), lambda: torch.tensor(offsets), *given)


BAGS = {
    "sum": {},
    "sum_half": {"dtype": torch.bfloat16, "weights": 1},
    "sum_double": {"dtype": torch.float64},
    "sum_padded": {"padding": 2},
    "sum_last": {"last": True},
    "sum_transposed": {"transposed": True},
    "sum_weighted_apart": {"weights": 2},
    "mean": {"mode": 1, "last": True},
    "max": {"mode": 2, "last": True},
}

CALLS = {
    "add": (torch.add, A, A),
    "add_transposed": (torch.add, A, B),
    "add_both_transposed": (torch.add, B, B),
    "add_broadcast": (torch.add, T3, tensor(6)),
    "add_int_float": (lambda x: x + 1.5, INT),
    "mul_zero_dim": (torch.mul, A, lambda: torch.tensor(2.0, dtype=torch.float64)),
    "half_float": (torch.add, tensor(4, 6, dtype=torch.float16), A),
    "last_channels": (torch.mul, LAST, LAST),
    "last_channels_bias": (torch.add, LAST, tensor(1, 4, 1, 1)),
    "compare": (torch.gt, A, B),
    "div_int": (torch.div, INT, INT),
    "floor_div": (lambda x: x // 2, INT),
    "pow": (lambda x: x**2, A),
    "rsub": (lambda x: 1 - x, B),
    "where": (lambda c, a: torch.where(c > 0, a, 0.0), A, B),
    "masked_fill": (lambda a: a.masked_fill(a > 0, -1.0), B),
    "clamp": (lambda a: a.clamp(0, 1), A),
    "gelu": (F.gelu, T3),
    "silu": (lambda x: F.silu(x.transpose(0, 1)), T3),
    "relu_sliced": (lambda x: F.relu(x[:, ::2]), A),
    "dropout": (lambda x: aten.native_dropout(x, 0.5, True), A),
    "view": (lambda x: x.view(3, 8), A),
    "view_split": (lambda x: x.transpose(0, 1).view(4, 1, 2, 3, 2), T3),
    "reshape_copy": (lambda x: x.reshape(-1), B),
    "flatten": (lambda x: x.flatten(1), IM),
    "permute": (lambda x: x.permute(2, 0, 1), T3),
    "expand": (lambda x: x[None].expand(3, -1, -1), A),
    "expand_one": (lambda x: x.expand(4, 6), tensor(4, 1)),
    "expand_new_ones": (lambda x: aten.expand(x, [1, 1, 4, 6]), A),
    "slice": (lambda x: x[1:3, ::2], A),
    "select": (lambda x: x[..., -1], T3),
    "none_index": (lambda x: x[:, None, 2:], A),
    "squeeze": (lambda x: x.squeeze(), tensor(1, 4, 1)),
    "squeeze_dim": (lambda x: x.squeeze(0), tensor(1, 4, 1)),
    "split": (lambda x: x.split(2, 1), A),
    "chunk_uneven": (lambda x: x.chunk(3, 0), A),
    "unbind": (lambda x: x.unbind(0), A),
    "diagonal": (lambda x: x.diagonal(1, 0, 1), A),
    "unfold": (lambda x: x.unfold(1, 3, 2), A),
    "as_strided": (lambda x: x.as_strided((2, 2), (1, 3), 1), A),
    "sum": (torch.sum, INT),
    "sum_dim": (lambda x: x.sum((0, 2), keepdim=True), T3),
    "mean": (lambda x: x.mean(-1), B),
    "max_dim": (lambda x: x.max(1), A),
    "argmax": (lambda x: x.argmax(-1), A),
    "any": (lambda x: (x > 0).any(1), A),
    "var_mean": (lambda x: torch.var_mean(x, (1,), keepdim=True), A),
    "norm": (lambda x: x.norm(dim=1), A),
    "softmax": (lambda x: x.softmax(-1), T3),
    "softmax_transposed": (lambda x: x.transpose(1, 2).softmax(-1), T3),
    "softmax_float": (lambda x: x.softmax(-1, dtype=torch.float32), tensor(4, 6, dtype=torch.bfloat16)),
    "log_softmax": (lambda x: x.log_softmax(0), A),
    "layer_norm": (lambda x: F.layer_norm(x, (6,)), T3),
    "layer_norm_transposed": (lambda x: F.layer_norm(x.transpose(0, 1), (6,)), T3),
    "layer_norm_permuted": (lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (4,)), IM),
    "batch_norm_train": (lambda x: aten.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5), IM),
    "batch_norm_eval": (lambda x, m: F.batch_norm(x, m, m.abs()), LAST, lambda: torch.rand(4)),
    "group_norm": (lambda x: F.group_norm(x, 2), IM),
    "mm": (torch.mm, A, tensor(6, 5)),
    "matmul4": (torch.matmul, HEADS, tensor(2, 3, 8, 5)),
    "linear": (F.linear, T3, tensor(5, 6), tensor(5)),
    "baddbmm": (torch.baddbmm, T3, tensor(2, 4, 3), tensor(2, 3, 6)),
    "sdpa": (F.scaled_dot_product_attention, HEADS, HEADS, HEADS),
    "sdpa_mask": (lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m > 0), HEADS, tensor(5, 5)),
    "sdpa_transposed": (lambda q: F.scaled_dot_product_attention(*(q.transpose(1, 2),) * 3), HEADS),
    "conv": (lambda x, w: F.conv2d(x, w, padding=1, stride=2), IM, tensor(6, 4, 3, 3)),
    "conv_last": (lambda x, w: F.conv2d(x, w), LAST, tensor(6, 4, 3, 3)),
    "conv_depthwise": (lambda x, w: F.conv2d(x, w, groups=4), IM, tensor(4, 1, 3, 3)),
    "conv1d": (lambda x, w: F.conv1d(x, w), T3, tensor(3, 4, 3)),
    "conv_transposed": (lambda x, w: F.conv_transpose2d(x, w, stride=2), IM, tensor(4, 3, 2, 2)),
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), IM),
    "max_pool_last": (lambda x: F.max_pool2d(x, 2), LAST),
    "max_pool_ceil": (lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), IM),
    "avg_pool": (lambda x: F.avg_pool2d(x, 2), IM),
    "adaptive_pool": (lambda x: F.adaptive_avg_pool2d(x, 1), IM),
    "adaptive_pool3": (lambda x: F.adaptive_avg_pool2d(x, 3), LAST),
    "upsample": (lambda x: F.interpolate(x, scale_factor=2), IM),
    "upsample_bilinear": (lambda x: F.interpolate(x, size=(5, 5), mode="bilinear"), LAST),
    "embedding": (F.embedding, INT, A),
    "cat": (lambda a, b: torch.cat([a, b], 1), A, B),
    "cat_last": (lambda a: torch.cat([a, a], 1), LAST),
    "cat_types": (lambda a: torch.cat([a, a.double()]), A),
    "stack": (lambda a, b: torch.stack([a, b], 1), A, B),
    "gather": (lambda x: x.gather(1, torch.zeros_like(x, dtype=torch.int64)), A),
    "index_select": (lambda x, i: x.index_select(1, i), A, LABELS),
    "index": (lambda x, i: x[i], A, ROWS),
    "index_middle": (lambda x, i: x[:, i], T3, INT),
    "index_transposed": (lambda x, i: x[:, i], B, INT),
    "index_two": (lambda x, i: x[i[None] - 2, :, i[:, None]], T3, ROWS),
    "index_put": (lambda x, i: x.index_put((i,), torch.zeros(())), A, ROWS),
    "scatter": (lambda x: x.scatter(1, torch.zeros_like(x, dtype=torch.int64), 1.0), A),
    "cross_entropy": (F.cross_entropy, tensor(5, 4), LABELS),
    "mse": (F.mse_loss, A, B),
    "tril": (torch.tril, B),
    "cumsum": (lambda x: x.cumsum(1), INT),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 1)), IM),
    "roll": (lambda x: x.roll(1, 0), B),
    "repeat": (lambda x: x.repeat(2, 1, 1), A),
    "flip": (lambda x: x.flip(0), B),
    "to": (lambda x: x.to(torch.float64), B),
    "contiguous": (lambda x: x.contiguous(), B),
    "contiguous_last": (lambda x: x.contiguous(memory_format=torch.channels_last), IM),
    "clone_gaps": (lambda x: x[:, ::2].clone(), A),
    "zeros_like": (torch.zeros_like, B),
    "new_zeros": (lambda x: x.new_zeros(3, 2), INT),
    "topk": (lambda x: x.topk(2), A),
    "sort": (lambda x: x.sort(0), A),
    "einsum": (lambda x: torch.einsum("bij,bkj->bik", x, x), T3),
    "rms_norm": (lambda x: F.rms_norm(x, (6,)), T3),
    "addcmul": (lambda x, y: torch.addcmul(x, y, y), A, B),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.5), A, A),
    "one_hot": (lambda x: F.one_hot(x, 4), LABELS),
    "multilabel_margin_loss of a vector": (
        lambda x, y: F.multilabel_margin_loss(x.sum(1), y, reduction="none"),
        A,
        lambda: torch.tensor([0, 2, -1, 1]),
    ),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), IM),
    "mul_": (lambda x: x.mul_(2), A),
    "add_broadcast_": (lambda x, y: x.add_(y), A, tensor(6)),
    "copy_": (lambda x, y: x.copy_(y), A, B),
    "view_mul_": (lambda x: (x.t()[1:].mul_(3), x)[1], A),
    "out": (lambda x, y: torch.add(x, x, out=y), A, A),
    "views_in_place": (lambda x: x.mul(2).unsqueeze_(0).transpose_(1, 2).add_(1), A),
    "squeeze_dim_": (lambda x: (x + 1).squeeze_(0), tensor(1, 4)),
    "expand_number": (lambda x: x.expand(1, 1), tensor(())),
    "quantile": (lambda x: x.quantile(0.3, 1), A),
    "setitem": (lambda x: (x.__setitem__((slice(None), 0), 1.0), x)[1], A),
    **{f"bags_{name}": bags(aten._embedding_bag, **options) for name, options in BAGS.items()},
    **{f"bags_forward_{name}": bags(aten._embedding_bag_forward_only, **options) for name, options in BAGS.items()},
    "multi_margin_vector": (lambda x: F.multi_margin_loss(x, torch.tensor([2]), reduction="none"), tensor(5)),
    "multi_margin_number": (lambda x: F.multi_margin_loss(x, torch.tensor(2), reduction="none"), tensor(5)),
}


def describe(t):
    return tuple(t.shape), t.stride(), t.dtype, t.storage_offset(), t.device


@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_eager(name):
    fn, *makers = CALLS[name]
    torch.manual_seed(0)
    real, mode = [m() for m in makers], FakeMode()
    fakes = [mode.from_real(t) for t in real]
    versions = [t._version for t in real]
    with mode:
        results = tree_flatten(fn(*fakes))[0]
    expected = tree_flatten(fn(*real))[0]
    assert [f.storage.version > 0 for f in fakes] == [t._version > v for t, v in zip(real, versions)]
    assert len(results) == len(expected)
    for fake, true in zip(results, expected):
        assert isinstance(fake, FakeTensor)
        assert describe(fake) == describe(true)
        spec = fake.spec
        assert (spec.sizes, spec.strides, spec.dtype, spec.offset, spec.device) == describe(true)
        for f, r in zip(fakes, real):
            assert (f.storage is fake.storage) == (r.untyped_storage()._cdata == true.untyped_storage()._cdata)


WITHOUT = ("out", "batch_norm_eval", "mul_", "add_broadcast_", "copy_", "view_mul_", "setitem")
BACKWARD = [n for n in CALLS if n not in WITHOUT and not n.startswith("bags_forward")]


@pytest.mark.parametrize("name", BACKWARD)
def test_gradients_have_eagers_layout(name):
    fn, *makers = CALLS[name]
    torch.manual_seed(0)
    real = [m() for m in makers]
    if not any(t.is_floating_point() for t in real):
        pytest.skip("nothing to differentiate")
    real = [t.requires_grad_() if t.is_floating_point() else t for t in real]
    mode = FakeMode()
    fakes = [mode.from_real(t) for t in real]
    for inputs, context in ((fakes, mode), (real, torch.enable_grad())):
        with context:
            out = [t for t in tree_flatten(fn(*inputs))[0] if t.requires_grad]
            if out:
                torch.autograd.backward([t.sum() for t in out])
    for fake, true in zip(fakes, real):
        assert (fake.grad is None) == (true.grad is None)
        if true.grad is not None:
            assert describe(fake.grad) == describe(true.grad)


def test_symbolic_batch_gives_the_same_sizes_without_conditions_on_it():
    table = SymbolTable()
    mode = FakeMode(table)
    batch = table.new(5, "x.size(0)")
    x = torch.randn(5, 4, 6, requires_grad=True)
    w = torch.randn(8, 6, requires_grad=True)

    def program(x, w):
        y = F.linear(x, w)
        y = F.gelu(y).view(x.size(0), 4, 2, 4).transpose(1, 2)
        y = F.scaled_dot_product_attention(y, y, y, is_causal=True)
        y = y.transpose(1, 2).reshape(x.size(0), -1)
        return F.layer_norm(y, (32,)).softmax(-1), y.mean(0), torch.cat([y, y[1:]])

    symbolic = mode.from_real(x, (batch, 4, 6))
    with mode:  # torch before 2.13 reads sizes of products as numbers but in the mode
        fakes = program(symbolic, mode.from_real(w))
    for fake, real in zip(fakes, program(x, w)):
        assert tuple(table.hint(s) for s in fake.spec.sizes) == tuple(real.shape)
        assert tuple(table.hint(s) for s in fake.spec.strides) == real.stride()
    assert fakes[0].spec.sizes[0] is batch
    sum(f.sum() for f in fakes).backward()
    assert symbolic.grad.spec.sizes == (batch, 4, 6)
    assert table.conditions == []


def test_backward_through_in_place_on_a_view():
    mode = FakeMode()
    seen = []
    mode.recorder = lambda func, args, kwargs, out: seen.append(func)
    fake = mode.from_real(torch.randn(4, 6, requires_grad=True))
    y = fake * 2
    y[1:].mul_(3)
    y.sum().backward()
    assert describe(fake.grad) == ((4, 6), (6, 1), torch.float32, 0, torch.device("cpu"))
    assert aten.mul_.Tensor in seen and aten.sum.default in seen


def test_parameters_views_and_results_keep_identity():
    mode = FakeMode()
    p = torch.nn.Parameter(torch.randn(4, 4))
    v = p.detach()[1:]
    assert mode.from_real(p).is_parameter and mode.from_real(p) is mode.from_real(p)
    assert mode.from_real(v).storage is mode.from_real(p).storage
    result = p * 2
    assert not mode.from_real(result).is_leaf


def test_errors_name_the_op():
    mode = FakeMode()
    x = mode.from_real(torch.randn(3))
    with pytest.raises(DataDependentError, match="_local_scalar_dense"):
        x.sum().item()
    with pytest.raises(MixedTensorError, match="aten.add.Tensor"):
        x + torch.randn(3)
    with pytest.raises(DataDependentError, match="nonzero"):
        x.nonzero()
    assert (x + torch.tensor(2.0)).spec.sizes == (3,)


def test_factories_under_the_mode():
    mode = FakeMode()
    with mode:
        made = [torch.zeros(3), torch.arange(5), torch.tensor([1, 2]), torch.rand(2, 2), torch.full((2,), 1), torch.tensor(3)]
    assert all(isinstance(t, FakeTensor) for t in made)
    assert made[-1].constant == 3 and made[-1].item() == 3
    assert not isinstance(torch.zeros(3), FakeTensor)


class OfOneDnn(TorchDispatchMode):
    """Compares the results of oneDNN's recurrent layers and their gradients with what fakes say."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if "mkldnn_rnn_layer" in func.name():
            self.names.add(func.name())
            mode = FakeMode()
            fakes = func(*(mode.from_real(a) if isinstance(a, torch.Tensor) else a for a in args))
            for fake, real in zip(fakes, out, strict=True):
                if real.dtype is not torch.uint8:  # a workspace, of as many bytes as it likes
                    assert (fake.spec.dtype, fake.spec.sizes, fake.spec.strides) == (real.dtype, real.shape, real.stride())
        return out


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="eager has no bfloat16 LSTM on this processor")
@pytest.mark.parametrize("bias", [True, False])
def test_onednns_layers_and_their_gradients(bias):
    layer = torch.nn.LSTM(4, 6, bidirectional=True, bias=bias)
    with OfOneDnn() as seen, torch.autocast("cpu", dtype=torch.bfloat16):
        layer(torch.randn(5, 3, 4, requires_grad=True))[0].float().sum().backward()
    assert seen.names == {"aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward"}

"""The contracts of `options={"numerics": ...}`: bits equal to eager's where the word promises them, near elsewhere."""

import pytest
import torch
import tracework
from torch.nn import functional as F

WORDS = ("default", "strict_pointwise", "strict_reduction", "strict")
BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}
MASK = torch.ones(24, 24, dtype=torch.bool).triu(1)


class Block(torch.nn.Module):
    """A transformer block; its attention is written out or the library's."""

    def __init__(self, written_out):
        super().__init__()
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(64), torch.nn.LayerNorm(64)])
        self.qkv, self.out = torch.nn.Linear(64, 192), torch.nn.Linear(64, 64)
        self.up, self.down = torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)
        self.written_out = written_out

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, 4, 16).transpose(1, 2) for y in self.qkv(self.norms[0](x)).chunk(3, -1))
        if self.written_out:
            y = (q @ k.transpose(-1, -2) / 4).masked_fill(MASK, float("-inf")).softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, 64))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


def chain(a, b, c):
    return ((a * b + c) * a - b / c).relu() * 0.1 + a, a * b + c, a - b * c


def residuals(a, b, c):
    x = a
    for other in (b, c, a, b, c):
        x = x + other * 0.3
    return x


def functions(a, b, c):
    return torch.sigmoid(a) + torch.exp(b.clamp(-3, 3)) * torch.sqrt(c.abs()), torch.rsqrt(a.abs() + 1), a.pow(2) + b.pow(3)


def alphas(a, b, c):
    return torch.add(a, b, alpha=0.3), torch.addcmul(a, b, c), torch.lerp(a, b, 0.3), 1.7 - a, a + 1.7, a / 1.7


def zeros(a, b, c):
    return 1 / a.to(torch.int32).float().clamp(0, 1), torch.copysign(b, a.to(torch.int32).float())


POINTWISE = {
    "chain": chain,
    "residuals": residuals,
    "functions": functions,
    "alphas": alphas,
    "gelu": lambda a, b, c: (F.gelu(a), F.gelu(b, approximate="tanh")),
    "gated": lambda a, b, c: F.silu(a) * b,
    "one element": lambda a, b, c: a * torch.tensor(0.1, dtype=torch.float64),
}
REDUCTIONS = {
    "sums": lambda a, b, c: (a.sum(), a.sum(0), b.mean(1), c.float().sum(-1), a[:, :4].prod(-1)),
    "softmax": lambda a, b, c: (a.softmax(-1), b.log_softmax(0)),
    "variance": lambda a, b, c: (a.var(-1), b.std(), c.norm()),
    "layer norm": lambda a, b, c: F.layer_norm(a, (200,)),
    "loss": lambda a, b, c: (F.mse_loss(a, b), F.cross_entropy(a, torch.arange(33))),
    "products": lambda a, b, c: (a @ b.T, a.cumsum(0)),
    "meetings": lambda a, b, c: torch.zeros(5, 200, dtype=a.dtype).index_add(0, torch.arange(33) % 5, a),
}
BOTH = {
    "norm of sum": lambda a, b, c: F.layer_norm(a + b * c, (200,)) * 0.3,
    "softmax of products": lambda a, b, c: (a * b / 3).softmax(-1) * c,
}


def operands(dtype):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(33, 200, generator=generator) * 3).to(dtype) for _ in range(3)]


def as_tuple(x):
    return x if isinstance(x, tuple) else (x,)


def assert_same_bits(actual, expected):
    for a, e in zip(as_tuple(actual), as_tuple(expected), strict=True):
        assert a.dtype == e.dtype and a.shape == e.shape
        kind = BITS[e.element_size()]
        assert torch.equal(a.contiguous().view(kind), e.contiguous().view(kind)), (a - e).abs().max()


def assert_near(actual, expected):
    """To 16 roundings of the largest element: nothing here has intermediate values that are larger, or more steps than that.

    A sum has more steps; its float32 roundings are small against those of its half result, and cancel out in float32.
    """
    for a, e in zip(as_tuple(actual), as_tuple(expected), strict=True):
        assert a.dtype == e.dtype and a.shape == e.shape
        assert (a - e).abs().max() <= 16 * torch.finfo(e.dtype).eps * e.abs().max()


def check(program, word, promised, *inputs):
    expected = program(*inputs)
    actual = tracework.compile(program, options={"numerics": word}, fullgraph=True)(*inputs)
    if promised:
        assert_same_bits(actual, expected)
    else:
        assert_near(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("name", [*POINTWISE, *REDUCTIONS, *BOTH])
def test_programs(name, word, dtype):
    promised = {"strict"} | ({"strict_pointwise"} if name in POINTWISE else {"strict_reduction"} if name in REDUCTIONS else set())
    check({**POINTWISE, **REDUCTIONS, **BOTH}[name], word, word in promised, *operands(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("written_out", [True, False])
def test_block_and_its_gradients(written_out, word, dtype):
    torch.manual_seed(0)
    block = Block(written_out).to(dtype)
    x = torch.randn(2, 24, 64).to(dtype)

    def run(f):
        leaf = x.clone().requires_grad_()
        y = f(leaf)
        return (y.detach(), *torch.autograd.grad(y.float().square().mean(), [leaf, *block.parameters()]))

    expected = run(block)
    actual = run(tracework.compile(block, options={"numerics": word}, fullgraph=True))
    if word == "strict":
        assert_same_bits(actual, expected)
    else:
        assert_near(actual, expected)


def complex_operations(a, b):
    where = torch.where(a.take(torch.arange(37)).abs() > 0.9, b * b.square(), a.reciprocal() / b)
    return (where + a**2 - b**3) * a.tanh() * b.sigmoid() + torch.sgn(a) * 2.5 + b * (1 + 2j)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_operations_and_their_gradients_under_strict(dtype):
    torch.manual_seed(0)
    a, b = (torch.randn(11, 37, dtype=dtype) for _ in range(2))

    def run(f):
        leaves = [a.clone().requires_grad_(), b.clone().requires_grad_()]
        result = f(*leaves)
        return result, *torch.autograd.grad(result, leaves, a * b)

    for mine, theirs in zip(run(tracework.compile(complex_operations, options={"numerics": "strict"})), run(complex_operations)):
        assert torch.equal(mine, theirs)


SIGNS_OF_ZERO = {
    "clamp": lambda x: x.clamp(0.0, 6.0),
    "clamp below 0": lambda x: x.clamp(max=0.0),
    "clamp above -0": lambda x: x.clamp(min=-0.0),
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, 0.0, 1.0),
    "fmax": lambda x: torch.fmax(x, torch.zeros_like(x)),
    "fmin": lambda x: torch.fmin(torch.zeros_like(x), x),
    "to int32 and back": lambda x: (x * 0.3).int().float(),
    "to int64 and back": lambda x: (x * 0.3).long().double(),
    "to int8 and back": lambda x: (x * 0.3).to(torch.int8).float(),
    "sum of one": lambda x: x.reshape(-1, 1).sum(1),
    "mean of one": lambda x: x.reshape(-1, 1).mean(1),
}


def test_signs_of_zero_without_a_word():
    x = torch.tensor([-0.0, 0.0, -1.0, 1.0, 0.5, -0.4, float("nan"), 2.5]).repeat(5)[:37]

    def program(x):
        return tuple(f(x) for f in SIGNS_OF_ZERO.values())

    for name, a, e in zip(SIGNS_OF_ZERO, tracework.compile(program, fullgraph=True)(x), program(x), strict=True):
        zero = e == 0
        assert torch.equal(a.signbit()[zero], e.signbit()[zero]), name
        torch.testing.assert_close(a, e, equal_nan=True)


WRITTEN_ROUNDINGS = {
    "an overflow": lambda x: ((x * 60000).half().isinf(), (x * 60000).half().float()),
    "what is lost": lambda x: ((x * 1.0009765).half().float() - x, (x * 1.0009765).bfloat16().double() - x),
    "of integers": lambda x: ((x * 2049).long().half().float(), (x * 257).int().bfloat16().long()),
    "of doubles": lambda x: ((x.double() * 1.0000000001).float().double() - x.double(), (x.double() + 1e-9).half() == x.half()),
    "between half types": lambda x: ((x.half() + 0).bfloat16().float() - x, x.bfloat16().half().float() - x),
    "a comparison": lambda x: ((x + 1e-4).half() == x.half(), (x * 2049).half().floor()),
    "stored, too": lambda x: (lambda h: (h, h.float() - x, h.float().sum(0)))((x * 1.0009765).half()),
    "read again in a row": lambda x: (lambda h: (h, h.float() - h.float().amax(-1, keepdim=True)))((x * 1.0009765).half()),
    "written": lambda x: (lambda y: (y.copy_((x * 1.0009765).half()), y - x))(torch.empty_like(x)),
}


@pytest.mark.parametrize("name", WRITTEN_ROUNDINGS)
def test_roundings_that_the_program_writes_down_are_kept_without_a_word(name):
    x = torch.tensor([1.0, 1.5, 2.0, 0.1]).repeat(8, 9) + torch.arange(36) / 16
    check(WRITTEN_ROUNDINGS[name], "default", True, x)


def overlaps(boxes, others):
    wide = (torch.min(boxes[:, None, 2:], others[:, 2:]) - torch.max(boxes[:, None, :2], others[:, :2])).clamp(min=0)
    areas, more = ((b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]) for b in (boxes, others))
    common = wide.prod(-1)
    return common / (areas[:, None] + more - common)


EQUAL_IN_EAGER = {
    "boxes": overlaps,
    "best boxes": lambda b, o: (lambda m: (m == m.amax(0), m.argmax(1)))(overlaps(b, o)),
    "determinant of equal columns": lambda b, o: b[:, 0] * b[:, 1] - b[:, 1] * b[:, 0],
    "sides swapped": lambda b, o: (b[:, 0] * b[:, 1] + b[:, 2] * b[:, 3]) == (b[:, 2] * b[:, 3] + b[:, 0] * b[:, 1]),
    "a polynomial": lambda b, o: ((b * 1.1 + 2) * b + 3) * b + 4,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", EQUAL_IN_EAGER)
def test_products_are_rounded_before_they_are_added_without_a_word(name, dtype):
    corners = torch.cartesian_prod(torch.arange(3), torch.arange(2)).to(dtype) + 0.5
    sides = torch.tensor([[0.5**0.5, 2**0.5], [1, 1], [2**1.5, 2**0.5], [2, 2]], dtype=dtype)
    boxes = torch.cat([corners[:, None] - sides / 2, corners[:, None] + sides / 2], -1).flatten(0, 1)
    check(EQUAL_IN_EAGER[name], "default", True, boxes, torch.tensor([[0, 0, 2, 2], [1, 1, 3, 2.5]], dtype=dtype))


def test_constant_masks_of_attention():
    q, k, v = torch.randn(3, 2, 4, 24, 16).unbind()
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=~MASK), "strict", True, q, k, v)


@pytest.mark.parametrize("word", ["strict_pointwise", "strict"])
def test_signs_of_zero(word):
    check(zeros, word, True, *operands(torch.float32))


def test_an_unknown_word_is_refused():
    with pytest.raises(tracework.errors.InvalidArgument, match="strict_pointwise, strict_reduction, strict, not 'exact'"):
        tracework.compile(chain, options={"numerics": "exact"})

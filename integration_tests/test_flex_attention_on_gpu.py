"""flex_attention on a GPU: captured parameters with gradients, eager's layouts, and no scores in memory."""

import math

import pytest
import torch
import tracework
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 4, 200, 333, 64
FAR = 400
# sizes of parameters; score function of (score, b, h, i, j, *parameters)
TRAINED = {
    "slopes": ([(HEADS,)], lambda s, b, h, i, j, x: s + x[h] * (j - i) / 64),
    "temperature": ([()], lambda s, b, h, i, j, x: s * x),
    "near distances": ([(HEADS, 65)], lambda s, b, h, i, j, x: s + x[h, (i - j).clamp(-32, 32) + 32]),
    "distances": ([(2 * FAR,)], lambda s, b, h, i, j, x: s * x[i - j + FAR]),
    "queries and keys": ([(HEADS, QUERIES), (BATCH, KEYS)], lambda s, b, h, i, j, x, y: torch.tanh(s * x[h, i]) + y[b, j]),
}
DTYPES = {torch.bfloat16: 2e-2, torch.float32: 2e-5}


def causal(b, h, i, j):
    return i + KEYS - QUERIES >= j


def operands(dtype=torch.float32, groups=1):
    sizes = [(BATCH, h, n, WIDTH) for h, n in ((HEADS, QUERIES), (HEADS // groups, KEYS), (HEADS // groups, KEYS))]
    return [torch.randn(s, device="cuda", dtype=dtype, requires_grad=True) for s in sizes]


def in_float64(function, q, k, v, *parameters):
    """All scores written out."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
    index = [torch.arange(n, device="cuda").view([-1 if d == e else 1 for e in range(4)]) for d, n in enumerate(scores.shape)]
    kept = torch.where(causal(*index), function(scores, *index, *parameters), -math.inf)
    return kept.softmax(3) @ v


def lost_to_rounding(function, q, k, v, parameters, grad, ulp, draws=8):
    """How far gradients of parameters may be off since the result, which a flash kernel's backward reads, is rounded: sums over all scores, in
    which much cancels. The largest of some draws of errors of half an ulp in the result."""
    q, k, v, grad = (x.detach().double() for x in (q, k, v, grad))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    leaves = [x.detach().double().requires_grad_() for x in parameters]
    scores = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
    index = [torch.arange(n, device=q.device).view([-1 if d == e else 1 for e in range(4)]) for d, n in enumerate(scores.shape)]
    changed = function(scores, *index, *leaves)
    weights = torch.where(causal(*index), changed.detach(), -math.inf).softmax(3)
    result = weights @ v
    found = [0.0] * len(leaves)
    for _ in range(draws):
        error = result * ulp / 2 * torch.randint_like(result, 2).mul(2).sub(1)
        lost = -weights * (error * grad).sum(3, keepdim=True)
        off = torch.autograd.grad(changed, leaves, lost, retain_graph=True)
        found = [max(most, one.abs().max().item()) for most, one in zip(found, off, strict=True)]
    return found


@pytest.mark.parametrize("groups", [1, 2], ids=["", "groups"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", TRAINED)
def test_gradients_of_captured_parameters(name, dtype, groups):
    """Near float64's, and the same bits in each run, but where distances share an element: that is summed up as any gather's gradient."""
    torch.manual_seed(0)
    sizes, function = TRAINED[name]
    parameters = [(torch.rand(size, device="cuda") + 0.5).requires_grad_() for size in sizes]
    blocks = create_block_mask(causal, None, None, QUERIES, KEYS, device="cuda")

    @tracework.compile(fullgraph=True)
    def attend(q, k, v):
        score = lambda s, b, h, i, j: function(s, b, h, i, j, *parameters)
        return flex_attention(q, k, v, score_mod=score, block_mask=blocks, enable_gqa=groups > 1)

    given = operands(dtype, groups)
    wide = [x.detach().double().requires_grad_() for x in given + parameters]
    wanted, grad = in_float64(function, *wide), torch.randn(BATCH, HEADS, QUERIES, WIDTH, device="cuda")
    expected = torch.autograd.grad(wanted, wide, grad.double())
    runs = [(out := attend(*given), *torch.autograd.grad(out, given + parameters, grad.to(dtype))) for _ in range(2)]
    sure = 4 if name == "near distances" else None
    assert all(map(torch.equal, runs[0][:sure], runs[1][:sure]))
    lost = [0.0] * 4 + lost_to_rounding(function, *given, parameters, grad, torch.finfo(dtype).eps)
    for a, b, more in zip(runs[0], (wanted, *expected), lost, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=0, atol=DTYPES[dtype] * b.abs().max().item() + 4 * more)


@pytest.mark.parametrize("name", ["slopes", "near distances", "distances"])
def test_no_scores_in_memory(name):
    length, (sizes, function) = 4096, TRAINED[name]
    parameters = [(torch.rand(s, device="cuda") + 0.5).requires_grad_() for s in sizes]
    if name == "distances":
        parameters = [torch.rand(2 * length, device="cuda", requires_grad=True)]
        function = lambda s, b, h, i, j, x: s + x[i - j + length]
    given = [torch.randn(1, HEADS, length, WIDTH, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    call = tracework.compile(
        lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: function(s, b, h, i, j, *parameters)),
        fullgraph=True,
    )
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call(*given).sum().backward()
    assert torch.cuda.max_memory_allocated() - before < HEADS * length**2 // 4


LAYOUTS = {
    "plain": lambda heads, length: torch.randn(BATCH, heads, length, WIDTH),
    "heads inside": lambda heads, length: torch.randn(BATCH, length, heads, WIDTH).transpose(1, 2),
    "batch inside": lambda heads, length: torch.randn(length, BATCH, heads, WIDTH).permute(1, 2, 0, 3),
    "width outside": lambda heads, length: torch.randn(BATCH, heads, WIDTH, length).transpose(2, 3),
    "one head for all": lambda heads, length: torch.randn(BATCH, 1, length, WIDTH).expand(-1, heads, -1, -1),
}


@pytest.mark.parametrize("numerics", ["default", "strict"])
@pytest.mark.parametrize("groups", [1, 2], ids=["", "groups"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_are_eagers(layout, groups, numerics):
    heads = HEADS // groups
    given = [
        LAYOUTS[layout](h, n).to("cuda", torch.bfloat16).requires_grad_()
        for h, n in ((HEADS, QUERIES), (heads, KEYS), (heads, KEYS))
    ]

    def attend(q, k, v):
        return flex_attention(q, k, v, enable_gqa=groups > 1)

    outs = attend(*given), tracework.compile(attend, options={"numerics": numerics})(*given)
    assert outs[0].stride() == outs[1].stride()
    gradients = [[x.stride() for x in torch.autograd.grad(out.sum(), given)] for out in outs]
    assert gradients[0] == gradients[1]
    if layout == "heads inside":
        assert outs[1].transpose(1, 2).view(BATCH, QUERIES, HEADS * WIDTH).data_ptr() == outs[1].data_ptr()


def test_a_parameter_without_gradients_and_open_sizes():
    length, bias = 4096, torch.nn.Parameter(torch.randn(HEADS, device="cuda"))
    call = tracework.compile(
        lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[h]), dynamic=True, fullgraph=True
    )
    for n in (length, length - 128, length):
        given = [torch.randn(1, HEADS, n, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with torch.no_grad():
            call(*given)
    assert torch.cuda.max_memory_allocated() - before < HEADS * length**2 // 4

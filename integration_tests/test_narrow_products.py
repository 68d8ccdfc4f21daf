"""Products of float8, int8 and int4 matrices, and of groups of rows: one graph, eager's values, and which of them write into planned memory."""

import pytest
import torch
import torch.nn.functional as F
import tracework
from torch._higher_order_ops.out_dtype import out_dtype
from torch.testing import assert_close
from tracework_inductor import pipeline

E4M3 = torch.float8_e4m3fn
M, K, N = 32, 64, 48


def randn(*sizes):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(len(sizes) + sizes[0]))


def narrow(*sizes):
    return randn(*sizes).to(E4M3)


def bytes_of(*sizes):
    return torch.randint(-9, 9, sizes, dtype=torch.int8, generator=torch.Generator().manual_seed(1))


ONE = torch.tensor(0.5)
BF16 = {"out_dtype": torch.bfloat16}
TENSOR, ROW = F.ScalingType.TensorWise, F.ScalingType.RowWise

PRODUCTS = {
    "scales of tensors": (
        lambda a, b: torch._scaled_mm(a, b, ONE, ONE, **BF16),
        lambda: (narrow(M, K), narrow(N, K).t()),
        True,
    ),
    "scales of rows": (
        lambda a, b, s, t: torch._scaled_mm(a, b, s, t, use_fast_accum=True, **BF16),
        lambda: (narrow(M, K), narrow(N, K).t(), randn(M, 1).abs(), randn(1, N).abs()),
        True,
    ),
    "a bias": (
        lambda a, b, c: torch._scaled_mm(a, b, ONE, ONE, bias=c, **BF16),
        lambda: (narrow(M, K), narrow(N, K).t(), randn(N).bfloat16()),
        True,
    ),
    "float8 results": (lambda a, b: torch._scaled_mm(a, b, ONE, ONE), lambda: (narrow(M, K), narrow(N, K).t()), True),
    "functional": (
        lambda a, b: F.scaled_mm(a, b, ONE, TENSOR, ONE, TENSOR, output_dtype=torch.bfloat16),
        lambda: (narrow(M, K), narrow(N, K).t()),
        False,
    ),
    "functional, rows": (
        lambda a, b, s, t: F.scaled_mm(a, b, s, ROW, t, ROW, output_dtype=torch.bfloat16),
        lambda: (narrow(M, K), narrow(N, K).t(), randn(M, 1).abs(), randn(1, N).abs()),
        False,
    ),
    "int8": (torch._int_mm, lambda: (bytes_of(M, K), bytes_of(K, N)), True),
    "int8 weights": (
        torch._weight_int8pack_mm,
        lambda: (randn(M, K).bfloat16(), bytes_of(N, K), randn(N).bfloat16()),
        False,
    ),
    "int4 weights": (
        lambda a, b, s: torch._weight_int4pack_mm_for_cpu(a, b, 32, s),
        lambda: (
            randn(M, K).bfloat16(),
            torch._convert_weight_to_int4pack_for_cpu(torch.arange(K * K, dtype=torch.int32).reshape(K, K) % 16, 1),
            randn(2, K, 2).bfloat16(),
        ),
        False,
    ),
    "groups of rows": (
        lambda a, b, o: torch._grouped_mm(a, b, offs=o),
        lambda: (randn(M, K).bfloat16(), randn(2, K, N).bfloat16(), torch.tensor([16, M], dtype=torch.int32)),
        False,
    ),
}
"""Name -> the call, its operands, and whether torch has a form of it that writes into given memory."""


@pytest.fixture
def plans(monkeypatch):
    found, render = [], pipeline.render

    def noted(plan, options):
        found.append(plan)
        return render(plan, options)

    monkeypatch.setattr(pipeline, "render", noted)
    return found


def by_eager(fn, *given):
    try:
        return fn(*given)
    except (RuntimeError, NotImplementedError) as error:
        if "support" not in str(error) and "Could not run" not in str(error):
            raise
        pytest.skip("this torch has no such product on a CPU")


@pytest.mark.parametrize("name", PRODUCTS)
def test_one_library_call(name, plans):
    call, operands, into_memory = PRODUCTS[name]

    def fn(*given):
        return call(*given), given[0].reshape(-1)[:3].float() + 1

    given = operands()
    expected, compiled = by_eager(fn, *given), tracework.compile(fn, fullgraph=True)
    for value, wanted in zip(compiled(*given), expected, strict=True):
        assert value.dtype == wanted.dtype and value.stride() == wanted.stride()
        assert_close(value.float(), wanted.float(), rtol=0, atol=0)
    (plan,) = plans
    (node,) = [kernel.node for kernel in plan.kernels if hasattr(kernel, "node")]
    assert (node.out_form is not None) == into_memory


REFUSED = {
    "inner sizes": lambda: (narrow(M, K), narrow(N, 2 * K).t(), ONE, ONE),
    "no float8": lambda: (randn(M, K), randn(N, K).t(), ONE, ONE),
    "a vector": lambda: (narrow(M), narrow(N, K).t(), ONE, ONE),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_eager_refuses_is_refused(case):
    given = REFUSED[case]()
    with pytest.raises(Exception) as eager:
        torch._scaled_mm(*given)
    with pytest.raises(type(eager.value)) as compiled:
        tracework.compile(lambda *given: torch._scaled_mm(*given) + 0)(*given)
    assert str(compiled.value) == str(eager.value)


def rows_as_float8(x):
    scale = (448 / x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12)).clamp(max=1e12)
    return (x * scale).clamp(-448, 448).to(E4M3), scale.reciprocal()


def linear(x, w, w_scale):
    q, scale = rows_as_float8(x)
    return torch._scaled_mm(q, w.t(), scale, w_scale, **BF16)


def block(x, w1, s1, w2, s2):
    """A feed-forward block whose activations become float8 row by row."""
    hidden = linear(F.layer_norm(x, (K,)), w1, s1)
    return linear(F.gelu(hidden), w2, s2) + x


def test_activations_become_float8_in_the_kernels_that_make_them(plans):
    x = randn(M, K).bfloat16()
    (w1, s1), (w2, s2) = rows_as_float8(randn(2 * K, K)), rows_as_float8(randn(K, 2 * K))
    given = (x, w1, s1.t().contiguous(), w2, s2.t().contiguous())
    expected = by_eager(block, *given)
    value = tracework.compile(block, fullgraph=True)(*given)
    wide = x.double() + F.gelu(F.layer_norm(x.double(), (K,)) @ (w1.double() * s1.double()).t()) @ (w2.double() * s2.double()).t()
    errors = [(result.double() - wide).norm() for result in (value, expected)]
    assert errors[0] <= 1.1 * errors[1]
    (plan,) = plans
    assert [hasattr(kernel, "node") for kernel in plan.kernels] == [False, True, False, True, False]
    assert not plan.program.fallbacks


ATEN = torch.ops.aten
OF_DTYPE = {
    "int8 matrices": (ATEN.mm.default, torch.int32, lambda: (bytes_of(M, K), bytes_of(K, N))),
    "float32 matrices": (ATEN.mm.default, torch.int32, lambda: (bytes_of(M, K).float(), bytes_of(K, N).float())),
    "two halves": (ATEN.mul.Tensor, torch.float32, lambda: (randn(M).half(), randn(M).bfloat16())),
    "a float": (ATEN.mul.Tensor, torch.int32, lambda: (bytes_of(M), 2.7)),
    "an int": (ATEN.div.Scalar, torch.float32, lambda: (bytes_of(M), 3)),
    "a linear layer": (ATEN.linear.default, torch.int32, lambda: (bytes_of(M, K), bytes_of(N, K), None)),
    "a convolution": (
        ATEN.convolution.default,
        torch.int32,
        lambda: (bytes_of(1, 3, 8, 8), bytes_of(4, 3, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    ),
}


@pytest.mark.parametrize("case", OF_DTYPE)
def test_operators_with_the_dtype_of_their_result(case):
    operator, dtype, operands = OF_DTYPE[case]
    given = operands()
    call = lambda *given: out_dtype(operator, dtype, *given)
    value, expected = tracework.compile(call, fullgraph=True)(*given), call(*given)
    assert value.dtype == dtype and torch.equal(value, expected)


def test_operators_with_a_dtype_have_no_gradients():
    x = randn(M, K).requires_grad_()
    call = lambda x: out_dtype(ATEN.mm.default, torch.float32, x, x.t()).sum()
    for fn in (call, tracework.compile(call)):
        with pytest.raises(RuntimeError, match="Autograd not implemented for out_dtype"):
            fn(x).backward()

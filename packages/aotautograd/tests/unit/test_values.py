"""Pure functions: values, gradients, gradients of gradients; with and without gradients asked for."""

import pytest
import torch
from torch.nn import functional as F

FUNCTIONS = {
    "matmul": lambda x, w: (torch.tanh(x @ w.t()).sum(-1),),
    "softmax": lambda x, w: (torch.softmax(x * w, -1).log(), x.sum()),
    "layer_norm": lambda x, w: (F.layer_norm(x, (4,), w[0], w[1]).expand(2, 3, 4),),
    "gelu": lambda x, w: (F.gelu(x) @ w.t(), x.sigmoid()),
    "shared": lambda x, w: (x * x + w.sum(), x.exp() * x),
    "branches": lambda x, w: tuple((x * w).split(2, -1)) + tuple(x.unbind(0)),
    "indexing": lambda x, w: (x[:, 1:3] * 2, w[torch.tensor([0, 2])], x[0].max()),
    "unused": lambda x, w: (x * 2,),
    "integers": lambda x, w: (x.argmax(-1), (x > 0), x * 3, w.shape[0]),
    "constants": lambda x, w: (x * torch.arange(4, dtype=torch.float64), None, 7, "text"),
    "cat": lambda x, w: (torch.cat([x, w], 1).cumsum(1), torch.stack([x, w])),
    "sdpa": lambda x, w: (F.scaled_dot_product_attention(x[None, None], w[None, None], x[None, None] * w),),
    "where": lambda x, w: (torch.where(x > w, x, w).clamp(-1, 1), x.masked_fill(w > 0, 2.0)),
    "no_output_gradient": lambda x, w: (x.detach() * 2, w.detach().sum()),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_with_gradients(name, check, real):
    check(FUNCTIONS[name], real(3, 4), real(3, 4), second=name != "sdpa")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_without_gradients(name, check, data):
    check(FUNCTIONS[name], data(3, 4), data(3, 4))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_input_requires_grad(name, check, data, real):
    check(FUNCTIONS[name], data(3, 4), real(3, 4), second=name != "sdpa")


@pytest.mark.parametrize("partitioner", ["default", "min_cut"])
@pytest.mark.parametrize("name", ["matmul", "softmax", "layer_norm", "gelu", "branches"])
def test_partitioners_agree(name, partitioner, check, real):
    check(FUNCTIONS[name], real(3, 4), real(3, 4), partitioner=partitioner)


def test_no_grad_call(check, real):
    with torch.no_grad():
        found = check(FUNCTIONS["matmul"], real(3, 4), real(3, 4))
        assert not found.compiled(*found.mine)[0].requires_grad


def test_inference_mode(check, data):
    with torch.inference_mode():
        check(lambda x: (x * 2, x.view(-1)), data(3, 4))
        check(lambda x: (x.add_(1),), data(3, 4))


def test_complex_gradients(check):
    x = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    check(lambda x: ((x * x.conj()).real, torch.view_as_real(x).sum(), x.exp()), x, second=False)


def test_half_of_the_dtypes(check):
    x = torch.randn(4, 4, dtype=torch.float32, requires_grad=True)
    check(lambda x: (x.to(torch.float64).sum(0), x.to(torch.bfloat16)), x, second=False)

"""Complex arithmetic in loops, against eager: values of all kinds of numbers, layouts, gradients, and which operators call eager's kernels."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch
import tracework
from hypothesis import given, settings
from hypothesis import strategies as st

INF, NAN = float("inf"), float("nan")
DTYPES = (torch.complex64, torch.complex128)


def rotary(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As Meta's Llama writes it: x (rows, heads, width), y of its width, which is any complex tensor here."""
    pairs = torch.view_as_complex(torch.view_as_real(x).flatten(-2).reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * y[:, :1]).flatten(-2)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "add a multiple": lambda x, y: torch.add(x, y, alpha=3),
    "add a complex multiple": lambda x, y: torch.add(x, y, alpha=1 - 2j),
    "sub": lambda x, y: x - y,
    "rsub": lambda x, y: 1.5 - x - y.real,
    "mul": lambda x, y: x * y,
    "times numbers": lambda x, y: (x * 2.5, 3 * x, x * 1j, (2 - 1j) * y),
    "times real": lambda x, y: x * y.real,
    "divided by a number": lambda x, y: x / 4,
    "square": lambda x, y: x.square() + y,
    "neg": lambda x, y: -x + y.neg(),
    "conj": lambda x, y: x.conj() * y + torch.conj_physical(y),
    "conj of a view": lambda x, y: (x.conj().mT * y.mT).contiguous(),
    "lazy conj returned": lambda x, y: (x * y).conj().resolve_conj(),
    "parts": lambda x, y: (x.real * y.imag, torch.imag(x * y) + torch.real(x + y)),
    "abs": lambda x, y: (x * y).abs(),
    "angle": lambda x, y: (x + y).angle(),
    "as real": lambda x, y: torch.view_as_real(x * y) + 1,
    "as complex": lambda x, y: torch.view_as_complex(torch.stack((x.real, y.imag), -1)),
    "complex": lambda x, y: torch.complex(x.real, y.imag) * x,
    "polar": lambda x, y: torch.polar(x.real.abs(), y.real.clamp(-3, 3)) * 2,
    "views": lambda x, y: (x * y)[1:, None, ::2].expand(-1, 3, -1).permute(2, 0, 1) * 2,
    "flips": lambda x, y: (x + y).flip(0).roll(1, -1),
    "cat": lambda x, y: torch.cat((x, x * y), 1),
    "stack": lambda x, y: torch.stack((x - y, y), 0) * 2,
    "where": lambda x, y: torch.where(x.real > y.real, x * y, y),
    "where of a number": lambda x, y: torch.where(x.real > y.real, x, 2.0),
    "masked_fill": lambda x, y: (x * y).masked_fill(x.real > 0, 0.5),
    "pad": lambda x, y: torch.nn.functional.pad(x * y, (1, 2), value=0.5),
    "rows": lambda x, y: (x * y)[torch.tensor([2, 0, 1])],
    "tril": lambda x, y: (x * y).tril(),
    "written slice": lambda x, y: torch.slice_scatter(x, y[:1] * 2, 0, 1, 2),
    "equal": lambda x, y: (x == y, x != y, (x * 1) == x),
    "sum": lambda x, y: ((x * y).sum(), (x + y).sum(0), x.sum(1, keepdim=True)),
    "mean": lambda x, y: (x * y).mean(1),
    "cumsum": lambda x, y: (x * y).cumsum(1),
    "conversions": lambda x, y: (x * y).to(torch.complex128) * 2,
    "narrower": lambda x, y: (x.to(torch.complex128) * y).to(torch.complex64),
    "of real": lambda x, y: x.real.to(x.dtype) * y,
    "made": lambda x, y: torch.zeros_like(x) + torch.full_like(x, 1 + 2j) * y,
    "a library call between": lambda x, y: torch.fft.ifft(torch.fft.fft(x * y) * y) * 2,
    "a product between": lambda x, y: (x * 2) @ (y.conj().mT * 3) + 1,
    "rotary": rotary,
    "nothing": lambda x, y: x[:0] * y[:0],
}
"""Functions of two complex tensors of the same sizes, (4, 6)."""

LIBRARY: dict[str, set[str]] = {
    "a library call between": {"aten._fft_c2c.default"},
    "a product between": {"mm"},
}
"""Which call kernels of the library."""


def tensors(dtype: torch.dtype, seed: int = 0) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    return [torch.randn(4, 6, dtype=dtype, generator=made) for _ in range(2)]


def leaves(found: Any) -> list[torch.Tensor]:
    return list(found) if isinstance(found, tuple) else [found]


def assert_same(actual: Any, expected: Any, **tolerance: Any) -> None:
    for a, e in zip(leaves(actual), leaves(expected), strict=True):
        assert (a.dtype, a.shape) == (e.dtype, e.shape)
        assert a.stride() == e.stride() or not a.numel()
        a, e = (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in (a, e))
        torch.testing.assert_close(a, e, equal_nan=True, **tolerance)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    tracework.reset()
    yield
    tracework.reset()


WITHOUT_GRADIENTS = ("written slice",)
"""Of which eager has none for complex numbers."""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(name: str, dtype: torch.dtype) -> None:
    program, inputs = PROGRAMS[name], tensors(dtype)
    compiled = tracework.compile(program, fullgraph=True)
    assert_same(compiled(*inputs), program(*inputs))
    if name in WITHOUT_GRADIENTS:
        return
    grads = []
    for function in (compiled, program):
        given = [t.clone().requires_grad_() for t in inputs]
        made = [t for t in leaves(function(*given)) if t.requires_grad]
        weights = [torch.randn(t.shape, dtype=t.dtype, generator=torch.Generator().manual_seed(1)) for t in made]
        grads.append(torch.autograd.grad(made, given, weights, allow_unused=True) if made else ())
    for a, e in zip(*grads, strict=True):
        assert (a is None) == (e is None)
        if e is not None:
            assert_same(a, e)


if __name__ == "__main__":
    pytest.main([__file__, "-q"])

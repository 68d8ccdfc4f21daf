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
    "a library call between": {"aten::_fft_c2c"},
    "a product between": {"aten::mm"},
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


WIDE = frozenset(("mul", "abs", "sum", "rotary"))
"""Which are compiled for complex128, too."""


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n in PROGRAMS for d in DTYPES if d is DTYPES[0] or n in WIDE], ids=str)
def test_values_and_gradients(name: str, dtype: torch.dtype) -> None:
    program, inputs = PROGRAMS[name], tensors(dtype)
    compiled = tracework.compile(program, fullgraph=True)
    needs_gradients = name not in WITHOUT_GRADIENTS
    found = []
    for function in (compiled, program):
        leaf = [t.clone().requires_grad_(needs_gradients) for t in inputs]
        values = leaves(function(*leaf))
        made = [t for t in values if t.requires_grad]
        weights = [torch.randn(t.shape, dtype=t.dtype, generator=torch.Generator().manual_seed(1)) for t in made]
        found.append((tuple(values), torch.autograd.grad(made, leaf, weights, allow_unused=True) if made else ()))
    (values, gradients), (eager, eager_gradients) = found
    assert_same(values, eager)
    assert [g is None for g in gradients] == [g is None for g in eager_gradients]
    assert_same(*(tuple(g for g in given if g is not None) for given in (gradients, eager_gradients)))


def special(dtype: torch.dtype) -> list[torch.Tensor]:
    """All pairs of complex numbers with these parts."""
    numbers = [complex(*parts) for parts in product((0.0, -0.0, 1.0, -2.0, INF, -INF, NAN), repeat=2)]
    return [torch.tensor(column, dtype=dtype) for column in zip(*product(numbers, repeat=2), strict=True)]


SPECIAL: dict[str, Callable[..., Any]] = {
    name: PROGRAMS[name]
    for name in (
        "add", "sub", "rsub", "mul", "times numbers", "times real", "divided by a number",
        "neg", "conj", "parts", "equal", "of real",
    )
}  # fmt: skip
"""Programs without transcendental functions: their values are eager's wherever these are infinite, NaN or whole numbers, which all are."""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_infinite_parts_and_nan(dtype: torch.dtype) -> None:
    inputs = special(dtype)
    found = tracework.compile(lambda x, y: [leaves(p(x, y)) for p in SPECIAL.values()])(*inputs)
    for actual, program in zip(found, SPECIAL.values(), strict=True):
        assert_same(tuple(actual), tuple(leaves(program(*inputs))), rtol=0, atol=0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_which_call_kernels_of_the_library(name: str) -> None:
    explained = tracework.explain(PROGRAMS[name])(*tensors(torch.complex64))
    assert set(explained.library) == LIBRARY.get(name, set())


@pytest.mark.parametrize(
    "layout",
    [lambda t: t.mT.contiguous().mT, lambda t: t.repeat(2, 2)[1::2, ::2], lambda t: t.conj(), lambda t: t[:1].expand(4, 6)],
)
def test_layouts_of_inputs(layout: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x, y = tensors(torch.complex64)
    x = layout(x)

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x * y, x + 1, x.mT, x[1:2].conj() - y

    assert_same(tracework.compile(program)(x, y), program(x, y))


def test_real_inputs_that_are_negated_when_they_are_read() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1) * 2

    compiled = tracework.compile(program)
    for layout in (lambda t: t, lambda t: t.mT, lambda t: t[1:, ::2]):
        (z, _), (same, _) = tensors(torch.complex64), tensors(torch.complex64)
        assert_same((compiled(layout(z.conj().imag)), z), (program(layout(same.conj().imag)), same))


def test_writes_to_inputs() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        before = x * 2
        x.mul_(y).add_(1)
        x[0] = before[1]
        y.real.neg_()
        return before + x

    given, same = tensors(torch.complex64), tensors(torch.complex64)
    assert_same((tracework.compile(program)(*given), *given), (program(*same), *same))


def test_sizes_that_change() -> None:
    compiled = tracework.compile(rotary, dynamic=True)
    for rows, columns in ((4, 6), (5, 8), (3, 2)):
        x, y = (torch.randn(rows, columns, dtype=torch.complex64) for _ in range(2))
        assert_same(compiled(x, y), rotary(x, y))


def test_strict_numerics_are_eagers() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x * y + x / 3, (x * y).abs()

    x, y = (torch.randn(37, 11, dtype=torch.complex64) for _ in range(2))
    found = tracework.compile(program, options={"numerics": "strict"})(x, y)
    assert_same(found, program(x, y), rtol=0, atol=0)


STEPS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mul": lambda x, y: x * y,
    "add": lambda x, y: x + 2 * y,
    "conj": lambda x, y: x.conj(),
    "turn": lambda x, y: x * 1j - y,
    "permute": lambda x, y: x.mT.reshape(x.shape),
    "flip": lambda x, y: x.flip(-1),
    "roll": lambda x, y: torch.roll(x, 1, 0),
    "split": lambda x, y: torch.cat(x.chunk(2, 1)[::-1], 1),
    "parts": lambda x, y: torch.complex(y.imag, x.real),
    "real": lambda x, y: torch.view_as_complex(torch.view_as_real(x).neg()),
    "where": lambda x, y: torch.where(x.imag > 0, x, y),
    "fft": lambda x, y: torch.fft.fft(x, norm="ortho"),
}


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=7))
def test_random_programs(names: list[str]) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for name in names:
            x, y = STEPS[name](x, y), x
        return x

    tracework.reset()
    x, y = tensors(torch.complex128)
    assert_same(tracework.compile(program)(x, y), program(x, y))

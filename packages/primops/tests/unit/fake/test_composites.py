"""Torch's composites as they are written for fakes: eager's values on real tensors, and no size fixed on fakes."""

from __future__ import annotations

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map
from tracework_primops import FakeMode, FakeTensor, SymbolTable
from tracework_primops.errors import DataDependentError
from tracework_primops.fake.composites import COMPOSITES

aten = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)


def real(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=GENERATOR)


def indices(sizes: tuple[int, ...], below: int) -> torch.Tensor:
    return torch.randint(below, sizes, generator=GENERATOR)


def resampled(dims: int, *align_corners: bool):
    x = real(2, 3, *range(5, 5 + dims))
    yield x, [7] * dims, *align_corners, None
    yield x, None, *align_corners, [1.5] * dims
    yield x, None, *align_corners, [1.7] * dims


def transformed(to_one: bool, real_input: bool):
    x = real(3, 6, 8) if real_input else torch.complex(real(3, 6, 8), real(3, 6, 8))
    for size in (8, 5, 14):
        yield (x, size) if to_one else (x, [6, size])
    yield (x, 6, 1) if to_one else (x, [6, -1], [2, 1])


CALLS = {
    "take_along_dim": [(real(4, 6), indices((4, 3), 6), 1), (real(4, 6), indices((1, 3), 6), 1), (real(4, 6), indices((7,), 24))],
    "unsafe_chunk": [(real(7, 4), 3, 0), (real(7, 4), 3, 1)],
    "kron": [(real(3, 4), real(2, 5)), (real(3), real(2, 5))],
    "linalg_multi_dot": [
        ([real(3, 4), real(4, 5)],),
        ([real(3), real(3, 5), real(5)],),
        ([real(9, 2), real(2, 8), real(8, 3), real(3, 7)],),
    ],
    "linalg_matrix_norm": [
        (real(3, 4, 5), order, dims, keepdim)
        for order in (1.0, -1.0, 2.0, -2.0, float("inf"), float("-inf"))
        for dims in ([-2, -1], [2, 0])
        for keepdim in (False, True)
    ],
}
WINDOW = torch.hann_window(12)  # has to be as long as the call says
CALLS |= {
    "stft": [
        (real(50), 16, None, None, None, False, None, True),
        (real(2, 50), 16, 5, 12, None, True, None, True),
        (real(2, 50), 16, 5, 12, WINDOW, False, False, False),
        (torch.complex(real(50), real(50)), 16),
    ],
    "stft.center": [(real(50), 16, None, None, None, True, mode, False, True, True) for mode in ("reflect", "constant")],
    "cov": [(real(3, 9), {}), (real(9), {"correction": 0}), (torch.complex(real(3, 4), real(3, 4)), {"correction": 2})],
    "max_pool1d": [(real(2, 3, 9), [3]), (real(3, 9), [2], [3], [1])],
    "cross_entropy_loss": [(real(4, 5, 3), real(4, 5, 3).softmax(1), real(5), reduction, -100, 0.0) for reduction in range(3)],
    "gradient.array": [(real(6, 7), {"dim": [0, 1], "edge_order": order}) for order in (1, 2)],
    "gradient.scalarint": [(real(6, 7), {}), (real(6, 7), {"spacing": 3.0, "dim": 1})],
    "gradient.tensorarrayint": [
        (real(6, 7), {"spacing": [torch.tensor([0.0, 1, 3, 4, 6, 9, 10])], "dim": -1, "edge_order": order}) for order in (1, 2)
    ],
}
for _name, _dims in (("upsample_nearest1d.vec", 1), ("upsample_nearest2d.vec", 2), ("_upsample_nearest_exact3d.vec", 3)):
    CALLS[_name] = list(resampled(_dims))
for _name, _dims in (("upsample_linear1d.vec", 1), ("upsample_bilinear2d.vec", 2), ("_upsample_bicubic2d_aa.vec", 2)):
    CALLS[_name] = list(resampled(_dims, False))
for _name in ("fft_fft", "fft_ifft", "fft_irfft", "fft_hfft", "fft_rfft", "fft_ihfft"):
    CALLS[_name] = list(transformed(True, _name in ("fft_rfft", "fft_ihfft")))
    CALLS[f"{_name}2"] = list(transformed(False, _name in ("fft_rfft", "fft_ihfft")))
for _name in ("quantile", "nanquantile"):
    _ways = [{"dim": dim, "keepdim": keepdim} for dim in (None, 0, 1, -1) for keepdim in (False, True)]
    _ways += [{"dim": 1, "interpolation": interpolation} for interpolation in ("lower", "higher", "midpoint", "nearest")]
    CALLS[f"{_name}.scalar"] = [(real(4, 6), 0.3, way) for way in _ways]
    CALLS[_name] = [(real(4, 6), torch.tensor([0.0, 0.3, 1.0]), way) for way in _ways]
CASES = [(name, number) for name, calls in CALLS.items() for number in range(len(calls))]


def overload(name: str):
    packet, _, suffix = name.partition(".")
    return getattr(getattr(aten, packet), suffix or "default")


def called(func, args):
    """A call whose last argument may be a dict of keywords."""
    return func(*args[:-1], **args[-1]) if isinstance(args[-1], dict) else func(*args)


@pytest.mark.parametrize("name, number", CASES)
def test_form_computes_what_torch_computes(name, number):
    func, args = overload(name), CALLS[name][number]
    found = called(COMPOSITES[func], args)
    expected = called(func, args)
    if found is NotImplemented:
        pytest.fail("the form leaves this call to torch")
    for a, b in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name, number", CASES)
def test_no_size_is_fixed(name, number):
    func, args = overload(name), CALLS[name][number]
    table = SymbolTable()
    mode = FakeMode(table)

    def fake(value):
        if not isinstance(value, torch.Tensor):
            return value
        named = value.shape if value is WINDOW else [table.new(s) if s > 1 else s for s in value.shape]
        return mode.from_real(value, sizes=named)

    with mode:
        found = called(func, tree_map(fake, args))
    for a, b in zip(tree_leaves(found), tree_leaves(called(func, args)), strict=True):
        assert [table.hint(s) for s in (*a.spec.sizes, *a.spec.strides)] == [*b.shape, *b.stride()]
    assert all(low != high for low, high in table.ranges.values())


def test_without_symbols_torchs_own_code_runs():
    seen = []
    mode = FakeMode()
    mode.recorder = lambda func, *rest: seen.append(func)
    x = mode.from_real(real(1, 2, 4, 4))
    with mode:
        out = torch.nn.functional.interpolate(x, scale_factor=2.0)
    assert isinstance(out, FakeTensor) and tuple(out.shape) == (1, 2, 8, 8)
    assert seen == [aten.upsample_nearest2d.default]


def test_gradients_pass_through():
    table = SymbolTable()
    mode = FakeMode(table)
    real_x = real(2, 3, 6, 5).requires_grad_()
    x = mode.from_real(real_x, sizes=[table.new(s) for s in real_x.shape])
    with mode:
        out = torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear")
        (grad,) = torch.autograd.grad(out.sum(), x)
    assert grad.spec.sizes == x.spec.sizes
    assert not table.conditions


@pytest.mark.parametrize("factor", [0.5, 0.6, 1.1, 1.7, 2.75, 0.29, 0.7, 3.3])
def test_scaled_size_is_the_rounded_product(factor):
    for example in (10, 100):
        table = SymbolTable()
        s = table.new(example)
        scaled = table.from_symint(torch.sym_int(table.to_symint(s) * factor))
        if isinstance(scaled, int):  # the factor is too far from its fraction: the size is fixed
            assert scaled == int(example * factor)
            continue
        for size in range(2, 400):
            assert scaled.evaluate({s: size}) == int(size * factor)


def test_an_lstm_of_a_symbolic_batch():
    table = SymbolTable()
    mode = FakeMode(table)
    x, batch = real(5, 3, 4), table.new(3)
    weights = [mode.from_real(w) for w in (real(8, 4), real(8, 2), real(8), real(8))]
    states = [mode.from_real(real(1, 3, 2), sizes=[1, batch, 2]) for _ in range(2)]
    with mode:
        out = torch.lstm(mode.from_real(x, sizes=[5, batch, 4]), states, weights, True, 1, 0.0, False, False, False)
    assert [o.spec.sizes for o in out] == [(5, batch, 2), (1, batch, 2), (1, batch, 2)]
    assert table.ranges[batch][0] != table.ranges[batch][1] and torch.backends.mkldnn.enabled


CTC = real(12, 2, 5).log_softmax(2), torch.tensor([[1, 2, 3], [4, 4, 1]]), [12, 9], [3, 2]


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("reduction", range(3))
def test_ctc_loss_with_lengths_that_are_numbers(reduction, zero_infinity):
    func = aten.ctc_loss.IntList
    alone = CTC[0][:, 0], CTC[1][0], [2], [3]
    for args in (CTC, alone):
        torch.testing.assert_close(
            COMPOSITES[func](*args, 0, reduction, zero_infinity), func(*args, 0, reduction, zero_infinity), check_stride=True
        )
        mode = FakeMode()
        with mode:
            found = func(mode.from_real(args[0]), mode.from_real(args[1]), *args[2:], 0, reduction, zero_infinity)
        assert found.shape == func(*args, 0, reduction, zero_infinity).shape


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("layer", [torch.nn.GRU(3, 4), torch.nn.LSTM(3, 4), torch.nn.RNN(3, 4)], ids=lambda m: type(m).__name__)
def test_layers_over_packed_sequences_need_the_counts(layer, symbolic):
    table = SymbolTable()
    mode = FakeMode(table)
    counts = mode.from_real(torch.tensor([3, 2, 1]), sizes=[table.new(3)] if symbolic else None)
    weights = [mode.from_real(w.detach()) for w in layer.parameters()]
    state = mode.from_real(torch.zeros(1, 3, 4))
    call = {"GRU": torch.gru, "LSTM": torch.lstm, "RNN": torch.rnn_tanh}[type(layer).__name__]
    states = (state, state) if call is torch.lstm else state
    with pytest.raises(DataDependentError), mode:
        call(mode.from_real(torch.ones(6, 3)), counts, states, weights, True, 1, 0.0, False, False)
    with pytest.raises(DataDependentError), mode:
        torch._C._VariableFunctions._pad_packed_sequence(mode.from_real(torch.ones(6, 3)), counts, False, 0.0, 3)

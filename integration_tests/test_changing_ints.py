"""Ints that are others at each step, under CUDA graphs: values as eager's, and one recording for all where no size depends on them."""

import pytest
import torch
import torch.nn.functional as F
import tracework
from test_cuda_graphs import DEVICE, made
from tracework import assemble

__all__ = ["made"]
pytestmark = pytest.mark.filterwarnings("error::tracework.UncompiledWarning")
STEPS = [999, 998, 997, 5, 3, 0, -4, -1000, 60_000, 2**31, -(2**33), 2**40 + 1, 17, 16]
PLACES = [0, 1, 2, 3, 7, 15, 4, 9, 5, 6, 8, 10, 14, 11]


def timestep(x, t):
    frequencies = torch.exp2(
        -torch.arange(4.0, device=x.device)
    )  # exact: other bits are other angles, at steps as large as these
    angles = frequencies * t
    return x + torch.cat([angles.sin(), angles.cos()])


def arithmetic(x, t):
    i = torch.arange(8, device=x.device)
    return x * t, i + t, i - 3 * t, (i * t) % 7, t - x, x / (t + 0.5)


def made_of(x, t):
    return torch.full_like(x, t), x.new_full((2,), t), torch.full((3,), t, device=x.device)


def compared(x, t):
    i = torch.arange(8, device=x.device)
    return torch.where(i < t, x, -x), i == t, (x > t).sum(), x.clamp(max=t), x.masked_fill(i >= t, 0)


def with_float(x, t):
    return x * t + 1 / 3, x + t / 1000


def in_a_sum(x, t):
    return (x * t).sum(), (x[:, None] * x + t).sum(1), x.softmax(0) * t


def row(x, t):
    return x[t] * 2, x + x[t], x[t : t + 1] - x


def column(x, t):
    return x[:, t].exp(), x.select(1, t) + 1, x.narrow(1, t, 1) * x


def rolled(x, t):
    return x[t] @ x, x @ x[t], F.linear(x[t], x)


def as_index(x, t):
    return (
        x.index_select(0, torch.tensor([t], device=x.device)),
        x[torch.tensor(t, device=x.device)] * torch.as_tensor(t, device=x.device),
        x.cumsum(0)[t] + 1,
        x.gather(1, torch.full((16, 1), t, device=x.device)),
    )


VALUES = (timestep, arithmetic, made_of, compared, with_float, in_a_sum)
PLACED = (row, column, rolled, as_index)


@pytest.fixture
def compile_(monkeypatch):
    tracework.compiler.reset()
    monkeypatch.setattr(assemble, "RECORDED", frozenset({DEVICE}))
    return lambda fn, **options: tracework.compile(fn, options={"cudagraphs": True}, **options)


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def assert_one_recording(made, calls, pieces=1):
    """Of each piece's compilation for an int that changes, and others in turn while results are held; what was compiled for the first int alone
    is called once."""
    first, last = made.functions[:-pieces], made.functions[-pieces:]
    said = [(fn.made, fn.replays, fn.reasons()) for fn in made.functions]
    assert len(first) <= pieces and not any(fn.made for fn in first), said
    assert all(fn.made <= 3 and fn.replays >= calls - 4 for fn in last), said


@pytest.mark.parametrize("program", [*VALUES, *PLACED])
def test_values(made, compile_, program):
    call = compile_(program)
    for number in PLACES if program in PLACED else sorted(map(abs, STEPS)) if program is made_of else STEPS:
        x = torch.randn(16, 16) if program in PLACED else torch.randn(8)
        same(call(x.to(DEVICE), number), program(x.to(DEVICE), number))
    # on a GPU, where torch asks the tensor for the place, the graph breaks there
    assert_one_recording(made, len(STEPS), pieces=2 if program is as_index and DEVICE == "cuda" else 1)


def by_item(cache, k, pos):
    cache[:, :, pos] = k
    return cache.sum(2)


def by_slice(cache, k, pos):
    cache[:, :, pos : pos + 1] = k[:, :, None]
    return cache.cumsum(2) * 2


def by_copy(cache, k, pos):
    cache.select(2, pos).copy_(k)
    cache.narrow(2, pos, 1).mul_(2)
    return cache.amax(-1)


def by_index_copy(cache, k, pos):
    cache.index_copy_(2, torch.full((1,), pos, device=k.device), k[:, :, None])
    return cache + pos


def attended(cache, k, pos):
    cache[:, :, pos] = k
    hidden = torch.arange(cache.shape[2], device=k.device) > pos
    scores = (cache @ k[:, :, :, None])[..., 0].masked_fill(hidden, -float("inf"))
    return (scores.softmax(-1)[:, :, None] @ cache)[:, :, 0] + pos


def by_rows_of_masks(cache, k, pos):
    mask = torch.ones(16, 16, dtype=torch.bool, device=k.device).tril()
    cache[:, :, pos] = k
    return F.scaled_dot_product_attention(k[:, :, None], cache, cache, attn_mask=mask[pos : pos + 1])


@pytest.mark.parametrize("program", [by_item, by_slice, by_copy, by_index_copy, attended, by_rows_of_masks])
def test_caches(made, compile_, program):
    """What is written lies where eager writes it, and nowhere else."""
    call = compile_(program)
    caches = [torch.zeros(2, 3, 16, 8, device=DEVICE) for _ in range(2)]
    kept = []
    for number in PLACES:
        k = torch.randn(2, 3, 8, device=DEVICE)
        kept = [*kept[-1:], (call(caches[0], k, number), program(caches[1], k, number))]
        for found, expected in kept:
            same(found, expected)
        assert torch.equal(*caches)
    assert_one_recording(made, len(PLACES))


def test_a_decoder_with_a_place_that_is_an_int(made, compile_):
    """Tables of rotations, masks and caches looked up, or written, at the place."""

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.out, self.norm = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16), torch.nn.LayerNorm(16)
            for name in ("keys", "values"):
                self.register_buffer(name, torch.zeros(1, 2, 16, 8))
            self.register_buffer("turns", torch.randn(16, 8))
            self.register_buffer("mask", torch.ones(16, 16, dtype=torch.bool).tril())

        def forward(self, x, pos):
            q, k, v = (part.view(1, 1, 2, 8).transpose(1, 2) for part in self.inner(self.norm(x)).chunk(3, -1))
            q, k = q * self.turns[pos], k * self.turns[pos]
            self.keys[:, :, pos : pos + 1] = k
            self.values[:, :, pos] = v[:, :, 0]
            found = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=self.mask[pos : pos + 1])
            return x + self.out(found.transpose(1, 2).flatten(2))

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Layer() for _ in range(2))).eval().requires_grad_(False).to(DEVICE)
    first = {name: value.clone() for name, value in model.state_dict().items()}

    def step(x, pos):
        for layer in model:
            x = layer(x, pos)
        return x

    tokens = torch.randn(14, 1, 1, 16, device=DEVICE)
    call = compile_(step)
    found = [call(x, pos).clone() for pos, x in enumerate(tokens)]
    caches = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(first)
    same(found, [step(x, pos) for pos, x in enumerate(tokens)])
    same(caches, model.state_dict())
    assert_one_recording(made, len(tokens))


def sliced(x, n):
    return x[:n] * n


def filled(x, n):
    return torch.full((n,), n * 2.0, device=x.device) + x[0]


def shown(x, n):
    return x[n]


@pytest.mark.parametrize("program", [sliced, filled, shown])
def test_what_decides_sizes_or_views_has_recordings_of_its_own(made, compile_, program):
    call = compile_(program)
    for number in (2, 3, 4, 3, 4, 3, 4, 5, 3, 4, 3, 4):
        x = torch.randn(8, device=DEVICE)
        same(call(x, number), program(x, number))
    assert 2 <= sum(fn.made for fn in made.functions) <= 4 and made.replays >= 4


def test_ints_floats_and_sizes_together(made, compile_):
    """One int of three decides a size: recordings for each of its values, and for no others."""

    def program(x, t, n, scale, p):
        return (x[:n] * t + scale) * x[p], torch.where(torch.arange(8, device=x.device) < t, p, t)

    call = compile_(program)
    for number in range(40):
        x, given = torch.randn(8, device=DEVICE), (900 - number, 3 + number % 2, number / 7, number % 7)
        same(call(x, *given), program(x, *given))
    last = made.functions[-1]
    assert last.made <= 4 and last.replays >= 25, [(fn.made, fn.replays, fn.reasons()) for fn in made.functions]


def test_training_with_an_int_that_changes(made, compile_):
    def program(x, t):
        return (x * t).sin() * (x + t) / (t + 1)

    call = compile_(program)
    for number in range(3, 15):
        values = []
        x = torch.randn(5, dtype=torch.float64, device=DEVICE, requires_grad=True)
        for fn in (call, program):
            found = fn(x, number)
            values.append([found.detach(), *torch.autograd.grad(found.sum(), x)])
        same(*values)
    said = [(fn.made, fn.replays, fn.reasons()) for fn in made.functions]
    assert sum(fn.made for fn in made.functions) <= 4 and made.replays >= 2 * 7, said


DATA = {
    "a number": lambda t, f, x: t,
    "a float": lambda t, f, x: f,
    "a list": lambda t, f, x: [t],
    "a tuple of both": lambda t, f, x: (t, f),
    "rows": lambda t, f, x: [[t, 1], [2, t]],
    "with a tensor": lambda t, f, x: [f, x],
}


KINDS = [(data, dtype) for data in DATA for dtype in (None, torch.float32)]
KINDS += [(data, torch.int32) for data in ("a number", "a list", "rows")]  # a float that becomes an int is fixed


@pytest.mark.parametrize("device", ["meta", torch.device("cpu")])
@pytest.mark.parametrize(("data", "dtype"), KINDS)
@pytest.mark.parametrize("make", [torch.tensor, torch.as_tensor])
def test_tensors_of_numbers_on_a_device(make, data, dtype, device):
    """Made of the numbers of the call, whichever device is named."""
    tracework.compiler.reset()
    compiled = []

    def program(t, f, x):
        return (
            make(DATA[data](t, f, x), device=device) if dtype is None else make(DATA[data](t, f, x), dtype=dtype, device=device)
        )

    call = tracework.compile(program, backend=lambda gm, inputs: (compiled.append(gm), gm)[1])
    for number in range(3, 9):
        given = number, number / 7, torch.tensor(number / 3)
        found, expected = call(*given), program(*given)
        assert (found.dtype, found.device, found.shape, found.stride()) == (
            expected.dtype,
            expected.device,
            expected.shape,
            expected.stride(),
        )
        assert device == "meta" or torch.equal(found, expected)
    assert len(compiled) <= 2

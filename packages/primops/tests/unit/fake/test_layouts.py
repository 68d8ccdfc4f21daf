"""Strides of results where eager does not keep, or does not drop, the order of its operands."""

import pytest
import torch
import torch.nn.functional as F
from tracework_primops import FakeMode

LAST, LAST3 = torch.channels_last, torch.channels_last_3d


def columns(*sizes, dtype=torch.float32):
    """The last two dims swapped in memory."""
    return torch.ones(*sizes[:-2], sizes[-1], sizes[-2], dtype=dtype).transpose(-1, -2)


def volume(*sizes, dtype=torch.float32):
    return torch.ones(sizes, dtype=dtype).contiguous(memory_format=LAST3)


def image(*sizes):
    return torch.ones(sizes).contiguous(memory_format=LAST)


CASES = {
    "a signal with a weight in columns": (F.conv1d, columns(1, 4, 4), columns(3, 4, 2)),
    "a signal in columns": (F.conv1d, columns(1, 4, 4), torch.ones(3, 4, 2)),
    "a signal with one element in columns": (F.conv1d, columns(2, 4, 1), torch.ones(3, 4, 1)),
    "a signal with one channel in columns": (F.conv1d, columns(2, 1, 4), torch.ones(1, 1, 1)),
    "a transposed signal with one element in columns": (F.conv_transpose1d, columns(2, 4, 1), torch.ones(4, 3, 2)),
    "a transposed signal": (F.conv_transpose1d, torch.ones(1, 4, 4), columns(4, 3, 2)),
    "a small volume": (F.conv3d, volume(1, 4, 6, 6, 6), torch.ones(4, 4, 2, 2, 2)),
    "a batch of volumes": (F.conv3d, volume(17, 4, 6, 6, 6), torch.ones(4, 4, 2, 2, 2)),
    "volumes in float64": (F.conv3d, volume(17, 4, 6, 6, 6, dtype=torch.float64), torch.ones(4, 4, 2, 2, 2, dtype=torch.float64)),
    "a small transposed volume": (F.conv_transpose3d, volume(1, 4, 4, 4, 4), torch.ones(4, 4, 2, 2, 2)),
    "a batch of transposed volumes": (F.conv_transpose3d, volume(17, 4, 4, 4, 4), torch.ones(4, 4, 2, 2, 2)),
    "one element of a signal": (lambda x: F.adaptive_avg_pool1d(x, 1), columns(3, 8, 4)),
    "one element of an image": (lambda x: F.adaptive_avg_pool2d(x, 1), image(2, 8, 4, 4)),
    "one element of a volume": (lambda x: F.adaptive_avg_pool3d(x, 1), volume(1, 8, 4, 4, 4)),
    "maxima without gradients": (lambda x: F.max_pool1d(x, 3), columns(2, 2, 6)),
    "maxima with gradients": (lambda x: F.max_pool1d(x, 3), columns(2, 2, 6).requires_grad_()),
    "one maximum": (lambda x: F.max_pool1d(x, 3), columns(1, 2, 3)),
    "patches of one channel": (lambda x: F.unfold(x, (1, 2)), torch.ones(1, 1, 2, 2)),
    "members in columns": (lambda x: torch.isin(x, x), columns(4, 5)),
    "members that equal a number, in columns": (lambda x: torch.isin(x, 1), columns(4, 5)),
    "counts of events": (torch.poisson, image(2, 3, 4, 4)),
    "random slopes": (lambda x: F.rrelu(x, training=True), image(2, 3, 4, 4)),
    "mean slopes": (F.rrelu, image(2, 3, 4, 4)),
    "stacked first": (lambda x: torch.stack([x, x, x]), image(1, 2, 1, 4)),
    "stacked second": (lambda x: torch.stack([x, x, x], 1), image(3, 2, 1, 4)),
    "stacked last": (lambda x: torch.stack([x, x, x], 4), image(1, 2, 1, 4)),
    "one channel joined": (lambda x: torch.cat([x, x], 1), torch.ones(24).as_strided((2, 1, 3, 4), (12, 1, 4, 1))),
    "joined with an empty list": (lambda x: torch.cat([torch.ones(0, device=x.device), x]), image(1, 2, 3, 4)),
    "gated, one example": (lambda x: F.glu(x, 1), columns(1, 4, 6, 7)),
    "gated, a repeated example": (lambda x: F.glu(x, 1), torch.ones(1, 4, 6).expand(3, 4, 6)[:1]),
    "one example with a stride of 0": (torch.sin, torch.ones(6).as_strided((1, 3, 2), (0, 2, 1))),
    "a step, broadcast": (torch.heaviside, columns(10, 1, 5), columns(10, 10, 5)),
    "powers of a number": (lambda x: 2**x, columns(3, 4, 5)),
    "powers in place": (lambda x: (x * 1).square_(), columns(3, 4, 5)),
    "times powers of two": (torch.ldexp, columns(10, 1, 5), columns(10, 10, 5)),
    "nothing, flipped": (lambda x: x.flip(0), torch.ones(1, 0, 10).expand(5, 0, 10)),
    "nothing, copied": (torch.clone, torch.ones(5, 0, 10).transpose(0, 2)),
    "nothing, elementwise": (torch.sin, torch.ones(5, 0, 10).transpose(0, 2)),
    "losses of pixels": (
        lambda x, y: F.nll_loss(x, y, reduction="none"),
        columns(2, 3, 2, 2),
        columns(2, 2, 2, dtype=torch.int64),
    ),
    "classes of columns": (lambda x: F.one_hot(x, 5), columns(20, 10, 5, dtype=torch.int64)),
    "successes in trials": (torch.binomial, columns(3, 4, 5), columns(3, 4, 5).sigmoid()),
    "gamma by its shape": (torch._standard_gamma_grad, columns(3, 4, 5).exp(), columns(3, 4, 5).exp()),
    "shares of a whole": (torch._sample_dirichlet, columns(3, 4, 5).exp()),
    "an image cropped and extended": (lambda x: F.pad(x, [-1, 9, 1, -1], "replicate"), image(5, 3, 4, 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_strides_are_those_of_eager(name):
    function, *inputs = CASES[name]
    mode = FakeMode()
    with mode:
        got = function(*map(mode.from_real, inputs))
    expected = function(*inputs)
    assert (got.shape, got.stride(), got.storage_offset()) == (expected.shape, expected.stride(), expected.storage_offset())


@pytest.mark.parametrize("name", [name for name in CASES if "signal with" in name or "volume" in name and "element" not in name])
def test_gradients_of_convolutions_have_the_strides_of_eager(name):
    function, *inputs = CASES[name]

    def gradients(inputs):
        out = function(*inputs)
        return torch.autograd.grad(out, inputs, torch.ones_like(out))

    mode = FakeMode()
    with mode:
        got = gradients([mode.from_real(t.requires_grad_()) for t in inputs])
    assert [g.stride() for g in got] == [g.stride() for g in gradients(inputs)]


@pytest.mark.parametrize("sizes", [(4, 3, 5, 6), (2, 3, 1, 4), (2, 1, 4, 4), (2, 3, 4, 1), (1, 3, 4, 4)])
@pytest.mark.parametrize(
    ("shifts", "dims"), [(1, 2), (0, 2), (5, 2), (1, 0), (3, 1), (1, 3), ((1, 2), (2, 3)), ((1, 1), (0, 1)), (-1, 2), (1, ())]
)
def test_rolled_images(sizes, shifts, dims):
    given = torch.randn(sizes).to(memory_format=torch.channels_last)
    found = FakeMode().from_real(given).roll(shifts, dims)
    assert found.stride() == given.roll(shifts, dims).stride()


SCATTERED = {
    "transposed": lambda: torch.randn(6, 6).t(),
    "expanded": lambda: torch.randn(1, 6).expand(4, 6),
    "gaps": lambda: torch.randn(6, 6)[::2, ::2],
    "offset": lambda: torch.randn(6, 6)[1:4],
}


@pytest.mark.parametrize("make", SCATTERED.values(), ids=SCATTERED)
def test_scattering_to_a_diagonal_keeps_the_memory_behind(make):
    real = make()
    mode = FakeMode()
    fake = mode.from_real(real)
    with mode:
        found = torch.diagonal_scatter(fake, torch.ones_like(fake.diagonal()))
    expected = torch.diagonal_scatter(real, torch.ones_like(real.diagonal()))
    assert (found.stride(), found.storage_offset()) == (expected.stride(), expected.storage_offset())

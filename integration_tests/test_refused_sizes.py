"""What eager refuses of a size is refused where sizes are open and nobody reads the result, too."""

import pytest
import torch
import torch.nn.functional as F
import tracework

REFUSED = {
    "max_pool1d": lambda x: F.max_pool1d(x[..., 1:], 2),
    "max_pool2d": lambda x: F.max_pool2d(x[None][..., 1:], 2),
    "max_pool3d": lambda x: F.max_pool3d(x[None, None][..., 1:], (1, 1, 2)),
    "avg_pool1d": lambda x: F.avg_pool1d(x[..., 1:], 2),
    "avg_pool3d": lambda x: F.avg_pool3d(x[None, None][..., 1:], (1, 1, 2)),
    "conv1d": lambda x: F.conv1d(x[:, None][..., 1:], torch.ones(1, 1, 2)),
    "conv2d": lambda x: F.conv2d(x[None, None], torch.ones(1, 1, 1, 3)),
    "conv_transpose1d": lambda x: F.conv_transpose1d(x[:, None], torch.ones(1, 1, 1), padding=2),
    "topk": lambda x: x[..., 1:].topk(2, -1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_windows_that_do_not_fit(name):
    def step(x):
        REFUSED[name](x)
        return x + 1

    compiled = tracework.compile(step)
    for width in 7, 9, 8:
        compiled(torch.ones(4, width))
    with pytest.raises(RuntimeError):
        step(torch.ones(4, 2))
    with pytest.raises(RuntimeError):
        compiled(torch.ones(4, 2))


@pytest.mark.parametrize("weight", [torch.ones(4, 1, 1), torch.ones(0, 1, 1)])
def test_convolutions_without_a_result(weight):
    def step(x):
        return F.conv_transpose1d(x[None], weight, padding=2)

    with pytest.raises(RuntimeError):
        step(torch.ones(len(weight), 4))
    with pytest.raises(RuntimeError):
        tracework.compile(step)(torch.ones(len(weight), 4))


@pytest.mark.parametrize(
    "squeeze", [lambda x: x.squeeze(), lambda x: x.squeeze(1), lambda x: x.squeeze((0, 2)), lambda x: x.squeeze_()]
)
def test_sizes_that_are_computed_and_turn_out_to_be_one(squeeze):
    """Fakes decide it; what comes behind is told by their sizes."""

    def step(x):
        return squeeze(torch.bmm(x[::2][None], x[::2].t()[None]))

    compiled = tracework.compile(step)
    for rows in 4, 7, 5, 2, 1:
        torch.testing.assert_close(compiled(torch.ones(rows, 3)), step(torch.ones(rows, 3)))


def test_a_gradient_that_divides_by_a_size_which_is_zero_now():
    def program(x):
        return x[..., ::2].var(-1)

    compiled = tracework.compile(program, dynamic=True, backend="aot_eager")
    for size in (4, 6, 1, 2):  # one number is left of the last two: its variance is 0 / 0
        x = torch.randn(3, size, requires_grad=True)
        found, expected = (torch.autograd.grad(function(x).sum(), x)[0] for function in (compiled, program))
        torch.testing.assert_close(found, expected, equal_nan=True)


def test_a_roll_of_nothing():
    def program(x):
        return 1 / x[..., 1:].roll(1, -1)

    assert tracework.compile(program, dynamic=False)(torch.ones(3, 1)).shape == (3, 0)

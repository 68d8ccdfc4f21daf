"""Rows that stand in for meta kernels of torch which are written in Python, and load torch._dynamo when they first run."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tracework_primops import FakeMode, TensorSpec, _torch

aten = torch.ops.aten
GPU = torch.device("cuda", 0)
SIZES = (2, 4, 3, 5)
LAYOUTS = {
    "row-major": lambda t: t.contiguous(),
    "channels-last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "turned": lambda t: t.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0),
    "every second": lambda t: torch.stack([t, t], -1)[..., 0],
}


def group_norm_backward(g, x, w, mask=(True, True, True)):
    statistics = torch.ones(2, 2, dtype=torch.promote_types(x.dtype, w.dtype))
    return aten.native_group_norm_backward(g, x, statistics, statistics, w, 2, 4, 15, 2, list(mask))


def batch_norm(x, w, training):
    """As a graph without writes has it."""
    return aten._native_batch_norm_legit_functional(x, w, w, w * 2, w * 3, training, 0.1, 1e-5)


def nll(x, total):
    pixels = x[:, 0].contiguous()
    return aten.nll_loss2d_backward(pixels, x, pixels.to(torch.int64), None, 0, -100, total)


IMAGES = {
    "binary_cross_entropy": lambda g, x, t: aten.binary_cross_entropy_backward(g, x, t, None, 0),
    "binary_cross_entropy, weighted": lambda g, x, t: aten.binary_cross_entropy_backward(g.sum(), x, t, x, 1),
    "soft_margin_loss": lambda g, x, t: aten.soft_margin_loss_backward(g, x, t, 0),
    "log_sigmoid": lambda g, x, t: aten.log_sigmoid_backward(g, x, t.contiguous()),
    "rrelu, training": lambda g, x, t: aten.rrelu_with_noise_backward(g, x, t, 0.1, 0.3, True, False),
    "rrelu": lambda g, x, t: aten.rrelu_with_noise_backward(g, x, t, 0.1, 0.3, False, False),
    "glu": lambda g, x, t: aten.glu_backward(g[:, :2], x, 1),
    "glu of rows": lambda g, x, t: aten.glu_backward(g[:1], x, 0),
    "nll_loss2d": lambda g, x, t: nll(x, t.sum()),
}


def made(fake):
    """Metadata of all results, or the error."""
    try:
        found = fake()
    except RuntimeError as error:
        return str(error)
    found = found if isinstance(found, (tuple, list)) else [found]
    return [None if x is None else (tuple(x.shape), tuple(x.stride()), x.dtype) for x in found]


def as_eager(program, *inputs):
    """What fakes give, compared with eager."""
    mode = FakeMode()
    with mode:
        found = made(lambda: program(*map(mode.from_real, inputs)))
    assert found == made(lambda: program(*inputs))
    return found


@pytest.mark.parametrize("layouts", list(itertools.product(LAYOUTS, repeat=3)), ids=", ".join)
@pytest.mark.parametrize("name", IMAGES)
def test_gradients_are_laid_out_as_in_eager(name, layouts):
    as_eager(IMAGES[name], *(LAYOUTS[layout](torch.rand(SIZES)) for layout in layouts))


DTYPES = [(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32)]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["row-major", "channels-last", "every second"])
def test_batch_norm_and_its_new_statistics_are_as_in_eager(layout, dtypes, training):
    x, w = LAYOUTS[layout](torch.rand(SIZES, dtype=dtypes[0])), torch.ones(4, dtype=dtypes[1])
    as_eager(lambda x, w: batch_norm(x, w, training), x, w)


@pytest.mark.parametrize("mask", list(itertools.product([False, True], repeat=3)), ids=str)
@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["row-major", "channels-last"])
def test_the_gradient_of_group_norm_is_as_in_eager(layout, dtypes, mask):
    if layout == "channels-last" and not mask[0]:
        pytest.skip("eager's kernel writes the gradient of the image all the same, to no memory")
    g, x = (LAYOUTS[layout](torch.rand(SIZES, dtype=dtypes[0])) for _ in range(2))
    as_eager(lambda g, x, w: group_norm_backward(g, x, w, mask), g, x, torch.ones(4, dtype=dtypes[1]))


def on_gpu(mode, x):
    return mode.make(TensorSpec(x.dtype, GPU, tuple(x.shape), tuple(x.stride())))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("layouts", list(itertools.product(LAYOUTS, repeat=2)), ids=", ".join)
def test_group_norm_backward_takes_only_what_eagers_kernel_reads_as_it_lies(layouts, device):
    """Of operands that lie otherwise than they are read eager makes wrong numbers, before the release in which it takes any order."""
    mode = FakeMode()
    into = mode.from_real if device == "cpu" else lambda x: on_gpu(mode, x)
    g, x = (into(LAYOUTS[layout](torch.rand(SIZES))) for layout in layouts)
    w, statistics = into(torch.ones(4)), into(torch.ones(2, 2))
    found = made(lambda: aten.native_group_norm_backward(g, x, statistics, statistics, w, 2, 4, 15, 2, [True] * 3))
    alike = layouts == ("row-major",) * 2 or (device == "cpu" and layouts == ("channels-last",) * 2)
    assert isinstance(found, list) is (alike or _torch.GROUP_NORM_GRADIENT_TAKES_ANY_ORDER)
    if alike:
        assert found[0][:2] == (SIZES, tuple(x.stride()))
    elif device == "cpu" and _torch.GROUP_NORM_GRADIENT_TAKES_ANY_ORDER:
        real = (LAYOUTS[layout](torch.rand(SIZES)) for layout in layouts)
        assert found == made(lambda: group_norm_backward(*real, torch.ones(4)))


PRELU = """
import sys, torch
from tracework_primops import FakeMode
mode = FakeMode()
x, weight = (mode.from_real(torch.ones(n)) for n in (3, 1))
torch.ops.aten._prelu_kernel_backward(x, x, weight)
print("torch._dynamo" in sys.modules)
"""
OF_IMAGES = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import test_rows_of_gradients as rows
from tracework_primops import FakeMode
mode = FakeMode()
x, w = mode.from_real(torch.rand(rows.SIZES)), mode.from_real(torch.ones(4))
with mode:
    for program in rows.IMAGES.values():
        program(x, x, x)
    rows.group_norm_backward(x, x, w)
    rows.batch_norm(x, w, True)
print("torch._dynamo" in sys.modules)
"""


def test_gradients_of_images_load_no_other_compiler():
    command = [sys.executable, "-c", OF_IMAGES, str(Path(__file__).parent)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert run.stdout.strip() == "False"


def test_the_gradient_of_prelu_is_laid_out_as_in_eager():
    given = torch.ones(2, 3, 4).transpose(0, 2), torch.ones(4, 3, 2), torch.ones(1, 3, 1)
    mode = FakeMode()
    found = torch.ops.aten._prelu_kernel_backward(*map(mode.from_real, given))
    for fake, real in zip(found, torch.ops.aten._prelu_kernel_backward(*given)):
        assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


def test_the_gradient_of_prelu_loads_no_other_compiler():
    assert (
        subprocess.run([sys.executable, "-c", PRELU], capture_output=True, text=True, check=True, timeout=300).stdout.strip()
        == "False"
    )


def test_an_index_into_a_number_has_one_element():
    mode = FakeMode()
    x, index = mode.from_real(torch.tensor(1.0)), mode.from_real(torch.tensor([0, 0]))
    with pytest.raises(RuntimeError, match="index"):
        x.scatter_add(0, index, x)

"""Operators behind a convolution, and whole programs, whose layouts are chosen for a GPU: nothing refuses, and results lie as eager's.

All but the last test need no GPU.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import tracework
from gpu_specs import artifacts, of_module, traced
from torch import nn
from tracework_aotautograd.layouts import choice, costs, lay_out

from benchmarks.micro.short_programs import PROGRAMS, Program

CHANNELS = 8
NAMED = {
    word: (lambda name: lambda y, s: getattr(F, name)(y))(word)
    for word in (
        "relu relu6 elu selu celu leaky_relu gelu silu mish hardswish hardtanh hardsigmoid hardshrink softshrink tanhshrink softsign "
        "softplus logsigmoid sigmoid tanh rrelu"
    ).split()
}


def of_rank(name, *args, **options):
    """The function whose name ends in the number of dims of the image: "max_pool" is max_pool2d."""
    return lambda y, s: getattr(F, f"{name}{y.ndim - 2}d")(y, *args, **options)


def places_of_largest(y):
    return of_rank("max_pool", 2, return_indices=True)(y, None)[1]


def channels(s, y):
    return s.view(-1, *[1] * (y.ndim - 2))


def linear_mode(y):
    return ("linear", "bilinear", "trilinear")[y.ndim - 3]


def tokens(y):
    return y.flatten(2).mT


def labels(y):
    return torch.zeros(y.shape[0], *y.shape[2:], dtype=torch.int64, device=y.device)


def windows(y):
    """A weight of as many channels as the image has, made of it."""
    part = y[:2, :, *[slice(3)] * (y.ndim - 2)]
    return part.repeat(4, *[1] * (y.ndim - 1))


def padded(mode):
    return lambda y, s: F.pad(y, (1, 2) * (y.ndim - 2), mode=mode)


OPERATORS = {
    # norms
    "batch norm": lambda y, s: F.batch_norm(y, None, None, s, s, True),
    "batch norm, statistics": lambda y, s: F.batch_norm(y, torch.zeros_like(s), torch.ones_like(s), s, s, True),
    "batch norm, evaluating": lambda y, s: F.batch_norm(y, torch.zeros_like(s), torch.ones_like(s), s, s, False),
    "group norm": lambda y, s: F.group_norm(y, 2, s, s), "group norm, plain": lambda y, s: F.group_norm(y, 4),
    "instance norm": lambda y, s: F.instance_norm(y, weight=s, bias=s), "layer norm": lambda y, s: F.layer_norm(y, y.shape[1:]),
    "layer norm of channels": lambda y, s: F.layer_norm(y.movedim(1, -1), (CHANNELS,), s, s).movedim(-1, 1),
    "rms norm": lambda y, s: F.rms_norm(y, y.shape[2:]), "local response": lambda y, s: F.local_response_norm(y, 3),
    "normalize": lambda y, s: F.normalize(y, dim=1),
    # pools
    "max pool": of_rank("max_pool", 3, 2, 1), "avg pool": of_rank("avg_pool", 3, 2, 1), "lp pool": of_rank("lp_pool", 2, 2),
    "max unpool": lambda y, s: of_rank("max_unpool", places_of_largest(y), 2)(of_rank("max_pool", 2)(y, s), s),
    "adaptive avg": of_rank("adaptive_avg_pool", 3), "adaptive max": of_rank("adaptive_max_pool", 3),
    "gated": lambda y, s: y * torch.sigmoid(of_rank("adaptive_avg_pool", 1)(y, s)),
    # resampling
    "nearest": lambda y, s: F.interpolate(y, scale_factor=2.0),
    "nearest exact": lambda y, s: F.interpolate(y, scale_factor=2.0, mode="nearest-exact"),
    "linear": lambda y, s: F.interpolate(y, scale_factor=1.5, mode=linear_mode(y)),
    "linear, corners": lambda y, s: F.interpolate(y, size=[9] * (y.ndim - 2), mode=linear_mode(y), align_corners=True),
    "bicubic": lambda y, s: F.interpolate(y, scale_factor=1.5, mode="bicubic"),
    "antialiased": lambda y, s: F.interpolate(y, scale_factor=0.5, mode="bilinear", antialias=True),
    "area": lambda y, s: F.interpolate(y, size=[5] * (y.ndim - 2), mode="area"),
    "grid": lambda y, s: F.grid_sample(y, y[:, :2].movedim(1, -1), align_corners=False),
    "pixel shuffle": lambda y, s: F.pixel_shuffle(y, 2), "pixel unshuffle": lambda y, s: F.pixel_unshuffle(y[..., :8, :8], 2),
    "channel shuffle": lambda y, s: F.channel_shuffle(y, 2), "unfold": lambda y, s: F.unfold(y, 3),
    "fold": lambda y, s: F.fold(F.unfold(y, 3), y.shape[2:], 3),
    # padding and joining
    **{f"pad {mode}": padded(mode) for mode in ("constant", "reflect", "replicate", "circular")},
    "crop": lambda y, s: F.pad(y, (-1, -2) * (y.ndim - 2)), "pad channels": lambda y, s: F.pad(y, (0, 0) * (y.ndim - 2) + (1, 1)),
    "cat": lambda y, s: torch.cat([y, y.relu()], 1), "stack": lambda y, s: torch.stack([y, y.relu()], 1),
    "chunk": lambda y, s: torch.cat(y.chunk(2, 1)[::-1], 1), "roll": lambda y, s: y.roll(1, 2), "flip": lambda y, s: y.flip(2),
    "repeat": lambda y, s: y.repeat(1, 2, *[1] * (y.ndim - 2)), "index": lambda y, s: y[:, [0, 3, 1]],
    "gather": lambda y, s: y.gather(1, torch.zeros_like(y, dtype=torch.int64)), "diagonal": lambda y, s: y.diagonal(dim1=1, dim2=2),
    # softmax and losses
    "softmax": lambda y, s: y.softmax(1), "softmax of rows": lambda y, s: y.softmax(-1), "log softmax": lambda y, s: y.log_softmax(1),
    "logsumexp": lambda y, s: y.logsumexp(1, keepdim=True), "cross entropy": lambda y, s: F.cross_entropy(y, labels(y)),
    "nll": lambda y, s: F.nll_loss(y.log_softmax(1), labels(y), reduction="none"), "mse": lambda y, s: F.mse_loss(y, y * 2),
    "smooth l1": lambda y, s: F.smooth_l1_loss(y, y * 2, reduction="none"), "huber": lambda y, s: F.huber_loss(y, y * 2),
    "binary cross entropy": lambda y, s: F.binary_cross_entropy(y.sigmoid(), torch.ones_like(y), reduction="none"),
    "margin": lambda y, s: F.soft_margin_loss(y, torch.ones_like(y), reduction="none"),
    # attention and products
    "attention": lambda y, s: F.scaled_dot_product_attention(*[tokens(y).unflatten(2, (2, 4)).transpose(1, 2)] * 3),
    "attention written out": lambda y, s: ((tokens(y) @ tokens(y).mT).softmax(-1) @ tokens(y)).mT.reshape(y.shape),
    "linear layer": lambda y, s: F.linear(y.movedim(1, -1), torch.ones(5, CHANNELS, dtype=y.dtype, device=y.device)),
    "flat": lambda y, s: y.flatten(1) @ y.flatten(1).T,
    "transposed convolution": lambda y, s: getattr(F, f"conv_transpose{y.ndim - 2}d")(y, windows(y)[:, :3], stride=2),
    "depthwise": lambda y, s: getattr(F, f"conv{y.ndim - 2}d")(y, windows(y)[:, :1], groups=CHANNELS),
    # reductions, scans, sorts
    "sum": lambda y, s: y.sum(1), "var": lambda y, s: y.var(2), "amax": lambda y, s: y.amax(1), "argmax": lambda y, s: y.argmax(1),
    "max": lambda y, s: y.max(1)[0], "topk": lambda y, s: y.topk(3, 1)[0], "sort": lambda y, s: y.sort(1)[0],
    "cumsum": lambda y, s: y.cumsum(1), "cummax": lambda y, s: y.cummax(1)[0], "norm": lambda y, s: y.norm(dim=1),
    "median": lambda y, s: y.median(1)[0], "cosine": lambda y, s: F.cosine_similarity(y, y * 2, 1),
    # elementwise
    **NAMED,
    "prelu": lambda y, s: F.prelu(y, s), "glu": lambda y, s: F.glu(y, 1), "dropout": lambda y, s: F.dropout(y, 0.5, True),
    "where": lambda y, s: torch.where(y > 0, y, channels(s, y)), "clamp": lambda y, s: y.clamp(0, 1), "half": lambda y, s: y.half(),
    "lerp": lambda y, s: torch.lerp(y, y * 2, 0.5), "fft": lambda y, s: torch.fft.rfft(y.float() if y.dtype.itemsize < 4 else y).abs(),
    # views and writes
    "view": lambda y, s: y.view(y.shape[0], -1), "permuted": lambda y, s: y.movedim(1, -1) * 2, "every second": lambda y, s: y[..., ::2],
    "as strided": lambda y, s: torch.as_strided(y.sin(), (2, 5), (3, 1)), "written": lambda y, s: y.mul(2).add_(channels(s, y)),
    "a part written": lambda y, s: y.sin().slice_scatter(y[:, :2] * 2, 1, 0, 2), "scatter": lambda y, s: y.scatter(1, labels(y)[:, None], y[:, :1]),
    "channels-last asked for": lambda y, s: y.contiguous(memory_format=torch.channels_last).relu(),
}  # fmt: skip
"""Name -> what stands between two convolutions, of an image and a vector of its channels."""
OF_IMAGES = {"bicubic", "antialiased", "grid", "pixel shuffle", "pixel unshuffle", "unfold", "fold", "channels-last asked for"}
"""Only for two dims."""
CALLS = [(name, rank) for name in OPERATORS for rank in (1, 2, 3) if rank == 2 or name not in OF_IMAGES]


def behind_a_convolution(name):
    """Convolution, operator, and again a convolution where the result is an image of as many channels."""

    def program(x, w, s, v):
        convolution = getattr(F, f"conv{x.ndim - 2}d")
        y = convolution(x, w)
        z = OPERATORS[name](y, s)
        again = z.dtype == y.dtype and z.ndim == y.ndim and z.shape[1] == CHANNELS and min(z.shape[2:]) >= 3
        return (convolution(z, v), z.square().sum()) if again else (z,)

    return program


def inputs_of(rank, dtype, training, device):
    torch.manual_seed(0)
    sizes = (4, 3, *[12] * rank), (CHANNELS, 3, *[3] * rank), (CHANNELS,), (CHANNELS, CHANNELS, *[3] * rank)
    return [torch.rand(size, dtype=dtype, device=device).requires_grad_(training) for size in sizes]


@pytest.fixture
def tf32():
    before = torch.backends.cudnn.conv.fp32_precision
    torch.backends.cudnn.conv.fp32_precision = "tf32"
    yield
    torch.backends.cudnn.conv.fp32_precision = before


@pytest.fixture
def however_small(tf32, monkeypatch):
    """Every convolution is to lie channels-last."""
    monkeypatch.setattr(costs, "RATES", {key: costs.Rate(1e6) for key in costs.RATES})
    monkeypatch.setattr(costs, "PRICES", {"cuda": dataclasses.replace(costs.PRICES["cuda"], launch=0.0, least_gain=-1.0)})


def strides(value):
    return [tuple(x.stride()) for x in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(x, torch.Tensor)]


@pytest.mark.parametrize("training", [False, True], ids=["", "training"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("name", "rank"), CALLS)
def test_no_operator_refuses(name, rank, dtype, training, however_small):
    graph = (joint := traced(behind_a_convolution(name), inputs_of(rank, dtype, training, "meta"))).graph.graph
    (output,) = (n for n in graph.nodes if n.op == "output")
    eagers = [n and strides(n.meta["val"]) for n in output.args[0]]
    chosen = choice.choose(graph)
    lay_out(joint.graph)
    graph.lint()
    assert [n and strides(n.meta["val"]) for n in output.args[0]] == eagers
    assert chosen or (rank != 2 and dtype == torch.float32), "no layout was changed"
    for node in graph.nodes:
        if node.all_input_nodes and isinstance(node.target, torch._ops.OpOverload) and node.target not in choice.CONVOLUTIONS:
            assert strides(choice.run(node)) == strides(node.meta["val"]), node.format_node()


@pytest.mark.parametrize("training", [False, True], ids=["", "training"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_short_programs_are_compiled(name, dtype, training, tf32):
    row = PROGRAMS[name]
    program, inputs = of_module(Program(row.layers(), row.then), torch.empty(row.sizes, dtype=dtype, device="meta"), training)
    made = artifacts(traced(program, inputs))
    assert len(made) == (2 if any(x.requires_grad for x in inputs) else 1)
    assert all(kernel.language == "triton" for artifact in made for kernel in artifact.kernels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_indices_of_pools_are_kept_in_few_bits(dtype, tf32):
    """Which the kernels that pool write, and the kernels that gather gradients read."""
    layers = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    made = artifacts(traced(*of_module(layers, torch.empty(64, 3, 224, 224, dtype=dtype), True)))
    assert len(made) == 2
    for artifact in made:
        assert any("*i16" in kernel.signature for kernel in artifact.kernels)
        assert not any("*i64" in kernel.signature for kernel in artifact.kernels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["depthwise", "of one tap"])
def test_the_gradient_of_a_weight_alone_is_computed_channels_last(name, dtype, tf32):
    """From images that are written so at once."""
    first = {"depthwise": nn.Conv2d(96, 96, 3, padding=1, groups=96), "of one tap": nn.Conv2d(96, 96, 1)}[name]
    layers = nn.Sequential(first, nn.SiLU())
    _, backward = artifacts(traced(*of_module(layers, torch.empty(64, 96, 56, 56, dtype=dtype), True)))
    assert "(301056, 1, 5376, 96, )" in backward.host_source and "(301056, 3136, " not in backward.host_source


TRAINING_STEP = """
import sys
import torch
from torch import nn
sys.path.insert(0, sys.argv[1])
from gpu_specs import artifacts, of_module, traced
torch.backends.cudnn.conv.fp32_precision = "tf32"
layers = [nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.GroupNorm(8, 64), nn.SiLU(), nn.MaxPool2d(2)]
layers += [nn.Conv2d(64, 64, 3), nn.GLU(1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10), nn.LogSoftmax(1)]
made = artifacts(traced(*of_module(nn.Sequential(*layers), torch.empty(64, 3, 64, 64), True)))
print(len(made), *(name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules))
"""


def test_compiling_a_step_of_training_loads_no_other_compiler():
    command = [sys.executable, "-c", TRAINING_STEP, str(Path(__file__).parent)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert run.stdout.split() == ["2"]


TIES = {*"argmax max topk sort cummax median grid".split()}
"""What equal or nearly equal values decide."""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", sorted({*OPERATORS} - {*NAMED, *TIES, "dropout"}))
def test_values_and_gradients_on_a_gpu(name, however_small):
    """Against float64 and eager, in the layouts of the user's results. Inputs are small integers, of which TF32 makes no others."""
    assert_near_eager(behind_a_convolution(name), "cuda")


def assert_near_eager(program, device):
    def results(fn, dtype):
        torch.manual_seed(0)
        given = [
            torch.randint(-3, 4, x.shape, device=device).to(dtype).requires_grad_() for x in inputs_of(2, dtype, True, "meta")
        ]
        found = fn(*given)
        roots = [x for x in found if x.requires_grad]
        return [*found, *(torch.autograd.grad([r.double().square().mean() for r in roots], given[:2]) if roots else ())]

    tracework.reset()
    found = results(tracework.compile(program, fullgraph=True, options={"cache": False}), torch.float32)
    for value, eager, exact in zip(found, results(program, torch.float32), results(program, torch.float64), strict=True):
        assert (value.dtype, value.shape, value.stride()) == (eager.dtype, eager.shape, eager.stride())
        error, eagers = ((x.double() - exact).norm() for x in (value, eager))
        assert error <= 4 * eagers + 2e-3 * exact.double().norm()

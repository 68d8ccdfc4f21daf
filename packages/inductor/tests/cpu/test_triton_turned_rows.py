"""Reductions whose rows do not lie as the widest buffers do: the direction in which they are walked, and values through Triton's interpreter."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from tracework_inductor import InductorOptions, lower, schedule  # noqa: E402
from tracework_inductor.codegen.triton import TritonRenderer  # noqa: E402
from tracework_inductor.codegen.triton.config import configs  # noqa: E402
from tracework_inductor.codegen.triton.shape import shape_of  # noqa: E402
from tracework_inductor.codegen.triton.tiling import tile  # noqa: E402
from tracework_inductor.schedule.plan import LoopKernel  # noqa: E402
from tracework_primops import prims  # noqa: E402
from triton_programs import graph_of, rendered  # noqa: E402

CUDA = torch.device("cuda", 0)


def in_rows(y):
    """The values in row-major order, as eager's norms of images give them."""
    flat = 1
    for n in y.shape:
        flat *= n
    return prims.reshape(prims.reshape(y, (flat,)), y.shape)


def of_groups(x, groups):
    n, c, h, w = x.shape
    return prims.reshape(x, (n, groups, c // groups, h, w))


def normal(y, dims):
    variance, mean = prims.var_mean(y, dims, 0, True)
    return prims.mul(prims.sub(y, mean), prims.rsqrt(prims.add(variance, 1e-5))), variance


def group_norm(x):
    return in_rows(normal(of_groups(x, 2), (2, 3, 4))[0])


def group_norm_and_variance(x):
    y, variance = normal(of_groups(x, 2), (2, 3, 4))
    return in_rows(y), variance


def group_norm_as_it_lies(x):
    return normal(of_groups(x, 2), (2, 3, 4))[0]


def instance_norm(x):
    return in_rows(normal(x, (2, 3))[0])


def softmax(x, dims):
    e = prims.exp(prims.sub(x, prims.amax(x, dims, True)))
    return prims.div(e, prims.sum(e, dims, True))


def softmax_of_groups(x):
    return in_rows(softmax(of_groups(x, 2), (2, 3, 4)))


def logsumexp_of_groups(x):
    return prims.logsumexp(of_groups(x, 2), (2, 3, 4), False)


def sums_of_groups(x):
    y = of_groups(x, 2)
    return (
        prims.sum(y, (2, 3, 4), False),
        prims.amin(y, (2, 3, 4), False),
        prims.prod(prims.add(prims.mul(y, 0.01), 1.0), (2, 3, 4), False),
    )


def places_in_groups(x):
    n, c, h, w = x.shape
    y = prims.reshape(x, (n, 2, c // 2 * h * w))
    return prims.argmax(y, 2, False), prims.argmin(y, 2, False)


def softmax_of_channels(x):
    return softmax(x, (1,))


def softmax_into_rows(x):
    return in_rows(softmax(prims.permute(x, (0, 2, 3, 1)), (3,)))


def norm_of_pixels(x):
    """And what it is of, as a convolution gives that to a norm, and to the norm's gradient."""
    y = prims.mul(x, 2.0)
    return normal(prims.permute(y, (0, 2, 3, 1)), (3,))[0], y


def sums_of_channels(x):
    y = prims.mul(x, 2.0)
    return prims.sum(prims.permute(y, (0, 2, 3, 1)), (0, 1, 2), False), y


def image(n, c, h, w, dtype=torch.float32, channels_last=True):
    x = torch.randn(n, c, h, w, generator=torch.Generator().manual_seed(0)).to(dtype)
    return x.to(memory_format=torch.channels_last) if channels_last else x


ROWS = {
    # program, input, the dimension along which its first reduction reads, elements of rows that lie beside other rows
    "group norm": (group_norm, lambda: image(2, 8, 24, 22), ("x", 4)),
    "group norm of three channels": (group_norm, lambda: image(2, 6, 24, 22), ("x", 3)),
    "group norm, bfloat16": (group_norm, lambda: image(2, 8, 24, 22, torch.bfloat16), ("x", 4)),
    "group norm, float64": (group_norm, lambda: image(1, 4, 24, 22, torch.float64), ("x", 2)),
    "group norm and its variance": (group_norm_and_variance, lambda: image(2, 6, 24, 22), ("x", 3)),
    "group norm as it lies": (group_norm_as_it_lies, lambda: image(2, 8, 32, 33), ("r", 1)),
    "group norm of rows": (group_norm, lambda: image(2, 8, 24, 22, channels_last=False), ("r", 1)),
    "group norm of few points": (group_norm, lambda: image(3, 8, 5, 7), ("r", 1)),
    "group norm of wide groups": (group_norm_as_it_lies, lambda: image(1, 64, 24, 22), ("r", 1)),
    "instance norm": (instance_norm, lambda: image(2, 8, 34, 34), ("x", 1)),
    "softmax of groups": (softmax_of_groups, lambda: image(2, 6, 24, 22), ("x", 3)),
    "logsumexp of long groups": (logsumexp_of_groups, lambda: image(1, 8, 80, 80), ("x", 4)),
    "sums of groups": (sums_of_groups, lambda: image(2, 10, 24, 22), ("x", 5)),
    "places in groups": (places_in_groups, lambda: image(2, 6, 24, 22), ("x", 3)),
    "softmax of channels": (softmax_of_channels, lambda: image(2, 19, 9, 8, channels_last=False), ("x", 1)),
    "softmax of channels, bfloat16": (softmax_of_channels, lambda: image(1, 4, 9, 16, torch.bfloat16, False), ("x", 1)),
    "softmax into rows": (softmax_into_rows, lambda: image(2, 19, 9, 8, channels_last=False), ("x", 1)),
    "norm of pixels": (norm_of_pixels, lambda: image(2, 19, 9, 8, torch.bfloat16), ("r", 1)),
    "sums of channels": (sums_of_channels, lambda: image(2, 19, 9, 8), ("x", 1)),
}


def kernels_of(program, *inputs):
    options, renderer = InductorOptions(), TritonRenderer()
    plan = schedule(lower(graph_of(program, *inputs, device=CUDA), options), options, renderer.capabilities)
    return [k for k in plan.kernels if isinstance(k, LoopKernel) and k.reduction_axes]


@pytest.mark.parametrize("name", ROWS)
def test_near_float64_and_walked_as_memory_lies(name, tmp_path):
    program, made, expected = ROWS[name]
    x = made()
    tiling = tile(kernels_of(program, x)[0])
    assert (tiling.contiguous, tiling.beside) == expected
    host, kernels = rendered(graph_of(program, x, device=CUDA))
    for before, after in (("empty_cuda", "empty_cpu as empty_cuda"), ("'cuda:0'", "'cpu'"), ("gpu_workspace", "workspace")):
        host = host.replace(before, after, 1)
    found = triton_interpreter.host_call(host, kernels, tmp_path)([x.clone(memory_format=torch.preserve_format)])
    eager, exact = graph_of(program, x).run(x), graph_of(program, x.double()).run(x.double())
    for value, plain, wanted in zip(found, eager, exact, strict=True):
        assert (value.dtype, value.shape, value.stride()) == (plain.dtype, plain.shape, plain.stride())
        if not value.is_floating_point():
            assert torch.equal(value, plain)
            continue
        error, eagers = ((v.double() - wanted).abs().max().item() for v in (value, plain))
        assert error <= 4 * eagers + 4 * torch.finfo(value.dtype).eps * wanted.abs().max().item()


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("program", [norm_of_pixels, sums_of_channels])
def test_what_is_walked_alike_is_one_kernel_whatever_the_order_of_its_dims(program, channels_last):
    options, x = InductorOptions(), image(2, 19, 9, 8, channels_last=channels_last)
    plan = schedule(lower(graph_of(program, x, device=CUDA), options), options, TritonRenderer.capabilities)
    assert len(plan.kernels) == 1, plan.refusals


@pytest.mark.parametrize("batch, channels, groups", [(64, 64, 64), (128, 64, 16), (2, 320, 32)])
def test_large_norms_fill_the_device_from_whole_pieces(batch, channels, groups):
    """Each stage reads and writes pieces of 128 bytes and more, in blocks for all multiprocessors."""

    def program(x):
        return in_rows(normal(of_groups(x, groups), (2, 3, 4))[0])

    x = torch.empty(batch, channels, 94, 94, device="meta").to(memory_format=torch.channels_last)
    kernel = kernels_of(program, x)[0]
    tiling = tile(kernel)
    config = configs(shape_of(kernel, tiling))[0]
    assert (tiling.contiguous, tiling.beside) == ("x", channels // groups)
    assert min(config.constants["XBLOCK"], config.constants["RBLOCK"]) * 4 >= 128
    launch = dict(TritonRenderer().render(kernel).launch)
    assert len(launch["entries"]) == 2 and "split" in launch["kind"]
    assert all(eval(grid, {}, config.constants) >= 4 * 132 for grid in launch["grids"])


@pytest.mark.parametrize("channels", [2, 5, 16, 64, 200])
def test_rows_beside_each_other_lie_within_a_warp(channels):
    """As long as it has registers: softmax of channels of images that lie plane by plane."""
    kernel = kernels_of(softmax_of_channels, torch.empty(64, channels, 100, 100, device="meta"))[0]
    config = configs(shape_of(kernel, tile(kernel)))[0]
    assert config.elements <= 64 * 32 * config.num_warps
    assert config.num_warps == 1 or channels > 64
    assert config.constants["XBLOCK"] * 4 >= 64

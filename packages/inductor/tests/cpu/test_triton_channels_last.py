"""Channels-last images around convolutions on a GPU: values through Triton's interpreter, and the order in which kernels walk memory."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch
from tracework_primops import prims
from tracework_primops.broadcasting import channels_last

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from tracework_inductor import InductorOptions, lower, schedule  # noqa: E402
from tracework_inductor.codegen.triton import TritonRenderer  # noqa: E402
from tracework_inductor.codegen.triton.tiling import tile  # noqa: E402
from tracework_inductor.schedule.plan import ExternKernel  # noqa: E402
from triton_programs import graph_of, rendered  # noqa: E402

CUDA = torch.device("cuda", 0)


def laid_out(graph, *calls):
    """The graph, with the images of these calls channels-last, as aotautograd's choice leaves them."""
    assert {*calls} <= {node.name for node in graph.graph.nodes}
    for node in graph.graph.nodes:
        if node.name in calls:
            spec = node.meta["spec"]
            parts = [
                s.replace(strides=channels_last(s.sizes)) if s is not None and s.ndim > 3 else s
                for s in (spec if isinstance(spec, tuple) else [spec])
            ]
            node.meta["spec"] = tuple(parts) if isinstance(spec, tuple) else parts[0]
    return graph


def settings(rank, **changed):
    return [changed.get(n, d) for n, d in (("stride", (1,) * rank), ("padding", (1,) * rank), ("dilation", (1,) * rank))]


def convolved(x, w, b, rank=2, transposed=False):
    return prims.convolution(x, w, b, *settings(rank), transposed, (0,) * rank, 1)


def norm(x, scale, shift):
    """Of inference."""
    sizes = (1, scale.sizes[0], *[1] * (x.ndim - 2))
    return prims.add(prims.mul(x, prims.reshape(scale, sizes)), prims.reshape(shift, sizes))


def conv_norm_relu(x, w, b, s):
    return prims.maximum(norm(convolved(x, w, b), s, b), 0.0)


def residual(x, w, b, s):
    y = prims.maximum(convolved(x, w, b), 0.0)
    return prims.add(convolved(y, w, None), y)


def pooled(x, w, b, s):
    y = prims.sigmoid(convolved(x, w, b))
    return prims.max_pool(y, (2, 2), (2, 2), (0, 0), (1, 1), False)[0]


def summed(x, w, b, s):
    return prims.sum(prims.tanh(convolved(x, w, b)), (2, 3), False), prims.amin(convolved(x, w, b), (1,), True)


def volume(x, w, b, s):
    x, w = (prims.expand(prims.unsqueeze(v, 2), (*v.sizes[:2], 3, *v.sizes[2:])) for v in (x, w))
    return prims.exp(convolved(x, w, b, 3))


def turned(x, w, b, s):
    return prims.maximum(convolved(x, prims.permute(w, (1, 0, 2, 3)), b, transposed=True), 0.0)


def gradients(x, w, b, s):
    y = prims.maximum(convolved(x, w, b), 0.0)
    of_x, of_w, _ = prims.convolution_backward(y, x, w, None, *settings(2), False, (0, 0), 1, [True, True, False])
    return prims.mul(of_x, 2.0), prims.mul(of_w, 2.0)


def gradient_of_the_weight(x, w, b, s):
    y = prims.maximum(convolved(x, w, b), 0.0)
    return prims.mul(prims.convolution_backward(y, x, w, None, *settings(2), False, (0, 0), 1, [False, True, False])[1], 2.0)


PROGRAMS = {
    "conv norm relu": (conv_norm_relu, ["convolution"]),
    "residual": (residual, ["convolution", "maximum", "convolution_1"]),
    "pool": (pooled, ["convolution", "sigmoid"]),
    "reductions": (summed, ["convolution", "convolution_1"]),
    "volume": (volume, ["convolution"]),
    "transposed": (turned, ["convolution"]),
    "gradients": (gradients, ["convolution", "maximum", "convolution_backward", "getitem", "getitem_1"]),
    "gradient of the weight": (gradient_of_the_weight, ["convolution", "maximum", "convolution_backward", "getitem"]),
}


def inputs():
    made = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=made) for s in ((2, 8, 16, 18), (8, 8, 3, 3), (8,), (8,))]


def graph_on(device, name):
    program, calls = PROGRAMS[name]
    args = inputs()
    return laid_out(graph_of(program, *args, device=device), *calls), args


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name, tmp_path):
    graph, args = graph_on(CUDA, name)
    host, kernels = rendered(graph)
    for before, after in (("empty_cuda", "empty_cpu as empty_cuda"), ("'cuda:0'", "'cpu'"), ("gpu_workspace", "workspace")):
        host = host.replace(before, after, 1)
    found = triton_interpreter.host_call(host, kernels, tmp_path)([a.clone() for a in args])
    wanted = graph_of(PROGRAMS[name][0], *args).run(*args)
    for value, exact in zip(found, wanted, strict=True):
        assert value.stride() == exact.stride()
        torch.testing.assert_close(value, exact, rtol=1e-4, atol=1e-4)


def across(kernel):
    """Buffers of images that a kernel reads or writes along no dimension of its tile."""
    tiling, found = tile(kernel), []
    fastest = [group.axes[-1] for group in tiling.groups if group.axes]
    for i in (i for p in kernel.passes for i in p.body.instructions if i.op in ("load", "store")):
        index = i.args[1] if isinstance(i.args[1], int) else i.args[1].substitute(tiling.merged)
        is_image = len(kernel.layouts[i.args[0]].sizes) > 3
        if is_image and not any(not isinstance(index, int) and index.coefficient(axis.var) == 1 for axis in fastest):
            found.append(i.args[0])
    return found


def kernels_of(graph):
    plan = schedule(lower(graph, InductorOptions()), InductorOptions(), TritonRenderer().capabilities)
    return [part for k in plan.kernels if not isinstance(k, ExternKernel) for part in getattr(k, "parts", (k,))]


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_walk_images_as_they_lie(name):
    kernels = kernels_of(graph_on(CUDA, name)[0])
    assert kernels and not [buffer for kernel in kernels for buffer in across(kernel)]


def test_between_convolutions_all_lies_alike():
    """Bias, norm and activation: one kernel with one dimension, all of whose images are walked from end to end."""

    def program(x, w, b, s):
        return convolved(prims.maximum(norm(convolved(x, w, b), s, b), 0.0), w, None)

    graph = laid_out(graph_of(program, *inputs(), device=CUDA), "convolution", "maximum", "convolution_1")
    (between,) = [k for k in kernels_of(graph) if len(list(k.passes[0].body.loads())) > 1]
    assert len(tile(between).groups) == 1 and not across(between)


def test_an_image_is_copied_once():
    """For all convolutions that read it channels-last, and so is a weight."""

    def program(x, w, b, s):
        return prims.add(convolved(x, w, b), convolved(x, w, s))

    graph = laid_out(graph_of(program, *inputs(), device=CUDA), "convolution", "convolution_1")
    copies = [k for k in kernels_of(graph) if {"load", "store"} == {i.op for p in k.passes for i in p.body.instructions}]
    assert len(copies) == 2

"""Which values of a graph lie channels-last, what is copied for that, and that results and gradients stay eager's."""

import contextlib
import dataclasses
import math

import pytest
import torch
import tracework_aotautograd as aot
import tracework_primops as primops
from torch.nn import functional as F
from tracework_aotautograd.layouts import apply, choice, costs, lay_out, table
from tracework_aotautograd.layouts.table import LAYOUTS, Asks

aten = torch.ops.aten
ON_GPU = costs.PRICES["cuda"]


@contextlib.contextmanager
def precision(word):
    """Of convolutions in float32."""
    before = torch.backends.cudnn.conv.fp32_precision
    torch.backends.cudnn.conv.fp32_precision = word
    try:
        yield
    finally:
        torch.backends.cudnn.conv.fp32_precision = before


@pytest.fixture
def gaining(monkeypatch):
    """As on a GPU in float32 with TF32."""
    monkeypatch.setattr(costs, "on_cpu", lambda x: False)
    monkeypatch.setattr(costs, "RATES", {("cpu", torch.float32): costs.Rate(5.8)})
    with precision("tf32"):
        yield


@pytest.fixture
def eager_to_change(monkeypatch):
    """Every convolution in float64 is to lie so, however small."""
    monkeypatch.setattr(costs, "RATES", {("cpu", torch.float64): costs.Rate(1e6)})
    monkeypatch.setattr(costs, "on_cpu", lambda x: False)
    monkeypatch.setattr(costs, "PRICES", {"cuda": dataclasses.replace(ON_GPU, move=1.0, launch=0.0, least_gain=-1.0)})


def traced(graph, fn, *inputs):
    trace = aot.trace_joint if any(x.requires_grad for x in inputs) else aot.trace_inference
    return trace(graph(fn, len(inputs)), list(inputs))


def laid_out(gm):
    """Lays a graph out; names of operators whose result lies otherwise than it did, or whose nodes are new, but for copies."""
    before = {node: apply._strides(node.meta.get("val")) for node in gm.graph.nodes}
    lay_out(gm)
    gm.graph.lint()
    nodes = [n for n in gm.graph.nodes if isinstance(n.target, torch._ops.OpOverload) and n.target is not aten.clone.default]
    changed = [n for n in nodes if before.get(n) != apply._strides(n.meta["val"])]
    return [n.target._schema.name.removeprefix("aten::") for n in changed]


def conv_relu_pool(x, a, b):
    return F.conv2d(F.max_pool2d(torch.relu(F.conv2d(x, a, padding=1)), 2), b).mean((2, 3))


IMAGES = (128, 16, 64, 64), (64, 16, 3, 3), (64, 64, 3, 3)
CASES = {
    # the library would lay out as much, in twice the time
    "one alone": (lambda x, a, b: F.conv2d(x, a), IMAGES, ["convolution"]),
    "one alone, as quick row-major": (lambda x, a, b: F.conv2d(x, a[:, :4], groups=4), IMAGES, []),
    "a bias is added while the result is turned": (lambda x, a, b: F.conv2d(x, a, b[:, 0, 0, 0]), IMAGES, ["convolution"]),
    "the result is small": (
        lambda x, a, b: F.gelu(F.conv2d(x, a)).mean((2, 3)), IMAGES, ["convolution", "gelu"],
    ),
    "pool between": (conv_relu_pool, IMAGES, ["convolution", "relu", "max_pool2d_with_indices", "convolution"]),
    "last loop writes eager's": (
        lambda x, a, b: torch.relu(F.conv2d(torch.relu(F.conv2d(x, a)), b)), IMAGES, ["convolution", "relu", "convolution"],
    ),
    "residual": (
        lambda x, a, b: torch.relu(F.conv2d(y := torch.relu(F.conv2d(x, a)), b, padding=1) + y).sum((2, 3)),
        IMAGES,
        ["convolution", "relu", "convolution", "add", "relu"],
    ),
    "grouped": (lambda x, a, b: F.conv2d(x, a[:, :4], groups=4).sum((2, 3)), IMAGES, ["convolution"]),
    "a grouped one between": (
        lambda x, a, b: F.conv2d(F.conv2d(F.conv2d(x, a), b[:, :4], groups=16), b).sum((2, 3)), IMAGES,
        ["convolution", "convolution", "convolution"],
    ),
    "transposed": (
        lambda x, a, b: F.gelu(F.conv_transpose2d(F.conv2d(x, a), b, stride=2)).sum((2, 3)), IMAGES,
        ["convolution", "convolution", "gelu"],
    ),
    "joined": (
        lambda x, a, b: F.conv2d(torch.cat([y := F.conv2d(x, a), torch.relu(y)], 1), b.repeat(1, 2, 1, 1)).sum((2, 3)), IMAGES,
        ["convolution", "relu", "cat", "convolution"],
    ),
    "an operator that wants eager's layout": (
        lambda x, a, b: torch.fft.rfft(F.conv2d(x, a)).abs().sum((2, 3)), IMAGES, ["convolution"],
    ),
    "views in parts": (
        lambda x, a, b: F.conv2d(torch.cat(F.conv2d(x, a).chunk(2, 1)[::-1], 1), b).sum((2, 3)), IMAGES,
        ["convolution", "split", "cat", "convolution"],
    ),
    "signals": (lambda x, a, b: F.conv1d(F.gelu(F.conv1d(x, a)), b).sum(2), ((64, 32, 4096), (64, 32, 3), (64, 64, 3)), []),
    "images of one row": (
        lambda x, a, b: F.conv2d(F.gelu(F.conv2d(x, a)), b).sum(2), ((64, 32, 1, 4096), (64, 32, 1, 3), (64, 64, 1, 3)), [],
    ),
    "a row's window": (lambda x, a, b: F.conv2d(x, a[:, :, :1]), IMAGES, ["convolution"]),
    "volumes without TF32": (
        lambda x, a, b: F.conv3d(torch.sigmoid(F.conv3d(x, a)), b).sum((2, 3, 4)), ((32, 8, 16, 32, 32), (16, 8, 3, 3, 3), (16, 16, 3, 3, 3)),
        [],
    ),
    "depthwise of a large window between": (
        lambda x, a, b: F.conv2d(torch.relu(F.conv2d(F.conv2d(x, a), b[:, :1].repeat(1, 1, 2, 2), groups=64)), b).sum((2, 3)), IMAGES,
        ["convolution", "relu", "convolution"],
    ),
    "depthwise, looped, between": (
        lambda x, a, b: F.conv2d(torch.relu(F.conv2d(F.conv2d(x, a), b[:, :1], padding=1, groups=64)), b).sum((2, 3)), IMAGES,
        ["convolution", "convolution", "relu", "convolution"],
    ),
    "depthwise alone": (lambda x, a, b: torch.relu(F.conv2d(x, a[:16, :1], groups=16)), IMAGES, []),
    "small": (conv_relu_pool, ((1, 3, 16, 16), (8, 3, 3, 3), (8, 8, 3, 3)), []),
    "patches of tokens": (
        lambda x, a, b: F.linear(F.conv2d(x, a, stride=8).flatten(2).transpose(1, 2), b).sum(1),
        ((64, 3, 128, 128), (192, 3, 8, 8), (192, 192)),
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_chosen(name, graph, gaining):
    fn, sizes, wanted = CASES[name]
    gm = traced(graph, lambda *args: (fn(*args),), *(torch.empty(s) for s in sizes)).graph
    assert laid_out(gm) == wanted


def test_signals_in_halves_are_images_of_one_row(graph, gaining, monkeypatch):
    monkeypatch.setattr(costs, "RATES", {("cpu", torch.bfloat16): costs.Rate(2.9)})
    sizes = (64, 32, 4096), (64, 32, 3), (64, 64, 3)
    inputs = [torch.empty(s, dtype=torch.bfloat16) for s in sizes]
    gm = traced(graph, lambda x, a, b: (F.conv1d(F.gelu(F.conv1d(x, a)), b).sum(2),), *inputs).graph
    as_images = "unsqueeze", "unsqueeze", "convolution", "squeeze"
    assert laid_out(gm) == [*as_images, "gelu", *as_images]


TRAINED = {
    "pool between": [
        *("convolution", "relu", "max_pool2d_with_indices", "convolution"),
        *("convolution_backward", "max_pool2d_with_indices_backward", "threshold_backward", "convolution_backward"),
    ],
    "small": [],
}


@pytest.mark.parametrize("name", TRAINED)
def test_chosen_with_gradients(name, graph, gaining):
    fn, (image, *weights), _ = CASES[name]
    inputs = [torch.empty(image), *(torch.empty(s, requires_grad=True) for s in weights)]
    joint = traced(graph, lambda *args: (fn(*args),), *inputs)
    assert laid_out(joint.graph) == TRAINED[name]
    halves = aot.partition(joint, aot.AotOptions())
    saved = [n.meta["val"] for n in halves.backwards[0].graph.graph.nodes if n.op == "placeholder" and n.meta["val"].ndim == 4]
    assert (name == "small") is not any(x.stride()[1] == 1 for x in saved)


ALONE = {"depthwise": ((128, 64, 64, 64), (64, 1, 3, 3)), "of one tap": ((128, 64, 64, 64), (128, 64, 1, 1))}
"""Image and weights of convolutions whose weight's gradient is the same in both layouts."""


@pytest.mark.parametrize("name", ALONE)
def test_the_gradient_of_a_weight_alone_reads_images_channels_last(name, graph, gaining):
    """As its cost says, though no result of it lies so; the image is copied once for all."""
    x, a = ALONE[name]
    inputs = torch.empty(x), torch.empty(a, requires_grad=True)
    gm = traced(graph, lambda x, a: (torch.sigmoid(F.conv2d(x, a, groups=x.shape[1] // a.shape[1])),), *inputs).graph
    laid_out(gm)
    (backward,) = (n for n in gm.graph.nodes if n.target is aten.convolution_backward.default)
    image = next(n for n in gm.graph.nodes if n.op == "placeholder" and n.meta["val"].shape == x)
    read = [n.meta["val"] for n in backward.args[:2]]
    assert [v.stride() for v in read] == [primops.broadcasting.channels_last(v.shape) for v in read]
    (copy,) = (n for n in image.users if n.target is aten.clone.default)
    (forward,) = (n for n in gm.graph.nodes if n.target is aten.convolution.default)
    looped = name == "depthwise"
    assert (forward.args[0], backward.args[1]) == (image if looped else copy, copy)


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradients_of_weights_alone_are_eagers(rank, name, check, real, eager_to_change):
    window = {"depthwise": (4, 1, *[3] * rank), "of one tap": (6, 4, *[1] * rank)}[name]

    def fn(x, a):
        return (torch.sigmoid(getattr(F, f"conv{rank}d")(x, a, groups=4 // a.shape[1])),)

    check(fn, real(2, 4, *[6] * rank).detach(), real(*window), second=False, channels_last=True)


@pytest.mark.parametrize("why", ["no row", "no TF32", "without the library"])
def test_graphs_stay_as_they_are(why, graph, gaining, monkeypatch):
    if why == "no row":
        monkeypatch.setattr(costs, "RATES", {})
    gm = traced(graph, lambda *args: (conv_relu_pool(*args),), *(torch.empty(s) for s in IMAGES)).graph
    before = str(gm.graph)
    settings = {"no TF32": precision("ieee"), "without the library": torch.backends.cudnn.flags(enabled=False)}
    with settings.get(why, contextlib.nullcontext()):
        assert laid_out(gm) == [] and str(gm.graph) == before


def test_what_is_given_as_a_view_is_one_of_a_copy_in_eagers_layout(graph, gaining):
    def fn(x, a, b):
        y = F.conv2d(x, a)
        return y[:, :8], F.conv2d(torch.relu(y), b).sum((2, 3))

    gm = traced(graph, fn, *(torch.empty(s) for s in IMAGES)).graph
    assert laid_out(gm) == ["convolution", "relu", "convolution"]
    (given, _) = next(iter(reversed(gm.graph.nodes))).args[0]
    assert given.target is aten.clone.default and given.meta["val"].is_contiguous()


PROGRAMS = {
    "convolutions": lambda x, a, b, s, t: F.conv2d(torch.relu(F.conv2d(x, a, padding=1)), b),
    "kept and given": lambda x, a, b, s, t: ((y := torch.exp(F.conv2d(x, a))), F.conv2d(y, b).flatten(1), y.sum((0, 1))),
    "batch norm": lambda x, a, b, s, t: F.conv2d(F.batch_norm(F.conv2d(x, a), None, None, s, t, True), b),
    "group norm": lambda x, a, b, s, t: F.conv2d(F.silu(F.group_norm(F.conv2d(x, a), 2, s, t)), b),
    "instance norm": lambda x, a, b, s, t: F.conv2d(F.instance_norm(F.conv2d(x, a), weight=s, bias=t), b),
    "layer norm of channels": lambda x, a, b, s, t: F.conv2d(
        F.layer_norm(F.conv2d(x, a).permute(0, 2, 3, 1), (6,), s, t).permute(0, 3, 1, 2), b
    ),
    "pools": lambda x, a, b, s, t: F.conv2d(F.avg_pool2d(F.max_pool2d(F.conv2d(x, a, padding=2), 2, 1), 2, 1), b),
    "mean pool": lambda x, a, b, s, t: F.adaptive_avg_pool2d(F.conv2d(x, a), 2) * s[:, None, None],
    "resized": lambda x, a, b, s, t: F.conv2d(
        F.interpolate(F.interpolate(F.conv2d(x, a), scale_factor=2.0), scale_factor=1.5, mode="bilinear"), b
    ),
    "joined, cut, padded": lambda x, a, b, s, t: F.conv2d(F.pad(torch.cat([(y := F.conv2d(x, a))[:, 2:], y[:, :2]], 1), (1, 1, 0, 2)), b),
    "split": lambda x, a, b, s, t: F.conv2d(
        torch.cat([(y := F.conv2d(x, a).chunk(2, 1))[1].exp(), torch.fft.ifft(y[0]).real], 1), b
    ),
    "given in parts": lambda x, a, b, s, t: (*torch.sin(F.conv2d(F.conv2d(x, a), b)).split(2, 1), x.sum()),
    "softmax": lambda x, a, b, s, t: torch.softmax(F.conv2d(x, a), 1).log_softmax(3) + s[:, None, None],
    "shuffled": lambda x, a, b, s, t: F.conv2d(F.pixel_unshuffle(F.pixel_shuffle(torch.cat([F.conv2d(x, a)] * 2, 1), 2), 2)[:, :6], b),
    "transposed": lambda x, a, b, s, t: F.conv_transpose2d(torch.tanh(F.conv_transpose2d(x, a.transpose(0, 1), stride=2)), b),
    "depthwise": lambda x, a, b, s, t: F.conv2d(F.hardswish(F.conv2d(x, a)), b[:, :1], groups=6),
    "gated": lambda x, a, b, s, t: (y := F.conv2d(x, a)) * torch.sigmoid(y.mean((2, 3), keepdim=True)) + y.amax(1, keepdim=True),
    "flat": lambda x, a, b, s, t: F.conv2d(x, a).flatten(1) @ torch.ones(216, 2, dtype=x.dtype),
    "mixed orders": lambda x, a, b, s, t: F.conv2d(x, a) + x.mT[:, :1, 1:-1, 1:-1],
    "written": lambda x, a, b, s, t: F.conv2d(F.conv2d(x, a).mul_(2).add_(s[:, None, None]), b),
    "by places of memory": lambda x, a, b, s, t: torch.as_strided(torch.sin(F.conv2d(x, a)), (2, 54), (216, 2), 1).exp(),
    "a part written": lambda x, a, b, s, t: torch.sin(F.conv2d(x, a)).select_scatter(t[0].expand(2, 6, 6), 1, 0),
}  # fmt: skip


def refused(node, value=lambda n: n.meta["val"]):
    """As `answered` says where every operator but a convolution takes only row-major operands."""
    operands = [x for n in node.all_input_nodes if isinstance(x := value(n), torch.Tensor)]
    takes = node.target in choice.CONVOLUTIONS or all(x.is_contiguous() for x in operands)
    return choice.run(node, value) if takes else None


@pytest.mark.parametrize("refuses", [False, True], ids=["", "refusing"])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_and_gradients_are_eagers(name, gradients, refuses, check, real, eager_to_change, monkeypatch):
    graphs = []
    for module in (apply, choice) if refuses else ():
        monkeypatch.setattr(module, "answered", refused)
    monkeypatch.setattr(aot.api, "lay_out", lambda gm, answers: graphs.append((gm, laid_out(gm))))
    inputs = [real(2, 3, 8, 8), real(6, 3, 3, 3), real(6, 6, 3, 3), real(6), real(6)]
    inputs = inputs if gradients else [x.detach() for x in inputs]

    def fn(*args):
        found = PROGRAMS[name](*args)
        return found if isinstance(found, tuple) else (found,)

    check(fn, *inputs, second=False, channels_last=True)
    ((gm, names),) = graphs
    assert "convolution" in names
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target not in choice.CONVOLUTIONS and node.target is not apply.operator.getitem:
            again = choice.run(node)
            assert apply._strides(again) == apply._strides(node.meta["val"]), node.format_node()


def test_a_graph_may_have_no_inputs(graph, gaining):
    def fn():
        x = torch.ones(64, 16, 32, 32)
        return F.conv2d(F.conv2d(x, torch.full((64, 16, 3, 3), 0.5)).relu(), torch.full((64, 64, 3, 3), 0.1)).mean((2, 3))

    assert "convolution" in laid_out(traced(graph, fn).graph)


@pytest.mark.parametrize("gradients", [False, True])
def test_volumes_are_eagers(gradients, check, real, eager_to_change):
    def fn(x, a, b):
        y = F.conv3d(x, a, padding=1)
        return F.conv_transpose3d(torch.sin(F.max_pool3d(y, 2)), b), F.avg_pool3d(y, 2)

    inputs = [real(2, 3, 4, 4, 4), real(6, 3, 3, 3, 3), real(6, 2, 2, 2, 2)]
    check(fn, *(inputs if gradients else [x.detach() for x in inputs]), second=False, channels_last=True)


@pytest.mark.parametrize("gradients", [False, True])
def test_signals_are_eagers(gradients, check, real, eager_to_change):
    def fn(x, a, b):
        y = F.conv1d(x, a, stride=2, padding=2, dilation=2)
        return torch.relu(F.conv_transpose1d(torch.sin(y), b, stride=3, output_padding=1)), y.mean(2)

    inputs = [real(2, 4, 12), real(6, 4, 3), real(6, 5, 3)]
    check(fn, *(inputs if gradients else [x.detach() for x in inputs]), second=False, channels_last=True)


@pytest.mark.parametrize("gradients", [False, True])
def test_signals_that_lie_channels_last_give_eagers_layout(gradients, check, real, eager_to_change):
    """Of which a convolution of images gives channels-last results from the beginning."""

    def fn(x, a):
        return F.conv1d(torch.sin(x).mT, a), F.conv_transpose1d(x.mT.exp(), a.transpose(0, 1))

    inputs = [real(2, 12, 4), real(6, 4, 3)]
    check(fn, *(inputs if gradients else [x.detach() for x in inputs]), second=False, channels_last=True)


FORWARD, IMAGE, WEIGHT = costs.Direction
KINDS = {
    "depthwise, looped": dict(channels=128, results=128, groups=128, looped=True),
    "depthwise, not measured": dict(channels=128, results=128, groups=128, transposed=True),
    "depthwise line, weight, TF32": dict(channels=128, results=128, window=(1, 4), groups=128, direction=WEIGHT, line=True),
    "depthwise, even window": dict(channels=128, results=128, window=(6, 6), groups=128),
    "depthwise, even window, image": dict(channels=128, results=128, window=(6, 6), groups=128, direction=IMAGE),
    "depthwise, even window, weight": dict(channels=128, results=128, window=(6, 6), groups=128, direction=WEIGHT, tf32=False),
    "depthwise, large window, weight, TF32": dict(channels=128, results=128, window=(7, 7), groups=128, direction=WEIGHT),
    "depthwise, weight": dict(channels=128, results=128, window=(7, 7), groups=128, direction=WEIGHT, tf32=False),
    "depthwise, image": dict(channels=128, results=128, groups=128, direction=IMAGE),
    "depthwise": dict(channels=128, results=128, groups=128),
    "grouped, not measured": dict(channels=128, results=128, groups=64),
    "narrow groups, weight": dict(channels=128, results=128, groups=32, direction=WEIGHT, tf32=False),
    "grouped line, image, TF32": dict(channels=128, results=128, groups=8, direction=IMAGE, line=True),
    "grouped, weight, TF32": dict(channels=128, results=128, groups=8, direction=WEIGHT),
    "grouped": dict(channels=128, results=128, groups=8),
    "volume": dict(channels=3, results=64, window=(3, 3, 3), tf32=False),
    "large window, TF32": dict(channels=16, results=64, window=(7, 7), strided=True),
    "padded results, TF32": dict(channels=64, results=3, window=(3, 3)),
    "line, image, TF32": dict(channels=64, results=64, direction=IMAGE, line=True),
    "line, weight, TF32": dict(channels=64, results=64, direction=WEIGHT, line=True),
    "line, few channels, TF32": dict(channels=64, results=128, line=True),
    "line, TF32": dict(channels=512, results=512, line=True),
    "few channels, weight, TF32": dict(channels=64, results=64, direction=WEIGHT),
    "padded channels, image, TF32": dict(channels=3, results=64, direction=IMAGE),
    "few channels, image, TF32": dict(channels=4, results=64, direction=IMAGE),
    "few channels": dict(channels=3, results=64),
    "more in than out": dict(channels=64, results=128, direction=IMAGE),
    "other": dict(channels=64, results=128),
}


@pytest.mark.parametrize("kind", costs.KINDS)
def test_kinds_of_convolutions(kind):
    assert costs.kind_of(costs.Convolution(**{"direction": FORWARD, "window": (3, 3), **KINDS[kind]})) == kind
    row, last = costs.times(costs.Work(kind, 10**13, 10**6, 10**6, 10**4, 2.9))
    assert last / row == pytest.approx(costs.KINDS[kind].ratio, rel=0.01)


@pytest.mark.parametrize("kind", costs.KINDS)
def test_a_convolution_that_only_moves_bytes_is_laid_out_anew_by_the_library(kind):
    row, last = costs.times(costs.Work(kind, 1, 10**11, 2 * 10**11, 0, 2.9))
    assert last == pytest.approx(3e11 * ON_GPU.move * costs.KINDS[kind].taken, rel=0.01)
    longer = 1 + 2 * ON_GPU.library_turn if costs.KINDS[kind].anew else 1 / costs.KINDS[kind].ratio
    assert row == pytest.approx(longer * last, rel=0.02)


@pytest.mark.parametrize("kind", [name for name, kind in costs.KINDS.items() if not kind.anew])
def test_small_convolutions_pay_for_a_launch_in_either_layout(kind):
    assert costs.times(costs.Work(kind, 1, 1, 1, 0, 2.9)) == pytest.approx((ON_GPU.launch, ON_GPU.launch), rel=0.001)


GPU = torch.device("cuda", 0)
MEASURED = {
    "conv": ((64, 3, 224, 224), 64, 7, 2, 3, 243),
    "conv relu": ((128, 16, 64, 64), 32, 3, 1, 0, 122),
    "conv norm relu": ((64, 32, 64, 64), 64, 3, 1, 1, 120),
    "conv min add mul": ((128, 64, 64, 64), 128, 3, 1, 0, 331),
    "conv sub tanh sub avg": ((64, 32, 96, 96), 64, 3, 1, 0, 254),
}
"""Programs of benchmarks/micro/short_programs.py -> image, results, window, stride, padding, and the microseconds that the convolution alone
takes longer row-major, on an H200 in TF32: eager's time less a copy of the result for each loop, against ours less the bytes of its loops at
0.86 of a copy's bandwidth."""


@pytest.mark.parametrize("name", MEASURED)
def test_what_row_major_images_cost_more_is_near_what_was_measured(name):
    sizes, results, window, stride, padding, more = MEASURED[name]
    size = (sizes[-1] + 2 * padding - window) // stride + 1
    with precision("tf32"):
        (work,) = costs.works(
            images(sizes, torch.float32),
            images((results, sizes[1], window, window), torch.float32),
            (sizes[0], results, size, size),
            False,
            1,
        )
    row, last = costs.times(work)
    assert (row - last) / 1e9 == pytest.approx(more, rel=0.3)


TOOK_ON_CPU = {
    "other": ((4, 24, 56, 56), (72, 24, 1, 1), (812, 766, 752), (280, 317, 270)),
    "wide": ((4, 512, 7, 7), (512, 512, 3, 3), (4086, 4893, 5703), (4729, 4639, 15150)),
    "wide 1x1": ((2, 2048, 7, 7), (512, 2048, 1, 1), (1085, 1176, 2667), (2652, 1147, 2904)),
    "depthwise": ((4, 72, 56, 56), (72, 1, 3, 3), (873, 915, 2025), (153, 186, 293)),
}
"""Kind, and what tells it apart -> image, weight, and microseconds of forward, gradient of the image and of the weight, row-major and
channels-last, on two cores."""


@pytest.mark.parametrize("kind", TOOK_ON_CPU)
def test_the_order_of_layouts_on_a_cpu(kind):
    x, w, *took = TOOK_ON_CPU[kind]
    tensors = [images(sizes, torch.float32, torch.device("cpu")) for sizes in (x, w)]
    for masks in (None, (True, True)):
        works = costs.works(*tensors, (x[0], w[0], *x[2:]), False, x[1] // w[1], masks)
        assert {work.kind for work in works} == {kind.split()[0]}
        row, last = (sum(parts) for parts in zip(*map(costs.times, works), strict=True))
        measured = [sum(times[1:] if masks else times[:1]) for times in took]
        assert (last < row) is (measured[1] < measured[0])


@pytest.mark.parametrize("trained", [False, True], ids=["inference", "trained"])
def test_a_cpus_graphs_are_laid_out_where_they_are_trained(trained, graph):
    inputs = [torch.randn(s, requires_grad=trained) for s in ((2, 24, 56, 56), (72, 24, 1, 1), (24, 72, 1, 1))]
    gm = traced(graph, lambda x, a, b: (F.conv2d(F.gelu(F.conv2d(x, a)), b).sum((2, 3)),), *inputs).graph
    forward = [name for name in laid_out(gm) if not name.endswith("backward")]
    assert forward[:3] == (["convolution", "gelu", "convolution"] if trained else [])


def test_channels_that_are_no_multiple_of_16_bytes_are_copied_in_any_layout():
    plain, padded = (costs.Work("few channels", 1, 10**9, 2 * 10**9, 0, 2.9, bytes_) for bytes_ in (0, 10**9))
    (row, last), (padded_row, padded_last) = costs.times(plain), costs.times(padded)
    assert padded_row == row and padded_last - last == pytest.approx(2e9 * ON_GPU.library_turn * ON_GPU.move, rel=0.01)


def images(sizes, dtype, device=GPU):
    return primops.FakeMode().make(primops.TensorSpec(dtype, device, sizes))


@pytest.mark.parametrize("sizes", [(2, 8, 9), (2, 8, 9, 9), (2, 8, 9, 9, 9)], ids=len)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_rates(dtype, sizes):
    half, x = dtype.itemsize == 2, images(sizes, dtype)
    known = half or (dtype == torch.float32 and len(sizes) < 5)
    with precision("tf32"):
        assert [costs.rate(x, groups) is not None for groups in (1, 2, 8)] == [known, known, half]
        assert (costs.rate(x, 8, depthwise=True) is not None) is known
        on_cpu = dtype == torch.float32 and len(sizes) == 4
        assert (costs.rate(images(sizes, dtype, torch.device("cpu")), 1) is not None) is on_cpu
    with precision("ieee"):
        assert (costs.rate(x, 1) is not None) is half


LOOPED = {
    "small window": ((8, 1, 3, 3), torch.float32, False, 8, True),
    "signal": ((8, 1, 9), torch.float32, False, 8, True),
    "large window": ((8, 1, 4, 4), torch.float32, False, 8, False),
    "half": ((8, 1, 3, 3), torch.bfloat16, False, 8, False),
    "transposed": ((8, 1, 3, 3), torch.float32, True, 8, False),
    "grouped": ((8, 4, 3, 3), torch.float32, False, 2, False),
    "several results of a channel": ((16, 1, 3, 3), torch.float32, False, 8, False),
}


@pytest.mark.parametrize("name", LOOPED)
def test_depthwise_convolutions_that_are_loops(name):
    sizes, dtype, transposed, groups, looped = LOOPED[name]
    x = images((2, 8, *[9] * (len(sizes) - 2)), dtype)
    assert costs.is_looped(x, images(sizes, dtype), transposed, groups) is looped


TF32, HALF = torch.float32, torch.bfloat16
CLASSES = {
    # image, weight, stride, padding, groups
    "line 3": ((64, 64, 1, 4096), (128, 64, 1, 3), (1, 1), (0, 1), 1),
    "line 7 s2": ((64, 32, 1, 8192), (64, 32, 1, 7), (1, 2), (0, 3), 1),
    "line 3, 512 channels": ((16, 512, 1, 1500), (512, 512, 1, 3), (1, 1), (0, 1), 1),
    "line grouped": ((64, 128, 1, 4096), (128, 16, 1, 5), (1, 2), (0, 2), 8),
    "1x7 of images": ((32, 64, 64, 64), (64, 64, 1, 7), (1, 1), (0, 3), 1),
    "7x1 of images": ((32, 64, 64, 64), (64, 64, 7, 1), (1, 1), (3, 0), 1),
    "long": ((16, 32, 4, 8192), (64, 32, 3, 3), (1, 1), (1, 1), 1),
    "first 3": ((64, 3, 224, 224), (64, 3, 7, 7), (2, 2), (3, 3), 1),
    "first 4": ((64, 4, 224, 224), (64, 4, 7, 7), (2, 2), (3, 3), 1),
    "first 8": ((64, 8, 224, 224), (64, 8, 7, 7), (2, 2), (3, 3), 1),
    "first 16": ((64, 16, 224, 224), (64, 16, 7, 7), (2, 2), (3, 3), 1),
    "8 channels": ((128, 8, 128, 128), (64, 8, 3, 3), (1, 1), (0, 0), 1),
    "16 channels": ((128, 16, 128, 128), (64, 16, 3, 3), (1, 1), (0, 0), 1),
    "depthwise 3": ((64, 96, 56, 56), (96, 1, 3, 3), (1, 1), (1, 1), 96),
    "depthwise 3 s2": ((64, 96, 112, 112), (96, 1, 3, 3), (2, 2), (1, 1), 96),
    "depthwise 5": ((64, 96, 56, 56), (96, 1, 5, 5), (1, 1), (2, 2), 96),
    "depthwise 7": ((64, 96, 56, 56), (96, 1, 7, 7), (1, 1), (3, 3), 96),
    "depthwise line 4": ((16, 256, 1, 4099), (256, 1, 1, 4), (1, 1), (0, 0), 256),
    "grouped": ((64, 128, 56, 56), (128, 16, 3, 3), (1, 1), (1, 1), 8),
    "16 channels, 7, stride 1": ((32, 16, 112, 112), (64, 16, 7, 7), (1, 1), (3, 3), 1),
    "16 channels, 5, stride 2": ((32, 16, 112, 112), (64, 16, 5, 5), (2, 2), (2, 2), 1),
    "12 channels, 7, stride 2": ((32, 12, 112, 112), (64, 12, 7, 7), (2, 2), (3, 3), 1),
    "24 channels, 7, stride 2": ((32, 24, 112, 112), (64, 24, 7, 7), (2, 2), (3, 3), 1),
    "32 channels, 7, stride 2": ((32, 32, 112, 112), (64, 32, 7, 7), (2, 2), (3, 3), 1),
    "48 channels, 7, stride 2": ((32, 48, 112, 112), (64, 48, 7, 7), (2, 2), (3, 3), 1),
    "16 channels, 5, stride 1": ((32, 16, 112, 112), (64, 16, 5, 5), (1, 1), (2, 2), 1),
    "groups of 4": ((32, 128, 56, 56), (128, 4, 3, 3), (1, 1), (1, 1), 32),
    "groups of 8": ((32, 128, 56, 56), (128, 8, 3, 3), (1, 1), (1, 1), 16),
    "groups of 32": ((32, 128, 56, 56), (128, 32, 3, 3), (1, 1), (1, 1), 4),
    "groups of 4, line": ((32, 128, 1, 4096), (128, 4, 1, 5), (1, 1), (0, 2), 32),
    "64 to 3": ((32, 64, 112, 112), (3, 64, 3, 3), (1, 1), (1, 1), 1),
    "3 to 64, 3x3": ((32, 3, 112, 112), (64, 3, 3, 3), (1, 1), (1, 1), 1),
    "256 to 256": ((32, 256, 28, 28), (256, 256, 3, 3), (1, 1), (1, 1), 1),
    "512 to 128, 1x1": ((32, 512, 28, 28), (128, 512, 1, 1), (1, 1), (0, 0), 1),
    "depthwise 6": ((32, 96, 56, 56), (96, 1, 6, 6), (1, 1), (3, 3), 96),
    "depthwise 5 s2": ((32, 96, 56, 56), (96, 1, 5, 5), (2, 2), (2, 2), 96),
    "depthwise line 9": ((16, 256, 1, 4096), (256, 1, 1, 9), (1, 1), (0, 4), 256),
}
TOOK = {
    ("line 3", TF32): ((156, 152), (189, 75), (243, 128)),
    ("line 7 s2", TF32): ((154, 361), (169, 88), (208, 163)),
    ("line 3, 512 channels", TF32): ((184, 114), (196, 119), (322, 253)),
    ("line grouped", TF32): ((177, 61), (767, 1046), (666, 688)),
    ("1x7 of images", TF32): ((98, 53), (164, 52), (134, 94)),
    ("7x1 of images", TF32): ((91, 43), (99, 52), (144, 149)),
    ("long", TF32): ((252, 114), (316, 198), (436, 386)),
    ("first 3", TF32): ((624, 406), (984, 1220), (537, 469)),
    ("first 4", TF32): ((569, 365), (858, 807), (530, 444)),
    ("first 8", TF32): ((663, 485), (1133, 851), (773, 714)),
    ("first 16", TF32): ((935, 2735), (1725, 1459), (1194, 1196)),
    ("8 channels", TF32): ((668, 371), (1102, 686), (777, 753)),
    ("16 channels", TF32): ((775, 394), (1395, 1238), (1016, 1028)),
    ("depthwise 3", TF32): ((188, 61), (333, 72), (303, 62)),
    ("depthwise 3 s2", TF32): ((212, 102), (1211, 374), (313, 137)),
    ("depthwise 5", TF32): ((316, 142), (335, 144), (699, 116)),
    ("depthwise 7", TF32): ((635, 370), (824, 385), (1300, 4501)),
    ("depthwise line 4", TF32): ((171, 89), (155, 90), (114, 574)),
    ("grouped", TF32): ((241, 124), (247, 127), (446, 467)),
    ("line 3", HALF): ((140, 40), (134, 41), (133, 45)),
    ("line 7 s2", HALF): ((107, 36), (126, 59), (147, 79)),
    ("line 3, 512 channels", HALF): ((128, 65), (122, 59), (126, 67)),
    ("line grouped", HALF): ((133, 43), (212, 116), (136, 53)),
    ("1x7 of images", HALF): ((63, 31), (63, 31), (69, 37)),
    ("7x1 of images", HALF): ((65, 31), (64, 34), (70, 36)),
    ("long", HALF): ((167, 62), (210, 115), (248, 151)),
    ("first 3", HALF): ((639, 453), (1090, 921), (483, 306)),
    ("first 4", HALF): ((641, 457), (766, 473), (486, 309)),
    ("first 8", HALF): ((1878, 441), (767, 503), (475, 249)),
    ("first 16", HALF): ((649, 411), (1021, 828), (716, 486)),
    ("8 channels", HALF): ((995, 548), (681, 322), (515, 198)),
    ("16 channels", HALF): ((604, 268), (656, 319), (625, 303)),
    ("depthwise 3", HALF): ((186, 43), (326, 68), (305, 53)),
    ("depthwise 3 s2", HALF): ((201, 76), (1220, 248), (307, 107)),
    ("depthwise 5", HALF): ((333, 77), (382, 137), (706, 89)),
    ("depthwise 7", HALF): ((664, 145), (870, 341), (1314, 133)),
    ("depthwise line 4", HALF): ((174, 57), (156, 58), (117, 675)),
    ("grouped", HALF): ((175, 79), (176, 81), (165, 81)),
    ("16 channels, 7, stride 1", TF32): ((282, 224), (826, 733), (598, 601)),
    ("16 channels, 5, stride 2", TF32): ((176, 200), (156, 113), (166, 164)),
    ("12 channels, 7, stride 2", TF32): ((104, 87), (244, 203), (167, 160)),
    ("24 channels, 7, stride 2", TF32): ((220, 148), (247, 205), (229, 231)),
    ("32 channels, 7, stride 2", TF32): ((231, 161), (250, 199), (528, 518)),
    ("48 channels, 7, stride 2", TF32): ((546, 313), (255, 193), (707, 705)),
    ("16 channels, 5, stride 1", TF32): ((282, 200), (416, 469), (498, 496)),
    ("groups of 4", TF32): ((144, 83), (526, 83), (262, 276)),
    ("groups of 8", TF32): ((134, 73), (141, 76), (245, 252)),
    ("groups of 32", TF32): ((139, 75), (1801, 78), (265, 341)),
    ("groups of 4, line", TF32): ((145, 65), (526, 65), (466, 479)),
    ("64 to 3", TF32): ((220, 1409), (171, 142), (403, 337)),
    ("3 to 64, 3x3", TF32): ((89, 74), (145, 175), (138, 134)),
    ("256 to 256", TF32): ((148, 138), (144, 106), (232, 190)),
    ("512 to 128, 1x1", TF32): ((34, 34), (46, 39), (39, 40)),
    ("depthwise 6", TF32): ((297, 1557), (348, 418), (516, 1834)),
    ("depthwise 5 s2", TF32): ((49, 31), (208, 121), (103, 119)),
    ("depthwise line 9", TF32): ((207, 102), (206, 104), (231, 1641)),
    ("16 channels, 7, stride 1", HALF): ((282, 203), (487, 412), (288, 222)),
    ("16 channels, 5, stride 2", HALF): ((74, 37), (101, 65), (114, 81)),
    ("12 channels, 7, stride 2", HALF): ((98, 81), (123, 96), (114, 98)),
    ("24 channels, 7, stride 2", HALF): ((118, 80), (163, 149), (236, 195)),
    ("32 channels, 7, stride 2", HALF): ((124, 71), (165, 164), (208, 133)),
    ("48 channels, 7, stride 2", HALF): ((205, 150), (238, 224), (211, 158)),
    ("16 channels, 5, stride 1", HALF): ((193, 121), (296, 234), (321, 257)),
    ("groups of 4", HALF): ((106, 54), (117, 64), (161, 417)),
    ("groups of 8", HALF): ((113, 65), (114, 63), (99, 53)),
    ("groups of 32", HALF): ((106, 55), (101, 49), (111, 64)),
    ("groups of 4, line", HALF): ((129, 62), (135, 69), (627, 567)),
    ("64 to 3", HALF): ((167, 108), (156, 96), (160, 107)),
    ("3 to 64, 3x3", HALF): ((114, 138), (164, 122), (143, 104)),
    ("256 to 256", HALF): ((93, 55), (94, 69), (99, 70)),
    ("512 to 128, 1x1", HALF): ((47, 57), (60, 35), (77, 39)),
    ("depthwise 6", HALF): ((313, 981), (364, 379), (526, 756)),
    ("depthwise 5 s2", HALF): ((47, 27), (224, 78), (107, 33)),
    ("depthwise line 9", HALF): ((209, 70), (210, 76), (231, 132)),
}  # fmt: skip
"""Of CLASSES: microseconds of the library's forward, gradient of the image and gradient of the weight on an H200, row-major and
channels-last. Forward of depthwise ones in float32 is not the library's row-major: it is a loop."""
TIE = 1.16
CONVERTED = {("3 to 64, 3x3", HALF, 0), ("512 to 128, 1x1", HALF, 0)}
"""What is a little faster row-major, by figures of one size each: no rows are made of them."""
CELLS = [
    (*key, n)
    for key in TOOK
    for n in range(3)
    if (n or key[1] is HALF or "depthwise" not in key[0]) and (*key, n) not in CONVERTED
]


def works_of(name, dtype, direction, transposed=False):
    """Of a direction of one of CLASSES: 0 forward, 1 the image's gradient, 2 the weight's; transposed: of a transposed convolution whose
    image is the result of the one in the table."""
    x, w, stride, padding, groups = CLASSES[name]
    sides = ((n + 2 * p - window) // s + 1 for n, window, s, p in zip(x[2:], w[2:], stride, padding, strict=True))
    result = (x[0], w[0], *sides)
    if transposed:
        x, result = result, x
    masks = None, (True, False), (False, True)
    with precision("tf32"):
        return costs.works(images(x, dtype), images(w, dtype), result, transposed, groups, masks[direction])


@pytest.mark.parametrize(("name", "dtype", "direction"), CELLS)
def test_the_order_of_layouts_is_what_was_measured(name, dtype, direction):
    (work,) = works_of(name, dtype, direction)
    predicted, (row, last) = costs.times(work), TOOK[name, dtype][direction]
    if not 1 / TIE <= last / row <= TIE:
        assert (predicted[1] < predicted[0]) is (last < row)


@pytest.mark.parametrize("kind", [name for name, kind in costs.KINDS.items() if not kind.anew])
def test_rows_are_near_the_mean_of_what_was_measured(kind):
    found = [
        (costs.times(work), TOOK[name, dtype][n])
        for name, dtype, n in CELLS
        for work in works_of(name, dtype, n)
        if work.kind == kind
    ]
    assert bool(found) is (kind not in ("depthwise, looped", "depthwise, not measured", "grouped, not measured"))

    def mean(values):
        return math.prod(values) ** (1 / len(found))

    if found:
        assert mean([last / row for _, (row, last) in found]) == pytest.approx(costs.KINDS[kind].ratio, rel=0.15)
        assert 0.6 < mean([predicted[1] / 1e9 / last for predicted, (_, last) in found]) < 1.2


@pytest.mark.parametrize("name", [name for name in CLASSES if "depthwise" not in name])
def test_a_transposed_convolution_is_the_gradient_of_an_image(name):
    """And the gradient of its image is a convolution."""
    for direction, other in ((0, 1), (1, 0), (2, 2)):
        (direct,), (transposed,) = works_of(name, TF32, direction), works_of(name, TF32, other, transposed=True)
        assert (transposed.kind, transposed.read, transposed.written) == (direct.kind, direct.read, direct.written)


def test_lines_are_no_faster_channels_last_where_channels_are_few():
    """By which they would have to pay for copies of image and result."""
    for name in ("line 3", "line 7 s2"):
        (work,) = works_of(name, TF32, 0)
        row, last = costs.times(work)
        assert last >= row


FIRST = {torch.float64: None, torch.float32: (8, 0), torch.float16: (7, 0), torch.bfloat16: (8, 0)}


@pytest.mark.parametrize("capability", [(6, 1), (7, 0), (7, 5), (8, 0), (8, 9), (9, 0), (12, 0)], ids=str)
@pytest.mark.parametrize("dtype", FIRST, ids=str)
def test_only_dtypes_of_a_gpus_tensor_cores_gain(dtype, capability, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    with precision("tf32"):
        gains = costs.rate(images((2, 8, 9, 9), dtype), 1) is not None
    assert gains is (FIRST[dtype] is not None and capability >= FIRST[dtype])


@pytest.mark.parametrize("name", [name for name, what in LAYOUTS.items() if what is Asks.LOOP])
def test_what_is_a_loop_is_made_of_prims(name):
    packet = getattr(aten, name)
    assert any(getattr(packet, overload) in primops.DECOMPS for overload in packet.overloads())


def test_random_numbers_keep_eagers_layout(graph):
    gm = traced(graph, lambda x: (torch.nn.functional.dropout(x, 0.5, True), torch.bernoulli(x)), torch.rand(2, 3, 4, 4)).graph
    drawn = [n for n in gm.graph.nodes if torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())]
    assert drawn and {table.asks(n) for n in drawn} == {Asks.EAGER}

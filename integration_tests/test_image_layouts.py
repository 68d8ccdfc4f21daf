"""Channels-last inside graphs of convolutions: what is chosen, and that values, gradients and layouts that the user sees are eager's."""

import copy
import dataclasses

import pytest
import torch
import tracework
import tracework_aotautograd as aotautograd
from torch import nn
from tracework_aotautograd.layouts import choice, costs, lay_out

from benchmarks.micro.short_programs import PROGRAMS, Program
from benchmarks.torchvision_on_cpu import torchvision_models


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.third = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8 * 8 * 8, 5)

    def forward(self, x):
        x = self.pool(torch.relu(self.norm(self.first(x))))
        y = torch.relu(self.second(x)) + x
        features = self.third(y)
        return self.head(features.flatten(1)), features


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(self.block(a, b) for a, b in ((3, 64), (64, 128), (128, 256)))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, a // 2, 2, 2) for a in (256, 128))
        self.joined = nn.ModuleList(self.block(a, a // 2) for a in (256, 128))
        self.head = nn.Conv2d(64, 5, 1)

    @staticmethod
    def block(a, b):
        parts = [(nn.Conv2d(n, b, 3, padding=1), nn.GroupNorm(8, b), nn.SiLU()) for n in (a, b)]
        return nn.Sequential(*(layer for part in parts for layer in part))

    def forward(self, x):
        kept = []
        for n, down in enumerate(self.down):
            x = down(nn.functional.max_pool2d(x, 2) if n else x)
            kept.append(x)
        for up, joined, other in zip(self.up, self.joined, kept[-2::-1], strict=True):
            x = joined(torch.cat([up(x), other], 1))
        return self.head(x)


@pytest.fixture
def on_cpu(monkeypatch):
    """On the CPU what is chosen on a GPU in float32 with TF32, or everything, however small."""
    before = torch.backends.cudnn.conv.fp32_precision
    torch.backends.cudnn.conv.fp32_precision = "tf32"
    monkeypatch.setattr(costs, "RATES", {("cpu", torch.float32): costs.Rate(5.8)})
    monkeypatch.setattr(costs, "on_cpu", lambda x: False)

    def however_small():
        monkeypatch.setattr(costs, "RATES", {("cpu", torch.float32): costs.Rate(1e6)})
        _however_small(monkeypatch, "cuda", move=1.0)

    yield however_small
    torch.backends.cudnn.conv.fp32_precision = before


def _however_small(monkeypatch, device, **prices):
    found = dataclasses.replace(costs.PRICES[device], launch=0.0, least_gain=-1.0, **prices)
    monkeypatch.setattr(costs, "PRICES", {device: found})


@pytest.fixture
def graphs(monkeypatch):
    """Each graph, and what was chosen for it."""
    found = []

    def look(gm, answers):
        found.append((gm, choice.choose(gm.graph)))
        lay_out(gm, answers)

    monkeypatch.setattr(aotautograd.api, "lay_out", look)
    return found


def compiled(model):
    return tracework.compile(model, fullgraph=True, dynamic=False, options={"cache": False})


@pytest.mark.parametrize("training", [True, False])
def test_users_see_eagers_layouts_and_values(training, on_cpu, graphs):
    on_cpu()
    _compare_with_eager(training)
    assert graphs and all(chosen for _, chosen in graphs), "no layout was changed"


def test_so_they_do_where_a_cpu_trains(monkeypatch, graphs):
    _however_small(monkeypatch, "cpu", turn=0.0)
    _compare_with_eager(True)
    assert graphs and all(chosen for _, chosen in graphs), "no layout was changed"


def _compare_with_eager(training):
    torch.manual_seed(0)
    reference = Network().train(training)
    model = copy.deepcopy(reference)
    x = torch.randn(2, 3, 16, 16, requires_grad=training)
    z = x.detach().clone().requires_grad_(training)
    call = compiled(model)
    with torch.set_grad_enabled(training):
        pairs = list(zip(call(x), reference(z), strict=True))
    if training:
        for got, wanted in pairs:
            assert got.requires_grad and wanted.requires_grad
        sum(got.square().mean() for got, _ in pairs).backward()
        sum(wanted.square().mean() for _, wanted in pairs).backward()
        pairs += [(x.grad, z.grad), *((p.grad, q.grad) for p, q in zip(model.parameters(), reference.parameters(), strict=True))]
        pairs += list(zip(model.buffers(), reference.buffers(), strict=True))
    for got, wanted in pairs:
        assert got.stride() == wanted.stride()
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("numerics", ["strict", "default"])
def test_only_where_sums_may_have_other_bits(numerics, on_cpu, graphs):
    tracework.compile(Network().eval(), options={"cache": False, "numerics": numerics})(torch.randn(1, 3, 16, 16))
    assert bool(graphs) is (numerics == "default")


def chosen_for(model, sizes, training):
    """ "convolutions and gradients of them that lie channels-last/of so many, other operators that do"."""
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    values = [t.detach().requires_grad_(training and isinstance(t, nn.Parameter)) for t in state.values()]

    def fn(x, *given):
        return (torch.func.functional_call(model, dict(zip(state, given, strict=True)), (x,)),)

    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"x{n}") for n in range(len(values) + 1)]
    graph.output(graph.call_function(fn, tuple(inputs)))
    trace = aotautograd.trace_joint if training else aotautograd.trace_inference
    joint = trace(torch.fx.GraphModule({}, graph), [torch.empty(sizes), *values])
    convolutions = {n for n in joint.graph.graph.nodes if n.target in choice.CONVOLUTIONS}
    variables = {c.variable for c in choice.choose(joint.graph.graph).values()}
    return f"{len(variables & convolutions)}/{len(convolutions)} {len(variables - convolutions)}"


MODELS = {
    "resnet18": ("20/20 46", "40/40 93"),
    "resnet50": ("53/53 119", "106/106 239"),
    "mobilenet_v3_large": ("56/62 71", "118/124 232"),
    "convnext_tiny": ("0/22 0", "2/44 12"),
    "unet": ("13/13 24", "26/26 48"),
}


@pytest.mark.parametrize("name", MODELS)
def test_chosen_for_models(name, on_cpu):
    """In inference, and in training."""
    model = UNet() if name == "unet" else getattr(torchvision_models(), name)(weights=None)
    sizes = (8, 3, 256, 256) if name == "unet" else (64, 3, 224, 224)
    assert tuple(chosen_for(model.train(training), sizes, training) for training in (False, True)) == MODELS[name]


SHORT = {
    "conv": "1/1 0",
    "conv relu": "1/1 0",
    "conv gelu mean": "1/1 1",
    "conv norm relu": "1/1 0",
    "conv sub hardswish pool mish": "1/1 2",
    "conv min add mul": "1/1 0",
    "conv sub tanh sub avg": "1/1 3",
    "conv group norm tanh hardswish logsumexp": "1/1 4",
    "conv instance norm div": "1/1 0",
    "conv softplus tanh mul norm": "1/1 0",
    "conv min tanh tanh": "1/1 0",
    "conv relu hardswish": "1/1 0",
    "conv scale min": "1/1 1",
    "conv avg sigmoid sum": "1/1 2",
    "conv mish mish": "1/1 0",
    "conv pixel shuffle": "1/1 0",
    "conv 1x1 silu": "1/1 0",
    "depthwise norm relu6": "0/1 0",
    "separable": "1/2 0",
    "grouped": "1/1 0",
    "dilated": "1/1 0",
    "block": "2/2 2",
    "two and a head": "2/2 3",
    "separable chain": "3/4 5",
    "dilated, few channels": "1/1 0",
    "conv largest of all": "1/1 0",
    "conv logsumexp of all": "1/1 0",
    "transposed": "1/1 0",
    "transposed add min gelu mul": "1/1 0",
    "transposed bias softmax scale": "1/1 0",
    "transposed pool hardtanh mean": "1/1 2",
    "transposed norm sub pool": "1/1 2",
    "volume": "0/1 0",
    "volume relu leaky gelu sigmoid": "0/1 0",
    "volume group norm mean": "0/1 0",
    "volume softmax pool": "0/1 0",
    "transposed volume norm": "0/1 0",
    "volume norm leaky avg": "0/1 0",
    "signal": "0/1 0",
    "signal norm relu pool": "0/1 0",
    "signal grouped": "1/1 0",
    "signal depthwise": "0/1 0",
    "transposed signal": "0/1 0",
}


def test_chosen_for_short_programs(on_cpu):
    found = {}
    for name, row in PROGRAMS.items():
        found[name] = chosen_for(Program(row.layers(), row.then).eval(), row.sizes, False)
    assert {name: what for name, what in found.items() if not what.startswith("0/0")} == SHORT

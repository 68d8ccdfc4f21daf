"""`if` on what a module keeps in a small buffer: decided while tracing, asked by a guard before each call."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from tracework_capture import Unsupported, optimize


class Switched(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("on", torch.tensor([1, 0], dtype=torch.uint8))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        if self.calls % 3 == 2:
            x = x * 2
        if self.on[0] == 1:
            x = self.linear(x)
        elif bool(self.on[1]):
            x = x + 1
        self.calls += 1
        return x


def compiled(module, **options):
    """The module, and the graphs that it is compiled to."""
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    return optimize(backend, **options)(module), graphs


def test_each_answer_is_compiled_once():
    module, x = Switched(), torch.randn(2, 3)
    plain = copy.deepcopy(module)
    call, graphs = compiled(module, fullgraph=True)
    for turn in range(12):
        for switched in (module, plain):
            switched.on[0] = turn < 6
            switched.on[1] = turn > 8
        torch.testing.assert_close(call(x), plain(x))
    assert module.calls == plain.calls == 12 and len(graphs) <= 6


def test_another_tensor_as_the_buffer_is_asked():
    module, x = Switched(), torch.randn(2, 3)
    call, _ = compiled(module)
    call(x)
    module.on = torch.zeros(2, dtype=torch.uint8)
    torch.testing.assert_close(call(x), x)


class Counts(Switched):
    def forward(self, x):
        self.calls += 1
        if self.calls % 2 == 0:
            return self.linear(x)
        return x * 2


def test_a_count_that_the_graph_writes_is_asked_as_it_will_be():
    module, x = Counts(), torch.randn(2, 3)
    plain = copy.deepcopy(module)
    call, graphs = compiled(module, fullgraph=True)
    for _ in range(6):
        torch.testing.assert_close(call(x), plain(x))
        assert module.calls == plain.calls
    assert len(graphs) == 2


def test_a_buffer_that_the_graph_writes_results_to_breaks_it():
    class Keeps(Counts):
        def forward(self, x):
            self.calls.copy_(x.argmax())
            return super().forward(x)

    module, x = Keeps(), torch.randn(2, 3)
    plain = copy.deepcopy(module)
    call, _ = compiled(module)
    for _ in range(4):
        torch.testing.assert_close(call(x), plain(x))
    with pytest.raises(Unsupported, match="a branch depends on a tensor's data"):
        compiled(Keeps(), fullgraph=True)[0](x)


def test_what_is_no_single_number_raises_as_in_plain_python():
    class Asks(Switched):
        def forward(self, x):
            return x * 2 if self.on else x

    with pytest.raises(RuntimeError, match="more than one value is ambiguous"):
        compiled(Asks())[0](torch.randn(2, 3))


def test_averaged_weights():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    plain = copy.deepcopy((model, averaged))

    def step(model, averaged, x):
        y = model(x)
        averaged.update_parameters(model)
        return y

    call, graphs = compiled(step, fullgraph=True)
    for _ in range(4):
        x = torch.randn(4, 3)
        torch.testing.assert_close(call(model, averaged, x), step(*plain, x))
        torch.testing.assert_close(dict(averaged.state_dict()), dict(plain[1].state_dict()))
    assert len(graphs) == 2

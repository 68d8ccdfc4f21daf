"""The default mode on a GPU: calls that wait for launches are replayed, and a program cannot tell but by the time."""

import copy
import gc

import pytest
import torch
import tracework
import tracework_runtime

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CALLS = 12


class Deep(torch.nn.Module):
    """Many small kernels."""

    def __init__(self, layers=24):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = torch.softmax(layer(x), -1) + x
        return x, x.sum()


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Deep().cuda().eval()


def _records():
    return sum(n for name, n in tracework_runtime.counters().items() if name.startswith("cudagraph.record"))


@pytest.fixture(autouse=True)
def counted():
    tracework.reset()
    tracework_runtime.reset_counters()


def assert_close(found, expected):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_results_are_those_of_each_call(model):
    compiled = tracework.compile(model)
    kept = []
    with torch.no_grad():
        for _ in range(CALLS):
            x = torch.randn(8, 32, device="cuda")
            kept.append((compiled(x), model(x)))
    for found, expected in kept:
        assert_close(found, expected)
    assert _records()


def test_results_may_be_read_on_another_stream(model):
    compiled = tracework.compile(model)
    side, found, expected = torch.cuda.Stream(), [], []
    with torch.no_grad():
        for _ in range(CALLS):
            x = torch.randn(8, 32, device="cuda")
            y = compiled(x)[0]
            expected.append(model(x)[0].cpu())
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(10_000_000)
                found.append(y.to("cpu", non_blocking=True))
            y.record_stream(side)
            del y
    torch.cuda.synchronize()
    assert_close(found, expected)


def test_weights_may_change(model):
    compiled = tracework.compile(model)
    with torch.no_grad():
        for step in range(CALLS):
            if step % 3 == 2:
                model.layers[3].weight.mul_(1.01)
            if step == 7:
                model.layers[5].weight.data = model.layers[5].weight.data * 2
            x = torch.randn(8, 32, device="cuda")
            assert_close(compiled(x), model(x))


def test_sizes_may_change(model):
    compiled = tracework.compile(model, dynamic=True)
    with torch.no_grad():
        for step in range(3 * CALLS):
            x = torch.randn(4 + step % 3, 32, device="cuda")
            assert_close(compiled(x), model(x))


def gradients(module):
    return [p.grad for p in module.parameters()]


def trained(model, step, count=CALLS):
    """Losses and gradients of steps by both, each compared."""
    reference, compiled = copy.deepcopy(model), tracework.compile(model)
    optimizers = [torch.optim.SGD(m.parameters(), 0.01) for m in (model, reference)]
    for n in range(count):
        x = torch.randn(8, 32, device="cuda")
        found, expected = step(compiled, x, n), step(reference, x, n)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
        assert_close(gradients(model), gradients(reference))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=n % 3 != 0)


def plain_step(module, x, n):
    loss = module(x)[0].square().mean()
    loss.backward()
    return loss.detach()


def two_forwards(module, x, n):
    loss = (module(x)[0] + 2 * module(x * 2)[0]).square().mean()
    loss.backward()
    return loss.detach()


def twice_backward(module, x, n):
    loss = module(x)[0].square().mean()
    loss.backward(retain_graph=True)
    loss.backward()
    return loss.detach()


def without_backward(module, x, n):
    if n % 2:
        module(x)
    return plain_step(module, x, n)


def sums_of_gradients(module, x, n):
    return sum(plain_step(module, x * k, n) for k in (1, 2, 3))


def gradient_of_the_input(module, x, n):
    x.grad = None
    x.requires_grad_()
    return plain_step(module, x, n) + x.grad.sum()


STEPS = (plain_step, two_forwards, twice_backward, without_backward, sums_of_gradients, gradient_of_the_input)


@pytest.mark.parametrize("step", STEPS)
def test_training(model, step):
    trained(model, step)
    assert _records()


def test_training_of_batch_norm_keeps_its_statistics():
    torch.manual_seed(0)
    layers = [part for _ in range(6) for part in (torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).cuda()
    reference, compiled = copy.deepcopy(model), tracework.compile(model)
    for _ in range(CALLS):
        x = torch.randn(4, 8, 16, 16, device="cuda")
        for module in (compiled, reference):
            module(x).square().mean().backward()
    assert_close(model.state_dict().values(), reference.state_dict().values())
    assert _records()


def test_gradients_may_be_read_on_another_stream(model):
    compiled, reference, side = tracework.compile(model), copy.deepcopy(model), torch.cuda.Stream()
    found, expected = [], []
    for _ in range(CALLS):
        x = torch.randn(8, 32, device="cuda")
        compiled(x)[1].backward()
        reference(x)[1].backward()
        expected.append(reference.layers[0].weight.grad.cpu())
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(10_000_000)
            found.append(model.layers[0].weight.grad.to("cpu", non_blocking=True))
        model.layers[0].weight.grad.record_stream(side)
        model.zero_grad()
        reference.zero_grad()
    torch.cuda.synchronize()
    assert_close(found, expected)


def test_a_call_inside_of_a_capture_is_part_of_it(model):
    compiled = tracework.compile(model)
    x = torch.randn(8, 32, device="cuda")
    with torch.no_grad():
        for _ in range(CALLS):
            compiled(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = compiled(x)
        x.copy_(torch.randn(8, 32, device="cuda"))
        graph.replay()
        assert_close(out, model(x))


def test_memory_goes_with_the_model():
    def used():
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved()

    def run():
        model = Deep().cuda().eval()
        compiled = tracework.compile(model)
        with torch.no_grad():
            for _ in range(CALLS):
                compiled(torch.randn(4096, 32, device="cuda"))

    run()
    before = used()
    for _ in range(3):
        run()
    assert used() <= before + (8 << 20)

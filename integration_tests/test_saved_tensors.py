"""Compiled functions under forward-mode AD and under saved-tensor hooks: eager's values, gradients, tangents, and calls of the hooks."""

import warnings

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
import tracework
from training import BACKENDS, same


def product(x):
    return x.sin() * x


@pytest.mark.parametrize("backend", BACKENDS)
def test_dual_numbers_keep_their_tangents(backend):
    compiled = tracework.compile(product, backend=backend)
    x, tangent = torch.arange(3.0), torch.ones(3)
    same(compiled(x), product(x))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangent)
        found, expected = (forward_ad.unpack_dual(fn(dual)) for fn in (compiled, product))
        same(list(found), list(expected))
        assert expected.tangent is not None and forward_ad.unpack_dual(compiled(x)).tangent is None
    same(compiled(x), product(x))
    same(torch.func.jvp(compiled, (x,), (tangent,)), torch.func.jvp(product, (x,), (tangent,)))


weight = torch.linspace(-1, 1, 12).view(4, 3)


def dual_numbers_inside(x, tangent):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x * 2, tangent)
        written = dual * 2 + 1
        written.mul_(dual)
        joined = forward_ad.unpack_dual(torch.cat([written, dual]).view(2, 3) / 3)
        layer = F.softmax(F.layer_norm(F.linear(dual[None], weight), (4,)), -1)
        found = forward_ad.unpack_dual(layer).tangent.clone(), forward_ad.unpack_dual(x.clone()).tangent is None
    return joined.primal, joined.tangent + 1, dual * 1, found


def broken_in_a_level(x, tangent):
    y = x * 2
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(y, tangent)
        torch._dynamo.graph_break()
        return list(forward_ad.unpack_dual(dual.sin()))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [dual_numbers_inside, broken_in_a_level])
def test_dual_numbers_inside(fn, backend):
    compiled = tracework.compile(fn, backend=backend, fullgraph=fn is dual_numbers_inside)
    for x in (torch.arange(3.0), torch.tensor([1.0, float("inf"), 2.0])):
        torch.testing.assert_close(compiled(x, torch.ones(3)), fn(x, torch.ones(3)), equal_nan=True)


def raises_in_a_level(x, index):
    with forward_ad.dual_level():
        return forward_ad.make_dual(x, x)[index]


def test_no_level_stays_after_an_error():
    compiled = tracework.compile(raises_in_a_level, backend="eager")
    same(compiled(torch.ones(3), torch.tensor([1])), torch.ones(1))
    with pytest.raises(IndexError):
        compiled(torch.ones(3), torch.tensor([7]))
    same(compiled(torch.ones(3), torch.tensor([1])), torch.ones(1))


def hooks_inside(x, packed):
    a = x * 2
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(tuple(t.shape)), t)[1], lambda t: t * 2):
        y = a.sin() * x
    return y.exp()


def moved_inside(x, packed):
    with torch.autograd.graph.save_on_cpu():
        y = x.sin() * x
    return y.exp()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [hooks_inside, moved_inside])
def test_hooks_inside(fn, backend):
    found = []
    for each in (fn, tracework.compile(fn, backend=backend)):
        x, packed = torch.arange(3.0, requires_grad=True), []
        y = each(x, packed)
        found.append([y.detach(), torch.autograd.grad(y.sum(), x)[0], packed])
    same(found[1], found[0])


def halved(t):
    return t.dtype, t.to(torch.bfloat16) if t.is_floating_point() else t


def whole(packed):
    unpacked.append(packed[0])
    return packed[1].to(packed[0])


unpacked = []


def packed_by_functions(x):
    a = x * 2
    with torch.autograd.graph.saved_tensors_hooks(halved, whole):
        with torch.no_grad():
            c = a.mean()
        y = (a / 3).sin() * x * c
    return y.exp() / 3


def nested_and_twice(x):
    for scale in (2, 3):
        with torch.autograd.graph.saved_tensors_hooks(halved, whole):
            x = x.sin() * scale
            with torch.autograd.graph.save_on_cpu(pin_memory=False):
                x = (x * x).tanh()
            x = x * (x / 3)
        x = x.cos()
    return x


def packed_by_a_lambda(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.double(), lambda t: t.float() * 2):
        y = (x * x).sin()
    return y * y


def mode_left_changed(x):
    with torch.autograd.graph.saved_tensors_hooks(halved, whole):
        y = x.sin() * x
        torch.set_grad_enabled(False)
    z = y.cos()
    torch.set_grad_enabled(True)
    return y * z


@pytest.mark.parametrize("fn", [packed_by_functions, nested_and_twice, packed_by_a_lambda, mode_left_changed, moved_inside])
def test_hooks_in_one_graph(fn):
    fn = fn if fn is not moved_inside else lambda x: moved_inside(x, [])
    found = []
    for each in (fn, tracework.compile(fn, backend="aot_eager", fullgraph=True)):
        for _ in range(2):
            x = torch.linspace(-1, 1, 7).requires_grad_()
            unpacked.clear()
            y = each(x)
            assert not unpacked
            found.append([y.detach(), torch.autograd.grad(y.sum(), x)[0], [*unpacked], y.requires_grad])
    same(found[2:], found[:2])


sizes = []


def noted(t):
    sizes.append(t.numel())
    return t


def counted(x):
    """The program reads what its pack hook writes."""
    with torch.autograd.graph.saved_tensors_hooks(noted, lambda t: t):
        y = x.sin() * x
    return y * len(sizes)


def differentiated_inside(x):
    with torch.autograd.graph.saved_tensors_hooks(halved, whole):
        y = x.sin() * x
    (given,) = torch.autograd.grad(y.sum(), x)
    return given * len(unpacked)


@pytest.mark.parametrize("fn", [counted, differentiated_inside])
def test_hooks_whose_effects_are_seen(fn):
    found = []
    for each in (fn, tracework.compile(fn, backend="eager")):
        sizes.clear(), unpacked.clear()
        found.append([each(torch.ones(3, requires_grad=True)).detach() for _ in range(2)])
    same(found[1], found[0])


def test_no_hooks_stay_after_an_error():
    def fn(x, index):
        with torch.autograd.graph.saved_tensors_hooks(halved, whole):
            return (x * x)[index].sin()

    compiled = tracework.compile(fn, backend="eager", fullgraph=True)
    x = torch.ones(3, requires_grad=True)
    same(compiled(x, torch.tensor([1])).detach(), fn(x, torch.tensor([1])).detach())
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([7]))
    unpacked.clear()
    (x * x).sum().backward()
    assert not unpacked


@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_around_a_compiled_function(backend):
    compiled = tracework.compile(product, backend=backend)
    for change in (1, 2):
        found = []
        for fn in (product, compiled):
            x, packed = torch.arange(3.0, requires_grad=True), []
            with torch.autograd.graph.saved_tensors_hooks(
                lambda t, packed=packed: (packed.append(1), t)[1], lambda t, change=change: t * change
            ):
                y = fn(x)
            found.append([y.detach(), torch.autograd.grad(y.sum(), x)[0], packed])
        same(found[1], found[0])
    x = torch.arange(3.0, requires_grad=True)
    with torch.autograd.graph.save_on_cpu():
        y = compiled(x)
    same(torch.autograd.grad(y.sum(), x)[0], torch.autograd.grad(product(x).sum(), x)[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_compiled_blocks_keep_is_moved_when_each_of_them_ends(backend):
    """By hooks of torch's own, as save_on_cpu has them, without a warning."""
    torch.manual_seed(0)
    blocks = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()) for _ in range(3)]
    parameters = [p for block in blocks for p in block.parameters()]
    counts: list[int] = []

    def pack(tensor):
        counts[-1] += 1
        return tensor.clone()

    pack.__module__ = torch.autograd.graph.__name__
    found = []
    for calls in (blocks, [tracework.compile(block, backend=backend) for block in blocks]):
        y = x = torch.linspace(-1, 1, 8).view(2, 4).requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), warnings.catch_warnings():
            warnings.simplefilter("error", tracework.UncompiledWarning)
            for call in calls:
                counts.append(0)
                y = call(y)
        found.append([y.detach(), list(torch.autograd.grad(y.sum(), [x, *parameters]))])
    same(*found)
    assert all(counts) and len(counts) == 2 * len(blocks)


def hooks_refused(x, used):
    with torch.autograd.graph.disable_saved_tensors_hooks("no hooks here"):
        y = x.sin() * x
        if used:
            with torch.autograd.graph.save_on_cpu():
                y = y.exp()
    return y * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_that_are_disabled(backend):
    x = torch.arange(3.0, requires_grad=True)
    found = tracework.compile(hooks_refused, backend=backend, fullgraph=True)(x, False)
    same(torch.autograd.grad(found.sum(), x)[0], torch.autograd.grad(hooks_refused(x, False).sum(), x)[0])
    with pytest.raises(RuntimeError, match="no hooks here"):
        tracework.compile(hooks_refused, backend=backend)(x, True)
    with torch.autograd.graph.save_on_cpu():
        assert hooks_refused is not None  # hooks are allowed again


class Packing:
    """A hook that refuses the second tensor."""

    def __init__(self):
        self.count = 0

    def __call__(self, tensor):
        self.count += 1
        if self.count == 2:
            raise RuntimeError("no room")
        return tensor


@pytest.mark.parametrize("as_object", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_packing_hook_that_raises_is_called_once_for_each_tensor(backend, as_object):
    compiled = tracework.compile(lambda x: (x.sin() * x.cos()).exp().sum(), backend=backend)
    x = torch.randn(4, requires_grad=True)
    for _ in range(2):
        hook = Packing()
        with pytest.raises(RuntimeError, match="no room"):
            with torch.autograd.graph.saved_tensors_hooks(hook if as_object else lambda t: hook(t), lambda t: t):
                compiled(x)
        assert hook.count == 2


def hidden_nan(x):
    """The gradient of the root is infinite times zero, and clamp drops it."""
    return (x.clamp(min=0).sqrt() * 0).sum()


def backward_inside(x):
    loss = hidden_nan(x)
    loss.backward()
    return loss.detach()


@pytest.mark.parametrize("fn", [hidden_nan, backward_inside])
def test_anomalies_are_found(fn):
    """As in eager, with the operator's name; what was compiled meanwhile runs compiled afterwards."""
    compiled = tracework.compile(fn, backend="aot_eager")

    def run(call):
        x = torch.linspace(-1, 1, 5, requires_grad=True)
        loss = call(x)
        if loss.requires_grad:
            loss.backward()
        return x.grad

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in (fn, compiled):
            with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="'SqrtBackward0' returned nan"):
                run(call)
    with warnings.catch_warnings():
        warnings.simplefilter("error", tracework.UncompiledWarning)
        torch.testing.assert_close(run(compiled), run(fn), equal_nan=True)
        with torch.autograd.detect_anomaly(check_nan=False):
            torch.testing.assert_close(run(compiled), run(fn), equal_nan=True)

"""What training keeps between forward and backward: no more bytes than eager's autograd."""

import pytest
import torch
import tracework_aotautograd as aot

F = torch.nn.functional


def attention(x, w):
    q, k, v = (x @ w).chunk(3, -1)
    return (F.layer_norm(F.scaled_dot_product_attention(q, k, v), (4,)).sin(),)


def perceptron(x, w):
    return (F.dropout(F.gelu(x @ w), 0.5) * torch.sigmoid(x @ w),)


def loss(x, w):
    return (F.cross_entropy((x @ w).flatten(0, 1), torch.zeros(x.shape[0] * x.shape[1], dtype=torch.long)),)


def eager_bytes(fn, args):
    own, storages, alive = {a.untyped_storage().data_ptr() for a in args}, {}, []

    def pack(tensor):
        alive.append(tensor)
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        fn(*args)
    return sum(size for pointer, size in storages.items() if pointer not in own)


def compiled_bytes(program):
    output = next(iter(reversed(program.forward.graph.nodes)))
    saved = output.args[0][program.signature.number_of_graph_outputs + program.saved[0] :]
    values = {id(n.meta["val"].storage): n.meta["val"] for n in saved if n.op != "placeholder"}
    return sum(v.numel() * v.dtype.itemsize for v in values.values())


@pytest.mark.parametrize("fn", [attention, perceptron, loss])
def test_saves_no_more_than_eager(fn, graph, eager_runner, real):
    args, programs = [real(2, 5, 4), real(4, 12)], []
    aot.aot_compile(graph(fn, 2), args, forward_compiler=eager_runner, observe=lambda stage, p: programs.append(p))
    assert 0 < compiled_bytes(programs[0]) <= eager_bytes(fn, args)


def queue_logits(queue, w):
    return (w @ queue.clone().detach(),)


def waves(x, w):
    return (((x * 2).t().sin() * w.t()).sum(),)


def masked(x, w):
    return (torch.where((x > 0).unsqueeze(0), w, 0).sum(),)


def pieces(x, w):
    first, second = x.chunk(2)
    return (((first * second) * w[:2]).sum(),)


@pytest.mark.parametrize("fn", [queue_logits, waves, masked, pieces])
def test_inputs_that_eager_does_not_keep_may_be_written_before_the_backward(fn, graph, eager_runner, real, data):
    x, w = data(4, 4), real(4, 4)
    call, found = aot.aot_compile(graph(fn, 2), [x, w], forward_compiler=eager_runner), []
    for run in (call, fn):
        given = x.clone()
        (result,) = run(given, w)
        given.add_(1)
        found.append(torch.autograd.grad(result.sum(), w))
    torch.testing.assert_close(*found)


def test_inputs_that_eager_keeps_may_not(graph, eager_runner, real, data):
    x, w = data(4), real(4)
    (result,) = aot.aot_compile(graph(lambda x, w: (x.view(2, 2) * w.view(2, 2),), 2), [x, w], forward_compiler=eager_runner)(
        x, w
    )
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()

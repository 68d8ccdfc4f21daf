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

"""Operators of a program whose register_fake makes sizes that depend on data (torch.library.get_ctx().new_dynamic_size()): one graph for all
data, no more than two for all sizes."""

import pytest
import torch
import tracework
from torch import Tensor
from training import BACKENDS


@torch.library.custom_op("tracework_sizes::places", mutates_args=())
def places(x: Tensor) -> Tensor:
    return x.nonzero()


@places.register_fake
def _(x):
    return x.new_empty((torch.library.get_ctx().new_dynamic_size(), x.dim()), dtype=torch.int64)


@torch.library.custom_op("tracework_sizes::positive", mutates_args=())
def positive(x: Tensor, scale: float) -> Tensor:
    return x[x > 0] * scale


@positive.register_fake
def _(x, scale):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size(min=0, max=100))


def gradient_of_positive(ctx, gradient):
    (x,) = ctx.saved_tensors
    made = torch.zeros_like(x)
    made[x > 0] = gradient * ctx.scale
    return made, None


def keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


positive.register_autograd(gradient_of_positive, setup_context=keep)


@torch.library.custom_op("tracework_sizes::parted", mutates_args=())
def parted(x: Tensor) -> tuple[Tensor, list[Tensor]]:
    return x[x > 0].clone(), [x[x <= 0].clone(), x * 2]


@parted.register_fake
def _(x):
    context = torch.library.get_ctx()
    return x.new_empty(context.new_dynamic_size()), [x.new_empty(context.new_dynamic_size()), torch.empty_like(x)]


@torch.library.custom_op("tracework_sizes::counted_into", mutates_args=("total",))
def counted_into(x: Tensor, total: Tensor) -> Tensor:
    total.add_(x.sum())
    return x[x > 0].clone()


@counted_into.register_fake
def _(x, total):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op("tracework_sizes::count", mutates_args=())
def count(x: Tensor) -> int:
    return int((x > 0).sum())


@count.register_fake
def _(x):
    return torch.library.get_ctx().new_dynamic_size()


@torch.library.custom_op("tracework_sizes::repeated", mutates_args=())
def repeated(x: Tensor, times: int) -> Tensor:
    return torch.cat([x] * times)


@repeated.register_fake
def _(x, times):
    return x.new_empty((x.shape[0] * times, *x.shape[1:]))


library = torch.library.Library("tracework_sizes_of_library", "DEF")
library.define("places(Tensor x) -> Tensor", tags=(torch.Tag.dynamic_output_shape,))
library.impl("places", torch.nonzero, "CompositeExplicitAutograd")


@torch.library.register_fake("tracework_sizes_of_library::places", lib=library)
def _(x):
    return x.new_empty((torch.library.get_ctx().create_unbacked_symint(min=0), x.dim()), dtype=torch.int64)


def of_places(x, total):
    found = places(x)
    return found.float() * 2, found.shape[0], found.reshape(-1).sum()


def of_a_library(x, total):
    return torch.ops.tracework_sizes_of_library.places(x) * 2


def made_by_size(x, total):
    found = positive(x, 2.0)
    return torch.zeros(found.shape[0] * 2) + 1, torch.arange(found.numel()), found.sin().sum() / (found.numel() + 1)


def sliced_by_size(x, total):
    n = positive(x, 2.0).shape[0]
    torch._check(n <= x.shape[0])
    return x[:n] + 1


def written_by_size(x, total):
    found, row = positive(x, 2.0), x.new_zeros(64)
    torch._check(found.shape[0] <= 64)
    row[: found.shape[0]] = found
    return row


def of_equal_sizes(x, total):
    first, second = positive(x, 1.0), positive(x, 2.0)
    torch._check(first.shape[0] == second.shape[0])
    return first + second


def of_several_results(x, total):
    more, (less, doubled) = parted(x)
    return more.sum() + less.sum(), doubled, torch.cat([more, less])


def that_writes(x, total):
    return counted_into(x, total) * 2 + total


def of_a_number(x, total):
    n = count(x)
    return torch.ones(n) * 2, n


def one_after_the_other(x, total):
    return repeated(positive(positive(x, 2.0) - 0.5, 1.0), 2) * 2


PROGRAMS = [
    of_places, of_a_library, made_by_size, sliced_by_size, written_by_size, of_equal_sizes, of_several_results, that_writes, of_a_number,
    one_after_the_other,
]  # fmt: skip


def inputs():
    torch.manual_seed(0)
    for n in (8, 12, 9, 8, 20):
        for shift in (0.3, 3.0, -3.0):
            yield torch.randn(n) + shift, torch.zeros(())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_graph_for_all_data(program, backend):
    compiled = tracework.compile(program, backend=backend, fullgraph=True)
    for x, total in inputs():
        found, written = compiled(x, total), total.clone()
        torch.testing.assert_close(found, program(x, total.zero_()))
        torch.testing.assert_close(written, total)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_two_graphs_for_all_sizes(program):
    graphs = []
    compiled = tracework.compile(program, backend=lambda m, e: graphs.append(m) or m.forward, fullgraph=True)
    for x, total in inputs():
        compiled(x, total)
    assert len(graphs) <= 2


@pytest.mark.parametrize("program", [made_by_size, sliced_by_size, written_by_size, of_equal_sizes], ids=lambda p: p.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients(program, backend):
    compiled = tracework.compile(program, backend=backend, fullgraph=True)
    for x, total in inputs():
        gradients = []
        for call in (compiled, program):
            leaf = x.clone().requires_grad_()
            results = [r for r in torch.utils._pytree.tree_leaves(call(leaf, total)) if getattr(r, "requires_grad", False)]
            gradients += torch.autograd.grad(sum(r.sum() for r in results), leaf)
        torch.testing.assert_close(*gradients)


def test_without_fullgraph_the_values_are_the_same():
    def decides(x):
        found = positive(x, 2.0)
        return found + 1 if found.shape[0] > 3 else found - 1

    compiled = tracework.compile(decides)
    for x, _ in inputs():
        torch.testing.assert_close(compiled(x), decides(x))

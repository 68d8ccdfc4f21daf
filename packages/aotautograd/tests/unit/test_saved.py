"""What training keeps between forward and backward: no more bytes than eager's autograd."""

from collections.abc import Callable

import pytest
import torch
import tracework_aotautograd as aot

F = torch.nn.functional


def attention(x, w):
    q, k, v = (x @ w).chunk(3, -1)
    return F.layer_norm(F.scaled_dot_product_attention(q, k, v), (4,)).sin()


def rms_norm(x, gain):
    return gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rope(x, w):
    first, second = x.chunk(2, -1)
    return x * w[0].cos() + torch.cat([-second, first], -1) * w[0].sin()


def normalized_batch(x):
    return F.batch_norm(x, None, None, training=True)


def new_gelu(x):
    return 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.04 * x.pow(3))))


SAVED: dict[str, Callable] = {
    "attention": attention,
    "perceptron": lambda x, w: F.dropout(F.gelu(x @ w), 0.5) * torch.sigmoid(x @ w),
    "loss": lambda x, w: F.cross_entropy((x @ w).flatten(0, 1), torch.zeros(x.shape[0] * x.shape[1], dtype=torch.long)),
    "rope": lambda x, w: rope(x @ w[:, :4], w[:, 4:8]) @ w,
    "normalize": lambda x, w: F.normalize(x, dim=-1) + w[0, 0],
    "rms": lambda x, w: rms_norm(x, w[0, :4]),
    "normalize, rms": lambda x, w: rms_norm(F.normalize(x @ w, dim=-1), w[0]),
    "rms, rms": lambda x, w: rms_norm(rms_norm(x @ w, w[0]) @ w.t(), w[0, :4]),
    "written gelu": lambda x, w: new_gelu(x @ w) @ w.t(),
    "gated": lambda x, w: F.silu(x @ w) * (x @ w.cos()),
    "cosine": lambda x, w: F.cosine_similarity(x @ w, (x @ w).sin(), dim=-1),
    "batch norm": lambda x, w: F.conv1d(F.silu(normalized_batch(F.conv1d(x.mT, w[:, :4, None]))), w[:, 4:8, None]),
}  # fmt: skip


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


@pytest.mark.parametrize("fn", SAVED.values(), ids=SAVED)
def test_saves_no_more_than_eager(fn, graph, eager_runner, real):
    def one(x, w):
        return (fn(x, w),)

    args, programs = [real(2, 5, 4), real(4, 12)], []
    aot.aot_compile(graph(one, 2), args, forward_compiler=eager_runner, observe=lambda stage, p: programs.append(p))
    assert compiled_bytes(programs[0]) <= eager_bytes(one, args)


@pytest.mark.parametrize("name", ["normalize", "rms"])
def test_inputs_that_formulas_read_are_kept_as_they_are(name, graph, eager_runner, real):
    """No copy, and nothing as large: eager keeps the input, though what a tangent meets is made of it in the backward."""
    args, programs = [real(2, 5, 4), real(4, 12)], []
    fn = graph(lambda x, w: (SAVED[name](x, w),), 2)
    aot.aot_compile(fn, args, forward_compiler=eager_runner, observe=lambda stage, p: programs.append(p))
    assert compiled_bytes(programs[0]) <= 2 * 2 * 5 * 8


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


KEPT_INPUTS = {
    "sin": lambda x, w: x.sin() + w,
    "product": lambda x, w: x * w,
    "exp of a product": lambda x, w: (x * w).exp(),
    "matrix product": lambda x, w: x @ w,
    "relu": lambda x, w: x.relu() * w.sigmoid(),
    "selected": lambda x, w: torch.where(x > 0, x, w),
    "compared": lambda x, w: (x > w).float() * x,
    "power": lambda x, w: x**2 + w,
    "converted": lambda x, w: x.double() * w.double(),
    "normalized": lambda x, w: F.layer_norm(x, (3,), w[0]),
    "clamped": lambda x, w: x.clamp(0) * 2 + w,
    "view": lambda x, w: x.t().sin() @ w,
    "gelu": lambda x, w: F.gelu(x) + w,
    "indexed": lambda x, w: x[[0, 1]] + w[[0, 1]],
    "norms": lambda x, w: x.norm() + w.norm(),
    "for a leaf inside": lambda x, w: x * torch.ones(3, 3).requires_grad_() + w,
    "where others lie": lambda x, w: F.max_pool2d(x[None], 2)[0].sum() * w,
    "loss": lambda x, w: F.binary_cross_entropy_with_logits(x, w.detach().sigmoid()),
}


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("fn", KEPT_INPUTS.values(), ids=KEPT_INPUTS)
def test_an_input_may_be_written_before_the_backward_where_eager_does_not_keep_it(fn, place, graph, eager_runner, real):
    """Whatever the partition keeps: the cosine of an input, say."""

    def several(x, w):
        return (fn(x, w),)

    leaves, outcomes = [real(3, 3), real(3, 3)], []
    for run in (aot.aot_compile(graph(several, 2), leaves, forward_compiler=eager_runner), several):
        given = [leaf.detach().clone().requires_grad_() for leaf in leaves]
        (result,) = run(*given)
        with torch.no_grad():
            given[place].mul_(2)
        try:
            outcomes.append(torch.autograd.grad(result.sum(), given, allow_unused=True))
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            outcomes.append(None)
    assert (outcomes[0] is None) == (outcomes[1] is None)
    torch.testing.assert_close(*(outcome or () for outcome in outcomes))


KEPT_RESULTS = {
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "tan": torch.tan,
    "expm1": torch.expm1,
    "amax": lambda x: x.amax(1),
    "norm": lambda x: x.norm(dim=1),
    "logsumexp": lambda x: x.logsumexp(1),
    "prod": lambda x: x.prod(1),
}


@pytest.mark.parametrize("fn", KEPT_RESULTS.values(), ids=KEPT_RESULTS)
def test_results_that_eager_keeps_may_not_be_written_before_the_backward(fn, graph, eager_runner):
    def two(x):
        return fn(x), fn(x * 2)

    x = (torch.rand(3, 4) + 0.1).requires_grad_()
    for run in (aot.aot_compile(graph(two, 1), [x], forward_compiler=eager_runner), two):
        first, second = run(x)
        first.detach().mul_(3)
        torch.autograd.grad(second.sum(), x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(first.sum(), x)


def shown(made, *fns):
    """Results made from one value."""
    return lambda x: tuple(fn(value) for value in [made(x)] for fn in fns)


def mask(x):
    return (x > 0.5).to(x.dtype)


WRITTEN_MEMORY = {
    "view": (shown(torch.sqrt, lambda y: y.view(-1)), 0),
    "part": (shown(torch.sqrt, lambda y: y.t()[1:]), 0),
    "other part": (shown(torch.sqrt, lambda y: y[0], lambda y: y[1]), 1),
    "detached": (shown(torch.sqrt, torch.Tensor.detach, lambda y: y * 2), 1),
    "part of detached": (shown(torch.sqrt, lambda y: y.detach()[0], lambda y: y * 2), 1),
    "operand": (shown(lambda x: x * 2, lambda y: y, torch.sin), 1),
    "detached operand": (shown(lambda x: x * 2, torch.Tensor.detach, torch.sin), 1),
    "factor": (lambda x: [(m, x * m) for m in [mask(x)]][0], 1),
    "part of a factor": (lambda x: [(m[0], x * m) for m in [mask(x)]][0], 1),
    "indices": (lambda x: [(i, x.gather(1, i)) for i in [mask(x).long()]][0], 1),
}


@pytest.mark.parametrize(("fn", "differentiated"), WRITTEN_MEMORY.values(), ids=WRITTEN_MEMORY)
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("is_gone", [False, True])
def test_what_shows_the_memory_that_eager_keeps_may_not_be_written(
    fn, differentiated, create_graph, is_gone, graph, eager_runner
):
    x = (torch.rand(4, 4) + 0.1).requires_grad_()
    for run in (aot.aot_compile(graph(fn, 1), [x], forward_compiler=eager_runner), fn):
        results = run(x)
        results[0].detach().mul_(2)
        of = results[differentiated].sum()
        if is_gone:
            del results
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(of, x, create_graph=create_graph)


def test_a_result_whose_formula_does_not_run_may_be_written(graph, eager_runner):
    def fn(x):
        first, second = x.sqrt(), (x * 2).sqrt()
        return first.view(-1), second.view(-1), first * second

    x, found = (torch.rand(4, 4) + 0.1).requires_grad_(), []
    for run in (aot.aot_compile(graph(fn, 1), [x], forward_compiler=eager_runner), fn):
        first, second, product = run(x)
        first.detach().mul_(2)
        found.append(torch.autograd.grad(second.sum(), x, retain_graph=True))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(product.sum(), x)
    torch.testing.assert_close(*found)


def copied(x):
    inner = x.sqrt()
    return inner.clone(), (inner + 1) * 2


def normalized(x):
    return F.layer_norm(x, (4,)), torch.utils.checkpoint.checkpoint(torch.sqrt, x, use_reentrant=False)


@pytest.mark.parametrize("fn", [copied, normalized])
def test_results_that_eager_does_not_keep_may_be_written(fn, graph, eager_runner):
    x, found = (torch.rand(3, 4) + 0.1).requires_grad_(), []
    for run in (aot.aot_compile(graph(fn, 1), [x], forward_compiler=eager_runner), fn):
        results = run(x)
        for result in results:
            result.detach().mul_(3)
        found.append(torch.autograd.grad([r.sum() for r in results], x))
    torch.testing.assert_close(*found)


WRITTEN_INSIDE = {
    "written": lambda h, c, w: (h.add_(1), h.sin())[1:],
    "gets a history": lambda h, c, w: (c.copy_(h), c.square())[1:],
    "without history": lambda h, c, w: (c.add_(1), c * w)[1:],
    "behind autograd": lambda h, c, w: (c.data.add_(1), c * w)[1:],
    "read before, too": lambda h, c, w: (h.mul_(w), h.sin(), h * w)[1:],
    "several": lambda h, c, w: (h.add_(1), c.add_(2), h * c, w.sin())[2:],
    "result": lambda h, c, w: (h.add_(1), h, h.sin())[1:],
    "not kept": lambda h, c, w: (h.add_(1), c.add_(1), h.exp() + c, h + w)[2:],
    "statistics": lambda h, c, w: (F.batch_norm(h, c[0], c[1], w[0], training=True), c[2].add_(1) * w)[:1],
}
AFTERWARDS = {
    "nothing": lambda h, c, w, results: None,
    "write h": lambda h, c, w, results: h.mul_(2),
    "write c": lambda h, c, w, results: c.mul_(2),
    "write w": lambda h, c, w, results: w.mul_(2),
    "detach h": lambda h, c, w, results: h.detach_(),
    "detach c": lambda h, c, w, results: c.detach_(),
    "detach a result": lambda h, c, w, results: results[0].detach_(),
}


def outcomes(call, afterwards):
    """The gradients of each result, or the error, when something happens between the call and the backward."""
    leaf, w = (torch.nn.Parameter(torch.rand(3, 3, generator=torch.Generator().manual_seed(i)).double()) for i in range(2))
    h, c = leaf * 1, torch.ones(3, 3).double()
    results = call(h, c, w)
    roots = [result.square().sum() for result in results]
    with torch.no_grad():
        afterwards(h, c, w, results)
    for root in roots:
        try:
            yield torch.autograd.grad(root, [leaf, w], allow_unused=True, retain_graph=True)
        except RuntimeError as error:
            yield next((words for words in ("modified by an inplace", "detached in-place") if words in str(error)), str(error))


@pytest.mark.parametrize("afterwards", AFTERWARDS.values(), ids=AFTERWARDS)
@pytest.mark.parametrize("fn", WRITTEN_INSIDE.values(), ids=WRITTEN_INSIDE)
def test_what_happens_to_inputs_that_the_graph_writes_to_before_the_backward(fn, afterwards, graph, eager_runner, data, real):
    examples = [real(3, 3) * 1, data(3, 3).abs(), torch.nn.Parameter(real(3, 3))]
    found = [[*outcomes(run, afterwards)] for run in (aot.aot_compile(graph(fn, 3), examples, forward_compiler=eager_runner), fn)]
    assert [type(x) for x in found[0]] == [type(x) for x in found[1]]
    for mine, theirs in zip(*found, strict=True):
        assert mine == theirs if isinstance(mine, str) else torch.testing.assert_close(mine, theirs) is None


OF_PARAMETERS = {
    "a multiple": lambda h, c, w: (F.linear(h, w * 2),),
    "a part": lambda h, c, w: (F.linear(h, w.triu() + w.triu(1).mT), w[1:] + 1),
    "two": lambda h, c, w: (F.linear(h, torch.cat([w, w * 2])), h + w.t()),
    "a cast": lambda h, c, w: (F.linear(h, w.to(torch.float64, copy=True) * c),),
}


@pytest.mark.parametrize("write", [lambda h, c, w, results: w.mul_(2), lambda h, c, w, results: w.data.mul_(2)])
@pytest.mark.parametrize("fn", OF_PARAMETERS.values(), ids=OF_PARAMETERS)
def test_what_is_computed_from_parameters_is_kept(fn, write, graph, eager_runner, data, real):
    examples = [real(3, 3) * 1, data(3, 3), torch.nn.Parameter(real(3, 3))]
    compiled = aot.aot_compile(graph(fn, 3), examples, forward_compiler=eager_runner)
    for mine, theirs in zip(*([*outcomes(run, write)] for run in (compiled, fn)), strict=True):
        assert mine == theirs if isinstance(mine, str) else torch.testing.assert_close(mine, theirs) is None


KEPT_WITH_HISTORY = {
    "operand": lambda h, c, w: (h.sin(), h.square() * w),
    "factor": lambda h, c, w: (h * w,),
    "factors among parameters": lambda h, c, w: (w.sin() * h * w.cos(),),
    "own result": lambda h, c, w: (h.exp(), h + w),
    "result of a result": lambda h, c, w: [(y, y.sin(), y + 1) for y in [h * w]][0],
    "its own result": lambda h, c, w: [(y, y.exp()) for y in [h.exp()]][0],
    "tangled": lambda h, c, w: [(y, y * z, z) for y in [h * w] for z in [y + h]][0],
}


@pytest.mark.parametrize("afterwards", ["detach h", "detach a result"])
@pytest.mark.parametrize("fn", KEPT_WITH_HISTORY.values(), ids=KEPT_WITH_HISTORY)
def test_what_eager_keeps_with_its_history_may_not_be_detached_in_place(fn, afterwards, graph, eager_runner, data, real):
    examples = [real(3, 3) * 1, data(3, 3), torch.nn.Parameter(real(3, 3))]
    compiled = aot.aot_compile(graph(fn, 3), examples, forward_compiler=eager_runner)
    found = [[*outcomes(run, AFTERWARDS[afterwards])] for run in (compiled, fn)]
    for mine, theirs in zip(*found, strict=True):
        assert mine == theirs if isinstance(mine, str) else torch.testing.assert_close(mine, theirs) is None


def test_gradients_of_gradients_through_an_input_that_was_detached_in_place_raise(graph, eager_runner, real):
    h, w = real(3) * 1, real(3)
    (result,) = aot.aot_compile(graph(lambda h, w: (h.exp() * w,), 2), [h, w], forward_compiler=eager_runner)(h, w)
    h.detach_()
    with pytest.raises(RuntimeError, match="detached in-place"):
        torch.autograd.grad(result.sum(), w, create_graph=True)

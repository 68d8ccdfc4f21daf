"""Attention that a program wrote out, in training: forms of models become one operator with eager's values and gradients, nothing of the scores is
kept, and what differs from attention in its values' readers or gradients stays written out."""

import math
import operator
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch
import torch.nn.functional as F
import tracework_primops.written_attention
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function_unary
from tracework_aotautograd import AotOptions, aot_compile
from written_attentions import FORMS, Sizes, heads_first, heads_last

ONE = frozenset({"cpu"})
CPU = torch.device("cpu")
SIZES = Sizes(2, 4, 40, 16)
OPERATORS = "attention", "attention_backward", "attention_sums"


@pytest.fixture(autouse=True)
def _all_sizes(monkeypatch):
    monkeypatch.setattr(tracework_primops.written_attention, "LEAST_BYTES", 0)


def operands(sizes, heads_per_key=1, dtype=torch.bfloat16):
    shape = sizes.batch, sizes.length, sizes.heads, sizes.width
    of_keys = sizes.batch, sizes.length, sizes.heads // heads_per_key, sizes.width
    return [torch.randn(s).to(dtype).requires_grad_() for s in (shape, of_keys, of_keys)]


class Capture(TorchFunctionMode):
    """Calls of torch functions, one node each, as capture has them."""

    def __init__(self, inputs):
        self.graph, self.nodes = torch.fx.Graph(), {}
        for n, x in enumerate(inputs):
            self.nodes[id(x)] = self.graph.placeholder(f"x{n}"), x

    def node(self, value):
        if isinstance(value, torch.Tensor):
            return self.nodes[id(value)][0]
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.node, value)) if type(value) in (tuple, list) else tuple(map(self.node, value))
        return value

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func in (torch._C._set_grad_enabled, torch._assert_async):
            self.graph.call_function(func, self.node(args))
        if isinstance(out, (torch.Tensor, tuple)) and not isinstance(out, torch.Size):
            if func.__name__ == "__get__":
                func, args = getattr, (*args, func.__self__.__name__)
            made = self.graph.call_function(func, self.node(tuple(args)), {k: self.node(v) for k, v in kwargs.items()})
            self.nodes[id(out)] = made, out
            for n, part in enumerate(out if isinstance(out, tuple) else ()):
                self.nodes[id(part)] = self.graph.call_function(operator.getitem, (made, n)), part
        return out


def captured(function, inputs):
    """A captured graph of a function."""
    capture = Capture(inputs)
    with capture:
        out = function(*inputs)
    capture.graph.output(capture.node(tuple(out) if isinstance(out, (tuple, list)) else (out,)))
    return torch.fx.GraphModule({}, capture.graph)


def compiled(function, inputs, devices=ONE):
    """(a callable, functional graphs, why attention stays written out)"""
    seen, reasons = [], []
    graph = captured(function, inputs)

    def compiler(gm, spec):
        seen.append(gm)
        return lambda given: gm(*given)

    def observe(stage, product):
        if stage == "attention":
            reasons.extend(product)

    options = AotOptions(trained_attention=devices, fallback=False)
    call = aot_compile(graph, inputs, forward_compiler=compiler, options=options, observe=observe)
    return call, seen, reasons


def targets(graphs):
    return {str(n.target).split(".")[1] for g in graphs for n in g.graph.nodes if "tracework." in str(n.target)}


def both_ways(call, inputs):
    """Results and gradients of what requires them."""
    out = call(*inputs)
    out = out[0] if isinstance(out, (tuple, list)) else out
    torch.manual_seed(1)
    grad = torch.randn(out.shape).to(out.dtype)
    return out, *torch.autograd.grad(out, [x for x in inputs if x.requires_grad], grad)


def exact(function, inputs):
    wide = [x.detach().double().requires_grad_(x.requires_grad) if x.is_floating_point() else x for x in inputs]
    return both_ways(function, wide)


def kept(graphs):
    """Elements of the largest float that a forward gives out or computes."""
    return max(n.meta["val"].numel() for g in graphs for n in g.graph.nodes if n.op == "call_function" and made_of_floats(n))


def made_of_floats(node):
    value = node.meta["val"]
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def scores(sizes):
    return sizes.batch * sizes.heads * sizes.length**2


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_models(name):
    torch.manual_seed(0)
    form = FORMS[name]
    inputs = operands(SIZES, form.heads_per_key) + form.others(SIZES, CPU)
    call, graphs, reasons = compiled(form.function, inputs)
    found, eager, wanted = both_ways(call, inputs), both_ways(form.function, inputs), exact(form.function, inputs)
    assert bool(targets(graphs)) is not bool(form.stays)
    assert not reasons if not form.stays else all(form.stays in reason for reason in reasons)
    for got, plain, want in zip(found, eager, wanted, strict=True):
        assert (got.dtype, got.shape, got.stride()) == (plain.dtype, plain.shape, plain.stride())
        error, least = (got - want).abs().max(), (plain - want).abs().max()
        assert error <= 1.5 * least + 2**-8 * want.abs().max(), name
    if not form.stays:
        assert kept(graphs) < scores(SIZES)


def plain(q, k, v, change=lambda s: s, after=lambda w: w):
    q, k, v = heads_first(q, k, v)
    return heads_last(after(change(q @ k.mT * 0.25).softmax(-1)) @ v)


class Halved(torch.autograd.Function):
    """The same values, half of the gradients."""

    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        return grad / 2


def halved(x):
    """One call of a captured graph."""
    return handle_torch_function(halved, (x,), x) if has_torch_function_unary(x) else Halved.apply(x)


def clamped(x):
    """A hook, in one call of a captured graph that gives the tensor."""
    if has_torch_function_unary(x):
        return handle_torch_function(clamped, (x,), x)
    x.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
    return x


def with_weights(q, k, v):
    """output_attentions=True"""
    q, k, v = heads_first(q, k, v)
    weights = (q @ k.mT * 0.25).softmax(-1)
    return weights @ v, weights


def with_penalty(q, k, v):
    """A loss on the scores."""
    q, k, v = heads_first(q, k, v)
    scores = q @ k.mT * 0.25
    return scores.softmax(-1) @ v + (scores**2).mean()


def with_check(q, k, v):
    """An assertion that scores are numbers."""
    q, k, v = heads_first(q, k, v)
    scores = q @ k.mT * 0.25
    torch._assert_async(torch.isfinite(scores).all())
    return scores.softmax(-1) @ v


def mask_written_over(q, k, v, mask):
    """Between the products."""
    q, k, v = heads_first(q, k, v)
    mask = mask * 1
    scores = q @ k.mT * 0.25 + mask
    mask.zero_()
    return heads_last(scores.softmax(-1) @ v) + mask.sum()


def mask_written_later(q, k, v, mask):
    mask = mask * 1
    out = plain(q, k, v, lambda s: s + mask)
    mask.zero_()
    return out + mask.sum()


def detached_keys(q, k, v):
    q, k, v = (x.flatten(0, 1) for x in heads_first(q, k, v))
    return (torch.bmm(q, k.mT.detach()) * 0.25).softmax(-1).bmm(v) + 0 * k.sum()


def without_gradients_of_a_step(q, k, v):
    q, k, v = heads_first(q, k, v)
    scores = q @ k.mT
    with torch.no_grad():
        scores.mul_(0.25)
    return scores.softmax(-1) @ v


def of_data(q, k, v):
    q, k, v = heads_first(q, k, v)
    scores = q @ k.mT * 1
    scores.data.mul_(0.25)
    return scores.softmax(-1) @ v


def values_of_all_heads(q, k, v):
    q, k, v = heads_first(q, k, v)
    return heads_last(torch.einsum("bhqk,bkd->bhqd", (q @ k.mT * 0.25).softmax(-1), v[:, 0]))


def values_of_each_query(q, k, v):
    q, k, v = heads_first(q, k, v)
    weights = (q @ k.mT * 0.25).softmax(-1)
    return heads_last((weights.unsqueeze(-2) @ (v.unsqueeze(2) * q.unsqueeze(3))).squeeze(-2))


def by_exponentials(of_sum):
    """A softmax written out, something done to what is summed up."""

    def program(q, k, v):
        q, k, v = heads_first(q, k, v)
        scores = q @ k.mT * 0.25
        e = (scores - scores.amax(-1, keepdim=True)).exp()
        return heads_last((e / of_sum(e).sum(-1, keepdim=True)) @ v)

    return program


def zeroed(q, k, v, hidden):
    q, k, v = heads_first(q, k, v)
    scores = (q @ k.mT * 0.25).float().masked_fill(hidden, -math.inf)
    weights = scores.softmax(-1).masked_fill((scores == -math.inf).all(-1, keepdim=True), 0)
    return heads_last(weights.to(q.dtype) @ v)


def written_after_a_function(q, k, v, hidden):
    return plain(q, k, v, lambda s: halved(s).masked_fill_(hidden, -1e4))


def added_to_detached(q, k, v, bias):
    q, k, v = heads_first(q, k, v)
    scores = (q @ k.mT).detach() * 0.25
    scores += bias
    return heads_last(scores.softmax(-1) @ v) + 0 * (q.sum() + k.sum())


def operand_written_in_place(q, k, v):
    q, k, v = (x.flatten(0, 1) for x in heads_first(q, k, v))
    k.data.mul_(0.5)
    return (torch.bmm(q, k.mT) * 0.25).softmax(-1).bmm(v)


def operand_written_later(q, k, v):
    """What eager's product has copied."""
    k = k * 1
    out = plain(q, k, v)
    k.mul_(2)
    return out + k.sum()


def hook_of_scores(q, k, v):
    return plain(q, k, v, clamped)


def hooks_of_copies(late):
    """Of what products read, which the operator reads before it is copied; registered before or after they are."""

    def program(q, k, v):
        batch, length, heads, width = q.shape
        q, k, v = ((x * 1).transpose(1, 2).reshape(batch * heads, length, width) for x in (q, k, v))

        if not late:
            q, k, v = map(clamped, (q, k, v))
        scores = torch.bmm(q, k.mT).view(batch, heads, length, length) * 0.25
        out = scores.softmax(-1).flatten(0, 1).bmm(v)
        if late:
            q, k, v = map(clamped, (q, k, v))
        return out.view(batch, heads, length, width).transpose(1, 2)

    return program


def hook_of_a_part(q, k, v, bias, mask):
    both = clamped(bias + mask)
    return plain(q, k, v, lambda s: s + both)


def by_distances(change):
    def program(q, k, v, table):
        places = torch.arange(q.size(1))
        bias = change(table[places[:, None] - places[None, :] + q.size(1) - 1].permute(2, 0, 1))
        return plain(q, k, v, lambda s: s + bias)

    return program


def bias_of_all(q, k, v, bias):
    return plain(q, k, v, lambda s: s + bias)


def bias_times_nothing(q, k, v, bias):
    q, k, v = (x.flatten(0, 1) for x in heads_first(q, k, v))
    return torch.baddbmm(bias, q, k.mT, beta=0, alpha=0.25).softmax(-1).bmm(v)


def some_rows_hidden():
    """All of one row, some of others."""
    hidden = torch.ones(40, 40, dtype=torch.bool).triu(1)
    hidden[7] = True
    return hidden


def of_keys():
    return torch.randn(40).bfloat16().requires_grad_()


def table():
    return torch.randn(79, SIZES.heads).bfloat16().requires_grad_()


def bias(sizes):
    return torch.randn(1, sizes.heads, sizes.length, sizes.length).bfloat16().requires_grad_()


# What is no attention to the operator -> (function, what else it reads, a word of the reason where one is told)
STAY = {
    "weights given back": (with_weights, [], "read by others"),
    "scores read by a loss": (with_penalty, [], "read by others"),
    "scores that are checked": (with_check, [], "read by others"),
    "dropout": (lambda q, k, v: plain(q, k, v, after=lambda w: F.dropout(w, 0.5, True)), [], "dropout"),
    "scores detached": (lambda q, k, v: plain(q, k, v, lambda s: s.detach() + s.new_ones(40)) + q.sum(), [], "gradients"),
    "weights detached": (lambda q, k, v: plain(q, k, v, after=lambda w: w.detach()), [], "gradients"),
    "keys detached": (detached_keys, [], "gradients"),
    "a function of the user": (lambda q, k, v: plain(q, k, v, halved), [], "gradients"),
    "written without gradients": (without_gradients_of_a_step, [], "in place"),
    "written as data": (of_data, [], "in place"),
    "written after a function of the user": (written_after_a_function, [some_rows_hidden()], "in place"),
    "written after it was detached": (added_to_detached, [of_keys()], "in place"),
    "an operand written as data": (operand_written_in_place, [], "in place"),
    "an operand written over later": (operand_written_later, [], "read by others"),
    "a detached sum": (by_exponentials(lambda e: e.detach()), [], "gradients"),
    "a function of the user before a sum": (by_exponentials(halved), [], "gradients"),
    "a hook of scores": (hook_of_scores, [], "read by others"),
    "hooks of copies": (hooks_of_copies(late=False), [], "read by others"),
    "hooks of copies that come later": (hooks_of_copies(late=True), [], "read by others"),
    "a hook of a sum of biases": (hook_of_a_part, [of_keys(), torch.randn(2, 1, 1, 40).bfloat16()], "read by others"),
    "a hook of a bias by distances": (by_distances(clamped), [table()], "read by others"),
    "a function of the user of a bias by distances": (by_distances(halved), [table()], "bias by distances"),
    "a bias, then rows hidden": (
        lambda q, k, v, b, m: plain(q, k, v, lambda s: (s + b).masked_fill(m, -math.inf)),
        [of_keys(), some_rows_hidden()],
        "depend on what hides them",
    ),
    "rows hidden, then a bias": (
        lambda q, k, v, b, m: plain(q, k, v, lambda s: s.masked_fill(m, -math.inf) + b),
        [of_keys(), some_rows_hidden()],
        "depend on what hides them",
    ),
    "rows of a number, then hidden": (
        lambda q, k, v, b, m: plain(q, k, v, lambda s: s.masked_fill(m, -5.0) + b),
        [torch.zeros(40, 1).bfloat16().index_fill(0, torch.tensor(7), -math.inf), some_rows_hidden()],
        "depend on what hides them",
    ),
    "a bias times 0": (bias_times_nothing, [of_keys()], "gradients"),
    "infinity in the place of scores": (
        lambda q, k, v, m: plain(q, k, v, lambda s: s.masked_fill(m, math.inf)),
        [some_rows_hidden()],
        "infinity",
    ),
    "rows that are made 0": (zeroed, [some_rows_hidden()], "rows that see nothing"),
    "values of all heads": (values_of_all_heads, [], ""),
    "values of each query": (values_of_each_query, [], ""),
    "a mask written over": (mask_written_over, [torch.randn(40).bfloat16()], "written"),
    "a bias for each pair": (bias_of_all, [bias(SIZES)], "for each query and key"),
    "something else than steps": (lambda q, k, v: plain(q, k, v, torch.sin), [], ""),
}


@pytest.mark.parametrize("name", STAY)
def test_what_stays_written_out(name):
    torch.manual_seed(0)
    function, others, reason = STAY[name]
    inputs = operands(SIZES) + others
    call, graphs, reasons = compiled(function, inputs)
    assert not targets(graphs)
    assert bool(reasons) is bool(reason) and all(reason in given for given in reasons)
    with torch.random.fork_rng():
        found = both_ways_if_any(call, inputs)
    torch.testing.assert_close(found, both_ways_if_any(function, inputs), rtol=0, atol=0, equal_nan=True)


def both_ways_if_any(call, inputs):
    """Results and gradients, None for what has none."""
    out = call(*inputs)
    out = out[0] if isinstance(out, (tuple, list)) else out
    wanted = [x for x in inputs if x.requires_grad]
    return out, torch.autograd.grad(out.sum(), wanted, allow_unused=True)


def test_a_mask_may_be_written_over_afterwards():
    inputs = [*operands(SIZES), torch.randn(40).bfloat16()]
    call, graphs, _ = compiled(mask_written_later, inputs)
    assert targets(graphs)
    for got, want in zip(both_ways(call, inputs), both_ways(mask_written_later, inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=2e-2 * want.abs().max().item())


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [(Sizes(2, 4, 8, 16), torch.bfloat16), (SIZES, torch.float32), (Sizes(2, 4, 40, 256), torch.bfloat16)],
    ids=str,
)
def test_what_inference_leaves_written_out_stays_so(sizes, dtype):
    """Few queries, other dtypes, wide heads."""
    call, graphs, reasons = compiled(plain, operands(sizes, dtype=dtype))
    assert not targets(graphs) and not reasons


@pytest.mark.parametrize("name", STAY)
def test_few_scores_stay_written_out(name, monkeypatch):
    """Without a word."""
    monkeypatch.undo()
    function, others, _ = STAY[name]
    _, graphs, reasons = compiled(function, operands(SIZES) + others)
    assert not targets(graphs) and not reasons


def test_other_devices_stay_written_out():
    assert not targets(compiled(plain, operands(SIZES), frozenset({"cuda"}))[1])


def test_under_autocast():
    """Parameters and activations in float32, products in bfloat16, a softmax in float32."""

    def program(x, w):
        q, k, v = (x @ w).unflatten(2, (SIZES.heads, 3 * SIZES.width)).chunk(3, 3)
        return plain(q, k, v)

    torch.manual_seed(0)
    x = torch.randn(2, 40, 64, requires_grad=True)
    w = (torch.randn(64, 3 * SIZES.heads * SIZES.width) / 8).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        call, graphs, _ = compiled(program, [x, w])
        found, eager = both_ways(call, [x, w]), both_ways(program, [x, w])
    wanted = exact(program, [x, w])
    assert targets(graphs) == {"attention", "attention_backward"}
    for got, plainly, want in zip(found, eager, wanted, strict=True):
        assert (got.dtype, got.stride()) == (plainly.dtype, plainly.stride())
        assert (got - want).abs().max() <= 1.5 * (plainly - want).abs().max() + 2**-8 * want.abs().max()


def test_rows_that_see_nothing_are_nan_as_eagers():
    def added(q, k, v, mask):
        return plain(q, k, v, lambda s: s + mask)

    def filled(q, k, v, mask):
        return plain(q, k, v, lambda s: s.masked_fill(mask == -math.inf, -math.inf))

    mask = torch.zeros(2, 1, 40, 40, dtype=torch.bfloat16)
    mask[1, 0, 7] = -math.inf
    mask[0, 0, 9, :-1] = -math.inf
    for program in (added, filled):
        inputs = [*operands(SIZES), mask]
        call, graphs, _ = compiled(program, inputs)
        assert targets(graphs)
        for got, plainly in zip(both_ways(call, inputs), both_ways(program, inputs), strict=True):
            assert torch.equal(got.isnan(), plainly.isnan()) and plainly.isnan().any() == got.isnan().any()


def written_between(call, inputs, place):
    """Results and gradients of a step whose input is written to before the backward; nothing where that raises."""
    inputs = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    out = call(*inputs)
    out = out[0] if isinstance(out, (tuple, list)) else out
    with torch.no_grad():
        inputs[place].zero_()
    try:
        return out, *torch.autograd.grad(out.sum(), [x for x in inputs if x.requires_grad])
    except RuntimeError:
        return ()


def of_mask(q, k, v, mask):
    return plain(q, k, v, lambda s: s + mask)


# A program whose input is written to between forward and backward -> (function, what else it reads, which input)
WRITTEN = {
    "queries": (plain, [], 0),
    "keys": (plain, [], 1),
    "values": (plain, [], 2),
    "a mask": (of_mask, [torch.randn(2, 1, 1, 40).bfloat16()], 3),
    "a mask that is shown several times": (of_mask, [torch.randn(40, 40).bfloat16()], 3),
    "a bias with gradients": (of_mask, [of_keys()], 3),
    "a table": (by_distances(lambda bias: bias), [table()], 3),
    "operands that are not copied": (
        lambda q, k, v: (torch.bmm(*(x[:, :, 0] for x in (q, k.transpose(1, 3)))) * 0.25).softmax(-1).bmm(v[:, :, 0]), [], 1
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_inputs_may_be_written_to_before_the_backward(name):
    """Where eager has copied what it needs of them."""
    torch.manual_seed(0)
    function, others, place = WRITTEN[name]
    inputs = operands(SIZES) + others
    call, graphs, _ = compiled(function, inputs)
    assert targets(graphs)
    found, eager = written_between(call, inputs, place), written_between(function, inputs, place)
    assert len(found) == len(eager)
    wide = [x.detach().float().requires_grad_(x.requires_grad) for x in inputs]
    for got, rounded, exact in zip(found, eager, written_between(function, wide, place)[: len(eager)], strict=True):
        least = (rounded - exact).abs().max().item()
        assert (got - exact).abs().max().item() <= 1.5 * least + 2**-7 * exact.abs().max().item()


def test_rows_that_see_nothing_reach_their_own_distances():
    mask = torch.zeros(2, 1, 40, 1, dtype=torch.bfloat16)
    mask[1, 0, 39] = -math.inf
    inputs = [*operands(SIZES), table(), mask]

    def program(q, k, v, table, mask):
        places = torch.arange(q.size(1))
        bias = table[places[:, None] - places[None, :] + q.size(1) - 1].permute(2, 0, 1)
        return plain(q, k, v, lambda s: s + (bias + mask))

    call, graphs, _ = compiled(program, inputs)
    found, eager = both_ways(call, inputs), both_ways(program, inputs)
    assert targets(graphs) == set(OPERATORS)
    for got, plainly in zip(found, eager, strict=True):
        assert torch.equal(got.isnan(), plainly.isnan()) and plainly.isnan().any() and not plainly.isnan().all()


def test_gradients_of_gradients():
    inputs = [x.detach().requires_grad_() for x in operands(SIZES)]

    def second(call):
        out = call(*inputs)
        out = out[0] if isinstance(out, (tuple, list)) else out
        first = torch.autograd.grad((out.float() ** 2).sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum((g.float() ** 2).sum() for g in first), inputs)

    call, graphs, _ = compiled(plain, inputs)
    assert targets(graphs)
    for got, want in zip(second(call), second(plain), strict=True):
        torch.testing.assert_close(got.float(), want.float(), rtol=0, atol=5e-2 * want.abs().max().item())

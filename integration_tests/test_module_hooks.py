"""Backward hooks of modules in compiled graphs: values, gradients, what the hooks see and in which order, as in eager."""

import collections

import pytest
import torch
import tracework
from torch.utils.checkpoint import checkpoint
from tracework_capture import Unsupported
from training import same

LOG = []
Pair = collections.namedtuple("Pair", "first second")


def shown(values):
    return [None if v is None else v.detach().clone() for v in values]


class Parts(torch.nn.Module):
    """Several arguments and results, some of which are no tensors or ask for no gradients."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x, mask, scale=2):
        h = self.layer(x) * mask
        return h * scale, h.tanh(), mask * 2, scale


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.inner, self.act = (
            torch.nn.Linear(4, 4),
            torch.nn.Linear(4, 4),
            torch.nn.Linear(4, 4),
            torch.nn.ReLU(),
        )
        self.parts = Parts()

    def forward(self, x):
        return self.b(self.act(self.inner(self.a(x)))).sin()


class AllParts(Net):
    def forward(self, x):
        h, t, m, scale = self.parts(self.a(x), torch.ones(4), 3)
        return self.b(h) + t * m + scale


class OnePart(Net):
    def forward(self, x):
        return self.b(self.parts(self.a(x), x, scale=1)[1])


class Record(Net):
    def forward(self, x):
        found = self.records(Pair(self.a(x), x))
        return found.first * found.second

    class Records(torch.nn.Module):
        def forward(self, pair):
            return Pair(pair.first * 2, pair.second.sin())

    def __init__(self):
        super().__init__()
        self.records = self.Records()


class Twice(Net):
    def forward(self, x):
        h = self.inner(self.a(x))
        return self.b(h) + h.relu() + self.inner(h)


class NoGradientComesIn(Net):
    def forward(self, x):
        return self.b(self.act(self.a(x.detach())))


class Again(Net):
    def forward(self, x):
        return self.b(checkpoint(lambda h: self.act(self.inner(h)), self.a(x), use_reentrant=False))


class Modes(Net):
    """Modes that are switched where the graph is cut."""

    def forward(self, x):
        with torch.no_grad():
            c = self.inner(x).mean()
        h = self.a(x) * c
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.act(self.inner(h))
        with torch.no_grad():
            d = h.mean()
            with torch.enable_grad():
                h = self.inner(h.float())
        return self.b(h) + d


class OfTensors(Net):
    """Hooks of tensors and gradients that are kept, in a graph that is cut."""

    def forward(self, x):
        h = self.a(x)
        g = h.sin()
        h.register_hook(lambda t: t * 2)
        z = self.inner(h)
        z.register_hook(lambda t: t.clamp(-0.1, 0.1))
        other = z * 3
        handle = other.register_hook(lambda t: t * 100)
        found = self.inner(other)
        handle.remove()
        h.retain_grad()
        self.kept = h
        return self.b(self.act(z * 2) + z) + h + g + found


class Heads(Net):
    """Results that depend on different modules."""

    def forward(self, x):
        u, v = self.inner(self.a(x)), self.b(x.sin())
        return u.sin(), (v * 2).cos(), u.detach() * v + x, self.act(u)


class Views(Net):
    class Parts(torch.nn.Module):
        def forward(self, x):
            return x.view(-1)[:4], x.t(), x

    def __init__(self):
        super().__init__()
        self.views = self.Parts()

    def forward(self, x):
        p, q, r = self.views(self.a(x))
        return self.b(r) + p + q.t().relu()


def looks(net):
    for name, module in net.named_modules():
        module.register_full_backward_hook(lambda m, given, out, name=name: LOG.append((name, shown(given), shown(out))))


def looks_before(net):
    looks(net)
    for name, module in net.named_modules():
        module.register_full_backward_pre_hook(lambda m, out, name=name: LOG.append((name, shown(out))))


def changes(net):
    looks(net)
    for module in (net.inner, net.parts):
        module.register_full_backward_hook(lambda m, given, out: tuple(None if g is None else g * 2 for g in given))
        module.register_full_backward_pre_hook(lambda m, out: tuple(None if g is None else g + 1 for g in out))


def stops(net):
    looks(net)
    net.inner.register_full_backward_hook(lambda m, given, out: tuple(None for g in given))


def raises(net):
    def hook(m, given, out):
        raise ValueError("the hook refuses")

    net.inner.register_full_backward_hook(hook)


def gives_too_many(net):
    net.inner.register_full_backward_hook(lambda m, given, out: (*given, *given))


def results(net, run, backward):
    """What two calls and their backwards give."""
    found = []
    for _ in range(2):
        x = torch.linspace(-1, 1, 8).reshape(2, 4).requires_grad_()
        net.zero_grad()
        out = run(x)
        LOG.append("called")
        backward(out, x)
        outs = out if isinstance(out, tuple) else (out,)
        kept = [net.kept.grad] if hasattr(net, "kept") else []
        found += shown([*outs, x.grad, *kept, *(p.grad for p in net.parameters())])
    return found


def of_sum(out, x):
    sum(o.sum() for o in (out if isinstance(out, tuple) else (out,))).backward()


def of_one(index):
    return lambda out, x: out[index].sum().backward()


def of_the_gradient(out, x):
    (given,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    LOG.append("first")
    (given * given).sum().backward()


def kept_graph(out, x):
    out.sum().backward(retain_graph=True)
    out.sum().backward()


def compare(kind, register, backward, backend):
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        net = kind()
        register(net)
        LOG.clear()
        run = tracework.compile(lambda x, net=net: net(x), backend=backend, fullgraph=True) if compiled else net
        try:
            found.append([results(net, run, backward), list(LOG)])
        except (ValueError, RuntimeError) as error:
            found.append([type(error), str(error), list(LOG)])
        assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    assert_same(*found[::-1])


def assert_same(found, expected):
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_same(*pair)
    else:
        same(found, expected)


CASES = [(net, looks_before, of_sum) for net in (Net, AllParts, OnePart, Record, Twice, NoGradientComesIn, Again, Modes)]
CASES += [(net, looks_before, of_sum) for net in (OfTensors, Views)]
CASES += [(Heads, looks_before, of_one(index)) for index in range(4)]
CASES += [(net, changes, of_sum) for net in (Net, AllParts, Twice, Views)]
CASES += [(Net, hook, of_sum) for hook in (stops, raises, gives_too_many)]
CASES += [(net, looks_before, backward) for net in (Net, OnePart) for backward in (of_the_gradient, kept_graph)]


@pytest.mark.parametrize(("kind", "register", "backward"), CASES)
def test_as_in_eager(kind, register, backward):
    compare(kind, register, backward, "aot_eager")


def test_the_whole_stack():
    compare(AllParts, changes, of_sum, "inductor")


def test_a_gradient_is_kept_without_other_hooks():
    compare(OfTensors, lambda net: None, of_sum, "aot_eager")


def test_what_no_gradient_leads_to_sees_none():
    """A result that depends on an input by its values alone."""

    def fn(x, y):
        return x.detach() * y

    found = []
    for call in (fn, tracework.compile(fn, backend="aot_eager", fullgraph=True)):
        x, y, seen = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True), []
        given = x * 2
        given.register_hook(seen.append)
        call(given, y).sum().backward()
        found.append([seen, x.grad, y.grad])
    same(found[1], found[0])


def hooked_of_the_old_kind(wrap, at):
    """What a hook of register_backward_hook sees: the gradients at the autograd node that is last in plain code."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh()))
    seen = []
    module = net if at is None else net[at]
    module.register_backward_hook(
        lambda module, given, wanted: seen.append([None if g is None else g.clone() for g in (*given, *wanted)])
    )
    run = wrap(net)
    for _ in range(2):
        run(torch.ones(4, 3)).sum().backward()
    return seen, [p.grad for p in net.parameters()]


@pytest.mark.filterwarnings("ignore:.*non-full backward hook")
@pytest.mark.parametrize("at", [None, 0, 2])
@pytest.mark.parametrize(
    "wrap", [tracework.compile, lambda net: tracework.compile(lambda x: net(x) * 1)], ids=["module", "caller"]
)
def test_hooks_of_the_old_kind_see_the_nodes_of_plain_code(wrap, at):
    plain = (lambda net: net) if wrap is tracework.compile else (lambda net: lambda x: net(x) * 1)
    torch.testing.assert_close(hooked_of_the_old_kind(wrap, at), hooked_of_the_old_kind(plain, at))


def test_one_graph_is_not_possible_with_hooks_of_the_old_kind():
    net = torch.nn.Linear(3, 2)
    net.register_backward_hook(lambda module, given, wanted: None)
    with pytest.raises(Unsupported, match="register_backward_hook"):
        tracework.compile(net, fullgraph=True)(torch.ones(4, 3))

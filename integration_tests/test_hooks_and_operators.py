"""Tensor hooks, module hooks, custom operators, initialisers inside a compiled function."""

import pytest
import torch
import tracework
from training import BACKENDS, check, same

recurrent = torch.nn.LSTM(4, 5, num_layers=2, batch_first=True)
linear = torch.nn.Linear(4, 4)


@torch.library.custom_op("tracework_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


doubled.register_fake(torch.empty_like)
doubled.register_autograd(lambda ctx, g: g * 2)


@torch.library.custom_op("tracework_tests::increased", mutates_args=("x",))
def increased(x: torch.Tensor) -> None:
    x.add_(1)


def hook_inside(x, w):
    y = x * w[0]
    y.register_hook(lambda g: g * 3 + w[1])
    z = y.sin()
    z.register_hook(lambda g: None)
    return z, y * 2


def hook_and_backward(x, w):
    y = (x @ w).tanh()
    y.register_hook(lambda g: g.clamp(-0.1, 0.1))
    y.sum().backward()
    return x.grad.detach()


def removed_hook(x, w):
    y = x * 2
    handle = y.register_hook(lambda g: g * 100)
    handle.remove()
    return y * w[0]


def custom_operator(x, w):
    return doubled(x).sin() + torch.ops.tracework_tests.doubled(w)[:3]


def writing_operator(x, w):
    y = x * 2
    increased(y)
    return y * w[0]


def initialised(x, w):
    made = torch.nn.init.xavier_uniform_(torch.empty(3, 4))
    torch.nn.init.zeros_(made[0])
    return made * x + torch.nn.init.normal_(torch.empty(4), std=0.5)


def parameter(x, w):
    p = torch.nn.Parameter(w[0].detach() * 2)
    (x.detach() * p).sum().backward()
    return p, p.grad, isinstance(p, torch.nn.Parameter) * x


def lstm(x, w):
    found, (h, c) = recurrent(torch.stack([x, x + 1]))
    return found, h, c


PROGRAMS = (
    hook_inside,
    hook_and_backward,
    removed_hook,
    custom_operator,
    writing_operator,
    initialised,
    parameter,
    lstm,
)


def inputs():
    torch.manual_seed(1)
    return torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_values_and_gradients(fn, backend):
    check(fn, *inputs(), backend=backend, module=recurrent)


def test_the_whole_stack():
    check(lambda x, w: (*hook_inside(x, w), custom_operator(x, w), writing_operator(x, w)), *inputs(), backend="inductor")


def test_a_parameter_leaves_as_one():
    made = tracework.compile(parameter, backend="aot_eager", fullgraph=True)(*inputs())[0]
    assert type(made) is torch.nn.Parameter and made.is_leaf and made.requires_grad and made.grad is not None


def test_module_hooks():
    module = torch.nn.Linear(4, 4)
    module.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    module.register_forward_hook(lambda m, args, out: out * args[0].sum())
    check(module, inputs()[0], backend="aot_eager")


def observed_hooks(fn, wrap):
    """Results, gradients of the inputs, and what hooks saw, of three calls and their backwards."""
    seen, found = [], []
    run = wrap(lambda x, w: fn(x, w, seen))
    for number in range(3):
        x, w = inputs()
        given = x * 2 if number == 1 else x
        out = run(given, w)
        sum(o.sum() for o in out if o.requires_grad).backward()
        found += [*out, x.grad, w.grad, *(o.grad for o in out if o.is_leaf or o.retains_grad)]
    return [t if t is None else t.detach() for t in found], seen


def of_an_input(x, w, seen):
    x.register_hook(lambda g: seen.append(tuple(g.shape)) or g * 3)
    removed = w.register_hook(lambda g: g * 100)
    removed.remove()
    return x * w[0], x.sin()


def with_a_value_of_the_graph(x, w, seen):
    factor = w.detach().sum() * 2
    x.register_hook(lambda g: g * factor)
    return (x * w[0],)


def accumulated(x, w, seen):
    w.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.sum().item()))
    return (x * w[0],)


def retained(x, w, seen):
    y = x * w[0]
    y.retain_grad()
    w.retain_grad()
    return y.sin(), y


@pytest.mark.parametrize("fn", [of_an_input, with_a_value_of_the_graph, accumulated, retained], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_hooks_that_a_later_backward_runs(fn, backend):
    expected = observed_hooks(fn, lambda fn: fn)
    same(list(observed_hooks(fn, lambda fn: tracework.compile(fn, backend=backend, fullgraph=True))), list(expected))


class Product(torch.autograd.Function):
    """Several results, one of them hooked, are taken from one node of the graph."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b, a + b

    @staticmethod
    def backward(ctx, first, second):
        a, b = ctx.saved_tensors
        return first * b + second, first * a + second


SEEN = []


def test_a_hook_of_one_result_of_several():
    def fn(x):
        a, b = Product.apply(x.sin(), x)
        a.register_hook(lambda g: g * 2)
        c = x.cos()
        c.register_hook(lambda g: SEEN.append(g.sum().item()))
        return (a * b * c).sum(), a, b

    found = []
    for call in (fn, tracework.compile(fn, backend="aot_eager")):
        x = torch.linspace(-1, 1, 5, dtype=torch.float64, requires_grad=True)
        loss, a, b = call(x)
        assert type(a) is torch.Tensor is type(b)
        loss.backward()
        found.append((a, b, x.grad, *SEEN))
        SEEN.clear()
    torch.testing.assert_close(*found)


def seen_as(name):
    """A hook that notes what it gets: a gradient or none, or those of a node, which are given last."""
    return lambda *grads: SEEN.append((name, tuple(g if g is None else g.detach().clone() for g in as_tuple(grads[-1]))))


def as_tuple(grads):
    return (grads,) if grads is None or isinstance(grads, torch.Tensor) else tuple(grads)


SEVERAL = {
    "split": lambda x: x.split(2),
    "unbind": lambda x: x.reshape(3, 2, 4).unbind(),
    "std_mean": lambda x: (*torch.std_mean(x, 1), x),
    "aminmax": lambda x: (*torch.aminmax(x, dim=0), x),
    "qr": lambda x: (*torch.linalg.qr(x), x),
}
USED = {"all": lambda q, k, v: (q * k.sum()).sum() + v.sum(), "two": lambda q, k, v: (q * 2).sum() + (k.sum() * q).sum()}
HOOKS = {
    "in their order": lambda *made: [t.register_hook(seen_as(n)) for n, t in enumerate(made)],
    "in another order": lambda *made: [made[n].register_hook(seen_as(n)) for n in (2, 0, 1, 2)],
    "changing": lambda q, k, v: [
        k.register_hook(lambda g: g * 2),
        k.register_hook(seen_as("k")),
        q.register_hook(seen_as("q")),
    ],
    "of the node": lambda q, k, v: [q.grad_fn.register_hook(seen_as("node")), k.register_hook(seen_as("k"))],
    "before the node": lambda q, k, v: [k.grad_fn.register_prehook(seen_as("before")), q.register_hook(seen_as("q"))],
    "of all": lambda *made: [
        torch.autograd.graph.register_multi_grad_hook(made, seen_as("all")),
        made[1].register_hook(seen_as("k")),
    ],
    "of any": lambda *made: [torch.autograd.graph.register_multi_grad_hook(made, seen_as("any"), mode="any")],
}


@pytest.mark.parametrize("is_result", [False, True], ids=["inside", "of results"])
@pytest.mark.parametrize("hooks", HOOKS.values(), ids=HOOKS)
@pytest.mark.parametrize("several", SEVERAL.values(), ids=SEVERAL)
def test_hooks_of_what_one_operator_gives(several, hooks, is_result):
    """They are those of one node: called in the order in which they were registered, also where no gradient comes."""
    found = []
    for compiled in (lambda fn: fn, lambda fn: tracework.compile(fn, backend="aot_eager")):
        for use in USED.values():

            def fn(x, use=use):
                q, k, v = several(x * 1)
                if is_result:
                    return q, k, v
                hooks(q, k, v)
                return use(q, k, v)

            x = torch.linspace(-1, 1, 24, dtype=torch.float64).sin().reshape(6, 4).requires_grad_()
            x.register_hook(seen_as("x"))
            x.register_post_accumulate_grad_hook(lambda x: SEEN.append(("sum", (x.grad.clone(),))))
            loss = compiled(fn)(x)
            if is_result:
                hooks(*loss)
                loss = use(*loss)
            loss.backward()
        found.append([*SEEN])
        SEEN.clear()
    expected, got = [[(name, [g is None for g in grads]) for name, grads in seen] for seen in found]
    assert got == expected
    torch.testing.assert_close(*[[g for _, grads in seen for g in grads if g is not None] for seen in found])


@pytest.mark.parametrize("several", [s for n, s in SEVERAL.items() if n in ("split", "unbind", "aminmax")])
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_a_hook_that_is_traced_and_gets_no_gradient(several, backend):
    def fn(x, factor):
        q, k, v = several(x * 1)
        for made in (q, k, v):
            made.register_hook(lambda g: None if g is None else g * factor)
        return (k * k).sum(), v

    found = []
    for call in (fn, tracework.compile(fn, backend=backend)):
        x = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(6, 4).requires_grad_()
        loss, _ = call(x, torch.tensor(3.0, dtype=torch.float64))
        loss.backward()
        found.append(x.grad)
    torch.testing.assert_close(*found)


def test_gradients_of_gradients_behind_a_hook():
    def fn(x):
        a = x.sin()
        a.register_hook(lambda g: SEEN.append(g.detach().clone()))
        return torch.softmax(a, -1), a.exp()

    found = []
    for call in (fn, tracework.compile(fn, backend="aot_eager")):
        x = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3).requires_grad_()
        results = call(x)
        places = [x, *results]
        first = torch.autograd.grad(sum(r.square().sum() for r in results), places, create_graph=True)
        found.append((*first, *torch.autograd.grad(first[0].square().sum(), places), *SEEN))
        SEEN.clear()
    torch.testing.assert_close(*found)


def test_a_hook_of_an_input_can_be_removed_later():
    def fn(x):
        return x * 2, x.register_hook(lambda g: g * 10)

    x = torch.ones(2, requires_grad=True)
    out, handle = tracework.compile(fn, backend="eager", fullgraph=True)(x)
    handle.remove()
    out.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_a_retained_gradient_of_a_backward_inside():
    def fn(x, w):
        y = (x * w[0]).tanh()
        y.retain_grad()
        (y * y).sum().backward()
        return y.grad * 1, x.grad * 1

    check(fn, *inputs(), backend="aot_eager")


def test_a_gradient_is_retained_after_the_hooks():
    def fn(x):
        weight = torch.ones(3).requires_grad_()
        y = weight * 2
        y.register_hook(lambda g: g * 3)
        y.retain_grad()
        (y * x).sum().backward()
        return weight.grad, y.grad

    x = torch.arange(3.0)
    same(list(tracework.compile(fn, backend="eager")(x)), list(fn(x)))


def test_a_hook_that_a_backward_inside_would_run_is_left_to_plain_python():
    def fn(x, w):
        x.register_hook(lambda g: g * 3)
        (x * w[0]).sum().backward()
        return x.grad * 1

    x, w = inputs()
    expected = fn(x, w)
    same(tracework.compile(fn, backend="eager")(*inputs()), expected)


class Saliency(torch.nn.Module):
    """Keeps gradients of its activations, as programs that explain a model do."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.gradients = []

    def keep(self, gradient):
        self.gradients.append(gradient)

    def forward(self, x):
        h = self.first(x)
        other = h.sin()
        h.register_hook(self.keep)
        return self.second(h.relu()) + other


norms = []


def notes_norms(x):
    h = x * 2
    h.register_hook(lambda g: norms.append(g.norm().item()))
    handle = h.register_hook(lambda g: norms.append(0))
    handle.remove()
    return (h * h).tanh()


def refuses(x):
    def hook(g):
        raise ValueError("no gradient here")

    y = x * 2
    y.register_hook(hook)
    return y.sin()


def many(x):
    """Several, of which one could be traced."""
    for _ in range(3):
        x = (x * 2).sin()
        x.register_hook(lambda g: norms.append(1))
        x.register_hook(lambda g: norms.append(2))
        x.register_hook(lambda g: g * 2)
    return x


def made_in_the_function(x):
    seen = []
    y = x * 2
    y.register_hook(lambda g: seen.append(1))
    return y.sin()


def outer(x):
    seen = norms

    def inner(x):
        y = x.cos()
        y.register_hook(lambda g: seen.append(tuple(g.shape)) or g * 2)
        return y * x

    return inner


inner = outer(None)


@pytest.mark.parametrize("fn", [Saliency, notes_norms, inner, refuses, many, made_in_the_function])
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_hooks_as_they_are(fn, backend):
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        made = fn() if isinstance(fn, type) else fn
        call = tracework.compile(made, backend=backend, fullgraph=fn is not made_in_the_function) if compiled else made
        norms.clear()
        for _ in range(2):
            x = torch.linspace(-1, 1, 4).requires_grad_()
            out = call(x)
            assert not norms or _
            try:
                out.sum().backward()
            except ValueError as error:
                results.append(str(error))
            results.append([out.detach(), x.grad, [*norms], getattr(made, "gradients", None)])
    same(results[len(results) // 2 :], results[: len(results) // 2])


def test_a_backward_runs_hooks_that_change_objects_in_place():
    def fn(x):
        h = x * 2
        h.register_hook(lambda g: norms.append(1))
        h.sum().backward()
        return x.detach() * len(norms)

    norms.clear()
    compiled = tracework.compile(fn, backend="eager")
    for count in (1, 2, 3):
        same(compiled(torch.ones(2, requires_grad=True)), torch.full((2,), float(count)))


@pytest.mark.parametrize("with_effect", [False, True])
def test_hooks_that_run_plainly(with_effect):
    seen = []

    def fn(x):
        y = x * 2 if with_effect else x
        y.register_hook(lambda g: seen.append(g.sum().item()) or g * 3)
        return (y * y).sum()

    results = []
    for call in (fn, tracework.compile(fn, backend="eager")):
        seen.clear()
        x = torch.ones(3, requires_grad=True)
        call(x).backward()
        results.append([x.grad, list(seen)])
    same(*results)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hook_behind_a_leaf_that_is_made_inside(backend):
    """A piece of the graph before the hook makes the leaf."""

    def fn(x):
        leaf = x.detach().clone().requires_grad_()
        made = leaf * 2
        made.register_hook(lambda g: g * 3)
        made.retain_grad()
        (made * x).sum().backward()
        return leaf.grad, made.grad

    same(tracework.compile(fn, backend=backend)(torch.ones(3)), fn(torch.ones(3)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_parts_of_results_where_a_graph_is_cut(backend):
    """A piece gives tensors, and no tuple that a part is taken of in the next."""

    def fn(x):
        leaf = torch.vmap(lambda t: t * 2)(x / 3).detach().requires_grad_()
        made = leaf * 2
        made.retain_grad()
        first, second = (made * 1).unbind(0)
        first.register_hook(lambda g: g * 3)
        second.register_hook(lambda g: g * 5)
        return x * 2, leaf, made, first * 2, second * 3, first + second

    results = []
    for call in (fn, tracework.compile(fn, backend=backend)):
        found = call(torch.ones(2, 3))
        sum((i + 1) * t.sum() for i, t in enumerate(found)).backward()
        results.append([*(t.detach() for t in found), found[1].grad, found[2].grad])
    same(*results)


class Features(torch.nn.Module):
    """Gives its features with the classes it computes from them, as Grad-CAM and models of Hugging Face do."""

    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(inplace=True))
        self.head = torch.nn.Linear(4, 5)

    def forward(self, images):
        features = self.features(images)
        return features, self.head(features.mean((2, 3)))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_grad_cam(backend, dynamic):
    torch.manual_seed(0)
    model, found = Features(), []
    images = torch.randn(2, 3, 8, 8)
    for run in (model, tracework.compile(model, backend=backend, dynamic=dynamic, fullgraph=True)):
        model.zero_grad()
        features, logits = run(images)
        features.retain_grad()
        seen = []
        features.register_hook(lambda g, seen=seen: seen.append(g) or g * 2)
        logits[0, 3].backward(retain_graph=True)
        weights = features.grad.mean((2, 3), keepdim=True)
        (again,) = torch.autograd.grad(logits[1, 2], features)
        found.append([(weights * features).sum(1).relu(), features.grad, again, *seen, *(p.grad for p in model.parameters())])
    # statistics and gradients are sums of 72 terms in another order: 72 * 2**-23 < 1e-5
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)


def test_a_hook_of_a_result_changes_what_is_seen_of_its_gradient():
    """By hooks and gradients outside, of what the graph computes from it, too; of a view and of what is written to later."""

    def fn(x, w):
        y = x * w[0]
        y.register_hook(lambda g: g * 3 + w[1])
        row = y[1]
        row.register_hook(lambda g: g.sin())
        return y, row, (y * row).sin(), row.exp()

    def written(x, w):
        y = x * w[0]
        y.register_hook(lambda g: g * 3)
        y.add_(1)
        return y, y.sin()

    for program in (fn, written):
        found = []
        for call in (program, tracework.compile(program, backend="aot_eager", fullgraph=True)):
            x, w = inputs()
            results, seen = call(x, w), []
            for result in results:
                seen += torch.autograd.grad(result.square().sum(), [*results, x, w], retain_graph=True, allow_unused=True)
            for result in results:
                result.retain_grad()
                result.register_hook(seen.append)
            sum(result.sum() for result in results).backward()
            found.append([*seen, *(t.grad for t in (*results, x, w))])
        assert [g is None for g in found[0]] == [g is None for g in found[1]]
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("shows_middle", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_of_parameters_run_in_the_order_of_eager(count, shows_middle, backend):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 4).double() for _ in range(count)]
    model = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.Tanh())))
    log = []
    for name, parameter in model.named_parameters():
        if not name.startswith("2."):
            parameter.register_hook(lambda g, name=name: log.append(name))
            parameter.register_post_accumulate_grad_hook(lambda _, name=name: log.append(f"{name}.grad"))

    def forward(x):
        middle = layers[0](x)
        out = model(middle) + layers[0](middle).exp()
        return (out, middle.sin()) if shows_middle else (out,)

    found = []
    for function in (forward, tracework.compile(forward, backend=backend)):
        log.clear()
        for _ in range(2):
            results = function(torch.linspace(0, 1, 12, dtype=torch.float64).view(3, 4))
            sum(result.square().sum() for result in results).backward()
        found.append(([*log], [p.grad for p in model.parameters()]))
        model.zero_grad()
    (expected, gradients), (actual, compiled) = found
    assert actual == expected
    torch.testing.assert_close(compiled, gradients)


def test_under_compiled_autograd_of_torch():
    """Backwards of compiled graphs are calls in its graphs; nothing of the compiler's own work is."""
    from torch._dynamo import compiled_autograd

    def inside(x, w):
        h = x * w[0]
        h.register_hook(lambda g: g.clamp(-0.5, 0.5))
        (h * h).sum().backward()
        return x.grad * 1

    def outside(x, w):
        return (x @ w).tanh().sum()

    made = []
    found = []
    for call in (lambda fn: fn, lambda fn: tracework.compile(fn, backend="aot_eager")):
        x, w = inputs()
        with compiled_autograd._enable(lambda gm: made.append(gm) or gm):
            call(outside)(x, w).backward()
            gradients = [x.grad, w.grad]
            x.grad = None
            found.append([gradients, call(inside)(x, w)])
    same(found[1], found[0])
    assert len(made) == 3  # of the plain program two, of the compiled ones that outside

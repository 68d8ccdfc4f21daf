"""torch.autograd.grad, backward and optimizer steps inside a compiled function."""

import copy
import subprocess
import sys

import pytest
import torch
import tracework
from training import BACKENDS, check, same


def inputs():
    torch.manual_seed(1)
    return torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)


def both(fn, backend, fullgraph=True):
    """Results and gradients of a function that runs its backward itself: plain, compiled."""
    found = []
    for call in (fn, tracework.compile(fn, backend=backend, fullgraph=fullgraph)):
        x, w = inputs()
        result = call(x, w)
        result = result if isinstance(result, tuple) else (result,)
        found.append([[(t.detach(), t.requires_grad) for t in result], x.grad, w.grad, [t.grad for t in result if t.is_leaf]])
    return found


def grads(x, w):
    gx, gw = torch.autograd.grad((x @ w).tanh().sum(), (x, w))
    return gx * 2, gw


def keyword_grads(x, w):
    y = (x @ w).tanh()
    (gx, none) = torch.autograd.grad([y], [x, w.detach().requires_grad_()], grad_outputs=[y.detach()], allow_unused=True)
    return gx if none is None else none


def backward(x, w):
    y = (x @ w).tanh().sum()
    y.backward()
    return y, x.grad * 2


def accumulates(x, w):
    (x @ w).tanh().sum().backward()
    (x + w[0]).sum().backward()
    kept = x.grad
    torch.autograd.backward([(x * w.sum()).sum()], inputs=[x])
    return kept


def retained(x, w):
    y = (x @ w).tanh().sum()
    y.backward(retain_graph=True)
    y.backward()
    x.grad = None
    return y


def own_leaf(x, w):
    z = x.detach().requires_grad_()
    (z * w.detach()[0]).sum().backward()
    return z


def shared_gradient(x, w):
    (x + w[:3]).backward(torch.ones(3, 4))
    x.grad.mul_(2)
    return x.detach()


def transposed(x, w):
    (x @ w.t()).square().sum().backward()
    return torch.tensor(w.grad.stride())


PROGRAMS = (grads, keyword_grads, backward, accumulates, retained, own_leaf, shared_gradient, transposed)


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_gradients_inside(fn, backend):
    expected, found = both(fn, backend)
    same(found, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_penalty(backend):
    def penalty(x, w):
        (gx,) = torch.autograd.grad((x @ w).tanh().sum(), x, create_graph=True)
        return gx.norm(dim=1).sub(1).square().mean()

    check(penalty, *inputs(), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_history_that_was_used_up_says_so(backend):
    def fn(x, w):
        hidden = (x @ w).tanh()
        hidden.sum().backward()
        return hidden, x * 2

    hidden, fresh = tracework.compile(fn, backend=backend, fullgraph=True)(*inputs())
    assert hidden.requires_grad and hidden.grad_fn is not None
    with pytest.raises(RuntimeError, match="second time"):
        hidden.sum().backward()
    fresh.sum().backward()


def test_history_from_outside_runs_plainly():
    def fn(x, w):
        (x * w).sum().backward()
        return x.detach()

    results = []
    for call in (fn, tracework.compile(fn, backend="eager")):
        x, w = inputs()
        call((x * 2)[:, :4], w[:3])
        results.append([x.grad, w.grad])
    same(*results)


def test_hooks_that_come_later_run():
    fn = tracework.compile(lambda x, w: (x @ w).sum().backward(), backend="eager")
    x, w = inputs()
    fn(x, w)
    first, x.grad = x.grad, None
    handle = x.register_hook(lambda g: g * 3)
    fn(x, w)
    second, x.grad = x.grad, None
    handle.remove()
    fn(x, w)
    same([second, x.grad], [first * 3, first])


def changes(x, w, log):
    x.register_hook(lambda g: g * 3)
    x.register_hook(lambda g: None)
    w.register_hook(lambda g: g.clamp(-1, 1))


def keeps(x, w, log):
    for t in (x, w):
        t.register_hook(log.append)


def changes_in_place(x, w, log):
    x.register_hook(lambda g: (g.mul_(2), None)[1])


def orders(x, w, log):
    """A hook sees what hooks before it, and sums before it, left."""
    for name, t in (("x", x), ("w", w)):
        t.register_hook(lambda g, name=name: log.append((name, x.grad is None, w.grad is None)))
        t.register_post_accumulate_grad_hook(lambda t, name=name: log.append((name, x.grad is None, w.grad is None)))


def steps(x, w, log):
    for t in (w, x):
        optimizer = torch.optim.SGD([t], lr=0.1, momentum=0.9)

        def hook(t, optimizer=optimizer):
            optimizer.step()
            optimizer.zero_grad()
            log.append(t.detach().clone())

        t.register_post_accumulate_grad_hook(hook)


def counts(x, w, log):
    x.register_hook(lambda g: log.append(len(log)) or g * len(log))


@pytest.mark.parametrize("hooks", [changes, keeps, changes_in_place, orders, steps, counts], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_hooks_of_leaves_are_run_by_a_backward_inside(hooks, backend):
    def step(x, w):
        loss = ((x @ w).tanh() + x).sum()
        loss.backward()
        return loss.detach()

    found = []
    for call in (step, tracework.compile(step, backend=backend, fullgraph=True)):
        (x, w), log = inputs(), []
        hooks(x, w, log)
        losses = [call(x, w) for _ in range(3)]
        for t in (x, w):
            if t.grad is not None:
                t.grad.zero_()  # not what a hook has kept
        found.append([losses, x.detach(), w.detach(), x.grad, w.grad, log])
    same(found[1], found[0])


def test_hooks_that_are_put_on_and_taken_off_inside():
    def step(x, w):
        handles = [x.register_hook(lambda g: g * 2), x.register_hook(lambda g: g + 1)]
        handles.append(w.register_post_accumulate_grad_hook(lambda t: (t.grad.neg_(), None)[1]))
        (x @ w).sum().backward()
        for handle in handles:
            handle.remove()
        (x @ w).sum().backward()

    found = []
    for call in (step, tracework.compile(step, backend="eager", fullgraph=True)):
        x, w = inputs()
        call(x, w)
        found.append([x.grad, w.grad, bool(x._backward_hooks)])
    same(found[1], found[0])


def test_hooks_that_are_left_to_plain_python():
    """One that raises when some gradients are there, and one that writes to what the backward reads afterwards."""

    def raises(x, w):
        def hook(g):
            raise ValueError("no gradient here")

        x.register_hook(hook)

    def writes(x, w):
        w.register_hook(lambda g: (x.detach().add_(1), None)[1])

    for hooks, error in ((raises, ValueError), (writes, RuntimeError)):
        found = []
        for call in (
            program := lambda x, w: ((x.sin() @ w).tanh()).sum().backward(),
            tracework.compile(program, backend="eager"),
        ):
            x, w = inputs()
            hooks(x, w)
            with pytest.raises(error) as caught:
                call(x, w)
            found.append([str(caught.value).splitlines()[0], w.grad])
        same(found[1], found[0])


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True, foreach=True),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, maximize=True, foreach=False),
    "sgd_fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "adam_amsgrad": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1), fused=True),
}


def train(make_optimizer, backend=None, steps=4, inner=1):
    """Losses, parameters and gradients after some steps, and how many graphs were compiled. inner: layers in the middle; with one there are
    enough equal kernels for a table."""
    torch.manual_seed(0)
    middle = [torch.nn.Linear(8, 8) for _ in range(inner)]
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), *middle, torch.nn.Linear(8, 1))
    optimizer = make_optimizer(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    call = step if backend is None else tracework.compile(step, backend=backend, fullgraph=True)
    losses = [call(torch.randn(16, 4)).detach() for _ in range(steps)]
    state = [list(optimizer.state[p].values()) for p in model.parameters()]
    return [losses, [p.detach() for p in model.parameters()], [p.grad for p in model.parameters()], state]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_whole_training_step(name):
    same(train(OPTIMIZERS[name], "aot_eager"), train(OPTIMIZERS[name]))


def test_a_whole_training_step_through_the_whole_stack():
    same(train(OPTIMIZERS["adamw"], "inductor"), train(OPTIMIZERS["adamw"]))


@pytest.mark.parametrize("foreach", [False, True])
def test_capturable(foreach):
    """Steps count in single precision then: 1 - 0.999 has a relative error of 6e-8 / 1e-3, half of which reaches each update of 0.1."""
    found = train(
        lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1, capturable=True, foreach=foreach), "aot_eager", inner=0
    )
    expected = train(OPTIMIZERS["adamw"], inner=0)
    for one, other in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=4 * 0.1 * 3e-5)


def test_gradients_kept_and_set_to_zero():
    torch.manual_seed(0)
    base = torch.nn.Linear(4, 1)
    results = []
    for backend in (None, "aot_eager"):
        model = copy.deepcopy(base)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad(set_to_none=False)
            model(x).square().sum().backward()
            model(x).sum().backward()
            optimizer.step()

        call = step if backend is None else tracework.compile(step, backend=backend, fullgraph=True)
        for value in (1.0, 2.0, 3.0):
            call(torch.full((2, 4), value))
        results.append([[p.detach(), p.grad] for p in model.parameters()])
    same(results[1], results[0])


def test_operators_whose_number_is_a_tensor():
    def fn(x, w):
        s = w.sum()
        y = x.add(x, alpha=s).addcdiv(x, x.square() + 1, value=s * 2)
        torch._foreach_add_([y, y], [x, x], alpha=s)
        return torch.sub(y, x, alpha=s).addcmul_(x, y, value=s)

    with torch.no_grad():
        check(fn, *inputs())


def test_operators_without_dimensions_whose_number_is_a_tensor():
    """The number takes no part in promotion."""

    def fn(x, s):
        y = x.add(x, alpha=s).addcdiv(x, x + 1, value=-s)
        torch._foreach_add_([y], [x], alpha=s)
        return y.sub(x, alpha=s).addcmul_(x, y, value=s)

    for dtype in (torch.float32, torch.float64):
        given = torch.tensor(1.5), torch.tensor(0.3, dtype=dtype)
        same(tracework.compile(fn, backend="eager", fullgraph=True)(*given), fn(*given))


@pytest.mark.parametrize("optimizer", ["Adam", "NAdam", "Adadelta", "Adamax", "RMSprop", "Adagrad"])
def test_parameters_without_dimensions_are_trained_in_one_graph(optimizer):
    """As the temperature of CLIP. The number of steps is a float, with which numbers stay of their dtype."""
    found = []
    for compiled in (False, True):
        scale, shift = torch.nn.Parameter(torch.tensor(0.5)), torch.nn.Parameter(torch.tensor([0.25, 1.0]))
        made = getattr(torch.optim, optimizer)([scale, shift], lr=0.1)

        def step(x, scale=scale, shift=shift, made=made):
            made.zero_grad()
            ((x * scale.exp() + shift) ** 2).mean().backward()
            made.step()

        call = tracework.compile(step, backend="eager", fullgraph=True) if compiled else step
        for value in (1.0, 2.0, 3.0):
            call(torch.full((3, 2), value))
        found.append([p.detach() for p in (scale, shift)])
        assert all(p.dtype == torch.float32 for state in made.state.values() for p in state.values() if torch.is_tensor(p))
    torch.testing.assert_close(found[1], found[0])


def test_a_whole_training_step_where_torch_compile_was_used_before():
    """It marks parts of torch's optimizers as disabled, and patches methods of modules, when it is first used."""
    program = """
import copy, torch, tracework
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
net = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
@tracework.compile(backend="aot_eager", fullgraph=True)
def step(x):
    optimizer.zero_grad()
    loss = net(x).sum()
    loss.backward()
    optimizer.step()
    return loss
before = net.weight.detach().clone()
print(float(step(torch.ones(3, 2)) - step(torch.ones(3, 2))) > 0, not torch.equal(before, net.weight))
copied = tracework.compile(lambda x: copy.deepcopy(net)(x), backend="aot_eager", fullgraph=True)
print(torch.equal(copied(torch.ones(3, 2)), net(torch.ones(3, 2))))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["True"] * 3, done.stderr[-2000:]


def scaled_steps(wrap):
    """Parameters and scale after three steps with a GradScaler, the second of which meets an infinite loss."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.GELU(), torch.nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)

    def step(x, factor):
        optimizer.zero_grad(set_to_none=True)
        loss = (model(x).square().sum() * factor).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    call = wrap(step)
    losses = [call(torch.ones(6, 4), torch.tensor(factor)) for factor in (1.0, float("inf"), 1.0)]
    return losses, [p.detach() for p in model.parameters()], scaler.get_scale()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_scaler_of_gradients(backend):
    """Its operator gives a list of tensors and a tensor."""
    torch.testing.assert_close(scaled_steps(lambda f: tracework.compile(f, backend=backend)), scaled_steps(lambda f: f))


def test_what_the_stack_generated_is_not_captured_when_the_engine_runs_it_below_a_program():
    """It takes addresses of memory: captured, it wrote to those of an earlier call."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    losses = []

    def step(x):
        for _ in range(2):
            probabilities = model(x).softmax(-1)
            losses.append(-probabilities[int(probabilities.argmax())].log())
        loss = torch.stack(losses).sum()
        losses.clear()
        model.zero_grad()
        loss.backward()
        return loss.detach(), [p.grad.clone() for p in model.parameters()]

    x = torch.randn(4)
    expected = step(x)
    explained = tracework.explain(step)(x)
    assert not [graph for graph in explained.capture.graphs if "<tracework host" in str(graph)]
    compiled = tracework.compile(step)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), expected)


def penalised(wrap):
    """A critic with a penalty on the gradient of what is mixed inside: two backwards, the second through the first."""
    torch.manual_seed(0)
    critic = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LeakyReLU(0.2), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(critic.parameters(), 1e-2)

    def step(real, fake, mix):
        between = (mix * real + (1 - mix) * fake).requires_grad_(True)
        score = critic(between)
        (slope,) = torch.autograd.grad(score, between, torch.ones_like(score), create_graph=True)
        penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), penalty.detach()

    call = wrap(step)
    losses = [call(torch.randn(5, 6), torch.randn(5, 6), torch.rand(5, 1)) for _ in range(3)]
    return losses, [p.detach() for p in critic.parameters()]


def equation_solved(wrap):
    """A network whose derivatives by its inputs, up to the second, are the loss."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)

    def step(x, t):
        x, t = x.clone().requires_grad_(), t.clone().requires_grad_()
        u = net(torch.cat([x, t], 1))
        by_x, by_t = torch.autograd.grad(u, (x, t), torch.ones_like(u), create_graph=True)
        (twice,) = torch.autograd.grad(by_x, x, torch.ones_like(by_x), create_graph=True)
        loss = ((by_t + u * by_x - 0.01 * twice) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    call = wrap(step)
    losses = [call(torch.randn(5, 1), torch.rand(5, 1)) for _ in range(3)]
    return losses, [p.detach() for p in net.parameters()]


def resilient(wrap):
    """Rprop masks what it knows of a parameter without dimensions."""
    torch.manual_seed(0)
    scale, weight = torch.nn.Parameter(torch.tensor(1.5)), torch.nn.Parameter(torch.randn(3))
    optimizer = torch.optim.Rprop([scale, weight], lr=0.1)

    def step(x):
        optimizer.zero_grad()
        ((weight * x).sum() * scale).pow(2).backward()
        optimizer.step()

    call = wrap(step)
    for _ in range(4):
        call(torch.randn(3))
    return scale.detach(), weight.detach()


@pytest.mark.parametrize("training", [penalised, equation_solved, resilient])
def test_whole_steps_are_compiled(training, caplog):
    found = training(lambda f: tracework.compile(f, fullgraph=True))
    torch.testing.assert_close(found, training(lambda f: f))
    assert not [r for r in caplog.records if "uncompiled" in r.getMessage()]


def test_what_a_backward_leaves_in_tensors_of_the_program():
    """A leaf made inside has its gradient where somebody gets it."""

    def step(x, out):
        made, other = (x * 2).requires_grad_(), (x * 3).requires_grad_()
        (made * other).sum().backward()
        out.append(made.detach())
        return made, other.grad

    for function in (step, tracework.compile(step)):
        kept = []
        made, gradient = function(torch.ones(2), kept)
        assert made.requires_grad and made.is_leaf and made.grad.tolist() == [3.0, 3.0]
        assert gradient.tolist() == [2.0, 2.0] and kept[0].tolist() == [2.0, 2.0]


def test_a_loss_that_is_logged_and_given_is_compiled(caplog):
    def step(model, log, x):
        loss = model(x).square().sum()
        log["loss"] = loss.detach()
        loss.backward()
        return loss

    model, x = torch.nn.Linear(3, 3), torch.randn(2, 3)
    plain, log = copy.deepcopy(model), {}
    loss, expected = tracework.compile(step)(model, log, x), step(plain, {}, x)
    torch.testing.assert_close((loss, log["loss"]), (expected, expected.detach()))
    torch.testing.assert_close(model.weight.grad, plain.weight.grad)
    assert loss.requires_grad and not log["loss"].requires_grad and log["loss"].data_ptr() == loss.data_ptr()
    assert "uncompiled" not in caplog.text


def test_a_loss_that_reads_data_gives_gradients():
    def step(model, x, targets, lengths, sizes):
        scores = model(x).log_softmax(-1)
        loss = torch.nn.functional.ctc_loss(scores, targets, lengths, sizes)
        loss.backward()
        return loss.detach()

    given = torch.randn(8, 2, 4), torch.randint(1, 6, (2, 3)), torch.tensor([8, 7]), torch.tensor([3, 2])
    model = torch.nn.Linear(4, 6)
    plain = copy.deepcopy(model)
    torch.testing.assert_close(tracework.compile(step)(model, *given), step(plain, *given))
    torch.testing.assert_close([p.grad for p in model.parameters()], [p.grad for p in plain.parameters()])


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_gradients_that_a_backward_inside_leaves_are_no_views(backend):
    """A view refuses detach_(), which a training loop may call before it sets gradients to zero."""

    def step(model, x):
        loss = model(x).sum()
        loss.backward()
        return loss

    models = [torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)]
    models[1].load_state_dict(models[0].state_dict())
    for model, call in zip(models, (step, tracework.compile(step, backend=backend))):
        for _ in range(2):
            call(model, torch.ones(2, 3))
            assert not any(p.grad._is_view() for p in model.parameters())
            [p.grad.detach_() for p in model.parameters()]
    torch.testing.assert_close(*([p.grad for p in model.parameters()] for model in models))

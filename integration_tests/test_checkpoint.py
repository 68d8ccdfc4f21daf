"""torch.utils.checkpoint inside a compiled function: the same values and gradients, and the nodes say what is computed again."""

import copy
import functools

import pytest
import torch
import tracework
import tracework_capture
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts
from training import BACKENDS, check

model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4), torch.nn.Tanh())


def block(x, scale=1.0):
    return model(x).sin() * scale


def plain(x):
    return checkpoint(block, x, use_reentrant=False, scale=2.0) + x


def reentrant(x):
    return checkpoint(block, x * 1, 3.0, use_reentrant=True)


def cut_off(x):
    return checkpoint(block, x.detach(), use_reentrant=True), x * 2  # nothing inside gets a gradient


def sequential(x):
    return checkpoint_sequential(model, 2, x, use_reentrant=False)


def selective(x):
    contexts = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)


def selective_by_a_function(x):
    return checkpoint(
        block, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts([torch.ops.aten.mm.default])
    )


def by_name(x):
    return checkpoint(function=lambda: block(x), use_reentrant=False)


def dropout(x):
    return checkpoint(lambda t: torch.nn.functional.dropout(block(t), 0.5), x, use_reentrant=False)


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.parametrize(
    "fn", [plain, reentrant, cut_off, sequential, selective, selective_by_a_function, by_name, dropout], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_values_and_gradients(fn, backend):
    torch.manual_seed(1)
    check(fn, torch.randn(3, 4, requires_grad=True), backend=backend, module=model)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("draws", [True, False])
def test_other_random_numbers_in_the_backward(draws, backend):
    """Where states are not preserved: eager's numbers, by a break; where none are drawn, one graph."""

    def fn(x):
        function = (lambda t: torch.nn.functional.dropout(block(t), 0.5).sin()) if draws else block
        return checkpoint(function, x, use_reentrant=False, preserve_rng_state=False)

    def run(fn):
        torch.manual_seed(3)
        x = torch.ones(3, 4, requires_grad=True)
        return torch.autograd.grad(fn(x).sum(), x)[0], torch.rand(3)

    torch.testing.assert_close(run(tracework.compile(fn, backend=backend, fullgraph=not draws)), run(fn))


def test_the_whole_stack():
    check(lambda x: plain(x) + reentrant(x), torch.randn(3, 4, requires_grad=True), backend="inductor", module=model)


@pytest.mark.parametrize(("fn", "mark"), [(plain, "must"), (selective, "prefer")], ids=lambda f: getattr(f, "__name__", f))
def test_nodes_are_marked(fn, mark):
    seen = []

    def backend(gm, example_inputs):
        seen.extend((getattr(n.target, "__name__", n.target), n.meta.get("recompute")) for n in gm.graph.nodes if "call" in n.op)
        return gm.forward

    tracework.compile(fn, backend=backend, fullgraph=True)(torch.randn(3, 4, requires_grad=True))
    assert ("sin", mark) in seen and ("linear", mark) in seen
    assert fn is selective or ("add", None) in seen


def test_unknown_contexts_run_plainly():
    entered = []

    class Context:
        def __enter__(self):
            entered.append(1)

        def __exit__(self, *exc):
            return None

    def fn(x):
        return checkpoint(block, x, use_reentrant=False, context_fn=lambda: (Context(), Context()))

    tracework.compile(fn, backend="eager")(torch.randn(3, 4, requires_grad=True)).sum().backward()
    assert len(entered) == 2


log: list[str] = []
norm = torch.nn.BatchNorm1d(4)


def counting(x):
    log.append("begin")
    x = x.sin()
    log.append("between")
    x = (x * 2).cos()
    log.append("end")  # nothing is kept after it, so that the backward does not come here
    return x + 1


def printing(x):
    print(*x.shape)
    return x.exp() * x


def updating(x):
    return norm(x).sin()


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.parametrize("reentrant", [False, True], ids=["recorded", "reentrant"])
@pytest.mark.parametrize("inside", [False, True], ids=["backward_after", "backward_inside"])
@pytest.mark.parametrize("function", [counting, printing, updating], ids=lambda f: f.__name__)
def test_effects_are_repeated_by_the_backward(function, inside, reentrant, capsys):
    def fn(x):
        loss = (checkpoint(function, x * 1, use_reentrant=reentrant) * 2 + x).sum()
        if inside:
            loss.backward()
        return loss

    def calls(fn):
        log.clear()
        norm.reset_running_stats()
        seen = []
        for number in range(3):
            x = torch.linspace(0, 1 + number, 12).view(3, 4).requires_grad_()
            loss = fn(x)
            count = len(log)
            if not inside:
                loss.backward()
            seen += [count, x.grad, norm.running_mean.clone(), int(norm.num_batches_tracked)]
        return seen, list(log), capsys.readouterr().out

    expected, *logged = calls(fn)
    actual, *logged_again = calls(tracework.compile(fn, backend="eager"))
    torch.testing.assert_close(actual, expected)
    assert logged_again == logged
    if function is not updating:
        with pytest.raises(tracework_capture.errors.Unsupported, match="checkpoint"):
            tracework.compile(fn, backend="eager", fullgraph=True)(torch.ones(3, 4, requires_grad=True))


class Counting(torch.nn.Module):
    """Has statistics that are no parameters, before and behind what is kept for the backward."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
        for name in ("before", "behind"):
            self.register_buffer(name, torch.zeros(()))

    def forward(self, x):
        self.before.add_(1)
        x = self.norm(self.linear(x)).sin() * 2
        self.behind.add_(1)
        return x


def once(reentrant, block, x):
    return checkpoint(block, x, use_reentrant=reentrant)


def two_of_one_block(reentrant, block, x):
    return checkpoint(block, checkpoint(block, x, use_reentrant=reentrant), use_reentrant=reentrant)


def in_one_that_keeps_nothing(reentrant, block, x):
    return checkpoint(lambda x: checkpoint(block, x, use_reentrant=False) * 2, x, use_reentrant=reentrant)


def in_one_that_keeps_something(reentrant, block, x):
    return checkpoint(lambda x: checkpoint(block, x * 2, use_reentrant=False).cos(), x, use_reentrant=reentrant)


def by_a_function(reentrant, block, x):
    def normalized(x):
        return torch.nn.functional.batch_norm(x, block.norm.running_mean, block.norm.running_var, training=True).sin()

    return checkpoint(normalized, x, use_reentrant=reentrant)


def in_sequence(reentrant, block, x):
    return checkpoint_sequential([block, torch.tanh, block], 2, x, use_reentrant=reentrant)


NORMALIZING = (
    *(once, two_of_one_block, in_one_that_keeps_nothing, in_one_that_keeps_something),
    *(by_a_function, in_sequence),
)


def twice(run, create_graph=False, wrap=lambda block: block):
    """Gradients, and buffers after the forward and after each of two backwards."""
    torch.manual_seed(0)
    block = wrap(Counting().double())
    x = torch.linspace(-1, 2, 20, dtype=torch.float64).sin().view(5, 4).requires_grad_()
    y, seen = run(block, x * 1).square().sum(), [[b.clone() for b in block.buffers()]]
    for _ in range(2):
        x.grad = None
        y.backward(retain_graph=True, create_graph=create_graph)
        seen.append([x.grad.detach().clone(), *(b.clone() for b in block.buffers())])
    return seen


@pytest.mark.filterwarnings("error::tracework.UncompiledWarning")
@pytest.mark.parametrize("reentrant", [False, True], ids=["recorded", "reentrant"])
@pytest.mark.parametrize("fn", NORMALIZING, ids=lambda f: f.__name__)
def test_statistics_are_updated_as_often_as_by_eager(fn, reentrant):
    run = functools.partial(fn, reentrant)
    expected = twice(run)
    for backend in BACKENDS[:2]:
        compiled = tracework.compile(run, backend=backend, fullgraph=True)
        torch.testing.assert_close(twice(compiled), expected)


@pytest.mark.parametrize("how", CheckpointImpl)
def test_statistics_of_a_wrapped_block(how):
    wrap = functools.partial(checkpoint_wrapper, checkpoint_impl=how)
    compiled = tracework.compile(lambda block, x: block(x), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(twice(compiled, wrap=wrap), twice(lambda block, x: block(x), wrap=wrap))


@pytest.mark.filterwarnings("ignore:Using backward")
def test_statistics_and_gradients_of_gradients():
    run = functools.partial(once, False)
    compiled = tracework.compile(run, fullgraph=True)
    torch.testing.assert_close(twice(compiled, True), twice(run, True))


def test_a_backend_that_knows_no_checkpoints_gets_none_that_updates_statistics():
    compiled = tracework.compile(functools.partial(by_a_function, False), backend=lambda gm, inputs: gm.forward)
    torch.testing.assert_close(twice(compiled), twice(functools.partial(by_a_function, False)))


def test_other_writes_run_uncompiled():
    def run(block, x):
        def function(x):
            block.before.add_(3).mul_(2)
            return block.linear(x).sin()

        return checkpoint(function, x, use_reentrant=False)

    with pytest.warns(tracework.UncompiledWarning, match="what a checkpoint writes"):
        found = twice(tracework.compile(run, backend="aot_eager", fullgraph=True))
    torch.testing.assert_close(found, twice(run))


def of_an_input(h, c):
    return (checkpoint(torch.tanh, h, use_reentrant=False),)


def of_a_result(h, c):
    v = torch.stack([h, h])
    return v, checkpoint(torch.tanh, v, use_reentrant=False)


def of_two(h, c):
    return (checkpoint(lambda a, b: (a.sin() * b).exp(), h, c, use_reentrant=False),)


def of_what_is_not_seen(h, c):
    y = checkpoint(lambda a: a.sin().exp(), h * 2, use_reentrant=False)
    return y, y + 1


def of_nothing_kept(h, c):
    return (checkpoint(lambda a: a * 2, h, use_reentrant=False),)


def in_another(h, c):
    def function(a, b):
        return checkpoint(lambda x, y: (x * y).sin(), a * 2, b, use_reentrant=False) * a

    return (checkpoint(function, h, c, use_reentrant=False),)


def of_a_view(h, c):
    v = h.t()
    return v, checkpoint(torch.tanh, v, use_reentrant=False), checkpoint(torch.tanh, v[1:], use_reentrant=False)


def written_after_it(h, c):
    y = checkpoint(torch.tanh, h, use_reentrant=False)
    h.mul_(2)
    return (y,)


def written_in_it(h, c):
    def function(a):
        a.mul_(2)
        return a.sin()

    return (checkpoint(function, h, use_reentrant=False),)


def uncompiled(h, c):
    h.detach().add_(1)  # a write to a history that is not recorded
    v = h * 2
    return v, checkpoint(torch.tanh, v, use_reentrant=False)


ARGUMENTS = [
    *(of_an_input, of_a_result, of_two, of_what_is_not_seen, of_nothing_kept),
    *(in_another, of_a_view, written_after_it, written_in_it, uncompiled),
]


@pytest.mark.parametrize("fn", ARGUMENTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("place", range(-1, 4))
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_arguments_that_are_written_to_before_the_backward(fn, place, backend):
    """Eager keeps them, and no results. A place among the inputs and results; none is written to at -1."""
    outcomes = []
    for run in (fn, tracework.compile(fn, backend=backend)):
        leaf = torch.linspace(-1, 1, 16, dtype=torch.float64).view(4, 4).requires_grad_()
        given = [leaf * 1, leaf.detach().cos()]
        results = run(*given)
        if 0 <= place < 2 + len(results):
            with torch.no_grad():
                [*given, *results][place].mul_(2)
        for result in results:
            try:
                outcomes.append(torch.autograd.grad(result.square().sum(), leaf, retain_graph=True)[0])
            except RuntimeError as error:
                assert "modified by an inplace operation" in str(error)
                outcomes.append(None)
    half = len(outcomes) // 2
    torch.testing.assert_close(outcomes[half:], outcomes[:half])


@pytest.mark.parametrize("reentrant", [False, True], ids=["recorded", "reentrant"])
def test_what_the_frame_made_is_changed_again_by_the_backward(reentrant):
    def fn(x):
        def function(v, table):
            nonlocal count
            count += 1
            seen[0].append(count)
            table["calls"] = table.get("calls", 0) + 1
            return v.sin()

        count, seen, table = 0, [[]], {}
        checkpoint(function, x * 1, table, use_reentrant=reentrant).sum().backward()
        return count, seen, table, x.grad

    expected, actual = (f(torch.ones(3, requires_grad=True)) for f in (fn, tracework.compile(fn, backend="eager")))
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("budget", [0.0, 0.5])
def test_a_memory_budget_changes_no_value(budget):
    def fn(x):
        return block(block(x)).exp()

    x = torch.randn(3, 4, requires_grad=True)
    expected = torch.autograd.grad(fn(x).square().sum(), [x, *model.parameters()])
    compiled = tracework.compile(fn, options={"activation_memory_budget": budget})
    torch.testing.assert_close(torch.autograd.grad(compiled(x).square().sum(), [x, *model.parameters()]), expected)


class Broken(torch.nn.Module):
    """Breaks the graph."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x).tanh()
        if x.sum() > 0:
            x = x * 2
        return self.second(x).tanh()


class Inside(torch.nn.Module):
    """Has a checkpoint itself."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.second(checkpoint(lambda x: self.first(x).sin().exp(), x, use_reentrant=False)).tanh()


def dropping():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.4), torch.nn.Tanh())


def normalizing():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh())


@pytest.mark.parametrize("make", [lambda: torch.nn.Linear(4, 4), dropping, normalizing, Broken, Inside])
@pytest.mark.parametrize("backend", BACKENDS)
def test_around_compiled_modules(make, backend):
    """Eager ends the second run where all is there that the backward needs."""
    torch.manual_seed(0)
    plain = torch.nn.ModuleList([make().double() for _ in range(2)])
    compiled, found = copy.deepcopy(plain), []
    for blocks in (plain, compiled):
        calls = blocks if blocks is plain else [tracework.compile(block, backend=backend) for block in blocks]
        torch.manual_seed(1)
        x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
        for _ in range(2):
            out = x * 1
            for call in calls:
                out = checkpoint(call, out, use_reentrant=False)
            out.square().sum().backward()
        found.append([out, x.grad, *(p.grad for p in blocks.parameters()), *blocks.buffers()])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("function", [counting, printing, updating], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_effects_of_a_compiled_function_are_repeated_up_to_where_eager_ends_it(function, backend, capsys):
    def calls(function):
        log.clear()
        norm.reset_running_stats()
        seen = []
        for number in range(3):
            x = torch.linspace(0, 1 + number, 12).view(3, 4).requires_grad_()
            checkpoint(function, x * 1, use_reentrant=False).sum().backward()
            seen += [x.grad, norm.running_mean.clone(), int(norm.num_batches_tracked)]
        return seen, list(log), capsys.readouterr().out

    expected, *logged = calls(function)
    actual, *logged_again = calls(tracework.compile(function, backend=backend))
    torch.testing.assert_close(actual, expected)
    assert logged_again == logged


def test_names_that_no_function_takes_are_refused():
    def fn(x):
        return checkpoint(block, x, use_reentrant=True, scale=2.0)

    for function in (fn, tracework.compile(fn)):
        with pytest.raises(ValueError, match="Unexpected keyword arguments: scale"):
            function(torch.randn(3, 4, requires_grad=True))


decorates = pytest.mark.skipif(
    not hasattr(torch.utils.checkpoint, "_checkpoint_impl"), reason="decorators are made as of torch 2.15"
)


def decorated(x):
    @checkpoint(use_reentrant=False, preserve_rng_state=False)
    def inner(t, *, scale=1.0):
        return block(t, scale)

    return inner(x, scale=2.0) + inner(x)


def decorated_by_a_partial(x):
    return checkpoint(use_reentrant=False)(block)(x)


class Decorated:
    scale = 3.0

    @checkpoint(use_reentrant=False) if decorates.args[0] is False else staticmethod
    def method(self, x):
        return block(x, self.scale)


def decorated_method(x):
    return Decorated().method(x)


@decorates
@pytest.mark.parametrize("fn", [decorated, decorated_by_a_partial, decorated_method], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_decorated_functions(fn, backend):
    model.zero_grad()
    check(fn, torch.randn(3, 4, requires_grad=True), backend=backend, module=model)


@decorates
def test_a_decorated_function_that_breaks_runs_plainly_both_times():
    """Compiled the first time and plain in the backward, it would keep other tensors than it is given back."""

    def inner(t):
        tracework_capture.graph_break()
        return (t.sin() * t).cos()

    def fn(x):
        return checkpoint(use_reentrant=False)(inner)(x) + 1

    x = torch.randn(3, 4)
    grads = []
    for function in (fn, tracework.compile(fn)):
        leaf = x.clone().requires_grad_()
        function(leaf).square().sum().backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(*grads)


def from_a_closure(c, w):
    def part(x):
        return (x * c).sin() * c

    return lambda x: checkpoint(part, x, use_reentrant=False) * 2


def from_a_closure_reentrant(c, w):
    def part(x):
        return (x * c).sin() * c

    return lambda x: checkpoint(part, x, use_reentrant=True) * 2


def by_a_keyword(c, w):
    def part(x, scale):
        return (x * scale).sin() * scale

    return lambda x: checkpoint(part, x, scale=c, use_reentrant=False) * 2


def from_a_parameter(c, w):
    def part(x):
        return (x @ w).sin()

    return lambda x: checkpoint(part, x, use_reentrant=False) * 2


def from_parameters_twice(c, w):
    def part(x):
        return (x @ w).tanh() @ w

    return lambda x: checkpoint(part, checkpoint(part, x, use_reentrant=False), use_reentrant=False) * c


def write(tensor):
    tensor.mul_(2)


def other_data(tensor):
    tensor.data = tensor.data * 2


def write_data(tensor):
    tensor.data.mul_(2)


@pytest.mark.parametrize("change", [write, other_data, write_data], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "make",
    [from_a_closure, from_a_closure_reentrant, by_a_keyword, from_a_parameter, from_parameters_twice],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_read_beside_the_arguments_is_read_as_it_is_by_the_backward(make, change, backend):
    def observed(compiled):
        torch.manual_seed(0)
        x, c, w = torch.randn(3, 3, requires_grad=True), torch.rand(3, 3), torch.nn.Parameter(torch.randn(3, 3))
        function = make(c, w)
        result = (tracework.compile(function, backend=backend) if compiled else function)(x)
        with torch.no_grad():
            change(w if make in (from_a_parameter, from_parameters_twice) else c)
        result.sum().backward()
        return x.grad, w.grad

    expected, found = observed(False), observed(True)
    for mine, theirs in zip(found, expected):
        assert mine is theirs is None or torch.allclose(mine, theirs, atol=1e-5)

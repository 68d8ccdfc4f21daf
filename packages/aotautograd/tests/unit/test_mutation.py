"""Writes to inputs, to views of inputs, to buffers and to values of the graph."""

import pytest
import torch
from tracework_aotautograd import aot_compile


def intermediate(x, w):
    y = x * 2
    y.add_(w)
    z = y[0]
    z.mul_(3)
    y[:, 1] = w.sum(1)
    y.t()[0].zero_()
    return y, z, y.t()


def through_views(x, w):
    y = x.clone()
    y.view(-1)[::2].mul_(w.view(-1)[::2])
    y.diagonal().add_(1)
    y.unsqueeze(0).transpose(1, 2)[0, 0].copy_(w[0, :3] if y.shape[0] == 3 else w[0])
    a, b = y[:, :2], y.narrow(1, 2, 2)
    a.mul_(2)
    b.select(1, 0).neg_()
    return y, a


def of_input(x, w):
    x = x * 1 if x.is_leaf and x.requires_grad else x
    x.mul_(w)
    return x + 1, x


def buffer(x, b):
    b.add_(x.detach().sum(0))
    return (x * b,)


CASES = {"intermediate": intermediate, "through_views": through_views, "of_input": of_input}


@pytest.mark.parametrize("name", CASES)
def test_writes(name, check, real, data):
    check(CASES[name], real(3, 4), real(3, 4))
    check(CASES[name], data(3, 4), data(3, 4))
    check(CASES[name], data(3, 4), real(3, 4))


def test_buffer_under_gradients(check, real, data):
    pair = check(buffer, real(3, 4), data(4))
    assert pair.mine[1]._version > 0
    check(buffer, data(3, 4), data(4))


@pytest.mark.parametrize("view", [False, True])
def test_input_that_is_a_result(view, graph, eager_runner, real):
    """x is not a leaf, so eager lets the program write to it; with `view` it is a view as well."""
    import tracework_aotautograd as aot

    def fn(x, w):
        x.mul_(w)
        return (x.sin(),)

    leaves, found = (real(3, 4), real(3, 4)), []
    for compiled in (True, False):
        a, w = (t.detach().clone().requires_grad_() for t in leaves)
        x, v = ((a * 2)[:, 1:3], w[:, :2]) if view else (a * 2, w)
        call = aot.aot_compile(graph(fn, 2), [x, v], forward_compiler=eager_runner) if compiled else fn
        (y,) = call(x, v)
        found.append((y.detach(), x.detach(), *torch.autograd.grad((y * y).sum() + (x * 3).sum(), [a, w])))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_leaf_without_gradients_gets_some(check, data, real):
    def fn(b, x):
        b.add_(x)
        return (b * 2,)

    pair = check(fn, data(3), real(3))
    assert pair.mine[0].requires_grad and not pair.mine[0].is_leaf


def test_optimizer_step(check, real, data):
    def step(p, g):
        with torch.no_grad():
            p.add_(g, alpha=-0.1)
        return (p * 2,)

    pair = check(step, real(3), data(3), second=False)
    assert pair.mine[0].is_leaf and pair.mine[0].requires_grad


def test_write_to_a_leaf_is_refused_as_in_eager(graph, eager_runner, real):
    leaf = real(3)
    compiled = aot_compile(graph(lambda p: (p.add_(1),), 1), [leaf], forward_compiler=eager_runner)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        compiled(leaf)


def test_out_and_metadata(check, data):
    def fn(x, o):
        torch.add(x, 1, out=o)
        return (o * 2,)

    check(fn, data(3), data(3))


def test_same_value_written_twice(check, data, real):
    def fn(x, w):
        x.copy_(w)
        x.add_(1)
        x.fill_(2)
        x[0] = w[0]
        return (x * w,)

    check(fn, data(3), real(3))


def test_overlapping_written_inputs_are_compiled(graph, eager_runner, data, caplog):
    import tracework_aotautograd as aot

    base = data(4)

    def fn(a, b):
        a.add_(1)
        return (a * b,)

    compiled = aot.aot_compile(graph(fn, 2), [base[:3], base[1:]], forward_compiler=eager_runner)
    assert not caplog.text
    expected = base.clone()
    torch.testing.assert_close(compiled(base[:3], base[1:])[0], fn(expected[:3], expected[1:])[0])
    torch.testing.assert_close(base, expected)


def add_and_multiply(a, b, c):
    with torch.no_grad():
        a.add_(1)
    return (a * b * c,)


# what one base gives to (a, b, c); whether it runs compiled
LATER_CALLS = {
    "apart": (lambda t, u: (t[:3], t[3:6], u), True),
    "overlapping": (lambda t, u: (t[:3], t[1:4], u), True),
    "the same": (lambda t, u: (t[:3], t[:3], u), True),
    "two storages over one memory": (lambda t, u: (t[:3], torch.from_numpy(t.numpy()[2:5]), u), False),
    "unwritten ones overlap": (lambda t, u: (u, t[1:4], t[:3]), True),
    "others": (lambda t, u: (t[:3].clone(), t[1:4].clone(), u), True),
}


@pytest.mark.parametrize("grad", [False, True])
def test_inputs_that_newly_overlap(graph, data, caplog, grad):
    import tracework_aotautograd as aot

    runs = []
    compiler = lambda gm, spec: lambda inputs: runs.append(spec.role) or gm(*inputs)
    examples = [data(3), data(3), data(3).requires_grad_(grad)]
    compiled = aot.aot_compile(graph(add_and_multiply, 3), examples, forward_compiler=compiler)
    for name, (make, is_compiled) in LATER_CALLS.items():
        results = []
        runs.clear()
        for function in (compiled, add_and_multiply):
            base, other = torch.arange(8.0, dtype=torch.float64), torch.arange(3.0, dtype=torch.float64)
            args = make(base, other)
            if grad and name != "unwritten ones overlap":
                other.requires_grad_()
            results.append((function(*args)[0].detach(), base, other))
        torch.testing.assert_close(*results)
        assert bool(runs) is is_compiled, name
    assert caplog.text.count("share memory") == 1


def test_static_buffers_that_newly_overlap(data, caplog, graph):
    """`buffer.data = ...` keeps the object and changes its memory."""
    from types import SimpleNamespace

    import tracework_aotautograd as aot

    def fn(mean, var, x):
        mean.add_(x)
        var.mul_(2)
        return (x + var,)

    gm = graph(fn, 3)
    for node in list(gm.graph.nodes)[:2]:
        node.meta["binding"] = SimpleNamespace(is_static=True)
    mean, var, x = data(3), data(3), data(3)
    runs = []
    compiled = aot.aot_compile(gm, [mean, var, x], forward_compiler=lambda gm, spec: lambda i: runs.append(1) or gm(*i))
    for _ in range(2):
        compiled(mean, var, x)
    assert len(runs) == 2 and not caplog.text
    memory = data(4)
    with torch.no_grad():  # what is passed as x meets one buffer
        expected = var[:].clone()
        torch.testing.assert_close(compiled(mean, var, var), fn(mean.clone(), expected, expected))
    assert len(runs) == 3 and not caplog.text
    mean.data, var.data = memory[:3], memory[1:]
    expected = memory.clone()
    torch.testing.assert_close(compiled(mean, var, x), fn(expected[:3], expected[1:], x))
    torch.testing.assert_close(memory, expected)
    assert len(runs) == 4 and not caplog.text


def test_duplicates(check, data, real, eager_runner, graph):
    import tracework_aotautograd as aot

    x = real(3)
    fn = lambda a, b: (a * b.sin(),)
    compiled = aot.aot_compile(graph(fn, 2), [x, x], forward_compiler=eager_runner)
    mine, theirs = (torch.autograd.grad(f(x, x)[0].sum(), x)[0] for f in (compiled, fn))
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("inference", [False, True])
def test_versions_of_written_inputs(graph, eager_runner, data, inference):
    """Views of one tensor count their writes together; tensors of inference mode have no versions."""
    import tracework_aotautograd as aot

    def fn(a, b, c):
        a.add_(1).mul_(2)
        b.sub_(c)
        return (c + 1,)

    compiled = aot.aot_compile(graph(fn, 3), [data(2), data(2), data(2)], forward_compiler=eager_runner)
    with torch.inference_mode(inference):
        c = torch.ones(2, dtype=torch.float64)
    results = []
    for function in (fn, compiled):
        base, alone = torch.zeros(4, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
        counts = []
        for a, b in ((base[:2], base[2:]), (alone, base[:2]), (c.clone(), alone)):
            with torch.inference_mode(inference):
                function(a, b, c)
            counts += [base._version, alone._version]
        results.append((base, alone, counts))
    assert results[0][2] == results[1][2]
    torch.testing.assert_close(results[0][:2], results[1][:2])


def test_running_statistics_are_not_copied(pair, real, data):
    """No gradient depends on them, nor does a gradient of a gradient."""
    from torch.utils._python_dispatch import TorchDispatchMode

    def program(x, w, b, mean, variance):
        return (torch.nn.functional.batch_norm(x, mean, variance, w, b, training=True, momentum=0.5),)

    both = pair(program, real(6, 3), real(3), real(3), data(3), data(3).abs())

    class Counted(TorchDispatchMode):
        clones = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.clones += func is torch.ops.aten.clone.default
            return func(*args, **(kwargs or {}))

    with Counted() as counted:
        mine = both.compiled(*both.mine)
    assert counted.clones == 0
    theirs = both.fn(*both.theirs)
    both.same_inputs()
    for statistics in (*both.mine[3:], *both.theirs[3:]):
        statistics.data.zero_()
    found = []
    for outputs, inputs in ((mine, both.mine), (theirs, both.theirs)):
        first = torch.autograd.grad((outputs[0] ** 3).sum(), inputs[:3], create_graph=True)
        found.append([*first, *torch.autograd.grad(sum((g**2).sum() for g in first), inputs[:3])])
    torch.testing.assert_close(found[0], found[1])

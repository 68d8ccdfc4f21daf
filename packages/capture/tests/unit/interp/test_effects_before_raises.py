"""A graph that writes in place and raises: effects before the raise, data, versions, layouts and the line are plain Python's."""

import contextlib
import traceback

import pytest
import torch
import tracework_capture
from tracework_capture.graph import checks, undo

LOG = []
LARGE = 17_000
NORM = torch.nn.BatchNorm1d(3)


class Counter:
    """An object of the program."""

    def __init__(self, weight):
        self.count = 0
        self.weight = weight


class Swallowing:
    """A manager that counts, and lets an error end the block."""

    def __init__(self, counter):
        self.counter = counter

    def __enter__(self):
        return self

    def __exit__(self, kind, error, tb):
        self.counter.count += 10
        return kind is IndexError


@contextlib.contextmanager
def counting(counter):
    try:
        yield
    except IndexError:
        counter.count += 5


def effects_around(x, index, counter):
    LOG.append("start")
    x.add_(1)
    counter.count = 1
    y = x[index]
    LOG.append("after")
    return y


def suppressed(x, index, counter):
    y = 0
    with contextlib.suppress(IndexError):
        x.add_(1)
        counter.count = 1
        y = x[index]
        counter.count = 2
    return y + x


def swallowed(x, index, counter):
    with Swallowing(counter):
        x.mul_(counter.weight)
        x = x[index]
    return x * 2


def managed_by_a_generator(x, index, counter):
    with counting(counter), torch.no_grad():
        x.mul_(2)
        x = x[index]
    return x * 2


def without_gradients(x, index, counter):
    counter.count = 1
    with torch.no_grad():
        x.mul_(2)
    return x[index]


def gets_a_history(x, index, counter):
    counter.count = 1
    x.mul_(counter.weight)
    counter.count = 2
    return x[index]


def under_autocast(x, index, counter):
    x.add_(1)
    with torch.autocast("cpu", torch.bfloat16):
        counter.count = 3
        y = x[index]
    return y


def in_another_layout(x, index, counter):
    counter.count = 1
    x.unsqueeze_(0)
    y = x[0][index]
    x.t_()
    return y


def with_statistics(x, index, counter):
    counter.count = 1
    y = NORM(x.reshape(1, 3).repeat(2, 1))
    return y[:, index]


def expanded(x, index, counter):
    counter.count = 1
    y = x.reshape(1, 3).expand(2, 3)
    y.zero_()
    return x[index]


def seeded(x, index, counter):
    counter.count = 1
    torch.manual_seed(3)
    x.add_(torch.rand(1))
    counter.count = 2
    return x[index] + torch.rand(1)


FUNCTIONS = [
    seeded,
    effects_around,
    suppressed,
    swallowed,
    managed_by_a_generator,
    without_gradients,
    gets_a_history,
    under_autocast,
    in_another_layout,
    with_statistics,
    expanded,
]


def inputs(kind, size):
    x = torch.arange(float(size))
    if kind == "leaf":
        x.requires_grad_()
    if kind == "history":
        x = x.requires_grad_() * 1
    return x, Counter(torch.ones(size, requires_grad=kind == "weight"))


def seen(function, plain, kind, size, index):
    LOG.clear()
    NORM.reset_running_stats()
    x, counter = inputs(kind, size)
    try:
        outcome = function(x, torch.tensor([index]), counter).tolist()
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.name == plain.__name__]
        outcome = type(error), lines[-1:]
    state = x.tolist(), x._version, x.stride(), x.requires_grad, x.is_leaf
    return outcome, state, LOG[:], counter.count, torch.is_autocast_enabled("cpu"), NORM.running_mean.tolist()


@pytest.mark.parametrize("kind", ["plain", "leaf", "history", "weight"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_what_is_seen_after_a_raise(function, kind):
    graphs = []
    compiled = tracework_capture.optimize(lambda gm, given: graphs.append(gm) or gm.forward)(function)
    for size in (3,) if function is with_statistics else (3, 3, 5, LARGE):  # the third opens the size
        for index in (1, LARGE, 0, LARGE):
            assert seen(compiled, function, kind, size, index) == seen(function, function, kind, size, index)
    if kind == "plain":
        assert len(graphs) == (1 if function in (with_statistics, expanded) else 2)


def read_and_written(x, index, counter):
    counter.count = 1
    x.add_(1)
    y = x[index]
    counter.count = 2
    x.mul_(2)
    return y


@pytest.mark.parametrize("backend", ["as it is", "writes last", "breaks its word"])
def test_large_inputs_that_are_read_and_written(backend):
    """There is a copy, but for a backend that writes when nothing can raise any more; whether it did is seen by the versions."""
    copies = []

    def compiled_by(gm, given):
        def last(x, index):
            if backend == "breaks its word":
                x.add_(1)
            copy = x.clone()
            copies.append(copy)
            outputs = gm.forward(copy, index)
            x.copy_(copy)
            return outputs

        last.__tracework_writes_last__ = True
        return gm.forward if backend == "as it is" else last

    compiled = tracework_capture.optimize(compiled_by)(read_and_written)
    runs = [seen(f, read_and_written, "plain", LARGE, i) for i in (1, LARGE) for f in (compiled, read_and_written)]
    if backend == "breaks its word":
        assert runs[2][3] == 0  # the graph's exception, and what it left
    else:
        good, bad = [run[0] for run in runs[:2]], runs[2:]
        assert good[0] == good[1] and bad[0] == bad[1]


class Stopped(Exception):
    """As the handler of a signal raises it."""


@pytest.mark.parametrize("kind", [Stopped, TimeoutError])
def test_what_stops_a_graph_from_outside_is_not_lost(kind):
    def stopped(*args):
        raise kind

    with pytest.raises(kind):
        tracework_capture.optimize(lambda gm, given: stopped)(lambda x: x[torch.tensor([1])] + 1)(torch.ones(2))


def test_tensors_of_inference_mode():
    @torch.inference_mode()
    def function(x, index, counter):
        counter.count = 1
        x.add_(1)
        counter.count = 2
        return x[index]

    compiled = tracework_capture.optimize(lambda gm, given: gm.forward)(function)
    for index in (1, LARGE):
        runs = []
        for run in (function, compiled):
            counter = Counter(None)
            with torch.inference_mode():
                x = torch.arange(float(LARGE))
            with contextlib.suppress(IndexError):
                run(x, torch.tensor([index]), counter)
            runs.append((x.tolist(), counter.count))
        assert runs[0] == runs[1]


def looked_up_before(x, index, counter):
    counter.count = 1
    y = x[index]
    counter.count = 2
    return x.mul_(y.sum())


@pytest.mark.parametrize("kind", ["plain", "weight"])
def test_what_is_written_after_all_that_may_raise_needs_no_copy(kind, monkeypatch):
    """As parameters after a step of training."""
    kept = []
    compiled = tracework_capture.optimize(lambda gm, given: gm.forward)(looked_up_before)
    monkeypatch.setattr(checks, "contents_of", lambda *tensors: kept.append(tensors) or undo.contents_of(*tensors))
    for index in (1, LARGE):
        found, expected = (seen(f, looked_up_before, kind, LARGE, index) for f in (compiled, looked_up_before))
        assert found == expected
    assert [list(map(len, tensors)) for tensors in kept] == [[0, 0, 1]] * 2


def filled(cache, index, counter):
    counter.count = 1
    cache[0] = 5.0
    cache[1:3].copy_(counter.weight)
    counter.count = 2
    y = cache.sum(0) + cache[index]
    counter.count = 3
    return y


def filled_under_a_handler(cache, index, counter):
    counter.count = 1
    try:
        cache.index_copy_(0, index.remainder(4), torch.ones(1, 3))
        return cache[index].sum()
    except IndexError:
        counter.count += 10
        return cache[:2] * 2


def moved(cache, index, counter):
    """Read before it is written."""
    counter.count = 1
    try:
        cache.copy_(cache.roll(1, 0) + 1)
        return cache[index]
    except IndexError:
        counter.count += 10
        return cache[:2] * 2


@pytest.mark.parametrize("size", [1 << 15, 8])
@pytest.mark.parametrize("function", [filled, filled_under_a_handler, moved])
def test_large_inputs_that_are_overwritten(function, size):
    """They need no copy: the plain run writes the same once more. What moves in its memory does."""
    made = []
    compiled = tracework_capture.optimize(lambda gm, given: made.append(gm) or gm.forward)(function)
    for index in (1, 1 << 20, 0, 1 << 20):
        seen = []
        for run in (function, compiled):
            cache, counter = torch.arange(3.0 * size).reshape(size, 3), Counter(torch.full((2, 3), 7.0))
            try:
                outcome = run(cache, torch.tensor([index]), counter).tolist()
            except IndexError as error:
                outcome = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.name == function.__name__][-1:]
            seen.append((outcome, cache.tolist(), cache._version, counter.count))
        assert seen[0] == seen[1]
    assert len(made) == 1


def looked_up(x, index):
    x[index].mul(2)
    return x + 1


def stored(x, index):
    y = x.clone()
    y[index] = 2.0
    return x + 1


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("function", [looked_up, stored])
def test_results_that_nobody_uses_are_outputs_where_they_may_raise(function, gradients):
    """A compiler leaves out what no output depends on, and with it the exception."""
    outputs = []

    def backend(gm, given):
        outputs.append(len(gm.graph.find_nodes(op="output")[0].args[0]))
        return gm.forward

    compiled = tracework_capture.optimize(backend)(function)
    x = torch.ones(3, 2, requires_grad=gradients)
    assert torch.equal(compiled(x, torch.tensor([1])), x + 1)
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([9]))
    assert outputs == [2]


def test_one_of_several_results_that_nobody_uses_is_an_output():
    def factorised(x):
        torch.linalg.cholesky_ex(x, check_errors=True)
        return x + 1

    compiled = tracework_capture.optimize(lambda gm, given: outputs.append(gm.graph) or gm.forward)(factorised)
    outputs = []
    compiled(torch.eye(2))
    assert len(outputs[0].find_nodes(op="output")[0].args[0]) == 2


def outcome(write, x):
    try:
        return write(x).tolist(), x.tolist()
    except RuntimeError as error:
        return str(error)[:40], x.tolist()


@pytest.mark.parametrize(
    ("write", "fullgraph"),
    [
        (lambda x: x.mul_(x.diagonal()), False),
        (lambda x: x[:, 0].add_(x[:, 1]), True),
        (lambda x: x[:, ::2].add_(x[:, 1::2]), True),
        (lambda x: x.view(4, 2, 2)[..., 1].mul_(x.view(4, 2, 2)[..., 0]), True),
        (lambda x: x[:, :3].add_(x[:, 1:]), False),
        (lambda x: x.unsqueeze(0).mul_(x), False),
        (lambda x: x.t().copy_(x), False),
        (lambda x: x.add_(x), True),
    ],
)
def test_writes_to_memory_that_is_read_in_part_are_left_to_eager(write, fullgraph):
    compiled = tracework_capture.optimize(lambda gm, given: gm.forward, fullgraph=fullgraph)(write)
    x, y = torch.arange(16.0).reshape(4, 4), torch.arange(16.0).reshape(4, 4)
    assert outcome(compiled, x) == outcome(write, y)


@pytest.mark.parametrize(
    ("write", "fullgraph"),
    [
        (lambda x: x[1].copy_(x[0]), True),
        (lambda x: x[1].mul_(x[0]), True),
        (lambda x: x[0].mul_(x[2]), True),
        (lambda x: x[: x.shape[0] // 2].add_(x[x.shape[0] // 2 :]), True),
        (lambda x: x[1:].copy_(x[:-1]), False),
        (lambda x: x[: x.shape[0] // 2 + 1].add_(x[x.shape[0] // 2 - 1 :]), False),
    ],
)
def test_dense_parts_of_open_sizes_are_compared_by_where_they_end(write, fullgraph):
    compiled = tracework_capture.optimize(lambda gm, given: gm.forward, dynamic=True, fullgraph=fullgraph)(write)
    for rows in (4, 6):
        x, y = torch.arange(rows * 4.0).reshape(rows, 4), torch.arange(rows * 4.0).reshape(rows, 4)
        assert outcome(compiled, x) == outcome(write, y)


def cleaned_up(cache, index, log):
    try:
        for _ in range(3):
            cache.index_copy_(0, index, torch.ones(1, 3))
        return cache.sum()
    finally:
        log.append("cleaned up")


def reported(cache, index, log):
    try:
        for _ in range(3):
            cache.index_copy_(0, index, torch.ones(1, 3))
        return cache.sum()
    except IndexError:
        try:
            log.append("reported")
        finally:
            raise


def answered(cache, index, log):
    try:
        for _ in range(3):
            cache.index_copy_(0, index, torch.ones(1, 3))
        return cache.sum()
    except IndexError:
        return None


def added(cache, index, log):
    try:
        for _ in range(3):
            cache.index_add_(0, index, torch.ones(1, 3))
        return cache.sum()
    except IndexError:
        return None


@pytest.mark.parametrize("program", [cleaned_up, reported, answered, added])
def test_large_inputs_are_written_in_one_graph(program):
    """As a model does that writes to the caches of its layers, under a finally block."""
    graphs = []
    compiled = tracework_capture.optimize(lambda gm, inputs: graphs.append(gm) or gm.forward)(program)
    results = []
    for call in (program, compiled):
        cache, log = torch.zeros(1 << 16, 3), []
        results.append((call(cache, torch.tensor([1]), log), cache.sum(), log))
    assert results[0] == results[1]
    assert len(graphs) == 1


def hooked_before(module, x, index):
    y = module(x)
    try:
        return y[index]
    except IndexError:
        return y * 3


def hooked_after(module, x, index):
    try:
        return module(x[index])
    except IndexError:
        return module(x) * 3


@pytest.mark.parametrize("program", [hooked_before, hooked_after])
def test_what_raises_beside_hooks_of_a_module_meets_its_handler(program):
    """A graph with hooks cannot run again."""
    module, seen = torch.nn.Linear(3, 3), []
    module.register_full_backward_hook(lambda module, gi, go: seen.append("hook"))
    captured = tracework_capture.optimize(lambda gm, inputs: gm.forward)(program)
    for index in (torch.tensor([0]), torch.tensor([7]), torch.tensor([1])):
        x = torch.ones(2, 3, requires_grad=True)
        expected = program(module, x, index)
        assert torch.equal(captured(module, x, index), expected)


def transformed_after(x, index):
    try:
        y = x[index]
    except IndexError:
        y = x * 3
    return y, torch.vmap(lambda row: row * 2)(x)


def transformed_within(x, index):
    try:
        return torch.func.grad(lambda t: t[index].square().sum())(x)
    except IndexError:
        return x * 3


@pytest.mark.parametrize("program", [transformed_after, transformed_within])
def test_what_raises_beside_a_transform_meets_its_handler(program, capfd):
    captured = tracework_capture.optimize(lambda gm, inputs: gm.forward)(program)
    for index in (torch.tensor([0]), torch.tensor([7]), torch.tensor([1])):
        x = torch.ones(2, 3)
        torch.testing.assert_close(captured(x, index), program(x, index), rtol=0, atol=0)
    assert not capfd.readouterr().err, "fx prints what raises in a module that is called"

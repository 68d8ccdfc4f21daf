"""Compiled functions for long and by many: threads, calls by the hundred thousand, other evaluators, what is left when they go."""

import gc
import sys
import threading
import weakref

import pytest
import torch
from growth import growth, resident
from tracework_capture import CaptureError, optimize, run_only
from tracework_capture.hook import cache


def eager(gm, inputs):
    return gm.forward


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.lin(x)) + x


def test_many_threads_and_shapes():
    compiles, wrong, barrier = [], [], threading.Barrier(32)

    def backend(gm, inputs):
        compiles.append(gm)
        return gm.forward

    @optimize(backend)
    def plain(x, y):
        return x * 2 + y.sum() + x.shape[0]

    def work(number):
        barrier.wait(60)
        try:
            for i in range(200):
                n = 2 + (i * 7 + number * 13) % 200
                x, y = torch.full((n, 3), float(number)), torch.ones(n)
                if not torch.equal(plain(x, y), x * 2 + n + n):
                    wrong.append(n)
        except BaseException as error:
            wrong.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        workers = [threading.Thread(target=work, args=(k,)) for k in range(32)]
        [w.start() for w in workers]
        [w.join() for w in workers]
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
    assert len(compiles) <= 3  # one static, then a symbolic one for each of two dims that are seen to change one after the other
    assert len(cache.entries_of(plain.__wrapped__.__code__)) == len(compiles)


def test_memory_does_not_grow():
    model = Block()
    call = optimize(eager)(lambda x: model(x))
    with torch.no_grad():
        x = torch.randn(2, 4)
        for _ in range(2000):
            call(x)
        assert growth(sys.getallocatedblocks, 6000, lambda: call(x)) < 600, "a block in ten calls"
        assert growth(resident, 6000, lambda: call(x)) < 6000 * 64, "64 bytes a call"


def test_everything_goes_with_the_compiled_function():
    model = Block()
    graphs = []

    def backend(gm, inputs):
        graphs.append(weakref.ref(gm))
        return gm.forward

    def make():
        def entry(x):
            return model(x)  # noqa: F821

        fresh = type(entry)(entry.__code__.replace(co_name="fresh"), entry.__globals__, "fresh", None, entry.__closure__)
        return fresh, optimize(backend)(fresh)

    entry, call = make()
    x = torch.randn(2, 4)
    for _ in range(5):
        call(x)
    code = weakref.ref(entry.__code__)
    gone = [code, weakref.ref(call), weakref.ref(call.callback), weakref.ref(cache.entries_of(entry.__code__)[0].code), *graphs]
    del entry, call, make
    gc.collect()
    gc.collect()  # what a code object held is only seen by the collector once the code is gone
    assert [each() for each in gone] == [None] * len(gone)
    parameter = weakref.ref(model.lin.weight)
    del model
    gc.collect()
    assert parameter() is None


def doubled(x):
    """Outlives what is compiled of it."""
    y = x * 2
    print(end="")
    return y.sum().item() + y


def test_entries_go_with_the_last_wrapper_of_a_function_that_stays():
    graphs = []

    def backend(gm, inputs):
        graphs.append(weakref.ref(gm))
        return gm.forward

    call, other = optimize(backend)(doubled), optimize(eager)(doubled)
    only = run_only(call)
    for n in (2, 3, 4):
        call(torch.ones(n))
    other(torch.ones(2))
    made = len(cache.entries_of(doubled.__code__))
    del call, backend  # nobody can compile the same again
    gc.collect()
    assert len(cache.entries_of(doubled.__code__)) == made and torch.equal(only(torch.ones(2)), torch.full((2,), 6.0))
    del only
    gc.collect()
    gc.collect()
    assert {entry.owner for entry in cache.entries_of(doubled.__code__)} == {other.callback}
    assert graphs and not any(graph() for graph in graphs)


def test_what_is_compiled_where_it_is_called_is_compiled_once(fresh):
    graphs = []

    def backend(gm, inputs):
        graphs.append(weakref.ref(gm))
        return gm.forward

    for _ in range(4):
        torch.testing.assert_close(optimize(backend)(doubled)(torch.ones(2)), torch.full((2,), 6.0))
    assert len(graphs) == 1
    for _ in range(4):
        optimize(eager)(doubled)(torch.ones(2))
    gc.collect()
    assert not any(graph() for graph in graphs)  # one set of entries stays, that of the last call
    assert len({entry.owner for entry in cache.entries_of(doubled.__code__)}) == 1
    for scale in range(20):  # all different: each has the limit of entries to itself
        assert optimize(eager, recompile_limit=2)(lambda x, scale=scale: x * scale + 1)(torch.ones(2))[0] == scale + 1


def test_fakes_of_tensors_with_a_gradient_go_with_them():
    from tracework_primops import FakeTensor

    call = optimize(lambda gm, inputs: gm.forward)(lambda y: torch.relu(y) * 2)
    y = torch.ones(4099, requires_grad=True) * 2  # a size that no other test has
    call(y)
    del y, call
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is FakeTensor and each.shape == (4099,)]


def test_run_only_makes_no_entries():
    compiles = []

    def backend(gm, inputs):
        compiles.append(gm)
        return gm.forward

    def plain(x):
        return x * 3

    call = optimize(backend, dynamic=False)(plain)
    only = run_only(call)
    assert torch.equal(only(torch.ones(2)), torch.full((2,), 3.0)) and not compiles
    call(torch.ones(2))
    hits = cache.entries_of(plain.__code__)[0].hits
    assert torch.equal(only(torch.ones(2)), torch.full((2,), 3.0))
    assert cache.entries_of(plain.__code__)[0].hits == hits + 1
    assert torch.equal(only(torch.ones(5)), torch.full((5,), 3.0)) and len(compiles) == 1
    call(torch.ones(5))
    assert len(compiles) == 2
    with pytest.raises(CaptureError):
        run_only(plain)


CHAIN = """
import torch
from tracework_capture import optimize
seen = []
def note(name):
    def backend(gm, inputs):
        seen.append(name)
        return gm.forward
    return backend
def ours(x): return x + 1
def theirs(x): return x * 2
a = optimize(note("ours"))(ours)
b = torch.compile(theirs, backend=note("theirs"))
x = torch.ones(3)
for first, second in ((a, b), (b, a)) * 3:
    assert torch.equal(second(first(x)), theirs(ours(x)) if first is a else ours(theirs(x)))
assert seen == ["ours", "theirs"], seen
def both(x): return b(x) + 1
c = optimize(note("outer"))(both)
for _ in range(3):
    assert torch.equal(c(x), x * 2 + 1)
d = torch.compile(lambda x: a(x) * 5, backend=note("around"))
for _ in range(3):
    assert torch.equal(d(x), (x + 1) * 5)
print("fine", seen)
"""


def test_another_evaluator_in_the_same_process():
    import subprocess

    done = subprocess.run([sys.executable, "-c", CHAIN], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.startswith("fine"), done.stderr[-3000:]

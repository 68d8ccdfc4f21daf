"""Whole programs whose graphs are recorded: on the CPU by an engine that repeats calls into recorded memory, else as CUDA graphs."""

import copy

import pytest
import torch
import tracework
import tracework_capture as capture
from tracework.dump import Tally
from tracework.explanation import Explanation
from tracework_inductor.schedule.workspace import LEAST_BUFFERS
from tracework_runtime import Artifact, CompiledFn, GraphedFn, RuntimeOptions
from tracework_runtime.cudagraph import choose, partition, record
from tracework_runtime.cudagraph.facts import UNSAFE, WAITS
from tracework_runtime.cudagraph.refusals import CPU_WORK, refusals
from tracework_runtime.cudagraph.step import STEPS
from tracework_runtime.host.lines import Call, Inputs, Return

from benchmarks.micro import graph_parts
from packages.runtime.tests.slow_engine import SlowEngine

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Made:
    """All functions that were recorded in a test."""

    def __init__(self):
        self.functions = []

    @property
    def replays(self):
        return sum(fn.replays for fn in self.functions)


@pytest.fixture
def made(monkeypatch):
    found = Made()
    if DEVICE == "cpu":
        monkeypatch.setattr(record, "ENGINE", SlowEngine())
        monkeypatch.setattr(choose, "refusals", lambda artifact: ())
    else:
        monkeypatch.setattr(record.GraphEngine, "time", lambda self, call, device: (call(), 1.0, 1.0))
    make = GraphedFn.__init__

    def init(self, *args, **kwargs):
        make(self, *args, **kwargs)
        found.functions.append(self)

    monkeypatch.setattr(GraphedFn, "__init__", init)
    return found


@pytest.fixture(params=["cudagraphs", "inductor"])
def compile_(request):
    tracework.compiler.reset()
    if request.param == "cudagraphs":
        return lambda fn, **options: tracework.compile(fn, backend="cudagraphs", **options)
    return lambda fn, **options: tracework.compile(fn, options={"cudagraphs": True}, **options)


class Block(torch.nn.Module):
    """Parameters, and statistics that a training step writes to."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x)))).tanh()


def pair(seed=0):
    torch.manual_seed(seed)
    block = Block().to(DEVICE).double()
    return block, copy.deepcopy(block)


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_inference_with_results_that_stay(made, compile_):
    block, eager = (x.eval().requires_grad_(False) for x in pair())
    call, kept = compile_(block), []
    for _ in range(10):
        x = torch.randn(4, 6, dtype=torch.float64, device=DEVICE)
        kept = [*kept[-3:], (call(x), eager(x))]
        for found, expected in kept:
            same(found, expected)
    assert made.replays == 8


def test_parameters_that_are_loaded(made, compile_):
    block, eager = (x.eval().requires_grad_(False) for x in pair())
    call = compile_(block)
    for step in range(24):
        if step % 12 == 5:
            other = pair(step)[0].state_dict()
            block.load_state_dict(copy.deepcopy(other), assign=True)
            eager.load_state_dict(other)
        x = torch.randn(4, 6, dtype=torch.float64, device=DEVICE)
        same(call(x), eager(x))
    assert made.replays >= 18


@pytest.mark.parametrize("forwards", [1, 2, 5])
@pytest.mark.parametrize("together", [False, True])
def test_training_with_several_forwards_for_one_step(made, compile_, forwards, together):
    """together: one backward through all of them."""
    block, eager = pair()
    call = compile_(block)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (block, eager)]
    for step in range(10):
        tracework.compiler.cudagraph_mark_step_begin() if step % 2 else None
        inputs = torch.randn(forwards, 4, 6, dtype=torch.float64, device=DEVICE)
        values = []
        for model, module, optimizer in ((call, block, optimizers[0]), (eager, eager, optimizers[1])):
            optimizer.zero_grad(set_to_none=step % 3 == 0)
            losses = []
            for x in inputs:
                losses.append(model(x).square().sum())
                if not together:
                    losses[-1].backward()
            if together:
                sum(losses).backward()
            values.append([*(loss.detach().clone() for loss in losses), *(p.grad.clone() for p in module.parameters())])
            optimizer.step()
            values[-1] += [t.clone() for t in module.state_dict().values()]
        same(*values)
    assert made.replays >= 8


def test_a_cache_that_is_written(made, compile_):
    def step(cache, keys, place):
        cache.index_copy_(1, place, keys)
        return (cache * 2).sum(1)

    call = compile_(step)
    for _ in range(4):
        caches = [torch.zeros(2, 16, 3, dtype=torch.float64, device=DEVICE) for _ in range(2)]
        for n in range(16):
            keys = torch.randn(2, 1, 3, dtype=torch.float64, device=DEVICE)
            place = torch.tensor([n], device=DEVICE)
            before = caches[0]._version
            same(call(caches[0], keys, place), step(caches[1], keys, place))
            same(*caches)
            assert caches[0]._version == before + 1
    assert made.replays >= 50, [(fn.made, fn.replays, fn.reasons()) for fn in made.functions]


def test_sizes_that_change(made, compile_):
    block, eager = (x.eval().requires_grad_(False) for x in pair())
    call = compile_(block, dynamic=True)
    for n in (2, 3, 4, 2, 3, 4, 5, 2, 2, 3, 4, 7, 5, 5):
        x = torch.randn(n, 6, dtype=torch.float64, device=DEVICE)
        same(call(x), eager(x))
    assert made.replays >= 5


def test_only_listed_sizes(made):
    tracework.compiler.reset()
    call = tracework.compile(
        lambda x: (x * 2).tanh(), dynamic=True, options={"triton.cudagraphs": True, "triton.cudagraph_capture_sizes": [3]}
    )
    for n in (3, 4, 3, 4, 3, 4, 4, 3):
        x = torch.randn(n, device=DEVICE)
        torch.testing.assert_close(call(x), (x * 2).tanh())
    assert made.replays == 2


def test_gradients_of_gradients(made, compile_):
    def f(x, y):
        return (x * y).sin() * y

    call = compile_(f)
    for _ in range(5):
        values = []
        x, y = (torch.randn(5, dtype=torch.float64, device=DEVICE, requires_grad=True) for _ in range(2))
        for g in (call, f):
            (first,) = torch.autograd.grad(g(x, y).sum(), x, create_graph=True)
            values.append([first.detach(), *torch.autograd.grad(first.square().sum(), (x, y))])
        same(*values)
    assert made.replays


def test_the_mode_that_does_not_fall_back_names_the_operator_and_its_line(monkeypatch):
    """On a CPU for another reason than on a GPU."""
    tracework.compiler.reset()
    program = torch.linalg.eigvalsh if DEVICE == "cuda" else torch.exp
    call = tracework.compile(lambda x: program(x) * 2, fullgraph=True, options={"cudagraphs": True, "cudagraph_or_error": True})
    reason = r"waits.*test_cuda_graphs\.py:\d+" if DEVICE == "cuda" else "nothing in it runs on a GPU"
    with pytest.raises(Exception, match=reason) as raised:
        call(torch.eye(5, device=DEVICE))
    assert "mode='reduce-overhead'" in str(raised.value)
    assert RuntimeOptions().cudagraph_or_error is False


@pytest.fixture
def cut(monkeypatch):
    """On a CPU, what is there counts as a GPU's, and is cut where the library waits."""
    if DEVICE == "cuda":
        return
    rows, reason = (WAITS, UNSAFE), partition._reason
    monkeypatch.setitem(LEAST_BUFFERS, "cpu", 1 << 10)  # a CPU's workspace is taken and given by lines that no GPU has
    monkeypatch.setattr(choose, "refusals", lambda artifact: refusals(artifact, rows))
    monkeypatch.setattr(partition, "refusals", lambda artifact, asked: refusals(artifact, [row for row in asked if row in rows]))
    monkeypatch.setattr(partition, "_is_on_cpu", lambda line: False)
    monkeypatch.setattr(partition, "_reason", lambda *args: "" if (found := reason(*args)).startswith(CPU_WORK) else found)


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("program", [graph_parts.Cholesky, graph_parts.Unsafe, graph_parts.Routed])
def test_parts(made, cut, compile_, program, train, monkeypatch, request):
    """What the library waits in runs between recorded parts: values, gradients, results that are held."""
    if train and program in graph_parts.INFERENCE:
        pytest.skip("the operator has no backward")
    for name, small in (("WIDTH", 16), ("ROWS", 8), ("LAYERS", 3), ("EXPERTS", 2)):
        monkeypatch.setattr(graph_parts, name, small)
    model, inputs = graph_parts.made(program, DEVICE)
    model.double().requires_grad_(train)
    call, kept = compile_(model), []
    for step in range(8):
        values = []
        x = inputs().double()
        for fn in (call, model):
            found = fn(x)
            grads = torch.autograd.grad(found.square().sum(), list(model.parameters()), allow_unused=True) if train else ()
            values.append([found, *[g for g in grads if g is not None]])
        kept = [*kept[-2:], values]
        for found, expected in kept:
            same(found, expected)
        if step == 4:
            tracework.compiler.cudagraph_mark_step_begin()
    recorded = [fn for fn in made.functions if fn.replays]
    said = [(fn, fn.replays, fn.plain, fn.reasons()) for fn in made.functions]
    apart = "inductor" in request.node.name  # what does not depend on sizes of data
    assert len(recorded) >= program.parts + train and made.replays >= (6 * program.parts if apart else 6), said


def test_explain_says_what_stands_against_a_recording():
    places = {"aten::nonzero": {"model.py:7 in f: nonzero": (0,)}}
    artifact = Artifact("k", "", devices={"cuda:0"}, externs={"aten::nonzero"}, places=places)
    tally = Tally()
    tally("runtime", CompiledFn(artifact, {"call": tuple}))
    tally("runtime", CompiledFn(artifact.replace(devices={"cpu"}), {"call": tuple}))
    explanation = Explanation(capture.Explanation(), 1, 0, unrecorded=tuple(tally.unrecorded))
    said = "not recorded as a CUDA graph: waits: the host waits in it for what the GPU computes (model.py:7 in f: nonzero)"
    assert said in str(explanation).splitlines() and said in explanation.full().splitlines()


def test_explain_says_how_many_parts_are_recorded_and_what_runs_between():
    def computed(name, read, operator):
        return Call((f"{name} = {read}",), (read,), (name,), (operator,))

    work = [computed(b, a, "aten::mm") for a, b in ("xa", "ab")]
    lines = [
        Inputs(("x",)),
        *work,
        computed("c", "b", "aten::nonzero"),
        computed("d", "c", "aten::mm"),
        computed("e", "d", "aten::mm"),
    ]
    places = {"aten::nonzero": {"model.py:7 in f: nonzero": (0,)}}
    externs = {"aten::nonzero", "aten::mm"}
    artifact = Artifact("k", "", devices={"cuda:0"}, externs=externs, places=places, host_lines=[*lines, Return(("e",), ("e",))])
    tally = Tally()
    tally("runtime", CompiledFn(artifact, {"call": tuple}))
    tally("between", ("item runs as it is (model.py:9)",))
    explanation = Explanation(
        capture.Explanation(), 1, 0, unrecorded=tuple(tally.unrecorded), parts=tally.parts, between=tuple(tally.between)
    )
    assert str(explanation).splitlines()[2:5] == [
        "2 part(s) can be recorded as CUDA graphs",
        "runs between recorded parts: waits: the host waits in it for what the GPU computes (model.py:7 in f: nonzero)",
        "runs between recorded parts: item runs as it is (model.py:9)",
    ]


def test_a_step_begins_behind_the_graph_that_says_so():
    def step(x):
        tracework.compiler.cudagraph_mark_step_begin()
        return x * 2

    call = tracework.compile(step, backend="eager", fullgraph=True)
    before = STEPS.number
    for count in (1, 2, 3):
        assert torch.equal(call(torch.ones(2)), torch.full((2,), 2.0)) and STEPS.number == before + count
    with tracework.replace_torch_compile():
        torch.compiler.cudagraph_mark_step_begin()
        assert STEPS.number == before + 4
        again = torch.compile(lambda x: (torch.compiler.cudagraph_mark_step_begin(), x + 1)[1], backend="eager", fullgraph=True)
        assert torch.equal(again(torch.ones(2)), torch.full((2,), 2.0)) and STEPS.number == before + 5

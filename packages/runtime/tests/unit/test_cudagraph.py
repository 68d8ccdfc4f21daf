"""Recording and replaying, with an engine that repeats the call into the recorded memory."""

import contextlib
import gc
import threading
import warnings

import pytest
import torch
from tracework_runtime import Artifact, KernelSource, NotRecorded, RuntimeOptions, _torch, mark_step_begin
from tracework_runtime.cudagraph import choose, record, recording
from tracework_runtime.cudagraph.budget import LEAST
from tracework_runtime.cudagraph.refusals import CUDAGRAPH_REFUSALS, refusals
from tracework_runtime.cudagraph.step import STEPS
from tracework_runtime.host.lines import Inputs, Number, Return
from tracework_runtime.load import CompiledFn
from tracework_runtime.observe import counters, reset_counters
from tracework_runtime.options import DEFAULT_OPTIONS
from tracework_runtime.results import in_memory

slow_engine = pytest.importorskip("slow_engine")
HOST, SlowEngine = slow_engine.HOST, slow_engine.SlowEngine


def graph(host=HOST, options=DEFAULT_OPTIONS, engine=None, static=frozenset({0}), **facts):
    reset_counters()
    artifact = Artifact("k" * 8, host, devices={"cuda:0"}, static_inputs=static, **facts)
    namespace = {"torch": torch}
    exec(host, namespace)
    return record.GraphedFn(CompiledFn(artifact, namespace), options, engine or SlowEngine())


@pytest.fixture
def graphed():
    return graph()


@pytest.fixture(autouse=True)
def no_steps(monkeypatch):
    monkeypatch.setattr(STEPS, "number", 0)


def expect(out, w, x):
    assert torch.equal(out[0], w * x)
    assert torch.equal(out[1], w + x)


def test_warm_up_record_replay(graphed):
    w = torch.randn(4)
    for step in range(6):
        x = torch.randn(4)
        expect(graphed([w, x]), w, x)
        assert graphed.engine.replayed == max(step - 1, 0)  # one call that warms up, one that is measured
    assert graphed.engine.recorded == 1


def test_a_size_is_recorded_at_its_second_use(graphed):
    w = {n: torch.randn(n) for n in range(4, 7)}
    for n, recorded in ((4, 0), (4, 0), (4, 1), (5, 1), (6, 1), (5, 2), (6, 3), (4, 3), (6, 3)):
        x = torch.randn(n)
        expect(graphed([w[n], x]), w[n], x)
        assert graphed.engine.recorded == recorded


def test_only_listed_sizes_are_recorded():
    graphed = graph(options=RuntimeOptions(cudagraph_capture_sizes=(7,)), inputs=("w", "x", "n"), checks=(), static=frozenset())
    w = torch.randn(4)
    graphed.segment = graphed.segment.__class__(
        **{**vars(graphed.segment), "call": lambda args: (args[0] * args[1],), "sizes": lambda inputs: (inputs[2], inputs[2])}
    )
    for n in (7, 8, 7, 8, 8, 7):
        assert torch.equal(graphed([w, w, n])[0], w * w)
    assert graphed.engine.recorded == 1 and graphed.engine.replayed == 1
    assert graphed.reasons() == ("sizes (8,) are not among cudagraph_capture_sizes",)


@pytest.mark.parametrize("kernel", [0, 1], ids=["copied one by one", "by the kernel for copies"])
@pytest.mark.parametrize("count", [1, 3, 70])
def test_numbers_in_memory_are_what_they_are_at_the_replay(count, kernel):
    host = """
def call(args):
    x, *numbers = args
    args.clear()
    return (torch.stack([in_memory(n, "cpu") for n in numbers]), x * 2, numbers[0])
"""
    names = ("x", *(f"n{n}" for n in range(count)))
    lines = (Inputs(names), *(Number(f"m{n}", f"n{n}", "cpu") for n in range(count)), Return((), ()))
    graphed = graph(host, engine=SlowEngine(kernel=kernel), static=frozenset(), host_lines=lines, inputs=names)
    graphed.compiled.namespace["in_memory"] = in_memory
    for step in range(12):
        given = [(1, -1)[n % 2] * (step + n) for n in range(count)]
        given[-1] = (7, -1, 0, 2**40, -(2**63), 2**63 - 1)[step % 6]
        x = torch.randn(3)
        numbers, double, first = graphed([x, *given])
        assert numbers.tolist() == given and torch.equal(double, x * 2) and first is given[0]
    # two in turn, because results are held until the next ones are there
    assert graphed.engine.recorded == 2 and graphed.replays == 10
    with pytest.raises(OverflowError):
        graphed([torch.randn(3), *given[:-1], 2**63])
    with pytest.raises(TypeError, match=f"with an int or a number on the CPU at {count}"):
        graphed([torch.randn(3), *given[:-1], 0.5])


@pytest.mark.parametrize("kernel", [0, 1], ids=["copied one by one", "by the kernel for copies"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool], ids=str)
def test_tensors_of_one_number_on_the_cpu_are_numbers_in_memory(dtype, kernel):
    host = """
def call(args):
    x, a, b = args
    args.clear()
    return (torch.stack([in_memory(a, "cpu"), in_memory(b, "cpu")]), x * 2, a)
"""
    lines = (Inputs(("x", "a", "b")), Number("m", "a", "cpu"), Number("n", "b", "cpu"), Return((), ()))
    graphed = graph(host, engine=SlowEngine(kernel=kernel), static=frozenset(), host_lines=lines, inputs=("x", "a", "b"))
    graphed.compiled.namespace["in_memory"] = in_memory
    largest = 255 if dtype == torch.uint8 else float("inf")
    many = torch.tensor([0.25, 1.5, 3.0, -0.0, 1e30, float("inf")]).clamp(max=largest).to(dtype)
    for step in range(12):
        a, b, x = many[step % 6], many[(step + 1) % 6].clone(), torch.randn(3)
        numbers, double, first = graphed([x, a, b])
        assert torch.equal(numbers, torch.stack([a, b])) and torch.equal(double, x * 2) and first is a
    assert graphed.engine.recorded == 2 and graphed.replays == 10


# outputs that stay alive


def test_outputs_alive_at_the_next_call_are_not_overwritten(graphed):
    w = torch.randn(4)
    kept = []
    for _ in range(12):
        x = torch.randn(4)
        kept.append((graphed([w, x])[0], w * x))
        for value, expected in kept:
            assert torch.equal(value, expected)
    # two that took turns, and a third that hands this output out as a copy
    assert graphed.engine.recorded == 3 and len(graphed.recordings) == 1 and graphed.made == 3
    (calls,) = graphed.calls.values()
    assert calls.copied == {0}
    assert graphed.engine.replayed == 10


def test_outputs_that_live_for_one_call_more_take_turns(graphed):
    w, before = torch.randn(4), None
    for _ in range(12):
        x = torch.randn(4)
        out = graphed([w, x])
        expect(out, w, x)
        if before is not None:
            expect(before[0], w, before[1])
        before = out, x
    assert graphed.engine.recorded == 2 and not next(iter(graphed.calls.values())).copied


def test_a_small_part_that_is_held_is_copied():
    """As the loss of the step before is, beside what was saved for the backward: another recording would double that."""
    graphed = graph("def call(args):\n    w, x = args\n    args.clear()\n    return ((w * x).sum(), w + x, w - x)\n")
    w, before = torch.randn(1 << 21), None
    for _ in range(8):
        x = torch.randn(1 << 21)
        loss, *saved = graphed([w, x])
        assert torch.equal(saved[0], w + x) and torch.equal(saved[1], w - x)
        assert before is None or torch.equal(before[0], (w * before[1]).sum())
        before = loss, x
        del saved
    (calls,) = graphed.calls.values()
    assert graphed.engine.recorded == 2 and len(calls.recordings) == 1 and calls.copied == {0}


def test_several_calls_in_a_step_have_memory_of_their_own(graphed):
    w, results = torch.randn(4), None
    for _ in range(6):
        mark_step_begin()
        del results
        results = [(graphed([w, x]), x) for x in torch.randn(5, 4)]
        for out, x in results:
            expect(out, w, x)
        del out
    assert graphed.engine.recorded == 5 and not next(iter(graphed.calls.values())).copied


def test_what_outlives_a_step_is_copied(graphed):
    w, kept = torch.randn(4), []
    for _ in range(8):
        mark_step_begin()
        x = torch.randn(4)
        kept.append((graphed([w, x])[1], w + x))
        for value, expected in kept:
            assert torch.equal(value, expected)
    assert graphed.engine.recorded == 2 and next(iter(graphed.calls.values())).copied == {1}


def test_views_and_storages_keep_an_output(graphed):
    w, kept = torch.randn(4), []
    holders = [
        lambda out: out[1][1:3],
        lambda out: out[1].untyped_storage(),
        lambda out: out[1].storage(),
        lambda out: out[1].numpy(),
        lambda out: torch.utils.dlpack.to_dlpack(out[1]),
        lambda out: torch.nn.Parameter(out[1]),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for hold in [*holders, *holders]:
            x = torch.randn(4)
            kept.append((hold(graphed([w, x])), hold((None, w + x))))
            for value, expected in kept:
                if type(value).__name__ != "PyCapsule":
                    found, wanted = (
                        torch.as_tensor(list(v)) if "torage" in type(v).__name__ else torch.as_tensor(v)
                        for v in (value, expected)
                    )
                    assert torch.equal(found, wanted)
        for value, expected in kept:
            if type(value).__name__ == "PyCapsule":
                assert torch.equal(torch.from_dlpack(value), torch.from_dlpack(expected))


def test_results_fed_back(graphed):
    graphed = graph("def call(args):\n    w, h = args\n    args.clear()\n    return (torch.tanh(w * h + 1),)\n")
    w = torch.randn(4)
    h = expected = torch.randn(4)
    for _ in range(20):
        (h,), expected = graphed([w, h]), torch.tanh(w * expected + 1)
        assert torch.equal(h, expected)
    assert graphed.engine.recorded <= 3 and graphed.engine.replayed == 18


def test_memory_of_a_dead_function_is_anybodys():
    """It was taken for a recording's memory still, so every call that met it recorded anew."""
    before = sum(recording._MEMORY.values())
    graphed, w = graph(), torch.randn(4)
    for _ in range(3):
        graphed([w, torch.randn(4)])
    assert sum(recording._MEMORY.values()) == before + 2
    gc.disable()  # no cycle keeps it
    try:
        del graphed
        assert sum(recording._MEMORY.values()) == before
    finally:
        gc.enable()


SHARED = """
def call(args):
    w, x = args
    args.clear()
    y = w * x
    wide = torch.empty(8)
    wide[::2], wide[1::2] = w, x
    return (y, y, wide[::2], wide[1::2], None, 3, (w + x).expand(3, 4), x[1:], w)
"""


@pytest.mark.parametrize("hold", [False, True])
def test_outputs_share_memory_as_without_a_recording(hold):
    graphed, kept = graph(SHARED), []
    w = torch.randn(4)
    for _ in range(8):
        x = torch.randn(4)
        out = graphed([w, x])
        a, b, even, odd, none, number, wide, view, same = out
        assert a is b and none is None and number == 3 and same is w
        assert even.untyped_storage().data_ptr() == odd.untyped_storage().data_ptr() and even.stride() == odd.stride() == (2,)
        assert wide.stride() == (0, 1) and view.data_ptr() == x[1:].data_ptr()
        kept = [*kept, (out, x)] if hold else [(out, x)]
        for (a, _, even, odd, _, _, wide, view, _), x in kept:
            for found, wanted in ((a, w * x), (even, w), (odd, x), (wide, (w + x).expand(3, 4)), (view, x[1:])):
                assert torch.equal(found, wanted)
        del a, b, even, odd, wide, view, out
    assert graphed.engine.replayed == 6


# inputs


def test_parameters_that_move(graphed):
    x = torch.randn(4)
    for _ in range(3):
        graphed([torch.ones(4), x])
    w = torch.full((4,), 3.0)
    expect(graphed([w, x]), w, x)


def test_parameters_that_move_for_good_are_recorded_again(graphed):
    kept = []
    for _ in range(5):
        w = torch.randn(4)
        kept.append(w)
        for _ in range(20):
            x = torch.randn(4)
            expect(graphed([w, x]), w, x)
    assert graphed.engine.recorded == 5
    assert graphed.engine.replayed == 100 - 2 - 4  # one call in each new place


def test_two_sets_of_parameters_in_turns(graphed):
    sets = torch.randn(2, 4).unbind()
    for n in range(40):
        x = torch.randn(4)
        expect(graphed([sets[n % 2], x]), sets[n % 2], x)
    assert graphed.engine.recorded == 2 and graphed.engine.replayed >= 36


def test_parameters_that_never_stay_are_not_recorded(graphed):
    kept = []
    for _ in range(100):
        w, x = torch.randn(4), torch.randn(4)
        kept.append(w)
        expect(graphed([w, x]), w, x)
    assert graphed.engine.recorded == 0


WRITES = """
def call(args):
    w, cache, x = args
    args.clear()
    cache.mul_(0.5).add_(x)
    return (w * cache,)
"""


def writing(**facts):
    return graph(WRITES, mutated_inputs={1}, **facts)


def test_a_written_input_that_stays_is_written_in_place():
    graphed, w, cache = writing(), torch.randn(4), torch.randn(4)
    expected = cache.clone()
    for _ in range(10):
        x = torch.randn(4)
        out = graphed([w, cache, x])
        expected.mul_(0.5).add_(x)
        assert torch.equal(cache, expected) and torch.equal(out[0], w * expected)
        del out
    (made,) = graphed.recordings
    assert 1 in made.fixed and graphed.engine.replayed == 8


@pytest.mark.parametrize("period", [1, 2, 3, 7, 30])
def test_a_written_input_that_moves(period):
    graphed, w, kept = writing(), torch.randn(4), []
    for step in range(120):
        if step % period == 0:
            cache = torch.randn(4)
            kept.append(cache)
            expected = cache.clone()
        x = torch.randn(4)
        out = graphed([w, cache, x])
        expected.mul_(0.5).add_(x)
        assert torch.equal(cache, expected) and torch.equal(out[0], w * expected)
        del out
    assert graphed.made <= 5 and graphed.engine.replayed >= 100


@pytest.mark.parametrize("shape", ["rows", "columns", "expanded", "turned", "none", "one"])
def test_layouts_of_inputs_that_move(shape):
    def make():
        whole = torch.randn(6, 8)
        return {
            "rows": whole[1:5:2, :3],
            "columns": whole[:, 1::2],
            "expanded": whole[0].expand(5, 8),
            "turned": whole.t(),
            "none": whole[:0],
            "one": whole[0, 0],
        }[shape], whole

    written = shape != "expanded"
    body = "x.mul_(2)" if written else "pass"
    host = f"def call(args):\n    (x,) = args\n    args.clear()\n    {body}\n    return (x + 1,)\n"
    graphed = graph(host, static=frozenset(), mutated_inputs={0} if written else set())
    kept = []
    for _ in range(8):
        x, whole = make()
        kept.append(whole)
        wanted = whole.clone()
        if written:
            wanted.as_strided(x.shape, x.stride(), x.storage_offset()).mul_(2)
        seen = wanted.as_strided(x.shape, x.stride(), x.storage_offset())
        version = x._version
        assert torch.equal(graphed([x])[0], seen + 1) and torch.equal(whole, wanted)
        assert graphed.engine.replayed == 0 or x._version == version
    assert graphed.engine.replayed == 6


@pytest.mark.parametrize("kernel", [0, 1])
def test_many_inputs_that_move(kernel):
    """More than the kernel for copies takes at once, small and large ones, half of them written."""
    host = "def call(args):\n    xs = list(args)\n    args.clear()\n    for x in xs[::2]:\n        x.mul_(2)\n    return (sum(x.sum() for x in xs),)\n"
    graphed = graph(host, static=frozenset(), mutated_inputs=set(range(0, 150, 2)), engine=SlowEngine(kernel=kernel))
    kept = []
    for _ in range(6):
        xs = [torch.randn(1 << 19 if n in (6, 7) else n % 9, dtype=torch.float64) for n in range(150)]
        kept.append(xs)
        expected = [x * 2 if n % 2 == 0 else x.clone() for n, x in enumerate(xs)]
        (total,) = graphed(list(xs))
        torch.testing.assert_close(total, sum(x.sum() for x in expected))
        assert all(map(torch.equal, xs, expected))
    assert graphed.engine.replayed == 4


@pytest.mark.parametrize("rows, recorded", [(8, 1), (8192, 0)])
def test_a_window_on_much_more_memory_is_not_copied(rows, recorded):
    """A column of the tokens of a few texts is: what lies between costs nothing."""
    graphed = graph("def call(args):\n    (x,) = args\n    args.clear()\n    return (x + 1,)\n", static=frozenset())
    tokens = torch.randn(rows, 100)
    for place in range(6):
        x = tokens[:, place : place + 1]
        assert torch.equal(graphed([x])[0], x + 1)
    assert graphed.engine.recorded == recorded and graphed.replays == 4 * recorded
    assert counters().get("cudagraph.plain.window", 0) == 4 * (1 - recorded)


def test_a_window_that_is_written_keeps_what_lies_between():
    graphed = graph(
        "def call(args):\n    (x,) = args\n    x.mul_(2)\n    return (x + 1,)\n",
        static=frozenset(),
        mutated_inputs=frozenset({0}),
    )
    tokens, expected = torch.randn(8, 100), None
    for place in range(6):
        expected = tokens.clone()
        expected[:, place : place + 1] *= 2
        x = tokens[:, place : place + 1]
        assert torch.equal(graphed([x])[0], expected[:, place : place + 1] + 1) and torch.equal(tokens, expected)
    assert graphed.replays == 4


def test_saved_values_are_read_in_place(graphed):
    w = torch.randn(4)
    for _ in range(3):
        graphed([w, torch.randn(4)])
    second = record.GraphedFn(graphed.compiled, RuntimeOptions(), SlowEngine())
    for _ in range(5):
        x = torch.randn(4)
        out = graphed([w, x])[0]
        expect(second([w, out]), w, w * x)
        del out
    (made,) = second.recordings
    assert set(made.fixed) == {0, 1}


def test_several_forwards_before_one_backward(graphed):
    """The saved values of each are what its backward reads, whatever order they come in."""
    w = torch.randn(4)
    backward = record.GraphedFn(graphed.compiled, RuntimeOptions(), SlowEngine())
    for step in range(30):
        inputs = torch.randn(1 + step % 4, 4).unbind()
        saved = [graphed([w, x]) for x in inputs]
        for n in reversed(range(len(inputs))):
            expect(saved[n], w, inputs[n])
            expect(backward([w, saved[n][1]]), w, w + inputs[n])
            saved.pop()
    assert graphed.made <= graphed.most_recordings()


@pytest.mark.parametrize(
    ("externs", "draws"),
    [
        ({"aten::mm"}, False),
        ({"aten::rand_like", "aten::mm"}, True),
        ({"aten::bernoulli"}, True),
        ({"mine::op"}, True),
        ({"torch.mm", "restride"}, False),
        (set(), True),
    ],
)
def test_random_operators_are_known(externs, draws):
    assert graph(externs=externs).segment.draws is draws


def test_inputs_on_another_device_are_not_read():
    """Seeds that attention saves are on the CPU where its forward is not recorded, and else in memory of the recording."""
    elsewhere = torch.empty((), device="meta")
    host = "def call(args):\n    w, seed = args\n    args.clear()\n    return (w * 2 if seed.device.type == 'meta' else w * 2 + seed * 0,)\n"
    backward, w, engine = graph(host), torch.randn(4), SlowEngine()
    forward = graph("def call(args):\n    (w,) = args\n    args.clear()\n    return (w.sum(),)\n", engine=engine)
    for _ in range(3):
        forward([w])
    for seed in (elsewhere, elsewhere, elsewhere, torch.ones(()), torch.ones(()), elsewhere):
        assert torch.equal(backward([w, seed])[0], w * 2) and not backward.made
    for _ in range(4):
        (saved,) = forward([w])
        assert torch.equal(backward([w, saved])[0], w * 2)
        del saved
    assert torch.equal(backward([w, elsewhere])[0], w * 2)
    assert backward.replays == 4 and counters()["cudagraph.plain.elsewhere"] == 5


# limits


def test_memory_of_recordings_is_bounded():
    engine = SlowEngine(size=10 * 6 * LEAST)
    graphed = graph(engine=engine)
    w = {n: torch.randn(n) for n in range(20)}
    for _ in range(4):
        for n in range(20):
            x = torch.randn(n)
            for _ in range(9):
                expect(graphed([w[n], x]), w[n], x)
            assert sum(max(r.bytes, LEAST) for r in graphed.recordings) <= 6 * LEAST
    assert len(graphed.recordings) == 6


def test_the_least_recently_used_recording_goes_first_whatever_function_it_is_of():
    engine = SlowEngine(size=10 * 2 * LEAST)
    functions, w = [graph(engine=engine) for _ in range(3)], torch.randn(4)
    for fn in (functions[0], functions[1], functions[0], functions[2]):
        for _ in range(4):
            x = torch.randn(4)
            expect(fn([w, x]), w, x)
    assert [len(fn.recordings) for fn in functions] == [1, 0, 1]


def test_a_recording_that_is_too_large_is_not_kept():
    graphed, w = graph(engine=SlowEngine(size=10 * LEAST)), torch.randn(LEAST)
    for _ in range(5):
        x = torch.randn(LEAST)
        expect(graphed([w, x]), w, x)
    assert not graphed.recordings and graphed.engine.recorded == 1 and not graphed.engine.replayed
    assert "more than 10% of the device" in graphed.reasons()[0]


def test_the_number_of_recordings_is_bounded_by_replays(graphed):
    for n in range(1, 200):
        w = torch.randn(n)
        for _ in range(2):
            x = torch.randn(n)
            expect(graphed([w, x]), w, x)
    assert graphed.engine.recorded == graphed.made < 30


# what does not pay


def test_a_call_that_keeps_the_device_busy_is_not_recorded():
    graphed, w = graph(engine=SlowEngine(host=1.0, device=5.0)), torch.randn(4)
    for _ in range(10):
        x = torch.randn(4)
        expect(graphed([w, x]), w, x)
    assert graphed.engine.recorded == 0 and counters()["cudagraph.plain.measured"] == 3
    assert "nothing is won" in graphed.reasons()[0]


def test_a_recording_that_is_slower_is_dropped():
    graphed, w = graph(engine=SlowEngine(replay=2.0)), torch.randn(4)
    for _ in range(10):
        x = torch.randn(4)
        expect(graphed([w, x]), w, x)
    assert graphed.engine.replayed == 4 and not graphed.recordings
    assert graphed.reasons() == ("a replay takes 2000.000 ms, its kernels alone 1000.000 ms",)


# refusals


@pytest.mark.parametrize(
    ("name", "change", "what"),
    [
        ("no gpu", {"devices": set()}, "no device"),
        ("several gpus", {"devices": {"cuda:0", "cuda:1"}}, "cuda:0; cuda:1"),
        (
            "cpu work",
            {"kernels": (KernelSource("k", "cpp", ""),), "places": {"k": {"m.py:3 add": (0,), "m.py:4 mul": (1,)}}},
            "m.py:3 add, m.py:4 mul",
        ),
        ("cpu work", {"devices": {"cuda:0", "cpu"}}, "cpu:0"),
        ("waits", {"externs": {"aten::mm", "aten::_local_scalar_dense"}}, "aten::_local_scalar_dense"),
        ("waits", {"externs": {"prims::nonzero"}, "places": {"prims::nonzero": {"m.py:7 nonzero": (0,)}}}, "m.py:7 nonzero"),
    ],
)
def test_refusals(graphed, name, change, what):
    artifact = graphed.artifact
    assert refusals(artifact) == ()
    assert refusals(artifact.replace(**change)) == (f"{name}: {CUDAGRAPH_REFUSALS[name][1]} ({what})",)


@pytest.mark.parametrize("or_error", [False, True])
def test_a_policy_chooses_what_is_recorded(graphed, or_error):
    asked, compiled = [], graphed.compiled

    def chosen(answer):
        def policy(fn):
            asked.append(fn)
            return answer

        return choose.cudagraph(compiled, RuntimeOptions(cudagraph_policy=policy, cudagraph_or_error=or_error))

    assert isinstance(chosen(True), record.GraphedFn)
    assert chosen(False) is compiled
    assert chosen(len) is len
    assert asked == [compiled] * 3


def test_refused_function_is_returned_as_it_is(graphed):
    plain = CompiledFn(graphed.artifact.replace(devices={"cpu"}), {"call": tuple})
    assert choose.cudagraph(plain) is plain
    assert counters()["cudagraph.refused"] == 1
    with pytest.raises(NotRecorded, match="nothing in it runs on a GPU"):
        choose.cudagraph(plain, RuntimeOptions(cudagraph_or_error=True))


def fail(*args):
    raise RuntimeError("operation not permitted when stream is capturing")


@pytest.mark.parametrize("held", [False, True])
def test_an_error_while_recording_is_a_warning_and_no_error_of_the_call(graphed, held, monkeypatch):
    w, kept = torch.randn(4), []
    for _ in range(3):
        kept.append(graphed([w, torch.randn(4)]))
    if not held:
        kept.clear()
        for calls in graphed.calls.values():
            calls.drop(calls.recordings[0])
    monkeypatch.setattr(graphed.engine, "record", fail)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for n in (4, 4, 4, 5, 5, 4):
            w, x = torch.randn(n) if n == 5 else w, torch.randn(n)
            w = w if len(w) == n else torch.randn(n)
            expect(graphed([w, x]), w, x)
    (warning,) = said
    assert "not permitted" in str(warning.message) and "reduce-overhead" in str(warning.message)
    assert not graphed.recordings


def test_sizes_that_no_memory_is_left_for_run_plainly(graphed, monkeypatch):
    def full(*args):
        raise torch.OutOfMemoryError("CUDA out of memory")

    w = {4: torch.randn(4), 5: torch.randn(5)}
    for n, record_ in ((4, graphed.engine.record), (5, full), (4, full)):
        monkeypatch.setattr(graphed.engine, "record", record_)
        for _ in range(4):
            x = torch.randn(n)
            expect(graphed([w[n], x]), w[n], x)
    assert graphed.engine.replayed == 2 + 4 and graphed.reasons() == ("no memory was left to record it",)


@pytest.mark.parametrize("reason", ["error", "limit", "memory"])
def test_the_mode_that_does_not_fall_back_raises(reason, monkeypatch):
    graphed = graph(options=RuntimeOptions(cudagraph_or_error=True), engine=SlowEngine(device=100.0, replay=1000.0))
    w = torch.randn(4)
    for _ in range(8):  # it is recorded though nothing is won
        expect(graphed([w, w]), w, w)
    assert graphed.engine.replayed == 6
    w = torch.randn(5)
    graphed([w, w])
    if reason == "error":
        monkeypatch.setattr(graphed.engine, "record", fail)
    elif reason == "limit":
        graphed.made = 1000
    else:
        graphed.engine.size = 1
    with pytest.raises(NotRecorded, match={"error": "not permitted", "limit": "too often", "memory": "of the device"}[reason]):
        graphed([w, w])


@pytest.mark.parametrize("externs", [frozenset(), frozenset({"aten::mm"})])
def test_a_recording_for_each_of_the_settings_that_library_kernels_look_at(externs):
    graphed = graph(externs=externs)
    w = torch.randn(4)
    for setting in ({"benchmark": True}, {}, {"deterministic": True}, {}):
        with torch.backends.cudnn.flags(**setting):
            for _ in range(3):
                x = torch.randn(4)
                expect(graphed([w, x]), w, x)
    assert len(graphed.recordings) == (3 if externs else 1)


def test_a_recording_for_each_stream(graphed):
    w = torch.randn(4)
    for n in range(12):
        graphed.engine.current_stream = n % 2
        x = torch.randn(4)
        expect(graphed([w, x]), w, x)
    assert len(graphed.recordings) == 2


def test_results_of_inference_mode_are_its_own(graphed):
    w = torch.randn(4)
    for n in range(12):
        with torch.inference_mode(n % 2 == 0):
            x = torch.randn(4)
            out = graphed([w, x])
            expect(out, w, x)
            assert out[0].is_inference() == (n % 2 == 0)


def test_inputs_that_require_grad_and_move_leave_no_history(graphed):
    w = torch.randn(4, requires_grad=True)
    for _ in range(5):
        with torch.no_grad():
            expected = torch.randn(4)
        x = expected.clone().requires_grad_()
        with torch.no_grad():
            out = graphed([w, x])
        expect(out, w, x)
        assert not out[0].requires_grad


def test_two_threads(graphed):
    w, failures = torch.randn(4), []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        kept = []
        for _ in range(100):
            x = torch.randn(4, generator=generator)
            kept = [*kept[-3:], (graphed([w, x]), x)]
            for out, given in kept:
                if not (torch.equal(out[0], w * given) and torch.equal(out[1], w + given)):
                    failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and graphed.made <= record.FREE_RECORDINGS


def test_addresses_of_all_kinds_of_tensors_are_read_as_torch_reads_them():
    assert _torch.tensor_place() and _torch.get_address_function()
    whole = torch.randn(4, 6)
    kinds = [
        whole,
        whole[1:, 2],
        whole.t(),
        whole[:0],
        torch.nn.Parameter(whole),
        whole.to(torch.int8),
        whole.data,
        torch.tensor(3.0),
    ]
    kinds += [whole.detach().requires_grad_().exp(), whole.bfloat16()[2:], torch.frombuffer(bytearray(16), dtype=torch.float32)]
    moved = torch.nn.Parameter(torch.randn(3))
    moved.data = torch.randn(5)
    with torch.inference_mode():
        kinds += [moved, torch.randn(3), torch.randn(3)[1:]]
    for tensor in kinds:
        for wrong in (0, 8):
            replay = replay_of((0, tensor.data_ptr() + wrong))
            assert replay.matches([tensor]) is (wrong == 0)


def replay_of(*fixed):
    return recording.Replay(torch.Tensor.data_ptr, (0, 0, 0), 0, 0, tuple, _torch.storage_count, STEPS, fixed, (), (), ())


@pytest.mark.parametrize("fallback", [False, True])
def test_who_holds_a_storage_is_read_as_torch_counts(fallback, monkeypatch):
    place = _torch.storage_count_place()
    assert place >= 0, "else each replay asks through Python"
    tensor, kept = torch.ones(4), []
    storage = tensor.untyped_storage()
    replay = recording.Replay(
        torch.Tensor.data_ptr, (0, 0, 0), 0, 0, tuple, _torch.storage_count, STEPS, (), (), ((storage, storage._cdata),), ()
    )
    try:
        recording.set_count_place(-1 if fallback else place)
        replay.settle()
        for hold in (
            lambda: tensor[1:],
            tensor.detach,
            tensor.untyped_storage,
            lambda: tensor.numpy(),
            lambda: tensor.view(2, 2).T,
        ):
            assert replay.free() and not replay.held()
            kept.append(hold())
            assert not replay.free() and replay.held() == [0]
            kept.clear()
    finally:
        recording.set_count_place(place)


@contextlib.contextmanager
def elsewhere(engine, name, value):
    before = getattr(engine, name)
    setattr(engine, name, value)
    yield
    setattr(engine, name, before)


OTHER_CALLS = {
    "stream": lambda fn, w: elsewhere(fn.engine, "current_stream", 8),
    "device": lambda fn, w: elsewhere(fn.engine, "current_device", lambda: 1),
    "capturing": lambda fn, w: elsewhere(fn.engine, "capturing", lambda: True),
    "inference mode": lambda fn, w: torch.inference_mode(),
    "setting": lambda fn, w: elsewhere(torch.backends.cuda.matmul, "allow_tf32", True),
    "address": lambda fn, w: elsewhere(w, "data", torch.randn(4)),
}


def proven(**facts):
    """A function whose calls are replayed without Python, with its parameter."""
    fn, w = graph(**facts), torch.randn(4)
    for _ in range(6):
        x = torch.randn(4)
        expect(fn([w, x]), w, x)
    assert fn.replays == 4 and fn._front.count == 2, "one that is measured, one that is not on trial any more"
    return fn, w


@pytest.mark.parametrize("other", OTHER_CALLS)
def test_another_call_is_not_taken_for_one_like_the_last(other):
    fn, w = proven(externs={"aten::mul"})
    fast = fn._front.count
    # the callables are looked up once: here they look at the engine again
    fn._front = record.Front(
        record._LOCK.acquire,
        record._LOCK.release,
        (lambda: fn.engine.capturing(), lambda: fn.engine.current_device(), torch.is_inference_mode_enabled),
        fn.engine.stream,
        0,
        _torch.library_settings,
        None,
    )
    next(iter(fn.calls.values())).front = fn._front
    for _ in range(2):
        expect(fn([w, w]), w, w)
    assert fn._front.count == 1 and fast == 2
    with OTHER_CALLS[other](fn, w):
        for _ in range(3):
            x = torch.randn(4)
            expect(fn([w, x]), w, x)
            assert fn._front.count == 1
    x = torch.randn(4)
    expect(fn([w, x]), w, x)


def test_another_size_is_not_taken_for_the_last(graphed):
    for n in (4, 4, 4, 4, 4, 4, 5, 4, 5, 5, 5, 5, 5, 4):
        w, x = torch.ones(n), torch.randn(n)
        expect(graphed([w, x]), w, x)


def test_what_is_held_is_not_overwritten_by_the_short_way():
    fn, w = proven()
    x, y = torch.randn(4), torch.randn(4)
    held = fn([w, x])[0].view(2, 2)
    fast = fn._front.count
    other = fn([w, y])
    assert torch.equal(held.view(4), w * x)
    expect(other, w, y)
    assert fn._front.count == fast


def test_dropped_recordings_are_not_replayed():
    fn, w = proven()
    for calls in fn.calls.values():
        for one in list(calls.recordings):
            calls.drop(one)
    x, fast = torch.randn(4), fn._front.count
    expect(fn([w, x]), w, x)
    assert fn._front.count == fast


def test_checked_inputs_are_checked_at_each_call():
    fn = graph()
    fn.check = lambda inputs: seen.append(len(inputs))
    w, seen = torch.randn(4), []
    for _ in range(7):
        fn([w, torch.randn(4)])
    assert seen == [2] * 7 and fn._front.count == 0 and fn.replays == 5


OUTPUTS = """
def call(args):
    w, x = args
    args.clear()
    a = x * 2
    return (a, a, w, x[1:], None, 3, a[1:], w)
"""


def test_every_kind_of_output_by_the_short_way():
    fn, w = graph(OUTPUTS), torch.randn(4)
    for _ in range(8):
        x = torch.randn(4)
        a, again, mine, part, nothing, number, rest, once_more = fn([w, x])
        assert torch.equal(a, x * 2) and again is a and mine is w and once_more is w and (nothing, number) == (None, 3)
        assert part.data_ptr() == x.data_ptr() + 4 and torch.equal(rest, a[1:]) and rest.data_ptr() == a.data_ptr() + 4
        del a, again, rest
    assert fn._front.count == 4


def test_precisions_in_the_newer_words_are_among_the_settings():
    products, images, found = torch.backends.cuda.matmul, torch.backends.cudnn.conv, []
    before = products.fp32_precision, images.fp32_precision
    try:
        for products.fp32_precision, images.fp32_precision in (
            ("ieee", "ieee"),
            ("tf32", "ieee"),
            ("tf32", "tf32"),
            ("ieee", "tf32"),
        ):
            found.append(_torch.library_settings())
    finally:
        products.fp32_precision, images.fp32_precision = before
    assert len(set(found)) == 4

"""CUDA graphs on a GPU: results, outputs that stay alive, inputs that move or are written, random numbers, memory, threads."""

import gc
import threading

import pytest
import torch
from tracework_runtime import Artifact, RuntimeOptions, load
from tracework_runtime.cudagraph.engine import GraphEngine
from tracework_runtime.cudagraph.record import GraphedFn

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

HOST = """
import torch
def call(args):
    w, x = args
    args.clear()
    y = torch.ops.aten.mm.default(x, w)
    z = torch.ops.aten.relu.default(y)
    return (y, z)
"""


class RecordingEngine(GraphEngine):
    """Takes it that every recording pays: these functions are two kernels."""

    def time(self, call, device):
        return call(), 1.0, 1.0


@pytest.fixture
def make(tmp_path):
    options = RuntimeOptions(cache_dir=str(tmp_path / "cache"))
    engine = RecordingEngine()

    def made(host, static=frozenset({0}), **facts):
        artifact = Artifact("c" * 8, host, devices={"cuda:0"}, static_inputs=static, **facts)
        return GraphedFn(load(artifact, options), options, engine)

    return made


@pytest.fixture(params=[{}, {"externs": {"aten::mm", "aten::relu"}}], ids=["torch", "driver"])
def graphed(make, request):
    """Recorded through torch, as what may draw random numbers is, and by the driver."""
    return make(HOST, **request.param)


def test_results_of_many_calls(graphed):
    w = torch.randn(64, 64, device="cuda")
    kept = []
    for _ in range(8):
        x = torch.randn(32, 64, device="cuda")
        y, z = graphed([w, x])
        kept.append((y, x @ w))
        torch.testing.assert_close(z, (x @ w).relu())
        del z
        for value, expected in kept:
            torch.testing.assert_close(value, expected)
    assert graphed.recordings


def test_moved_parameter(graphed):
    x = torch.randn(32, 64, device="cuda")
    for _ in range(4):
        w = torch.randn(64, 64, device="cuda")
        torch.testing.assert_close(graphed([w, x])[0], x @ w)
        keep = w  # noqa: F841  the next parameter gets other memory


WAITING = """
import torch
def call(args):
    w, x = args
    args.clear()
    y = torch.ops.aten.mm.default(x, w)
    return (y * float(y.sum().item() == y.sum().item()), torch.rand_like(y))
"""


@pytest.mark.parametrize("externs", [frozenset(), frozenset({"aten::mm"})])
def test_what_cannot_be_recorded_runs_all_the_same(graphed, make, externs):
    """No operator of it is in the tables: the error comes while recording, and what follows is as if nothing had been."""
    waiting, stream = make(WAITING, externs=externs), torch.cuda.current_stream()
    w, kept = torch.randn(64, 64, device="cuda"), []
    with pytest.warns(RuntimeWarning, match="cannot be recorded as a CUDA graph"):
        for _ in range(3):
            x = torch.randn(32, 64, device="cuda")
            found, drawn = waiting([w, x])
            torch.testing.assert_close(found, x @ w)
            kept.append((found, x @ w, drawn))
    assert torch.cuda.current_stream() == stream
    for _ in range(4):  # other functions are recorded, random numbers drawn, memory given and taken as before
        x = torch.randn(32, 64, device="cuda")
        torch.testing.assert_close(graphed([w, x])[0], x @ w)
        torch.testing.assert_close(waiting([w, x])[0], x @ w)
    assert graphed.recordings and not waiting.recordings
    assert not torch.equal(kept[0][2], kept[1][2])
    for found, expected, _ in kept:
        torch.testing.assert_close(found, expected)


def test_a_precision_that_is_set_later(make):
    graphed, before = make(HOST, externs={"aten::mm", "aten::relu"}), torch.backends.cuda.matmul.fp32_precision
    w, x = torch.randn(512, 512, device="cuda"), torch.randn(64, 512, device="cuda")
    exact = x.double() @ w.double()
    try:
        for precision, exactly in (("ieee", True), ("tf32", False), ("ieee", True)):
            torch.backends.cuda.matmul.fp32_precision = precision
            for _ in range(3):
                error = (graphed([w, x])[0].double() - exact).abs().max().item()
                assert (error < 1e-3) is exactly
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert len(graphed.recordings) == 2


RANDOM = """
import torch
def call(args):
    w, x = args
    args.clear()
    return (torch.ops.aten.bernoulli.p(x, 0.5), torch.ops.aten.rand_like.default(w))
"""


def test_random_numbers_are_those_without_a_recording(make):
    drawing, w, x = make(RANDOM), torch.randn(300, device="cuda"), torch.randn(1000, device="cuda")
    rows = []
    for call in (drawing, drawing.compiled):
        torch.manual_seed(3)
        rows.append([[*(t.clone() for t in call([w, x])), torch.rand(5, device="cuda")] for _ in range(8)])
    assert drawing.replays == 6
    for mine, plain in zip(*rows, strict=True):
        assert all(map(torch.equal, mine, plain))
    state = torch.cuda.get_rng_state()
    again = drawing([w, x])[0].clone()
    torch.cuda.set_rng_state(state)
    assert torch.equal(drawing([w, x])[0], again)


WRITES = """
import torch
def call(args):
    w, cache, x = args
    args.clear()
    cache.mul_(0.5).add_(x)
    return (w * cache,)
"""


@pytest.mark.parametrize("externs", [frozenset(), frozenset({"aten::mul_"})])
@pytest.mark.parametrize("period", [3, 40])
def test_written_inputs(make, period, externs):
    writing, w, kept = make(WRITES, mutated_inputs={1}, externs=externs), torch.randn(300, device="cuda"), []
    for step in range(120):
        if step % period == 0:
            kept.append(torch.randn(400, device="cuda")[100:])
            expected = kept[-1].clone()
        x = torch.randn(300, device="cuda")
        (out,) = writing([w, kept[-1], x])
        expected.mul_(0.5).add_(x)
        assert torch.equal(kept[-1], expected) and torch.equal(out, w * expected)
        del out
    assert writing.replays > 80 and writing.made < 6


COPIED = """
import torch
def call(args):
    xs = list(args)
    args.clear()
    for x in xs[::2]:
        x.mul_(2)
    return (torch.stack([x.double().sum() for x in xs]),)
"""


def test_many_inputs_that_move(make):
    """Of all alignments and lengths, more than one kernel copies."""
    fn, kept = make(COPIED, static=frozenset(), mutated_inputs=set(range(0, 150, 2)), externs={"aten::mul"}), []
    for _ in range(6):
        kinds = torch.float64, torch.float32, torch.bfloat16, torch.uint8
        xs = [torch.randint(0, 50, (70 + n * n * 17,), device="cuda").to(kinds[n % 4])[n % 7 :] for n in range(150)]
        xs[10] = torch.randint(0, 9, (1 << 20,), device="cuda").float()
        kept.append(xs)
        expected = [x * 2 if n % 2 == 0 else x.clone() for n, x in enumerate(xs)]
        (sums,) = fn(list(xs))
        assert torch.equal(sums, torch.stack([x.double().sum() for x in expected]))
        assert all(map(torch.equal, xs, expected))
        del sums
    assert fn.replays == 4


def kept_by_pools():
    """Bytes of all pools but the one that every call takes memory from, which torch keeps for the next."""
    return sum(segment["total_size"] for segment in torch.cuda.memory_snapshot() if tuple(segment["segment_pool_id"]) != (0, 0))


@pytest.mark.parametrize("externs", [frozenset(), frozenset({"aten::mul"})])
def test_memory_is_given_back(make, externs):
    host = "import torch\ndef call(args):\n    w, x = args\n    args.clear()\n    return ((w * x) * 2 + (w + x) * 3,)\n"
    gc.collect()
    torch.cuda.empty_cache()
    before, pools, size = torch.cuda.memory_reserved(), kept_by_pools(), 1 << 24
    w, functions, out = torch.randn(size, device="cuda"), [make(host, externs=externs) for _ in range(4)], None
    for fn in functions:
        for _ in range(4):
            out = fn([w, w])[0]
    torch.testing.assert_close(out, w * w * 2 + (w + w) * 3)
    torch.cuda.empty_cache()
    own = torch.cuda.memory_reserved() - before
    # w; for each function two recordings, which take turns, of an output and what is between
    assert own <= (1 + 4 * 2 * 5) * 4 * size + (64 << 20)
    assert all(4 * size <= recording.bytes <= 5 * 4 * size + (8 << 20) for fn in functions for recording in fn.recordings)
    del w, functions, fn, out
    gc.collect()
    torch.cuda.empty_cache()
    assert kept_by_pools() - pools < 32 << 20


SCRATCH = """
import torch
def call(args):
    w, x = args
    args.clear()
    a = w * x
    b = a + 1
    del a
    return (b * b,)
"""


@pytest.mark.parametrize("externs", [frozenset(), frozenset({"aten::mul"})])
def test_no_recording_writes_to_results_of_another(make, externs):
    """What one frees while it is recorded may be handed out by the next, and is written to at each replay of the first."""
    w, functions = torch.randn(300, device="cuda"), [make(SCRATCH, externs=externs) for _ in range(3)]
    for _ in range(12):
        results = []
        for fn in (*functions, *functions):
            x = torch.randn(300, device="cuda")
            results.append((fn([w, x])[0], (w * x + 1) ** 2))
            for found, expected in results:
                torch.testing.assert_close(found, expected)
    assert all(fn.replays == 22 for fn in functions)


def test_threads_and_streams(make):
    """They draw random numbers, while this or another one records."""
    graphed = make(HOST, externs={"aten::mm", "aten::relu"})
    w, failures = torch.randn(64, 64, device="cuda"), []

    def work(stream):
        try:
            with torch.cuda.stream(stream):
                kept = []
                for _ in range(60):
                    x = torch.randn(32, 64, device="cuda")
                    kept = [*kept[-2:], (graphed([w, x])[0], x @ w)]
                    for found, expected in kept:
                        torch.testing.assert_close(found, expected)
        except BaseException as error:
            failures.append(error)

    torch.cuda.synchronize()
    streams = [torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.default_stream()]
    threads = [threading.Thread(target=work, args=(stream,)) for stream in (*streams, streams[0])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert graphed.replays > 100


def test_a_long_call_is_not_recorded(tmp_path):
    options = RuntimeOptions(cache_dir=str(tmp_path / "cache"))
    fn = GraphedFn(load(Artifact("l" * 8, HOST, devices={"cuda:0"}, static_inputs={0}), options), options)
    w, x = torch.randn(8192, 8192, device="cuda"), torch.randn(8192, 8192, device="cuda")
    for _ in range(8):
        fn([w, x])
    assert not fn.recordings and "nothing is won" in fn.reasons()[0]

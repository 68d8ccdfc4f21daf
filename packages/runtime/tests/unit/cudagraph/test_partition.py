"""Host programs in parts, on the engine double: what is recorded, what runs between, and every value."""

import gc
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tracework_runtime import (
    DEFAULT_OPTIONS,
    Artifact,
    KernelSource,
    NotRecorded,
    PartitionedFn,
    RuntimeOptions,
    SymbolBinding,
    TensorCheck,
    results,
)
from tracework_runtime.cudagraph import choose, partition, record, recording
from tracework_runtime.cudagraph.facts import EXTERN_FACTS, TAGS, why_unrecordable
from tracework_runtime.cudagraph.facts import WAITING as WAITING_OF_ATEN
from tracework_runtime.cudagraph.partition import parts_of
from tracework_runtime.cudagraph.refusals import CUDAGRAPH_REFUSALS
from tracework_runtime.cudagraph.step import STEPS
from tracework_runtime.host import program as host
from tracework_runtime.host.lines import (
    Address,
    Allocate,
    Bind,
    Call,
    Free,
    Inputs,
    Launch,
    Number,
    Return,
    Reuse,
    Take,
)
from tracework_runtime.load import CompiledFn

slow_engine = pytest.importorskip("slow_engine")
programs = pytest.importorskip("replay_programs")
NAMES = {"torch": torch, "there_and_back": programs.there_and_back, "wait_for": programs.wait_for}
WAITS, RECORDED = ("aten::_local_scalar_dense",), ("aten::mul",)


@pytest.fixture(autouse=True)
def double(monkeypatch):
    """Memory of a GPU is the CPU's; each line that can be recorded is worth it."""
    monkeypatch.setattr(STEPS, "number", 0)
    monkeypatch.setattr(partition, "LEAST_WORK", 1)
    monkeypatch.setattr(results, "empty_cuda", results.empty_cpu)


def artifact(lines, **facts):
    externs = {name for line in lines for name in getattr(line, "operators", ())}
    return Artifact("k" * 12, "", host_lines=tuple(lines), devices={"cuda:0", "cpu"}, externs=externs, **facts)


def partitioned(lines, engine=None, options=DEFAULT_OPTIONS, names=NAMES, **facts):
    compiled = CompiledFn(artifact(lines, **facts), {**names, "call": None})
    return PartitionedFn(compiled, parts_of(compiled.artifact), options, engine or slow_engine.SlowEngine())


def kinds(lines, **facts):
    return [part.recordable for part in parts_of(artifact(lines, **facts))]


def call(name, *reads, operators=RECORDED, devices=(), **fields):
    return Call((f"{name} = {' * '.join(reads)}",), tuple(dict.fromkeys(reads)), (name,), operators, devices=devices, **fields)


# what a line is


KERNELS = (
    KernelSource("k0", "cpp", "", ("*fp32", "*fp32")),
    KernelSource("k1", "triton", "", ("*fp32", "*fp32")),
)
ADDRESSES = Address("x"), Address("a")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (Launch("k1", ADDRESSES, writes=("a",)), ""),
        (Launch("k0", ADDRESSES, writes=("a",)), "cpu work: .*(m.py:3 mul)"),
        (Call(("f(x, x, out=a)",), ("x", "a"), (), ("aten::mm",), ("a",), ("cuda:0",)), ""),
        (Call(("f(x, x, out=a)",), ("x", "a"), (), ("aten::mm",), ("a",), ("cpu",)), "cpu work: .*(m.py:4 mm)"),
        (call("a", "x", devices=("cuda:0",)), ""),
        (call("a", "x", devices=("cpu", "cuda:0")), "cpu work: .*(aten::mul)"),
        (call("a", "x", operators=("aten::mul", "aten::nonzero")), "waits: .*(aten::mul; aten::nonzero)"),
        (call("a", "x", operators=("_c10d_functional::all_reduce",)), "collective: .*all_reduce"),
    ],
)
def test_why_a_line_runs_between(line, reason):
    lines = (Inputs(("x",)), Allocate("a", "cuda", "float32", (2, 2), (2, 1)), line, call("b", "a"), Return(("b",), ("b",)))
    found = parts_of(artifact(lines, kernels=KERNELS, places={"aten::mm": {"m.py:4 mm": (1,)}, "k0": {"m.py:3 mul": (0,)}}))
    between = [text for part in found for text in part.reasons]
    assert [part.recordable for part in found] == ([False] if reason else []) + [True, False]
    assert len(between) == bool(reason)
    if reason:
        import re

        assert re.search(reason, between[0])


def test_a_tag_says_that_a_custom_operator_cannot_be_recorded():
    with torch.library._scoped_library("tracework_partition_tests", "DEF") as library:
        library.define("safe(Tensor x) -> Tensor")
        library.define("unsafe(Tensor x) -> Tensor", tags=(torch.Tag.cudagraph_unsafe,))
        assert why_unrecordable("tracework_partition_tests::safe") == ""
        assert why_unrecordable("tracework_partition_tests::unsafe") == "unsafe"


WAITING = "_local_scalar_dense equal nonzero masked_select _unique2 unique_dim unique_consecutive bincount repeat_interleave linalg_lstsq"


@pytest.mark.parametrize("name", [*WAITING.split(), *WAITING_OF_ATEN])
def test_operators_that_wait(name):
    """By torch's tags, or by the table, whose names are torch's."""
    if name == "cholesky" and not hasattr(torch.ops.aten, name):
        pytest.skip("torch 2.15 has linalg_cholesky_ex alone")
    assert hasattr(torch.ops.aten, name) and why_unrecordable(f"aten::{name}") == "waits"


@pytest.mark.parametrize("name", ["mm", "index", "index_put", "add", "sort", "embedding", "cumsum"])
def test_operators_that_are_recorded(name):
    assert why_unrecordable(f"aten::{name}") == ""


def test_every_fact_is_a_refusal_with_a_text():
    assert {*EXTERN_FACTS.values(), *TAGS.values()} - {""} < CUDAGRAPH_REFUSALS.keys()


# where it is cut


def test_memory_goes_with_what_uses_it():
    lines = (
        Inputs(("x", "y")),
        call("a", "x", "y"),
        Allocate("b", "cuda", "float32", (3,), (1,)),
        Call(("wait_for(a)", "b.copy_(a)"), ("a", "b"), (), WAITS, ("b",)),
        Free(("a", "x")),
        Reuse("c", "b", ""),
        Call(("c.mul_(y)",), ("c", "y"), (), RECORDED, ("c",)),
        Free(("b", "y")),
        Return(("c",), ("c",)),
    )
    first, between, last, end = parts_of(artifact(lines))
    assert (first.inputs, first.outputs) == (("x", "y"), ("a",))
    assert (between.inputs, between.outputs, between.written) == (("a",), ("b",), frozenset())
    assert Free(("a",)) in between.lines and not any(isinstance(line, Free) and "x" in line.names for line in between.lines)
    assert (last.inputs, last.outputs, last.written) == (("b", "y"), ("c",), {"b"})
    assert (end.inputs, end.outputs, end.recordable) == (("c",), ("c",), False)


def test_memory_that_is_taken_over_before_anything_is_computed():
    """Freed under its old name only then."""
    lines = (
        Inputs(("x",)),
        call("a", "x"),
        Reuse("b", "a", ""),
        Free(("a", "x")),
        Call(("b.zero_()", "wait_for(b)"), ("b",), (), WAITS, ("b",)),
        call("c", "b"),
        Return(("c",), ("c",)),
    )
    graphed = partitioned(lines)
    for _ in range(5):
        assert torch.equal(graphed([torch.rand(3)])[0], torch.zeros(3))
    assert [part.outputs for part in graphed.parts] == [("a",), ("b",), ("c",), ("c",)]


def test_what_would_not_win_runs_with_what_is_beside_it(monkeypatch):
    lines = [Inputs(("x",)), call("a", "x"), call("b", "a", operators=WAITS), call("c", "b"), call("d", "c", operators=WAITS)]
    lines += [call("e", "d"), call("f", "e"), Return(("f",), ("f",))]
    assert kinds(lines) == [True, False, True, False, True, False]
    monkeypatch.setattr(partition, "LEAST_WORK", 2 * partition.CALL_WORK)
    assert kinds(lines) == [False, True, False]
    monkeypatch.setattr(partition, "LEAST_WORK", 100)
    assert parts_of(artifact(lines)) == ()


def test_symbols_are_given_to_the_parts_that_need_them():
    lines = (
        Inputs(("x", "n")),
        Bind("s0", "x.shape[0]", ("x",)),
        Bind("s1", "n", ("n",)),
        Launch("k1", (Address("x"), "s1*2")),
        Call(("wait_for(x)",), ("x",), (), WAITS),
        Launch("k1", (Address("x"), 3)),
        Return(("(s0*2)", "x"), ("s0", "x")),
    )
    start, first, between, last, end = parts_of(artifact(lines, kernels=KERNELS))
    assert (start.inputs, start.outputs) == (("x", "n"), ("s0", "s1"))
    assert [part.symbols for part in (first, between, last, end)] == [("s1",), (), (), ("s0",)]


def test_each_part_puts_the_numbers_that_it_reads_into_memory():
    lines = [
        Inputs(("x", "n")),
        Number("m", "n", "cpu"),
        call("a", "x", "m"),
        call("b", "a", operators=WAITS),
        call("c", "b", "m"),
        call("d", "c", operators=WAITS),
        Return(("a", "d", "n"), ("a", "d", "n")),
    ]
    facts = {"inputs": ("x", "n"), "checks": (TensorCheck(0, "x", "float64", "cpu", (3,), (1,)),)}
    fn = partitioned(lines, names={**NAMES, "in_memory": results.in_memory}, symbols=(SymbolBinding("s0", "value", 1),), **facts)
    for number in (*range(10), -3, 2**20):
        x = torch.randn(3, dtype=torch.float64)
        first, second, shown = fn([x, number])
        assert torch.equal(first, x * number) and torch.equal(second, x * number * number) and shown is number
    # two each, in turn, because results are held until the next ones are there
    assert [graphed.made for graphed in fn.graphed] == [2, 2] and all(graphed.replays >= 10 for graphed in fn.graphed)


def test_sizes_that_depend_on_data_are_apart():
    """What does not depend on them is recorded once for all of them; what takes a tensor of such a size is recorded for each."""
    lines = (
        Inputs(("x", "i", "n")),
        Bind("u0", "n", ("n",)),
        call("a", "x", "x"),
        Call(("b = a[i]",), ("a", "i"), ("b",), RECORDED, symbols=("u0",)),
        Launch("k1", (Address("b"), "u0*2"), writes=("b",)),
        Call(("c = a.index_add(0, i, b)",), ("a", "i", "b"), ("c",), RECORDED),
        call("d", "c", "c"),
        Call(("e = b.sum()",), ("b",), ("e",), RECORDED),
        call("f", "d", "e"),
        Return(("f",), ("f",)),
    )
    checks = TensorCheck(0, "x", "float32", "cuda:0", (9,), (1,)), TensorCheck(1, "i", "int64", "cuda:0", ("u0",), (1,))
    symbols = (SymbolBinding("u0", "value", 2, of_data=True),)
    facts = {"kernels": KERNELS[1:], "checks": checks, "symbols": symbols, "inputs": ("x", "i", "n")}
    found = parts_of(artifact(lines, **facts).replace(devices={"cuda:0"}))
    assert [(part.recordable, part.symbols) for part in found] == [
        (False, ()),
        (True, ()),
        (True, ("u0",)),
        (True, ()),
        (True, ("u0",)),
        (True, ()),
        (False, ()),
    ]
    settled = [SymbolBinding("u0", "value", 2)]
    assert not parts_of(artifact(lines, **{**facts, "symbols": settled}).replace(devices={"cuda:0"}))


@pytest.mark.parametrize(
    "facts", [{"devices": {"cuda:0", "cuda:1"}}, {"devices": {"cpu"}}, {"graph_refusals": ("no",)}, {"host_lines": ()}]
)
def test_whole_programs_that_are_not_cut(facts):
    lines = (Inputs(("x",)), call("a", "x"), call("b", "a", operators=WAITS), Return(("b",), ("b",)))
    assert parts_of(artifact(lines)) and not parts_of(artifact(lines).replace(**facts))
    assert not parts_of(artifact((lines[0], Take(8), *lines[1:])))


# choosing


CHAIN = (
    Inputs(("x",)),
    call("a", "x", "x"),
    Call(("wait_for(a)",), ("a",), (), WAITS),
    call("b", "a", "a"),
    Return(("b",), ("b",)),
)


def test_modes():
    def made(**options):
        compiled = CompiledFn(artifact(CHAIN), {**NAMES, "call": lambda inputs: (inputs[0] ** 4,)})
        return choose.cudagraph(compiled, RuntimeOptions(**options))

    assert isinstance(made(), PartitionedFn) and isinstance(made(graph_partition=False), CompiledFn)
    with pytest.raises(NotRecorded, match="_local_scalar_dense"):
        made(cudagraph_or_error=True)


def test_an_error_while_recording_is_one_part_alone(monkeypatch):
    engine = slow_engine.SlowEngine()
    graphed, record_ = partitioned(CHAIN, engine), engine.record

    def second_fails(call, inputs, *others):
        if call is graphed.graphed[1].segment.call:
            raise RuntimeError("operation not permitted when stream is capturing")
        return record_(call, inputs, *others)

    monkeypatch.setattr(engine, "record", second_fails)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(8):
            x = torch.rand(3)
            assert torch.equal(graphed([x])[0], (x * x) * (x * x))
    assert len(said) == 1 and [g.replays for g in graphed.graphed] == [6, 0]
    assert graphed.reasons()[1:] == ("recording it failed: operation not permitted when stream is capturing",)


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_around_an_operator_that_cannot_be_recorded_is_found_out(whole, monkeypatch):
    """No table knows it: the recording fails in it, once; then parts of it are recorded."""
    engine = slow_engine.SlowEngine()
    recording_now, record_ = [], engine.record

    def note(*args):
        recording_now.append(True)
        try:
            return record_(*args)
        except RuntimeError as error:
            raise ValueError("the recording could not be ended") from error
        finally:
            recording_now.clear()

    def unknown(x):
        if recording_now:
            raise RuntimeError("operation not permitted when stream is capturing")
        return x + 1

    monkeypatch.setattr(engine, "record", note)
    monkeypatch.setattr(record, "ENGINE", engine)
    before = [] if whole else [Call(("wait_for(x)",), ("x",), (), WAITS)]
    lines = [Inputs(("x",)), *before, call("a", "x", "x"), Call(("b = unknown(a)",), ("a",), ("b",), ("mine::unknown",))]
    lines += [call("c", "b", "b"), Return(("c", "b"), ("c", "b"))]
    names = {**NAMES, "unknown": unknown}
    namespace = {**names, "call": host.host_program(artifact(lines), dict(names))}
    graphed = choose.cudagraph(CompiledFn(artifact(lines).replace(devices={"cuda:0"}), namespace))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(10):
            x = torch.rand(3)
            c, b = graphed([x])
            assert torch.equal(b, x * x + 1) and torch.equal(c, (x * x + 1) ** 2)
    assert len(said) == 1
    failed = graphed if whole else graphed.graphed[0]
    assert [part.recordable for part in failed.segment.call.parts] == [True, False, True, False]
    assert [g.replays for g in failed.segment.call.graphed] == [6, 6]


def test_a_part_that_does_not_win_is_one_part_alone():
    graphed = partitioned(CHAIN)
    graphed.graphed[0].engine = slow_engine.SlowEngine(host=0.1, device=1.0)
    for _ in range(10):
        x = torch.rand(3)
        assert torch.equal(graphed([x])[0], (x * x) * (x * x))
    assert [g.replays for g in graphed.graphed] == [0, 8]


def test_what_parts_give_each_other_ends_with_the_call():
    """Held results get memory of their own; what only parts read is nobody's after the call."""
    graphed, kept = partitioned(CHAIN), []
    for _ in range(12):
        x = torch.rand(3)
        kept.append((graphed([x])[0], (x * x) * (x * x)))
        for found, expected in kept:
            assert torch.equal(found, expected)
    assert [len(g.recordings) for g in graphed.graphed] == [1, 1] and graphed.graphed[0].made == 1
    assert not graphed.graphed[0].recordings[0].replay.held()


def test_the_caller_keeps_no_input():
    """As without parts, the list is emptied, and an input ends with its last reader."""
    ended = []
    lines = (
        Inputs(("x",)),
        call("a", "x", "x"),
        Call(("look(a)",), ("a",), (), WAITS),
        call("b", "a", "a"),
        Return(("b",), ("b",)),
    )
    import weakref

    graphed = partitioned(lines, names={**NAMES, "look": lambda a: ended.append(alive())})
    for _ in range(5):
        inputs = [torch.rand(3)]
        alive = weakref.ref(inputs[0])
        graphed(inputs)
        assert inputs == []
    assert ended == [None] * 5


# programs


def functions(engine):
    return {
        name: partitioned(lines, engine, static_inputs={0}, mutated_inputs=programs.WRITTEN.get(name, ()))
        for name, lines in programs.LINES.items()
    }


def machine(seed=0):
    engine = slow_engine.SlowEngine()
    return programs.Machine(functions(engine), programs.streams(engine), seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_long_programs(seed):
    """The calls of test_replay_programs in parts: together some 10,000 replays."""
    gc.collect()
    before = sum(recording._MEMORY.values())
    made = machine(seed)
    made.run(programs.random_program(seed, 3500))
    graphed = [g for f in made.functions.values() for g in f.graphed]
    assert all(g.made <= g.most_recordings() for g in graphed) and sum(g.replays for g in graphed) > 1000
    del made, graphed
    gc.collect()
    assert sum(recording._MEMORY.values()) == before


class Written:
    """A host program, line by line, and what it computes as plain Python."""

    def __init__(self, steps):
        self.lines = [Inputs(("w", "x", "cache")), Bind("s0", "x.shape[0]", ("x",))]
        self.texts, self.own, self.all = [], [], ["w", "x", "cache"]
        for kind, a, b in steps:
            getattr(self, kind)(self.all[a % len(self.all)], self.all[b % len(self.all)], a)
        values = [*self.own[-3:], "cache", "x[1:]", "(s0*2)"]
        self.lines.append(Return(tuple(values), tuple(dict.fromkeys((*self.own[-3:], "cache", "x", "s0")))))
        self.source = "\n    ".join(["def plain(w, x, cache):", "s0 = x.shape[0]", *self.texts, f"return ({', '.join(values)})"])

    def _new(self):
        name = f"v{len(self.texts)}"
        self.own.append(name)
        self.all.append(name)
        return name

    def _call(self, text, reads, operators=RECORDED, writes=(), changes=(), devices=()):
        self.texts.append(text)
        self.lines.append(Call((text,), tuple(dict.fromkeys(reads)), writes, operators, changes, devices, ("s0",)))

    def compute(self, a, b, n):
        name = self._new()
        self._call(f"{name} = {a} * 0.5 + {b}", (a, b), writes=(name,))

    def transfer(self, a, b, n):
        name = self._new()
        self._call(f"{name} = there_and_back({a})", (a,), ("prims::device_put",), (name,), (), ("cpu", "cuda:0"))

    def wait(self, a, b, n):
        self._call(f"wait_for({a})", (a,), WAITS)

    def waits_and_gives(self, a, b, n):
        name = self._new()
        self._call(f"{name} = {b} * float({a}.sum() > 0)", (a, b), WAITS, (name,))

    def sized(self, a, b, n):
        name = self._new()
        self._call(f"{name} = torch.full((s0,), 2.0) + {a}", (a, "s0"), writes=(name,))

    def allocate(self, a, b, n):
        name = self._new()
        self.lines.append(Allocate(name, "cuda", "float32", ("s0",), (1,)))
        self.texts.append(f"{name} = torch.empty(s0)")
        self._call(f"torch.add({a}, {b}, out={name})", (a, b, name), changes=(name,))

    def write(self, a, b, n):
        """To a value of the program or to the cache, by what is recorded or by what is not."""
        target = [*self.own, "cache"][n % (len(self.own) + 1)]
        self._call(f"{target}.mul_(0.5).add_({b})", (target, b), WAITS if n % 2 else RECORDED, changes=(target,))

    def reuse(self, a, b, n):
        """A value's memory for another one."""
        if not self.own:
            return
        old = self.own[n % len(self.own)]
        b = b if b != old else "w"
        self.own.remove(old)
        self.all.remove(old)
        name = f"r{len(self.lines)}"
        self.lines.append(Reuse(name, old, ""))
        self.own.append(name)
        self.all.append(name)
        self.texts.append(f"{name} = {old}")
        self._call(f"{name}.sub_({b})", (name, b), changes=(name,))
        self.lines.append(Free((old,)))

    def free(self, a, b, n):
        if len(self.own) > 3:
            name = self.own[n % len(self.own)]
            self.own.remove(name)
            self.all.remove(name)
            self.lines.append(Free((name,)))


KINDS = "compute compute compute transfer wait waits_and_gives sized allocate write write reuse free".split()
steps = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 50), st.integers(0, 50)), min_size=3, max_size=24)
calls = st.lists(st.tuples(st.sampled_from([3, 5]), st.integers(0, 3)), min_size=6, max_size=24)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(steps, calls)
def test_any_program(steps, calls):
    """Values of results and of what is written, results that are held, sizes that change, caches that move."""
    written, engine, plain = Written(steps), slow_engine.SlowEngine(), dict(NAMES)
    exec(written.source, plain)
    names = "w", "x", "cache"
    checks = [TensorCheck(n, name, "float32", "cuda:0", ("s0",), (1,)) for n, name in enumerate(names)]
    program = artifact(
        written.lines,
        static_inputs={0},
        mutated_inputs={2},
        inputs=names,
        checks=checks,
        symbols=[SymbolBinding("s0", "size", 1)],
    )
    parts = parts_of(program)
    if not parts:
        return
    assert all(a.recordable != b.recordable or not a.lines or i == 0 for i, (a, b) in enumerate(zip(parts, parts[1:])))
    graphed = PartitionedFn(CompiledFn(program, {**NAMES, "call": None}), parts, engine=engine)
    w, caches, held = {n: torch.rand(n) for n in (3, 5)}, {n: torch.rand(n) for n in (3, 5)}, []
    for n, what in calls:
        x = torch.rand(n)
        caches[n] = torch.rand(n) if what == 3 else caches[n]
        expected_cache, expected_x = caches[n].clone(), x.clone()
        expected = plain["plain"](w[n].clone(), expected_x, expected_cache)
        found = graphed([w[n], x, caches[n]])
        held = [*(held if what else []), *zip(found[:-3], [e.clone() for e in expected[:-3]], strict=True)]
        assert found[-1] == expected[-1] and found[-3] is caches[n] and found[-2].data_ptr() == x.data_ptr() + 4
        assert torch.equal(caches[n], expected_cache) and torch.equal(x, expected_x)
        for value, wanted in held:
            assert torch.equal(value, wanted)
    assert all(g.made <= g.most_recordings() for g in graphed.graphed)

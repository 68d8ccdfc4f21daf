"""The interpreter of host programs, on lines written by hand: kernels by ctypes, and by a launcher whose driver writes down what it is asked."""

import ctypes
import gc
import threading
import weakref

import pytest
import torch
from tracework_runtime import Artifact, ArtifactError, CompiledFn, KernelSource
from tracework_runtime._C import Launcher, Plan, set_keeping
from tracework_runtime.host.lines import (
    WORK,
    Address,
    Allocate,
    Bind,
    Call,
    Free,
    Give,
    Inputs,
    Launch,
    Return,
    Reuse,
    Take,
    lines_from_data,
    lines_to_data,
)
from tracework_runtime.host.program import APART, MOST_OPERANDS, NotInterpreted, host_program

LINES = (
    Inputs(("x", "n")),
    Bind("s0", "x.shape[0]", ("x",)),
    Bind("s1", "n", ("n",)),
    Take(4096),
    Allocate("a", "cpu", "float32", ("s0", 3), ("3", 1)),
    Launch("k0", (Address("x"), Address("a"), Address(WORK, 128), "s0*s1", 7), "refuse(failed)"),
    Reuse("b", "a", ".t()"),
    Free(("a",)),
    Call(("c, _, = work_on(b, s1)", "del _"), ("b", "s1"), ("c",), ("aten::topk",)),
    Call(("note(c)",), ("c",)),
    Give(),
    Return(("c", "x", "(s0*2)", "None"), ("c", "x", "s0")),
)


def test_lines_are_kept_as_json():
    data = lines_to_data(LINES)
    assert lines_from_data(data) == LINES
    artifact = Artifact("k" * 8, "", host_lines=LINES)
    assert Artifact.from_bytes(artifact.to_bytes()).host_lines == LINES


@pytest.mark.parametrize("data", [[["jump", 3]], [["free"]], [["free", ["a"], 1]]], ids=str)
def test_lines_of_another_version_are_refused(data):
    with pytest.raises(ArtifactError, match="does not know"):
        lines_from_data(data)


class Kernels:
    """Kernels for the CPU that write down their arguments."""

    def __init__(self, result="i64", **signatures):
        self.calls, self.result = [], 0
        self.sources, self.functions = [], {}
        types = {"*f": ctypes.c_void_p, "i64": ctypes.c_int64, "i32": ctypes.c_int32, "fp64": ctypes.c_double}
        results = {"void": None, "i32": ctypes.c_int32, "i64": ctypes.c_int64}
        for name, signature in signatures.items():
            self.sources.append(KernelSource(name, "cpp", "", signature, {"result": result}))
            made = ctypes.CFUNCTYPE(results[result], *[types[t] for t in signature])
            self.functions[name] = made(lambda *values, name=name: self._note(name, values))

    def _note(self, name, values):
        self.calls.append((name, *values))
        return self.result


def program(lines, kernels=None, **names):
    artifact = Artifact("k" * 8, "", kernels.sources if kernels else (), host_lines=lines)
    return host_program(artifact, {**(kernels.functions if kernels else {}), **names})


class Work:
    address = 4096

    def windows(self, make):
        return "views"


def test_every_line():
    kernels = Kernels(k0=("*f", "*f", "*f", "i64", "i64"))
    noted, work = [], Work()
    call = program(
        LINES,
        kernels,
        refuse=None,
        windows=None,
        take=lambda size: noted.append(size) or work,
        give=noted.append,
        note=noted.append,
        work_on=lambda b, n: (b + n, None),
    )
    for rows in (2, 5, 2):
        noted.clear()
        x = torch.ones(rows, 4)
        args = [x, 10]
        c, same, number, nothing = call(args)
        assert args == [] and same is x and number == 2 * rows and nothing is None
        assert c.shape == (3, rows) and noted[0] == 4096 and noted[1] is c and noted[2] is work
        name, first, second, placed, *numbers = kernels.calls[-1]
        assert (name, first, placed, numbers) == ("k0", x.data_ptr(), 4096 + 128, [rows * 10, 7]) and second % 4 == 0


@pytest.mark.parametrize("count", [0, 1, 6, 7, 8, 9, 23, 24, 25, 63, 64])
@pytest.mark.parametrize("result", ["void", "i32", "i64"])
def test_kernels_get_all_their_operands(count, result):
    kernels = Kernels(result, k0=("i64",) * count)
    kernels.result = 5 << 32 if result == "i64" else 0
    failed = []
    lines = (
        Inputs(()),
        Launch("k0", tuple(range(-3, count - 3)), "failures.append(failed)" if result != "void" else ""),
        Return((), ()),
    )
    assert program(lines, kernels, failures=failed)([]) == ()
    assert kernels.calls == [("k0", *range(-3, count - 3))]
    assert failed == ([5 << 32] if result == "i64" else [])


@pytest.mark.parametrize("count", [1, 5, 3 * MOST_OPERANDS])
def test_a_table_has_all_operands_in_memory(count):
    kernels = Kernels("void", k0=("*f",))
    kernels.sources = [KernelSource("k0", "cpp", "", ("*",), {"table": True})]
    seen = []
    kernels.functions["k0"] = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
        lambda table: seen.append(list((ctypes.c_int64 * (count + 1)).from_address(table)))
    )
    x = torch.ones(3)
    lines = Inputs(("x",)), Launch("k0", (*range(-3, count - 3), Address("x", 4))), Return((), ())
    assert program(lines, kernels)([x]) == ()
    assert seen == [[*range(-3, count - 3), x.data_ptr() + 4]]


def test_a_failure_is_raised_and_ends_the_call():
    kernels = Kernels("i32", k0=("*f",))
    lines = Inputs(("x",)), *[Launch("k0", (Address("x"),), "raise ValueError(failed)")] * 2, Return((), ())
    call = program(lines, kernels)
    kernels.result = -3
    x = torch.ones(3)
    ended = weakref.ref(x)
    with pytest.raises(ValueError, match="-3"):
        call([x])
    assert len(kernels.calls) == 1
    del x
    assert ended() is None


@pytest.mark.parametrize(
    "signature", [("fp64",), ("i32",), ("*f", "i64"), ("i64",) * (MOST_OPERANDS + 1)], ids=lambda s: f"{len(s)} {s[0]}"
)
def test_other_kernels_are_for_the_python_program(signature):
    count = MOST_OPERANDS + 1 if len(signature) > 2 else 1
    with pytest.raises(NotInterpreted, match="k0"):
        program((Inputs(()), Launch("k0", (1,) * count), Return((), ())), Kernels(k0=signature))


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (Return((), ()),),
        (Inputs(("x",)),),
        (Inputs(("x",)), Free(("y",)), Return((), ())),
        (Inputs(("x",)), Free(("x",)), Call(("f(x)",), ("x",)), Return((), ())),
        (Inputs(("x",)), Launch("k1", (Address("x"),)), Return((), ())),
        (Inputs(("x",)), Free(("x",)), Bind("s0", "1", ()), Return((), ())),
        (Inputs(("x",)), Inputs(("y",)), Return((), ())),
    ],
    ids=str,
)
def test_lines_that_make_no_program(lines):
    with pytest.raises(ArtifactError):
        program(lines, Kernels(k0=("*f",)))


def test_inputs_are_counted_and_are_one_list():
    call = program((Inputs(("x", "y")), Return(("y",), ("y",))))
    for wrong in ([], [1], [1, 2, 3]):
        with pytest.raises(ValueError, match="takes 2 inputs"):
            call(wrong)
    for wrong in ((), (1, 2), ([1, 2], 3)):
        with pytest.raises(TypeError, match="one list"):
            call(*wrong)
    assert call([1, 2]) == (2,)


def test_memory_ends_where_it_is_freed_and_inputs_too():
    alive = []
    lines = (
        Inputs(("x",)),
        Allocate("a", "cpu", "float32", (4,), (1,)),
        Call(("watch(a, x)",), ("a", "x")),
        Free(("a", "x")),
        Call(("look()",), ()),
        Return((), ()),
    )
    seen = []
    call = program(lines, watch=lambda *t: alive.extend(map(weakref.ref, t)), look=lambda: seen.extend(r() for r in alive))
    call([torch.ones(3)])
    assert seen == [None, None]


def test_memory_that_only_kernels_read_is_not_viewed_and_other_memory_is():
    kernels = Kernels("void", k0=("*f",))
    start = (
        Inputs(()),
        Allocate("a", "cpu", "float32", (4, 2), (2, 1)),
        Reuse("b", "a", ".t()"),
        Free(("a",)),
        Reuse("c", "b", ""),
    )
    lines = (*start, Free(("b",)), Launch("k0", (Address("c"),)), Call(("note(c)",), ("c",)), Return((), ()))
    seen = []
    program(lines, kernels, note=seen.append)([])
    assert seen[0].shape == (2, 4) and kernels.calls == [("k0", seen[0].data_ptr())]
    program((*lines[:-2], Return((), ())), kernels)([])
    assert len(kernels.calls) == 2


RETURNS = (
    Inputs(("x",)),
    Allocate("a", "cpu", "float32", (4,), (1,)),
    Allocate("b", "cpu", "float32", (4,), (1,)),
    Allocate("c", "cpu", "float32", (4,), (1,)),
    Reuse("d", "b", ".view(2, 2)"),
    Call(("e, f = pair(x, 'both')",), ("x",), ("e", "f")),
    Call(("g = pair(x, 'none')",), ("x",), ("g",)),
    Call(("note(c, g)",), ("c", "g")),
    Free(("b", "c", "f", "g")),
    Return(("a.t()", "d", "e"), ("a", "d", "e")),
)


def test_memory_that_is_returned_is_made_by_who_keeps_it():
    """In the thread that asks for it, and only there."""
    call, made = program(RETURNS, pair=lambda x, what: (x + 1, what), note=lambda *t: None), []

    def keep(make, *given):
        made.append(given)
        return make(*given)

    x, results = torch.ones(3), []
    set_keeping(keep, torch.clone)
    try:
        results.append(call([x]))
        other = threading.Thread(target=lambda: results.append(call([x])))
        other.start()
        other.join()
    finally:
        set_keeping(None, None)
    results.append(call([x]))
    assert len(made) == 4 and [given[0] for given in made[:2]] == [(4,), (4,)], "a, b, its view as d, and e with f"
    assert all(torch.equal(e, x + 1) and d.shape == (2, 2) for _, d, e in results)


@pytest.mark.parametrize("operator", ["aten::convolution_backward", "aten::other"])
def test_a_small_result_beside_others_is_copied_to_who_keeps_it(operator):
    lines = (
        Inputs(("x",)),
        Call(("e, f, g = three(x)",), ("x",), ("e", "f", "g"), (operator,)),
        Call(("note(e, g)",), ("e", "g")),
        Free(("e",)),
        Return(("f", "g"), ("f", "g")),
    )
    asked, made, noted = [], [], []

    def three(x):
        made.extend((x + 1, x.new_zeros(2, 3).t() + 2, None))
        return tuple(made)

    def keep(make, *given):
        asked.append((make, given))
        return make(*given)

    call = program(lines, three=three, note=lambda *t: noted.extend(t))
    for asks in (True, False):
        made.clear()
        set_keeping(keep if asks else None, torch.clone)
        try:
            f, g = call([torch.ones(3)])
        finally:
            set_keeping(None, None)
        apart = asks and operator in APART
        assert g is None and torch.equal(f, made[1]) and f.stride() == made[1].stride() and (f is made[1]) is not apart
        assert noted[-2] is made[0]
    ((how, _),) = asked
    assert (how is torch.clone) is (operator in APART)


def test_who_keeps_memory_may_fail():
    call = program(RETURNS, pair=lambda x, what: (x + 1, what), note=lambda *t: None)
    set_keeping(lambda make, *given: 1 / 0, torch.clone)
    try:
        with pytest.raises(ZeroDivisionError):
            call([torch.ones(3)])
    finally:
        set_keeping(None, None)


def test_many_sizes_in_turn():
    kernels = Kernels("void", k0=("i64", "i64"))
    lines = (
        Inputs(("n", "m")),
        Bind("s0", "n", ("n",)),
        Bind("s1", "m", ("m",)),
        Launch("k0", ("s0 // s1", "s0*s1")),
        Return((), ()),
    )
    call = program(lines, kernels)
    sizes = [(n, m) for n in range(1, 12) for m in (1, 2)] * 2
    for n, m in sizes:
        call([n, m])
    assert kernels.calls == [("k0", n // m, n * m) for n, m in sizes]
    with pytest.raises(ZeroDivisionError):
        call([1, 0])
    with pytest.raises(TypeError):
        call(["a", 1])
    with pytest.raises(OverflowError):
        call([2**63, 1])


class Driver:
    """Launches as (function, stream, addresses, numbers), for kernels of `tensors` tensors and as many numbers."""

    def __init__(self, tensors, numbers=0, scratch=None):
        """scratch: number -> bytes of a second array of scratch memory that a launch wants; the first has 128."""
        self.scratch, self.allocated = scratch, []
        self.launches, self.asked, self.failures, self.status, self.stays, self.stream = [], [], [], 0, True, 5
        self.count, self.tensors, self.numbers = tensors + numbers + 2 * (scratch is not None), tensors, numbers
        signature = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
        self._function = signature(self._launch)
        self._address = ctypes.cast(self._function, ctypes.c_void_p).value
        self.launcher = Launcher(tensors, "q" * numbers, self._find, self._failed, lambda device: self.stream, 0)
        self.sources = [KernelSource("g0", "triton", "", ("*fp32",) * tensors + ("i64",) * numbers)]
        self.functions = {"g0": self.launcher}

    def _launch(self, config, function, parameters, extra):
        pointers = (ctypes.c_void_p * self.count).from_address(parameters)
        values = [ctypes.c_int64.from_address(p).value for p in pointers]
        self.launches.append((function, ctypes.c_uint64.from_address(config + 32).value, values))
        return self.status

    def _find(self, addresses, numbers, aligned):
        self.asked.append((addresses, numbers, aligned))
        blocks = 70 + len(self.asked)
        places, size = ((), 0) if self.scratch is None else ((0, 128), 128 + self.scratch(*numbers))
        return Plan(self._address, ((blocks, 1, 32, 0, 0, -1),), "q" * self.numbers, places, size, self._allocate), self.stays

    def _allocate(self, size):
        self.allocated.append(torch.empty(size, dtype=torch.uint8))
        return self.allocated[-1]

    def _failed(self, status, plan, addresses, numbers):
        self.failures.append((status, addresses, numbers))
        if status == 9:
            raise ValueError("launching g0")
        self.status = 0
        assert plan.run(self.stream, addresses, numbers) == 0


LAUNCHES = (
    Inputs(("x", "n")),
    Bind("s0", "n", ("n",)),
    Launch("g0", (Address("x"), Address("x"), "s0")),
    Launch("g0", (Address("x"), Address("x"), 3)),
    Return((), ()),
)


def test_launches_with_plans_asked_for_once_for_each_size():
    driver = Driver(2, 1)
    call = program(LAUNCHES, driver)
    x = torch.ones(8)
    for n in (4, 4, 6, 4):
        driver.launches.clear()
        call([x, n])
        assert [values for *_, values in driver.launches] == [[x.data_ptr(), x.data_ptr(), n], [x.data_ptr(), x.data_ptr(), 3]]
    assert [numbers for _, numbers, _ in driver.asked] == [(4,), (3,), (6,), (3,)]
    assert {stream for _, stream, _ in driver.launches} == {5}


def test_launches_on_a_workspace():
    driver = Driver(2)
    lines = Inputs(("x",)), Take(512), Launch("g0", (Address(WORK, 256), Address("x"))), Give(), Return((), ())
    given = []
    call = program(lines, driver, take=lambda size: Work(), give=given.append, windows=None)
    x = torch.ones(8)
    call([x])
    assert [values for *_, values in driver.launches] == [[4096 + 256, x.data_ptr()]] and len(given) == 1


def test_addresses_that_are_not_aligned_are_asked_for_each_time():
    driver = Driver(2, 1)
    call = program(LAUNCHES, driver)
    memory = torch.ones(9)
    for x in (memory[1:], memory[1:], memory, memory):
        call([x, 4])
    assert [aligned for *_, aligned in driver.asked] == [False] * 4 + [True] * 2
    driver.asked.clear()
    driver.stays = False
    other = program(LAUNCHES, driver)
    other([memory, 4]), other([memory, 4])
    assert len(driver.asked) == 4


def test_a_launch_that_fails_is_tried_again_by_the_launcher_or_raised():
    driver = Driver(2, 1)
    call = program(LAUNCHES, driver)
    x = torch.ones(8)
    driver.status = 201
    call([x, 4])
    assert driver.failures == [(201, (x.data_ptr(),) * 2, (4,))] and len(driver.launches) == 3
    driver.status = 9
    with pytest.raises(ValueError, match="launching g0"):
        call([x, 4])


def test_the_stream_is_read_at_each_call():
    driver = Driver(2, 1)
    call = program(LAUNCHES, driver)
    for stream in (7, 0, 9):
        driver.stream = stream
        driver.launches.clear()
        call([torch.ones(8), 4])
        assert [s for _, s, _ in driver.launches] == [stream] * 2


SCRATCH = Inputs(("x",)), *(Launch("g0", (Address("x"), n)) for n in (100, 5000, 300, 1 << 21, 40)), Return((), ())


def test_launches_of_a_call_share_their_scratch_memory():
    """Once it is known how much the largest wants, a call allocates once; what wants much has memory of its own, while it is launched."""
    driver = Driver(1, 1, scratch=lambda n: n)
    call = program(SCRATCH, driver)
    x = torch.ones(8)
    for sizes in ([228, 5128, 128 + (1 << 21)], [5128, 128 + (1 << 21)], [5128, 128 + (1 << 21)]):
        driver.allocated.clear(), driver.launches.clear()
        call([x])
        assert [len(memory) for memory in driver.allocated] == sizes
        *_, shared, alone = (memory.data_ptr() for memory in driver.allocated)
        first = driver.allocated[0].data_ptr()
        given = [values[2:] for *_, values in driver.launches]
        assert given == [[at, at + 128] for at in (first, shared, shared, alone, shared)]
        ended = [weakref.ref(memory) for memory in driver.allocated]
        driver.allocated.clear()
        assert not any(memory() for memory in ended)


def test_a_program_whose_scratch_memory_cannot_be_had_raises():
    driver = Driver(1, 1, scratch=lambda n: n)
    driver._allocate = lambda size: 1 // 0
    with pytest.raises(ZeroDivisionError):
        program(SCRATCH, driver)([torch.ones(8)])


def test_a_launcher_of_other_operands_is_refused():
    driver = Driver(1, 1)
    with pytest.raises(ArtifactError, match="other operands"):
        program(LAUNCHES, driver)
    with pytest.raises(ArtifactError, match="other operands"):
        program((Inputs(("x",)), Launch("g0", (3, Address("x"))), Return((), ())), driver)


def test_several_threads_share_a_program():
    driver = Driver(2, 1)
    call = program((*LAUNCHES[:-1], Return(("x", "(s0)"), ("x", "s0"))), driver)
    wrong = []

    def work(n):
        x = torch.full((8,), float(n))
        for k in range(200):
            got = call([x, n * 1000 + k])
            if got[0] is not x or got[1] != n * 1000 + k:
                wrong.append((n, k))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(driver.launches) == 1600


def test_a_program_may_call_itself():
    calls = []

    def again(n):
        calls.append(n)
        return 1 if n == 0 else n * namespace["call"]([n - 1])[0]

    lines = Inputs(("n",)), Bind("s0", "n", ("n",)), Call(("m = again(s0)",), ("s0",), ("m",)), Return(("m",), ("m",))
    namespace = {"again": again}
    namespace["call"] = program(lines, **namespace)
    assert namespace["call"]([5]) == (120,) and calls == [5, 4, 3, 2, 1, 0]


def test_what_a_program_holds_ends_with_it():
    driver = Driver(2, 1)
    namespace = {"__name__": "host", **driver.functions}
    artifact = Artifact("k" * 8, "", driver.sources, host_lines=LAUNCHES)
    namespace["call"] = host_program(artifact, namespace)
    compiled = CompiledFn(artifact, namespace)
    compiled([torch.ones(8), 4])
    ended = weakref.ref(driver)
    del driver, namespace, artifact, compiled
    gc.collect()
    assert ended() is None

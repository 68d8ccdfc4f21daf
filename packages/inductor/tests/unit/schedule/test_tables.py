"""Which kernels of a CPU become rows of one table, and where they go."""

import pytest
import torch
from prim_programs import build
from tracework_inductor import InductorOptions, lower, schedule
from tracework_inductor.codegen.cpp import CppRenderer
from tracework_inductor.schedule import tables
from tracework_inductor.schedule.plan import ExternKernel, KernelBatch
from tracework_primops import prims
from tracework_primops.spec import TensorSpec

SIZES = ((3,), (5, 7), (64, 64), (1000,))


def plan_of(program, *sizes, dtypes=()):
    dtypes = (*dtypes, *[torch.float32] * (len(sizes) - len(dtypes)))
    inputs = [torch.empty(s, dtype=d, device="meta") for s, d in zip(sizes, dtypes, strict=True)]
    specs = [TensorSpec(t.dtype, torch.device("cpu"), tuple(t.shape), t.stride()) for t in inputs]
    options = InductorOptions()
    return schedule(lower(build(program, inputs, specs), options), options, CppRenderer().capabilities)


def rows(plan):
    """How many kernels each launch is, 0 for a call of the library."""
    count = lambda k: 0 if isinstance(k, ExternKernel) else len(k.parts) if isinstance(k, KernelBatch) else 1
    return [count(k) for k in plan.kernels]


def each(*xs):
    return tuple(prims.exp(x) for x in xs)


def parts(x, *others):
    return each(*(prims.slice(x, 0, n, 2 * n + 3, 1) for n in range(5)))


def halves(*xs):
    return tuple(prims.convert(prims.exp(x), torch.bfloat16) for x in xs)


@pytest.mark.parametrize(
    ("program", "sizes", "expected"),
    [
        (each, SIZES, [4]),
        (each, SIZES[:3], [1, 1, 1]),
        (parts, ((12,),), [5]),
        (halves, SIZES, [4]),
        (each, (*SIZES, ()), [4, 1]),
        (each, ((), (), (), ()), [4]),
        (each, (*SIZES, (0,)), [4, 0]),
        (each, (*SIZES, (1 << 23,)), [4, 1]),
    ],
    ids=[
        "any sizes",
        "too few",
        "places in one tensor",
        "another dtype",
        "a number apart",
        "numbers",
        "nothing",
        "past the caches",
    ],
)
def test_equal_work_is_one_launch(program, sizes, expected):
    assert rows(plan_of(program, *sizes)) == expected


def test_constants_and_steps_make_a_difference():
    def program(a, b, c, d):
        scaled = [prims.mul(x, n) for n, x in enumerate((a, b, c, d), 2)]
        return *scaled, *(prims.exp(prims.slice(x, 0, 0, 8, 2)) for x in (a, b)), *(prims.exp(x) for x in (c, d))

    assert set(rows(plan_of(program, *[(8,)] * 4))) == {1}


def test_rows_go_up_to_the_first_where_only_inputs_and_small_results_are_written():
    def late(x, *weights):
        for w in weights:
            x = prims.mm(x, prims.exp(w))
        return x

    assert rows(plan_of(late, (8, 8), *[(8, 8)] * 4)) == [4, 0, 0, 0, 0]
    assert rows(plan_of(late, (80, 80), *[(80, 80)] * 4)) == [1, 0] * 4, "would be held longer"


def test_no_row_passes_what_it_depends_on():
    def chain(x, *written):
        for y in written:
            prims.copy_into(y, prims.exp(x))
            x = prims.mm(y, x)
        return x

    assert rows(plan_of(chain, *[(8, 8)] * 6)) == [1, 0] * 5


def test_inputs_are_not_written_before_what_may_raise():
    def program(x, place, *written):
        for n, y in enumerate(written):
            prims.copy_into(y, prims.exp(prims.slice(x, 0, 0, n + 2, 1)))
        return prims.index_select(x, 0, place)

    plan = plan_of(program, (8,), (3,), *((n,) for n in range(2, 7)), dtypes=(torch.float32, torch.int64))
    assert rows(plan)[-1] == 5 and len(plan.kernels) == 2


def test_results_that_stay_are_rows_among_other_rows():
    """As the state of an optimizer is that its first step makes; what they share is single elements of one tensor."""

    def program(numbers, *xs):
        scaled = [prims.mul(x, prims.slice(numbers, 0, n, n + 1, 1)) for n, x in enumerate(xs[::2])]
        return tuple(y for s, x in zip(scaled, xs[1::2], strict=True) for y in (s, prims.exp(x)))

    assert rows(plan_of(program, (4,), *[(5000,)] * 8)) == [4, 4]


def test_rows_are_equal_whatever_they_are_called_and_however_long():
    (batch,) = plan_of(parts, (12,)).kernels
    found = [tables.row_of(part) for part in batch.parts]
    assert len({row.work() for row in found}) == 1 and [row.length for row in found] == [3, 4, 5, 6, 7]
    assert [row.operands[0][1] for row in found] == [0, 1, 2, 3, 4]

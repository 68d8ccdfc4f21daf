"""Which kernels check an index, and what is known to be in range; nothing runs here."""

import pytest
import torch
from prim_programs import build
from tracework_inductor import InductorOptions
from tracework_inductor.ir.body import Axis, IndexCheck
from tracework_inductor.ir.handlers import Recorder
from tracework_inductor.ir.index import symbol
from tracework_inductor.ir.scalar_ops import handling, ops
from tracework_inductor.pipeline import plan_graph
from tracework_inductor.schedule.plan import index_checks
from tracework_primops import TensorSpec, prims

I64 = torch.int64
I, S = symbol("i0", 0, None), symbol("s0", 2, None)  # noqa: E741


def plan(program, *sizes, device="cpu", **options):
    """Of a program of a float table, an index and what else is given as sizes of float tensors."""
    (table, index), others = sizes[:2], sizes[2:]
    given = [(torch.float32, table), (I64, index), *((torch.float32, s) for s in others)]
    specs = [TensorSpec(dtype, torch.device(device), s) for dtype, s in given]
    return plan_graph(build(program, [None] * len(specs), specs), InductorOptions(**options))


def checking(program, *sizes, **options):
    """Numbers of checks of each kernel, "only" for one that does nothing else."""
    kernels = [part for k in plan(program, *sizes, **options).kernels for part in getattr(k, "parts", (k,))]
    return [len(index_checks(k)) if k.writes else "only" for k in kernels if hasattr(k, "passes")]


def gather(x, i):
    return prims.gather(x, 0, i)


IN_THE_SAME_KERNEL = {
    "gather": (gather, (5, 3), (2, 3)),
    "index_select": (lambda x, i: prims.index_select(x, 1, i), (2, 5), (3,)),
    "index": (lambda x, i: prims.index(x, (i,)), (5, 3), (2, 4)),
    "an index of one element": (lambda x, i: prims.index(x, (i,)), (5, 3), ()),
    "take": (prims.take, (5, 3), (4,)),
    "reduced": (lambda x, i: prims.sum(prims.index(x, (i,)), (0, 2), False, None), (5, 3), (2, 4)),
    "reshaped": (lambda x, i: prims.reshape(prims.index(x, (i,)), (8, 3)), (5, 3), (2, 4)),
    "transposed": (lambda x, i: prims.permute(prims.index(x, (i,)), (2, 1, 0)), (5, 3), (2, 4)),
    "of a constant": (lambda x, i: prims.add(prims.index(prims.full((5, 3), 1.0, torch.float32, x.device), (i,)), 1), (1,), (4,)),
    "scatter": (lambda x, i, y: prims.scatter(x, 0, i, y), (5, 3), (2, 3), (2, 3)),
    "index_put": (lambda x, i, y: prims.index_put(x, (i,), y, True), (5, 3), (4,), (4, 3)),
}


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("name", IN_THE_SAME_KERNEL)
def test_what_reads_the_whole_index_checks_it(name, device):
    found = checking(*IN_THE_SAME_KERNEL[name], device=device)
    assert sum(found) == 1 and "only" not in found


APART = {
    "a part": lambda x, i: prims.slice(prims.index(x, (i,)), 0, 0, 2, 1),
    "cropped": lambda x, i: prims.pad(prims.index(x, (i,)), ((-1, 0), (0, 0)), 0.0),
    "joined": lambda x, i: prims.cat((prims.index(x, (i,)), x), 0),
}


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("name", APART)
def test_what_reads_a_part_of_the_index_leaves_a_loop_that_checks_it(name, device):
    assert "only" in checking(APART[name], (5, 3), (4,), device=device)


def test_what_nobody_reads_is_checked():
    def dead(x, i):
        prims.index_put(x, (i,), prims.index(x, (i,)), False)
        prims.index_reduce(prims.select(x, 1, 0), 0, i, prims.convert(i, torch.float32), "amax", True)  # the eager kernel checks
        return prims.add(x, 1)

    assert checking(dead, (5, 3), (4,)) == [2, 0]  # where the index is converted for index_reduce
    assert [k.node.target for k in plan(dead, (5, 3), (4,)).kernels if hasattr(k, "node")] == ["prims.index_reduce"]


def test_the_option():
    assert checking(gather, (5, 3), (2, 3), index_checks=False) == [0]


ARANGE = lambda i: prims.iota(4, 0, 1, I64, i.device)
KNOWN = {
    "a range": lambda i: ARANGE(i),
    "a range, backwards": lambda i: prims.sub(4, ARANGE(i)),
    "a remainder": lambda i: prims.remainder(i, 5),
    "clamped": lambda i: prims.minimum(prims.maximum(i, 0), 4),
    "chosen": lambda i: prims.where(prims.lt(i, 2), 1, prims.remainder(i, 3)),
    "a truth": lambda i: prims.convert(prims.lt(i, 2), I64),
    "a remainder of small integers": lambda i: prims.remainder(prims.abs(prims.convert(prims.convert(i, torch.int8), I64)), 5),
}
UNKNOWN = {
    "one too many": lambda i: prims.add(ARANGE(i), 2),
    "a remainder by more": lambda i: prims.remainder(i, 6),
    "a remainder with the divisor's sign": lambda i: prims.remainder(i, -5),
    "clamped on one side": lambda i: prims.minimum(i, 4),
    "small integers": lambda i: prims.convert(prims.convert(i, torch.int8), I64),
    "a product that wraps around": lambda i: prims.convert(prims.mul(prims.convert(prims.remainder(i, 5), torch.int8), 100), I64),
}


@pytest.mark.parametrize("name", [*KNOWN, *UNKNOWN])
def test_what_is_known_to_be_in_range_needs_no_check(name):
    index = (KNOWN | UNKNOWN)[name]
    found = checking(lambda x, i: prims.index_select(x, 0, index(i)), (5, 3), (4,))
    assert sum(found) == (name in UNKNOWN)


def recorded(value, size, wrap=False, length=S):
    recorder = Recorder((Axis(I, length),))
    with handling(recorder):
        ops.indirect(value(), size, wrap, IndexCheck(0, length, ""))
    return list(recorder.finish().checks())


def test_symbolic_sizes():
    assert not recorded(lambda: ops.index_expr(I, I64), S)
    assert not recorded(lambda: ops.index_expr(S - 1 - I, I64), S)
    assert not recorded(lambda: ops.constant(1, I64), S)  # a size of at least 2
    assert recorded(lambda: ops.constant(2, I64), S)
    assert recorded(lambda: ops.index_expr(I + 1, I64), S)


def test_negative_ones_where_they_are_legal():
    assert not recorded(lambda: ops.constant(-5, I64), 5, wrap=True)
    assert recorded(lambda: ops.constant(-6, I64), 5, wrap=True)
    assert recorded(lambda: ops.constant(-1, I64), 5)


def test_a_check_is_made_where_the_mask_holds():
    recorder = Recorder((Axis(I, 10),))
    with handling(recorder):
        inside = ops.lt(ops.index_expr(I, I64), ops.constant(5, I64))
        ops.masked(inside, lambda: ops.load("a", ops.indirect(ops.load("b", I, I64), 4, False, IndexCheck(0, 10, "")), I64), 0)
    (check,) = [i for i in recorder.finish().instructions if i.op == "indirect"]
    assert check.args[4] is not None

"""Sums of what is scattered into zeros and of something else: which are one scatter, and into which memory."""

import pytest
import torch
from prim_programs import build, check
from tracework_inductor import InductorOptions, lower, schedule
from tracework_inductor.codegen.cpp import CppRenderer
from tracework_inductor.passes import GRAPH_PASSES
from tracework_inductor.passes.scatter_sums import add_scattered
from tracework_primops import TensorSpec, prims

ROWS, WIDTH, LOOK_UPS = 7, 4, 12


def scattered(indices, g, accumulate=True, start=0):
    zeros = prims.full((ROWS, WIDTH), start, g.dtype, g.device)
    return prims.index_put(zeros, (indices,), g, accumulate, False)


def product(g, indices):
    return prims.mm(prims.permute(prims.index_select(g, 1, prims.full((ROWS,), 0, torch.int64, g.device)), (1, 0)), g)


def tied(indices, g):
    return prims.add(product(g, indices), scattered(indices, g))


def two_tables(indices, g):
    return prims.add(prims.add(scattered(indices, g), product(g, indices)), scattered(indices, prims.neg(g)))


def read_again(indices, g):
    rest = product(g, indices)
    return prims.add(rest, scattered(indices, g)), prims.exp(rest)


def scattered_is_given(indices, g):
    found = scattered(indices, g)
    return prims.add(product(g, indices), found), found


def replaced(indices, g):
    return prims.add(product(g, indices), scattered(indices, g, accumulate=False))


def into_ones(indices, g):
    return prims.add(product(g, indices), scattered(indices, g, start=1))


def to_a_row(indices, g):
    return prims.add(prims.sum(g, (0,), False), scattered(indices, g))


# name -> a program, whether it changes, and its loops where it does: scatters, and a copy of what is read again
PROGRAMS = {
    "a tied table": (tied, True, 1),
    "two embeddings": (two_tables, True, 2),
    "what is added to is read again": (read_again, True, None),
    "what was scattered is given": (scattered_is_given, False, None),
    "replaced elements": (replaced, False, None),
    "into ones": (into_ones, False, None),
    "broadcast": (to_a_row, False, None),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_small_terms_are_not_lost_in_a_large_value(dtype):
    graph = build(tied, [torch.zeros(LOOK_UPS, dtype=torch.int64), torch.ones(LOOK_UPS, WIDTH, dtype=dtype)])
    assert add_scattered(graph) is graph


@pytest.mark.parametrize(("program", "changes", "scatters"), PROGRAMS.values(), ids=PROGRAMS)
def test_sums_of_scattered_values(program, changes, scatters):
    torch.manual_seed(0)
    inputs = [torch.randint(0, ROWS, (LOOK_UPS,)), torch.randn(LOOK_UPS, WIDTH)]
    graph = build(program, inputs)
    changed = add_scattered(graph)
    assert (changed is not graph) is changes
    check(program, *inputs, rtol=1e-5, atol=1e-5)
    if scatters is not None:
        options = InductorOptions()
        plan = schedule(lower(changed, options), options, CppRenderer().capabilities)
        stores = [i.args[3] for k in plan.kernels if hasattr(k, "passes") for p in k.passes for i in p.body.stores()]
        assert stores.count("add") == scatters
        assert stores.count("set") == 1  # what the product reads


def test_graphs_for_a_gpu_stay_as_they_are():
    specs = [TensorSpec(dtype, torch.device("cuda", 0), s) for dtype, s in ((torch.int64, (12,)), (torch.float32, (12, WIDTH)))]
    graph = build(tied, [None, None], specs)
    assert add_scattered(graph) is graph


def test_sums_keep_their_order_where_bits_count():
    assert not GRAPH_PASSES[add_scattered](InductorOptions(numerics="strict"))

"""Which large products default mode gives to a core: those that were measured, and what belongs to either way's time."""

import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import pytest
import torch
from product_programs import BF16, F16, F32, layer_normed, linear, silu, turned
from tracework_inductor import InductorOptions, lower, schedule
from tracework_inductor.autotune.cost import DEVICES, PRODUCT_OF_ROWS
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_inductor.decisions.products import question
from tracework_inductor.lowering import product_pieces
from tracework_inductor.pipeline import plan_graph
from tracework_inductor.product_costs import TILES
from tracework_inductor.schedule.choice import Answer
from tracework_inductor.schedule.plan import ExternKernel, LoopKernel
from tracework_primops import prims
from triton_programs import graph_of

GPU, H200 = torch.device("cuda", 0), DEVICES["H200"]


def gelu(y):
    cube = prims.mul(prims.mul(prims.mul(y, y), y), 0.044715)
    return prims.mul(prims.mul(y, 0.5), prims.add(prims.tanh(prims.mul(prims.add(y, cube), 0.7978845608028654)), 1.0))


def biased(x, w, b):
    return prims.addmm(b, x, turned(w))


AFTER = {
    "": lambda x, w, b, h: linear(x, w),
    "bias": lambda x, w, b, h: biased(x, w, b),
    "bias gelu": lambda x, w, b, h: gelu(biased(x, w, b)),
    "bias residual": lambda x, w, b, h: prims.add(h, biased(x, w, b)),
    "residual": lambda x, w, b, h: prims.add(h, linear(x, w)),
    "relu": lambda x, w, b, h: prims.relu(linear(x, w)),
    "silu gate": lambda x, w, b, h: prims.mul(silu(h), linear(x, w)),
}

MEASURED = {
    "bert o": (16384, 768, 768, "bias residual", 52.8, 44.6),
    "bert up": (16384, 3072, 768, "bias gelu", 165.1, 152.2),
    "bert down": (16384, 768, 3072, "bias residual", 123.8, 118.2),
    "gpt2 qkv": (8192, 2304, 768, "bias", 50.6, 55.6),
    "gpt2 up": (8192, 3072, 768, "bias gelu", 86.8, 81.7),
    "gpt2 down": (8192, 768, 3072, "bias residual", 64.0, 66.6),
    "gpt2 head": (8192, 50304, 768, "", 975.1, 1020.7),
    "llama1b o": (2048, 2048, 2048, "residual", 31.8, 31.1),
    "llama1b up": (2048, 8192, 2048, "silu gate", 117.3, 119.9),
    "llama1b down": (2048, 2048, 8192, "residual", 93.4, 103.0),
    "llama8b k": (4096, 1024, 4096, "", 47.1, 53.3),
    "llama8b o": (4096, 4096, 4096, "residual", 200.9, 192.7),
    "llama8b up": (4096, 14336, 4096, "silu gate", 720.0, 774.4),
    "llama8b down": (4096, 4096, 14336, "residual", 627.0, 622.0),
    "vit qkv": (12608, 2304, 768, "bias", 75.2, 78.8),
    "vit up": (12608, 3072, 768, "bias gelu", 132.1, 118.3),
    "vit down": (12608, 768, 3072, "bias residual", 94.1, 106.2),
    "t5 q": (16384, 512, 512, "", 17.8, 21.7),
    "t5 up": (16384, 2048, 512, "relu", 92.7, 64.9),
    "t5 down": (16384, 512, 2048, "residual", 62.2, 63.4),
    "unet 320": (8192, 320, 320, "bias residual", 15.2, 11.9),
    "unet 2560": (8192, 2560, 320, "bias gelu", 49.0, 48.2),
    "gpt2 vocab": (16384, 50257, 768, "", 2730.2, 2146.5),
    "bert vocab": (16384, 30522, 768, "bias", 1699.8, 1365.8),
}
"""Rows, columns, inner elements, what follows; microseconds of the library with what follows, and of the core's first guess, on an H200 with
triton 3.6 (benchmarks/micro/products.py)."""
WRONG_WAY_ROUND = {"llama1b up", "llama8b up", "llama8b down", "t5 down"}
"""Those within 8 % of each other whose order is predicted the other way round: the library stays."""


def inputs_of(m, n, k, dtype=BF16):
    return [torch.empty(size, dtype=dtype, device="meta") for size in ((m, k), (n, k), (n,), (m, n))]


def choices_of(program, *inputs):
    options, found = InductorOptions(products="tiles"), []
    choose = lambda choices: found.extend(choices) or Answer({})
    schedule(lower(graph_of(program, *inputs, device=GPU), options), options, TritonRenderer.capabilities, choose)
    return found


def cores(plan):
    return [k for k in plan.kernels if isinstance(k, LoopKernel) and k.core]


@pytest.mark.parametrize("name", MEASURED)
def test_the_order_that_was_measured_is_predicted(name):
    m, n, k, after, library_us, core_us = MEASURED[name]
    (choice,) = choices_of(AFTER[after], *inputs_of(m, n, k))
    asked = question(choice, H200, "default")
    library, core, *_ = asked.candidates
    assert asked.problem.kind == PRODUCT_OF_ROWS
    assert 0.65 < core.predicted_us / core_us < 1.25 and 0.7 < library.predicted_us / library_us < 1.2
    wrong = (core.predicted_us < library.predicted_us) != (core_us < library_us)
    assert wrong == (name in WRONG_WAY_ROUND)


TAKEN = {"bert o", "bert up", "gpt2 up", "vit up", "t5 up", "unet 320", "unet 2560", "gpt2 vocab", "bert vocab"}


@pytest.mark.parametrize("name", MEASURED)
def test_default_mode_takes_cores_that_win_by_a_tenth(name):
    m, n, k, after, library_us, core_us = MEASURED[name]
    plan = plan_graph(graph_of(AFTER[after], *inputs_of(m, n, k), device=GPU), InductorOptions())
    assert len(cores(plan)) == (name in TAKEN) and (name not in TAKEN or core_us < library_us)
    assert name not in TAKEN or len(plan.kernels) == 1  # what pieces of logits took is not allocated


UNKNOWN = {
    "float32": (lambda x, w, b, h: AFTER["relu"](x, w, b, h), inputs_of(4096, 4096, 512, F32)),
    "few rows": (AFTER["relu"], inputs_of(128, 32768, 512)),
    "few results": (AFTER["relu"], inputs_of(1000, 1000, 1000)),
    "few inner elements": (AFTER["relu"], inputs_of(16384, 4096, 128)),
    "the inner dimension across memory": (
        lambda x, w: prims.relu(prims.mm(x, w)), [torch.empty(size, dtype=BF16, device="meta") for size in ((4096, 512), (512, 4096))],
    ),
    "a transposed first matrix": (
        lambda x, w: prims.relu(linear(turned(x), w)),
        [torch.empty(size, dtype=BF16, device="meta") for size in ((512, 4096), (4096, 512))],
    ),
    "what is computed as it is read": (lambda x, w, b, h: prims.relu(linear(prims.mul(x, 2.0), w)), inputs_of(4096, 4096, 512)),
    "much that follows": (
        lambda x, w, b, h: (lambda y: prims.mul(prims.exp(y), prims.add(prims.sin(y), prims.log(y))))(linear(x, w)),
        inputs_of(4096, 4096, 512),
    ),
    "rows that are not aligned": (AFTER["relu"], inputs_of(4096, 4096, 513)),
}  # fmt: skip
"""name -> a program and inputs unlike those that were measured."""


@pytest.mark.parametrize("name", UNKNOWN)
def test_products_unlike_those_that_were_measured_are_not_predicted(name):
    program, inputs = UNKNOWN[name]
    for choice in choices_of(program, *inputs):
        assert question(choice, H200, "default").problem.kind == TILES
    assert not cores(plan_graph(graph_of(program, *inputs, device=GPU), InductorOptions()))


def test_float16_is_like_bfloat16():
    m, n, k, after, *_ = MEASURED["t5 up"]
    assert len(cores(plan_graph(graph_of(AFTER[after], *inputs_of(m, n, k, F16), device=GPU), InductorOptions()))) == 1


def test_products_that_nothing_follows_are_planned_once():
    """Planning both ways takes time, and the library is the quicker one."""
    graph = graph_of(AFTER[""], *inputs_of(4096, 4096, 512), device=GPU)
    assert not lower(graph, InductorOptions()).products
    assert lower(graph_of(AFTER["relu"], *inputs_of(4096, 4096, 512), device=GPU), InductorOptions()).products


def test_what_a_core_leaves_to_other_kernels_is_part_of_its_time():
    """The library's sum is added in the norm's kernel, which is there beside a core, too."""
    m, n, k = 16384, 768, 768

    def program(x, w, b, h):
        return layer_normed(prims.add(h, biased(x, w, b)), b)

    (choice,) = choices_of(program, *inputs_of(m, n, k))
    call, norm = choice.library
    assert isinstance(call, ExternKernel) and norm.reduction_axes and len(choice.rest) == 1
    alone = question(dataclasses.replace(choice, rest=()), H200, "default").candidates[1]
    asked = question(choice, H200, "default").candidates[1]
    assert asked.predicted_us > alone.predicted_us + 2 * m * n * 2 / H200.bandwidth
    (plain,) = choices_of(AFTER["bias residual"], *inputs_of(m, n, k))
    assert not plain.rest


def test_pieces_move_what_they_copy():
    """Each copies its own rows, not all of the result."""
    m, n, k, after, *_ = MEASURED["gpt2 vocab"]
    (choice,) = choices_of(AFTER[after], *inputs_of(m, n, k))
    assert len(choice.library) == 2 * product_pieces.PIECES
    whole = 2 * 2 * m * n / H200.bandwidth
    (first, *_) = question(choice, H200, "default").candidates
    products = dataclasses.replace(choice, library=tuple(k for k in choice.library if isinstance(k, ExternKernel)))
    copies = first.predicted_us - question(products, H200, "default").candidates[0].predicted_us
    assert whole < copies < 1.1 * whole

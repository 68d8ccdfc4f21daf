"""Attention under masks in memory: blocks that are skipped or need no mask, by Triton's interpreter against float64."""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from attention_forms import everything, itself  # noqa: E402
from attention_kernels import CUDA, F32, SCALE, backward_program, forward_program, operands, run  # noqa: E402
from tracework_inductor.codegen.triton.cores.attention import config  # noqa: E402
from tracework_inductor.lowering import mask_blocks  # noqa: E402
from tracework_primops import FakeMode, SymbolTable, prims, trace_bodies  # noqa: E402
from tracework_primops.attention import backward_reference, forward_reference  # noqa: E402
from triton_programs import graph_of, rendered  # noqa: E402

QUERIES, KEYS = 44, 70
LOWEST = torch.finfo(F32).min


def places(shape, hidden):
    """Where a mask of this shape hides: keys behind a length of the batch, other documents, later keys, or whole rows too."""
    i, j = torch.arange(QUERIES)[:, None], torch.arange(KEYS)
    padding = (j >= torch.tensor([33, 70])[:, None, None, None]).expand(2, 1, 1, KEYS)
    found = {"padding": padding, "later": (i < j - 14)[None, None], "documents": ((i // 20 != j // 20) | padding)}[hidden].clone()
    if shape == "rows":
        found = found.expand(-1, -1, QUERIES, -1).clone()
        found[:, :, 30:40] = True
    return found


def read(x, b, i, j):
    """What a mask that may be the same for all batches or queries has for a score."""
    return x[b if x.shape[0] > 1 else b * 0, b * 0, i if x.shape[2] > 1 else b * 0, j]


def added(hidden, lowest=LOWEST, rest=0.0):
    mask = torch.full(hidden.shape, rest).masked_fill(hidden, lowest)
    return (lambda s, b, h, i, j, x: s + read(x, b, i, j)), everything, mask


# score function, function that keeps scores, and what both read, of what is hidden
FORMS = {
    "shown": lambda hidden: (itself, lambda s, b, h, i, j, x: read(x, b, i, j), ~hidden),
    "filled": lambda hidden: (lambda s, b, h, i, j, x: torch.where(read(x, b, i, j), -3e38, s), everything, hidden),
    "added": added,
    "added, infinite": lambda hidden: added(hidden, -math.inf),
    "added to all": lambda hidden: added(hidden, rest=0.25),
    "a low number that hides little": lambda hidden: added(hidden, -2.0),
}
# with rows that see nothing, or as it is
CASES = [
    ("shown", "", "padding"),
    ("shown", "rows", "documents"),
    ("filled", "rows", "later"),
    ("added", "", "later"),
    ("added", "rows", "padding"),
    ("added, infinite", "rows", "later"),
    ("added to all", "", "documents"),
    ("a low number that hides little", "", "padding"),
]


@pytest.fixture
def small_blocks(monkeypatch):
    """Several of a tensor that the interpreter walks over in a short time."""
    monkeypatch.setattr(mask_blocks, "EXTENT", 32)
    monkeypatch.setattr(mask_blocks, "SHARE", 0)
    for table in (config.WIDE_FORWARD, config.WIDE_BACKWARD):
        monkeypatch.setitem(table, 64, (32, 16, 4, 1))


def of_hidden(form, shape, hidden):
    score, keep, mask = FORMS[form](places(shape, hidden))
    return trace_bodies(score, keep, [FakeMode(SymbolTable()).from_real(mask)], F32, torch.device("cpu"), None)[:3], mask


@pytest.mark.parametrize(("form", "shape", "hidden"), CASES, ids=[" ".join(case) for case in CASES])
def test_values_and_gradients(form, shape, hidden, small_blocks, tmp_path):
    bodies, mask = of_hidden(form, shape, hidden)
    score, keep, slope = bodies
    q, k, v, grad = operands(QUERIES, KEYS)
    found, kernels = run(forward_program(*bodies), [q, k, v, mask], tmp_path)
    wide = [x.double() for x in (q, k, v, grad)]
    wanted = forward_reference(*wide[:3], [mask], [], [], score, keep, SCALE, [])
    close = {"rtol": 0, "atol": 1e-5}
    torch.testing.assert_close([x.double() for x in found], [x.double() for x in wanted], **close)
    rows = [wanted[1].float(), wanted[2].float(), (wide[3] * wanted[0]).sum(-1).float()]
    found, more = run(backward_program(*bodies), [grad, q, k, v, *rows, mask], tmp_path)
    wanted = backward_reference(wide[3], *wide[:3], *(x.double() for x in rows), [mask], [], [], score, slope, keep, SCALE, [])
    torch.testing.assert_close([x.double() for x in found], [x.double() for x in wanted], **close)
    cores = [kernel.source for kernel in (*kernels.values(), *more.values()) if "tl.dot" in kernel.source]
    assert len(cores) == 3 and all("counts & " in source for source in cores)


def beside_nan(x):
    """The same values, behind which there is NaN in memory."""
    longer = torch.full((x.numel() + 4096,), torch.nan)
    longer[: x.numel()] = x.flatten()
    return longer[: x.numel()].view(x.shape)


def test_lengths_of_whole_steps_that_are_no_whole_blocks(small_blocks, tmp_path):
    """48 queries and 80 keys are steps of 16, and end within a block of 32."""
    hidden = torch.arange(80).expand(2, 1, 48, 80) >= torch.tensor([33, 80])[:, None, None, None]
    score, keep, mask = added(hidden)
    bodies = trace_bodies(score, keep, [FakeMode(SymbolTable()).from_real(mask)], F32, torch.device("cpu"), None)[:3]
    q, k, v, grad = map(beside_nan, operands(48, 80))
    found, _ = run(forward_program(*bodies), [q, k, v, beside_nan(mask)], tmp_path)
    wide = [x.double() for x in (q, k, v, grad)]
    wanted = forward_reference(*wide[:3], [mask], [], [], *bodies[:2], SCALE, [])
    close = {"rtol": 0, "atol": 1e-5}
    torch.testing.assert_close([x.double() for x in found], [x.double() for x in wanted], **close)
    rows = [beside_nan(x) for x in (wanted[1].float(), wanted[2].float(), (wide[3] * wanted[0]).sum(-1).float())]
    found, _ = run(backward_program(*bodies), [grad, q, k, v, *rows, beside_nan(mask)], tmp_path)
    score, keep, slope = bodies
    wanted = backward_reference(wide[3], *wide[:3], *(x.double() for x in rows), [mask], [], [], score, slope, keep, SCALE, [])
    torch.testing.assert_close([x.double() for x in found], [x.double() for x in wanted], **close)


def test_programs_share_the_keys_of_few_queries(small_blocks, tmp_path, monkeypatch):
    monkeypatch.setattr("tracework_inductor.codegen.triton.cores.attention.forward.LEAST_STEPS", 1)
    bodies, mask = of_hidden("added", "rows", "padding")
    q, k, v, _ = operands(QUERIES, KEYS)
    found, kernels = run(forward_program(*bodies), [q, k, v, mask], tmp_path)
    assert any("keys in " in dict(kernel.launch)["kind"] for kernel in kernels.values())
    wanted = forward_reference(*(x.double() for x in (q, k, v)), [mask], [], [], *bodies[:2], SCALE, [])
    torch.testing.assert_close([x.double() for x in found], [x.double() for x in wanted], rtol=0, atol=1e-5)


def test_layers_share_the_blocks_of_a_mask(small_blocks):
    (score, keep, _), mask = of_hidden("added", "", "later")
    q, k, v, _ = operands(QUERIES, KEYS)

    def program(q, k, v, mask):
        first = prims.attention(q, k, v, (mask,), (), (), score, keep, SCALE, ())[0]
        return prims.attention(first, k, v, (mask,), (), (), score, keep, SCALE, ())[0]

    kernels = rendered(graph_of(program, q, k, v, mask, device=CUDA))[1].values()
    assert sorted("tl.dot" in kernel.source for kernel in kernels) == [False, False, True, True]


# sizes of queries, keys and heads, and of the mask -> whether its blocks are looked at
SIZES = {
    "many heads": ((8, 16, 2048, 2048), (8, 1, 2048, 2048), True),
    "padding": ((32, 16, 1024, 1024), (32, 1, 1, 1024), True),
    "a bias of each head": ((8, 2, 2048, 2048), (8, 2, 2048, 2048), False),
    "one block": ((64, 16, 128, 128), (64, 1, 1, 128), False),
    "little to compute": ((1, 4, 256, 256), (1, 1, 256, 256), False),
}


@pytest.mark.parametrize("name", SIZES)
def test_blocks_are_looked_at_where_that_costs_little(name):
    (batch, heads, queries, keys), sizes, pays = SIZES[name]
    mask = torch.empty(sizes, dtype=torch.bfloat16, device="meta")

    def score(s, b, h, i, j, x):
        zero = b * 0
        return s + x[zero + b if sizes[0] > 1 else zero, h if sizes[1] > 1 else zero, i if sizes[2] > 1 else zero, j]

    bodies = trace_bodies(score, everything, [FakeMode(SymbolTable()).from_real(mask)], F32, torch.device("cpu"), None)[:3]
    like = [torch.empty(batch, heads, n, 64, dtype=torch.bfloat16, device="meta") for n in (queries, keys, keys)]
    kernels = rendered(graph_of(forward_program(*bodies), *like, mask, device=CUDA))[1]
    assert (len(kernels) > 1) == pays

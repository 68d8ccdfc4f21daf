"""Programs of attention with bodies, the kernels that they become, and what these are compared with."""

from __future__ import annotations

import torch
import triton_interpreter
from attention_forms import SLOPES, causal, everything, forms
from tracework_inductor import InductorOptions
from tracework_inductor.ir.index import symbol
from tracework_primops import FakeMode, SymbolTable, prims, trace_bodies
from tracework_primops.attention import backward_reference, forward_reference
from triton_programs import graph_of, rendered

CUDA = torch.device("cuda", 0)
BF16, F32 = torch.bfloat16, torch.float32
SCALE = 0.3


SHARED = forms(100, 30, [20, 70])
(DOCUMENTS,), (TABLE,) = (SHARED[name][2] for name in ("documents", "relative"))
UNSURE = frozenset({"not a band", "shifted", "documents"})
# functions of (score, b, h, i, j, *captured) for score and mask, what they capture, whether bounds know all of the mask
CASES = {
    **{name: (*form, name not in UNSURE) for name, form in SHARED.items()},
    "a low number": (lambda s, b, h, i, j: torch.where(i >= j, s, -1e9), everything, [], True),
    "a low number on the left": (lambda s, b, h, i, j: torch.where(i > j, -3e38, s), everything, [], True),
    "a low number outside of a window": (
        lambda s, b, h, i, j: torch.where((i >= j) & (i - j < 40), s, -65504.0),
        everything,
        [],
        True,
    ),
    "a low number in some rows": (lambda s, b, h, i, j: torch.where(i - 40 >= j, s, -3e38), everything, [], True),
    "scores as low as the number": (
        lambda s, b, h, i, j: torch.where(i >= j, (i - j) * 0.125 - 10016.0, -1e4),
        everything,
        [],
        True,
    ),
    "a bias, then a low number": (lambda s, b, h, i, j, x: torch.where(i >= j, s + x[h] * j, -3e38), everything, [SLOPES], True),
    "a low number by what is read": (
        lambda s, b, h, i, j, x: torch.where(x[i] == x[j], s, -3e38),
        everything,
        [DOCUMENTS],
        True,
    ),
}


def texts(name):
    score, keep, captured, _ = CASES[name]
    mode = FakeMode(SymbolTable())
    return trace_bodies(score, keep, [mode.from_real(t) for t in captured], F32, torch.device("cpu"), None)[:3]


def forward_program(score, keep, _, extents=(), count=0):
    def program(q, k, v, *others):
        return prims.attention(q, k, v, others[count:], others[:count], (), score, keep, SCALE, extents)

    return program


def backward_program(score, keep, slope, extents=(), count=0):
    def program(grad, q, k, v, logs, highest, delta, *others):
        given = others[count:], others[:count], ()
        return prims.attention_backward(grad, q, k, v, logs, highest, delta, *given, score, slope, keep, SCALE, extents)

    return program


def run(program, inputs, folder):
    host, kernels = rendered(graph_of(program, *inputs, device=CUDA), InductorOptions(memory_reuse=False))
    assert "prims." not in host
    return triton_interpreter.host_call(host, kernels, folder)(list(inputs)), kernels


def operands(queries=100, keys=100, heads=2, key_heads=1, width=16, out_width=16, dtype=F32, inside=False):
    torch.manual_seed(0)
    sizes = [(heads, queries, width), (key_heads, keys, width), (key_heads, keys, out_width), (heads, queries, out_width)]
    if inside:
        return [torch.randn(2, length, count, w).to(dtype).transpose(1, 2) for count, length, w in sizes]
    return [torch.randn(2, *s).to(dtype) for s in sizes]


def check_values(name, folder, tolerance, blocks=(), extents=(), **sizes):
    q, k, v, grad = operands(**sizes)
    bodies, captured = texts(name), CASES[name][2]
    found, kernels = run(forward_program(*bodies, extents, len(blocks)), [q, k, v, *blocks, *captured], folder)
    score, keep, slope = bodies
    wide = [x.double() for x in (q, k, v, grad)]
    wanted = forward_reference(*wide[:3], captured, [], [], score, keep, SCALE, [])
    close = {"rtol": tolerance, "atol": tolerance}  # float32's rounding of a sum grows with what is summed
    torch.testing.assert_close([x.double() for x in found], [x.double() for x in wanted], **close)
    rows = [wanted[1].float(), wanted[2].float(), (wide[3] * wanted[0]).sum(-1).float()]
    given = [grad, q, k, v, *rows, *blocks, *captured]
    found, more = run(backward_program(*bodies, extents, len(blocks)), given, folder)
    wanted = backward_reference(wide[3], *wide[:3], *(x.double() for x in rows), captured, [], [], score, slope, keep, SCALE, [])
    torch.testing.assert_close([x.double() for x in found], [x.double() for x in wanted], **close)
    return [*kernels.values(), *more.values()]


def trained(function, axes, sizes):
    """Bodies of a causal mask and a score function of (score, b, h, i, j, read), where read is what its own functions read of a tensor of
    these axes and sizes."""
    x = FakeMode(SymbolTable()).from_real(torch.empty(sizes))
    return trace_bodies(function, causal, [x], F32, torch.device("cpu"), None, {0: axes})


def sums_program(score, keep, factor, along, extents=(), count=0):
    def program(grad, q, k, v, logs, highest, delta, *others):
        given = others[count:], others[:count], ()
        return prims.attention_sums(grad, q, k, v, logs, highest, delta, *given, score, factor, keep, SCALE, extents, along)

    return program


# axes of what is captured, sizes by queries and keys, score function of what is read of it
SUMS = {
    "a number": ("", lambda n, m: (), lambda s, b, h, i, j, x: s * x),
    "of each head": ("h", lambda n, m: (4,), lambda s, b, h, i, j, x: s + x * (j - i) / 16),
    "of each query": ("hi", lambda n, m: (4, n), lambda s, b, h, i, j, x: s * x.sigmoid()),
    "of each key": ("bj", lambda n, m: (2, m), lambda s, b, h, i, j, x: s + x**2),
    "of each distance": ("hd", lambda n, m: (4, n + m - 1), lambda s, b, h, i, j, x: s + x),
    "of each distance, changed": ("d", lambda n, m: (n + m - 1,), lambda s, b, h, i, j, x: torch.tanh(s * x)),
}


LENGTH, BATCH = symbol("s0", 2, None), symbol("s1", 1, None)

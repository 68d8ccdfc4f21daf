"""Every row of SIMPLIFY against evaluation: exact on integers, and on floats with NaN, infinities, signed zeros and subnormals."""

import math
import random

import pytest
import torch
from tracework_primops import parse_graph, verify
from tracework_primops.passes import PRIM_PASSES, SIMPLIFY, run_passes

F = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 1e308, -1e-310, math.inf, -math.inf, math.nan, 0.49999999999999994]
WHOLE = [0, 1, -1, 2, -2, 2**62, -(2**63), 2**63 - 1, 7, -7, 3, 100]
VALUES = {
    "f64": torch.tensor(F, dtype=torch.float64),
    "i64": torch.tensor(WHOLE, dtype=torch.int64),
    "b8": torch.tensor([True, False] * 6),
    "c128": torch.complex(torch.tensor(F, dtype=torch.float64), torch.tensor(F[::-1], dtype=torch.float64)),
    "i32": torch.tensor([max(min(v, 2**31 - 1), -(2**31)) for v in WHOLE], dtype=torch.int32),
}

# row -> (dtype, calls after `%x`, whether it becomes `%x`)
CASES = [
    ("mul", "f64", "mul(%x, 1)", True),
    ("mul", "f64", "mul(1.0, %x)", True),
    ("mul", "i64", "mul(%x, 1)", True),
    ("mul", "f64", "mul(%x, -1)", False),
    ("mul", "f64", "mul(%x, 0.0)", False),
    ("div", "f64", "div(%x, 1)", True),
    ("div", "c128", "div(%x, 1)", False),
    ("mul", "c128", "mul(%x, 1.0)", False),
    ("sub", "c128", "sub(%x, 0.0)", False),
    ("pow", "c128", "pow(%x, 1)", False),
    ("div", "f64", "div(1, %x)", False),
    ("pow", "f64", "pow(%x, 1)", True),
    ("pow", "i64", "pow(%x, 1)", True),
    ("pow", "f64", "pow(1, %x)", False),
    ("floor_divide", "i64", "floor_divide(%x, 1)", True),
    ("floor_divide", "f64", "floor_divide(%x, 1)", False),
    ("trunc_divide", "i64", "trunc_divide(%x, 1)", True),
    ("trunc_divide", "f64", "trunc_divide(%x, 1)", False),
    ("add", "i64", "add(%x, 0)", True),
    ("add", "i64", "add(0, %x)", True),
    ("add", "f64", "add(%x, -0.0)", True),
    ("add", "f64", "add(%x, 0.0)", False),
    ("add", "f64", "add(%x, 0)", False),
    ("sub", "f64", "sub(%x, 0.0)", True),
    ("sub", "i64", "sub(%x, 0)", True),
    ("sub", "f64", "sub(%x, -0.0)", False),
    ("sub", "f64", "sub(0.0, %x)", False),
    ("shift_left", "i64", "shift_left(%x, 0)", True),
    ("shift_right", "i64", "shift_right(%x, 0)", True),
    ("neg", "f64", "neg(%x) neg(%a)", True),
    ("neg", "i64", "neg(%x) neg(%a)", True),
    ("conj", "c128", "conj(%x) conj(%a)", True),
    ("logical_not", "b8", "logical_not(%x) logical_not(%a)", True),
    ("bitwise_not", "i64", "bitwise_not(%x) bitwise_not(%a)", True),
    ("maximum", "f64", "maximum(%x, %x)", True),
    ("minimum", "i64", "minimum(%x, %x)", True),
    ("bitwise_and", "i64", "bitwise_and(%x, %x)", True),
    ("bitwise_or", "b8", "bitwise_or(%x, %x)", True),
    ("where", "b8", "where(%x, %x, %x)", True),
    ("abs", "f64", "abs(%x) abs(%a)", None),
    ("floor", "f64", "floor(%x) floor(%a)", None),
    ("ceil", "f64", "ceil(%x) ceil(%a)", None),
    ("trunc", "f64", "trunc(%x) trunc(%a)", None),
    ("sign", "f64", "sign(%x) sign(%a)", None),
    ("flip", "f64", "flip(%x, (0,)) flip(%a, (0,))", True),
]


def same(a, b):
    """Equal to the bit, all NaNs counting as one."""
    if a.dtype.is_complex:
        return same(torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj()))
    if a.dtype.is_floating_point:
        return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) and torch.equal(
            a.signbit() | a.isnan(), b.signbit() | b.isnan()
        )  # fmt: skip
    return a.dtype is b.dtype and torch.equal(a, b)


def graph_of(dtype, calls):
    """The calls one after the other as %a, %b, ..., and a read of the last that is not itself simplified."""
    lines, names = [f"%x: {dtype}[12] = input"], "abc"
    for name, call in zip(names, calls, strict=False):
        lines.append(f"%{name}: {dtype}[12] = {call}")
    last = names[len(calls) - 1]
    lines.append(f"%out: {dtype}[12] = index_select(%{last}, 0, %i)")
    text = "\n".join(["inference graph", "%i: i64[12] = input", *lines, "return %out"])
    return verify(parse_graph(text + "\n"))


@pytest.mark.parametrize("row, dtype, calls, fires", CASES, ids=lambda v: str(v).replace("%", ""))
def test_a_row_keeps_every_value(row, dtype, calls, fires):
    graph = graph_of(dtype, calls.replace(") ", ")|").split("|"))
    after = run_passes(graph, [p for p in PRIM_PASSES if p.name in ("simplify", "dead_code")], check=True)
    left = [n.target.name for n in after.calls].count(row)
    assert left == {True: 0, False: 1, None: 1}[fires]
    inputs = torch.arange(12), VALUES[dtype]
    for mine, theirs in zip(after.run(*inputs), graph.run(*inputs), strict=True):
        assert same(mine, theirs)


VIEWS = [
    (
        "permute",
        "permute(%x, (1, 2, 0,))",
        "permute(%a, (1, 2, 0,))",
        "permute(%b, (1, 2, 0,))",
        ("3, 4, 2", "4, 2, 3", "2, 3, 4"),
    ),
    ("reshape", "reshape(%x, (6, 4,))", "unsqueeze(%a, 0)", "reshape(%b, (2, 3, 4,))", ("6, 4", "1, 6, 4", "2, 3, 4")),
    ("squeeze", "unsqueeze(%x, 1)", "unsqueeze(%a, 0)", "reshape(%b, (2, 3, 4,))", ("2, 1, 3, 4", "1, 2, 1, 3, 4", "2, 3, 4")),
]


@pytest.mark.parametrize("name, first, second, third, sizes", VIEWS, ids=lambda v: None)
def test_chains_of_views_that_lead_back_go(name, first, second, third, sizes):
    calls = zip("abc", sizes, (first, second, third), strict=True)
    lines = [f"%{n}: f64[{s}] = {call}" for n, s, call in calls]
    text = "\n".join(["inference graph", "%x: f64[2, 3, 4] = input", *lines, "%out: f64[2, 3, 4] = exp(%c)", "return %out"])
    graph = verify(parse_graph(text + "\n"))
    after = run_passes(graph, check=True)
    assert [n.target.name for n in after.calls] == ["exp"]
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    assert torch.equal(after.run(x)[0], graph.run(x)[0])


def test_conversions_to_a_wider_dtype_and_back():
    for narrow, wide, goes in (("i32", "f64", True), ("i64", "f64", False), ("b8", "i64", True), ("f64", "f32", False)):
        calls = [f"convert(%x, dtype.{wide})"], [f"convert(%a, dtype.{narrow})"]
        text = f"inference graph\n%x: {narrow}[12] = input\n%a: {wide}[12] = {calls[0][0]}\n%b: {narrow}[12] = {calls[1][0]}\n"
        graph = verify(parse_graph(text + f"%c: {narrow}[12] = flip(%b, (0,))\nreturn %c\n"))
        after = run_passes(graph, check=True)
        assert [n.target.name for n in after.calls] == (["flip"] if goes else ["convert", "convert", "flip"])
        assert same(after.run(VALUES[narrow])[0], graph.run(VALUES[narrow])[0])


def test_every_row_has_a_case():
    shown = {row for row, *_ in CASES} | {"permute", "reshape", "squeeze", "unsqueeze", "convert"}
    assert set(SIMPLIFY) <= shown


UNARY = ("neg", "abs", "floor", "ceil", "trunc", "sign")
BINARY = ("add", "sub", "mul", "maximum", "minimum")
NUMBERS = {"f64": ("0.0", "-0.0", "1", "1.0", "-1.0", "2.5"), "i64": ("0", "1", "-1", "3")}


def random_graph(seed, dtype):
    draw = random.Random(seed)
    names, lines = ["x", "y"], [f"%x: {dtype}[12] = input", f"%y: {dtype}[12] = input"]
    for i in range(draw.randint(4, 14)):
        kind = draw.random()
        a, b = f"%{draw.choice(names)}", f"%{draw.choice(names)}"
        if kind < 0.35:
            call = f"{draw.choice(UNARY[:2] if dtype == 'i64' else UNARY)}({a})"
        elif kind < 0.65:
            call = f"{draw.choice(BINARY[:3])}({a}, {draw.choice(NUMBERS[dtype])})"
        elif kind < 0.9:
            call = f"{draw.choice(BINARY)}({a}, {b})"
        else:
            call = f"flip({a}, (0,))"
        lines.append(f"%n{i}: {dtype}[12] = {call}")
        names.append(f"n{i}")
    results = ", ".join(f"%{n}" for n in draw.sample(names[2:], 3))
    return verify(parse_graph("\n".join(["inference graph", *lines, f"return {results}"]) + "\n"))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_all_passes_keep_the_values_of_random_graphs(dtype):
    changed = 0
    for seed in range(150):
        graph = random_graph(seed, dtype)
        after = run_passes(graph, check=True)
        changed += after is not graph
        inputs = VALUES[dtype], VALUES[dtype].flip(0)
        for mine, theirs in zip(after.run(*inputs), graph.run(*inputs), strict=True):
            assert same(mine, theirs), f"seed {seed}\n{graph}\n{after}"
        assert parse_graph(after.text()).fingerprint() == after.fingerprint()
    assert changed > 75

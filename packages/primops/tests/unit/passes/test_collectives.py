"""Collectives start when their operands are there, and are waited for once, before the first reader."""

import pytest
import torch.distributed._functional_collectives
from tracework_primops import parse_graph, verify
from tracework_primops.passes import collectives, run_passes

HEAD = "inference graph\n%x: f32[4] = input\n%y: f32[4] = input mutated\n"
SUM = "_c10d_functional.all_reduce.default({}, 'sum', '0')"
WAIT = "_c10d_functional.wait_tensor.default({})"


def collective(name, of):
    return f"%{name}: f32[4] = {SUM.format('%' + of)}\n"


def wait(name, of):
    return f"%{name}: f32[4] = {WAIT.format('%' + of)}\n"


def unary(name, kind, of):
    return f"%{name}: f32[4] = {kind}(%{of})\n"


CASES = {
    "waited for before the reader": (
        collective("a", "x") + wait("w", "a") + unary("b", "exp", "x") + "%c: f32[4] = add(%w, %b)\nreturn %c",
        "all_reduce exp wait_tensor add",
    ),
    "views are no readers": (
        collective("a", "x") + wait("w", "a") + "%v: f32[2, 2] = reshape(%w, (2, 2,))\n"
        "%b: f32[2, 2] = reshape(%x, (2, 2,))\n%c: f32[2, 2] = add(%v, %b)\nreturn %c",
        "all_reduce reshape wait_tensor reshape add",
    ),
    "starts when its operand is there": (
        unary("b", "exp", "x")
        + unary("c", "sin", "x")
        + collective("a", "b")
        + wait("w", "a")
        + "%d: f32[4] = add(%w, %c)\nreturn %d",
        "exp all_reduce sin wait_tensor add",
    ),
    "in their order": (
        unary("b", "exp", "x") + collective("a", "b") + collective("c", "x") + wait("w", "a") + wait("u", "c") + "return %w, %u",
        "exp all_reduce all_reduce wait_tensor wait_tensor",
    ),
    "equal ones, and one that nobody reads, stay": (
        collective("a", "x") + collective("b", "x") + wait("w", "b") + "return %w",
        "all_reduce all_reduce wait_tensor wait_tensor",
    ),
    "a result never leaves unfinished": (collective("a", "x") + "return %a", "all_reduce wait_tensor"),
    "readers after the wait read what it gives": (
        collective("a", "x") + wait("w", "a") + unary("b", "exp", "a") + "return %b",
        "all_reduce wait_tensor exp",
    ),
    "a wait that comes too late": (
        collective("a", "x") + unary("b", "exp", "a") + wait("w", "a") + "%c: f32[4] = add(%w, %b)\nreturn %c",
        "all_reduce wait_tensor exp add",
    ),
    "not before a write": (
        unary("b", "exp", "x") + "%m: f32[4] = copy_into(%y, %b)\n" + collective("a", "y") + wait("w", "a") + "return %w",
        "exp copy_into all_reduce wait_tensor",
    ),
    "of lists": (
        "%a: (f32[4]; f32[4]) = _c10d_functional.all_reduce_coalesced.default([%x, %x], 'sum', '0')\n%i: f32[4] = getitem(%a, 1)\n"
        + wait("w", "i")
        + "return %w",
        "all_reduce_coalesced getitem getitem wait_tensor wait_tensor",
    ),
}


def calls(graph):
    return " ".join(
        getattr(node.target, "_opname", None) or getattr(node.target, "name", None) or node.target.__name__
        for node in graph.calls
    )


@pytest.mark.parametrize("name", CASES)
def test_the_order(name):
    body, expected = CASES[name]
    graph = verify(parse_graph(HEAD + body + "\n"))
    after = run_passes(graph, check=True)
    assert sorted(calls(after).split()) == sorted(expected.split())
    if "list" not in name and "nobody" not in name:
        assert calls(after) == expected
    assert run_passes(after) is after
    for node in after.calls:
        if node.target is torch.ops._c10d_functional.all_reduce.default:
            (only,) = node.users
            assert only.target is torch.ops._c10d_functional.wait_tensor.default


def test_no_more_than_so_many_bytes_are_on_their_way(monkeypatch):
    body = "".join(unary(f"b{n}", "exp", "x") + collective(f"a{n}", f"b{n}") + wait(f"w{n}", f"a{n}") for n in range(3))
    graph = parse_graph(HEAD + body + "return %w0, %w1, %w2\n")
    assert calls(collectives(graph)) == "exp all_reduce exp all_reduce exp all_reduce wait_tensor wait_tensor wait_tensor"
    monkeypatch.setitem(collectives.__globals__, "MOST_IN_FLIGHT", 16)
    assert calls(collectives(graph)) == "exp all_reduce exp wait_tensor all_reduce exp wait_tensor all_reduce wait_tensor"


def test_what_is_gathered_counts(monkeypatch):
    def gather(n):
        return f"%a{n}: f32[8] = _c10d_functional.all_gather_into_tensor.default(%x, 2, '0')\n%w{n}: f32[8] = {WAIT.format(f'%a{n}')}\n"

    graph = parse_graph(HEAD + "".join(map(gather, range(3))) + "return %w0, %w1, %w2\n")
    monkeypatch.setitem(collectives.__globals__, "MOST_IN_FLIGHT", 70)
    name = "all_gather_into_tensor"
    assert calls(collectives(graph)) == f"{name} {name} wait_tensor {name} wait_tensor wait_tensor"


def test_all_start_that_can():
    body = "%b: f32[4] = convert(%x, dtype.f32)\n" + collective("a", "b") + wait("w", "a") + unary("c", "exp", "w")
    body += "%d: f32[2, 2] = reshape(%x, (2, 2,))\n%e: f32[4] = reshape(%d, (4,))\n" + collective("f", "e") + wait("g", "f")
    body += "%h: f32[4] = add(%g, %c)\n" + collective("i", "x") + wait("j", "i") + "%k: f32[4] = add(%h, %j)\nreturn %k\n"
    expected = "convert all_reduce reshape reshape all_reduce all_reduce wait_tensor exp wait_tensor add wait_tensor add"
    assert calls(collectives(parse_graph(HEAD + body))) == expected


def test_a_graph_without_is_itself():
    graph = parse_graph(HEAD + unary("b", "exp", "x") + "return %b\n")
    assert collectives(graph) is graph

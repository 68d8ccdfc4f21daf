"""Each pass: what it removes, what it must keep, and the same object when there is nothing to do."""

import pytest
from tracework_primops import parse_graph, verify
from tracework_primops.passes import PRIM_PASSES, run_passes

HEAD = "inference graph\n%x: f32[4] = input\n%y: f32[4] = input mutated\n"

CASES = {
    "dead": ("%a: f32[4] = exp(%x)\n%b: f32[4] = neg(%x)\nreturn %b", ["neg"]),
    "twice": ("%a: f32[4] = exp(%x)\n%b: f32[4] = exp(%x)\n%c: f32[4] = add(%a, %b)\nreturn %c", ["exp", "add"]),
    "two_outputs_stay_two": ("%a: f32[4] = exp(%x)\n%b: f32[4] = exp(%x)\nreturn %a, %b", ["exp", "exp"]),
    "copy_of_an_output_stays": ("%a: f32[4] = exp(%x)\n%b: f32[4] = clone(%a)\nreturn %a, %b", ["exp", "clone"]),
    "not_across_a_write": (
        "%a: f32[4] = exp(%y)\n%w: f32[4] = copy_into(%y, %a)\n%b: f32[4] = exp(%y)\n%c: f32[4] = add(%a, %b)\nreturn %c",
        ["exp", "copy_into", "exp", "add"],
    ),
    "same_dtype": ("%a: f32[4] = convert(%x, dtype.f32)\n%b: f32[4] = exp(%a)\nreturn %b", ["exp"]),
    "returned_input_copy_stays": ("%a: f32[4] = clone(%x)\nreturn %a", ["clone"]),
    "copy_of_written_input_stays": (
        "%a: f32[4] = clone(%y)\n%w: f32[4] = copy_into(%y, %x)\n%b: f32[4] = exp(%a)\nreturn %b",
        ["clone", "copy_into", "exp"],
    ),
    "times_one": ("%a: f32[4] = mul(%x, 1)\n%b: f32[4] = exp(%a)\nreturn %b", ["exp"]),
    "plus_zero_stays": ("%a: f32[4] = add(%x, 0.0)\n%b: f32[4] = exp(%a)\nreturn %b", ["add", "exp"]),
    "narrowing_stays": (
        "%a: bf16[4] = convert(%x, dtype.bf16)\n%b: f32[4] = convert(%a, dtype.f32)\n%c: f32[4] = exp(%b)\nreturn %c",
        ["convert", "convert", "exp"],
    ),
    "widening_goes": (
        "%a: f64[4] = convert(%x, dtype.f64)\n%b: f32[4] = convert(%a, dtype.f32)\n%c: f32[4] = exp(%b)\nreturn %c",
        ["exp"],
    ),
    "reshape_back": (
        "%a: f32[2, 2] = reshape(%x, (2, 2,))\n%b: f32[4] = reshape(%a, (4,))\n%c: f32[4] = exp(%b)\nreturn %c",
        ["exp"],
    ),
    "copy_of_a_view_of_an_input": ("%a: f32[2] = slice(%x, 0, 0, 2, 1)\n%b: f32[2] = clone(%a)\nreturn %b", ["slice", "clone"]),
    "view_of_a_copy_of_an_input": ("%a: f32[4] = clone(%x)\n%b: f32[2] = slice(%a, 0, 0, 2, 1)\nreturn %b", ["clone", "slice"]),
    "views_of_two_copies": (
        "%a: f32[4] = exp(%x)\n%b: f32[4] = exp(%x)\n%c: f32[2] = slice(%a, 0, 0, 2, 1)\n%d: f32[2] = slice(%b, 0, 1, 3, 1)\nreturn %c, %d",
        ["exp", "exp", "slice", "slice"],
    ),
    "copy_that_is_read_by_places": (
        "%a: f32[4] = exp(%x)\n%b: f32[2] offset 2 = slice(%a, 0, 2, 4, 1)\n%c: f32[2] = clone(%b)\n"
        "%d: f32[1] = as_strided(%c, (1,), (1,), 0)\n%e: f32[1] = exp(%d)\nreturn %e",
        ["exp", "slice", "clone", "as_strided", "exp"],
    ),
    "copy_that_nobody_sees": (
        "%a: f32[2] = slice(%x, 0, 0, 2, 1)\n%b: f32[2] = clone(%a)\n%c: f32[2] = exp(%b)\nreturn %c",
        ["slice", "exp"],
    ),
    "folds": (
        "%a: f32[] = full((), 3.0, dtype.f32, device('cpu'))\n%b: f32[4] = expand(%a, (4,))\n%c: f32[4] = mul(%x, %b)\nreturn %c",
        ["full", "mul"],
    ),
    "division_by_zero_stays": (
        "%a: i64[4] = full((4,), 1, dtype.i64, device('cpu'))\n%b: i64[4] = remainder(%a, 0)\nreturn %b",
        ["full", "remainder"],
    ),
    "minus_zero_is_not_zero": (
        "%a: f32[4] = mul(%x, 0.0)\n%b: f32[4] = mul(%x, -0.0)\n%c: f32[4] = div(%a, %b)\nreturn %c",
        ["mul", "mul", "div"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_left(name):
    body, expected = CASES[name]
    graph = verify(parse_graph(HEAD + body + "\n"))
    before = graph.text()
    seen = []
    after = run_passes(graph, observe=lambda stage, g: seen.append(stage), check=True)
    assert [n.target.name for n in after.calls] == expected
    assert graph.text() == before, "a pass changed its input"
    assert bool(seen) == (after is not graph)
    assert run_passes(after) is after


def test_random_numbers_are_drawn_as_often_as_before():
    graph = parse_graph(
        "inference graph\n%a: f32[4] = aten.rand.default([4])\n%b: f32[4] = aten.rand.default([4])\n%c: f32[4] = add(%a, %b)\nreturn %c\n"
    )
    assert run_passes(graph) is graph


def test_files_are_named_for_their_pass():
    for step in PRIM_PASSES:
        assert step.run.__module__.rsplit(".", 1)[1] == step.name

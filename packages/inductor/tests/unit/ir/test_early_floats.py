"""Whole numbers that become floats before they are computed."""

import pytest
import torch
from tracework_inductor.ir.body import Axis
from tracework_inductor.ir.early_floats import with_early_floats
from tracework_inductor.ir.handlers import Recorder
from tracework_inductor.ir.index import symbol

A, B = symbol("i", 0, None), symbol("j", 0, None)


def distance(r):
    return r.apply("sub", (r.index_expr(A, torch.int32), r.index_expr(B, torch.int32)))


# what is computed of two positions, the largest of them, whether a number of both is converted then
CASES = {
    "a distance": (distance, 4095, False),
    "its size": (lambda r: r.apply("abs", (distance(r),)), 4095, False),
    "of numbers that floats do not have": (distance, 2**24 + 1, True),
    "a product": (lambda r: r.apply("mul", (r.index_expr(A, torch.int32), r.index_expr(B, torch.int32))), 100, True),
    "a position of both": (lambda r: r.index_expr(A - B, torch.int32), 4095, True),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_of_one_axis_are_converted(name):
    function, most, converted = CASES[name]
    recorder = Recorder((Axis(A, most + 1), Axis(B, most + 1)))
    recorder.define("x", recorder.to_dtype(function(recorder), torch.float32))
    body = with_early_floats(recorder.finish(), {A: (0, most), B: (0, most)})
    of = [body.instructions[i.args[0].position] for i in body.instructions if i.op == "to_dtype"]
    both = [i for i in of if i.op != "index_expr" or len(i.args[0].free_symbols) > 1]
    assert bool(both) == converted
    assert all(i.dtype is torch.float32 for i in body.instructions if i.op in ("sub", "abs")) or converted

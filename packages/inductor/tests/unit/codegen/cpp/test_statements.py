"""What each rule writes in whole kernels is in the golden texts (test_cpp_text.py)."""

from types import SimpleNamespace

import pytest
import torch
from tracework_inductor.codegen.cpp.statements import STATEMENTS
from tracework_inductor.codegen.cpp.text_rules import CPP_TEXT
from tracework_inductor.errors import RenderError
from tracework_inductor.ir.body import Instruction, Ref
from tracework_inductor.ir.scalar_ops import STRUCTURAL_OPS

TRITONS_OWN = {"argsort", "scanned_position", "take_along"}
"""What loops for a CPU do not use: sorts and extremes of prefixes are functions of the library there."""


def kernel(dtype=torch.float32, **facts):
    return SimpleNamespace(
        names={"x": "p0"},
        rows_of={},
        tiles={},
        indexed={},
        kernel=SimpleNamespace(layouts={"x": SimpleNamespace(dtype=dtype)}),
        **facts,
    )


def text(k, op, *args, dtype=None):
    return STATEMENTS[op](k, Instruction(op, args, dtype), "v0_", [], {}, None)


def test_each_instruction_is_in_one_table():
    assert STATEMENTS.keys() == STRUCTURAL_OPS - TRITONS_OWN
    assert STATEMENTS.keys().isdisjoint(CPP_TEXT)


def test_a_masked_load_gives_0():
    assert text(kernel(), "load", "x", 3, Ref(1), dtype=torch.float32) == "v0_1 ? tw_get(p0[3]) : (float)0"
    assert text(kernel(torch.bool), "load", "x", 3, None, dtype=torch.bool) == "(tw_get(p0[3]) != 0)"


@pytest.mark.parametrize(
    ("mode", "dtype", "written"),
    [
        ("set", torch.float32, "tw_put(&p0[3], v0_2);"),
        ("add", torch.float32, "tw_put(&p0[3], tw_get(p0[3]) + v0_2);"),
        ("add", torch.bool, "tw_put(&p0[3], (uint8_t)(tw_get(p0[3]) + v0_2 != 0));"),
    ],
)
def test_stores(mode, dtype, written):
    assert text(kernel(dtype), "store", "x", 3, Ref(2), mode) == written


def test_a_mode_that_no_loop_has_is_refused():
    with pytest.raises(RenderError, match="store mode median"):
        text(kernel(), "store", "x", 3, Ref(2), "median")


@pytest.mark.parametrize(("number", "bit"), [(0, ""), (1, " << 1"), (30, " << 30"), (31, " << 30"), (100, " << 30")])
def test_the_last_checks_share_a_bit(number, bit):
    k = kernel(checks={"check": number})
    assert text(k, "indirect", Ref(0), 5, "i0", "check", None, 0) == (
        f"bad |= ((v0_0 < 0) | (v0_0 >= 5)){bit}; int64_t i0 = ((v0_0 < 0) | (v0_0 >= 5)) ? 0 : v0_0;"
    )

"""Programs run, widen and are cut as their graphs say."""

import torch
import tracework
from tracework.cases import Case
from tracework.faults.program import Program, copied


def function(x, y):
    top = torch.topk(x @ y, 2)
    z = top.values.half().float() * x[:, :2]
    return z.sum(0), top.indices


def program():
    x, y = torch.arange(16.0).reshape(4, 4).requires_grad_(), torch.eye(4)
    (case,) = tracework.case(function)(x, y)
    return case, Program.of(case.graph(), case.level, case.inputs)


def test_run_is_eager_and_text_reads_back():
    case, whole = program()
    for mine, eagers in zip(whole.run(), function(*case.inputs), strict=True):
        torch.testing.assert_close(mine, eagers, rtol=0, atol=0)
    assert whole.text() == case.program and whole.case(case).program == case.program
    assert whole.wider().run()[0].dtype == torch.float64


def test_a_part_gives_what_the_whole_gives():
    case, whole = program()
    values = whole.values(copies=True)
    kept = [n for n in whole.calls if n.name in ("half", "mul")]
    half, mul = kept
    part = whole.cut([*kept, *(n for n in whole.calls if n.name == "float_1")], [mul], values)
    torch.testing.assert_close(part.run()[0], values[mul])
    assert [x.requires_grad for x in part.inputs] == [
        values[n].requires_grad for n in values if n.name in {p.name for p in part.placeholders}
    ]
    assert Program.of(Case("captured", part.text(), part.inputs).graph(), "captured", part.inputs).run()[0].shape == (4, 2)
    pair = next(n for n in whole.calls if n.name == "topk")
    assert whole.cut([n for n in whole.calls if n is not pair], [mul], values) is None  # a pair cannot be an input


def test_copies_share_what_their_originals_share():
    x = torch.arange(6.0)
    a, b, c = copied([x[2:], x, 3])
    b.zero_()
    assert not a.any() and x[1] == 1 and c == 3


def test_memory_without_values_is_no_result_of_a_part():
    (case,) = tracework.case(lambda x: torch.empty_like(x).fill_(2) * x)(torch.ones(3))
    whole = Program.of(case.graph(), case.level, case.inputs)
    made, filled = whole.calls[:2]
    assert whole.live([made], whole.values()) == [] and whole.live([made, filled], whole.values()) == [filled]

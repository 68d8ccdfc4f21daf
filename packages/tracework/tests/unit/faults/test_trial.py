"""What a trial lets pass: programs that are right, whatever they do."""

import dataclasses

import pytest
import torch
import tracework
from tracework.cases import Case, CaseError
from tracework.faults.program import Program
from tracework.faults.trial import Failure, Trial
from tracework.options import Options


def dropout(x):
    return torch.nn.functional.dropout(x * 2, 0.5)


def dropout_of_turned(x):
    return torch.nn.functional.dropout(x.unsqueeze(0).transpose(0, 2), 0.5)


def write(x):
    y = x.t()
    y[0].mul_(3)
    return y, y.sum(dtype=torch.float64)


def integers(x):
    return (x > 0).sum(1), x.argmax(0), x.to(torch.bfloat16) @ x.to(torch.bfloat16)


def test_modes_are_entered():
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        (case,) = tracework.case(lambda x: torch.mm(x, x))(torch.randn(4, 4, requires_grad=True))
    assert case.modes == {"grad": False, "autocast": {"cpu": "bfloat16"}}
    assert tracework.diff(case).lines[1] == "primops inference agrees with eager"
    with case.entered():
        assert case.graph()(*case.inputs)[0].dtype == torch.bfloat16


@pytest.mark.parametrize("function", [dropout, dropout_of_turned, write, integers], ids=lambda f: f.__name__)
def test_nothing_is_wrong(function):
    (case,) = tracework.case(function)(torch.randn(4, 4))
    seen = []
    trial = Trial(Options(), seen=lambda *row: seen.append(row[0]))
    assert trial(Program.of(case.graph(), case.level, case.inputs)) is None
    assert seen == ["functional", "primops", "inductor"]


CHANNELS_LAST = """\
inference graph
%x: f32[2, 3, 5, 5] = input
%w: f32[4, 3, 1, 1] = input
%y: f32[2, 4, 5, 5] strides (100, 1, 20, 4) = aten.convolution.default(%x, %w, None, (1, 1,), (0, 0,), (1, 1,), False, (0, 0,), 1)
%z: f32[2, 4, 5, 5] strides (100, 1, 20, 4) = aten.relu.default(%y)
return %z
"""


def test_images_that_the_layout_of_images_lays_out():
    case = Case("functional", CHANNELS_LAST, (torch.randn(2, 3, 5, 5), torch.randn(4, 3, 1, 1)))
    assert tracework.diff(case).failure is None
    wrong = case.replace(program=CHANNELS_LAST.replace("(100, 1, 20, 4)", "(100, 25, 1, 5)"))
    assert tracework.diff(wrong).failure.kind == "layout"


def test_kernels_that_rely_on_strides_and_keep_bytes_for_their_backward():
    reports = tracework.diff(torch.nn.LSTM(4, 2, batch_first=True))(torch.randn(2, 3, 4))
    assert [report.failure for report in reports] == [None]


def test_what_eager_cannot_run():
    case = Case.of_prims("inference graph\n%x: f32[2] = input\n%y: f32[3] = input\n%add: f32[3] = add(%x, %y)\nreturn %add\n")
    with pytest.raises(CaseError, match="eager"):
        Trial(Options())(Program.of(case.graph(), case.level, case.inputs))


def test_what_fails_in_the_same_way():
    program = Program("prim", torch.fx.Graph(), ())
    raised = Failure("raises", "inductor", "no", program, "ValueError", operator="exp (%exp)")
    slow = Failure("slow", "inductor", "", program, times=20.0)
    assert raised.same(dataclasses.replace(raised, what="other", operator="exp (%exp_1)"))
    for change in ({"stage": "runtime"}, {"error": "TypeError"}, {"operator": "sin (%sin)"}, {"kind": "values"}):
        assert not raised.same(dataclasses.replace(raised, **change))
    assert slow.same(dataclasses.replace(slow, times=6.0)) and not slow.same(dataclasses.replace(slow, times=2.0))
    assert not raised.same(None)

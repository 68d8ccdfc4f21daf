"""Kernels beside eager's operators at the same lines."""

import torch
import tracework
from tracework.faults.slow import SHOWN, KernelTime, _sharing, table


def function(x, y):
    z = torch.softmax(x @ y, -1)
    return z.sin() + 1


def test_each_kernel_has_what_eager_takes_at_its_lines():
    (case,) = tracework.case(function)(torch.randn(64, 64), torch.randn(64, 64))
    report = tracework.diff(case, time=True)
    assert sorted(each.name for each in report.times)[0] and all(each.us > 0 and each.eager > 0 for each in report.times)
    assert all(each.limit > 0 and __file__ in each.place for each in report.times)
    lines = str(report).splitlines()
    assert lines[4].split() == ["kernel", "takes", "eager", "limit", "line"] and len(lines) == 6 + len(report.times)


def test_kernels_that_share_lines_are_one_row():
    assert sorted(map(sorted, _sharing([["a"], ["b"], ["c", "a"], ["b", "d"], ["e"]]))) == [[0, 2], [1, 3], [4]]


def test_a_long_table_ends():
    rows = [KernelTime(("k" * 90, "l"), "f.py:1", 2.0, 1.0)] * (SHOWN + 2)
    assert table(rows)[-1] == "and 2 more" and max(map(len, table(rows))) < 100

"""Lives of buffers, in ours and one by one."""

import torch
import tracework
from tracework.reports.document import _alive


def test_bytes_that_are_needed_while_each_step_runs():
    buffers = {
        name: {"kind": kind, "bytes": 10 ** int(name[1])}
        for name, kind in {"b1": "computed", "b2": "extern", "b3": "computed", "b4": "input"}.items()
    }
    steps = [{"reads": ["b4"], "writes": ["b1"]}, {"reads": ["b1"], "writes": ["b2"]}, {"reads": ["b4"], "writes": ["b3"]}]
    assert _alive(steps, buffers, []) == [10, 110, 1000]
    assert _alive(steps, buffers, ["b1"]) == [10, 110, 1010]


def test_eager_keeps_what_fused_kernels_do_not_have():
    def chain(x):
        return (x.sin() + 1).exp().t().contiguous()

    with torch.no_grad():
        (compiled,) = tracework.report(chain)(torch.rand(64, 32)).json()["compiled"]
    (memory,) = [compiled["memory"]]
    assert max(memory["steps"]) == 64 * 32 * 4 and max(memory["one_by_one"]) == 2 * 64 * 32 * 4

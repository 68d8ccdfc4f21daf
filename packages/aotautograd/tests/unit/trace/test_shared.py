"""Which inputs overlap, what they are parts of, and graphs that take that."""

import pytest
import torch
from tracework_aotautograd.signature import Mutation, SharedMemory
from tracework_aotautograd.trace.joint import trace_inference
from tracework_aotautograd.trace.shared import overlaps, row_of, shared_memory

ROW = torch.arange(24.0)

# inputs, which of them are written to -> what they share; None where no graph takes it
SHARING = {
    "apart": ([ROW[:6], ROW[6:]], {0}, []),
    "not written": ([ROW[:6], ROW[3:9]], set(), []),
    "overlapping": ([ROW[2:8], ROW[:6]], {0}, [SharedMemory(((0, 2), (1, 0)), 8)]),
    "by way of a third": ([ROW[:4], ROW[6:9], ROW[3:8]], {1}, [SharedMemory(((0, 0), (1, 6), (2, 3)), 9)]),
    "columns": ([ROW.view(12, 2)[:, 0], ROW.view(12, 2)[:, 1]], {0}, [SharedMemory(((0, 0), (1, 1)), 24)]),
    "two of them": (
        [ROW[:2], ROW[1:3], ROW[8:10], ROW[8:9]],
        {0, 3},
        [SharedMemory(((0, 0), (1, 1)), 3), SharedMemory(((2, 0), (3, 0)), 2)],
    ),
    "one is not written": ([ROW[:2], ROW[1:3], ROW[8:10], ROW[8:9]], {0}, [SharedMemory(((0, 0), (1, 1)), 3)]),
    "other bits": ([ROW[:2], ROW[:2].view(torch.int32)], {0}, [None]),
    "empty": ([ROW[:0], ROW], {0, 1}, []),
    "numbers and tensors without memory": ([3, torch.empty(3, device="meta"), ROW], {2}, []),
    "two storages": ([torch.from_numpy(ROW.numpy()[1:5]), ROW], {0}, [None]),
    "one begins where the other does": ([torch.from_numpy(ROW.numpy()[:5]), ROW], {0}, [None]),
}


@pytest.mark.parametrize("name", SHARING)
def test_what_inputs_share(name):
    inputs, written, expected = SHARING[name]
    groups = overlaps(inputs, inputs, written)
    assert [shared_memory(group, inputs) for group in groups] == expected


def test_a_row_shows_what_its_parts_do():
    parts = [ROW[5:9], ROW[3:7]]
    row = row_of(SharedMemory(((0, 2), (1, 0)), 6), parts)
    assert torch.equal(row, ROW[3:9]) and row.data_ptr() == parts[1].data_ptr()


def test_the_graph_writes_to_the_row(graph):
    def fn(x, y, z):
        x.add_(z)
        return y * 2, y[1:], x

    inputs = [ROW[:6].clone() for _ in range(2)]
    whole = ROW.clone()
    inputs = [whole[2:8], whole[:4], torch.ones(6)]
    program = trace_inference(graph(fn, 3), inputs)
    signature = program.signature
    assert signature.shared == (SharedMemory(((0, 2), (1, 0)), 8),)
    assert [info.mutation for info in signature.inputs] == [Mutation.SHARED, Mutation.SHARED, Mutation.NONE]
    assert [info.newer for info in signature.inputs] == [1, 0, 0]
    assert [(info.kind.value, info.slot) for info in signature.outputs[1:]] == [("input_view", 1), ("input", 0)]
    last = [node for node in program.graph.graph.nodes if node.op == "call_function"][-1]
    assert last.target is torch.ops.aten.copy_.default and last.args[0].name == "memory_of_x0"
    assert signature.mutated_in_graph == {3} and signature.changed_unseen == {0, 1} and "shared by 0, 1: 8" in signature.text()


def test_too_many_ways_to_overlap_run_uncompiled(graph, eager_runner, caplog):
    import tracework_aotautograd as aot

    def fn(x, y):
        x.add_(1)
        return (y * 2,)

    compiled = aot.aot_compile(graph(fn, 2), [torch.zeros(6), torch.zeros(6)], forward_compiler=eager_runner)
    for begin in [*range(4, 14), *range(4, 14)]:
        mine, theirs = ROW.clone(), ROW.clone()
        found, expected = (f(w[8:14], w[begin : begin + 6]) for f, w in ((compiled, mine), (fn, theirs)))
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(mine, theirs)
        assert ("share memory" in caplog.text) is (begin > 11 or bool(caplog.text))

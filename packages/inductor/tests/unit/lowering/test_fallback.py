"""Calls of library kernels: collectives keep what they read until they are waited for, and run in their order."""

import torch.distributed._functional_collectives  # noqa: F401  (the operators)
from tracework_inductor import InductorOptions
from tracework_inductor.pipeline import plan_graph
from tracework_primops import parse_graph

GATHERED = """inference graph
%x: f32[64] = input
%a: f32[64] = exp(%x)
%g: f32[128] = _c10d_functional.all_gather_into_tensor.default(%a, 2, '0')
%b: f32[64] = sin(%x)
%r: f32[64] = _c10d_functional.all_reduce.default(%b, 'sum', '0')
%u: f32[64] = _c10d_functional.wait_tensor.default(%r)
%c: f32[64] = cos(%u)
%w: f32[128] = _c10d_functional.wait_tensor.default(%g)
%d: f32[128] = neg(%w)
return %c, %d
"""


def test_memory_of_a_collective():
    plan = plan_graph(parse_graph(GATHERED), InductorOptions())
    place = {}
    for n, kernel in enumerate(plan.kernels):
        node = getattr(kernel, "node", None)
        if node is not None:
            place.setdefault(node.target.split(".")[3], []).append(n)
    (gather,), (reduce,), (first, second) = place["all_gather_into_tensor"], place["all_reduce"], place["wait_tensor"]
    assert gather < reduce < first < second, "the order of the program"
    (operand,) = (view.buffer for view in plan.kernels[gather].node.args[:1])
    (result,) = plan.kernels[gather].node.outputs
    ended = {name: n for n, step in enumerate(plan.memory.steps) for name in step.free}
    taken = {old: n for n, step in enumerate(plan.memory.steps) for _, old in step.reuse}
    assert ended.get(operand, taken.get(operand)) >= second
    assert taken.get(result, second + 1) > second and ended.get(result, second + 1) > second

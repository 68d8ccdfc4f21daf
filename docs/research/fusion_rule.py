"""Write a fusion rule: a reason against joining two nodes in one kernel, and what becomes of the kernels under it."""

import torch
from tracework_inductor import InductorOptions, compile_plan, plan_graph
from tracework_inductor.schedule import fusion_rules
from tracework_inductor.schedule.fusion_rules import Proposal
from tracework_primops import aten_graph, decompose
from tracework_runtime import load

MOST_INPUTS = 3


def few_inputs(proposal: Proposal) -> str | None:
    """No kernel reads more than MOST_INPUTS buffers that it does not write itself: a question about bandwidth on small caches."""
    nodes = [member.node for member in proposal.members()]
    written = frozenset().union(*(node.writes for node in nodes))
    read = frozenset().union(*(node.reads for node in nodes)) - written
    return f"the kernel would read {len(read)} buffers" if len(read) > MOST_INPUTS else None


def mixture(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.sigmoid(a) * b + torch.sigmoid(c) * d, torch.tanh(a * c)


inputs = [torch.randn(64, 64) for _ in range(4)]
graph = decompose(aten_graph(mixture, *inputs))
before = plan_graph(graph, InductorOptions())

rules = fusion_rules.FUSION_RULES  # an ordered table: the first rule that gives a reason decides
fusion_rules.FUSION_RULES = (*rules, ("few inputs", few_inputs))
try:
    after = plan_graph(graph, InductorOptions())
finally:
    fusion_rules.FUSION_RULES = rules

for name, plan in (("as it is", before), ("with the rule", after)):
    print(f"{name}: {len(plan.kernels)} kernels")
    for refused in plan.refusals:
        print("  refused:", refused)
    results = load(compile_plan(graph, plan, InductorOptions()))([*inputs])
    torch.testing.assert_close(results, mixture(*inputs))
print(after.text())
assert len(before.kernels) == 1 and len(after.kernels) > 1

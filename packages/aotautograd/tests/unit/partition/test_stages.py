import pytest
import torch
import tracework_aotautograd as aot
from torch import nn

LIMITS = [
    # bytes of the first bucket, of the others; how many parameters of 64 bytes each stage has
    ((1, 1), [1, 1, 1, 1]),
    ((64, 128), [1, 2, 1]),
    ((128, 1024), [2, 2]),
    ((512, 512), []),
]


@pytest.mark.parametrize(("limits", "expected"), LIMITS)
def test_stages_have_so_many_bytes(limits, expected, graph, eager_runner):
    programs = []
    inputs = [torch.randn(2, 4, requires_grad=True), *(nn.Parameter(torch.randn(4, 4)) for _ in range(4))]

    def fn(x, *weights):
        for w in weights:
            x = (x @ w).sin()
        return (x,)

    options = aot.AotOptions(fallback=False, buckets=limits)
    aot.aot_compile(
        graph(fn, 5),
        inputs,
        forward_compiler=eager_runner,
        options=options,
        observe=lambda stage, program: programs.append(program),
    )
    stages = programs[0].backwards[0].stages
    inputs_of = programs[0].backwards[0].component.inputs
    assert [sum(inputs_of[place] > 0 for place in stage.facts.gradients) for stage in stages] == expected
    parameters = [slot for stage in stages for slot in (inputs_of[place] for place in stage.facts.gradients) if slot]
    assert parameters == [4, 3, 2, 1][: len(parameters)]
    targets = [[n.target for n in stage.graph.graph.nodes if n.op == "call_function"] for stage in stages]
    assert (
        sum(map(len, targets)) == len([n for n in programs[0].backwards[0].graph.graph.nodes if n.op == "call_function"])
        or not stages
    )

"""The kept bytes of a row of budgets, against predicted time."""

import torch
import tracework_aotautograd as aot


def net(x, w1, w2):
    return (torch.nn.functional.gelu(x @ w1).softmax(-1) @ w2).square().sum()


def test_bytes_fall_and_time_rises():
    x = torch.randn(64, 32)
    w1, w2 = (torch.randn(*sizes, requires_grad=True) for sizes in ((32, 64), (64, 32)))
    joint = aot.trace_joint(torch.fx.symbolic_trace(net), [x, w1, w2])
    before = str(joint.graph.graph)
    found = aot.trade_off(joint)
    assert str(joint.graph.graph) == before
    sizes, times = [p.bytes for p in found.points], [p.time for p in found.points]
    assert sizes == sorted(sizes, reverse=True) and times == sorted(times) and times[0] == 1 < times[-1]
    assert all(p.bytes <= max(p.budget * sizes[0], sizes[-1]) for p in found.points)  # copies of inputs are kept always
    program = aot.partition(joint, aot.AotOptions(memory_budget=0.5))
    assert aot.trade_off(program) == found == aot.TradeOff.of(found.data())
    halved = next(p.bytes for p in found.points if p.budget == 0.5)
    *_, output = program.forward.graph.nodes
    kept = [n.meta["val"] for n in output.args[0][1:] if n.op == "call_function"]
    assert sum(x.numel() * x.element_size() for x in kept) == halved
    half = next(p for p in found.points if p.budget == 0.5)
    assert (program.kept.whole, program.kept.bytes, program.kept.time) == (sizes[0], halved, half.time)
    assert program.kept.text().startswith(f"memory_budget=0.5: of {sizes[0]:,} bytes") and "possible" not in program.kept.text()
    assert program.kept.again > 0 and aot.partition(joint, aot.AotOptions()).kept is None
    lines = found.text().splitlines()
    assert len(lines) == 1 + len(found.points) and lines[1].startswith("  1.00") and lines[1].endswith("#" * 24)
    assert found.svg().count("<circle") == len(found.points)

"""Attention written out in prims: what its scores are multiplied by may depend on a width that is not known."""

import pytest
import torch
from tracework_primops import FakeMode, SymbolTable, decompose
from tracework_primops.aten_graph import Recorder
from tracework_primops.decomp.attention import MATH_FORMS

aten = torch.ops.aten
KERNEL = aten._scaled_dot_product_flash_attention_for_cpu.default
OPS = {"flash": KERNEL, "math": aten._scaled_dot_product_attention_math.default}


def targets(func, width: int | None, scale: float | None) -> list:
    """What a call with three tensors (2, 3, 8, width or a symbol) becomes."""
    table = SymbolTable()
    mode, recorder = FakeMode(table), Recorder()
    sizes = (2, 3, 8, table.new(16, "width") if width is None else width)
    operands = [mode.from_real(torch.randn(2, 3, 8, width or 16), sizes) for _ in range(3)]
    for name, fake in zip("qkv", operands, strict=True):
        recorder.placeholder(name, fake)
    out = func(*operands, scale=scale)
    recorder(func, tuple(operands), {"scale": scale}, out)
    recorder.graph.output((recorder.node_of(out[0]),))
    graph = decompose(torch.fx.GraphModule({}, recorder.graph), changes=MATH_FORMS)
    return [node.target for node in graph.calls]


CASES = [("flash", 16, None, True), ("flash", None, 0.5, True), ("flash", None, None, False)]
CASES += [
    ("math", 16, None, True),
    ("math", None, 0.5, True),
]  # torch's code of it makes the width a number where no scale is given


@pytest.mark.parametrize(("name", "width", "scale", "is_written"), CASES)
def test_the_factor_of_a_width_that_is_not_known(name: str, width: int | None, scale: float | None, is_written: bool):
    assert (OPS[name] not in targets(OPS[name], width, scale)) is is_written

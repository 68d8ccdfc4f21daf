"""Every row of ONNX_ROWS in ONNX Runtime against PrimGraph.run: one model for three sizes."""

import onnx
import prim_graphs
import pytest
import torch
from prim_records import RECORDS, SIZES
from tracework.onnx import ONNX_ROWS, UNWRITTEN
from tracework.onnx.engines.onnxrt import OnnxRuntime
from tracework_primops import OPS, Op

ROWS = sorted(op.name for op in ONNX_ROWS if isinstance(op, Op))
ENGINE = OnnxRuntime({}, torch.device("cpu"))


def test_every_prim_has_a_row_or_a_reason():
    assert len(ROWS) >= 130
    assert set(ROWS) | set(UNWRITTEN) == set(OPS) and not set(ROWS) & set(UNWRITTEN)
    assert all(UNWRITTEN.values())


def test_every_row_has_records():
    assert set(ROWS) == set(RECORDS)


@pytest.mark.parametrize("name", ROWS)
def test_row(name):
    for number, record in enumerate(RECORDS[name]):
        graph = program = None
        for n in SIZES:
            inputs = record.inputs(n)
            if not record.static:
                inputs.append(torch.empty(n, dtype=torch.bool))
            if record.static or graph is None:
                if record.static:
                    graph = prim_graphs.static_graph(record.call, inputs, n)
                else:
                    graph = prim_graphs.symbolic_graph(record.call, record.inputs, SIZES[0], SIZES[1])
                program, told = prim_graphs.program_of(graph, ENGINE)
                for part in program.parts:
                    onnx.checker.check_model(part.model.proto, full_check=True)
            try:
                prim_graphs.assert_equals_run(program, graph, inputs, record.tolerance)
                assert not told, told
            except Exception as error:
                raise AssertionError(f"record {number}, n = {n}: {error}\n{graph.text()}") from error
